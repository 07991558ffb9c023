//! Roles: a main node, and members that belong to it.
//!
//! An application can do without roles: then its nodes are equals, and [`Node::leave`] asks no other node.
//! With roles one node is the [main](Role::Main) node and others are its [members](Role::Member); nodes
//! without a role are guests, which the main node neither knows nor waits for.
//!
//! ```
//! use dunlin::node::{NodeEvent, Role};
//! use dunlin::prelude::*;
//!
//! # dunlin::block_on(async {
//! // Two programs, usually. The member may be started first: it waits for the main node, and reports that.
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
//!   [`NodeBuilder::wait_for_main`](super::NodeBuilder::wait_for_main) bounds the wait.
//! - **One main node.** A second one gets [`NodeError::SecondMain`]. When the main node is lost, another may
//!   be started as soon as the loss is noticed and the name service's lease of 3 s has expired. The death of
//!   a process on the same host is noticed at once, otherwise at the latest after
//!   [`NodeBuilder::grace`](super::NodeBuilder::grace). Its members get
//!   [`NodeEvent::MainLost`](super::NodeEvent::MainLost), run on, and join the next main node when it comes.
//!   In a split network the main node's name behaves as any name: each part may have one main node.
//! - **Shutdown.** [`Node::leave`] of the main node notifies its members through [`Node::closing`] and
//!   [`NodeEvent::Closing`](super::NodeEvent::Closing), and waits until all have left or are lost, but not
//!   longer than [`NodeBuilder::shutdown`](super::NodeBuilder::shutdown). Then it leaves itself; if it serves
//!   the names, they go with it. [`NodeError::Stragglers`] lists the members that have not left.
//!
//! All of this uses channels of a bundle, as programs do: the main node has an acceptor of the name
//! `dunlin.main`, and its members are the clients.

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

/// The name of the main node's acceptor.
const MAIN: &str = "dunlin.main";

/// How long the main node waits for its members, unless a setting overrides it. They need up to 5 s to leave
/// themselves.
const SHUTDOWN: Duration = Duration::from_secs(10);

/// How long `join` waits before it first reports that it waits, ...
const FIRST_SAID: Duration = Duration::from_millis(250);
/// ... and the interval between later reports.
const SAID_AGAIN: Duration = Duration::from_secs(5);

/// The delay before a member tries again to enrol.
const AGAIN: Duration = Duration::from_millis(250);

/// What [`NodeBuilder::join`](super::NodeBuilder::join) waits for: passed to
/// [`NodeBuilder::on_wait`](super::NodeBuilder::on_wait).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct JoinWait {
    /// The application.
    pub application: String,
    /// The role that this node joins in.
    pub role: Role,
    /// How long it has waited.
    pub waited: Duration,
    /// Why no name service is reached. `None`: one is reached, and only the main node is missing.
    pub without_names: Option<String>,
}

impl fmt::Display for JoinWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { application, role, waited, without_names } = self;
        match (role, without_names) {
            (_, Some(why)) => write!(
                f,
                "waiting for a name service of the application {application:?} for {waited:.1?} ({why}): start the \
                 node that serves the names, or give its address (names = \"host:port\")"
            ),
            (Role::Member, None) => write!(
                f,
                "waiting for the main node of the application {application:?} for {waited:.1?}: start the node with \
                 role = \"main\" (in a program `.role(Role::Main)`), with the same names"
            ),
            (Role::Main, None) => write!(
                f,
                "waiting for the name service of the application {application:?} for {waited:.1?}: the lease of an \
                 earlier main node has to expire first"
            ),
        }
    }
}

type OnWait = Box<dyn FnMut(&JoinWait) + Send>;

/// The builder's settings for the role.
#[derive(Default)]
pub(super) struct Settings {
    pub(super) role: Option<(Role, &'static Location<'static>)>,
    pub(super) name: Option<String>,
    pub(super) patience: Option<Duration>,
    pub(super) shutdown: Option<Duration>,
    pub(super) on_wait: Option<OnWait>,
}

impl Settings {
    /// The initial state of the node's role.
    pub(super) fn roles(&self, me: Peer) -> Arc<Roles> {
        let name = self.name.clone().unwrap_or_else(|| me.to_string());
        Roles::new(self.role(), name, self.shutdown.unwrap_or(SHUTDOWN))
    }

    pub(super) fn role(&self) -> Option<Role> {
        Some(self.role?.0)
    }

    /// Merges the configuration's values with the program's, which take precedence.
    pub(super) fn settle(&mut self, role: Option<Role>, name: Option<String>) {
        self.role = self.role.or_else(|| Some((role?, Location::caller())));
        self.name = name;
    }

    /// Waits until this node is admitted, and reports the wait.
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
    /// The wait has timed out.
    fn from(wait: JoinWait) -> Self {
        let JoinWait { application, role, waited, without_names } = wait;
        match role {
            Role::Member => Self::NoMain { application, waited, without_names },
            Role::Main => Self::NoNames { application, waited, without_names },
        }
    }
}

/// Lets the node take up its role. It has the role once this returns.
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
            // The node gives up its addresses. If that takes longer, it continues without this call: a main
            // node may have admitted the node meanwhile, and must be notified.
            let _ = world::within(AGAIN, node.leave()).await;
            Err(why)
        }
    }
}

impl Node {
    /// This node's role in its application, if it has a [role](super::roles).
    pub fn role(&self) -> Option<Role> {
        self.inner.roles.role
    }

    /// This node's own name: see [`NodeBuilder::named`](super::NodeBuilder::named).
    pub fn name(&self) -> &str {
        &self.inner.roles.name
    }

    /// The members of a main node. Empty at other nodes.
    pub fn members(&self) -> Vec<Member> {
        self.inner.roles.members(&self.inner.driver)
    }

    /// Waits until the application closes: its main node has called [`leave`](Self::leave). Returns how long
    /// the main node waits for this one. Once this node has left, it returns zero.
    ///
    /// A program should then finish and leave. The future can be a branch of a choice, and belongs to the
    /// program: it may outlive the node.
    ///
    /// # Examples
    /// See [`roles`](super::roles).
    pub fn closing(&self) -> impl Future<Output = Duration> + Send + 'static {
        let mut closing = self.inner.roles.closing.subscribe();
        async move { closing.wait_for(Option::is_some).await.map_or(Duration::ZERO, |within| within.unwrap_or_default()) }
    }
}

/// The error for a name that only nodes declare.
fn unusable(name: NameError) -> NodeError {
    NodeError::Enrol(name)
}
