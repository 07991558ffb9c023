//! Shutdown: requests, deadlines, and children that do not end.

use std::sync::mpsc;

use dunlin::Error;
use dunlin::prelude::*;
use dunlin::supervisor::{Child, ChildState, Supervised, Supervisor, SupervisorError};

use super::{Log, settle};

async fn ignore(ends: &mut (&'static str, Log), _: Supervised) -> Result {
    let _run = ends.1.run(ends.0);
    std::future::pending().await
}

async fn obey(ends: &mut (&'static str, Log), mut supervised: Supervised) -> Result {
    let _run = ends.1.run(ends.0);
    supervised.requested().await;
    // It stays requested.
    supervised.requested().await;
    ends.1.add(format!("{} requested", ends.0));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_child_that_ignores_the_request_is_cancelled_after_five_seconds() {
    let log = Log::default();
    let tree = Supervisor::one_for_one()
        .with(Child::supervised("a", ("a", log.clone()), ignore))
        .with(Child::supervised("b", ("b", log.clone()), obey))
        .spawn();
    assert!(tree.started().await);
    settle().await;
    let start = Instant::now();
    tree.shutdown();
    tree.shutdown();
    tree.await.unwrap().unwrap();
    assert_eq!(log.take(), "a+ b+ b requested b- a-");
    assert_eq!(start.elapsed().as_secs(), 5);
}

#[tokio::test(start_paused = true)]
async fn added_children_stop_at_once_and_before_the_others() {
    let log = Log::default();
    let tree = Supervisor::one_for_one().with(Child::supervised("a", ("a", log.clone()), obey)).spawn();
    for _ in 0..10 {
        tree.add_child(Child::supervised("x", ("x", log.clone()), ignore)).await.unwrap();
    }
    settle().await;
    log.take();
    let start = Instant::now();
    tree.shutdown();
    tree.await.unwrap().unwrap();
    assert_eq!(log.take(), ["x-"; 10].join(" ") + " a requested a-");
    assert_eq!(start.elapsed().as_secs(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_supervisor_as_a_child_has_no_deadline_to_shut_down() {
    let log = Log::default();
    let slow = |name| Child::supervised(name, (name, log.clone()), ignore).shutdown_within(Duration::from_secs(30));
    let inner = Supervisor::one_for_one().with(slow("a")).with(slow("b"));
    let tree = Supervisor::one_for_one().with(Child::supervisor("inner", inner)).spawn();
    assert!(tree.started().await);
    settle().await;
    let start = Instant::now();
    tree.shutdown();
    tree.await.unwrap().unwrap();
    assert_eq!(log.take(), "a+ b+ b- a-");
    assert_eq!(start.elapsed().as_secs(), 60);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_supervisor_cancels_its_children_and_theirs() {
    let log = Log::default();
    let inner = Supervisor::one_for_one().with(Child::supervised("b", ("b", log.clone()), ignore));
    let tree = Supervisor::one_for_one()
        .with(Child::supervised("a", ("a", log.clone()), ignore))
        .with(Child::supervisor("inner", inner))
        .spawn();
    assert!(tree.started().await);
    settle().await;
    tree.cancel();
    let control = dunlin::supervisor::Control::clone(&tree);
    assert!(tree.await.is_err());
    settle().await;
    let mut happened: Vec<_> = log.take().split(' ').map(str::to_owned).collect();
    happened.sort();
    assert_eq!(happened, ["a+", "a-", "b+", "b-"]);
    assert!(control.tree().children.iter().all(|child| child.state == ChildState::Stopped), "{control:?}");
}

/// Its drop does not end before it is told.
struct Stubborn(mpsc::Receiver<()>);

impl Drop for Stubborn {
    fn drop(&mut self) {
        let _ = self.0.recv();
    }
}

async fn stubborn(ends: &mut (Receiver<Stubborn>, Sender<()>)) -> Result {
    let _stubborn = ends.0.recv().await?;
    ends.1.send(()).await?;
    std::future::pending().await
}

async fn fragile(ends: &mut (Receiver<()>, Sender<()>)) -> Result {
    ends.1.send(()).await?;
    ends.0.recv().await?;
    Err(Error::other("told to"))
}

/// A blocked drop needs threads, and so real time: the deadlines are as short as they can be.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_child_whose_clean_up_does_not_end_is_named_and_has_no_successor() {
    let ((mut guards, guarded), (out, mut running)) = (channel(), channel());
    let ((mut die, dies), (begins, mut begun)) = (channel(), channel());
    let short = Duration::from_millis(1);
    let tree = Supervisor::one_for_all()
        .child("fragile", (dies, begins), fragile)
        .with(Child::new("stubborn", (guarded, out), stubborn).shutdown_within(short))
        .spawn();
    let (mut release, guard) = {
        let (release, released) = mpsc::channel();
        (Some(release), Stubborn(released))
    };
    guards.send(guard).await.unwrap_or_else(|_| panic!("not taken"));
    running.recv().await.unwrap();
    begun.recv().await.unwrap();
    die.send(()).await.unwrap();
    // The other child starts again, twice.
    begun.recv().await.unwrap();
    die.send(()).await.unwrap();
    begun.recv().await.unwrap();
    let listed = tree.tree();
    assert_eq!(listed.children[1].state, ChildState::Stuck, "{listed}");
    assert_eq!(listed.children[1].restarts, 0, "{listed}");
    assert!(listed.to_string().contains("stubborn"), "{listed}");
    // It counts as a death: two of "fragile" and its own are three.
    release.take();
    let (release, released) = mpsc::channel();
    guards.send(Stubborn(released)).await.unwrap_or_else(|_| panic!("not taken"));
    running.recv().await.unwrap();
    die.send(()).await.unwrap();
    let ended = tree.await.unwrap();
    let Err(Error::Supervisor(SupervisorError::TooManyDeaths(ended))) = ended else {
        panic!("{ended:?}");
    };
    let dunlin::supervisor::TooManyDeaths { deaths, still_running, .. } = *ended;
    assert_eq!((deaths, still_running.iter().map(|name| &**name).collect::<Vec<_>>()), (4, vec!["stubborn"]));
    drop(release);
}
