//! How a node with a role closes, and which members its main node still has.

use std::sync::Arc;
use std::time::Duration;

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
    let _ = world::within(within, members.wait_for(|members| members.is_empty())).await;
    drop(members);
    roles.members(driver)
}
