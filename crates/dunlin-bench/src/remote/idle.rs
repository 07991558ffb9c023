//! Thousands of connections with heartbeats only: the processor time that they cost.
//!
//! The leader is measured: a node, or a bare epoll loop that reads what arrives and writes a heartbeat to
//! each socket once a second. The other side runs the peers, which behave the same towards both.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use dunlin::prelude::*;
use dunlin_attack::{Peer, hello, life};
use dunlin_proto::wire::Frame;

use super::sides::Sides;
use super::{Side, on_workers};

/// The reference of the others.
pub(crate) const EPOLL: &str = "epoll";
pub(crate) const NODE: &str = "dunlin";

pub(super) const ALL: [&str; 2] = [EPOLL, NODE];

/// The length of the measurement, and the idle time before it.
const MEASURED: Duration = Duration::from_secs(10);
const SETTLES: Duration = Duration::from_secs(3);

const BEAT: Duration = Duration::from_secs(1);
const APPLICATION: &str = "dunlin-bench-idle";
const LOOPBACK: [u8; 4] = [127, 0, 0, 1];

/// Microseconds of processor time for each connection and second.
pub(super) fn run(side: &Side) -> Result<f64> {
    let mut sides = Sides::start(side.leads(), 2, "")?;
    if !side.leads() {
        return peers(side, sides);
    }
    match side.who.as_str() {
        EPOLL => epoll::serve(side, &mut sides),
        NODE => {
            let (n, threads) = (side.n, side.threads);
            on_workers(threads, async move {
                let node = Node::builder().app(APPLICATION).names("memory:idle").listen("127.0.0.1:0").join().await?;
                sides.meet(true, &node.addresses()[0], |_| {})?;
                // All peers have connected. While the leader waits for their report, the node needs this
                // worker.
                tokio::task::block_in_place(|| sides.hear())?;
                ensure!(node.peers().len() as u64 == n, "{} of {n} peers are there", node.peers().len());
                tokio::time::sleep(SETTLES).await;
                let began = spent()?;
                tokio::time::sleep(MEASURED).await;
                let each = each(spent()? - began, n);
                ensure!(node.peers().len() as u64 == n, "{} of {n} peers are left", node.peers().len());
                Ok(each)
            })
        }
        who => bail!("there is no {who:?} in this binary"),
    }
}

fn each(spent: Duration, n: u64) -> f64 {
    spent.as_secs_f64() * 1e6 / (n as f64 * MEASURED.as_secs_f64())
}

/// The processor time of this process.
#[cfg(unix)]
fn spent() -> Result<Duration> {
    use nix::sys::resource::{UsageWho, getrusage};
    use nix::sys::time::TimeValLike;
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let micros = (usage.user_time() + usage.system_time()).num_microseconds();
    Ok(Duration::from_micros(u64::try_from(micros).context("time runs forward")?))
}

#[cfg(not(unix))]
fn spent() -> Result<Duration> {
    bail!("processor time is measured by getrusage, which this system has not")
}

/// The other side: `n` peers, whose heartbeats are spread over a second.
fn peers(side: &Side, mut sides: Sides) -> Result<f64> {
    let (who, n) = (side.who.clone(), side.n);
    on_workers(1, async move {
        let leader = sides.meet(false, "peers", |_| {})?.into_iter().next().context("the leader is somewhere")?;
        let greets = who == NODE;
        let there = match greets {
            true => Some(Peer::who_is(LOOPBACK, &leader, APPLICATION, life(0)).await?),
            false => None,
        };
        let began = tokio::time::Instant::now();
        for number in 0..n {
            let mut peer = match there {
                Some(there) => {
                    let hello = hello(APPLICATION, life(1 + u128::from(number)), there);
                    Peer::join(LOOPBACK, &leader, &hello, Duration::ZERO).await?
                }
                None => Peer::dial(LOOPBACK, &leader).await?,
            };
            let phase = BEAT.mul_f64(number as f64 / n as f64);
            tokio::spawn(async move {
                let mut beat = tokio::time::interval_at(began + phase + BEAT, BEAT);
                loop {
                    beat.tick().await;
                    if peer.say(&[Frame::Heartbeat]).await.is_err() {
                        return;
                    }
                    while let Some(heard) = peer.heard() {
                        if heard.is_err() {
                            return;
                        }
                    }
                }
            });
        }
        // Gives the leader time to read enough to confirm the last peer.
        tokio::time::sleep(Duration::from_secs(1)).await;
        println!("all are there");
        std::future::pending().await
    })
}

/// The bare loop.
#[cfg(target_os = "linux")]
mod epoll {
    use std::io::{ErrorKind, Read, Write};
    use std::net::{TcpListener, TcpStream};

    use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

    use super::*;

    /// How many times in a second it writes heartbeats, to the same number of sockets each time.
    const TURNS: usize = 100;

    pub(super) fn serve(side: &Side, sides: &mut Sides) -> Result<f64> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        sides.meet(true, &listener.local_addr()?.to_string(), |_| {})?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let mut sockets = Vec::new();
        for number in 0..side.n {
            let (stream, _) = listener.accept()?;
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            epoll.add(&stream, EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, number))?;
            sockets.push(stream);
        }
        sides.hear()?;
        let began = Instant::now();
        turn(&epoll, &mut sockets, began, began + SETTLES)?;
        let before = spent()?;
        turn(&epoll, &mut sockets, began, began + SETTLES + MEASURED)?;
        Ok(each(spent()? - before, side.n))
    }

    fn turn(epoll: &Epoll, sockets: &mut [TcpStream], began: Instant, until: Instant) -> Result<()> {
        let mut events = vec![EpollEvent::empty(); 1024];
        let mut buffer = [0; 512];
        let pause = BEAT / TURNS as u32;
        let mut turns = (Instant::now() - began).as_millis() as usize / pause.as_millis() as usize;
        loop {
            let now = Instant::now();
            if now >= until {
                return Ok(());
            }
            while began + pause * turns as u32 <= now {
                let own = sockets.iter_mut().skip(turns % TURNS).step_by(TURNS);
                for socket in own {
                    socket.write_all(&[1, 0])?;
                }
                turns += 1;
            }
            let wait = (began + pause * turns as u32).saturating_duration_since(Instant::now());
            let timeout = EpollTimeout::try_from(wait.as_millis() as u32 + 1)?;
            let ready = epoll.wait(&mut events, timeout)?;
            for event in &events[..ready] {
                match sockets[event.data() as usize].read(&mut buffer) {
                    Ok(0) => bail!("a peer has gone"),
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod epoll {
    use super::*;

    pub(super) fn serve(_: &Side, _: &mut Sides) -> Result<f64> {
        bail!("epoll is Linux's")
    }
}
