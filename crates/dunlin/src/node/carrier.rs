//! The task of one socket: it reads and writes it, and speaks to the machine about it.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use dunlin_proto::id::SocketId;
use tokio::io::AsyncReadExt;

use super::bell::Bell;
use super::driver::{Driver, Locked};
use super::network::Socket;
use crate::world::Timer;

/// What is read goes into buffers of this size...
const READ: usize = 256 << 10;
/// ... and so much is read at once: it is still in the processor's caches when its readers have it.
const READ_AT_ONCE: usize = 64 << 10;
/// With less room than this, a new buffer is taken...
const READ_MIN: usize = 4 << 10;
/// ... and with less than this if no frame has begun in the old one: what is large should be in one piece.
const READ_EMPTY_MIN: usize = READ / 2;
/// So many pieces go in one call to the kernel.
const SLICES: usize = 64;
/// So much is taken from the machine for one write: what has been taken cannot be overtaken.
const WRITE: usize = 64 << 10;
/// So much is carried before others on the same worker have their turn.
const TURN: usize = 128 << 10;

/// So long a socket that is to be closed may take to write what it still has.
const LINGER: Duration = Duration::from_secs(1);

/// What whoever polls a [`Carrier`] does next.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Work on the channels that its bell has, and then poll again: it is attended.
    Work,
    /// The socket is gone.
    Over,
}

/// Reads and writes one socket.
pub(super) struct Carrier {
    driver: Arc<Driver>,
    id: SocketId,
    bell: Arc<Bell>,
    socket: Box<dyn Socket>,
    /// What has arrived and is no whole frame, and room for what follows.
    buffer: BytesMut,
    /// So much of that frame is missing at least.
    missing: usize,
    /// What the machine has given and the socket has not taken.
    out: Vec<Bytes>,
    /// Something was written and not flushed.
    flushing: bool,
    /// The machine may have more for this socket than is in `out`.
    more: bool,
    parting: bool,
    /// The peer says no more.
    ended: bool,
    /// The work on channels is done: what has come of it is to be written.
    worked: bool,
    /// There may be more to read, than was read at once.
    unread: bool,
    /// An end here was told something, ...
    told: bool,
    /// ... and it was a receiving one, ...
    told_receiver: bool,
    /// ... and so many bytes were carried, since others had their turn.
    carried: usize,
    /// What is large waits for what the ends that were told something may say.
    waits: bool,
    /// Until when the last words may take.
    linger: Option<Pin<Box<Timer>>>,
}

impl Carrier {
    pub(super) fn new(driver: Arc<Driver>, id: SocketId, bell: Arc<Bell>, socket: Box<dyn Socket>) -> Self {
        Self {
            driver,
            id,
            bell,
            socket,
            buffer: BytesMut::new(),
            missing: 0,
            out: Vec::new(),
            flushing: false,
            more: false,
            parting: false,
            ended: false,
            worked: false,
            unread: false,
            told: false,
            told_receiver: false,
            carried: 0,
            waits: false,
            linger: None,
        }
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        match self.poll_carry(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(Step::Work)) => Poll::Ready(Step::Work),
            Poll::Ready(Ok(Step::Over) | Err(_)) => {
                self.driver.socket_over(self.id, &self.bell);
                Poll::Ready(Step::Over)
            }
        }
    }

    fn poll_carry(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Step>> {
        // The machine may have something for a socket that is new, or has just become free.
        let mut fetch = true;
        loop {
            let mut news = std::mem::take(&mut self.worked);
            if news {
                let driver = self.driver.clone();
                driver.speak(|locked| self.fill(locked));
            } else {
                fetch |= self.bell.poll_rung(cx);
                let arrived = self.poll_read(cx)?.is_ready();
                news = fetch || arrived;
                if news && self.exchange(arrived) {
                    self.worked = true;
                    return Poll::Ready(Ok(Step::Work));
                }
            }
            fetch = false;
            if !self.out.is_empty() || self.flushing {
                // There may be more than was taken at once.
                fetch = self.poll_write(cx)?.is_ready() && self.more;
            } else if self.parting {
                return Pin::new(&mut *self.socket).poll_shutdown(cx).map_ok(|()| Step::Over);
            }
            // A socket that cannot be written is still read, and the bell heard: else two that wait for each other would do so for ever.
            if !news && !fetch {
                self.turn_is_over();
                if !self.parting {
                    return Poll::Pending;
                }
                let linger = self.linger.get_or_insert_with(|| Box::pin(Timer::after(LINGER)));
                return linger.as_mut().poll(cx).map(|()| Ok(Step::Over));
            }
            let answers_wait = (self.told_receiver && self.unread) || (self.told && self.more);
            if self.waits || answers_wait || self.carried >= TURN {
                self.turn_is_over();
                // In tokio the woken task runs now, and who waits for other sockets before this one goes on.
                let _ = pin!(tokio::task::yield_now()).poll(cx);
                return Poll::Pending;
            }
        }
    }

    fn turn_is_over(&mut self) {
        (self.told, self.told_receiver, self.carried) = (false, false, 0);
    }

    /// Tells the machine what has arrived. `true`: there is work on channels; else what the machine has for this socket has been fetched.
    fn exchange(&mut self, arrived: bool) -> bool {
        self.bell.attend();
        self.driver.now();
        let driver = self.driver.clone();
        driver.speak(|locked| {
            if arrived {
                self.missing = locked.state.machine.received_in(locked.now, self.id, &mut self.buffer);
                self.told |= locked.state.machine.tells();
                self.told_receiver |= locked.state.machine.tells_receivers();
            }
            driver.act(locked.state, locked.now);
            let work = self.bell.stirred() > 0;
            if !work {
                self.fill(locked);
            }
            work
        })
    }

    /// Fetches what the machine has for this socket.
    fn fill(&mut self, locked: &mut Locked<'_>) {
        self.bell.depart();
        if self.bell.stirred() > 0 {
            self.bell.ring();
        }
        self.parting |= locked.state.parting.contains_key(&self.id);
        self.more = true;
        if self.out.is_empty() {
            // It waits once: what is said then may be for somebody else.
            self.waits = !self.waits && !self.parting && self.told && locked.state.machine.has_more_of_values(self.id);
            if !self.waits {
                let bytes = locked.state.machine.fill(locked.now, self.id, WRITE, &mut self.out);
                self.carried += bytes;
                self.more = bytes >= WRITE;
            }
        }
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.ended {
            return Poll::Pending;
        }
        let min = if self.buffer.is_empty() { READ_EMPTY_MIN } else { READ_MIN.max(self.missing) };
        if self.buffer.capacity() - self.buffer.len() < min {
            self.buffer.reserve(READ.max(self.missing));
        }
        let mut room = (&mut self.buffer).limit(READ_AT_ONCE);
        let reading = pin!(self.socket.read_buf(&mut room));
        let bytes = ready!(reading.poll(cx))?;
        self.unread = bytes >= READ_AT_ONCE;
        self.carried += bytes;
        if bytes > 0 {
            return Poll::Ready(Ok(()));
        }
        // It may still read what this side says last: the answer to its goodbye.
        self.ended = self.parting;
        if self.ended { Poll::Pending } else { Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())) }
    }

    /// `Ready`: all is written.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.out.is_empty() {
            let socket = Pin::new(&mut *self.socket);
            let mut written = if let [bytes] = &self.out[..] {
                ready!(socket.poll_write(cx, bytes))?
            } else {
                let mut slices = [IoSlice::new(&[]); SLICES];
                let count = self.out.len().min(SLICES);
                slices.iter_mut().zip(&self.out).for_each(|(slice, bytes)| *slice = IoSlice::new(bytes));
                ready!(socket.poll_write_vectored(cx, &slices[..count]))?
            };
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            let mut whole = 0;
            for bytes in &mut self.out {
                if written < bytes.len() {
                    bytes.advance(written);
                    break;
                }
                written -= bytes.len();
                whole += 1;
            }
            self.out.drain(..whole);
            self.flushing = true;
        }
        ready!(Pin::new(&mut *self.socket).poll_flush(cx))?;
        self.flushing = false;
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::Waker;

    use super::super::events::Log;
    use super::super::hub::Hub;
    use super::super::network::Networks;
    use super::*;
    use dunlin_proto::id::{Incarnation, Life, NodeId};
    use dunlin_proto::{Config, Machine};
    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

    /// Takes nothing, and gives one byte; remembers whether somebody waits for more.
    struct Stuck {
        byte: Option<u8>,
        awaited: Arc<AtomicBool>,
    }

    impl AsyncRead for Stuck {
        fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            self.awaited.store(self.byte.is_none(), Ordering::Relaxed);
            let Some(byte) = self.byte.take() else { return Poll::Pending };
            buf.put_slice(&[byte]);
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Stuck {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Pending
        }
        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }
        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    impl Socket for Stuck {
        fn peer(&self) -> String {
            "stuck".to_owned()
        }
    }

    #[test]
    fn who_cannot_write_waits_for_what_arrives() {
        let me = Life { node: NodeId(1), incarnation: Incarnation(1) };
        let machine = Machine::new(Config::new("krill"), me, 1);
        let driver = Driver::new(
            machine,
            Networks::default(),
            std::time::Duration::from_secs(1),
            Hub::new(me, false),
            Log::default(),
        );
        let id = SocketId(0);
        driver.with(|state, now| state.machine.accepted(now, id));
        let awaited = Arc::<AtomicBool>::default();
        let socket = Stuck { byte: Some(b'd'), awaited: awaited.clone() };
        let mut carrier = Carrier::new(driver, id, Arc::default(), Box::new(socket));
        carrier.out.push(Bytes::from_static(b"krill"));
        assert!(carrier.poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert!(awaited.load(Ordering::Relaxed), "else two that both only write would wait for ever");
    }

    /// Has nothing more to give, and takes what it is given once it may.
    struct HalfClosed {
        takes: Arc<AtomicBool>,
        taken: Arc<Mutex<Vec<u8>>>,
    }

    impl AsyncRead for HalfClosed {
        fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for HalfClosed {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            if !self.takes.load(Ordering::Relaxed) {
                return Poll::Pending;
            }
            self.taken.lock().unwrap().extend_from_slice(bytes);
            Poll::Ready(Ok(bytes.len()))
        }
        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    impl Socket for HalfClosed {
        fn peer(&self) -> String {
            "half closed".to_owned()
        }
    }

    #[tokio::test]
    async fn the_last_words_go_to_who_says_no_more() {
        let me = Life { node: NodeId(1), incarnation: Incarnation(1) };
        let driver = || {
            let machine = Machine::new(Config::new("krill"), me, 1);
            Driver::new(
                machine,
                Networks::default(),
                std::time::Duration::from_secs(1),
                Hub::new(me, false),
                Log::default(),
            )
        };
        for parting in [true, false] {
            let (takes, taken) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Vec<u8>>>::default());
            let socket = HalfClosed { takes: takes.clone(), taken: taken.clone() };
            let mut carrier = Carrier::new(driver(), SocketId(0), Arc::default(), Box::new(socket));
            carrier.out.push(Bytes::from_static(b"krill"));
            carrier.parting = parting;
            let mut cx = Context::from_waker(Waker::noop());
            // While there is something to be said to it, it is not over.
            assert_eq!(carrier.poll(&mut cx).is_pending(), parting);
            takes.store(true, Ordering::Relaxed);
            if parting {
                assert!(matches!(carrier.poll(&mut cx), Poll::Ready(Step::Over)));
                assert_eq!(*taken.lock().unwrap(), b"krill");
            }
        }
    }
}
