//! How many deaths a supervisor bears.

use dunlin::prelude::*;
use dunlin::supervisor::{ChildEnd, Supervisor, SupervisorError};
use dunlin::{Error, ExitReason};

/// Dies when it is told to.
async fn fragile(orders: &mut Receiver<()>) -> Result {
    orders.recv().await?;
    Err(Error::other("told to"))
}

async fn die_each(millis: u64, times: u64) -> (u64, Result<Result, dunlin::Exit>) {
    let (mut tx, rx) = channel();
    let tree = Supervisor::one_for_one().child("fragile", rx, fragile).spawn();
    let down = dunlin::monitor(tree.pid());
    for n in 0..times {
        if tx.send(()).await.is_err() {
            // Others see that it did not end in order.
            assert!(matches!(down.await.reason, ExitReason::Error(text) if text.contains("fragile")));
            return (n, tree.await);
        }
        sleep(Duration::from_millis(millis)).await;
    }
    tree.shutdown();
    (times, tree.await)
}

#[tokio::test(start_paused = true)]
async fn four_deaths_in_4_9_seconds_stop_a_supervisor_with_the_cause() {
    let (deaths, ended) = die_each(4_900 / 3, 10).await;
    assert_eq!(deaths, 4);
    let Ok(Err(Error::Supervisor(SupervisorError::TooManyDeaths(ended)))) = ended else {
        panic!("{ended:?}");
    };
    let dunlin::supervisor::TooManyDeaths { child, end, deaths, still_running, .. } = *ended;
    assert_eq!((&*child, deaths, still_running.len()), ("fragile", 4, 0));
    let ChildEnd::Exited(exit) = end else { panic!("{end:?}") };
    assert_eq!(exit.reason, ExitReason::Error("told to".into()));
}

#[tokio::test(start_paused = true)]
async fn a_death_each_1_7_seconds_for_an_hour_stops_no_supervisor() {
    let (deaths, ended) = die_each(1_700, 3_600_000 / 1_700).await;
    assert_eq!(deaths, 2_117);
    ended.unwrap().unwrap();
}

/// Dies at once, as often as is left.
async fn short_lived(ends: &mut (u32, Receiver<()>)) -> Result {
    if ends.0 > 0 {
        ends.0 -= 1;
        return Err(Error::other("at once"));
    }
    Ok(ends.1.recv().await?)
}

#[tokio::test(start_paused = true)]
async fn a_child_that_dies_at_once_ten_thousand_times_is_restarted_as_often() {
    let (mut tx, rx) = channel();
    let tree = Supervisor::one_for_one()
        .limit(10_000, Duration::from_secs(3_600))
        .child("short-lived", (10_000, rx), short_lived)
        .spawn();
    tx.send(()).await.unwrap();
    tree.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_limit_holds_for_a_child_that_dies_at_once() {
    let (mut tx, rx) = channel();
    let tree = Supervisor::one_for_one()
        .limit(9_999, Duration::from_secs(3_600))
        .child("short-lived", (10_000, rx), short_lived)
        .spawn();
    assert!(tx.send(()).await.unwrap_err().is_closed());
    assert!(
        matches!(tree.await, Ok(Err(Error::Supervisor(SupervisorError::TooManyDeaths(deaths)))) if deaths.deaths == 10_000)
    );
}

#[tokio::test(start_paused = true)]
async fn a_child_starts_again_after_its_back_off() {
    let (mut tx, rx) = channel();
    let start = Instant::now();
    let tree = Supervisor::one_for_one()
        .limit(10, Duration::from_secs(60))
        .back_off(Duration::from_millis(100), Duration::from_millis(300))
        .child("short-lived", (4, rx), short_lived)
        .spawn();
    tx.send(()).await.unwrap();
    // 100, 200, 300 and 300 ms; each timer rounds up by a millisecond at most.
    let waited = start.elapsed().as_millis();
    assert!((900..905).contains(&waited), "{waited}");
    tree.await.unwrap().unwrap();
}
