//! Messages with places for replies in them, of all kinds, on one channel: from one node to the next, which
//! replies, drops the places, or sends them on to a third node. Sockets are cut meanwhile. Each place has its
//! reply, or the end that its holder has given it; a send that is not taken gives its places back, to be used
//! again.

use std::time::Duration;

use dunlin::__rt::{Answer, reply};
use dunlin::prelude::*;
use dunlin::sim::Sim;
use dunlin::{RecvError, Reply, SendError, Why};
use serde::{Deserialize, Serialize};

use crate::support::nothing_is_left;

#[derive(Debug, Serialize, Deserialize)]
enum Ask {
    /// Only a value.
    Nothing(u32),
    One(u32, Reply<u32>),
    Two(u32, Reply<u32>, Reply<String>),
    /// The second place is not read.
    Unread(u32, Reply<u32>, Unread),
    /// Another end goes with it: not over a link.
    Ended(u32, Reply<u32>, Receiver<u32>),
}

#[derive(Debug, Serialize)]
struct Unread(Reply<u32>);

impl<'de> Deserialize<'de> for Unread {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        serde::de::IgnoredAny::deserialize(deserializer)?;
        Ok(Self(reply().0))
    }
}

/// What becomes of the request with this number.
fn is_dropped(n: u32) -> bool {
    n.is_multiple_of(5)
}

fn is_sent_on(n: u32) -> bool {
    n % 5 == 1
}

/// Larger than one frame's reply, sometimes.
fn text(n: u32) -> String {
    "k".repeat(if n.is_multiple_of(3) { 2_000 } else { 20 })
}

/// The answers that a request waits for.
struct Answers {
    number: Option<Answer<u32>>,
    text: Option<Answer<String>>,
    unread: Option<Answer<u32>>,
}

fn ask(n: u32, kind: u64) -> (Ask, Answers) {
    let (place, number) = reply();
    let mut answers = Answers { number: Some(number), text: None, unread: None };
    let ask = match kind {
        0 => {
            answers.number = None;
            Ask::Nothing(n)
        }
        1 => {
            let (other, text) = reply();
            answers.text = Some(text);
            Ask::Two(n, place, other)
        }
        2 => {
            let (other, unread) = reply();
            answers.unread = Some(unread);
            Ask::Unread(n, place, Unread(other))
        }
        3 => Ask::Ended(n, place, channel().1),
        _ => Ask::One(n, place),
    };
    (ask, answers)
}

async fn client(sim: &Sim, mut asks: Sender<Ask>) -> Result<u32> {
    let mut answered = 0;
    for n in 1..=60 {
        // Mostly those that go over a link.
        let (mut unsent, answers) = ask(n, sim.below(if n % 20 < 15 { 12 } else { 40 }));
        // It may be given back, at any moment of its way.
        while sim.below(2) == 0 {
            let patience = Duration::from_micros(sim.below(4_000));
            match asks.send(unsent).within(patience).await {
                Ok(()) => {
                    unsent = Ask::Nothing(0);
                    break;
                }
                Err(SendError::NotTaken { value, why: Why::TimedOut }) => unsent = value,
                Err(error) => return Err(Error::other(format!("{error:?}"))),
            }
        }
        if !matches!(unsent, Ask::Nothing(0)) {
            asks.send(unsent).await.map_err(|error| Error::other(format!("{error:?}")))?;
        }
        let closed = Err(RecvError::Closed);
        if let Some(number) = answers.number {
            if sim.below(8) == 0 {
                // This caller does not wait.
                drop(number);
            } else {
                let expected = if is_dropped(n) { closed.clone() } else { Ok(n) };
                assert_eq!(number.await, expected, "{n}");
                answered += 1;
            }
        }
        if let Some(answer) = answers.text {
            let expected = if is_dropped(n) { Err(RecvError::Closed) } else { Ok(text(n)) };
            assert_eq!(answer.await, expected, "{n}");
        }
        if let Some(unread) = answers.unread {
            assert_eq!(unread.await, closed, "{n}: no one has it");
        }
    }
    Ok(answered)
}

/// Receives in all ways. Each request comes once, in order.
async fn server(sim: &Sim, mut asks: Receiver<Ask>, mut onward: Sender<(u32, Reply<u32>)>) -> Result {
    let (_open, mut never) = channel::<()>();
    let mut before = 0;
    loop {
        let received = match sim.below(4) {
            0 => asks.recv_extended().await.map(|held| held.release()),
            1 => alt! {
                ask = asks.recv() => ask,
                _ = never.recv() => unreachable!("it is silent"),
                _ = sleep(Duration::from_micros(sim.below(3_000))) => continue,
            },
            2 => match asks.recv().within(Duration::from_micros(sim.below(3_000))).await {
                Err(RecvError::TimedOut) => continue,
                received => received,
            },
            _ => asks.recv().await,
        };
        let received = match received {
            Ok(received) => received,
            Err(RecvError::Closed) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let (Ask::Nothing(n) | Ask::One(n, _) | Ask::Two(n, ..) | Ask::Unread(n, ..) | Ask::Ended(n, ..)) = received;
        assert_eq!(n, before + 1, "each comes once");
        before = n;
        if sim.below(3) == 0 {
            sleep(Duration::from_micros(sim.below(4_000))).await;
        }
        if is_dropped(n) {
            continue;
        }
        let (place, other) = match received {
            Ask::Nothing(_) => continue,
            Ask::One(_, place) | Ask::Unread(_, place, _) | Ask::Ended(_, place, _) => (place, None),
            Ask::Two(_, place, other) => (place, Some(other)),
        };
        if is_sent_on(n) {
            onward.send((n, place)).await.map_err(|error| Error::other(format!("{error:?}")))?;
        } else {
            // (Its caller may not wait.)
            let _ = place.send(n);
        }
        if let Some(other) = other {
            let _ = other.send(text(n));
        }
    }
}

/// `seed`: also whether sockets are cut.
fn run(seed: u64) -> Result {
    let sim = Sim::new(seed);
    sim.run(async {
        sim.delay(Duration::from_micros(10), Duration::from_millis(2));
        let nodes = [Node::join("requests").await?, Node::join("requests").await?, Node::join("requests").await?];
        let asks = nodes[1].receiver::<Ask>("asks").await?;
        let sender = nodes[0].sender::<Ask>("asks").await?;
        let mut onwards = nodes[2].receiver::<(u32, Reply<u32>)>("onward").await?;
        let onward = nodes[1].sender::<(u32, Reply<u32>)>("onward").await?;
        let (answered, served, sent_on, ()) = par!(
            client(&sim, sender),
            server(&sim, asks, onward),
            async {
                while let Ok((n, place)) = onwards.recv().await {
                    let _ = place.send(n);
                }
                drop(onwards);
            },
            async {
                for _ in 0..if seed.is_multiple_of(4) { 0 } else { 15 } {
                    sleep(Duration::from_micros(sim.below(10_000))).await;
                    let one = sim.below(3) as usize;
                    sim.cut(&nodes[one], &nodes[(one + 1) % 3]);
                }
            },
        );
        served?;
        let () = sent_on;
        assert!(answered? > 20);
        nothing_is_left(&nodes).await
    })
}

#[test]
fn each_place_in_a_request_has_its_outcome() -> Result {
    let seeds = std::env::var("DUNLIN_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(150);
    for seed in 0..seeds {
        run(seed).map_err(|error| Error::other(format!("seed {seed}: {error}")))?;
    }
    Ok(())
}
