//! A TCP proxy between nodes under test, which treats sockets as networks do: it cuts them at any byte,
//! closes one direction, stalls, delays, and delivers in small pieces.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

use crate::random::Random;

/// The ways in which a socket ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Both directions at once.
    Cut,
    /// One direction is closed; the other stays open while it is used.
    HalfClose,
    /// One direction carries nothing any more, and stays open.
    Stall,
}

/// The fault of one socket, its direction, and its position in bytes.
#[derive(Clone, Copy, Debug)]
struct Fate {
    fault: Fault,
    there: bool,
    after: u64,
    /// The most bytes that go at once, ...
    piece: usize,
    /// ... the delay of each piece, ...
    delay: Duration,
}

/// ... for this many of the first pieces. A timer takes 1 ms at least: a socket that lives for 100 KB, in
/// delayed pieces of 3 bytes, would take half a minute.
const DELAYS: u32 = 200;

/// How often each fault has happened.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) cut: AtomicU64,
    pub(crate) half_closed: AtomicU64,
    pub(crate) stalled: AtomicU64,
}

/// Ports that lead to addresses, over sockets that all share one random source of faults.
pub(crate) struct Proxy {
    random: Mutex<Random>,
    /// The number of faults in all.
    faults_max: u64,
    faults: AtomicU64,
    pub(crate) counts: Counts,
}

/// A port of the proxy that leads nowhere yet.
pub(crate) struct Port {
    proxy: Arc<Proxy>,
    listener: TcpListener,
}

impl Port {
    /// The address to dial.
    pub(crate) fn address(&self) -> String {
        self.listener.local_addr().unwrap().to_string()
    }

    /// Makes the port lead to this address.
    pub(crate) fn lead_to(self, address: &str) {
        let Self { proxy, listener } = self;
        let address = address.to_owned();
        tokio::spawn(async move {
            loop {
                let (near, _) = listener.accept().await.unwrap();
                // Without it the near socket is dropped: no node listens there.
                if let Ok(far) = TcpStream::connect(&address).await {
                    tokio::spawn(proxy.clone().link(near, far));
                }
            }
        });
    }
}

impl Proxy {
    /// A proxy with a seed, and this many faults to come.
    pub(crate) fn new(seed: u64, faults_max: u64) -> Arc<Self> {
        let (faults, counts) = (AtomicU64::new(0), Counts::default());
        Arc::new(Self { random: Mutex::new(Random(seed)), faults_max, faults, counts })
    }

    pub(crate) async fn port(self: &Arc<Self>) -> Port {
        Port { proxy: self.clone(), listener: TcpListener::bind("127.0.0.1:0").await.unwrap() }
    }

    /// Whether all the faults have happened.
    pub(crate) fn is_done(&self) -> bool {
        self.faults.load(Ordering::Relaxed) >= self.faults_max
    }

    fn below(&self, n: u64) -> u64 {
        self.random.lock().unwrap().below(n)
    }

    /// A size from 1 to 2^`bits`; every order of magnitude is equally likely.
    fn any_size(&self, bits: u64) -> u64 {
        let magnitude = 1 << self.below(bits + 1);
        1 + self.below(magnitude)
    }

    fn fate(&self) -> Fate {
        let fault = match self.below(32) {
            0 => Fault::Stall,
            1..6 => Fault::HalfClose,
            _ => Fault::Cut,
        };
        let (piece, delay) = match self.below(16) {
            _ if self.is_done() => (64 << 10, Duration::ZERO),
            0 => (1 + self.any_size(12) as usize, Duration::from_micros(self.any_size(10))),
            1..4 => (self.any_size(12) as usize, Duration::ZERO),
            _ => (64 << 10, Duration::ZERO),
        };
        // Some within the handshake, most behind it.
        let after = if self.below(8) == 0 { self.any_size(8) } else { 256 + self.any_size(17) };
        Fate { fault, there: self.below(2) == 0, after, piece, delay }
    }

    async fn link(self: Arc<Self>, near: TcpStream, far: TcpStream) {
        let fate = self.fate();
        let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
        let there = self.carry(near_in, far_out, fate, fate.there);
        let back = self.carry(far_in, near_out, fate, !fate.there);
        // `Err` ends both directions, and drops everything.
        let _ = tokio::try_join!(there, back);
    }

    /// Forwards the bytes that arrive. `Err`: the socket is cut, or was closed by its user.
    async fn carry(
        &self,
        mut from: OwnedReadHalf,
        mut to: OwnedWriteHalf,
        fate: Fate,
        fails: bool,
    ) -> Result<(), std::io::Error> {
        let over = || std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
        let mut buffer = vec![0; fate.piece];
        let mut delays = if fate.delay.is_zero() { 0 } else { DELAYS };
        let mut left = if fails && !self.is_done() { fate.after } else { u64::MAX };
        loop {
            let arrived = from.read(&mut buffer).await?;
            if arrived == 0 {
                return Err(over());
            }
            if delays > 0 {
                delays -= 1;
                tokio::time::sleep(fate.delay).await;
            }
            let goes = left.min(arrived as u64);
            to.write_all(&buffer[..goes as usize]).await?;
            left -= goes;
            if left > 0 {
                continue;
            }
            let count = match fate.fault {
                Fault::Cut => &self.counts.cut,
                Fault::HalfClose => &self.counts.half_closed,
                Fault::Stall => &self.counts.stalled,
            };
            count.fetch_add(1, Ordering::Relaxed);
            self.faults.fetch_add(1, Ordering::Relaxed);
            match fate.fault {
                Fault::Cut => return Err(over()),
                Fault::HalfClose => return to.shutdown().await,
                Fault::Stall => std::future::pending().await,
            }
        }
    }
}
