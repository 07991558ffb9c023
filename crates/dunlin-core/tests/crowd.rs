//! Many receivers parked on a shared end: how many of them a value wakes, and that no wake is lost.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use dunlin_core::{
    Policy, Receiver, RecvError, Sender, Shared, alt, channel, channel_with, fifo, rendezvous, unbounded, waits,
};

/// All tests of a program share one clock.
fn alone() -> MutexGuard<'static, ()> {
    static TIME: Mutex<()> = Mutex::new(());
    TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

fn tick() {
    waits::advance(waits::tick().wrapping_add(1));
}

/// Woken tasks that have yet to be polled, and the number of wakes.
#[derive(Default)]
struct Woken {
    queue: VecDeque<usize>,
    count: usize,
}

struct Number(usize, Arc<Mutex<Woken>>);

impl Wake for Number {
    fn wake(self: Arc<Self>) {
        let mut woken = self.1.lock().unwrap();
        woken.count += 1;
        woken.queue.push_back(self.0);
    }
}

type Task<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Polls tasks only when they are woken, in the order of the wakes.
#[derive(Default)]
struct Tasks<'a> {
    tasks: Vec<Option<Task<'a>>>,
    wakers: Vec<Waker>,
    woken: Arc<Mutex<Woken>>,
}

impl<'a> Tasks<'a> {
    /// Adds a task and polls it once.
    fn spawn(&mut self, task: impl Future<Output = ()> + 'a) -> usize {
        let number = self.tasks.len();
        self.tasks.push(Some(Box::pin(task)));
        self.wakers.push(Waker::from(Arc::new(Number(number, self.woken.clone()))));
        self.poll(number);
        number
    }

    fn poll(&mut self, number: usize) {
        dunlin_core::__rt::renew();
        let mut cx = Context::from_waker(&self.wakers[number]);
        let polled = self.tasks[number].as_mut().map(|task| task.as_mut().poll(&mut cx));
        if polled.is_some_and(|polled| polled.is_ready()) {
            self.drop(number);
        }
    }

    fn drop(&mut self, number: usize) {
        let task = self.tasks[number].take();
        drop(task);
    }

    fn next_woken(&self) -> Option<usize> {
        self.woken.lock().unwrap().queue.pop_front()
    }

    fn run(&mut self) {
        while let Some(number) = self.next_woken() {
            self.poll(number);
        }
    }

    /// The number of wakes since the last call.
    fn wakes(&self) -> usize {
        std::mem::take(&mut self.woken.lock().unwrap().count)
    }
}

type Log = Rc<RefCell<Vec<u32>>>;

/// A context whose waker does nothing. As a runtime does, it renews the budget of ready operations for each
/// poll.
fn unwoken() -> Context<'static> {
    dunlin_core::__rt::renew();
    Context::from_waker(Waker::noop())
}

async fn receive(mut rx: Shared<Receiver<u32>>, log: Log) {
    while let Ok(value) = rx.recv().await {
        log.borrow_mut().push(value);
    }
}

async fn receive_one(mut rx: Shared<Receiver<u32>>, log: Log) {
    if let Ok(value) = rx.recv().await {
        log.borrow_mut().push(value);
    }
}

fn policies() -> [Policy; 4] {
    [rendezvous(), fifo(1), fifo(100), unbounded()]
}

const RECEIVERS: u32 = if cfg!(miri) { 40 } else { 2_000 };
const VALUES: u32 = if cfg!(miri) { 10 } else { 300 };

#[test]
fn a_value_wakes_at_most_sixteen_of_the_parked_receivers() {
    let _alone = alone();
    for policy in policies() {
        let (mut tx, rx) = channel_with(policy.clone());
        let (rx, log) = (rx.share(), Log::default());
        let mut tasks = Tasks::default();
        for _ in 0..RECEIVERS {
            tasks.spawn(receive(rx.clone(), log.clone()));
        }
        drop(rx);
        for value in 0..VALUES {
            let mut send = Box::pin(tx.send(value));
            let polled = send.as_mut().poll(&mut unwoken());
            tasks.run();
            assert!(tasks.wakes() <= 16, "{policy:?}");
            assert!(polled.is_ready() || send.as_mut().poll(&mut unwoken()).is_ready());
        }
        assert_eq!(*log.borrow(), (0..VALUES).collect::<Vec<_>>(), "{policy:?}");
    }
}

#[test]
fn rendezvous_learns_to_wake_one_receiver_when_receivers_poll_soon() {
    let _alone = alone();
    let (mut tx, rx) = channel();
    let (rx, log) = (rx.share(), Log::default());
    let mut tasks = Tasks::default();
    for _ in 0..RECEIVERS {
        tasks.spawn(receive(rx.clone(), log.clone()));
    }
    drop(rx);
    let mut wakes = Vec::new();
    for value in 0..10 {
        let mut send = Box::pin(tx.send(value));
        assert!(send.as_mut().poll(&mut unwoken()).is_pending());
        tasks.run();
        wakes.push(tasks.wakes());
        assert!(send.as_mut().poll(&mut unwoken()).is_ready());
    }
    assert_eq!(wakes, [16, 8, 4, 2, 1, 1, 1, 1, 1, 1]);
    assert_eq!(*log.borrow(), (0..10).collect::<Vec<_>>());
}

#[test]
fn a_receiver_that_is_woken_and_dropped_passes_its_wake_on() {
    let _alone = alone();
    for policy in policies() {
        let (mut tx, rx) = channel_with(policy.clone());
        let (rx, log) = (rx.share(), Log::default());
        let mut tasks = Tasks::default();
        for _ in 0..100 {
            tasks.spawn(receive(rx.clone(), log.clone()));
        }
        let mut send = Box::pin(tx.send(7));
        let _ = send.as_mut().poll(&mut unwoken());
        for _ in 0..99 {
            let woken = tasks.next_woken().expect("no receiver was woken for the value");
            tasks.drop(woken);
        }
        tasks.run();
        assert_eq!(*log.borrow(), [7], "{policy:?}");
    }
}

#[test]
fn receiver_whose_choice_takes_another_branch_passes_its_wake_on() {
    let _alone = alone();
    for policy in policies() {
        let (mut tx, rx) = channel_with(policy.clone());
        let (rx, log) = (rx.share(), Log::default());
        let mut tasks = Tasks::default();
        let mut others = Vec::new();
        for _ in 0..50 {
            let (mut rx, (other, mut ry)) = (rx.clone(), channel_with::<u32>(fifo(1)));
            others.push(other);
            tasks.spawn(async move {
                alt! { biased;
                    got = ry.recv() => assert_eq!(got, Ok(1)),
                    got = rx.recv() => panic!("the other branch was ready: {got:?}"),
                }
            });
        }
        tasks.spawn(receive(rx.clone(), log.clone()));
        let mut send = Box::pin(tx.send(7));
        let _ = send.as_mut().poll(&mut unwoken());
        // The woken receivers take another branch, and so do those to which they pass their wakes.
        for other in &mut others {
            other.try_send(1).unwrap();
        }
        tasks.run();
        assert_eq!(*log.borrow(), [7], "{policy:?}");
    }
}

#[test]
fn receivers_that_are_woken_and_not_polled_keep_a_value_until_the_next_tick() {
    let _alone = alone();
    for policy in policies() {
        for values in [1, 3, 20] {
            let (tx, rx) = channel_with(policy.clone());
            let (tx, rx, log) = (tx.share(), rx.share(), Log::default());
            let mut tasks = Tasks::default();
            // The sleepers are never polled again.
            let mut sleepers = Vec::new();
            for _ in 0..16 * values + 5 {
                let mut rx = rx.clone();
                let mut sleeper: Task<'_> = Box::pin(async move { _ = rx.recv().await });
                assert!(sleeper.as_mut().poll(&mut unwoken()).is_pending());
                sleepers.push(sleeper);
            }
            for _ in 0..25 {
                tasks.spawn(receive(rx.clone(), log.clone()));
            }
            let mut senders = Tasks::default();
            for value in 0..values {
                let mut tx = tx.clone();
                senders.spawn(async move { tx.send(value).await.unwrap() });
            }
            tasks.run();
            assert_eq!(*log.borrow(), [0; 0], "only sleepers were woken");
            tick();
            tasks.run();
            log.borrow_mut().sort_unstable();
            assert_eq!(*log.borrow(), (0..values).collect::<Vec<_>>(), "{policy:?}");
            // The next value finds the sleepers asleep and needs no tick.
            tasks.wakes();
            senders.run();
            let mut tx = tx.clone();
            senders.spawn(async move { tx.send(99).await.unwrap() });
            tasks.run();
            assert_eq!(log.borrow().last(), Some(&99));
            assert!(tasks.wakes() <= 16);
        }
    }
}

#[test]
fn empty_channel_wakes_no_receiver_at_the_tick() {
    let _alone = alone();
    for policy in policies() {
        let (mut tx, rx) = channel_with(policy.clone());
        let (rx, log) = (rx.share(), Log::default());
        let mut tasks = Tasks::default();
        for _ in 0..100 {
            tasks.spawn(receive(rx.clone(), log.clone()));
        }
        // The send is dropped before any receiver was polled, or received.
        let mut send = Box::pin(tx.send(1));
        if send.as_mut().poll(&mut unwoken()).is_pending() {
            drop(send);
        } else {
            drop(send);
            tasks.run();
        }
        assert!(tasks.wakes() <= 16);
        tick();
        tick();
        assert_eq!(tasks.wakes(), 0, "{policy:?}");
    }
}

#[test]
fn the_end_of_the_channel_wakes_all_receivers() {
    let _alone = alone();
    for poisoned in [false, true] {
        let (mut tx, rx) = channel::<u32>();
        let (rx, ended) = (rx.share(), Rc::new(RefCell::new(0)));
        let mut tasks = Tasks::default();
        for _ in 0..100 {
            let (mut rx, ended) = (rx.clone(), ended.clone());
            tasks.spawn(async move {
                let end = rx.recv().await;
                assert!(matches!(end, Err(RecvError::Closed | RecvError::Poisoned(_))), "{end:?}");
                *ended.borrow_mut() += 1;
            });
        }
        let mut send = Box::pin(tx.send(1));
        assert!(send.as_mut().poll(&mut unwoken()).is_pending());
        drop(send);
        if poisoned {
            tx.poison("for the test")
        } else {
            drop(tx)
        }
        tasks.run();
        assert_eq!(*ended.borrow(), 100);
    }
}

#[test]
fn receivers_held_back_by_a_claim_get_the_end_when_it_ends() {
    let _alone = alone();
    let (tx, rx) = channel::<u32>();
    let (rx, ended) = (rx.share(), Rc::new(RefCell::new(0)));
    let mut claimer = rx.clone();
    let mut tasks = Tasks::default();
    for _ in 0..100 {
        let (mut rx, ended) = (rx.clone(), ended.clone());
        tasks.spawn(async move {
            assert_eq!(rx.recv().await, Err(RecvError::Closed));
            *ended.borrow_mut() += 1;
        });
    }
    let mut claim = Box::pin(claimer.claim());
    let Poll::Ready(Ok(claim)) = claim.as_mut().poll(&mut unwoken()) else { panic!("no other handle has claimed it") };
    drop(tx);
    tasks.run();
    assert_eq!(*ended.borrow(), 0, "held back");
    drop(claim);
    tasks.run();
    assert_eq!(*ended.borrow(), 100);
}

#[test]
fn values_sent_during_a_claim_are_received_without_a_tick() {
    let _alone = alone();
    // The claim holds all receivers back; when it ends, all proceed: the sixteen woken ones wake the others.
    let (mut tx, rx) = channel_with(unbounded());
    let (rx, log) = (rx.share(), Log::default());
    let mut claimer = rx.clone();
    let mut tasks = Tasks::default();
    let mut claim = Box::pin(claimer.claim());
    let Poll::Ready(Ok(claim)) = claim.as_mut().poll(&mut unwoken()) else { panic!("no other handle has claimed it") };
    for _ in 0..200 {
        tasks.spawn(receive_one(rx.clone(), log.clone()));
    }
    (0..150).for_each(|value| tx.try_send(value).unwrap());
    tasks.run();
    assert_eq!(tasks.wakes(), 0, "only the claim may receive");
    drop(claim);
    tasks.run();
    log.borrow_mut().sort_unstable();
    assert_eq!(*log.borrow(), (0..150).collect::<Vec<_>>());
    assert!(tasks.wakes() <= 150 + 16);
}

#[test]
fn claim_receives_without_waking_held_back_receivers() {
    let _alone = alone();
    let (tx, rx) = channel();
    let (mut tx, rx, log) = (tx, rx.share(), Log::default());
    let mut claimer = rx.clone();
    let mut tasks = Tasks::default();
    for _ in 0..100 {
        tasks.spawn(receive(rx.clone(), log.clone()));
    }
    let received = Log::default();
    let mine = received.clone();
    tasks.spawn(async move {
        let mut claim = claimer.claim().await.unwrap();
        for _ in 0..50 {
            let value = claim.recv().await.unwrap();
            mine.borrow_mut().push(value);
        }
    });
    let mut senders = Tasks::default();
    senders.spawn(async move {
        for value in 0..51 {
            tx.send(value).await.unwrap();
        }
    });
    for value in 0..50 {
        tasks.run();
        senders.run();
        assert_eq!(*received.borrow(), (0..=value).collect::<Vec<_>>());
    }
    assert!(tasks.wakes() <= 50 + 16 + 1, "one wake a value, for the claimer, until the claim ends");
    tasks.run();
    assert_eq!(*log.borrow(), [50]);
}

/// A number below `n`.
fn below(seed: &mut u64, n: u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    (*seed >> 11) % n
}

/// Receivers of all kinds: some are dropped, some are never polled again, some are in choices. When every
/// woken task has been polled and a tick has passed, no value waits beside a receiver that would take it.
#[test]
fn no_wake_is_lost_with_random_receivers() {
    let _alone = alone();
    let seeds = if cfg!(miri) { 3 } else { 400 };
    for first in 1..=seeds {
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(first);
        let policy = [rendezvous(), fifo(1), fifo(3), fifo(9), unbounded()][below(&mut seed, 5) as usize].clone();
        let (tx, rx) = channel_with(policy);
        let (tx, rx) = (tx.share(), rx.share());
        // Only receivers that are not polled again require the clock to advance.
        let sleeps = below(&mut seed, 2) == 0;
        let (log, mut sent) = (Log::default(), 0);
        let (mut tasks, mut senders) = (Tasks::default(), Tasks::default());
        let (mut receiving, mut others) = (Vec::new(), Vec::new());
        for _ in 0..60 {
            match below(&mut seed, 8) {
                0..3 => {
                    for _ in 0..below(&mut seed, 40) {
                        receiving.push(spawn_receiver(&mut tasks, &mut others, &rx, &log, below(&mut seed, 5)));
                    }
                }
                3..5 => {
                    for _ in 0..below(&mut seed, 4) {
                        let (mut tx, value) = (tx.clone(), sent);
                        sent += 1;
                        senders.spawn(async move { _ = tx.send(value).await });
                    }
                }
                // Some are dropped, or never polled again: mostly those that are woken, or will be next.
                5 => {
                    for _ in 0..below(&mut seed, 25) {
                        let number = match below(&mut seed, 3) {
                            _ if receiving.is_empty() => break,
                            0 => receiving[below(&mut seed, receiving.len() as u64) as usize],
                            1 => receiving[0],
                            _ => tasks.next_woken().unwrap_or(receiving[0]),
                        };
                        receiving.retain(|other| *other != number);
                        if !sleeps {
                            tasks.drop(number);
                        } else if let Some(task) = tasks.tasks[number].take() {
                            std::mem::forget(task);
                        }
                    }
                }
                6 if !others.is_empty() => {
                    let at = below(&mut seed, others.len() as u64) as usize;
                    let mut other: Sender<u32> = others.swap_remove(at);
                    let _ = other.try_send(0);
                }
                _ => {
                    for _ in 0..below(&mut seed, 6) {
                        if let Some(number) = tasks.next_woken() {
                            tasks.poll(number);
                        }
                    }
                }
            }
            if below(&mut seed, 3) == 0 {
                tasks.run();
                senders.run();
                tasks.run();
                if sleeps {
                    tick();
                }
                loop {
                    tasks.run();
                    senders.run();
                    if tasks.woken.lock().unwrap().queue.is_empty() {
                        break;
                    }
                }
                let waiting = receiving.iter().filter(|number| tasks.tasks[**number].is_some()).count();
                let received = log.borrow().len();
                let unsent = senders.tasks.iter().flatten().count();
                assert!(
                    waiting == 0 || received == sent as usize && unsent == 0,
                    "seed {first}: {waiting} wait, {received} of {sent} received, {unsent} senders wait"
                );
            }
        }
        let mut log = log.borrow().clone();
        log.sort_unstable();
        log.dedup();
        assert!(log.len() <= sent as usize);
    }
}

fn spawn_receiver(
    tasks: &mut Tasks<'_>,
    others: &mut Vec<Sender<u32>>,
    rx: &Shared<Receiver<u32>>,
    log: &Log,
    kind: u64,
) -> usize {
    let (mut rx, log) = (rx.clone(), log.clone());
    match kind {
        0 => tasks.spawn(receive(rx, log)),
        1 => tasks.spawn(receive_one(rx, log)),
        2 => {
            let (other, mut ry) = channel_with(fifo(1));
            others.push(other);
            tasks.spawn(async move {
                alt! { biased;
                    _ = ry.recv() => {}
                    got = rx.recv() => log.borrow_mut().extend(got),
                }
            })
        }
        3 => {
            // The choice also offers a value, which no receiver takes.
            let (mut out, far) = channel::<u32>();
            tasks.spawn(async move {
                let (mut slot, _far) = (Some(1), far);
                alt! {
                    _ = out.send_from(&mut slot) => unreachable!("no receiver takes it"),
                    got = rx.recv() => log.borrow_mut().extend(got),
                }
            })
        }
        _ => tasks.spawn(async move {
            while let Ok(value) = rx.recv_extended().await {
                log.borrow_mut().push(*value);
                value.release();
            }
        }),
    }
}
