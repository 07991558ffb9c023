//! Monitors: one down each.

use dunlin::prelude::*;
use dunlin::waits::{Doing, snapshot};
use dunlin::{ExitReason, mailbox, monitor, monitor_into};

use super::{Msg, idle, in_order, in_process, poll_once, settle, until_it_waits};

#[test]
fn a_monitor_tells_every_end() {
    in_process(async {
        let (mut tx, mut go) = channel::<()>();
        let returns = spawn(async move { go.recv().await });
        let panics = idle();
        let (mut normal, killed) = (monitor(returns.pid()), monitor(panics.pid()));
        assert_eq!(normal.pid(), returns.pid());
        tx.send(()).await.unwrap();
        panics.pid().kill();
        assert_eq!((&mut normal).await.reason, ExitReason::Normal);
        assert_eq!(normal.await.reason, ExitReason::Normal, "the handle keeps the exit");
        assert_eq!(killed.await.reason, ExitReason::Killed);
        let panics = spawn(async {
            tokio::task::yield_now().await;
            panic!("no krill")
        });
        let panicked = monitor(panics.pid());
        let reason = panicked.await.reason;
        assert!(reason == ExitReason::Panicked("no krill".into()) || reason == ExitReason::NoSuchProcess);
        drop::<Process<()>>(panics);
        let gone = monitor(returns.pid()).await;
        assert_eq!((gone.pid, gone.reason), (returns.pid(), ExitReason::NoSuchProcess));
    });
}

#[test]
fn code_outside_of_every_process_can_monitor() {
    let process = dunlin::block_on(async {
        let process = idle();
        let down = monitor(process.pid());
        process.pid().kill();
        assert_eq!(down.await.reason, ExitReason::Killed);
        process.pid()
    });
    assert!(!process.is_alive());
}

#[test]
fn a_monitor_is_a_branch_of_a_choice() {
    in_order(async {
        let process = idle();
        let mut down = monitor(process.pid());
        let (_tx, mut rx) = channel::<()>();
        alt! {
            biased;
            exit = &mut down => panic!("{exit}"),
            skip => {}
        }
        process.pid().kill();
        alt! {
            exit = &mut down => assert_eq!(exit.reason, ExitReason::Killed),
            got = rx.recv() => panic!("{got:?}"),
        }
    });
}

#[test]
fn a_process_that_awaits_a_down_has_a_line_in_the_records() {
    in_process(async {
        let watched = idle();
        let down = monitor(watched.pid());
        let waiting = spawn(down);
        until_it_waits(waiting.pid()).await;
        let wait = snapshot().into_iter().find(|wait| waiting.pid() == wait.who).unwrap();
        assert_eq!((wait.doing, wait.on), (Doing::Exit, Some(watched.pid().into())));
        watched.pid().kill();
        waiting.await.unwrap();
    });
}

#[test]
fn a_down_comes_behind_the_posts_of_its_process() {
    in_process(async {
        let (address, mut mailbox) = mailbox::<Msg>();
        let (mut tx, mut go) = channel::<()>();
        let process = spawn(async move {
            go.recv().await.unwrap();
            (0..100).for_each(|n| address.send(Msg::Word(n)).unwrap());
        });
        let monitor = monitor_into(process.pid(), &mailbox);
        tx.send(()).await.unwrap();
        for n in 0..100 {
            assert_eq!(mailbox.recv().await, Ok(Msg::Word(n)));
        }
        let Msg::Down(down) = mailbox.recv().await.unwrap() else { unreachable!() };
        assert_eq!((down.monitor, down.exit.reason), (monitor.id(), ExitReason::Normal));
        assert_eq!((down.exit.pid, monitor.pid()), (process.pid(), process.pid()));
    });
}

#[test]
fn a_dropped_monitor_withdraws_its_down_from_the_mailbox() {
    in_order(async {
        let (_, mut mailbox) = mailbox::<Msg>();
        let process = idle();
        let first = monitor_into(process.pid(), &mailbox);
        let second = monitor_into(process.pid(), &mailbox);
        let id = second.id();
        monitor_into(process.pid(), &mailbox).detach();
        drop(monitor_into(process.pid(), &mailbox));
        process.pid().kill();
        settle().await;
        assert_eq!(mailbox.len(), 3);
        drop(first);
        let Msg::Down(down) = mailbox.recv().await.unwrap() else { unreachable!() };
        assert_eq!(down.monitor, id);
        assert!(matches!(mailbox.recv().await, Ok(Msg::Down(_))), "the one without a handle");
        assert!(mailbox.is_empty());
        drop(second);
    });
}

#[test]
fn each_monitor_gets_one_down_whatever_races_with_it() {
    in_process(async {
        let (_, mut mailbox) = mailbox::<Msg>();
        for n in 0..2_000 {
            let process = spawn(async move {
                if n % 3 == 0 {
                    tokio::task::yield_now().await;
                }
            });
            let pid = process.pid();
            let beside = spawn(async move { monitor(pid).await });
            let killer = spawn(async move { pid.kill() });
            let into = monitor_into(pid, &mailbox);
            let exits = [monitor(pid).await, beside.await.unwrap()];
            killer.await.unwrap();
            let Msg::Down(down) = mailbox.recv().await.unwrap() else { unreachable!() };
            assert_eq!(down.monitor, into.id());
            for exit in exits.into_iter().chain([down.exit]) {
                let known = [ExitReason::Normal, ExitReason::Killed, ExitReason::NoSuchProcess];
                assert!(exit.pid == pid && known.contains(&exit.reason), "{exit}");
            }
            assert!(mailbox.is_empty());
        }
    });
}

#[test]
fn a_monitor_that_is_dropped_is_not_told() {
    in_order(async {
        let process = idle();
        let mut kept = monitor(process.pid());
        assert!(poll_once(&mut kept).is_pending());
        for _ in 0..100 {
            drop(monitor(process.pid()));
        }
        process.pid().kill();
        assert_eq!(kept.await.reason, ExitReason::Killed);
    });
}
