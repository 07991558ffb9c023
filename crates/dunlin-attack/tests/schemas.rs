//! Peers that declare schemas which take long to compare: others still have their turns.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use dunlin::prelude::*;
use dunlin_attack::{Peer, declare, face, life, run};
use dunlin_proto::id::ChannelId;
use dunlin_proto::wire::{Declaration, Face, Frame, Names};
use dunlin_schema::{Coding, Field, Kind, Schema};

const ATTACKER: [u8; 4] = [127, 0, 0, 2];
const OTHER: [u8; 4] = [127, 0, 0, 3];

/// How many schemas of the flood the node compares while the test watches the other peer.
const ANSWERS: u64 = 30;
/// Each takes as many steps as one frame may, and then the flooder's socket rests for this time.
const REST: Duration = Duration::from_millis(100);

/// A cycle of this many nested lists. To compare it with one of another length takes as many visits as their
/// product.
fn lists(name: &str, lists: u16) -> Bytes {
    let first = Field { names: vec!["lists".into()], kind: 1, required: true };
    let mut kinds = vec![Kind::Struct { name: name.into(), fields: vec![first], closed: false }];
    kinds.extend((1..=lists).map(|at| Kind::List(at % lists + 1)));
    Schema::new(Coding::Cbor, kinds).expect("it is one").encode().expect("it is short")
}

fn with(schema: &Bytes, kind: Face) -> Declaration {
    Declaration { schema: schema.clone(), ..face(kind) }
}

async fn node(application: &str) -> Node {
    let names = format!("memory:names-of-{application}");
    // The flooder sends no heartbeats. On a busy machine it would count as lost before the node has compared
    // what it sent.
    let node = Node::builder().app(application).names(&names).listen("127.0.0.1:0").heartbeat(Duration::from_secs(600));
    node.join().await.expect("it joins")
}

#[test]
fn flood_of_slow_schemas_leaves_other_peers_their_turns() {
    run(async {
        let node = node("schemas").await;
        let address = node.addresses()[0].clone();
        let mut receiver = Peer::meet(ATTACKER, &address, "schemas", life(1)).await.unwrap();
        receiver
            .say(&[declare(1, "lists", ChannelId(1), &with(&lists("receiver", 161), Face::Receiver))])
            .await
            .unwrap();
        assert!(matches!(receiver.hear_word().await, Ok(Frame::Names(Names::Waiting { .. }))));
        // It stays, whatever the others do.
        let (tell, first) = tokio::sync::oneshot::channel();
        tokio::spawn(async move {
            let _ = tell.send(receiver.hear_at_last().await);
            while receiver.hear_at_last().await.is_ok() {}
        });
        let mut flooder = Peer::meet(ATTACKER, &address, "schemas", life(2)).await.unwrap();
        let (began, answers) = (Instant::now(), Arc::<AtomicU64>::default());
        let flood = tokio::spawn({
            let answers = answers.clone();
            async move {
                // Each needs a comparison of its own.
                for n in 0..2_000 {
                    let sender = with(&lists(&format!("sender {n}"), 162), Face::Sender);
                    if flooder.say(&[declare(n, "lists", ChannelId(0), &sender)]).await.is_err() {
                        return;
                    }
                }
                while let Ok(frame) = flooder.hear().await {
                    answers.fetch_add(u64::from(matches!(frame, Frame::Names(_))), Ordering::Relaxed);
                }
            }
        });
        // The node has compared the first.
        assert!(matches!(first.await.unwrap(), Ok(Frame::Names(Names::Found { .. }))));

        let mut other = Peer::meet(OTHER, &address, "schemas", life(3)).await.expect("the door is open");
        let mut others = 0;
        while answers.load(Ordering::Relaxed) < ANSWERS {
            assert!(!flood.is_finished(), "the flooder is cut off after {answers:?} answers");
            let said = declare(others, &format!("other {others}"), ChannelId(0), &face(Face::Sender));
            other.say(&[said]).await.unwrap();
            let answer = other.hear_word().await;
            assert!(matches!(answer, Ok(Frame::Names(Names::Waiting { .. }))), "{answer:?} after {others}");
            other.say(&[Frame::Names(Names::Undeclare { number: others })]).await.unwrap();
            others += 1;
        }
        let took = began.elapsed();
        println!("{ANSWERS} of the flood were answered in {took:?}, and {others} of another peer");
        // (The node may have read a little further before it recognised the flood.)
        assert!(took >= REST * (ANSWERS as u32 - 5), "{took:?}");
        // (Behind the flood it would have one. On a busy machine a turn takes as long as several rests.)
        assert!(others >= ANSWERS / 5, "{others}");
        assert!(!flood.is_finished());
        flood.abort();
        drop(node);
    });
}

/// The twin: a program of an earlier version uses a thousand names of a later one.
#[test]
fn many_names_of_two_versions_are_joined_at_once() {
    const NAMES: u64 = 1_000;
    run(async {
        let node = node("versions").await;
        let address = node.addresses()[0].clone();
        let mut later = Peer::meet(ATTACKER, &address, "versions", life(1)).await.unwrap();
        let mut earlier = Peer::meet(OTHER, &address, "versions", life(2)).await.unwrap();
        for (peer, schema, kind) in
            [(&mut later, lists("later", 40), Face::Receiver), (&mut earlier, lists("earlier", 30), Face::Sender)]
        {
            let face = with(&schema, kind);
            let all: Vec<Frame> =
                (1..=NAMES).map(|n| declare(n, &format!("tide {n}"), ChannelId(n.into()), &face)).collect();
            peer.say(&all).await.unwrap();
            for _ in 0..NAMES {
                let answer = peer.hear_at_last().await;
                let joined = matches!(answer, Ok(Frame::Names(Names::Found { .. })));
                let waits = matches!(answer, Ok(Frame::Names(Names::Waiting { .. })));
                assert!(joined || (waits && kind == Face::Receiver), "{answer:?}");
            }
        }
        drop(node);
    });
}
