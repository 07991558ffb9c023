//! Nodes that use the name of another: its id, its incarnation and its public key are known to all, and its
//! resume points can be guessed. Without its key none of that takes over its connection, ends it, or gets the
//! node itself refused.

use std::time::Duration;

use dunlin::node::NodeEvent;
use dunlin::prelude::*;
use dunlin_attack::{Key, Peer, declare, face, hello, life, run};
use dunlin_proto::id::{ChannelId, Incarnation, Life, NodeId};
use dunlin_proto::wire::handshake::{Hello, Refusal, Resume};
use dunlin_proto::wire::{Face, Frame, Names, limits};

const THIEF: [u8; 4] = [127, 0, 0, 2];
const HONEST: [u8; 4] = [127, 0, 0, 3];

/// A node that serves names, and a peer that is connected with it.
struct Stage {
    node: Node,
    address: String,
    application: &'static str,
    there: Life,
    /// The honest peer.
    me: Life,
    peer: Peer,
    /// The resume point of the connection at its side.
    resume: Resume,
    attempt: u64,
    /// How many names it has declared.
    declared: u64,
}

impl Stage {
    async fn new(application: &'static str) -> Self {
        let names = format!("memory:names-of-{application}");
        let node = Node::builder().app(application).names(&names).listen("127.0.0.1:0").join().await.unwrap();
        let address = node.addresses()[0].clone();
        let me = life(1);
        let there = Peer::who_is(HONEST, &address, application, me).await.unwrap();
        let mut peer = Peer::dial(HONEST, &address).await.unwrap();
        let resume = peer.greet(&hello(application, me, there)).await.unwrap().resume;
        peer.confirm(&Key::of(me.node)).await.unwrap();
        let resume = Resume { seen: 0, ..resume };
        let mut stage = Self { node, address, application, there, me, peer, resume, attempt: 1, declared: 0 };
        stage.goes_on().await;
        stage
    }

    /// The connection still carries the peer's frames and the answers, in order.
    async fn goes_on(&mut self) {
        self.declared += 1;
        let number = self.declared;
        let name = format!("name-{number}");
        self.peer.say(&[declare(number, &name, ChannelId(1), &face(Face::Sender))]).await.unwrap();
        loop {
            match self.peer.hear().await.expect("the connection stands") {
                Frame::Heartbeat | Frame::Ack { .. } => {}
                frame => {
                    assert_eq!(frame, Frame::Names(Names::Waiting { number }));
                    self.resume.seen += 1;
                    break;
                }
            }
        }
    }

    /// A hello of the honest peer, as any peer with that knowledge could send it.
    fn hello(&mut self, resume: Resume) -> Hello {
        self.attempt += 1;
        Hello { attempt: self.attempt, resume, ..hello(self.application, self.me, self.there) }
    }

    /// A thief sends that hello, and is refused. Then it sends the hello that the honest peer has signed, as
    /// if recorded, and confirms it with its own key: the node refuses it.
    async fn is_not_believed(&mut self, said: Hello) {
        let mut thief = Peer::dial(THIEF, &self.address).await.unwrap();
        let refused = thief.greet_as(&said, &Key::numbered(666)).await.expect_err("it is refused");
        assert_eq!(refused.to_string(), Refusal::Unproven.to_string());
        let mut thief = Peer::dial(THIEF, &self.address).await.unwrap();
        if thief.greet(&said).await.is_ok() {
            thief.confirm(&Key::numbered(666)).await.unwrap();
            let heard = thief.hear().await;
            assert!(heard.is_err(), "{heard:?}");
        }
    }

    /// The twin: the honest peer loses its socket, and resumes the connection on another one.
    async fn resumes(&mut self) {
        let hello = self.hello(self.resume);
        let mut peer = Peer::dial(HONEST, &self.address).await.unwrap();
        let welcome = peer.greet(&hello).await.expect("it is welcome");
        let expected = Resume { seen: self.declared, ..self.resume };
        assert_eq!(welcome.resume, expected, "the connection resumes");
        peer.confirm(&Key::of(self.me.node)).await.unwrap();
        self.peer = peer;
        self.goes_on().await;
    }
}

#[test]
fn guessed_resume_points_take_no_connection_over() {
    run(async {
        let mut stage = Stage::new("guesses").await;
        for seen in 0..150 {
            let guess = Resume { seen, ..stage.resume };
            let said = stage.hello(guess);
            stage.is_not_believed(said).await;
            let said = stage.hello(Resume { run: 1, ..Resume::default() });
            stage.is_not_believed(said).await;
            if seen % 50 == 0 {
                stage.goes_on().await;
            }
        }
        stage.goes_on().await;
        stage.resumes().await;
    });
}

#[test]
fn later_life_of_a_connection_is_accepted_from_its_peer_only() {
    run(async {
        let mut stage = Stage::new("runs").await;
        for run in [stage.resume.run + 1, limits::RUN - 1, limits::RUN] {
            for seen in [0, 9] {
                let said = stage.hello(Resume { run, seen, ..stage.resume });
                stage.is_not_believed(said).await;
            }
        }
        stage.goes_on().await;
        stage.resumes().await;
    });
}

#[test]
fn thief_cannot_use_up_incarnations_of_another_node() {
    run(async {
        let mut stage = Stage::new("incarnations").await;
        let mut events = stage.node.events();
        for incarnation in [2, u64::MAX] {
            let mut said = stage.hello(stage.resume);
            said.me.incarnation = Incarnation(incarnation);
            let mut thief = Peer::dial(THIEF, &stage.address).await.unwrap();
            let refused = thief.greet(&said).await.expect_err("it is refused");
            assert!(refused.to_string().starts_with("another incarnation of the dialling node is known"), "{refused}");
            // The node's program learns of it.
            loop {
                if let NodeEvent::Stranger { from, why } = events.recv().await.unwrap() {
                    assert!(from.contains("127.0.0.2") && why.starts_with("another incarnation"), "{from}: {why}");
                    break;
                }
            }
        }
        stage.goes_on().await;
        stage.resumes().await;
    });
}

#[test]
fn thief_cannot_take_names_under_another_nodes_id() {
    run(async {
        let application = "thefts";
        let names = format!("memory:names-of-{application}");
        let builder = || Node::builder().app(application).names(&names).listen("127.0.0.1:0");
        let service = builder().join().await.unwrap();
        let server = builder().join().await.unwrap();
        let mut rx = server.receiver::<u32>("till").await.unwrap();
        let mut events = service.events();

        // Everything that the server sends to any peer about itself.
        let mut asks = Peer::dial(THIEF, &server.addresses()[0]).await.unwrap();
        let nobody = Life { node: NodeId(0), incarnation: Incarnation(0) };
        let known = asks.greet(&hello(application, life(2), nobody)).await.unwrap();
        let there = Peer::who_is(THIEF, &service.addresses()[0], application, life(2)).await.unwrap();
        for attempt in [1000, u64::MAX] {
            let mut thief = Peer::dial(THIEF, &service.addresses()[0]).await.unwrap();
            let own = hello(application, life(2), there);
            let said = Hello { me: known.me, key: known.proof.key.clone(), attempt, ..own.clone() };
            let refused = thief.greet_as(&said, &Key::of(life(2).node)).await.expect_err("it is refused");
            assert_eq!(refused.to_string(), Refusal::Unproven.to_string());
            loop {
                if let NodeEvent::Stranger { why, .. } = events.recv().await.unwrap()
                    && why.contains("did not prove its id")
                {
                    break;
                }
            }
            // Nor with a key of its own.
            let mut thief = Peer::dial(THIEF, &service.addresses()[0]).await.unwrap();
            let own = Hello { me: known.me, ..own };
            let refused = thief.greet_as(&own, &Key::of(life(2).node)).await.expect_err("it is refused");
            assert_eq!(refused.to_string(), Refusal::Unproven.to_string());
        }

        // The twin: a client of the name reaches the server.
        let client = builder().join().await.unwrap();
        let mut tx = client.sender::<u32>("till").await.unwrap();
        let sent = dunlin::spawn(async move { tx.send(7).await });
        let got = tokio::time::timeout(Duration::from_secs(10), rx.recv()).await.expect("the client is there");
        assert_eq!(got, Ok(7));
        sent.await.unwrap().unwrap();
    });
}
