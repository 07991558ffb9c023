//! Ports: text and bytes, in memory.

use std::collections::VecDeque;

/// A port. Its state is the machine's, not the heap's: objects never change.
#[derive(Clone)]
pub(super) struct Port {
    pub(super) kind: PortKind,
    pub(super) is_open: bool,
}

#[derive(Clone)]
pub(super) enum PortKind {
    /// Text that is left, and the next character to read.
    TextIn {
        text: std::sync::Arc<str>,
        at: usize,
    },
    BytesIn(VecDeque<u8>),
    TextOut(String),
    BytesOut(Vec<u8>),
    /// What the program prints; the embedder takes it.
    Console,
}

impl Port {
    pub(super) fn new(kind: PortKind) -> Self {
        Self { kind, is_open: true }
    }

    pub(super) fn is_input(&self) -> bool {
        matches!(self.kind, PortKind::TextIn { .. } | PortKind::BytesIn(_))
    }

    pub(super) fn is_textual(&self) -> bool {
        matches!(self.kind, PortKind::TextIn { .. } | PortKind::TextOut(_) | PortKind::Console)
    }
}
