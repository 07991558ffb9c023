//! A member: it enrols with the main node, hears from it, and says when it leaves.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use dunlin_core::{Receiver, Sender, alt, future};
use dunlin_proto::wire::Face;
use tokio::sync::oneshot;

use super::{AGAIN, Admitted, Hello, Leave, Leaving, MAIN, Membership, MembershipClient, Notice, Roles, unusable};
use crate::node::driver::Driver;
use crate::node::{Client, NameError, Naming, NodeError, Peer};
use crate::world::{self, Own, Timer};

/// So often a member that waits asks anew for the main node. It may have been told of one that is lost, which it would hear of itself only after the
/// grace period.
const RENEWED: Duration = Duration::from_secs(5);

/// Enrols with the main node, and waits for that.
pub(super) async fn enter(roles: &Arc<Roles>, driver: &Arc<Driver>) -> Result<Own, NodeError> {
    let (entered, answer) = oneshot::channel();
    let task = Task(Some(world::spawn_own(belong(roles.clone(), driver.clone(), entered))));
    answer.await.unwrap_or(Err(NameError::Left)).map_err(unusable)?;
    Ok(task.goes_on())
}

/// Whoever gives up waiting gives up enrolling.
struct Task(Option<Own>);

impl Task {
    fn goes_on(mut self) -> Own {
        self.0.take().expect("it is taken once")
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

/// What a member has of its main node.
struct Enrolment {
    main: Peer,
    notices: Receiver<Notice>,
    leaves: Sender<Leaving>,
}

/// Belongs to one main node after the other, until the node leaves.
async fn belong(roles: Arc<Roles>, driver: Arc<Driver>, entered: oneshot::Sender<Result<(), NameError>>) {
    let mut entered = Some(entered);
    let mut leave = roles.leave.subscribe();
    let mut asked = pin!(async move {
        let _ = leave.wait_for(|leave| *leave == Leave::Asked).await;
    });
    loop {
        let enrolled = alt! {
            enrolled = future(enrol(&roles, &driver)) => enrolled,
            () = future(asked.as_mut()) => break,
        };
        let enrolled = match (enrolled, entered.take()) {
            (Ok(enrolled), told) => {
                let _ = told.map(|told| told.send(Ok(())));
                enrolled
            }
            (Err(why), Some(told)) => {
                let _ = told.send(Err(why));
                return;
            }
            (Err(NameError::Left), None) => return,
            (Err(_), None) => {
                Timer::after(AGAIN).await;
                continue;
            }
        };
        let Enrolment { main, mut notices, mut leaves } = enrolled;
        loop {
            alt! {
                notice = notices.recv() => match notice {
                    Ok(notice) => hear(&roles, &driver, notice),
                    Err(_) => break,
                },
                () = future(asked.as_mut()) => {
                    let _ = leaves.send(Leaving).await;
                    roles.leave.send_replace(Leave::Said);
                    // The main node is to see this one go with its connection, and not before.
                    return std::future::pending().await;
                }
            }
        }
        roles.closing.send_replace(None);
        driver.with_hub_now(|hub, _| hub.main_lost(main));
        // The name service may hear of it a little later.
        alt! {
            () = future(Timer::after(AGAIN)) => {}
            () = future(asked.as_mut()) => break,
        }
    }
    roles.leave.send_replace(Leave::Said);
}

/// Waits for a main node that admits this one.
async fn enrol(roles: &Roles, driver: &Arc<Driver>) -> Result<Enrolment, NameError> {
    loop {
        let face = Naming::<Client<Membership>>::new(driver, MAIN, Face::Client).reserved().await?;
        let MembershipClient { mut enrol, notices, leaves } = face;
        let hello = Hello { name: roles.name.clone(), host: host(), process: std::process::id() };
        let Admitted { main, name, members } = match world::within(RENEWED, enrol.call(hello)).await {
            Some(Ok(admitted)) => admitted,
            None => continue,
            // It is gone again, or closes.
            Some(Err(_)) => {
                Timer::after(AGAIN).await;
                continue;
            }
        };
        let main = Peer::from(main);
        driver.with_hub_now(|hub, _| {
            hub.joined(main, &name);
            members.iter().for_each(|(peer, name)| hub.joined((*peer).into(), name));
        });
        return Ok(Enrolment { main, notices, leaves });
    }
}

fn hear(roles: &Roles, driver: &Arc<Driver>, notice: Notice) {
    driver.with_hub_now(|hub, _| match notice {
        Notice::Joined(peer, ref name) => hub.joined(peer.into(), name),
        Notice::Left(peer, in_order) => hub.left(peer.into(), in_order),
        Notice::Closing(within) => hub.closing(within),
    });
    if let Notice::Closing(within) = notice {
        roles.closing.send_replace(Some(within));
    }
}

/// What this host is called, as far as that is known.
fn host() -> String {
    let told = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let told = told.or_else(|| std::env::var("COMPUTERNAME").ok()).or_else(|| std::env::var("HOSTNAME").ok());
    told.unwrap_or_default().trim().to_owned()
}
