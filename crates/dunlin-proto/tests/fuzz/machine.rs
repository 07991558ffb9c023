//! One machine, driven by any bytes: sockets, what arrives on them (valid frames, and anything else), time,
//! and the commands of its own driver.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use arbitrary::{Arbitrary as _, Result, Unstructured};
use bytes::{Bytes, BytesMut};
use dunlin_proto::id::{ChannelId, Contact, DialId, Incarnation, Life, MailboxId, NodeId, SocketId};
use dunlin_proto::identity::{Identity, StandIn, confirm, prove};
use dunlin_proto::time::Time;
use dunlin_proto::wire::codec::{self, Next};
use dunlin_proto::wire::handshake::{Answer, Bound, Hello, Resume, Welcome};
use dunlin_proto::wire::{Declaration, End, Exit, Expected, Face, Frame, Reason, Relay, Terms, ToHome, VERSIONS};
use dunlin_proto::{
    Action, Closed, Config, HomeHears, Leaving, Machine, PostHears, ReceiverPlace, SenderPlace, SignalHears, State,
};

use super::messages;

const APPLICATION: &str = "fuzz";
const ATTACHED_MAX: usize = 2;
const WINDOW_MAX: usize = 3;
const RELAYS_MAX: usize = 2;
const ME: Life = Life { node: NodeId(3), incarnation: Incarnation(2) };

/// # Panics
/// If the machine does, or if it breaks an invariant.
pub(crate) fn run(data: &[u8]) {
    let mut u = Unstructured::new(data);
    let mut world = World::new();
    // Most runs start with connections and channels.
    if u8::arbitrary(&mut u).unwrap_or(0) < 200 {
        world.begin();
    }
    while !u.is_empty() {
        // A step that the remaining bytes cannot encode is skipped.
        let _ = world.step(&mut u);
        world.settle();
    }
    world.end();
}

/// One end of a socket: the driver's.
#[derive(Debug, Default)]
struct Socket {
    /// The dial that made it, if this node has dialled.
    dialled: Option<DialId>,
    /// The bytes that the machine has written and that are not a whole message yet.
    written: BytesMut,
    /// Whether the handshake has been written.
    opened: bool,
    /// The machine's `Hello`, if it has dialled.
    hello: Bytes,
    /// The machine's answer.
    answer: Option<Answer>,
}

struct World {
    machine: Machine,
    now: Time,
    sockets: BTreeMap<SocketId, Socket>,
    next_socket: u64,
    dials: BTreeSet<DialId>,
    up: BTreeMap<NodeId, bool>,
    /// How many bytes have arrived, and how many commands were given.
    arrived: usize,
    asked: usize,
    /// How many homes were attached from the start.
    given: usize,
    /// Whether ends have been sent or taken.
    travels: bool,
    /// Messages in mailboxes: which mailbox, from where, and how long.
    posts: Vec<(u64, Contact, u64)>,
    /// The machine's last answer over a relay.
    relayed: Option<Answer>,
}

impl World {
    fn new() -> Self {
        let mut config = Config::new(APPLICATION);
        config.addresses = vec!["here".to_owned()];
        config.chunk = 3;
        config.chunk_alone = config.chunk;
        config.unacked_max = 200;
        config.value_max = 40;
        config.strangers_max = 3;
        config.attached_max = ATTACHED_MAX;
        config.relays_max = RELAYS_MAX;
        Self {
            machine: StandIn::machine(config, ME, 1),
            now: Time(0),
            sockets: BTreeMap::new(),
            next_socket: 0,
            dials: BTreeSet::new(),
            up: BTreeMap::new(),
            arrived: 0,
            asked: 0,
            given: 0,
            travels: false,
            posts: Vec::new(),
            relayed: None,
        }
    }

    /// Connects two nodes. Two channels have their homes here, each with one node that may send on one
    /// credit; one channel has its home there.
    fn begin(&mut self) {
        let face =
            || Declaration { face: Face::Sender, shared: false, expects: Expected::Unknown, schema: Bytes::new() };
        for n in 0..2 {
            let terms = Terms { window: 2, credits: 0, value_max: 40 };
            self.machine.open_home(ChannelId(n), terms, face(), true).expect("it is not too long");
            let peer = NodeId(n + 1);
            let hello = Hello {
                versions: VERSIONS,
                application: APPLICATION.to_owned(),
                me: Life { node: peer, incarnation: Incarnation(1) },
                wanted: ME.node,
                met: ME.incarnation,
                attempt: 1,
                resume: Resume { run: 1, seen: 0, ..Resume::default() },
                addresses: vec!["there".to_owned()],
                bound: Bound::default(),
                key: StandIn::of(peer).key(),
                nonce: 1,
                signature: Bytes::new(),
            };
            let socket = self.open(None);
            self.machine.received(self.now, socket, StandIn::says(&hello));
            self.settle();
            let mut attach = BytesMut::new();
            let answer = self.sockets.get_mut(&socket).and_then(|socket| socket.answer.take());
            codec::encode(&confirms(&hello, &answer.expect("its hello is answered")), &mut attach);
            codec::encode(&Frame::ToHome(ChannelId(n), ToHome::Attach(face())), &mut attach);
            self.arrived += attach.len();
            self.machine.received(self.now, socket, attach.freeze());
            self.machine.credit(self.now, ChannelId(n), peer, 1);
            self.settle();
        }
        self.machine.attach(self.now, ChannelId(2), NodeId(1), face()).expect("it is not too long");
        self.asked += 1;
        self.settle();
    }

    fn step(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        match u8::arbitrary(u)? {
            0..=119 => {
                let Some(socket) = self.socket(u)? else { return Ok(()) };
                let mut bytes = BytesMut::new();
                for _ in 0..u.int_in_range(1..=6)? {
                    let piece = codec::encode(&messages::frame(u)?, &mut bytes);
                    bytes.extend_from_slice(&piece.unwrap_or_default());
                }
                self.arrive(u, socket, bytes.freeze())?;
            }
            120..=127 => {
                let Some(socket) = self.socket(u)? else { return Ok(()) };
                let bytes = messages::bytes(u, 300)?;
                self.arrive(u, socket, bytes)?;
            }
            128..=149 => self.somebody_dials(u)?,
            150..=164 => self.somebody_answers(u)?,
            165..=169 => {
                if let Some(socket) = self.socket(u)? {
                    self.sockets.remove(&socket);
                    self.machine.closed(self.now, socket);
                }
            }
            170..=174 => {
                if let Some(dial) = self.dials.pop_first() {
                    if bool::arbitrary(u)? {
                        let near = bool::arbitrary(u)?;
                        self.machine.dial_refused(self.now, dial, near, "refused".to_owned());
                    } else {
                        self.machine.dial_failed(self.now, dial, "nobody is there".to_owned());
                    }
                }
            }
            175..=189 => {
                let wait = Duration::from_millis(1 << u.int_in_range(0..=14)?);
                self.wait(wait);
            }
            _ => {
                self.asked += 1;
                self.command(u)?;
            }
        }
        Ok(())
    }

    fn socket(&mut self, u: &mut Unstructured<'_>) -> Result<Option<SocketId>> {
        if self.sockets.is_empty() {
            return Ok(None);
        }
        let at = u.choose_index(self.sockets.len())?;
        // The latest first: it is the most likely to carry something.
        Ok(self.sockets.keys().rev().nth(at).copied())
    }

    fn arrive(&mut self, u: &mut Unstructured<'_>, socket: SocketId, mut bytes: Bytes) -> Result<()> {
        self.arrived += bytes.len();
        if bool::arbitrary(u)? && !bytes.is_empty() {
            let at = u.choose_index(bytes.len())?;
            self.machine.received(self.now, socket, bytes.split_to(at));
            self.settle();
        }
        self.machine.received(self.now, socket, bytes);
        Ok(())
    }

    fn open(&mut self, dialled: Option<DialId>) -> SocketId {
        self.next_socket += 1;
        let socket = SocketId(self.next_socket);
        self.sockets.insert(socket, Socket { dialled, ..Socket::default() });
        match dialled {
            Some(dial) => self.machine.dialled(self.now, dial, socket),
            None => self.machine.accepted(self.now, socket),
        }
        socket
    }

    fn somebody_dials(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let mut hello = messages::hello(u)?;
        // Most of them match, and are signed.
        let is_signed = u8::arbitrary(u)? < 240;
        if is_signed {
            hello.application = APPLICATION.to_owned();
            hello.wanted = ME.node;
            hello.met = if hello.met.0 == 0 { Incarnation(0) } else { ME.incarnation };
            hello.attempt = self.next_socket + 1;
            hello.key = StandIn::of(hello.me.node).key();
        }
        let said = |hello: &Hello| if is_signed { StandIn::says(hello) } else { hello.encode() };
        // Some of them over a relay.
        if u8::arbitrary(u)? < 80
            && let Some(relay) = self.socket(u)?
        {
            let mut bytes = BytesMut::new();
            let (stream, node) = (messages::number(u)?, hello.me.node);
            let says = |bytes: &mut BytesMut, said| {
                let piece = codec::encode(&Frame::Relay(said), bytes);
                bytes.extend_from_slice(&piece.unwrap_or_default());
            };
            says(&mut bytes, Relay::From { stream, node });
            says(&mut bytes, Relay::Bytes { stream, piece: said(&hello) });
            self.arrive(u, relay, bytes.split().freeze())?;
            self.settle();
            if let Some(answer) = self.relayed.take() {
                let mut piece = BytesMut::new();
                codec::encode(&confirms(&hello, &answer), &mut piece);
                says(&mut bytes, Relay::Bytes { stream, piece: piece.freeze() });
                self.arrive(u, relay, bytes.freeze())?;
            }
            return Ok(());
        }
        if u8::arbitrary(u)? < 160 {
            hello.resume.connection = self.machine.connection_id(hello.me.node).unwrap_or_default();
        }
        let socket = self.open(None);
        self.settle();
        self.arrive(u, socket, said(&hello))?;
        if u8::arbitrary(u)? < 240 {
            self.settle();
            let answer = self.sockets.get_mut(&socket).and_then(|socket| socket.answer.take());
            // Sometimes the confirmation proves nothing.
            let frame = match answer {
                Some(answer) if u8::arbitrary(u)? < 230 => confirms(&hello, &answer),
                _ => Frame::Confirm { signature: messages::bytes(u, 128)? },
            };
            let mut first = BytesMut::new();
            codec::encode(&frame, &mut first);
            self.arrive(u, socket, first.freeze())?;
        }
        Ok(())
    }

    fn somebody_answers(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let Some(dial) = self.dials.pop_first() else { return Ok(()) };
        let socket = self.open(Some(dial));
        self.settle();
        let answer = match messages::answer(u)? {
            Answer::Welcome(welcome) => Answer::Welcome(Welcome { version: VERSIONS.1, ..welcome }),
            refused => refused,
        };
        // Most of them are proved, by the right node.
        let answer = match (&answer, self.sockets.get(&socket)) {
            (Answer::Welcome(Welcome { me, .. }), Some(socket)) if u8::arbitrary(u)? < 240 => {
                prove(&StandIn::of(me.node), &socket.hello, answer)
            }
            (Answer::Over(..), Some(socket)) if u8::arbitrary(u)? < 240 => {
                let by = Hello::decode(&mut BytesMut::from(&socket.hello[..])).ok().flatten();
                by.map_or(answer.clone(), |hello| prove(&StandIn::of(hello.wanted), &socket.hello, answer))
            }
            _ => answer,
        };
        self.arrive(u, socket, answer.encode())
    }

    /// A command of this node's own driver: any, whether it makes sense or not.
    fn command(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let now = self.now;
        let (channel, node) = (messages::channel(u)?, messages::life(u)?.node);
        let machine = &mut self.machine;
        let what = u.int_in_range(0..=31)?;
        if (26..=30).contains(&what) {
            // Halves of this node's own, and those that a `State` has named.
            self.given += 4;
            self.travels = true;
        }
        match what {
            0 => {
                let terms = terms(u)?;
                let many = bool::arbitrary(u)?;
                machine.open_home(channel, terms, messages::declaration(u)?, many).expect("it is not too long");
            }
            // This node joins a name's two faces locally, so it never attaches to itself.
            1..=2 if node == ME.node => {}
            1..=2 => machine.attach(now, channel, node, messages::declaration(u)?).expect("it is not too long"),
            3..=5 => machine.offer(now, channel, messages::number(u)?, messages::bytes(u, 60)?),
            6 => machine.offer_choice(now, channel, messages::number(u)?, 1),
            7 => {
                machine.grant(now, channel, messages::number(u)?, messages::number(u)?, messages::bytes(u, 60)?);
            }
            8 => {
                machine.send_on_credit(now, channel, messages::bytes(u, 60)?);
            }
            9 => machine.withdraw(now, channel, messages::number(u)?),
            10 => machine.revoke(now, channel, messages::number(u)?),
            11 => machine.end_proxy(now, channel, messages::end(u)?),
            12 => drop(machine.taken(now, channel, node, messages::number(u)?)),
            13 => drop(machine.held(now, channel, node, messages::number(u)?)),
            14 => machine.released(now, channel, node, messages::number(u)?),
            15 => machine.failed(now, channel, node, messages::number(u)?, messages::failure(u)?),
            16 => machine.withdrawn(now, channel, node, messages::number(u)?),
            17 => machine.reserve(now, channel, node, messages::number(u)?, messages::number(u)?),
            18 => machine.abort(now, channel, node, messages::number(u)?),
            19 => machine.credit(now, channel, node, messages::number(u)? as u32),
            20 => machine.end_home(now, channel, messages::end(u)?),
            21 if bool::arbitrary(u)? => machine.learn(node, &["there".to_owned()]),
            21 => machine.introduced(node, messages::life(u)?.node, &["there".to_owned()]),
            22 => machine.connect(now, node),
            23 => machine.say_names(now, node, messages::names(u)?).expect("it is not too long"),
            // In a message, an end comes from, or goes to, a node with a connection.
            24 if self.up.get(&node) == Some(&true) => {
                let terms = if bool::arbitrary(u)? { Some(terms(u)?) } else { None };
                let _ = machine.adopt(channel, node, terms);
            }
            25 if self.up.get(&node) == Some(&true) => {
                machine.open_home_to(channel, terms(u)?, messages::declaration(u)?, node);
                self.given += 1;
            }
            // Ends that travel.
            26 => match u8::arbitrary(u)? {
                0..=99 => machine.pair(channel, terms(u)?),
                100..=199 => {
                    if let Leaving::Ready(_, trip) = machine.pack_sender(now, channel) {
                        match u.int_in_range(0..=2)? {
                            0 => drop(machine.sender_left(now, channel, trip, machine.contact(node))),
                            1 => machine.sender_stays(now, channel, trip),
                            _ => drop(machine.sender_back(now, channel, trip)),
                        }
                    }
                }
                _ => {
                    if let Leaving::Ready(_, trip) = machine.pack_receiver(channel) {
                        match u.int_in_range(0..=2)? {
                            0 => drop(machine.receiver_left(now, channel, trip, machine.contact(node))),
                            1 => machine.receiver_stays(now, channel, trip),
                            _ => drop(machine.receiver_back(now, channel, trip)),
                        }
                    }
                }
            },
            27 => {
                let place = SenderPlace {
                    trip: 1,
                    transfer: messages::number(u)?,
                    epoch: messages::number(u)?,
                    home: node,
                    addresses: Vec::new(),
                    sponsor: messages::life(u)?.node,
                    sponsor_addresses: Vec::new(),
                };
                let giver = machine.contact(messages::life(u)?.node);
                let _ = machine.sender_arrives(now, channel, place, giver);
                machine.use_sender(now, channel);
            }
            28 => {
                let (claim, epoch) = (messages::number(u)?, messages::number(u)?);
                let place = ReceiverPlace { trip: 1, claim, epoch, home: node, addresses: Vec::new() };
                let giver = machine.contact(messages::life(u)?.node);
                let _ = machine.receiver_arrives(now, channel, place, giver);
                machine.use_receiver(now, channel);
            }
            29 => machine.admit(now, channel, node, terms(u)?),
            30 => match u8::arbitrary(u)? {
                0..=99 => machine.leave_home(now, channel),
                100..=199 => machine.ship(now, channel, vec![messages::bytes(u, 60)?]),
                200..=219 => machine.install(now, channel),
                _ => machine.drop_receiver(now, channel),
            },
            _ => match u8::arbitrary(u)? {
                0..=9 => machine.leave(now),
                10..=59 => machine.tell_terms(now, channel, node, terms(u)?),
                60..=79 => machine.forget_home(channel),
                80..=89 => machine.introduce("somewhere".to_owned()),
                kind => self.command_mailbox(u, node, kind)?,
            },
        }
        Ok(())
    }

    fn command_mailbox(&mut self, u: &mut Unstructured<'_>, node: NodeId, kind: u8) -> Result<()> {
        let number = messages::number(u)? % 4;
        match kind {
            0..=109 => {
                let (id, schema) = (MailboxId { number, bits: number % 3 }, messages::bytes(u, 60)?);
                self.machine.open_mailbox(id, schema, u32::arbitrary(u)?);
            }
            110..=119 => self.machine.close_mailbox(number),
            120..=189 => {
                let (to, schema) = (MailboxId { number, bits: u64::arbitrary(u)? % 3 }, messages::bytes(u, 60)?);
                let _ = self.machine.post(self.now, node, to, &schema, messages::bytes(u, 60)?);
            }
            _ => {
                if let Some((mailbox, from, bytes)) = self.posts.pop() {
                    self.machine.post_received(mailbox, from, bytes);
                }
            }
        }
        Ok(())
    }

    fn wait(&mut self, wait: Duration) {
        self.now = self.now + wait;
        self.machine.tick(self.now);
        self.settle();
        // Otherwise its driver would loop without progress.
        assert!(self.machine.next_tick().is_none_or(|at| at > self.now), "a tick that has passed is due");
    }

    /// Carries out the machine's actions until there are none.
    fn settle(&mut self) {
        // Few actions follow from one event: the bytes that arrive together cause at most one action a frame,
        // each of at least two bytes.
        let most = 1000 + 2 * self.arrived + 100 * self.asked;
        let mut done = 0;
        while let Some(action) = self.machine.poll() {
            done += 1;
            assert!(done < most, "the machine has more than {most} actions at once");
            self.act(action);
        }
        let census = self.machine.census();
        assert!(census.sockets <= self.sockets.len(), "{census:?}, {} sockets", self.sockets.len());
        assert!(census.relays <= RELAYS_MAX, "{census:?}");
        assert!(census.unfinished <= self.arrived / 18, "{census:?}");
        let nodes = self.up.values().filter(|up| **up).count();
        assert!(nodes == 0 || self.machine.replaced_by().is_none(), "a node that is replaced has {nodes} connections");
        assert!(census.attached <= ATTACHED_MAX * nodes + self.given, "{census:?}, {nodes} nodes");
        assert!(census.offers <= self.asked + WINDOW_MAX * census.attached, "{census:?}");
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Dial(dial, _) => {
                self.dials.insert(dial);
            }
            Action::Write(socket) => self.write(socket),
            Action::Authorize(socket, _) => self.machine.authorized(self.now, socket, true),
            Action::Close(socket, why) => {
                self.write(socket);
                self.machine.closed(self.now, socket);
                if let Some(socket) = self.sockets.remove(&socket) {
                    // The last thing it writes is whole.
                    assert!(socket.written.is_empty() || why == Closed::Superseded, "{why}: {socket:?}");
                }
            }
            Action::Connection(node, state) => {
                let up = matches!(state, State::Up(_) | State::Resumed | State::Relayed(_) | State::Lost(_));
                let was = self.up.insert(node, up).unwrap_or(false);
                // (A relayed connection is lost with its relay, and ends in its turn.)
                let goes_on = up && !matches!(state, State::Lost(_));
                assert!(
                    !goes_on || self.machine.replaced_by().is_none(),
                    "{node} is {state:?}, and this node is replaced"
                );
                match state {
                    State::Up(life) => assert!(!was && life.node == node, "{node} is up twice"),
                    State::Lost(_) | State::Resumed | State::Relayed(_) => {
                        assert!(was, "{node} is {state:?} and was not up")
                    }
                    State::Down(_) => {}
                }
            }
            Action::Post(PostHears::Message(from, mailbox, message)) => {
                self.posts.push((mailbox, from, message.len() as u64));
            }
            Action::Signal(heard) => match *heard {
                SignalHears::Watch(watching, watch, of) if of.number != 0 => {
                    self.machine.down(watching, watch, Exit::of(Reason::NoSuchProcess));
                }
                SignalHears::Exit { by, exit, .. } => self.machine.exit_received(by, exit.bytes()),
                _ => {}
            },
            // The answer of a node that has nothing under this key.
            Action::Read(_, channel, _) => self.machine.end_proxy(self.now, channel, End::Gone),
            // A half has moved to another node, which has it in addition to those it has attached itself: at
            // most one of each home.
            Action::Home(_, _, HomeHears::Take) => self.given += 1,
            Action::Home(..)
            | Action::Proxy(..)
            | Action::Replied(..)
            | Action::Unwanted(_)
            | Action::Names(..)
            | Action::ClosedRelayed(..)
            | Action::Post(_)
            | Action::Unrelayed(_)
            | Action::Declined(..)
            | Action::Introduced(..) => {}
        }
    }

    /// Fetches what the machine has to write, and reads it as the other side would.
    fn write(&mut self, id: SocketId) {
        let mut out = Vec::new();
        while self.machine.fill(self.now, id, 500, &mut out) > 0 {}
        let bytes = out.concat();
        let Some(socket) = self.sockets.get_mut(&id) else {
            return assert!(bytes.is_empty(), "it writes to a socket that is closed");
        };
        socket.written.extend_from_slice(&bytes);
        if !socket.opened && !socket.written.is_empty() {
            socket.opened = true;
            let all = socket.written.clone();
            match socket.dialled {
                Some(_) => assert!(matches!(Hello::decode(&mut socket.written), Ok(Some(_))), "the handshake"),
                None => socket.answer = Answer::decode(&mut socket.written).expect("the handshake"),
            }
            socket.hello = all.freeze();
            socket.hello.truncate(socket.hello.len() - socket.written.len());
            assert!(!socket.hello.is_empty(), "the handshake");
        }
        let mut written = socket.written.split().freeze();
        while !written.is_empty() {
            match codec::next(&written) {
                Ok(Next::Frame { head, body }) => {
                    let whole = written.split_to(head + body);
                    match codec::decode(whole[0], whole.slice(head..)) {
                        Ok(Frame::Relay(Relay::Bytes { piece, .. })) => {
                            let answer = Answer::decode(&mut BytesMut::from(&piece[..]));
                            self.relayed = answer.ok().flatten().or(self.relayed.take());
                        }
                        Ok(_) => {}
                        Err(why) => panic!("the machine writes an invalid frame: {why}: {whole:02x?}"),
                    }
                }
                other => panic!("the machine writes {written:02x?}: {other:?}"),
            }
        }
    }

    /// All sockets are lost and none returns: only what this node's own driver keeps may be left.
    fn end(&mut self) {
        while let Some((id, _)) = self.sockets.pop_first() {
            self.machine.closed(self.now, id);
            self.settle();
        }
        let mut turns = 0;
        while self.machine.next_tick().is_some() || !self.dials.is_empty() {
            turns += 1;
            assert!(turns < 10_000, "it does not come to rest: {:?}", self.machine.next_tick());
            for dial in std::mem::take(&mut self.dials) {
                self.machine.dial_failed(self.now, dial, "nobody is there".to_owned());
                self.settle();
            }
            if let Some(at) = self.machine.next_tick() {
                self.wait(at.since(self.now));
            }
        }
        let up: Vec<&NodeId> = self.up.iter().filter(|(_, up)| **up).map(|(node, _)| node).collect();
        assert!(up.is_empty(), "{up:?} are not down");
        let census = self.machine.census();
        let carried = [census.unfinished, census.sockets, census.relayed, census.relays, census.unacked_bytes];
        assert_eq!(carried, [0; 5], "{census:?}");
        if !self.travels {
            // An end on its way may wait for this node's own driver, which gives any commands here.
            assert_eq!((census.attached, census.proxies, census.offers), (0, 0, 0), "{census:?}");
        }
    }
}

/// The dialler's confirmation of this answer.
fn confirms(hello: &Hello, answer: &Answer) -> Frame {
    confirm(&StandIn::of(hello.me.node), &StandIn::says(hello), answer)
}

fn terms(u: &mut Unstructured<'_>) -> Result<Terms> {
    Ok(Terms {
        window: u.int_in_range(1..=WINDOW_MAX as u32)?,
        credits: u.int_in_range(0..=3)?,
        value_max: messages::number(u)?,
    })
}
