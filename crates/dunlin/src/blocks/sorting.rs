//! Blocks that send each value to one of their outputs.

use super::error::{BlockError, Poison, pass_on};
use crate::{Receiver, Sender};

/// Sends each value to the output whose number comes with it, counted from 0.
///
/// ```text
///                ┌─────────────┐─▶ a c
/// 0a 2b 0c 1d ──▶│ demultiplex │─▶ d
///                └─────────────┘─▶ b
/// ```
///
/// It receives the next value when the output has received the last one: one slow output holds up the
/// others. The outputs end when the input does.
///
/// It is the other half of a [`merge`](super::merge) of [signed](super::sign) inputs: several channels go
/// through one.
///
/// # Errors
/// As [all blocks](super#how-they-end), also when an output has ended in order: the block stops at the first
/// value for that output. [`BlockError::NoOutput`] for a number that no output has; the channels are
/// poisoned then, with the error's text.
///
/// # Cancel safety
/// Dropped, it leaves its channels; a value in hand is dropped.
///
/// # Examples
/// ```
/// use dunlin::blocks::{BlockError, demultiplex};
/// use dunlin::prelude::*;
/// # dunlin::block_on(async {
/// let ((mut tx, rx), (zero, _first), (one, mut second)) = (channel(), channel(), channel());
/// let block = spawn(demultiplex(rx, vec![zero, one]));
/// tx.send((1, "krill")).await?;
/// assert_eq!(second.recv().await?, "krill");
///
/// tx.send((2, "cod")).await?;
/// let Err(BlockError::NoOutput { value, index, outputs }) = block.await? else { unreachable!() };
/// assert_eq!((value, index, outputs), ("cod", 2, 2));
/// assert!(second.recv().await.unwrap_err().is_poisoned());
/// # Ok::<_, Error>(()) }).unwrap();
/// ```
///
/// # Source
/// `Demultiplex` of JCSP.
pub async fn demultiplex<T>(mut from: Receiver<(usize, T)>, mut outputs: Vec<Sender<T>>) -> Result<(), BlockError<T>> {
    let ended = async {
        while let Some((index, value)) = from.next().await? {
            let count = outputs.len();
            match outputs.get_mut(index) {
                Some(to) => to.send(value).await?,
                None => return Err(BlockError::NoOutput { value, index, outputs: count }),
            }
        }
        Ok(())
    };
    let ended = ended.await;
    pass_on(ended, outputs.iter().map(|to| to as &dyn Poison).chain([&from as &dyn Poison]))
}
