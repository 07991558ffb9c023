//! A server that takes a client's introduction and leaves without an answer: neither the name nor the client
//! may be stuck.

use std::time::Duration;

use dunlin::node::ConnectionState;
use dunlin::prelude::*;
use dunlin_attack::{Peer, declare, face, hello, life, run};
use dunlin_proto::id::ChannelId;
use dunlin_proto::wire::{Face, Frame, Names};

const OTHER: [u8; 4] = [127, 0, 0, 3];

/// How long the departed server may hold the name, and its client wait.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Bundle)]
struct Mail {
    letters: ToServer<u32>,
    answers: ToClient<u32>,
}

async fn node(application: &str) -> Node {
    let names = format!("memory:names-of-{application}");
    let node = Node::builder().app(application).names(&names).listen("127.0.0.1:0").grace(Duration::from_millis(300));
    node.join().await.expect("it joins")
}

async fn uses(client: &mut MailClient, server: &mut MailServer) -> Result {
    let (sent, letter) = par!(client.letters.send(1), server.letters.recv());
    let (answered, answer) = par!(server.answers.send(2), client.answers.recv());
    sent?;
    answered?;
    assert_eq!((letter?, answer?), (1, 2));
    Ok(())
}

/// A peer declares itself as a server, receives the introduction of the node's client, and leaves, with a
/// goodbye or without.
async fn takes_an_introduction(node: &Node, application: &str, says_goodbye: bool) -> MailClient {
    let address = node.addresses()[0].clone();
    let there = Peer::who_is(OTHER, &address, application, life(1)).await.expect("it gives its identity");
    let hello = hello(application, life(2), there);
    let mut peer = Peer::join(OTHER, &address, &hello, Duration::ZERO).await.expect("the door is open");
    peer.say(&[declare(1, "mail", ChannelId(77), &face(Face::Server))]).await.expect("the connection stays");
    let client = dunlin::spawn({
        let node = node.clone();
        async move { node.client::<Mail>("mail").await }
    });
    while !matches!(peer.hear_at_last().await.expect("the connection stays"), Frame::Names(Names::Guest { .. })) {}
    if says_goodbye {
        peer.say(&[Frame::Goodbye]).await.expect("the connection stays");
    }
    client.await.expect("it is not cancelled").expect("the name is free for a client")
}

#[test]
fn server_lost_before_its_answer_leaves_name_and_client_usable() {
    run(async {
        for (application, says_goodbye) in [("unanswered", false), ("goodbye", true)] {
            let names = node(application).await;
            let mut connections = names.connections();
            let mut client = takes_an_introduction(&names, application, says_goodbye).await;
            while !matches!(connections.recv().await.expect("the node lives").1, ConnectionState::Down(_)) {}
            let other = node(application).await;
            let server = other.server::<Mail>("mail").within(PATIENCE).await;
            let mut server = server.expect("the name is free for a server");
            let used = tokio::time::timeout(PATIENCE, uses(&mut client, &mut server)).await;
            used.expect("it is in time").expect("it serves the client that waited");
            other.leave().await.expect("it leaves");
        }
    });
}

/// The twin: a client whose ends were in use learns that its server is lost, and the name is free for both
/// faces.
#[test]
fn a_client_in_use_sees_its_server_end_and_the_name_is_free_again() {
    run(async {
        let names = node("used").await;
        for round in 0..2 {
            let other = node("used").await;
            let mut server =
                other.server::<Mail>("mail").within(PATIENCE).await.expect("the name is free for a server");
            let mut client =
                names.client::<Mail>("mail").within(PATIENCE).await.expect("the name is free for a client");
            uses(&mut client, &mut server).await.expect("they are joined");
            other.leave().await.expect("it leaves");
            let heard = client.answers.recv().await;
            assert!(matches!(heard, Err(RecvError::NodeLost)), "round {round}: {heard:?}");
        }
    });
}
