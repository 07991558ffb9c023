//! Policies: what a channel does with a value that no receive is waiting for.
//!
//! A policy decides on counts, never on values, so one policy serves channels of every type. It runs while
//! the channel is locked: it should be quick and must not use channels itself. If it panics on behalf of a
//! send, the panic unwinds into that sender, which drops the value. If it panics when room becomes free for a
//! waiting send, that send is refused. The channel stays usable.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;

use crate::error::Strength;

/// The decision of a policy on an offered value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Admit {
    /// The value enters the buffer; its send is complete.
    Keep,
    /// The send waits until there is room, or a receive takes the value directly from an empty buffer.
    Wait,
    /// The oldest buffered value is dropped and this one enters; its send is complete.
    DropOldest,
    /// The newest buffered value is dropped and this one takes its place; its send is complete.
    ReplaceNewest,
    /// This value is dropped; its send is complete all the same.
    DropThis,
    /// The send fails with [`Why::Refused`](crate::Why::Refused) and returns the value.
    Refuse,
}

/// A user's own policy.
///
/// # Examples
/// ```
/// use dunlin_core::{Admit, Buffering, channel_with};
///
/// #[derive(Clone)]
/// struct ShedLoad { high: usize }
/// impl Buffering for ShedLoad {
///     fn admit(&mut self, queued: usize) -> Admit {
///         if queued < self.high { Admit::Keep } else { Admit::DropOldest }
///     }
/// }
/// let (mut tx, mut rx) = channel_with::<u32>(ShedLoad { high: 2 });
/// for n in 0..5 {
///     tx.try_send(n).unwrap();
/// }
/// assert_eq!((rx.try_recv().unwrap(), rx.try_recv().unwrap()), (3, 4));
/// ```
pub trait Buffering: Send {
    /// Decides on one value while `queued` values hold a place: those in the buffer, and those that an
    /// extended receive has taken and not yet released.
    ///
    /// [`Admit::DropOldest`] and [`Admit::ReplaceNewest`] can only drop a buffered value. If extended
    /// receives hold all of `queued`, the value enters beside them.
    fn admit(&mut self, queued: usize) -> Admit;
}

/// Which pending party gives way when one more than the bound would wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum Overflow {
    /// The party queued longest expires, with [`Why::Expired`](crate::Why::Expired) or
    /// [`RecvError::Expired`](crate::RecvError::Expired).
    Fifo,
    /// The newest queued party expires, in the same way.
    Lifo,
    /// The incoming party is refused.
    Reject,
}

/// A bound on how many parties may wait, and what happens to one beyond it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound {
    // `u32`, as for all counts of parties waiting for one channel: a queue has two of these.
    pub(crate) max: u32,
    pub(crate) overflow: Overflow,
}

impl Bound {
    fn new(max: usize, overflow: Overflow) -> Self {
        Self { max: u32::try_from(max).unwrap_or(u32::MAX), overflow }
    }
}

/// A function that makes the buffering state of one channel.
type Make = Arc<dyn Fn() -> Box<dyn Buffering> + Send + Sync>;

/// Which places of a buffer can be promised to a sender elsewhere before it has a value for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Window {
    /// None: the policy decides on a value when the value arrives.
    None,
    /// This many in all; each is free again when its value has been received.
    Places(u32),
    /// No limit; each is free again when its value has been admitted.
    Unbounded,
}

/// The kind of a policy, among those defined here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) enum Kind {
    Rendezvous,
    Fifo(NonZeroUsize),
    Unbounded,
    OverwriteOldest(NonZeroUsize),
    OverwriteNewest(NonZeroUsize),
    DropNewest(NonZeroUsize),
    /// A user's own.
    Own,
}

#[cfg(feature = "serde")]
impl Kind {
    pub(crate) fn policy(self) -> Option<Policy> {
        Some(match self {
            Self::Rendezvous => rendezvous(),
            Self::Fifo(max) => fifo(max.get()),
            Self::Unbounded => unbounded(),
            Self::OverwriteOldest(max) => overwrite_oldest(max.get()),
            Self::OverwriteNewest(max) => overwrite_newest(max.get()),
            Self::DropNewest(max) => drop_newest(max.get()),
            Self::Own => return None,
        })
    }
}

/// How many values may be on their way into a buffer elsewhere: at most this many places are promised at
/// once, however many the buffer has.
pub(crate) const ON_THE_WAY_MAX: u32 = 1024;

/// How a channel treats a value that no receive waits for, and how many parties may wait.
///
/// The process that makes the channel chooses the policy; the processes that use the ends do not see it.
#[derive(Clone)]
pub struct Policy {
    name: &'static str,
    pub(crate) kind: Kind,
    make: Option<Make>,
    window: Window,
    pub(crate) senders: Option<Bound>,
    pub(crate) receivers: Option<Bound>,
    pub(crate) immunity: Strength,
}

impl Policy {
    fn buffered<B: Buffering + Clone + Sync + 'static>(name: &'static str, buffering: B) -> Self {
        let make: Make = Arc::new(move || Box::new(buffering.clone()));
        Self {
            name,
            kind: Kind::Own,
            make: Some(make),
            window: Window::None,
            senders: None,
            receivers: None,
            immunity: Strength::from(0),
        }
    }

    /// Lets at most `max` senders wait on the channel at once. The bound counts sends of a
    /// [shared](crate::Shared) end and of choices.
    ///
    /// # Panics
    /// If `max` is 0: no send could ever wait for a receive.
    #[track_caller]
    #[must_use]
    pub fn pending_senders(mut self, max: usize, overflow: Overflow) -> Self {
        assert!(max > 0, "a bound of 0 pending senders lets no sender wait; use `try_send` on a buffered channel");
        self.senders = Some(Bound::new(max, overflow));
        self
    }

    /// Lets at most `max` receivers wait on the channel at once. Only a [shared](crate::Shared) end can have
    /// more than one.
    ///
    /// # Panics
    /// If `max` is 0: no receive could ever wait for a value.
    #[track_caller]
    #[must_use]
    pub fn pending_receivers(mut self, max: usize, overflow: Overflow) -> Self {
        assert!(max > 0, "a bound of 0 pending receivers lets no receiver wait; use `try_recv`");
        self.receivers = Some(Bound::new(max, overflow));
        self
    }

    /// Makes the channel immune to poison that is not stronger than `strength`:
    /// [`poison_with`](crate::Sender::poison_with) then does nothing and returns `false`. No channel is
    /// immune to poison of full strength.
    ///
    /// With an immunity, poison can end a part of a program and stop at its borders: the channels inside have
    /// a lower immunity than those to the outside.
    ///
    /// # Examples
    /// ```
    /// use dunlin_core::{channel_with, fifo, rendezvous};
    /// let (inner, _rx) = channel_with::<u8>(rendezvous());
    /// let (outer, _ry) = channel_with::<u8>(fifo(4).immunity(1));
    /// assert!(inner.poison_with(1, "this part is over"));
    /// assert!(!outer.poison_with(1, "this part is over"));
    /// assert!(inner.is_closed() && !outer.is_closed());
    /// ```
    ///
    /// # Source
    /// JCSP's channels with an immunity (Welch et al., 2007).
    #[must_use]
    pub fn immunity(mut self, strength: impl Into<Strength>) -> Self {
        self.immunity = strength.into();
        self
    }

    /// Whether a receiver of a channel with this policy can move to another node. A user's own policy
    /// ([`Buffering`]) cannot: it has no encoding for another program.
    pub fn is_portable(&self) -> bool {
        self.kind != Kind::Own
    }

    pub(crate) fn buffering(&self) -> Option<Box<dyn Buffering>> {
        self.make.as_ref().map(|make| make())
    }

    /// None under a bound on pending senders: the bound must count each waiting send, so all come as offers.
    pub(crate) fn window(&self) -> Window {
        if self.senders.is_some() { Window::None } else { self.window }
    }

    /// Whether a channel with this policy starts with only the one-slot rendezvous.
    pub(crate) fn is_plain(&self) -> bool {
        self.make.is_none() && self.senders.is_none() && self.receivers.is_none()
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policy")
            .field("name", &self.name)
            .field("pending_senders", &self.senders)
            .field("pending_receivers", &self.receivers)
            .field("immunity", &self.immunity)
            .finish()
    }
}

impl Default for Policy {
    fn default() -> Self {
        rendezvous()
    }
}

impl<B: Buffering + Clone + Sync + 'static> From<B> for Policy {
    fn from(buffering: B) -> Self {
        Self::buffered(std::any::type_name::<B>(), buffering)
    }
}

/// No buffer: a send ends when a receive has returned the value. The default.
pub fn rendezvous() -> Policy {
    Policy {
        name: "rendezvous",
        kind: Kind::Rendezvous,
        make: None,
        window: Window::None,
        senders: None,
        receivers: None,
        immunity: Strength::from(0),
    }
}

#[derive(Clone)]
struct Full {
    max: NonZeroUsize,
    then: Admit,
}

impl Buffering for Full {
    fn admit(&mut self, queued: usize) -> Admit {
        if queued < self.max.get() { Admit::Keep } else { self.then }
    }
}

#[track_caller]
fn sized(name: &'static str, kind: fn(NonZeroUsize) -> Kind, max: usize, then: Admit) -> Policy {
    let Some(max) = NonZeroUsize::new(max) else {
        panic!("{name}(0) has no place for a value: use at least 1, or `channel()` for none");
    };
    Policy { kind: kind(max), ..Policy::buffered(name, Full { max, then }) }
}

/// A first-in first-out buffer of `max` values: a send is complete when the buffer has admitted its value,
/// and waits while the buffer is full.
///
/// An empty place costs nothing. So any `max` from 1 to `usize::MAX` is accepted, and memory is then the only
/// bound, as for [`unbounded`]. (In a configuration a size is at most 4294967295.)
///
/// # Panics
/// If `max` is 0: use [`channel`](crate::channel) for a channel without a buffer.
#[track_caller]
pub fn fifo(max: usize) -> Policy {
    let window = Window::Places(u32::try_from(max).unwrap_or(u32::MAX));
    Policy { window, ..sized("fifo", Kind::Fifo, max, Admit::Wait) }
}

/// A buffer that always has room. Sends never wait; memory is the only bound, so prefer [`fifo`] where
/// senders can be faster than receivers.
pub fn unbounded() -> Policy {
    let policy = Policy::buffered("unbounded", Full { max: NonZeroUsize::MAX, then: Admit::Refuse });
    Policy { window: Window::Unbounded, kind: Kind::Unbounded, ..policy }
}

/// A buffer of `max` values that drops the oldest when it is full. Sends never wait.
///
/// # Panics
/// If `max` is 0.
#[track_caller]
pub fn overwrite_oldest(max: usize) -> Policy {
    sized("overwrite_oldest", Kind::OverwriteOldest, max, Admit::DropOldest)
}

/// A buffer of `max` values that drops its newest for the incoming one when it is full. Sends never wait.
///
/// # Panics
/// If `max` is 0.
#[track_caller]
pub fn overwrite_newest(max: usize) -> Policy {
    sized("overwrite_newest", Kind::OverwriteNewest, max, Admit::ReplaceNewest)
}

/// A buffer of `max` values that drops the incoming one when it is full. Sends never wait, and return `Ok`
/// even when the value was dropped.
///
/// # Panics
/// If `max` is 0.
#[track_caller]
pub fn drop_newest(max: usize) -> Policy {
    sized("drop_newest", Kind::DropNewest, max, Admit::DropThis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_zero_is_refused_with_advice() {
        for make in [fifo, overwrite_oldest, overwrite_newest, drop_newest] {
            let panic = std::panic::catch_unwind(|| make(0)).unwrap_err();
            let text = panic.downcast_ref::<String>().unwrap();
            assert!(text.contains("use at least 1") && text.contains("channel()"), "{text}");
        }
    }

    #[test]
    fn a_bound_of_zero_is_refused_with_advice() {
        let senders = std::panic::catch_unwind(|| rendezvous().pending_senders(0, Overflow::Reject)).unwrap_err();
        assert!(senders.downcast_ref::<&str>().unwrap().contains("use `try_send`"));
        let receivers = std::panic::catch_unwind(|| rendezvous().pending_receivers(0, Overflow::Reject)).unwrap_err();
        assert!(receivers.downcast_ref::<&str>().unwrap().contains("use `try_recv`"));
    }

    #[test]
    fn full_buffer_admits_by_its_policy() {
        let kinds = [
            (fifo(2), Admit::Wait),
            (overwrite_oldest(2), Admit::DropOldest),
            (overwrite_newest(2), Admit::ReplaceNewest),
            (drop_newest(2), Admit::DropThis),
            (unbounded(), Admit::Keep),
        ];
        for (policy, full) in kinds {
            let mut buffering = policy.buffering().unwrap();
            assert_eq!((buffering.admit(0), buffering.admit(1), buffering.admit(2)), (Admit::Keep, Admit::Keep, full));
        }
    }
}
