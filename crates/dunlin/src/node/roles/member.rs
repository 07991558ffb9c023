//! A member: it enrols with the main node, receives its notices, and notifies it when leaving.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use dunlin_core::{CallError, Operation, Receiver, RecvError, Sender, alt, future};
use dunlin_proto::wire::Face;
use tokio::sync::oneshot;

use super::known::{Leave, Roles};
use super::words::{Admitted, Hello, Membership, MembershipClient, Notice};
use super::{AGAIN, MAIN, unusable};
use crate::node::state::Driver;
use crate::node::{Client, NameError, Naming, NodeError, Peer, words};
use crate::world::{self, Own, Timer};

/// How often a waiting member looks for the main node again. The one that it was directed to may be lost,
/// which it would notice only after the grace period.
const RENEWED: Duration = Duration::from_secs(5);

/// Begins to enrol with the main node. The task ends with the node, not with the wait for the answer: the
/// main node may already have taken the call, and must be notified that this node leaves.
pub(super) fn enter(roles: &Arc<Roles>, driver: &Arc<Driver>) -> (Own, impl Future<Output = Result<(), NodeError>>) {
    let (entered, answer) = oneshot::channel();
    let task = world::spawn_own(belong(roles.clone(), driver.clone(), entered));
    (task, async move { answer.await.unwrap_or(Err(NameError::Left)).map_err(unusable) })
}

/// The member's ends to a main node that has taken its call.
struct Enrolment {
    notices: Receiver<Bytes>,
    leaves: Sender<Bytes>,
}

/// The outcome of a call to the main node.
enum Answer {
    Admitted(Admitted, Enrolment),
    /// The main node has taken the call, and the answer has not come in time.
    Taken(Enrolment),
    /// The main node has not taken the call, or has refused it.
    NotTaken {
        in_time: bool,
    },
}

type Calls = Vec<Pin<Box<dyn Future<Output = Answer> + Send>>>;

/// The outcome of a wait for a main node.
enum Entry {
    Admitted(Admitted, Enrolment),
    /// The node has been asked to leave. Main nodes may have taken these calls, and count the node as a
    /// member.
    Leaves(Vec<Enrolment>),
}

/// Enrols with one main node after the other, until the node leaves.
async fn belong(roles: Arc<Roles>, driver: Arc<Driver>, entered: oneshot::Sender<Result<(), NameError>>) {
    // The main node must see this member go with its connection, and not before.
    let _kept = belong_until_asked(&roles, &driver, entered).await;
    roles.leave.send_replace(Leave::Said);
    std::future::pending().await
}

async fn belong_until_asked(
    roles: &Arc<Roles>,
    driver: &Arc<Driver>,
    entered: oneshot::Sender<Result<(), NameError>>,
) -> Vec<Enrolment> {
    let mut entered = Some(entered);
    let mut asked = pin!(asked(roles.clone()));
    loop {
        let (admitted, mut enrolment) = match (enrol(roles, driver).await, entered.take()) {
            (Ok(Entry::Admitted(admitted, enrolment)), told) => {
                let _ = told.map(|told| told.send(Ok(())));
                (admitted, enrolment)
            }
            (Ok(Entry::Leaves(mut taken)), _) => {
                for enrolment in &mut taken {
                    enrolment.say_leaving(roles, driver).await;
                }
                return taken;
            }
            (Err(why), Some(told)) => {
                let _ = told.send(Err(why));
                return Vec::new();
            }
            (Err(NameError::Left), None) => return Vec::new(),
            (Err(_), None) => {
                Timer::after(AGAIN).await;
                continue;
            }
        };
        let main = Peer::from(admitted.main);
        driver.with_hub_now(|hub, _| {
            hub.joined(main, &admitted.name);
            admitted.members.iter().for_each(|(peer, name)| hub.joined((*peer).into(), name));
        });
        loop {
            alt! {
                notice = enrolment.notices.recv() => match words::received(notice) {
                    Some(notice) => hear(roles, driver, notice),
                    None => break,
                },
                () = future(asked.as_mut()) => {
                    enrolment.say_leaving(roles, driver).await;
                    return vec![enrolment];
                }
            }
        }
        roles.closing.send_replace(None);
        driver.with_hub_now(|hub, _| hub.main_lost(main));
        // The name service may notice the loss a little later.
        alt! {
            () = future(Timer::after(AGAIN)) => {}
            () = future(asked.as_mut()) => return Vec::new(),
        }
    }
}

/// Waits until the node is to leave.
async fn asked(roles: Arc<Roles>) {
    let mut leave = roles.leave.subscribe();
    let _ = leave.wait_for(|leave| *leave != Leave::No).await;
}

impl Enrolment {
    /// Notifies the main node, and handles the notices that it sends meanwhile.
    async fn say_leaving(&mut self, roles: &Roles, driver: &Arc<Driver>) {
        let mut slot = Some(Bytes::new());
        while slot.is_some() {
            let heard = alt! {
                _ = self.leaves.send_from(&mut slot) => return,
                notice = self.notices.recv() => notice,
            };
            match words::received(heard) {
                Some(notice) => hear(roles, driver, notice),
                // The main node is gone.
                None => return,
            }
        }
    }
}

/// Waits for a main node that admits this one.
async fn enrol(roles: &Arc<Roles>, driver: &Arc<Driver>) -> Result<Entry, NameError> {
    /// What has happened.
    enum Step {
        Asked,
        Declared(Result<MembershipClient, NameError>),
        Answered(Answer),
    }

    // While the outcome of a call to a lost main node is unknown, the next call is already made.
    let mut calls = Calls::new();
    // Kept until the next call is answered: without it the main node would count this member as lost.
    let mut taken = Vec::new();
    let mut wait = Duration::ZERO;
    let mut asked = pin!(asked(roles.clone()));
    loop {
        let declared = async {
            if !wait.is_zero() {
                Timer::after(wait).await;
            }
            Naming::<Client<Membership>>::new(driver, MAIN, Face::Client).reserved().await
        };
        let step = alt! {
            () = future(asked.as_mut()) => Step::Asked,
            declared = future(declared) => Step::Declared(declared),
            answer = future(first(&mut calls)) => Step::Answered(answer),
        };
        match step {
            Step::Asked => break,
            Step::Declared(face) => {
                calls.push(Box::pin(call(roles.clone(), face?)));
                wait = RENEWED + AGAIN;
            }
            Step::Answered(Answer::Admitted(admitted, enrolment)) => return Ok(Entry::Admitted(admitted, enrolment)),
            Step::Answered(Answer::Taken(enrolment)) => {
                taken.push(enrolment);
                wait = if calls.is_empty() { Duration::ZERO } else { wait };
            }
            Step::Answered(Answer::NotTaken { in_time }) if calls.is_empty() => {
                // The main node is gone again, or is closing.
                wait = if in_time { AGAIN } else { Duration::ZERO };
            }
            Step::Answered(Answer::NotTaken { .. }) => {}
        }
    }
    while !calls.is_empty() {
        match first(&mut calls).await {
            Answer::Admitted(admitted, enrolment) => return Ok(Entry::Admitted(admitted, enrolment)),
            Answer::Taken(enrolment) => taken.push(enrolment),
            Answer::NotTaken { .. } => {}
        }
    }
    Ok(Entry::Leaves(taken))
}

/// Calls the main node, until the node is to leave or the call must be repeated. The call's own outcome then
/// decides: a call that is dropped might have been taken.
async fn call(roles: Arc<Roles>, face: MembershipClient) -> Answer {
    let MembershipClient { mut enrol, notices, leaves } = face;
    let enrolment = Enrolment { notices, leaves };
    let hello = Hello { name: roles.name.clone(), host: host(), process: std::process::id() };
    let deadline = world::within(RENEWED, asked(roles));
    match enrol.call(words::encode(&hello)).until(deadline).await {
        Ok(admitted) => match words::decode(&admitted) {
            Some(admitted) => Answer::Admitted(admitted, enrolment),
            None => Answer::NotTaken { in_time: true },
        },
        Err(CallError::NoReply(RecvError::TimedOut)) => Answer::Taken(enrolment),
        Err(CallError::NotTaken { why, .. }) => Answer::NotTaken { in_time: !why.is_timed_out() },
        Err(_) => Answer::NotTaken { in_time: true },
    }
}

/// The first answer that arrives.
async fn first(calls: &mut Calls) -> Answer {
    poll_fn(|cx| {
        for (at, call) in calls.iter_mut().enumerate() {
            if let Poll::Ready(answer) = call.as_mut().poll(cx) {
                drop(calls.remove(at));
                return Poll::Ready(answer);
            }
        }
        Poll::Pending
    })
    .await
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

/// This host's name, as far as it is known.
fn host() -> String {
    let told = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let told = told.or_else(|| std::env::var("COMPUTERNAME").ok()).or_else(|| std::env::var("HOSTNAME").ok());
    told.unwrap_or_default().trim().to_owned()
}
