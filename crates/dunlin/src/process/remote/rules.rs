//! Who may start what at a node, and how much runs.

use std::sync::{Arc, Mutex};

use dunlin_proto::Source;
use dunlin_proto::source::has_place;
use dunlin_sorted::SortedMap;

use super::request::{Load, Refusal};
use crate::lock::lock;
use crate::node::Peer;
use crate::node::mailboxes::Sources;

/// Whether a node may start the functions of an offer.
pub(super) type Allow = Box<dyn Fn(Peer) -> bool + Send + Sync>;

/// The rules of an offer, and the processes that it has started.
pub(super) struct Rules {
    functions: Vec<&'static str>,
    allow: Option<Allow>,
    max: usize,
    running: Mutex<SortedMap<Source, usize>>,
    sources: Sources,
}

impl Rules {
    pub(super) fn new(functions: Vec<&'static str>, allow: Option<Allow>, max: usize, sources: Sources) -> Self {
        Self { functions, allow, max, running: Mutex::default(), sources }
    }

    fn allows(&self, peer: Peer) -> Result<(), Refusal> {
        let is_allowed = self.allow.as_ref().is_none_or(|allow| allow(peer));
        if is_allowed { Ok(()) } else { Err(Refusal::NotAllowed) }
    }

    fn permits(&self, peer: Peer, function: &str) -> Result<(), Refusal> {
        self.allows(peer)?;
        if !self.functions.contains(&function) {
            return Err(Refusal::NotOffered);
        }
        Ok(())
    }

    fn has_place(&self, running: &SortedMap<Source, usize>, source: Source) -> Result<(), Refusal> {
        let held = running.get(&source).copied().unwrap_or(0);
        let has_place = has_place(self.max, running.values().sum(), held);
        if has_place { Ok(()) } else { Err(Refusal::Full(self.max as u64)) }
    }

    /// Whether that node may start this function now.
    pub(super) fn check(&self, peer: Peer, function: &str) -> Result<(), Refusal> {
        self.permits(peer, function)?;
        let source = self.sources.of(peer);
        self.has_place(&lock(&self.running), source)
    }

    /// How many processes run, if that node may start another one.
    pub(super) fn load(&self, peer: Peer) -> Load {
        self.allows(peer)?;
        let source = self.sources.of(peer);
        let running = lock(&self.running);
        self.has_place(&running, source)?;
        Ok(running.values().sum::<usize>() as u64)
    }

    /// Takes a place for a process. Nodes need not have asked before, so all is checked again.
    pub(super) fn enter(self: &Arc<Self>, peer: Peer, function: &str) -> Result<Running, Refusal> {
        self.permits(peer, function)?;
        let source = self.sources.of(peer);
        let mut running = lock(&self.running);
        self.has_place(&running, source)?;
        *running.get_or_default(source) += 1;
        Ok(Running { rules: self.clone(), source })
    }
}

/// The place of a process among those of an offer, until it is dropped.
pub(super) struct Running {
    rules: Arc<Rules>,
    source: Source,
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut running = lock(&self.rules.running);
        if let Some(held) = running.get_mut(&self.source) {
            *held -= 1;
            if *held == 0 {
                running.remove(&self.source);
            }
        }
    }
}
