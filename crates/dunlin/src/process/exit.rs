//! How a process ended, as a value.

use std::any::Any;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt::{self, Write};
use std::sync::Arc;

use dunlin_core::__rt::panic_text;
#[cfg(feature = "net")]
use dunlin_core::Portable;

use super::payload::Payload;
#[cfg(feature = "net")]
use super::payload::PayloadError;
use super::pid::Pid;
use crate::quiet::quietly;
use crate::scope::ScopeError;
use crate::world::NoOutput;

/// How many bytes of text an exit keeps; the rest is cut.
const TEXT_BYTES_MAX: usize = 4096;

/// How a process ended.
///
/// Awaiting a [`Process`](crate::Process) returns one if the process ended otherwise than by returning;
/// [monitors](crate::monitor()) and [links](crate::link()) report every end, also a normal one.
///
/// # Examples
/// ```
/// use dunlin::prelude::*;
/// use dunlin::{ExitReason, exit_with};
/// # dunlin::block_on(async {
/// let process = spawn(async { exit_with(7_u32).await });
/// let exit = process.await.unwrap_err();
/// assert_eq!(exit.payload::<u32>(), Some(&7));
/// assert!(matches!(exit.reason, ExitReason::Error(_)));
/// # });
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Exit {
    /// Which process.
    pub pid: Pid,
    /// Its name, if it was given one.
    pub name: Option<Arc<str>>,
    /// Why.
    pub reason: ExitReason,
    more: Option<Arc<More>>,
}

impl Exit {
    pub(crate) fn new(pid: Pid, name: Option<Arc<str>>, reason: ExitReason) -> Self {
        Self { pid, name, reason: reason.cut(), more: None }
    }

    pub(super) fn no_such_process(pid: Pid) -> Self {
        Self::new(pid, None, ExitReason::NoSuchProcess)
    }

    pub(super) fn killed(pid: Pid, by: Pid) -> Self {
        Self::new(pid, None, ExitReason::Killed).with_origin(by)
    }

    /// `held` is dropped when the exit has been received.
    #[cfg(feature = "net")]
    pub(super) fn holding(self, held: Arc<dyn Send + Sync>) -> Self {
        self.with(|more| more.held = Some(held))
    }

    pub(super) fn with_origin(self, origin: Pid) -> Self {
        let is_other = origin != self.pid;
        if is_other || self.more.is_some() { self.with(|more| more.origin = is_other.then_some(origin)) } else { self }
    }

    pub(super) fn with_payload(self, payload: Payload) -> Self {
        self.with(|more| more.payload = Some(payload))
    }

    fn with(mut self, change: impl FnOnce(&mut More)) -> Self {
        let mut more = self.more.take().unwrap_or_default();
        change(Arc::make_mut(&mut more));
        self.more = if more.is_empty() { None } else { Some(more) };
        self
    }

    /// The exit of a process that ends because of this one.
    pub(super) fn passed_on(self, pid: Pid, name: Option<Arc<str>>) -> Self {
        let origin = self.origin();
        Self { pid, name, ..self.received() }.with_origin(origin)
    }

    /// Its process has received it: what it took at the node is released.
    pub(super) fn received(self) -> Self {
        #[cfg(feature = "net")]
        if self.more.as_ref().is_some_and(|more| more.held.is_some()) {
            return self.with(|more| more.held = None);
        }
        self
    }

    /// The process where this began: one whose exit arrived over a [link](crate::link()), or one that has
    /// killed it; otherwise `pid`.
    pub fn origin(&self) -> Pid {
        self.more.as_ref().and_then(|more| more.origin).unwrap_or(self.pid)
    }

    /// Whether the process ended in order. Such an exit ends no linked process.
    pub fn is_normal(&self) -> bool {
        self.reason == ExitReason::Normal
    }

    pub(super) fn carried(&self) -> Option<&Payload> {
        self.more.as_ref()?.payload.as_ref()
    }

    /// The value given to [`exit_with`](crate::exit_with), if there is one and it has this type.
    pub fn payload<P: 'static>(&self) -> Option<&P> {
        self.carried()?.value()
    }

    /// The value given to [`exit_with_portable`](crate::exit_with_portable), also of a process of another
    /// node: decoded, each time.
    ///
    /// # Errors
    /// There is none, it is not here, or it is of another type.
    #[cfg(feature = "net")]
    pub fn portable_payload<P: Portable>(&self) -> Result<P, PayloadError> {
        self.carried().ok_or(PayloadError::Missing)?.read()
    }
}

/// What few exits have, so that the others are small.
#[derive(Clone, Default)]
struct More {
    origin: Option<Pid>,
    payload: Option<Payload>,
    /// What an exit from another node takes at this one, until it has been received.
    #[cfg(feature = "net")]
    held: Option<Arc<dyn Send + Sync>>,
}

impl More {
    fn is_empty(&self) -> bool {
        #[cfg(feature = "net")]
        if self.held.is_some() {
            return false;
        }
        self.payload.is_none() && self.origin.is_none()
    }
}

impl PartialEq for More {
    fn eq(&self, other: &Self) -> bool {
        self.payload == other.payload && self.origin == other.origin
    }
}

impl Eq for More {}

impl fmt::Debug for More {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("..")
    }
}

/// Why a process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExitReason {
    /// It returned, and its [`Outcome`] is no error.
    Normal,
    /// It returned an error, or called [`exit`](crate::exit()) or [`exit_with`](crate::exit_with), with this
    /// text. At most 4 KiB of it are kept.
    Error(String),
    /// It panicked, with this text. At most 4 KiB of it are kept.
    Panicked(String),
    /// It was cancelled, or its runtime was shut down.
    Cancelled,
    /// It was [killed](Pid::kill).
    Killed,
    /// There was no such process, or it had ended before.
    NoSuchProcess,
    /// The life of the connection with its node is over: it may have ended, or run on. The text says why.
    NodeLost(String),
    /// Its node has left in order.
    NodeLeft,
    /// It may run: its node, or this one, keeps no more links and monitors between the two.
    Refused,
    /// It was forked in a [scope](crate::Scope), and could not join an end there.
    NotStarted(Box<ScopeError>),
}

impl ExitReason {
    pub(crate) fn of(error: NoOutput) -> Self {
        match error {
            NoOutput::Panicked(panic) => {
                let reason = Self::panicked(&*panic);
                quietly(|| drop(panic));
                reason
            }
            NoOutput::Cancelled => Self::Cancelled,
        }
    }

    pub(super) fn panicked(panic: &(dyn Any + Send)) -> Self {
        Self::Panicked(panic_text(panic)).cut()
    }

    fn cut(self) -> Self {
        match self {
            Self::Error(text) => Self::Error(cut(text)),
            Self::Panicked(text) => Self::Panicked(cut(text)),
            Self::NodeLost(text) => Self::NodeLost(cut(text)),
            other => other,
        }
    }
}

fn cut(mut text: String) -> String {
    if text.len() > TEXT_BYTES_MAX {
        text.truncate(boundary(&text, TEXT_BYTES_MAX));
        text.shrink_to_fit();
    }
    text
}

/// The last boundary of characters that is not behind `at`.
fn boundary(text: &str, at: usize) -> usize {
    (0..=at).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0)
}

impl From<&str> for ExitReason {
    fn from(text: &str) -> Self {
        Self::Error(text.to_owned()).cut()
    }
}

impl From<String> for ExitReason {
    fn from(text: String) -> Self {
        Self::Error(text).cut()
    }
}

impl fmt::Display for ExitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Normal => f.write_str("ended normally"),
            Self::Error(text) => write!(f, "failed: {text}"),
            Self::Panicked(text) => write!(f, "panicked: {text}"),
            Self::Cancelled => f.write_str("was cancelled"),
            Self::Killed => f.write_str("was killed"),
            Self::NoSuchProcess => f.write_str("does not exist, or had ended before"),
            Self::NodeLost(why) if why.is_empty() => f.write_str("is at a node that is lost"),
            Self::NodeLost(why) => write!(f, "is at a node that is lost: {why}"),
            Self::NodeLeft => f.write_str("was at a node that has left"),
            Self::Refused => f.write_str("cannot be linked or monitored: there are too many links and monitors"),
            Self::NotStarted(why) => write!(f, "was not started: {why}"),
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "process {name} ({}) {}", self.pid, self.reason)?,
            None => write!(f, "process {} {}", self.pid, self.reason)?,
        }
        let origin = self.origin();
        if origin == self.pid { Ok(()) } else { write!(f, " (because of process {origin})") }
    }
}

impl std::error::Error for Exit {}

/// What the output of a process means for its end: whether it is an error, for linked processes and
/// supervisors. As `std::process::Termination` is for a program.
///
/// `()` and the other values of the standard library are a [normal](ExitReason::Normal) end; a `Result` is an
/// [error](ExitReason::Error) if it is `Err`, with the text of the error. Other types of a program's own are
/// normal too, by an empty `impl`.
///
/// Only processes that are started to be linked or supervised need it
/// ([`spawn_linked`](crate::spawn_linked)): a plain [`spawn`](crate::spawn()) takes an output of any type,
/// and cannot look at it. That process ends normally whatever it returns, and the output is for the holder of
/// its handle.
///
/// # Examples
/// ```
/// use dunlin::{ExitReason, Outcome};
///
/// struct Score(u32);
/// impl Outcome for Score {}
///
/// assert_eq!(Score(3).exit_reason(), ExitReason::Normal);
/// assert_eq!(Ok::<u8, String>(7).exit_reason(), ExitReason::Normal);
/// assert_eq!(Err::<u8, _>("no krill").exit_reason(), ExitReason::Error("no krill".into()));
/// ```
#[diagnostic::on_unimplemented(
    message = "the output `{Self}` of a linked process does not show how the process ended",
    note = "`()`, values of the standard library and `Result<T, E>` with a printable error do",
    note = "for a type of your own: `impl dunlin::Outcome for {Self} {{}}`"
)]
pub trait Outcome {
    /// The reason with which a process with this output has ended.
    fn exit_reason(&self) -> ExitReason {
        ExitReason::Normal
    }
}

impl<T, E: fmt::Display> Outcome for Result<T, E> {
    fn exit_reason(&self) -> ExitReason {
        match self {
            Ok(_) => ExitReason::Normal,
            Err(error) => {
                let mut text = Bounded(String::new());
                // It fails when the text is full, or the error's own `Display` does: what there is, is kept.
                let _ = write!(text, "{error}");
                ExitReason::Error(text.0)
            }
        }
    }
}

/// Takes no more text than an exit keeps.
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = TEXT_BYTES_MAX - self.0.len();
        let end = boundary(text, room.min(text.len()));
        self.0.push_str(&text[..end]);
        if end == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

macro_rules! normal {
    ($($t:ty),* $(,)?) => { $(impl Outcome for $t {})* };
}

normal!((), bool, char, u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize, f32, f64);
normal!(String, &str, std::time::Duration, std::convert::Infallible);

impl<T> Outcome for Option<T> {}
impl<T> Outcome for Box<T> {}
impl<T> Outcome for Arc<T> {}
impl<T> Outcome for Vec<T> {}
impl<T> Outcome for VecDeque<T> {}
impl<T, const N: usize> Outcome for [T; N] {}
impl<K, V, S> Outcome for HashMap<K, V, S> {}
impl<K, V> Outcome for BTreeMap<K, V> {}
impl<A> Outcome for (A,) {}
impl<A, B> Outcome for (A, B) {}
impl<A, B, C> Outcome for (A, B, C) {}
impl<A, B, C, D> Outcome for (A, B, C, D) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_cut_at_a_character() {
        let long = "é".repeat(TEXT_BYTES_MAX);
        let ExitReason::Error(cut) = ExitReason::from(format!("x{long}")) else { unreachable!() };
        assert_eq!(cut.len(), TEXT_BYTES_MAX - 1);
        assert!(long.starts_with(&cut[1..]));
        assert_eq!(Err::<(), _>(format!("x{long}")).exit_reason(), ExitReason::Error(cut));
    }

    #[test]
    fn exits_are_equal_if_their_payload_is_the_same() {
        let exit = Exit::no_such_process(Pid::nowhere(dunlin_core::waits::Pid::OUTSIDE));
        let unit = || Payload::Value(Arc::new(()));
        let with = exit.clone().with_payload(unit());
        assert_eq!(with, with.clone());
        assert_ne!(with, exit);
        assert_ne!(with, exit.with_payload(unit()));
    }
}
