//! Peers that misuse calls: replies and places for replies that no honest node sends. Each call ends in its
//! reply or in a typed error, nothing is left, and honest guests are served.

#[path = "support/ended.rs"]
mod ended;

use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use dunlin::CallError;
use dunlin::prelude::*;
use dunlin_attack::{Peer, bytes_of, declare, face, life, offer, run, run_alone};
use dunlin_heap::{Counting, Program};
use dunlin_proto::id::{ChannelId, Ticket};
use dunlin_proto::wire::{End, Face, Failure, Frame, FromHome, Head, Names, Poison, Terms, ToHome};
use ended::{down, nothing_is_left};

const PEER: [u8; 4] = [127, 0, 0, 4];
/// No call of a test may wait that long.
const PATIENCE: Duration = Duration::from_secs(20);

#[global_allocator]
static HEAP: Counting<Program> = Counting(Program::new());

#[derive(Bundle)]
struct Desk {
    count: Call<u32, u32>,
    bytes: Call<u32, Vec<u8>>,
}

async fn node(test: &str) -> Node {
    let builder = Node::builder().app("replies").names(&format!("memory:names-of-{test}")).listen("127.0.0.1:0");
    let builder = builder.heartbeat(Duration::from_millis(200)).grace(Duration::from_secs(1));
    builder.join().await.expect("it joins")
}

async fn meet(node: &Node, number: u128) -> Peer {
    Peer::meet(PEER, &node.addresses()[0], "replies", life(number)).await.expect("the door is open")
}

/// A guest from another node is served by this one, with small and large replies.
async fn serves_an_honest_guest(node: &Node, test: &str) {
    let friend = self::node(test).await;
    let mut server = node.server::<Desk>("honest").await.unwrap();
    let mut client = friend.client::<Desk>("honest").within(PATIENCE).await.unwrap();
    for len in [3, 100_000] {
        let (reply, served) = par!(client.bytes.call(len).within(PATIENCE), async {
            let request = server.bytes.accept().within(PATIENCE).await.unwrap();
            let len = *request as usize;
            request.reply(vec![7; len])
        });
        served.unwrap();
        assert_eq!(reply.unwrap().len(), len as usize);
    }
    drop((client, server));
    friend.leave().await.unwrap();
}

/// A peer that is the server of a desk by hand, the node's client, and the desk's first channel.
async fn attended(node: &Node, number: u128, name: &str) -> (Peer, DeskClient, ChannelId) {
    let mut peer = meet(node, number).await;
    let base = ChannelId(number << 64);
    peer.say(&[declare(1, name, base, &face(Face::Server))]).await.unwrap();
    let client = spawn({
        let (node, name) = (node.clone(), name.to_owned());
        async move { node.client::<Desk>(&name).within(PATIENCE).await }
    });
    let mut attached = 0;
    while attached < 2 {
        match peer.hear_at_last().await.unwrap() {
            Frame::Names(Names::Guest { acceptor, guest }) => {
                peer.say(&[Frame::Names(Names::Guest { acceptor, guest })]).await.unwrap();
            }
            Frame::ToHome(channel, ToHome::Attach(_)) => {
                let terms = Terms { window: 8, credits: 0, value_max: 1 << 20 };
                peer.say(&[Frame::FromHome(channel, FromHome::Attached(terms))]).await.unwrap();
                attached += 1;
            }
            _ => {}
        }
    }
    (peer, client.await.unwrap().unwrap(), base)
}

/// A request that has arrived at a server by hand.
#[derive(Clone, Copy)]
struct Asked {
    channel: ChannelId,
    ticket: Ticket,
    place: ChannelId,
}

impl Asked {
    async fn at(peer: &mut Peer) -> Self {
        loop {
            if let Frame::ToHome(channel, ToHome::Value { head: Head::Offer(ticket), first, .. }) =
                peer.hear_at_last().await.unwrap()
            {
                assert_eq!(first[..2], [1, 3], "one end, a place for a reply: {first:?}");
                let place = u128::from_be_bytes(first[2..18].try_into().unwrap());
                return Self { channel, ticket, place: ChannelId(place) };
            }
        }
    }

    fn taken(self) -> Frame {
        Frame::FromHome(self.channel, FromHome::Taken(self.ticket))
    }

    fn failed(self) -> Frame {
        Frame::FromHome(self.channel, FromHome::Failed(self.ticket, Failure::Closed))
    }

    fn replies(self, reply: &'static [u8]) -> Frame {
        Frame::ToHome(self.place, ToHome::Reply(Bytes::from_static(reply)))
    }

    fn comes(self) -> Frame {
        Frame::ToHome(self.place, ToHome::ReplyComes)
    }

    fn ends(self, end: End) -> Frame {
        Frame::ToHome(self.place, ToHome::Ended(end))
    }

    fn offers(self, reply: &'static [u8]) -> Frame {
        offer(self.place, 1, &Bytes::from_static(reply)).remove(0)
    }
}

/// A reply that is read as 7.
const SEVEN: &[u8] = &[0, 7];

type Outcome = std::result::Result<u32, CallError<u32>>;

/// Calls a server by hand, which answers with these frames.
async fn call(
    peer: &mut Peer,
    mut client: DeskClient,
    answer: impl FnOnce(Asked) -> Vec<Frame>,
) -> (DeskClient, Outcome) {
    let calling = spawn(async move {
        let outcome = client.count.call(1).within(PATIENCE).await;
        (client, outcome)
    });
    let asked = Asked::at(peer).await;
    // The node may have closed the socket before it has read all of it.
    let _ = peer.say(&answer(asked)).await;
    let mut calling = calling;
    loop {
        tokio::select! {
            // The peer reads what the node sends, and sends heartbeats.
            heard = peer.hear_at_last() => if heard.is_err() { return calling.await.unwrap() },
            ended = &mut calling => return ended.unwrap(),
        }
    }
}

fn text(outcome: &Outcome) -> String {
    match outcome {
        Ok(reply) => reply.to_string(),
        Err(error) => error.to_string(),
    }
}

/// What a server by hand does with a request, and how the call ends.
type Answer = (fn(Asked) -> Vec<Frame>, &'static str);

const LOST: &str = "the request was taken but got no reply: the node that holds the sender has left";
const GONE: &str = "the request was taken but got no reply: the channel has ended";

/// Answers that are impossible, repeated or out of order, over one connection, which lasts.
#[test]
fn replies_that_no_server_sends_change_no_other_call() {
    let answers: &[Answer] = &[
        (|asked| vec![asked.taken(), asked.replies(SEVEN)], "7"),
        // For a place that never was, and one that is over.
        (
            |asked| vec![Asked { place: ChannelId(5), ..asked }.replies(&[0, 8]), asked.taken(), asked.replies(SEVEN)],
            "7",
        ),
        (|asked| vec![asked.taken(), asked.replies(SEVEN), asked.replies(&[0, 8]), asked.comes()], "7"),
        (|asked| vec![Asked { place: ChannelId(5), ..asked }.comes(), asked.taken(), asked.replies(SEVEN)], "7"),
        // Before the request is taken, and of one that is not.
        (|asked| vec![asked.replies(SEVEN), asked.taken()], "7"),
        (|asked| vec![asked.replies(SEVEN), asked.failed()], "not taken"),
        (|asked| vec![asked.comes(), asked.failed()], "not taken"),
        (|asked| vec![asked.comes(), asked.offers(SEVEN), asked.failed()], "not taken"),
        (|asked| vec![asked.ends(End::Gone), asked.failed()], "not taken"),
        (|asked| vec![asked.failed(), asked.replies(SEVEN), asked.comes()], "not taken"),
        (|asked| vec![asked.comes(), asked.taken(), asked.offers(SEVEN)], "7"),
        // Both ways to reply.
        (|asked| vec![asked.taken(), asked.comes(), asked.replies(&[0, 8]), asked.comes(), asked.offers(SEVEN)], "7"),
        (|asked| vec![asked.taken(), asked.offers(&[0, 8]), asked.replies(SEVEN)], "7"),
        (|asked| vec![asked.taken(), asked.comes(), asked.ends(End::Gone)], GONE),
        (|asked| vec![asked.taken(), asked.ends(End::Gone), asked.replies(SEVEN)], GONE),
        (|asked| vec![asked.taken(), asked.ends(End::Poisoned(Poison { strength: 9, reason: String::new() }))], LOST),
        // Words of a home for a channel whose home is here.
        (
            |asked| {
                let of = |said| Frame::FromHome(asked.place, said);
                let ended = of(FromHome::Ended(End::Gone));
                vec![asked.taken(), ended, of(FromHome::Taken(1)), of(FromHome::Credit(9)), asked.replies(SEVEN)]
            },
            "7",
        ),
        (
            |asked| {
                let of = |said| Frame::ToHome(asked.place, said);
                let attach = of(ToHome::Attach(face(Face::Sender)));
                vec![
                    asked.taken(),
                    attach,
                    of(ToHome::Take(1)),
                    of(ToHome::Drain),
                    of(ToHome::Quiet),
                    asked.replies(SEVEN),
                ]
            },
            "7",
        ),
        // Not to be read.
        (|asked| vec![asked.taken(), asked.replies(&[])], "the reply could not be read"),
        (|asked| vec![asked.taken(), asked.replies(&[0])], "the reply could not be read"),
        (|asked| vec![asked.taken(), asked.replies(&[0, 0x61, b'x'])], "the reply could not be read"),
        (|asked| vec![asked.taken(), asked.replies(&[1, 7])], "the reply could not be read: it has ends in it"),
    ];
    run(async {
        let node = node("answers").await;
        let (mut peer, mut client, _) = attended(&node, 2, "desk").await;
        for (at, (answer, expected)) in answers.iter().enumerate() {
            let outcome;
            (client, outcome) = call(&mut peer, client, *answer).await;
            assert!(text(&outcome).contains(expected), "answer {at}: {}", text(&outcome));
        }
        let (_, outcome) = call(&mut peer, client, |asked| vec![asked.taken(), asked.replies(SEVEN)]).await;
        assert_eq!(text(&outcome), "7", "the connection lasts");
        serves_an_honest_guest(&node, "answers").await;
        peer.say(&[Frame::Goodbye]).await.unwrap();
        nothing_is_left(&node).await;
        node.leave().await.unwrap();
    });
}

/// Answers that end the connection: its calls end with it, and the event names the fault.
#[test]
fn replies_that_break_the_protocol_end_the_connection() {
    let answers: &[Answer] = &[
        (|asked| vec![asked.taken(), asked.replies(&[7; 1025])], "a reply of 1025 bytes; at most 1024 are allowed"),
        (
            |asked| vec![asked.taken(), Frame::More(asked.place, Bytes::from_static(b"x"))],
            "a piece that belongs to no value",
        ),
        (|asked| vec![asked.taken(), asked.taken()], "which is not open"),
    ];
    run(async {
        let node = node("violations").await;
        let mut connections = node.connections();
        for (at, (answer, expected)) in answers.iter().enumerate() {
            let (mut peer, client, _) = attended(&node, 2 + at as u128, &format!("desk{at}")).await;
            let (client, outcome) = call(&mut peer, client, *answer).await;
            println!("answer {at}: {}", text(&outcome));
            assert!(matches!(outcome, Err(CallError::NoReply(RecvError::NodeLost))), "answer {at}: {outcome:?}");
            let why = down(&mut connections).await.to_string();
            assert!(why.starts_with("the node violated the protocol") && why.contains(expected), "answer {at}: {why}");
            drop(client);
        }
        serves_an_honest_guest(&node, "violations").await;
        nothing_is_left(&node).await;
        node.leave().await.unwrap();
    });
}

/// The server's socket closes within each frame of its answer, and does not return.
#[test]
fn call_ends_where_its_server_ends_within_a_frame() {
    run(async {
        let node = node("torn").await;
        let answer = |asked: Asked| [asked.taken(), asked.comes(), asked.offers(SEVEN)];
        let whole =
            bytes_of(&answer(Asked { channel: ChannelId(2 << 64), ticket: 1, place: ChannelId(u128::MAX) })).len();
        // (Each end takes the grace period, so they run at once.)
        let torn = (0..whole).step_by(7).chain([whole]).enumerate().map(|(at, bytes)| {
            let node = node.clone();
            async move {
                let (mut peer, mut client, _) = attended(&node, 2 + at as u128, &format!("desk{at}")).await;
                let calling = spawn(async move { client.count.call(1).within(PATIENCE).await });
                let said = bytes_of(&answer(Asked::at(&mut peer).await));
                peer.write(&said[..bytes.min(said.len())]).await.unwrap();
                drop(peer);
                (bytes, calling.await.unwrap())
            }
        });
        for (bytes, outcome) in torn.collect::<Par<_>>().await {
            let is_typed = match &outcome {
                Ok(reply) => *reply == 7 && bytes >= whole,
                Err(CallError::NoReply(error)) => *error == RecvError::NodeLost,
                Err(CallError::Unknown { .. }) => true,
                Err(_) => false,
            };
            assert!(is_typed, "{bytes} of {whole} bytes: {}", text(&outcome));
        }
        serves_an_honest_guest(&node, "torn").await;
        nothing_is_left(&node).await;
        node.leave().await.unwrap();
    });
}

/// A peer that is a client of the node's desk by hand, and the desk's first channel.
async fn admitted(node: &Node, number: u128, name: &str) -> (Peer, ChannelId) {
    let mut peer = meet(node, number).await;
    peer.say(&[declare(1, name, ChannelId(0), &face(Face::Client))]).await.unwrap();
    let base = loop {
        if let Frame::Names(Names::Found { channel, .. }) = peer.hear_at_last().await.unwrap() {
            break channel;
        }
    };
    peer.say(&[Frame::Names(Names::Guest { acceptor: base, guest: base })]).await.unwrap();
    let attach = |n| Frame::ToHome(ChannelId(base.0.wrapping_add(n)), ToHome::Attach(face(Face::Client)));
    peer.say(&[attach(0), attach(1)]).await.unwrap();
    let mut attached = 0;
    while attached < 2 {
        attached +=
            usize::from(matches!(peer.hear_at_last().await.unwrap(), Frame::FromHome(_, FromHome::Attached(_))));
    }
    (peer, base)
}

/// A request of this number for the desk, with these places. The first is the one for its reply.
fn request(number: u8, places: &[ChannelId]) -> Bytes {
    const PLACE: u8 = 3;
    const FIRST_OF_THE_ENDS: u8 = 0;
    let mut out = BytesMut::new();
    out.put_u8(places.len() as u8);
    for place in places {
        out.put_u8(PLACE);
        out.put_u128(place.0);
    }
    out.put_slice(&[0x82, number, FIRST_OF_THE_ENDS]);
    out.freeze()
}

/// A request of this number is kept by [`keeper`]; another one is answered with its number.
const KEPT: u8 = 0;

/// Keeps places for replies, at most this many, and drops the oldest. Then it replies to those that it has,
/// and returns how many callers took their reply.
async fn keeper(mut server: DeskServer, most: usize) -> usize {
    let mut kept = std::collections::VecDeque::new();
    while let Ok(request) = server.count.accept().await {
        match request.split() {
            (0, place) => kept.push_back(place),
            // (Its caller may be gone.)
            (number, place) => drop(place.send(number)),
        }
        if kept.len() > most {
            kept.pop_front();
        }
    }
    kept.into_iter().filter_map(|place| place.send(9).ok()).count()
}

/// A peer that is a client of a [`keeper`] by hand.
struct Client {
    peer: Peer,
    desk: ChannelId,
    ticket: Ticket,
    /// Frames that have arrived, besides those of before the first request.
    seen: u64,
    /// The replies that have come, and the channels of their places.
    replies: Vec<(ChannelId, Bytes)>,
    /// The places that have ended, and how.
    ended: Vec<(ChannelId, End)>,
}

impl Client {
    async fn of(node: &Node, number: u128, name: &str, most: usize) -> (Self, Process<usize>) {
        let declared = spawn({
            let (node, name) = (node.clone(), name.to_owned());
            async move { keeper(node.server::<Desk>(&name).within(PATIENCE).await.unwrap(), most).await }
        });
        let (peer, desk) = admitted(node, number, name).await;
        (Self { peer, desk, ticket: 0, seen: 0, replies: Vec::new(), ended: Vec::new() }, declared)
    }

    /// Offers requests, and waits until all of them have been taken or have failed. Returns how many were
    /// taken.
    async fn asks(&mut self, requests: impl IntoIterator<Item = Bytes>) -> std::io::Result<usize> {
        let mut frames = Vec::new();
        let first = self.ticket + 1;
        for request in requests {
            self.ticket += 1;
            frames.extend(offer(self.desk, self.ticket, &request));
        }
        self.peer.say(&frames).await?;
        let (mut open, mut taken) = (self.ticket + 1 - first, 0);
        while open > 0 {
            let heard = self.peer.hear_at_last().await?;
            self.seen += 1;
            match heard {
                Frame::FromHome(channel, FromHome::Taken(_)) if channel == self.desk => {
                    open -= 1;
                    taken += 1;
                }
                Frame::FromHome(channel, FromHome::Failed(..)) if channel == self.desk => open -= 1,
                Frame::ToHome(place, ToHome::Reply(reply)) => self.replies.push((place, reply)),
                Frame::ToHome(place, ToHome::Ended(how)) => self.ended.push((place, how)),
                _ => {}
            }
        }
        self.peer.say(&[Frame::Ack { seen: self.seen }]).await?;
        Ok(taken)
    }

    /// Whether a request with a place of its own is answered, on the same connection.
    async fn is_served(&mut self, place: ChannelId) {
        self.asks([request(7, &[place])]).await.unwrap();
        while !self.replies.iter().any(|(other, _)| *other == place) {
            if let Frame::ToHome(place, ToHome::Reply(reply)) = self.peer.hear_at_last().await.unwrap() {
                self.replies.push((place, reply));
            }
        }
        assert_eq!(self.replies.last().unwrap(), &(place, Bytes::from_static(SEVEN)));
    }
}

/// Places whose number is in use, or that come twice: their request is taken, without a place, and nothing
/// else changes.
#[test]
fn places_that_are_no_places_of_their_own_are_dropped() {
    run(async {
        let node = node("places").await;
        let (mut client, keeper) = Client::of(&node, 2, "desk", 10).await;
        let place = |n: u128| ChannelId(9 << 64 | n);
        // The request's own channel, and the other one of the desk.
        for place in [client.desk, ChannelId(client.desk.0.wrapping_add(1))] {
            assert_eq!(client.asks([request(8, &[place])]).await.unwrap(), 1);
        }
        // Once in each of two requests, of which the first is not answered.
        assert_eq!(client.asks([request(KEPT, &[place(1)]), request(8, &[place(1)])]).await.unwrap(), 2);
        assert_eq!(node.records().replies, 2, "one place, known to the machine and to its driver");
        // Twice and more often in one message.
        client.asks([request(KEPT, &[place(2), place(2)])]).await.unwrap();
        client.asks([request(KEPT, &[place(3); 255])]).await.unwrap();
        client.asks([request(KEPT, &(4..259).map(place).collect::<Vec<_>>())]).await.unwrap();
        assert!(client.replies.is_empty(), "{:?}", client.replies);
        client.is_served(place(300)).await;
        serves_an_honest_guest(&node, "places").await;
        client.peer.say(&[Frame::Goodbye]).await.unwrap();
        keeper.await.unwrap();
        nothing_is_left(&node).await;
        node.leave().await.unwrap();
    });
}

/// A caller is gone, and repeats that; then its place is another one's.
#[test]
fn place_whose_caller_is_gone_takes_no_reply() {
    run(async {
        let node = node("gone").await;
        let (mut client, keeper) = Client::of(&node, 2, "desk", 10).await;
        let place = ChannelId(9 << 64);
        for how in [End::Gone, End::Retired, End::Lost, End::Poisoned(Poison { strength: 255, reason: "x".to_owned() })]
        {
            assert_eq!(client.asks([request(KEPT, &[place])]).await.unwrap(), 1);
            let gone = Frame::FromHome(place, FromHome::Ended(how));
            client.peer.say(&[gone.clone(), gone]).await.unwrap();
        }
        client.is_served(place).await;
        assert_eq!(node.records().replies, 0);
        drop(client);
        assert_eq!(keeper.await.unwrap(), 0, "a place took a reply");
        nothing_is_left(&node).await;
        node.leave().await.unwrap();
    });
}

/// What only the home of a channel may say, of a place.
#[test]
fn words_of_a_home_for_a_place_end_the_connection() {
    let terms = Terms { window: 1, credits: 1, value_max: 9 };
    let words = [
        FromHome::Taken(1),
        FromHome::Attached(terms),
        FromHome::Credit(1),
        FromHome::Drained,
        FromHome::Moving { epoch: 1, to: life(9).node, addresses: Vec::new() },
        FromHome::HomeIs { transfer: 1, epoch: 1, terms },
    ];
    run(async {
        let node = node("words").await;
        let mut connections = node.connections();
        for (at, word) in words.into_iter().enumerate() {
            let (mut client, keeper) = Client::of(&node, 2 + at as u128, &format!("desk{at}"), 10).await;
            let place = ChannelId(9 << 64);
            assert_eq!(client.asks([request(KEPT, &[place])]).await.unwrap(), 1);
            client.peer.say(&[Frame::FromHome(place, word.clone())]).await.unwrap();
            let why = down(&mut connections).await.to_string();
            assert!(why.starts_with("the node violated the protocol: "), "{word:?}: {why}");
            keeper.await.unwrap();
        }
        serves_an_honest_guest(&node, "words").await;
        nothing_is_left(&node).await;
        node.leave().await.unwrap();
    });
}

/// The client's socket closes within each part of a request, and within its word that its caller is gone.
#[test]
fn client_that_ends_within_a_frame_leaves_nothing() {
    run(async {
        let node = node("halves").await;
        let place = ChannelId(9 << 64);
        let whole = |desk| {
            let mut frames = offer(desk, 1, &request(KEPT, &[place]));
            frames.push(Frame::FromHome(place, FromHome::Ended(End::Gone)));
            bytes_of(&frames)
        };
        let bytes = whole(ChannelId(1 << 120)).len();
        let torn = (0..bytes).step_by(5).chain([bytes]).enumerate().map(|(at, bytes)| {
            let node = node.clone();
            async move {
                let (mut client, keeper) = Client::of(&node, 2 + at as u128, &format!("desk{at}"), 10).await;
                let said = whole(client.desk);
                client.peer.write(&said[..bytes.min(said.len())]).await.unwrap();
                drop(client);
                keeper.await.unwrap();
            }
        });
        torn.collect::<Par<_>>().await;
        serves_an_honest_guest(&node, "halves").await;
        nothing_is_left(&node).await;
        node.leave().await.unwrap();
    });
}

/// Requests without end, whose places the program keeps: the node has room for a limited number of places.
/// One without room is lost, and its caller's node gets `SenderEnded`; another host still has room.
/// `DUNLIN_REQUESTS=1000000` sends more.
#[test]
fn places_for_replies_are_bounded() {
    const HELD: usize = 8 << 20;
    /// How many places the program keeps.
    const MOST: usize = 4_000;
    let requests = std::env::var("DUNLIN_REQUESTS").map_or(20_000, |number| number.parse().unwrap());
    run_alone(async {
        let builder = Node::builder().app("replies").names("memory:names-of-many").listen("127.0.0.1:0");
        let node = builder.message_max_bytes(200_000).held_max_bytes(HELD as u64).join().await.unwrap();
        let (mut client, keeper) = Client::of(&node, 2, "desk", MOST).await;
        // Each answer gives the room of its place back.
        for first in (0..2_000).step_by(16) {
            let places = (first..first + 16).map(|n| request(8, &[ChannelId(8 << 64 | n)]));
            assert_eq!(client.asks(places).await.unwrap(), 16);
        }
        assert_eq!(client.ended.len(), 0, "places were lost");
        let before = HEAP.0.forget_peak();
        let (began, mut most) = (Instant::now(), 0);
        for first in (0..requests).step_by(16) {
            let places = (first..first + 16).map(|n| request(KEPT, &[ChannelId(9 << 64 | n)]));
            assert_eq!(client.asks(places).await.unwrap(), 16);
            most = most.max(node.records().replies / 2);
            client.ended.truncate(100);
        }
        let growth = HEAP.0.peak().saturating_sub(before);
        println!("{requests} requests in {:?}: {most} places were held at once, for {growth} bytes", began.elapsed());
        // Each takes 8 KiB of the budget.
        assert!((100..HELD / (8 << 10)).contains(&most), "{most} places");
        assert!(client.ended.iter().any(|(_, how)| *how == End::Lost), "no place was lost");
        assert!(growth < 2 * HELD, "{growth} bytes");
        serves_an_honest_guest(&node, "many").await;
        client.peer.say(&[Frame::Goodbye]).await.unwrap();
        keeper.await.unwrap();
        nothing_is_left(&node).await;
        node.leave().await.unwrap();
    });
}
