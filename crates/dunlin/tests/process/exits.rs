//! How processes end: kill, exit, payloads, guards.

use dunlin::prelude::*;
use dunlin::{ExitReason, OutsideProcess, Pid, exit, exit_with, link, mailbox, spawn_linked, spawn_named, unlink};

use super::{Guard, Msg, idle, in_order, in_process, reason_of, settle};

#[test]
fn a_killed_process_drops_its_guards_in_that_process() {
    in_process(async {
        let guard = Guard::default();
        let held = guard.held();
        let (mut tx, mut started) = channel();
        let process = spawn(async move {
            let _held = held;
            tx.send(Pid::current()).await.unwrap();
            par!(std::future::pending::<()>(), std::future::pending::<()>());
        });
        let pid = process.pid();
        assert_eq!(started.recv().await, Ok(Some(pid)));
        assert!(pid.is_alive());
        assert!(pid.kill());
        let exit = process.await.unwrap_err();
        assert_eq!((exit.pid, &exit.reason), (pid, &ExitReason::Killed));
        assert_eq!(Some(exit.origin()), Pid::current(), "the process that killed it");
        assert_eq!((guard.drops(), guard.dropped_in()), (1, Some(pid)));
        assert!(!pid.is_alive());
        assert!(!pid.kill());
    });
}

#[test]
fn a_process_that_is_killed_before_its_first_poll_never_runs() {
    in_order(async {
        let guard = Guard::default();
        let held = guard.held();
        let process = spawn(async move {
            let _held = held;
            unreachable!()
        });
        process.pid().kill();
        assert_eq!(reason_of::<()>(process).await, ExitReason::Killed);
        assert_eq!(guard.drops(), 1);
    });
}

#[test]
fn a_process_that_has_returned_in_the_same_poll_is_not_killed() {
    in_order(async {
        let process = spawn(async {
            Pid::current().unwrap().kill();
            7
        });
        assert_eq!(process.await, Ok(7));
    });
}

#[test]
fn a_cancelled_process_drops_its_guards_in_that_process() {
    in_process(async {
        let guard = Guard::default();
        let held = guard.held();
        let (mut tx, mut started) = channel();
        let process = spawn(async move {
            let _held = held;
            tx.send(()).await.unwrap();
            std::future::pending::<()>().await;
        });
        started.recv().await.unwrap();
        let (pid, down) = (process.pid(), dunlin::monitor(process.pid()));
        process.cancel();
        assert_eq!(down.await.reason, ExitReason::Cancelled);
        assert_eq!(guard.dropped_in(), Some(pid));
        assert_eq!(reason_of(process).await, ExitReason::Cancelled);
    });
}

#[test]
fn an_exit_carries_its_payload_and_its_origin_over_links() {
    in_process(async {
        let first = spawn_named("first", async {
            std::future::pending::<()>().await;
        });
        let second = idle();
        let third = idle();
        link(first.pid(), second.pid()).unwrap();
        link(second.pid(), third.pid()).unwrap();
        let origin = spawn(async { exit("no krill").with(vec![1_u8, 2]).await });
        let from = origin.pid();
        link(from, first.pid()).unwrap();
        drop(origin);
        let exit = third.await.unwrap_err();
        assert_eq!((exit.origin(), exit.payload::<Vec<u8>>()), (from, Some(&vec![1, 2])));
        assert_eq!(exit.reason, ExitReason::Error("no krill".into()));
        assert_eq!(exit.payload::<u8>(), None);
        let exit = first.await.unwrap_err();
        assert_eq!(exit.name.as_deref(), Some("first"));
    });
}

#[test]
fn an_exit_ends_the_process_around_a_parallel_branch() {
    in_process(async {
        let process = spawn(async { par!(async { exit_with(7_u8).await.map(|_| ()) }, std::future::pending::<()>()) });
        assert_eq!(process.await.unwrap_err().payload::<u8>(), Some(&7));
    });
}

#[test]
fn an_exit_with_a_normal_reason_ends_no_linked_process() {
    in_order(async {
        let target = idle();
        let source = spawn(async { exit(ExitReason::Normal).await });
        link(source.pid(), target.pid()).unwrap();
        assert_eq!(source.await.unwrap_err().reason, ExitReason::Normal);
        settle().await;
        assert!(target.pid().is_alive());
    });
}

#[test]
fn a_drop_that_panics_at_a_kill_is_the_exit() {
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("sharp edges");
        }
    }
    in_process(async {
        let (mut tx, mut started) = channel();
        let process = spawn(async move {
            let _panics = Panics;
            tx.send(()).await.unwrap();
            std::future::pending::<()>().await;
        });
        started.recv().await.unwrap();
        let down = dunlin::monitor(process.pid());
        process.pid().kill();
        assert_eq!(down.await.reason, ExitReason::Panicked("sharp edges".into()));
        assert_eq!(reason_of(process).await, ExitReason::Panicked("sharp edges".into()));
    });
}

#[test]
fn an_error_is_an_error_only_where_the_output_is_looked_at() {
    in_process(async {
        let (_, mut mailbox) = mailbox::<Msg>();
        mailbox.exits().unwrap();
        drop(spawn_linked(async { Err::<(), _>("no krill") }).unwrap());
        let Msg::Exit(exit) = mailbox.recv().await.unwrap() else { unreachable!() };
        assert_eq!(exit.reason, ExitReason::Error("no krill".into()));
        let plain = spawn(async { std::future::ready(Err::<(), _>("no krill")).await });
        link(plain.pid(), Pid::current().unwrap()).unwrap();
        let Msg::Exit(exit) = mailbox.recv().await.unwrap() else { unreachable!() };
        assert!(matches!(exit.reason, ExitReason::Normal | ExitReason::NoSuchProcess), "{exit}");
    });
}

#[test]
fn a_process_can_be_asked_to_exit() {
    in_process(async {
        let (target, patient) = (idle(), idle());
        assert_eq!(patient.pid().exit(ExitReason::Normal), Ok(true));
        assert_eq!(target.pid().exit("enough"), Ok(true));
        let pid = target.pid();
        let exit = target.await.unwrap_err();
        assert_eq!(Some(exit.origin()), Pid::current());
        assert_eq!(exit.reason, ExitReason::Error("enough".into()));
        assert_eq!(pid.exit("enough"), Ok(false));
        assert!(patient.pid().is_alive());
    });
}

#[test]
fn links_and_exits_outside_of_a_process_are_errors() {
    dunlin::block_on(async {
        let process = idle();
        let pid = process.pid();
        assert_eq!(Pid::current(), None);
        assert_eq!(link(pid, pid), Err(OutsideProcess));
        assert_eq!(unlink(pid, pid), Err(OutsideProcess));
        assert_eq!(pid.exit("enough"), Err(OutsideProcess));
        assert_eq!(exit("enough").await, Err(OutsideProcess));
        assert!(spawn_linked(async {}).is_err());
        let (_, mut mailbox) = mailbox::<Msg>();
        assert!(mailbox.exits().is_err());
        // A task of the runtime is no process, also beside one.
        let task = tokio::spawn(async move { link(pid, pid) });
        assert_eq!(task.await.unwrap(), Err(OutsideProcess));
        pid.kill();
    });
}

#[test]
fn pids_are_small_and_never_reused() {
    // A link keeps a pid and a number, at most 64 bytes.
    assert!(size_of::<Pid>() <= 48, "{}", size_of::<Pid>());
    in_order(async {
        let first = spawn(async {});
        let pid = first.pid();
        first.await.unwrap();
        // It has the place of the first in the table.
        let next = idle();
        assert_ne!(next.pid(), pid);
        assert!(!pid.kill());
        settle().await;
        assert!(next.pid().is_alive());
    });
}
