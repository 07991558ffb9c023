//! The fifth transport: two nodes in one program, over TCP on loopback.
//!
//! Sockets, time and the runtime's threads are real, so a seed determines only the order of the law's own
//! tasks, not a run. This transport shows that a node on tokio behaves as the simulated node does.
//!
//! It detects quiescence as follows. When the rig's tasks rest, all woken tasks of the nodes have run and
//! neither node works on a channel, it sends and receives a value each way. By then, everything that a node
//! had sent before has arrived, and so has every immediate answer. If the nodes received nothing but these
//! two values meanwhile, nothing was in flight; otherwise it sends the values again. A law that expects no
//! event is judged only after that.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use dunlin::node::{Node, NodeBuilder, Records};
use dunlin::{Callee, Caller, Policy, Portable, Receiver, Sender, rendezvous};

use crate::joined;
use crate::kind::Kind;
use crate::rig::Rig;
use crate::transport::{Background, Feature, Transport};

/// The messages a node receives for a value each way: an offer, and the notice that its value was taken.
const HEARD: u64 = 2;

/// More rounds than any exchange takes: nodes that still send after them would send for ever.
const ROUNDS_MAX: u32 = 10_000;

/// How many turns of the runtime's only worker thread run every task that was woken before: in one turn the
/// worker runs all its tasks, or 61 of them.
const TURNS: u32 = 4;

/// A node that has not finished a few round trips by then never will.
const PATIENCE: Duration = Duration::from_secs(20);

/// Two nodes, over TCP or a substitute for it.
pub struct Tcp {
    name: &'static str,
    world: Rc<World>,
    /// What the nodes hold for the two permanent channels that the quiescence check uses.
    own: [Records; 2],
    next: Cell<u64>,
    random: RefCell<crate::rig::Random>,
}

struct World {
    runtime: tokio::runtime::Runtime,
    nodes: [Node; 2],
    forth: RefCell<(Sender<()>, Receiver<()>)>,
    back: RefCell<(Sender<()>, Receiver<()>)>,
}

impl World {
    fn new(node: impl Fn() -> NodeBuilder) -> Self {
        static WORLDS: AtomicU32 = AtomicU32::new(0);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("the system gives a thread");
        let (nodes, forth, back) = runtime.block_on(async {
            // Each world has its own address for the name service, so that tests can run concurrently.
            let names = format!("memory:laws-{}", WORLDS.fetch_add(1, Ordering::Relaxed));
            let join = || async { node().app("laws").names(&names).join().await.expect("joins") };
            let nodes = [join().await, join().await];
            let forth = channel(&nodes[0], &nodes[1], "forth", rendezvous()).await;
            let back = channel(&nodes[1], &nodes[0], "back", rendezvous()).await;
            (nodes, forth, back)
        });
        Self { runtime, nodes, forth: RefCell::new(forth), back: RefCell::new(back) }
    }

    /// Returns when neither node sends any more.
    fn rest(&self) {
        let (mut forth, mut back) = (self.forth.borrow_mut(), self.back.borrow_mut());
        self.runtime.block_on(async {
            for _ in 0..ROUNDS_MAX {
                let rested = self.have_run().await;
                let before = self.heard();
                let (one, other) = dunlin::par!(cross(&mut forth), cross(&mut back));
                one.and(other).expect("the connection lives");
                // The values themselves may have woken tasks.
                let rests = self.have_run().await;
                if rested && rests && self.heard() == before.map(|heard| heard + HEARD) {
                    return;
                }
            }
            panic!("the nodes speak to each other for ever");
        });
    }

    /// Waits until all tasks that were woken before have run; returns whether the nodes have no work then.
    async fn have_run(&self) -> bool {
        let turns = self.runtime.spawn(async {
            for _ in 0..TURNS {
                tokio::task::yield_now().await;
            }
        });
        turns.await.expect("it does not panic");
        !self.nodes.iter().any(Node::is_at_work)
    }

    fn heard(&self) -> [u64; 2] {
        [self.nodes[0].heard(), self.nodes[1].heard()]
    }

    fn records(&self) -> [Records; 2] {
        [self.nodes[0].records(), self.nodes[1].records()]
    }
}

/// Sends a value across; the notice that it was received comes back.
async fn cross((tx, rx): &mut (Sender<()>, Receiver<()>)) -> dunlin::Result {
    let (sent, received) = dunlin::par!(tx.send(()), rx.recv());
    sent?;
    Ok(received?)
}

async fn channel<T: Portable>(from: &Node, to: &Node, name: &str, policy: Policy) -> (Sender<T>, Receiver<T>) {
    let rx = to.receiver::<T>(name).policy(policy).await.expect("declared");
    (from.sender::<T>(name).await.expect("declared"), rx)
}

impl Default for Tcp {
    fn default() -> Self {
        Self::over("tcp", || Node::builder().listen("127.0.0.1:0"))
    }
}

impl Tcp {
    /// Two nodes over another network: `node` returns the settings of either node, with the network and the
    /// address it listens at. `name` is for the table.
    pub fn over(name: &'static str, node: impl Fn() -> NodeBuilder) -> Self {
        let world = Rc::new(World::new(node));
        world.rest();
        let own = world.records();
        Self { name, world, own, next: Cell::new(0), random: RefCell::new(crate::rig::Random::new(0)) }
    }

    /// Waits until the condition holds; that takes some round trips, and no event marks it.
    fn until(&self, so: impl Fn() -> bool) -> bool {
        let began = std::time::Instant::now();
        while !so() {
            if began.elapsed() > PATIENCE {
                return false;
            }
            self.world.rest();
        }
        true
    }
}

impl Transport for Tcp {
    fn name(&self) -> &'static str {
        self.name
    }

    fn begin(&self, rig: &Rig, seed: u64) {
        self.random.replace(crate::rig::Random::new(seed));
        let world = self.world.clone();
        rig.at_rest(move || world.rest());
    }

    fn end(&self) {
        let records = || self.world.records();
        assert!(self.until(|| records() == self.own), "records are left: {:?}, not only {:?}", records(), self.own);
    }

    fn seeds_max(&self) -> u64 {
        1
    }

    fn channel<T: Portable>(&self, policy: Policy, spawn: &mut dyn FnMut(Background)) -> (Sender<T>, Receiver<T>) {
        let from = self.random.borrow_mut().below(2) as usize;
        self.channel_from(from, policy, spawn)
    }

    fn has_nodes(&self) -> bool {
        true
    }

    fn channel_from<T: Portable>(
        &self,
        side: usize,
        policy: Policy,
        _: &mut dyn FnMut(Background),
    ) -> (Sender<T>, Receiver<T>) {
        let number = self.next.get();
        self.next.set(number + 1);
        let [one, other] = [&self.world.nodes[side], &self.world.nodes[1 - side]];
        let name = format!("law-{number}");
        let ends = self.world.runtime.block_on(channel(one, other, &name, policy));
        let found = || [one, other].iter().all(|node| node.waiting().iter().all(|end| end.name != name));
        assert!(self.until(found), "the sender has not found its receiver");
        ends
    }

    fn stretch<T: Portable>(&self, receiver: Receiver<T>, _: &mut dyn FnMut(Background)) -> Option<Receiver<T>> {
        let from = self.random.borrow_mut().below(2) as usize;
        Some(self.carry(receiver, from))
    }

    fn carry<E: Portable>(&self, end: E, side: usize) -> E {
        let (mut tx, mut rx) = self.channel_from::<E>(side, rendezvous(), &mut |_| {});
        self.world.runtime.block_on(async {
            let (sent, received) = dunlin::par!(tx.send(end), rx.recv());
            sent.map_err(|error| error.to_string()).expect("the send succeeds");
            received.expect("the receive succeeds")
        })
    }

    fn call_from<Q: Portable, A: Portable>(
        &self,
        side: usize,
        spawn: &mut dyn FnMut(Background),
    ) -> Option<(Caller<Q, A>, Callee<Q, A>)> {
        let (requests, asked) = self.channel_from(side, Policy::default(), spawn);
        Some(dunlin::agent::calls(requests, asked))
    }

    fn hole(&self, feature: Feature, kind: &Kind) -> Option<&'static str> {
        hole(feature, kind)
    }
}

impl fmt::Debug for Tcp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tcp").field("nodes", &self.world.nodes).finish_non_exhaustive()
    }
}

/// The features that ends on two nodes lack.
pub(crate) fn hole(feature: Feature, kind: &Kind) -> Option<&'static str> {
    match feature {
        Feature::Stretched if !kind.policy.is_portable() => {
            Some("Why::Unsendable: a policy of one's own is not known at the other node (tests/simulated.rs)")
        }
        Feature::Moved => Some("a value crosses as a copy, and both are dropped (tests/simulated.rs)"),
        Feature::BufferedValues => Some("what is buffered is bytes, and a value is dropped when its send is over"),
        _ => joined::hole(feature, kind),
    }
}
