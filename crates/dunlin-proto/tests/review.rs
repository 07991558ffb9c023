//! Regressions from a review of the machine: two of them, joined by hand.

use bytes::Bytes;
use dunlin_proto::id::{ChannelId, Incarnation, Life, NodeId, SocketId};
use dunlin_proto::identity::StandIn;
use dunlin_proto::time::Time;
use dunlin_proto::wire::{Declaration, End, Expected, Face, Read, Terms};
use dunlin_proto::{Action, Config, HomeHears, Machine, ProxyHears};

const SOCKET: SocketId = SocketId(1);
const NOW: Time = Time(1000);

fn machine(n: u128) -> Machine {
    let mut config = Config::new("review".to_owned());
    config.addresses = vec![format!("memory:{n}")];
    StandIn::machine(config, Life { node: NodeId(n), incarnation: Incarnation(1) }, 7)
}

fn declared(face: Face) -> Declaration {
    Declaration { face, shared: false, expects: Expected::Unknown, schema: Bytes::new() }
}

/// Two machines and the socket between them. `settle` returns the actions of each that do not concern
/// sockets.
struct Pair([Machine; 2]);

impl Pair {
    /// The first has dialled the second.
    fn new() -> Self {
        let [mut a, mut b] = [machine(1), machine(2)];
        a.learn(NodeId(2), &["memory:2".to_owned()]);
        a.connect(NOW, NodeId(2));
        let Some(Action::Dial(id, _)) = a.poll() else { panic!("it does not dial") };
        a.dialled(NOW, id, SOCKET);
        b.accepted(NOW, SOCKET);
        let mut pair = Self([a, b]);
        pair.settle();
        pair
    }

    fn settle(&mut self) -> [Vec<Action>; 2] {
        let mut heard = [Vec::new(), Vec::new()];
        loop {
            let mut quiet = true;
            for (at, heard) in heard.iter_mut().enumerate() {
                while let Some(action) = self.0[at].poll() {
                    quiet = false;
                    heard.push(action);
                }
                let mut out = Vec::new();
                self.0[at].fill(NOW, SOCKET, usize::MAX, &mut out);
                for bytes in out {
                    quiet = false;
                    self.0[1 - at].received(NOW, SOCKET, bytes);
                }
            }
            if quiet {
                return heard;
            }
        }
    }
}

#[test]
fn a_home_that_expects_a_half_learns_that_its_node_is_lost() {
    let mut pair = Pair::new();
    let [ours, other] = [ChannelId(5), ChannelId(6)];
    let b = &mut pair.0[1];
    let terms = Terms { window: 1, credits: 0, value_max: 100 };
    for (channel, node) in [(ours, NodeId(1)), (other, NodeId(3))] {
        b.open_home(channel, terms, declared(Face::Receiver), false).unwrap();
        b.await_half(channel, node);
    }
    // A half is not admitted if the home awaits one at another node.
    pair.0[0].attach(NOW, other, NodeId(2), declared(Face::Sender)).unwrap();
    let [a, b] = pair.settle();
    assert!(a.iter().any(|action| matches!(action, Action::Proxy(channel, _) if *channel == other)), "{a:?}");
    assert!(!b.iter().any(|action| matches!(action, Action::Home(..))), "{b:?}");

    let from = pair.0[1].contact(NodeId(1));
    pair.0[0].leave(NOW);
    let [_, b] = pair.settle();
    let lost = Action::Home(ours, from, HomeHears::Lost(Vec::new()));
    assert_eq!(b.iter().filter(|action| matches!(action, Action::Home(..))).collect::<Vec<_>>(), [&lost]);
}

/// The number of a channel here returns from elsewhere as that of another channel: the channel here stands,
/// and the other is not adopted.
#[test]
fn adopt_refuses_the_number_of_an_existing_channel() {
    let mut pair = Pair::new();
    let terms = Terms { window: 4, credits: 0, value_max: 1000 };
    let (home, half) = (ChannelId(7), ChannelId(8));
    pair.0[0].open_home(home, terms, declared(Face::Receiver), false).unwrap();
    pair.0[1].open_home(half, terms, declared(Face::Receiver), false).unwrap();
    pair.0[0].attach(NOW, half, NodeId(2), declared(Face::Sender)).unwrap();
    pair.0[0].offer(NOW, half, 1, Bytes::from_static(b"krill"));
    pair.settle();
    let before = pair.0[0].census();
    assert!(!pair.0[0].adopt(home, NodeId(2), None));
    assert!(!pair.0[0].adopt(half, NodeId(2), None));
    assert_eq!(pair.0[0].census(), before, "the offer still stands");
    assert!(pair.0[0].adopt(ChannelId(9), NodeId(2), None));
}

/// The reader of a value gives up at once, and both messages arrive together: the half that was to send the
/// value learns that it is not needed, and no record is left.
#[test]
fn a_read_that_is_given_up_at_once_leaves_nothing() {
    let mut pair = Pair::new();
    let (channel, read) = (ChannelId(7), Read { key: 9, value_max: 100 });
    let reader = &mut pair.0[0];
    reader.open_home_to(channel, Terms { window: 1, credits: 0, value_max: 100 }, declared(Face::Receiver), NodeId(2));
    reader.read(NOW, NodeId(2), channel, read);
    reader.end_home(NOW, channel, End::Gone);
    let [_, mut heard] = pair.settle();
    heard.retain(|action| matches!(action, Action::Read(..) | Action::Proxy(..)));
    let ended = Action::Proxy(channel, ProxyHears::Ended(End::Gone));
    assert_eq!(heard, [Action::Read(NodeId(1), channel, read), ended]);
    // The half sends it too late.
    pair.0[1].offer(NOW, channel, 0, Bytes::from_static(b"krill"));
    pair.0[1].end_proxy(NOW, channel, End::Gone);
    pair.settle();
    let left = pair.0.each_ref().map(|machine| (machine.census().homes, machine.census().proxies));
    assert_eq!(left, [(0, 0), (0, 0)]);
}

/// A lost sending half is forgotten like a dropped one, and not kept until a message reports it.
#[test]
fn a_half_that_is_lost_leaves_nothing() {
    let mut pair = Pair::new();
    let (channel, terms) = (ChannelId(7), Terms { window: 4, credits: 0, value_max: 1000 });
    pair.0[1].open_home(channel, terms, declared(Face::Receiver), false).unwrap();
    pair.0[0].attach(NOW, channel, NodeId(2), declared(Face::Sender)).unwrap();
    pair.settle();
    pair.0[0].end_proxy(NOW, channel, End::Lost);
    let [_, heard] = pair.settle();
    let lost = |action: &Action| matches!(action, Action::Home(_, _, HomeHears::Ended(End::Lost)));
    assert!(heard.iter().any(lost), "{heard:?}");
    pair.0[1].end_home(NOW, channel, End::Gone);
    pair.settle();
    let left = pair.0.each_ref().map(|machine| (machine.census().homes, machine.census().proxies));
    assert_eq!(left, [(0, 0), (0, 0)]);
}
