//! flume with capacity 0.

use std::fmt::Debug;

use flume::{Receiver, Sender, bounded};

use crate::library::{Library, Received};

pub(crate) struct Flume;

impl Library for Flume {
    const NAME: &'static str = "flume(0)";
    type Tx = Sender<u64>;
    type Rx = Receiver<u64>;

    fn channel() -> (Self::Tx, Self::Rx) {
        bounded(0)
    }

    fn send(tx: &mut Self::Tx, value: u64) -> impl Future<Output = Result<(), impl Debug>> + Send {
        tx.send_async(value)
    }

    fn recv(rx: &mut Self::Rx) -> impl Future<Output: Received> + Send {
        rx.recv_async()
    }
}
