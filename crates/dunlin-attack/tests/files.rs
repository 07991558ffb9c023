//! A process that may open few files, and more sockets than that: its node says so, and accepts again once it can.
#![cfg(target_os = "linux")]

use std::process::Stdio;
use std::time::Duration;

use dunlin::node::{Limit, NodeEvent};
use dunlin::prelude::*;
use dunlin_attack::{Peer, dial, life, run};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

const IS_CHILD: &str = "DUNLIN_ATTACK_FILES";
/// So many files may the node's process have open.
const FILES: usize = 64;

/// The other process of the tests: it says where its node listens, and each time that it cannot accept; and how often that was when it is told to end.
#[test]
#[ignore = "runs as a child of the tests below"]
fn node_with_few_files() {
    if std::env::var(IS_CHILD).is_err() {
        return;
    }
    run(async {
        let node = Node::builder().app("files").names("memory:names-of-files").listen("127.0.0.1:0").join();
        let node = node.await.expect("it joins");
        let mut events = node.events();
        println!("at {}", node.addresses()[0]);
        let told = dunlin::spawn(async move {
            while let Ok(event) = events.recv().await {
                if let NodeEvent::Limit(limit @ Limit::Files { .. }) = event {
                    println!("limit {limit}");
                }
            }
        });
        let told_to_end = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()));
        told_to_end.await.expect("it waits").expect("it is text");
        println!("refused {}", node.refusals().files);
        drop((told, node));
    });
}

struct Child {
    process: tokio::process::Child,
    lines: tokio::io::Lines<BufReader<tokio::process::ChildStdout>>,
}

impl Child {
    async fn start() -> (Self, String) {
        let mut command = tokio::process::Command::new("sh");
        command
            .args(["-c", &format!("ulimit -n {FILES}; exec \"$0\" --ignored --nocapture --exact node_with_few_files")]);
        command.arg(std::env::current_exe().expect("it runs")).env(IS_CHILD, "1");
        let mut process =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn().expect("it starts");
        let lines = BufReader::new(process.stdout.take().expect("it is piped")).lines();
        let mut child = Self { process, lines };
        let address = child.says("at ").await;
        (child, address)
    }

    /// What follows on this, in the next line with it.
    async fn says(&mut self, what: &str) -> String {
        loop {
            let line = self.lines.next_line().await.expect("it is text").expect("it goes on");
            if let Some((_, rest)) = line.split_once(what) {
                return rest.to_owned();
            }
        }
    }

    /// How often it could not accept.
    async fn ends(mut self) -> u64 {
        let mut stdin = self.process.stdin.take().expect("it is piped");
        stdin.write_all(b"end\n").await.expect("it reads");
        let refused = self.says("refused ").await;
        assert!(self.process.wait().await.expect("it ends").success());
        refused.parse().expect("it is a number")
    }
}

#[test]
fn a_node_without_files_says_so_and_accepts_again() {
    run(async {
        let (mut child, address) = Child::start().await;
        let mut held = Vec::new();
        for _ in 0..2 * FILES {
            held.push(dial([127, 0, 0, 2], &address).await.expect("the kernel takes it"));
        }
        let limit = child.says("limit ").await;
        assert!(limit.contains(&format!("{FILES}")) && limit.contains("ulimit -n"), "{limit}");
        drop(held);
        // It tries again, as nodes do: what the flood has left in the kernel's queue comes first.
        let mut tries = 0;
        while Peer::meet([127, 0, 0, 3], &address, "files", life(1)).await.is_err() {
            tries += 1;
            assert!(tries < 100, "it accepts no more");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // It has waited between its tries: else there would be thousands.
        let refused = child.ends().await;
        assert!((1..=50).contains(&refused), "{refused}");
    });
}

/// The twin: as many nodes as there are files for come, and nothing is said.
#[test]
fn a_node_with_files_enough_says_nothing() {
    run(async {
        let (child, address) = Child::start().await;
        let mut peers = Vec::new();
        for n in 0..FILES / 4 {
            peers.push(Peer::meet([127, 0, 0, 3], &address, "files", life(1 + n as u128)).await.expect("it is let in"));
        }
        assert_eq!(child.ends().await, 0);
        drop(peers);
    });
}
