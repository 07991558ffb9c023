//! A connection with a lock of its own, and the channels that it carries: the first part of the redesign,
//! separate from the nodes.
//!
//! [`Link`] joins `dunlin_proto::link::Link` with the halves of channels in the core. It has one lock, which
//! is taken for each word that a half sends, and once for each turn of the task that [serves](Link::serve)
//! its socket. Under the lock a word becomes a frame in the outbox, or a frame becomes a word in a list.
//! Outside of the lock, halves receive the words of that list, and tasks are woken.
//!
//! Channels have no names here: both sides make a channel by the same number, and one of them has its sender.
//!
//! ```no_run
//! # async fn joined(here: tokio::net::TcpStream) -> Result<(), Box<dyn std::error::Error>> {
//! let link = dunlin::node::link::Link::new(Default::default());
//! let mut krill = link.sender::<u64>(1);
//! tokio::spawn(link.serve(here));
//! krill.send(7).await?;
//! # Ok(())
//! # }
//! ```

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use dunlin_core::carrier::Format;
use dunlin_core::remote::{self, Ended, Half, Terms, Word};
use dunlin_core::{Policy, Portable, Receiver, Sender, channel, channel_with};
use dunlin_proto::Config;
use dunlin_proto::link as proto;
use dunlin_proto::time::Time;
use dunlin_proto::wire::{End, Which};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::bridge::words::{failure, poison, reason, why_failed};
use super::carrier::poll_write_all;
use crate::lock::lock;
use crate::net::{BoxFuture, compiled_here};
use crate::world::{Clock, Timer};

/// The size of the buffers for reading ...
const READ: usize = 256 << 10;
/// ... and how much is read at once.
const READ_AT_ONCE: usize = 64 << 10;
/// With less room than this, a new buffer is allocated ...
const READ_MIN: usize = 4 << 10;
/// ... and with less than this if no frame has begun in the old one: a large frame should be in one piece.
const READ_EMPTY_MIN: usize = READ / 2;
/// How much is taken from the link for one write.
const WRITE: usize = 64 << 10;
/// How much is carried before other tasks of the worker have their turn.
const TURN: usize = 128 << 10;

/// Why serving a link over a socket ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The socket is lost. The link may be served over another one.
    #[error("the socket of the link is lost: {0}")]
    Socket(#[from] io::Error),
    /// The peer breaks the protocol, and the link has ended.
    #[error("the peer violated the protocol: {0}")]
    Violation(#[from] proto::Violation),
    /// A half does not expect what the other one has sent, and the link has ended.
    #[error("the peer violated the protocol: no half expects {0}")]
    Unexpected(String),
}

/// One side of a connection, and the channels that it carries. Clones are the same link.
#[derive(Clone)]
pub struct Link {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    terms: Terms,
    clock: Clock,
}

struct State {
    link: proto::Link,
    /// By alias.
    halves: Vec<Option<Arc<dyn Half>>>,
    /// Halves that are done. They are dropped where nothing is locked.
    done: Vec<Arc<dyn Half>>,
    /// The task that writes ...
    waker: Option<Waker>,
    /// ... and whether it sleeps and has to be woken.
    asleep: bool,
    /// The link has ended, and carries nothing more.
    over: bool,
}

/// How a link encodes values, and how large they may be.
#[derive(Clone, Copy, Debug)]
pub struct LinkConfig {
    /// How values are encoded.
    pub format: Format,
    /// The largest encoded value, in bytes. Both sides must agree.
    pub value_max: usize,
}

impl Default for LinkConfig {
    fn default() -> Self {
        Self { format: Format::Cbor, value_max: 64 << 20 }
    }
}

impl Link {
    /// A link without channels.
    pub fn new(config: LinkConfig) -> Self {
        let mut sizes = Config::new("link");
        sizes.value_max = config.value_max;
        let state = State {
            link: proto::Link::new(sizes),
            halves: Vec::new(),
            done: Vec::new(),
            waker: None,
            asleep: false,
            over: false,
        };
        let terms = Terms { format: config.format, value_max: config.value_max as u64, is_message: false };
        Self { shared: Arc::new(Shared { state: Mutex::new(state), terms, clock: Clock::new() }) }
    }

    /// Makes a channel whose receiver is at the other side, under the same number.
    pub fn sender<T: Portable>(&self, number: u64) -> Sender<T> {
        let (sender, receiver) = channel();
        let place = Place::open(&self.shared, Which::Sender, number);
        let half = remote::sending_half(receiver, self.shared.terms, place.clone());
        place.attach(half);
        sender
    }

    /// Makes a rendezvous channel whose sender is at the other side, under the same number.
    pub fn receiver<T: Portable>(&self, number: u64) -> Receiver<T> {
        self.receiver_with(number, Policy::default())
    }

    /// As [`receiver`](Self::receiver), with a policy of the channel.
    pub fn receiver_with<T: Portable>(&self, number: u64, policy: impl Into<Policy>) -> Receiver<T> {
        let (sender, receiver) = channel_with(policy.into());
        let place = Place::open(&self.shared, Which::Receiver, number);
        let half = remote::receiving_half(sender, self.shared.terms, place.clone());
        place.attach(half);
        receiver
    }

    /// Carries the link over a socket until the socket is lost, or the peer breaks the protocol. After a
    /// socket is lost, another one may follow.
    pub fn serve(
        &self,
        socket: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    ) -> BoxFuture<'static, Result<(), LinkError>> {
        let mut pump = Pump {
            wire: self.by_hand(),
            socket: Box::new(socket),
            missing: 0,
            out: Vec::new(),
            timer: None,
            is_flushing: false,
        };
        compiled_here(async move {
            let served = match pump.resume().await {
                Ok(()) => poll_fn(|cx| pump.poll(cx)).await,
                Err(why) => Err(why),
            };
            match &served {
                // From here on nothing wakes this task.
                Err(LinkError::Socket(_)) => pump.wire.cut(),
                _ => pump.wire.shared.end(),
            }
            served
        })
    }

    /// The link's side of a wire that its caller carries: for tests, which decide when bytes arrive and what
    /// is lost.
    pub fn by_hand(&self) -> Wire {
        Wire { shared: self.shared.clone(), buffer: BytesMut::new(), words: Vec::new() }
    }

    /// The other side is lost for good: all channels end.
    pub fn lose(&self) {
        self.shared.end();
    }

    /// Whether the other side has acknowledged everything that this one had to send, and knows that this one
    /// has read everything that it sent.
    pub fn is_quiet(&self) -> bool {
        lock(&self.shared.state).link.is_quiet()
    }

    /// How many halves of channels the link has.
    pub fn halves(&self) -> usize {
        lock(&self.shared.state).link.halves()
    }
}

impl Shared {
    fn end(&self) {
        let (halves, done) = {
            let mut state = lock(&self.state);
            state.over = true;
            state.asleep = false;
            (std::mem::take(&mut state.halves), std::mem::take(&mut state.done))
        };
        halves.iter().flatten().for_each(|half| half.lost());
        drop(done);
    }
}

/// The place of one half.
struct Place {
    shared: Arc<Shared>,
    alias: u32,
    which: Which,
}

impl Place {
    fn open(shared: &Arc<Shared>, which: Which, number: u64) -> Arc<Self> {
        let alias = lock(&shared.state).link.open(which, number);
        Arc::new(Self { shared: shared.clone(), alias, which })
    }

    /// The half exists now: the other side may learn of the channel.
    fn attach(&self, half: Arc<dyn Half>) {
        let mut state = lock(&self.shared.state);
        if state.over {
            drop(state);
            return half.lost();
        }
        let at = self.alias as usize;
        if state.halves.len() <= at {
            state.halves.resize(at + 1, None);
        }
        state.halves[at] = Some(half);
        state.link.attach(self.alias);
        let waker = state.wake();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }
}

impl remote::Link for Place {
    fn say(&self, word: Word) -> Option<Waker> {
        let is_last = self.which == Which::Sender && matches!(word, Word::Ended(Ended::Gone));
        let word = onto_wire(word);
        let mut state = lock(&self.shared.state);
        if state.over {
            return None;
        }
        state.link.send(self.alias, word);
        if is_last {
            state.close(self.alias);
        }
        state.wake()
    }

    fn close(&self) -> Option<Waker> {
        let mut state = lock(&self.shared.state);
        if state.over {
            return None;
        }
        state.close(self.alias);
        state.wake()
    }
}

impl State {
    /// The waker of the task that writes, if it has to be woken.
    fn wake(&mut self) -> Option<Waker> {
        if std::mem::take(&mut self.asleep) { self.waker.clone() } else { None }
    }

    fn close(&mut self, alias: u32) {
        self.link.close(alias);
        let half = self.halves.get_mut(alias as usize).and_then(Option::take);
        self.done.extend(half);
    }
}

fn onto_wire(word: Word) -> proto::Word {
    match word {
        // No agent stands by here, so no value has places for replies in it.
        Word::Offer { ticket, value } | Word::Request { ticket, value } => proto::Word::Offer(ticket, value),
        Word::Sent { value } => proto::Word::Sent(value),
        Word::Opened { places } => proto::Word::Opened(places),
        Word::Credit { places } => proto::Word::Credit(places),
        Word::OfferChoice { ticket, choice } => proto::Word::OfferChoice(ticket, choice),
        Word::Grant { ticket, request, value } => proto::Word::Grant(ticket, request, value),
        Word::Refuse { ticket } => proto::Word::Refuse(ticket),
        Word::Withdraw { ticket } => proto::Word::Withdraw(ticket),
        Word::Revoke { ticket } => proto::Word::Revoke(ticket),
        Word::Taken { ticket } => proto::Word::Taken(ticket),
        Word::Held { ticket } => proto::Word::Held(ticket),
        Word::Released { ticket } => proto::Word::Released(ticket),
        Word::Failed { ticket, why } => proto::Word::Failed(ticket, failure(why)),
        Word::Withdrawn { ticket } => proto::Word::Withdrawn(ticket),
        Word::Reserve { ticket, request } => proto::Word::Reserve(ticket, request),
        Word::Abort { ticket } | Word::Decline { ticket, .. } => proto::Word::Abort(ticket),
        Word::Ended(Ended::Gone) => proto::Word::Ended(End::Gone),
        Word::Ended(Ended::Retired) => proto::Word::Ended(End::Retired),
        Word::Ended(Ended::Poisoned(why)) => proto::Word::Ended(End::Poisoned(poison(&why))),
    }
}

fn from_wire(word: proto::Word) -> Word {
    match word {
        proto::Word::Offer(ticket, value) => Word::Offer { ticket, value },
        proto::Word::Sent(value) => Word::Sent { value },
        proto::Word::Opened(places) => Word::Opened { places },
        proto::Word::Credit(places) => Word::Credit { places },
        proto::Word::OfferChoice(ticket, choice) => Word::OfferChoice { ticket, choice },
        proto::Word::Grant(ticket, request, value) => Word::Grant { ticket, request, value },
        proto::Word::Refuse(ticket) => Word::Refuse { ticket },
        proto::Word::Withdraw(ticket) => Word::Withdraw { ticket },
        proto::Word::Revoke(ticket) => Word::Revoke { ticket },
        proto::Word::Taken(ticket) => Word::Taken { ticket },
        proto::Word::Held(ticket) => Word::Held { ticket },
        proto::Word::Released(ticket) => Word::Released { ticket },
        // A value that is too large fails before it is sent, where its length is known.
        proto::Word::Failed(ticket, why) => Word::Failed { ticket, why: why_failed(why, 0) },
        proto::Word::Withdrawn(ticket) => Word::Withdrawn { ticket },
        proto::Word::Reserve(ticket, request) => Word::Reserve { ticket, request },
        proto::Word::Abort(ticket) => Word::Abort { ticket },
        proto::Word::Ended(End::Gone | End::Lost) => Word::Ended(Ended::Gone),
        proto::Word::Ended(End::Retired) => Word::Ended(Ended::Retired),
        proto::Word::Ended(End::Poisoned(why)) => Word::Ended(Ended::Poisoned(reason(&why))),
    }
}

/// A link's side of a wire.
pub struct Wire {
    shared: Arc<Shared>,
    /// What has arrived and is not a whole frame.
    buffer: BytesMut,
    /// Empty between exchanges: only its room is kept.
    words: Vec<(Arc<dyn Half>, Word)>,
}

/// The outcome of an exchange.
#[derive(Clone, Copy)]
struct Exchanged {
    /// How many bytes were taken from the link.
    filled: usize,
    /// How many bytes, at least, are missing of the frame that has begun to arrive.
    missing: usize,
    /// When the link has to be polled again.
    due: Option<Time>,
}

impl Wire {
    /// Bytes arrive.
    ///
    /// # Errors
    /// The peer breaks the protocol: all channels of the link have ended.
    pub fn input(&mut self, now: Duration, bytes: &[u8]) -> Result<(), LinkError> {
        self.buffer.extend_from_slice(bytes);
        self.exchange(time(now), None, None).inspect_err(|_| self.shared.end())?;
        let mut state = lock(&self.shared.state);
        let waker = if state.link.has_something(time(now)) { state.wake() } else { None };
        drop(state);
        waker.into_iter().for_each(Waker::wake);
        Ok(())
    }

    /// What is to be written now. `Pending`: nothing, and the task is woken when there may be something. An
    /// acknowledgement that waits to ride on another frame is due [then](Self::due).
    ///
    /// # Errors
    /// As [`input`](Self::input).
    pub fn poll_output(&mut self, cx: &Context<'_>, now: Duration) -> Poll<Result<Vec<u8>, LinkError>> {
        let mut out = Vec::new();
        loop {
            let exchanged = self.exchange(time(now), Some(&mut out), Some(cx.waker()));
            match exchanged.inspect_err(|_| self.shared.end()) {
                Ok(Exchanged { filled, .. }) if filled >= WRITE => {}
                Ok(_) if out.is_empty() => return Poll::Pending,
                Ok(_) => return Poll::Ready(Ok(out.concat())),
                Err(why) => return Poll::Ready(Err(why)),
            }
        }
    }

    /// When output is due that does not wake the task.
    pub fn due(&self) -> Option<Duration> {
        lock(&self.shared.state).link.due_at().map(|at| Duration::from_micros(at.0))
    }

    /// The wire is cut: what was in transit is lost.
    pub fn cut(&mut self) {
        self.buffer.clear();
        let mut state = lock(&self.shared.state);
        state.asleep = false;
        state.link.cut();
    }

    /// What the other side has to [resume](Self::resume) from.
    pub fn seen(&self) -> u64 {
        lock(&self.shared.state).link.seen()
    }

    /// Continues over a new wire: the other side has seen this many frames of this one.
    ///
    /// # Errors
    /// It cannot have seen that many: all channels of the link have ended.
    pub fn resume(&mut self, seen: u64) -> Result<(), LinkError> {
        let resumed = lock(&self.shared.state).link.resume(seen);
        resumed.map_err(|why| {
            self.shared.end();
            why.into()
        })
    }

    /// Takes what is to be written, if `out` is given, and gives the halves what has arrived. A half that
    /// sends something afterwards wakes `waker`.
    ///
    /// A half seldom answers at once, so this does not wait for its answer: the answer wakes the task, too.
    fn exchange(
        &mut self,
        now: Time,
        out: Option<&mut Vec<Bytes>>,
        waker: Option<&Waker>,
    ) -> Result<Exchanged, LinkError> {
        let Self { shared, buffer, words } = self;
        let mut state = lock(&shared.state);
        let State { link, halves, done, waker: task, asleep, .. } = &mut *state;
        let missing = link.receive(now, buffer, &mut |alias, word| {
            if let Some(half) = halves.get(alias as usize).and_then(Option::as_ref) {
                words.push((half.clone(), from_wire(word)));
            }
        })?;
        let filled = out.map_or(0, |out| link.fill(now, WRITE, out));
        let due = link.due_at();
        if let Some(waker) = waker {
            *asleep = true;
            if !task.as_ref().is_some_and(|task| task.will_wake(waker)) {
                *task = Some(waker.clone());
            }
        }
        let done = if done.is_empty() { None } else { Some(std::mem::take(done)) };
        drop(state);
        drop(done);
        for (half, word) in words.drain(..) {
            half.hear(word).map_err(|word| LinkError::Unexpected(format!("{word:?}")))?;
        }
        Ok(Exchanged { filled, missing, due })
    }
}

fn time(now: Duration) -> Time {
    Time(u64::try_from(now.as_micros()).unwrap_or(u64::MAX))
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// The task of a socket.
struct Pump {
    wire: Wire,
    socket: Box<dyn Stream>,
    /// How much, at least, is missing of the frame that has begun to arrive.
    missing: usize,
    /// What was taken from the link, and not yet by the socket.
    out: Vec<Bytes>,
    /// Wakes the task for an acknowledgement. It may fire before the acknowledgement is due.
    timer: Option<(Time, Waker, Pin<Box<Timer>>)>,
    is_flushing: bool,
}

impl Pump {
    /// Exchanges with the other side how many frames each has seen.
    async fn resume(&mut self) -> Result<(), LinkError> {
        // The task of the previous socket may have been dropped.
        self.wire.cut();
        self.socket.write_u64(self.wire.seen()).await?;
        self.socket.flush().await?;
        let seen = self.socket.read_u64().await?;
        self.wire.resume(seen)
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), LinkError>> {
        let mut carried = 0;
        let mut is_first = true;
        loop {
            let arrived = match self.poll_read(cx)? {
                Poll::Ready(bytes) => bytes,
                Poll::Pending if !is_first => return Poll::Pending,
                Poll::Pending => 0,
            };
            let (mut filled, now) = (0, self.wire.shared.clock.now());
            if !self.out.is_empty() {
                let _ = self.poll_write(cx)?;
            }
            if self.out.is_empty() {
                let exchanged = self.wire.exchange(now, Some(&mut self.out), Some(cx.waker()))?;
                (filled, self.missing) = (exchanged.filled, exchanged.missing);
                self.set_timer(now, exchanged.due, cx);
            } else {
                self.missing = self.wire.exchange(now, None, Some(cx.waker()))?.missing;
            }
            let is_done = self.out.is_empty() && !self.is_flushing;
            let written = is_done || self.poll_write(cx)?.is_ready();
            carried += arrived + filled;
            if carried >= TURN {
                // In tokio the woken task runs behind its neighbours.
                let _ = pin!(tokio::task::yield_now()).poll(cx);
                return Poll::Pending;
            }
            // There may be more than was taken at once, or than the socket took.
            is_first = written && filled >= WRITE;
            if arrived == 0 && !is_first {
                return Poll::Pending;
            }
        }
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let buffer = &mut self.wire.buffer;
        let min = if buffer.is_empty() { READ_EMPTY_MIN } else { READ_MIN.max(self.missing) };
        if buffer.capacity() - buffer.len() < min {
            buffer.reserve(READ.max(self.missing));
        }
        let mut room = buffer.limit(READ_AT_ONCE.max(self.missing));
        let bytes = ready!(pin!(self.socket.read_buf(&mut room)).poll(cx))?;
        Poll::Ready(if bytes == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(bytes) })
    }

    /// `Ready`: everything is written.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        poll_write_all(&mut *self.socket, &mut self.out, &mut self.is_flushing, cx)
    }

    /// Sets a timer for when the link is due. A timer that is set stays: most acknowledgements ride on
    /// another frame before it fires.
    fn set_timer(&mut self, now: Time, due: Option<Time>, cx: &mut Context<'_>) {
        self.timer.take_if(|(at, waker, _)| now >= *at || !waker.will_wake(cx.waker()));
        if let (Some(at), None) = (due, &self.timer) {
            let mut timer = Box::pin(self.wire.shared.clock.timer(at));
            if timer.as_mut().poll(cx).is_ready() {
                return cx.waker().wake_by_ref();
            }
            self.timer = Some((at, cx.waker().clone(), timer));
        }
    }
}
