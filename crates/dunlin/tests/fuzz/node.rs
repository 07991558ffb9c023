//! A node beside a peer that sends anything: frames, values with ends in them, and bytes that are none of
//! these. Time is virtual, and the bytes determine everything.
//!
//! Much of the peer's output is nearly right: it names channels that it has received, and repeats values that
//! the node has written itself, with a few bytes changed.
//!
//! The invariants: nothing panics, the two honest nodes keep exchanging values, and nothing of the peer is
//! left once it has disconnected.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arbitrary::{Arbitrary as _, Unstructured};
use bytes::{Bytes, BytesMut};
use dunlin::net::Socket;
use dunlin::node::NodeError;
use dunlin::prelude::*;
use dunlin::sim::Sim;
use dunlin_attack::{ANY, Key, bytes_of, declare, face, hello, life};
use dunlin_proto::id::ChannelId;
use dunlin_proto::identity::{confirm, sign_hello};
use dunlin_proto::wire::handshake::{Answer, Hello, Resume, Welcome};
use dunlin_proto::wire::{Face, Frame, FromHome, Head, Names, Terms, ToHome, codec};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{End, messages};

const APPLICATION: &str = "fuzz";

/// The peer's limit of sends and waits: more bytes than that add little.
const STEPS_MAX: usize = 200;

/// How many values are sent without a pause. On the credits of a peer that has a place for any number of them
/// a send never waits, and no time would pass.
const GIVEN_AT_ONCE: u32 = 256;

/// The content of a message: an end of any kind, several, or none.
#[derive(Debug, Serialize, Deserialize)]
enum Parcel {
    One(End),
    Several(Vec<Self>),
    Text(String),
}

#[derive(Bundle)]
struct Till {
    pay: ToServer<u32>,
    receipt: ToClient<u32>,
}

/// # Panics
/// A node panics, or violates an invariant.
pub(crate) fn run(data: &[u8]) {
    let mut u = Unstructured::new(data);
    let sim = Sim::new(u64::arbitrary(&mut u).unwrap_or(0));
    sim.run(beside_a_peer(u)).unwrap_or_else(|why| panic!("{why}"));
}

async fn beside_a_peer(u: Unstructured<'_>) -> Result {
    let (node, friend) = (Node::join(APPLICATION).await?, Node::join(APPLICATION).await?);
    let pings = Arc::new(AtomicU64::new(0));
    let mut processes = vec![talk(&node, &friend, pings.clone()).await?];
    processes.extend(offer_everything(&node, Borrowed::new(&node, &friend).await?));

    let mut peer = Peer::new(u, node.addresses()[0].clone());
    for _ in 0..STEPS_MAX {
        if peer.u.is_empty() {
            break;
        }
        // A step that the rest of the bytes cannot form is skipped, and so is a send that the node refuses.
        let _ = peer.step().await;
    }
    peer.socket = None;

    let before = pings.load(Ordering::Relaxed);
    // Longer than the grace for a peer that does not return, and the patience of every wait for it.
    sleep(Duration::from_secs(40)).await;
    assert!(pings.load(Ordering::Relaxed) > before + 10, "the honest pair is silent");
    for process in processes {
        process.cancel();
        let _ = process.await;
    }
    super::nothing_is_left(&[node.clone(), friend.clone()]).await?;
    match node.leave().await {
        // The peer has promised a place for a value, and then declared a lower limit.
        Err(Error::Node(NodeError::Unwritten { .. })) => {}
        left => left?,
    }
    friend.leave().await
}

/// The honest pair: a number a second, there and back.
async fn talk(node: &Node, friend: &Node, pings: Arc<AtomicU64>) -> Result<Process<()>> {
    let (mut ping, mut pinged) = (friend.sender::<u64>("ping").await?, node.receiver::<u64>("ping").await?);
    let (mut pong, mut ponged) = (node.sender::<u64>("pong").await?, friend.receiver::<u64>("pong").await?);
    Ok(spawn(async move {
        let asks = async {
            for n in 0_u64.. {
                ping.send(n).await.expect("its receiver is there");
                assert_eq!(ponged.recv().await, Ok(n));
                pings.store(n, Ordering::Relaxed);
                sleep(Duration::from_secs(1)).await;
            }
        };
        let answers = async {
            while let Ok(n) = pinged.recv().await {
                pong.send(n).await.expect("its receiver is there");
            }
        };
        par!(asks, answers);
    }))
}

/// Ends that the friend makes, whose other ends stay with it: so the home, or the other half, of some of the
/// peer's ends is at a third node.
struct Borrowed {
    asks: Sender<u32>,
    ends: Receiver<Parcel>,
}

impl Borrowed {
    async fn new(node: &Node, friend: &Node) -> Result<Self> {
        let (asks, mut asked) = (node.sender("asks").await?, friend.receiver("asks").await?);
        let (mut lent, ends) = (friend.sender("lent").await?, node.receiver("lent").await?);
        let lending = spawn(async move {
            while let Ok(kind) = asked.recv().await {
                if lent.send(make(kind)).await.is_err() {
                    break;
                }
            }
        });
        drop(lending);
        Ok(Self { asks, ends })
    }

    async fn make(&mut self, kind: u32) -> Parcel {
        self.asks.send(kind).await.expect("the friend is there");
        self.ends.recv().await.expect("the friend is there")
    }
}

/// The ends to which the peer can attach, under names that are declared again when the peer has broken their
/// channels.
fn offer_everything(node: &Node, mut borrowed: Borrowed) -> Vec<Process<()>> {
    let wait = Duration::from_secs(1);
    let again = Duration::from_millis(10);
    let (takes, gives, adds, serves) = (node.clone(), node.clone(), node.clone(), node.clone());
    vec![
        spawn(async move {
            loop {
                let Ok(mut ends) = takes.receiver::<Parcel>("ends").await else {
                    sleep(again).await;
                    continue;
                };
                while let Ok(parcel) = ends.recv().await {
                    unpack(parcel);
                }
            }
        }),
        spawn(async move {
            for n in 0.. {
                let Ok(mut given) = gives.sender::<Parcel>("given").await else {
                    sleep(again).await;
                    continue;
                };
                for kind in n.. {
                    let parcel = match kind % 2 {
                        0 => make(kind / 2),
                        _ => borrowed.make(kind / 2).await,
                    };
                    if given.send(parcel).await.is_err() {
                        break;
                    }
                    if kind - n > GIVEN_AT_ONCE {
                        sleep(Duration::from_secs(1)).await;
                    }
                }
            }
        }),
        spawn(async move {
            loop {
                let numbers = adds.receiver::<u64>("numbers").policy(fifo(3));
                let Ok(mut numbers) = numbers.await else {
                    sleep(again).await;
                    continue;
                };
                while numbers.recv().await.is_ok() {}
            }
        }),
        spawn(async move {
            loop {
                let Ok(mut guests) = serves.acceptor::<Till>("till").await else {
                    sleep(again).await;
                    continue;
                };
                while let Ok(mut guest) = guests.recv().await {
                    if let Ok(n) = guest.pay.recv().within(wait).await {
                        let _ = guest.receipt.send(n).within(wait).await;
                    }
                }
            }
        }),
    ]
}

/// A parcel with an end of a channel whose other end a process of this node holds for a while.
fn make(kind: u32) -> Parcel {
    let (tx, rx) = channel::<u32>();
    let (gone, kept) = match kind % 11 {
        0 => (End::Receiver(rx), End::Sender(tx)),
        1 => (End::Sender(tx), End::Receiver(rx)),
        2 => (End::Senders(tx.share()), End::Receiver(rx)),
        3 => (End::Receivers(rx.share()), End::Sender(tx)),
        4 => {
            let (caller, callee) = call();
            (End::Caller(caller), End::Callee(callee))
        }
        5 => {
            let (caller, callee) = call();
            (End::Callers(caller.share()), End::Callee(callee))
        }
        6 => {
            let one = barrier();
            (End::Barrier(one.enrol()), End::Barrier(one))
        }
        7 => {
            let (broadcast, joiner) = broadcast();
            (End::Broadcast(broadcast), End::Joiner(joiner))
        }
        8 => {
            let (broadcast, joiner) = broadcast();
            (End::Joiner(joiner), End::Broadcast(broadcast))
        }
        9 => {
            let pair = [End::Sender(tx), End::Receiver(rx)].map(Parcel::One);
            return Parcel::Several([make(kind / 11)].into_iter().chain(pair).collect());
        }
        _ => return Parcel::Text("krill".repeat(kind as usize % 100)),
    };
    put_to_use(kept);
    Parcel::One(gone)
}

fn unpack(parcel: Parcel) {
    match parcel {
        Parcel::One(end) => put_to_use(end),
        Parcel::Several(parcels) => parcels.into_iter().for_each(unpack),
        Parcel::Text(_) => {}
    }
}

/// A process uses an end as its kind allows, and drops it.
fn put_to_use(end: End) {
    let wait = Duration::from_secs(1);
    let process = spawn(async move {
        match end {
            End::Sender(mut tx) => drop(tx.send(1).within(wait).await),
            End::Receiver(mut rx) => drop(rx.recv().within(wait).await),
            End::Senders(mut shared) => {
                drop(shared.send(1).within(wait).await);
                if let Ok(mut tx) = shared.claim().within(wait).await {
                    drop(tx.send(2).within(wait).await);
                }
            }
            End::Receivers(mut shared) => drop(shared.recv().within(wait).await),
            End::Caller(mut caller) => drop(caller.call(1).within(wait).await),
            End::Callee(mut callee) => {
                if let Ok(ask) = callee.accept().within(wait).await {
                    let _ = ask.reply(2);
                }
            }
            End::Barrier(mut barrier) => drop(barrier.sync().within(wait).await),
            End::Callers(mut shared) => {
                if let Ok(mut caller) = shared.claim().within(wait).await {
                    drop(caller.call(1).within(wait).await);
                }
            }
            End::Broadcast(mut broadcast) => {
                alt! { _ = future(broadcast.send(1)) => {}, _ = sleep(wait) => {} }
            }
            End::Joiner(joiner) => drop(joiner.join().recv().within(wait).await),
        }
    });
    drop(process);
}

/// The peer at its end of a socket.
struct Peer<'a> {
    u: Unstructured<'a>,
    address: String,
    socket: Option<Box<dyn Socket>>,
    arrived: BytesMut,
    /// The number of each dial: from another node, or from the same one again.
    number: u64,
    attempt: u64,
    resume: Resume,
    /// Channels whose home is the node, or has been.
    theirs: BTreeSet<ChannelId>,
    /// Channels whose home is this peer, since the node has sent them.
    own: BTreeSet<ChannelId>,
    /// The values that the node has written.
    values: Vec<Bytes>,
    ticket: u64,
}

impl<'a> Peer<'a> {
    fn new(u: Unstructured<'a>, address: String) -> Self {
        Self {
            u,
            address,
            socket: None,
            arrived: BytesMut::new(),
            number: 1,
            attempt: 0,
            resume: Resume::default(),
            theirs: BTreeSet::new(),
            own: BTreeSet::new(),
            values: Vec::new(),
            ticket: 0,
        }
    }

    async fn step(&mut self) -> io::Result<()> {
        if self.socket.is_none() {
            self.dial().await?;
            let opening = self.declarations();
            self.say(&opening).await?;
        }
        let frames = match self.byte()? {
            0..=99 => self.value()?,
            100..=189 => {
                let count = self.pick(3)? + 1;
                (0..count).map(|_| self.frame()).collect::<io::Result<_>>()?
            }
            190..=194 => {
                let bytes = messages::bytes(&mut self.u, 300).map_err(io::Error::other)?;
                return self.write(&bytes).await;
            }
            195..=229 => {
                // Pauses, for the effects of time.
                let millis = [20, 100, 1_000, 20_000][self.pick(4)?];
                sleep(Duration::from_millis(millis)).await;
                return self.hear().await;
            }
            230..=239 => self.declarations(),
            240..=247 => {
                self.socket = None;
                return Ok(());
            }
            _ => {
                self.socket = None;
                self.number += 1;
                (self.attempt, self.resume) = (0, Resume::default());
                return Ok(());
            }
        };
        self.say(&frames).await?;
        // A round trip.
        sleep(Duration::from_millis(5)).await;
        self.hear().await
    }

    fn byte(&mut self) -> io::Result<u8> {
        u8::arbitrary(&mut self.u).map_err(io::Error::other)
    }

    fn pick(&mut self, below: usize) -> io::Result<usize> {
        self.u.choose_index(below).map_err(io::Error::other)
    }

    /// Asks for the identity of the node, and shakes hands.
    async fn dial(&mut self) -> io::Result<()> {
        let me = life((0xBAD << 100) + u128::from(self.number));
        let first = Hello { nonce: u128::from(self.attempt), ..hello(APPLICATION, me, ANY) };
        let (Welcome { me: there, .. }, _) = self.greet(&first).await?;
        self.attempt += 1;
        let (attempt, resume) = (self.attempt, self.resume);
        let hello = Hello { wanted: there.node, met: there.incarnation, attempt, resume, ..first };
        let hello = sign_hello(&Key::of(me.node), hello);
        let (welcome, answer) = self.greet(&hello).await?;
        self.resume = welcome.resume;
        self.say(&[confirm(&Key::of(me.node), &hello.encode(), &answer)]).await
    }

    /// One handshake, on a new socket.
    async fn greet(&mut self, hello: &Hello) -> io::Result<(Welcome, Answer)> {
        self.arrived.clear();
        let mut socket = Sim::dial(&self.address).await?;
        socket.write_all(&hello.encode()).await?;
        let answer = loop {
            if let Some(answer) = Answer::decode(&mut self.arrived).expect("what the node answers can be read") {
                break answer;
            }
            if socket.read_buf(&mut self.arrived).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        };
        match answer {
            Answer::Welcome(welcome) => {
                self.socket = Some(socket);
                Ok((welcome.clone(), Answer::Welcome(welcome)))
            }
            Answer::Refused(why) | Answer::Over(why, _) => {
                self.resume = Resume::default();
                Err(io::Error::other(why))
            }
        }
    }

    async fn say(&mut self, frames: &[Frame]) -> io::Result<()> {
        self.write(&bytes_of(frames)).await
    }

    /// The node reads as long as the socket is open, so this ends.
    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(socket) = &mut self.socket else { return Ok(()) };
        let written = socket.write_all(bytes).await;
        if written.is_err() {
            self.socket = None;
        }
        written
    }

    /// Reads what has arrived.
    async fn hear(&mut self) -> io::Result<()> {
        while let Some(socket) = &mut self.socket {
            let more = alt! {
                biased;
                more = future(socket.read_buf(&mut self.arrived)) => more?,
                _ = sleep(Duration::from_millis(1)) => return Ok(()),
            };
            if more == 0 {
                self.socket = None;
            }
            while let codec::Next::Frame { head, body } =
                codec::next(&self.arrived).expect("what the node writes can be read")
            {
                let mut frame = self.arrived.split_to(head + body).freeze();
                let kind = frame[0];
                let frame = codec::decode(kind, frame.split_off(head)).expect("what the node writes can be read");
                self.heard(frame);
            }
        }
        Ok(())
    }

    fn heard(&mut self, frame: Frame) {
        match frame {
            Frame::Names(Names::Found { channel, face, .. }) if face.face != Face::Sender => {
                self.theirs.insert(channel);
            }
            Frame::FromHome(channel, FromHome::Attached(_)) => {
                self.theirs.insert(channel);
            }
            Frame::FromHome(channel, FromHome::Rejected(_) | FromHome::Ended(_)) => {
                self.theirs.remove(&channel);
            }
            Frame::ToHome(channel, said) => {
                self.own.insert(channel);
                if let ToHome::Value { first, .. } = said {
                    self.values.push(first);
                }
            }
            _ => {}
        }
    }

    /// The `n`th of these channels, the latest first.
    fn nth(channels: &BTreeSet<ChannelId>, n: u128) -> ChannelId {
        let n = n as usize % channels.len().max(1);
        channels.iter().rev().nth(n).copied().unwrap_or(ChannelId(n as u128))
    }

    /// Declarations of the other end of every channel that the node offers.
    fn declarations(&mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        for (number, name, which) in [
            (1, "ends", Face::Sender),
            (2, "given", Face::Receiver),
            (3, "numbers", Face::Sender),
            (4, "till", Face::Client),
        ] {
            let own = ChannelId((u128::from(self.number) << 64) + u128::from(number));
            frames.push(declare(number, name, own, &face(which)));
        }
        for channel in &self.theirs {
            frames.push(Frame::ToHome(*channel, ToHome::Attach(face(Face::Sender))));
        }
        for channel in &self.own {
            let terms = Terms { window: 4, credits: 4, value_max: 1 << 20 };
            frames.push(Frame::FromHome(*channel, FromHome::Attached(terms)));
        }
        frames
    }

    /// A value: one that the node has written, with some bytes changed, or any bytes.
    fn value(&mut self) -> io::Result<Vec<Frame>> {
        let n = self.byte()?;
        let channel = Self::nth(&self.theirs, n.into());
        let mut value = if self.values.is_empty() || self.byte()? < 50 {
            messages::bytes(&mut self.u, 200).map_err(io::Error::other)?.to_vec()
        } else {
            let at = self.pick(self.values.len())?;
            self.values[at].to_vec()
        };
        for _ in 0..self.byte()? % 4 {
            if value.is_empty() {
                break;
            }
            let at = self.pick(value.len())?;
            value[at] = self.byte()?;
        }
        self.ticket += 1;
        let head = if self.byte()? < 250 { Head::Offer(self.ticket) } else { Head::Sent };
        let total = value.len() as u64 + u64::from(self.byte()? / 255);
        Ok(vec![Frame::ToHome(channel, ToHome::Value { head, total, first: value.into() })])
    }

    /// Any frame, of a known channel. Frames about the connection, which end it, and those that the machine's
    /// own fuzz target covers, are rare.
    fn frame(&mut self) -> io::Result<Frame> {
        let frame = messages::frame(&mut self.u).map_err(io::Error::other)?;
        let theirs = |channel: ChannelId| Self::nth(&self.theirs, channel.0);
        let any = |channel: ChannelId| {
            let among = if channel.0.is_multiple_of(2) { &self.theirs } else { &self.own };
            Self::nth(among, channel.0)
        };
        let seldom = self.values.len() % 16 == 15;
        Ok(match frame {
            Frame::FromHome(channel, said) if seldom || !self.own.is_empty() => {
                Frame::FromHome(Self::nth(&self.own, channel.0), said)
            }
            Frame::ToHome(channel, said) => Frame::ToHome(theirs(channel), said),
            Frame::More(channel, piece) if seldom => Frame::More(theirs(channel), piece),
            Frame::Cut(channel) if seldom => Frame::Cut(theirs(channel)),
            Frame::Travel(channel, said) => Frame::Travel(any(channel), said),
            Frame::Read(channel, read) => Frame::Read(any(channel), read),
            Frame::Names(said) => Frame::Names(said),
            other if seldom => other,
            _ => Frame::Heartbeat,
        })
    }
}
