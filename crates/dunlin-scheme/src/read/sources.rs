//! The texts that others name: libraries, and what is included.

use std::sync::Arc;

use crate::datum::Pos;

/// How many bytes a file may have that a program includes, or that has a library: see
/// [`Scheme::set_files`](crate::Scheme::set_files).
pub const FILE_BYTES_MAX: usize = 16 << 20;

/// The most texts that one program may read.
const COUNT_MAX: usize = 1 << 16;

/// Texts by number. The number zero is the text that is compiled.
#[derive(Clone, Default, Debug)]
pub(crate) struct Sources(Arc<Vec<Source>>);

#[derive(Clone, Debug)]
struct Source {
    path: Arc<str>,
    /// The text that names it.
    parent: u32,
}

impl Sources {
    /// The number of a text that the one at `pos` names; none if there are too many.
    pub(crate) fn add(&mut self, path: &Arc<str>, pos: Pos) -> Option<u32> {
        if self.0.len() >= COUNT_MAX {
            return None;
        }
        Arc::make_mut(&mut self.0).push(Source { path: path.clone(), parent: pos.source });
        Some(self.0.len() as u32)
    }

    fn get(&self, number: u32) -> Option<&Source> {
        self.0.get((number as usize).checked_sub(1)?)
    }

    /// The name of the text that a position is in, unless it is the one that is compiled.
    pub(crate) fn name(&self, pos: Pos) -> Option<&Arc<str>> {
        self.get(pos.source).map(|source| &source.path)
    }

    /// Whether the text at `pos` is this one, or one that it named.
    pub(crate) fn is_within(&self, path: &str, pos: Pos) -> bool {
        let mut number = pos.source;
        while let Some(source) = self.get(number) {
            if &*source.path == path {
                return true;
            }
            number = source.parent;
        }
        false
    }
}
