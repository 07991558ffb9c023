//! The error of a call that was not taken, with the call itself.

use std::any::Any;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use super::state::NotRun;
use super::stop::Stop;

/// The body of a blocking call, whichever closure it was: [`blocking`](super::blocking()) accepts it like the
/// closure.
pub type Body<R> = Box<dyn FnOnce(&Stop) -> R + Send>;

/// A blocking call was not taken: all threads are busy and the queue is full, or the system gives no thread.
///
/// The handle returns it as [`Error::Refused`](crate::Error::Refused). [`room`](super::room) waits until a
/// call can be taken.
///
/// # Examples
/// ```
/// use dunlin::prelude::*;
/// use dunlin::blocking::Limits;
/// # dunlin::block_on(async {
/// blocking::limit(Limits::default().threads_max(1).queue_max(0));
/// let busy = blocking(|stop| stop.requested().wait());
/// let Err(Error::Refused(refused)) = blocking(|_| 6 * 7).await else { panic!() };
/// let call = refused.into_call::<i32>().unwrap();
/// busy.terminate().await;
/// assert_eq!(blocking::room().await.blocking(call).await.unwrap(), 42);
/// # });
/// ```
pub struct Refused {
    why: NotRun,
    // In a lock only to be `Sync`, as errors must be.
    call: Mutex<Option<Box<dyn Any + Send>>>,
}

impl Refused {
    pub(super) fn new<R: 'static>(why: NotRun, body: Body<R>) -> Self {
        Self { why, call: Mutex::new(Some(Box::new(body))) }
    }

    /// The call, to start later. `None` if it does not return an `R`.
    pub fn into_call<R: 'static>(self) -> Option<Body<R>> {
        let call = self.call.into_inner().unwrap_or_else(PoisonError::into_inner)?;
        call.downcast::<Body<R>>().ok().map(|body| *body)
    }

    /// Whether the queue was full; otherwise the operating system gave no thread.
    pub fn is_full(&self) -> bool {
        matches!(self.why, NotRun::Full { .. })
    }
}

impl fmt::Debug for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refused").field("why", &self.why).finish_non_exhaustive()
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.why {
            NotRun::Full { queue_max } => write!(
                f,
                "blocking call refused: all threads are busy and the queue (of {queue_max}) is full; await \
                 `blocking::room()` first"
            ),
            NotRun::NoThread => f.write_str("blocking call refused: the operating system cannot create a thread"),
            NotRun::Ended => f.write_str("blocking call refused: its runtime has ended"),
        }
    }
}

impl std::error::Error for Refused {}
