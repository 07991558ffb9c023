//! Calls of the pool that may wait for a disk, with a deadline.

use std::io;
use std::pin::pin;
use std::time::Duration;

use dunlin::blocking::{Stop, room};
use dunlin::prelude::{alt, future, sleep};
use rustix::io::Errno;

/// Runs `call` on a thread of the pool.
///
/// # Errors
/// Those of the call. `TimedOut` after `patience`: the call is abandoned, and holds its thread until the disk
/// answers.
pub(crate) async fn on_pool<R: Send + 'static>(
    patience: Duration,
    call: impl FnOnce(&Stop) -> io::Result<R> + Send + 'static,
) -> io::Result<R> {
    let result = pin!(async { room().await.blocking(call).await });
    alt! { biased;
        result = future(result) => result.unwrap_or_else(|error| Err(io::Error::other(error.to_string()))),
        () = sleep(patience) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// Whether a call failed because the system has no descriptor, process or memory left now, or because the
/// disk does not answer.
pub(crate) fn is_scarce(error: &io::Error) -> bool {
    let number = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(number, Some(Errno::MFILE | Errno::NFILE | Errno::AGAIN | Errno::NOMEM))
        || error.kind() == io::ErrorKind::TimedOut
}
