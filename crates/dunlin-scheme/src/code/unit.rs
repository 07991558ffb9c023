//! The code of one top-level form.

use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::Instruction;
use crate::datum::{Datum, Pos};
use crate::names::{Name, Symbols};
use crate::read::Sources;

/// Changes with every change of the instructions, of the primitives, or of what they mean.
pub(crate) const CODE_VERSION: u32 = 4;

/// What code is named by: the same on every machine, whatever its text looked like.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Hash(pub(crate) [u8; 32]);

/// Code with all that it names. Jumps are distances; constants and globals are places in its own tables.
#[derive(Debug)]
pub(crate) struct Unit {
    /// The instructions.
    pub(crate) code: Vec<Instruction>,
    /// The constants.
    pub(crate) constants: Vec<Datum>,
    /// The globals.
    pub(crate) globals: Vec<Name>,
    /// Where calls come from: place in `code`, ascending.
    pub(crate) positions: Vec<(u32, Pos)>,
    /// Where procedures begin in `code`, ascending, and their names.
    pub(crate) procedures: Vec<(u32, Arc<str>)>,
    /// The name of the text.
    pub(crate) source_name: Arc<str>,
    /// The names of other texts, which positions name by number.
    pub(crate) sources: Sources,
}

impl std::fmt::Display for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl std::fmt::Debug for Instruction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} {} {} {}", self.op(), self.a(), self.b(), self.c())
    }
}

impl Unit {
    /// The hash of what runs: not of positions, names of procedures, and the name of the text.
    pub(crate) fn hash(&self, symbols: &Symbols) -> Hash {
        self.hash_of_names(symbols, |name| symbols.text(name).to_string())
    }

    /// The hash of what runs, with globals that have other names.
    pub(crate) fn hash_of_names(&self, symbols: &Symbols, global: impl Fn(Name) -> String) -> Hash {
        let mut hasher = Sha256::new();
        hasher.update(CODE_VERSION.to_le_bytes());
        hasher.update((self.code.len() as u64).to_le_bytes());
        for instruction in &self.code {
            hasher.update(instruction.0.to_le_bytes());
        }
        let texts = self.constants.iter().map(|constant| crate::print::datum(constant, symbols));
        for text in texts.chain(self.globals.iter().map(|name| global(*name))) {
            hasher.update((text.len() as u64).to_le_bytes());
            hasher.update(text.as_bytes());
        }
        Hash(hasher.finalize().into())
    }
}
