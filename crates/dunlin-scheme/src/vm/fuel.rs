//! The fuel that a process has in a second.

use super::machine::Machine;

/// A process may use its fuel so much in advance: one that waits most of the time is not held up.
const ADVANCE_US: u64 = 100_000;

impl Machine {
    /// Counts what the turn used that has just ended.
    pub(super) fn count_fuel(&mut self) {
        let Some(rate) = self.fuel_rate else { return };
        let used_us = u128::from(self.used) * 1_000_000 / u128::from(rate.get());
        let used_us = u64::try_from(used_us).unwrap_or(u64::MAX);
        let now = self.now_us();
        self.running.fuel_us = self.running.fuel_us.max(now).saturating_add(used_us);
    }

    /// When a process that can run has fuel, if it has none by now.
    pub(super) fn pause_of(&mut self, pid: u64) -> Option<u64> {
        self.fuel_rate?;
        let is_running = self.running.pid == pid;
        let found = if is_running { Some(&mut *self.running) } else { self.commons.table.parked(pid) };
        let at = found?.fuel_us.saturating_sub(ADVANCE_US);
        if at > self.now_us() { Some(at) } else { None }
    }
}
