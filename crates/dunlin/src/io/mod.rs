//! Sockets, pipes, files, programs and the standard streams: values whose operations are awaited, have
//! deadlines, and are branches of a choice.
//!
//! A [`Connection`] reads, writes and closes, without a channel or a process, so an idle one costs only its
//! socket. A [`Listener`] receives connections. Where channels fit better, [`Connection::into_ends`] and
//! [`Listener::into_receiver`] make ordinary ends and a process that serves them. Such ends may go to other
//! nodes; the descriptor stays.
//!
//! A read that a choice did not choose, or whose deadline has passed, has taken no byte; such a write has
//! written none; such an accept has taken no connection. A `write_all` has removed what it has written from
//! its bytes.
//!
//! # Which means are used
//!
//! | what | made by | waits by | why |
//! |---|---|---|---|
//! | TCP | [`tcp`] | tokio | a read by a blocking call takes 1.2 to 15 times as long |
//! | unix sockets | `unix` (Unix) | tokio | the same |
//! | UDP | [`udp`] | tokio | the same |
//! | pipes, FIFOs | `pipe` (Unix) | tokio | the same |
//! | exit of a program | `program` (Linux) | tokio | it is a descriptor that becomes ready |
//! | start of a program | `program` (Linux) | a blocking call | the system may read the program from a disk |
//! | standard stream: terminal, pipe, socket | `standard` (Unix) | tokio | opened again, since others share it |
//! | standard stream: file | `standard` (Unix) | blocking calls | as files |
//! | Ctrl-C, SIGTERM | [`signal`] | tokio | its handler writes to a descriptor |
//! | files | [`file`](mod@file) | [blocking calls](mod@crate::blocking) | files are always "ready", and wait for the disk |
//!
//! Host names are looked up on tokio's own thread pool.
//!
//! # Examples
//! An echo server, with a deadline for each silent client:
//! ```no_run
//! use dunlin::io::{Connection, tcp};
//! use dunlin::prelude::*;
//!
//! async fn echo(mut connection: Connection) -> Result {
//!     loop {
//!         let mut piece = connection.read(4096).within(Duration::from_secs(10)).await?;
//!         if piece.is_empty() {
//!             return Ok(()); // the client has ended
//!         }
//!         connection.write_all(&mut piece).await?;
//!     }
//! }
//!
//! #[dunlin::main]
//! async fn main() -> Result {
//!     let mut listener = tcp::listen("127.0.0.1:7000").await?;
//!     loop {
//!         drop(spawn(echo(listener.accept().await?)));
//!     }
//! }
//! ```

#[cfg(target_os = "linux")]
mod accepted;
mod address;
mod carry;
mod connection;
#[cfg(unix)]
mod descriptor;
mod ends;
pub mod file;
mod listener;
mod operation;
#[cfg(unix)]
pub mod pipe;
#[cfg(target_os = "linux")]
pub mod program;
pub mod signal;
#[cfg(unix)]
pub mod standard;
mod stream;
pub mod tcp;
pub mod udp;
#[cfg(unix)]
pub mod unix;

pub use address::Address;
pub use bytes::Bytes;
#[cfg(unix)]
pub use connection::Writable;
pub use connection::{Close, Connection, Read, Reader, Write, WriteAll, Writer};
pub use ends::Ends;
pub use listener::{Accept, Listener};
pub use operation::IoOperation;

use crate::Process;

/// Starts a process. Its future is boxed, so that the runtime's part is compiled once and not for each.
#[track_caller]
fn spawn<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> Process<T> {
    let boxed: std::pin::Pin<Box<dyn Future<Output = T> + Send>> = Box::pin(future);
    crate::spawn(boxed)
}
