//! All processes of a program.

use std::collections::HashMap;

use super::port::Port;
use super::process::{Letter, Process};

/// Processes by number. A number names a slot and which of its processes, so none is used twice.
pub(crate) struct Table {
    slots: Vec<Slot>,
    free: Vec<u32>,
    count: usize,
    limit: usize,
    /// What came for processes that run at another machine.
    letters: HashMap<u64, Vec<Letter>>,
}

impl Default for Table {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), count: 0, limit: COUNT_MAX, letters: HashMap::new() }
    }
}

/// Processes at once, if no limit is set: they take two gigabytes at least.
const COUNT_MAX: usize = 1 << 22;

struct Slot {
    generation: u32,
    is_used: bool,
    /// The process, unless it runs.
    process: Option<Box<Process>>,
}

/// Bits of a number that name the slot.
const SLOT_BITS: u32 = 26;
const SLOTS_MAX: usize = 1 << SLOT_BITS;
/// Numbers have 54 bits.
const GENERATION_MAX: u32 = (1 << (54 - SLOT_BITS)) - 1;
/// The bit of a number that names something outside of the machine.
pub(crate) const OUTSIDE: u64 = 1 << 54;

/// Whether a number names something outside of the machine.
pub(crate) fn is_outside(number: u64) -> bool {
    number & OUTSIDE != 0 && number < OUTSIDE << 1
}

impl Table {
    /// Takes a number for a process that is put in place later.
    pub(crate) fn add(&mut self) -> u64 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, is_used: false, process: None });
            self.slots.len() as u32 - 1
        });
        self.count += 1;
        let place = &mut self.slots[slot as usize];
        place.is_used = true;
        (u64::from(place.generation) << SLOT_BITS) | u64::from(slot)
    }

    /// Whether there may be no more processes.
    pub(crate) fn is_full(&self) -> bool {
        self.count >= self.limit || (self.free.is_empty() && self.slots.len() >= SLOTS_MAX)
    }

    pub(crate) fn set_limit(&mut self, count: usize) {
        self.limit = count;
    }

    fn slot(&mut self, pid: u64) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(pid as usize & (SLOTS_MAX - 1))?;
        if slot.is_used && u64::from(slot.generation) == pid >> SLOT_BITS { Some(slot) } else { None }
    }

    /// Whether the process has not ended.
    pub(crate) fn is_alive(&mut self, pid: u64) -> bool {
        self.slot(pid).is_some()
    }

    /// A process that does not run.
    pub(crate) fn parked(&mut self, pid: u64) -> Option<&mut Process> {
        self.slot(pid)?.process.as_deref_mut()
    }

    /// Takes out a process, which is going to run.
    pub(crate) fn take(&mut self, pid: u64) -> Option<Box<Process>> {
        self.slot(pid)?.process.take()
    }

    /// Puts back a process, which has run.
    pub(crate) fn put(&mut self, process: Box<Process>) {
        if let Some(slot) = self.slot(process.pid) {
            slot.process = Some(process);
        }
    }

    /// Keeps something for a process that runs at another machine, until it looks.
    pub(crate) fn post(&mut self, pid: u64, letter: Letter) {
        if self.is_alive(pid) {
            self.letters.entry(pid).or_default().push(letter);
        }
    }

    /// What came for a process that runs.
    pub(crate) fn take_letters(&mut self, pid: u64) -> Vec<Letter> {
        // Most have none, and most programs have none for any process.
        if self.letters.is_empty() { Vec::new() } else { self.letters.remove(&pid).unwrap_or_default() }
    }

    /// Frees the number of a process that has ended.
    pub(crate) fn remove(&mut self, pid: u64) {
        let Some(slot) = self.slot(pid) else { return };
        slot.process = None;
        slot.is_used = false;
        let is_left = slot.generation < GENERATION_MAX;
        slot.generation += u32::from(is_left);
        self.count -= 1;
        self.letters.remove(&pid);
        // A slot whose numbers are used up is not used again.
        if is_left {
            self.free.push(pid as u32 & (SLOTS_MAX as u32 - 1));
        }
    }

    /// What a process that is a port keeps.
    pub(crate) fn port(&mut self, pid: u64) -> Option<&mut Port> {
        self.parked(pid)?.port.as_deref_mut()
    }

    /// The numbers of all processes but the one that runs, and but for ports.
    pub(crate) fn pids(&self) -> Vec<u64> {
        let processes = self.slots.iter().filter_map(|slot| slot.process.as_ref());
        processes.filter(|process| process.port.is_none()).map(|process| process.pid).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_of_an_ended_process_names_no_later_one() {
        let mut table = Table::default();
        let first = table.add();
        table.put(Box::new(Process::new(first)));
        table.remove(first);
        let second = table.add();
        table.put(Box::new(Process::new(second)));
        assert_ne!(first, second);
        assert!(!table.is_alive(first) && table.parked(first).is_none() && table.parked(second).is_some());
    }
}
