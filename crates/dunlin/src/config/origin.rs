//! Values, and where they came from.

use std::fmt;
use std::path::PathBuf;

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// Set by the program.
    Code,
    /// This variable of the environment.
    Variable(&'static str),
    /// This line of this file.
    File {
        /// The file, as it was found.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
    /// Not set anywhere.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code => f.write_str("the program"),
            Self::Variable(name) => f.write_str(name),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Default => f.write_str("default"),
        }
    }
}

/// A value, and where it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting<T> {
    /// The value.
    pub value: T,
    /// Where it came from.
    pub origin: Origin,
}

impl<T> Setting<T> {
    pub(super) fn default(value: T) -> Self {
        Self { value, origin: Origin::Default }
    }

    /// Replaces it with the program's value, if the program has set one.
    pub(crate) fn overridden(&mut self, said: Option<impl Into<T>>) {
        if let Some(said) = said {
            *self = Self { value: said.into(), origin: Origin::Code };
        }
    }
}
