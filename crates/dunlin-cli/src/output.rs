//! What is printed: lines for people, or JSON for scripts, one object per line.

use std::io::{Error, ErrorKind, IsTerminal, Write};
use std::sync::OnceLock;

use serde::Serialize;

/// Where results go.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    /// Whether they are JSON.
    pub json: bool,
}

impl Output {
    /// Prints a result: the object as JSON, or else the text.
    pub fn say(self, object: &impl Serialize, text: impl FnOnce() -> String) {
        match serde_json::to_string(object) {
            Ok(line) if self.json => line_out(&line),
            _ => line_out(&text()),
        }
    }
}

/// Shows on stderr what `dunlin` logs, from now on: warnings, or what `RUST_LOG` says. For commands that go on for long.
pub fn show_log() {
    let filter = tracing_subscriber::EnvFilter::builder();
    let filter = filter.with_default_directive(tracing_subscriber::filter::LevelFilter::WARN.into()).from_env_lossy();
    let is_terminal = std::io::stderr().is_terminal();
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(is_terminal);
    // In a test there may be one already.
    let _ = log.try_init();
}

fn line_out(line: &str) {
    write(format!("{line}\n").as_bytes());
}

/// Writes to stdout. A reader that has gone (a closed pipe) does not matter; else the command will have failed.
pub fn write(bytes: &[u8]) {
    let mut out = std::io::stdout();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => drop(UNWRITTEN.set(error)),
        _ => {}
    }
}

/// Why something could not be written, if that has happened.
pub fn unwritten() -> Option<&'static Error> {
    UNWRITTEN.get()
}

static UNWRITTEN: OnceLock<Error> = OnceLock::new();

/// Lines in columns that are as wide as they have to be. The last is not padded.
pub fn columns(rows: &[Vec<String>]) -> String {
    let width = |at: usize| rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max();
    let line = |row: &Vec<String>| {
        let mut line = String::new();
        for (at, cell) in row.iter().enumerate() {
            if at + 1 < row.len() {
                line.push_str(&format!("{cell:<width$}  ", width = width(at).unwrap_or(0)));
            } else {
                line.push_str(cell);
            }
        }
        line.trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["a", "long", "x"], ["bcd", "e", ""]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(columns(&rows), "a    long  x\nbcd  e");
    }
}
