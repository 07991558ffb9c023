//! The request of a call while it is on its way.

use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};

use dunlin_core::__rt::keep;

use crate::Pid;
use crate::lock::lock;

/// Where the request of a call lies until the server takes it, or the caller takes it back: so a call whose
/// deadline has passed is withdrawn without a search. Its message stays in the queue, and is empty.
#[derive(Debug)]
pub(super) struct Slot<Q>(Arc<Mutex<Call<Q>>>);

#[derive(Debug)]
struct Call<Q> {
    request: Option<Q>,
    taken_by: Option<Pid>,
    /// The server has done with the call, and goes on.
    handled: bool,
    caller: Option<Waker>,
}

/// What has become of a call whose reply was dropped.
pub(super) enum Fate<Q> {
    /// The server has not taken it.
    NotTaken(Q),
    /// The server goes on without an answer, or runs outside of every process.
    NoReply,
    /// The server had not done with it: it ends, unless it has dropped the reply and will go on.
    TakenBy(Pid),
}

impl<Q> Clone for Slot<Q> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<Q> Slot<Q> {
    pub(super) fn new(request: Q) -> Self {
        let call = Call { request: Some(request), taken_by: None, handled: false, caller: None };
        Self(Arc::new(Mutex::new(call)))
    }

    /// The server takes the request; `None`: it has been withdrawn.
    pub(super) fn take(&self, by: Option<Pid>) -> Option<Q> {
        let mut call = lock(&self.0);
        call.taken_by = by;
        call.request.take()
    }

    /// The caller takes the request back; `None`: the server has taken it.
    pub(super) fn withdraw(&self) -> Option<Q> {
        lock(&self.0).request.take()
    }

    /// Which process took it.
    pub(super) fn taken_by(&self) -> Option<Pid> {
        lock(&self.0).taken_by
    }

    /// The server has done with the call: a reply that is dropped now does not mean that the server ends.
    pub(super) fn handled(&self) {
        let caller = {
            let mut call = lock(&self.0);
            call.handled = true;
            call.caller.take()
        };
        caller.into_iter().for_each(Waker::wake);
    }

    /// For the caller, when the reply was dropped. It is woken when the server has done with the call.
    pub(super) fn fate(&self, cx: &Context<'_>) -> Fate<Q> {
        let mut call = lock(&self.0);
        if let Some(request) = call.request.take() {
            return Fate::NotTaken(request);
        }
        match call.taken_by {
            Some(pid) if !call.handled => {
                let old = call.caller.replace(keep(cx.waker()));
                drop(call);
                drop(old);
                Fate::TakenBy(pid)
            }
            _ => Fate::NoReply,
        }
    }
}
