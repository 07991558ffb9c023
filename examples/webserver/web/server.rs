//! The server: accepts connections, starts a process for each, and stops in an orderly way.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dunlin::io::{Address, Listener};
use dunlin::prelude::*;
use dunlin::spawn_named;

use super::client::Client;
use super::connection;
use super::farm::{self, Numbers};
use super::file::Files;
use super::limits::Limits;
use super::log::Log;
use super::site::Site;
use super::stats::Stats;

/// The settings of a server.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) root: PathBuf,
    /// The directory of the CGI programs; without one there are none.
    pub(crate) cgi: Option<PathBuf>,
    pub(crate) log: Option<PathBuf>,
    pub(crate) limits: Limits,
    /// The layout with fixed numbers of processes; without it, each connection has a process.
    pub(crate) farm: Option<Numbers>,
}

/// A server that runs until [`stop`](Self::stop).
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) address: Address,
    pub(crate) site: Arc<Site>,
    /// Dropping it ends each idle process.
    stop: Sender<()>,
    acceptor: Process<io::Result<()>>,
    log: Process<()>,
}

impl Server {
    /// Starts a server.
    ///
    /// # Errors
    /// The server cannot open the root, the directory of the CGI programs, or the log: the text says which.
    pub(crate) fn start(listener: Listener, settings: Settings) -> io::Result<Self> {
        let stats = Arc::new(Stats::default());
        stats.since.get_or_init(std::time::Instant::now);
        let files =
            Files::new(&settings.root, settings.limits.open_files_max).map_err(named("the root", &settings.root))?;
        let cgi = settings.cgi.as_deref().map(cgi_directory).transpose()?;
        let path = settings.log.clone().unwrap_or_default();
        let (log, log_process) = Log::start(settings.log, stats.clone()).map_err(named("the log", &path))?;
        let site = Arc::new(Site {
            files,
            cgi,
            limits: settings.limits,
            stats,
            #[cfg(test)]
            processes: Default::default(),
        });
        let (stop, stopped) = channel();
        let address = listener.address()?;
        let stopped = stopped.share();
        let farm = settings.farm.map(|numbers| farm::start(&site, numbers, stopped.clone()));
        let acceptor = spawn_named("acceptor", accept(listener, site.clone(), farm, stopped, log));
        Ok(Self { address, site, stop, acceptor, log: log_process })
    }

    /// Stops accepting, lets the requests in progress end, and writes the log.
    ///
    /// # Errors
    /// If the listener failed, or connections are busy after `Limits::shutdown`; these end with the runtime.
    pub(crate) async fn stop(self) -> io::Result<()> {
        let Self { site, stop, acceptor, log, .. } = self;
        drop(stop);
        acceptor.await.map_err(io::Error::other)??;
        // Each connection has a handle of the log, so the log ends after the connections.
        alt! {
            _ = log => Ok(()),
            () = sleep(site.limits.shutdown) => {
                Err(io::Error::other(format!("{} connections were busy at the deadline", site.stats.connections.get())))
            }
        }
    }
}

/// An error of the system with what it concerns.
fn named(what: &str, path: &Path) -> impl FnOnce(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("cannot open {what} {}: {error}", path.display()))
}

/// Programs start with another working directory, so the path becomes absolute.
fn cgi_directory(path: &Path) -> io::Result<PathBuf> {
    let directory = std::path::absolute(path)?;
    std::fs::read_dir(&directory).map_err(named("the directory of CGI programs", path))?;
    Ok(directory)
}

async fn accept(
    mut listener: Listener,
    site: Arc<Site>,
    mut farm: Option<Sender<Client>>,
    mut stop: Shared<Receiver<()>>,
    log: Log,
) -> io::Result<()> {
    loop {
        let connection = alt! { biased;
            _ = stop.recv() => return Ok(()),
            connection = listener.accept() => connection?,
        };
        site.stats.accepted.add(1);
        let client = Client::new(site.clone(), connection, stop.clone(), log.clone());
        match &mut farm {
            None => site.start("connection", connection::serve(client)),
            Some(readers) => {
                // While all readers are busy, the system queues new connections.
                let mut client = Some(client);
                alt! { biased;
                    _ = stop.recv() => return Ok(()),
                    _ = readers.send_from(&mut client) => {}
                }
            }
        }
    }
}
