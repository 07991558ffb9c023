//! Pids, links, monitors, exits and kills between nodes.
#![cfg(all(feature = "net", feature = "macros"))]

#[path = "support/messages.rs"]
mod messages;

use dunlin::node::{Limit, NodeEvent};
use dunlin::prelude::*;
use dunlin::{
    ExitReason, PayloadError, Pid, Portable, exit, exit_with, exit_with_portable, link, mailbox, monitor, monitor_into,
    unlink,
};
use messages::Msg;
use serde::{Deserialize, Serialize};

/// Nodes of one application.
async fn nodes<const N: usize>(test: &str) -> [Node; N] {
    let names = format!("memory:processes-{test}");
    let mut nodes = Vec::new();
    for _ in 0..N {
        nodes.push(Node::builder().app(test).names(&names).listen("memory:").join().await.unwrap());
    }
    nodes.try_into().unwrap()
}

/// Gives something to another node, over a channel.
async fn give<A: Portable, B: Portable>(value: A, from: &Node, to: &Node, name: &str) -> B {
    let mut tx = from.sender::<A>(name).await.unwrap();
    let mut rx = to.receiver::<B>(name).await.unwrap();
    let sending = spawn(async move { tx.send(value).await.is_ok() });
    let value = rx.recv().await.unwrap();
    assert!(sending.await.unwrap());
    value
}

async fn hand_over(pid: Pid, from: &Node, to: &Node, name: &str) -> Pid {
    give(pid, from, to, name).await
}

/// A process of one node that never ends by itself, and its pid at the other node.
async fn idle(from: &Node, to: &Node, name: &str) -> (Process<()>, Pid) {
    let process = spawn(std::future::pending::<()>());
    let pid = hand_over(process.pid(), from, to, name).await;
    (process, pid)
}

#[dunlin::test]
async fn pid_is_a_value_that_comes_home() {
    let [here, there] = nodes("values").await;
    let (process, far) = idle(&here, &there, "out").await;
    assert_ne!(far, process.pid());
    assert!(!far.is_alive() && process.pid().is_alive());
    assert!(far.to_string().starts_with(&format!("{}@", process.pid())), "{far}");
    assert_eq!(far, hand_over(process.pid(), &here, &there, "again").await);
    assert_eq!(hand_over(far, &there, &here, "back").await, process.pid());
    // Outside of a message between nodes it is no data.
    assert!(serde_json::to_string(&process.pid()).is_err());
    let error = serde_json::from_str::<Pid>("[1,1,1,1,1,1]").unwrap_err();
    assert!(error.to_string().contains("a pid can only travel inside a message between nodes"), "{error}");
}

#[dunlin::test]
async fn kill_reaches_another_node_and_monitors_tell_once() {
    let [here, there] = nodes("kill").await;
    let (process, far) = idle(&here, &there, "pid").await;
    let (mut first, mut second) = (monitor(far), monitor(far));
    let killer = spawn(async move { (Pid::current().unwrap(), far.kill()) });
    let (killer, sent) = killer.await.unwrap();
    assert!(sent);
    let exit = (&mut first).await;
    assert_eq!((exit.pid, &exit.reason), (far, &ExitReason::Killed));
    // The killer is of this node, so it is known as such.
    assert_eq!(exit.origin(), killer);
    assert_eq!((&mut second).await, exit);
    assert_eq!(process.await.unwrap_err().reason, ExitReason::Killed);
    assert_eq!(monitor(far).await.reason, ExitReason::NoSuchProcess);
}

#[dunlin::test]
async fn exit_ends_a_process_of_another_node() {
    let [here, there] = nodes("exit").await;
    let (process, far) = idle(&here, &there, "pid").await;
    let sender = spawn(async move { (Pid::current().unwrap(), far.exit("enough")) });
    let (sender, sent) = sender.await.unwrap();
    assert_eq!(sent, Ok(true));
    let exit = process.await.unwrap_err();
    assert_eq!(exit.reason, ExitReason::Error("enough".into()));
    assert_eq!(exit.origin().to_string().split('@').next(), Some(&*sender.to_string()));
}

/// A process that receives exits gets those of other nodes, too, and the messages in between.
#[dunlin::test]
async fn exits_and_messages_of_one_process_arrive_in_order() {
    let [here, there] = nodes("order").await;
    let mut named = here.mailbox::<u32>("numbers").await.unwrap();
    let address = there.address::<u32>("numbers").await.unwrap();
    let (mut give, mut given) = dunlin::channel();
    let receiver = spawn(async move {
        let (_, mut exits) = mailbox::<Msg>();
        exits.exits().unwrap();
        give.send(Pid::current().unwrap()).await.unwrap();
        for n in 0..100_u32 {
            let Msg::Exit(exit) = exits.recv().await.unwrap() else { unreachable!() };
            assert_eq!(exit.reason, ExitReason::Error(n.to_string()));
            // It was sent before the exit.
            assert!(!named.is_empty());
            assert_eq!(named.recv().await.unwrap(), n);
        }
    });
    let far = hand_over(given.recv().await.unwrap(), &here, &there, "pid").await;
    let sender = spawn(async move {
        for n in 0..100_u32 {
            address.offer(n).await.unwrap();
            while far.exit(n.to_string()) == Ok(false) {
                sleep(Duration::from_millis(1)).await;
            }
        }
    });
    sender.await.unwrap();
    receiver.await.unwrap();
}

#[dunlin::test]
async fn link_to_a_process_of_another_node() {
    let [here, there] = nodes("links").await;
    let (source, far) = idle(&here, &there, "source").await;
    let linked = spawn(async move {
        link(far, Pid::current().unwrap()).unwrap();
        std::future::pending::<()>().await;
    });
    // The other direction is asked of the other node, by a process of any.
    let (target, far_target) = idle(&here, &there, "target").await;
    let own = linked.pid();
    spawn(async move { link(own, far_target) }).await.unwrap().unwrap();
    // In order behind the link.
    let (_, mark) = idle(&here, &there, "mark").await;
    let down = monitor(mark);
    spawn(async move { mark.exit("enough") }).await.unwrap().unwrap();
    assert_eq!(down.await.reason, ExitReason::Error("enough".into()));

    source.pid().kill();
    assert_eq!(linked.await.unwrap_err().reason, ExitReason::Killed);
    assert_eq!(target.await.unwrap_err().reason, ExitReason::Killed);
}

#[dunlin::test]
async fn link_to_a_dead_process_tells_at_once() {
    let [here, there] = nodes("dead").await;
    let (process, far) = idle(&here, &there, "pid").await;
    process.pid().kill();
    assert!(process.await.is_err());
    let linked = spawn(async move {
        link(far, Pid::current().unwrap()).unwrap();
        std::future::pending::<()>().await;
    });
    let exit = linked.await.unwrap_err();
    assert_eq!(exit.reason, ExitReason::NoSuchProcess);
}

#[dunlin::test]
async fn unlink_ends_the_link_at_both_nodes() {
    let [here, there] = nodes("unlink").await;
    let (_source, far) = idle(&here, &there, "source").await;
    let linked = spawn(async move {
        let own = Pid::current().unwrap();
        link(far, own).unwrap();
        unlink(far, own).unwrap();
        let down = monitor(far);
        // In order behind the signals before it.
        far.kill();
        let down = down.await;
        // An exit of the link would be here before that of the monitor.
        sleep(Duration::ZERO).await;
        down
    });
    assert_eq!(linked.await.unwrap().reason, ExitReason::Killed);
}

#[dunlin::test]
async fn down_comes_behind_the_messages_of_its_process() {
    let [here, there] = nodes("down").await;
    let mut given = here.mailbox::<Address<u32>>("address").await.unwrap();
    let to_given = there.address::<Address<u32>>("address").await.unwrap();
    let (address, mut numbers) = mailbox::<u32>();
    to_given.send(address).unwrap();
    let address = given.recv().await.unwrap();
    let (mut start, mut started) = dunlin::channel::<()>();
    let worker = spawn(async move {
        started.recv().await.unwrap();
        for n in 0..1000 {
            address.offer(n).await.unwrap();
        }
        exit("done").await
    });
    let far = hand_over(worker.pid(), &here, &there, "pid").await;
    let down = monitor(far);
    start.send(()).await.unwrap();
    let counted = spawn(async move {
        let mut count = 0;
        while numbers.recv().await.unwrap() != 999 {
            count += 1;
        }
        count
    });
    assert_eq!(counted.await.unwrap(), 999);
    assert_eq!(down.await.reason, ExitReason::Error("done".into()));
}

#[dunlin::test]
async fn monitor_into_a_mailbox_and_its_handle() {
    let [here, there] = nodes("into").await;
    let (process, far) = idle(&here, &there, "pid").await;
    let (address, mut mailbox) = mailbox::<Msg>();
    let kept = monitor_into(far, &mailbox);
    drop(monitor_into(far, &mailbox));
    process.pid().kill();
    let Msg::Down(down) = mailbox.recv().await.unwrap() else { unreachable!() };
    assert_eq!((down.monitor, down.exit.pid), (kept.id(), far));
    // The connection is in order, so nothing else comes.
    assert_eq!(monitor(far).await.reason, ExitReason::NoSuchProcess);
    address.send(Msg::Word(1)).unwrap();
    assert!(matches!(mailbox.recv().await.unwrap(), Msg::Word(1)));
}

#[dunlin::test]
async fn node_that_leaves_is_told_at_once() {
    let [here, there] = nodes("leaves").await;
    let (_process, far) = idle(&here, &there, "pid").await;
    let mut down = monitor(far);
    let linked = spawn(async move {
        link(far, Pid::current().unwrap()).unwrap();
        std::future::pending::<()>().await;
    });
    here.leave().await.unwrap();
    assert_eq!((&mut down).await.reason, ExitReason::NodeLeft);
    assert_eq!(linked.await.unwrap_err().reason, ExitReason::NodeLeft);
    // No node connects to it again.
    assert_eq!(monitor(far).await.reason, ExitReason::NodeLeft);
    assert!(!far.kill());
    let asked = spawn(async move {
        let own = Pid::current().unwrap();
        [link(own, far), unlink(own, far), link(own, own)]
    });
    assert_eq!(asked.await.unwrap(), [Ok(false), Ok(false), Ok(true)], "the requests cannot be sent");
    drop(there);
}

/// A node of this program that is gone cannot tell: its monitors end all the same.
#[dunlin::test]
async fn own_node_that_leaves_ends_its_monitors() {
    let [here, there] = nodes("own").await;
    let (_process, far) = idle(&here, &there, "pid").await;
    let down = monitor(far);
    there.leave().await.unwrap();
    let exit = down.await;
    assert!(matches!(exit.reason, ExitReason::NodeLeft | ExitReason::NodeLost(_)), "{exit}");
    assert!(matches!(monitor(far).await.reason, ExitReason::NodeLost(_)));
    assert!(!far.kill());
}

/// A value travels with an exit if it is portable and small, over a link that passes it on, too.
#[dunlin::test]
async fn payload_travels_with_an_exit() {
    let [here, there] = nodes("payload").await;
    let (mut go, mut gone) = dunlin::channel::<()>();
    let worker = spawn(async move {
        gone.recv().await.unwrap();
        exit_with_portable(vec!["krill".to_owned(), "squid".to_owned()]).await
    });
    let far = hand_over(worker.pid(), &here, &there, "small").await;
    let linked = spawn(async move {
        link(far, Pid::current().unwrap()).unwrap();
        std::future::pending::<()>().await;
    });
    let down = monitor(far);
    // In order behind the link.
    let (_, mark) = idle(&here, &there, "mark").await;
    mark.kill();
    monitor(mark).await;
    go.send(()).await.unwrap();
    let exit = down.await;
    assert_eq!(exit.portable_payload(), Ok(vec!["krill".to_owned(), "squid".to_owned()]));
    assert!(matches!(exit.portable_payload::<u32>(), Err(PayloadError::Mismatch(_))));
    assert_eq!(exit.payload::<Vec<String>>(), None);
    let linked = linked.await.unwrap_err();
    assert_eq!((linked.portable_payload::<Vec<String>>(), linked.origin()), (exit.portable_payload(), far));

    for (name, exits) in [("large", exit_with_portable(vec![7_u8; 20_000])), ("local", exit_with(7_u8))] {
        let (mut go, mut gone) = dunlin::channel::<()>();
        let worker = spawn(async move {
            gone.recv().await.unwrap();
            exits.await
        });
        let far = hand_over(worker.pid(), &here, &there, name).await;
        let down = monitor(far);
        let (_, mark) = idle(&here, &there, &format!("mark-{name}")).await;
        mark.kill();
        monitor(mark).await;
        go.send(()).await.unwrap();
        assert_eq!(down.await.portable_payload::<Vec<u8>>(), Err(PayloadError::Left), "{name}");
    }
}

/// A third node links a process of the first to one of the second.
#[dunlin::test]
async fn third_node_makes_a_link() {
    let [first, second, third] = nodes("third").await;
    let (source, far_source) = idle(&first, &third, "source").await;
    let (target, far_target) = idle(&second, &third, "target").await;
    // The target's node has a connection with the source's.
    let (_other, known) = idle(&first, &second, "known").await;
    spawn(async move { link(far_source, far_target) }).await.unwrap().unwrap();
    // Behind the request, in order: then the second node has sent its watch.
    let (mark, far_mark) = idle(&second, &third, "mark").await;
    far_mark.kill();
    assert!(mark.await.is_err());
    // The watches of the second node at the first are in order, too.
    let down = monitor(known);
    known.kill();
    assert_eq!(down.await.reason, ExitReason::Killed);
    source.pid().kill();
    assert_eq!(target.await.unwrap_err().reason, ExitReason::Killed);
}

/// A pid as any program may write it.
#[derive(Serialize, Deserialize)]
#[serde(rename = "Pid")]
struct Forged((u64, u64, u64, u64, u32, u64));

#[dunlin::test]
async fn signals_without_the_random_bits_are_dropped_and_counted() {
    let [here, there] = nodes("forged").await;
    let mut events = here.events();
    let (process, real) = idle(&here, &there, "real").await;
    // The other node reads what a pid is, and another one writes it with other bits.
    let mut parts: Forged = give(process.pid(), &here, &there, "read").await;
    // Of another incarnation: that is no forgery.
    parts.0.2 += 1;
    let earlier: Pid = give(Forged(parts.0), &here, &there, "earlier").await;
    assert_ne!(earlier, real);
    assert_eq!(monitor(earlier).await.reason, ExitReason::NoSuchProcess);
    parts.0.2 -= 1;
    parts.0.5 ^= 1;
    let forged: Pid = give(parts, &here, &there, "write").await;
    assert_eq!(forged, real);
    assert_eq!(monitor(forged).await.reason, ExitReason::NoSuchProcess);
    forged.kill();
    spawn(async move { forged.exit("enough") }).await.unwrap().unwrap();
    let mut count = 0;
    while count < 3 {
        if let NodeEvent::Limit(Limit::Signal { .. }) = events.recv().await.unwrap() {
            count += 1;
        }
    }
    assert_eq!(here.refusals().posts, 3);
    assert!(process.pid().is_alive());
    // At home such a pid is that of no process.
    assert!(!hand_over(forged, &there, &here, "home").await.kill());
    real.kill();
    assert_eq!(process.await.unwrap_err().reason, ExitReason::Killed);
}

/// A request for a link makes its node dial no others: a source at a node that it has no connection with is
/// lost at once.
#[dunlin::test]
async fn link_from_an_unknown_node_is_lost_at_once() {
    let [here, there] = nodes("unknown").await;
    let (target, far_target) = idle(&here, &there, "target").await;
    let mut parts: Forged = give(target.pid(), &here, &there, "read").await;
    parts.0.0 ^= 1;
    let invented: Pid = give(parts, &here, &there, "write").await;
    spawn(async move { link(invented, far_target) }).await.unwrap().unwrap();
    let exit = target.await.unwrap_err();
    // (A node that has tried to connect says why it could not.)
    assert_eq!(exit.reason, ExitReason::NodeLost(String::new()));
}
