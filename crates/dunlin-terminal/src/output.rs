//! Output: lines for people, or JSON for scripts, one object per line. (`println!` and `eprintln!` panic if
//! they cannot write.)

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::sync::OnceLock;

use serde::Serialize;

/// The format of results.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    /// Whether results are JSON.
    pub json: bool,
}

impl Output {
    /// Prints a result: the object as JSON, or the text.
    pub fn say(self, object: &impl Serialize, text: impl FnOnce() -> String) {
        match serde_json::to_string(object) {
            Ok(line) if self.json => line_out(&line),
            _ => line_out(&text()),
        }
    }
}

fn line_out(line: &str) {
    write(format!("{line}\n").as_bytes());
}

/// Writes to stdout. It reports a failure at once: many commands continue, because they do more than print.
pub fn write(bytes: &[u8]) {
    let mut out = io::stdout();
    if let Err(error) = out.write_all(bytes).and_then(|()| out.flush()) {
        lose(&error);
    }
}

/// Marks the output as lost: later output does not matter.
pub fn lose(error: &io::Error) {
    let lost = if error.kind() == ErrorKind::BrokenPipe { Lost::Unread } else { Lost::Unwritten };
    if LOST.set(lost).is_ok() && lost == Lost::Unwritten {
        complain(format_args!("error: cannot write the output: {error}. Free some space, or redirect the output"));
    }
}

/// Whether all output so far has been written, for a command that need not continue otherwise.
///
/// # Errors
/// [`Lost`].
pub fn is_written() -> Result<(), Lost> {
    LOST.get().map_or(Ok(()), |&lost| Err(lost))
}

/// Reports a problem to people, on stderr. If stderr cannot be written, only the exit code remains.
pub fn complain(line: impl Display) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Why stdout accepts no more output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The reader has closed the pipe, which is no failure.
    Unread,
    /// Stdout cannot be written, and the failure has been reported.
    Unwritten,
}

impl Lost {
    /// The exit code of a command that ends for this reason: 141 is the code of a process that the system
    /// ends for a closed pipe.
    pub fn code(self) -> u8 {
        match self {
            Self::Unread => 141,
            Self::Unwritten => 1,
        }
    }
}

static LOST: OnceLock<Lost> = OnceLock::new();

/// The text with its control characters escaped, as Rust writes them: a file name cannot clear a terminal or
/// reverse its text.
pub fn printable(text: &str) -> String {
    // Besides the control characters of Unicode, these are line separators, and the marks that reorder the
    // text after them.
    let controls = |c: char| {
        c.is_control()
            || matches!(c, '\u{61c}' | '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars().map(|c| if controls(c) { c.escape_default().to_string() } else { c.to_string() }).collect()
}

/// Lines in columns as wide as their content. The last column is not padded.
pub fn columns(rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = Vec::new();
    for row in rows {
        widths.resize(widths.len().max(row.len()), 0);
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |row: &Vec<String>| {
        let mut line = String::new();
        for (at, cell) in row.iter().enumerate() {
            if at + 1 < row.len() {
                line.push_str(&format!("{cell:<width$}  ", width = widths[at]));
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
    fn control_characters_are_escaped() {
        assert_eq!(printable("plain \u{e9}\u{4e2d}.txt"), "plain \u{e9}\u{4e2d}.txt");
        assert_eq!(printable("a\x1b[2J\nb\u{9b}c\u{202e}d"), "a\\u{1b}[2J\\nb\\u{9b}c\\u{202e}d");
        assert_eq!(printable("a\u{61c}b\u{2028}c\u{2029}d"), "a\\u{61c}b\\u{2028}c\\u{2029}d");
    }

    #[test]
    fn columns_formats_many_rows_within_two_seconds() {
        let rows: Vec<Vec<String>> = (0..16_384).map(|n| vec![format!("name {n}"), "x".to_owned()]).collect();
        let began = std::time::Instant::now();
        assert_eq!(columns(&rows).lines().count(), rows.len());
        assert!(began.elapsed() < std::time::Duration::from_secs(2), "{:?}", began.elapsed());
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["a", "long", "x"], ["bcd", "e", ""]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(columns(&rows), "a    long  x\nbcd  e");
    }
}
