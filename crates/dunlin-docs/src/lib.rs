//! Tests of the documents in `docs/`: their blocks of Rust are doctests, and `tests/` runs their shell
//! commands.

/// Every block of Rust in it is a program.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/tutorial.md")]
struct Tutorial;

/// Likewise.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/blocking.md")]
struct Blocking;

/// Likewise.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/processes.md")]
struct Processes;

/// Likewise.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/supervisors.md")]
struct Supervisors;
