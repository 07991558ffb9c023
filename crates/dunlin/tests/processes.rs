//! Nodes in OS processes of their own: the programs 8, 9, 12 and 13 of the API, and what the others notice
//! when one is killed.
//!
//! The test is the parent of all; it only starts them, reads their standard output, and kills.
#![cfg(feature = "net")]

#[path = "support/actor.rs"]
mod actor;

use std::time::Duration;

use actor::{Actor, say};
use dunlin::prelude::*;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

/// An application that no other test run has.
fn application(test: &str) -> String {
    format!("{test} {}", std::process::id())
}

/// An address that was free a moment ago.
fn address() -> String {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

#[test]
#[ignore = "what the processes of the other tests run"]
fn a_role() {
    let Some((role, knows)) = actor::role() else { return };
    let knows: Vec<&str> = knows.iter().map(String::as_str).collect();
    dunlin::block_on(async {
        match (role.as_str(), &*knows) {
            ("here", [application]) => here(application).await,
            ("there", [application]) => there(application).await,
            ("dealer", [application, names]) => dealer(node(application, names).await?).await,
            ("player", [application, names]) => player(node(application, names).await?).await,
            ("host", [application, names]) => host(node(application, names).await?).await,
            ("seated", [application, names]) => seated(node(application, names).await?).await,
            ("sender", [application, names]) => sender(node(application, names).await?).await,
            ("receiver", [application, names, count]) => {
                receiver(node(application, names).await?, count.parse().unwrap()).await
            }
            ("market customer", [application, names]) => market_customer(node(application, names).await?).await,
            ("market keeper", [application, names]) => market_keeper(node(application, names).await?).await,
            ("listener", [application, names]) => listener(node(application, names).await?).await,
            ("customer", [application, names]) => customer(node(application, names).await?).await,
            ("clinic", [application, names]) => clinic(node(application, names).await?).await,
            ("patient", [application, names]) => patient(node(application, names).await?).await,
            ("visitor", [application, names]) => visitor(node(application, names).await?).await,
            ("broker", [application, names]) => broker(node(application, names).await?).await,
            ("left", [application, names]) => left(node(application, names).await?).await,
            ("right", [application, names]) => right(node(application, names).await?).await,
            ("keeper", [application, names]) => keeper(node(application, names).await?).await,
            ("stage", [application, names]) => stage(node(application, names).await?).await,
            ("voice", [application, names, n]) => voice(node(application, names).await?, n).await,
            _ => panic!("there is no role {role}"),
        }
    })
    .unwrap();
}

/// A node that serves the names if it is the first, and gives lost ones up soon.
async fn node(application: &str, names: &str) -> Result<Node> {
    let builder = Node::builder().app(application).names(names);
    Ok(builder.heartbeat(Duration::from_millis(100)).grace(Duration::from_millis(500)).join().await?)
}

// Program 8.

const VOICES: usize = 3;

/// Hands out handles of one sender, and records their holders.
async fn stage(node: Node) -> Result {
    let (tx, mut rx) = channel::<String>();
    let tx = tx.share();
    for n in 0..VOICES {
        let mut hand = node.sender::<Shared<Sender<String>>>(&format!("voice {n}")).await?;
        hand.send(tx.clone()).await.map_err(|error| Error::other(error.to_string()))?;
    }
    drop(tx);
    let mut heard = Vec::new();
    while let Some(line) = rx.next().await? {
        heard.push(line);
    }
    for n in 0..VOICES {
        assert!(heard.contains(&format!("{n} tunes")), "{heard:?}");
        // No other value, in any process, comes between.
        let sings = heard.iter().position(|line| *line == format!("{n} sings")).expect("it sings");
        assert_eq!(heard[sings + 1], format!("{n} bows"), "{heard:?}");
    }
    say(format!("{} lines", heard.len()));
    node.leave().await
}

async fn voice(node: Node, n: &str) -> Result {
    let mut tx = node.receiver::<Shared<Sender<String>>>(&format!("voice {n}")).await?.recv().await?;
    tx.send(format!("{n} tunes")).await?;
    let mut stage = tx.claim().within(Duration::from_secs(10)).await?;
    stage.send(format!("{n} sings")).await?;
    stage.send(format!("{n} bows")).await?;
    drop(stage);
    drop(tx);
    node.leave().await
}

#[test]
fn a_choir_in_four_processes() {
    let (application, names) = (application("choir"), address());
    let stage = Actor::start(&[], "stage", &[&application, &names]);
    let voices: Vec<Actor> =
        (0..VOICES).map(|n| Actor::start(&[], "voice", &[&application, &names, &n.to_string()])).collect();
    assert_eq!(stage.hear(), "9 lines");
    assert!(stage.end().success());
    for voice in voices {
        assert!(voice.end().success());
    }
}

// Program 9.

#[derive(Serialize, Deserialize)]
struct Item(String);

#[derive(Bundle)]
struct Till {
    pay: ToServer<u64>,
    receipt: ToClient<String>,
}

#[derive(Bundle)]
struct Market {
    #[policy(fifo(8))]
    basket: ToServer<Item>,
    price: Call<Item, u64>,
    till: Till,
    depot: Share<Till>,
    referral: ToClient<MarketClient>,
}

/// Buys something, here or at a shop to which this one refers.
async fn buys(shop: &mut MarketClient, what: &str) -> Result {
    let price = shop.price.call(Item(what.to_owned())).within(Duration::from_secs(20)).await?;
    shop.basket.send(Item(what.to_owned())).await?;
    shop.till.pay.send(price).await?;
    let mut depot = shop.depot.claim().await?; // a face is claimed whole
    depot.pay.send(price).await?;
    let stored = depot.receipt.recv().await?;
    drop(depot);
    say(format!("{}, {stored}", shop.till.receipt.recv().await?));
    Ok(())
}

async fn market_customer(node: Node) -> Result {
    let mut shop = node.client::<Market>("shop").await?;
    buys(&mut shop, "krill").await?;
    // The face of another shop, which arrived over this one's, refers to a third.
    let mut other = shop.referral.recv().await?;
    buys(&mut other, "squid").await?;
    let mut third = other.referral.recv().await?;
    drop((shop, other));
    buys(&mut third, "herring").await?;
    drop(third);
    node.leave().await
}

/// Serves one customer until it has gone.
async fn keeps(mut shop: MarketServer, refers_to: Option<MarketClient>) -> Result {
    if let Some(client) = refers_to {
        let mut referral = shop.referral;
        shop.referral = Market::pair().1.referral;
        // (A process: the customer asks for it only after its purchase.)
        drop(spawn(async move {
            let _ = referral.send(client).await;
        }));
    }
    let depot = &mut shop.depot;
    let stores = async {
        while let Some(coins) = depot.pay.next().await? {
            depot.receipt.send(format!("stored {coins}")).await?;
        }
        Ok::<_, Error>(())
    };
    let sells = async {
        loop {
            alt! {
                ask = shop.price.accept() => match ask {
                    Ok(ask) => { let n = ask.0.len() as u64; let _ = ask.reply(n); }
                    Err(_) => return Ok::<_, Error>(()),
                },
                coins = shop.till.pay.recv() => {
                    let item = shop.basket.recv().await?;
                    shop.till.receipt.send(format!("paid {} for {}", coins?, item.0)).await?;
                }
            }
        }
    };
    let (stored, sold) = par!(stores, sells);
    stored.and(sold)
}

async fn market_keeper(node: Node) -> Result {
    let shop = node.server::<Market>("shop").await?;
    say("open");
    let ((second, second_server), (third, third_server)) = (Market::pair(), Market::pair());
    drop((spawn(keeps(second_server, Some(third))), spawn(keeps(third_server, None))));
    drop(spawn(keeps(shop, Some(second))));
    std::future::pending().await
}

#[test]
fn a_customer_buys_in_another_process_and_where_it_is_referred_to() {
    let (application, names) = (application("market"), address());
    let keeper = Actor::start(&[], "market keeper", &[&application, &names]);
    assert_eq!(keeper.hear(), "open");
    let customer = Actor::start(&[], "market customer", &[&application, &names]);
    assert_eq!(customer.hear(), "paid 5 for krill, stored 5");
    assert_eq!(customer.hear(), "paid 5 for squid, stored 5");
    assert_eq!(customer.hear(), "paid 7 for herring, stored 7");
    assert!(customer.end().success());
}

// Program 12.

async fn here(application: &str) -> Result {
    let node = Node::join(application).await?;
    let mut readings = node.receiver::<f64>("readings").await?; // any end first
    while let Some(t) = readings.next().await? {
        say(t);
    }
    node.leave().await
}

async fn there(application: &str) -> Result {
    let node = Node::join(application).await?;
    node.sender("readings").await?.send(21.5).await?; // Ok: it was received, over there
    node.leave().await
}

#[test]
fn two_nodes() {
    for here_first in [true, false] {
        let application = application(&format!("two_nodes {here_first}"));
        let start = |is_here| Actor::start(&[], if is_here { "here" } else { "there" }, &[&application]);
        let (first, second) = (start(here_first), start(!here_first));
        let (here, there) = if here_first { (first, second) } else { (second, first) };
        assert_eq!(here.hear(), "21.5");
        assert!(there.end().success());
        assert!(here.end().success());
    }
}

// Program 13.

#[derive(Serialize, Deserialize)]
enum Turn {
    Play { card: u8, next: Sender<Self> },
    Over,
}

#[derive(Bundle)]
struct Table {
    join: Call<Sender<Turn>, String>,
    watch: Call<(), Receiver<Turn>>,
}

/// Each guest gets a card and a seat; once it has played its own card, and has noticed the end of the game,
/// it leaves.
async fn dealer(node: Node) -> Result {
    let mut guests = node.acceptor::<Table>("table").await?;
    say("open");
    let mut games = Vec::new();
    for _ in 0..2 {
        let mut guest = guests.recv().await?.into_face();
        games.push(spawn(async move {
            let (seat, mut rx) = channel();
            let (mut player, reply) = guest.join.accept().await?.split();
            let _ = reply.send("welcome".to_owned());
            player.send(Turn::Play { card: 7, next: seat }).await?; // `seat` is now on the player's node
            let Turn::Play { card, mut next } = rx.recv().await? else { panic!("the player does not play") };
            say(format!("a player has {card}"));
            next.send(Turn::Over).await?;
            let (mut shown, turns) = channel();
            let watch = guest.watch.accept().await?;
            let _ = watch.reply(turns); // and `turns` too
            shown.send(Turn::Over).await?;
            match guest.join.accept().await {
                Err(RecvError::Closed) => Ok::<_, Error>(()),
                other => panic!("the player continues: {:?}", other.map(|_| ())),
            }
        }));
    }
    for game in games {
        game.await??;
    }
    node.leave().await
}

async fn player(node: Node) -> Result {
    let mut table = node.client::<Table>("table").await?;
    let (tx, mut turns) = channel();
    let welcome = table.join.call(tx).await?;
    let Turn::Play { card, mut next } = turns.recv().await? else { panic!("the dealer does not deal") };
    let (mine, mut rx) = channel();
    next.send(Turn::Play { card: card + 1, next: mine }).await?;
    let Turn::Over = rx.recv().await? else { panic!("the game continues") };
    say(format!("{welcome} {card}"));
    let mut shown = table.watch.call(()).await?;
    let Turn::Over = shown.recv().await? else { panic!("that is not what was shown") };
    say("watched");
    drop(table);
    node.leave().await
}

#[test]
fn guests_of_an_acceptor_send_and_receive_ends() {
    let (application, names) = (application("guests"), address());
    let dealer = Actor::start(&[], "dealer", &[&application, &names]);
    assert_eq!(dealer.hear(), "open");
    let players = [(); 2].map(|()| Actor::start(&[], "player", &[&application, &names]));
    for player in players {
        assert_eq!(player.hear(), "welcome 7");
        assert_eq!(player.hear(), "watched");
        assert!(player.end().success());
    }
    assert_eq!([dealer.hear(), dealer.hear()], ["a player has 8"; 2]);
    assert!(dealer.end().success());
}

// Program 13 as written: a turn carries a seat, and the reply its own receiver. Both are at the player.

#[derive(Bundle)]
struct Seats {
    join: Call<Sender<Turn>, Receiver<Turn>>,
}

/// Hands out seats, until it is killed.
async fn host(node: Node) -> Result {
    let mut guests = node.acceptor::<Seats>("seats").await?;
    say("open");
    while let Some(guest) = guests.next().await? {
        let mut guest = guest.into_face();
        drop(spawn(async move {
            let (seat, rx) = channel();
            let (mut player, reply) = guest.join.accept().await?.split();
            player.send(Turn::Play { card: 7, next: seat }).await?; // `seat` is now on the player's node
            let _ = reply.send(rx);
            if let Err(RecvError::Closed) = guest.join.accept().await {
                say("a player has gone");
            }
            Ok::<_, Error>(())
        }));
    }
    Ok(())
}

/// Plays with itself, and continues when the host is gone.
async fn seated(node: Node) -> Result {
    let mut states = node.connections();
    let mut table = node.client::<Seats>("seats").await?;
    let (tx, mut turns) = channel();
    let (news, turn) = par!(table.join.call(tx), turns.recv());
    let (mut news, Turn::Play { card, mut next }) = (news?, turn?) else { panic!("the host does not deal") };
    assert_eq!(card, 7);
    plays(&mut next, &mut news).await?;
    drop(table);
    assert!(matches!(turns.recv().await, Err(RecvError::Closed)));
    say("seated");
    while !matches!(states.recv().await?.1, dunlin::node::ConnectionState::Down(_)) {}
    plays(&mut next, &mut news).await?;
    drop(next);
    assert!(matches!(news.recv().await, Err(RecvError::Closed)));
    say("over");
    node.leave().await
}

async fn plays(next: &mut Sender<Turn>, news: &mut Receiver<Turn>) -> Result {
    for card in 0..10 {
        let (seat, _) = channel();
        let (sent, got) = par!(next.send(Turn::Play { card, next: seat }), news.recv());
        sent?;
        assert!(matches!(got?, Turn::Play { card: got, .. } if got == card));
    }
    Ok(())
}

#[test]
fn guest_receives_a_sender_and_its_receiver() {
    let (application, names) = (application("seats"), address());
    let host = Actor::start(&[], "host", &[&application, &names]);
    assert_eq!(host.hear(), "open");
    let player = Actor::start(&[], "seated", &[&application, &names]);
    assert_eq!(player.hear(), "seated");
    assert_eq!(host.hear(), "a player has gone");
    drop(host); // kills it
    assert_eq!(player.hear(), "over");
    assert!(player.end().success());
}

// The process that is killed.

/// Sends 0, 1, 2, ... to each new receiver.
async fn sender(node: Node) -> Result {
    for _ in 0..2 {
        let mut tx = node.sender::<u64>("numbers").await?;
        say("ready");
        let mut n = 0;
        let error = loop {
            match tx.send(n).await {
                Ok(()) => n += 1,
                Err(error) => break error,
            }
        };
        match error {
            SendError::Unknown { value, .. } => say(format!("{value}: Unknown")),
            SendError::NotTaken { value, why } => say(format!("{value}: {why:?}")),
        }
    }
    node.leave().await
}

/// Receives this many, and then holds its end.
async fn receiver(node: Node, count: u64) -> Result {
    let mut rx = node.receiver::<u64>("numbers").await?;
    for n in 0..count {
        assert_eq!(rx.recv().await?, n);
    }
    say("received");
    std::future::pending().await
}

/// Receives for as long as it can.
async fn listener(node: Node) -> Result {
    let mut rx = node.receiver::<u64>("numbers").await?;
    assert_eq!(rx.recv().await?, 0);
    say("received");
    for expected in 1.. {
        match rx.recv().await {
            Ok(n) => assert_eq!(n, expected),
            Err(error) => {
                say(error);
                break;
            }
        }
    }
    node.leave().await
}

#[test]
fn sender_reports_killed_receiver_and_a_new_one_is_admitted() {
    let (application, names) = (application("killed receiver"), address());
    let sender = Actor::start(&[], "sender", &[&application, &names]);
    for _ in 0..2 {
        assert_eq!(sender.hear(), "ready");
        let receiver = Actor::start(&[], "receiver", &[&application, &names, "3"]);
        assert_eq!(receiver.hear(), "received");
        drop(receiver); // kills it
        // The fourth may not have been offered there yet; and if the third's receipt did not arrive, its
        // outcome is unknown.
        let outcome = sender.hear();
        assert!(["2: Unknown", "3: Unknown", "3: NodeLost"].contains(&&*outcome), "{outcome}");
    }
    assert!(sender.end().success());
}

#[test]
fn receiver_reports_that_its_sender_was_killed() {
    let (application, names) = (application("killed sender"), address());
    // Also if the killed process has served the names.
    for sender_serves in [true, false] {
        let start_sender = || {
            let sender = Actor::start(&[], "sender", &[&application, &names]);
            assert_eq!(sender.hear(), "ready");
            sender
        };
        let early = sender_serves.then(start_sender);
        let receiver = Actor::start(&[], "listener", &[&application, &names]);
        let sender = early.unwrap_or_else(start_sender);
        assert_eq!(receiver.hear(), "received");
        drop(sender); // kills it
        assert_eq!(receiver.hear(), RecvError::NodeLost.to_string());
        assert!(receiver.end().success());
    }
}

#[derive(Bundle)]
struct Shop {
    price: Call<String, u64>,
}

async fn customer(node: Node) -> Result {
    for _ in 0..2 {
        let mut shop = node.client::<Shop>("shop").await?;
        say("ready");
        assert_eq!(shop.price.call("krill".into()).await?, 5);
        match shop.price.call("squid".into()).await.unwrap_err() {
            CallError::Unknown { .. } | CallError::NoReply(RecvError::NodeLost) => say("lost"),
            error => panic!("{error}"),
        }
    }
    node.leave().await
}

/// Answers the first question, and never the second.
async fn keeper(node: Node) -> Result {
    let mut shop = node.server::<Shop>("shop").await?;
    let ask = shop.price.accept().await?;
    let price = ask.len() as u64;
    assert_eq!(ask.reply(price), Ok(()));
    let _thinks = shop.price.accept().await?;
    say("accepted");
    std::future::pending().await
}

#[test]
fn caller_reports_killed_server_and_a_new_one_is_admitted() {
    let (application, names) = (application("killed server"), address());
    let customer = Actor::start(&[], "customer", &[&application, &names]);
    for _ in 0..2 {
        assert_eq!(customer.hear(), "ready");
        let keeper = Actor::start(&[], "keeper", &[&application, &names]);
        assert_eq!(keeper.hear(), "accepted");
        drop(keeper); // kills it
        assert_eq!(customer.hear(), "lost");
    }
    assert!(customer.end().success());
}

// A broker, which serves the names as well, and is not needed once it has joined two others.

/// Makes a channel, and sends its ends to two others.
#[derive(Bundle)]
struct Clinic {
    ask: Call<String, usize>,
}

/// Serves one client, and prints how that ended.
async fn treats(mut clinic: ClinicServer, is_one_lost: watch::Sender<bool>) {
    let mut unanswered = Vec::new();
    let end = loop {
        let question = match clinic.ask.accept().await {
            Ok(question) => question,
            Err(error) => break error,
        };
        match question.as_str() {
            "never to be answered" => {
                unanswered.push(question);
                say("asked");
            }
            "until one is lost" => {
                let mut lost = is_one_lost.subscribe();
                lost.wait_for(|lost| *lost).await.unwrap();
                question.reply(1).unwrap();
            }
            _ => {
                let length = question.len();
                question.reply(length).unwrap();
            }
        }
    };
    if end == RecvError::NodeLost {
        is_one_lost.send_replace(true);
    }
    say(format!("{end:?}"));
}

/// Serves two clients, and stops when both have left.
async fn clinic(node: Node) -> Result {
    let mut guests = node.acceptor::<Clinic>("clinic").await?;
    let (scope, is_one_lost) = (Scope::new(), watch::Sender::new(false));
    for _ in 0..2 {
        let guest = guests.recv().await?.into_face();
        scope.fork(treats(guest, is_one_lost.clone()));
    }
    drop(guests);
    scope.finish(Duration::from_secs(30)).await?;
    say("finished");
    node.leave().await
}

async fn patient(node: Node) -> Result {
    let mut clinic = node.client::<Clinic>("clinic").await?;
    assert_eq!(clinic.ask.call("krill".to_owned()).await?, 5);
    say("served");
    assert_eq!(clinic.ask.call("until one is lost".to_owned()).await?, 1);
    assert_eq!(clinic.ask.call("cod".to_owned()).await?, 3);
    say("served on");
    drop(clinic);
    node.leave().await
}

async fn visitor(node: Node) -> Result {
    let mut clinic = node.client::<Clinic>("clinic").await?;
    let answer = clinic.ask.call("never to be answered".to_owned()).await?;
    panic!("answered: {answer}");
}

#[test]
fn client_killed_in_a_call_affects_neither_server_nor_other_client() {
    let (application, names) = (application("killed client"), address());
    let clinic = Actor::start(&[], "clinic", &[&application, &names]);
    let patient = Actor::start(&[], "patient", &[&application, &names]);
    assert_eq!(patient.hear(), "served");
    let visitor = Actor::start(&[], "visitor", &[&application, &names]);
    assert_eq!(clinic.hear(), "asked");
    drop(visitor); // kills it
    assert_eq!(clinic.hear(), "NodeLost");
    assert_eq!(patient.hear(), "served on");
    assert!(patient.end().success());
    assert_eq!(clinic.hear(), "Closed");
    assert_eq!(clinic.hear(), "finished");
    assert!(clinic.end().success());
}

async fn broker(node: Node) -> Result {
    let mut left = node.sender::<Sender<u64>>("left").await?;
    let mut right = node.sender::<Receiver<u64>>("right").await?;
    let (tx, rx) = channel();
    left.send(tx).await.map_err(|error| Error::other(error.to_string()))?;
    right.send(rx).await.map_err(|error| Error::other(error.to_string()))?;
    say("handed over");
    std::future::pending().await
}

/// Sends a little, and the rest when the broker is gone.
async fn left(node: Node) -> Result {
    let mut states = node.connections();
    let mut tx = node.receiver::<Sender<u64>>("left").await?.recv().await?;
    for n in 0..3 {
        tx.send(n).await?;
    }
    say("attached");
    while !matches!(states.recv().await?.1, dunlin::node::ConnectionState::Down(_)) {}
    for n in 3..100 {
        tx.send(n).await?;
    }
    drop(tx);
    node.leave().await
}

async fn right(node: Node) -> Result {
    let mut rx = node.receiver::<Receiver<u64>>("right").await?.recv().await?;
    let mut expected = 0;
    while let Some(n) = rx.next().await? {
        assert_eq!(n, expected);
        expected += 1;
    }
    say(format!("{expected} in order"));
    node.leave().await
}

#[test]
fn introduced_nodes_stay_connected_after_the_broker_dies() {
    let (application, names) = (application("broker"), address());
    let broker = Actor::start(&[], "broker", &[&application, &names]);
    let left = Actor::start(&[], "left", &[&application, &names]);
    let right = Actor::start(&[], "right", &[&application, &names]);
    assert_eq!(broker.hear(), "handed over");
    assert_eq!(left.hear(), "attached");
    drop(broker); // kills it, and the names with it
    assert_eq!(right.hear(), "100 in order");
    assert!(left.end().success());
    assert!(right.end().success());
}
