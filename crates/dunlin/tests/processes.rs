//! Nodes in OS processes of their own: the programs 12 and 13 of the API, and what the others hear when one is killed.
//!
//! The test is the parent of all; it only starts them, hears what they say on their standard output, and kills.
#![cfg(feature = "net")]

#[path = "support/actor.rs"]
mod actor;

use std::time::Duration;

use actor::{Actor, say};
use dunlin::prelude::*;
use serde::{Deserialize, Serialize};

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
            ("sender", [application, names]) => sender(node(application, names).await?).await,
            ("receiver", [application, names, count]) => {
                receiver(node(application, names).await?, count.parse().unwrap()).await
            }
            ("listener", [application, names]) => listener(node(application, names).await?).await,
            ("customer", [application, names]) => customer(node(application, names).await?).await,
            ("keeper", [application, names]) => keeper(node(application, names).await?).await,
            _ => panic!("there is no role {role}"),
        }
    })
    .unwrap();
}

/// A node that serves the names if it is the first, and soon gives up whoever is lost.
async fn node(application: &str, names: &str) -> Result<Node> {
    let builder = Node::builder().app(application).names(names);
    Ok(builder.heartbeat(Duration::from_millis(100)).grace(Duration::from_millis(500)).join().await?)
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

// Program 13, with what can travel today: senders, whose receiver is where they come from.

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

/// Each guest gets a card and a seat; once it has played its own card, and has heard that the game is over, it leaves.
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
                other => panic!("the player goes on: {:?}", other.map(|_| ())),
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
    let Turn::Over = rx.recv().await? else { panic!("the game goes on") };
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

// Whoever is killed.

/// Sends 0, 1, 2, ... as often as there is somebody new to receive.
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

/// Receives so many, and then holds its end.
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
fn a_sender_hears_that_its_receiver_was_killed_and_a_new_one_is_admitted() {
    let (application, names) = (application("killed receiver"), address());
    let sender = Actor::start(&[], "sender", &[&application, &names]);
    for _ in 0..2 {
        assert_eq!(sender.hear(), "ready");
        let receiver = Actor::start(&[], "receiver", &[&application, &names, "3"]);
        assert_eq!(receiver.hear(), "received");
        drop(receiver); // kills it
        // Perhaps the fourth had not been offered over there; and if the third's receipt was not heard of, nobody can know.
        let outcome = sender.hear();
        assert!(["2: Unknown", "3: Unknown", "3: NodeLost"].contains(&&*outcome), "{outcome}");
    }
    assert!(sender.end().success());
}

#[test]
fn a_receiver_hears_that_its_sender_was_killed() {
    let (application, names) = (application("killed sender"), address());
    // Also if the one that is killed has served the names.
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

/// Answers the first question, and thinks about the second for ever.
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
fn a_caller_hears_that_its_server_was_killed_and_a_new_one_is_admitted() {
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
