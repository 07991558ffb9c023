//! What can be wrong with a configuration.

use std::io;
use std::path::PathBuf;

use super::Origin;

/// Why there is no configuration. Its text says where, and what is accepted there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A file cannot be read, or one that was named is not there.
    #[error("cannot read the configuration {}: {error}; {}", path.display(), match error.kind() {
        io::ErrorKind::NotFound => "write it, or name the file that there is",
        io::ErrorKind::IsADirectory => "name the file in it",
        io::ErrorKind::PermissionDenied => "let this user read it, or name another file",
        _ => "name another file",
    })]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// Why not.
        #[source]
        error: io::Error,
    },
    /// What a file or a variable says is not accepted.
    #[error("{origin}: {what}")]
    Invalid {
        /// Where it stands: file and line, or the variable.
        origin: Origin,
        /// What is not accepted, and what is.
        what: String,
    },
}
