//! The output of a farm: a bar and lines on the standard error for people, or one JSON object per line on the
//! standard output for scripts.

use std::cell::{Cell, RefCell};
use std::fmt::Display;

use dunlin_terminal::output::{self, complain};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::Value;

use super::master::Event;

/// Shows the progress of a farm.
pub(super) struct Show {
    json: bool,
    bar: RefCell<ProgressBar>,
    total: Cell<u64>,
    done: Cell<u64>,
}

impl Show {
    pub(super) fn new(json: bool) -> Self {
        Self { json, bar: ProgressBar::hidden().into(), total: 0.into(), done: 0.into() }
    }

    /// Begins the progress with this total. The bar is drawn only on a terminal.
    pub(super) fn begin(&self, total: u64, what: &str) {
        self.total.set(total);
        self.done.set(0);
        if !self.json {
            self.bar.replace(bar(total, what, ProgressDrawTarget::stderr()));
        }
    }

    pub(super) fn end(&self) {
        self.bar.borrow().finish_and_clear();
    }

    /// For scripts only.
    pub(super) fn object(&self, object: &Value) {
        if self.json {
            output::write(format!("{object}\n").as_bytes());
        }
    }

    /// For people only: a line of progress.
    pub(super) fn line(&self, line: impl Display) {
        if !self.json {
            self.bar.borrow().suspend(|| complain(line));
        }
    }

    /// For people only: a result.
    pub(super) fn result(&self, line: impl Display) {
        if !self.json {
            self.bar.borrow().suspend(|| output::write(format!("{line}\n").as_bytes()));
        }
    }

    /// Shows an event of a master.
    pub(super) fn event<R>(&self, event: &Event<R>) {
        match event {
            Event::Joined { worker, name } => {
                self.object(&serde_json::json!({ "event": "joined", "worker": worker, "name": name }));
                self.line(format_args!("worker {worker} ({name}) has joined"));
            }
            Event::Left { worker, name, back } => {
                self.object(&serde_json::json!({ "event": "left", "worker": worker, "name": name, "back": back }));
                self.line(format_args!("worker {worker} ({name}) has left; {back} jobs go to others"));
            }
            Event::Lost { worker, name, back } => {
                self.object(&serde_json::json!({ "event": "lost", "worker": worker, "name": name, "back": back }));
                self.line(format_args!("worker {worker} ({name}) is lost; {back} jobs go to others"));
            }
            Event::Done { .. } => {
                let done = self.done.get() + 1;
                self.done.set(done);
                self.bar.borrow().set_position(done);
                self.object(&serde_json::json!({ "event": "progress", "done": done, "total": self.total.get() }));
            }
        }
    }
}

fn bar(total: u64, what: &str, target: ProgressDrawTarget) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len}, {eta} left");
    let bar = ProgressBar::with_draw_target(Some(total), target).with_message(what.to_owned());
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

#[cfg(test)]
mod tests {
    use indicatif::InMemoryTerm;

    use super::*;

    #[test]
    fn a_terminal_shows_progress_as_a_bar() {
        let term = InMemoryTerm::new(4, 80);
        let show = Show::new(false);
        show.begin(20, "rectangles");
        show.bar.replace(bar(20, "rectangles", ProgressDrawTarget::term_like(Box::new(term.clone()))));
        for index in 0..10 {
            show.event(&Event::Done { index, outcome: () });
        }
        // The bar limits its rate of drawing; a tick forces it.
        show.bar.borrow().tick();
        let line = term.contents();
        assert!(line.starts_with("rectangles ") && line.contains(" 10/20, "), "{line:?}");
        let (full, all) = (line.matches('█').count(), line.matches(['█', '░']).count());
        assert!(all > 0 && full == all / 2, "{line:?}");
        show.end();
        assert_eq!(term.contents(), "");
    }
}
