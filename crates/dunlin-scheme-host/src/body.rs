//! What the task of a Scheme process does.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use dunlin::{Exit, ExitReason, Mailbox, MailboxError, Pid, Sleep, blocking, exit, mailbox, sleep_until};
use dunlin_scheme::{Computation, Error, Failure, Operation, Outcome, ProcessNumber, Step, Value};

use crate::machine::{Shared, Spawned, Task};
use crate::operation::{Withdrawal, failed, perform};

/// A Scheme process, as the body of a process of dunlin's: made by [`Program::body`](crate::Program::body).
///
/// It gives way after each turn of about 20 us. A primitive ends what it began.
///
/// # Cancel safety
/// If it is dropped, also before it was polled, the Scheme process has ended: `killed` is raised in those
/// that are linked to it. An operation on channels is withdrawn, and loses no value; the ends that the
/// process holds are dropped.
pub struct Body {
    running: Pin<Box<dyn Future<Output = Result<Value, Failure>> + Send>>,
    number: ProcessNumber,
}

impl Body {
    pub(crate) fn new(shared: Arc<Shared>, (number, task): Spawned) -> Self {
        let life = Life { shared, number, task };
        Self { running: Box::pin(life.run()), number: ProcessNumber(number) }
    }

    /// The process as Scheme and [`Program::send`](crate::Program::send) know it.
    pub fn number(&self) -> ProcessNumber {
        self.number
    }
}

impl Future for Body {
    type Output = Result<Value, Failure>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.running.as_mut().poll(cx)
    }
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Body").field("number", &self.number.0).finish_non_exhaustive()
    }
}

/// The process lives as long as this.
struct Life {
    shared: Arc<Shared>,
    number: u64,
    task: Arc<Task>,
}

impl Drop for Life {
    fn drop(&mut self) {
        self.shared.end(self.number);
    }
}

impl Life {
    async fn run(self) -> Result<Value, Failure> {
        let Self { shared, number, task } = &self;
        let number = *number;
        task.begin();
        let (_, mut exits) = mailbox::<Exit>();
        if Pid::current().is_some() {
            // Ours, and this is a process: there is no error.
            let _ = exits.exits();
        }
        loop {
            while !exits.is_empty() {
                self.receive(exits.recv().await.ok());
            }
            let (step, spawned) = shared.turn(number, task);
            for process in spawned {
                // (The handle detaches it.)
                drop(dunlin::spawn(ended(Body::new(shared.clone(), process))));
            }
            match step {
                Step::Again => give_way().await,
                Step::Waiting(deadline) => self.wait(&mut exits, deadline).await,
                Step::Paused(at) => self.wait(&mut exits, Some(at)).await,
                Step::Operating(Operation::Compute(computation), _) => {
                    let outcome = compute(computation).await;
                    shared.complete(number, outcome);
                }
                Step::Operating(operation, deadline) => {
                    let outcome = self.operate(&mut exits, operation, deadline).await;
                    shared.complete(number, outcome);
                }
                Step::Ended(result) => return result.map_err(|failure| *failure),
            }
        }
    }

    /// Waits until the process is woken, its time has come, or an exit arrives.
    async fn wait(&self, exits: &mut Mailbox<Exit>, deadline: Option<u64>) {
        let exit = {
            let mut exit = pin!(exits.recv());
            let mut timer = pin!(self.timer(deadline));
            poll_fn(|cx| self.poll_due(cx, timer.as_mut(), exit.as_mut())).await
        };
        self.receive(exit);
    }

    /// Carries out an operation. Once the process would be woken, its time has come, or an exit arrives, the
    /// operation is withdrawn.
    async fn operate(&self, exits: &mut Mailbox<Exit>, operation: Operation, deadline: Option<u64>) -> Outcome {
        let withdrawal = Withdrawal::default();
        let (outcome, exit) = {
            let mut performed = pin!(perform(operation, &withdrawal));
            let mut exit = pin!(exits.recv());
            let mut timer = pin!(self.timer(deadline));
            let mut arrived = None;
            poll_fn(|cx| {
                if !withdrawal.is_asked()
                    && let Poll::Ready(exit) = self.poll_due(cx, timer.as_mut(), exit.as_mut())
                {
                    arrived = exit;
                    withdrawal.ask();
                }
                performed.as_mut().poll(cx).map(|outcome| (outcome, arrived.take()))
            })
            .await
        };
        self.receive(exit);
        outcome
    }

    fn timer(&self, deadline: Option<u64>) -> Option<Sleep> {
        deadline.map(|at| sleep_until(self.shared.instant(at)))
    }

    /// Ready once the process is woken or its time has come, or with an exit that arrives.
    fn poll_due(
        &self,
        cx: &mut Context<'_>,
        timer: Pin<&mut Option<Sleep>>,
        exit: Pin<&mut impl Future<Output = Result<Exit, MailboxError>>>,
    ) -> Poll<Option<Exit>> {
        if self.task.poll_ready(cx).is_ready() {
            return Poll::Ready(None);
        }
        if let Some(timer) = timer.as_pin_mut()
            && timer.poll(cx).is_ready()
        {
            return Poll::Ready(None);
        }
        exit.poll(cx).map(Result::ok)
    }

    /// An exit of a process of Rust, which is raised where the process waits next.
    fn receive(&self, exit: Option<Exit>) {
        if let Some(exit) = exit.filter(|exit| !exit.is_normal()) {
            let (object, text) = raised(&exit);
            self.shared.raise(self.number, object.as_ref(), &text);
        }
    }
}

/// Computes on the pool of blocking calls, where nothing but the end of the process ends it.
async fn compute(computation: Computation) -> Outcome {
    let computed = blocking::room().await.blocking(move |_| computation.run()).await;
    computed.map_or_else(|error| failed("number", &format!("not computed: {error}")), Outcome::Computed)
}

/// Lets other tasks run first.
async fn give_way() {
    let mut has_given = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut has_given, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Runs a body to its end: a failure is the exit of the process.
pub(crate) async fn ended(body: Body) -> Value {
    let failure = match body.await {
        Ok(value) => return value,
        Err(failure) => failure,
    };
    let reason = match &failure.error {
        Error::Killed => ExitReason::Killed,
        other => ExitReason::Error(other.to_string()),
    };
    let leaving = exit(reason);
    let leaving = match failure.object {
        Some(object) => leaving.with(object),
        None => leaving,
    };
    match leaving.await {
        Ok(never) => match never {},
        // This runs only in a process.
        Err(_) => Value::Unspecified,
    }
}

/// The text and the object that an exit raises in a Scheme process.
fn raised(exit: &Exit) -> (Option<Value>, String) {
    let symbol = match exit.reason {
        ExitReason::Killed => Some(Value::Symbol("killed".into())),
        ExitReason::NoSuchProcess => Some(Value::Symbol("no-process".into())),
        _ => None,
    };
    let text = match &exit.reason {
        ExitReason::Error(text) => text.clone(),
        other => other.to_string(),
    };
    (exit.payload::<Value>().cloned().or(symbol), text)
}
