//! The laws of dunlin's channels: behaviour as a matrix of policy, operation and transport.
//!
//! A [`Law`] is a function that makes a channel, uses it, and asserts what must be true. It is generic over
//! the [`Transport`] that connects the two ends. It runs for every policy ([`Kind`]) it applies to, under
//! many seeds of a small deterministic executor ([`Rig`]). No law sleeps or reads a clock. `docs/laws.md`
//! lists them.
//!
//! # Map
//! - [`rig`]: the executor; [`Hand`]: one future that only the law polls.
//! - [`kind`]: the policies and what they promise.
//! - [`transport`]: how two ends are connected.
//! - [`law`], [`mod@laws`]: the type of a law, and all laws by subject.
//! - [`report`]: runs the laws and prints the matrix.
//! - [`laws!`](crate::laws!), [`users`]: runs them for a policy or a network of your own.
//! - [`refusals`]: what must not compile.
//!
//! # Examples
//! ```
//! use dunlin_laws::{Local, kinds, laws, run};
//! let laws: Vec<_> = laws().into_iter().filter(|law| law.name == "ok_means_received").collect();
//! let report = run(&Local, &kinds(), &laws);
//! assert!(report.broken().is_empty() && report.held() > 0);
//! ```

pub mod apart;
mod counted;
pub mod joined;
pub mod kind;
pub mod law;
pub mod laws;
#[cfg(feature = "link")]
#[doc(hidden)]
pub mod linked;
pub mod refusals;
pub mod report;
pub mod rig;
#[cfg(feature = "sim")]
#[cfg_attr(docsrs, doc(cfg(feature = "sim")))]
pub mod simulated;
pub mod tcp;
pub mod transport;
pub mod users;

pub use apart::Apart;
pub use joined::Joined;
pub use kind::{Full, Kind, kinds};
pub use law::{Cx, Law};
pub use laws::laws;
#[cfg(feature = "link")]
#[doc(hidden)]
pub use linked::{Linked, Pushed};
pub use report::{Outcome, Report, run};
pub use rig::{Hand, Rig, Task};
#[cfg(feature = "sim")]
#[cfg_attr(docsrs, doc(cfg(feature = "sim")))]
pub use simulated::Simulated;
pub use tcp::Tcp;
pub use transport::{Background, Feature, Local, Transport};
