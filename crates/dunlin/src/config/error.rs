//! What can be wrong with a configuration.

use std::io;
use std::path::PathBuf;

use super::origin::Origin;

/// Why there is no configuration. The text names the place, and what is accepted there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A file cannot be read, or a named file does not exist.
    #[error("cannot read the configuration {}: {error}; {}", path.display(), match error.kind() {
        io::ErrorKind::NotFound => "write the file, or name an existing one",
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
    /// It is a folder, a pipe or a device: reading one may take for ever.
    #[error(
        "the configuration {} is not a regular file: name one, or `-` to read it from standard input", path.display()
    )]
    NoFile {
        /// Which.
        path: PathBuf,
    },
    /// It lies in the working directory, and another user may have written it (unix).
    #[error(
        "the configuration {} was found in the working directory and is not read, because of {}: {why}. To use the \
         file, name it (`--config {}` or DUNLIN_CONFIG), or let only its owner write to it (`chmod go-w`)", path.display(), which.display(), path.display()
    )]
    Untrusted {
        /// Which file.
        path: PathBuf,
        /// The file, or its folder.
        which: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// It is larger than a configuration may be.
    #[error(
        "the configuration {} is larger than {} MiB: shorten it, or spread it over the files of several applications",
        path.display(), max >> 20
    )]
    TooLarge {
        /// Which file. `-`: standard input.
        path: PathBuf,
        /// The most bytes that it may have.
        max: u64,
    },
    /// The value of a file or variable is not accepted.
    #[error("{origin}: {what}")]
    Invalid {
        /// Where it stands: file and line, or the variable.
        origin: Origin,
        /// What is not accepted, and what is.
        what: String,
    },
}
