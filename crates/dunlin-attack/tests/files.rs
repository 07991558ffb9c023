//! A process that may open few files: one host does not take them all, and a node that has none left reports
//! it, and accepts again once it can. `node_events.rs` of `dunlin` tests the pause between two attempts.
#![cfg(target_os = "linux")]

use std::process::Stdio;

use dunlin::node::{Limit, NodeEvent};
use dunlin::prelude::*;
use dunlin_attack::{Peer, dial, life, run};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

const IS_CHILD: &str = "DUNLIN_ATTACK_FILES";
/// How many files the node's process may have open.
const FILES: usize = 64;

/// The other process of the tests: it prints where its node listens, and the beginning of each spell without
/// files; at its end, the number of spells.
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
        let (tell, mut asked) = tokio::sync::mpsc::channel(1);
        std::thread::spawn(move || {
            for line in std::io::stdin().lines().map_while(Result::ok) {
                if tell.blocking_send(line).is_err() {
                    break;
                }
            }
        });
        let mut files = Vec::new();
        while let Some(asked) = asked.recv().await {
            match &*asked {
                "take" => {
                    files.extend(std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()));
                    println!("taken {}", files.len());
                }
                "give" => files.clear(),
                _ => break,
            }
        }
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

    /// The rest of the next line that begins with `what`.
    async fn says(&mut self, what: &str) -> String {
        loop {
            let line = self.lines.next_line().await.expect("it is text").expect("it continues");
            if let Some((_, rest)) = line.split_once(what) {
                return rest.to_owned();
            }
        }
    }

    async fn does(&mut self, what: &str) {
        let stdin = self.process.stdin.as_mut().expect("it is piped");
        stdin.write_all(format!("{what}\n").as_bytes()).await.expect("it reads");
    }

    /// The number of spells in which it could not accept.
    async fn ends(mut self) -> u64 {
        self.does("end").await;
        let refused = self.says("refused ").await;
        assert!(self.process.wait().await.expect("it ends").success());
        refused.parse().expect("it is a number")
    }
}

#[test]
fn a_node_without_files_reports_it_and_accepts_again() {
    run(async {
        let (mut child, address) = Child::start().await;
        child.does("take").await;
        assert_ne!(child.says("taken ").await, "0");
        let waits = dial([127, 0, 0, 2], &address).await.expect("the kernel takes it");
        let limit = child.says("limit ").await;
        assert!(limit.contains(&format!("{FILES}")) && limit.contains("ulimit -n"), "{limit}");
        child.does("give").await;
        let peer = Peer::meet([127, 0, 0, 3], &address, "files", life(1)).await;
        peer.expect("it accepts again");
        drop(waits);
        // One spell without files, however often the node has tried.
        assert_eq!(child.ends().await, 1);
    });
}

#[test]
fn one_host_leaves_files_to_others() {
    run(async {
        let (child, address) = Child::start().await;
        let mut silent = Vec::new();
        for _ in 0..2 * FILES {
            silent.push(dial([127, 0, 0, 2], &address).await.expect("the kernel takes it"));
        }
        let mut members = Vec::new();
        for n in 0..FILES as u128 {
            members.push(Peer::meet([127, 0, 0, 2], &address, "files", life(100 + n)).await);
        }
        assert!(members.iter().any(Result::is_err), "one host has as many connections as there are files");
        Peer::meet([127, 0, 0, 3], &address, "files", life(1)).await.expect("another host is let in");
        assert_eq!(child.ends().await, 0);
        drop((silent, members));
    });
}

/// The twin: as many nodes join as there are files for, and the node reports nothing.
#[test]
fn a_node_with_enough_files_reports_nothing() {
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
