//! Places of the buffer that are promised to a sender elsewhere.

use crate::channel::policy::Window;

/// The places of the buffer that are promised to the sender elsewhere, who sends into them without asking.
pub(crate) struct Lending {
    pub(super) window: Window,
    /// What is buffered and what is promised may together take so many places, if the policy has more.
    pub(super) most: u32,
    /// Somebody listens for what is promised.
    pub(super) on: bool,
    /// The receiver has come from elsewhere, and nothing has been promised here: however the channel may end,
    /// what was sent before is on its way.
    pub(super) comes: bool,
    /// That receiver has not been used, of which the agent is to hear.
    pub(super) unused: bool,
    pub(super) granted: u32,
    /// How many of those granted the agent has not been told of.
    pub(super) owed: u32,
    /// Places of values that are with the agent, which [brings them back](super::Queue::bring_back).
    pub(super) returning: u32,
    /// Offers here got the last free place: the next is promised first.
    pub(super) next: bool,
    /// The agent hears when fewer values are buffered, though no place is promised for that.
    pub(super) below: u32,
    /// They are.
    pub(super) is_below: bool,
    pub(super) receiver_gone: bool,
}

impl Lending {
    pub(super) fn new(window: Window) -> Self {
        Self {
            window,
            most: u32::MAX,
            on: false,
            comes: false,
            unused: false,
            granted: 0,
            owed: 0,
            returning: 0,
            next: false,
            below: 0,
            is_below: false,
            receiver_gone: false,
        }
    }

    pub(super) fn granted(&self) -> usize {
        self.granted as usize
    }

    /// The sender elsewhere has so many places.
    pub(super) fn known(&self) -> u32 {
        self.granted - self.owed
    }

    /// What was not told is not promised any more, nor is anything else.
    pub(super) fn stop(&mut self) {
        self.on = false;
        self.granted -= std::mem::take(&mut self.owed);
    }
}
