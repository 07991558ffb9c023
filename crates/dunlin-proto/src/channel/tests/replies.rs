//! Calls between a caller's node and the node that has its request.

use super::*;
use crate::machine::Replied;

/// A caller's node and the node that has taken its request, with one place for the reply.
fn called() -> [Node; 2] {
    let [mut caller, mut holder] = [Node::new(HOME), Node::new(SENDER)];
    caller.channels.await_reply(CHANNEL, SENDER);
    assert!(holder.channels.hold_reply(&mut holder.peers, CHANNEL, there(HOME)));
    [caller, holder]
}

/// Delivers what the two have said to each other.
fn exchange([caller, holder]: &mut [Node; 2]) {
    holder.said().into_iter().for_each(|(_, frame)| caller.hear(SENDER, frame).unwrap());
    caller.said().into_iter().for_each(|(_, frame)| holder.hear(HOME, frame).unwrap());
}

fn reply(holder: &mut Node, channel: ChannelId, reply: Bytes) -> bool {
    holder.channels.reply(&mut holder.peers, channel, reply)
}

fn refuse(caller: &mut Node) {
    caller.channels.refuse_reply(&mut caller.peers, CHANNEL);
}

fn replied(replied: Replied) -> Vec<Action> {
    vec![Action::Replied(CHANNEL, replied)]
}

#[test]
fn a_reply_is_one_frame_and_nothing_is_left() {
    let mut sides = called();
    assert!(reply(&mut sides[1], CHANNEL, Bytes::from_static(b"krill")));
    exchange(&mut sides);
    assert_eq!(sides[0].peers.heard, replied(Replied::Value(Bytes::from_static(b"krill"))));
    assert!(!reply(&mut sides[1], CHANNEL, Bytes::new()), "a call has one reply");
    assert!(sides.iter_mut().all(|side| side.said().is_empty() && !side.channels.knows(CHANNEL)));
}

#[test]
fn a_place_that_is_dropped_ends_its_call() {
    let mut sides = called();
    let Node { channels, peers } = &mut sides[1];
    channels.end_reply(peers, CHANNEL);
    exchange(&mut sides);
    assert_eq!(sides[0].peers.heard, replied(Replied::None));
}

#[test]
fn a_second_reply_or_one_from_another_node_changes_nothing() {
    let [mut caller, _] = called();
    let reply = || ToHome::Reply(Bytes::from_static(b"krill"));
    caller.hear(NodeId(3), Frame::ToHome(CHANNEL, reply())).unwrap();
    assert_eq!((caller.peers.heard.len(), caller.peers.nothing), (0, 1));
    caller.hear(SENDER, Frame::ToHome(CHANNEL, reply())).unwrap();
    caller.hear(SENDER, Frame::ToHome(CHANNEL, reply())).unwrap();
    caller.hear(SENDER, Frame::ToHome(CHANNEL, ToHome::ReplyComes)).unwrap();
    assert_eq!((caller.peers.heard.len(), caller.peers.nothing), (1, 3));
    assert!(!caller.channels.has_home(CHANNEL), "a node opens no home here for a call that is over");
}

#[test]
fn a_reply_that_crosses_the_end_of_its_caller_is_dropped() {
    let mut sides = called();
    refuse(&mut sides[0]);
    assert!(reply(&mut sides[1], CHANNEL, Bytes::from_static(b"krill")));
    exchange(&mut sides);
    assert!(sides[0].peers.heard.is_empty() && sides[1].peers.heard.is_empty());
}

#[test]
fn the_holder_of_a_place_hears_that_the_caller_is_gone() {
    let mut sides = called();
    refuse(&mut sides[0]);
    exchange(&mut sides);
    assert_eq!(sides[1].peers.heard, [Action::Unwanted(CHANNEL)]);
    assert!(!reply(&mut sides[1], CHANNEL, Bytes::new()));
    let Node { channels, peers } = &mut sides[1];
    assert_eq!(channels.stretch_reply(peers, CHANNEL), None);
    assert!(peers.said.is_empty());
}

#[test]
fn a_place_that_is_stretched_is_a_channel_with_the_terms_of_a_reply() {
    let mut sides = called();
    let Node { channels, peers } = &mut sides[1];
    let value_max = peers.config.value_max as u64;
    assert_eq!(channels.stretch_reply(peers, CHANNEL), Some((HOME, value_max)));
    channels.offer(peers, CHANNEL, 0, Bytes::from_static(b"krill"));
    exchange(&mut sides);
    let offered = Action::Home(CHANNEL, there(SENDER), HomeHears::Offered(0, Bytes::from_static(b"krill")));
    assert_eq!(sides[0].peers.heard, [Action::Replied(CHANNEL, Replied::Comes(SENDER)), offered]);
    let Node { channels, peers } = &mut sides[0];
    assert!(channels.taken(peers, CHANNEL, SENDER, 0));
    exchange(&mut sides);
    assert_eq!(sides[1].peers.heard, [Action::Proxy(CHANNEL, ProxyHears::Taken(0, there(HOME)))]);
}

/// The place goes on to a third node at once, and the word of that node is the first.
#[test]
fn a_place_may_be_taken_by_a_third_node_before_its_channel_is_announced() {
    let [mut caller, mut holder] = called();
    let third = NodeId(3);
    // Its holder would announce the channel first.
    caller.hear(SENDER, Frame::ToHome(CHANNEL, ToHome::Take(1))).unwrap();
    assert_eq!(caller.said(), [(SENDER, Frame::FromHome(CHANNEL, FromHome::NotHome(1)))]);
    assert!(caller.peers.heard.is_empty());
    caller.hear(third, Frame::ToHome(CHANNEL, ToHome::Take(1))).unwrap();
    let comes = Action::Replied(CHANNEL, Replied::Comes(SENDER));
    assert_eq!(caller.peers.heard, [comes, Action::Home(CHANNEL, there(third), HomeHears::Take)]);
    assert_eq!(caller.said(), [(SENDER, Frame::FromHome(CHANNEL, FromHome::Superseded(1)))]);
    let Node { channels, peers } = &mut holder;
    assert!(channels.stretch_reply(peers, CHANNEL).is_some());
    for (_, frame) in holder.said() {
        caller.hear(SENDER, frame).unwrap();
    }
    assert_eq!((caller.peers.heard.len(), caller.peers.nothing), (2, 0), "the announcement is no fault");
}

#[test]
fn the_end_of_a_connection_ends_all_calls_over_it() {
    let [mut caller, mut holder] = called();
    caller.channels.await_reply(ChannelId(8), NodeId(3));
    caller.channels.settle(&mut caller.peers, SENDER);
    holder.channels.settle(&mut holder.peers, HOME);
    assert_eq!(caller.peers.heard, replied(Replied::Lost));
    assert_eq!(holder.peers.heard, [Action::Unwanted(CHANNEL)]);
    caller.hear(NodeId(3), Frame::ToHome(ChannelId(8), ToHome::Reply(Bytes::new()))).unwrap();
    assert_eq!(caller.peers.heard.len(), 2, "the call of another node goes on");
}

#[test]
fn two_places_of_one_number_are_not_held() {
    let [_, Node { mut channels, mut peers }] = called();
    assert!(!channels.hold_reply(&mut peers, CHANNEL, there(NodeId(3))));
    channels.await_reply(ChannelId(9), HOME);
    assert!(!channels.hold_reply(&mut peers, ChannelId(9), there(HOME)), "this node awaits a reply there");
    peers.lost.insert(NodeId(3));
    assert!(!channels.hold_reply(&mut peers, ChannelId(8), there(NodeId(3))), "its caller is lost");
}
