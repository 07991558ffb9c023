//! Spawned processes: handle, name, exit, cancel, and their wait records.

use dunlin::prelude::*;
use dunlin::waits::{self, Doing, Pid};
use dunlin::{ExitReason, spawn_named};

#[test]
fn process_exits_with_its_return_value() {
    let answer = dunlin::block_on(async { spawn(async { 6 * 7 }).await });
    assert_eq!(answer, Ok(42));
}

#[test]
fn a_panic_is_an_exit_reason() {
    let exit = dunlin::block_on(async {
        let process = spawn_named("worker", async { panic!("out of {}", "krill") });
        process.await.unwrap_err()
    });
    assert_eq!(exit.reason, ExitReason::Panicked("out of krill".into()));
    assert!(exit.to_string().starts_with("process worker (#"), "{exit}");
    assert!(exit.to_string().ends_with("panicked: out of krill"), "{exit}");
}

#[test]
fn a_cancelled_process_leaves_its_channels() {
    dunlin::block_on(async {
        let (mut tx, mut rx) = channel::<u8>();
        let (mut ready, mut is_ready) = channel();
        let process = spawn(async move {
            ready.send(()).await.unwrap();
            rx.recv().await
        });
        is_ready.recv().await.unwrap();
        process.cancel();
        process.cancel();
        assert_eq!(process.await.unwrap_err().reason, ExitReason::Cancelled);
        assert!(tx.send(1).await.unwrap_err().is_closed());
    });
}

#[test]
fn a_dropped_handle_detaches() {
    dunlin::block_on(async {
        let (mut tx, mut rx) = channel();
        drop(spawn(async move { tx.send("still here").await }));
        assert_eq!(rx.recv().await, Ok("still here"));
    });
}

#[test]
fn a_process_is_a_branch_of_a_choice() {
    dunlin::block_on(async {
        let (_tx, mut rx) = channel::<u8>();
        let mut process = spawn(async { 7 });
        let n = alt! {
            n = &mut process => n.unwrap(),
            v = rx.recv() => v.unwrap(),
        };
        assert_eq!(n, 7);
    });
}

#[test]
fn the_waiting_process_is_named() {
    dunlin::block_on(async {
        let (mut tx, mut rx) = channel::<u8>();
        let (mut began, mut has_begun) = channel::<Pid>();
        let process = spawn_named("hungry", async move {
            began.send(Pid::current()).await.unwrap();
            rx.recv().await
        });
        let pid = has_begun.recv().await.unwrap();
        assert_eq!((pid, process.name()), (process.pid().into(), Some("hungry")));
        let known = waits::processes().into_iter().find(|p| p.first == pid).unwrap();
        assert_eq!(known.name.as_deref(), Some("hungry"));
        assert!(known.made.file().ends_with("spawn.rs"));
        // It will be waiting soon; `closed` would show that it had given up.
        let wait = loop {
            match waits::snapshot().into_iter().find(|w| w.channel == Some(tx.id())) {
                Some(wait) => break wait,
                None => tokio::task::yield_now().await,
            }
        };
        assert_eq!((wait.who, wait.doing), (pid, Doing::Receive));
        assert!(wait.to_string().contains("for receive on"), "{wait}");
        tx.send(1).await.unwrap();
        assert_eq!(process.await, Ok(Ok(1)));
        assert!(!waits::snapshot().iter().any(|w| w.channel == Some(tx.id())));
        assert!(!waits::processes().iter().any(|p| p.first == pid));
    });
}

#[test]
fn branches_of_a_par_are_processes_too() {
    dunlin::block_on(async {
        let outer = spawn(async {
            let me = Pid::current();
            let pids = par!(async { Pid::current() }, async { Pid::current() });
            (me, pids, Pid::current())
        });
        let (me, (a, b), after) = outer.await.unwrap();
        assert!(me != a && a != b && me == after, "{me} {a} {b} {after}");
        assert_eq!(Pid::current(), Pid::OUTSIDE);
    });
}
