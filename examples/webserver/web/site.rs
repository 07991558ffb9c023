//! What all processes of a server have.

use std::path::PathBuf;
use std::sync::Arc;

use super::file::Files;
use super::limits::Limits;
use super::stats::Stats;

/// A directory that is served, its programs, and what is counted.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) files: Files,
    pub(crate) cgi: Option<PathBuf>,
    pub(crate) limits: Limits,
    pub(crate) stats: Arc<Stats>,
}

/// Where the programs are in the paths of requests.
pub(crate) const PREFIX: &str = "/cgi-bin/";

impl Site {
    pub(crate) fn is_cgi(&self, path: &str) -> bool {
        self.cgi.is_some() && path.starts_with(PREFIX)
    }
}
