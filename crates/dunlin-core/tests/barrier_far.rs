//! Barriers with parties at several nodes: enrolments carried by hand, under many polling orders.
//!
//! A seed decides the order in which tasks, channels between nodes and their chores are polled, so messages
//! may be in flight for any time. `BARRIER_SEEDS=100000 cargo test --features serde --test barrier_far` runs
//! more seeds.
#![cfg(all(feature = "serde", not(any(loom, shuttle))))]

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};

use dunlin_core::carrier::{Agent, EndKind, Inbox, Outbox, Several};
use dunlin_core::{Barrier, Operation, Receiver, SyncError, alt, barrier, channel, future, rendezvous, waits};

#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
    }
}

#[derive(Clone)]
struct Random(Rc<Cell<u64>>);

impl Random {
    fn below(&self, n: u64) -> u64 {
        let mut x = self.0.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.0.set(x);
        (x >> 11) % n
    }
}

type Task = Pin<Box<dyn Future<Output = ()>>>;

/// A task, and whether it has been woken.
type Begun = (Task, Arc<Flag>);

/// A program on several nodes; one step is one poll of a woken task.
#[derive(Clone)]
struct World {
    random: Random,
    new: Rc<RefCell<Vec<Task>>>,
    tasks: Rc<RefCell<Vec<Begun>>>,
    open: Rc<Cell<usize>>,
}

impl World {
    fn new(seed: u64) -> Self {
        let random = Random(Rc::new(Cell::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)));
        for _ in 0..8 {
            random.below(2);
        }
        Self { random, new: Rc::default(), tasks: Rc::default(), open: Rc::default() }
    }

    /// Runs a task that must finish.
    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.open.set(self.open.get() + 1);
        let open = self.open.clone();
        self.serve(async move {
            task.await;
            open.set(open.get() - 1);
        });
    }

    /// Runs a task that may still run at the end.
    fn serve(&self, task: impl Future<Output = ()> + 'static) {
        self.new.borrow_mut().push(Box::pin(task));
    }

    /// Runs until no task is woken.
    fn settle(&self) {
        let mut tasks = self.tasks.take();
        for step in 0.. {
            assert!(step < 500_000, "the world never settles");
            for task in self.new.borrow_mut().drain(..) {
                tasks.push((task, Arc::new(Flag(AtomicBool::new(true)))));
            }
            let woken: Vec<usize> = (0..tasks.len()).filter(|n| tasks[*n].1.0.load(SeqCst)).collect();
            if woken.is_empty() {
                break;
            }
            let n = woken[self.random.below(woken.len() as u64) as usize];
            let (task, flag) = &mut tasks[n];
            flag.0.store(false, SeqCst);
            let waker = Waker::from(flag.clone());
            if task.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
                drop(tasks.swap_remove(n));
            }
        }
        self.tasks.replace(tasks);
    }

    /// Settles, and then all spawned tasks must have finished.
    fn run(&self) {
        self.settle();
        assert_eq!(self.open.get(), 0, "a task waits for ever");
    }

    /// Carries an enrolment to another node.
    fn carry(&self, enrolment: Barrier) -> (Barrier, Cut) {
        let mut outbox = Outbox::new();
        let json = outbox.encode(|| serde_json::to_string(&enrolment)).unwrap();
        let end = outbox.seal().unwrap().commit(enrolment).unwrap().remove(0);
        assert_eq!(end.kind(), EndKind::Barrier);
        let Agent::Several(near) = end.into_agent() else { panic!() };
        let mut inbox = Inbox::default();
        inbox.expect(0, EndKind::Barrier, rendezvous());
        let there: Barrier = inbox.decode(|| serde_json::from_str(&json)).unwrap();
        let Some(Agent::Several(far)) = inbox.into_adopted().remove(0).agent else { panic!() };
        (there, self.connect(near, far))
    }

    fn send(&self, enrolment: Barrier) -> Barrier {
        self.carry(enrolment).0
    }

    fn connect(&self, near: Several, far: Several) -> Cut {
        let cut = Cut::default();
        for (n, pair) in near.agents.into_iter().zip(far.agents).enumerate() {
            let (outlet, inlet) = match pair {
                (Agent::Outlet(outlet), Agent::Inlet(inlet)) | (Agent::Inlet(inlet), Agent::Outlet(outlet)) => {
                    (outlet, inlet)
                }
                _ => panic!("their agents do not fit"),
            };
            let credits = inlet.credits();
            let joining = outlet.join(inlet, credits).ok().unwrap();
            self.serve(cut.clone().until(joining, n == 1));
        }
        self.serve(near.chore);
        self.serve(far.chore);
        cut
    }

    /// Yields a random number of times.
    async fn pause(&self) {
        for _ in 0..self.random.below(12) {
            yield_now().await;
        }
    }
}

async fn yield_now() {
    let mut yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// The connection between two nodes, which a test can cut or hold up.
#[derive(Clone, Default)]
struct Cut {
    is_cut: Rc<Cell<bool>>,
    /// Messages of the keeper do not arrive.
    is_silent: Rc<Cell<bool>>,
    wakers: Rc<RefCell<Vec<Waker>>>,
}

impl Cut {
    fn now(&self) {
        self.is_cut.set(true);
        self.wake();
    }

    fn wake(&self) {
        self.wakers.borrow_mut().drain(..).for_each(Waker::wake);
    }

    async fn until(self, joining: impl Future<Output = ()>, may_be_silent: bool) {
        let mut joining = pin!(joining);
        poll_fn(|cx| {
            if self.is_cut.get() {
                return Poll::Ready(());
            }
            let mut wakers = self.wakers.borrow_mut();
            if !wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
                wakers.push(cx.waker().clone());
            }
            drop(wakers);
            if may_be_silent && self.is_silent.get() {
                return Poll::Pending;
            }
            joining.as_mut().poll(cx)
        })
        .await;
    }
}

fn seeds(usual: u64) -> std::ops::Range<u64> {
    0..std::env::var("BARRIER_SEEDS").map_or(usual, |n| n.parse().unwrap())
}

/// Runs the test under many seeds; a failure prints its seed.
fn under_seeds(usual: u64, test: impl Fn(&World)) {
    struct Seed(u64);
    impl Drop for Seed {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("seed {}", self.0);
            }
        }
    }
    for seed in seeds(usual) {
        let seed = Seed(seed);
        let world = World::new(seed.0);
        test(&world);
        world.run();
    }
}

/// Parties here, at two other nodes, and at a node whose enrolment came from one of these.
fn everywhere(world: &World) -> Vec<Barrier> {
    let here = barrier();
    let one = world.send(here.enrol());
    let two = world.send(here.enrol());
    let three = world.send(one.enrol());
    let mut parties = vec![here, one, two, three];
    for _ in 0..world.random.below(4) {
        let among = world.random.below(parties.len() as u64) as usize;
        parties.push(parties[among].enrol());
    }
    parties
}

/// The phase of each party, as far as it knows itself.
#[derive(Clone)]
struct Progress(Rc<Vec<Cell<u64>>>);

impl Progress {
    fn new(parties: usize) -> Self {
        Self(Rc::new(vec![Cell::new(0); parties]))
    }

    /// Party `own` has completed phase `n`, counted from 1: every party must have reached it, and none has
    /// completed the next.
    fn complete(&self, own: usize, n: u64) {
        self.complete_unless(own, n, 0);
    }

    /// Other parties may have completed up to `unknown` phases that they do not know of yet.
    fn complete_unless(&self, own: usize, n: u64, unknown: u64) {
        self.0[own].set(n);
        for other in self.0.iter().map(Cell::get) {
            let is_near = other + 1 + unknown >= n && other <= n + 1;
            assert!(is_near, "one is in phase {other} and another one in {n}");
        }
    }
}

#[test]
fn all_or_none() {
    under_seeds(100, |world| {
        let parties = everywhere(world);
        let progress = Progress::new(parties.len());
        for (own, mut phase) in parties.into_iter().enumerate() {
            let (world, progress) = (world.clone(), progress.clone());
            world.clone().spawn(async move {
                for n in 1..6 {
                    world.pause().await;
                    assert_eq!(phase.sync().await, Ok(()));
                    assert_eq!(phase.phases(), n);
                    progress.complete(own, n);
                }
                // No party resigns before all have finished.
                assert_eq!(phase.sync().await, Ok(()));
            });
        }
    });
}

/// A deadline is exact: `Ok` is one phase, and `TimedOut` is none.
#[test]
fn deadlines_are_exact() {
    let (timed_out, just_in_time) = (Cell::new(0), Rc::new(Cell::new(0)));
    let timed_out = Rc::new(timed_out);
    under_seeds(200, |world| {
        let parties = everywhere(world);
        let progress = Progress::new(parties.len());
        for (own, mut phase) in parties.into_iter().enumerate() {
            let (world, progress) = (world.clone(), progress.clone());
            let (timed_out, just_in_time) = (timed_out.clone(), just_in_time.clone());
            world.clone().spawn(async move {
                let mut n = 0;
                while n < 4 {
                    let expired = Cell::new(false);
                    let deadline = async {
                        world.pause().await;
                        world.pause().await;
                        expired.set(true);
                    };
                    match phase.sync().until(deadline).await {
                        Ok(()) => {
                            n += 1;
                            assert_eq!(phase.phases(), n);
                            progress.complete(own, n);
                            just_in_time.set(just_in_time.get() + u32::from(expired.get()));
                        }
                        Err(SyncError::TimedOut) => {
                            timed_out.set(timed_out.get() + 1);
                            assert_eq!(phase.phases(), n, "the phase has taken place");
                            if world.random.below(3) == 0 {
                                world.pause().await;
                            }
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
                assert_eq!(phase.sync().await, Ok(()));
            });
        }
    });
    // A withdrawal that crosses a completion is rare, but must have occurred.
    assert!(timed_out.get() > 100 && just_in_time.get() > 5, "{timed_out:?} {just_in_time:?}");
}

/// A party that drops its `sync` does not take part, unless the phase was complete before; then it counts.
#[test]
fn a_sync_may_be_dropped() {
    under_seeds(200, |world| {
        let parties = everywhere(world);
        let progress = Progress::new(parties.len());
        for (own, mut phase) in parties.into_iter().enumerate() {
            let (world, progress) = (world.clone(), progress.clone());
            world.clone().spawn(async move {
                loop {
                    {
                        let mut polls = world.random.below(10);
                        let mut sync = pin!(phase.sync());
                        let outcome = poll_fn(|cx| {
                            if let Poll::Ready(outcome) = sync.as_mut().poll(cx) {
                                return Poll::Ready(Some(outcome));
                            }
                            if polls == 0 {
                                return Poll::Ready(None);
                            }
                            polls -= 1;
                            if polls < 5 {
                                cx.waker().wake_by_ref();
                            }
                            Poll::Pending
                        })
                        .await;
                        if let Some(outcome) = outcome {
                            assert_eq!(outcome, Ok(()));
                        }
                    }
                    let n = phase.phases();
                    if n > progress.0[own].get() {
                        // The dropped `sync` may have been complete.
                        progress.complete_unless(own, n, 1);
                    }
                    if n >= 4 {
                        break;
                    }
                    if world.random.below(3) == 0 {
                        world.pause().await;
                    }
                }
                // The others may have taken more phases with it than it knows.
                while phase.phases() < 6 {
                    assert_eq!(phase.sync().await, Ok(()));
                }
            });
        }
    });
}

/// A party that resigns, as the last of its group or not, is not waited for; one that enrols is.
#[test]
fn parties_come_and_go() {
    under_seeds(200, |world| {
        let parties = everywhere(world);
        for phase in parties {
            let world = world.clone();
            world.clone().spawn(come_and_go(world.clone(), phase, 0));
        }
    });
}

async fn come_and_go(world: World, mut phase: Barrier, depth: u32) {
    for _ in 0..1 + world.random.below(5) {
        match world.random.below(6) {
            0 if depth < 3 => {
                let other = phase.enrol();
                world.spawn(Box::pin(come_and_go(world.clone(), other, depth + 1)));
            }
            1 if depth < 3 => {
                let other = world.send(phase.enrol());
                world.spawn(Box::pin(come_and_go(world.clone(), other, depth + 1)));
            }
            // The party itself moves to another node.
            2 => phase = world.send(phase),
            3 => {
                let mut sync = pin!(phase.sync());
                let mut polls = 1;
                poll_fn(|cx| {
                    polls -= 1;
                    if sync.as_mut().poll(cx).is_ready() || polls < 0 {
                        return Poll::Ready(());
                    }
                    cx.waker().wake_by_ref();
                    Poll::Pending
                })
                .await;
            }
            _ => assert_eq!(phase.sync().await, Ok(())),
        }
        world.pause().await;
    }
}

/// Two barriers, kept at different nodes. Every party is enrolled on both and chooses: all must always choose
/// the same barrier.
#[test]
fn choices_agree() {
    under_seeds(166, |world| {
        let (first, second) = (everywhere(world), everywhere(world));
        let parties = first.len().min(second.len());
        let log: Rc<RefCell<Vec<Vec<u8>>>> = Rc::new(RefCell::new(vec![Vec::new(); parties]));
        let ready = Rc::new(Cell::new(0));
        // In reverse order, so that the two keepers are far from each other.
        let second = second.into_iter().rev();
        let (mut first, mut second) = (first, second.collect::<Vec<_>>());
        first.truncate(parties);
        second.truncate(parties);
        for (own, (mut one, mut two)) in first.into_iter().zip(second).enumerate() {
            let (world, log, ready) = (world.clone(), log.clone(), ready.clone());
            world.clone().spawn(async move {
                for _ in 0..5 {
                    if world.random.below(2) == 0 {
                        world.pause().await;
                    }
                    let chosen = if world.random.below(2) == 0 {
                        alt! { r = one.sync() => { r.unwrap(); 1 } r = two.sync() => { r.unwrap(); 2 } }
                    } else {
                        alt! { biased; r = two.sync() => { r.unwrap(); 2 } r = one.sync() => { r.unwrap(); 1 } }
                    };
                    log.borrow_mut()[own].push(chosen);
                }
                // Both enrolments are kept until all parties have finished.
                ready.set(ready.get() + 1);
                while ready.get() < parties {
                    yield_now().await;
                }
                let log = log.borrow();
                assert_eq!(log[own], log[0], "one has chosen otherwise");
            });
        }
    });
}

/// A choice that takes another branch was not at the barrier, and the value that it takes is not lost.
#[test]
fn another_branch_competes() {
    under_seeds(166, |world| {
        let parties = everywhere(world);
        let progress = Progress::new(parties.len());
        for (own, mut phase) in parties.into_iter().enumerate() {
            let (world, progress) = (world.clone(), progress.clone());
            let ticks = ticks(&world, 6);
            world.clone().spawn(async move {
                let mut ticks = ticks;
                let (mut n, mut heard) = (0, 0);
                while n < 4 {
                    let (may_tick, firm) = (heard < 6, world.random.below(4) == 0);
                    if firm {
                        phase.sync().await.unwrap();
                        n += 1;
                        assert_eq!(phase.phases(), n);
                        progress.complete(own, n);
                        continue;
                    }
                    alt! {
                        r = phase.sync() => {
                            r.unwrap();
                            n += 1;
                            assert_eq!(phase.phases(), n);
                            progress.complete(own, n);
                        }
                        tick = ticks.recv(), if may_tick => {
                            assert_eq!(tick, Ok(heard));
                            heard += 1;
                            assert_eq!(phase.phases(), n, "it has taken both");
                        }
                    }
                    if world.random.below(4) == 0 {
                        world.pause().await;
                    }
                }
                while heard < 6 {
                    assert_eq!(ticks.recv().await, Ok(heard));
                    heard += 1;
                }
                assert_eq!(phase.sync().await, Ok(()));
            });
        }
    });
}

fn ticks(world: &World, many: u64) -> Receiver<u64> {
    let (mut tx, rx) = channel();
    let own = world.clone();
    world.spawn(async move {
        for n in 0..many {
            own.pause().await;
            if tx.send(n).await.is_err() {
                return;
            }
        }
    });
    rx
}

/// One `sync` that is lent to several choices and awaited in between: it takes part in the way it was last
/// polled.
#[test]
fn a_sync_is_lent_to_choices() {
    under_seeds(300, |world| {
        let parties = everywhere(world);
        let progress = Progress::new(parties.len());
        for (own, mut phase) in parties.into_iter().enumerate() {
            let (world, progress, mut ticks) = (world.clone(), progress.clone(), ticks(world, 6));
            world.clone().spawn(async move {
                let (mut n, mut heard) = (0, 0);
                while n < 4 {
                    let mut sync = phase.sync();
                    let (mut outcome, mut tries) = (None, 0);
                    while outcome.is_none() {
                        tries += 1;
                        // Each pause is longer, so that in the end there is enough time.
                        let pause = async {
                            for _ in 0..tries {
                                world.pause().await;
                            }
                        };
                        // Polled a few times by itself, and then as a branch.
                        let mut polls = world.random.below(4);
                        outcome = poll_fn(|cx| {
                            if polls == 0 {
                                return Poll::Ready(None);
                            }
                            polls -= 1;
                            if let Poll::Ready(outcome) = Pin::new(&mut sync).poll(cx) {
                                return Poll::Ready(Some(outcome));
                            }
                            cx.waker().wake_by_ref();
                            Poll::Pending
                        })
                        .await;
                        if outcome.is_none() {
                            let more = heard < 6;
                            alt! {
                                r = &mut sync => outcome = Some(r),
                                r = ticks.recv(), if more => { assert_eq!(r, Ok(heard)); heard += 1; }
                                _ = future(pause) => {}
                            }
                        }
                    }
                    assert_eq!(outcome, Some(Ok(())));
                    drop(sync);
                    n += 1;
                    assert_eq!(phase.phases(), n);
                    progress.complete(own, n);
                }
                while heard < 6 {
                    assert_eq!(ticks.recv().await, Ok(heard));
                    heard += 1;
                }
                assert_eq!(phase.sync().await, Ok(()));
            });
        }
    });
}

/// Choices that sync, send to each other and receive from each other, some with deadlines: none waits for
/// ever, and no value is received twice.
#[test]
fn choices_of_all_kinds() {
    under_seeds(166, |world| {
        let parties = everywhere(world);
        let (sent, received) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let count = parties.len();
        let done = Rc::new(Cell::new(0));
        let (mut txs, mut rxs): (Vec<_>, Vec<_>) = (0..count).map(|_| channel::<u8>()).unzip();
        // In a ring: each party receives from its neighbour.
        rxs.rotate_left(1);
        let progress = Progress::new(count);
        for (own, mut phase) in parties.into_iter().enumerate() {
            let (mut tx, mut rx) = (txs.remove(0), rxs.remove(0));
            let (world, progress, sent, received) = (world.clone(), progress.clone(), sent.clone(), received.clone());
            let done = done.clone();
            world.clone().spawn(async move {
                let (mut n, mut is_done, mut tries) = (0, false, 0);
                while done.get() < count {
                    let mut value = Some(7);
                    tries += 1;
                    // Each deadline is longer, so that in the end there is enough time.
                    let deadline = async {
                        for _ in 0..tries {
                            world.pause().await;
                        }
                    };
                    let full = sent.get() > 200;
                    alt! {
                        r = phase.sync().until(deadline), if n < 4 => match r {
                            Ok(()) => {
                                n += 1;
                                assert_eq!(phase.phases(), n);
                                progress.complete(own, n);
                            }
                            Err(error) => {
                                assert_eq!((error, phase.phases()), (SyncError::TimedOut, n));
                            }
                        },
                        r = tx.send_from(&mut value), if !full => {
                            r.unwrap();
                            sent.set(sent.get() + 1);
                        }
                        r = rx.recv() => {
                            r.unwrap();
                            received.set(received.get() + 1);
                        }
                        _ = future(yield_now()), if n == 4 => {}
                    }
                    if n == 4 && !std::mem::replace(&mut is_done, true) {
                        done.set(done.get() + 1);
                    }
                }
                done.set(done.get() + 1);
                while done.get() < 2 * count {
                    yield_now().await;
                }
                drop((tx, rx));
                assert_eq!(sent.get(), received.get());
            });
        }
    });
}

/// One choice has two enrolments on one barrier, at one node by two ways: neither can happen.
#[test]
fn two_enrolments_in_one_choice() {
    under_seeds(50, |world| {
        let here = barrier();
        let (mut one, mut two) = (world.send(here.enrol()), world.send(here));
        let ticks = ticks(world, 1);
        world.spawn(async move {
            let mut ticks = ticks;
            let chosen = alt! { _ = one.sync() => 1, _ = two.sync() => 2, r = ticks.recv() => { r.unwrap(); 3 } };
            assert_eq!(chosen, 3);
            drop(two);
            assert_eq!(one.sync().await, Ok(()));
        });
    });
}

/// After a node is lost, the others do not wait for its parties, and its parties do not wait for ever.
#[test]
fn a_node_is_lost() {
    under_seeds(133, |world| {
        let here = barrier();
        let (there, cut) = world.carry(here.enrol());
        let beyond = world.send(there.enrol());
        let other = world.send(here.enrol());
        let (has_cut, phases) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(0)));
        for (phase, is_cut_off) in [(here, false), (there, true), (beyond, true), (other, false)] {
            let (world, has_cut, phases) = (world.clone(), has_cut.clone(), phases.clone());
            let ticks = ticks(&world, 2);
            world.clone().spawn(async move {
                let (mut phase, mut ticks) = (phase, ticks);
                loop {
                    let outcome = match world.random.below(4) {
                        0 => phase.sync().await,
                        1 => phase.sync().until(world.pause()).await,
                        2 => alt! { r = phase.sync() => r, _ = ticks.recv() => Err(SyncError::TimedOut) },
                        _ => alt! { r = phase.sync() => r, _ = ticks.recv() => Err(SyncError::TimedOut) },
                    };
                    match outcome {
                        Ok(()) | Err(SyncError::TimedOut) => {}
                        Err(error) => {
                            assert_eq!(error, SyncError::NodeLost);
                            assert!(has_cut.get() && is_cut_off);
                            // The loss is permanent.
                            assert_eq!(phase.sync().await, Err(SyncError::NodeLost));
                            assert_eq!(phase.enrol().sync().await, Err(SyncError::NodeLost));
                            return;
                        }
                    }
                    if !is_cut_off {
                        if has_cut.get() && phase.phases() > phases.get() + 3 {
                            return;
                        }
                        if !has_cut.get() {
                            phases.set(phase.phases());
                        }
                    }
                }
            });
        }
        let own = world.clone();
        world.spawn(async move {
            for _ in 0..8 {
                own.pause().await;
            }
            has_cut.set(true);
            cut.now();
        });
    });
}

/// A choice that stays reserved for long takes its other branch as soon as that is ready, at the barrier's
/// keeper and elsewhere.
#[test]
fn reserved_choice_takes_its_other_ready_branch() {
    for (far, is_deadline) in [(false, false), (false, true), (true, false), (true, true)] {
        let world = World::new(1);
        let here = barrier();
        let (there, cut) = world.carry(here.enrol());
        let (also_there, _) = world.carry(here.enrol());
        // The choice that is to be reserved comes first, and the unreachable party last.
        let (first, also) = if far { (also_there, here) } else { (here, also_there) };
        let ticks = Rc::new(RefCell::new(None));
        let (mut tx, mut rx) = channel::<u8>();
        let taken = ticks.clone();
        world.spawn(async move {
            let mut first = first;
            let chosen = if is_deadline {
                let deadline = async { drop(rx.recv().await) };
                alt! { r = first.sync().until(deadline) => if r == Err(SyncError::TimedOut) { 7 } else { 0 } }
            } else {
                alt! { r = first.sync() => { r.unwrap(); 0 } r = rx.recv() => r.unwrap() }
            };
            taken.replace(Some(chosen));
            assert_eq!(first.sync().await, Ok(()));
        });
        world.settle();
        cut.is_silent.set(true);
        for phase in [also, there] {
            world.spawn(async move {
                let (_tx, mut rx) = channel::<u8>();
                let mut phase = phase;
                alt! { r = phase.sync() => r.unwrap(), _ = rx.recv() => panic!() }
            });
            world.settle();
        }
        world.spawn(async move { tx.send(7).await.unwrap() });
        world.settle();
        assert_eq!(ticks.take(), Some(7), "it waits for the phase");
        cut.is_silent.set(false);
        cut.wake();
        world.run();
    }
}

/// A connection is silent while a phase reserves: after a while the phase releases the choices that it has
/// reserved, so that other operations can decide them.
#[test]
fn a_silent_connection_blocks_no_party_for_ever() {
    let world = World::new(1);
    let mut here = barrier();
    let (mut there, cut) = world.carry(here.enrol());
    cut.is_silent.set(true);
    let (mut tx, mut rx) = channel::<u8>();
    // A local choice comes first, so it is reserved first, with an offer that no receiver has taken yet.
    world.spawn(async move {
        let mut value = Some(7);
        let chosen = alt! { r = here.sync() => { r.unwrap(); 1 } r = tx.send_from(&mut value) => { r.unwrap(); 2 } };
        assert_eq!(chosen, 2);
        assert_eq!(here.sync().await, Ok(()));
    });
    world.settle();
    // The other choice has arrived and is asked for, but never receives the request.
    world.spawn(async move {
        let (_tx, mut rx) = channel::<u8>();
        alt! { r = there.sync() => r.unwrap(), _ = rx.recv() => panic!() }
    });
    world.settle();
    let received = Rc::new(Cell::new(false));
    let has = received.clone();
    world.spawn(async move {
        assert_eq!(rx.recv().await, Ok(7));
        has.set(true);
    });
    world.settle();
    assert!(!received.get(), "it was not reserved");
    let start = waits::tick();
    for n in 1..40 {
        waits::advance(start.wrapping_add(10 * n));
        world.settle();
    }
    assert!(received.get(), "it is held for ever");
    cut.is_silent.set(false);
    cut.wake();
    world.settle();
    for n in 40..80 {
        waits::advance(start.wrapping_add(10 * n));
        world.settle();
    }
    world.run();
}

/// A choice that is reserved when the barrier's keeper is lost ends, and reports the loss.
#[test]
fn reserved_choice_reports_loss_of_the_keeper() {
    let world = World::new(1);
    let mut here = barrier();
    let (mut there, cut) = world.carry(here.enrol());
    let (mut silent, other) = world.carry(here.enrol());
    other.is_silent.set(true);
    world.spawn(async move {
        let (_tx, mut rx) = channel::<u8>();
        let outcome = alt! { r = there.sync() => r, _ = rx.recv() => panic!() };
        assert_eq!(outcome, Err(SyncError::NodeLost));
    });
    world.settle();
    world.spawn(async move { assert_eq!(here.sync().await, Ok(())) });
    world.spawn(async move {
        let (_tx, mut rx) = channel::<u8>();
        alt! { r = silent.sync() => r.unwrap(), _ = rx.recv() => panic!() }
    });
    world.settle();
    cut.now();
    world.settle();
    other.is_silent.set(false);
    other.wake();
    world.run();
}
