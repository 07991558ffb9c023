//! Blocks with one output: each value goes through them once.

use std::future::Future;
use std::ops::Add;

use super::error::{BlockError, Poison, pass_on};
use crate::{Choice, Receiver, Sender};

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
