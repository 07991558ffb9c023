//! What a node holds for channels: tests check that nothing is left of channels that have ended.

use super::hub::Hub;
use super::state::State;

/// How many there are of each. At rest there are none, if no program holds an end here of a channel that
/// reaches another node.
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
    /// Offers that are not settled, at homes and at sending halves.
    pub offers: usize,
    /// Receivers that have arrived here and are not used.
    pub visitors: usize,
    /// Ends in messages that go through this node.
    pub passing: usize,
    /// Values with pieces still to come.
    pub unfinished: usize,
    /// Halves that have a bridge here, or wait for one.
    pub bridges: usize,
    /// Of them, those that can be found by their channels in the core.
    pub by_core: usize,
    /// Ends that are in a message for the first time, and may have left already.
    pub first: usize,
    /// Channels with ends that messages wait for.
    pub awaited: usize,
    /// Ends of messages that are here, and perhaps received.
    pub arriving: usize,
    /// Messages that are here, unread or with ends in them, and may be forwarded.
    pub messages: usize,
    /// Receivers that returned before this node knew that they had left.
    pub returned: usize,
    /// Places for the replies of calls, at the nodes of callers and of servers.
    pub replies: usize,
    /// Shared ends of this node that still have a handle, and whose handles have gone to other nodes.
    pub shared: usize,
    /// Values that other nodes can read here.
    pub shelved: usize,
    /// Homes that have ended, and whose senders have not noticed it.
    pub late: usize,
    /// Ends that were declared here, except those that every node has; including clients that wait for their
    /// server's answer.
    pub declared: usize,
    /// Their channels.
    pub channels: usize,
    /// Names that this node keeps for others and itself.
    pub names: usize,
}

impl Records {
    /// `hub`: `None` while it is in use.
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
            replies: state.replies.len() + census.replies,
            shared: state.kept.len(),
            shelved: state.shelf.len(),
            late: state.late.len(),
            declared,
            channels,
            names,
        }
    }
}
