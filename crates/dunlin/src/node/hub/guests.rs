//! What an acceptor gives its clients: fresh bundles, and places where they wait.

use std::collections::VecDeque;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use dunlin_core::Portable;
use dunlin_core::agent::Missing;
use dunlin_core::carrier::{Agent, Outbox, Write};
use dunlin_proto::Source;
use dunlin_proto::id::{ChannelId, Life};
use dunlin_proto::source::has_place;

use crate::node::codec;
use crate::node::error::NameError;
use crate::node::peer::Peer;

/// How many guests may wait to be received; further guests are refused. Sources share these places: see
/// [`has_place`].
pub(crate) const GUESTS_MAX: usize = 1024;

/// How many ends a bundle may have that other nodes reach by name.
pub(super) const BUNDLE_ENDS_MAX: usize = 256;

/// Makes a fresh bundle for a guest, and delivers it. `None`: the acceptor is gone. Values to be dropped are
/// collected, and dropped later.
type Accept = Box<dyn FnMut(Life, Source, &mut Vec<Box<dyn Send>>) -> Option<Accepted> + Send>;

/// Sets what the deadlines of the receiver of guests ask for their reason.
type Unmatched = Box<dyn Fn(Option<Arc<dyn Missing>>) + Send>;

/// Answers the clients of an acceptor.
pub(crate) struct Acceptance {
    accept: Accept,
    /// How many ends a guest has.
    ends: usize,
    /// `None`: a client has come.
    unmatched: Option<Unmatched>,
}

impl Acceptance {
    pub(crate) fn new(accept: Accept, ends: usize, unmatched: Unmatched) -> Self {
        Self { accept, ends, unmatched: Some(unmatched) }
    }

    /// For clients that are not received with a deadline.
    pub(super) fn unwatched(accept: Accept, ends: usize) -> Self {
        Self { accept, ends, unmatched: None }
    }

    /// How many ends a guest has.
    pub(super) fn ends(&self) -> usize {
        self.ends
    }

    /// A client has come.
    pub(super) fn accept(&mut self, from: Life, source: Source, garbage: &mut Vec<Box<dyn Send>>) -> Option<Accepted> {
        if let Some(unmatched) = self.unmatched.take() {
            unmatched(None);
        }
        (self.accept)(from, source, garbage)
    }

    /// Sets the reason that a deadline gives until the first client comes.
    pub(super) fn unmatched(&self, missing: Option<Arc<dyn Missing>>) {
        if let Some(unmatched) = &self.unmatched {
            unmatched(missing);
        }
    }
}

/// The sources of the guests that wait to be received, the latest last.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    sources: VecDeque<Source>,
}

impl Waiting {
    /// Takes a place for a guest from this source, with this many guests waiting.
    ///
    /// # Errors
    /// No place is free: how many places a source like this one has.
    pub(crate) fn admit(&mut self, source: Source, waiting: usize) -> Result<(), usize> {
        // Guests are received in the order in which they came.
        self.sources.drain(..self.sources.len().saturating_sub(waiting));
        let held = self.sources.iter().filter(|other| **other == source).count();
        if !has_place(GUESTS_MAX, waiting, held) {
            return Err(if waiting < GUESTS_MAX { GUESTS_MAX - GUESTS_MAX / 4 } else { GUESTS_MAX });
        }
        self.sources.push_back(source);
        Ok(())
    }
}

/// A guest's side of a fresh bundle.
pub(crate) struct Accepted {
    pub(crate) agents: Vec<Agent>,
    /// How many places there are, if none is free for the guest. Then `agents` is empty.
    pub(crate) full: Option<usize>,
}

/// The agents of a fresh face, in the order of its fields.
pub(crate) fn agents_of<F: Portable>(face: F) -> Result<Vec<Agent>, NameError> {
    let mut agents = Vec::new();
    take_apart(face, &mut agents)?;
    Ok(agents)
}

fn take_apart<F: Write>(face: F, agents: &mut Vec<Agent>) -> Result<(), NameError> {
    let refused = |why: String| NameError::Unstretchable(why);
    let mut outbox = Outbox::new();
    outbox.encode(|| codec::survey(&face)).map_err(|error| refused(error.to_string()))?;
    let sealed = outbox.seal().map_err(|error| refused(error.to_string()))?;
    if agents.len() + sealed.ends().len() > BUNDLE_ENDS_MAX {
        return Err(refused(format!("number of ends above {BUNDLE_ENDS_MAX}")));
    }
    for end in sealed.commit(face).map_err(|error| refused(error.to_string()))? {
        // The other node has a face of its own, with handles of its own: this face is the only holder here,
        // and only leads to the channels.
        match end.unshared() {
            Ok(end) => take_apart(end, agents)?,
            Err(end) => match (end.kind(), end.into_agent()) {
                // It has several agents, and no name can reach it.
                (kind, Agent::Several(_)) => return Err(refused(kind.to_string())),
                (_, agent) => agents.push(agent),
            },
        }
    }
    Ok(())
}

/// A guest: a fresh server's face, with the peer at its other end. It can be used as the face itself.
pub struct Guest<S> {
    face: S,
    peer: Peer,
}

impl<S> Guest<S> {
    pub(crate) fn new(face: S, peer: Peer) -> Self {
        Self { face, peer }
    }

    /// The peer at the other end.
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// The face alone.
    pub fn into_face(self) -> S {
        self.face
    }
}

impl<S> Deref for Guest<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.face
    }
}

impl<S> DerefMut for Guest<S> {
    fn deref_mut(&mut self) -> &mut S {
        &mut self.face
    }
}

impl<S> fmt::Debug for Guest<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guest").field("peer", &self.peer).finish_non_exhaustive()
    }
}

/// A bundle's channels are numbered from its first.
pub(super) fn numbered<A>(first: ChannelId, agents: Vec<A>) -> impl Iterator<Item = (ChannelId, A)> {
    (0u128..).map(move |n| ChannelId(first.0.wrapping_add(n))).zip(agents)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_has_at_most_256_ends() {
        let senders = |count: usize| (0..count).map(|_| dunlin_core::channel::<u32>().0).collect::<Vec<_>>();
        assert_eq!(agents_of(senders(BUNDLE_ENDS_MAX)).map(|agents| agents.len()).unwrap(), BUNDLE_ENDS_MAX);
        let error = agents_of(senders(BUNDLE_ENDS_MAX + 1)).err().unwrap().to_string();
        assert!(error.contains("number of ends above 256"), "{error}");
    }

    #[test]
    fn guests_of_one_source_leave_room_for_others() {
        let mut places = Waiting::default();
        let host = |last| Source::V4([10, 0, 0, last]);
        let mut waiting = 0;
        let mut come = |source, waiting: &mut usize| {
            let admitted = places.admit(source, *waiting).is_ok();
            *waiting += usize::from(admitted);
            admitted
        };
        let flood = (0..2 * GUESTS_MAX).filter(|_| come(host(1), &mut waiting)).count();
        assert_eq!(flood, GUESTS_MAX / 4 * 3);
        let others = (0..2 * GUESTS_MAX).filter(|_| come(host(2), &mut waiting)).count();
        assert_eq!(others, GUESTS_MAX / 64);
        assert!(come(host(3), &mut waiting));
        // The first guests of the flood are received: their places are free, and so is the last quarter.
        waiting -= 100;
        let flood = (0..2 * GUESTS_MAX).filter(|_| come(host(1), &mut waiting)).count();
        assert_eq!(flood, 100 - GUESTS_MAX / 64 - 1);
        assert_eq!(waiting, GUESTS_MAX / 4 * 3);
        // All are received.
        waiting = 0;
        assert!(come(host(1), &mut waiting));
        assert_eq!(places.sources.len(), 1);
    }
}
