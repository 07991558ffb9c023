//! Scopes: names that processes join, forks and their end, places, and names on the network.

use std::future::pending;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

use dunlin::prelude::*;
use dunlin::scope::Straggler;
use dunlin::{ExitReason, waits};

#[path = "support/scopes.rs"]
mod support;
use support::{not_started, refused, unfinished};

const SOON: Duration = Duration::from_secs(60);

fn run<T>(body: impl Future<Output = Result<T>>) -> T {
    dunlin::block_on(body).unwrap_or_else(|error| panic!("{error}"))
}

/// A test waits for this to know that a process has made progress.
fn bell() -> (Sender<()>, Receiver<()>) {
    dunlin::channel_with(fifo(1))
}

// ---- names

#[test]
fn either_end_of_a_name_may_be_first() {
    run(async {
        let scope = Scope::new();
        let at = line!() + 1;
        let mut rx = scope.receiver::<u8>("n").await?;
        let waiting = scope.waiting();
        assert_eq!(waiting.len(), 1);
        assert_eq!((waiting[0].name.as_str(), waiting[0].missing), ("n", "sender"));
        assert_eq!((waiting[0].declared.line(), waiting[0].declared.file()), (at, file!()));
        assert!(waiting[0].to_string().contains("a channel of `u8`"), "{}", waiting[0]);

        // A waiting process is listed, on a channel made where the name was first used.
        let id = rx.id();
        let reader = spawn(async move { rx.recv().await });
        let wait = loop {
            let wait = waits::snapshot().into_iter().find(|wait| wait.channel == Some(id));
            match wait {
                Some(wait) => break wait,
                None => tokio::task::yield_now().await,
            }
        };
        assert_eq!((wait.who, wait.made.line(), wait.made.file()), (reader.pid().into(), at, file!()));

        let mut tx = scope.sender("n").await?;
        assert!(scope.waiting().is_empty());
        tx.send(7_u8).await?;
        assert_eq!(reader.await??, 7);
        Ok(())
    });
}

#[test]
fn type_mismatch_names_both_places() {
    run(async {
        let scope = Scope::new();
        let declared = line!() + 1;
        scope.name::<String>("n", fifo(1));
        let wanted = line!() + 1;
        let error = refused(scope.sender::<u8>("n").await);
        let ScopeError::Type { name, declared_at, wanted_at, .. } = &error else { panic!("{error}") };
        assert_eq!((name.as_str(), declared_at.line(), wanted_at.line()), ("n", declared, wanted));
        let text = error.to_string();
        assert!(text.contains("alloc::string::String") && text.contains("`u8`"), "{text}");
        // A channel is no bundle.
        let error = scope.client::<Till>("n").await.err();
        assert!(matches!(error, Some(ScopeError::Type { .. })));
        scope.sender::<String>("n").await?;

        // An annotated process has the place of its annotation.
        const LINE: u32 = line!() + 2;
        #[process]
        async fn wrong(#[receiver("n")] _rx: Receiver<u8>) {}
        let exit = scope.fork(wrong()).await.unwrap_err();
        let ScopeError::Type { wanted_at, .. } = not_started(exit) else { panic!("another error") };
        assert_eq!((wanted_at.file(), wanted_at.line()), (file!(), LINE));
        Ok(())
    });
}

#[test]
fn an_end_is_joined_once_or_shared_by_all() {
    run(async {
        let scope = Scope::new();
        let first = line!() + 1;
        let tx = scope.sender::<u8>("n").await?;
        let again = line!() + 1;
        let error = refused(scope.sender::<u8>("n").await);
        let ScopeError::Taken { name, face, joined_at, shared, wanted_at } = &error else { panic!("{error}") };
        assert_eq!((name.as_str(), *face, *shared), ("n", "sender", false));
        assert_eq!((joined_at.line(), wanted_at.line()), (first, again));
        assert!(matches!(refused(scope.sender::<u8>("n").shared().await), ScopeError::Taken { shared: false, .. }));
        // Also after a drop: an end is left for good.
        drop(tx);
        assert!(matches!(refused(scope.sender::<u8>("n").await), ScopeError::Taken { .. }));

        let _one = scope.receiver::<u8>("m").shared().await?;
        let _other = scope.receiver::<u8>("m").shared().await?;
        assert!(matches!(refused(scope.receiver::<u8>("m").await), ScopeError::Taken { shared: true, .. }));
        Ok(())
    });
}

#[test]
fn a_shared_end_is_left_when_all_have_left() {
    run(async {
        let scope = Scope::new();
        let mut one = scope.sender::<u8>("n").shared().await?;
        let other = scope.sender::<u8>("n").shared().await?;
        let mut rx = scope.receiver::<u8>("n").policy(fifo(1)).await?;
        drop(other);
        one.send(1).await?;
        assert_eq!(rx.next().await?, Some(1));
        drop(one);
        assert_eq!(rx.next().await?, None);
        let error = refused(scope.sender::<u8>("n").shared().await);
        assert_eq!(error, ScopeError::Left { name: "n".into(), face: "sender" });
        Ok(())
    });
}

#[test]
fn child_scopes_inherit_names_and_isolated_ones_do_not() {
    run(async {
        let scope = Scope::new();
        scope.name::<u8>("n", fifo(1));
        let (child, isolated) = (scope.child(), scope.isolated());
        let mut tx = child.child().sender::<u8>("n").await?;
        tx.send(1).await?; // there is a buffer
        assert_eq!(scope.receiver::<u8>("n").await?.recv().await?, 1);

        // The isolated one has its own, of another type, and so have its children.
        let mut tx = isolated.sender::<char>("n").policy(fifo(1)).await?;
        tx.send('x').await?;
        assert_eq!(isolated.child().receiver::<char>("n").await?.recv().await?, 'x');

        // An undeclared name was declared where it was joined first.
        let _tx = child.sender::<u8>("m").await?;
        let _other = scope.sender::<u8>("m").await?;
        assert_eq!((child.waiting().len(), scope.waiting().len()), (1, 1));
        Ok(())
    });
}

#[test]
fn a_policy_may_come_with_the_second_end() {
    run(async {
        for receiver_first in [false, true] {
            let scope = Scope::new();
            let (mut tx, mut rx);
            if receiver_first {
                rx = scope.receiver::<u8>("n").await?;
                tx = scope.sender::<u8>("n").policy(fifo(2)).await?;
                tx.send(0).await?;
            } else {
                tx = scope.sender::<u8>("n").await?;
                // It waits for a receive, and then the buffer takes it.
                let (sent, joined) = par!(tx.send(0), scope.receiver::<u8>("n").policy(fifo(2)).into_future());
                sent?;
                rx = joined?;
            }
            tx.send(1).await?;
            let full = tx.try_send(2).unwrap_err();
            assert_eq!(full.why(), Some(&Why::WouldBlock));
            assert_eq!((rx.recv().await?, rx.recv().await?), (0, 1));
        }
        let scope = Scope::new();
        let _tx = scope.sender::<u8>("n").await?;
        let rx = scope.receiver::<u8>("n").policy(fifo(1).immunity(5)).await?;
        assert!(!rx.poison_with(5, "weak"));
        assert!(rx.poison_with(6, "strong"));
        Ok(())
    });
}

#[test]
fn one_place_sets_the_policy() {
    run(async {
        let scope = Scope::new();
        let mut declared = 0;
        for _ in 0..2 {
            declared = line!() + 1;
            drop(scope.receiver::<u8>("n").shared().policy(fifo(1)).await); // each of several processes declares it
        }
        let error = refused(scope.sender::<u8>("n").policy(fifo(1)).await);
        let ScopeError::Policy { declared_at: Some(at), wanted_at, .. } = &error else { panic!("{error}") };
        assert_eq!((at.line(), wanted_at.line()), (declared, declared + 2));

        let (_tx, _rx) = (scope.sender::<u8>("m").await?, scope.receiver::<u8>("m").await?);
        let late = |declare: &dyn Fn()| {
            let panic = catch_unwind(AssertUnwindSafe(declare)).unwrap_err();
            panic.downcast_ref::<String>().unwrap().clone()
        };
        let text = late(&|| _ = scope.name::<u8>("m", fifo(1)));
        assert!(text.contains("both its ends were joined before"), "{text}");
        let text = late(&|| _ = scope.name::<char>("m", fifo(1)));
        assert!(text.contains("a channel of `u8`") && text.contains("a channel of `char`"), "{text}");
        Ok(())
    });
}

#[derive(Bundle)]
struct Till {
    pay: ToServer<u64>,
    receipt: ToClient<String>,
}

#[test]
fn bundles_and_calls_are_joined_too() {
    #[process]
    async fn cashier(#[server("till")] mut till: TillServer) -> Result {
        while let Some(coins) = till.pay.next().await? {
            till.receipt.send(format!("paid {coins}")).await?;
        }
        Ok(())
    }
    #[process]
    async fn customer(#[client("till")] mut till: Shared<TillClient>, coins: u64) -> Result<String> {
        let mut till = till.claim().await?;
        till.pay.send(coins).await?;
        Ok(till.receipt.recv().await?)
    }
    #[process]
    async fn answer(#[server("half")] mut half: dunlin::Callee<u64, u64>) -> Result {
        let ask = half.accept().await?;
        let n = *ask / 2;
        let _ = ask.reply(n);
        Ok(())
    }
    run(async {
        let scope = Scope::new();
        scope.name_bundle::<Till>("till");
        let (one, other, _) = scope.child().fork_all((customer(1), customer(2), cashier()));
        assert_eq!((one.await??, other.await??), ("paid 1".into(), "paid 2".into()));
        scope.fork(answer());
        let mut half = scope.client::<Call<u64, u64>>("half").await?;
        assert_eq!(half.call(8).await?, 4);
        scope.finish(SOON).await // the cashier has gone with the last customer
    });
}

// ---- forks

#[process]
async fn pass<T: Send + 'static>(
    #[receiver(format!("stage{n}"))] mut from: Receiver<T>,
    #[sender(format!("stage{}", n + 1))] mut to: Sender<T, NoPoison>,
    n: usize,
) -> Result {
    while let Some(value) = from.next().await? {
        to.send(value).await?;
    }
    Ok(())
}

#[test]
fn a_process_joins_by_itself_and_leaves_at_its_end() {
    run(async {
        let scope = Scope::new();
        for n in (0..4).rev() {
            scope.fork(pass::<u32>(n));
        }
        let mut from = scope.sender::<u32>("stage0").await?;
        let mut to = scope.receiver::<u32>("stage4").await?;
        from.send(7).await?;
        assert_eq!(to.recv().await?, 7);
        drop(from);
        assert_eq!(to.next().await?, None); // one after the other has left
        scope.finish(SOON).await
    });
}

#[test]
fn a_future_is_forked_as_it_is() {
    run(async {
        let scope = Scope::new();
        let process = scope.fork_named("six", async { 6 * 7 });
        assert_eq!(process.name(), Some("six"));
        assert_eq!(process.await?, 42);
        scope.finish(SOON).await
    });
}

#[process]
async fn say(#[sender("words")] mut words: Shared<Sender<usize>>, word: usize) -> Result {
    Ok(words.send(word).await?)
}

#[process]
async fn count(#[receiver("words", fifo(16))] mut words: Receiver<usize>) -> Result<usize> {
    let mut sum = 0;
    while let Some(word) = words.next().await? {
        sum += word;
    }
    Ok(sum)
}

#[test]
fn process_instances_share_the_ends_they_join() {
    run(async {
        let scope = Scope::new();
        let words = AtomicUsize::new(0);
        let counted = scope.fork(count());
        let said = scope.fork_n(8, || say(words.fetch_add(1, Ordering::Relaxed)));
        assert_eq!(said.len(), 8);
        assert_eq!(counted.await??, 28);
        for process in said {
            process.await??;
        }
        scope.finish(SOON).await
    });
}

#[test]
fn the_annotation_sets_the_buffering() {
    #[process]
    async fn late(
        #[receiver("in", fifo(2))] mut numbers: Receiver<u8>,
        #[sender("out", fifo(1))] mut out: Sender<u8>,
        mut begin: Receiver<()>,
    ) -> Result {
        begin.recv().await?;
        while let Some(n) = numbers.next().await? {
            out.send(n).await?;
        }
        Ok(())
    }
    run(async {
        let scope = Scope::new();
        let (mut go, begin) = bell();
        scope.fork(late(begin));
        let mut tx = scope.sender::<u8>("in").await?;
        let out = scope.receiver::<u8>("out").await?;
        tx.send(1).within(SOON).await?;
        tx.send(2).within(SOON).await?; // the first is not received yet
        assert_eq!(tx.try_send(3).unwrap_err().why(), Some(&Why::WouldBlock));
        go.send(()).await?;
        // Of four values one is in the buffer behind it, one in its hand, and two in the buffer before it.
        tx.send(3).await?;
        tx.send(4).within(SOON).await?;
        while out.is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(out.len(), 1);
        drop(out);
        scope.finish(SOON).await
    });
}

/// Joins a name; with `slow`, it then waits before it runs. Counts its run.
fn sibling(ran: &Arc<AtomicUsize>, slow: Option<(Sender<()>, Receiver<()>)>) -> impl Wired<Output = Result> + use<> {
    let ran = ran.clone();
    wired(move |scope| async move {
        let mut tx = scope.sender::<u8>("n").shared().await?;
        if let Some((mut joined, mut gone)) = slow {
            let _ = joined.send(()).await;
            let _ = gone.recv().await; // as it would wait for a node
        }
        Ok(async move {
            ran.fetch_add(1, Ordering::SeqCst);
            Ok(tx.send(1).await?)
        })
    })
}

#[test]
fn no_sibling_runs_before_all_have_joined() {
    run(async {
        for form in ["tuple", "array", "vector", "count"] {
            let scope = Scope::new();
            let ((mut go, gone), ran) = (bell(), Arc::new(AtomicUsize::new(0)));
            let (joined, mut has_joined) = bell();
            let slow = Some((joined, gone));
            let mut rx = scope.receiver::<u8>("n").policy(fifo(2)).await?;
            match form {
                "tuple" => drop(scope.fork_all((sibling(&ran, None), sibling(&ran, slow)))),
                "array" => drop(scope.fork_all([sibling(&ran, None), sibling(&ran, slow)])),
                "vector" => drop(scope.fork_all(vec![sibling(&ran, None), sibling(&ran, slow)])),
                _ => {
                    let mut slow = [slow, None];
                    let mut rest = slow.iter_mut().rev();
                    drop(scope.fork_n(2, || sibling(&ran, rest.next().and_then(Option::take))));
                }
            }
            has_joined.recv().await?;
            // Another process that is forked now comes after them: if it passed them, the first would have
            // run.
            for _ in 0..100 {
                spawn(async {}).await?;
            }
            assert_eq!(ran.load(Ordering::SeqCst), 0, "{form}");
            go.send(()).await?;
            assert_eq!(rx.recv().await? + rx.recv().await?, 2);
            assert_eq!(rx.next().await?, None, "{form}: both have left");
            scope.finish(SOON).await?;
        }
        Ok(())
    });
}

#[test]
fn no_sibling_runs_if_one_cannot_join() {
    run(async {
        let scope = Scope::new();
        scope.name::<u8>("words", fifo(1)); // `count` wants another type
        let mut rx = scope.receiver::<usize>("other").await?;
        let other = wired(|scope| async move {
            let tx = scope.sender::<usize>("other").await?;
            Ok(async move { drop(tx) })
        });
        let (other, counted) = scope.fork_all((other, count()));
        for exit in [other.await.unwrap_err(), counted.await.unwrap_err()] {
            assert!(matches!(not_started(exit), ScopeError::Type { .. }));
        }
        assert_eq!(rx.next().await?, None); // it has left the names that it joined

        // The same if one ends before it has joined.
        let scope = Scope::new();
        let never = wired(|_| async {
            pending::<()>().await;
            Ok(async {})
        });
        let (never, other) = scope.fork_all((never, async {}));
        never.cancel();
        assert_eq!(never.await.unwrap_err().reason, ExitReason::Cancelled);
        assert_eq!(not_started(other.await.unwrap_err()), ScopeError::Sibling);
        Ok(())
    });
}

#[test]
fn an_end_that_cannot_join_reports_it() {
    run(async {
        let scope = Scope::new();
        scope.name::<u8>("words", fifo(1));
        let exit = scope.fork(count()).await.unwrap_err();
        assert_eq!(exit.name.as_deref(), Some("count"));
        let why = not_started(exit);
        assert!(matches!(why, ScopeError::Type { .. }));
        let Err(Error::Finish(FinishError::NotStarted(exit))) = scope.finish(SOON).await else { panic!("no error") };
        assert_eq!((exit.name.as_deref(), not_started(exit.clone())), (Some("count"), why));
        Ok(())
    });
}

#[test]
fn isolated_process_has_no_names_of_its_scope() {
    #[process]
    async fn inner(#[receiver("n")] mut rx: Receiver<u8>, #[scope] scope: Scope) -> Result<u8> {
        let mut tx = scope.sender::<u8>("n").await?;
        let (sent, received) = par!(tx.send(1), rx.recv());
        sent?;
        Ok(received?)
    }
    run(async {
        let scope = Scope::new();
        let _tx = scope.sender::<char>("n").await?;
        assert_eq!(scope.fork_isolated(inner()).await??, 1);
        scope.finish(SOON).await
    });
}

#[test]
fn finish_waits_for_children_and_names_stragglers() {
    #[process]
    async fn listener(#[receiver("n")] mut rx: Receiver<u8>, mut here: Sender<()>) -> Result<u8> {
        here.send(()).await?;
        let (received, ()) = par!(rx.recv(), async {});
        Ok(received?)
    }
    run(async {
        let scope = Scope::new();
        let mut tx = scope.sender::<u8>("n").await?;
        let (here, mut heard) = bell();
        let at = line!() + 1;
        let process = scope.child().fork(listener(here));
        heard.recv().await?;
        let error = loop {
            // The deadline may pass before the process has reached its receive.
            let error = unfinished(&scope).await;
            if !error.stragglers()[0].waits.is_empty() {
                break error;
            }
        };
        let [Straggler { pid, name, made, waits, .. }] = error.stragglers() else { panic!("{error}") };
        assert_eq!((*pid, name.as_deref()), (process.pid().into(), Some("listener")));
        assert_eq!((made.file(), made.line()), (file!(), at));
        // In a branch of its `par!`.
        assert_eq!((waits[0].channel, waits[0].doing), (Some(tx.id()), waits::Doing::Receive));
        let text = error.to_string();
        assert!(text.contains("listener #") && text.contains("for receive on"), "{text}");

        assert!(!process.is_finished()); // it runs on
        tx.send(3).await?;
        assert_eq!(process.await??, 3);
        scope.finish(SOON).await
    });
}

#[test]
fn finish_is_listed_as_a_wait() {
    run(async {
        let scope = Scope::new();
        let (mut go, mut gone) = bell();
        let at = line!() + 1;
        let pid = scope.fork(async move { gone.recv().await }).pid();
        let finishing = spawn(scope.finish(SOON));
        let wait = loop {
            let wait = waits::snapshot().into_iter().find(|wait| wait.who == finishing.pid());
            match wait {
                Some(wait) => break wait,
                None => tokio::task::yield_now().await,
            }
        };
        assert_eq!((wait.doing, wait.on), (waits::Doing::Exit, Some(pid.into())));
        assert_eq!((wait.made.file(), wait.made.line()), (file!(), at)); // the place of its fork
        go.send(()).await?;
        finishing.await?
    });
}

/// Rings when it is dropped.
struct Rings(Option<Sender<()>>);

impl Drop for Rings {
    fn drop(&mut self) {
        if let Some(mut bell) = self.0.take() {
            let _ = bell.try_send(());
        }
    }
}

#[test]
fn dropped_scope_detaches_its_processes_unless_finish_failed() {
    run(async {
        let (mut tx, mut rx) = bell();
        let scope = Scope::new();
        let process = scope.fork(async move { rx.recv().await });
        drop(scope);
        tx.send(()).await?; // it runs on
        process.await??;

        let (rings, mut rung) = bell();
        let scope = Scope::new();
        // (It may be cancelled before it has begun.)
        let rings = Rings(Some(rings));
        let process = scope.child().fork(async move {
            let _rings = rings;
            pending::<()>().await;
        });
        let other = scope.clone();
        unfinished(&scope).await;
        drop(scope);
        assert!(!process.is_finished());
        drop(other);
        rung.recv().await?;
        assert_eq!(process.await.unwrap_err().reason, ExitReason::Cancelled);
        Ok(())
    });
}

#[test]
fn cancel_reaches_processes_of_inner_scopes() {
    run(async {
        let scope = Scope::new();
        let within = scope.isolated().fork(pending::<()>());
        let here = scope.fork(pending::<()>());
        scope.cancel();
        scope.finish(SOON).await?;
        assert_eq!(within.await.unwrap_err().reason, ExitReason::Cancelled);
        assert_eq!(here.await.unwrap_err().reason, ExitReason::Cancelled);
        Ok(())
    });
}

#[test]
fn no_process_joins_after_the_end() {
    run(async {
        let scope = Scope::new();
        let child = scope.child();
        let mut rx = child.receiver::<u8>("n").await?;
        let _tx = scope.sender::<u8>("m").await?;
        scope.finish(SOON).await?;
        assert_eq!(rx.next().await?, None); // no sender can join any more
        for scope in [&scope, &child, &scope.child()] {
            let exit = scope.fork(async {}).await.unwrap_err();
            assert_eq!(not_started(exit), ScopeError::Finished);
            assert_eq!(refused(scope.sender::<u8>("n").await), ScopeError::Finished);
        }
        assert_eq!(refused(scope.receiver::<u8>("m").await), ScopeError::Finished);
        // Their handles report the failures; the scope has finished in order.
        scope.finish(SOON).await?;

        // A finished child leaves the scope around it as it is.
        let scope = Scope::new();
        scope.child().finish(SOON).await?;
        scope.fork(async {}).await?;
        Ok(())
    });
}

#[test]
fn the_first_panic_is_reported() {
    run(async {
        let scope = Scope::new();
        let (mut go, mut gone) = bell();
        let first = scope.fork_named("first", async { assert!(std::env::args().count() == 0, "no fish") });
        let Err(exit) = first.await else { panic!("it did not panic") };
        assert_eq!(exit.reason, ExitReason::Panicked("no fish".into()));
        let second = scope.child().fork(async move {
            let _ = gone.recv().await;
            panic!("no ice");
        });
        let error = unfinished(&scope).await;
        assert!(error.to_string().contains("no fish"), "{error}");
        go.send(()).await?;
        let _: Result<(), _> = second.await;
        let Err(Error::Finish(FinishError::Panicked(told))) = scope.finish(SOON).await else { panic!("no error") };
        assert_eq!(told, exit);
        Ok(())
    });
}

// ---- how processes end, their channels end

#[process(propagate)]
async fn stage(
    #[receiver("from")] mut from: Receiver<u32>,
    #[sender("to")] mut to: Sender<u32>,
    #[sender("quiet")] quiet: Sender<u32, NoPoison>,
    #[sender("early")] early: Sender<u32>,
) -> Result {
    drop(early);
    loop {
        match from.recv().await? {
            0 => return Err(Error::other("a zero")),
            1 => panic!("a one"),
            2 => return Ok(()),
            n => to.send(n).await?,
        }
        let _ = &quiet;
    }
}

/// The last results of a `stage`'s channels, after `end` at its source.
async fn ends(end: impl AsyncFnOnce(Sender<u32>)) -> Result<Vec<Result<Option<u32>, RecvError>>> {
    let scope = Scope::new();
    let process = scope.fork(stage());
    end(scope.sender::<u32>("from").await?).await;
    drop(process.await);
    let mut ends = Vec::new();
    for name in ["to", "quiet", "early"] {
        ends.push(scope.receiver::<u32>(name).await?.next().await);
    }
    Ok(ends)
}

fn poisoned(reason: &str) -> Result<Option<u32>, RecvError> {
    Err(RecvError::Poisoned(reason.into()))
}

#[test]
fn process_propagates_poison_to_its_other_ends() {
    run(async {
        let full = ends(async |tx| tx.poison("disk full")).await?;
        assert_eq!(full, [poisoned("disk full"), Ok(None), Ok(None)]);
        // With the strength with which it arrived.
        let weak = ends(async |tx| assert!(tx.poison_with(3, "ink"))).await?;
        let Err(RecvError::Poisoned(reason)) = &weak[0] else { panic!("{weak:?}") };
        assert_eq!((reason.as_str(), reason.strength()), ("ink", 3.into()));
        Ok(())
    });
}

#[test]
fn other_errors_and_panics_are_poison() {
    run(async {
        let zero = ends(async |mut tx| drop(tx.send(0).await)).await?;
        assert_eq!(zero, [poisoned("stage: a zero"), Ok(None), Ok(None)]);
        let one = ends(async |mut tx| drop(tx.send(1).await)).await?;
        assert_eq!(one, [poisoned("stage panicked: a one"), Ok(None), Ok(None)]);
        Ok(())
    });
}

#[test]
fn process_closes_its_channels_without_poison_on_normal_end() {
    run(async {
        // `recv` returns `Closed` as an error: the channels are retired.
        let closed = ends(async |tx| drop(tx)).await?;
        assert_eq!(closed, [Ok(None), Ok(None), Ok(None)]);
        let left = ends(async |mut tx| drop(tx.send(2).await)).await?;
        assert_eq!(left, [Ok(None), Ok(None), Ok(None)]);
        Ok(())
    });
}

#[test]
fn a_whole_channel_is_retired() {
    #[process(propagate)]
    async fn relay(
        #[receiver("from")] mut from: Receiver<u8>,
        #[sender("to")] mut to: Shared<Sender<u8>>,
        #[client("till")] mut till: TillClient,
    ) -> Result {
        loop {
            let n = from.recv().await?;
            till.pay.send(n.into()).await?;
            to.send(n).await?;
        }
    }
    run(async {
        let scope = Scope::new();
        let process = scope.fork(relay());
        let mut other = scope.sender::<u8>("to").shared().await?;
        let mut till = scope.server::<Till>("till").await?;
        let _rx = scope.receiver::<u8>("to").await?;
        drop(scope.sender::<u8>("from").await?);
        assert!(matches!(process.await?, Err(Error::Recv(RecvError::Closed))));
        // Left alone it would still take values of the others.
        assert!(other.send(1).within(SOON).await.unwrap_err().is_closed());
        assert!(till.receipt.send(String::new()).await.unwrap_err().is_closed());

        let scope = Scope::new();
        let process = scope.fork(relay());
        let mut till = scope.server::<Till>("till").await?;
        let mut rx = scope.receiver::<u8>("to").await?;
        scope.sender::<u8>("from").await?.poison("ink");
        assert!(process.await?.unwrap_err().is_poisoned());
        assert_eq!(rx.recv().await.unwrap_err(), RecvError::Poisoned("ink".into()));
        assert_eq!(till.pay.recv().await.unwrap_err(), RecvError::Poisoned("ink".into()));
        let error = till.receipt.send(String::new()).await.unwrap_err();
        assert_eq!(error.why(), Some(&Why::Poisoned("ink".into())));
        Ok(())
    });
}

/// One of every kind of end; of the shared ones another handle is elsewhere.
#[process(propagate)]
async fn holds_all(
    #[receiver("from")] mut from: Receiver<u8>,
    #[receiver("shared in")] _shared_in: Shared<Receiver<u8>>,
    #[client("asks")] _asks: dunlin::Caller<u8, u8>,
    #[client("shared asks")] _shared_asks: Shared<dunlin::Caller<u8, u8>>,
    #[server("asked")] _asked: dunlin::Callee<u8, u8>,
    #[server("serves")] _serves: TillServer,
    #[client("shared till")] _shared_till: Shared<TillClient>,
    #[server("shared serves")] _shared_serves: Shared<TillServer>,
    #[client("market")] _market: MarketClient,
) -> Result {
    from.recv().await?;
    Ok(())
}

/// Its client's face holds a shared face.
#[derive(Bundle)]
struct Market {
    till: Share<Till>,
    flipped: dunlin::Flip<Till>,
}

#[test]
fn the_ending_reaches_every_kind_of_end() {
    run(async {
        for poisons in [true, false] {
            let scope = Scope::new();
            let process = scope.fork(holds_all());
            // The other handles of these are still held, and one of them is claimed meanwhile.
            let _others = (
                scope.receiver::<u8>("shared in").shared().await?,
                scope.client::<Call<u8, u8>>("shared asks").shared().await?,
                scope.server::<Till>("shared serves").shared().await?,
            );
            let mut other = scope.client::<Till>("shared till").shared().await?;
            let _claimed = other.claim().await?;
            let mut shared_in = scope.sender::<u8>("shared in").await?;
            let mut asks = scope.server::<Call<u8, u8>>("asks").await?;
            let mut shared_asks = scope.server::<Call<u8, u8>>("shared asks").await?;
            let mut asked = scope.client::<Call<u8, u8>>("asked").await?;
            let mut serves = scope.client::<Till>("serves").await?;
            let mut shared_till = scope.server::<Till>("shared till").await?;
            let mut shared_serves = scope.client::<Till>("shared serves").await?;
            let mut market = scope.server::<Market>("market").await?;

            let from = scope.sender::<u8>("from").await?;
            if poisons {
                from.poison("ink");
            }
            drop(from);
            let error = process.await?.unwrap_err();
            assert!(if poisons { error.is_poisoned() } else { error.is_closed() }, "{error}");

            let heard = |end: &str, error: Error| {
                let as_said =
                    if poisons { error.is_poisoned() && error.to_string().contains("ink") } else { error.is_closed() };
                assert!(as_said, "{end}: {error}");
            };
            heard("shared in", shared_in.send(1).within(SOON).await.unwrap_err().into());
            heard("asks", asks.accept().within(SOON).await.unwrap_err().into());
            heard("shared asks", shared_asks.accept().within(SOON).await.unwrap_err().into());
            heard("asked", asked.call(1).within(SOON).await.unwrap_err().into());
            heard("serves.pay", serves.pay.send(1).within(SOON).await.unwrap_err().into());
            heard("serves.receipt", serves.receipt.recv().within(SOON).await.unwrap_err().into());
            heard("shared till.pay", shared_till.pay.recv().within(SOON).await.unwrap_err().into());
            heard(
                "shared till.receipt",
                shared_till.receipt.send(String::new()).within(SOON).await.unwrap_err().into(),
            );
            heard("shared serves.pay", shared_serves.pay.send(1).within(SOON).await.unwrap_err().into());
            heard("shared serves.receipt", shared_serves.receipt.recv().within(SOON).await.unwrap_err().into());
            heard("market.till.pay", market.till.pay.recv().within(SOON).await.unwrap_err().into());
            heard("market.flipped.pay", market.flipped.pay.send(1).within(SOON).await.unwrap_err().into());
        }
        Ok(())
    });
}

#[test]
fn process_without_propagate_closes_its_ends() {
    #[process]
    async fn fails(#[receiver("from")] mut from: Receiver<u8>, #[sender("to")] _to: Sender<u8>) -> Result {
        from.recv().await?;
        Ok(())
    }
    run(async {
        let scope = Scope::new();
        let process = scope.fork(fails());
        scope.sender::<u8>("from").await?.poison("ink");
        assert!(process.await?.unwrap_err().is_poisoned());
        assert_eq!(scope.receiver::<u8>("to").await?.next().await, Ok(None));
        Ok(())
    });
}

// ---- places

fn thread_name() -> Option<String> {
    std::thread::current().name().map(str::to_owned)
}

#[test]
fn place_has_the_requested_number_of_named_workers() {
    run(async {
        let scope = Scope::new();
        let press = scope.on(Place::workers(3).named("press"));
        let barrier = Arc::new(Barrier::new(3));
        // Each blocks its thread until all three run.
        let held = press.child().fork_n(3, || {
            let barrier = barrier.clone();
            async move {
                barrier.wait();
                (thread_name(), tokio::runtime::Handle::current().metrics().num_workers())
            }
        });
        for process in held {
            assert_eq!(process.await?, (Some("press".to_owned()), 3));
        }
        assert_eq!(scope.fork(async { thread_name() }).await?.as_deref(), Some("dunlin-worker"));
        scope.finish(SOON).await
    });
}

#[test]
fn a_place_closes_with_its_scope_and_its_processes() {
    run(async {
        // A close that ignored the process would show in most rounds, not in all.
        for _ in 0..20 {
            let scope = Scope::new().on(Place::workers(1));
            let (mut go, mut gone) = bell();
            let process = scope.fork(async move {
                let _ = gone.recv().await;
                tokio::runtime::Handle::current()
            });
            drop(scope);
            go.send(()).await?;
            let runtime = process.await?;
            let refused = runtime.spawn(async {}).await.unwrap_err();
            assert!(refused.is_cancelled());
        }
        Ok(())
    });
}

#[test]
fn spawned_process_stays_in_its_place_and_ends_with_it() {
    run(async {
        let press = Scope::new().on(Place::workers(1).named("press"));
        let (rings, mut rung) = bell();
        let spawned = press.child().fork(async move {
            drop(spawn(async move {
                let _rings = Rings(Some(rings));
                pending::<()>().await;
            }));
            // A process that it spawns, and one that this one spawns.
            spawn(async { spawn(async { thread_name() }).await }).await?
        });
        assert_eq!(spawned.await??.as_deref(), Some("press"));
        press.finish(SOON).await?; // spawned processes do not delay this
        assert_eq!(rung.try_recv(), Err(RecvError::WouldBlock));
        drop(press);
        rung.recv().within(SOON).await?;
        Ok(())
    });
}

#[test]
fn place_may_use_an_existing_runtime() {
    let other = tokio::runtime::Builder::new_multi_thread().worker_threads(1).thread_name("other").build().unwrap();
    run(async {
        let scope = Scope::new();
        let there = scope.on(Place::handle(other.handle().clone()));
        let here = scope.on(Place::current());
        assert_eq!(there.fork(async { thread_name() }).await?.as_deref(), Some("other"));
        // Also when a process forks from there.
        let name = there.fork(async move { here.fork(async { thread_name() }).await });
        assert_eq!(name.await??.as_deref(), Some("dunlin-worker"));
        Ok(())
    });
}
