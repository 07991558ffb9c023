//! Supervisors: processes that start others, and start them again when they fail.
//!
//! A [`Supervisor`] runs [children](Child) by a strategy: [one for one](Supervisor::one_for_one), [one for
//! all](Supervisor::one_for_all), [rest for one](Supervisor::rest_for_one). Children start in order and stop
//! in reverse. The ends that a child works with are [lent](Lent) to it, so they outlive it.
//!
//! - `window`, `order`: when a supervisor gives up, and which children it stops and starts; pure.
//! - `spec`, `lent`, `notice`, `supervised`: a child, the ends that are lent to it, what it posts, and its
//!   view of the supervision. `remote`: children on other nodes.
//! - `control`, `tree`, `end`: requests to a supervisor, the listing, and the ends of children and
//!   supervisors.
//! - `handle`, `run`: the supervisor, its handle, and its process.
//!
//! # Source
//! Supervisors of Erlang/OTP, and of Termite Scheme (Germain, Feeley, Monnier 2006, section 5.3).

mod control;
mod end;
mod handle;
mod lent;
mod notice;
mod order;
#[cfg(feature = "net")]
mod remote;
mod run;
mod spec;
mod supervised;
mod tree;
mod window;

pub use control::{AddError, ChildId, Control};
pub use end::{ChildEnd, SupervisorError, TooManyDeaths};
pub use handle::{Supervision, Supervisor};
pub use lent::Lent;
pub use order::Strategy;
pub use spec::{Body, Child, Restart, SupervisedBody};
pub use supervised::{Requested, Supervised};
pub use tree::{ChildState, Tree, TreeChild};
