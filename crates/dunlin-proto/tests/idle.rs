//! Idle connections: how often a node has to wake for them, and what is written.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use dunlin_proto::id::{Incarnation, Life, NodeId, SocketId};
use dunlin_proto::identity::StandIn;
use dunlin_proto::time::Time;
use dunlin_proto::wire::{Frame, Names, codec};
use dunlin_proto::{Action, Config, Machine};

const PEERS: usize = 200;
const SECOND: Duration = Duration::from_secs(1);

/// One node to which all others have a connection. Frames arrive after a millisecond of `now`.
struct Star {
    /// The first is the node in the middle.
    nodes: Vec<Machine>,
    now: Time,
    /// The bytes written to the node in the middle, by all others together, and those written by it.
    written: [usize; 2],
    /// How many heartbeats were among those, since the last connection was made.
    beats: [usize; 2],
    /// The moments at which the node in the middle had to be woken.
    woken: BTreeSet<Time>,
}

impl Star {
    /// The connections are made one after the other, over a second.
    fn new(peers: usize) -> Self {
        let node = |n: usize| {
            let mut config = Config::new("idle");
            config.addresses = vec![n.to_string()];
            StandIn::machine(config, Life { node: NodeId(n as u128 + 1), incarnation: Incarnation(1) }, n as u64)
        };
        let nodes = (0..=peers).map(node).collect();
        let mut star = Self { nodes, now: Time(1_000_000), written: [0, 0], beats: [0, 0], woken: BTreeSet::new() };
        for peer in 1..=peers {
            star.pass(SECOND / peers as u32);
            star.nodes[peer].learn(NodeId(1), &["0".to_owned()]);
            star.nodes[peer].connect(star.now, NodeId(1));
            star.settle();
            assert!(star.nodes[peer].carried_by(NodeId(1)).is_some());
        }
        star.beats = [0, 0];
        star
    }

    fn settle(&mut self) {
        let mut busy = true;
        while std::mem::take(&mut busy) {
            for me in 0..self.nodes.len() {
                while let Some(action) = self.nodes[me].poll() {
                    busy = true;
                    self.act(me, action);
                }
            }
        }
    }

    /// Each peer has one socket, which has its number at both ends.
    fn act(&mut self, me: usize, action: Action) {
        let now = self.now;
        match action {
            Action::Dial(dial, _) => {
                let socket = SocketId(me as u64);
                self.nodes[0].accepted(now, socket);
                self.nodes[me].dialled(now, dial, socket);
            }
            Action::Write(socket) => {
                let mut out = Vec::new();
                self.nodes[me].fill(now, socket, 1 << 16, &mut out);
                let to = if me == 0 { socket.0 as usize } else { 0 };
                let bytes = out.concat();
                self.written[usize::from(me == 0)] += bytes.len();
                self.beats[usize::from(me == 0)] += beats(&bytes);
                self.nodes[to].received(now, socket, Bytes::from(bytes));
            }
            Action::Close(_, why) => panic!("{why}"),
            _ => {}
        }
    }

    /// Time passes, from one tick of a node to the next.
    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some(at) = self.nodes.iter().filter_map(Machine::next_tick).min().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            if self.nodes[0].next_tick() == Some(at) {
                self.woken.insert(self.now);
            }
            let now = self.now;
            self.nodes.iter_mut().for_each(|node| node.tick(now));
            self.settle();
        }
        self.now = until;
    }
}

/// How many heartbeats are among these frames. (Not for a handshake.)
fn beats(mut bytes: &[u8]) -> usize {
    let mut beats = 0;
    while let Ok(codec::Next::Frame { head, body }) = codec::next(bytes) {
        let frame = codec::decode(bytes[0], Bytes::copy_from_slice(&bytes[head..head + body]));
        beats += usize::from(frame == Ok(Frame::Heartbeat));
        bytes = &bytes[head + body..];
    }
    beats
}

#[test]
fn idle_connections_are_served_together_and_send_little() {
    let mut star = Star::new(PEERS);
    star.pass(10 * SECOND);
    star.woken.clear();
    (star.written, star.beats) = ([0, 0], [0, 0]);
    star.pass(60 * SECOND);
    assert!(star.woken.len() <= 60 * 16, "{} times in a minute", star.woken.len());
    assert_eq!(star.beats.map(|beats| 2 * beats), star.written, "only heartbeats are written");
    // A heartbeat has two bytes.
    for written in star.written {
        let each = written / 2 / PEERS;
        assert!((50..=61).contains(&each), "{each} heartbeats of each in a minute");
    }
}

#[test]
fn a_peer_that_sends_each_tenth_of_a_second_sends_no_heartbeats() {
    let mut star = Star::new(1);
    star.pass(10 * SECOND);
    assert!(star.beats.iter().all(|beats| *beats >= 9), "{:?}", star.beats);
    star.beats = [0, 0];
    for _ in 0..600 {
        star.pass(SECOND / 10);
        let now = star.now;
        // Any frame would do.
        star.nodes[1].say_names(now, NodeId(1), Names::Elsewhere).unwrap();
        star.settle();
    }
    // The other node's acknowledgement also shows that it is alive.
    assert_eq!(star.beats, [0, 0]);
}
