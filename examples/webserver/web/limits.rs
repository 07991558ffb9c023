//! The resources that clients may use.

use std::time::Duration;

use dunlin::Instant;

/// Bounds of a server.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    /// Connections at once; another one gets 503.
    pub(crate) connections_max: usize,
    /// Files that stay open after a request.
    pub(crate) open_files_max: usize,
    /// Bytes of a request's head; a longer one gets 431.
    pub(crate) head_max: usize,
    /// Bytes of a request's body; a longer one gets 413.
    pub(crate) body_max: u64,
    /// Bytes of a body in memory; a longer body is written to a file.
    pub(crate) body_memory_max: usize,
    /// Bodies that are received at once; another request with one gets 503.
    pub(crate) bodies_max: usize,
    /// Bytes of a body in a second, on average, from the deadline of its first piece on; a slower body gets
    /// 408.
    pub(crate) body_rate_min: u64,
    /// CGI programs at once; another request gets 503.
    pub(crate) cgi_max: usize,
    /// The size from which on threads of the pool send a file, by `sendfile`.
    pub(crate) sendfile_min: u64,
    /// Redirections to this server itself that CGI programs may give for one request.
    pub(crate) cgi_redirects_max: usize,
    /// Bytes of the head that a CGI program writes.
    pub(crate) cgi_head_max: usize,
    /// From the first byte of a request to the end of its head; then it gets 408.
    pub(crate) head: Duration,
    /// Between two requests of a connection.
    pub(crate) idle: Duration,
    /// For each piece of a body that is received or sent.
    pub(crate) piece: Duration,
    /// For each call that may wait for a disk. Then the request gets 503, or its connection ends.
    pub(crate) disk: Duration,
    /// In which a client may read the rest of its last response and close its side of the connection.
    pub(crate) close: Duration,
    /// From the start of a CGI program to the end of its head; then the request gets 504.
    pub(crate) cgi_head: Duration,
    /// From the start of a CGI program to its end; then it is killed.
    pub(crate) cgi: Duration,
    /// For the requests in progress when the server stops.
    pub(crate) shutdown: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 20_000,
            // A part of the descriptors: connections and programs need the rest.
            open_files_max: (descriptors() / 8).min(512) as usize,
            head_max: 16 << 10,
            body_max: 64 << 20,
            body_memory_max: 1 << 20,
            bodies_max: 256,
            body_rate_min: 1 << 10,
            cgi_max: 32,
            sendfile_min: 1 << 20,
            cgi_redirects_max: 10,
            cgi_head_max: 16 << 10,
            head: Duration::from_secs(10),
            idle: Duration::from_secs(75),
            piece: Duration::from_secs(30),
            disk: Duration::from_secs(10),
            close: Duration::from_secs(2),
            cgi_head: Duration::from_secs(10),
            cgi: Duration::from_secs(60),
            shutdown: Duration::from_secs(10),
        }
    }
}

/// The time until a deadline.
pub(crate) fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

/// The maximum number of descriptors of this program.
pub(crate) fn descriptors() -> u64 {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX)
}
