//! Handshakes, at both sides, and how a socket takes over a connection. `docs/wire.md` has their table.

use std::cmp::Ordering;
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use super::dialling::REDIALS;
use super::socket_table::{Asked, Phase, Promise, Socket, Wanted};
use super::{Action, Closed, Endpoint, Machine};
use crate::connection::{Attempt, Carried, Connection, Down, State};
use crate::id::{ConnectionId, Incarnation, Life, NodeId, SocketId};
use crate::identity::{confirm, confirmed, is_signed, prove, proven_by};
use crate::planted::planted;
use crate::relay::streams::is_relayed;
use crate::source::Source;
use crate::time::Time;
use crate::wire::handshake::{self, Answer, Hello, Proof, Refusal, Resume, Welcome};
use crate::wire::{Frame, Relay, VERSIONS, codec, limits};

/// The other node can name any number of connections: this many are noted while one `Hello` is under way.
const DISOWNED_MAX: usize = 8;

/// How long a dial gives way to a socket of the other node, which that node is about to confirm.
const YIELD: Duration = Duration::from_millis(100);

impl Endpoint {
    /// Refuses a `Hello`: with proof, if the dialler is to believe that something has ended.
    pub(super) fn refuse(&mut self, now: Time, id: SocketId, why: Refusal, hello: &[u8]) {
        let answer = if why.ends_something() {
            prove(&*self.identity, hello, Answer::Over(why.clone(), Proof::default()))
        } else {
            Answer::Refused(why.clone())
        };
        self.part(now, id, answer.encode(), Closed::Refused(why));
    }

    /// Sends the last message on a socket. The socket stays known until the driver has fetched it.
    pub(super) fn part(&mut self, now: Time, id: SocketId, last: Bytes, why: Closed) {
        let until = now + self.config.handshake;
        if self.sockets.parts(id, last, until) {
            self.act_close(id, why);
        }
    }

    /// Asks the driver whether to admit that node, which sent `came`. The handshake continues with the
    /// driver's answer. `false`: the driver has answered, or need not be asked.
    fn asks_about(&mut self, id: SocketId, node: Life, came: impl FnOnce() -> Asked) -> bool {
        let Some(socket) = self.sockets.get_mut(id) else { return false };
        if !self.config.authorizes || socket.is_authorized {
            return false;
        }
        socket.asked = Some(Box::new(came()));
        self.actions.push_back(Action::Authorize(id, node));
        true
    }

    /// Whether the driver has admitted the node at the other end: then its message has been checked.
    fn is_authorized(&self, id: SocketId) -> bool {
        self.sockets.get(id).is_some_and(|socket| socket.is_authorized)
    }

    fn socket_source(&self, id: SocketId) -> Source {
        self.sockets.get(id).map_or(Source::Unknown, |socket| socket.source)
    }

    /// Why a life of a node is refused, given the life that was met before.
    fn refuses_life(&self, met: Option<Incarnation>, incarnation: Incarnation) -> Option<Refusal> {
        let met = met?;
        if incarnation < met && !planted!(StaleAdmitted) {
            return Some(Refusal::Stale(met));
        }
        (incarnation != met && !self.config.keeps_id).then_some(Refusal::AnotherLife(met))
    }

    /// A `Hello` on `socket` names a connection that this node does not know. If a `Hello` of this node is
    /// under way, its answer may name that connection. If this node's `Hello` prevails, the other one is
    /// refused as crossed. If not, the other node refuses this node's as crossed; if this node did so too,
    /// neither would ever be answered. So it answers that it does not know the connection, and then accepts
    /// no answer that names it.
    fn does_not_know(&mut self, node: NodeId, socket: SocketId, connection: ConnectionId) -> Refusal {
        let running = self.connections.get(node).and_then(|connection| connection.dialling.running);
        let Some(Attempt::Hello(mine)) = running else { return Refusal::Forgotten };
        let keeps_mine = self.keeps_mine(node, mine, socket);
        let disowned = &mut self.connection(node).dialling.disowned;
        if keeps_mine || disowned.len() >= DISOWNED_MAX {
            return Refusal::Crossed;
        }
        disowned.push(connection);
        Refusal::Forgotten
    }

    /// Both have dialled: whether this node's own socket is kept. A direct socket is better than a relayed
    /// one.
    pub(super) fn keeps_mine(&self, node: NodeId, mine: SocketId, theirs: SocketId) -> bool {
        if is_relayed(mine) == is_relayed(theirs) { self.me.node < node } else { is_relayed(theirs) }
    }

    /// Answers a dialler that only asks which node this is; it will dial again for a connection.
    pub(super) fn introduce_myself(&mut self, now: Time, id: SocketId, version: u16, hello: &[u8]) {
        let (welcome, _) = self.say_welcome(version, Resume::default(), hello);
        self.part(now, id, welcome, Closed::Over);
    }

    /// The answer to this `Hello`, and the bytes of both that the dialler has to sign.
    fn say_welcome(&mut self, version: u16, resume: Resume, hello: &[u8]) -> (Bytes, Bytes) {
        let (addresses, bound) = (self.config.addresses.clone(), self.config.bound_of_addresses());
        let (nonce, proof) = (self.nonce(), Proof::default());
        let welcome = Welcome { version, me: self.me, resume, addresses, bound, nonce, proof };
        let welcome = prove(&*self.identity, hello, Answer::Welcome(welcome));
        (welcome.encode(), confirmed(hello, &welcome))
    }

    /// Stores the addresses that a node declares itself; they take precedence over those from other nodes.
    pub(super) fn learn_first(&mut self, node: NodeId, socket: SocketId, addresses: &[String]) {
        let (near, source) = self.sockets.get(socket).map_or((false, Source::Unknown), |s| (s.is_near(), s.source));
        self.connection(node).book.hears_itself(addresses, near, source);
    }

    /// Whether another event has superseded the answer of that life, which names this connection, to this
    /// node's `Hello` on the socket.
    fn is_overtaken(
        &mut self,
        now: Time,
        id: SocketId,
        Life { node, incarnation }: Life,
        answered: ConnectionId,
        said_met: Incarnation,
        said: Resume,
    ) -> bool {
        let connection = self.connection(node);
        // Since its `Hello` this side may have taken another socket, or given up the life that the `Hello`
        // named.
        let stands = planted!(CrossedKept)
            || connection.dialling.running == Some(Attempt::Hello(id))
                && matches!(connection.carried, Carried::Lost { .. })
                && (connection.id == said.connection || !connection.id.is_some())
                && connection.run == said.run;
        // This node may have answered the other one that it does not know this connection.
        if !stands || connection.dialling.disowned.contains(&answered) {
            return true;
        }
        let may_name = connection.dialling.may_name() && !connection.id.is_some();
        let has_named = said.connection.is_some() && said_met == incarnation;
        if may_name && !has_named && self.offers(now, node).into_iter().any(|(to, _)| to == incarnation) {
            // This side has answered the other one, which may have begun: the next `Hello` offers that.
            return true;
        }
        let is_other = |(to, offered): (Incarnation, ConnectionId)| to == incarnation && offered != answered;
        if self.former.promised(now, node).any(is_other)
            && !std::mem::replace(&mut self.connection(node).dialling.was_overtaken, true)
        {
            // That life has sent a `Hello` that does not know this connection, so this answer may be the
            // older message. Wait only once: a stranger can replay messages of that life.
            return true;
        }
        let theirs = self.unconfirmed(node).next();
        theirs.is_some_and(|theirs| !self.keeps_mine(node, id, theirs)) && self.yields(now, node)
    }

    /// The promise on a socket that is not confirmed.
    pub(super) fn promise(&self, socket: SocketId) -> Option<&Promise> {
        match &self.sockets.get(socket)?.phase {
            Phase::Answered(promise) => Some(promise),
            _ => None,
        }
    }

    /// The sockets that the other node has dialled and this one has answered, but that node has not
    /// confirmed. If this node's own socket carries the connection, they must not replace it, provided that
    /// the other node gives way too.
    pub(super) fn unconfirmed(&self, node: NodeId) -> impl Iterator<Item = SocketId> {
        let of_it =
            move |socket: &Socket| matches!(&socket.phase, Phase::Answered(promise) if promise.dialler.node == node);
        self.sockets.shaking().filter(move |(_, socket)| of_it(socket)).map(|(id, _)| id)
    }

    /// The running dial gives way to such a socket. Otherwise one node could keep one of the two sockets and
    /// the other node the other. Only once, and for a moment: the socket may never be confirmed.
    pub(super) fn yields(&mut self, now: Time, node: NodeId) -> bool {
        let dialling = &mut self.connection(node).dialling;
        if planted!(CrossedKept) || std::mem::replace(&mut dialling.has_yielded, true) {
            return false;
        }
        dialling.running = None;
        dialling.next = Some(now + YIELD);
        self.due_at(node, now + YIELD);
        true
    }
}

impl Machine {
    /// Handles a `Hello`, at the dialled side.
    pub(super) fn hello(&mut self, now: Time, id: SocketId, hello: Hello, message: &Bytes) {
        let version = handshake::common(hello.versions).expect("its decoder has looked");
        if self.is_turned_away(now, id, &hello, message) {
            return;
        }
        let introduces = hello.wanted == NodeId(0);
        let node = hello.me.node;
        let me = self.endpoint.me;
        let known = self.endpoint.connections.get(node);
        let met = known.map_or_else(|| self.endpoint.former.met(node), |connection| connection.met);
        if let Some(why) = self.endpoint.refuses_life(met, hello.me.incarnation) {
            return self.endpoint.refuse(now, id, why, message);
        }
        let restarted = met.is_some_and(|met| hello.me.incarnation > met) && !planted!(RestartUnnoticed);
        // The state of a connection with an earlier life of that node does not apply to the present one.
        let stands = known.filter(|_| !restarted);
        let wanted_here = stands.is_some_and(|connection| connection.was_up || !connection.outbox.is_done());
        if self.endpoint.leaving && (introduces || !wanted_here) {
            return self.endpoint.refuse(now, id, Refusal::Busy, message);
        }
        let source = self.endpoint.socket_source(id);
        if !self.endpoint.connections.admits(node, source, self.endpoint.config.peers_max) {
            // This also refuses a dialler that only asks which node this is: it would dial again for a
            // connection, and keep trying.
            return self.endpoint.refuse(now, id, Refusal::Busy, message);
        }
        if introduces {
            return self.endpoint.introduce_myself(now, id, version, message);
        }
        // If the dialler has met another life of this node, `Welcome` shows it that, and a new connection.
        let said = match hello.met {
            met if met == me.incarnation || met == Incarnation(0) => hello.resume,
            _ => Resume::default(),
        };
        let mine = stands.map_or(ConnectionId::NONE, |connection| connection.id);
        let goes_on = said.connection.is_some() && said.connection == mine;
        // Until one connection is confirmed, it may be any that this node has offered.
        let is_unknown = said.connection.is_some() && !goes_on;
        let offered_run = self.endpoint.former.offered_run(now, hello.me, said.connection).filter(|_| is_unknown);
        let offered_run = if is_unknown && planted!(ForgottenResumes) { offered_run.or(Some(1)) } else { offered_run };
        if is_unknown && offered_run.is_none() {
            let why = self.endpoint.does_not_know(node, id, said.connection);
            return self.endpoint.refuse(now, id, why, message);
        }
        let their_attempt = stands.map_or(0, |connection| connection.their_attempt);
        // An answered `Hello` that is not confirmed may come again, but not one that its dialler gave up
        // before that.
        let is_late =
            hello.attempt <= their_attempt || hello.attempt < self.endpoint.former.attempt_answered(now, hello.me);
        if is_late && !planted!(LateSocket) {
            return self.endpoint.refuse(now, id, Refusal::Late, message);
        }
        if let Some(Attempt::Hello(mine)) = known.and_then(|connection| connection.dialling.running)
            && !planted!(CrossedKept)
            && self.endpoint.keeps_mine(node, mine, id)
        {
            return self.endpoint.refuse(now, id, Refusal::Crossed, message);
        }
        // Where a new connection begins, the frames of an earlier one do not count.
        let begins = || Resume { run: 1, ..Resume::default() };
        let here = stands.filter(|_| goes_on).map_or_else(begins, Connection::resume_point);
        let (mut run, mut seen) = (here.run, 0);
        if let Some(offered_run) = offered_run {
            // The dialler has begun, and nothing of that has arrived.
            run = offered_run.max(said.run);
            run += u64::from(said.run == run && said.seen > 0);
        }
        if goes_on {
            run = here.run.max(said.run);
            seen = if said.run == run { said.seen } else { 0 };
            let outbox = stands.filter(|_| run == here.run).map(|connection| &connection.outbox);
            if outbox.is_some_and(|outbox| seen < outbox.acked()) && !planted!(LateSocket) {
                // The dialler has reported, on another socket, that it received more: this message is older
                // and arrives late.
                return self.endpoint.refuse(now, id, Refusal::Late, message);
            }
            if !outbox.map_or(seen == 0, |outbox| outbox.can_resume(seen)) {
                // That is impossible: this life is over, for both.
                (run, seen) = (run + 1, 0);
            }
        }
        if run > limits::RUN {
            return self.endpoint.refuse(now, id, Refusal::Impossible, message);
        }
        let begins = !goes_on && offered_run.is_none();
        let connection = if begins { self.endpoint.random.connection() } else { said.connection };
        let answered = Resume { connection, run, seen: if run == here.run { here.seen } else { 0 } };
        let lives_on = goes_on && run == here.run && stands.is_some_and(|connection| connection.was_up);
        if !lives_on {
            // Nothing was sent in that run of it. The dialler may receive this answer while this node never
            // receives the confirmation, and may drop its record of the dialler if it has given up the
            // previous connection and needs nothing of it.
            self.endpoint.former.promise(now, hello.me, source, (connection, run), hello.attempt);
        }
        let (welcome, signed) = self.endpoint.say_welcome(version, answered, message);
        let promise = Promise {
            dialler: hello.me,
            key: hello.key,
            signed,
            attempt: hello.attempt,
            addresses: hello.addresses,
            bound: hello.bound,
            seen,
            before: mine,
            answered,
            begins,
        };
        let socket = self.endpoint.sockets.get_mut(id).expect("it is the one that arrived");
        socket.ready = Some(welcome);
        if planted!(UnconfirmedResumed) {
            return self.confirmed(now, id, promise);
        }
        self.endpoint.sockets.is_answered(id, Box::new(promise));
        self.endpoint.act_write(id);
    }

    /// Whether the dialler is refused, whatever it wants, or the driver has to be asked about it first.
    fn is_turned_away(&mut self, now: Time, id: SocketId, hello: &Hello, message: &Bytes) -> bool {
        if hello.application != self.endpoint.config.application {
            let answer = Answer::Refused(Refusal::Application(self.endpoint.config.application.clone()));
            let application = hello.application.clone();
            self.endpoint.part(now, id, answer.encode(), Closed::Stranger { node: hello.me.node, application });
            return true;
        }
        if let Some(why) = self.refuses_dialler(now, id, hello) {
            self.endpoint.refuse(now, id, why, message);
            return true;
        }
        self.endpoint.asks_about(id, hello.me, || Asked::Hello(hello.clone(), message.clone()))
    }

    /// Answers [`Action::Authorize`]: whether the node at the other end of this socket may have connections
    /// with this one. If not, this node refuses it if it has dialled; if it was dialled, the connection is
    /// [over](Down::Unauthorized).
    pub fn authorized(&mut self, now: Time, socket: SocketId, is_admitted: bool) {
        let Some(there) = self.endpoint.sockets.get_mut(socket) else { return };
        let Some(asked) = there.asked.take() else { return };
        there.is_authorized = is_admitted;
        match *asked {
            Asked::Hello(hello, message) if is_admitted => self.hello(now, socket, hello, &message),
            Asked::Hello(_, message) => self.endpoint.refuse(now, socket, Refusal::Unauthorized, &message),
            Asked::Welcome(welcome) if is_admitted => self.welcome(now, socket, welcome),
            Asked::Welcome(welcome) => {
                self.close(now, socket, Closed::Unauthorized(welcome.me.node));
                self.die(now, welcome.me.node, Down::Unauthorized);
            }
        }
    }

    /// Why a dialler is refused, whatever it wants: its id is not its own, or it wants another node than this
    /// one.
    fn refuses_dialler(&mut self, now: Time, id: SocketId, hello: &Hello) -> Option<Refusal> {
        let meant = hello.wanted == NodeId(0) || hello.wanted == self.endpoint.me.node;
        // The relay has named the dialler.
        let from = self.endpoint.relays.from(id).unwrap_or(hello.me.node);
        if self.endpoint.identity.id_of(&hello.key) != Some(hello.me.node) {
            return Some(Refusal::Unproven);
        }
        if !meant || from != hello.me.node {
            return Some(Refusal::WrongNode(self.endpoint.me.node));
        }
        if !self.endpoint.is_authorized(id) && !is_signed(&*self.endpoint.identity, hello) && !planted!(HelloUnchecked)
        {
            // Otherwise a stranger could make the two wait for each other: this answer holds up this node's
            // own dial.
            return Some(Refusal::Unproven);
        }
        if hello.me.node == self.endpoint.me.node {
            // The earlier one of the two has to learn of the later.
            self.hear_of_myself(now, hello.me.incarnation);
            return Some(match hello.me.incarnation.cmp(&self.endpoint.me.incarnation) {
                Ordering::Less => Refusal::Stale(self.endpoint.me.incarnation),
                Ordering::Equal => Refusal::Myself,
                Ordering::Greater => Refusal::WrongNode(self.endpoint.me.node),
            });
        }
        self.hear_of_myself(now, hello.met);
        // It should look for the later life, and not mistake this one for it.
        self.endpoint.replaced.is_some().then_some(Refusal::Busy)
    }

    /// At the dialled side: the dialler has received `Welcome` and proved its id. Until now its `Hello` has
    /// changed nothing here; other events may have changed the state meanwhile.
    pub(super) fn confirmed(&mut self, now: Time, id: SocketId, promise: Promise) {
        let Promise { dialler, attempt, addresses, bound, seen, before, answered, begins, .. } = promise;
        let Life { node, incarnation } = dialler;
        let source = self.endpoint.socket_source(id);
        if self.endpoint.replaced.is_some()
            || !self.endpoint.connections.admits(node, source, self.endpoint.config.peers_max)
        {
            return self.close(now, id, Closed::Refused(Refusal::Busy));
        }
        let former = &mut self.endpoint.former;
        self.endpoint.connections.comes(node, source, |connection| former.comes_back(node, connection));
        let met = self.endpoint.connection(node).met;
        if let Some(why) = self.endpoint.refuses_life(met, incarnation) {
            return self.close(now, id, Closed::Refused(why));
        }
        if met.is_some_and(|met| incarnation > met) && !planted!(RestartUnnoticed) {
            self.restarted(now, node);
        }
        let connection = self.endpoint.connection(node);
        if attempt <= connection.their_attempt && !planted!(LateSocket) {
            return self.close(now, id, Closed::Refused(Refusal::Late));
        }
        connection.their_attempt = attempt;
        connection.met = Some(incarnation);
        if self.endpoint.is_unproven_for_long(now, node) {
            // The last socket is lost, and no socket has had an acknowledgement for the whole grace period.
            // The next handshake shows that this life is over.
            match self.endpoint.connection(node).socket() {
                Some(old) => self.close(now, old, Closed::Superseded),
                None => self.give_up(now, node),
            }
            return self.close(now, id, Closed::Over);
        }
        let connection = self.endpoint.connection(node);
        if connection.id != answered.connection {
            let stands = if connection.id.is_some() {
                // A connection may have begun meanwhile on a socket dialled before this one. Then the dialler
                // had it when it sent this `Hello`, which names none: so it has since given that one up. That
                // does not hold for a connection that this side has dialled.
                connection.id == before || connection.is_theirs && begins
            } else {
                // The offered connection may have begun on another socket meanwhile, and be over.
                self.endpoint.former.offered_run(now, dialler, answered.connection) == Some(answered.run)
            };
            if !stands && !planted!(ForgottenResumes) {
                return self.close(now, id, Closed::Superseded);
            }
            // The dialler knows of no connection, or has never received this side's.
            self.forgotten(now, node);
            let connection = self.endpoint.connection(node);
            (connection.id, connection.is_theirs) = (answered.connection, true);
        }
        self.endpoint.former.redeem(Life { node, incarnation });
        let connection = self.endpoint.connection(node);
        if answered.run > connection.run {
            self.end_life(now, node, Down::GivenUp, answered.run);
        }
        let connection = self.endpoint.connection(node);
        if answered.run < connection.run || answered.seen > connection.inbox.seen || !connection.outbox.can_resume(seen)
        {
            return self.close(now, id, Closed::Superseded);
        }
        connection.outbox.resume(seen);
        connection.listeners.told(incarnation, &addresses, bound);
        self.endpoint.learn_first(node, id, &addresses);
        self.carry_by(now, node, id);
        // The peer sends again what arrived on the old socket after the answer.
        let inbox = &mut self.endpoint.connection(node).inbox;
        inbox.again = inbox.seen - answered.seen;
        inbox.acked = inbox.heard();
    }

    /// Handles a `Welcome`, at the dialling side.
    pub(super) fn welcome(&mut self, now: Time, id: SocketId, welcome: Welcome) {
        let Some(Phase::Greeting { wanted, met: said_met, said, address, hello }) =
            self.endpoint.sockets.get(id).map(|socket| &socket.phase)
        else {
            return;
        };
        let (wanted, said_met, said, address, hello) = (*wanted, *said_met, *said, address.clone(), hello.clone());
        let life = welcome.me;
        let answer = Answer::Welcome(welcome.clone());
        let is_proven =
            self.endpoint.is_authorized(id) || proven_by(&*self.endpoint.identity, &hello, &answer) == Some(life.node);
        if !is_proven && !planted!(WelcomeUnchecked) {
            return self.close(now, id, Closed::Unproven(life.node));
        }
        let Wanted::Node(node) = wanted else {
            self.endpoint.sockets.remove(id);
            self.endpoint.act_close(id, Closed::Over);
            return self.introduced_at(now, wanted, life, address);
        };
        if life.node != node {
            return self.another_answers(now, id, node, Refusal::WrongNode(life.node));
        }
        // A node that only introduces itself needs no admission until it is dialled for a connection.
        if self.endpoint.asks_about(id, life, || Asked::Welcome(welcome.clone())) {
            return;
        }
        if welcome.version < VERSIONS.0 || welcome.version > VERSIONS.1 {
            return self.close(now, id, Closed::Refused(Refusal::Version((welcome.version, welcome.version))));
        }
        if self.endpoint.is_overtaken(now, id, life, welcome.resume.connection, said_met, said) {
            return self.close(now, id, Closed::Superseded);
        }
        let mut is_another = false;
        let keeps_id = self.endpoint.config.keeps_id;
        // A named offer may be to a life that has sent a `Hello` and has not been met.
        let known = Some(said_met).filter(|met| *met != Incarnation(0));
        match self.endpoint.connection(node).met.max(known) {
            Some(met) if life.incarnation < met => {
                return self.close(now, id, Closed::Refused(Refusal::Stale(met)));
            }
            Some(met) if life.incarnation > met && !keeps_id => {
                return self.close(now, id, Closed::Refused(Refusal::AnotherLife(met)));
            }
            Some(met) if life.incarnation > met => {
                self.restarted(now, node);
                is_another = true;
            }
            _ => {}
        }
        let connection = self.endpoint.connection(node);
        connection.met = Some(life.incarnation);
        let theirs = welcome.resume;
        let may_begin = is_another || !said.connection.is_some();
        if !(may_begin || theirs.connection == said.connection) || !theirs.connection.is_some() {
            return self.close(now, id, Closed::Garbage("it goes on with another connection".to_owned()));
        }
        connection.is_theirs &= connection.id == theirs.connection;
        connection.id = theirs.connection;
        self.endpoint.former.redeem(life);
        let connection = self.endpoint.connection(node);
        if theirs.run > connection.run {
            self.end_life(now, node, Down::GivenUp, theirs.run);
        }
        let connection = self.endpoint.connection(node);
        if theirs.run < connection.run || !connection.outbox.resume(theirs.seen) {
            // It cannot resume from there: the next handshake shows that this life is over.
            let run = connection.run + 1;
            self.end_life(now, node, Down::GivenUp, run);
            return self.close(now, id, Closed::Over);
        }
        connection.dialling.running = None;
        connection.listeners.told(life.incarnation, &welcome.addresses, welcome.bound);
        // If it was dialled for another node, its address is known only from that node.
        let for_others = connection.dialling.for_others || connection.dialling.reports;
        if !is_relayed(id) {
            if !for_others {
                connection.listeners.reached(life.incarnation, &address);
            }
            connection.book.owns(&address);
        }
        self.endpoint.learn_first(node, id, &welcome.addresses);
        self.drop_answered(now, node, id);
        let mut first = BytesMut::new();
        codec::encode(&confirm(&*self.endpoint.identity, &hello, &answer), &mut first);
        self.endpoint.sockets.get_mut(id).expect("the handshake went over it").ready = Some(first.freeze());
        self.carry_by(now, node, id);
    }

    /// That node is at the address, and was not dialled for a connection.
    fn introduced_at(&mut self, now: Time, wanted: Wanted, there: Life, address: String) {
        match wanted {
            Wanted::Check(node) => {
                if let Some(connection) = self.endpoint.connections.get_mut(node).filter(|_| node == there.node) {
                    connection.listeners.reached(there.incarnation, &address);
                }
            }
            Wanted::Probe(node) => self.probed(now, node, there.node, address),
            Wanted::Node(_) | Wanted::Anybody => {
                self.endpoint.keep(there.node, now + self.endpoint.config.grace);
                self.endpoint.add_addresses(there.node, |book| book.owns(&address));
                self.endpoint.actions.push_back(Action::Introduced(address, Ok(there.node)));
            }
        }
    }

    pub(super) fn drop_answered(&mut self, now: Time, node: NodeId, mine: SocketId) {
        let dropped: Vec<SocketId> =
            self.endpoint.unconfirmed(node).filter(|id| self.endpoint.keeps_mine(node, mine, *id)).collect();
        dropped.into_iter().for_each(|id| self.close(now, id, Closed::Superseded));
    }

    /// Handles a refusal that ends something. It counts as that node's only with proof.
    pub(super) fn over(&mut self, now: Time, id: SocketId, answer: &Answer) {
        let Some(Phase::Greeting { hello, .. }) = self.endpoint.sockets.get(id).map(|socket| &socket.phase) else {
            return;
        };
        let Answer::Over(why, _) = answer else { return };
        let by = proven_by(&*self.endpoint.identity, hello, answer);
        self.refused(now, id, why.clone(), by);
    }

    /// `by`: the node that has proved that the refusal is its own.
    pub(super) fn refused(&mut self, now: Time, id: SocketId, why: Refusal, by: Option<NodeId>) {
        let Some(Phase::Greeting { wanted, said, address, .. }) =
            self.endpoint.sockets.get(id).map(|socket| &socket.phase)
        else {
            return;
        };
        let (wanted, said, address) = (*wanted, *said, address.clone());
        if wanted == Wanted::Anybody && why == Refusal::Myself {
            // That is also an answer: the address leads to this node.
            self.endpoint.sockets.remove(id);
            self.endpoint.act_close(id, Closed::Refused(why));
            return self.endpoint.actions.push_back(Action::Introduced(address, Ok(self.endpoint.me.node)));
        }
        if let Wanted::Node(node) = wanted {
            let connection = self.endpoint.connection(node);
            connection.dialling.answered = true;
            // A node whose connection was up belongs to this application, and is not this node: the address
            // leads to another node.
            let is_elsewhere = match why {
                Refusal::WrongNode(_) => true,
                Refusal::Version(_)
                | Refusal::Application(_)
                | Refusal::Myself
                | Refusal::Unproven
                | Refusal::Unauthorized => connection.was_up,
                // Only the node itself can end an established connection.
                Refusal::Stale(_) | Refusal::AnotherLife(_) => connection.was_up && by != Some(node),
                _ => false,
            };
            if is_elsewhere {
                return self.another_answers(now, id, node, why);
            }
        }
        if let (Wanted::Node(node), Refusal::Forgotten | Refusal::Impossible) = (wanted, &why)
            && said.connection.is_some()
            && by == Some(node)
        {
            return self.begin_anew(now, id, node, said.connection, why);
        }
        self.close(now, id, Closed::Refused(why.clone()));
        if let Refusal::Stale(met) = why {
            self.hear_of_myself(now, met);
        }
        // For the first dial of a connection these refusals would recur; others may change.
        if let Wanted::Node(node) = wanted
            && matches!(
                why,
                Refusal::Version(_)
                    | Refusal::Application(_)
                    | Refusal::Myself
                    | Refusal::Stale(_)
                    | Refusal::Unproven
                    | Refusal::Unauthorized
                    | Refusal::AnotherLife(_)
            )
        {
            // (If this node is replaced, the connection is over as all the others are.)
            if self.endpoint.replaced.is_none() {
                self.die(now, node, Down::Refused(why));
            }
        }
    }

    /// That node has lost its record of the connection, and may or may not have received the unacknowledged
    /// frames: the connection is over. The next `Hello` begins another one.
    fn begin_anew(&mut self, now: Time, id: SocketId, node: NodeId, said: ConnectionId, why: Refusal) {
        let connection = self.endpoint.connection(node);
        let is_meant = connection.id == said || !connection.id.is_some();
        let stands = connection.dialling.running == Some(Attempt::Hello(id)) && is_meant;
        if !stands {
            return self.close(now, id, Closed::Refused(why));
        }
        if !self.stop_relaying(now, node) {
            self.endpoint.connection(node).dialling.running = None;
            self.endpoint.sockets.remove(id);
            self.endpoint.act_close(id, Closed::Refused(why));
        }
        self.forgotten(now, node);
        self.endpoint.former.is_unknown_to(node, said);
        self.endpoint.connection(node).dialling.unknown += 1;
        self.endpoint.connect(now, node);
        let connection = self.endpoint.connection(node);
        if matches!(connection.carried, Carried::Lost { .. }) && connection.dialling.running.is_none() {
            connection.dialling.next = Some(connection.dialling.at_once.next(now, REDIALS));
            self.endpoint.dial_if_due(now, node);
            self.endpoint.seek_help(now, node);
        }
    }

    /// Another node answers at the address that was dialled for the connection with that node.
    pub(super) fn another_answers(&mut self, now: Time, id: SocketId, node: NodeId, why: Refusal) {
        let Some(Socket { phase: Phase::Greeting { address, .. }, near, .. }) = self.endpoint.sockets.get(id) else {
            return;
        };
        let (address, near) = (address.clone(), *near);
        if is_relayed(id) || !self.refuses(now, node, &address, near) {
            self.endpoint.sockets.remove(id);
            self.endpoint.act_close(id, Closed::Refused(why.clone()));
            self.endpoint.attempt_failed(now, node, Attempt::Hello(id), why.to_string());
        }
    }

    /// A socket takes over a connection.
    pub(super) fn carry_by(&mut self, now: Time, node: NodeId, id: SocketId) {
        self.endpoint.is_reached(node);
        self.endpoint.connections.is_met(node);
        let leaving = self.endpoint.leaving;
        let connection = self.endpoint.connection(node);
        let state = if connection.was_up {
            State::Resumed
        } else {
            let incarnation = connection.met.expect("the handshake told");
            State::Up(Life { node, incarnation })
        };
        let before = std::mem::replace(&mut connection.carried, Carried::By(id));
        if leaving && !connection.leaving {
            connection.leaving = true;
            connection.outbox.push(Frame::Goodbye);
        }
        let hello = match connection.dialling.running.take() {
            Some(Attempt::Hello(socket)) if socket != id && !planted!(CrossedKept) => Some(socket),
            _ => None,
        };
        connection.was_up = true;
        connection.listeners.all_well();
        connection.dialling.next = None;
        connection.dialling.rest();
        connection.book.rest();
        connection.said = now;
        connection.heard = now;
        connection.carried_at = now;
        connection.resuming = state == State::Resumed;
        if matches!(before, Carried::By(_)) {
            connection.lose(now);
        }
        if planted!(GraceRestarted) {
            connection.unproven = None;
        }
        connection.inbox.again = 0;
        connection.inbox.acked = connection.inbox.seen;
        connection.inbox.unacked_bytes = 0;
        connection.inbox.within_frame = false;
        connection.ack_at = None;
        let socket = self.endpoint.sockets.carries(id, node).expect("the handshake went over it");
        let (source, near) = (socket.source, socket.near);
        if let Some(connection) = self.endpoint.connections.get_mut(node) {
            connection.inbox.account.comes_from(source, &mut self.endpoint.pool);
        }
        if near {
            self.endpoint.check_listeners(now, node);
        }
        if let Carried::By(old) = before {
            // The other side has noticed before this one that the old socket is lost.
            self.endpoint.sockets.remove(old);
            self.endpoint.act_close(old, Closed::Superseded);
            self.endpoint.actions.push_back(Action::Connection(node, State::Lost(now)));
        }
        if let Some(socket) = hello {
            self.endpoint.sockets.remove(socket);
            self.endpoint.act_close(socket, Closed::Superseded);
        }
        #[cfg(feature = "planted")]
        if planted!(CreditsDoubled) && state == State::Resumed {
            let (channels, peers) = self.at(now);
            channels.grant_again(peers, node);
        }
        let is_new = matches!(state, State::Up(_));
        self.endpoint.actions.push_back(Action::Connection(node, state));
        if let Some(relay) = self.endpoint.relays.by(id) {
            self.endpoint.actions.push_back(Action::Connection(node, State::Relayed(relay)));
            // A relayed connection does not relay: otherwise two nodes could end up relaying each other's
            // connection.
            self.end_streams(now, node, true);
            self.endpoint.probe_later(now, node);
        }
        if is_new {
            if self.endpoint.config.relayed && !is_relayed(id) {
                self.endpoint.say(now, node, Frame::Relay(Relay::Admit));
            }
            let (channels, peers) = self.at(now);
            channels.take_anew(peers, node);
        }
        self.endpoint.due_at(node, now + self.endpoint.config.first_heartbeat().min(self.endpoint.config.silence));
        self.endpoint.act_write(id);
    }
}
