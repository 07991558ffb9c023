//! The counts of the server's work, and the page that shows them.

use std::fmt::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use dunlin::blocking::calls;

use super::status::Status;

/// Independent counts: a page may show a request whose bytes are not counted yet.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    /// When the server was started.
    pub(crate) since: OnceLock<Instant>,
    pub(crate) connections: Count,
    pub(crate) accepted: Count,
    pub(crate) bytes: Count,
    /// The bytes of large files among them.
    pub(crate) sendfile: Count,
    /// Bodies of requests that are being received.
    pub(crate) bodies: Count,
    pub(crate) cgi: Count,
    /// Lines of the log that were not written because the disk is full or slow.
    pub(crate) log_lost: Count,
    /// Incomplete responses: the file became shorter, the CGI program failed, or the client left.
    pub(crate) cut: Count,
    /// Responses, by the first digit of their status.
    responses: [Count; 6],
}

#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, n: u64) -> u64 {
        self.0.fetch_add(n, Ordering::Relaxed) + n
    }

    pub(crate) fn take(&self, n: u64) {
        self.0.fetch_sub(n, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Stats {
    pub(crate) fn responded(&self, status: Status) {
        self.responses[usize::from(status.code() / 100).min(5)].add(1);
    }

    /// The number of responses whose status has this first digit.
    pub(crate) fn responses(&self, hundred: usize) -> u64 {
        self.responses[hundred].get()
    }

    pub(crate) fn page(&self) -> String {
        let seconds = self.since.get_or_init(Instant::now).elapsed().as_secs_f64();
        let requests: u64 = self.responses.iter().map(Count::get).sum();
        let mut rows = String::new();
        let mut row = |name: &str, value: String| {
            let _ = writeln!(rows, "<tr><td>{name}</td><td>{value}</td></tr>");
        };
        row("seconds", format!("{seconds:.0}"));
        row("requests", requests.to_string());
        row("requests per second", format!("{:.1}", requests as f64 / seconds.max(1e-9)));
        for hundred in 2..=5 {
            row(&format!("responses {hundred}xx"), self.responses(hundred).to_string());
        }
        row("bytes sent", self.bytes.get().to_string());
        row("bytes sent by sendfile", self.sendfile.get().to_string());
        row("connections accepted", self.accepted.get().to_string());
        row("connections now", self.connections.get().to_string());
        row("request bodies now", self.bodies.get().to_string());
        row("CGI programs now", self.cgi.get().to_string());
        row("responses cut short", self.cut.get().to_string());
        row("log lines lost", self.log_lost.get().to_string());
        row("blocking calls now", calls().len().to_string());
        format!("<!DOCTYPE html>\n<title>Statistics</title>\n<h1>Statistics</h1>\n<table>\n{rows}</table>\n")
    }
}
