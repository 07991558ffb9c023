//! A network in virtual time. It knows one kind of address, any text, and stands for all kinds of networks.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::executor::{Shared, Timer};
use super::wires::{Backlog, Host, Pipe, Pipes, pair, wake};
use crate::lock::lock;
use crate::net::{self, BoxFuture, Listener, Socket};

/// How many bytes may be in flight in one direction of a socket.
const PIPE_BYTES: usize = 64 << 10;

/// Control of a simulation's network, for its owner.
pub(crate) struct Control<'a>(&'a Arc<Shared>);

impl Shared {
    pub(super) fn network(self: &Arc<Self>) -> Control<'_> {
        Control(self)
    }
}

impl Control<'_> {
    pub(super) fn delay(&self, min: Duration, max: Duration) {
        lock(&self.0.wires().0).delay = (min.as_micros() as u64, max.as_micros() as u64);
    }

    pub(crate) fn cut(&self, one: Host, other: Host) {
        let pipes: Vec<Arc<Mutex<Pipe>>> = {
            let mut state = lock(&self.0.wires().0);
            state.sockets.retain(|(_, pipes)| pipes.iter().any(|pipe| pipe.strong_count() > 0));
            let between = state.sockets.iter().filter(|(ends, _)| *ends == pair(one, other));
            between.flat_map(|(_, pipes)| pipes.iter().filter_map(Weak::upgrade)).collect()
        };
        for pipe in pipes {
            let mut pipe = lock(&pipe);
            // A part of the bytes still arrives.
            let mut left = self.0.below(pipe.bytes as u64 + 1) as usize;
            pipe.bytes = left;
            for (_, piece) in &mut pipe.pieces {
                piece.truncate(left);
                left -= piece.len();
            }
            pipe.pieces.retain(|(_, piece)| !piece.is_empty());
            pipe.cut = true;
            let wakers = pipe.wake();
            drop(pipe);
            wake(wakers);
        }
    }

    pub(crate) fn part(&self, one: Host, other: Host) {
        lock(&self.0.wires().0).parted.insert(pair(one, other));
    }

    pub(crate) fn block(&self, from: Host, to: Host) {
        lock(&self.0.wires().0).blocked.insert((from, to));
    }

    pub(crate) fn unblock(&self, from: Host, to: Host) {
        lock(&self.0.wires().0).blocked.remove(&(from, to));
    }

    pub(crate) fn heal(&self, one: Host, other: Host) {
        lock(&self.0.wires().0).parted.remove(&pair(one, other));
    }
}

/// The network as one node sees it.
#[derive(Clone)]
pub(crate) struct Simulated {
    sim: Arc<Shared>,
    host: Host,
}

impl Simulated {
    /// The network of a new node.
    pub(crate) fn new(sim: Arc<Shared>) -> Self {
        let mut state = lock(&sim.wires().0);
        state.next_host += 1;
        let host = state.next_host;
        drop(state);
        Self { sim, host }
    }

    pub(crate) fn host(&self) -> Host {
        self.host
    }

    fn delay(&self) -> u64 {
        delay(&self.sim)
    }

    fn is_blocked(&self, address: &str) -> bool {
        let state = lock(&self.sim.wires().0);
        let there = state.listeners.get(address).map(|backlog| lock(backlog).host);
        there.is_some_and(|there| state.blocked.contains(&(self.host, there)))
    }
}

fn delay(sim: &Shared) -> u64 {
    let (min, max) = lock(&sim.wires().0).delay;
    min + sim.below(max.saturating_sub(min) + 1)
}

fn error(kind: io::ErrorKind, text: String) -> io::Error {
    io::Error::new(kind, text)
}

impl net::Network for Simulated {
    /// The networks treat an address without a known prefix as TCP's: so all addresses are this network's.
    fn scheme(&self) -> &'static str {
        net::Tcp::SCHEME
    }

    fn dial<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Socket>>> {
        Box::pin(async move {
            wait(&self.sim, self.delay()).await;
            if self.is_blocked(address) {
                if self.sim.below(2) == 0 {
                    return std::future::pending().await;
                }
                let text = format!("cannot dial `{address}`: a firewall is in between");
                // (A refusal would mean that no process listens there.)
                return Err(error(io::ErrorKind::HostUnreachable, text));
            }
            let mut state = lock(&self.sim.wires().0);
            let refused = |why| error(io::ErrorKind::ConnectionRefused, format!("cannot dial `{address}`: {why}"));
            let backlog = state.listeners.get(address).cloned().ok_or_else(|| refused("no listener there"))?;
            let there = lock(&backlog).host;
            if state.parted.contains(&pair(self.host, there)) {
                let text = format!("cannot dial `{address}`: the two nodes are partitioned");
                return Err(error(io::ErrorKind::HostUnreachable, text));
            }
            let pipes = [Arc::<Mutex<Pipe>>::default(), Arc::default()];
            state.sockets.push((pair(self.host, there), [Arc::downgrade(&pipes[0]), Arc::downgrade(&pipes[1])]));
            drop(state);
            let [forth, back] = pipes;
            let side = |out: &Arc<Mutex<Pipe>>, into: &Arc<Mutex<Pipe>>, peer| Pipes {
                out: out.clone(),
                into: into.clone(),
                peer,
            };
            let mut waiting = lock(&backlog);
            waiting.sockets.push_back(side(&back, &forth, format!("host {}", self.host)));
            let waker = waiting.waker.take();
            drop(waiting);
            wake([waker]);
            let end = End { pipes: side(&forth, &back, address.to_owned()), sim: self.sim.clone(), timer: None };
            Ok(Box::new(end) as Box<dyn Socket>)
        })
    }

    fn listen<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Listener>>> {
        Box::pin(async move {
            let mut state = lock(&self.sim.wires().0);
            // A free port, or a free name.
            let free =
                address.strip_suffix(":0").or_else(|| address.strip_suffix(':')).or(address.is_empty().then_some(""));
            let address = match free {
                Some(prefix) => {
                    state.next_port += 1;
                    format!("{prefix}:{}", state.next_port)
                }
                None => address.to_owned(),
            };
            if state.listeners.contains_key(&address) {
                let text = format!("cannot listen on `{address}`: another node of this simulation has the address");
                return Err(error(io::ErrorKind::AddrInUse, text));
            }
            let backlog = Arc::new(Mutex::new(Backlog { host: self.host, sockets: VecDeque::new(), waker: None }));
            state.listeners.insert(address.clone(), backlog.clone());
            Ok(Box::new(Listening { sim: self.sim.clone(), address, backlog }) as Box<dyn Listener>)
        })
    }
}

async fn wait(sim: &Arc<Shared>, micros: u64) {
    let mut timer = Timer::after(sim, Duration::from_micros(micros));
    std::future::poll_fn(|cx| timer.poll(cx)).await;
}

struct Listening {
    sim: Arc<Shared>,
    address: String,
    backlog: Arc<Mutex<Backlog>>,
}

impl Listener for Listening {
    fn accept<'a>(&'a mut self) -> BoxFuture<'a, io::Result<Box<dyn Socket>>> {
        Box::pin(std::future::poll_fn(|cx| {
            let mut backlog = lock(&self.backlog);
            match backlog.sockets.pop_front() {
                Some(pipes) => {
                    let end = End { pipes, sim: self.sim.clone(), timer: None };
                    Poll::Ready(Ok(Box::new(end) as Box<dyn Socket>))
                }
                None => {
                    backlog.waker = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        }))
    }

    fn address(&self) -> String {
        self.address.clone()
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        lock(&self.sim.wires().0).listeners.remove(&self.address);
        let dropped = std::mem::take(&mut lock(&self.backlog).sockets);
        drop(dropped);
    }
}

/// One end of a socket.
struct End {
    pipes: Pipes,
    sim: Arc<Shared>,
    /// Runs until the next piece arrives.
    timer: Option<Timer>,
}

impl Socket for End {
    fn peer(&self) -> String {
        self.pipes.peer.clone()
    }
}

impl AsyncRead for End {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let mut pipe = lock(&this.pipes.into);
        let Some((at, piece)) = pipe.pieces.front_mut() else {
            if pipe.cut {
                return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
            }
            if pipe.closed {
                return Poll::Ready(Ok(()));
            }
            pipe.reader = Some(cx.waker().clone());
            return Poll::Pending;
        };
        let mut timer = Timer::at(&this.sim, *at);
        if timer.poll(cx).is_pending() {
            this.timer = Some(timer);
            pipe.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        // Often the whole piece, otherwise a part: one byte, or any number.
        let most = piece.len().min(buf.remaining());
        let count = match this.sim.below(4) {
            0 => 1 + this.sim.below(most as u64) as usize,
            1 => 1.min(most),
            _ => most,
        };
        piece.drain(..count).for_each(|byte| buf.put_slice(&[byte]));
        if piece.is_empty() {
            pipe.pieces.pop_front();
        }
        pipe.bytes -= count;
        let writer = pipe.writer.take();
        drop(pipe);
        wake([writer]);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for End {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut pipe = lock(&self.pipes.out);
        if pipe.cut || pipe.closed {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let room = PIPE_BYTES - pipe.bytes;
        if room == 0 {
            pipe.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let count = bytes.len().min(room);
        // Bytes do not overtake each other.
        let earliest = pipe.pieces.back().map_or(0, |(at, _)| *at);
        let at = earliest.max(self.sim.now() + delay(&self.sim));
        pipe.pieces.push_back((at, bytes[..count].iter().copied().collect()));
        pipe.bytes += count;
        let reader = pipe.reader.take();
        drop(pipe);
        wake([reader]);
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut pipe = lock(&self.pipes.out);
        pipe.closed = true;
        let wakers = pipe.wake();
        drop(pipe);
        wake(wakers);
        Poll::Ready(Ok(()))
    }
}
