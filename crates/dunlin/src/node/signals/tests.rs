//! What a node keeps for signals goes with what it is for.

use crate::node::state::Driver;
use crate::prelude::*;
use crate::{Pid, link, monitor, unlink};

/// How many processes of other nodes it watches, how many of them for links, and how many of its own are
/// watched.
fn records(node: &Driver) -> [usize; 3] {
    let state = node.locked();
    [state.signals.asked.len(), state.signals.links.len(), state.signals.here.len()]
}

async fn hand_over(pid: Pid, from: &Node, to: &Node, name: &str) -> Pid {
    let mut tx = from.sender::<Pid>(name).await.unwrap();
    let mut rx = to.receiver::<Pid>(name).await.unwrap();
    let sending = spawn(async move { tx.send(pid).await.is_ok() });
    let pid = rx.recv().await.unwrap();
    assert!(sending.await.unwrap());
    pid
}

#[test]
fn records_go_with_monitors_links_and_connections() {
    crate::block_on(async {
        let names = "memory:signal-records";
        let here = Node::builder().app("records").names(names).listen("memory:").join().await.unwrap();
        let there = Node::builder().app("records").names(names).listen("memory:").join().await.unwrap();
        let drivers = [&here, &there].map(|node| node.inner.driver.clone());
        let worker = spawn(std::future::pending::<()>());
        let far = hand_over(worker.pid(), &here, &there, "worker").await;
        let marks: Vec<_> = (0..4).map(|_| spawn(std::future::pending::<()>())).collect();
        let mut far_marks = Vec::new();
        for (at, mark) in marks.iter().enumerate() {
            far_marks.push(hand_over(mark.pid(), &here, &there, &format!("mark{at}")).await);
        }
        // In order behind all signals before it.
        let mut behind = || {
            let mark = far_marks.pop().unwrap();
            let down = monitor(mark);
            mark.kill();
            down
        };
        let monitors: Vec<_> = (0..100).map(|_| monitor(far)).collect();
        behind().await;
        assert_eq!((records(&drivers[1]), records(&drivers[0])), ([100, 0, 0], [0, 0, 100]));
        drop(monitors);
        behind().await;
        assert_eq!((records(&drivers[1]), records(&drivers[0])), ([0; 3], [0; 3]));

        let (mut made, mut is_made) = crate::channel::<()>();
        let linked = spawn(async move {
            let own = Pid::current().unwrap();
            link(far, own).unwrap();
            link(far, own).unwrap();
            made.send(()).await.unwrap();
            std::future::pending::<()>().await;
        });
        let own = linked.pid();
        is_made.recv().await.unwrap();
        behind().await;
        assert_eq!((records(&drivers[1]), records(&drivers[0])), ([1, 1, 0], [0, 0, 1]));
        // By the end of the target; by `unlink`; by the end of the connection.
        own.kill();
        assert!(linked.await.is_err());
        behind().await;
        assert_eq!((records(&drivers[1]), records(&drivers[0])), ([0; 3], [0; 3]));
        spawn(async move {
            let own = Pid::current().unwrap();
            link(far, own).unwrap();
            unlink(far, own).unwrap();
        })
        .await
        .unwrap();
        let down = monitor(far);
        there.leave().await.unwrap();
        down.await;
        assert_eq!(records(&drivers[1]), [0; 3]);
        // The other node hears of it a little later.
        while records(&drivers[0]) != [0; 3] {
            tokio::task::yield_now().await;
        }
        assert!(worker.pid().is_alive());
    });
}
