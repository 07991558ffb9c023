//! Links in all shapes.

use std::time::Instant;

use dunlin::prelude::*;
use dunlin::{ExitReason, Pid, link, mailbox, spawn_linked, spawn_linked_named, unlink};

use super::{Msg, idle, in_order, in_process, reason_of, settle};

fn own() -> Pid {
    Pid::current().expect("the test is a process")
}

#[test]
fn a_link_ends_its_target_and_not_its_source() {
    in_order(async {
        let (source, target) = (idle(), idle());
        source.pid().link(target.pid()).unwrap();
        let other = idle();
        other.pid().link(source.pid()).unwrap();
        target.pid().kill();
        assert_eq!(reason_of(target).await, ExitReason::Killed);
        settle().await;
        assert!(source.pid().is_alive());
        other.pid().kill();
        assert_eq!(reason_of(source).await, ExitReason::Killed);
    });
}

#[test]
fn a_normal_end_ends_no_linked_process() {
    in_order(async {
        let target = idle();
        let source = spawn(async {});
        link(source.pid(), target.pid()).unwrap();
        source.await.unwrap();
        settle().await;
        assert!(target.pid().is_alive());
    });
}

#[test]
fn a_link_from_a_process_that_has_ended_tells_at_once() {
    in_process(async {
        let source = spawn(async {});
        let from = source.pid();
        source.await.unwrap();
        let target = idle();
        link(from, target.pid()).unwrap();
        let exit = target.await.unwrap_err();
        assert_eq!((exit.origin(), exit.reason), (from, ExitReason::NoSuchProcess));
    });
}

#[test]
fn a_parent_ends_with_its_linked_child_and_a_child_with_its_parent() {
    in_process(async {
        let (mut tx, mut children) = channel();
        let parent = spawn(async move {
            let child = spawn_linked_named("child", std::future::pending::<()>()).unwrap();
            tx.send(child).await.unwrap();
            std::future::pending::<()>().await;
        });
        let child = children.recv().await.unwrap();
        assert_eq!(child.name(), Some("child"));
        child.pid().kill();
        assert_eq!(reason_of(parent).await, ExitReason::Killed);

        let (mut tx, mut children) = channel();
        let parent = spawn(async move {
            tx.send(spawn_linked(std::future::pending::<()>()).unwrap()).await.unwrap();
            panic!("no krill");
        });
        let child = children.recv().await.unwrap();
        assert_eq!(reason_of::<()>(parent).await, ExitReason::Panicked("no krill".into()));
        let exit = child.await.unwrap_err();
        assert_eq!(exit.reason, ExitReason::Panicked("no krill".into()));
    });
}

#[test]
fn no_exit_of_a_link_arrives_after_its_unlink() {
    in_order(async {
        let (source, target) = (idle(), idle());
        link(source.pid(), target.pid()).unwrap();
        source.pid().unlink(target.pid()).unwrap();
        source.pid().kill();
        source.await.unwrap_err();
        settle().await;
        assert!(target.pid().is_alive());
    });
}

#[test]
fn an_unlink_withdraws_an_exit_that_is_in_the_mailbox() {
    in_order(async {
        let (address, mut mailbox) = mailbox::<Msg>();
        mailbox.exits().unwrap();
        let (first, second) = (idle(), idle());
        for process in [&first, &second] {
            link(process.pid(), own()).unwrap();
            process.pid().kill();
        }
        settle().await;
        assert_eq!(mailbox.len(), 2);
        unlink(first.pid(), own()).unwrap();
        address.send(Msg::Word(1)).unwrap();
        let Msg::Exit(exit) = mailbox.recv().await.unwrap() else { unreachable!() };
        assert_eq!(exit.pid, second.pid());
        assert_eq!(mailbox.recv().await, Ok(Msg::Word(1)));
    });
}

#[test]
fn an_exit_that_is_received_has_ended_its_link() {
    in_order(async {
        let (_, mut mailbox) = mailbox::<Msg>();
        mailbox.exits().unwrap();
        let source = spawn(async {});
        link(source.pid(), own()).unwrap();
        link(source.pid(), own()).unwrap();
        let Msg::Exit(exit) = mailbox.recv().await.unwrap() else { unreachable!() };
        assert_eq!((exit.pid, exit.reason), (source.pid(), ExitReason::Normal));
        settle().await;
        assert!(mailbox.is_empty(), "two links in a direction are one");
        link(source.pid(), own()).unwrap();
        let Msg::Exit(exit) = mailbox.recv().await.unwrap() else { unreachable!() };
        assert_eq!(exit.reason, ExitReason::NoSuchProcess);
    });
}

#[test]
fn exits_end_a_process_again_once_its_mailbox_is_dropped() {
    in_order(async {
        let (mut tx, mut step) = channel();
        let source = idle();
        let from = source.pid();
        let target = spawn(async move {
            let (_, mut mailbox) = mailbox::<Msg>();
            mailbox.exits().unwrap();
            link(from, own()).unwrap();
            drop(mailbox);
            tx.send(()).await.unwrap();
            std::future::pending::<()>().await;
        });
        step.recv().await.unwrap();
        from.kill();
        assert_eq!(reason_of(target).await, ExitReason::Killed);
    });
}

#[test]
fn an_exit_that_came_before_is_received_when_exits_are() {
    in_order(async {
        let own = own();
        // The source ends in the same poll in which the target begins to receive exits.
        own.exit("enough").unwrap();
        let (_, mut mailbox) = mailbox::<Msg>();
        mailbox.exits().unwrap();
        let Msg::Exit(exit) = mailbox.recv().await.unwrap() else { unreachable!() };
        assert_eq!(exit.reason, ExitReason::Error("enough".into()));
    });
}

#[test]
fn a_ring_of_links_ends_once_each() {
    in_process(async {
        let ring: Vec<_> = (0..100).map(|_| idle()).collect();
        for (n, process) in ring.iter().enumerate() {
            link(process.pid(), ring[(n + 1) % ring.len()].pid()).unwrap();
            link(process.pid(), process.pid()).unwrap();
        }
        let monitors: Vec<_> = ring.iter().map(|process| dunlin::monitor(process.pid())).collect();
        ring[7].pid().kill();
        for monitor in monitors {
            assert_eq!(monitor.await.reason, ExitReason::Killed);
        }
    });
}

#[test]
fn an_exit_passes_through_a_hundred_thousand_links() {
    in_process(async {
        let mut last = idle();
        let first = last.pid();
        for _ in 0..100_000 {
            let next = idle();
            link(last.pid(), next.pid()).unwrap();
            last = next;
        }
        until_last_waits().await;
        let began = Instant::now();
        first.kill();
        assert_eq!(last.await.unwrap_err().origin(), own());
        println!("an exit through 100,000 links: {:?}", began.elapsed());
    });
}

/// Lets all processes run once.
async fn until_last_waits() {
    spawn(async {}).await.unwrap();
}

#[test]
fn a_process_with_many_links_forgets_those_that_have_ended() {
    in_order(async {
        let (_, mut mailbox) = mailbox::<Msg>();
        mailbox.exits().unwrap();
        let mut children: Vec<_> = (0..1_000).map(|_| spawn_linked(std::future::pending::<()>()).unwrap()).collect();
        let kept = children.pop().unwrap();
        for child in &children {
            child.pid().kill();
        }
        for _ in 0..children.len() {
            let Msg::Exit(exit) = mailbox.recv().await.unwrap() else { unreachable!() };
            assert_eq!(exit.reason, ExitReason::Killed);
        }
        unlink(kept.pid(), own()).unwrap();
        kept.pid().kill();
        settle().await;
        assert!(mailbox.is_empty());
    });
}
