//! A relay on this host opens a way to nodes that other hosts cannot reach: it relays for other hosts only
//! where the node allows it.
#![cfg(unix)]

#[path = "../../dunlin/tests/support/far.rs"]
mod far;

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use dunlin::prelude::*;
use dunlin_attack::{Key, Peer, hello, life, run};
use dunlin_proto::id::ChannelId;
use dunlin_proto::identity::sign_hello;
use dunlin_proto::wire::{Declaration, Expected, Face, Frame, Names, NoRelay, Relay, Status};
use far::Far;

const STRANGER: [u8; 4] = [127, 0, 0, 2];

/// A folder that only this user may enter; its drop removes it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        use std::os::unix::fs::DirBuilderExt;
        let path = std::env::temp_dir().join(format!("dunlin-{name}-{}", std::process::id()));
        std::fs::DirBuilder::new().mode(0o700).create(&path).expect("it is new");
        Self(path)
    }

    fn socket(&self, name: &str) -> String {
        format!("unix:{}", self.0.join(name).display())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A stranger of another host asks the name service for a relay to a node that listens on a unix socket only.
/// Returns the answer.
async fn asks(application: &str, relayed: bool) -> Relay {
    let folder = Folder::new(application);
    let (names, own) = (folder.socket("names"), folder.socket("own"));
    let service = Node::builder().app(application).network(Far::default()).names(&names).listen("127.0.0.1:0").join();
    let service = service.await.expect("it joins");
    // This makes it serve the names before the other node could.
    let _served = service.receiver::<u32>("nothing").await.expect("it serves the names");
    let inside = Node::builder().app(application).names(&names).listen(&own).relayed(relayed).join();
    let inside = inside.await.expect("it joins");
    let mut named = inside.receiver::<u32>("inside").await.expect("its name service is there");

    let address = service.addresses().iter().find(|address| !address.starts_with("unix:")).expect("it listens").clone();
    let me = life(7);
    let there = Peer::who_is(STRANGER, &address, application, me).await.expect("it gives its identity");
    let hello_to = |node| hello(application, me, node);
    let mut stranger = Peer::join(STRANGER, &address, &hello_to(there), Duration::ZERO).await.expect("it is let in");
    // The name gives the node that has it.
    let face = Declaration { face: Face::Sender, shared: false, expects: Expected::Unknown, schema: Bytes::new() };
    let name = "inside".to_owned();
    let declare = Names::Declare { number: 1, name, channel: ChannelId(0), face, status: Status::New };
    stranger.say(&[Frame::Names(declare)]).await.expect("the connection stays");
    let stream = 2 + u64::from(me.node > there.node);
    let heard = loop {
        match stranger.hear().await.expect("the connection stays") {
            Frame::Names(Names::Found { partner, .. }) => {
                let to = Frame::Relay(Relay::To { stream, node: partner.node });
                let piece = sign_hello(&Key::of(me.node), hello_to(partner)).encode();
                let said = stranger.say(&[to, Frame::Relay(Relay::Bytes { stream, piece })]).await;
                said.expect("the connection stays");
            }
            Frame::Relay(said @ (Relay::Refused { .. } | Relay::Bytes { .. })) => break said,
            _ => {}
        }
    };
    assert!(named.try_recv().is_err());
    assert_eq!(service.refusals().admittances, u64::from(!relayed), "a refusal is an event");
    heard
}

#[test]
fn stranger_of_another_host_gets_no_relay_to_node_on_unix_socket() {
    run(async {
        let heard = asks("pivot", false).await;
        assert!(matches!(heard, Relay::Refused { why: NoRelay::Local, .. }), "{heard:?}");
    });
}

/// The twin: a node that allows that.
#[test]
fn a_node_that_admits_is_reached_through_the_relay() {
    run(async {
        let Relay::Bytes { piece, .. } = asks("twin", true).await else { panic!("it is relayed") };
        assert_eq!(piece.slice(..8), Bytes::from_static(b"\x64\x75\x6e\x6c\x69\x6e\x0d\x0a"));
    });
}
