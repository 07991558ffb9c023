//! Which children stop and start again.

use dunlin::prelude::*;
use dunlin::supervisor::{Child, ChildState, Restart, Strategy, Supervised, Supervisor};

use super::{Log, settle};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Returns,
    Fails,
    Panics,
}

async fn obey(ends: &mut (&'static str, Log, Receiver<End>)) -> Result {
    let _run = ends.1.run(ends.0);
    match ends.2.recv().await? {
        End::Returns => Ok(()),
        End::Fails => Err(Error::other("no krill")),
        End::Panics => panic!("out of krill"),
    }
}

/// What happens when the second of three children ends.
async fn after(strategy: Strategy, restart: Restart, end: End) -> String {
    let log = Log::default();
    let mut supervisor = Supervisor::new(strategy);
    let mut ends = Vec::new();
    for name in ["a", "b", "c"] {
        let (tx, rx) = channel();
        ends.push(tx);
        let child = Child::new(name, (name, log.clone(), rx), obey);
        supervisor = supervisor.with(match (name, restart) {
            ("b", Restart::Temporary) => child.temporary(),
            ("b", Restart::Transient) => child.transient(),
            _ => child.permanent(),
        });
    }
    let tree = supervisor.spawn();
    assert!(tree.started().await);
    settle().await;
    assert_eq!(log.take(), "a+ b+ c+");
    ends[1].send(end).await.unwrap();
    settle().await;
    let happened = log.take();
    tree.shutdown();
    tree.await.unwrap().unwrap();
    happened
}

#[tokio::test(start_paused = true)]
async fn strategy_restart_kind_and_exit_decide_what_starts_again() {
    use End::{Fails, Panics, Returns};
    use Restart::{Permanent, Temporary, Transient};
    for strategy in [Strategy::OneForOne, Strategy::OneForAll, Strategy::RestForOne] {
        let restarts = match strategy {
            Strategy::OneForOne => "b- b+",
            Strategy::OneForAll => "b- c- a- a+ b+ c+",
            Strategy::RestForOne => "b- c- b+ c+",
        };
        let table = [
            (Permanent, Returns, restarts),
            (Permanent, Fails, restarts),
            (Permanent, Panics, restarts),
            (Transient, Returns, "b-"),
            (Transient, Fails, restarts),
            (Transient, Panics, restarts),
            (Temporary, Returns, "b-"),
            (Temporary, Fails, "b-"),
            (Temporary, Panics, "b-"),
        ];
        for (restart, end, expected) in table {
            assert_eq!(after(strategy, restart, end).await, expected, "{strategy:?} {restart:?} {end:?}");
        }
    }
}

async fn begin(ends: &mut (&'static str, Log, Receiver<()>), mut supervised: Supervised) -> Result {
    let _run = ends.1.run(ends.0);
    ends.2.recv().await?;
    ends.1.add(format!("{} ready", ends.0));
    supervised.ready();
    supervised.requested().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn children_start_in_order_when_the_one_before_is_ready_and_stop_in_reverse() {
    let log = Log::default();
    let mut supervisor = Supervisor::one_for_one();
    let mut ready = Vec::new();
    for name in ["a", "b", "c"] {
        let (tx, rx) = channel();
        ready.push(tx);
        let child = Child::supervised(name, (name, log.clone(), rx), begin);
        supervisor = supervisor.with(child.start_within(Duration::from_secs(60)));
    }
    let tree = supervisor.spawn();
    for tx in &mut ready {
        tx.send(()).await.unwrap();
        settle().await;
    }
    assert!(tree.started().await);
    assert_eq!(log.take(), "a+ a ready b+ b ready c+ c ready");
    tree.shutdown();
    tree.await.unwrap().unwrap();
    assert_eq!(log.take(), "c- b- a-");
}

#[tokio::test(start_paused = true)]
async fn a_child_that_is_not_ready_in_time_counts_as_dead_and_starts_again() {
    let log = Log::default();
    let (mut tx, rx) = channel();
    let child = Child::supervised("a", ("a", log.clone(), rx), begin).start_within(Duration::from_secs(2));
    let tree = Supervisor::one_for_one().with(child).spawn();
    let start = Instant::now();
    sleep(Duration::from_millis(2_001)).await;
    assert_eq!(log.take(), "a+ a- a+");
    tx.send(()).await.unwrap();
    assert!(tree.started().await);
    assert_eq!(log.take(), "a ready");
    // It is not late any more.
    sleep(Duration::from_secs(10)).await;
    assert_eq!(tree.tree().children[0].state, ChildState::Running);
    assert_eq!(tree.tree().children[0].restarts, 1);
    assert!(start.elapsed() >= Duration::from_secs(12));
    tree.cancel();
    assert!(tree.await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_temporary_sibling_that_is_stopped_does_not_start_again() {
    let log = Log::default();
    let (mut kill, rx) = channel();
    let (_kept, other) = channel();
    let tree = Supervisor::one_for_all()
        .with(Child::new("a", ("a", log.clone(), rx), obey).permanent())
        .with(Child::new("b", ("b", log.clone(), other), obey).temporary())
        .spawn();
    settle().await;
    kill.send(End::Fails).await.unwrap();
    settle().await;
    assert_eq!(log.take(), "a+ b+ a- b- a+");
    assert!(matches!(tree.tree().children[1].state, ChildState::Ended(_)));
    tree.shutdown();
    tree.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn supervisor_ends_in_order_when_all_its_children_have() {
    let (mut a, ra) = channel();
    let (mut b, rb) = channel();
    let log = Log::default();
    let mut tree = Supervisor::one_for_one()
        .child("a", ("a", log.clone(), ra), obey)
        .child("b", ("b", log.clone(), rb), obey)
        .spawn();
    a.send(End::Returns).await.unwrap();
    settle().await;
    // The ends of a child that has ended for good are dropped.
    assert!(a.is_closed());
    alt! {
        biased;
        ended = &mut tree => panic!("{ended:?}"),
        _ = sleep(Duration::from_secs(60)) => {}
    }
    b.send(End::Returns).await.unwrap();
    tree.await.unwrap().unwrap();
}
