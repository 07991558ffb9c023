//! Skeletons that only connect: the caller supplies the processes in them.

use std::future::Future;

use crate::{Par, Receiver, Sender, channel};

/// A row of processes, each of which receives from the one before: made of `stages` by `process`.
///
/// ```text
///         ┌─────────┐   ┌─────────┐   ┌─────────┐
///  from ─▶│ stage 0 │──▶│ stage 1 │──▶│ stage 2 │─▶ to
///         └─────────┘   └─────────┘   └─────────┘
/// ```
///
/// `process` is called once for each stage, in order, with its two ends. Await the [`Par`]: it runs the
/// stages side by side in this task, and gives what each has returned. For stages that compute, let `process`
/// return `spawn(..)`, so that they run on all workers.
///
/// The channels between the stages have no buffer. When the input ends, the stages end one after the other,
/// in order. When the output ends, each stage finds its own output closed, and its failed send returns the
/// value.
///
/// # Panics
/// Without stages nothing would connect `from` and `to`. Use [`identity`](super::identity) for that.
///
/// # Examples
/// Keeps the numbers that neither 2 nor 3 nor 5 divides:
/// ```
/// use dunlin::blocks::pipeline;
/// use dunlin::prelude::*;
///
/// async fn filter(prime: u32, mut from: Receiver<u32>, mut to: Sender<u32>) -> Result {
///     while let Some(n) = from.next().await? {
///         if n % prime != 0 {
///             to.send(n).await?;
///         }
///     }
///     Ok(())
/// }
/// # dunlin::block_on(async {
/// let ((mut tx, rx), (ty, mut ry)) = (channel(), channel());
/// let (_, stages, left) = par!(
///     async {
///         for n in 6..20 {
///             tx.send(n).await?;
///         }
///         drop(tx);
///         Ok::<_, Error>(())
///     },
///     pipeline(rx, ty, [2, 3, 5], filter),
///     async {
///         let mut left = vec![];
///         while let Some(n) = ry.next().await? {
///             left.push(n);
///         }
///         Ok::<_, Error>(left)
///     },
/// );
/// assert_eq!(left?, [7, 11, 13, 17, 19]);
/// assert!(stages.iter().all(Result::is_ok));
/// # Ok::<_, Error>(()) }).unwrap();
/// ```
#[track_caller]
pub fn pipeline<T, S, F: Future>(
    from: Receiver<T>,
    to: Sender<T>,
    stages: impl IntoIterator<Item = S>,
    mut process: impl FnMut(S, Receiver<T>, Sender<T>) -> F,
) -> Par<F> {
    let mut stages = stages.into_iter();
    let mut stage = stages.next().expect("a pipeline has at least one stage; `identity` only connects");
    let mut processes = Vec::with_capacity(stages.size_hint().0 + 1);
    let mut from = from;
    for next in stages {
        let (tx, rx) = channel();
        processes.push(process(std::mem::replace(&mut stage, next), from, tx));
        from = rx;
    }
    processes.push(process(stage, from, to));
    processes.into_iter().collect()
}

/// A ring of processes, each of which receives from the one before, and the first from the last: made of
/// `members` by `process`.
///
/// ```text
///    ┌──────────┐   ┌──────────┐   ┌──────────┐
///  ┌▶│ member 0 │──▶│ member 1 │──▶│ member 2 │─┐
///  │ └──────────┘   └──────────┘   └──────────┘ │
///  └────────────────────────────────────────────┘
/// ```
///
/// `process` is called once for each member, in order, with its two ends. Await the [`Par`]: it runs the
/// members side by side in this task, and gives what each has returned. For members that compute, let
/// `process` return `spawn(..)`.
///
/// The channels have no buffer: members that all send first wait for each other for ever. Let only one of
/// them send first, or let each do both at once, `par!(to.send(..), from.recv())`. The ring ends when one
/// member leaves: its neighbours find their channels closed, and so on around the ring.
///
/// One member has itself for a neighbour.
///
/// # Examples
/// Every member learns the largest number:
/// ```
/// use dunlin::blocks::ring;
/// use dunlin::prelude::*;
/// # dunlin::block_on(async {
/// let numbers = [3, 1, 4, 1, 5];
/// let largest = ring(numbers, async |mine: u32, mut from: Receiver<u32>, mut to: Sender<u32>| {
///     let mut largest = mine;
///     for _ in 1..numbers.len() {
///         let (sent, heard) = par!(to.send(largest), from.recv());
///         sent?;
///         largest = largest.max(heard?);
///     }
///     Ok::<_, Error>(largest)
/// });
/// for known in largest.await {
///     assert_eq!(known?, 5);
/// }
/// # Ok::<_, Error>(()) }).unwrap();
/// ```
#[track_caller]
pub fn ring<T, M, F: Future>(
    members: impl IntoIterator<Item = M>,
    mut process: impl FnMut(M, Receiver<T>, Sender<T>) -> F,
) -> Par<F> {
    let members: Vec<_> = members.into_iter().collect();
    let (mut senders, receivers): (Vec<_>, Vec<_>) = members.iter().map(|_| channel()).unzip();
    // Each receives from its own channel, and sends to that of the next.
    if !senders.is_empty() {
        senders.rotate_left(1);
    }
    members.into_iter().zip(receivers).zip(senders).map(|((member, from), to)| process(member, from, to)).collect()
}
