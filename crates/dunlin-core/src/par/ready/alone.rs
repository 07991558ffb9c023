//! A process that is no branch of a `par!`, as its runtime polls it.
//!
//! In dev builds it is polled with a waker of the core's own, as a branch is, and counted. The counts show
//! whether every process waits, and whether code outside of dunlin has kept a waker and so could end a wait
//! ([`waits::activity`]). Each poll by the runtime is still one poll of the process. In other builds, and
//! where a waker is not two numbers, it is polled directly.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

pin_project_lite::pin_project! {
    /// A process's body. The runtime's layer polls it under the process's identity.
    pub struct Alone<F> {
        process: Process,
        #[pin]
        future: F,
    }
}

impl<F> Alone<F> {
    /// A process that was spawned.
    #[inline]
    pub fn new(future: F) -> Self {
        Self { process: Process::new(true), future }
    }

    /// The body of `main`.
    pub fn outside(future: F) -> Self {
        Self { process: Process::new(false), future }
    }
}

impl<F> fmt::Debug for Alone<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Alone").finish_non_exhaustive()
    }
}

impl<F: Future> Future for Alone<F> {
    type Output = F::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let future = this.future;
        crate::budget::renew();
        this.process.poll(cx, |cx| future.poll(cx))
    }
}

#[cfg(all(debug_assertions, target_pointer_width = "64"))]
use counted::Process;
#[cfg(not(all(debug_assertions, target_pointer_width = "64")))]
use plain::Process;

#[cfg(not(all(debug_assertions, target_pointer_width = "64")))]
mod plain {
    use super::*;

    pub(super) struct Process;

    impl Process {
        #[inline]
        pub(super) fn new(_: bool) -> Self {
            Self
        }

        #[inline]
        pub(super) fn poll<R>(&self, cx: &mut Context<'_>, poll: impl FnOnce(&mut Context<'_>) -> R) -> R {
            poll(cx)
        }
    }
}

#[cfg(all(debug_assertions, target_pointer_width = "64"))]
mod counted {
    use super::super::Owned;
    use super::*;
    use crate::par::list::Local;
    use crate::par::waker::{Header, with_waker};
    use crate::sync::Ordering;
    use crate::table::Entry;
    use crate::waits::activity;
    use crate::wake::keep;

    pub(super) struct Process {
        header: &'static Entry<Header>,
        index: u32,
        /// Whether it was spawned: `main` is not counted.
        is_spawned: bool,
    }

    impl Process {
        pub(super) fn new(is_spawned: bool) -> Self {
            let (header, index) = Header::take();
            // Entries left by a stale waker of the entry's last user.
            header.remote.lock().inbox.clear();
            // SAFETY: no poll uses this entry yet, so `owner` is 0 and the entry is ours alone.
            unsafe {
                header.local(|local| {
                    local.fill(1);
                    local.pop();
                    // One refused operation ends the poll: this is no `par!` with a budget of its own.
                    local.operations = 0;
                });
            }
            if is_spawned {
                activity::started();
            }
            Self { header, index, is_spawned }
        }

        pub(super) fn poll<R>(&self, cx: &mut Context<'_>, poll: impl FnOnce(&mut Context<'_>) -> Poll<R>) -> Poll<R> {
            let header = self.header.value();
            let mut remote = header.remote.lock();
            let old = match &mut remote.task {
                Some(task) if task.will_wake(cx.waker()) => None,
                task => task.replace(keep(cx.waker())),
            };
            // The wakes so far are answered by this poll. Later ones wake the task.
            remote.inbox.clear();
            header.has_mail.store(false, Ordering::Relaxed);
            drop(remote);
            drop(old);
            let polling = activity::polling();
            let owned = Owned::new(self.index, header);
            let polled = with_waker(self.index, 0, |waker| poll(&mut Context::from_waker(waker)));
            // The process was woken during the poll, by itself; or a budget in it is spent.
            // SAFETY: this thread's token is in `owner`, and none of the two calls anything else.
            let (ending, woken) =
                unsafe { header.local(|local| (Local::take_ending(local), Local::pop(local).is_some())) };
            drop((owned, polling));
            if ending && polled.is_pending() {
                crate::budget::wake_later(cx.waker());
            } else if woken && polled.is_pending() {
                cx.waker().wake_by_ref();
            }
            polled
        }
    }

    impl Drop for Process {
        fn drop(&mut self) {
            // SAFETY: dropped, so not being polled: `owner` is 0, and no other thread has this entry.
            unsafe { self.header.local(|local| local.fill(0)) };
            let task = self.header.remote.lock().task.take();
            drop(task);
            Header::give(self.header);
            if self.is_spawned {
                activity::ended();
            }
        }
    }
}
