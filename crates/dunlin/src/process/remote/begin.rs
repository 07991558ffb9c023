//! How the offering node starts a process.

use std::panic::Location;
use std::time::Duration;

use super::super::mailbox::{Bound, mailbox_with};
use super::super::spawn::{Seen, Starting};
use super::function::RemoteFunction;
use super::request::{Answer, Start, StartOf};
use super::rules::Running;
use crate::time::Deadline;
use crate::{ExitReason, Outcome};

/// How long a process waits for the node that has started it to link and monitor it.
const BEGIN_WITHIN: Duration = Duration::from_secs(60);

/// How the process ends for those that are linked to it.
struct Ended(ExitReason);

impl Outcome for Ended {
    fn exit_reason(&self) -> ExitReason {
        self.0.clone()
    }
}

/// Starts a process, which waits for its start to be confirmed.
pub(super) fn begin<F: RemoteFunction>(start: StartOf<F>, running: Running) -> Answer<StartOf<F>> {
    let Start { arguments, mut output } = start;
    let (address, mut confirmed) = mailbox_with(Bound::reject(1));
    let starting = Starting::new(Some(F::NAME), Location::caller());
    let pid = starting.pid();
    drop(starting.run::<_, Seen>(async move {
        let _running = running;
        if confirmed.recv().within(BEGIN_WITHIN).await.is_err() {
            return Ended("the node that has started it was lost before it began".into());
        }
        drop(confirmed);
        let returned = F::run(arguments).await;
        let ended = Ended(returned.exit_reason());
        // The starting process may have dropped its handle.
        let _ = output.send(returned).await;
        ended
    }));
    Answer::Started(pid, address)
}
