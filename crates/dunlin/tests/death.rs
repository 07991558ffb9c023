//! A process that is killed without a warning is noticed by the nodes of its host long before the grace period is over: dials are refused where it listened.
#![cfg(feature = "net")]

#[path = "support/actor.rs"]
#[expect(dead_code, reason = "all processes here are killed")]
mod actor;

use std::time::{Duration, Instant};

use actor::{Actor, say};
use dunlin::node::{ConnectionState, Down};
use dunlin::prelude::*;

/// The line of the issue; the grace period, which has its default here, is 15 s.
const SOON: Duration = Duration::from_secs(2);

#[test]
#[ignore = "what the processes of the other tests run"]
fn a_role() {
    let Some((role, knows)) = actor::role() else { return };
    let [application, names, listen] = &knows[..] else { panic!("{knows:?}") };
    dunlin::block_on(async {
        let node = Node::builder().app(application).names(names).serve_names(false).listen(listen).join().await?;
        match role.as_str() {
            "receives" => {
                let mut rx = node.receiver::<u64>("numbers").await?;
                assert_eq!(rx.recv().await?, 1);
                say("received");
                std::future::pending::<Result>().await
            }
            "sends" => {
                let mut tx = node.sender::<u64>("numbers").await?;
                tx.send(1).await?;
                say("sent");
                std::future::pending::<Result>().await
            }
            _ => panic!("there is no role {role}"),
        }
    })
    .unwrap();
}

/// A node of this process, and the names, which it serves.
async fn survivor(test: &str, listen: &str) -> Result<(Node, String, String)> {
    let application = format!("death {test} {}", std::process::id());
    let names = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
    let node = Node::builder().app(&application).names(&names).listen(listen).join().await?;
    Ok((node, application, names))
}

/// Kills it, and tells how long `lost` takes then.
async fn kill(actor: Actor, lost: impl Future<Output = ()>) -> Duration {
    let began = Instant::now();
    tokio::task::spawn_blocking(|| drop(actor)).await.unwrap();
    tokio::time::timeout(Duration::from_secs(60), lost).await.expect("it is noticed");
    began.elapsed()
}

async fn noticed(test: &str, listen: &str) -> Result {
    // The survivor has dialled, since it has the sender...
    let (node, application, names) = survivor(&format!("{test} sends"), listen).await?;
    let mut states = node.connections();
    let receives = Actor::start(&[], "receives", &[&application, &names, listen]);
    let mut tx = node.sender::<u64>("numbers").await?;
    tx.send(1).await?;
    let (receives, heard) = tokio::task::spawn_blocking(move || {
        let heard = receives.hear();
        (receives, heard)
    })
    .await
    .unwrap();
    assert_eq!(heard, "received");
    let took = kill(receives, async {
        let error = tx.send(2).await.unwrap_err();
        assert!(!matches!(error, SendError::NotTaken { why: Why::TimedOut, .. }), "{error}");
    })
    .await;
    assert!(took < SOON, "{test}: the sender has noticed after {took:?}");
    let why = loop {
        if let (_, ConnectionState::Down(why)) = states.recv().await? {
            break why;
        }
    };
    assert!(matches!(why, Down::Died(_)), "{test}: {why}");
    println!("{test}: the sender has noticed after {took:?}: {why}");
    node.leave().await?;

    // ... or was dialled, since it has the receiver.
    let (node, application, names) = survivor(&format!("{test} receives"), listen).await?;
    let sends = Actor::start(&[], "sends", &[&application, &names, listen]);
    let mut rx = node.receiver::<u64>("numbers").await?;
    assert_eq!(rx.recv().await?, 1);
    let took = kill(sends, async { assert_eq!(rx.recv().await, Err(RecvError::NodeLost)) }).await;
    assert!(took < SOON, "{test}: the receiver has noticed after {took:?}");
    println!("{test}: the receiver has noticed after {took:?}");
    node.leave().await
}

#[test]
fn a_process_that_was_killed_is_noticed_on_loopback() {
    dunlin::block_on(noticed("tcp", "127.0.0.1:0")).unwrap();
}

#[cfg(unix)]
#[test]
fn a_process_that_was_killed_is_noticed_on_unix_sockets() {
    dunlin::block_on(async {
        // Each node listens at a path of its own.
        let folder = std::env::temp_dir().join(format!("dunlin-death-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let (here, there) = (folder.join("a"), folder.join("b"));
        let (here, there) = (format!("unix:{}", here.display()), format!("unix:{}", there.display()));
        let application = format!("death unix {}", std::process::id());
        let names = format!("unix:{}", folder.join("names").display());
        let node = Node::builder().app(&application).names(&names).listen(&here).join().await?;
        let sends = Actor::start(&[], "sends", &[&application, &names, &there]);
        let mut rx = node.receiver::<u64>("numbers").await?;
        assert_eq!(rx.recv().await?, 1);
        let took = kill(sends, async { assert_eq!(rx.recv().await, Err(RecvError::NodeLost)) }).await;
        assert!(took < SOON, "the receiver has noticed after {took:?}");
        node.leave().await?;
        std::fs::remove_dir_all(&folder)?;
        Ok::<_, Error>(())
    })
    .unwrap();
}
