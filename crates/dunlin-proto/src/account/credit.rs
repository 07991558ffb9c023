//! The other side of an account: what a node may send.

use super::{FLOOR, cost};

/// What a node may send to another one without asking.
#[derive(Clone, Debug)]
pub(crate) struct Credit(u64);

impl Default for Credit {
    fn default() -> Self {
        Self(FLOOR)
    }
}

impl Credit {
    /// `false`: a value of this length has to be announced.
    pub(crate) fn spend(&mut self, total: u64) -> bool {
        let left = self.0.checked_sub(cost(total));
        self.0 = left.unwrap_or(self.0);
        left.is_some()
    }

    pub(crate) fn grow(&mut self, bytes: u64) {
        self.0 = self.0.saturating_add(bytes);
    }
}
