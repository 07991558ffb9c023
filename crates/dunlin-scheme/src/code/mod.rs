//! Register bytecode.
//!
//! - [`instruction`]: the instructions, 64 bits each;
//! - [`unit`]: the code of one top-level form, named by its hash;
//! - [`index`]: the code that a machine has loaded.
//!
//! # Registers
//!
//! Register 0 of a frame holds the closure that runs, its arguments follow. The compiler gives registers out
//! as a stack: an instruction with a destination writes the lowest free register, and then exactly the
//! registers up to it hold values. So the collector, the serializer and the verifier know what is live
//! from the destination alone. A call builds its arguments where the callee's registers begin, so it copies
//! nothing: the destination of a call is the callee's register 0.

pub(crate) mod index;
pub(crate) mod instruction;
pub(crate) mod unit;

pub(crate) use index::Index;
pub(crate) use instruction::{Instruction, Op};
pub(crate) use unit::Unit;
