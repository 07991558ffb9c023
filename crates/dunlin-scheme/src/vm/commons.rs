//! What the machines of a program share, and how they take turns with it.
//!
//! A program has a machine for each worker. What a process needs to compute is in its machine: its heap and
//! frames, and what never changes: code, constants, values of globals. All else is in the [`Commons`]. A
//! machine takes them when it needs them, and puts them back before it computes on.

use std::cell::{Cell, OnceCell};
use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::outside::Script;
use super::program::Program;
use crate::error::Error;
use crate::proc::{Bodies, Operations, Table};

/// Hears of processes that failed: their number, and why.
pub(crate) type FailureLog = Box<dyn FnMut(u64, &Error) + Send>;

/// What the machines of a program share.
pub(crate) struct Commons {
    pub(crate) program: Program,
    /// The processes that do not run.
    pub(crate) table: Table,
    pub(crate) operations: Operations,
    pub(super) bodies: Bodies,
    /// What the program printed.
    pub(crate) output: String,
    /// Hears of processes that failed, unless others are linked to them.
    pub(crate) on_failure: Option<FailureLog>,
    /// Processes that others ended, which the embedder has not been told yet.
    pub(crate) ends: HashMap<u64, Error>,
    /// The forms that processes of an embedder have not evaluated yet.
    pub(crate) scripts: HashMap<u64, Script>,
    /// Machines that are in use, or were when one took the commons last.
    pub(crate) machines: usize,
}

impl Commons {
    pub(super) fn new(program: Program) -> Self {
        Self {
            program,
            table: Table::default(),
            operations: Operations::default(),
            bodies: Bodies::default(),
            output: String::new(),
            on_failure: None,
            ends: HashMap::new(),
            scripts: HashMap::new(),
            machines: 0,
        }
    }
}

/// Where the commons are while no machine uses them.
pub(crate) struct Home {
    place: Mutex<Place>,
    is_back: Condvar,
}

struct Place {
    commons: Option<Box<Commons>>,
    waiting: usize,
}

/// How often a machine looks for the commons before its thread sleeps: most uses take less than a
/// microsecond.
const LOOKS: usize = 100;

impl Home {
    pub(super) fn new(commons: Commons) -> Arc<Self> {
        let place = Place { commons: Some(Box::new(commons)), waiting: 0 };
        Arc::new(Self { place: Mutex::new(place), is_back: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, Place> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Box<Commons> {
        for _ in 0..LOOKS {
            if let Some(commons) = self.lock().commons.take() {
                return commons;
            }
            std::hint::spin_loop();
        }
        let mut place = self.lock();
        loop {
            if let Some(commons) = place.commons.take() {
                return commons;
            }
            place.waiting += 1;
            place = self.is_back.wait(place).unwrap_or_else(PoisonError::into_inner);
            place.waiting -= 1;
        }
    }

    fn put(&self, commons: Box<Commons>) {
        let mut place = self.lock();
        place.commons = Some(commons);
        let is_awaited = place.waiting > 0;
        drop(place);
        if is_awaited {
            self.is_back.notify_one();
        }
    }
}

/// A machine's way to the commons: the first use takes them, which waits while another machine has them.
///
/// The machine that has them may run no code of users and wait for nothing.
pub(crate) struct Lease {
    home: Arc<Home>,
    here: OnceCell<Box<Commons>>,
    /// Whether they are here and other machines are in use.
    is_wanted: Cell<bool>,
}

impl Lease {
    pub(super) fn new(home: Arc<Home>) -> Self {
        Self { home, here: OnceCell::new(), is_wanted: Cell::new(false) }
    }

    pub(crate) fn home(&self) -> &Arc<Home> {
        &self.home
    }

    fn take(&self) -> Box<Commons> {
        let commons = self.home.take();
        self.is_wanted.set(commons.machines > 1);
        commons
    }

    /// Looks whether other machines are in use.
    pub(super) fn count(&mut self) {
        self.is_wanted.set(self.machines > 1);
    }

    /// Puts the commons back, unless this is the only machine in use: one that comes into use waits then, for
    /// a turn at most.
    #[inline]
    pub(super) fn rest(&mut self) {
        if self.is_wanted.get() {
            self.release();
        }
    }

    /// Puts the commons back.
    #[cold]
    #[inline(never)]
    pub(crate) fn release(&mut self) {
        self.is_wanted.set(false);
        if let Some(commons) = self.here.take() {
            self.home.put(commons);
        }
    }
}

impl Deref for Lease {
    type Target = Commons;

    fn deref(&self) -> &Commons {
        self.here.get_or_init(|| self.take())
    }
}

impl DerefMut for Lease {
    fn deref_mut(&mut self) -> &mut Commons {
        let _: &Commons = Self::deref(self);
        self.here.get_mut().expect("they were taken just now")
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commons_go_to_one_machine_after_the_other() {
        let home = Home::new(Commons::new(Program::new()));
        let add = |home: &Arc<Home>| {
            let mut lease = Lease::new(home.clone());
            lease.machines += 1;
            for _ in 0..10_000 {
                lease.output.push('.');
                lease.rest();
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| add(&home));
            }
        });
        assert_eq!(Lease::new(home).output.len(), 30_000);
    }

    #[test]
    fn only_machine_in_use_keeps_the_commons_until_it_releases_them() {
        let home = Home::new(Commons::new(Program::new()));
        let mut lease = Lease::new(home.clone());
        lease.output.push('.');
        lease.rest();
        assert!(home.lock().commons.is_none());
        lease.release();
        assert!(home.lock().commons.is_some());
        lease.machines = 2;
        lease.release();
        lease.output.push('.');
        lease.rest();
        assert!(home.lock().commons.is_some());
    }
}
