//! What is entered: complete forms, from a terminal or from a pipe.

use std::io::{self, BufRead, IsTerminal, Read, StdinLock, stdin, stdout};

use dunlin_scheme::is_incomplete;

use super::terminal::Terminal;

/// Bytes of one entry. A pipe without a newline, or without a last parenthesis, ends there.
const ENTRY_BYTES_MAX: usize = 16 << 20;

/// One or more lines.
pub(super) enum Entry {
    /// Forms; only at the end of the input they may be incomplete.
    Text(String),
    /// A line, counted within the entry, has bytes that are no text. The entry is dropped.
    NotUtf8 { line: usize },
    /// There is no more input.
    End,
}

/// The entries of a session.
pub(super) enum Entries {
    Terminal(Box<Terminal>),
    Pipe(StdinLock<'static>),
}

impl Entries {
    /// A terminal with a line editor if input and output are terminals, else standard input as it is.
    pub(super) fn open() -> io::Result<Self> {
        if stdin().is_terminal() && stdout().is_terminal() {
            Ok(Self::Terminal(Box::new(Terminal::open()?)))
        } else {
            Ok(Self::Pipe(stdin().lock()))
        }
    }

    pub(super) fn is_terminal(&self) -> bool {
        matches!(self, Self::Terminal(_))
    }

    /// Waits for an entry. `names` are those that a terminal completes.
    ///
    /// # Errors
    /// That of the system; [`io::ErrorKind::FileTooLarge`] for an entry past its limit.
    pub(super) fn next(&mut self, names: impl FnOnce() -> Vec<String>) -> io::Result<Entry> {
        match self {
            Self::Terminal(terminal) => terminal.next(names()).map(|text| text.map_or(Entry::End, Entry::Text)),
            Self::Pipe(input) => from_lines(input),
        }
    }
}

fn from_lines(input: &mut impl BufRead) -> io::Result<Entry> {
    let mut text = String::new();
    for line in 1.. {
        let mut bytes = Vec::new();
        let room = ENTRY_BYTES_MAX - text.len() + 1;
        input.by_ref().take(room as u64).read_until(b'\n', &mut bytes)?;
        if bytes.len() == room {
            let problem =
                format!("an entry has more than {ENTRY_BYTES_MAX} bytes. Run a large program with `dunlin scheme -`");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, problem));
        }
        if bytes.is_empty() {
            return Ok(if text.is_empty() { Entry::End } else { Entry::Text(text) });
        }
        match str::from_utf8(&bytes) {
            Ok(more) => text.push_str(more),
            Err(_) => return Ok(Entry::NotUtf8 { line }),
        }
        if !is_incomplete(&text) {
            break;
        }
    }
    Ok(Entry::Text(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(mut input: &[u8]) -> Vec<String> {
        let mut texts = Vec::new();
        loop {
            match from_lines(&mut input).unwrap() {
                Entry::Text(text) => texts.push(text),
                Entry::NotUtf8 { line } => texts.push(format!("not UTF-8: {line}")),
                Entry::End => return texts,
            }
        }
    }

    #[test]
    fn entry_ends_with_the_line_that_closes_its_forms() {
        assert_eq!(texts(b"1 2\n(a\n b) 3\n\"x\ny\""), ["1 2\n", "(a\n b) 3\n", "\"x\ny\""]);
        assert_eq!(texts(b"(a\n"), ["(a\n"]);
        assert_eq!(texts(b")\n1\n"), [")\n", "1\n"]);
    }

    #[test]
    fn entry_with_invalid_text_is_dropped_and_the_next_one_is_read() {
        assert_eq!(texts(b"(a\n\xff)\n1\n"), ["not UTF-8: 2", "1\n"]);
    }

    #[test]
    fn entry_past_its_limit_is_an_error() {
        let line = vec![b'('; ENTRY_BYTES_MAX + 1];
        assert_eq!(from_lines(&mut &line[..]).err().unwrap().kind(), io::ErrorKind::FileTooLarge);
        let long = format!("\"{}\"\n", "x".repeat(ENTRY_BYTES_MAX - 3));
        assert!(matches!(from_lines(&mut long.as_bytes()).unwrap(), Entry::Text(text) if text == long));
    }
}
