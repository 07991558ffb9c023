//! The sources of sockets, and how a full table shares its places between sources.
//!
//! Ids of nodes cost nothing, so a limit for each node would limit nothing. An address, or a user of this
//! host, is harder to get: those are counted, and sockets that one of them relays are counted apart. While
//! there is room, no share binds. When the table of sockets without a handshake is full, the source that has
//! most makes room for a newcomer. Registrations (names, guests, relayed sockets) and connections are never
//! taken back: there the last quarter of the table is for sources that have little ([`has_place`]).

use std::cmp::Reverse;

use dunlin_sorted::{SortedMap, SortedSet};

use crate::id::SocketId;

/// The source of a socket, as far as it can be counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Source {
    /// The driver does not know: all such sockets are one source.
    #[default]
    Unknown,
    /// A host, or all hosts behind one router.
    V4([u8; 4]),
    /// The network of a host: the first 64 bits of its address. One host may use all addresses in it.
    V6([u8; 8]),
    /// A user of this host, by number.
    User(u32),
    /// All relaying nodes of that source: ids of nodes cost nothing, so a single relay is not a source of its
    /// own.
    Relay(RelaySource),
    /// The socket alone: it comes through a load balancer or a router that is known to stand for many hosts.
    Socket(SocketId),
}

/// The source of the connection with a relay: a [`Source`] that is not relayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum RelaySource {
    /// The driver does not know.
    Unknown,
    /// As [`Source::V4`].
    V4([u8; 4]),
    /// As [`Source::V6`].
    V6([u8; 8]),
    /// As [`Source::User`].
    User(u32),
    /// As [`Source::Socket`].
    Socket(SocketId),
}

impl Source {
    /// The source of a socket that a node of this source relays.
    pub fn relays(self) -> Self {
        Self::Relay(match self {
            Self::Unknown => RelaySource::Unknown,
            Self::V4(address) => RelaySource::V4(address),
            Self::V6(network) => RelaySource::V6(network),
            Self::User(user) => RelaySource::User(user),
            Self::Socket(socket) => RelaySource::Socket(socket),
            // A relay is never relayed itself.
            Self::Relay(carrier) => carrier,
        })
    }

    /// The source of a host with this address. An IPv4 address that is written as IPv6 counts as IPv4.
    ///
    /// # Examples
    /// ```
    /// use dunlin_proto::Source;
    ///
    /// assert_eq!(Source::of("::ffff:10.0.0.7".parse()?), Source::V4([10, 0, 0, 7]));
    /// assert_eq!(Source::of("2001:db8::1".parse()?), Source::of("2001:db8::2".parse()?));
    /// # Ok::<(), std::net::AddrParseError>(())
    /// ```
    pub fn of(address: std::net::IpAddr) -> Self {
        match address.to_canonical() {
            std::net::IpAddr::V4(address) => Self::V4(address.octets()),
            std::net::IpAddr::V6(address) => {
                let mut network = [0; 8];
                network.copy_from_slice(&address.octets()[..8]);
                Self::V6(network)
            }
        }
    }
}

/// Whether a table of registrations, with `taken` of `max` places taken, has one for a source that has `held`
/// of them. Three quarters of the table are for any source, the last quarter is for sources with less than a
/// 64th of it ([`share`]).
///
/// # Examples
/// ```
/// use dunlin_proto::source::has_place;
///
/// assert!(has_place(1024, 767, 767), "no share binds while there is room");
/// assert!(!has_place(1024, 768, 768) && !has_place(1024, 768, 16));
/// assert!(has_place(1024, 768, 15));
/// assert!(!has_place(1024, 1024, 0));
/// ```
pub fn has_place(max: usize, taken: usize, held: usize) -> bool {
    taken < max - max / 4 || (taken < max && held < share(max))
}

/// How many places of a table of `max` a source may have, once three quarters of it are taken.
pub fn share(max: usize) -> usize {
    (max / 64).max(1)
}

/// The oldest entry of the source that has most; `sources` begins with the latest. Of several such sources,
/// the one that comes first.
pub(crate) fn most_frequent(sources: &[Source]) -> usize {
    let times = |source: &Source| sources.iter().filter(|other| *other == source).count();
    let most =
        sources.iter().max_by_key(|source| (times(source), Reverse(sources.iter().position(|other| other == *source))));
    sources.iter().rposition(|source| Some(source) == most).unwrap_or(0)
}

/// How many places of a table each source has.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shares {
    places: SortedMap<Source, Share>,
    /// By the number of places; of sources with equally many, the one that has had places longest comes last.
    order: SortedSet<(usize, Reverse<u64>, Source)>,
    sum: usize,
    /// How many sources have been added.
    arrivals: u64,
}

#[derive(Clone, Copy, Debug)]
struct Share {
    places: usize,
    arrival: u64,
}

impl Shares {
    /// How many places are taken.
    pub(crate) fn taken(&self) -> usize {
        self.sum
    }

    /// Whether a table of registrations with these shares has a place for this source: see [`has_place`].
    pub(crate) fn admits(&self, source: Source, max: usize) -> bool {
        has_place(max, self.sum, self.held(source))
    }

    /// How many places this source has.
    pub(crate) fn held(&self, source: Source) -> usize {
        self.places.get(&source).map_or(0, |share| share.places)
    }

    /// The source with most places.
    pub(crate) fn greatest(&self) -> Option<Source> {
        self.order.last().map(|(_, _, source)| *source)
    }

    pub(crate) fn take(&mut self, source: Source) {
        let arrivals = &mut self.arrivals;
        let share = self.places.get_or_insert_with(source, || {
            *arrivals += 1;
            Share { places: 0, arrival: *arrivals }
        });
        self.order.remove(&(share.places, Reverse(share.arrival), source));
        share.places += 1;
        self.order.insert((share.places, Reverse(share.arrival), source));
        self.sum += 1;
    }

    /// A source gives back one of its places.
    pub(crate) fn give_back(&mut self, source: Source) {
        let Some(share) = self.places.get_mut(&source) else { return };
        self.order.remove(&(share.places, Reverse(share.arrival), source));
        share.places -= 1;
        self.sum -= 1;
        if share.places == 0 {
            self.places.remove(&source);
        } else {
            self.order.insert((share.places, Reverse(share.arrival), source));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(last: u8) -> Source {
        Source::V4([10, 0, 0, last])
    }

    #[test]
    fn ipv4_addresses_and_ipv6_networks_are_sources() {
        let of = |address: &str| Source::of(address.parse().unwrap());
        assert_eq!(of("127.0.0.2"), Source::V4([127, 0, 0, 2]));
        assert_eq!(of("::ffff:127.0.0.2"), of("127.0.0.2"));
        assert_ne!(of("127.0.0.2"), of("127.0.0.3"));
        assert_eq!(of("2001:db8:1:2:3:4:5:6"), Source::V6([0x20, 1, 0x0d, 0xb8, 0, 1, 0, 2]));
        assert_eq!(of("2001:db8:1:2:ffff::"), of("2001:db8:1:2::"));
        assert_ne!(of("2001:db8:1:2::"), of("2001:db8:1:3::"));
    }

    #[test]
    fn greatest_source_has_the_most_places_and_is_the_oldest_of_equals() {
        let mut shares = Shares::default();
        assert_eq!((shares.greatest(), shares.taken()), (None, 0));
        [1, 2, 2, 3].into_iter().for_each(|last| shares.take(host(last)));
        assert_eq!((shares.greatest(), shares.taken()), (Some(host(2)), 4));
        shares.give_back(host(2));
        assert_eq!(shares.greatest(), Some(host(1)));
        // It returns, and is the youngest.
        shares.give_back(host(1));
        shares.take(host(1));
        assert_eq!(shares.greatest(), Some(host(2)));
        [1, 2, 3].into_iter().for_each(|last| shares.give_back(host(last)));
        assert_eq!((shares.greatest(), shares.taken(), shares.places.len(), shares.order.len()), (None, 0, 0, 0));
        shares.give_back(host(1));
        assert_eq!(shares.taken(), 0, "it had none");
    }

    #[test]
    fn the_last_quarter_is_for_sources_with_little() {
        let (mut shares, max) = (Shares::default(), 256);
        while shares.admits(host(1), max) {
            shares.take(host(1));
        }
        assert_eq!(shares.taken(), 192);
        // Each of the others has at most a 64th, and the table is never more than full.
        let mut others = 2..;
        while shares.taken() < max {
            let other = host(others.next().expect("there are enough of them"));
            let before = shares.taken();
            while shares.admits(other, max) {
                shares.take(other);
            }
            assert_eq!(shares.taken() - before, share(max));
        }
        assert!(!shares.admits(host(200), max));
        shares.give_back(host(1));
        assert!(shares.admits(host(200), max) && !shares.admits(host(1), max));
    }

    #[test]
    fn the_smallest_tables_have_places() {
        for max in 0..10 {
            let mut shares = Shares::default();
            for source in (0..20).map(host) {
                if shares.admits(source, max) {
                    shares.take(source);
                }
            }
            assert_eq!(shares.taken(), max);
        }
    }
}
