//! Where a node can be dialled, and the source of each address.
//!
//! An address is this node's *own* knowledge if its program has supplied it, or the node has proved its id
//! there. Any other is *told*: by the node itself, or by a third one. It may lead anywhere, so this node
//! dials it only for its own needs, rarely, and if it leads to this host, only if it was received over a
//! socket of this host.

use std::time::Duration;

use crate::source::{Source, most_frequent};
use crate::time::Time;
use crate::wire::limits;

/// The addresses of one node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Book {
    /// In the order in which they are dialled.
    addresses: Vec<String>,
    told: Vec<Told>,
}

/// An address that this node has only been told.
#[derive(Clone, Debug)]
struct Told {
    address: String,
    /// It was received over a socket of this host, so it may lead to this host.
    near: bool,
    dialled: Option<Time>,
    /// The first source of the address.
    by: Source,
}

impl Book {
    /// All of them.
    pub(crate) fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// Resets all failures.
    pub(crate) fn rest(&mut self) {
        self.told.iter_mut().for_each(|told| told.dialled = None);
    }

    /// Adds an address as this node's own knowledge.
    pub(crate) fn owns(&mut self, address: &str) {
        self.told.retain(|told| told.address != address);
        if !self.addresses.iter().any(|known| known == address) {
            self.addresses.push(address.to_owned());
        }
        self.shorten();
    }

    /// Adds an address that a node of that source has sent. `near`: over a socket of this host.
    ///
    /// When the list is full, an address of the source with most of them makes room for one of another
    /// source.
    pub(crate) fn hears(&mut self, address: &str, near: bool, by: Source) {
        if let Some(told) = self.told.iter_mut().find(|told| told.address == address) {
            told.near |= near;
        } else if !self.addresses.iter().any(|known| known == address) {
            if self.told.len() >= limits::ADDRESSES {
                let sources: Vec<Source> = self.told.iter().rev().map(|told| told.by).collect();
                let at = most_frequent(&sources);
                let held = |source| sources.iter().filter(|other| **other == source).count();
                if held(by) + 1 >= held(sources[at]) {
                    return;
                }
                let gone = self.told.remove(self.told.len() - 1 - at);
                self.addresses.retain(|address| *address != gone.address);
            }
            // In turns: the first of each source, then the second.
            let turns = self.told.iter().filter(|told| told.by == by).count();
            let is_later = |address: &String| self.turn_of(address).is_some_and(|turn| turn > turns);
            let at = self.addresses.iter().position(is_later).unwrap_or(self.addresses.len());
            self.addresses.insert(at, address.to_owned());
            self.told.push(Told { address: address.to_owned(), near, dialled: None, by });
        }
        self.shorten();
    }

    /// How many earlier told addresses are from the same source. `None`: it is this node's own knowledge.
    fn turn_of(&self, address: &str) -> Option<usize> {
        let at = self.told.iter().position(|told| told.address == address)?;
        Some(self.told[..at].iter().filter(|told| told.by == self.told[at].by).count())
    }

    /// Adds the addresses that the node itself declares, before those from others.
    pub(crate) fn hears_itself(&mut self, addresses: &[String], near: bool, by: Source) {
        let old = std::mem::take(self);
        for address in addresses.iter().chain(&old.addresses) {
            if self.addresses.contains(address) {
                continue;
            }
            let known = old.told.iter().find(|told| told.address == *address);
            if known.is_none() && old.addresses.contains(address) {
                self.addresses.push(address.clone());
            } else if self.told.len() < limits::ADDRESSES {
                let near = known.is_some_and(|told| told.near) || near && addresses.contains(address);
                self.addresses.push(address.clone());
                let dialled = known.and_then(|told| told.dialled);
                let by = known.map_or(by, |told| told.by);
                self.told.push(Told { address: address.clone(), near, dialled, by });
            }
        }
        self.shorten();
    }

    /// Moves it to the front.
    pub(crate) fn prefer(&mut self, address: String) {
        self.addresses.retain(|other| *other != address);
        self.addresses.insert(0, address);
        self.shorten();
    }

    /// The first address from `start` on that may be dialled now, preferring a told one that was not dialled
    /// yet to a repeated dial. The error: when one may be. A told address is not dialled twice within
    /// `pause`, nor again at all if `once`, nor now if `full`.
    pub(crate) fn next(
        &self,
        start: usize,
        now: Time,
        pause: Duration,
        once: bool,
        full: bool,
    ) -> Result<&str, Option<Time>> {
        let order = self.addresses.iter().cycle().skip(start % self.addresses.len().max(1)).take(self.addresses.len());
        let (mut soonest, mut first) = (None, None);
        for address in order {
            let Some(told) = self.told.iter().find(|told| told.address == *address) else {
                first.get_or_insert(address);
                continue;
            };
            let at = match told.dialled {
                Some(_) if once => continue,
                Some(at) => at + pause,
                None => now,
            };
            let at = if full { at.max(now + pause) } else { at };
            if at <= now {
                if told.dialled.is_none() && first.is_none_or(|first| self.was_dialled(first)) {
                    return Ok(address);
                }
                first.get_or_insert(address);
                continue;
            }
            soonest = Some(soonest.map_or(at, |soonest: Time| soonest.min(at)));
        }
        first.map(String::as_str).ok_or(soonest)
    }

    /// Whether it was told, and has been dialled.
    fn was_dialled(&self, address: &str) -> bool {
        self.told.iter().any(|told| told.address == address && told.dialled.is_some())
    }

    /// Records that this one is dialled now. `Some`: it was only told; whether over a socket of this host.
    pub(crate) fn dials(&mut self, address: &str, now: Time) -> Option<bool> {
        let told = self.told.iter_mut().find(|told| told.address == address)?;
        told.dialled = Some(now);
        Some(told.near)
    }

    fn shorten(&mut self) {
        self.addresses.truncate(2 * limits::ADDRESSES);
        let Self { addresses, told } = self;
        told.retain(|told| addresses.contains(&told.address));
    }
}
