//! An end of any kind, in a message.

use dunlin::prelude::*;
use serde::{Deserialize, Serialize};

/// Any end of a channel of numbers.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum End {
    Sender(Sender<u32>),
    Receiver(Receiver<u32>),
    Senders(Shared<Sender<u32>>),
    Receivers(Shared<Receiver<u32>>),
    Caller(Caller<u32, u32>),
    Callers(Shared<Caller<u32, u32>>),
    Callee(Callee<u32, u32>),
    Barrier(Barrier),
    Broadcast(Broadcast<u32>),
    Joiner(Joiner<u32>),
}
