//! Where the processes of a scope run.

use std::fmt;

use tokio::runtime::{Builder, EnterGuard, Handle, Runtime};

use crate::world;

/// Where, and with how many worker threads, processes forked in a scope run: see
/// [`Scope::on`](crate::Scope::on).
///
/// In a simulation all places are the simulation's one thread.
#[derive(Clone, Debug)]
#[must_use = "a place does nothing until it is passed to `Scope::on`"]
pub struct Place(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Workers { count: usize, name: String },
    Handle(Handle),
    Current,
}

impl Place {
    /// A runtime of the scope's own, with this many worker threads. It is shut down when the scope's last
    /// handle and the last process that was forked there are gone.
    ///
    /// # Panics
    /// If `count` is 0.
    #[track_caller]
    pub fn workers(count: usize) -> Self {
        assert!(count > 0, "a place without workers runs nothing: use at least 1");
        Self(Kind::Workers { count, name: "dunlin-scope".to_owned() })
    }

    /// Names the worker threads of a [`workers`](Self::workers) place. Threads of other places have names
    /// already.
    pub fn named(self, name: &str) -> Self {
        match self.0 {
            Kind::Workers { count, .. } => Self(Kind::Workers { count, name: name.to_owned() }),
            kind => Self(kind),
        }
    }

    /// An existing tokio runtime. Its owner shuts it down.
    pub fn handle(runtime: Handle) -> Self {
        Self(Kind::Handle(runtime))
    }

    /// The tokio runtime in which [`Scope::on`](crate::Scope::on) is called: processes forked from elsewhere
    /// run there too.
    pub fn current() -> Self {
        Self(Kind::Current)
    }

    /// `None`: a process runs in the runtime from which it is forked.
    #[track_caller]
    pub(super) fn open(self) -> Option<Site> {
        if world::is_simulated() {
            return None;
        }
        Some(match self.0 {
            Kind::Workers { count, name } => {
                let runtime = Builder::new_multi_thread().worker_threads(count).thread_name(name).enable_all().build();
                let runtime = runtime.unwrap_or_else(|error| {
                    panic!("the operating system cannot create the threads of a scope: {error}")
                });
                Site { handle: runtime.handle().clone(), own: Some(runtime) }
            }
            Kind::Handle(handle) => Site { handle, own: None },
            Kind::Current => Site { handle: Handle::current(), own: None },
        })
    }
}

/// A place that is open.
pub(super) struct Site {
    handle: Handle,
    own: Option<Runtime>,
}

impl Site {
    /// Until the guard is dropped, what is spawned runs here.
    pub(super) fn enter(&self) -> EnterGuard<'_> {
        self.handle.enter()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Some(runtime) = self.own.take() {
            // The last process that ran here may drop this: its own thread cannot be waited for.
            runtime.shutdown_background();
        }
    }
}

impl fmt::Debug for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Site").field("own", &self.own.is_some()).finish_non_exhaustive()
    }
}
