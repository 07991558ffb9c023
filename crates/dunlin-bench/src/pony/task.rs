//! The parameters of a run's processes: the task, when a worker may send, and where the master counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use clap::Args;
use tokio::sync::watch;

/// The task of a run: the arguments of the hidden subcommand.
#[derive(Args, Clone, Debug)]
pub(crate) struct Task {
    pub(super) who: String,
    #[arg(long)]
    pub(super) nodes: usize,
    /// The workers at each node. (`--workers` has another meaning everywhere else in this binary.)
    #[arg(long = "workers-each", id = "workers-each")]
    pub(super) workers: usize,
    /// Bytes of a message, or of each of its items
    #[arg(long)]
    pub(super) size: usize,
    /// 0 for a message that consists of its bytes
    #[arg(long)]
    pub(super) items: usize,
    /// tokio's workers in each process
    #[arg(long)]
    pub(super) threads: usize,
    /// Seconds
    #[arg(long)]
    pub(super) warm_up: f64,
    /// Seconds
    #[arg(long)]
    pub(super) window: f64,
    /// Instead of a window: messages of each worker, and as many to warm up. Their cost on the wire is
    /// counted
    #[arg(long, default_value_t = 0)]
    pub(super) count: u64,
    /// In a separate network, whose traffic is counted too
    #[arg(long)]
    pub(super) on_link: bool,
    /// Which node this is; 0 is the master
    #[arg(long, default_value_t = 0)]
    pub(super) role: usize,
    #[arg(long, default_value = "")]
    pub(super) names: String,
}

/// How many messages of each worker the master has received.
#[derive(Clone)]
pub(super) struct Counts(Arc<[AtomicU64]>);

impl Counts {
    pub(super) fn new(workers: usize) -> Self {
        Self((0..workers).map(|_| AtomicU64::new(0)).collect())
    }

    pub(super) fn one(&self, worker: usize) {
        self.0[worker].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn total(&self) -> u64 {
        self.0.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// How many workers the master has received from.
    pub(super) fn heard(&self) -> usize {
        self.0.iter().filter(|count| count.load(Ordering::Relaxed) > 0).count()
    }
}

/// When a worker may send.
#[derive(Clone)]
pub(super) struct Gate {
    opened: watch::Receiver<u64>,
    /// The number of messages each time the gate opens.
    messages: u64,
    left: u64,
}

impl Gate {
    pub(super) fn new(opened: watch::Receiver<u64>, messages: u64) -> Self {
        Self { opened, messages: if messages == 0 { u64::MAX } else { messages }, left: 0 }
    }

    /// Waits until a message may be sent.
    pub(super) async fn open(&mut self) -> Result<()> {
        if self.left == 0 {
            self.opened.changed().await?;
            self.left = self.messages;
        }
        self.left -= 1;
        Ok(())
    }
}

impl Task {
    /// Bytes of a message's content.
    pub(super) fn payload(&self) -> usize {
        self.size * self.items.max(1)
    }

    pub(super) fn leads(&self) -> bool {
        self.role == 0
    }

    pub(super) fn is_over_tcp(&self) -> bool {
        self.who.starts_with("tokio tcp")
    }

    /// The task as arguments of this binary.
    pub(super) fn arguments(&self) -> Vec<String> {
        let numbers = [
            ("--nodes", self.nodes.to_string()),
            ("--workers-each", self.workers.to_string()),
            ("--size", self.size.to_string()),
            ("--items", self.items.to_string()),
            ("--threads", self.threads.to_string()),
            ("--warm-up", self.warm_up.to_string()),
            ("--window", self.window.to_string()),
            ("--count", self.count.to_string()),
        ];
        let mut all = vec!["pony-side".to_owned(), self.who.clone()];
        all.extend(numbers.into_iter().flat_map(|(name, value)| [name.to_owned(), value]));
        all.extend(self.on_link.then(|| "--on-link".to_owned()));
        all
    }
}
