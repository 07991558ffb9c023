//! Two nodes in two OS processes: one reads a file, the other counts the words of each line. The example cuts
//! the socket between them again and again, in the middle of whatever it carries; neither process needs to
//! handle that.
//!
//! ```text
//!   reader ──"lines"──▶ counter
//!      ▲                   │
//!      └─────"counts"──────┘
//! ```
//!
//! Run it: `cargo run --release --example two_nodes [file]`

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use dunlin::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Every copy of this program includes the licence, so it is the default file.
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../LICENSE-APACHE");

#[dunlin::main]
async fn main() -> Result {
    match std::env::args().nth(1).as_deref() {
        Some("--counter") => counter(&std::env::args().nth(2).unwrap_or_default()).await,
        file => reader(file.unwrap_or(FILE)).await,
    }
}

/// In the second process: answers each line with the number of its words.
async fn counter(address: &str) -> Result {
    // Peers reach this node through a cable that can be cut.
    let node = Node::builder().app("two_nodes").advertise(address).names(address).join().await?;
    println!("{}", node.listening()[0]);
    let mut lines = node.receiver::<(usize, String)>("lines").await?;
    let mut counts = node.sender::<(usize, usize)>("counts").await?;
    while let Some((number, line)) = lines.next().await? {
        counts.send((number, words(&line))).await?;
    }
    counts.retire();
    node.leave().await
}

fn words(line: &str) -> usize {
    line.split_whitespace().count()
}

/// In the first process: sends the lines, receives the counts, and checks that each has arrived once and in
/// order.
async fn reader(file: &str) -> Result {
    let text = std::fs::read_to_string(file)?;
    let lines: Vec<&str> = text.lines().collect();

    let cable = Cable::new(text.len() as u64);
    let (to_counter, to_reader) = (TcpListener::bind("127.0.0.1:0").await?, TcpListener::bind("127.0.0.1:0").await?);
    let (counter, reader) = (to_counter.local_addr()?.to_string(), to_reader.local_addr()?.to_string());
    let mut child =
        Command::new(std::env::current_exe()?).args(["--counter", &counter]).stdout(Stdio::piped()).spawn()?;
    let mut listens = String::new();
    BufReader::new(child.stdout.take().expect("it is piped")).read_line(&mut listens)?;
    spawn(cable.clone().lead(to_counter, listens.trim().to_owned()));

    let node = Node::builder().app("two_nodes").advertise(&reader).names(&counter).join().await?;
    spawn(cable.clone().lead(to_reader, node.listening()[0].clone()));

    let mut sending = node.sender::<(usize, String)>("lines").await?;
    let mut counts = node.receiver::<(usize, usize)>("counts").await?;
    let (sent, received) = par!(
        async {
            for numbered in lines.iter().map(|line| line.to_string()).enumerate() {
                sending.send(numbered).await?; // Ok: the other process has received it
            }
            sending.retire();
            Ok::<_, Error>(())
        },
        async {
            let mut received = Vec::new();
            while let Some(count) = counts.next().await? {
                received.push(count);
            }
            Ok::<_, Error>(received)
        },
    );
    sent?;
    let received = received?;
    let ended = child.wait()?;

    let expected: Vec<(usize, usize)> = lines.iter().map(|line| words(line)).enumerate().collect();
    let total: usize = received.iter().map(|(_, words)| words).sum();
    println!("{}: {} lines, {total} words", file, received.len());
    println!("the socket was cut {} times", cable.cuts.load(Ordering::Relaxed));
    if received != expected || !ended.success() {
        return Err(Error::other("something was lost, doubled, out of order or counted wrongly"));
    }
    println!("nothing was lost, doubled or out of order");
    Ok(())
}

/// Carries all sockets between the two processes, and cuts the active one after 1,000 to 3,000 bytes.
struct Cable {
    /// The bytes that may pass before the next cut.
    left: Mutex<u64>,
    random: AtomicU64,
    cuts: AtomicU64,
}

impl Cable {
    fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self { left: Mutex::new(1000), random: AtomicU64::new(seed), cuts: AtomicU64::new(0) })
    }

    /// Forwards each connection to this port to that address.
    async fn lead(self: Arc<Self>, port: TcpListener, address: String) -> Result {
        loop {
            let (near, _) = port.accept().await?;
            let far = TcpStream::connect(&address).await?;
            let cable = self.clone();
            spawn(async move {
                let ((mut near_in, mut near_out), (mut far_in, mut far_out)) = (near.into_split(), far.into_split());
                // Both ends of both sockets are dropped when the first direction ends.
                alt! {
                    _ = future(cable.carry(&mut near_in, &mut far_out)) => {}
                    _ = future(cable.carry(&mut far_in, &mut near_out)) => {}
                }
            });
        }
    }

    async fn carry(
        &self,
        from: &mut (impl AsyncReadExt + Unpin),
        to: &mut (impl AsyncWriteExt + Unpin),
    ) -> std::io::Result<()> {
        let mut buffer = [0; 4096];
        loop {
            let arrived = from.read(&mut buffer).await?;
            let goes = arrived.min(self.allowed(arrived));
            to.write_all(&buffer[..goes]).await?;
            if goes < arrived || arrived == 0 {
                return Ok(());
            }
        }
    }

    /// How many of this many bytes may still pass.
    fn allowed(&self, bytes: usize) -> usize {
        let mut left = self.left.lock().expect("no panic happens under this lock");
        if (bytes as u64) < *left {
            *left -= bytes as u64;
            return bytes;
        }
        self.cuts.fetch_add(1, Ordering::Relaxed);
        let random = self.random.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
        // More than two handshakes, so that the nodes make progress.
        std::mem::replace(&mut *left, 1000 + (random >> 32) % 2000) as usize
    }
}
