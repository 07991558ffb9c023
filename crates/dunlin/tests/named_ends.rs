//! The memory of an end that is declared under a name and waits: at its node, and at the name service. The
//! allocator of this binary counts live bytes. The name service is another process, so each is counted alone.
#![cfg(feature = "net")]

#[allow(dead_code, reason = "the name service is spoken to, for which there is `start`")]
#[path = "support/actor.rs"]
mod actor;

use std::io::{BufRead, Write};
use std::process::Child;
use std::sync::mpsc;

use actor::say;
use dunlin::prelude::*;
use dunlin_heap::{Counting, Program};

#[global_allocator]
static HEAP: Counting<Program> = Counting(Program::new());

/// How many ends are declared and counted; some others come first, for the state that is made once.
const ENDS: usize = 10_000;
const BEFORE: usize = 100;

/// The limit for a waiting end at the node that declares it: a receiver, or a sender.
const RECEIVER_MAX: usize = 1_200;
const SENDER_MAX: usize = 930;

/// The limit at the name service.
const NAME_MAX: usize = 700;

#[test]
#[ignore = "what the process of the other test runs"]
fn a_role() {
    let Some((role, knows)) = actor::role() else { return };
    assert_eq!(role, "names");
    dunlin::block_on(async {
        let node = Node::builder().no_config().app("named").names(&knows[0]).join().await?;
        say("ready");
        // Each line asks for the live bytes; the end of the input ends the process.
        let (tell, mut asked) = tokio::sync::mpsc::channel(1);
        std::thread::spawn(move || {
            for line in std::io::stdin().lock().lines().map_while(std::io::Result::ok) {
                if line != "count" || tell.blocking_send(()).is_err() {
                    break;
                }
            }
        });
        while asked.recv().await.is_some() {
            say(HEAP.0.live());
        }
        node.leave().await
    })
    .unwrap();
}

/// A name service, in a process of its own.
struct Service {
    child: Child,
    says: mpsc::Receiver<String>,
    names: String,
}

impl Service {
    fn start() -> std::io::Result<Self> {
        let names = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let (tell, says) = mpsc::channel();
        let child = actor::start(&[], "names", &[&names], move |said| {
            if let Some(said) = said {
                let _ = tell.send(said);
            }
        });
        let service = Self { child, says, names };
        assert_eq!(service.says.recv().unwrap(), "ready");
        Ok(service)
    }

    /// Its live bytes. It has registered every declaration that it has answered.
    fn live(&mut self) -> usize {
        self.child.stdin.as_mut().unwrap().write_all(b"count\n").unwrap();
        self.says.recv().unwrap().parse().unwrap()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The memory of one end: here, and at the name service.
async fn cost<E>(declare: impl AsyncFn(&Node, String) -> Result<E>) -> Result<(usize, usize)> {
    let mut service = Service::start()?;
    let node = Node::builder().no_config().app("named").names(&service.names).serve_names(false).join().await?;
    let mut ends = Vec::with_capacity(BEFORE + ENDS);
    for n in 0..BEFORE {
        ends.push(declare(&node, format!("before-{n:05}")).await?);
    }
    let (here, there) = (HEAP.0.live(), service.live());
    for n in 0..ENDS {
        ends.push(declare(&node, format!("tide-{n:05}")).await?);
    }
    let (here, there) = (HEAP.0.live() - here, service.live() - there);
    drop(ends);
    node.leave().await?;
    Ok((here / ENDS, there / ENDS))
}

#[test]
fn a_waiting_end_takes_little_memory_at_its_node_and_at_the_name_service() {
    dunlin::block_on(async {
        let (here, there) = cost(async |node, name| Ok(node.receiver::<u32>(&name).await?)).await?;
        println!("receiver: {here} bytes at its node, {there} at the name service");
        assert!(here <= RECEIVER_MAX && there <= NAME_MAX, "{here}, {there}");
        let (here, there) = cost(async |node, name| Ok(node.sender::<u32>(&name).await?)).await?;
        println!("sender: {here} bytes at its node, {there} at the name service");
        assert!(here <= SENDER_MAX && there <= NAME_MAX, "{here}, {there}");
        Ok::<_, Error>(())
    })
    .unwrap();
}
