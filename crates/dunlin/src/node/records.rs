//! What a node holds for channels: for tests that nothing is left of those that are over.

use super::hub::Hub;
use super::state::State;

/// How many there are of each. At rest, when nobody at this node has an end of a channel that reaches another
/// one: none.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Records {
    /// Channels whose receiver is here.
    pub homes: usize,
    /// Nodes that are attached to them.
    pub attached: usize,
    /// Sending halves whose home is elsewhere.
    pub proxies: usize,
    /// Offers that are not settled, at both.
    pub offers: usize,
    /// Receivers that have come here and are not used.
    pub visitors: usize,
    /// Ends in messages that go through this node.
    pub passing: usize,
    /// Values of which pieces are still to come.
    pub unfinished: usize,
    /// Halves that have a bridge here, or wait for one.
    pub bridges: usize,
    /// Of them, those that are found by their channels in the core.
    pub by_core: usize,
    /// Ends in messages for the first time, of which it is not known whether they have gone.
    pub first: usize,
    /// Channels whose ends messages wait for.
    pub awaited: usize,
    /// Ends in messages that are here, and perhaps received.
    pub arriving: usize,
    /// Messages with ends in them, or unread, that are here and may go on.
    pub messages: usize,
    /// Receivers that are back before it is known that they had gone.
    pub returned: usize,
    /// Shared ends of this node that have a handle yet, and of which handles have gone to others.
    pub shared: usize,
    /// Values that can be read here by others.
    pub shelved: usize,
    /// Homes that are over, and have not been noticed to be.
    pub late: usize,
    /// Ends that were declared here, but for those that every node has; clients that wait for their server's
    /// word among them.
    pub declared: usize,
    /// Their channels.
    pub channels: usize,
    /// Names that this node keeps for others and itself.
    pub names: usize,
}

impl Records {
    /// `hub`: while somebody speaks to that there is none.
    pub(super) fn of(state: &State, hub: Option<&Hub>) -> Self {
        let census = state.machine.census();
        let [declared, channels, names] = hub.map_or([0; 3], Hub::records);
        Self {
            homes: census.homes,
            attached: census.attached,
            proxies: census.proxies,
            offers: census.offers,
            visitors: census.visitors,
            passing: census.passing,
            unfinished: census.unfinished,
            bridges: state.stretched.len(),
            by_core: state.by_core.len(),
            first: state.first.len(),
            awaited: state.awaited.len(),
            arriving: state.arriving.len(),
            messages: state.passing.len(),
            returned: state.returned.len(),
            shared: state.kept.len(),
            shelved: state.shelf.len(),
            late: state.late.len(),
            declared,
            channels,
            names,
        }
    }
}
