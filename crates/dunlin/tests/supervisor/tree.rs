//! Nested supervisors, children that are added, and the listing.

use dunlin::Error;
use dunlin::prelude::*;
use dunlin::supervisor::{AddError, Child, ChildState, Control, Supervised, Supervisor, SupervisorError};

use super::settle;

async fn serve(orders: &mut Receiver<()>, mut supervised: Supervised) -> Result {
    alt! {
        order = orders.recv() => { order?; Err(Error::other("told to")) }
        _ = supervised.requested() => Ok(()),
    }
}

#[tokio::test(start_paused = true)]
async fn tree_lists_children_and_theirs_for_people() {
    let ((mut die, a), (_b, b)) = (channel(), channel());
    let inner = Supervisor::one_for_one().with(Child::supervised("worker", a, serve));
    let tree = Supervisor::one_for_one()
        .with(Child::supervisor("inner", inner))
        .with(Child::supervised("logger", b, serve))
        .spawn();
    assert!(tree.started().await);
    die.send(()).await.unwrap();
    settle().await;
    let listed = tree.tree();
    let pid = |child: &dunlin::supervisor::TreeChild| child.pid.unwrap();
    let worker = &listed.children[0].children.as_ref().unwrap().children[0];
    let expected = format!(
        "inner ({}): running\n  worker ({}): running, restarted once\nlogger ({}): running\n",
        pid(&listed.children[0]),
        pid(worker),
        pid(&listed.children[1]),
    );
    assert_eq!(listed.to_string(), expected);
    tree.shutdown();
    tree.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_supervisor_that_gives_up_is_restarted_with_its_children_by_the_one_above() {
    let (mut die, orders) = channel();
    let inner = Supervisor::one_for_one().limit(0, Duration::from_secs(5)).with(Child::supervised("a", orders, serve));
    let inside = inner.control();
    let tree = Supervisor::one_for_one().with(Child::supervisor("inner", inner)).spawn();
    assert!(tree.started().await);
    for restarts in 1..=3 {
        die.send(()).await.unwrap();
        settle().await;
        assert_eq!(tree.tree().children[0].restarts, restarts);
        assert!(inside.started().await);
        assert_eq!(inside.tree().children[0].state, ChildState::Running);
    }
    die.send(()).await.unwrap();
    let ended = tree.await.unwrap();
    let Err(Error::Supervisor(SupervisorError::TooManyDeaths(ended))) = ended else {
        panic!("{ended:?}");
    };
    let dunlin::supervisor::TooManyDeaths { child, end, .. } = *ended;
    assert_eq!(&*child, "inner");
    // The cause of the cause.
    assert!(end.to_string().contains("the last, a, failed: told to"), "{end}");
}

#[tokio::test(start_paused = true)]
async fn children_are_added_restarted_and_removed_while_the_supervisor_runs() {
    let tree = Supervisor::one_for_one().spawn();
    let (mut die, orders) = channel();
    let added = tree.add_child(Child::supervised("x", orders, serve)).await.unwrap();
    die.send(()).await.unwrap();
    settle().await;
    assert_eq!(tree.tree().children[0].restarts, 1);
    assert!(tree.remove_child(added).await);
    assert!(tree.tree().children.is_empty());
    assert!(!tree.remove_child(added).await);
    assert!(die.is_closed());
    // A supervisor without a specification waits for others.
    let (_die, orders) = channel();
    tree.add_child(Child::supervised("y", orders, serve)).await.unwrap();
    tree.shutdown();
    tree.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_child_that_ends_before_it_is_ready_was_not_started() {
    let tree = Supervisor::one_for_one().spawn();
    let (mut die, orders) = channel();
    let child = Child::supervised("x", orders, serve).temporary().start_within(Duration::from_secs(5));
    let (added, sent) = par!(tree.add_child(child), die.send(()));
    sent.unwrap();
    assert!(matches!(added, Err(AddError::NotStarted(name)) if &*name == "x"));
    tree.shutdown();
    tree.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_supervisor_that_has_ended_gives_the_child_back() {
    let tree = Supervisor::one_for_one().spawn();
    let control = Control::clone(&tree);
    tree.shutdown();
    tree.await.unwrap().unwrap();
    let (mut tx, orders) = channel();
    let Err(AddError::NotAdded(child)) = control.add_child(Child::supervised("x", orders, serve)).await else {
        panic!("added");
    };
    assert!(!tx.is_closed());
    drop(child);
    assert!(tx.send(()).await.unwrap_err().is_closed());
    assert!(!control.started().await);
}

#[tokio::test(start_paused = true)]
async fn an_added_child_that_has_ended_is_forgotten() {
    let tree = Supervisor::one_for_one().spawn();
    let (tx, orders) = channel();
    tree.add_child(Child::supervised("x", orders, serve).temporary()).await.unwrap();
    drop(tx);
    settle().await;
    assert!(tree.tree().children.is_empty());
    tree.shutdown();
    tree.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn children_that_obeyed_a_request_to_shut_down_start_again_with_their_supervisor() {
    let ((mut die, a), (mut tx, b)) = (channel(), channel());
    let inner = Supervisor::one_for_one().with(Child::supervised("b", b, serve));
    let tree = Supervisor::one_for_all()
        .with(Child::supervised("a", a, serve))
        .with(Child::supervisor("inner", inner))
        .spawn();
    assert!(tree.started().await);
    die.send(()).await.unwrap();
    settle().await;
    let listed = tree.tree();
    let inner = &listed.children[1];
    assert_eq!((&inner.state, inner.restarts), (&ChildState::Running, 1), "{listed}");
    let b = &inner.children.as_ref().unwrap().children[0];
    assert_eq!((&b.state, b.restarts), (&ChildState::Running, 1), "{listed}");
    tx.send(()).await.unwrap();
    tree.shutdown();
    tree.await.unwrap().unwrap();
}
