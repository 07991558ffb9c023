//! How processes are started in a scope, alone or together.

use std::panic::Location;

use super::Scope;
use super::error::At;
use super::wired::{Gate, Prepared, Wired};
use crate::Process;

impl Scope {
    /// Starts a process in this scope: first it joins its ends, then it runs.
    ///
    /// Ends of this program are joined within this call, so two forks join theirs in order; the process
    /// itself waits only for a [node](Self::network). The handle need not be kept.
    ///
    /// If it cannot join an end, or the scope is finished, the process does not run: its exit, and
    /// [`finish`](Self::finish), report [`NotStarted`](crate::ExitReason::NotStarted).
    ///
    /// # Panics
    /// As [`spawn`](crate::spawn()), unless the scope has a [place](Self::on); and if an expression evaluated
    /// to join panics, such as a policy.
    #[track_caller]
    pub fn fork<W: Wired>(&self, process: W) -> Process<W::Output> {
        self.start_alone(None, process, Location::caller())
    }

    /// [`fork`](Self::fork) with a name for the process, which the wait records, its exit and
    /// [`finish`](Self::finish) show.
    #[track_caller]
    pub fn fork_named<W: Wired>(&self, name: &str, process: W) -> Process<W::Output> {
        self.start_alone(Some(name), process, Location::caller())
    }

    /// [`fork`](Self::fork) in an [isolated](Self::isolated) scope of its own: the process sees no name of
    /// this scope, and no other process sees its names. The channel of such a name ends at once, unless the
    /// process keeps its `#[scope]` and joins the other end.
    #[track_caller]
    pub fn fork_isolated<W: Wired>(&self, process: W) -> Process<W::Output> {
        self.isolated().start_alone(None, process, Location::caller())
    }

    #[track_caller]
    fn start_alone<W: Wired>(&self, name: Option<&str>, process: W, at: At) -> Process<W::Output> {
        Prepared::new(self, name, process, &Gate::new(1), at).start(at)
    }

    /// [`fork`](Self::fork)s several processes, none of which runs before all have joined their ends: so none
    /// can leave a shared end, and end its channel, before the others have joined. If one cannot join an end,
    /// none of them runs.
    ///
    /// Takes a tuple of up to eight, an array or a `Vec`, and gives their handles in the same form.
    ///
    /// # Examples
    /// ```
    /// use dunlin::prelude::*;
    ///
    /// #[process]
    /// async fn say(
    ///     #[sender("words")] mut words: Shared<Sender<&'static str>>,
    ///     word: &'static str,
    /// ) -> Result {
    ///     Ok(words.send(word).await?)
    /// }
    /// #[process]
    /// async fn count(#[receiver("words", fifo(8))] mut words: Receiver<&'static str>) -> Result<usize> {
    ///     let mut n = 0;
    ///     while words.next().await?.is_some() {
    ///         n += 1;
    ///     }
    ///     Ok(n) // when the last writer has left
    /// }
    /// # dunlin::block_on(async {
    /// let scope = Scope::new();
    /// let (_, _, counted) = scope.fork_all((say("krill"), say("squid"), count()));
    /// assert_eq!(counted.await??, 2);
    /// # Ok::<(), Error>(())
    /// # }).unwrap();
    /// ```
    #[track_caller]
    pub fn fork_all<S: Siblings>(&self, siblings: S) -> S::Processes {
        siblings.fork_in(self, Location::caller())
    }

    /// [`fork_all`](Self::fork_all) for `count` processes of one kind.
    #[track_caller]
    pub fn fork_n<W: Wired>(&self, count: usize, make: impl FnMut() -> W) -> Vec<Process<W::Output>> {
        let siblings: Vec<W> = std::iter::repeat_with(make).take(count).collect();
        siblings.fork_in(self, Location::caller())
    }
}

/// Processes that are [forked together](Scope::fork_all).
pub trait Siblings {
    /// Their handles.
    type Processes;
    #[doc(hidden)]
    fn fork_in(self, scope: &Scope, at: At) -> Self::Processes;
}

impl<W: Wired> Siblings for Vec<W> {
    type Processes = Vec<Process<W::Output>>;

    fn fork_in(self, scope: &Scope, at: At) -> Self::Processes {
        let gate = Gate::new(self.len());
        let prepared: Vec<_> = self.into_iter().map(|wired| Prepared::new(scope, None, wired, &gate, at)).collect();
        prepared.into_iter().map(|prepared| prepared.start(at)).collect()
    }
}

impl<W: Wired, const N: usize> Siblings for [W; N] {
    type Processes = [Process<W::Output>; N];

    fn fork_in(self, scope: &Scope, at: At) -> Self::Processes {
        let gate = Gate::new(N);
        self.map(|wired| Prepared::new(scope, None, wired, &gate, at)).map(|prepared| prepared.start(at))
    }
}

macro_rules! siblings {
    ($($count:literal: $($wired:ident)*;)*) => { $(
        impl<$($wired: Wired),*> Siblings for ($($wired,)*) {
            type Processes = ($(Process<$wired::Output>,)*);

            #[expect(non_snake_case, reason = "a variable is called as its type")]
            fn fork_in(self, scope: &Scope, at: At) -> Self::Processes {
                let gate = Gate::new($count);
                let ($($wired,)*) = self;
                $(let $wired = Prepared::new(scope, None, $wired, &gate, at);)*
                ($($wired.start(at),)*)
            }
        }
    )* };
}

siblings! {
    1: A;
    2: A B;
    3: A B C;
    4: A B C D;
    5: A B C D E;
    6: A B C D E F;
    7: A B C D E F G;
    8: A B C D E F G H;
}
