//! Bodies of libraries, which run once in a program.

use super::fail::{Fail, Result};
use super::machine::Machine;
use crate::heap::word::{FALSE, TRUE, Word};
use crate::proc::{Claim, Letter};

impl Machine {
    /// Whether the process that runs is to run a body, which it then leaves; nothing if it has to wait.
    ///
    /// # Errors
    /// The body waits for itself.
    pub(super) fn claim_body(&mut self, body: Word) -> Result<Option<Word>> {
        match self.commons.bodies.claim(body, self.running.pid) {
            Claim::Run => Ok(Some(TRUE)),
            Claim::Ended => Ok(Some(FALSE)),
            Claim::Wait => Ok(None),
            Claim::Cycle => Err(Fail::Raise("import", "the body of a library waits for itself".into(), vec![])),
        }
    }

    /// The process that runs leaves a body.
    pub(super) fn leave_body(&mut self, body: Word) {
        let waiting = self.commons.bodies.leave(body, self.running.pid);
        self.wake_for_body(waiting);
    }

    /// A process leaves all bodies.
    pub(super) fn leave_bodies(&mut self, pid: u64) {
        if !self.commons.bodies.is_idle() {
            let waiting = self.commons.bodies.forget(pid);
            self.wake_for_body(waiting);
        }
    }

    fn wake_for_body(&mut self, waiting: Vec<u64>) {
        for pid in waiting {
            if self.commons.table.parked(pid).is_some() {
                self.wake(pid);
            } else {
                self.commons.table.post(pid, Letter::Body);
            }
        }
    }
}
