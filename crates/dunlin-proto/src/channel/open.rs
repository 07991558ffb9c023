//! The open offers of a half.

use std::collections::VecDeque;

use crate::id::{Request, Ticket};

/// The state of an offer. Both sides use the same states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Its value is at the home, or on its way there.
    Firm,
    /// A choice's; no value is at the home.
    Tentative,
    /// A choice's, requested under this number.
    Asked(Request),
    /// A choice's, whose value has been granted under this number. The home may have aborted that and
    /// requested it again: the second number.
    Reserved(Request, Option<Request>),
    /// An extended receive has the value.
    Held,
}

/// The state of each offer of a half, in the order of their tickets.
///
/// An offer nearly always comes after the open ones, and is settled before them: neither needs a search or
/// moves anything. The window bounds their number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Open(VecDeque<(Ticket, Standing)>);

impl Open {
    fn find(&self, ticket: Ticket) -> Result<usize, usize> {
        match (self.0.front(), self.0.back()) {
            (Some((first, _)), _) if *first == ticket => Ok(0),
            (_, Some((last, _))) if *last < ticket => Err(self.0.len()),
            (None, _) => Err(0),
            _ => self.0.binary_search_by_key(&ticket, |(ticket, _)| *ticket),
        }
    }

    pub(crate) fn get(&self, ticket: &Ticket) -> Option<&Standing> {
        self.find(*ticket).ok().map(|at| &self.0[at].1)
    }

    pub(crate) fn get_mut(&mut self, ticket: &Ticket) -> Option<&mut Standing> {
        self.find(*ticket).ok().map(|at| &mut self.0[at].1)
    }

    pub(crate) fn contains_key(&self, ticket: &Ticket) -> bool {
        self.find(*ticket).is_ok()
    }

    /// Inserts an offer, or changes the state of an existing one.
    pub(crate) fn insert(&mut self, ticket: Ticket, standing: Standing) {
        match self.find(ticket) {
            Ok(at) => self.0[at].1 = standing,
            Err(at) if at == self.0.len() => self.0.push_back((ticket, standing)),
            Err(at) => self.0.insert(at, (ticket, standing)),
        }
    }

    pub(crate) fn remove(&mut self, ticket: &Ticket) -> Option<Standing> {
        let at = self.find(*ticket).ok()?;
        self.0.remove(at).map(|(_, standing)| standing)
    }

    pub(crate) fn retain(&mut self, mut keeps: impl FnMut(&Ticket, &mut Standing) -> bool) {
        self.0.retain_mut(|(ticket, standing)| keeps(ticket, standing));
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn into_keys(self) -> impl Iterator<Item = Ticket> {
        self.0.into_iter().map(|(ticket, _)| ticket)
    }
}

impl IntoIterator for Open {
    type Item = (Ticket, Standing);
    type IntoIter = std::collections::vec_deque::IntoIter<(Ticket, Standing)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Under any sequence of operations it behaves like a map ordered by ticket.
    #[test]
    fn open_offers_behave_like_an_ordered_map() {
        let (mut open, mut map, mut seed) = (Open::default(), BTreeMap::new(), 1u64);
        let standings = [Standing::Firm, Standing::Held, Standing::Asked(3), Standing::Reserved(1, Some(2))];
        for _ in 0..10_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (ticket, standing) = ((seed >> 33) % 12, standings[(seed >> 50) as usize % 4]);
            if (seed >> 60) % 2 == 0 {
                open.insert(ticket, standing);
                map.insert(ticket, standing);
            } else {
                assert_eq!(open.remove(&ticket), map.remove(&ticket));
            }
            let other = (seed >> 40) % 12;
            assert_eq!(open.get(&other), map.get(&other));
            assert_eq!(open.get_mut(&other), map.get_mut(&other));
            assert_eq!((open.len(), open.is_empty()), (map.len(), map.is_empty()));
            assert_eq!(open.contains_key(&other), map.contains_key(&other));
        }
        open.retain(|ticket, _| ticket % 3 > 0);
        map.retain(|ticket, _| ticket % 3 > 0);
        assert!(open.clone().into_keys().eq(map.clone().into_keys()));
        assert!(open.into_iter().eq(map));
    }
}
