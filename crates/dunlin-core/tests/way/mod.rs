//! A link that keeps what a half says, for the test to carry.

use std::sync::Mutex;
use std::task::Waker;

use dunlin_core::remote::{Link, Word};

/// What a half has said and the other one has not received.
#[derive(Default)]
pub(crate) struct Way(pub(crate) Mutex<Vec<Word>>);

impl Link for Way {
    fn say(&self, word: Word) -> Option<Waker> {
        self.0.lock().unwrap().push(word);
        None
    }

    fn close(&self) -> Option<Waker> {
        None
    }
}

impl Way {
    pub(crate) fn take(&self) -> Vec<Word> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}
