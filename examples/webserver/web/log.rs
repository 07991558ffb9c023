//! The access log: a process that writes lines to a file, in the common format.

use std::borrow::Cow;
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use dunlin::prelude::*;
use dunlin::spawn_named;

use super::answer::now;
use super::stats::Stats;

/// The maximum number of lines that wait for the disk. Further lines are dropped and counted.
const LINES_MAX: usize = 4096;

/// The time in which lines are gathered for one write: each write is a call of the pool, which costs more
/// than a request. With this, a request for 8 bytes over a kept connection costs 30 us of processor time, and
/// 55 us with a write for each line.
const GATHERED: Duration = Duration::from_millis(10);

/// The maximum bytes of one write.
const WRITE_MAX: usize = 64 << 10;

/// The channel for the lines of connections. The process ends when the last handle is dropped and all lines
/// are written.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    lines: Shared<Sender<String>>,
    stats: Arc<Stats>,
}

impl Log {
    /// Starts a log at `path`; without a path, lines are dropped.
    pub(crate) fn start(path: Option<PathBuf>, stats: Arc<Stats>) -> io::Result<(Self, Process<()>)> {
        let file = path.map(|path| fs::File::options().append(true).create(true).open(path)).transpose()?;
        let (tx, rx) = channel_with(fifo(LINES_MAX));
        let process = spawn_named("log", append(file.map(Arc::new), rx, stats.clone()));
        Ok((Self { lines: tx.share(), stats }, process))
    }

    /// Never waits: a full disk must not delay a response.
    pub(crate) fn line(&mut self, client: &str, request: &str, status: u16, bytes: u64) {
        let (date, request, status, bytes) = (now(date), printable(request), status.to_string(), bytes.to_string());
        let line = [client, " - - [", &date, "] \"", &request, "\" ", &status, " ", &bytes, "\n"].concat();
        if self.lines.try_send(line).is_err() {
            self.stats.log_lost.add(1);
        }
    }
}

/// A time of headers in the common format, such as `10/Oct/2000:13:55:36 +0000`.
pub(crate) fn date(date: &str) -> String {
    [&date[5..7], "/", &date[8..11], "/", &date[12..16], ":", &date[17..25], " +0000"].concat()
}

/// The request line with its special bytes as `%1B`: a client chooses them, and they could end the field or
/// control a terminal.
fn printable(request: &str) -> Cow<'_, str> {
    let is_special = |byte| !matches!(byte, b' '..=b'~') || matches!(byte, b'"' | b'\\');
    let encode = |byte| if is_special(byte) { format!("%{byte:02X}") } else { char::from(byte).to_string() };
    if request.bytes().any(is_special) { request.bytes().map(encode).collect() } else { request.into() }
}

async fn append(file: Option<Arc<fs::File>>, mut lines: Receiver<String>, stats: Arc<Stats>) {
    let mut is_behind = false;
    while let Ok(mut text) = lines.recv().await {
        if !is_behind {
            sleep(GATHERED).await;
        }
        let mut count = 1;
        while text.len() < WRITE_MAX
            && let Ok(line) = lines.try_recv()
        {
            text.push_str(&line);
            count += 1;
        }
        is_behind = text.len() >= WRITE_MAX;
        let Some(file) = file.clone() else { continue };
        let place = dunlin::blocking::room().await;
        let written = place.blocking(move |_| (&*file).write_all(text.as_bytes())).await;
        if !matches!(written, Ok(Ok(()))) {
            stats.log_lost.add(count);
        }
    }
}
