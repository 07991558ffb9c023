//! Which refusals prove that a node has ended, although its connection's grace period is not over.
//!
//! A refused dial shows that no process listens at an address. It tells something about the node only if the
//! address is the node's own, not a proxy's, nor that of another host with the same number. So the node must
//! have declared that it has *bound* the address, and have been *reached* there. Even then one refusal is not
//! enough.

use std::time::Duration;

use crate::id::Incarnation;
use crate::planted::planted;
use crate::time::Time;
use crate::wire::handshake::Bound;
use crate::wire::limits;

/// The addresses at which one life of a node listens itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Listeners {
    life: Option<Incarnation>,
    list: Vec<Listener>,
    /// The minimum time between two refusals at one of them.
    apart: Duration,
    /// How many more dials this life may cause that only check whether it is reachable: it may declare other
    /// addresses each time it resumes.
    checks: usize,
}

#[derive(Clone, Debug)]
struct Listener {
    address: String,
    /// That life of the node has answered a dial of this node there.
    reached: bool,
    /// It was dialled only to check whether it is reachable there.
    asked: bool,
    /// When a dial was first refused there, since it was last reached.
    refused: Option<Time>,
    /// It was refused again, long enough after that.
    again: bool,
    /// It is on this host: the second refusal need not wait.
    near: bool,
}

impl Listeners {
    /// Records what that life of the node declares.
    pub(crate) fn told(&mut self, life: Incarnation, addresses: &[String], bound: Bound) {
        let mut known = Vec::new();
        if self.life == Some(life) {
            known = std::mem::take(&mut self.list);
        } else {
            self.checks = limits::ADDRESSES;
        }
        self.life = Some(life);
        self.apart = Duration::from_millis(bound.refused_ms);
        self.list = bound
            .of(addresses)
            .map(|address| match known.iter().position(|listener| listener.address == *address) {
                Some(at) => known.swap_remove(at),
                None => Listener {
                    address: address.clone(),
                    reached: false,
                    asked: false,
                    refused: None,
                    again: false,
                    near: false,
                },
            })
            .collect();
    }

    fn at(&mut self, address: &str) -> Option<&mut Listener> {
        self.list.iter_mut().find(|listener| listener.address == address)
    }

    /// That life of the node has answered there.
    pub(crate) fn reached(&mut self, life: Incarnation, address: &str) {
        if self.life == Some(life)
            && let Some(listener) = self.at(address)
        {
            (listener.reached, listener.refused, listener.again) = (true, None, false);
        }
    }

    /// The addresses not yet known to be reachable: each is returned once, and at most `count` now.
    pub(crate) fn take_unasked(&mut self, count: usize) -> Vec<String> {
        let count = count.min(self.checks);
        let unasked = self.list.iter_mut().filter(|listener| !listener.reached && !listener.asked);
        let taken: Vec<_> =
            unasked.take(count).map(|listener| (listener.asked = true, listener.address.clone()).1).collect();
        self.checks -= taken.len();
        taken
    }

    /// No process listens there, or another node answers.
    pub(crate) fn refused(&mut self, now: Time, address: &str, near: bool) {
        let apart = self.apart;
        let Some(listener) = self.at(address) else { return };
        listener.near |= near;
        match listener.refused {
            None => listener.refused = Some(now),
            Some(first) => listener.again |= listener.near || now >= first + apart,
        }
        listener.again |= planted!(OneRefusal);
    }

    /// A dial there succeeded, or failed for a reason that tells nothing about the node.
    pub(crate) fn not_refused(&mut self, address: &str) {
        if let Some(listener) = self.at(address) {
            (listener.refused, listener.again) = (None, false);
        }
    }

    /// A socket takes over the connection or is lost, or another life begins: earlier refusals no longer
    /// count.
    pub(crate) fn all_well(&mut self) {
        for listener in &mut self.list {
            (listener.refused, listener.again) = (None, false);
        }
    }

    /// The addresses at which the node was reached, if all of them refuse.
    pub(crate) fn dead_at(&self) -> Option<String> {
        let reached = || self.list.iter().filter(|listener| listener.reached);
        let addresses: Vec<&str> = reached().map(|listener| &*listener.address).collect();
        (!addresses.is_empty() && reached().all(|listener| listener.again)).then(|| addresses.join(", "))
    }

    /// The address at which a second refusal would count, and from when on.
    pub(crate) fn doubted(&self) -> Option<(Time, &str)> {
        let doubted = self.list.iter().filter(|listener| listener.reached && !listener.again);
        let counts = |listener: &Listener, first: Time| if listener.near { first } else { first + self.apart };
        doubted.filter_map(|listener| Some((counts(listener, listener.refused?), &*listener.address))).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_of_a_life_with_changing_addresses_are_bounded() {
        let mut listeners = Listeners::default();
        let mut told = |life, round| {
            let addresses: Vec<_> = (0..8).map(|n| format!("{round} {n}")).collect();
            listeners.told(Incarnation(life), &addresses, Bound { which: 0xff, refused_ms: 1000 });
            listeners.take_unasked(usize::MAX).len()
        };
        assert_eq!([told(1, 0), told(1, 1), told(1, 2), told(2, 3)], [8, 0, 0, 8]);
    }
}
