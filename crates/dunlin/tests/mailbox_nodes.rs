//! Mailboxes of other nodes: addresses that travel, order, room, ends and bad messages.
#![cfg(all(feature = "net", feature = "macros"))]

use std::collections::HashSet;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};

use dunlin::node::{Limit, NameError, NodeEvent};
use dunlin::prelude::*;
use dunlin::{Bound, PostError, mailbox, mailbox_with, receive};
use serde::{Deserialize, Serialize};

/// Two nodes of one application.
async fn pair(test: &str) -> (Node, Node) {
    let names = format!("memory:mailboxes-{test}");
    let join = || Node::builder().app(test).names(&names).listen("memory:").join();
    (join().await.unwrap(), join().await.unwrap())
}

/// Sends, and waits for room if there is none.
async fn offer<M>(address: &Address<M>, message: M) {
    address.offer(message).await.unwrap();
}

#[derive(Debug, Serialize, Deserialize)]
enum Msg {
    Number(u32),
    Total(Address<u64>),
}

#[dunlin::test]
async fn messages_of_another_node_arrive_in_order() {
    let (here, there) = pair("order").await;
    let mut mailbox = here.mailbox::<u32>("numbers").await.unwrap();
    let address = there.address::<u32>("numbers").await.unwrap();
    let sender = spawn(async move {
        for n in 0..10_000 {
            offer(&address, n).await;
        }
    });
    for n in 0..10_000 {
        assert_eq!(mailbox.recv().await.unwrap(), n);
    }
    sender.await.unwrap();
}

#[dunlin::test]
async fn address_in_a_message_answers_to_its_mailbox() {
    let (here, there) = pair("answers").await;
    let mut adder = here.mailbox::<Msg>("adder").await.unwrap();
    let address = there.address::<Msg>("adder").await.unwrap();
    let adding = spawn(async move {
        let mut sum = 0;
        loop {
            receive!(adder,
                Msg::Number(n) => sum += u64::from(n),
                Msg::Total(asker) => return asker.send(sum),
            )
            .unwrap();
        }
    });
    for n in 1..=10 {
        address.send(Msg::Number(n)).unwrap();
    }
    let (asker, mut answer) = mailbox();
    address.send(Msg::Total(asker)).unwrap();
    assert_eq!(answer.recv().await.unwrap(), 55);
    adding.await.unwrap().unwrap();
}

/// Uses the node when it is woken, as the waker of another executor may.
struct Uses(Node, dunlin::Address<u64>);

impl Wake for Uses {
    fn wake(self: Arc<Self>) {
        self.1.send(self.0.records().homes as u64).unwrap();
    }
}

#[dunlin::test]
async fn wakers_run_where_the_node_is_not_locked() {
    let (here, there) = pair("wakers").await;
    let (woken, mut wakes) = mailbox();
    let mut receiver = here.mailbox::<u8>("one").await.unwrap();
    let address = there.address::<u8>("one").await.unwrap();
    {
        let waker = Waker::from(Arc::new(Uses(here.clone(), woken.clone())));
        let mut recv = pin!(receiver.recv());
        assert!(recv.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        address.send(1).unwrap();
        wakes.recv().await.unwrap();
        assert_eq!(recv.await.unwrap(), 1);
    }
    // Room, and the end of the mailbox.
    let waker = Waker::from(Arc::new(Uses(there.clone(), woken)));
    while address.send(2).is_ok() {}
    let mut offer = pin!(address.offer(3));
    assert!(offer.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    receiver.recv().await.unwrap();
    wakes.recv().await.unwrap();
    drop(receiver);
    let _ = offer.await;
}

/// An address goes over a channel to a third node, which reaches the mailbox; at home it is the mailbox's
/// own.
#[dunlin::test]
async fn address_goes_on_to_a_third_node_and_comes_home() {
    let (home, second) = pair("third").await;
    let third = Node::builder().app("third").names("memory:mailboxes-third").listen("memory:").join().await.unwrap();
    let (address, mut mailbox) = mailbox::<u8>();
    let mut to_second = home.sender::<Address<u8>>("a").await.unwrap();
    let mut from_home = second.receiver::<Address<u8>>("a").await.unwrap();
    let mut to_third = second.sender::<(u8, Address<u8>)>("b").await.unwrap();
    let mut from_second = third.receiver::<(u8, Address<u8>)>("b").await.unwrap();
    let mut to_home = third.sender::<Address<u8>>("c").await.unwrap();
    let mut from_third = home.receiver::<Address<u8>>("c").await.unwrap();

    let (sent, at_second) = par!(to_second.send(address.clone()), from_home.recv());
    sent.unwrap();
    let at_second = at_second.unwrap();
    let (sent, at_third) = par!(to_third.send((7, at_second.clone())), from_second.recv());
    sent.unwrap();
    let (_, at_third) = at_third.unwrap();
    at_third.send(3).unwrap();
    assert_eq!(mailbox.recv().await.unwrap(), 3);

    let (sent, back) = par!(to_home.send(at_third.clone()), from_third.recv());
    sent.unwrap();
    let back = back.unwrap();
    assert_eq!((&back, &at_second, &at_third), (&address, &address, &back));
    #[allow(clippy::mutable_key_type, reason = "the hash is that of the mailbox's number, which never changes")]
    let all: HashSet<Address<u8>> = [address, at_second, at_third, back.clone()].into();
    assert_eq!(all.len(), 1);
    // It is local: no message of this node is too large for its own mailbox, and none waits for a connection.
    home.leave().await.unwrap();
    back.send(4).unwrap();
    assert_eq!(mailbox.recv().await.unwrap(), 4);
}

#[dunlin::test]
async fn mailbox_that_does_not_receive_is_full_and_gives_messages_back() {
    let (here, there) = pair("full").await;
    let mut mailbox = here.mailbox::<Vec<u8>>("slow").await.unwrap();
    let mut other = here.mailbox::<u32>("other").await.unwrap();
    let (slow, other_address) =
        (there.address::<Vec<u8>>("slow").await.unwrap(), there.address::<u32>("other").await.unwrap());
    let message = vec![7; 1000];
    let sent = (0..10_000).take_while(|_| slow.send(message.clone()).is_ok()).count();
    assert!((16..=64).contains(&sent), "{sent}");
    assert_eq!(slow.send(message.clone()), Err(PostError::Full(message.clone())));
    // Others continue, and one that waits gets the room of what is received.
    other_address.send(1).unwrap();
    assert_eq!(other.recv().await.unwrap(), 1);
    let waits = spawn(async move { slow.offer(vec![8]).await });
    for _ in 0..sent {
        assert_eq!(mailbox.recv().await.unwrap(), message);
    }
    assert_eq!(mailbox.recv().await.unwrap(), [8]);
    waits.await.unwrap().unwrap();
}

#[dunlin::test]
async fn message_that_is_too_large_comes_back() {
    let (here, there) = pair("large").await;
    let _mailbox = here.mailbox::<String>("texts").await.unwrap();
    let address = there.address::<String>("texts").await.unwrap();
    let text = "x".repeat(70_000);
    let Err(PostError::TooLarge { message, bytes, bytes_max }) = address.send(text.clone()) else {
        panic!("it is sent");
    };
    assert_eq!((message, bytes, bytes_max), (text, 70_005, 65_408));
}

#[dunlin::test]
async fn message_with_an_end_comes_back() {
    let (here, there) = pair("ends").await;
    let _mailbox = here.mailbox::<Sender<u8>>("ends").await.unwrap();
    let address = there.address::<Sender<u8>>("ends").await.unwrap();
    let (tx, _rx) = channel();
    let error = address.send(tx).unwrap_err();
    assert!(matches!(error, PostError::Unsendable { .. }), "{error:?}");
    assert!(error.to_string().contains("an end can only travel inside a message on a dunlin channel"), "{error}");
}

#[dunlin::test]
async fn dropped_mailbox_is_closed_at_other_nodes() {
    let (here, there) = pair("closed").await;
    let mailbox = here.mailbox::<u32>("short").await.unwrap();
    let address = there.address::<u32>("short").await.unwrap();
    address.send(1).unwrap();
    drop(mailbox);
    let mut n = 2;
    let back = loop {
        match address.offer(n).await {
            Ok(()) => n += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(back, PostError::Closed(n));
    assert!(address.is_closed());
    // Its name is free soon.
    let mut next = loop {
        match here.mailbox::<u32>("short").await {
            Err(NameError::Refused { .. }) => sleep(Duration::ZERO).await,
            declared => break declared.unwrap(),
        }
    };
    let address = there.address::<u32>("short").await.unwrap();
    address.send(9).unwrap();
    assert_eq!(next.recv().await.unwrap(), 9);
}

#[dunlin::test]
async fn address_of_a_node_that_has_left_is_closed() {
    let (here, there) = pair("left").await;
    let _mailbox = there.mailbox::<u32>("gone").await.unwrap();
    let address = here.address::<u32>("gone").await.unwrap();
    address.send(1).unwrap();
    there.leave().await.unwrap();
    while address.offer(2).await.is_ok() {}
    assert_eq!(address.send(3), Err(PostError::Closed(3)));
}

#[dunlin::test]
async fn selective_receives_and_marks_count_messages_of_other_nodes() {
    let (here, there) = pair("selective").await;
    let mut mailbox = here.mailbox::<u32>("numbers").await.unwrap();
    let address = there.address::<u32>("numbers").await.unwrap();
    for n in 1..=6 {
        address.send(n).unwrap();
    }
    assert_eq!(mailbox.recv_if(|n| *n == 6).await.unwrap(), 6);
    assert_eq!(mailbox.len(), 5);
    let mut later = mailbox.mark();
    address.send(7).unwrap();
    assert_eq!(later.recv().await.unwrap(), 7);
    drop(later);
    for n in 1..=5 {
        assert_eq!(mailbox.recv().await.unwrap(), n);
    }
}

/// What comes beyond the bound of a mailbox is dropped as its bound says, and is an event.
#[dunlin::test]
async fn bounds_hold_for_messages_of_other_nodes() {
    let (here, there) = pair("bounds").await;
    let mut events = here.events();
    let (rejecting, mut first) = mailbox_with::<u32>(Bound::reject(2));
    let (dropping, mut last) = mailbox_with::<u32>(Bound::drop_oldest(2));
    let mut to = here.sender::<[Address<u32>; 2]>("a").await.unwrap();
    let mut from = there.receiver::<[Address<u32>; 2]>("a").await.unwrap();
    let (sent, addresses) = par!(to.send([rejecting, dropping]), from.recv());
    sent.unwrap();
    let addresses = addresses.unwrap();
    for n in 1..=5 {
        addresses.iter().for_each(|address| address.send(n).unwrap());
    }
    let mut full = 0;
    while full < 6 {
        if let NodeEvent::Limit(Limit::Mailbox { peer }) = events.recv().await.unwrap() {
            assert_eq!(peer, there.me());
            full += 1;
        }
    }
    assert_eq!([first.recv().await.unwrap(), first.recv().await.unwrap()], [1, 2]);
    assert_eq!([last.recv().await.unwrap(), last.recv().await.unwrap()], [4, 5]);
    assert_eq!(here.refusals().posts, 6);
}

/// The messages of a newer program.
mod new {
    use dunlin::Address;

    #[derive(serde::Serialize, serde::Deserialize)]
    pub(super) struct Reading {
        pub(super) celsius: f64,
    }

    /// Its schema does not show what the address carries.
    #[derive(serde::Serialize, serde::Deserialize)]
    #[serde(untagged)]
    pub(super) enum Hidden {
        To { address: Address<Reading> },
    }
}

mod old {
    use dunlin::Address;

    #[derive(Debug, serde::Serialize, serde::Deserialize)]
    pub(super) struct Reading {
        pub(super) kelvin: u32,
    }

    #[derive(serde::Serialize, serde::Deserialize)]
    #[serde(untagged)]
    pub(super) enum Hidden {
        To { address: Address<Reading> },
    }
}

#[dunlin::test]
async fn name_of_a_mailbox_compares_schemas() {
    let (here, there) = pair("names").await;
    let _mailbox = here.mailbox::<old::Reading>("readings").await.unwrap();
    let error = there.address::<new::Reading>("readings").await.map(drop).unwrap_err().to_string();
    assert!(error.contains("kelvin") || error.contains("celsius"), "{error}");
}

/// The schemas of an address are compared at its first use, too: a later send gets the difference.
#[dunlin::test]
async fn mismatch_of_an_address_is_the_error_of_a_later_send() {
    let (here, there) = pair("mismatch").await;
    let mut to = here.sender::<old::Hidden>("a").await.unwrap();
    let mut from = there.receiver::<new::Hidden>("a").await.unwrap();
    let (address, mut mailbox) = mailbox::<old::Reading>();
    let (sent, received) = par!(to.send(old::Hidden::To { address: address.clone() }), from.recv());
    sent.unwrap();
    let new::Hidden::To { address: far } = received.unwrap();
    let error = loop {
        if let Err(error) = far.offer(new::Reading { celsius: 4.5 }).await {
            break error;
        }
        sleep(Duration::ZERO).await;
    };
    let text = error.to_string();
    assert!(text.contains("`Reading.kelvin`"), "{text}");
    assert_eq!(error.into_message().celsius, 4.5);
    // Nothing of it was received.
    assert!(mailbox.is_empty());
    address.send(old::Reading { kelvin: 277 }).unwrap();
    assert_eq!(mailbox.recv().await.unwrap().kelvin, 277);
}

/// A type that checks what it reads: a message that it refuses is dropped, and the next one is received.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "u32")]
struct Even(u32);

impl TryFrom<u32> for Even {
    type Error = String;

    fn try_from(n: u32) -> Result<Self, String> {
        match n {
            0 => Ok(Self(0)),
            666 => panic!("the type panics"),
            n if n % 2 == 0 => Ok(Self(n)),
            n => Err(format!("{n} is odd")),
        }
    }
}

#[dunlin::test]
async fn message_that_cannot_be_read_is_dropped_and_an_event() {
    let (here, there) = pair("unreadable").await;
    let mut events = here.events();
    let mut mailbox = here.mailbox_with::<Even>("even", Bound::reject(100)).await.unwrap();
    let address = there.address::<Even>("even").await.unwrap();
    for n in [2, 3, 666, 4] {
        address.send(Even(n)).unwrap();
    }
    assert_eq!(mailbox.recv().await.unwrap(), Even(2));
    assert_eq!(mailbox.recv().await.unwrap(), Even(4));
    let mut found = Vec::new();
    while found.len() < 2 {
        if let NodeEvent::Unreadable { peer, why } = events.recv().await.unwrap() {
            assert_eq!(peer, there.me());
            found.push(why);
        }
    }
    assert!(found[0].contains("3 is odd") && found[1].contains("the type panics"), "{found:?}");
    // Their places are free: a bounded mailbox has room for as many as before.
    for n in 0..100 {
        address.offer(Even(2 * n)).await.unwrap();
    }
    for n in 0..100 {
        assert_eq!(mailbox.recv().await.unwrap(), Even(2 * n));
    }
}

#[dunlin::test]
async fn bytes_are_not_encoded() {
    let (here, there) = pair("bytes").await;
    let mut mailbox = here.mailbox::<Vec<u8>>("bytes").await.unwrap();
    let address = there.address::<Vec<u8>>("bytes").await.unwrap();
    // As one number after the other it would be too large.
    let bytes: Vec<u8> = (0..65_408_u32).map(|n| n as u8).collect();
    address.send(bytes.clone()).unwrap();
    assert_eq!(mailbox.recv().await.unwrap(), bytes);
}

/// An address is data: it adds no channel, and no record beside that of its mailbox.
#[dunlin::test]
async fn address_that_travels_adds_no_channel() {
    let (here, there) = pair("counted").await;
    let mut to = here.sender::<Address<u32>>("a").await.unwrap();
    let mut from = there.receiver::<Address<u32>>("a").await.unwrap();
    let (address, mut mailbox) = mailbox::<u32>();
    let (sent, first) = par!(to.send(address.clone()), from.recv());
    sent.unwrap();
    first.unwrap().send(1).unwrap();
    assert_eq!(mailbox.recv().await.unwrap(), 1);
    let before = (here.records(), there.records());
    let mut all = Vec::new();
    for _ in 0..100 {
        let (sent, received) = par!(to.send(address.clone()), from.recv());
        sent.unwrap();
        all.push(received.unwrap());
    }
    assert_eq!((here.records(), there.records()), before);
    all.last().unwrap().send(2).unwrap();
    assert_eq!(mailbox.recv().await.unwrap(), 2);
}

#[test]
fn address_is_written_only_into_messages_between_nodes() {
    let (address, _mailbox) = mailbox::<u8>();
    let error = serde_json::to_string(&address).unwrap_err();
    assert_eq!(error.to_string(), "an address can only travel inside a message between nodes");
    let error = serde_json::from_str::<Address<u8>>("[0,1,1,1,1,[]]").unwrap_err();
    assert!(error.to_string().contains("an address can only travel inside a message between nodes"), "{error}");
}

/// A node that has not been given an address guesses the numbers of mailboxes: nothing arrives, each message
/// is counted and given back to the credit, and honest messages arrive.
#[dunlin::test]
async fn forged_messages_are_dropped_and_counted() {
    use dunlin_attack::{Peer, life};
    use dunlin_proto::id::MailboxId;
    use dunlin_proto::wire::{Frame, Post};

    let names = "memory:mailboxes-forged";
    let join = || Node::builder().app("forged").names(names).listen("127.0.0.1:0").join();
    let (here, there) = (join().await.unwrap(), join().await.unwrap());
    let mut mailbox = here.mailbox::<u32>("target").await.unwrap();
    let address = there.address::<u32>("target").await.unwrap();
    let mut events = here.events();
    let at = here.listening()[0].clone();
    let mut thief = Peer::meet([127, 0, 0, 1], &at, "forged", life(77)).await.unwrap();
    let forged = |number| {
        Frame::Post(Post::Message {
            to: MailboxId { number, bits: 0 },
            total: 1,
            first: bytes::Bytes::from_static(b"\x07"),
        })
    };
    // Far more than the numbers of this program's mailboxes, and than the credit of one connection.
    for _ in 0..20 {
        let frames: Vec<Frame> = (0..200).map(forged).collect();
        thief.say(&frames).await.unwrap();
    }
    loop {
        if let NodeEvent::Limit(Limit::Post { .. }) = events.recv().await.unwrap() {
            break;
        }
    }
    address.send(5).unwrap();
    assert_eq!(mailbox.recv().await.unwrap(), 5);
    assert!(mailbox.is_empty());
    assert!(here.refusals().posts > 0);
}
