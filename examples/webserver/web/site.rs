//! The state that all processes of a server share.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;

use dunlin::spawn_named;

use super::file::Files;
use super::limits::Limits;
use super::stats::Stats;

/// The directory that the server serves, its programs, and the counts.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) files: Files,
    pub(crate) cgi: Option<PathBuf>,
    pub(crate) limits: Limits,
    pub(crate) stats: Arc<Stats>,
    /// The handles of processes, for tests that kill some.
    #[cfg(test)]
    pub(crate) processes: std::sync::Mutex<Vec<dunlin::Process<()>>>,
}

/// The prefix of the programs in the paths of requests.
pub(crate) const PREFIX: &str = "/cgi-bin/";

impl Site {
    /// Starts a process.
    pub(crate) fn start(&self, name: &str, process: impl Future<Output = ()> + Send + 'static) {
        let process = spawn_named(name, process);
        #[cfg(test)]
        self.processes.lock().unwrap().push(process);
        #[cfg(not(test))]
        drop(process);
    }
}
