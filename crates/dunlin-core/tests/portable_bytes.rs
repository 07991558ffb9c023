//! A carrier that works like a node: two sides that share only a pipe of bytes in each direction. An end
//! inside a message becomes two agents, one on each side, whose messages use the same pipe, with ends inside,
//! and so on.
#![cfg(feature = "serde")]
// Protocols that name themselves are written as users would write them.
#![allow(clippy::use_self)]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use dunlin_core::agent::{Event, FromReceiver, Inlet, Outlet, Reserved};
use dunlin_core::carrier::{
    AdoptedEnd, Agent, AnyInlet, AnyOutlet, CarryError, Chore, EndKind, Format, Inbox, Outbox, PolicyNote, Sealed,
    Shape, Sink, StagedEnd, Value, Write,
};
use dunlin_core::doc::block_on;
use dunlin_core::{
    Broadcast, BroadcastError, CallError, Callee, Caller, Joiner, NoPoison, Portable, Reason, Receiver, RecvError,
    Sender, Shared, Why, alt, broadcast, broadcast_with, call, channel, channel_with, fifo, future, par, rendezvous,
};
use serde::{Deserialize, Serialize};

/// A message as encoded in a frame: its body, and its ends in the order of their numbers.
#[derive(Serialize, Deserialize)]
struct Message {
    body: Vec<u8>,
    ends: Vec<End>,
}

/// The kind of an end, and the first of its links, which have every other number from there.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct End {
    kind: EndKind,
    policy: Option<PolicyNote>,
    link: u64,
}

/// How many links an end of this kind has.
fn links_of(kind: EndKind) -> u64 {
    if kind == EndKind::Barrier { 2 } else { 1 }
}

/// Every frame is sent with the number of its link first.
#[derive(Serialize, Deserialize)]
enum Frame {
    // From the sender's side. The number is the offer's.
    Offer(u64, Message),
    ChoiceOffer(u64, u128),
    AskedBack(u64),
    Revoke(u64),
    Grant(u64, u64, Message),
    NoGrant(u64),
    // From the receiver's side.
    Taken(u64),
    Held(u64),
    Released(u64),
    Failed(u64, String),
    Withdrawn(u64),
    Reserve(u64, u64),
    Abort(u64),
    // From either.
    Retired,
    Poisoned(String, u8),
    Gone,
}

/// A value whose bytes have been sent and whose fate is unknown: until it is known, the value is unchanged.
struct Away {
    value: Value,
    sealed: Sealed,
    links: Vec<u64>,
}

struct OutLink {
    agent: AnyOutlet,
    away: BTreeMap<u64, Away>,
    /// Reservations to retry: offer, request.
    later: Vec<(u64, u64)>,
    /// The sender is gone; some answers are still due.
    gone: bool,
}

struct InLink {
    agent: AnyInlet,
    /// For each offer that has arrived and is not taken yet, the ends that were decoded from it.
    arrived: BTreeMap<u64, Vec<(u64, AdoptedEnd)>>,
    gone: bool,
}

enum Link {
    Out(OutLink),
    In(InLink),
}

/// One side: a table of agents, and its outgoing frames.
struct Side {
    links: BTreeMap<u64, Link>,
    next_link: u64,
    frames_out: Vec<Vec<u8>>,
    /// How many ends were given an agent at the hand-over.
    moved: usize,
    /// Whether it corrupts the bodies of the messages that it sends.
    garbles: bool,
    chores: Vec<Chore>,
}

impl Side {
    fn new(first_link: u64) -> Self {
        Self {
            links: BTreeMap::new(),
            next_link: first_link,
            frames_out: Vec::new(),
            moved: 0,
            garbles: false,
            chores: vec![],
        }
    }

    fn say(&mut self, link: u64, frame: Frame) {
        self.frames_out.push(serde_json::to_vec(&(link, frame)).unwrap());
    }

    fn install(&mut self, link: u64, agent: Agent) {
        let link_state = match agent {
            Agent::Outlet(agent) => Link::Out(OutLink { agent, away: BTreeMap::new(), later: vec![], gone: false }),
            Agent::Inlet(agent) => Link::In(InLink { agent, arrived: BTreeMap::new(), gone: false }),
            Agent::Several(several) => {
                for (link, agent) in (link..).step_by(2).zip(several.agents) {
                    self.install(link, agent);
                }
                return self.chores.push(several.chore);
            }
        };
        assert!(self.links.insert(link, link_state).is_none());
    }

    /// Stages the ends of a value and assigns each a link. The ends are unchanged.
    fn encode(&mut self, value: Value) -> Result<(Message, Away), Value> {
        let mut outbox = Outbox::new();
        let mut body = Vec::new();
        let write = || value.write(Format::Cbor, &mut Sink::new(&mut body, u64::MAX));
        if outbox.encode(write).is_err() {
            return Err(value);
        }
        let sealed = outbox.seal().unwrap();
        let own_halves: Vec<_> = self.links.values().map(Link::channel).collect();
        for end in sealed.ends() {
            // An end whose channel already crosses the pipe would have to be forwarded, and a shared end
            // would need a task: this carrier supports neither.
            if end.kind == EndKind::SharedSender || end.channel.is_some_and(|channel| own_halves.contains(&channel)) {
                return Err(value);
            }
        }
        let mut end = |end: StagedEnd| {
            let link = self.next_link;
            self.next_link += 2 * links_of(end.kind);
            End { kind: end.kind, policy: end.policy, link }
        };
        let ends: Vec<_> = sealed.ends().map(&mut end).collect();
        let links = ends.iter().map(|end| end.link).collect();
        if self.garbles {
            body.pop();
        }
        Ok((Message { body, ends }, Away { value, sealed, links }))
    }

    /// Decodes a value. Its ends are halves of channels whose agents are not driven yet.
    fn decode(shape: Shape, message: &Message) -> Result<(Value, Vec<(u64, AdoptedEnd)>), String> {
        let mut inbox = Inbox::default();
        for (token, end) in (0..).zip(&message.ends) {
            inbox.expect(token, end.kind, end.policy.and_then(PolicyNote::policy).unwrap_or_else(rendezvous));
        }
        let read = || match shape.read(Format::Cbor, &message.body) {
            (value, 0) => value.map_err(|failure| failure.to_string()),
            (_, rest) => Err(format!("{rest} bytes too many")),
        };
        let value = inbox.decode(read)?;
        let adopted = inbox.into_adopted();
        Ok((value, message.ends.iter().map(|end| end.link).zip(adopted).collect()))
    }

    /// The other side has taken the value, so its ends live there from now on.
    fn hand_over(&mut self, away: Away) {
        let Away { value, sealed, links } = away;
        let ends = match sealed.commit(value) {
            Ok(ends) => ends,
            Err(partly) => {
                for refused in &partly.refused {
                    let (CarryError::Kept { token, .. } | CarryError::Gone { token, .. }) = refused else { panic!() };
                    self.say(links[*token as usize], Frame::Gone);
                }
                partly.ends
            }
        };
        for end in ends {
            let link = links[end.token() as usize];
            self.install(link, end.into_agent());
            self.moved += 1;
        }
    }

    /// This side has taken the value, so the ends that came with it live here.
    fn taken_here(&mut self, adopted: Vec<(u64, AdoptedEnd)>) {
        for (link, end) in adopted {
            match end.agent {
                Some(agent) => self.install(link, agent),
                None => (0..links_of(end.kind)).for_each(|n| self.say(link + 2 * n, Frame::Gone)),
            }
        }
    }

    /// Polls every agent once. Returns `false` if none had an event.
    fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        let mut news = false;
        self.chores.retain_mut(|chore| chore.as_mut().poll(cx).is_pending());
        for id in self.links.keys().copied().collect::<Vec<_>>() {
            match self.links.get_mut(&id) {
                Some(Link::Out(link)) if !link.gone => {
                    if let Poll::Ready(event) = link.agent.poll(cx) {
                        news = true;
                        self.hear_sender(id, event);
                    }
                }
                Some(Link::In(link)) => {
                    if let Poll::Ready(event) = link.agent.poll(cx) {
                        news = true;
                        self.hear_receiver(id, event);
                    }
                }
                _ => {}
            }
        }
        news
    }

    fn out(&mut self, id: u64) -> Option<&mut OutLink> {
        match self.links.get_mut(&id) {
            Some(Link::Out(link)) => Some(link),
            _ => None,
        }
    }

    fn inn(&mut self, id: u64) -> Option<&mut InLink> {
        match self.links.get_mut(&id) {
            Some(Link::In(link)) => Some(link),
            _ => None,
        }
    }

    fn hear_sender(&mut self, id: u64, event: Event<Value>) {
        match event {
            Event::FirmOffer(ticket, value) => match self.encode(value) {
                Ok((message, away)) => {
                    self.out(id).unwrap().away.insert(ticket, away);
                    self.say(id, Frame::Offer(ticket, message));
                }
                Err(value) => self.out(id).unwrap().agent.failed(ticket, Some(value), Why::Refused),
            },
            Event::Sent(_) => unreachable!("this carrier gives no credits"),
            Event::ChoiceOffer(ticket, choice) => self.say(id, Frame::ChoiceOffer(ticket, choice)),
            Event::AskedBack(ticket) => {
                self.out(id).unwrap().later.retain(|(later, _)| *later != ticket);
                self.say(id, Frame::AskedBack(ticket));
            }
            Event::Unlocked(ticket) => {
                let later = &mut self.out(id).unwrap().later;
                if let Some(index) = later.iter().position(|(t, _)| *t == ticket) {
                    let (_, request) = later.remove(index);
                    self.reserve(id, ticket, request);
                }
            }
            Event::Revoke(ticket) => self.say(id, Frame::Revoke(ticket)),
            // Every end is used as soon as it arrives.
            Event::Watched => {}
            Event::Retired => self.say(id, Frame::Retired),
            Event::Poisoned(reason) => self.say(id, Frame::Poisoned(reason.to_string(), reason.strength().as_u8())),
            Event::Lost => unreachable!("no node is ever lost here"),
            Event::Gone => {
                self.say(id, Frame::Gone);
                self.out(id).unwrap().gone = true;
                self.tidy(id);
            }
        }
    }

    fn reserve(&mut self, id: u64, ticket: u64, request: u64) {
        let Some(link) = self.out(id) else { return };
        match link.agent.reserve(ticket) {
            Reserved::Granted(value) => match self.encode(value) {
                Ok((message, away)) => {
                    self.out(id).unwrap().away.insert(ticket, away);
                    self.say(id, Frame::Grant(ticket, request, message));
                }
                Err(value) => {
                    self.out(id).unwrap().agent.failed(ticket, Some(value), Why::Refused);
                    self.say(id, Frame::NoGrant(ticket));
                }
            },
            Reserved::Later => link.later.push((ticket, request)),
            Reserved::Gone => self.say(id, Frame::NoGrant(ticket)),
        }
    }

    fn hear_receiver(&mut self, id: u64, event: FromReceiver<Value>) {
        let link = self.inn(id).unwrap();
        match event {
            FromReceiver::Taken(number) => {
                let adopted = link.arrived.remove(&number).unwrap();
                self.say(id, Frame::Taken(number));
                self.taken_here(adopted);
            }
            FromReceiver::Held(number) => {
                let adopted = link.arrived.insert(number, vec![]).unwrap();
                self.say(id, Frame::Held(number));
                self.taken_here(adopted);
            }
            FromReceiver::Released(number) => {
                link.arrived.remove(&number);
                self.say(id, Frame::Released(number));
            }
            // The value is an unused copy; it is dropped, together with its ends.
            FromReceiver::Failed(number, _, why) => {
                link.arrived.remove(&number);
                let why = if why == Why::Closed { "closed" } else { "refused" };
                self.say(id, Frame::Failed(number, why.into()));
            }
            FromReceiver::Reserve(number, request) => self.say(id, Frame::Reserve(number, request)),
            FromReceiver::Abort(number, _) => {
                link.arrived.insert(number, vec![]);
                self.say(id, Frame::Abort(number));
            }
            FromReceiver::Withdrawn(..) | FromReceiver::Lost(..) => {
                unreachable!("nothing goes further than over this pipe")
            }
            FromReceiver::Credit(_) => unreachable!("this carrier asks for no credits"),
            FromReceiver::Used | FromReceiver::Awaited => {}
            FromReceiver::Down => unreachable!("no node is ever lost here"),
            FromReceiver::Retired => self.say(id, Frame::Retired),
            FromReceiver::Poisoned(reason) => {
                self.say(id, Frame::Poisoned(reason.to_string(), reason.strength().as_u8()))
            }
            FromReceiver::Gone => {
                self.say(id, Frame::Gone);
                self.links.remove(&id);
            }
        }
        self.tidy(id);
    }

    /// A link whose sender is gone ends with the last answer that is due.
    fn tidy(&mut self, id: u64) {
        let over = match self.links.get(&id) {
            Some(Link::Out(link)) => link.gone && link.away.is_empty(),
            Some(Link::In(link)) => link.gone && link.arrived.is_empty(),
            None => false,
        };
        if over {
            self.links.remove(&id);
        }
    }

    fn hear(&mut self, bytes: &[u8]) {
        let (id, frame): (u64, Frame) = serde_json::from_slice(bytes).unwrap();
        match self.links.get_mut(&id) {
            Some(Link::Out(_)) => self.hear_far_receiver(id, frame),
            Some(Link::In(_)) => self.hear_far_sender(id, frame),
            // The link has ended here and has reported it.
            None => {}
        }
        self.tidy(id);
    }

    fn hear_far_receiver(&mut self, id: u64, frame: Frame) {
        let link = self.out(id).unwrap();
        match frame {
            Frame::Taken(ticket) | Frame::Held(ticket) => {
                let away = link.away.remove(&ticket).unwrap();
                self.hand_over(away);
                let link = self.out(id).unwrap();
                if matches!(frame, Frame::Taken(_)) { link.agent.taken(ticket) } else { link.agent.held(ticket) }
            }
            Frame::Released(ticket) => link.agent.taken(ticket),
            Frame::Failed(ticket, why) => {
                let value = link.away.remove(&ticket).map(|away| away.value);
                let why = if why == "closed" { Why::Closed } else { Why::Refused };
                link.agent.failed(ticket, value, why);
            }
            Frame::Withdrawn(ticket) => {
                let value = link.away.remove(&ticket).map(|away| away.value);
                link.agent.withdrawn(ticket, value);
            }
            Frame::Reserve(ticket, request) => self.reserve(id, ticket, request),
            Frame::Abort(ticket) => {
                if let Some(away) = link.away.remove(&ticket) {
                    link.agent.give_back(ticket, away.value);
                }
            }
            Frame::Retired => link.agent.retire(),
            Frame::Poisoned(reason, strength) => link.agent.poison(Reason::from(reason).of_strength(strength)),
            Frame::Gone => {
                // Values in flight have reached no receiver.
                for (ticket, away) in std::mem::take(&mut link.away) {
                    link.agent.failed(ticket, Some(away.value), Why::Closed);
                }
                self.links.remove(&id);
            }
            _ => panic!("not from a receiver"),
        }
    }

    fn hear_far_sender(&mut self, id: u64, frame: Frame) {
        let link = self.inn(id).unwrap();
        let shape = link.agent.shape();
        match frame {
            Frame::Offer(number, message) => match Self::decode(shape, &message) {
                Ok((value, adopted)) => {
                    link.arrived.insert(number, adopted);
                    link.agent.offer(number, value);
                }
                Err(_) => self.say(id, Frame::Failed(number, "refused".into())),
            },
            Frame::ChoiceOffer(number, choice) => {
                link.arrived.insert(number, vec![]);
                link.agent.offer_choice(number, choice);
            }
            Frame::AskedBack(number) => {
                if link.agent.withdraw(number).is_some() {
                    link.arrived.remove(&number);
                    self.say(id, Frame::Withdrawn(number));
                }
            }
            Frame::Revoke(number) => link.agent.revoke(number),
            Frame::Grant(number, request, message) => match Self::decode(shape, &message) {
                Ok((value, adopted)) => {
                    link.arrived.insert(number, adopted);
                    if link.agent.grant(number, request, value).is_err() {
                        link.arrived.insert(number, vec![]);
                        self.say(id, Frame::Abort(number));
                    }
                }
                Err(_) => {
                    link.agent.withdraw(number);
                    link.arrived.remove(&number);
                    self.say(id, Frame::Failed(number, "refused".into()));
                }
            },
            Frame::NoGrant(number) => {
                link.agent.withdraw(number);
                link.arrived.remove(&number);
            }
            Frame::Retired => link.agent.retire(),
            Frame::Poisoned(reason, strength) => link.agent.poison(Reason::from(reason).of_strength(strength)),
            Frame::Gone => link.gone = true,
            _ => panic!("not from a sender"),
        }
    }
}

impl Link {
    fn channel(&self) -> dunlin_core::waits::ChannelId {
        match self {
            Self::Out(link) => link.agent.channel(),
            Self::In(link) => link.agent.channel(),
        }
    }
}

/// Both sides, connected by bytes.
#[derive(Clone)]
struct Net(Rc<RefCell<[Side; 2]>>);

impl Net {
    /// Creates the first channel as if its ends had been found by a name.
    fn with<T: Portable>() -> (Self, Sender<T>, Receiver<T>) {
        let ((tx, there), (here, rx)) = (channel(), channel());
        let net = Self(Rc::new(RefCell::new([Side::new(1), Side::new(2)])));
        net.0.borrow_mut()[0].install(0, Agent::Outlet(AnyOutlet::from(Outlet::new(there))));
        net.0.borrow_mut()[1].install(0, Agent::Inlet(AnyInlet::from(Inlet::new(here))));
        (net, tx, rx)
    }

    fn poll(&self, cx: &mut Context<'_>) {
        let mut sides = self.0.borrow_mut();
        loop {
            let mut quiet = true;
            for side in 0..2 {
                quiet &= !sides[side].poll(cx);
                for bytes in std::mem::take(&mut sides[side].frames_out) {
                    quiet = false;
                    sides[1 - side].hear(&bytes);
                }
            }
            if quiet {
                return;
            }
        }
    }

    /// Carries frames until no link is left.
    async fn carry(&self) {
        poll_fn(|cx| {
            self.poll(cx);
            if self.links() == [0, 0] { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Carries all pending frames.
    fn settle(&self) {
        self.poll(&mut Context::from_waker(Waker::noop()));
    }

    fn links(&self) -> [usize; 2] {
        self.0.borrow().each_ref().map(|side| side.links.len())
    }

    fn moved(&self) -> [usize; 2] {
        self.0.borrow().each_ref().map(|side| side.moved)
    }
}

fn poll_once<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn values_cross_the_byte_pipe() {
    let (net, mut tx, mut rx) = Net::with::<String>();
    block_on(async {
        par!(
            net.carry(),
            async move {
                for n in 0..20 {
                    tx.send(n.to_string()).await.unwrap();
                }
            },
            async move {
                for n in 0..20 {
                    assert_eq!(rx.recv().await.unwrap(), n.to_string());
                }
                assert_eq!(rx.recv().await, Err(RecvError::Closed));
            },
        );
    });
}

#[derive(Serialize, Deserialize, Debug)]
enum Turn {
    Play { card: u8, next: Sender<Turn> },
    Over,
}

#[test]
fn a_protocol_that_sends_itself() {
    // Each turn carries the sender for the next: an end over an end over an end.
    let (net, tx, mut rx) = Net::with::<Turn>();
    let cards = block_on(async {
        let (cards, ..) = par!(
            async {
                // At the far side: the last turn carries the sender for the dealer's seat.
                let mut cards = vec![];
                while let Turn::Play { card, next } = rx.recv().await.unwrap() {
                    cards.push(card);
                    let (seat, mine) = channel();
                    let mut next = next;
                    next.send(Turn::Play { card: card + 100, next: seat }).await.unwrap();
                    rx = mine;
                }
                drop(rx);
                cards
            },
            async {
                let mut tx = tx;
                for card in 0..10 {
                    let (seat, mut mine) = channel();
                    tx.send(Turn::Play { card, next: seat }).await.unwrap();
                    let Ok(Turn::Play { card: answer, next }) = mine.recv().await else { panic!() };
                    assert_eq!(answer, card + 100);
                    tx = next;
                }
                tx.send(Turn::Over).await.unwrap();
            },
            net.carry(),
        );
        cards
    });
    assert_eq!(cards, (0..10).collect::<Vec<_>>());
    assert_eq!(net.moved(), [10, 10]);
    assert_eq!(net.links(), [0, 0]);
}

#[test]
fn remote_call_returns_a_receiver() {
    // Program 13 of the API: `Call<Sender<Turn>, Receiver<Turn>>`, with both faces in one message.
    type Join = (Sender<Turn>, String);
    let (net, mut tx, mut rx) = Net::with::<(Caller<Join, Receiver<Turn>>, u8)>();
    block_on(async {
        par!(
            net.carry(),
            async {
                // The dealer, which others can call.
                let (caller, mut callee): (_, Callee<Join, Receiver<Turn>>) = call();
                tx.send((caller, 1)).await.unwrap();
                drop(tx);
                let ((mut player, name), reply) = callee.accept().await.unwrap().split();
                assert_eq!(name, "ada");
                let (seat, mut rx) = channel();
                let (mut news, news_rx) = channel();
                player.send(Turn::Play { card: 7, next: seat }).await.unwrap();
                reply.send(news_rx).unwrap();
                assert!(matches!(rx.recv().await, Ok(Turn::Over)));
                news.send(Turn::Over).await.unwrap();
                drop(news);
                assert_eq!(callee.accept().await.unwrap_err(), RecvError::Closed);
            },
            async {
                let (mut table, 1) = rx.recv().await.unwrap() else { panic!() };
                drop(rx);
                let (me, mut turns) = channel();
                let ((), mut news) = par!(
                    async {
                        let Ok(Turn::Play { card: 7, mut next }) = turns.recv().await else { panic!() };
                        next.send(Turn::Over).await.unwrap();
                    },
                    async { table.call((me, "ada".into())).await.unwrap() },
                );
                assert!(matches!(news.recv().await, Ok(Turn::Over)));
                assert!(matches!(news.recv().await, Err(RecvError::Closed)));
            },
        );
    });
    assert_eq!(net.links(), [0, 0]);
}

#[test]
fn a_sender_of_senders_of_senders() {
    let (net, mut tx, mut rx) = Net::with::<Sender<Sender<Sender<u8>>>>();
    block_on(async {
        par!(
            net.carry(),
            async {
                let (a, mut a_rx) = channel();
                tx.send(a).await.unwrap();
                drop(tx);
                let mut b: Sender<Sender<u8>> = a_rx.recv().await.unwrap();
                let (c, mut c_rx) = channel();
                b.send(c).await.unwrap();
                assert_eq!(c_rx.recv().await, Ok(3));
                assert_eq!(c_rx.recv().await, Err(RecvError::Closed));
            },
            async {
                let mut a = rx.recv().await.unwrap();
                let (b, mut b_rx) = channel();
                a.send(b).await.unwrap();
                let mut c: Sender<u8> = b_rx.recv().await.unwrap();
                c.send(3).await.unwrap();
                drop((a, rx));
            },
        );
    });
    assert_eq!((net.links(), net.moved()), ([0, 0], [2, 1]));
}

#[test]
fn remote_call_fails_without_a_reply() {
    let (net, mut tx, mut rx) = Net::with::<Callee<u8, u8>>();
    block_on(async {
        par!(
            net.carry(),
            async {
                let (mut caller, callee) = call();
                tx.send(callee).await.unwrap();
                drop(tx);
                assert_eq!(caller.call(1).await.unwrap(), 2);
                assert_eq!(caller.call(2).await.unwrap_err(), CallError::NoReply(RecvError::Closed));
                let error = caller.call(3).await.unwrap_err();
                assert_eq!(error, CallError::NotTaken { request: 3, why: Why::Closed });
            },
            async {
                let mut callee = rx.recv().await.unwrap();
                let ask = callee.accept().await.unwrap();
                let answer = *ask + 1;
                ask.reply(answer).unwrap();
                drop(callee.accept().await.unwrap());
                drop((callee, rx));
            },
        );
    });
    assert_eq!(net.links(), [0, 0]);
}

#[test]
fn a_moving_receiver_takes_buffered_values_and_waiting_sends() {
    let (net, mut tx, mut rx) = Net::with::<Receiver<Receiver<u8>>>();
    // Two values with an end in each are buffered, and one waits for room.
    let (mut values, values_rx) = channel_with(fifo(2));
    let (mut inner, inner_rx): (Vec<Sender<u8>>, Vec<_>) = (0..3).map(|_| channel()).unzip();
    let mut inner_rx = inner_rx.into_iter();
    values.try_send(inner_rx.next().unwrap()).unwrap();
    values.try_send(inner_rx.next().unwrap()).unwrap();
    let third = inner_rx.next().unwrap();
    let mut waits = Box::pin(async move { values.send(third).await.map(|()| drop(values)) });
    assert!(poll_once(waits.as_mut()).is_pending());
    block_on(async {
        par!(
            net.carry(),
            async {
                tx.send(values_rx).await.unwrap();
                drop(tx);
                waits.await.unwrap();
                for (n, tx) in inner.iter_mut().enumerate() {
                    tx.send(n as u8).await.unwrap();
                }
                drop(inner);
            },
            async {
                let mut values = rx.recv().await.unwrap();
                drop(rx);
                let mut got = vec![];
                while let Ok(value) = values.recv().await {
                    got.push(value);
                }
                assert_eq!(got.len(), 3);
                for (n, rx) in got.iter_mut().enumerate() {
                    assert_eq!(rx.recv().await, Ok(n as u8));
                }
                drop(got);
            },
        );
    });
    assert_eq!((net.links(), net.moved()), ([0, 0], [4, 0]));
}

#[test]
fn ended_channel_arrives_ended() {
    let (net, mut tx, mut rx) = Net::with::<(Sender<u8>, Sender<u8>, Receiver<u8>, Receiver<u8>)>();
    let ((a, a_rx), (b, b_rx), (c_tx, c), (d_tx, d)) = (channel(), channel(), channel(), channel::<u8>());
    drop(a_rx);
    b_rx.poison("salt");
    drop(c_tx);
    d_tx.retire();
    block_on(async {
        par!(
            net.carry(),
            async {
                tx.send((a, b, c, d)).await.unwrap();
                drop(tx);
            },
            async {
                let (mut a, mut b, mut c, mut d) = rx.recv().await.unwrap();
                drop(rx);
                par!(a.closed(), b.closed());
                assert!(a.send(1).await.unwrap_err().is_closed());
                assert_eq!(b.send(1).await.unwrap_err().why(), Some(&Why::Poisoned("salt".into())));
                assert_eq!(c.recv().await, Err(RecvError::Closed));
                assert_eq!(d.recv().await, Err(RecvError::Closed));
            },
        );
    });
}

// ---- until the other side has taken it, a value is unchanged

#[test]
fn dropped_send_returns_staged_ends_unchanged() {
    let (net, mut tx, mut rx) = Net::with::<(Sender<u8>, Receiver<u8>)>();
    let ((mut a, mut a_rx), (mut b_tx, mut b)) = (channel_with(fifo(1)), channel_with(fifo(1)));
    for _ in 0..3 {
        // The value is sent and arrives, but is not taken.
        let mut slot = Some((a, b));
        let mut sending = Box::pin(tx.send_from(&mut slot));
        assert!(poll_once(sending.as_mut()).is_pending());
        net.settle();
        b_tx.try_send(2).unwrap();
        drop(sending);
        let mut settling = Box::pin(tx.settle(&mut slot));
        while poll_once(settling.as_mut()).is_pending() {
            net.settle();
        }
        drop(settling);
        (a, b) = slot.unwrap();
        a.try_send(1).unwrap();
        assert_eq!((a_rx.try_recv(), b.try_recv()), (Ok(1), Ok(2)));
        assert_eq!((net.links(), net.moved()), ([1, 1], [0, 0]));
    }
    // Then it is taken.
    block_on(async {
        par!(
            net.carry(),
            async {
                tx.send((a, b)).await.unwrap();
                drop(tx);
                assert_eq!(a_rx.recv().await, Ok(1));
                b_tx.send(2).await.unwrap();
                assert_eq!(a_rx.recv().await, Err(RecvError::Closed));
                drop(b_tx);
            },
            async {
                let (mut a, mut b) = rx.recv().await.unwrap();
                drop(rx);
                a.send(1).await.unwrap();
                assert_eq!(b.recv().await, Ok(2));
                drop((a, b));
            },
        );
    });
    assert_eq!((net.links(), net.moved()), ([0, 0], [2, 0]));
}

#[test]
fn refused_value_returns_with_its_ends() {
    fn check<T: Portable + Debug>(message: T, garbles: bool, receiver_goes: bool) -> (T, Why) {
        let (net, mut tx, rx) = Net::with::<T>();
        net.0.borrow_mut()[0].garbles = garbles;
        let mut rx = Some(rx);
        let mut sending = Box::pin(tx.send(message));
        assert!(poll_once(sending.as_mut()).is_pending());
        if receiver_goes {
            net.settle();
            rx = None;
        }
        net.settle();
        let Poll::Ready(Err(error)) = poll_once(sending.as_mut()) else { panic!() };
        assert_eq!(net.moved(), [0, 0]);
        drop(rx);
        let why = error.why().unwrap().clone();
        (error.into_value(), why)
    }
    let ((a, mut a_rx), (mut b_tx, b)) = (channel_with(fifo(1)), channel_with(fifo(1)));
    // The other side cannot decode it; then the receiver goes while the value is there.
    let (message, why) = check((a, b), true, false);
    assert_eq!(why, Why::Refused);
    let ((mut a, mut b), why) = check(message, false, true);
    assert_eq!(why, Why::Closed);
    a.try_send(1).unwrap();
    b_tx.try_send(2).unwrap();
    assert_eq!((a_rx.try_recv(), b.try_recv()), (Ok(1), Ok(2)));
    // This side refuses a shared end.
    let (mut shared, why): (Shared<Sender<u8>>, _) = check(a.share(), false, false);
    assert_eq!(why, Why::Refused);
    shared.try_send(3).unwrap();
    assert_eq!(a_rx.try_recv(), Ok(3));
}

#[test]
fn an_end_in_a_choice_moves_if_its_branch_happens() {
    let mut happened = [0, 0];
    for patience in 0..20 {
        let (net, mut tx, mut rx) = Net::with::<Sender<u8>>();
        let (a, mut a_rx) = channel_with(fifo(1));
        let mut slot = Some(a);
        let (sent, received) = block_on(async {
            let (_, sent, received) = par!(
                net.carry(),
                async {
                    let mut polls = 0;
                    let sent = alt! {
                        () = future(poll_fn(|cx| {
                            polls += 1;
                            cx.waker().wake_by_ref();
                            if polls <= patience { Poll::Pending } else { Poll::Ready(()) }
                        })) => false,
                        sent = tx.send_from(&mut slot) => sent.is_ok(),
                    };
                    drop(tx);
                    sent
                },
                async {
                    let received = rx.recv().await;
                    drop(rx);
                    if let Ok(mut a) = received {
                        a.send(1).await.unwrap();
                        return true;
                    }
                    false
                },
            );
            (sent, received)
        });
        assert_eq!((sent, slot.is_none(), net.moved()), (received, received, [usize::from(received), 0]));
        if let Some(mut a) = slot {
            a.try_send(1).unwrap();
        }
        assert_eq!(a_rx.try_recv(), Ok(1));
        happened[usize::from(sent)] += 1;
    }
    assert!(happened[0] > 0 && happened[1] > 0, "{happened:?}");
}

// ---- at the hand-over

#[test]
fn end_dropped_by_the_decoder_closes_its_channel() {
    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Message {
        Tried { a: Sender<u8>, n: u8 },
        One { b: Sender<u8> },
    }
    #[derive(Serialize, Deserialize)]
    struct Both {
        a: Sender<u8>,
        b: Sender<u8>,
        c: Receiver<u8>,
    }
    // One type is encoded, the other is decoded.
    let ((tx, there), (here, mut rx)) = (channel::<Both>(), channel::<Message>());
    let net = Net(Rc::new(RefCell::new([Side::new(1), Side::new(2)])));
    net.0.borrow_mut()[0].install(0, Agent::Outlet(Outlet::new(there).into()));
    net.0.borrow_mut()[1].install(0, Agent::Inlet(Inlet::new(here).into()));
    let ((a, mut a_rx), (b, mut b_rx), (mut c_tx, c)) = (channel(), channel(), channel());
    block_on(async {
        par!(
            net.carry(),
            async {
                let mut tx = tx;
                assert!(tx.send(Both { a, b, c }).await.is_ok());
                drop(tx);
                assert_eq!(a_rx.recv().await, Err(RecvError::Closed));
                assert!(c_tx.send(1).await.unwrap_err().is_closed());
                assert_eq!(b_rx.recv().await, Ok(1));
                assert_eq!(b_rx.recv().await, Err(RecvError::Closed));
            },
            async {
                let Ok(Message::One { mut b }) = rx.recv().await else { panic!() };
                drop(rx);
                b.send(1).await.unwrap();
            },
        );
    });
}

#[test]
fn end_kept_by_the_sender_is_closed_at_the_receiver() {
    use std::sync::{Arc, Mutex};
    struct Common(Arc<Mutex<Sender<u8>>>);
    impl Serialize for Common {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            self.0.lock().unwrap().serialize(serializer)
        }
    }
    impl<'de> Deserialize<'de> for Common {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            Sender::deserialize(deserializer).map(|tx| Self(Arc::new(Mutex::new(tx))))
        }
    }
    let (net, mut tx, mut rx) = Net::with::<Common>();
    let (a, mut a_rx) = channel_with(fifo(1));
    let kept = Arc::new(Mutex::new(a));
    let common = Common(kept.clone());
    block_on(async {
        par!(
            net.carry(),
            async {
                assert!(tx.send(common).await.is_ok());
                drop(tx);
            },
            async {
                let a = rx.recv().await.ok().unwrap();
                drop(rx);
                let mut a = Arc::into_inner(a.0).unwrap().into_inner().unwrap();
                a.closed().await;
                assert!(a.send(1).await.unwrap_err().is_closed());
            },
        );
    });
    kept.lock().unwrap().try_send(2).unwrap();
    assert_eq!(a_rx.try_recv(), Ok(2));
    drop(kept);
    assert_eq!(a_rx.try_recv(), Err(RecvError::Closed));
    assert_eq!(net.links(), [0, 0]);
}

/// Sends a value to the other side and returns the received one.
async fn over<T: Portable + Debug>(tx: &mut Sender<T>, rx: &mut Receiver<T>, value: T) -> T {
    let (sent, received) = par!(tx.send(value), rx.recv());
    sent.unwrap();
    received.unwrap()
}

/// Waits until the carried frames have had this effect.
async fn until(is_so: impl Fn() -> bool) {
    while !is_so() {
        give_way().await;
    }
}

/// Yields to the carrier.
async fn give_way() {
    let mut given = false;
    poll_fn(|cx| {
        cx.waker().wake_by_ref();
        if std::mem::replace(&mut given, true) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

#[test]
fn remotely_joined_receiver_gets_each_value() {
    let (net, mut tx, mut rx) = Net::with::<Joiner<u8>>();
    block_on(async {
        par!(net.carry(), async {
            let (cast, joiner) = broadcast();
            let mut cast = cast.at_least(2);
            let mut here = joiner.join();
            let there = over(&mut tx, &mut rx, joiner.clone()).await;
            drop((tx, rx, joiner));
            // The join is in flight when the send begins.
            let mut one = there.join();
            assert_eq!(par!(cast.send(1), here.recv(), one.recv()), (Ok(()), Ok(1), Ok(1)));
            let mut two = there.clone().join();
            drop(there);
            cast = cast.at_least(3);
            let got = par!(cast.send(2), here.recv(), one.recv(), two.recv());
            assert_eq!(got, (Ok(()), Ok(2), Ok(2), Ok(2)));
            // The send does not wait for a receiver that is gone or retired.
            cast = cast.at_least(0);
            let left = async {
                assert_eq!(here.recv().await, Ok(3));
                two.retire();
                drop(one);
            };
            assert_eq!(par!(cast.send(3), left).0, Ok(()));
            assert_eq!(cast.joined(), 1);
            assert_eq!(par!(cast.send(4), here.recv()), (Ok(()), Ok(4)));
            drop(here);
            let closed = BroadcastError { value: 5, why: Why::Closed, received: 0 };
            assert_eq!(cast.send(5).await, Err(closed));
        });
    });
    assert_eq!(net.links(), [0, 0]);
}

/// A broadcast does not close while a remote joiner is left.
#[test]
fn broadcast_closes_after_its_last_remote_joiner_drops() {
    let (net, mut tx, mut rx) = Net::with::<Joiner<u8, NoPoison>>();
    block_on(async {
        par!(net.carry(), async {
            let (cast, joiner) = broadcast::<u8>();
            let mut cast = cast.at_least(1);
            let there = over(&mut tx, &mut rx, joiner.no_poison()).await;
            drop((tx, rx));
            let mut waits = Box::pin(cast.send(1));
            for _ in 0..5 {
                assert!(poll_once(waits.as_mut()).is_pending());
                give_way().await;
            }
            drop(there);
            let closed = BroadcastError { value: 1, why: Why::Closed, received: 0 };
            assert_eq!(waits.await, Err(closed));
        });
    });
    assert_eq!(net.links(), [0, 0]);
}

/// The sending end moves with its joined receivers and its settings; the joiner stays, and a second one
/// follows it.
#[test]
fn carried_broadcast_keeps_receivers_and_settings() {
    let (net, mut tx, mut rx) = Net::with::<(Broadcast<u8>, Option<Joiner<u8>>)>();
    block_on(async {
        par!(net.carry(), async {
            let (cast, joiner) = broadcast_with(fifo(1));
            let mut cast = cast.at_least(2);
            let (mut one, mut two) = (joiner.join(), joiner.join());
            assert_eq!(cast.send(1).await, Ok(()));
            let gone = joiner.join();
            let (mut cast, _) = over(&mut tx, &mut rx, (cast, None)).await;
            drop(gone);
            drop((tx, rx));
            // The buffers are on this side, and full.
            let (sent, ..) = par!(cast.send(2), async {
                assert_eq!((one.recv().await, two.recv().await), (Ok(1), Ok(1)));
            });
            assert_eq!(sent, Ok(()));
            drop(two);
            assert_eq!(one.recv().await, Ok(2));
            until(|| cast.joined() == 1).await;
            // One receiver is too few, as it was on the first side.
            let mut sending = Box::pin(cast.send(3));
            for _ in 0..5 {
                assert!(poll_once(sending.as_mut()).is_pending());
                give_way().await;
            }
            let mut three = joiner.join();
            drop(joiner);
            assert_eq!(sending.await, Ok(()));
            assert_eq!((one.recv().await, three.recv().await), (Ok(3), Ok(3)));
            cast.retire();
            assert_eq!((one.recv().await, three.recv().await), (Err(RecvError::Closed), Err(RecvError::Closed)));
        });
    });
    assert_eq!(net.links(), [0, 0]);
}

/// The other side knows how the broadcast ended before.
#[test]
fn ended_broadcast_keeps_its_reason_when_carried() {
    for poison in [false, true] {
        let (net, mut tx, mut rx) = Net::with::<Broadcast<u8>>();
        block_on(async {
            par!(net.carry(), async {
                let (cast, joiner) = broadcast();
                let mut one = joiner.join();
                let why = if poison { Why::Poisoned(Reason::from("sick").of_strength(9)) } else { Why::Closed };
                if poison {
                    one.poison_with(9, "sick");
                } else {
                    cast.retire();
                }
                let mut cast = over(&mut tx, &mut rx, cast).await;
                drop((tx, rx));
                let failed = BroadcastError { value: 1, why: why.clone(), received: 0 };
                assert_eq!(cast.send(1).await, Err(failed));
                let recv =
                    || if let Why::Poisoned(why) = &why { RecvError::Poisoned(why.clone()) } else { RecvError::Closed };
                assert_eq!((one.recv().await, joiner.join().recv().await), (Err(recv()), Err(recv())));
            });
        });
        assert_eq!(net.links(), [0, 0]);
    }
}

/// Every end gets the poison, with its strength, from any end; poison that is too weak has no effect.
#[test]
fn poison_crosses_with_its_strength() {
    for from in 0..3 {
        let (net, mut tx, mut rx) = Net::with::<Joiner<u8>>();
        block_on(async {
            par!(net.carry(), async {
                let (mut cast, joiner) = broadcast_with(rendezvous().immunity(3));
                let mut here = joiner.join();
                let there = over(&mut tx, &mut rx, joiner).await;
                drop((tx, rx));
                let (mut one, mut two) = (there.join(), there.join());
                assert!(!one.poison_with(3, "weak"));
                until(|| cast.joined() == 3).await;
                assert_eq!(par!(cast.send(1), here.recv(), one.recv(), two.recv()), (Ok(()), Ok(1), Ok(1), Ok(1)));
                assert!(match from {
                    0 => cast.poison_with(4, "sick"),
                    1 => here.poison_with(4, "sick"),
                    _ => two.poison_with(4, "sick"),
                });
                let sick = || Reason::from("sick").of_strength(4);
                let heard = || Err(RecvError::Poisoned(sick()));
                assert_eq!((here.recv().await, one.recv().await, two.recv().await), (heard(), heard(), heard()));
                assert_eq!(there.join().recv().await, heard());
                let failed = BroadcastError { value: 2, why: Why::Poisoned(sick()), received: 0 };
                assert_eq!(cast.send(2).await, Err(failed));
            });
        });
        assert_eq!(net.links(), [0, 0]);
    }
}

/// Ends that are refused, or kept on this side, are unchanged.
#[test]
fn returned_ends_of_a_broadcast_are_unchanged() {
    let (net, mut tx, rx) = Net::with::<(Broadcast<u8>, Joiner<u8>)>();
    let mut message = Some(broadcast());
    let mut sending = Box::pin(tx.send_from(&mut message));
    assert!(poll_once(sending.as_mut()).is_pending());
    net.settle();
    drop((sending, rx));
    let mut settling = Box::pin(tx.settle(&mut message));
    while poll_once(settling.as_mut()).is_pending() {
        net.settle();
    }
    drop(settling);
    drop(tx);
    net.settle();
    let (mut cast, joiner) = message.unwrap();
    let mut one = joiner.join();
    drop(joiner);
    block_on(async {
        assert_eq!(par!(cast.send(1), one.recv()), (Ok(()), Ok(1)));
        drop(one);
        assert_eq!(cast.send(2).await.unwrap_err().why, Why::Closed);
    });
}
