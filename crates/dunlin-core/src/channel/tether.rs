//! The record of an end that a process's body holds: enough to end the channel when the process fails.

use std::any::TypeId;
use std::fmt;
use std::sync::{Arc, Weak};

use super::MayPoison;
use super::receiver::Receiver;
use super::sender::Sender;
use super::state::Chan;
use crate::call::{Callee, Caller};
use crate::error::Reason;
use crate::share::{End, Shared};

/// A handle to a channel through one of its ends, which does not keep the channel alive. Once that end is
/// dropped it does nothing.
#[derive(Clone)]
pub struct Tether {
    chan: Weak<dyn Ending>,
    sending: bool,
    may_poison: bool,
}

trait Ending: Send + Sync {
    fn is_left(&self, sending: bool) -> bool;
    fn retire(&self);
    fn poison(&self, reason: Reason);
}

impl<T: Send> Ending for Chan<T> {
    fn is_left(&self, sending: bool) -> bool {
        self.is_left(sending)
    }

    fn retire(&self) {
        self.retire();
    }

    fn poison(&self, reason: Reason) {
        self.poison(reason);
    }
}

impl Tether {
    fn new<T: Send + 'static, P: 'static>(chan: &Arc<Chan<T>>, sending: bool) -> Self {
        let chan: Weak<Chan<T>> = Arc::downgrade(chan);
        Self { chan, sending, may_poison: TypeId::of::<P>() == TypeId::of::<MayPoison>() }
    }

    fn chan(&self) -> Option<Arc<dyn Ending>> {
        self.chan.upgrade().filter(|chan| !chan.is_left(self.sending))
    }

    /// Ends the channel in order.
    pub fn retire(&self) {
        if let Some(chan) = self.chan() {
            chan.retire();
        }
    }

    /// Ends the channel at once, if the end had the power to.
    pub fn poison(&self, reason: &Reason) {
        if self.may_poison
            && let Some(chan) = self.chan()
        {
            chan.poison(reason.clone());
        }
    }
}

impl fmt::Debug for Tether {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tether").field("sending", &self.sending).finish_non_exhaustive()
    }
}

/// An end, or several, that can be tethered.
pub trait Tethered {
    /// Adds a tether for each end.
    fn tether(&self, tethers: &mut Vec<Tether>);
}

impl<T: Send + 'static, P: 'static> Tethered for Sender<T, P> {
    fn tether(&self, tethers: &mut Vec<Tether>) {
        tethers.push(Tether::new::<T, P>(self.chan(), true));
    }
}

impl<T: Send + 'static, P: 'static> Tethered for Receiver<T, P> {
    fn tether(&self, tethers: &mut Vec<Tether>) {
        tethers.push(Tether::new::<T, P>(self.chan(), false));
    }
}

impl<T: Send + 'static, P: 'static> Tethered for Shared<Sender<T, P>> {
    fn tether(&self, tethers: &mut Vec<Tether>) {
        tethers.push(Tether::new::<T, P>(self.end_link(), true));
    }
}

impl<T: Send + 'static, P: 'static> Tethered for Shared<Receiver<T, P>> {
    fn tether(&self, tethers: &mut Vec<Tether>) {
        tethers.push(Tether::new::<T, P>(self.end_link(), false));
    }
}

impl<Q: Send + 'static, A: Send + 'static> Tethered for Caller<Q, A> {
    fn tether(&self, tethers: &mut Vec<Tether>) {
        self.requests.tether(tethers);
    }
}

impl<Q: Send + 'static, A: Send + 'static> Tethered for Callee<Q, A> {
    fn tether(&self, tethers: &mut Vec<Tether>) {
        self.asked.tether(tethers);
    }
}

impl<Q: Send + 'static, A: Send + 'static> Tethered for Shared<Caller<Q, A>> {
    fn tether(&self, tethers: &mut Vec<Tether>) {
        tethers.push(Tether::new::<_, MayPoison>(self.end_link(), true));
    }
}

/// The tethers of a shared face, taken when it was shared: the face may be out on a claim.
#[derive(Clone, Debug, Default)]
pub struct Tethers(Arc<[Tether]>);

impl Tethers {
    /// The tethers of this face.
    pub fn of(face: &impl Tethered) -> Self {
        let mut tethers = Vec::new();
        face.tether(&mut tethers);
        Self(tethers.into())
    }
}

impl<F: End<Link = Tethers>> Tethered for Shared<F> {
    fn tether(&self, tethers: &mut Vec<Tether>) {
        tethers.extend(self.end_link().0.iter().cloned());
    }
}

/// A field of a face: `(&&Tie(&field)).tie(..)` tethers the field if that is possible. (Autoref selects the
/// first of the two traits that fits.)
#[derive(Debug)]
pub struct Tie<'a, E>(pub &'a E);

/// See [`Tie`].
pub trait TieEnd {
    /// Adds a tether for each end.
    fn tie(&self, tethers: &mut Vec<Tether>);
}

impl<E: Tethered> TieEnd for &Tie<'_, E> {
    fn tie(&self, tethers: &mut Vec<Tether>) {
        self.0.tether(tethers);
    }
}

/// See [`Tie`].
pub trait TieNothing {
    /// Does nothing for a field that cannot be tethered.
    fn tie(&self, _: &mut Vec<Tether>) {}
}

impl<E> TieNothing for Tie<'_, E> {}
