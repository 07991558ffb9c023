//! The test kit: the laws for a policy or a network of your own.
//!
//! A crate with a policy or network depends on this one for its tests, and declares it in a test file of its
//! own: a program has one clock, which some laws advance, and which `spawn` and sleep would advance too.
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
//! `room` is how many unreceived values it keeps, and `full`, one of [`Full`](crate::Full),
//! what it does with one more: by that the laws know what they may ask. The module has a test for each
//! [`Transport`] of this crate but TCP; over simulated nodes only with this crate's feature `sim`. A policy
//! with a size is best tried with a small one, at most [`ROOM_MAX`].
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
//! `listen` is an address, without the prefix, at which a free place is taken whenever it is listened at, as
//! port 0 of TCP. The module tests the sockets first ([`contract`]), and then runs the laws over two nodes
//! that have this network.
//!
//! What is broken is printed with the command that runs it again. `DUNLIN_SEED=7` runs one seed,
//! `DUNLIN_SEEDS=500` that many in place of 50, `DUNLIN_LAW=part` the laws whose name has that in it. (A
//! network of your own has its own time, so there a seed is not a run.)

use std::sync::{Mutex, MutexGuard, PoisonError};

use dunlin::net::{Network, contract};
use dunlin::node::Node;

use crate::kind::{Kind, NO_BOUND, kinds};
use crate::laws::laws;
use crate::report::{Report, run};
use crate::tcp::Tcp;
use crate::transport::Transport;

/// The largest buffer that the laws fill. One that always has room uses [`NO_BOUND`].
pub const ROOM_MAX: usize = 6;

/// Runs the laws for a policy over `transport`. `command` is what runs them again.
///
/// # Panics
/// If `room` of `kind` is more than the laws fill.
pub fn policy<X: Transport>(transport: &X, kind: Kind, command: &str) -> Report {
    let room = kind.room;
    assert!(
        room <= ROOM_MAX || room == NO_BOUND,
        "the laws fill a buffer many times: try one of at most {ROOM_MAX} places, not {room}"
    );
    let _alone = alone();
    run(transport, &[kind], &laws()).by(command)
}

/// Runs the laws over two nodes with `network`, for a policy of each sort. `command` is what runs them again.
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

/// Tests of one program run side by side, but it has one clock, which some of the laws move.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A policy of each sort.
pub const SORTS: [&str; 5] = ["rendezvous", "fifo(4)", "oldest(2)", "own(3)", "p.reject(2)"];

/// The sockets of `network`, without a node.
///
/// # Panics
/// If one of [`contract`] does not hold.
pub fn sockets(network: &impl Network, listen: &str) {
    // Not dunlin's: that would start the clock, and the laws move it themselves.
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
/// If something is broken, with how to run it again.
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
            fn two_halves_with_messages_on_their_way() {
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
            fn its_sockets_are_sockets() {
                $crate::users::sockets(&$network, $listen);
            }

            #[test]
            fn two_nodes_over_it() {
                let report = $crate::users::network(&$network, $listen, &$crate::__command!($name));
                $crate::users::judge(&report);
            }
        }
    };
}

/// The command that runs a module of laws in the crate that has it.
#[doc(hidden)]
#[macro_export]
macro_rules! __command {
    ($name:ident) => {
        concat!("cargo test -p ", env!("CARGO_PKG_NAME"), " ", stringify!($name), " -- --nocapture")
    };
}

/// These items if this crate was built with its feature `sim`: where the macro above expands, another crate's
/// features count.
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
