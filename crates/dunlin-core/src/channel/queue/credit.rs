//! Places of the buffer that are promised to a sender elsewhere.

use crate::channel::policy::Window;

/// The places of the buffer promised to the sender elsewhere, which sends into them without a round trip.
pub(crate) struct Lending {
    pub(super) window: Window,
    /// Buffered values and promised places may together take at most this many places, if the policy has
    /// more.
    pub(super) most: u32,
    /// An agent or a link takes promises.
    pub(super) on: bool,
    /// The receiver has come from elsewhere, and no places have been promised here: however the channel ends,
    /// the values sent before are on their way.
    pub(super) comes: bool,
    /// That receiver has not been used; its first use is an event for the agent.
    pub(super) unused: bool,
    pub(super) granted: u32,
    /// How many of the granted places the agent does not know of.
    pub(super) owed: u32,
    /// Places of values that the agent has, and [brings back](super::Queue::bring_back).
    pub(super) returning: u32,
    /// Offers here got the last free place: the next one is promised.
    pub(super) next: bool,
    /// The agent gets an event when fewer values are buffered, even if no place is promised then.
    pub(super) below: u32,
    /// Fewer are.
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

    /// How many places the sender elsewhere knows of.
    pub(super) fn known(&self) -> u32 {
        self.granted - self.owed
    }

    /// Stops promising, and takes back the places that the agent does not know of.
    pub(super) fn stop(&mut self) {
        self.on = false;
        self.granted -= std::mem::take(&mut self.owed);
    }
}
