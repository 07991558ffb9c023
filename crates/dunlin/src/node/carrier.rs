//! The task of one socket: it reads and writes the socket, and reports to the machine.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use dunlin_proto::id::SocketId;
use dunlin_proto::time::Time;
use tokio::io::{AsyncReadExt, AsyncWrite};

use super::arrivals::Arrivals;
use super::bell::Bell;
use super::state::{Driver, Locked};
use crate::net::Socket;
use crate::world::{self, Timer};

/// The size of the buffers for reading ...
const READ: usize = 256 << 10;
/// ... or this one, if nothing but heartbeats has arrived for [`QUIET`]: there may be thousands of such
/// sockets.
const READ_QUIET: usize = 512;
/// ... and how much is read at once: it is still in the processor's caches when it is processed, and others
/// on the same worker hardly wait ...
const READ_AT_ONCE: usize = 64 << 10;
/// ... or this much, and all that is missing of a frame, if there are no others: see [`Carrier::large`].
const READ_AT_ONCE_ALONE: usize = READ;
/// ... or this much, if most of what arrives carries nothing: see
/// [`Machine::paused_until`](dunlin_proto::Machine::paused_until).
const READ_CHATTER: usize = 4 << 10;
/// The machine is asked about that once in this many arrivals.
const CHATTER_EACH: u32 = 16;
/// With less room than this, a new buffer is allocated ...
const READ_MIN: usize = 4 << 10;
/// ... and with less than this if no frame has begun in the old one: a large frame should be in one piece.
const READ_EMPTY_MIN: usize = READ / 2;
/// How many pieces go in one call to the kernel.
const SLICES: usize = 64;
/// How much is taken from the machine for one write: later frames cannot overtake it ...
const WRITE: usize = 64 << 10;
/// ... or this much, if nothing waits to overtake it: see [`Carrier::large`].
const WRITE_ALONE: usize = 512 << 10;
/// How much is carried before others on the same worker have their turn ...
const TURN: usize = 128 << 10;
/// ... or this much, if this socket is alone: to give way costs a call to the kernel, and often a worker that
/// is woken.
const TURN_ALONE: usize = 1 << 20;
/// A turn also ends after this time, unless this socket is alone: even a little may take long to carry.
const TURN_TIME: Duration = Duration::from_micros(200);

/// How long the sockets of a process keep each other's calls to the kernel short, once two of them have
/// carried something.
const COMPANY: Duration = Duration::from_millis(200);
/// A socket that has received nothing but heartbeats for this long gives its buffer back.
const QUIET: Duration = Duration::from_secs(1);
/// Lone heartbeats and acknowledgements are no longer than this: nothing waits for them.
const WORD: usize = 16;

/// How long a socket that is to be closed may take to write its remaining output.
const LINGER: Duration = Duration::from_secs(1);

/// What the caller of [`Carrier::poll`] does next.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Work on the channels that its bell has, and then poll again: the bell is attended.
    Work,
    /// The socket has ended.
    Over,
}

/// Reads and writes one socket.
pub(super) struct Carrier {
    driver: Arc<Driver>,
    id: SocketId,
    bell: Arc<Bell>,
    socket: Box<dyn Socket>,
    /// What has arrived and is not a whole frame, and room for what follows.
    buffer: BytesMut,
    /// How much of that frame is missing, at least.
    missing: usize,
    /// When it was first left here. `None`: the buffer is as large as the frame, or nothing is left.
    begun: Option<Time>,
    /// What was taken from the machine, and not yet by the socket.
    out: Vec<Bytes>,
    /// Something was written and not flushed.
    flushing: bool,
    /// The machine may have more for this socket than is in `out`.
    more: bool,
    parting: bool,
    /// The peer sends nothing more.
    ended: bool,
    /// The work on channels is done: its output is to be written.
    worked: bool,
    /// What is to be passed on next.
    arrivals: Arrivals,
    /// There may be more to read than was read at once.
    unread: bool,
    /// Since the last turn an end here was told something, ...
    told: bool,
    /// ... and it was a receiving one, ...
    told_receiver: bool,
    /// ... and this many bytes were carried, ...
    carried: usize,
    /// ... and the turn ends by then. `None`: nothing was carried since.
    turn_until: Option<Time>,
    /// Large values wait for what the ends that were told something may send.
    waits: bool,
    /// How often something has arrived.
    reads: u32,
    /// Much of what arrived carries nothing: less is read ...
    chatters: bool,
    /// ... and nothing before this time.
    pause: Option<Pin<Box<Timer>>>,
    /// How long the last frames may take.
    linger: Option<Pin<Box<Timer>>>,
    neighbours: Neighbours,
    /// When something other than a heartbeat last arrived. `None`: long ago, and the buffer is small.
    heard: Option<Time>,
    /// Much is read and written at once: only large values of one channel have lately gone over this socket,
    /// and nothing over other sockets of this process. So nothing waits behind a long call to the kernel, and
    /// each call costs as much as waking the other side.
    large: bool,
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
            begun: None,
            out: Vec::new(),
            flushing: false,
            more: false,
            parting: false,
            ended: false,
            worked: false,
            arrivals: Arrivals::default(),
            unread: false,
            told: false,
            told_receiver: false,
            carried: 0,
            turn_until: None,
            waits: false,
            reads: 0,
            chatters: false,
            pause: None,
            linger: None,
            neighbours: Neighbours::default(),
            heard: None,
            large: false,
        }
    }

    /// Whether the socket is being closed: nothing is read from it or written any more.
    pub(super) fn is_parting(&self) -> bool {
        self.parting
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
        // Nothing has arrived: an arrival wakes the task.
        let mut is_dry = false;
        loop {
            let mut news = std::mem::take(&mut self.worked);
            if news {
                let driver = self.driver.clone();
                driver.speak(|locked| {
                    // Whatever has called the machine meanwhile has rung.
                    if self.bell.has_news() || !locked.state.garbage.is_empty() {
                        driver.act(locked.state, locked.now);
                    }
                    self.fill(locked, false);
                });
            } else {
                fetch |= self.bell.poll_rung(cx);
                let read = if is_dry { Poll::Pending } else { self.poll_read(cx)? };
                is_dry = read.is_pending();
                let (is_read, arrived) = match read {
                    Poll::Ready(bytes) => (true, bytes),
                    Poll::Pending => (false, 0),
                };
                news = fetch || is_read;
                if news && self.exchange(is_read, arrived) {
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
            // A socket that cannot be written is still read, and the bell polled: otherwise two that wait for
            // each other would wait for ever.
            if !news && !fetch {
                self.turn_is_over();
                if !self.parting {
                    return Poll::Pending;
                }
                let linger = self.linger.get_or_insert_with(|| Box::pin(Timer::after(LINGER)));
                return linger.as_mut().poll(cx).map(|()| Ok(Step::Over));
            }
            let answers_wait = (self.told_receiver && self.unread) || (self.told && self.more);
            if self.waits || answers_wait || self.is_turn_over() {
                self.turn_is_over();
                // In tokio the woken task runs now, and tasks that wait for other sockets run before this one
                // continues.
                let _ = pin!(tokio::task::yield_now()).poll(cx);
                return Poll::Pending;
            }
        }
    }

    /// Writes what the machine has for this socket, beside the task of another socket. `false`: the socket's
    /// own task is needed.
    pub(super) fn write_beside(&mut self, cx: &mut Context<'_>) -> bool {
        if self.worked || self.parting || !self.arrivals.is_empty() || self.bell.stirred() > 0 {
            return false;
        }
        let driver = self.driver.clone();
        self.bell.attend();
        driver.now();
        driver.speak(|locked| {
            driver.act(locked.state, locked.now);
            self.fill(locked, true);
        });
        let is_written = (self.out.is_empty() && !self.flushing) || matches!(self.poll_write(cx), Poll::Ready(Ok(())));
        self.turn_is_over();
        is_written && !self.more && !self.waits && !self.parting && !self.bell.poll_rung(cx)
    }

    /// Takes what is to be passed on next.
    pub(super) fn take_arrivals(&mut self) -> Arrivals {
        std::mem::take(&mut self.arrivals)
    }

    /// Takes it back: it has been passed on, and its memory is for what arrives next.
    pub(super) fn keep(&mut self, arrivals: Arrivals) {
        self.arrivals = arrivals;
    }

    fn turn_is_over(&mut self) {
        (self.told, self.told_receiver, self.carried, self.turn_until) = (false, false, 0, None);
    }

    /// Whether enough was carried, or has taken long enough by the last reading of the clock: before the last
    /// batch, unless that may have taken long by itself.
    fn is_turn_over(&self) -> bool {
        if self.large {
            return self.carried >= TURN_ALONE;
        }
        if self.has_frames() {
            self.driver.now();
        }
        self.carried >= TURN || self.turn_until.is_some_and(|until| self.driver.lately() >= until)
    }

    /// Whether whole frames are here that the machine has not read, behind one that may have taken long.
    fn has_frames(&self) -> bool {
        self.missing == 0 && !self.buffer.is_empty()
    }

    /// Gives the machine what has arrived: `arrived` bytes, behind what is here already. `true`: channels
    /// need work; otherwise the machine's output for this socket has been fetched.
    fn exchange(&mut self, is_read: bool, arrived: usize) -> bool {
        self.bell.attend();
        self.driver.now();
        let driver = self.driver.clone();
        driver.speak(|locked| {
            self.turn_until.get_or_insert(locked.now + TURN_TIME);
            let steps = locked.state.machine.steps();
            self.arrivals.begin(locked.state);
            if is_read {
                let goes_on = arrived < self.missing;
                self.missing = locked.state.machine.received_in(locked.now, self.id, &mut self.buffer);
                self.shrink(goes_on, locked.now);
                self.quieten(arrived, locked.now);
                self.rest_from_chatter(arrived, locked);
                self.told |= locked.state.machine.tells();
                self.told_receiver |= locked.state.machine.tells_receivers();
                self.meet(arrived, locked);
            }
            driver.act_beside(locked.state, locked.now, Some(&mut self.arrivals));
            if locked.state.machine.steps() != steps {
                self.rest(locked);
            }
            let work = !self.arrivals.is_empty() || self.bell.stirred() > 0;
            if !work {
                self.fill(locked, true);
            }
            work
        })
    }

    /// Fetches the machine's output for this socket. `always`: also if the bell has not rung since the last
    /// call. The machine has it rung for all output that it has not announced before.
    fn fill(&mut self, locked: &mut Locked<'_>, always: bool) {
        self.bell.depart();
        if self.bell.stirred() > 0 {
            self.bell.ring();
        }
        let has_news = self.bell.take_news();
        self.parting |= locked.state.parting.contains_key(&self.id);
        if !always && !has_news && !self.more {
            return;
        }
        self.more = true;
        if self.out.is_empty() {
            // It waits once: the next frames may be for another end.
            self.waits = !self.waits && !self.parting && self.told && locked.state.machine.has_more_of_values(self.id);
            if !self.waits {
                let room = if self.large { WRITE_ALONE } else { WRITE };
                let bytes = locked.state.machine.fill(locked.now, self.id, room, &mut self.out);
                self.carried += bytes;
                self.more = bytes >= room;
                self.meet(bytes, locked);
            }
        }
    }

    /// Pauses reading if too much of what arrives carries nothing. The machine is asked about large arrivals,
    /// and about each [`CHATTER_EACH`]th of the small ones.
    fn rest_from_chatter(&mut self, arrived: usize, locked: &Locked<'_>) {
        self.reads = self.reads.wrapping_add(1);
        if arrived >= READ_CHATTER || self.chatters || self.reads.is_multiple_of(CHATTER_EACH) {
            self.rest(locked);
        }
    }

    fn rest(&mut self, locked: &Locked<'_>) {
        let pause = locked.state.machine.paused_until(locked.now, self.id);
        self.chatters = pause.is_some();
        self.pause = pause.map(|until| Box::pin(Timer::after(until.since(locked.now))));
    }

    /// Gives a frame that takes long a buffer of its own length. `goes_on`: part of this frame was here
    /// before.
    fn shrink(&mut self, goes_on: bool, now: Time) {
        if self.missing == 0 || self.buffer.is_empty() {
            self.begun = None;
        } else if !goes_on {
            self.begun = Some(now);
        } else if self.begun.is_some_and(|begun| now.since(begun) >= QUIET) {
            self.begun = None;
            let mut buffer = BytesMut::with_capacity(self.buffer.len() + self.missing);
            buffer.extend_from_slice(&self.buffer);
            self.buffer = buffer;
        }
    }

    /// `arrived` bytes were read: what is left in the buffer is not a whole frame.
    fn quieten(&mut self, arrived: usize, now: Time) {
        if arrived > WORD {
            self.heard = Some(now);
        } else if self.buffer.is_empty() && self.heard.is_some_and(|heard| now.since(heard) >= QUIET) {
            self.heard = None;
            self.buffer = BytesMut::new();
        }
    }

    /// Counts these bytes as carried, and checks whether other sockets carry any.
    fn meet(&mut self, bytes: usize, locked: &Locked<'_>) {
        // In a simulation, time is not that of other tests in this process.
        self.large = !world::is_simulated()
            && self.neighbours.are_quiet(&LAST, locked.now, bytes)
            && locked.state.machine.is_alone(self.id);
    }

    /// How many bytes were read; none if there are frames here already.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.ended {
            return Poll::Pending;
        }
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(cx));
            self.pause = None;
        }
        if self.has_frames() {
            return Poll::Ready(Ok(0));
        }
        let (min, size) = match self.heard {
            // A long frame takes no more than its length, however slowly it arrives.
            _ if self.missing > 0 && self.begun.is_none() && !self.buffer.is_empty() => (1, self.missing),
            None => (WORD, READ_QUIET),
            Some(_) if self.buffer.is_empty() => (READ_EMPTY_MIN, READ),
            Some(_) => (READ_MIN.max(self.missing), READ.max(self.missing)),
        };
        if self.buffer.capacity() - self.buffer.len() < min {
            self.buffer.reserve(size);
        }
        let at_once = match self.large {
            _ if self.chatters => READ_CHATTER,
            true => READ_AT_ONCE_ALONE.max(self.missing),
            false => READ_AT_ONCE,
        };
        let mut room = (&mut self.buffer).limit(at_once);
        let reading = pin!(self.socket.read_buf(&mut room));
        let bytes = ready!(reading.poll(cx))?;
        self.unread = bytes >= at_once;
        self.carried += bytes;
        if bytes > 0 {
            return Poll::Ready(Ok(bytes));
        }
        // The peer may still read this side's last frame: the answer to its goodbye.
        self.ended = self.parting;
        if self.ended { Poll::Pending } else { Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())) }
    }

    /// `Ready`: everything is written.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        poll_write_all(&mut *self.socket, &mut self.out, &mut self.flushing, cx)
    }
}

/// Writes all pieces, and flushes them. `Ready`: that is done.
pub(super) fn poll_write_all(
    socket: &mut (impl AsyncWrite + Unpin + ?Sized),
    out: &mut Vec<Bytes>,
    flushing: &mut bool,
    cx: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    while !out.is_empty() {
        let mut written = if let [bytes] = &out[..] {
            ready!(Pin::new(&mut *socket).poll_write(cx, bytes))?
        } else {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let count = out.len().min(SLICES);
            slices.iter_mut().zip(&*out).for_each(|(slice, bytes)| *slice = IoSlice::new(bytes));
            ready!(Pin::new(&mut *socket).poll_write_vectored(cx, &slices[..count]))?
        };
        if written == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        *flushing = true;
        let mut whole = 0;
        for bytes in &mut *out {
            if written < bytes.len() {
                bytes.advance(written);
                break;
            }
            written -= bytes.len();
            whole += 1;
        }
        out.drain(..whole);
    }
    if *flushing {
        ready!(Pin::new(socket).poll_flush(cx))?;
        *flushing = false;
    }
    Poll::Ready(Ok(()))
}

/// The socket of this process that has carried something last.
static LAST: AtomicU64 = AtomicU64::new(0);

/// What a socket knows of the others of its process, including those of other nodes: their tasks may be on
/// the same workers.
struct Neighbours {
    /// This socket's number in [`LAST`].
    number: u64,
    /// When one of them was seen to have carried something.
    seen: Time,
}

impl Default for Neighbours {
    fn default() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(1);
        Self { number: COUNT.fetch_add(1, Ordering::Relaxed), seen: Time::default() }
    }
}

impl Neighbours {
    /// Counts these bytes as carried by this socket. Returns whether no other one has carried anything
    /// lately.
    fn are_quiet(&mut self, last: &AtomicU64, now: Time, bytes: usize) -> bool {
        // Each socket overwrites this with its own number; in most cases it already has this one's.
        if bytes > WORD && last.load(Ordering::Relaxed) != self.number {
            last.store(self.number, Ordering::Relaxed);
            self.seen = now;
        }
        now.since(self.seen) >= COMPANY
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Wake, Waker};

    use super::super::far;
    use super::*;
    use dunlin_proto::wire::{Frame, Names, codec};
    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

    /// Takes nothing, and gives one byte; remembers whether a reader waits for more.
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

    /// Gives a byte at a time, each after 20 microseconds of work, and remembers how many.
    struct Trickle(Arc<AtomicU64>);

    impl AsyncRead for Trickle {
        fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            let until = std::time::Instant::now() + Duration::from_micros(20);
            while std::time::Instant::now() < until {
                std::hint::spin_loop();
            }
            self.0.fetch_add(1, Ordering::Relaxed);
            buf.put_slice(b"d");
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Trickle {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(bytes.len()))
        }
        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    impl Socket for Trickle {
        fn peer(&self) -> String {
            "trickle".to_owned()
        }
    }

    #[tokio::test]
    async fn a_turn_ends_after_its_time_however_little_it_has_carried() {
        let read = Arc::<AtomicU64>::default();
        // (The machine knows nothing of this socket, and drops what arrives on it.)
        let socket = Box::new(Trickle(read.clone()));
        let mut carrier = Carrier::new(far::driver(), SocketId(0), Arc::default(), socket);
        assert!(carrier.poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let bytes = read.load(Ordering::Relaxed);
        // Ten reads take as long as a turn may.
        assert!((1..=20).contains(&bytes), "{bytes} bytes in one turn");
    }

    /// Gives these bytes that many times, and remembers how many were read.
    struct Plenty {
        bytes: Vec<u8>,
        times: usize,
        read: Arc<AtomicU64>,
    }

    impl AsyncRead for Plenty {
        fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            if self.times == 0 {
                return Poll::Pending;
            }
            self.times -= 1;
            let bytes = &self.bytes[..buf.remaining().min(self.bytes.len())];
            buf.put_slice(bytes);
            self.read.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Plenty {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(bytes.len()))
        }
        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    impl Socket for Plenty {
        fn peer(&self) -> String {
            "plenty".to_owned()
        }
    }

    /// The clock stands still: the time does not end the turn.
    #[tokio::test(start_paused = true)]
    async fn turn_ends_after_128_kib_plus_its_last_read() {
        let read = Arc::<AtomicU64>::default();
        let socket = Plenty { bytes: vec![0; READ_AT_ONCE], times: 1000, read: read.clone() };
        // (The machine drops this, too.)
        let mut carrier = Carrier::new(far::driver(), SocketId(0), Arc::default(), Box::new(socket));
        carrier.heard = Some(Time(0));
        let mut before = 0;
        for turn in 0..10 {
            assert!(carrier.poll(&mut Context::from_waker(Waker::noop())).is_pending());
            let bytes = read.load(Ordering::Relaxed) - before;
            assert!((128 << 10..=192 << 10).contains(&bytes), "{bytes} bytes in turn {turn}");
            before += bytes;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_thousand_frames_that_arrive_at_once_take_the_lock_once() {
        let driver = far::driver();
        let _far = far::joins(&driver);
        let mut bytes = BytesMut::new();
        for _ in 0..1000 {
            codec::encode(&Frame::Heartbeat, &mut bytes);
        }
        let read = Arc::<AtomicU64>::default();
        let socket = Plenty { bytes: bytes.to_vec(), times: 1, read: read.clone() };
        let mut carrier = Carrier::new(driver.clone(), far::SOCKET, Arc::default(), Box::new(socket));
        carrier.heard = Some(Time(0));
        let heard = || driver.speak(|locked| locked.state.machine.traffic().map(|(_, traffic)| traffic.read).sum());
        let heard_before: u64 = heard();
        let before = driver.guarded.locks.load(Ordering::Relaxed);
        assert!(carrier.poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(driver.guarded.locks.load(Ordering::Relaxed) - before, 1);
        assert_eq!(heard() - heard_before, bytes.len() as u64, "all of them are heard");
    }

    #[test]
    fn carrier_waits_for_input_while_its_write_is_blocked() {
        let driver = far::driver();
        let id = SocketId(0);
        driver.with(|state, now| state.machine.accepted(now, id));
        let awaited = Arc::<AtomicBool>::default();
        let socket = Stuck { byte: Some(b'd'), awaited: awaited.clone() };
        let mut carrier = Carrier::new(driver, id, Arc::default(), Box::new(socket));
        carrier.out.push(Bytes::from_static(b"krill"));
        assert!(carrier.poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert!(awaited.load(Ordering::Relaxed), "else two that both only write would wait for ever");
    }

    /// Gives nothing more, and takes bytes once it may.
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

    /// How often a task was woken.
    #[derive(Default)]
    struct Task(AtomicU64);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn task_of_a_socket_written_beside_another_is_woken_by_the_next_ring() {
        let driver = far::driver();
        let far = far::joins(&driver);
        let says = || {
            let undeclared = Names::Undeclare { number: 1 };
            driver.with(|state, now| state.machine.say_names(now, far.me().node, undeclared)).unwrap();
        };
        let (takes, taken) = (Arc::new(AtomicBool::new(true)), Arc::<Mutex<Vec<u8>>>::default());
        let (bell, task) = (Arc::<Bell>::default(), Arc::<Task>::default());
        let socket = HalfClosed { takes: takes.clone(), taken: taken.clone() };
        let mut carrier = Carrier::new(driver.clone(), far::SOCKET, bell.clone(), Box::new(socket));
        let waker = Waker::from(task.clone());
        says();
        assert!(carrier.write_beside(&mut Context::from_waker(&waker)));
        let written = taken.lock().unwrap().len();
        assert!(written > 0 && task.0.load(Ordering::Relaxed) == 0);
        bell.ring();
        assert_eq!(task.0.load(Ordering::Relaxed), 1);
        // What the socket does not take is for its task.
        takes.store(false, Ordering::Relaxed);
        says();
        assert!(!carrier.write_beside(&mut Context::from_waker(&waker)));
        assert!(taken.lock().unwrap().len() == written && !carrier.out.is_empty());
    }

    #[test]
    fn socket_is_quiet_only_while_no_other_carries_data() {
        let last = AtomicU64::new(0);
        let mut sockets = [Neighbours::default(), Neighbours::default()];
        let mut carry = |which: usize, millis: u64, bytes: usize| {
            sockets[which].are_quiet(&last, Time(1_000_000_000) + Duration::from_millis(millis), bytes)
        };
        assert!(!carry(0, 0, 1000), "who was there before is not known");
        assert!(carry(0, 200, 1000));
        // Acknowledgements and heartbeats count for no socket.
        carry(1, 210, WORD);
        assert!(carry(0, 220, 1000));
        for at in [300, 310, 700, 710] {
            assert!(!carry(1, at, 20));
            assert!(!carry(0, at + 1, 1000));
        }
        assert!(!carry(0, 910, 1000));
        assert!(carry(0, 911, 1000));
    }

    #[tokio::test]
    async fn parting_carrier_writes_remaining_output_after_peer_eof() {
        for parting in [true, false] {
            let (takes, taken) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Vec<u8>>>::default());
            let socket = HalfClosed { takes: takes.clone(), taken: taken.clone() };
            let mut carrier = Carrier::new(far::driver(), SocketId(0), Arc::default(), Box::new(socket));
            carrier.out.push(Bytes::from_static(b"krill"));
            carrier.parting = parting;
            let mut cx = Context::from_waker(Waker::noop());
            // The carrier has not ended while output remains.
            assert_eq!(carrier.poll(&mut cx).is_pending(), parting);
            takes.store(true, Ordering::Relaxed);
            if parting {
                assert!(matches!(carrier.poll(&mut cx), Poll::Ready(Step::Over)));
                assert_eq!(*taken.lock().unwrap(), b"krill");
            }
        }
    }
}
