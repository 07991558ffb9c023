//! Fairness between branches of a choice, and between tasks of a runtime, even when all are ready.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;

use dunlin::prelude::*;
use dunlin::{Instant, sleep_until};

/// A timer, a process and a blocking call that have ended stand beside a receive that is always ready, each
/// at every place.
#[test]
fn fair_choice_shares_turns_among_timers_exits_calls_and_receives() {
    const CHOICES: usize = 100_000;
    dunlin::block_on(async {
        let (mut rx, mut turns, mut places, mut waited) = (ended(), [0; 4], [0; 4], 0);
        let (mut process, mut call) = (spawn(async {}), blocking(|_| ()));
        for round in 0..CHOICES {
            while !process.is_finished() || !call.is_finished() {
                tokio::task::yield_now().await;
            }
            let (mut exit, mut returned, mut receive) = (Some(&mut process), Some(&mut call), Some(rx.recv()));
            let mut choice = Choice::fair();
            for place in 0..4 {
                choice = match (round + place) % 4 {
                    0 => choice.on(exit.take().expect("once"), |exit| exit.map_or(4, |()| 0)),
                    1 => choice.on(returned.take().expect("once"), |returned| returned.map_or(4, |()| 1)),
                    2 => choice.on(receive.take().expect("once"), |_| 2),
                    _ => choice.on(sleep(Duration::ZERO), |()| 3),
                };
            }
            let (place, chosen) = choice.await;
            match chosen {
                0 => process = spawn(async {}),
                1 => call = blocking(|_| ()),
                _ => {}
            }
            turns[chosen] += 1;
            places[place] += 1;
            waited = if chosen == 2 { 0 } else { waited + 1 };
            assert!(waited < 5, "the receive was not chosen in {waited} choices of 4 branches");
        }
        let share = CHOICES / 4;
        let is_shared = |turns: [usize; 4]| turns.iter().all(|turns| share / 2 <= *turns && *turns <= 2 * share);
        assert!(is_shared(turns) && is_shared(places), "{turns:?}, by place {places:?}");
    });
}

const ROUNDS: usize = 100_000;

/// A receiver that is always ready.
fn ended() -> Receiver<u8> {
    channel().1
}

#[test]
fn timers_fire_beside_a_receive_that_is_always_ready() {
    dunlin::block_on(async {
        let (past, mut rx, mut timers) = (Instant::now(), ended(), 0);
        for _ in 0..ROUNDS {
            alt! { biased; () = sleep_until(past) => timers += 1, _ = rx.recv() => {} }
        }
        assert_eq!(timers, ROUNDS);
    });
}

#[test]
fn deadlines_pass_beside_a_receive_that_is_always_ready() {
    dunlin::block_on(async {
        let ((_tx, mut silent), mut rx, mut passed) = (channel::<u8>(), ended(), 0);
        for _ in 0..ROUNDS / 2 {
            let deadline = Instant::now();
            alt! { biased; r = silent.recv().by(deadline) => assert_eq!(r, Err(RecvError::TimedOut)), _ = rx.recv() => continue }
            alt! { biased; r = silent.recv().within(Duration::ZERO) => assert_eq!(r, Err(RecvError::TimedOut)), _ = rx.recv() => continue }
            passed += 2;
        }
        assert_eq!(passed, ROUNDS);
    });
}

#[test]
fn biased_choice_prefers_exits_and_futures_before_a_ready_receive() {
    dunlin::block_on(async {
        let (mut rx, (tokio_tx, mut tokio_rx)) = (ended(), tokio::sync::mpsc::unbounded_channel());
        for round in 0..2_000 {
            let (mut process, mut call) = (spawn(async {}), blocking(|_| ()));
            while !process.is_finished() || !call.is_finished() {
                tokio::task::yield_now().await;
            }
            // Among several ready operations the choice takes a different one each time.
            for _ in 0..round {
                tokio_tx.send(round).unwrap();
            }
            for _ in 0..round {
                alt! { biased; got = future(tokio_rx.recv()) => assert_eq!(got, Some(round)), _ = rx.recv() => panic!("in round {round}") }
            }
            alt! { biased; exit = &mut process => exit.unwrap(), _ = rx.recv() => panic!("in round {round}") }
            alt! { biased; returned = &mut call => returned.unwrap(), _ = rx.recv() => panic!("in round {round}") }
        }
    });
}

#[test]
fn a_spent_budget_takes_no_lower_branch_and_ends_no_operation() {
    dunlin::block_on(async {
        let ((mut tx, mut rx), mut lower) = (channel_with(unbounded()), ended());
        for n in 0..5_000 {
            tx.send(n).await.unwrap();
        }
        for n in 0..1_000 {
            alt! { biased; v = rx.recv() => assert_eq!(v, Ok(5 * n)), skip => panic!("skipped {n}") }
            alt! { biased; v = rx.recv() => assert_eq!(v, Ok(5 * n + 1)), _ = lower.recv() => panic!("passed over {n}") }
            alt! { biased; v = future(rx.recv()) => assert_eq!(v, Ok(5 * n + 2)), skip => panic!("skipped {n}") }
            assert_eq!(rx.recv().within(Duration::ZERO).await, Ok(5 * n + 3));
            assert_eq!(rx.try_recv(), Ok(5 * n + 4));
        }
    });
}

/// Operations that never wait are exempt from the budget.
#[test]
fn a_spent_budget_refuses_no_operation_that_never_waits() {
    use futures_util::FutureExt;
    dunlin::block_on(async {
        let ((mut tx, mut rx), mut busy) = (channel_with(unbounded()), ended());
        let mut shared = ended().share();
        for n in 0..1_000 {
            let done = (0..ROUNDS).take_while(|_| busy.recv().now_or_never().is_some()).count();
            assert!(done <= 128, "{done} operations were ready in round {n}");
            assert_eq!(tx.try_send(n), Ok(()));
            assert_eq!(rx.try_recv(), Ok(n));
            assert!(shared.try_claim().is_ok());
            tokio::task::yield_now().await;
        }
    });
}

/// Dropped operations that the budget had refused neither lose nor duplicate their values.
#[test]
fn a_dropped_operation_that_was_refused_has_done_nothing() {
    dunlin::block_on(async {
        let (mut tx, mut rx) = channel_with(unbounded());
        let (mut sent, mut received) = (0_u32, 0);
        for _ in 0..10_000 {
            let mut slot = Some(sent);
            if futures_util::FutureExt::now_or_never(tx.send_from(&mut slot)).is_some() {
                sent += 1;
            } else {
                assert_eq!(slot, Some(sent));
            }
            match futures_util::FutureExt::now_or_never(rx.recv()) {
                Some(value) => {
                    assert_eq!(value, Ok(received));
                    received += 1;
                }
                None => assert!(rx.len() <= 64),
            }
        }
        while let Ok(value) = rx.try_recv() {
            assert_eq!(value, received);
            received += 1;
        }
        assert_eq!(sent, received);
        assert!(sent > 5_000, "{sent}");
    });
}

/// The most operations of a task between two polls of another task, on one thread. `hog` counts them.
fn operations_between_polls<F>(hog: impl FnOnce(Arc<AtomicUsize>) -> F) -> usize
where
    F: Future<Output = ()> + Send + 'static,
{
    // A program that uses only channels of dunlin yields too, but to other tasks less often: tokio polls 61
    // woken tasks before it polls those that yielded.
    dunlin::start_clock();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let operations = Arc::new(AtomicUsize::new(0));
        let hog = tokio::spawn(hog(operations.clone()));
        let (mut most, mut before) = (0, 0);
        while !hog.is_finished() {
            tokio::task::yield_now().await;
            let now = operations.load(Ordering::Relaxed);
            most = most.max(now - before);
            before = now;
        }
        hog.await.unwrap();
        assert!(before >= ROUNDS, "{before}");
        most
    })
}

fn count(operations: &AtomicUsize) -> bool {
    operations.fetch_add(1, Ordering::Relaxed) < ROUNDS
}

async fn send_and_receive(operations: Arc<AtomicUsize>) {
    let (mut tx, mut rx) = channel_with(fifo(1));
    while count(&operations) {
        tx.send(1).await.unwrap();
        count(&operations);
        rx.recv().await.unwrap();
    }
}

/// Twice the budget: the operations before a refusal and after it.
const FEW: usize = 256;

#[test]
fn a_task_of_ready_operations_gives_way() {
    let most = operations_between_polls(send_and_receive);
    assert!(most <= FEW, "{most}");
}

/// Without a budget the deadline was two seconds late: it came when the task had finished.
#[test]
fn a_deadline_is_met_beside_a_task_of_ready_operations() {
    const LATE_MAX: Duration = Duration::from_millis(300);
    const WAITED: Duration = Duration::from_millis(30);
    dunlin::start_clock();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (_tx, mut silent) = channel::<u8>();
        // Beside other programs the thread may wait for a processor, so the least of several times counts.
        let mut least = [Duration::MAX; 3];
        for _ in 0..5 {
            let is_over = Arc::new(AtomicBool::new(false));
            let over = is_over.clone();
            let hog = tokio::spawn(async move {
                let (mut tx, mut rx) = channel_with(fifo(1));
                let began = Instant::now();
                while !over.load(Ordering::Relaxed) && began.elapsed() < Duration::from_secs(2) {
                    tx.send(1).await.unwrap();
                    rx.recv().await.unwrap();
                }
            });
            let mut began = Instant::now();
            // The other task begins before the first timer exists.
            tokio::task::yield_now().await;
            let mut took = |wait: usize| {
                least[wait] = least[wait].min(began.elapsed());
                began = Instant::now();
            };
            tokio::time::sleep(WAITED).await;
            took(0);
            sleep(WAITED).await;
            took(1);
            assert_eq!(silent.recv().within(WAITED).await, Err(RecvError::TimedOut));
            took(2);
            is_over.store(true, Ordering::Relaxed);
            hog.await.unwrap();
            if least.iter().all(|least| *least < LATE_MAX) {
                break;
            }
        }
        assert!(least.iter().all(|least| (WAITED..LATE_MAX).contains(least)), "{least:?}");
    });
}

#[test]
fn a_process_of_ready_operations_gives_way() {
    let most = operations_between_polls(|operations| async move { spawn(send_and_receive(operations)).await.unwrap() });
    assert!(most <= FEW, "{most}");
}

#[test]
fn a_par_of_ready_operations_gives_way_to_its_runtime() {
    let most = operations_between_polls(|operations| async move {
        par!(send_and_receive(operations.clone()), send_and_receive(operations));
    });
    // The polls that it may do, and their operations.
    assert!(most <= 2048 + FEW, "{most}");
}

#[test]
fn par_runs_siblings_of_ready_operations() {
    let operations = Arc::new(AtomicUsize::new(0));
    let (mut most, mut before) = (0, 0);
    dunlin::block_on(async {
        par!(send_and_receive(operations.clone()), async {
            while operations.load(Ordering::Relaxed) < ROUNDS {
                let now = operations.load(Ordering::Relaxed);
                most = most.max(now - before);
                before = now;
                let mut yielded = false;
                std::future::poll_fn(|cx| {
                    cx.waker().wake_by_ref();
                    if std::mem::replace(&mut yielded, true) { Poll::Ready(()) } else { Poll::Pending }
                })
                .await;
            }
        });
    });
    assert!(most <= FEW, "{most}");
}

#[test]
fn a_foreign_select_of_ready_operations_gives_way() {
    let most = operations_between_polls(|operations| async move {
        let (mut a, mut b) = (ended(), ended());
        while count(&operations) {
            tokio::select! { biased; _ = a.recv() => {} _ = b.recv() => {} }
        }
    });
    assert!(most <= FEW, "{most}");
}

#[test]
fn choices_that_skip_and_sends_without_a_receiver_give_way() {
    let most = operations_between_polls(|operations| async move {
        let ((_tx, mut rx), (mut ty, _ry)) = (channel::<u8>(), channel());
        while count(&operations) {
            alt! { biased; _ = rx.recv() => {}, skip => {} }
            let sent = ty.send(1_u8).within(Duration::ZERO).await;
            assert!(sent.is_err());
        }
    });
    assert!(most <= FEW, "{most}");
}

#[test]
fn streams_sinks_claims_and_barriers_give_way() {
    use futures_util::{SinkExt, StreamExt};
    let most = operations_between_polls(|operations| async move {
        let (tx, mut rx) = channel_with(unbounded());
        let mut sink = tx.into_sink();
        while count(&operations) {
            sink.send(1).await.unwrap();
            StreamExt::next(&mut rx).await.unwrap().unwrap();
        }
    });
    assert!(most <= FEW, "{most}");
    let most = operations_between_polls(|operations| async move {
        let (mut barrier, mut shared) = (barrier(), ended().share());
        while count(&operations) {
            barrier.sync().await.unwrap();
            drop(shared.claim().await.unwrap());
        }
    });
    assert!(most <= FEW, "{most}");
}

/// This many sends in a row have to reach the receiver, or as many as `DUNLIN_IN_A_ROW` sets, without an
/// earlier miss. Without turns 0.62 and 0.73 of them did; beside other programs some do not, since a turn is
/// bounded by time and the receiver's thread may wait longer for a processor.
const REACHED_IN_A_ROW: usize = 100;
const TRIES_MAX: usize = 20_000;

/// Counts sends that reached their receiver in a row.
struct Tries {
    in_a_row_min: usize,
    all_max: usize,
    all: usize,
    reached: usize,
    in_a_row: usize,
}

impl Tries {
    fn new() -> Self {
        let wanted = std::env::var("DUNLIN_IN_A_ROW").ok().map(|wanted| wanted.parse().expect("it is a number"));
        let in_a_row_min = wanted.unwrap_or(REACHED_IN_A_ROW);
        Self { in_a_row_min, all_max: wanted.unwrap_or(TRIES_MAX), all: 0, reached: 0, in_a_row: 0 }
    }

    /// Whether another send is needed.
    fn go_on(&self) -> bool {
        self.in_a_row < self.in_a_row_min && self.all < self.all_max
    }

    fn add(&mut self, reached: bool) {
        self.all += 1;
        self.reached += usize::from(reached);
        self.in_a_row = if reached { self.in_a_row + 1 } else { 0 };
    }

    fn check(&self) {
        println!("{} of {} sends reached the receiver", self.reached, self.all);
        assert_eq!(self.in_a_row, self.in_a_row_min, "in all {} of {}", self.reached, self.all);
    }
}

/// Returns when a receive waits on the channel.
async fn parked(channel: dunlin::waits::ChannelId) {
    let waits =
        |wait: &dunlin::waits::Wait| wait.channel == Some(channel) && wait.doing == dunlin::waits::Doing::Receive;
    while !dunlin::waits::snapshot().iter().any(waits) {
        tokio::task::yield_now().await;
    }
}

#[test]
fn send_with_zero_deadline_reaches_receiver_parked_on_another_worker() {
    dunlin::block_on(async {
        let (mut tx, mut rx) = channel();
        let receiver = spawn(async move { while rx.recv().await.is_ok() {} });
        let mut tries = Tries::new();
        while tries.go_on() {
            parked(tx.id()).await;
            tries.add(tx.send(tries.all).within(Duration::ZERO).await.is_ok());
        }
        drop(tx);
        receiver.await.unwrap();
        tries.check();
    });
}

#[test]
fn send_before_skip_reaches_receiver_parked_on_another_worker() {
    dunlin::block_on(async {
        let (mut tx, mut rx) = channel();
        let receiver = spawn(async move { while rx.recv().await.is_ok() {} });
        let mut tries = Tries::new();
        while tries.go_on() {
            parked(tx.id()).await;
            let mut slot = Some(tries.all);
            tries.add(alt! { biased; sent = tx.send_from(&mut slot) => sent.is_ok(), skip => false });
        }
        drop(tx);
        receiver.await.unwrap();
        tries.check();
    });
}

#[test]
fn a_turn_ends_in_time_though_the_receiver_is_woken_and_not_polled() {
    dunlin::block_on(async {
        let noop = &mut std::task::Context::from_waker(std::task::Waker::noop());
        let mut least = Duration::MAX;
        for n in 0..20 {
            let (mut tx, mut rx) = channel();
            let mut receiving = std::pin::pin!(rx.recv());
            assert!(receiving.as_mut().poll(noop).is_pending());
            let began = Instant::now();
            assert!(tx.send(n).within(Duration::ZERO).await.is_err());
            least = least.min(began.elapsed());
        }
        assert!((Duration::from_millis(1)..=Duration::from_millis(5)).contains(&least), "{least:?}");
    });
}

/// The panic ended the thread that ends turns, so the next turn lasted for ever.
#[test]
fn panicking_waker_at_the_end_of_a_turn_lets_later_turns_end() {
    struct Panics(tokio::sync::Notify);
    impl std::task::Wake for Panics {
        fn wake(self: Arc<Self>) {
            self.0.notify_one();
            panic!("this waker panics");
        }
    }
    dunlin::block_on(async {
        let noop = &mut std::task::Context::from_waker(std::task::Waker::noop());
        for _ in 0..3 {
            let ((mut tx, mut rx), panics) = (channel(), Arc::new(Panics(tokio::sync::Notify::new())));
            let mut receiving = std::pin::pin!(rx.recv());
            assert!(receiving.as_mut().poll(noop).is_pending());
            let mut sending = std::pin::pin!(tx.send(1).within(Duration::ZERO));
            assert!(sending.as_mut().poll(&mut std::task::Context::from_waker(&panics.clone().into())).is_pending());
            let panicked = tokio::time::timeout(Duration::from_secs(5), panics.0.notified());
            panicked.await.expect("the turn ends");
            let sent = tokio::time::timeout(Duration::from_secs(5), sending).await.expect("the turn ends");
            assert!(sent.is_err());
        }
    });
}
