//! Blocks without an input: each makes its values.

use super::error::{BlockError, Poison, pass_on};
use crate::Sender;

/// Sends `value` again and again.
///
/// ```text
/// ┌────────────┐
/// │ generate a │─▶ a a a a
/// └────────────┘
/// ```
///
/// It sends as fast as its output takes values: with an unbounded buffer it fills the memory.
///
/// # Errors
/// It ends when its output does, as [all blocks](super#how-they-end), with the copy in hand; it never returns
/// `Ok`.
///
/// # Cancel safety
/// Dropped, it leaves its channel; the value is dropped.
///
/// # Examples
/// ```
/// use dunlin::blocks::generate;
/// use dunlin::prelude::*;
/// # dunlin::block_on(async {
/// let (to, mut out) = channel();
/// let making = spawn(generate("krill", to));
/// assert_eq!((out.recv().await?, out.recv().await?), ("krill", "krill"));
/// drop(out);
/// assert!(making.await?.unwrap_err().is_closed());
/// # Ok::<_, Error>(()) }).unwrap();
/// ```
///
/// # Source
/// `Generate` of JCSP.
pub async fn generate<T: Clone>(value: T, to: Sender<T>) -> Result<(), BlockError<T>> {
    send_all(std::iter::repeat(value), to).await
}

/// Sends 0, 1, 2 and so on.
///
/// ```text
/// ┌─────────┐
/// │ numbers │─▶ 0 1 2 3
/// └─────────┘
/// ```
///
/// It sends as fast as its output takes values: with an unbounded buffer it fills the memory.
///
/// # Errors
/// It ends when its output does, as [all blocks](super#how-they-end), with the next number. It returns `Ok`
/// only after 2^64 numbers.
///
/// # Cancel safety
/// Dropped, it leaves its channel.
///
/// # Examples
/// ```
/// use dunlin::blocks::numbers;
/// use dunlin::prelude::*;
/// # dunlin::block_on(async {
/// let (to, mut out) = channel();
/// spawn(numbers(to));
/// assert_eq!([out.recv().await?, out.recv().await?, out.recv().await?], [0, 1, 2]);
/// # Ok::<_, Error>(()) }).unwrap();
/// ```
///
/// # Source
/// `numbers` of the occam course library; there it is a circle of `prefix`, `delta` and `successor`.
pub async fn numbers(to: Sender<u64>) -> Result<(), BlockError<u64>> {
    send_all(0..=u64::MAX, to).await
}

async fn send_all<T>(values: impl Iterator<Item = T>, mut to: Sender<T>) -> Result<(), BlockError<T>> {
    let ended = async {
        for value in values {
            to.send(value).await?;
        }
        Ok(())
    };
    let ended = ended.await;
    pass_on(ended, [&to as &dyn Poison])
}
