//! The node's own answers to inquiries, under a name that every node has.

use std::ops::Bound;
use std::sync::Arc;

use dunlin_proto::names::{EntryState, NameEntry};
use dunlin_proto::time::Time;
use dunlin_proto::wire::Face;

use super::Hub;
use super::end::{Half, Options};
use super::guests::{Acceptance, Accepted, agents_of};
use crate::node::Peer;
use crate::node::inquiry::{
    Asker, Bookmark, INQUIRERS_MAX, Inquirers, Inquiry, InquiryClient, NAME, NameList, NamedEnd, PAGE_BYTES, Page,
    Pages, State, answer,
};
use crate::node::name::{encoding, word};
use crate::node::schema;
use crate::node::state::Locked;
use crate::world;

impl Hub {
    /// The numbers of ends declared here, of their channels, and of names kept here.
    pub(in crate::node) fn records(&self) -> [usize; 3] {
        let declared = self.ends.iter().filter(|(_, end)| !end.options.own).count() + self.introductions.len();
        let names = self.service.entries_from("").filter(|entry| entry.name != NAME).count();
        [declared, self.channels.len(), names + self.unasked.len()]
    }

    /// Declares the acceptor of inquiries, only to nodes that dial this one: the application's name service
    /// has each name once. (If this node serves the names, its acceptor is the application's.)
    pub(crate) fn answer_inquiries(&mut self, cx: &mut Locked<'_>, listening: &[String]) {
        let driver = Arc::downgrade(cx.driver);
        let (me, listening): (String, Arc<[String]>) = (self.me.node.to_string(), listening.into());
        let pages = Arc::<Pages>::default();
        let mut inquirers = Inquirers::default();
        let accept = Box::new(move |from, source, _: &mut Vec<Box<dyn Send>>| {
            let Some(place) = inquirers.place(source) else {
                return Some(Accepted { agents: Vec::new(), full: Some(INQUIRERS_MAX) });
            };
            let (client, server) = Inquiry::pair();
            let agents = agents_of(client).ok()?;
            let (driver, listening) = (driver.clone(), listening.clone());
            let asker = Asker { peer: Peer(from), source, _place: place };
            world::spawn_own(answer(server, me.clone(), driver, listening, pages.clone(), asker));
            Some(Accepted { agents, full: None })
        });
        let options = Options { face: Face::Acceptor, reserved: true, own: true, ..Options::default() };
        // No caller waits until it is admitted.
        let schema = schema::of_messages::<InquiryClient>(options.encoding);
        let ends = agents_of(Inquiry::pair().0).map_or(0, |agents| agents.len());
        let _ = self.declare(cx, NAME, options, schema, Half::Acceptor(Acceptance::unwatched(accept, ends)));
    }

    /// The entries declared to this node, and those declared on request, by name from this one on.
    fn entries_from(&self, first: &str) -> impl Iterator<Item = NameEntry<'_>> {
        let mut there = self.service.entries_from(first).peekable();
        let unasked = self.unasked.range((Bound::Included((Arc::from(first), 0)), Bound::Unbounded));
        // Where this node serves the application's names, its own are included.
        let unasked = unasked.filter(|_| !self.serves).filter_map(|(name, number)| {
            let (end, stands) = (self.ends.get(*number)?, self.directory.end(*number)?);
            let state = match end.declaration.face {
                Face::Acceptor => EntryState::Accepting,
                _ if stands.joined => EntryState::Joined,
                _ => EntryState::Waiting,
            };
            let (face, who) = (&*end.declaration, self.me);
            Some(NameEntry { name, face, who, addresses: &[], since: stands.since, state })
        });
        let mut unasked = unasked.peekable();
        std::iter::from_fn(move || {
            let is_unasked = match (there.peek(), unasked.peek()) {
                (Some(there), Some(unasked)) => unasked.name < there.name,
                (None, unasked) => unasked.is_some(),
                (Some(_), None) => false,
            };
            if is_unasked { unasked.next() } else { there.next() }
        })
    }

    /// A page of what is declared to this node, from the bookmark on, and where the next page begins.
    pub(crate) fn page_of_names(&self, now: Time, listening: &[String], from: &Bookmark) -> (Page, Option<Bookmark>) {
        let (mut ends, mut bytes, mut next) = (Vec::new(), 0, None);
        let mut place = Bookmark { name: from.name.clone(), ends: 0 };
        for entry in self.entries_from(&from.name).filter(|entry| entry.name != NAME) {
            if place.name != entry.name {
                place = Bookmark { name: entry.name.to_owned(), ends: 0 };
            }
            if place.name != from.name || place.ends >= from.ends {
                if bytes >= PAGE_BYTES {
                    next = Some(place);
                    break;
                }
                let end = named_end(now, &entry);
                bytes += ENTRY_BYTES + end.name.len() + end.addresses.iter().map(String::len).sum::<usize>();
                ends.push(end);
            }
            place.ends += 1;
        }
        let list = NameList {
            address: self.names_at.clone(),
            node: self.me.node.to_string(),
            listening: listening.to_vec(),
            serves: self.serves,
            ends,
        };
        (Page { list, more: next.is_some() }, next)
    }
}

fn named_end(now: Time, entry: &NameEntry<'_>) -> NamedEnd {
    NamedEnd {
        name: entry.name.to_owned(),
        face: word(entry.face.face).to_owned(),
        shared: entry.face.shared,
        encoding: encoding(entry.face).to_owned(),
        node: entry.who.node.to_string(),
        addresses: entry.addresses.to_vec(),
        state: match entry.state {
            EntryState::Unadmitted => State::Unadmitted,
            EntryState::Waiting => State::Waiting,
            EntryState::Joined => State::Joined,
            EntryState::Accepting => State::Accepting,
            _ => State::Away,
        },
        since: now.since(entry.since),
    }
}

/// The approximate size of an entry, without its name and addresses.
const ENTRY_BYTES: usize = 192;

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use dunlin_proto::Source;
    use dunlin_proto::id::{ChannelId, Incarnation, Life, NodeId};
    use dunlin_proto::wire::{Declaration, Expected, Names, Status, limits};

    use super::*;
    use crate::node::codec::{self, Encoding};
    use crate::node::far;

    const ENDS: u64 = 5_000;

    /// Declares ends of nodes with no address, with the most and longest addresses allowed, and with any in
    /// between; likewise for names.
    fn declare_many(hub: &mut Hub) {
        let face =
            Declaration { face: Face::Acceptor, shared: false, expects: Expected::Unknown, schema: Bytes::new() };
        for number in 0..ENDS {
            let node = number / 100;
            let life = Life { node: NodeId(u128::MAX - u128::from(node)), incarnation: Incarnation(1) };
            let addresses =
                vec!["a".repeat(limits::ADDRESS - (node as usize * 37) % limits::ADDRESS); node as usize % 9];
            hub.service.met(life, &addresses, Source::Unknown);
            let length = [8, 16, 100, limits::NAME][number as usize % 4];
            let name = format!("{:x<length$}", format!("{number:08}"));
            let (face, channel) = (face.clone(), ChannelId(u128::from(number) + 1));
            let said = Names::Declare { number, name, channel, face, status: Status::New };
            hub.service.heard(Time(0), life, said, &mut |_| Ok(()));
        }
    }

    #[test]
    fn a_page_of_many_names_takes_at_most_256_kib_and_an_entry() {
        far::driver().with_hub_now(|hub, cx| {
            declare_many(hub);
            let (mut next, mut pages, mut names) = (Some(Bookmark::default()), 0, Vec::new());
            while let Some(from) = next {
                let (page, behind) = hub.page_of_names(cx.now, &["tcp://sea:7400".to_owned()], &from);
                names.extend(page.list.ends.iter().map(|end| end.name.clone()));
                let ends = page.list.ends.iter();
                let entry = ends.map(|end| codec::length(end, Encoding::Cbor)).max().unwrap_or_default();
                let bytes = codec::length(&page, Encoding::Cbor);
                assert!(bytes <= (256 << 10) + entry, "{bytes} bytes, and {entry} of an entry");
                assert!(behind.is_none() || bytes >= 128 << 10, "{bytes} bytes, and more follow");
                (next, pages) = (behind, pages + 1);
            }
            assert!(pages > 10, "{pages} pages");
            assert!(names.is_sorted() && names.len() == ENDS as usize, "{} names", names.len());
        });
    }
}
