//! Requests to a supervisor from elsewhere, and the events that reach it.

use std::fmt;
use std::sync::{Arc, Mutex};

use super::order::Number;
use super::spec::Child;
use super::tree::{Rows, Tree};
use crate::lock::lock;
use crate::{Receiver, SendError, Sender, Shared, fifo};

/// What reaches a running supervisor.
pub(super) enum Event {
    /// A process of the child is about to end: its exit can be awaited.
    Ended(Number, Run),
    /// A process of the child has said that it is ready.
    Ready(Number, Run),
    /// The child's ends are back, and it can be started.
    Returned(Number, Run),
    /// Add the child unless it was withdrawn, and report when it has started.
    Add(Arc<Mutex<Option<Child>>>, Sender<Number>),
    /// Stop a child and forget it, and report when it has ended.
    Remove(Number, Sender<()>),
    /// Report when all children of the specification have started.
    Started(Sender<()>),
    Shutdown,
}

/// Tells the processes of a child apart, also those of an earlier run of the supervisor.
pub(super) type Run = u64;

/// The way to a supervisor: adds and removes children, lists them, shuts it down.
///
/// It can be cloned, sent to other processes, and got before the supervisor runs. It keeps no supervisor
/// running.
#[derive(Clone)]
pub struct Control {
    /// It has no bound: what waits in it is bounded by the number of children and of requests.
    events: Shared<Sender<Event>>,
    rows: Rows,
}

impl Control {
    pub(super) fn new() -> (Self, Receiver<Event>) {
        let (events, queue) = crate::channel_with(crate::unbounded());
        (Self { events: events.share(), rows: Rows::default() }, queue)
    }

    pub(super) fn rows(&self) -> &Rows {
        &self.rows
    }

    /// Never waits. The event comes back if the supervisor has ended.
    pub(super) fn post(&self, event: Event) -> Result<(), Event> {
        self.events.clone().try_send(event).map_err(SendError::into_value)
    }

    /// Adds a child to the supervisor, and waits until it has started. It starts when all children of the
    /// specification have.
    ///
    /// # Errors
    /// [`AddError::NotAdded`] with the child if the supervisor does not run any more;
    /// [`AddError::NotStarted`] if the child, or the supervisor, has ended before the child had started.
    ///
    /// # Cancel safety
    /// If it is dropped before the supervisor has taken the child, the child is not added; else it is.
    pub async fn add_child(&self, child: Child) -> Result<ChildId, AddError> {
        let name = child.name.clone();
        let offer = Offer(Arc::new(Mutex::new(Some(child))));
        let (reply, mut started) = crate::channel_with(fifo(1));
        let posted = self.post(Event::Add(offer.0.clone(), reply));
        if posted.is_ok()
            && let Ok(number) = started.recv().await
        {
            return Ok(ChildId(number));
        }
        let child = lock(&offer.0).take();
        Err(child.map_or(AddError::NotStarted(name), |child| AddError::NotAdded(Box::new(child))))
    }

    /// Stops a child that was [added](Self::add_child), and waits until it has ended. Its specification is
    /// dropped. Returns whether there was such a child.
    ///
    /// # Cancel safety
    /// If it is dropped, the child still stops.
    pub async fn remove_child(&self, child: ChildId) -> bool {
        let (reply, mut removed) = crate::channel_with(fifo(1));
        self.post(Event::Remove(child.0, reply)).is_ok() && removed.recv().await.is_ok()
    }

    /// Waits until all children of the specification have started. Returns `false` if the supervisor has
    /// ended before.
    ///
    /// # Cancel safety
    /// Dropping it has no effect.
    pub async fn started(&self) -> bool {
        let (reply, mut started) = crate::channel_with(fifo(1));
        self.post(Event::Started(reply)).is_ok() && started.recv().await.is_ok()
    }

    /// Requests the shutdown of the supervisor: it stops all children, those that were added at once, then
    /// the others in turn, the last first. Await its handle for its end. Calling it twice is harmless.
    pub fn shutdown(&self) {
        // A supervisor that has ended is shut down.
        let _ = self.post(Event::Shutdown);
    }

    /// Lists the children, and theirs if they are supervisors. It waits for none of them.
    pub fn tree(&self) -> Tree {
        self.rows.tree()
    }
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Control").field(&self.tree()).finish()
    }
}

/// A child that the supervisor can take until this is dropped.
struct Offer(Arc<Mutex<Option<Child>>>);

impl Drop for Offer {
    fn drop(&mut self) {
        let withdrawn = lock(&self.0).take();
        drop(withdrawn);
    }
}

/// A child that was added to a running supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChildId(Number);

/// Why [`Control::add_child`] failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum AddError {
    /// The supervisor has ended, or shuts down: the child.
    NotAdded(Box<Child>),
    /// The child was added, and has ended before it had started, or the supervisor has: the child's name.
    NotStarted(Arc<str>),
}

impl fmt::Display for AddError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAdded(child) => {
                write!(f, "child {} was not added: the supervisor has ended or shuts down", child.name)
            }
            Self::NotStarted(name) => write!(f, "child {name} ended before it had started"),
        }
    }
}

impl std::error::Error for AddError {}
