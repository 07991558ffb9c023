//! The main node: it admits members, sends them notices of one another, and waits for them before it leaves.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use dunlin_core::{Receiver, alt, channel_with, overwrite_oldest};
use dunlin_proto::wire::Face;

use super::known::{Enrolled, Roles};
use super::words::{Admitted, Hello, Membership, MembershipServer, Notice};
use super::{MAIN, unusable};
use crate::node::state::Driver;
use crate::node::{Acceptor, Guest, NameError, Naming, NodeError, Peer, words};
use crate::world::{self, Own, Timer};

/// The interval at which a main node that has lost its name tries to declare it again.
const AGAIN: Duration = Duration::from_secs(1);

/// How many notices are kept for a member that does not receive them.
const NOTICES: usize = 1024;

/// The most characters of a member's name; the rest is cut off.
const NAME_MAX: usize = 255;

type Guests = Receiver<Guest<MembershipServer>>;

/// Takes the name of the main node.
pub(super) async fn enter(
    roles: &Arc<Roles>,
    driver: &Arc<Driver>,
    me: Peer,
    application: &str,
) -> Result<Own, NodeError> {
    let guests = declare(driver).await.map_err(|why| match why {
        NameError::Refused { holder, address, .. } => {
            NodeError::SecondMain { application: application.to_owned(), holder, address }
        }
        why => unusable(why),
    })?;
    Ok(world::spawn_own(receive(roles.clone(), driver.clone(), me, guests)))
}

async fn declare(driver: &Arc<Driver>) -> Result<Guests, NameError> {
    Naming::<Acceptor<Membership>>::new(driver, MAIN, Face::Acceptor).reserved().await
}

/// Receives members while the node lives.
async fn receive(roles: Arc<Roles>, driver: Arc<Driver>, me: Peer, mut guests: Guests) {
    let mut number = 0;
    loop {
        while let Ok(guest) = guests.recv().await {
            number += 1;
            world::spawn_own(attend(roles.clone(), Arc::downgrade(&driver), me, number, guest));
        }
        // Two parts of a network have met, and each had a main node: the other one holds the name until it is
        // gone. Members enrolled here stay.
        guests = loop {
            match declare(&driver).await {
                Ok(guests) => break guests,
                Err(NameError::Left) => return,
                Err(_) => Timer::after(AGAIN).await,
            }
        };
    }
}

/// Admits a member, and sends it notices until it is gone.
async fn attend(roles: Arc<Roles>, driver: Weak<Driver>, me: Peer, number: u64, guest: Guest<MembershipServer>) {
    let peer = guest.peer();
    let MembershipServer { mut enrol, notices: mut tells, mut leaves } = guest.into_face();
    let Ok(asked) = enrol.accept().await else { return };
    let (hello, reply) = asked.split();
    let Some(hello) = words::decode(&hello) else { return };
    let (notices, mut news) = channel_with(overwrite_oldest(NOTICES));
    let enrol = |driver: Arc<Driver>| {
        let Hello { name, host, process } = hello;
        let since = driver.now();
        let (name, host) = (tidy(&name), tidy(&host));
        let member = Enrolled { guest: number, name, host, process, since, leaves: false, notices };
        roles.admit(&driver, me, peer, member)
    };
    // If this main node is closing, the next one will admit the member.
    let Some(admitted) = driver.upgrade().and_then(enrol) else { return };
    let _ = reply.send(words::encode(&admitted));
    loop {
        alt! {
            said = leaves.recv() => match said {
                Ok(_) => {
                    roles.members.send_if_modified(|members| {
                        members.get_mut(&peer).map(|member| member.leaves = true).is_some()
                    });
                }
                Err(_) => break,
            },
            notice = news.recv() => match notice {
                Ok(notice) => if tells.send(notice).await.is_err() { break },
                Err(_) => break,
            },
        }
    }
    if let Some(driver) = driver.upgrade() {
        roles.gone(&driver, peer, number);
    }
}

/// Another node's name, made fit to display.
fn tidy(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(NAME_MAX).collect()
}

impl Roles {
    fn admit(&self, driver: &Arc<Driver>, me: Peer, peer: Peer, mut member: Enrolled) -> Option<Admitted> {
        if self.closing.borrow().is_some() {
            return None;
        }
        let name = member.name.clone();
        let mut others = Vec::new();
        let (number, mut before) = (member.guest, None);
        self.members.send_modify(|members| {
            // The same life of a node has called twice, since the first answer was late.
            before = members.get(&peer).map(|member| (member.guest, member.since));
            if before.is_some_and(|(guest, _)| guest > number) {
                return;
            }
            member.since = before.map_or(member.since, |(_, since)| since);
            for (other, enrolled) in members.iter_mut().filter(|(other, _)| **other != peer) {
                others.push(((*other).into(), enrolled.name.clone()));
                if before.is_none() {
                    enrolled.tell(&Notice::Joined(peer.into(), name.clone()));
                }
            }
            members.insert(peer, member);
        });
        match before {
            Some((guest, _)) if guest > number => return None,
            Some(_) => {}
            None => driver.with_hub_now(|hub, _| hub.joined(peer, &name)),
        }
        Some(Admitted { main: me.into(), name: self.name.clone(), members: others })
    }

    pub(super) fn gone(&self, driver: &Arc<Driver>, peer: Peer, guest: u64) {
        let mut gone = None;
        // Until the event has been sent the member counts as departing: the node may leave after its last
        // member.
        self.members.send_if_modified(|members| {
            if members.get(&peer).is_none_or(|member| member.guest != guest) {
                return false;
            }
            gone = members.remove(&peer).map(|member| member.leaves);
            self.departing.fetch_add(1, Ordering::Relaxed);
            let in_order = gone.unwrap_or_default();
            members.values_mut().for_each(|other| other.tell(&Notice::Left(peer.into(), in_order)));
            false
        });
        if let Some(in_order) = gone {
            driver.with_hub_now(|hub, _| hub.left(peer, in_order));
            self.members.send_modify(|_| {
                self.departing.fetch_sub(1, Ordering::Relaxed);
            });
        }
    }
}
