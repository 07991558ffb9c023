//! What this node answers by itself to those who ask it, under a name that every node has.

use std::sync::Arc;

use dunlin_proto::names::{EntryState, NameEntry};
use dunlin_proto::time::Time;
use dunlin_proto::wire::Face;

use super::guests::{Acceptance, Accepted, agents_of};
use super::{Half, Hub, Options};
use crate::node::driver::Locked;
use crate::node::inquiry::{Inquiry, InquiryClient, NAME, NameList, NamedEnd, State, answer};
use crate::node::name::{encoding, word};
use crate::node::schema;
use crate::world;

impl Hub {
    /// Declares the acceptor of those who ask, to those who dial this node only: the application's name service has each name once. (If it serves that, its
    /// own is the application's.)
    pub(crate) fn answer_inquiries(&mut self, cx: &mut Locked<'_>, listening: &[String]) {
        let driver = Arc::downgrade(cx.driver);
        let (me, listening): (String, Arc<[String]>) = (self.me.node.to_string(), listening.into());
        let accept = Box::new(move |_, _: &mut Vec<Box<dyn Send>>| {
            let (client, server) = Inquiry::pair();
            let agents = agents_of(client).ok()?;
            world::spawn_own(answer(server, me.clone(), driver.clone(), listening.clone()));
            Some(Accepted { agents, full: false })
        });
        let options = Options { face: Face::Acceptor, reserved: true, own: true, ..Options::default() };
        // Nobody waits until it is admitted.
        let schema = schema::of_messages::<InquiryClient>(options.encoding);
        let _ = self.declare(cx, NAME, options, schema, Half::Acceptor(Acceptance::unwatched(accept)));
    }

    /// What is declared to this node.
    pub(crate) fn list_names(&self, now: Time, listening: &[String]) -> NameList {
        let end = |entry: NameEntry<'_>| NamedEnd {
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
        };
        NameList {
            address: self.names_at.clone(),
            node: self.me.node.to_string(),
            listening: listening.to_vec(),
            serves: self.serves,
            ends: self.registry.entries().filter(|entry| entry.name != NAME).map(end).collect(),
        }
    }
}
