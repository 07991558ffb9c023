//! kanal with capacity 0.

use std::fmt::Debug;

use kanal::{AsyncReceiver, AsyncSender, bounded_async};

use crate::library::{Library, Received};

pub(crate) struct Kanal;

impl Library for Kanal {
    const NAME: &'static str = "kanal(0)";
    // Its receive, when dropped after a sender has handed it a value, drops that value (`impl Drop for
    // ReceiveFuture` in 0.1.1), so a choice over such receives loses events. Tried with `choice-waits`: the
    // third event received was the 23rd sent.
    const CHOOSES: bool = false;
    type Tx = AsyncSender<u64>;
    type Rx = AsyncReceiver<u64>;

    fn channel() -> (Self::Tx, Self::Rx) {
        bounded_async(0)
    }

    fn send(tx: &mut Self::Tx, value: u64) -> impl Future<Output = Result<(), impl Debug>> + Send {
        tx.send(value)
    }

    fn recv(rx: &mut Self::Rx) -> impl Future<Output: Received> + Send {
        rx.recv()
    }
}
