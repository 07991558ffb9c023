//! Gives a peer a value of a node's program, and reads what of it the node has written.

use std::time::Duration;

use bytes::Bytes;
use dunlin::prelude::*;
use dunlin_attack::{Peer, declare, face};
use dunlin_proto::id::ChannelId;
use dunlin_proto::wire::{Face, Frame, FromHome, Head, Terms, ToHome};

const PATIENCE: Duration = Duration::from_secs(20);

/// Gives a value to a peer, over a channel of this name. Returns the message.
pub(crate) async fn give<T: Portable>(node: &Node, peer: &mut Peer, name: &str, value: T) -> Bytes {
    let (node, on) = (node.clone(), name.to_owned());
    let given = spawn(async move {
        let mut tx = node.sender::<T>(&on).within(PATIENCE).await.unwrap();
        tx.send(value).within(PATIENCE).await.unwrap();
    });
    let channel = ChannelId(
        0x61_7665 << 64
            | u128::from(name.bytes().fold(0_u64, |sum, byte| sum.wrapping_mul(131).wrapping_add(byte.into()))),
    );
    peer.say(&[declare(channel.0 as u64, name, channel, &face(Face::Receiver))]).await.unwrap();
    let message = loop {
        let heard = tokio::time::timeout(PATIENCE, peer.hear_at_last()).await.expect("the node knows the peer's end");
        match heard.unwrap() {
            Frame::ToHome(to, ToHome::Attach(_)) if to == channel => {
                let terms = Terms { window: 1, credits: 4, value_max: 1 << 20 };
                peer.say(&[Frame::FromHome(channel, FromHome::Attached(terms))]).await.unwrap();
            }
            Frame::ToHome(to, ToHome::Value { head, first, .. }) if to == channel => {
                if let Head::Offer(ticket) = head {
                    peer.say(&[Frame::FromHome(channel, FromHome::Taken(ticket))]).await.unwrap();
                }
                break first;
            }
            _ => {}
        }
    };
    given.await.unwrap();
    message
}

/// The fields of an address or a pid, which [`number`] reads.
pub(crate) fn fields(message: &[u8]) -> &[u8] {
    let mut rest = message.strip_prefix(&[0]).expect("no ends are in it");
    assert_eq!(number(&mut rest), 6, "an address and a pid are six fields: {message:02x?}");
    rest
}

/// Reads a number as CBOR writes it.
pub(crate) fn number(bytes: &mut &[u8]) -> u64 {
    let (first, rest) = bytes.split_first().expect("an item");
    let length = match first & 31 {
        small @ 0..=23 => {
            *bytes = rest;
            return small.into();
        }
        power => 1 << (power - 24),
    };
    let (number, rest) = rest.split_at(length);
    *bytes = rest;
    number.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}
