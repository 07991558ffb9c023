//! The numbers that a process receives, for libraries whose handlers keep a state.

use tokio::sync::oneshot;

/// Expects the numbers below `n`, in order, and reports once.
pub(super) struct Counts {
    next: u64,
    n: u64,
    done: Option<oneshot::Sender<bool>>,
}

impl Counts {
    /// Sends `true` when it has all of them, and `false` when another one arrives.
    pub(super) fn new(n: u64, done: oneshot::Sender<bool>) -> Self {
        Self { next: 0, n, done: Some(done) }
    }

    /// Expects no number.
    pub(super) fn none() -> Self {
        Self { next: 0, n: 0, done: None }
    }

    pub(super) fn receive(&mut self, number: u64) {
        let is_next = number == self.next;
        self.next += 1;
        if !is_next || self.next == self.n {
            // (The sender waits for that, or has failed.)
            let _ = self.done.take().map(|done| done.send(is_next));
        }
    }
}
