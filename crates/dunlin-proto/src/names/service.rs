//! The interface of a server of names, as a node uses it.

use crate::connection::Down;
use crate::id::{Life, NodeId};
use crate::source::Source;
use crate::time::Time;
use crate::wire::{Declaration, Names};

/// A server of names: nodes declare ends to it, and it answers which of them are joined. What it has to
/// decide is in [the module](super); a [`Registry`](super::Registry) does that in memory.
///
/// It does no I/O, and reads no clock: its caller passes the time in, delivers the [answers](Self::poll) that
/// any call may cause, and calls [`tick`](Self::tick) when that is [due](Self::next_tick). An answer may come
/// later than the message that it belongs to.
pub trait NameService: Send {
    /// From now on this server replaces another one, and keeps the declarations that it has itself. Until all
    /// nodes have had the time to declare again, those that the other server had admitted take precedence.
    fn take_over(&mut self, now: Time);

    /// A node is connected, or is this one: it can be dialled at these addresses, and from now on its
    /// declarations count for that source. The declarations of its former lives are over.
    fn met(&mut self, life: Life, addresses: &[String], source: Source);

    /// The connection to a node is over. If the node may still live, its declarations keep their places for
    /// some time.
    fn lost(&mut self, now: Time, node: NodeId, why: &Down);

    /// Handles a message from a node to a server of names. `has_room`: whether the declarations of this node
    /// may take this many bytes in all; its error is the limit for all nodes, and the declaration is refused.
    ///
    /// Returns the steps that comparisons of schemas have taken since the last call: the caller charges them
    /// to the node.
    fn heard(&mut self, now: Time, from: Life, said: Names, has_room: &mut dyn FnMut(u64) -> Result<(), u64>) -> u64;

    /// The next answer, and its receiver: the last known life of its node.
    fn poll(&mut self) -> Option<(Life, Names)>;

    /// Handles the passage of time, such as the end of a lost node's places.
    fn tick(&mut self, now: Time);

    /// The latest time at which to call [`tick`](Self::tick).
    fn next_tick(&self) -> Option<Time>;

    /// How many bytes this node's declarations take here: no more than there was [room](Self::heard) for.
    fn cost_of(&self, node: NodeId) -> u64;

    /// All declarations, from this name on: by name, in byte order, and those of one name in the order of
    /// their arrival. From the empty name on, these are all.
    fn entries_from<'a>(&'a self, first: &str) -> Box<dyn Iterator<Item = NameEntry<'a>> + 'a>;

    /// Whether anything is declared under this name.
    fn knows(&self, name: &str) -> bool {
        self.entries_from(name).next().is_some_and(|entry| entry.name == name)
    }
}

/// A declaration and its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameEntry<'a> {
    /// The name.
    pub name: &'a str,
    /// The declaration.
    pub face: &'a Declaration,
    /// The node that has it.
    pub who: Life,
    /// Where that node can be dialled, as far as is known here.
    pub addresses: &'a [String],
    /// When it was declared here.
    pub since: Time,
    /// Its state.
    pub state: EntryState,
}

/// The state of a declaration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EntryState {
    /// It waits to be admitted: this server has just taken over, or the declaration in its way may be gone.
    Unadmitted,
    /// It waits for its other face.
    Waiting,
    /// It is joined. A home may be joined with several.
    Joined,
    /// It takes guests.
    Accepting,
    /// The connection to its node is dead, and it keeps its place until its lease ends.
    Away,
}
