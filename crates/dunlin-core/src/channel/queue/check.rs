//! The invariants of a queue whenever its channel is not locked.

use super::Queue;
use super::offer::{FIRST_TICKET, Offer, Standing};
use super::value::Value;
use crate::handle::Handle;

/// With more offers, or buffered values, a check at the end of each pass would make tests of crowds slow.
const CHECKED_MAX: usize = 64;

impl Queue {
    /// Checks for states that only a fault in this library can cause. Builds with debug assertions check at
    /// the end of each pass.
    ///
    /// # Panics
    /// If there is such a fault; the message names it.
    pub(crate) fn check(&self) {
        // A second panic would end the process.
        if self.offers.len().max(self.buffer.len()) > CHECKED_MAX || std::thread::panicking() {
            return;
        }
        let mut last = FIRST_TICKET - 1;
        for offer in &self.offers {
            assert!(offer.ticket > last, "the tickets of offers ascend: {} after {last}", offer.ticket);
            last = offer.ticket;
            self.check_offer(offer);
        }
        assert!(last < self.next_ticket, "a new offer gets a ticket that no other has");
        let held = self.offers.iter().filter(|offer| matches!(offer.standing, Standing::Held(_))).count();
        assert_eq!(self.held_offers as usize, held, "offers that extended receives hold are counted");
        let wanting = self.demands.iter().flat_map(|all| all.iter()).filter(|open| open.wants_something()).count();
        assert_eq!(self.wanting as usize, wanting, "handles elsewhere with a reservation are counted");

        let has_receiver_elsewhere = self.outlet.is_some();
        assert!(self.credits.is_none() || has_receiver_elsewhere, "a receiver elsewhere promises places");
        assert!(self.carried == 0 || has_receiver_elsewhere, "a receiver elsewhere takes what was buffered");
        assert!(self.lending.owed <= self.lending.granted, "what is to be told has been promised");
        self.buffer.check();
        #[cfg(feature = "link")]
        self.check_link();
    }

    fn check_offer(&self, offer: &Offer) {
        let ticket = offer.ticket;
        assert!(self.has_turn || !offer.has_turn, "offer {ticket} waits for receivers, and its queue does not know");
        match &offer.standing {
            Standing::Away(away) => match away.demanded_by {
                None => {
                    assert!(self.outlet.is_some(), "offer {ticket} is with a receiver elsewhere, which is not there")
                }
                Some(handle) => {
                    let is_there = self.demands.as_ref().is_some_and(|all| all.get(handle).is_some());
                    assert!(is_there, "offer {ticket} is with a handle elsewhere, which is not there");
                }
            },
            Standing::Waiting if offer.choice.is_none() && offer.far.is_none() && !self.may_be_encoded() => {
                assert!(!matches!(offer.value, Value::Gone), "offer {ticket} waits, and has no value");
            }
            _ => {}
        }
        // An offer that a handle elsewhere has may outlive the half that made it.
        if let (Some(far), Standing::Waiting) = (&offer.far, &offer.standing) {
            let of = far.of;
            let is_there = if of == Handle::END {
                self.inlet.is_some()
            } else {
                self.lone_inlets.iter().any(|(handle, _)| *handle == of)
            };
            assert!(is_there, "offer {ticket} is of a sender elsewhere, which is not there");
        }
    }

    /// Whether the value of an offer may be out of the queue, to be encoded.
    fn may_be_encoded(&self) -> bool {
        #[cfg(feature = "link")]
        return self.remote.is_some();
        #[cfg(not(feature = "link"))]
        false
    }

    #[cfg(feature = "link")]
    fn check_link(&self) {
        let outlet_has = self.outlet.as_ref().is_some_and(|outlet| outlet.link.is_some());
        let inlet_has = self.inlet.as_ref().is_some_and(|inlet| inlet.link.is_some());
        let Some(remote) = &self.remote else {
            assert!(!outlet_has && !inlet_has, "a half speaks over a link that has been given up");
            let reads = self.offers.iter().filter(|offer| offer.linked.read().is_some()).count();
            assert_eq!(reads, 0, "values are being decoded for a link that has been given up");
            return;
        };
        assert_eq!(self.lending.returning, 0, "a link carries values though buffered ones are with the agent");
        assert!(!outlet_has || !inlet_has, "a link joins one half here to the other one");
        assert!(!self.keeps_agent || !remote.has_agent(), "an agent stands by that is to stay");
        let returned = self.past.as_ref().map_or(0, |past| past.returned.len());
        assert_eq!(returned, 0, "a link carries values though what came over an earlier one is yet to be taken over");
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::channel::erased::Erased;
    use crate::channel::rendezvous;

    /// A queue with two offers.
    fn queue() -> Queue {
        let mut queue = Queue::new(&rendezvous());
        queue.adopt_offer(Some(Erased::new(1_u8)), None, false);
        queue.adopt_offer(Some(Erased::new(2_u8)), None, false);
        queue.offers[1].ticket = queue.next_ticket;
        queue.next_ticket += 1;
        queue
    }

    /// The text of the check's panic after `change`.
    fn fault(change: impl FnOnce(&mut Queue)) -> String {
        let mut queue = queue();
        queue.check();
        change(&mut queue);
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| queue.check()));
        let panic = caught.expect_err("it is not noticed");
        panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()))
            .unwrap()
    }

    #[test]
    fn check_names_each_fault() {
        assert!(fault(|queue| queue.offers.swap(0, 1)).contains("ascend"));
        assert!(fault(|queue| queue.next_ticket -= 1).contains("no other has"));
        assert!(fault(|queue| queue.held_offers = 1).contains("extended receives"));
        assert!(fault(|queue| queue.wanting = 1).contains("reservation"));
        assert!(fault(|queue| queue.credits = Some(1)).contains("promises places"));
        assert!(fault(|queue| queue.carried = 1).contains("buffered"));
        assert!(fault(|queue| queue.lending.owed = 1).contains("promised"));
        assert!(fault(|queue| queue.offers[0].has_turn = true).contains("waits for receivers"));
        assert!(fault(|queue| queue.offers[0].value = Value::Gone).contains("has no value"));
        assert!(
            fault(|queue| queue.offers[0].standing = Standing::Away(Default::default())).contains("receiver elsewhere")
        );
    }
}
