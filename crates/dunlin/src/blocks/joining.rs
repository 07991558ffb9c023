//! Blocks with one output: each value goes through them once.

use std::future::{Future, poll_fn};
use std::ops::Add;
use std::pin::Pin;
use std::task::Poll;

use super::error::{BlockError, Poison, pass_on};
use crate::{Choice, Receiver, RecvError, Sender};

/// Passes on what it receives.
///
/// ```text
///         ┌──────────┐
/// 1 2 3 ─▶│ identity │─▶ 1 2 3
///         └──────────┘
/// ```
///
/// Besides its channels it has room for one value, so a row of n of them is a buffer of n.
///
/// # Errors
/// As [all blocks](super#how-they-end).
///
/// # Cancel safety
/// Dropped, it leaves its channels; a value in hand is dropped.
///
/// # Examples
/// ```
/// use dunlin::blocks::identity;
/// use dunlin::prelude::*;
/// # dunlin::block_on(async {
/// let ((mut tx, rx), (ty, mut ry)) = (channel(), channel());
/// let copy = spawn(identity(rx, ty));
/// tx.send("krill").await?;
/// assert_eq!(ry.recv().await?, "krill");
/// drop(tx);
/// assert_eq!(ry.next().await?, None);
/// copy.await??;
/// # Ok::<_, Error>(()) }).unwrap();
/// ```
pub async fn identity<T>(mut from: Receiver<T>, mut to: Sender<T>) -> Result<(), BlockError<T>> {
    let ended = relay(&mut from, &mut to).await;
    pass_on(ended, [&from as &dyn Poison, &to])
}

async fn relay<T>(from: &mut Receiver<T>, to: &mut Sender<T>) -> Result<(), BlockError<T>> {
    while let Some(value) = from.next().await? {
        to.send(value).await?;
    }
    Ok(())
}

/// Sends `first`, and then passes on what it receives.
///
/// ```text
///         ┌──────────┐
///   1 2 ─▶│ prefix 0 │─▶ 0 1 2
///         └──────────┘
/// ```
///
/// It starts a circle of processes that all wait for a value.
///
/// # Errors
/// As [all blocks](super#how-they-end).
///
/// # Cancel safety
/// Dropped, it leaves its channels; a value in hand is dropped.
///
/// # Examples
/// ```
/// use dunlin::blocks::prefix;
/// use dunlin::prelude::*;
/// # dunlin::block_on(async {
/// let ((mut tx, rx), (ty, mut ry)) = (channel(), channel());
/// spawn(prefix("first", rx, ty));
/// assert_eq!(ry.recv().await?, "first");
/// tx.send("second").await?;
/// assert_eq!(ry.recv().await?, "second");
/// # Ok::<_, Error>(()) }).unwrap();
/// ```
pub async fn prefix<T>(first: T, mut from: Receiver<T>, mut to: Sender<T>) -> Result<(), BlockError<T>> {
    let ended = match to.send(first).await {
        Ok(()) => relay(&mut from, &mut to).await,
        Err(error) => Err(error.into()),
    };
    pass_on(ended, [&from as &dyn Poison, &to])
}

/// Adds one to each number.
///
/// ```text
///         ┌───────────┐
/// 1 2 3 ─▶│ successor │─▶ 2 3 4
///         └───────────┘
/// ```
///
/// # Errors
/// As [all blocks](super#how-they-end). The value in the error has been added to.
///
/// # Panics
/// Where `+` does: when the sum does not fit, in a build with overflow checks.
///
/// # Cancel safety
/// Dropped, it leaves its channels; a value in hand is dropped.
///
/// # Examples
/// ```
/// use dunlin::blocks::successor;
/// use dunlin::prelude::*;
/// # dunlin::block_on(async {
/// let ((mut tx, rx), (ty, mut ry)) = (channel::<u32>(), channel());
/// spawn(successor(rx, ty));
/// tx.send(41).await?;
/// assert_eq!(ry.recv().await?, 42);
/// # Ok::<_, Error>(()) }).unwrap();
/// ```
pub async fn successor<T: Add<Output = T> + From<u8>>(
    mut from: Receiver<T>,
    mut to: Sender<T>,
) -> Result<(), BlockError<T>> {
    let ended = async {
        while let Some(value) = from.next().await? {
            to.send(value + T::from(1)).await?;
        }
        Ok(())
    };
    let ended = ended.await;
    pass_on(ended, [&from as &dyn Poison, &to])
}

/// Applies `f` to each value, one after the other.
///
/// ```text
///         ┌───────┐
/// a b c ─▶│ map f │─▶ f(a) f(b) f(c)
///         └───────┘
/// ```
///
/// # Errors
/// As [all blocks](super#how-they-end). The value in the error is a result of `f`.
///
/// # Cancel safety
/// Dropped, it leaves its channels; the future of `f`, and a value in hand, are dropped.
///
/// # Examples
/// Stages of different types are `map`s side by side:
/// ```
/// use dunlin::blocks::map;
/// use dunlin::prelude::*;
/// # dunlin::block_on(async {
/// let ((mut lines, from), (to, mut counts)) = (channel::<String>(), channel());
/// let (split, words) = channel();
/// spawn(map(from, split, async |line: String| line.split(' ').map(str::to_owned).collect::<Vec<_>>()));
/// spawn(map(words, to, async |words: Vec<String>| words.len()));
/// lines.send("fee fi fo fum".to_owned()).await?;
/// assert_eq!(counts.recv().await?, 4);
/// # Ok::<_, Error>(()) }).unwrap();
/// ```
pub async fn map<T, U, F>(
    mut from: Receiver<T>,
    mut to: Sender<U>,
    mut f: impl FnMut(T) -> F,
) -> Result<(), BlockError<U>>
where
    F: Future<Output = U>,
{
    let ended = async {
        while let Some(value) = from.next().await? {
            to.send(f(value).await).await?;
        }
        Ok(())
    };
    let ended = ended.await;
    pass_on(ended, [&from as &dyn Poison, &to])
}

/// Adds each number to the one before it: n numbers give n - 1 sums.
///
/// ```text
///           ┌───────┐
/// 1 2 3 4 ─▶│ pairs │─▶ 3 5 7
///           └───────┘
/// ```
///
/// # Errors
/// As [all blocks](super#how-they-end). The value in the error is the sum that was not sent. Its second half
/// would also have been the first half of the next sum.
///
/// # Panics
/// Where `+` does: when the sum does not fit, in a build with overflow checks.
///
/// # Cancel safety
/// Dropped, it leaves its channels; values in hand are dropped.
///
/// # Examples
/// ```
/// use dunlin::blocks::pairs;
/// use dunlin::prelude::*;
/// # dunlin::block_on(async {
/// let ((mut tx, rx), (ty, mut ry)) = (channel(), channel());
/// spawn(pairs(rx, ty));
/// spawn(async move {
///     for n in [1, 2, 3, 4] {
///         tx.send(n).await?;
///     }
///     Ok::<_, Error>(())
/// });
/// let mut sums = vec![];
/// while let Some(sum) = ry.next().await? {
///     sums.push(sum);
/// }
/// assert_eq!(sums, [3, 5, 7]);
/// # Ok::<_, Error>(()) }).unwrap();
/// ```
pub async fn pairs<T: Add<Output = T> + Clone>(mut from: Receiver<T>, mut to: Sender<T>) -> Result<(), BlockError<T>> {
    let ended = async {
        let Some(mut before) = from.next().await? else { return Ok(()) };
        while let Some(value) = from.next().await? {
            to.send(before + value.clone()).await?;
            before = value;
        }
        Ok(())
    };
    let ended = ended.await;
    pass_on(ended, [&from as &dyn Poison, &to])
}

/// Passes on values from any of `inputs`, by a fair choice. An input that has ended is left out; when all
/// have ended, it returns.
///
/// ```text
///         ┌───────┐
/// a a a ─▶│       │
/// b b b ─▶│ merge │─▶ a b c a b c a b c
/// c c c ─▶│       │
///         └───────┘
/// ```
///
/// Fair: it takes from the ready input that it took from least recently.
///
/// # Errors
/// As [all blocks](super#how-they-end): poison of one input poisons the output and all other inputs.
///
/// # Cancel safety
/// Dropped, it leaves its channels; a value in hand is dropped.
///
/// # Examples
/// ```
/// use dunlin::blocks::merge;
/// use dunlin::prelude::*;
/// # dunlin::block_on(async {
/// let (senders, receivers): (Vec<_>, Vec<_>) = (0..3).map(|_| channel()).unzip();
/// let (to, mut all) = channel();
/// spawn(merge(receivers, to));
/// for (n, mut tx) in senders.into_iter().enumerate() {
///     spawn(async move { tx.send(n).await });
/// }
/// let mut sum = 0;
/// while let Some(n) = all.next().await? {
///     sum += n;
/// }
/// assert_eq!(sum, 0 + 1 + 2);
/// # Ok::<_, Error>(()) }).unwrap();
/// ```
pub async fn merge<T: Send>(mut inputs: Vec<Receiver<T>>, mut to: Sender<T>) -> Result<(), BlockError<T>> {
    let ended = async {
        while !inputs.is_empty() {
            let (index, next) = Choice::fair().all(inputs.iter_mut().map(Receiver::next)).await;
            match next? {
                Some(value) => to.send(value).await?,
                None => drop(inputs.swap_remove(index)),
            }
        }
        Ok(())
    };
    let ended = ended.await;
    pass_on(ended, inputs.iter().map(|input| input as &dyn Poison).chain([&to as &dyn Poison]))
}

/// Puts `sign` before each value.
///
/// ```text
///         ┌────────┐
/// 1 2 3 ─▶│ sign a │─▶ a1 a2 a3
///         └────────┘
/// ```
///
/// So a receiver of [merged](merge) values can know where each came from. With the number of an output for a
/// sign, [`demultiplex`](super::demultiplex) takes them apart again.
///
/// # Errors
/// As [all blocks](super#how-they-end). The value in the error has its sign.
///
/// # Cancel safety
/// Dropped, it leaves its channels; a value in hand is dropped.
///
/// # Examples
/// Two channels through one:
/// ```
/// use dunlin::blocks::{demultiplex, merge, sign};
/// use dunlin::prelude::*;
/// # dunlin::block_on(async {
/// let (mut senders, inputs): (Vec<_>, Vec<_>) = (0..2).map(|_| channel()).unzip();
/// let (signed, merged): (Vec<_>, Vec<_>) = (0..2).map(|_| channel()).unzip();
/// let (outputs, mut receivers): (Vec<_>, Vec<_>) = (0..2).map(|_| channel()).unzip();
/// for (number, (from, to)) in inputs.into_iter().zip(signed).enumerate() {
///     spawn(sign(number, from, to));
/// }
/// let (to, from) = channel();
/// spawn(merge(merged, to));
/// spawn(demultiplex(from, outputs));
/// senders[1].send("krill").await?;
/// assert_eq!(receivers[1].recv().await?, "krill");
/// # Ok::<_, Error>(()) }).unwrap();
/// ```
///
/// # Source
/// `Sign` of JCSP, which makes a string of both.
pub async fn sign<S: Clone, T>(
    sign: S,
    mut from: Receiver<T>,
    mut to: Sender<(S, T)>,
) -> Result<(), BlockError<(S, T)>> {
    let ended = async {
        while let Some(value) = from.next().await? {
            to.send((sign.clone(), value)).await?;
        }
        Ok(())
    };
    let ended = ended.await;
    pass_on(ended, [&from as &dyn Poison, &to])
}

/// Receives one value from each of `inputs`, in whichever order they come, and sends them as a row.
///
/// ```text
///         ┌──────────┐
/// 1 2 3 ─▶│          │
/// 4 5 6 ─▶│ paraplex │─▶ [1 4 7] [2 5 8] [3 6 9]
/// 7 8 9 ─▶│          │
///         └──────────┘
/// ```
///
/// It begins the next row when its output has received the last one. When the first input ends, no row can
/// be complete any more, and it returns `Ok` with what it has received of the last one: one entry for each
/// input, `None` where nothing was received. Without inputs it returns at once.
///
/// # Errors
/// As [all blocks](super#how-they-end). The value in the error is a row. When an input does not end in order,
/// the values of its unfinished row are dropped.
///
/// # Cancel safety
/// Dropped, it leaves its channels; values in hand are dropped.
///
/// # Examples
/// ```
/// use dunlin::blocks::paraplex;
/// use dunlin::prelude::*;
/// # dunlin::block_on(async {
/// let ((mut tx, rx), (mut ty, ry), (to, mut rows)) = (channel(), channel(), channel());
/// let block = spawn(paraplex(vec![rx, ry], to));
/// ty.send("cod").await?;
/// tx.send("krill").await?;
/// assert_eq!(rows.recv().await?, ["krill", "cod"]);
///
/// ty.send("eel").await?;
/// drop(tx);
/// assert_eq!(block.await??, [None, Some("eel")]);
/// # Ok::<_, Error>(()) }).unwrap();
/// ```
///
/// # Source
/// `Paraplex` of JCSP.
pub async fn paraplex<T>(
    mut inputs: Vec<Receiver<T>>,
    mut to: Sender<Vec<T>>,
) -> Result<Vec<Option<T>>, BlockError<Vec<T>>> {
    let ended = async {
        while !inputs.is_empty() {
            let row = receive_row(&mut inputs).await?;
            if row.iter().any(Option::is_none) {
                return Ok(row);
            }
            to.send(row.into_iter().flatten().collect()).await?;
        }
        Ok(Vec::new())
    };
    let ended = ended.await;
    pass_on(ended, inputs.iter().map(|input| input as &dyn Poison).chain([&to as &dyn Poison]))
}

/// One value from each, side by side; ends early when one of them has ended.
async fn receive_row<T>(inputs: &mut [Receiver<T>]) -> Result<Vec<Option<T>>, RecvError> {
    let mut row: Vec<Option<T>> = inputs.iter().map(|_| None).collect();
    let mut receives: Vec<_> = inputs.iter_mut().map(Receiver::next).collect();
    poll_fn(|cx| {
        let mut waits = false;
        for (receive, value) in receives.iter_mut().zip(&mut row).filter(|(_, value)| value.is_none()) {
            match Pin::new(receive).poll(cx) {
                Poll::Pending => waits = true,
                Poll::Ready(Ok(None)) => return Poll::Ready(Ok(())),
                Poll::Ready(Ok(received)) => *value = received,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            }
        }
        if waits { Poll::Pending } else { Poll::Ready(Ok(())) }
    })
    .await?;
    Ok(row)
}
