//! The line editor: history, completion, matching parentheses.

use std::borrow::Cow;
use std::io;

use dunlin_scheme::is_incomplete;
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::{CmdKind, Highlighter, MatchingBracketHighlighter};
use rustyline::hint::Hinter;
use rustyline::history::MemHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{CompletionType, Config, Context, Editor, Helper};

const PROMPT: &str = "> ";

/// A terminal. It has colours and completion unless `TERM` or `NO_COLOR` exclude them.
pub(super) struct Terminal {
    editor: Editor<Hints, MemHistory>,
}

impl Terminal {
    pub(super) fn open() -> io::Result<Self> {
        let config = Config::builder().completion_type(CompletionType::List).auto_add_history(true).build();
        let history = MemHistory::with_config(&config);
        let mut editor = Editor::with_history(config, history).map_err(failed)?;
        editor.set_helper(Some(Hints::default()));
        Ok(Self { editor })
    }

    /// Waits for an entry, or for Ctrl-D: `None`. Ctrl-C drops what was entered so far.
    pub(super) fn next(&mut self, mut names: Vec<String>) -> io::Result<Option<String>> {
        names.sort_unstable();
        names.dedup();
        if let Some(hints) = self.editor.helper_mut() {
            hints.names = names;
        }
        loop {
            match self.editor.readline(PROMPT) {
                Ok(text) => return Ok(Some(text)),
                Err(ReadlineError::Eof) => return Ok(None),
                Err(ReadlineError::Interrupted | ReadlineError::Signal(_)) => {}
                Err(error) => return Err(failed(error)),
            }
        }
    }
}

fn failed(error: ReadlineError) -> io::Error {
    match error {
        ReadlineError::Io(error) => error,
        other => io::Error::other(other),
    }
}

/// What the editor shows and does while an entry is edited.
#[derive(Default)]
struct Hints {
    /// Sorted.
    names: Vec<String>,
    brackets: MatchingBracketHighlighter,
}

impl Helper for Hints {}

impl Hinter for Hints {
    type Hint = String;
}

impl Completer for Hints {
    type Candidate = String;

    fn complete(&self, line: &str, pos: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        Ok(completed(&self.names, &line[..pos]))
    }
}

impl Validator for Hints {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let is_open = is_incomplete(context.input());
        Ok(if is_open { ValidationResult::Incomplete } else { ValidationResult::Valid(None) })
    }
}

impl Highlighter for Hints {
    fn highlight<'l>(&self, line: &'l str, pos: usize) -> Cow<'l, str> {
        self.brackets.highlight(line, pos)
    }

    fn highlight_char(&self, line: &str, pos: usize, kind: CmdKind) -> bool {
        self.brackets.highlight_char(line, pos, kind)
    }
}

/// The names that begin as the last word of `line`, and where that word begins. Without a word there are
/// none.
fn completed(names: &[String], line: &str) -> (usize, Vec<String>) {
    let ends_word = |c: char| c.is_whitespace() || "()\"';`,|".contains(c);
    let start = line.rfind(ends_word).map_or(0, |at| at + line[at..].chars().next().map_or(0, char::len_utf8));
    let word = &line[start..];
    if word.is_empty() {
        return (start, Vec::new());
    }
    let first = names.partition_point(|name| &**name < word);
    (start, names[first..].iter().take_while(|name| name.starts_with(word)).cloned().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_word_is_completed_with_the_names_that_begin_so() {
        let names = ["list", "list-copy", "list-tail", "map"].map(str::to_owned);
        assert_eq!(completed(&names, "(map list-"), (5, vec!["list-copy".into(), "list-tail".into()]));
        assert_eq!(completed(&names, "'m"), (1, vec!["map".into()]));
        assert_eq!(completed(&names, "(f\u{a0}m"), (4, vec!["map".into()]));
        assert_eq!(completed(&names, "("), (1, vec![]));
        assert_eq!(completed(&names, "zip"), (0, vec![]));
    }
}
