//! The server: accepts connections, starts a process for each, and stops in an orderly way.

use std::io;
use std::path::PathBuf;
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
    /// If the server cannot open the root or the log.
    pub(crate) fn start(listener: Listener, settings: Settings) -> io::Result<Self> {
        let stats = Arc::new(Stats::default());
        stats.since.get_or_init(std::time::Instant::now);
        let (log, log_process) = Log::start(settings.log, stats.clone())?;
        let site = Arc::new(Site {
            files: Files::new(&settings.root)?,
            cgi: settings.cgi.map(std::path::absolute).transpose()?,
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
            None => site.start("connection", serve(client)),
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

async fn serve(client: Client) {
    if client.is_one_too_many {
        client.turn_away().await;
    } else {
        connection::serve(client).await;
    }
}
