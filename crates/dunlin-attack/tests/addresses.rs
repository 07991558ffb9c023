//! Peers that make nodes dial for them: neither a dial-back nor the answer of a name service may scan the
//! hosts of others.

#[path = "../../dunlin/tests/support/far.rs"]
mod far;

use std::time::{Duration, Instant};

use dunlin::prelude::*;
use dunlin_attack::{Peer, face, hello, life, run};
use dunlin_proto::id::{ChannelId, Life};
use dunlin_proto::wire::{Face, Frame, Names, NoDial, NoRelay, Relay};
use far::Far;
use tokio::net::{TcpListener, TcpSocket};

const SCANNER: [u8; 4] = [127, 0, 0, 2];
const VICTIM: [u8; 4] = [127, 0, 0, 9];

/// Listens at the same port of two hosts.
fn doors() -> (TcpListener, TcpListener) {
    let listen = |host: [u8; 4], port: u16| {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((host, port).into()).map(|()| socket.listen(16).unwrap())
    };
    loop {
        let own = listen(SCANNER, 0).unwrap();
        // Another program may hold that port there.
        if let Ok(victims) = listen(VICTIM, own.local_addr().unwrap().port()) {
            return (own, victims);
        }
    }
}

/// A peer asks a helper to have another node dial a third host. The node dials only the peer's own host,
/// which is the twin: an honest peer that cannot dial that node gets its dial-back.
#[test]
fn dial_back_reaches_only_the_asking_host() {
    run(async {
        let names = "memory:names-of-scans";
        let builder = || Node::builder().app("scans").names(names).listen("127.0.0.1:0");
        let helper = builder().join().await.unwrap();
        let other = builder().join().await.unwrap();
        // This connects the helper with it.
        let (mut rx, mut tx) = (helper.receiver::<u8>("x").await.unwrap(), other.sender::<u8>("x").await.unwrap());
        let sent = dunlin::spawn(async move { tx.send(1).await.map(|()| tx) });
        assert_eq!(rx.recv().await, Ok(1));
        let _tx = sent.await.unwrap().unwrap();
        let wanted = Peer::who_is(SCANNER, &other.addresses()[0], "scans", life(1)).await.unwrap();

        let there = Peer::who_is(SCANNER, &helper.addresses()[0], "scans", life(1)).await.unwrap();
        let said = hello("scans", life(1), there);
        let mut peer = Peer::join(SCANNER, &helper.addresses()[0], &said, Duration::ZERO).await.unwrap();
        let (own, victims) = doors();
        let addresses = vec![victims.local_addr().unwrap().to_string(), "unix:/run/docker.sock".to_owned()];
        peer.say(&[Frame::Relay(Relay::AskDial { node: wanted.node, addresses })]).await.unwrap();
        tokio::select! {
            dialled = own.accept() => drop(dialled.unwrap()),
            dialled = victims.accept() => panic!("a node dials {VICTIM:?} for a stranger: {dialled:?}"),
        }
        // Until the answer arrives, no node has dialled there.
        loop {
            if let Frame::Relay(answer) = peer.hear().await.unwrap() {
                assert!(matches!(answer, Relay::NotDialled(node, _) if node == wanted.node), "{answer:?}");
                break;
            }
        }
        let victims = victims.into_std().unwrap();
        let dialled = victims.accept();
        assert!(dialled.is_err(), "a node dials {VICTIM:?} for a stranger: {dialled:?}");
        drop((helper, other));
    });
}

/// A hand-written name service, which knows for each of these names a node that has it, and its addresses. It
/// refuses to help reach any.
async fn tells(mut service: Peer, known: [(&str, Life, Vec<String>); 2]) {
    loop {
        let heard = tokio::time::timeout(Duration::from_millis(100), service.hear()).await;
        let answer = match heard.map(|heard| heard.expect("the name service is not left")) {
            Ok(Frame::Names(Names::Declare { number, name, .. })) => {
                let Some((_, partner, addresses)) = known.iter().find(|(known, ..)| *known == name) else { continue };
                let (partner, addresses) = (*partner, addresses.clone());
                let (channel, face) = (ChannelId(7), face(Face::Receiver));
                Frame::Names(Names::Found { number, partner, addresses, channel, face })
            }
            // The node dials again as soon as it may, without waiting for help.
            Ok(Frame::Relay(Relay::AskDial { node, .. })) => {
                Frame::Relay(Relay::NotDialled(node, NoDial::NotConnected))
            }
            Ok(Frame::Relay(Relay::To { stream, .. })) => {
                Frame::Relay(Relay::Refused { stream, why: NoRelay::Unwilling })
            }
            _ => Frame::Heartbeat,
        };
        service.say(&[answer]).await.expect("the name service is not left");
    }
}

/// A name service of another host reports one server at a third host's port, and another at a port of this
/// host and a unix socket of it. The node dials only the third host: once, and then once a second.
#[cfg(unix)]
#[test]
fn addresses_of_a_name_service_are_dialled_once_a_second_and_not_on_this_host() {
    const WATCHED: Duration = Duration::from_secs(5);
    run(async {
        let service = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (victim, here) =
            (TcpListener::bind("127.0.0.1:0").await.unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap());
        let path = std::env::temp_dir().join(format!("dunlin-told-{}", std::process::id()));
        let door = tokio::net::UnixListener::bind(&path).unwrap();
        let at = |listener: &TcpListener| listener.local_addr().unwrap().to_string();
        let (third, names) = ("203.0.113.7:22", "203.0.113.1:7400");
        let hosts = [(third.to_owned(), at(&victim)), (names.to_owned(), at(&service))].into();
        let node = Node::builder().app("told").network(Far { hosts }).names(names).serve_names(false);
        let (node, service) = tokio::join!(node.listen("127.0.0.1:0").join(), Peer::accept(&service, life(1)));
        let (node, service) = (node.unwrap(), service.unwrap());
        let wish = |name: &'static str| {
            let node = node.clone();
            dunlin::spawn(async move { node.sender::<u32>(name).await })
        };
        let wishes = ["tides", "shells"].map(wish);
        // With several addresses for one node, the node would dial each less often.
        let known = [
            ("tides", life(2), vec![third.to_owned()]),
            ("shells", life(3), vec![at(&here), format!("unix:{}", path.display())]),
        ];
        let mut telling = tokio::spawn(tells(service, known));

        let (mut dials, until) = (0, Instant::now() + WATCHED);
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            tokio::select! {
                // The node counts a socket that is closed at once as a failed dial.
                dialled = victim.accept() => {
                    drop(dialled.unwrap());
                    dials += 1;
                }
                dialled = here.accept() => panic!("a port of this host is dialled: {dialled:?}"),
                dialled = door.accept() => panic!("a unix socket of this host is dialled: {dialled:?}"),
                told = &mut telling => told.unwrap(),
                () = tokio::time::sleep(left) => {}
            }
        }
        telling.abort();
        println!("{dials} dials in {WATCHED:?}");
        assert!((1..=6).contains(&dials), "{dials} dials in {WATCHED:?}");
        std::fs::remove_file(&path).unwrap();
        drop((wishes, node));
    });
}
