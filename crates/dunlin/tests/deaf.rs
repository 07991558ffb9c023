//! Two nodes over a network whose sockets stay up, and that carries nothing in one direction: before the
//! handshake, behind it, or from the first large piece on. Their connection ends, and with it every wait for
//! it.
#![cfg(feature = "net")]

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dunlin::node::{ConnectionState, Down};
use dunlin::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

const GRACE: Duration = Duration::from_secs(2);

/// The part that the network does not carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    All,
    BehindHandshake,
    /// From the first piece of more than 1 KiB on.
    Large,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    Sender,
    Receiver,
}

/// The network's fault for new and old sockets.
#[derive(Clone, Default)]
struct Weather(Arc<Mutex<Option<(From, Fault)>>>);

impl Weather {
    fn now(&self, from: From) -> Option<Fault> {
        self.0.lock().unwrap().filter(|(by, _)| *by == from).map(|(_, fault)| fault)
    }

    /// Forwards the bytes that arrive, until either side closes. It reads and discards the bytes that the
    /// fault affects.
    async fn carry(self, by: From, dials: bool, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
        let (mut buffer, mut first, mut passed, mut mute) = (vec![0; 64 << 10], Vec::new(), 0, false);
        while let Ok(bytes @ 1..) = from.read(&mut buffer).await {
            if first.len() < 11 {
                first.extend_from_slice(&buffer[..bytes]);
            }
            // Magic and kind, the length, and the frame behind the handshake of the dialling side.
            let handshake = match first.get(9..11) {
                Some(length) => 11 + usize::from(length[0]) * 256 + usize::from(length[1]) + if dials { 2 } else { 0 },
                None => usize::MAX,
            };
            let through = match self.now(by) {
                _ if mute => 0,
                Some(Fault::All) => 0,
                Some(Fault::BehindHandshake) => bytes.min(handshake.saturating_sub(passed)),
                Some(Fault::Large) if bytes > 1024 => 0,
                _ => bytes,
            };
            mute |= through < bytes;
            passed += bytes;
            if to.write_all(&buffer[..through]).await.is_err() {
                return;
            }
        }
    }

    /// A port that leads to a node, and that the other node dials.
    async fn port(&self, dialler: From) -> (TcpListener, impl FnOnce(TcpListener, String) + use<>) {
        let weather = self.clone();
        let listened = dialled_of(dialler);
        let lead = move |listener: TcpListener, address: String| {
            tokio::spawn(async move {
                loop {
                    let (near, _) = listener.accept().await.unwrap();
                    let Ok(far) = TcpStream::connect(&address).await else { continue };
                    let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
                    let there = weather.clone().carry(dialler, true, near_in, far_out);
                    let back = weather.clone().carry(listened, false, far_in, near_out);
                    tokio::spawn(async move {
                        // The end of either direction ends both.
                        tokio::select! { () = there => {}, () = back => {} }
                    });
                }
            });
        };
        (TcpListener::bind("127.0.0.1:0").await.unwrap(), lead)
    }
}

fn dialled_of(dialler: From) -> From {
    if dialler == From::Sender { From::Receiver } else { From::Sender }
}

async fn plays(number: usize, from: From, fault: Fault) -> Result {
    let weather = Weather::default();
    let names = format!("memory:names-of-deaf-{number}");
    let builder = || {
        let builder = Node::builder().app("deaf").names(&names).listen("127.0.0.1:0");
        builder.heartbeat(Duration::from_millis(100)).grace(GRACE).relay(false)
    };
    let third = builder().listen("memory:").join().await?;
    let _served = third.receiver::<u64>("nothing").await?;
    let (to_receiver, leads_to_receiver) = weather.port(From::Sender).await;
    let (to_sender, leads_to_sender) = weather.port(From::Receiver).await;
    let address = |listener: &TcpListener| listener.local_addr().unwrap().to_string();
    let receiver = builder().advertise(&address(&to_receiver)).join().await?;
    let sender = builder().advertise(&address(&to_sender)).join().await?;
    leads_to_receiver(to_receiver, receiver.listening()[0].clone());
    leads_to_sender(to_sender, sender.listening()[0].clone());

    // The large value has to travel in the direction that carries nothing large.
    let goes_back = (from, fault) == (From::Receiver, Fault::Large);
    let (near, far) = if goes_back { (&receiver, &sender) } else { (&sender, &receiver) };
    let mut rx = far.receiver::<Vec<u8>>("values").await?;
    let mut tx = near.sender::<Vec<u8>>("values").await?;
    let mut states = near.connections();
    let (sent, received) = par!(tx.send(vec![7; 10]), rx.recv());
    sent?;
    assert_eq!(received?.len(), 10);

    *weather.0.lock().unwrap() = Some((from, fault));
    let began = Instant::now();
    let (sent, received) = par!(tx.send(vec![7; 300_000]), async {
        match rx.recv().await {
            // The value arrived, since the fault affects the other direction.
            Ok(_) => rx.recv().await.map(|_| ()),
            Err(error) => Err(error),
        }
    });
    let took = began.elapsed();
    match sent {
        Err(SendError::Unknown { .. } | SendError::NotTaken { why: Why::NodeLost, .. }) => {}
        other => panic!("{from:?}, {fault:?}: {:?}", other.map_err(|error| error.to_string())),
    }
    assert_eq!(received, Err(RecvError::NodeLost), "{from:?}, {fault:?}");
    assert!(took < Duration::from_secs(15), "{from:?}, {fault:?}: after {took:?}");
    let why = loop {
        match states.recv().await? {
            (peer, ConnectionState::Down(why)) if peer == far.me() => break why,
            _ => {}
        }
    };
    assert!(
        matches!(why, Down::Unreachable(..) | Down::Unrelayed { .. } | Down::GivenUp),
        "{from:?}, {fault:?}: {why}"
    );
    println!("{from:?}, {fault:?}: {why}, after {took:?}");
    // The network worked for the third node throughout; the remaining nodes leave.
    *weather.0.lock().unwrap() = None;
    let (sender, receiver) = par!(sender.leave(), receiver.leave());
    sender.and(receiver)?;
    third.leave().await
}

#[test]
fn socket_deaf_in_one_direction_ends_its_connection() {
    dunlin::block_on(async {
        let faults = [
            (From::Sender, Fault::All),
            (From::Receiver, Fault::All),
            (From::Sender, Fault::BehindHandshake),
            (From::Receiver, Fault::BehindHandshake),
            (From::Sender, Fault::Large),
            (From::Receiver, Fault::Large),
        ];
        let all = faults.iter().enumerate().map(|(number, (from, fault))| {
            let (from, fault) = (*from, *fault);
            spawn(async move {
                let played = tokio::time::timeout(Duration::from_secs(60), plays(number, from, fault)).await;
                played.unwrap_or_else(|_| panic!("{from:?}, {fault:?}: it hangs")).map_err(|error| error.to_string())
            })
        });
        for playing in all.collect::<Vec<_>>() {
            playing.await.unwrap().unwrap();
        }
    });
}
