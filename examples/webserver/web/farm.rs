//! The layout of Barnes (2000): a fixed number of processes for each task, which pass requests to each other.
//!
//! ```text
//!   acceptor ─▶ readers ─▶ file workers ─┐
//!                 ▲  │          ▲        │
//!                 │  └──▶ CGI workers ──▶│
//!                 └────── kept ◀─────────┘
//! ```
//!
//! The keeper replaces a worker that panics or is killed, and only its client is lost. A reader waits for the
//! next request of its client, so idle connections hold readers. For many idle connections the default
//! layout, with a process for each connection, is better.

use std::sync::Arc;

use dunlin::prelude::*;

use super::client::{Client, NoRequest};
use super::connection::{self, Next, Then, Turn};
use super::site::Site;

/// The number of processes of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Numbers {
    pub(crate) readers: usize,
    pub(crate) files: usize,
    pub(crate) programs: usize,
}

/// The numbers of the paper.
pub(crate) const NUMBERS: Numbers = Numbers { readers: 128, files: 256, programs: 32 };

/// A request and its client, on their way to a worker.
type Job = (Client, Box<Turn>);

#[derive(Clone, Copy, Debug)]
enum Role {
    Reader,
    Files,
    Programs,
}

/// Starts the processes. Each ends when the acceptor, which has the sender, passes no more clients.
pub(crate) fn start(site: &Arc<Site>, numbers: Numbers, stop: Shared<Receiver<()>>) -> Sender<Client> {
    let (accepted, fresh) = channel();
    let ((tx_kept, rx_kept), (tx_left, rx_left)) = (channel_with(unbounded()), channel_with(unbounded()));
    let ((tx_files, rx_files), (tx_programs, rx_programs)) = (channel(), channel());
    let crew = Crew {
        site: site.clone(),
        fresh: fresh.share(),
        kept: rx_kept.share(),
        files: rx_files.share(),
        programs: rx_programs.share(),
        to_readers: tx_kept.share(),
        to_files: tx_files.share(),
        to_programs: tx_programs.share(),
        left: tx_left.share(),
    };
    let all = [(Role::Reader, numbers.readers), (Role::Files, numbers.files), (Role::Programs, numbers.programs)];
    for (role, count) in all {
        (1..=count).for_each(|number| crew.start(role, number));
    }
    site.start("keeper", keep(crew, rx_left, stop));
    accepted
}

/// The ends of all channels.
struct Crew {
    site: Arc<Site>,
    fresh: Shared<Receiver<Client>>,
    kept: Shared<Receiver<Client>>,
    files: Shared<Receiver<Job>>,
    programs: Shared<Receiver<Job>>,
    to_readers: Shared<Sender<Client>>,
    to_files: Shared<Sender<Job>>,
    to_programs: Shared<Sender<Job>>,
    left: Shared<Sender<(Role, usize)>>,
}

/// Replaces workers that have ended, until the server stops.
async fn keep(crew: Crew, mut left: Receiver<(Role, usize)>, mut stop: Shared<Receiver<()>>) {
    loop {
        alt! { biased;
            _ = stop.recv() => return,
            // The crew has a sender, so the channel is open.
            gone = left.recv() => gone.into_iter().for_each(|(role, number)| crew.start(role, number)),
        }
    }
}

/// Reports to the keeper when it is dropped, so also after a panic.
struct Post {
    role: Role,
    number: usize,
    left: Shared<Sender<(Role, usize)>>,
}

impl Drop for Post {
    fn drop(&mut self) {
        // When the server stops, the keeper has ended.
        let _ = self.left.try_send((self.role, self.number));
    }
}

impl Crew {
    fn start(&self, role: Role, number: usize) {
        let post = Post { role, number, left: self.left.clone() };
        let to_readers = self.to_readers.clone();
        match role {
            Role::Reader => {
                let from = (self.kept.clone(), self.fresh.clone());
                let to = (self.to_files.clone(), self.to_programs.clone());
                self.site.start(&format!("reader {number}"), read(post, from, to));
            }
            Role::Files => {
                let name = format!("file worker {number}");
                self.site.start(&name, work(post, self.files.clone(), None, to_readers));
            }
            Role::Programs => {
                let to_files = Some(self.to_files.clone());
                let name = format!("CGI worker {number}");
                self.site.start(&name, work(post, self.programs.clone(), to_files, to_readers));
            }
        }
    }
}

/// Reads one request of each client.
async fn read(
    _post: Post,
    (mut kept, mut fresh): (Shared<Receiver<Client>>, Shared<Receiver<Client>>),
    (mut files, mut programs): (Shared<Sender<Job>>, Shared<Sender<Job>>),
) {
    loop {
        // Clients of workers first: a worker must never wait for a reader, so the number of connections is
        // the only bound of their channel.
        let client = alt! { biased;
            client = kept.recv() => client.ok(),
            client = fresh.recv() => client.ok().or_else(|| kept.try_recv().ok()),
        };
        let Some(mut client) = client else { return };
        match connection::read(&mut client).await {
            Ok(turn) => {
                let to = if matches!(turn.next, Next::Program) { &mut programs } else { &mut files };
                // If the workers have ended, the connection ends.
                let _ = to.send((client, turn)).await;
            }
            // The client may be slow to close.
            Err(NoRequest::Ended) => drop(dunlin::spawn_named("closing", client.close())),
            Err(NoRequest::Refused(status, line)) => client.refuse(&line, status).await,
        }
    }
}

/// Works on jobs. If a CGI program leads to an error page or a file, the job moves to the file workers.
async fn work(
    _post: Post,
    mut jobs: Shared<Receiver<Job>>,
    mut files: Option<Shared<Sender<Job>>>,
    mut kept: Shared<Sender<Client>>,
) {
    'jobs: while let Ok((mut client, mut turn)) = jobs.recv().await {
        let sent = loop {
            if let Some(sent) = Box::pin(turn.step(&mut client)).await.transpose() {
                break sent;
            }
            if let Some(files) = &mut files
                && !matches!(turn.next, Next::Program)
            {
                let _ = files.send((client, turn)).await;
                continue 'jobs;
            }
        };
        match turn.end(&mut client, sent) {
            Then::NextRequest => {
                // Only a stopping server has no readers.
                if let Err(back) = kept.send(client).await {
                    back.into_value().close().await;
                }
            }
            // The client may be slow to close.
            Then::Close => drop(dunlin::spawn_named("closing", client.close())),
            Then::Drop => {}
        }
    }
}
