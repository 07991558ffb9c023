//! A network that stays up and carries nothing in one direction, or nothing large: the connection ends within
//! the grace period.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use dunlin_proto::id::{ChannelId, Incarnation, Life, NodeId, SocketId};
use dunlin_proto::identity::StandIn;
use dunlin_proto::time::Time;
use dunlin_proto::wire::{Declaration, Expected, Face, Terms};
use dunlin_proto::{Action, Config, Down, HomeHears, Machine, State};

const CHANNEL: ChannelId = ChannelId(7);
const SECOND: Duration = Duration::from_secs(1);
const LATENCY: Duration = Duration::from_millis(1);
const NAMES: [&str; 2] = ["a", "b"];

/// What is lost from that side, from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Everything.
    Mute { by: usize },
    /// Everything after the handshake.
    MuteBehindHandshake { by: usize },
    /// Everything from the first piece that is larger than 1 KiB.
    MuteFromLarge { by: usize },
}

/// One direction of a socket.
#[derive(Default)]
struct Pipe {
    written: usize,
    /// The length of the handshake: the message, and on the dialling side the frame after it.
    handshake: usize,
    mute: bool,
}

struct Socket {
    dialler: usize,
    open: [bool; 2],
    /// Indexed by the side that writes.
    pipes: [Pipe; 2],
}

enum Event {
    Arrives(SocketId, usize, Bytes),
    Closed(SocketId, usize),
}

/// Two machines, of which the first dials the second, and a network between them in virtual time.
struct Net {
    nodes: [Machine; 2],
    now: Time,
    sockets: Vec<Socket>,
    events: VecDeque<(Time, Event)>,
    fault: Option<Fault>,
    states: [Vec<(Time, State)>; 2],
    taken: usize,
}

impl Net {
    /// `a` has the sender of a channel, `b` its receiver, and has taken a first value.
    fn connected(grace: Duration) -> Self {
        let machine = |n: usize| {
            let mut config = Config::new("deaf");
            config.grace = grace;
            config.handshake = SECOND;
            config.helpers_max = 0;
            config.addresses = if n == 1 { vec!["b".to_owned()] } else { Vec::new() };
            StandIn::machine(config, Life { node: NodeId(n as u128 + 1), incarnation: Incarnation(1) }, n as u64)
        };
        let mut net = Self {
            nodes: [machine(0), machine(1)],
            now: Time(0),
            sockets: Vec::new(),
            events: VecDeque::new(),
            fault: None,
            states: Default::default(),
            taken: 0,
        };
        let terms = Terms { window: 8, credits: 0, value_max: 1 << 20 };
        net.nodes[1].open_home(CHANNEL, terms, face(Face::Receiver), false).unwrap();
        net.nodes[0].learn(NodeId(2), &["b".to_owned()]);
        net.nodes[0].attach(net.now, CHANNEL, NodeId(2), face(Face::Sender)).unwrap();
        net.offers(1, 10);
        net.run_for(SECOND);
        assert_eq!(net.taken, 1);
        net
    }

    fn offers(&mut self, ticket: u64, length: usize) {
        self.nodes[0].offer(self.now, CHANNEL, ticket, Bytes::from(vec![7; length]));
        self.act(0);
    }

    fn run_for(&mut self, time: Duration) {
        let until = self.now + time;
        loop {
            (0..2).for_each(|me| self.act(me));
            let tick = self.nodes.iter().filter_map(Machine::next_tick).min();
            let event = self.events.front().map(|(at, _)| *at);
            let Some(next) = tick.into_iter().chain(event).min().filter(|next| *next <= until) else { break };
            self.now = self.now.max(next);
            if event.is_some_and(|at| at <= self.now) {
                let (_, event) = self.events.pop_front().unwrap();
                self.happens(event);
            }
            (0..2).for_each(|me| self.nodes[me].tick(self.now));
        }
        self.now = until;
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Arrives(socket, to, bytes) if self.sockets[socket.0 as usize].open[to] => {
                self.nodes[to].received(self.now, socket, bytes);
            }
            Event::Closed(socket, to) if std::mem::take(&mut self.sockets[socket.0 as usize].open[to]) => {
                self.nodes[to].closed(self.now, socket);
            }
            _ => {}
        }
    }

    fn act(&mut self, me: usize) {
        while let Some(action) = self.nodes[me].poll() {
            match action {
                Action::Dial(dial, to) => {
                    assert_eq!(to, NAMES[1 - me]);
                    let socket = SocketId(self.sockets.len() as u64);
                    self.sockets.push(Socket { dialler: me, open: [true; 2], pipes: Default::default() });
                    self.nodes[me].dialled(self.now, dial, socket);
                    self.nodes[1 - me].accepted(self.now, socket);
                }
                Action::Write(socket) => self.write(me, socket),
                Action::Close(socket, _) => {
                    self.write(me, socket);
                    let open = &mut self.sockets[socket.0 as usize].open;
                    if std::mem::take(&mut open[me]) {
                        self.events.push_back((self.now + LATENCY, Event::Closed(socket, 1 - me)));
                        self.nodes[me].closed(self.now, socket);
                    }
                }
                Action::Connection(_, state) => self.states[me].push((self.now, state)),
                Action::Home(channel, from, HomeHears::Offered(ticket, _)) => {
                    self.taken += 1;
                    self.nodes[me].taken(self.now, channel, from.node, ticket);
                }
                _ => {}
            }
        }
    }

    fn write(&mut self, me: usize, id: SocketId) {
        if !self.sockets[id.0 as usize].open[me] {
            return;
        }
        loop {
            let mut out = Vec::new();
            if self.nodes[me].fill(self.now, id, 64 << 10, &mut out) == 0 {
                return;
            }
            for piece in out {
                let socket = &mut self.sockets[id.0 as usize];
                let dials = socket.dialler == me;
                let pipe = &mut socket.pipes[me];
                if pipe.written == 0 {
                    // Magic and kind, then the length.
                    pipe.handshake = 11 + usize::from(piece[9]) * 256 + usize::from(piece[10]) + 2 * usize::from(dials);
                }
                pipe.mute |= match self.fault {
                    Some(Fault::Mute { by }) => by == me,
                    Some(Fault::MuteBehindHandshake { by }) => by == me && pipe.written >= pipe.handshake,
                    Some(Fault::MuteFromLarge { by }) => by == me && piece.len() > 1024,
                    None => false,
                };
                pipe.written += piece.len();
                if !pipe.mute {
                    self.events.push_back((self.now + LATENCY, Event::Arrives(id, 1 - me, piece)));
                }
            }
        }
    }

    /// When a node was notified that the connection has ended, and why.
    fn down(&self, me: usize) -> Option<(Time, &Down)> {
        self.states[me].iter().find_map(|(at, state)| match state {
            State::Down(why) => Some((*at, why)),
            _ => None,
        })
    }
}

fn face(face: Face) -> Declaration {
    Declaration { face, shared: false, expects: Expected::Unknown, schema: Bytes::new() }
}

const FAULTS: [Fault; 5] = [
    Fault::Mute { by: 0 },
    Fault::Mute { by: 1 },
    Fault::MuteBehindHandshake { by: 0 },
    Fault::MuteBehindHandshake { by: 1 },
    Fault::MuteFromLarge { by: 0 },
];

#[test]
fn a_link_that_is_deaf_in_one_direction_ends_within_the_grace() {
    for fault in FAULTS {
        // With values to deliver, and without.
        for offers in [true, false] {
            if matches!(fault, Fault::MuteFromLarge { .. }) && !offers {
                continue;
            }
            let mut net = Net::connected(15 * SECOND);
            let begun = net.now;
            net.fault = Some(fault);
            if offers {
                net.offers(2, 100_000);
            }
            net.run_for(60 * SECOND);
            let lost = (0..2).filter_map(|me| net.down(me)).map(|(at, _)| at.since(begun)).min();
            let told: Vec<_> = (0..2).map(|me| &net.states[me]).collect();
            let lost = lost.unwrap_or_else(|| panic!("{fault:?}, offers: {offers}: {told:?}"));
            // The silence before the first loss, the grace, and the same silence again to notice the last
            // loss.
            assert!(
                (14 * SECOND..24 * SECOND).contains(&lost),
                "{fault:?}, offers: {offers}: after {lost:?}: {told:?}"
            );
        }
    }
}

#[test]
fn dialled_node_resumes_only_after_reading_past_the_handshake() {
    let mut net = Net::connected(15 * SECOND);
    net.fault = Some(Fault::Mute { by: 1 });
    net.run_for(12 * SECOND);
    // The dialling side receives nothing, and dials again; no answer of the other side arrives.
    let told: Vec<&State> = net.states[1].iter().map(|(_, state)| state).collect();
    assert!(matches!(told[..], [State::Up(_), State::Lost(_)]), "{told:?}");
}

#[test]
fn repeatedly_cut_link_stays_up_while_it_carries_values() {
    let mut net = Net::connected(2 * SECOND);
    for round in 0..20 {
        net.offers(2 + round, 5000);
        net.run_for(SECOND / 2);
        let open: Vec<u64> = (0..net.sockets.len() as u64).filter(|at| net.sockets[*at as usize].open[0]).collect();
        for socket in open {
            for me in 0..2 {
                net.happens(Event::Closed(SocketId(socket), me));
            }
        }
        net.run_for(SECOND / 2);
    }
    assert_eq!((net.taken, net.down(0), net.down(1)), (21, None, None));
}

#[test]
fn a_link_that_was_idle_for_long_has_the_whole_grace_when_it_is_lost() {
    let mut net = Net::connected(5 * SECOND);
    net.run_for(100 * SECOND);
    let until = net.now + 5 * SECOND;
    net.fault = Some(Fault::Mute { by: 1 });
    net.happens(Event::Closed(SocketId(0), 0));
    net.act(0);
    assert!(net.states[0].iter().any(|(_, state)| *state == State::Lost(until)), "{:?}", net.states[0]);
    net.run_for(2 * SECOND);
    net.fault = None;
    net.run_for(3 * SECOND);
    assert_eq!(net.down(0), None);
    net.run_for(10 * SECOND);
    // The link has carried frames since: the next loss has the whole grace again.
    let until = net.now + 5 * SECOND;
    let last = net.sockets.len() as u64 - 1;
    net.happens(Event::Closed(SocketId(last), 0));
    net.act(0);
    assert!(net.states[0].iter().any(|(_, state)| *state == State::Lost(until)), "{:?}", net.states[0]);
}
