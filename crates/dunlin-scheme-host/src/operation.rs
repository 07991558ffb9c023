//! Operations of Scheme processes on dunlin's channels.

use std::future::{Future, IntoFuture, pending, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use dunlin::{Choice, channel, channel_with, fifo};
use dunlin_scheme::{Branch, End, Operation, Outcome, Refusal, Value};

use crate::ends::{Cell, ChannelEnd, Chosen, Hold, end_of, other};

/// Asks an operation to end. After this its future is polled again.
#[derive(Default)]
pub(crate) struct Withdrawal(AtomicBool);

impl Withdrawal {
    pub(crate) fn ask(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Carries out an operation, or withdraws it.
///
/// # Cancel safety
/// If it is dropped, the operation is withdrawn, and the ends that it uses are dropped with it. A value that
/// it was to receive stays in the channel.
pub(crate) async fn perform(operation: Operation, withdrawal: &Withdrawal) -> Outcome {
    let done = |result: Result<Value, Refusal>| match result {
        Ok(value) => Outcome::Done(0, value),
        Err(refusal) => Outcome::Failed(refusal),
    };
    match operation {
        Operation::Make(capacity) => {
            let (sender, receiver) = match capacity {
                None => channel::<Value>(),
                Some(capacity) => channel_with(fifo(capacity)),
            };
            let ends = [sender.into_end(), receiver.into_end()];
            Outcome::Done(0, Value::List(ends.map(Value::End).into()))
        }
        Operation::Choice { branches, is_fair, skips } => choose(branches, is_fair, skips, withdrawal).await,
        Operation::Share(end) => done(share(end)),
        Operation::Retire(end) => {
            let Some(mut hold) = Cell::take(&end) else { return Outcome::Failed(gone()) };
            let retired = until(hold.retire(), withdrawal).await;
            Cell::put(&end, hold);
            retired.map_or(Outcome::Withdrawn, |retired| done(retired.map(|()| Value::Unspecified)))
        }
        Operation::Poison(end, reason) => {
            let Some(hold) = Cell::take(&end) else { return Outcome::Failed(gone()) };
            hold.poison(&reason);
            Cell::put(&end, hold);
            Outcome::Done(0, Value::Unspecified)
        }
        _ => Outcome::Failed(other("the operation is not known")),
    }
}

/// The outcome of an operation that cannot be carried out.
pub(crate) fn failed(kind: &'static str, message: &str) -> Outcome {
    Outcome::Failed(Refusal { kind, message: message.to_owned(), detail: None })
}

fn gone() -> Refusal {
    Refusal { kind: "end", message: "the end was taken out of Scheme".to_owned(), detail: None }
}

fn share(end: End) -> Result<Value, Refusal> {
    if end.is_shared() {
        return Ok(Value::End(end));
    }
    match Cell::take(&end).ok_or_else(gone)?.share() {
        Ok(shared) => Ok(Value::End(end_of(shared))),
        Err(claim) => {
            Cell::put(&end, claim);
            Err(other("a claimed end cannot be shared"))
        }
    }
}

/// The output of a future, or `None` once it was withdrawn, which comes first.
async fn until<F: Future>(future: F, withdrawal: &Withdrawal) -> Option<F::Output> {
    let mut future = pin!(future);
    poll_fn(|cx| if withdrawal.is_asked() { Poll::Ready(None) } else { future.as_mut().poll(cx).map(Some) }).await
}

/// The ends of a choice, which are put back after it.
type Taken = Vec<(End, Box<dyn Hold>)>;

async fn choose(branches: Vec<Branch>, is_fair: bool, skips: bool, withdrawal: &Withdrawal) -> Outcome {
    let mut taken: Taken = Vec::with_capacity(branches.len());
    let mut is_claim = Vec::with_capacity(branches.len());
    for branch in branches {
        is_claim.push(matches!(branch, Branch::Claim(_)));
        let (end, message) = match branch {
            Branch::Send(end, message) => (end, Some(message)),
            Branch::Receive(end) | Branch::Claim(end) => (end, None),
            _ => return refuse(taken, other("the branch is not known")).await,
        };
        let Some(mut hold) = Cell::take(&end) else { return refuse(taken, gone()).await };
        let loaded = message.map_or(Ok(()), |message| hold.load(message));
        taken.push((end, hold));
        if let Err(refusal) = loaded {
            return refuse(taken, refusal).await;
        }
    }
    let chosen = if taken.is_empty() {
        if skips { None } else { until(pending(), withdrawal).await }
    } else {
        let mut choice = if is_fair { Choice::fair() } else { Choice::prioritised() };
        if skips {
            choice = choice.skip(Chosen::Skipped);
        }
        for ((_, hold), is_claim) in taken.iter_mut().zip(is_claim) {
            choice = if is_claim { hold.claim(choice) } else { hold.offer(choice) };
        }
        until(choice.into_future(), withdrawal).await
    };
    let sent = put_back(taken).await;
    let chosen = chosen.filter(|(_, chosen)| !matches!(chosen, Chosen::Skipped));
    // Without a choice, a receiver at another node may have taken a value all the same.
    match chosen.or(sent) {
        Some((branch, Chosen::Value(value))) => Outcome::Done(branch, value),
        Some((branch, Chosen::Claimed(hold))) => Outcome::Done(branch, Value::End(end_of(hold))),
        Some((branch, Chosen::Ended)) => Outcome::Ended(branch),
        Some((_, Chosen::Failed(refusal))) => Outcome::Failed(refusal),
        Some((_, Chosen::Skipped)) | None => Outcome::Withdrawn,
    }
}

async fn refuse(taken: Taken, refusal: Refusal) -> Outcome {
    put_back(taken).await;
    Outcome::Failed(refusal)
}

/// Puts the ends of a choice back, and tells of the first of its sends that was not withdrawn.
async fn put_back(taken: Taken) -> Option<(usize, Chosen)> {
    let mut sent = None;
    for (branch, (end, mut hold)) in taken.into_iter().enumerate() {
        let settled = hold.settle().await;
        sent = sent.or(settled.map(|settled| (branch, settled)));
        Cell::put(&end, hold);
    }
    sent
}
