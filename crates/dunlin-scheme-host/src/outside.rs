//! What Scheme processes know of Rust, by number.

use std::collections::HashMap;
use std::sync::Arc;

use dunlin::{Address, Pid};
use dunlin_scheme::{Engine, ProcessNumber, Value, from_value};
use serde::de::DeserializeOwned;

/// A mailbox that takes what fits its type.
pub(crate) trait Post: Send + Sync {
    /// Puts a message into the mailbox.
    ///
    /// # Errors
    /// Why it has no place there. A mailbox that is closed takes everything, as a process does that has
    /// ended.
    fn post(&self, message: Value) -> Result<(), String>;
}

impl<M: DeserializeOwned + Send + 'static> Post for Address<M> {
    fn post(&self, message: Value) -> Result<(), String> {
        let message = from_value::<M>(message).map_err(|error| error.to_string())?;
        match self.send(message) {
            Err(error) if !error.is_closed() => Err(error.to_string()),
            _ => Ok(()),
        }
    }
}

/// Something of Rust.
#[derive(Clone)]
pub(crate) enum Outside {
    Mailbox(Arc<dyn Post>),
    Process(Pid),
}

/// All that Scheme processes of a program may know.
#[derive(Default)]
pub(crate) struct Directory {
    places: Vec<Outside>,
    processes: HashMap<Pid, ProcessNumber>,
}

impl Directory {
    fn add(&mut self, outside: Outside) -> ProcessNumber {
        self.places.push(outside);
        ProcessNumber(Engine::outside(self.places.len() as u64 - 1))
    }

    pub(crate) fn add_mailbox(&mut self, mailbox: Arc<dyn Post>) -> ProcessNumber {
        self.add(Outside::Mailbox(mailbox))
    }

    /// The number of a process, which is always the same.
    pub(crate) fn number(&mut self, pid: Pid) -> ProcessNumber {
        if let Some(number) = self.processes.get(&pid) {
            return *number;
        }
        let number = self.add(Outside::Process(pid));
        self.processes.insert(pid, number);
        number
    }

    pub(crate) fn find(&self, number: u64) -> Option<Outside> {
        let place = usize::try_from(Engine::outside_place(number)?).ok()?;
        self.places.get(place).cloned()
    }
}
