//! The operations on channels of all processes.

use std::collections::{HashMap, HashSet};

use super::channel::{Channels, Outcome};
use super::ends::Ends;
use crate::data::End;

/// What processes have to do with channels.
#[derive(Default)]
pub(crate) struct Operations {
    pub(crate) ends: Ends,
    pub(crate) outcomes: HashMap<u64, Outcome>,
    /// The ends that the operations of processes take along, with the numbers of their branches.
    pub(crate) lent: HashMap<u64, Vec<(usize, End)>>,
    /// Processes whose operations are under way at the driver.
    pub(crate) under_way: HashSet<u64>,
    /// Those of them that compute.
    pub(crate) computing: HashSet<u64>,
    pub(crate) driver: Option<Box<dyn Channels + Send>>,
}

impl Operations {
    /// An outcome comes to no process.
    pub(crate) fn drop_outcome(&mut self, outcome: Option<Outcome>) {
        if let Some(Outcome::Done(_, value)) = outcome {
            self.ends.release_value(&value);
        }
    }
}
