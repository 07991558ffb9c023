//! What people and scripts see: a bar and lines on the standard error, or one JSON object per line on the standard output.

use std::cell::{Cell, RefCell};
use std::fmt::Display;
use std::io::Write;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;

use super::master::Event;

/// Shows what goes on.
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

    /// There is so much to do. The bar is there only on a terminal.
    pub(super) fn begin(&self, total: u64, what: &str) {
        self.total.set(total);
        self.done.set(0);
        if !self.json {
            let style = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len}, {eta} left");
            let bar = ProgressBar::new(total).with_message(what.to_owned());
            self.bar.replace(bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar())));
        }
    }

    pub(super) fn end(&self) {
        self.bar.borrow().finish_and_clear();
    }

    /// For scripts only.
    pub(super) fn object(&self, object: &Value) {
        if self.json {
            // Whoever does not listen any more misses nothing.
            let _ = writeln!(std::io::stdout(), "{object}");
        }
    }

    /// For people only: what goes on.
    pub(super) fn line(&self, line: impl Display) {
        if !self.json {
            self.bar.borrow().suspend(|| {
                let _ = writeln!(std::io::stderr(), "{line}");
            });
        }
    }

    /// For people only: what came of it.
    pub(super) fn result(&self, line: impl Display) {
        if !self.json {
            self.bar.borrow().suspend(|| {
                let _ = writeln!(std::io::stdout(), "{line}");
            });
        }
    }

    /// What a master tells.
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
