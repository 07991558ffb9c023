//! The test kit: the laws for a policy or a network of your own.
//!
//! A crate with a policy or network depends on this one for its tests and declares the laws in a separate
//! test file: a program has one clock, which some laws advance, as `spawn` and sleep would.
//!
//! ```
//! use dunlin::{Admit, Buffering};
//!
//! #[derive(Clone)]
//! struct ShedLoad {
//!     high: usize,
//! }
//!
//! impl Buffering for ShedLoad {
//!     fn admit(&mut self, queued: usize) -> Admit {
//!         if queued < self.high { Admit::Keep } else { Admit::DropOldest }
//!     }
//! }
//!
//! dunlin::laws! {
//!     mod shed_load;
//!     policy: ShedLoad { high: 3 },
//!     room: 3,
//!     full: DropsOldest,
//! }
//! # fn main() {}
//! ```
//!
//! `room` is how many unreceived values the policy keeps, and `full`, one of [`Full`](crate::Full), is what
//! it does with one more. The laws derive their expectations from both. The module has a test for each
//! [`Transport`] of this crate but TCP; the one over simulated nodes requires this crate's feature `sim`. A
//! policy with a size is best tested with a small one, at most [`ROOM_MAX`].
//!
//! ```
//! use dunlin::net::Memory;
//!
//! dunlin::laws! {
//!     mod memory;
//!     network: Memory,
//!     listen: "",
//! }
//! ```
//!
//! `listen` is an address, without the prefix, at which each listener gets a free place, as with port 0 of
//! TCP. The module first tests the sockets ([`contract`]), and then runs the laws over two nodes that have
//! this network.
//!
//! The report lists each broken law with the command that runs it again. `DUNLIN_SEED=7` runs only that seed,
//! `DUNLIN_SEEDS=500` runs 500 seeds instead of 50, and `DUNLIN_LAW=part` runs the laws whose names contain
//! `part`. (A network of your own has its own timing, so there a seed does not determine a run.)

use std::sync::{Mutex, MutexGuard, PoisonError};

use dunlin::net::{Network, contract};
use dunlin::node::Node;

use crate::kind::{Kind, NO_BOUND, kinds};
use crate::laws::laws;
use crate::report::{Report, run};
use crate::tcp::Tcp;
use crate::transport::Transport;

/// The largest buffer that the laws fill. A policy that always has room uses [`NO_BOUND`].
pub const ROOM_MAX: usize = 6;

/// Runs the laws for a policy over `transport`. `command` runs them again.
///
/// # Panics
/// If `room` of `kind` is more than [`ROOM_MAX`] and not [`NO_BOUND`].
pub fn policy<X: Transport>(transport: &X, kind: Kind, command: &str) -> Report {
    let room = kind.room;
    assert!(
        room <= ROOM_MAX || room == NO_BOUND,
        "the laws fill a buffer many times: try one of at most {ROOM_MAX} places, not {room}"
    );
    let _alone = alone();
    run(transport, &[kind], &laws()).by(command)
}

/// Runs the laws over two nodes with `network`, for a policy of each sort. `command` runs them again.
///
/// # Panics
/// If the nodes do not find each other.
pub fn network<N: Network + Clone>(network: &N, listen: &str, command: &str) -> Report {
    let listen = format!("{}:{listen}", network.scheme());
    let transport = Tcp::over(network.scheme(), || Node::builder().network(network.clone()).listen(&listen));
    let some: Vec<Kind> = kinds().into_iter().filter(|kind| SORTS.contains(&kind.name)).collect();
    let _alone = alone();
    run(&transport, &some, &laws()).by(command)
}

/// Tests of one program run concurrently, but it has one clock, which some of the laws advance.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One policy of each sort.
pub const SORTS: [&str; 5] = ["rendezvous", "fifo(4)", "oldest(2)", "own(3)", "p.reject(2)"];

/// Tests the sockets of `network`, without a node.
///
/// # Panics
/// If a part of [`contract`] does not hold.
pub fn sockets(network: &impl Network, listen: &str) {
    // Not dunlin's runtime: that would start the clock, which the laws advance themselves.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("the system gives sockets");
    runtime.block_on(async {
        contract::echoes(network, listen).await;
        contract::is_in_use(network, listen).await;
        contract::refuses_when_dropped(network, listen).await;
    });
}

/// Prints the report.
///
/// # Panics
/// If a cell is broken; the message has the command that runs it again.
pub fn judge(report: &Report) {
    println!("\n{report}\n{} cells hold", report.held());
    let broken = report.broken();
    assert!(broken.is_empty(), "{} laws are broken:\n{}", broken.len(), broken.join("\n"));
}

/// Runs the laws for a policy or over a network of your own: see [`users`](crate::users).
#[macro_export]
macro_rules! laws {
    (mod $name:ident; policy: $policy:expr, room: $room:expr, full: $full:ident $(,)?) => {
        mod $name {
            use super::*;

            fn holds(transport: &impl $crate::Transport) {
                let kind = $crate::Kind::new(stringify!($name), $policy, $room, $crate::Full::$full);
                $crate::users::judge(&$crate::users::policy(transport, kind, &$crate::__command!($name)));
            }

            #[test]
            fn both_ends_in_one_program() {
                holds(&$crate::Local);
            }

            #[test]
            fn two_halves_joined_by_agents() {
                holds(&$crate::Joined);
            }

            #[test]
            fn two_halves_with_messages_in_flight() {
                holds(&$crate::Apart);
            }

            $crate::__if_simulated! {
                #[test]
                fn two_nodes_in_a_simulation() {
                    holds(&$crate::Simulated::default());
                }
            }
        }
    };
    (mod $name:ident; network: $network:expr, listen: $listen:expr $(,)?) => {
        mod $name {
            use super::*;

            #[test]
            fn sockets_fulfil_the_contract() {
                $crate::users::sockets(&$network, $listen);
            }

            #[test]
            fn two_nodes_over_the_network() {
                let report = $crate::users::network(&$network, $listen, &$crate::__command!($name));
                $crate::users::judge(&report);
            }
        }
    };
}

/// The command that runs a module of laws in the crate that declares it.
#[doc(hidden)]
#[macro_export]
macro_rules! __command {
    ($name:ident) => {
        concat!("cargo test -p ", env!("CARGO_PKG_NAME"), " ", stringify!($name), " -- --nocapture")
    };
}

/// Expands to these items if this crate was built with its feature `sim`. A `cfg` inside the macro above
/// would test the features of the crate that expands it.
#[cfg(feature = "sim")]
#[doc(hidden)]
#[macro_export]
macro_rules! __if_simulated {
    ($($item:item)*) => { $($item)* };
}
#[cfg(not(feature = "sim"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __if_simulated {
    ($($item:item)*) => {};
}
