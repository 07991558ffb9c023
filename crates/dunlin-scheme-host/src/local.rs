//! Channels and computations of a machine that gives its processes their turns by itself.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use dunlin_scheme::{Channels, Operation, Outcome};

use crate::computations::Computations;
use crate::machine::lock;
use crate::operation::{Withdrawal, perform};

/// dunlin's channels for a [`Scheme`](dunlin_scheme::Scheme), whose processes are no tasks: what
/// `dunlin scheme` uses. The ends are those of the machine's own processes.
///
/// # Examples
/// ```
/// use dunlin_scheme::Scheme;
/// use dunlin_scheme_host::LocalChannels;
///
/// let mut scheme = Scheme::new();
/// scheme.set_channels(LocalChannels::default());
/// let text = "
///     (define-values (out in) (make-channel))
///     (spawn (lambda () (channel-send out 'krill)))
///     (channel-receive in)";
/// assert_eq!(scheme.eval("example", text)?, "krill");
/// # Ok::<(), dunlin_scheme::Error>(())
/// ```
#[derive(Default)]
pub struct LocalChannels {
    running: HashMap<u64, Running>,
    woken: Arc<Mutex<Vec<u64>>>,
    finished: VecDeque<(u64, Outcome)>,
    computations: Computations,
}

struct Running {
    withdrawal: Arc<Withdrawal>,
    performed: Pin<Box<dyn Future<Output = Outcome> + Send>>,
    waker: Waker,
}

/// Notes the process whose operation can go on.
struct Note {
    process: u64,
    woken: Arc<Mutex<Vec<u64>>>,
}

impl Wake for Note {
    fn wake(self: Arc<Self>) {
        lock(&self.woken).push(self.process);
    }
}

impl LocalChannels {
    fn poll(&mut self, process: u64) {
        let Some(Running { performed, waker, .. }) = self.running.get_mut(&process) else { return };
        if let Poll::Ready(outcome) = performed.as_mut().poll(&mut Context::from_waker(waker)) {
            self.running.remove(&process);
            self.finished.push_back((process, outcome));
        }
    }
}

impl Channels for LocalChannels {
    fn start(&mut self, process: u64, operation: Operation) {
        let operation = match operation {
            Operation::Compute(computation) => return self.computations.start(process, computation),
            operation => operation,
        };
        let withdrawal = Arc::new(Withdrawal::default());
        let asked = withdrawal.clone();
        let performed = Box::pin(async move { perform(operation, &asked).await });
        let waker = Waker::from(Arc::new(Note { process, woken: self.woken.clone() }));
        self.running.insert(process, Running { withdrawal, performed, waker });
        self.poll(process);
    }

    fn finished(&mut self) -> Option<(u64, Outcome)> {
        self.finished.extend(self.computations.finished());
        while self.finished.is_empty() {
            let woken = std::mem::take(&mut *lock(&self.woken));
            if woken.is_empty() {
                return None;
            }
            woken.into_iter().for_each(|process| self.poll(process));
        }
        self.finished.pop_front()
    }

    fn withdraw(&mut self, process: u64) -> Option<Outcome> {
        if let Some(running) = self.running.get(&process) {
            running.withdrawal.ask();
            self.poll(process);
            // It ends when it is polled: all ends are here.
            self.running.remove(&process);
        }
        if self.computations.forget(process) {
            return Some(Outcome::Withdrawn);
        }
        let at = self.finished.iter().position(|(finished, _)| *finished == process)?;
        self.finished.remove(at).map(|(_, outcome)| outcome)
    }
}

impl std::fmt::Debug for LocalChannels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalChannels").field("operations", &self.running.len()).finish_non_exhaustive()
    }
}
