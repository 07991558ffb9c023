//! Which refusals say that a node has ended, though its connection's grace period is not over.
//!
//! A refused dial says that no process listens at an address. Of the process behind it that says something
//! only if the address is its own, and not a proxy's, or another host's of the same number: the node has told
//! that it has *bound* it, and has been *reached* there. And even then once is not enough.

use std::time::Duration;

use crate::id::Incarnation;
use crate::planted::planted;
use crate::time::Time;
use crate::wire::handshake::Bound;
use crate::wire::limits;

/// Where one life of a node listens itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Listeners {
    life: Option<Incarnation>,
    list: Vec<Listener>,
    /// Two refusals at one of them have to be so far apart.
    apart: Duration,
    /// How many dials this life may still cost that only learn whether it is reached: it may tell other
    /// addresses each time it resumes.
    checks: usize,
}

#[derive(Clone, Debug)]
struct Listener {
    address: String,
    /// That life of the node has answered a dial of this node's there.
    reached: bool,
    /// It was dialled only to learn whether it is reached there.
    asked: bool,
    /// When a dial was first refused there, since it was last reached.
    refused: Option<Time>,
    /// It was refused again, long enough after that.
    again: bool,
    /// It is on this host: the second refusal need not wait.
    near: bool,
}

impl Listeners {
    /// What that life of the node says of itself.
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

    /// Where it is not known whether it is reached: each is given once, and at most `count` now.
    pub(crate) fn take_unasked(&mut self, count: usize) -> Vec<String> {
        let count = count.min(self.checks);
        let unasked = self.list.iter_mut().filter(|listener| !listener.reached && !listener.asked);
        let taken: Vec<_> =
            unasked.take(count).map(|listener| (listener.asked = true, listener.address.clone()).1).collect();
        self.checks -= taken.len();
        taken
    }

    /// No process listens there, or another node does.
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

    /// A dial there failed of something that says nothing of the node, or succeeded.
    pub(crate) fn not_refused(&mut self, address: &str) {
        if let Some(listener) = self.at(address) {
            (listener.refused, listener.again) = (None, false);
        }
    }

    /// A socket takes the connection up or is lost, or another life begins: what was refused before says
    /// nothing any more.
    pub(crate) fn all_well(&mut self) {
        for listener in &mut self.list {
            (listener.refused, listener.again) = (None, false);
        }
    }

    /// Whether all refuse where the node was reached: then where.
    pub(crate) fn dead_at(&self) -> Option<String> {
        let reached = || self.list.iter().filter(|listener| listener.reached);
        let addresses: Vec<&str> = reached().map(|listener| &*listener.address).collect();
        (!addresses.is_empty() && reached().all(|listener| listener.again)).then(|| addresses.join(", "))
    }

    /// Where a second refusal would count, and from when on.
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
    fn a_life_that_tells_ever_other_addresses_is_asked_at_few() {
        let mut listeners = Listeners::default();
        let mut told = |life, round| {
            let addresses: Vec<_> = (0..8).map(|n| format!("{round} {n}")).collect();
            listeners.told(Incarnation(life), &addresses, Bound { which: 0xff, refused_ms: 1000 });
            listeners.take_unasked(usize::MAX).len()
        };
        assert_eq!([told(1, 0), told(1, 1), told(1, 2), told(2, 3)], [8, 0, 0, 8]);
    }
}
