//! The configuration of nodes, as a joining node applies it. `src/config/` tests how it is read.
#![cfg(feature = "net")]

use std::path::PathBuf;

use dunlin::config::{ConfigError, Origin};
use dunlin::node::{ConnectionState, Down, LISTEN_PORTS, NodeError};
use dunlin::prelude::*;

fn run(test: impl Future<Output = Result>) {
    dunlin::block_on(async { tokio::time::timeout(Duration::from_secs(60), test).await.expect("the test hangs") })
        .unwrap();
}

/// The configuration file of one test. Its drop removes the file.
struct File(PathBuf);

impl File {
    fn new(test: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("dunlin-{}-{test}.toml", std::process::id()));
        std::fs::write(&path, text).unwrap();
        Self(path)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn port(node: &Node) -> u16 {
    node.listening()[0].rsplit_once(':').unwrap().1.parse().unwrap()
}

/// A node without a configured address, beside others of this machine.
fn alone() -> dunlin::node::NodeBuilder {
    Node::builder().app("alone").names("memory:names-of-alone").no_config()
}

#[test]
fn a_node_without_an_address_takes_a_port_of_loopback() {
    run(async {
        let (a, b) = (alone().join().await?, alone().join().await?);
        for node in [&a, &b] {
            assert!(node.listening()[0].starts_with("127.0.0.1:"), "{:?}", node.listening());
            assert!(LISTEN_PORTS.contains(&port(node)), "{:?}", node.listening());
            assert_eq!(node.config().listen.origin, Origin::Default);
        }
        assert_ne!(port(&a), port(&b));
        b.leave().await?;
        a.leave().await
    });
}

/// The default route is this machine's: the test cannot reach others, but it can dial this machine's address.
#[test]
fn node_listens_at_the_address_of_the_default_route() {
    run(async {
        let here = std::net::UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
            socket.connect("192.0.2.1:9")?;
            socket.local_addr()
        });
        let joined = alone().listen("default-route").join().await;
        let Ok(here) = here else {
            let error = joined.unwrap_err().to_string();
            assert!(error.starts_with("this machine has no default route ("), "{error}");
            return Ok(());
        };
        let node = joined?;
        assert_eq!(node.listening()[0].rsplit_once(':').unwrap().0, here.ip().to_string());
        assert!(LISTEN_PORTS.contains(&port(&node)), "{:?}", node.listening());
        // A given port is used, or it is an error.
        let taken = format!("default-route:{}", port(&node));
        let error = alone().listen(&taken).join().await.unwrap_err();
        assert!(matches!(&error, NodeError::Listen { address, .. } if *address == taken));
        assert!(error.to_string().contains("end that one, or choose another port"), "{error}");

        let guest = alone().join().await?;
        let mut rx = node.receiver::<u32>("n").await?;
        let mut tx = guest.sender::<u32>(&format!("{}/n", node.listening()[0])).await?;
        let (sent, received) = par!(tx.send(7), rx.recv());
        sent?;
        assert_eq!(received?, 7);
        guest.leave().await?;
        node.leave().await?;

        // The node that listens there serves the names there.
        let port = std::net::TcpListener::bind((here.ip(), 0))?.local_addr()?.port();
        let at = format!("default-route:{port}");
        let node = alone().listen(&at).names(&at).join().await?;
        let names = node.inquire(None, Duration::from_secs(10)).await?.names(Duration::from_secs(10)).await?;
        assert_eq!((names.address.as_ref(), names.serves), (Some(&node.listening()[0]), true));
        node.leave().await
    });
}

#[test]
fn an_address_in_use_is_reported_with_its_origin() {
    run(async {
        let node = alone().listen("127.0.0.1:0").join().await?;
        let address = &node.listening()[0];
        let error = alone().listen(address).join().await.unwrap_err().to_string();
        let port = port(&node);
        let told = format!(
            "cannot listen on `{address}`: another program, or another node of this one, has port {port}; end that \
             one, or choose another port (0 takes any free one)"
        );
        assert_eq!(error, told);
        let file = File::new("in_use", &format!("app = 'alone'\n\nlisten = '{address}'"));
        let error = Node::builder().config(&file.0)?.join().await.unwrap_err().to_string();
        assert_eq!(error, format!("{told} (listen = {address:?}, set at {}:3)", file.0.display()));
        node.leave().await
    });
}

const FILE: &str = r#"
app = "configured"
names = "memory:names-of-configured"
listen = "memory:"
grace = "3s"
heartbeat = "300ms"
relay = false
message_max_bytes = 100000
buffered_max_bytes = 1000000

[channels]
readings = { policy = "fifo(2)", message_max_bytes = 100 }

[node.second]
grace = "4s"
"#;

#[test]
fn config_file_sets_options_that_code_leaves_unset() {
    run(async {
        let file = File::new("says", FILE);
        let here =
            Node::builder().config(&file.0)?.named("second").heartbeat(Duration::from_millis(400)).join().await?;
        let config = here.config();
        assert_eq!((here.application(), config.grace.value), ("configured", Duration::from_secs(4)));
        assert_eq!(config.grace.origin, Origin::File { path: file.0.clone(), line: 15 });
        assert_eq!((config.heartbeat.value, &config.heartbeat.origin), (Duration::from_millis(400), &Origin::Code));
        let mut readings = here.receiver::<Vec<u8>>("readings").await?;

        let there = Node::builder().config(&file.0)?.join().await?;
        assert_eq!(there.config().grace.value, Duration::from_secs(3));
        let mut tx = there.sender::<Vec<u8>>("readings").await?;
        // The channel has two places, and no receive.
        tx.send(vec![1; 100]).await?;
        tx.send(vec![2; 100]).await?;
        assert!(tx.try_send(vec![3; 100]).is_err());
        for n in [1, 2] {
            assert_eq!(readings.recv().await?, vec![n; 100]);
        }
        // Its messages have a limit of their own; a message on a promised place that exceeds it poisons both
        // ends.
        let told = par!(tx.send(vec![4; 101]), readings.recv()).1.unwrap_err();
        let RecvError::Poisoned(why) = told else { panic!("{told}") };
        assert!(why.as_str().contains("101 bytes") && why.as_str().contains("at most 100"), "{why}");
        // Its send had returned `Ok`: the leaving node reports its outcome.
        let lost = there.leave().await.expect_err("a value was not written");
        assert!(matches!(lost, dunlin::Error::Node(NodeError::Unwritten { count: 1, .. })), "{lost}");
        here.leave().await
    });
}

/// A policy from the program overrides the configuration.
#[test]
fn policy_of_the_program_overrides_the_configuration() {
    run(async {
        let file = File::new("policy", &FILE.replace("-of-configured", "-of-policy"));
        let (here, there) =
            (Node::builder().config(&file.0)?.join().await?, Node::builder().config(&file.0)?.join().await?);
        let mut readings = here.receiver::<Vec<u8>>("readings").policy(fifo(1)).message_max_bytes(200).await?;
        let mut tx = there.sender::<Vec<u8>>("readings").await?;
        tx.send(vec![1; 200]).await?;
        assert!(tx.try_send(vec![2; 200]).is_err(), "it has one place");
        assert_eq!(readings.recv().await?.len(), 200);
        // Other names have neither.
        let mut rx = here.receiver::<Vec<u8>>("others").await?;
        let mut tx = there.sender::<Vec<u8>>("others").await?;
        let (sent, received) = par!(tx.send(vec![0; 1000]), rx.recv());
        assert_eq!((sent?, received?.len()), ((), 1000));
        there.leave().await?;
        here.leave().await
    });
}

#[test]
fn a_node_without_an_application_name_does_not_join() {
    run(async {
        let error = Node::builder().no_config().join().await.unwrap_err().to_string();
        assert!(error.contains("`.app(\"weather\")`") && error.contains("DUNLIN_APP"), "{error}");
        let file = File::new("wrong", "grace = 3");
        let error = Node::builder().config(&file.0).unwrap_err();
        assert!(matches!(&error, NodeError::Config(ConfigError::Invalid { .. })), "{error}");
        Ok(())
    });
}

/// The name appears in logs, and other nodes receive it.
#[test]
fn invalid_application_name_is_refused() {
    run(async {
        for name in ["a\0b".to_owned(), "a\nb".to_owned(), "a".repeat(65)] {
            let error = alone().app(&name).join().await.map(drop).unwrap_err().to_string();
            assert!(error.contains("1 to 64 bytes") && error.contains("control characters"), "{name:?}: {error}");
        }
        // The longest name, of non-ASCII letters.
        let node = alone().app(&"\u{153}".repeat(32)).names("memory:names-of-64-bytes").join().await?;
        node.leave().await
    });
}

/// The system reuses ports soon: a node at an old address must not be mistaken for the former one.
#[test]
fn new_node_at_an_old_address_is_not_the_former_one() {
    run(async {
        let stays =
            alone().app("again").names("memory:names-of-again").grace(Duration::from_millis(600)).join().await?;
        // (Its port is not the first that another test would take as soon as it is free.)
        let goes = alone().app("again").names("memory:names-of-again").listen("127.0.0.1:0").join().await?;
        let mut connections = stays.connections();
        let mut tx = stays.sender::<u32>("n").await?;
        let mut rx = goes.receiver::<u32>("n").await?;
        let (sent, received) = par!(tx.send(1), rx.recv());
        assert_eq!((sent?, received?), ((), 1));
        let (old, address) = (goes.me(), goes.listening()[0].clone());
        goes.leave().await?;
        let comes = alone().app("again").names("memory:names-of-again").listen(&address).join().await?;
        assert!(tx.send(2).await.is_err(), "the receiver has left");
        drop(tx);
        let mut rx = comes.receiver::<u32>("n").await?;
        let mut tx = stays.sender::<u32>("n").await?;
        let (sent, received) = par!(tx.send(3), rx.recv());
        assert_eq!((sent?, received?), ((), 3));
        let mut seen = Vec::new();
        while !seen.contains(&(comes.me(), ConnectionState::Up)) {
            seen.push(connections.recv().await?);
        }
        assert!(seen.contains(&(old, ConnectionState::Down(Down::Left))), "{seen:?}");
        comes.leave().await?;
        stays.leave().await
    });
}
