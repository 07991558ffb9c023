//! The access log: a process that writes lines to a file, in the common format.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use dunlin::prelude::*;
use dunlin::spawn_named;

use super::stats::Stats;

/// Lines that wait for the disk. What comes when there are so many is lost, and counted.
const LINES_MAX: usize = 4096;

/// Lines of so long are written together: each write is a call of the pool, which costs more than a request.
/// A request over a kept connection, for 8 bytes, costs 30 us of processor time so, and 55 us with a write
/// for each line.
const GATHERED: Duration = Duration::from_millis(10);

/// Bytes that are written at once.
const WRITE_MAX: usize = 64 << 10;

/// Where connections send their lines. The process ends when the last handle is dropped and all is written.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    lines: Shared<Sender<String>>,
    stats: Arc<Stats>,
}

impl Log {
    /// A log at `path`; without one, lines are dropped.
    pub(crate) fn start(path: Option<PathBuf>, stats: Arc<Stats>) -> io::Result<(Self, Process<()>)> {
        let file = path.map(|path| fs::File::options().append(true).create(true).open(path)).transpose()?;
        let (tx, rx) = channel_with(fifo(LINES_MAX));
        let process = spawn_named("log", write(file.map(Arc::new), rx, stats.clone()));
        Ok((Self { lines: tx.share(), stats }, process))
    }

    /// Never waits: a full disk must not hold up a response.
    pub(crate) fn line(&mut self, client: &str, request: &str, status: u16, bytes: u64) {
        let date = httpdate::fmt_http_date(SystemTime::now());
        // A target may contain quotes.
        let line = format!("{client} - - [{date}] \"{}\" {status} {bytes}\n", request.replace('"', "%22"));
        if self.lines.try_send(line).is_err() {
            self.stats.log_lost.add(1);
        }
    }
}

async fn write(file: Option<Arc<fs::File>>, mut lines: Receiver<String>, stats: Arc<Stats>) {
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
