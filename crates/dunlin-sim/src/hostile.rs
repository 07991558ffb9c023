//! A thief: a peer that keeps to no rules, and has no key but its own.
//!
//! It knows all that any node knows, and more: each id, incarnation, connection and resume point. It dials
//! nodes in the name of others, and answers dials in the place of others. It names lives that cannot exist,
//! replays what it has received there, and leaves sockets open that send nothing more. Now and then it floods
//! a node with messages, or with sockets that stay open and send nothing, many more than a node has places
//! for. The innocent nodes must not notice: their laws hold as they do without a thief, no node answers what
//! it makes up or believes what it sends, and no socket of theirs is closed to make room for one of its own.
//!
//! It is at no node's bound address, and sends nothing about nodes that were started again: where they keep
//! their ids, as here, other nodes believe that without proof (`docs/wire.md`).

use bytes::{Bytes, BytesMut};
use dunlin_proto::Source;
use dunlin_proto::id::{ConnectionId, DialId, Incarnation, Life, NodeId, SocketId};
use dunlin_proto::identity::{Identity, StandIn, confirm, prove, sign_hello};
use dunlin_proto::wire::handshake::{Answer, Bound, Hello, Proof, Refusal, Resume, Welcome};
use dunlin_proto::wire::{VERSIONS, codec, limits};

use crate::thief::SOCKETS;
use crate::world::{Event, World, address, node_id, node_index};

/// Its own id.
const THIEF: NodeId = NodeId(66);

/// The source it dials from: while too many sockets wait at a node, the flood costs only that source.
const SOURCE: Source = Source::V4([192, 0, 2, 66]);

impl World {
    /// Its next move.
    pub(crate) fn thief_moves(&mut self) {
        if self.healed {
            return self.thief_goes();
        }
        let wait = self.random.between(2000, 60_000);
        self.after(wait, Event::Thief);
        let at = self.random.index(self.plan.nodes);
        let proc = self.current[at];
        let is_flood = self.random.chance(10);
        let is_silent = is_flood && self.random.chance(50);
        let times = if is_flood { self.random.between(20, 200) } else { 1 };
        let is_there = |world: &Self| world.procs[proc].alive && world.procs[proc].busy_until <= world.now;
        self.coverage.floods += u64::from(is_flood && is_there(self));
        for _ in 0..times {
            if !is_there(self) || self.broken.is_some() {
                return;
            }
            if is_silent { self.thief_waits(proc) } else { self.thief_dials(proc) }
        }
    }

    /// It dials, and sends nothing.
    fn thief_waits(&mut self, proc: usize) {
        let (now, socket, node) = (self.time(), self.thiefs_socket(), self.procs[proc].node);
        self.note(42, proc as u64, || format!("the thief dials n{node}"));
        self.thief.open.push((proc, socket));
        self.procs[proc].machine.accepted_from(now, socket, SOURCE);
        self.pump(proc);
    }

    /// A process has closed one of the thief's sockets.
    pub(crate) fn thief_is_closed(&mut self, proc: usize, socket: SocketId) {
        let now = self.time();
        self.thief.open.retain(|open| *open != (proc, socket));
        self.procs[proc].machine.closed(now, socket);
    }

    /// Whether the thief has more sockets without a handshake at a process than all others together,
    /// including the one too many.
    pub(crate) fn thief_crowds(&self, proc: usize) -> bool {
        let open = self.thief.open.iter().filter(|(at, _)| *at == proc).count();
        2 * open > self.plan.config.strangers_max + 1
    }

    fn thiefs_socket(&mut self) -> SocketId {
        self.thief.sockets += 1;
        SocketId(SOCKETS + self.thief.sockets)
    }

    /// It dials a node in the name of another, with bytes of its own, or with some of that node's.
    fn thief_dials(&mut self, proc: usize) {
        let (me, at) = (self.procs[proc].machine.me(), self.procs[proc].node);
        let node = self.random.index(self.plan.nodes);
        if node == at {
            return;
        }
        let heard: Vec<Bytes> =
            self.thief.heard.iter().filter(|(to, _)| *to == at).map(|(_, said)| said.clone()).collect();
        if !heard.is_empty() && self.random.chance(50) {
            let said = heard[self.random.index(heard.len())].clone();
            return self.thief_says(proc, &said, true);
        }
        let stands = self.procs[proc].machine.connection_id(node_id(node));
        let hello = self.thiefs_hello(node_id(node), self.procs[self.current[node]].incarnation, me, stands);
        let hello = if self.random.chance(50) { sign_hello(&StandIn::of(THIEF), hello) } else { hello };
        self.thief_says(proc, &hello.encode(), false);
    }

    /// It sends these bytes, signed by the node whose name it uses, or not.
    fn thief_says(&mut self, proc: usize, said: &Bytes, is_signed: bool) {
        let Ok(Some(hello)) = Hello::decode(&mut BytesMut::from(&said[..])) else { return };
        let (me, node) = (self.procs[proc].machine.me(), hello.me.node);
        let stands = |world: &Self| {
            let machine = &world.procs[proc].machine;
            (machine.connection_id(node), machine.carried_by(node))
        };
        let before = stands(self);
        let (now, socket) = (self.time(), self.thiefs_socket());
        self.note(40, proc as u64, || format!("the thief sends to {me}: {hello:?}"));
        self.coverage.thefts += 1;
        self.procs[proc].machine.accepted_from(now, socket, SOURCE);
        self.procs[proc].machine.received(now, socket, said.clone());
        let answer: Vec<Bytes> = self.fill(proc, socket, 1 << 16);
        let answered = Answer::decode(&mut BytesMut::from(&answer.concat()[..]));
        self.give_back(answer);
        if let Ok(Some(answer @ Answer::Welcome(_))) = answered {
            if !is_signed {
                return self.broke(format!("{me} answers a hello that n{} has not signed", node_index(node)));
            }
            // It keeps the socket open until the node closes it.
            if self.random.chance(30) {
                self.thief.open.push((proc, socket));
                return self.pump(proc);
            }
            let mut first = BytesMut::new();
            codec::encode(&confirm(&StandIn::of(THIEF), said, &answer), &mut first);
            self.procs[proc].machine.received(now, socket, first.freeze());
            if stands(self) != before {
                return self.broke(format!("{me} accepts a node without the key of n{}", node_index(node)));
            }
        }
        self.procs[proc].machine.closed(now, socket);
        self.pump(proc);
    }

    /// A hello in the name of that node: what the node may have sent last, or what it never sends.
    fn thiefs_hello(&mut self, node: NodeId, incarnation: u64, to: Life, stands: Option<ConnectionId>) -> Hello {
        let incarnation = match self.random.index(4) {
            0 => incarnation + 1,
            1 => u64::MAX,
            _ => incarnation,
        };
        let run = match self.random.index(4) {
            0 => 1,
            1 => limits::RUN - self.random.below(2),
            _ => self.random.between(1, 6),
        };
        let connection = if self.random.chance(80) { stands.unwrap_or_default() } else { ConnectionId::NONE };
        Hello {
            versions: VERSIONS,
            application: "sim".to_owned(),
            me: Life { node, incarnation: Incarnation(incarnation) },
            wanted: to.node,
            met: if self.random.chance(80) { to.incarnation } else { Incarnation(0) },
            attempt: if self.random.chance(50) { u64::MAX } else { self.random.between(1, 1000) },
            resume: Resume { connection, run, seen: self.random.below(30) },
            addresses: vec![address(self.random.index(self.plan.nodes))],
            bound: Bound::default(),
            key: StandIn::of(node).key(),
            nonce: u128::from(self.random.next()),
            signature: Bytes::new(),
        }
    }

    /// It answers a dial in the place of that node.
    pub(crate) fn thief_answers(&mut self, by: usize, dial: DialId, to: usize) {
        let (now, socket) = (self.time(), self.thiefs_socket());
        let me = self.procs[by].machine.me();
        self.coverage.thefts += 1;
        self.procs[by].machine.dialled(now, dial, socket);
        let said = self.fill(by, socket, 1 << 16);
        let hello = said.concat();
        self.give_back(said);
        if let Ok(Some(heard)) = Hello::decode(&mut BytesMut::from(&hello[..])) {
            if heard.wanted == node_id(to) {
                self.thief.heard.push((to, Bytes::copy_from_slice(&hello)));
            }
            let run = heard.resume.run.max(1) + self.random.below(3);
            let connection = match heard.resume.connection {
                known if known.is_some() => known,
                _ => ConnectionId(u128::from(self.random.next())),
            };
            let welcome = Welcome {
                version: VERSIONS.1,
                me: Life { node: node_id(to), incarnation: Incarnation(self.procs[self.current[to]].incarnation) },
                resume: if heard.wanted == NodeId(0) { Resume::default() } else { Resume { connection, run, seen: 0 } },
                addresses: Vec::new(),
                bound: Bound::default(),
                nonce: u128::from(self.random.next()),
                proof: Proof::default(),
            };
            let answer = match self.random.index(5) {
                0 => Answer::Over(Refusal::Forgotten, Proof::default()),
                1 => Answer::Refused(Refusal::Forgotten),
                2 => Answer::Over(Refusal::Impossible, Proof::default()),
                _ => Answer::Welcome(welcome),
            };
            let mut answer = prove(&StandIn::of(THIEF), &hello, answer);
            if let Answer::Welcome(Welcome { proof, .. }) | Answer::Over(_, proof) = &mut answer {
                proof.key = StandIn::of(node_id(to)).key();
            }
            self.note(41, by as u64, || format!("the thief answers {me}: {answer:?}"));
            self.procs[by].machine.received(now, socket, answer.encode());
            if self.procs[by].machine.carried_by(heard.wanted) == Some(socket) {
                return self.broke(format!("{me} accepts an answer without the key of n{to}"));
            }
        }
        self.procs[by].machine.closed(now, socket);
        self.pump(by);
    }

    /// All faults are healed: the thief closes the sockets it has left open.
    fn thief_goes(&mut self) {
        let now = self.time();
        for (proc, socket) in std::mem::take(&mut self.thief.open) {
            if self.procs[proc].alive {
                self.procs[proc].machine.closed(now, socket);
                self.pump(proc);
            }
        }
    }
}
