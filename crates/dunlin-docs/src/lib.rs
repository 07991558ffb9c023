//! What the documents of `docs/` say is tested here: their blocks of Rust as doctests, their shell commands
//! in `tests/`.

/// Every block of it is a program.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/tutorial.md")]
struct Tutorial;

/// Likewise.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/blocking.md")]
struct Blocking;
