//! A node with another name service in the place of the registry: the hub knows only its interface.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dunlin_proto::id::{Life, NodeId};
use dunlin_proto::names::{NameEntry, NameService};
use dunlin_proto::time::Time;
use dunlin_proto::wire::Names;
use dunlin_proto::{Down, Source};
use tokio::sync::mpsc;

use crate::lock::lock;
use crate::node::builder::registry;
use crate::node::inquiry::Bookmark;
use crate::node::{NameError, Node};

/// How long the service delays its answers.
const PAUSE: Duration = Duration::from_millis(5);
/// How many bytes the declarations of a node take beside those that the registry counts.
const BYTES: u64 = 1 << 20;
/// How many steps each declaration takes.
const STEPS: u64 = 1000;
/// The name that it gives to no end.
const REFUSED: &str = "neap";

/// The calls that a [`Late`] has received.
#[derive(Default)]
struct Seen {
    heard: u64,
    met: Vec<(Life, Source)>,
}

/// A name service that refuses a name, and gives no answer at once, as one that asks other nodes.
/// Declarations take more memory and more steps than in the registry behind it.
struct Late {
    registry: Box<dyn NameService>,
    refusals: VecDeque<(Life, Names)>,
    /// Until then it gives no answer.
    until: Option<Time>,
    seen: Arc<Mutex<Seen>>,
    /// Receives each node that was lost.
    lost: mpsc::UnboundedSender<NodeId>,
}

impl NameService for Late {
    fn take_over(&mut self, now: Time) {
        self.registry.take_over(now);
    }

    fn met(&mut self, life: Life, addresses: &[String], source: Source) {
        lock(&self.seen).met.push((life, source));
        self.registry.met(life, addresses, source);
    }

    fn lost(&mut self, now: Time, node: NodeId, why: &Down) {
        self.registry.lost(now, node, why);
        let _ = self.lost.send(node);
    }

    fn heard(&mut self, now: Time, from: Life, said: Names, has_room: &mut dyn FnMut(u64) -> Result<(), u64>) -> u64 {
        lock(&self.seen).heard += 1;
        self.until = Some(now + PAUSE);
        match said {
            Names::Declare { number, name, .. } if name == REFUSED => {
                self.refusals.push_back((from, Names::BadName { number }));
                STEPS
            }
            said => STEPS + self.registry.heard(now, from, said, &mut |bytes| has_room(bytes + BYTES)),
        }
    }

    fn poll(&mut self) -> Option<(Life, Names)> {
        if self.until.is_some() {
            return None;
        }
        self.refusals.pop_front().or_else(|| self.registry.poll())
    }

    fn tick(&mut self, now: Time) {
        self.registry.tick(now);
        self.until = self.until.filter(|until| *until > now);
    }

    fn next_tick(&self) -> Option<Time> {
        self.registry.next_tick().into_iter().chain(self.until).min()
    }

    fn cost_of(&self, node: NodeId) -> u64 {
        let cost = self.registry.cost_of(node);
        if cost == 0 { 0 } else { cost + BYTES }
    }

    fn entries_from<'a>(&'a self, first: &str) -> Box<dyn Iterator<Item = NameEntry<'a>> + 'a> {
        self.registry.entries_from(first)
    }
}

/// The names that this node lists, in its first page.
fn listed(node: &Node) -> Vec<String> {
    let driver = &node.inner.driver;
    let page = driver.with_hub_now(|hub, cx| Some(hub.page_of_names(cx.now, &[], &Bookmark::default()).0));
    page.expect("it has not left").list.ends.into_iter().map(|end| end.name).collect()
}

/// The bytes that are charged to a node for its declarations, and the steps that are charged to all.
fn charged(here: &Node, there: NodeId) -> (u64, u64) {
    here.inner.driver.with(|state, _| (state.machine.held_for(there), state.machine.steps()))
}

#[test]
fn a_node_works_with_another_name_service() {
    let builder = |listen| Node::builder().app("late").no_config().names("memory:late").listen(listen);
    let test = async {
        let seen = Arc::<Mutex<Seen>>::default();
        let (registry, refusals, until) = (registry(), VecDeque::new(), None);
        let (lost, mut losses) = mpsc::unbounded_channel();
        let service = Late { registry, refusals, until, seen: seen.clone(), lost };
        let here = builder("memory:late").enter(Box::new(service)).await?;
        let there = builder("memory:").join().await?;
        let (me, other) = (here.inner.me, there.inner.me);

        // Ends of both nodes find each other, though no answer comes at once.
        let mut rx = here.receiver::<u32>("spring").await?;
        let mut tx = there.sender::<u32>("spring").await?;
        let (sent, received) = crate::par!(tx.send(7), rx.recv());
        sent?;
        assert_eq!(received?, 7);

        // What it refuses is refused at both.
        let refused = NameError::BadName(REFUSED.to_owned());
        assert_eq!(here.sender::<u32>(REFUSED).await.unwrap_err(), refused);
        assert_eq!(there.sender::<u32>(REFUSED).await.unwrap_err(), refused);
        assert!(listed(&here).contains(&"spring".to_owned()));
        assert!(!listed(&here).contains(&REFUSED.to_owned()));

        // What it counts is charged.
        let (bytes, steps) = charged(&here, other.node);
        assert!(bytes > BYTES, "{bytes} bytes");
        assert_eq!(steps, lock(&seen).heard * STEPS);

        // A node that leaves is lost, and its declarations are free.
        assert!(lock(&seen).met.contains(&(me, Source::Unknown)));
        assert!(lock(&seen).met.iter().any(|(life, _)| *life == other));
        there.leave().await?;
        // The hub has the node's lock until it has counted the declarations anew.
        assert_eq!(losses.recv().await, Some(other.node));
        assert_eq!(charged(&here, other.node).0, 0);
        drop((tx, rx));
        here.leave().await
    };
    let limited = async { tokio::time::timeout(Duration::from_secs(60), test).await.expect("the test hangs") };
    crate::block_on(limited).unwrap();
}
