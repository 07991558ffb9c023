//! Simulations: whole programs in virtual time, with a network that misbehaves, and everything that happens
//! follows from a seed.
//!
//! Within [`Sim::run`] a program runs on one thread. [`spawn`](crate::spawn()), [`sleep`](crate::sleep()),
//! deadlines and [`Node`](crate::node::Node)s are used as ever; none of them touches tokio, the clock or a
//! real network. Time stands still while any task can run, and then jumps to the next timer. The seed decides
//! which task runs first, how long bytes are in flight, and where they are split: a failed run is repeated
//! with its seed.
//!
//! # Examples
//! A connection is cut during a send, and no process notices; then the receiver takes nothing more:
//! ```
//! use dunlin::prelude::*;
//! use dunlin::sim::Sim;
//!
//! for seed in 0..10 {
//!     let sim = Sim::new(seed);
//!     sim.run(async {
//!         let here = Node::join("zoo").await?;
//!         let there = Node::join("zoo").await?;
//!         let mut feeder = here.sender::<String>("krill").await?;
//!         let mut penguin = there.receiver::<String>("krill").await?;
//!
//!         let eats = spawn(async move {
//!             assert_eq!(penguin.recv().await?, "first");
//!             assert_eq!(penguin.recv().await?, "second");
//!             penguin.closed().await; // it receives no more
//!             Result::<()>::Ok(())
//!         });
//!         feeder.send("first".to_owned()).await?;
//!         let (sent, ()) = par!(feeder.send("second".to_owned()), async { sim.cut(&here, &there) });
//!         sent?; // the connection was restored: nothing was lost or doubled
//!
//!         let patience = Duration::from_secs(60); // of virtual time: it passes at once
//!         let error = feeder.send("third".to_owned()).within(patience).await.unwrap_err();
//!         assert!(matches!(error, SendError::NotTaken { why: Why::TimedOut, .. }));
//!         assert!(sim.elapsed() >= patience);
//!         drop(feeder);
//!         eats.await??;
//!         Result::<()>::Ok(())
//!     })
//!     .unwrap();
//! }
//! ```
//!
//! # What is not simulated
//! - [`blocking`](crate::blocking()) calls, and all that tokio itself offers: they panic, as there is no
//!   tokio runtime.
//! - Threads: all of a simulation is on one.
//! - `Instant::now()`: it is real. Use [`Sim::now`] with [`sleep_until`](crate::sleep_until) and `by`.
//! - [Claims](crate::Claim) of a sleeping process pass on with the virtual time, which is the whole
//!   program's: a second simulation at the same time in another thread advances it too.

mod executor;
mod network;
mod wires;

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

pub(crate) use executor::{Canceller, Own, Shared, Task, Timer, current};
use network::Control;
pub(crate) use network::Simulated as Network;

use tokio::time::Instant;

/// A simulation: an executor, a clock and a network. See the [module](self).
pub struct Sim {
    shared: Arc<Shared>,
    limit: Duration,
}

/// A virtual hour: no test of a program takes longer, but a hanging test does, since nodes always have a
/// timer to wait for.
const LIMIT: Duration = Duration::from_secs(3600);

impl Sim {
    /// A simulation in which everything follows from `seed`, at its time zero.
    pub fn new(seed: u64) -> Self {
        Self { shared: Shared::new(seed), limit: LIMIT }
    }

    /// How much virtual time [`run`](Self::run) may take before it counts as hanging. Default: one hour.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Runs `future` to its end, together with the tasks that it spawns. Spawned tasks that still run
    /// continue in the next `run` of the same simulation, or are dropped with it.
    ///
    /// # Panics
    /// If no task can run any more, or virtual time has passed the [limit](Self::limit): the text lists each
    /// waiting process. If a task of a node panics. A panic of a process of yours is in its
    /// [`Exit`](crate::Exit).
    pub fn run<F: Future>(&self, future: F) -> F::Output {
        let _running = executor::enter(&self.shared);
        let main = self.shared.main();
        let mut future = pin!(future);
        let end = self.elapsed() + self.limit;
        loop {
            dunlin_core::__rt::renew();
            if main.take()
                && let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&Waker::from(main.clone())))
            {
                return output;
            }
            while !main.is_woken() && !self.shared.poll_one() {
                let before = self.elapsed();
                let left = end.saturating_sub(before);
                let passed = self.shared.pass_time(left);
                assert!(passed, "{}", self.hangs());
                let ticks = (self.elapsed().as_millis() - before.as_millis()) as u32;
                dunlin_core::waits::advance(dunlin_core::waits::tick().wrapping_add(ticks));
            }
        }
    }

    fn hangs(&self) -> String {
        let waits = dunlin_core::waits::snapshot();
        let lines: Vec<String> = waits.iter().map(|wait| format!("\n  {wait}")).collect();
        format!("the simulation hangs, at {:?} of virtual time; waiting:{}", self.elapsed(), lines.concat())
    }

    /// A plain socket to a node's address in the running simulation, from a host of its own: for peers that
    /// do not run dunlin, and send anything. No cut or partition affects it.
    ///
    /// # Errors
    /// No process listens there.
    ///
    /// # Panics
    /// Outside of [`run`](Self::run).
    pub async fn dial(address: &str) -> std::io::Result<Box<dyn crate::net::Socket>> {
        use crate::net::Network as _;
        let shared = executor::current().expect("a simulation runs");
        Network::new(shared).dial(address).await
    }

    /// How much virtual time has passed.
    pub fn elapsed(&self) -> Duration {
        Duration::from_micros(self.shared.now())
    }

    /// The present virtual moment.
    pub fn now(&self) -> Instant {
        self.shared.instant()
    }

    /// From now on bytes, and attempts to dial, are in flight for a time between these two. Default: 0.1 to 2
    /// ms.
    pub fn delay(&self, min: Duration, max: Duration) {
        self.shared.network().delay(min, max);
    }

    /// Partitions and cuts nodes.
    pub(crate) fn network(&self) -> Control<'_> {
        self.shared.network()
    }

    /// A random number below `n`, from the seed.
    pub fn below(&self, n: u64) -> u64 {
        self.shared.below(n)
    }

    /// For another executor that drives this simulation as one of its tasks: takes one step, if one is due
    /// before `horizon` of virtual time has passed. `false`: none is due, and `cx` will be woken.
    #[doc(hidden)]
    pub fn step(&self, cx: &Context<'_>, horizon: Duration) -> bool {
        let _running = executor::enter(&self.shared);
        self.shared.poll_one() || {
            self.shared.watch(cx.waker());
            self.shared.poll_one() || self.shared.pass_time(horizon)
        }
    }
}

impl fmt::Debug for Sim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sim").field("elapsed", &self.elapsed()).finish_non_exhaustive()
    }
}

impl Drop for Sim {
    /// Drops the remaining tasks now, as if within the simulation.
    fn drop(&mut self) {
        let _running = executor::enter(&self.shared);
        self.shared.drop_tasks();
    }
}
