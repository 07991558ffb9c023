//! Blocks that send each value to all of their outputs.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use super::error::{BlockError, Poison, pass_on};
use crate::{Receiver, SendError, Sender, Sending};

/// Sends each value to two outputs, in whichever order they receive it.
///
/// ```text
///         ┌───────┐─▶ 1 2 3
/// 1 2 3 ─▶│ delta │
///         └───────┘─▶ 1 2 3
/// ```
///
/// It receives the next value when both outputs have received the last one.
///
/// # Errors
/// As [all blocks](super#how-they-end). When one output has ended in order, the other still gets the value in
/// hand before this returns; poison of one does not wait for the other.
///
/// # Cancel safety
/// Dropped, it leaves its channels; a value in hand is dropped.
///
/// # Examples
/// ```
/// use dunlin::blocks::delta;
/// use dunlin::prelude::*;
/// # dunlin::block_on(async {
/// let ((mut tx, rx), (one, mut first), (other, mut second)) = (channel(), channel(), channel());
/// spawn(delta(rx, one, other));
/// tx.send("krill").await?;
/// assert_eq!(second.recv().await?, "krill");
/// assert_eq!(first.recv().await?, "krill");
/// # Ok::<_, Error>(()) }).unwrap();
/// ```
pub async fn delta<T: Clone>(
    mut from: Receiver<T>,
    mut one: Sender<T>,
    mut other: Sender<T>,
) -> Result<(), BlockError<T>> {
    let ended = async {
        while let Some(value) = from.next().await? {
            send_both(&mut one, &mut other, value).await?;
        }
        Ok(())
    };
    let ended = ended.await;
    pass_on(ended, [&from as &dyn Poison, &one, &other])
}

/// Both sends side by side.
async fn send_both<T: Clone>(one: &mut Sender<T>, other: &mut Sender<T>, value: T) -> Result<(), SendError<T>> {
    send_each(&mut [Some(one.send(value.clone())), Some(other.send(value))]).await
}

/// All sends side by side. The error of one waits for the others only if its channel has ended in order.
async fn send_each<T>(sends: &mut [Option<Sending<'_, T>>]) -> Result<(), SendError<T>> {
    let mut closed = None;
    poll_fn(|cx| {
        for slot in sends.iter_mut() {
            let Some(send) = slot else { continue };
            match Pin::new(send).poll(cx) {
                Poll::Pending => {}
                Poll::Ready(Ok(())) => *slot = None,
                Poll::Ready(Err(error)) if error.is_closed() => {
                    *slot = None;
                    closed = Some(error);
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            }
        }
        if sends.iter().any(Option::is_some) {
            return Poll::Pending;
        }
        Poll::Ready(closed.take().map_or(Ok(()), Err))
    })
    .await
}

/// Sends each value to all of `outputs`, in whichever order they receive it: [`delta`] for any number.
///
/// ```text
///         ┌───────────┐─▶ 1 2 3
/// 1 2 3 ─▶│ delta_all │─▶ 1 2 3
///         └───────────┘─▶ 1 2 3
/// ```
///
/// It receives the next value when all outputs have received the last one. Without outputs it receives
/// nothing and returns at once, so its input ends.
///
/// # Errors
/// As [all blocks](super#how-they-end). When some outputs have ended in order, the others still get the value
/// in hand before this returns; poison of one does not wait for the others.
///
/// # Cancel safety
/// Dropped, it leaves its channels; a value in hand is dropped.
///
/// # Examples
/// ```
/// use dunlin::blocks::delta_all;
/// use dunlin::prelude::*;
/// # dunlin::block_on(async {
/// let (mut tx, rx) = channel();
/// let (senders, mut receivers): (Vec<_>, Vec<_>) = (0..3).map(|_| channel()).unzip();
/// spawn(delta_all(rx, senders));
/// tx.send("krill").await?;
/// for output in receivers.iter_mut().rev() {
///     assert_eq!(output.recv().await?, "krill");
/// }
/// # Ok::<_, Error>(()) }).unwrap();
/// ```
///
/// # Source
/// `Delta` of JCSP, and the parallel delta of C++CSP.
pub async fn delta_all<T: Clone>(mut from: Receiver<T>, mut outputs: Vec<Sender<T>>) -> Result<(), BlockError<T>> {
    let ended = async {
        while !outputs.is_empty() {
            let Some(value) = from.next().await? else { break };
            let copies = std::iter::repeat_n(value, outputs.len());
            let mut sends: Vec<_> = outputs.iter_mut().zip(copies).map(|(to, copy)| Some(to.send(copy))).collect();
            send_each(&mut sends).await?;
        }
        Ok(())
    };
    let ended = ended.await;
    pass_on(ended, outputs.iter().map(|to| to as &dyn Poison).chain([&from as &dyn Poison]))
}

/// Passes on what it receives, and sends each value to `watcher` first, while its sender waits.
///
/// ```text
///         ┌─────┐
/// 1 2 3 ─▶│ tap │─▶ 1 2 3
///         └──┬──┘
///            ▼
///          1 2 3
/// ```
///
/// The receive is [extended](crate::Receiver::recv_extended): a send into the tap ends when the tap's output
/// has been received. So a rendezvous through a tap is still a rendezvous; only the watcher's time is
/// visible.
///
/// When the watcher leaves, the tap continues without it.
///
/// # Errors
/// As [all blocks](super#how-they-end). The send of a value that the tap had in hand returned `Ok`, since the
/// tap has received it; the value is in this error.
///
/// # Cancel safety
/// Dropped, it leaves its channels; a value in hand is dropped.
///
/// # Examples
/// ```
/// use dunlin::blocks::tap;
/// use dunlin::prelude::*;
/// # dunlin::block_on(async {
/// let ((mut tx, rx), (to, mut out), (show, mut watcher)) = (channel(), channel(), channel());
/// spawn(tap(rx, to, show));
/// let (sent, seen, got) = par!(tx.send("krill"), watcher.recv(), out.recv());
/// assert_eq!((sent, seen, got), (Ok(()), Ok("krill"), Ok("krill")));
/// # });
/// ```
///
/// # Source
/// Extended rendezvous of occam-pi (Barnes and Welch, 2003), whose first use it was.
pub async fn tap<T: Clone>(
    mut from: Receiver<T>,
    mut to: Sender<T>,
    mut watcher: Sender<T>,
) -> Result<(), BlockError<T>> {
    let ended = async {
        let mut watched = true;
        loop {
            let value = match from.recv_extended().await {
                Err(error) if error.is_closed() => return Ok(()),
                received => received?,
            };
            if watched {
                match watcher.send(value.clone()).await {
                    Err(error) if error.is_closed() => watched = false,
                    shown => shown?,
                }
            }
            to.send(value.clone()).await?;
            value.release();
        }
    };
    let ended = ended.await;
    pass_on(ended, [&from as &dyn Poison, &to, &watcher])
}
