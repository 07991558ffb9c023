//! How a node with a role closes, and which members its main node still has.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use dunlin_sorted::SortedMap;

use super::known::{Enrolled, Leave, Roles, SAY_LEAVING};
use super::words::Notice;
use crate::node::peer::Peer;
use crate::node::role::{Member, Role};
use crate::node::state::Driver;
use crate::world;

impl Roles {
    /// Called before a node leaves; takes at most this long. Returns the members that have not left by then.
    pub(in crate::node) async fn close(&self, driver: &Arc<Driver>, patience: Duration) -> Vec<Member> {
        match self.role {
            None => Vec::new(),
            Some(Role::Main) => close(self, driver, patience).await,
            Some(Role::Member) => {
                self.leave.send_if_modified(|leave| {
                    let asks = *leave == Leave::No;
                    *leave = if asks { Leave::Asked } else { *leave };
                    asks
                });
                let mut leave = self.leave.subscribe();
                let _ = world::within(SAY_LEAVING.min(patience), leave.wait_for(|leave| *leave == Leave::Said)).await;
                Vec::new()
            }
        }
    }

    pub(super) fn members(&self, driver: &Driver) -> Vec<Member> {
        let now = driver.now();
        let member = |(peer, member): (&Peer, &Enrolled)| Member {
            peer: *peer,
            name: member.name.clone(),
            host: member.host.clone(),
            process: member.process,
            since: now.since(member.since),
            leaves: member.leaves,
        };
        self.members.borrow().iter().map(member).collect()
    }
}

/// Notifies the members that the application closes, and waits until they have left. Returns those that have
/// not.
async fn close(roles: &Roles, driver: &Arc<Driver>, patience: Duration) -> Vec<Member> {
    let within = roles.shutdown.min(patience);
    // A cancelled `leave` has already notified them.
    if roles.closing.send_replace(Some(within)).is_none() {
        driver.with_hub_now(|hub, _| hub.closing(within));
        roles.members.send_modify(|members| {
            members.values_mut().for_each(|member| member.tell(&Notice::Closing(within)));
        });
    }
    let mut members = roles.members.subscribe();
    let all_left = |members: &SortedMap<_, _>| members.is_empty() && roles.departing.load(Ordering::Relaxed) == 0;
    let _ = world::within(within, members.wait_for(all_left)).await;
    drop(members);
    roles.members(driver)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::mpsc;
    use std::task::{Context, Waker};

    use super::*;
    use crate::node::Node;

    /// A main node leaves once its last member has, and that member's event is not lost.
    #[test]
    fn a_main_node_waits_for_the_event_of_its_last_member() {
        crate::block_on(async {
            let join = |role| {
                let node = Node::builder().app("last member").names("memory:names-of-last-member");
                node.listen("memory:").role(role).join()
            };
            let main = join(Role::Main).await.unwrap();
            let member = join(Role::Member).await.unwrap();
            let (roles, driver, peer) = (&main.inner.roles, &main.inner.driver, member.me());
            // It notifies the members, and is cancelled.
            assert!(close(roles, driver, Duration::ZERO).await.len() == 1);
            let guest = roles.members.borrow().get(&peer).unwrap().guest;
            let (holds, held) = mpsc::channel();
            let (release, released) = mpsc::channel::<()>();
            std::thread::scope(|threads| {
                threads.spawn(move || {
                    driver.with_hub_now(|_, _| {
                        holds.send(()).unwrap();
                        let _ = released.recv();
                    });
                });
                held.recv().unwrap();
                // It cannot send the event.
                threads.spawn(|| roles.gone(driver, peer, guest));
                while !roles.members.borrow().is_empty() {
                    std::thread::yield_now();
                }
                let mut closes = pin!(close(roles, driver, Duration::from_secs(60)));
                let early = closes.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                release.send(()).unwrap();
                assert!(early.is_pending(), "the event has not been sent");
            });
            assert!(close(roles, driver, Duration::from_secs(60)).await.is_empty());
        });
    }
}
