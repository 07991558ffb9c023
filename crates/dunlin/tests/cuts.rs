//! Two nodes under load while a proxy cuts, half-closes, stalls and slows the sockets between them: nothing
//! is lost, duplicated or out of order, and a send reports the true outcome of its value.
//!
//! The full size, in release mode:
//!
//! ```sh
//! DUNLIN_CUTS=1000 DUNLIN_MESSAGES=1000000 cargo test --release -p dunlin --test cuts -- --nocapture
//! ```
#![cfg(feature = "net")]

#[path = "support/proxy.rs"]
mod proxy;
#[path = "support/random.rs"]
mod random;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use dunlin::node::{ConnectionState, Down, Peer};
use dunlin::prelude::*;
use proxy::Proxy;

/// The remaining load: messages, and faults of the proxy.
struct Load {
    messages: u64,
    sent: AtomicU64,
    proxy: Arc<Proxy>,
}

impl Load {
    /// Counts a message. `false`: the load is complete.
    fn goes_on(&self) -> bool {
        self.sent.fetch_add(1, Ordering::Relaxed) < self.messages || !self.proxy.is_done()
    }
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// A message whose length depends on its number, long enough that sockets break within it.
fn blob(n: u64) -> Vec<u8> {
    let len = n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - 8 - n % 10);
    (0..len).map(|at| (n ^ at) as u8).collect()
}

/// Sends 0, 1, 2, ... Returns how many.
async fn count(mut tx: Sender<u64>, load: Arc<Load>) -> Result<u64> {
    for n in 0.. {
        if !load.goes_on() {
            tx.retire();
            return Ok(n);
        }
        tx.send(n).await?;
    }
    unreachable!("it counts for centuries")
}

/// Receives 0, 1, 2, ... Returns how many.
async fn counted(mut rx: Receiver<u64>) -> Result<u64> {
    let mut expected = 0;
    while let Some(n) = rx.next().await? {
        assert_eq!(n, expected, "lost, doubled or out of order");
        expected += 1;
    }
    Ok(expected)
}

async fn blobs(mut tx: Sender<Vec<u8>>, load: Arc<Load>) -> Result<u64> {
    for n in 0.. {
        if !load.goes_on() {
            tx.retire();
            return Ok(n);
        }
        tx.send(blob(n)).await?;
    }
    unreachable!("it counts for centuries")
}

async fn received_blobs(mut rx: Receiver<Vec<u8>>) -> Result<u64> {
    let mut expected = 0;
    while let Some(bytes) = rx.next().await? {
        assert!(bytes == blob(expected), "message {expected} is lost, doubled, out of order or damaged");
        expected += 1;
    }
    Ok(expected)
}

/// Sends each number with a deadline that it may or may not meet. Returns those that were received, as far as
/// the sender knows.
async fn hurry(mut tx: Sender<u64>, load: Arc<Load>) -> Result<Vec<u64>> {
    let mut told = Vec::new();
    for n in 0.. {
        if !load.goes_on() {
            tx.retire();
            return Ok(told);
        }
        match tx.send(n).within(Duration::from_micros(50 * (n % 64))).await {
            Ok(()) => told.push(n),
            Err(SendError::NotTaken { value, why }) if why.is_timed_out() => assert_eq!(value, n),
            Err(error) => return Err(error.into()),
        }
    }
    unreachable!("it counts for centuries")
}

/// Receives with deadlines too.
async fn hurried(mut rx: Receiver<u64>) -> Result<Vec<u64>> {
    let mut received = Vec::new();
    for n in 0u64.. {
        match rx.recv().within(Duration::from_micros(50 * (n % 48))).await {
            Ok(n) => received.push(n),
            Err(why) if why.is_timed_out() => {}
            Err(RecvError::Closed) => return Ok(received),
            Err(error) => return Err(error.into()),
        }
    }
    unreachable!("it counts for centuries")
}

#[derive(Bundle)]
struct Adder {
    next: Call<u64, u64>,
}

async fn ask(mut adder: AdderClient, load: Arc<Load>) -> Result<u64> {
    for n in 0.. {
        if !load.goes_on() {
            return Ok(n);
        }
        assert_eq!(adder.next.call(n).await?, n + 1);
    }
    unreachable!("it counts for centuries")
}

async fn answer(mut adder: AdderServer) -> Result<u64> {
    for expected in 0.. {
        match adder.next.accept().await {
            Ok(ask) => {
                assert_eq!(*ask, expected, "a call is lost, doubled or out of order");
                assert_eq!(ask.reply(expected + 1), Ok(()), "the caller waits for it");
            }
            Err(RecvError::Closed) => return Ok(expected),
            Err(error) => return Err(error.into()),
        }
    }
    unreachable!("it counts for centuries")
}

/// Checks that both processes have the same result.
async fn agree<R: PartialEq + std::fmt::Debug + Send + 'static>(
    what: String,
    one: impl Future<Output = Result<R>> + Send + 'static,
    other: impl Future<Output = Result<R>> + Send + 'static,
) -> Result {
    let (one, other) = (spawn(one), spawn(other));
    let (one, other) = par!(one, other);
    assert_eq!(one??, other??, "{what}: what was sent, and what was received");
    Ok(())
}

/// Runs all kinds of channels from one node to the other.
async fn all(from: Node, to: Node, load: Arc<Load>) -> Result {
    let mut running = Vec::new();
    let me = from.me();
    for (kind, policy) in
        [("rendezvous", None), ("fifo1", Some(fifo(1))), ("fifo64", Some(fifo(64))), ("fifo1000", Some(fifo(1000)))]
    {
        let name = format!("{kind} of {me}");
        let naming = to.receiver::<u64>(&name);
        let rx = match policy {
            Some(policy) => naming.policy(policy).await?,
            None => naming.await?,
        };
        let tx = from.sender::<u64>(&name).await?;
        running.push(spawn(agree(name, count(tx, load.clone()), counted(rx))));
    }
    for (kind, places) in [("blobs", 1), ("blob queue", 8)] {
        let name = format!("{kind} of {me}");
        let rx = to.receiver::<Vec<u8>>(&name).policy(fifo(places)).await?;
        let tx = from.sender::<Vec<u8>>(&name).await?;
        running.push(spawn(agree(name, blobs(tx, load.clone()), received_blobs(rx))));
    }
    let name = format!("hurried of {me}");
    let (rx, tx) = (to.receiver::<u64>(&name).await?, from.sender::<u64>(&name).await?);
    running.push(spawn(agree(name, hurry(tx, load.clone()), hurried(rx))));
    let name = format!("adder of {me}");
    let (server, client) = (to.server::<Adder>(&name).await?, from.client::<Adder>(&name).await?);
    running.push(spawn(agree(name, ask(client, load), answer(server))));
    for running in running {
        running.await??;
    }
    Ok(())
}

/// How often the connection to this peer was resumed, until it ended.
async fn resumptions(mut connections: Receiver<(Peer, ConnectionState)>, with: Peer) -> Result<u64> {
    let mut resumed = 0;
    loop {
        match connections.recv().await {
            Ok((peer, state)) if peer == with => match state {
                ConnectionState::Up | ConnectionState::Lost => {}
                ConnectionState::Resumed => resumed += 1,
                ConnectionState::Down(Down::Left | Down::Leaving) => return Ok(resumed),
                state => panic!("the connection is {state:?}"),
            },
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[test]
fn nothing_is_lost_doubled_or_out_of_order() {
    let (cuts, messages) = (setting("DUNLIN_CUTS", 40), setting("DUNLIN_MESSAGES", 15_000));
    let seed = setting("DUNLIN_SEED", 1);
    println!("DUNLIN_SEED={seed} DUNLIN_CUTS={cuts} DUNLIN_MESSAGES={messages}");
    let test = async {
        let proxy = Proxy::new(seed, cuts);
        let builder = || {
            let builder = Node::builder().app("cuts").names("memory:names-of-cuts").listen("127.0.0.1:0");
            // After many cuts, a dial takes so long that the node would ask the third node to relay, where
            // nothing is cut.
            builder.heartbeat(Duration::from_millis(100)).grace(Duration::from_secs(30)).relay(false)
        };
        // A third node serves the names, so that the two connect through the proxy alone.
        let names = builder().listen("memory:").join().await?;
        let _served = names.receiver::<u64>("nothing").await?;
        let (to_a, to_b) = (proxy.port().await, proxy.port().await);
        let a = builder().advertise(&to_a.address()).join().await?;
        let b = builder().advertise(&to_b.address()).join().await?;
        to_a.lead_to(&a.listening()[0]);
        to_b.lead_to(&b.listening()[0]);
        let resumed = spawn(resumptions(a.connections(), b.me()));

        let load = Arc::new(Load { messages, sent: AtomicU64::new(0), proxy: proxy.clone() });
        let began = Instant::now();
        let (there, back) = par!(all(a.clone(), b.clone(), load.clone()), all(b.clone(), a.clone(), load.clone()));
        there?;
        back?;
        let took = began.elapsed();
        a.leave().await?;
        let sent = load.sent.load(Ordering::Relaxed);
        println!("{sent} messages in {took:?}; {:?}; {} resumptions", proxy.counts, resumed.await??);
        b.leave().await?;
        names.leave().await
    };
    dunlin::block_on(async { tokio::time::timeout(Duration::from_secs(3600), test).await.expect("it hangs") }).unwrap();
}
