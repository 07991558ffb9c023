//! Deadlines by the clock, under tokio's paused one: nothing here takes real time.

use dunlin::prelude::*;
use dunlin::{Instant, RecvError, SyncError};

const LONG: Duration = Duration::from_secs(3600);

fn now() -> Instant {
    Instant::now()
}

#[tokio::test(start_paused = true)]
async fn timed_out_send_returns_its_value() {
    let (mut tx, _rx) = channel();
    let began = now();
    let result = tx.send("krill").within(LONG).await;
    assert_eq!(result, Err(SendError::NotTaken { value: "krill", why: Why::TimedOut }));
    assert!(now() - began >= LONG && now() - began < LONG + Duration::from_millis(5));
}

#[tokio::test(start_paused = true)]
async fn deadline_by_is_a_point_in_time() {
    let (mut tx, mut rx) = channel::<u8>();
    let when = now() + LONG;
    assert_eq!(rx.recv().by(when).await, Err(RecvError::TimedOut));
    assert!(now() >= when);
    assert!(tx.send(1).by(when).await.unwrap_err().is_timed_out(), "it has passed");
}

#[tokio::test(start_paused = true)]
async fn operations_within_their_deadline_succeed() {
    let (mut tx, mut rx) = channel();
    let (sent, got) = par!(tx.send(1).within(LONG), async {
        sleep(LONG / 2).await;
        rx.recv().within(LONG).await
    });
    assert_eq!((sent, got), (Ok(()), Ok(1)));
}

#[tokio::test(start_paused = true)]
async fn send_to_an_extended_receive_meets_its_deadline() {
    let (mut tx, mut rx) = channel();
    let (sent, ()) = par!(tx.send(1).within(Duration::from_secs(1)), async {
        let guard = rx.recv_extended().await.unwrap();
        sleep(LONG).await;
        drop(guard);
    });
    assert_eq!(sent, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn send_with_zero_deadline_succeeds_if_receiver_waits() {
    let (mut tx, mut rx) = channel();
    // The other deadline only limits the wait of a failing test.
    let (got, sent) = par!(rx.recv().within(LONG), tx.send(1).within(Duration::ZERO));
    assert_eq!((got, sent), (Ok(1), Ok(())));
    assert!(tx.send(2).within(Duration::ZERO).await.unwrap_err().is_timed_out());
}

#[tokio::test(start_paused = true)]
async fn sleep_is_a_branch() {
    let (_tx, mut rx) = channel::<u8>();
    let began = now();
    let quiet = alt! {
        value = rx.recv() => panic!("{value:?}"),
        () = sleep(LONG) => true,
    };
    assert!(quiet && now() - began >= LONG);
}

#[tokio::test(start_paused = true)]
async fn a_pinned_operation_is_a_branch_and_outlives_its_choice() {
    let (mut tx, mut rx) = channel::<u8>();
    let mut patience = std::pin::pin!(sleep_until(now() + LONG));
    let began = now();
    let mut received = 0;
    let sender = spawn(async move {
        for value in 0..3 {
            sleep(LONG / 5).await;
            tx.send(value).await.unwrap();
        }
        tx
    });
    loop {
        alt! {
            value = rx.recv() => {
                value.unwrap();
                received += 1;
            }
            () = patience.as_mut() => break,
        }
    }
    let _tx = sender.await.unwrap();
    assert_eq!(received, 3);
    assert!(now() - began >= LONG && now() - began < LONG + Duration::from_millis(5));
    // And a borrow of an `Unpin` future.
    let mut boxed = Box::pin(sleep(LONG));
    alt! {
        () = &mut boxed => {}
        value = rx.recv() => panic!("{value:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_timer_that_is_reset_counts_anew() {
    let (mut tx, mut rx) = channel::<u8>();
    let sender = spawn(async move {
        for value in 0..10 {
            sleep(LONG / 2).await;
            tx.send(value).await.unwrap();
        }
        tx
    });
    let began = now();
    let mut silence = Timer::after(LONG);
    let mut received = 0;
    loop {
        alt! {
            value = rx.recv() => {
                received += u32::from(value.is_ok());
                silence.reset(LONG);
            }
            () = &mut silence => break,
        }
    }
    assert_eq!(received, 10);
    let waited = now() - began;
    assert!(waited >= 6 * LONG && waited < 6 * LONG + Duration::from_millis(50), "{waited:?}");
    // It stays ready until it is reset.
    (&mut silence).await;
    silence.reset_at(now() + LONG);
    let again = now();
    (&mut silence).await;
    assert!(now() - again >= LONG && now() - again < LONG + Duration::from_millis(5));
    drop(sender);
}

#[tokio::test(start_paused = true)]
async fn interval_keeps_its_rhythm_and_skips_late_ticks() {
    let (_tx, mut rx) = channel::<u8>();
    let began = now();
    let mut every = interval(LONG);
    every.tick().await;
    assert!(now() - began < Duration::from_millis(5), "the first tick is at once");
    for n in 1..4 {
        alt! {
            value = rx.recv() => panic!("{value:?}"),
            () = &mut every => {}
        }
        let at = now() - began;
        assert!(at >= n * LONG && at < n * LONG + Duration::from_millis(5), "{n}: {at:?}");
    }
    sleep(LONG * 5 / 2).await;
    for n in [5, 6, 7] {
        // The late tick is taken once, and those between are skipped.
        let due = alt! { () = every.tick() => true, skip => false };
        assert_eq!(due, n == 5);
        if !due {
            every.tick().await;
        }
        let at = now() - began;
        let late = if due { LONG / 2 } else { Duration::ZERO };
        assert!(at >= n * LONG + late && at < n * LONG + late + Duration::from_millis(20), "{n}: {at:?}");
    }
    every.reset();
    let reset = now();
    every.tick().await;
    assert!(now() - reset >= LONG, "a period after the reset");
}

#[tokio::test(start_paused = true)]
async fn a_branch_can_have_a_deadline() {
    let ((mut tx, _rx), (_ty, mut ry)) = (channel(), channel::<u8>());
    let mut slot = Some("krill".to_string());
    let timed_out = alt! {
        sent = tx.send_from(&mut slot).within(LONG) => sent.unwrap_err().is_timed_out(),
        value = ry.recv().within(LONG * 2) => panic!("{value:?}"),
    };
    assert!(timed_out);
    assert_eq!(slot.as_deref(), Some("krill"));
}

#[tokio::test(start_paused = true)]
async fn claims_and_calls_have_deadlines() {
    let (tx, _rx) = channel::<u8>();
    let mut a = tx.share();
    let mut b = a.clone();
    let held = a.claim().await.unwrap();
    assert_eq!(b.claim().within(LONG).await.unwrap_err(), ClaimError::TimedOut);
    drop(held);
    drop(b.claim().within(LONG).await.unwrap());
    let (mut caller, mut callee) = call::<u8, u8>();
    assert_eq!(caller.call(1).within(LONG).await, Err(CallError::NotTaken { request: 1, why: Why::TimedOut }));
    let (reply, request) = par!(caller.call(2).within(LONG), callee.accept());
    assert_eq!(reply, Err(CallError::NoReply(RecvError::TimedOut)));
    assert_eq!(request.unwrap().reply(3), Err(3));
}

#[tokio::test(start_paused = true)]
async fn barriers_broadcasts_and_posts_have_deadlines() {
    let mut phase = barrier();
    let mut other = phase.enrol();
    let began = now();
    assert_eq!(phase.sync().within(LONG).await, Err(SyncError::TimedOut));
    assert!(now() - began >= LONG && now() - began < LONG + Duration::from_millis(5));
    let chosen = alt! {
        synced = phase.sync().within(LONG) => synced,
        () = sleep(LONG * 2) => panic!("the deadline comes first"),
    };
    assert_eq!((chosen, phase.phases()), (Err(SyncError::TimedOut), 0));
    let (one, two) = par!(phase.sync().within(LONG), async {
        sleep(LONG / 2).await;
        other.sync().within(LONG).await
    });
    assert_eq!((one, two, phase.phases()), (Ok(()), Ok(()), 1));

    let (clock, joiner) = broadcast();
    let mut clock = clock.at_least(1);
    let began = now();
    assert!(clock.send("tick").within(LONG).await.unwrap_err().is_timed_out());
    assert!(now() - began >= LONG);
    // A value in transfer is not withdrawn.
    let mut late = joiner.join();
    let (sent, got) = par!(clock.send("tick").within(LONG), async {
        sleep(LONG * 2).await;
        late.recv().await
    });
    assert_eq!((sent, got), (Ok(()), Ok("tick")));

    let (mut tx, mut rx) = channel();
    let post = tx.send_nowait("krill");
    let began = now();
    assert_eq!(post.within(LONG).await, Err(SendError::NotTaken { value: "krill", why: Why::TimedOut }));
    assert!(now() - began >= LONG);
    let (post, second) = (tx.send_nowait("squid"), tx.send_nowait("salp"));
    assert_eq!(rx.recv().await, Ok("squid"), "the first is not offered any more");
    assert_eq!(post.within(LONG).await, Ok(()));
    assert!(second.by(now() + LONG).await.unwrap_err().is_timed_out());
}

#[tokio::test(start_paused = true)]
async fn a_fair_choice_beside_a_timer_keeps_its_turns() {
    let ((mut tx, mut rx), mut ticks) = (channel_with(unbounded()), 0);
    for n in 0..100 {
        tx.send(n).await.unwrap();
    }
    let mut got = Vec::new();
    while got.len() < 100 {
        alt! {
            value = rx.recv() => got.push(value.unwrap()),
            () = sleep(Duration::from_millis(1)) => ticks += 1,
        }
    }
    assert_eq!(got, (0..100).collect::<Vec<_>>());
    assert_eq!(ticks, 0, "a timer that has not run out is not ready");
}
