//! Roles: a main node, and members that belong to it.
//!
//! An application can do without: then its nodes are equals, and [`Node::leave`] asks nobody. With roles one
//! node is the [main](Role::Main) one and others are its [members](Role::Member); nodes without a role are
//! guests, which the main node neither knows nor waits for.
//!
//! ```
//! use dunlin::node::{NodeEvent, Role};
//! use dunlin::prelude::*;
//!
//! # dunlin::block_on(async {
//! // Two programs, usually. The member may be started first: it waits for the main node, and says so.
//! let builder = |role| Node::builder().app("farm").names("memory:farm").listen("memory:").role(role);
//! let worker = spawn(async move {
//!     let node = builder(Role::Member).named("worker-1").join().await?;
//!     let work = async { /* receives, computes, sends */ std::future::pending::<()>().await };
//!     alt! {
//!         () = future(work) => {}
//!         within = future(node.closing()) => println!("the farm closes, within {within:?}"),
//!     }
//!     node.leave().await
//! });
//!
//! let node = builder(Role::Main).named("master").join().await?;
//! let mut events = node.events();
//! while !matches!(events.recv().await?, NodeEvent::Joined { name, .. } if name == "worker-1") {}
//! assert_eq!(node.members()[0].name, "worker-1");
//! node.leave().await?; // returns once the worker has left
//! worker.await?
//! # }).unwrap();
//! ```
//!
//! - **Joining.** A member's [`join`](super::NodeBuilder::join) returns once the main node has admitted it.
//!   Until then it waits, as [`waits::snapshot`](crate::waits::snapshot), a `tracing` event and
//!   [`NodeBuilder::on_wait`](super::NodeBuilder::on_wait) show;
//!   [`NodeBuilder::wait_for_main`](super::NodeBuilder::wait_for_main) bounds that.
//! - **One main node.** A second one is [`NodeError::SecondMain`]. When the main node is lost, another may be
//!   started as soon as that is noticed, and the name service's lease of 3 s is over. The death of a process
//!   on the same host is noticed at once, otherwise at the latest after
//!   [`NodeBuilder::grace`](super::NodeBuilder::grace). Its members are told
//!   [`NodeEvent::MainLost`](super::NodeEvent::MainLost), go on, and belong to the next main node when it
//!   comes. What holds of names in a network that is split holds of the main node's: each part may have one.
//! - **Shutdown.** [`Node::leave`] of the main node tells its members, which hear it by [`Node::closing`] and
//!   as [`NodeEvent::Closing`](super::NodeEvent::Closing), and waits until all have left, or are lost; but
//!   not for longer than [`NodeBuilder::shutdown`](super::NodeBuilder::shutdown). Then it leaves itself, and
//!   with it, if it serves them, go the names. Who has not left is in [`NodeError::Stragglers`].
//!
//! All of this goes over channels of a bundle, as those of programs do: the main node has an acceptor of the
//! name `dunlin.main`, and its members are the clients.

mod closing;
mod known;
mod main;
mod member;
mod words;

use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::Location;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use dunlin_core::waits::{Doing, Pid, Watch};

pub(super) use known::{Roles, SAY_LEAVING};

pub use super::role::{Member, Role};
use super::state::Driver;
use super::{NameError, Node, NodeError, Peer};
use crate::lock::lock;
use crate::world::{self, Timer};

/// Where the main node is found.
const MAIN: &str = "dunlin.main";

/// So long the main node waits for its members, unless a setting says otherwise. They need up to 5 s to leave
/// themselves.
const SHUTDOWN: Duration = Duration::from_secs(10);

/// After so long `join` says that it waits, ...
const FIRST_SAID: Duration = Duration::from_millis(250);
/// ... and then again so often.
const SAID_AGAIN: Duration = Duration::from_secs(5);

/// After so long a member tries again to enrol.
const AGAIN: Duration = Duration::from_millis(250);

/// What [`NodeBuilder::join`](super::NodeBuilder::join) waits for: told to
/// [`NodeBuilder::on_wait`](super::NodeBuilder::on_wait).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct JoinWait {
    /// The application.
    pub application: String,
    /// What this node is to be.
    pub role: Role,
    /// For how long it has waited.
    pub waited: Duration,
    /// Why no name service is reached. `None`: one is, so that only the main node is missing.
    pub without_names: Option<String>,
}

impl fmt::Display for JoinWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { application, role, waited, without_names } = self;
        match (role, without_names) {
            (_, Some(why)) => write!(
                f,
                "waiting for a name service of the application {application:?} for {waited:.1?} ({why}): start the node that \
                 serves it, or say where it is (names = \"host:port\")"
            ),
            (Role::Member, None) => write!(
                f,
                "waiting for the main node of the application {application:?} for {waited:.1?}: start it, with the same names: the \
                 node with role = \"main\" (in a program `.role(Role::Main)`)"
            ),
            (Role::Main, None) => write!(
                f,
                "waiting for the name service of the application {application:?} for {waited:.1?}: a main node that was \
                 there before is only known to be gone after its lease"
            ),
        }
    }
}

type OnWait = Box<dyn FnMut(&JoinWait) + Send>;

/// What the builder was told.
#[derive(Default)]
pub(super) struct Settings {
    pub(super) role: Option<(Role, &'static Location<'static>)>,
    pub(super) name: Option<String>,
    pub(super) patience: Option<Duration>,
    pub(super) shutdown: Option<Duration>,
    pub(super) on_wait: Option<OnWait>,
}

impl Settings {
    /// What the node knows of its role at first.
    pub(super) fn roles(&self, me: Peer) -> Arc<Roles> {
        let name = self.name.clone().unwrap_or_else(|| me.to_string());
        Roles::new(self.role(), name, self.shutdown.unwrap_or(SHUTDOWN))
    }

    pub(super) fn role(&self) -> Option<Role> {
        Some(self.role?.0)
    }

    /// What the configuration says, and what was said in the program, which comes first.
    pub(super) fn settle(&mut self, role: Option<Role>, name: Option<String>) {
        self.role = self.role.or_else(|| Some((role?, Location::caller())));
        self.name = name;
    }

    /// Waits, and says so, for what lets this node in.
    async fn patiently<T>(
        &mut self,
        driver: &Arc<Driver>,
        application: &str,
        entry: impl Future<Output = Result<T, NodeError>>,
    ) -> Result<T, NodeError> {
        let Some((role, made)) = self.role else { return entry.await };
        crate::time::keep_ticking();
        let began = driver.now();
        let wait = || JoinWait {
            application: application.to_owned(),
            role,
            waited: driver.now().since(began),
            without_names: driver.with_hub_now(|hub, _| hub.without_names()),
        };
        let mut watch = Watch::default();
        let mut entry = pin!(entry);
        let mut say_at = FIRST_SAID;
        let until = |say_at: Duration, patience: Option<Duration>| patience.map_or(say_at, |max| max.min(say_at));
        let mut timer = pin!(Timer::after(until(say_at, self.patience)));
        poll_fn(|cx| {
            let polled = loop {
                if let Poll::Ready(entered) = entry.as_mut().poll(cx) {
                    break Poll::Ready(entered);
                }
                if timer.as_mut().poll(cx).is_pending() {
                    break Poll::Pending;
                }
                let wait = wait();
                if self.patience.is_some_and(|max| wait.waited >= max) {
                    break Poll::Ready(Err(wait.into()));
                }
                tracing::info!(target: "dunlin::node", application, "{wait}");
                if let Some(told) = &mut self.on_wait {
                    told(&wait);
                }
                say_at = wait.waited + SAID_AGAIN;
                timer.set(Timer::after(until(say_at, self.patience).saturating_sub(wait.waited)));
            };
            watch.note(polled, Doing::Future, Pid::OUTSIDE, made)
        })
        .await
    }
}

impl From<JoinWait> for NodeError {
    /// It was waited for too long.
    fn from(wait: JoinWait) -> Self {
        let JoinWait { application, role, waited, without_names } = wait;
        match role {
            Role::Member => Self::NoMain { application, waited, without_names },
            Role::Main => Self::NoNames { application, waited, without_names },
        }
    }
}

/// The node takes up its role. Once this returns, it has it.
pub(super) async fn enter(node: Node, mut settings: Settings) -> Result<Node, NodeError> {
    let entered = {
        let inner = &node.inner;
        let Some(role) = inner.roles.role else { return Ok(node) };
        let entry = async {
            let (roles, driver, application) = (&inner.roles, &inner.driver, &inner.config.app.value);
            let keep = |task| lock(&inner.tasks).push(task);
            match role {
                Role::Main => keep(main::enter(roles, driver, node.me(), application).await?),
                Role::Member => {
                    let (task, entered) = member::enter(roles, driver);
                    keep(task);
                    entered.await?;
                }
            }
            tracing::info!(target: "dunlin::node", application, %role, "joined");
            Ok(())
        };
        settings.patiently(&inner.driver, &inner.config.app.value, entry).await
    };
    match entered {
        Ok(()) => Ok(node),
        Err(why) => {
            // It gives up its addresses. If that takes longer, it goes on without this call: a main node may
            // have admitted it meanwhile, and has to be told.
            let _ = world::within(AGAIN, node.leave()).await;
            Err(why)
        }
    }
}

impl Node {
    /// What this node is in its application, if it has a [role](super::roles).
    pub fn role(&self) -> Option<Role> {
        self.inner.roles.role
    }

    /// How this node calls itself: see [`NodeBuilder::named`](super::NodeBuilder::named).
    pub fn name(&self) -> &str {
        &self.inner.roles.name
    }

    /// The members that a main node has. At other nodes: nobody.
    pub fn members(&self) -> Vec<Member> {
        self.inner.roles.members(&self.inner.driver)
    }

    /// Waits until the application closes: [`leave`](Self::leave) of its main node has been called. Gives how
    /// long that waits for this one. Once this node has left itself, it gives zero.
    ///
    /// A program should come to an end then, and leave. The future can be a branch of a choice, and is the
    /// program's own: it may outlive the node.
    ///
    /// # Examples
    /// See [`roles`](super::roles).
    pub fn closing(&self) -> impl Future<Output = Duration> + Send + 'static {
        let mut closing = self.inner.roles.closing.subscribe();
        async move { closing.wait_for(Option::is_some).await.map_or(Duration::ZERO, |within| within.unwrap_or_default()) }
    }
}

/// Of a name that only nodes declare.
fn unusable(name: NameError) -> NodeError {
    NodeError::Enrol(name)
}
