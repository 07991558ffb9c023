//! Programs of different age: version n with n - 1, over two nodes. A message that one side writes and the
//! other one can read passes; a difference is refused when the second end is declared, with its description.
#![cfg(all(feature = "net", feature = "macros"))]

use std::time::Duration;

use bytes::Bytes;
use dunlin::node::{Encoding, NameError};
use dunlin::prelude::*;
use serde::{Deserialize, Serialize};

/// The version before.
mod before {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    pub(crate) struct Order {
        pub(crate) id: u32,
        pub(crate) items: Vec<Item>,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    pub(crate) struct Item {
        pub(crate) price: u32,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    pub(crate) enum Command {
        Go(u8),
        Halt,
    }

    #[derive(Serialize, Deserialize)]
    pub(crate) struct Ask {
        pub(crate) back: Sender<Order>,
        pub(crate) more: Receiver<Order>,
    }

    #[derive(Serialize, Deserialize)]
    pub(crate) enum Turn {
        Play { card: u8, next: Sender<Self> },
        Over,
    }

    #[derive(Bundle)]
    pub(crate) struct Shop {
        pub(crate) basket: ToServer<Order>,
        pub(crate) price: Call<Order, Item>,
        pub(crate) news: ToClient<Order>,
    }
}

/// This one: there is a note to an order, and a currency to an item.
mod after {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    pub(crate) struct Order {
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(crate) note: Option<String>,
        pub(crate) id: u32,
        pub(crate) items: Vec<Item>,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    pub(crate) struct Item {
        pub(crate) price: u32,
        #[serde(default)]
        pub(crate) currency: u16,
    }

    #[derive(Serialize, Deserialize)]
    pub(crate) struct Ask {
        pub(crate) more: Receiver<Order>,
        pub(crate) back: Sender<Order>,
    }

    #[derive(Serialize, Deserialize)]
    pub(crate) enum Turn {
        Play { card: u8, next: Sender<Self>, bid: Option<u8> },
        Over,
    }

    #[derive(Bundle)]
    pub(crate) struct Shop {
        pub(crate) basket: ToServer<Order>,
        pub(crate) price: Call<Order, Item>,
        pub(crate) news: ToClient<Order>,
    }
}

/// Types that do not fit, each in one respect.
mod changed {
    use super::*;

    #[derive(Serialize, Deserialize)]
    pub(crate) struct Order<I = Item> {
        pub(crate) id: u32,
        pub(crate) items: Vec<I>,
    }

    #[derive(Serialize, Deserialize)]
    pub(crate) struct Item {
        pub(crate) price: String,
    }

    /// The price is missing.
    #[derive(Serialize, Deserialize)]
    pub(crate) struct Free {}

    #[derive(Serialize, Deserialize)]
    pub(crate) enum Command {
        Go(u8),
        Stop,
    }

    #[derive(Serialize, Deserialize)]
    pub(crate) struct Ask {
        pub(crate) back: Sender<Order>,
        pub(crate) more: Receiver<super::before::Order>,
    }

    #[derive(Serialize, Deserialize)]
    pub(crate) enum Turn {
        Play { card: u16, next: Sender<Self> },
        Over,
    }

    #[derive(Bundle)]
    pub(crate) struct Shop {
        pub(crate) basket: ToServer<super::before::Order>,
        pub(crate) price: Call<super::before::Order, Item>,
        pub(crate) news: ToClient<super::before::Order>,
    }

    #[derive(Bundle)]
    pub(crate) struct Moved {
        pub(crate) price: Call<super::before::Order, super::before::Item>,
        pub(crate) basket: ToServer<super::before::Order>,
        pub(crate) news: ToClient<super::before::Order>,
    }
}

fn before() -> before::Order {
    before::Order { id: 7, items: vec![before::Item { price: 40 }] }
}

fn after() -> after::Order {
    after::Order { note: Some("fresh".into()), id: 7, items: vec![after::Item { price: 40, currency: 3 }] }
}

/// The later version's reading of an earlier order.
fn completed() -> after::Order {
    after::Order { note: None, id: 7, items: vec![after::Item { price: 40, currency: 0 }] }
}

async fn nodes(test: &str) -> Result<(Node, Node)> {
    let names = format!("memory:names-of-schemas-{test}");
    let builder = || Node::builder().app(test).names(&names).listen("memory:");
    let one = builder().join().await?;
    // It serves the names, so the other one has to dial it.
    Ok((one, builder().join().await?))
}

fn run(test: impl Future<Output = Result>) {
    let limit = Duration::from_secs(60);
    dunlin::block_on(async { tokio::time::timeout(limit, test).await.expect("the test hangs") }).unwrap();
}

/// The error of the second declaration.
fn difference<T>(second: Result<T, NameError>) -> String {
    match second {
        Err(NameError::Mismatch { difference, .. }) => difference.to_string(),
        Err(other) => panic!("another error: {other}"),
        Ok(_) => panic!("it was admitted"),
    }
}

#[test]
fn channel_transfers_values_between_compatible_versions() {
    run(async {
        let (one, two) = nodes("channels").await?;
        let mut tx = one.sender::<before::Order>("up").await?;
        let mut rx = two.receiver::<after::Order>("up").await?;
        let (sent, order) = par!(tx.send(before()), rx.recv());
        sent?;
        assert_eq!(order?, completed());

        let mut rx = one.receiver::<before::Order>("down").await?;
        let mut tx = two.sender::<after::Order>("down").await?;
        let (sent, order) = par!(tx.send(after()), rx.recv());
        sent?;
        assert_eq!(order?, before());
        par!(one.leave(), two.leave()).0
    });
}

#[test]
fn incompatible_end_is_refused_with_the_schema_difference() {
    run(async {
        let (one, two) = nodes("refused").await?;
        let _tx = one.sender::<before::Order>("changed").await?;
        let second = two.receiver::<changed::Order>("changed").await;
        let text = second.as_ref().unwrap_err().to_string();
        let expected = "the messages of node";
        assert!(text.starts_with("\"changed\": ") && text.contains(expected), "{text}");
        assert_eq!(difference(second), "`Order.items[].price`: u32 there, text here");

        // The second declaration gets the refusal, so the reverse order as well.
        let _rx = one.receiver::<before::Order>("gone").await?;
        let second = two.sender::<changed::Order<changed::Free>>("gone").await;
        assert_eq!(difference(second), "`Order.items[].price`: a required field there, no such field here");
        // A removed field does not matter to the side that no longer has it.
        let _tx = one.sender::<before::Order>("free").await?;
        let _rx = two.receiver::<changed::Order<changed::Free>>("free").await?;

        let _rx = one.receiver::<before::Command>("command").await?;
        let second = two.sender::<changed::Command>("command").await;
        assert_eq!(difference(second), "`Command.Stop`: not known there, a variant here");

        // A refused declaration leaves the name to others.
        let mut tx = two.sender::<before::Command>("command").await?;
        let mut rx = _rx;
        let (sent, command) = par!(tx.send(before::Command::Go(1)), rx.recv());
        sent?;
        assert_eq!(command?, before::Command::Go(1));

        let _raw = one.sender::<Bytes>("raw").await?;
        let second = two.receiver::<String>("raw").await;
        assert_eq!(difference(second), "bytes that are not encoded there, messages in cbor here");
        let _rx = two.receiver::<Vec<u8>>("raw").await?;
        par!(one.leave(), two.leave()).0
    });
}

#[test]
fn compact_messages_have_to_be_the_same() {
    run(async {
        let (one, two) = nodes("compact").await?;
        let compact = Encoding::Compact;
        let _tx = one.sender::<before::Order>("order").encoding(compact).await?;
        let second = two.receiver::<after::Order>("order").encoding(compact).await;
        assert_eq!(difference(second), "`Order.0`: field `id` there, field `note` here");
        let second = two.receiver::<before::Order>("order").await;
        assert_eq!(difference(second), "compact messages there, messages in cbor here");
        let _rx = two.receiver::<before::Order>("order").encoding(compact).await?;

        let _tx = one.sender::<u8>("number").encoding(compact).await?;
        assert_eq!(difference(two.receiver::<u16>("number").encoding(compact).await), "u8 there, u16 here");
        par!(one.leave(), two.leave()).0
    });
}

#[test]
fn bundles_and_calls_are_compared() {
    run(async {
        let (one, two) = nodes("bundles").await?;
        let mut guests = one.acceptor::<before::Shop>("shop").await?;
        assert_eq!(
            difference(two.client::<changed::Shop>("shop").await),
            "`ShopClient.price.reply.price`: u32 there, text here"
        );
        assert_eq!(
            difference(two.client::<changed::Moved>("shop").await),
            "`MovedClient.0`: field `basket` there, field `price` here"
        );

        let mut client = two.client::<after::Shop>("shop").await?;
        let keeper = spawn(async move {
            let mut shop = guests.recv().await?;
            let ask = shop.price.accept().await?;
            assert_eq!(*ask, before());
            let _ = ask.reply(before::Item { price: 12 });
            assert_eq!(shop.basket.recv().await?, before());
            shop.news.send(before()).await?;
            Ok::<_, Error>(())
        });
        assert_eq!(client.price.call(after()).await?, after::Item { price: 12, currency: 0 });
        client.basket.send(after()).await?;
        assert_eq!(client.news.recv().await?, completed());
        keeper.await??;

        // A server for one client, declared second.
        let _client = two.client::<before::Shop>("stall").await?;
        assert_eq!(
            difference(one.server::<changed::Shop>("stall").await),
            "`ShopClient.price.reply.price`: u32 there, text here"
        );
        let _server = one.server::<after::Shop>("stall").await?;
        // They leave while the last two are being joined.
        let (one, two) = par!(one.leave(), two.leave());
        one?;
        two
    });
}

#[test]
fn ends_in_messages_were_compared_with_the_message() {
    run(async {
        let (one, two) = nodes("ends").await?;
        let mut asks = one.sender::<before::Ask>("asks").await?;
        assert_eq!(
            difference(two.receiver::<changed::Ask>("asks").await),
            "`Ask.back.message.items[].price`: u32 there, text here"
        );
        let mut asked = two.receiver::<after::Ask>("asks").await?;
        let ((back, mut answers), (mut feed, more)) = (channel(), channel());
        let (sent, ask) = par!(asks.send(before::Ask { back, more }), asked.recv());
        sent?;
        let mut ask = ask?;
        let (sent, answer) = par!(ask.back.send(after()), answers.recv());
        sent?;
        assert_eq!(answer?, before());
        let (sent, fed) = par!(feed.send(before()), ask.more.recv());
        sent?;
        assert_eq!(fed?, completed());
        par!(one.leave(), two.leave()).0
    });
}

#[test]
fn a_protocol_that_sends_itself_is_compared() {
    run(async {
        let (one, two) = nodes("turns").await?;
        let mut tx = one.sender::<before::Turn>("turns").await?;
        assert_eq!(
            difference(two.receiver::<changed::Turn>("turns").await),
            "`Turn.Play.next.message.Play.card`: u8 there, u16 here"
        );
        let mut rx = two.receiver::<after::Turn>("turns").await?;
        let (next, mut turns) = channel();
        let (sent, turn) = par!(tx.send(before::Turn::Play { card: 3, next }), rx.recv());
        sent?;
        let after::Turn::Play { card: 3, mut next, bid: None } = turn? else { panic!("another turn") };
        let (further, mut last) = channel();
        let (sent, turn) = par!(next.send(after::Turn::Play { card: 4, next: further, bid: Some(1) }), turns.recv());
        sent?;
        let before::Turn::Play { card: 4, mut next } = turn? else { panic!("another turn") };
        let (sent, turn) = par!(next.send(before::Turn::Over), last.recv());
        sent?;
        assert!(matches!(turn?, after::Turn::Over));
        par!(one.leave(), two.leave()).0
    });
}

#[test]
fn opaque_types_match_by_name() {
    mod here {
        use super::*;
        #[derive(Debug, PartialEq, Serialize, Deserialize)]
        #[serde(untagged)]
        pub(crate) enum Either {
            Number(u32),
            Text(String),
        }
    }
    mod there {
        use super::*;
        #[derive(Debug, PartialEq, Serialize, Deserialize)]
        #[serde(untagged)]
        pub(crate) enum Either {
            Text(String),
            Number(u32),
        }
        #[derive(Serialize, Deserialize)]
        #[serde(untagged)]
        pub(crate) enum Other {
            Text(String),
        }
    }
    run(async {
        let (one, two) = nodes("opaque").await?;
        let mut tx = one.sender::<(u8, here::Either)>("either").await?;
        assert_eq!(
            difference(two.receiver::<(u8, there::Other)>("either").await),
            "`1`: `Either`, which only its reader knows there, `Other`, which only its reader knows here"
        );
        let mut rx = two.receiver::<(u8, there::Either)>("either").await?;
        let (sent, got) = par!(tx.send((1, here::Either::Number(5))), rx.recv());
        sent?;
        assert_eq!(got?, (1, there::Either::Number(5)));
        par!(one.leave(), two.leave()).0
    });
}
