//! The web server without its command line.
//!
//! | module | contents |
//! |---|---|
//! | `server`, `site` | the acceptor and the orderly stop; the state that processes share |
//! | `farm` | the other layout: readers, file workers and CGI workers |
//! | `connection`, `client` | the process of a connection, one request at a time; its reads and writes |
//! | `request`, `chunked`, `body` | heads and chunks as pure functions; bodies in memory or a file |
//! | `answer`, `range`, `condition`, `status` | the response for a file |
//! | `file` | files opened beneath the root, kept for a second, read in place or by the pool |
//! | `sendfile` | large files, sent by the pool |
//! | `pool` | calls that may wait for a disk, with a deadline |
//! | `cgi` | programs: their variables, input, output and deadlines |
//! | `log`, `stats`, `limits` | the access log, the page `/stats.html`, the bounds |

mod answer;
mod body;
pub(crate) mod cgi;
pub(crate) mod chunked;
pub(crate) mod client;
pub(crate) mod condition;
pub(crate) mod connection;
pub(crate) mod farm;
pub(crate) mod file;
pub(crate) mod limits;
pub(crate) mod log;
mod pool;
pub(crate) mod range;
pub(crate) mod request;
mod sendfile;
pub(crate) mod server;
pub(crate) mod site;
pub(crate) mod stats;
pub(crate) mod status;
