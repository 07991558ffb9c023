//! async-channel with its minimum capacity of 1, which is not a rendezvous: a send returns when the value is
//! in the buffer.

use std::fmt::Debug;

use async_channel::{Receiver, Sender, bounded};

use crate::library::{Library, Received};

pub(crate) struct AsyncChannel;

impl Library for AsyncChannel {
    const NAME: &'static str = "async-channel(1)";
    type Tx = Sender<u64>;
    type Rx = Receiver<u64>;

    fn channel() -> (Self::Tx, Self::Rx) {
        bounded(1)
    }

    fn send(tx: &mut Self::Tx, value: u64) -> impl Future<Output = Result<(), impl Debug>> + Send {
        tx.send(value)
    }

    fn recv(rx: &mut Self::Rx) -> impl Future<Output: Received> + Send {
        rx.recv()
    }
}
