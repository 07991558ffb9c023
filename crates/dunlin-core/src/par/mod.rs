//! `par!`: several processes run to completion inside the caller.
//!
//! - [`ready`]: the scheduler inside it.
//! - [`waker`]: how a branch is woken; `list`: the branches that are ready.
//! - here: the futures, one for each number of branches written out, and [`Par`] for a list.
//!
//! Branches borrow from the caller and need not be `Send`: the whole is `Send` exactly when all of them are.
//! Each costs about 45 bytes beside its own state. They share the caller's task: a branch that never awaits
//! blocks its siblings.

mod list;
pub(crate) mod ready;
pub(crate) mod waker;

use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::pinned::Pinned;
use ready::Ready;

pin_project_lite::pin_project! {
    /// A branch.
    #[project = SlotProjected]
    #[project_replace = SlotReplaced]
    enum Slot<F: Future> {
        Running { #[pin] future: F },
        // Ended, but not yet counted.
        Ended { output: F::Output },
        // Waiting for the other branches.
        Done { output: F::Output },
        Taken,
    }
}

impl<F: Future> Slot<F> {
    fn new(future: F) -> Self {
        Self::Running { future }
    }

    /// Polls the branch. `true`: it has just ended. A branch that had ended before does nothing.
    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> bool {
        let SlotProjected::Running { future } = self.as_mut().project() else { return self.end() };
        let Poll::Ready(output) = future.poll(cx) else { return false };
        // The future is dropped at once, not with the last branch: it may hold ends. If its `Drop` panics,
        // the output is kept, and the next poll counts the branch.
        self.set(Self::Ended { output });
        self.end()
    }

    /// `true`: the branch has ended, and was not yet counted.
    #[cold]
    fn end(mut self: Pin<&mut Self>) -> bool {
        if !matches!(*self, Self::Ended { .. }) {
            return false;
        }
        if let SlotReplaced::Ended { output } = self.as_mut().project_replace(Self::Taken) {
            self.set(Self::Done { output });
        }
        true
    }

    fn take(self: Pin<&mut Self>) -> F::Output {
        match self.project_replace(Self::Taken) {
            SlotReplaced::Done { output } => output,
            _ => panic!("a `par!` that is done was polled again"),
        }
    }
}

/// The implementation of [`par!`](crate::par!): the branches of a tuple, as one future.
#[doc(hidden)]
pub trait Branches {
    type Par: Future;
    fn par(self) -> Self::Par;
}

macro_rules! par_of {
    ($($name:ident: $count:literal, $($branch:ident $f:ident $index:literal),+;)+) => { $(
        pin_project_lite::pin_project! {
            #[doc(hidden)]
            pub struct $name<$($f: Future),+> {
                ready: Ready,
                $(#[pin] $branch: Slot<$f>,)+
            }
        }

        impl<$($f: Future),+> fmt::Debug for $name<$($f),+> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(stringify!($name))
            }
        }

        impl<$($f: Future),+> Future for $name<$($f),+> {
            type Output = ($($f::Output,)+);

            #[inline]
            fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
                let mut this = self.project();
                std::task::ready!(this.ready.run(cx, |branch, cx| match branch {
                    $($index => this.$branch.as_mut().poll(cx),)+
                    _ => false,
                }));
                Poll::Ready(($(this.$branch.take(),)+))
            }
        }

        impl<$($f: Future),+> Branches for ($($f,)+) {
            type Par = $name<$($f),+>;

            #[track_caller]
            fn par(self) -> Self::Par {
                let ($($branch,)+) = self;
                $name { ready: Ready::new($count, Location::caller()), $($branch: Slot::new($branch),)+ }
            }
        }
    )+ };
}

par_of! {
    Par1: 1, a A 0;
    Par2: 2, a A 0, b B 1;
    Par3: 3, a A 0, b B 1, c C 2;
    Par4: 4, a A 0, b B 1, c C 2, d D 3;
    Par5: 5, a A 0, b B 1, c C 2, d D 3, e E 4;
    Par6: 6, a A 0, b B 1, c C 2, d D 3, e E 4, g G 5;
    Par7: 7, a A 0, b B 1, c C 2, d D 3, e E 4, g G 5, h H 6;
    Par8: 8, a A 0, b B 1, c C 2, d D 3, e E 4, g G 5, h H 6, i I 7;
    Par9: 9, a A 0, b B 1, c C 2, d D 3, e E 4, g G 5, h H 6, i I 7, j J 8;
    Par10: 10, a A 0, b B 1, c C 2, d D 3, e E 4, g G 5, h H 6, i I 7, j J 8, k K 9;
    Par11: 11, a A 0, b B 1, c C 2, d D 3, e E 4, g G 5, h H 6, i I 7, j J 8, k K 9, l L 10;
    Par12: 12, a A 0, b B 1, c C 2, d D 3, e E 4, g G 5, h H 6, i I 7, j J 8, k K 9, l L 10, m M 11;
}

/// Runs up to 12 futures to completion, side by side in this task, and returns a tuple of their outputs in
/// the order they are written. For a list, collect into a [`Par`].
///
/// The futures may borrow from the caller and need not be `Send`. Each is a process of its own in the wait
/// records. They are polled in the order they become ready. After some 2,000 polls, or as many operations
/// that were ready at once, the `par!` yields to other tasks. A branch that computes for long without
/// awaiting blocks its siblings; `spawn` it instead. If a branch panics, the others are dropped with the
/// `par!`.
///
/// # Cancel safety
/// If it is dropped, it drops all its branches where they stand.
///
/// # Examples
/// ```
/// # dunlin_core::doc::block_on(async {
/// let (mut tx, mut rx) = dunlin_core::channel();
/// let numbers = vec![1, 2, 3];
/// let ((), sum) = dunlin_core::par!(
///     async {
///         for n in &numbers {
///             tx.send(*n).await.unwrap();
///         }
///         drop(tx); // else it lives as long as the `par!`
///     },
///     async {
///         let mut sum = 0;
///         while let Ok(n) = rx.recv().await {
///             sum += n;
///         }
///         sum
///     },
/// );
/// assert_eq!(sum, numbers.iter().sum());
/// # });
/// ```
///
/// # Source
/// PAR of occam.
#[macro_export]
macro_rules! par {
    ($($future:expr),+ $(,)?) => {
        $crate::__rt::Branches::par(($($future,)+)).await
    };
}

/// Many futures of one type, run to completion side by side in this task; returns their outputs in order.
///
/// As [`par!`](crate::par!), for a list: collect the futures into it and await it. A branch takes the memory
/// of its future, its output and about 13 bytes.
///
/// # Cancel safety
/// If it is dropped, it drops all its branches where they stand.
///
/// # Examples
/// ```
/// use dunlin_core::Par;
/// # dunlin_core::doc::block_on(async {
/// let squares = [1, 2, 3].iter().map(|x| async move { x * x }).collect::<Par<_>>().await;
/// assert_eq!(squares, [1, 4, 9]);
/// # });
/// ```
#[must_use = "a `Par` does nothing until it is awaited"]
pub struct Par<F: Future> {
    ready: Ready,
    branches: Pinned<Slot<F>>,
}

impl<F: Future> fmt::Debug for Par<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Par").field("branches", &self.branches.len()).finish()
    }
}

impl<F: Future> Par<F> {
    /// Sets the number of polls of branches, or of operations that are ready at once, after which this yields
    /// to other tasks (2,048 unless set).
    pub fn budget(mut self, polls: u32) -> Self {
        self.ready.set_budget(polls);
        self
    }
}

impl<F: Future> FromIterator<F> for Par<F> {
    #[track_caller]
    fn from_iter<I: IntoIterator<Item = F>>(futures: I) -> Self {
        let branches: Pinned<_> = futures.into_iter().map(Slot::new).collect();
        Self { ready: Ready::new(branches.len(), Location::caller()), branches }
    }
}

impl<F: Future> Future for Par<F> {
    type Output = Vec<F::Output>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { ready, branches } = self.get_mut();
        std::task::ready!(ready.run(cx, |branch, cx| branches.get(branch).poll(cx)));
        Poll::Ready((0..branches.len()).map(|branch| branches.get(branch).take()).collect())
    }
}
