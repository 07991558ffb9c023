//! A link that keeps the words of a half for the test to carry.

use std::sync::Mutex;
use std::task::Waker;

use dunlin_core::remote::{Link, Word};

/// Words that one half has sent and the other has not received.
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
