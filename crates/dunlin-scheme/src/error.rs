//! Errors of reading, expanding and compiling, and how a program ends that raised.

use std::fmt;
use std::sync::Arc;

use crate::data::ValueError;
use crate::datum::Pos;

/// Text that is no program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{source_name}:{}:{}: {message}", pos.line, pos.column)]
pub struct SyntaxError {
    /// The name of the text: a file's path, or what the caller named it.
    pub source_name: Arc<str>,
    /// Where in the text.
    pub pos: Pos,
    /// What is wrong.
    pub message: String,
    /// Whether more text could make a program of it.
    pub incomplete: bool,
}

/// How a run can fail.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text is no program.
    #[error(transparent)]
    Syntax(#[from] SyntaxError),
    /// An object was raised, and no handler took it.
    #[error("{0}")]
    Raised(Box<Raised>),
    /// The live data of the process passed its limit.
    #[error("heap limit of {limit_bytes} bytes exceeded{}", at(.trace))]
    HeapLimit {
        /// The limit.
        limit_bytes: usize,
        /// The calls that were running, the innermost first.
        trace: Vec<Place>,
    },
    /// What ran could not be written as bytes, or not read again.
    #[error("{0}")]
    Image(String),
    /// The program ran out of the fuel that it was given.
    #[error("out of fuel")]
    OutOfFuel,
    /// The messages in the mailbox of a process passed the limit of its heap.
    #[error("mailbox limit of {limit_bytes} bytes exceeded")]
    MailboxLimit {
        /// The limit.
        limit_bytes: usize,
    },
    /// The main process waits for a message, and no other process can run or has set a timer.
    #[error("the main process waits for a message that no process can send")]
    Deadlock,
    /// There is no room for another process.
    #[error("too many processes")]
    TooManyProcesses,
    /// A process called `kill` for this one.
    #[error("the process was killed")]
    Killed,
    /// An [`Interrupter`](crate::Interrupter) ended the evaluation.
    #[error("interrupted")]
    Interrupted,
    /// A value was wanted as data.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// The program called `exit`.
    #[error("exit with code {0}")]
    Exit(u8),
}

/// An object that no handler took.
#[derive(Clone, Debug, PartialEq)]
pub struct Raised {
    /// The object as `write` shows it; for an error object, its message and irritants.
    pub text: String,
    /// The calls that were running, the innermost first.
    pub trace: Vec<Place>,
}

/// A procedure, and a position in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The procedure's name; empty if it has none.
    pub procedure: Arc<str>,
    /// The name of the source text.
    pub source_name: Arc<str>,
    /// Where in the source text.
    pub pos: Pos,
}

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        for place in &self.trace {
            write!(f, "\n  {place}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { procedure, source_name, pos } = self;
        if procedure.is_empty() {
            write!(f, "at {source_name}:{}:{}", pos.line, pos.column)
        } else {
            write!(f, "in {procedure} at {source_name}:{}:{}", pos.line, pos.column)
        }
    }
}

impl Error {
    /// Where in a text the error is, if it is in one.
    fn place(&self) -> Option<(&str, Pos)> {
        match self {
            Self::Syntax(error) => Some((&error.source_name, error.pos)),
            Self::Raised(raised) => raised.trace.first().map(|place| (&*place.source_name, place.pos)),
            Self::HeapLimit { trace, .. } => trace.first().map(|place| (&*place.source_name, place.pos)),
            Self::Image(_) | Self::OutOfFuel | Self::MailboxLimit { .. } | Self::TooManyProcesses => None,
            Self::Deadlock | Self::Killed | Self::Interrupted | Self::Value(_) | Self::Exit(_) => None,
        }
    }

    /// The error with its position in front, the line of `text` that it is in, and a caret below its column;
    /// then the calls that were running.
    ///
    /// An error in another text than that of `source_name` is shown without a line.
    pub fn explain(&self, source_name: &str, text: &str) -> String {
        let message = match self {
            Self::Syntax(error) => error.message.clone(),
            Self::Raised(raised) => raised.text.clone(),
            Self::HeapLimit { limit_bytes, .. } => format!("heap limit of {limit_bytes} bytes exceeded"),
            other => other.to_string(),
        };
        let Some((name, pos)) = self.place() else { return message };
        let mut explained = format!("{name}:{}:{}: {message}", pos.line, pos.column);
        if name == source_name {
            explained += &excerpt(text, pos);
        }
        let calls = match self {
            Self::Raised(raised) => &raised.trace[..],
            Self::HeapLimit { trace, .. } => trace,
            _ => &[],
        };
        for call in calls {
            explained += &format!("\n  {call}");
        }
        explained
    }
}

/// The longest part of a line that is shown.
const EXCERPT_MAX: usize = 160;

fn excerpt(text: &str, pos: Pos) -> String {
    let Some(line) = text.lines().nth((pos.line as usize).saturating_sub(1)) else { return String::new() };
    let before = (pos.column as usize).saturating_sub(1);
    // Of a long line only what is around the caret.
    let first = if before < EXCERPT_MAX { 0 } else { before - EXCERPT_MAX / 2 };
    let shown = |character: char| if character.is_control() && character != '\t' { '\u{fffd}' } else { character };
    let part: String = line.chars().skip(first).take(EXCERPT_MAX).map(shown).collect();
    // A tab is as wide below itself.
    let blank = |character: char| if character == '\t' { '\t' } else { ' ' };
    let indent: String = line.chars().skip(first).take(before - first).map(blank).collect();
    let number = pos.line.to_string();
    format!("\n{number} | {}\n{} | {indent}^", part.trim_end(), " ".repeat(number.len()))
}

fn at(trace: &[Place]) -> String {
    trace.first().map(|place| format!(" {place}")).unwrap_or_default()
}
