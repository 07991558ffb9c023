//! Supervisors, in virtual time where time matters.

mod ends;
mod limits;
mod server;
mod stopping;
mod strategies;
mod tree;

use std::sync::{Arc, Mutex};

use dunlin::prelude::*;

/// What happened, in order.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn add(&self, line: impl Into<String>) {
        self.0.lock().unwrap().push(line.into());
    }

    fn take(&self) -> String {
        std::mem::take(&mut *self.0.lock().unwrap()).join(" ")
    }

    /// Logs the beginning of a process now, and its end when the guard is dropped.
    fn run(&self, name: &str) -> Run {
        self.add(format!("{name}+"));
        Run(self.clone(), name.to_owned())
    }
}

struct Run(Log, String);

impl Drop for Run {
    fn drop(&mut self) {
        self.0.add(format!("{}-", self.1));
    }
}

/// Lets everything happen that needs no more than a little virtual time.
async fn settle() {
    sleep(Duration::from_millis(1)).await;
}
