//! The fourth transport: two nodes in a simulation that delays, splits and cuts their connection.
//!
//! Between the ends runs all the code of a node: `Node` with its names, bridges, encodings and the protocol's
//! machine; only time and sockets are simulated. The simulation is one task of the law's rig: it proceeds
//! when the rig polls it, and its time passes when it has nothing else to do. The law's seed determines which
//! end of a channel is on which node, and when a socket is cut.

use std::cell::RefCell;
use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use dunlin::node::{Node, Records};
use dunlin::sim::Sim;
use dunlin::{Callee, Caller, Policy, Portable, Receiver, Sender};

use crate::kind::Kind;
use crate::rig::Rig;
use crate::tcp;
use crate::transport::{Background, Feature, Transport};

/// Two nodes in a simulation.
#[derive(Default)]
pub struct Simulated {
    world: RefCell<Option<Arc<World>>>,
}

struct World {
    sim: Sim,
    nodes: [Node; 2],
    names: std::sync::atomic::AtomicU32,
}

/// A simulation without events for this long is at rest: no operation of a channel takes longer, and
/// heartbeats come later.
const REST: Duration = Duration::from_secs(100);
const HEARTBEAT: Duration = Duration::from_secs(10_000);

/// One in this many steps cuts the socket.
const CUTS: u64 = 150;

impl World {
    fn new(seed: u64) -> Self {
        let sim = Sim::new(seed);
        let node = || Node::builder().app("laws").names("names").heartbeat(HEARTBEAT).join();
        let nodes = sim.run(async { [node().await.expect("joins"), node().await.expect("joins")] });
        Self { sim, nodes, names: 0.into() }
    }

    fn channel<T: Portable>(&self, policy: Policy) -> (Sender<T>, Receiver<T>) {
        self.channel_from(self.sim.below(2) as usize, policy)
    }

    fn channel_from<T: Portable>(&self, from: usize, policy: Policy) -> (Sender<T>, Receiver<T>) {
        let name = self.names.fetch_add(1, std::sync::atomic::Ordering::Relaxed).to_string();
        self.sim.run(async {
            let rx = self.nodes[1 - from].receiver::<T>(&name).policy(policy).await.expect("declared");
            (self.nodes[from].sender::<T>(&name).await.expect("declared"), rx)
        })
    }
}

impl World {
    /// Sends the end in a message from this node to the other one.
    fn carry<E: Portable>(&self, end: E, from: usize) -> E {
        let (mut tx, mut rx) = self.channel_from::<E>(from, Policy::default());
        self.sim.run(async {
            let (sent, received) = dunlin::par!(tx.send(end), rx.recv());
            sent.map_err(|error| error.to_string()).expect("the send succeeds");
            received.expect("the receive succeeds")
        })
    }
}

impl Simulated {
    fn world(&self) -> Arc<World> {
        self.world.borrow().clone().expect("the run has begun")
    }
}

impl Transport for Simulated {
    fn name(&self) -> &'static str {
        "simulated"
    }

    fn begin(&self, rig: &Rig, seed: u64) {
        let world = Arc::new(World::new(seed));
        self.world.replace(Some(world.clone()));
        rig.spawn_boxed(Box::pin(poll_fn(move |cx| {
            if world.sim.step(cx, REST) {
                cx.waker().wake_by_ref();
                if world.sim.below(CUTS) == 0 {
                    let [one, other] = &world.nodes;
                    world.sim.cut(one, other);
                }
            }
            Poll::Pending
        })));
    }

    fn end(&self) {
        let Some(world) = self.world.replace(None) else { return };
        // No end is held any more. Both nodes have to notice that and forget the channels.
        let cx = Context::from_waker(Waker::noop());
        while world.sim.step(&cx, REST) {}
        for node in &world.nodes {
            assert_eq!(node.records(), Records::default(), "records are left");
        }
    }

    // `Sim::run` moves it.
    fn moves_time(&self) -> bool {
        true
    }

    fn seeds_max(&self) -> u64 {
        3
    }

    fn channel<T: Portable>(&self, policy: Policy, _: &mut dyn FnMut(Background)) -> (Sender<T>, Receiver<T>) {
        self.world().channel(policy)
    }

    fn stretch<T: Portable>(&self, receiver: Receiver<T>, _: &mut dyn FnMut(Background)) -> Option<Receiver<T>> {
        // The receiver belongs to neither node yet.
        let world = self.world();
        Some(world.carry(receiver, world.sim.below(2) as usize))
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
        self.world().channel_from(side, policy)
    }

    fn carry<E: Portable>(&self, end: E, side: usize) -> E {
        self.world().carry(end, side)
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
        tcp::hole(feature, kind)
    }
}

impl fmt::Debug for Simulated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulated").finish_non_exhaustive()
    }
}
