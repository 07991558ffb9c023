//! Blocking calls leave no thread, descriptor or child behind. The tests run one at a time in a program of
//! their own, since they count those of the whole program.

#![cfg(target_os = "linux")]

use std::collections::HashMap;
use std::future::Future;
use std::os::unix::net::UnixStream;
use std::pin::pin;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Wake};
use std::time::Instant;

use dunlin::blocking::{Interest, Limits, profile};
use dunlin::prelude::*;

/// Holds the lock that runs one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Threads by name, descriptors, children.
#[derive(Debug, PartialEq)]
struct Census {
    pool_threads: usize,
    workers: usize,
    descriptors: usize,
    children: usize,
}

fn threads(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).ok());
    names.filter(|comm| comm.trim() == name).count()
}

fn census() -> Census {
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().count();
    let me = std::process::id().to_string();
    let is_child = |stat: String| stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1)) == Some(&me);
    let processes = std::fs::read_dir("/proc").unwrap();
    let stats = processes.filter_map(|entry| std::fs::read_to_string(entry.ok()?.path().join("stat")).ok());
    let children = stats.filter(|stat| is_child(stat.clone())).count();
    Census { pool_threads: threads("dunlin-call"), workers: threads("dunlin-worker"), descriptors, children }
}

/// What is counted, once it is as expected: the kernel lists a thread for a moment after it was joined.
fn settled<C: PartialEq>(count: impl Fn() -> C, expected: &C) -> C {
    let latest = Instant::now() + Duration::from_secs(10);
    loop {
        let counted = count();
        if counted == *expected || Instant::now() >= latest {
            return counted;
        }
        std::thread::yield_now();
    }
}

/// Calls of every kind and outcome.
async fn busy() {
    let mut calls = Vec::new();
    for n in 0..20_u64 {
        let (here, _there) = UnixStream::pair().unwrap();
        here.set_nonblocking(true).unwrap();
        calls.push(blocking(move |stop| {
            let _cut = stop.shuts_down(&here).unwrap();
            stop.on_cut(n, |_| {});
            match n % 4 {
                0 => drop(stop.ready(&here, Interest::Read)),
                1 => drop(stop.command(Command::new("sleep").arg("1000")).unwrap().wait()),
                2 => drop(stop.requested().wait()),
                _ => {}
            }
            n
        }));
    }
    for (n, call) in calls.into_iter().enumerate() {
        match n % 3 {
            0 => drop(call),
            1 => drop(call.terminate().within(Duration::ZERO).await),
            _ => drop(call.terminate().await),
        }
    }
}

#[test]
fn end_of_a_runtime_leaves_no_thread_descriptor_or_child() {
    let _alone = alone();
    // The program keeps these: the clock, and tokio's state for signals.
    dunlin::block_on(async {});
    let before = census();
    for _ in 0..50 {
        dunlin::block_on(busy());
        assert_eq!(settled(census, &before), before);
    }
}

#[test]
fn ended_calls_leave_no_descriptor_or_child_while_runtime_runs() {
    let _alone = alone();
    dunlin::block_on(async {
        blocking(|_| ()).await.unwrap();
        let before = census();
        for _ in 0..20 {
            busy().await;
        }
        // The abandoned calls end, too.
        while !dunlin::blocking::calls().is_empty() {
            tokio::task::yield_now().await;
        }
        let after = census();
        assert_eq!((after.descriptors, after.children), (before.descriptors, before.children));
    });
}

#[test]
fn pool_begins_with_the_first_call_keeps_one_free_and_shrinks() {
    let _alone = alone();
    // Several times: when four threads are left, only one of two must end.
    for _ in 0..20 {
        dunlin::block_on(begins_keeps_one_free_and_shrinks());
    }
}

async fn begins_keeps_one_free_and_shrinks() {
    assert_eq!(settled(|| threads("dunlin-call"), &0), 0);
    let barrier = Arc::new(Barrier::new(9));
    let calls: Vec<_> = (0..8)
        .map(|_| {
            let barrier = barrier.clone();
            blocking(move |_| {
                barrier.wait();
            })
        })
        .collect();
    // All eight have a thread, and the ninth thread is the spare one.
    while threads("dunlin-call") < 9 {
        tokio::task::yield_now().await;
    }
    assert_eq!(threads("dunlin-call"), 9);
    blocking::limit(Limits::default().idle(Duration::from_millis(2)));
    barrier.wait();
    for call in calls {
        call.await.unwrap();
    }
    while threads("dunlin-call") > 3 {
        tokio::task::yield_now().await;
    }
    // These stay, however long they are idle: two of them would end only if a following call needed none.
    assert_eq!(blocking(|_| 7).await.unwrap(), 7);
    assert_eq!(threads("dunlin-call"), 3);
}

/// When the runtime has waited for a call that blocks for ever, it names the call.
#[test]
fn end_of_a_runtime_names_a_call_that_still_runs() {
    const INSIDE: &str = "DUNLIN_TEST_RUNS_ON";
    let _alone = alone();
    if std::env::var_os(INSIDE).is_some() {
        return dunlin::block_on(async {
            blocking::limit(Limits::default().patience(Duration::from_millis(10)));
            let (mut began, mut has_begun) = channel();
            let call = blocking(move |_| {
                began.send(()).wait().unwrap();
                std::thread::park();
                loop {
                    std::thread::park();
                }
            });
            has_begun.recv().await.unwrap();
            drop::<dunlin::Blocking<()>>(call);
        });
    }
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args(["--exact", "end_of_a_runtime_names_a_call_that_still_runs", "--nocapture"]).env(INSIDE, "1");
    let output = program.output().unwrap();
    assert!(output.status.success());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("blocking calls were asked to stop and still run"), "{said}");
    assert!(said.contains("tests/blocking_remains.rs") && said.contains("runs on, abandoned"), "{said}");
}

/// The stamps of each call that was profiled while `f` ran: event and time, in the order of the file.
async fn profiled(f: impl Future<Output = ()>) -> HashMap<u64, Vec<(String, u64)>> {
    let path = std::env::temp_dir().join(format!("dunlin-profile-test-{}", std::process::id()));
    let profile = profile::start();
    f.await;
    profile.write(&path).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let mut lines = text.lines();
    assert_eq!((lines.next(), lines.next()), (Some("dunlin profile 1"), Some("dropped 0")));
    let mut calls = HashMap::<_, Vec<_>>::new();
    let mut last = 0;
    for line in lines {
        let fields: Vec<_> = line.split(' ').collect();
        let time = fields[0].parse().unwrap();
        assert!(last <= time, "{last} is before {line}");
        last = time;
        calls.entry(fields[2].parse().unwrap()).or_default().push((fields[1].to_owned(), time));
    }
    calls
}

fn events(stamps: &[(String, u64)]) -> Vec<&str> {
    stamps.iter().map(|(event, _)| &**event).collect()
}

#[test]
fn profile_has_the_stamps_of_each_call() {
    let _alone = alone();
    dunlin::block_on(async {
        let (mut began, mut has_begun) = channel();
        let (mut returned, mut killed) = (0, 0);
        let calls = profiled(async {
            let call = blocking(|_| 7);
            returned = call.pid().as_u64();
            call.await.unwrap();
            let call = blocking(move |stop| {
                began.send(()).wait().unwrap();
                stop.requested().wait()
            });
            killed = call.pid().as_u64();
            has_begun.recv().await.unwrap();
            call.terminate().await;
        })
        .await;
        blocking(|_| 8).await.unwrap();
        assert_eq!(calls.len(), 2, "{calls:?}");
        assert_eq!(events(&calls[&returned]), ["dispatch", "trigger", "finish"]);
        assert_eq!(events(&calls[&killed]), ["dispatch", "trigger", "kill", "finish"]);
    });
}

/// The program need not call `profile::start`.
#[test]
fn profile_that_the_environment_asks_for_is_written_at_the_end_of_the_runtime() {
    const INSIDE: &str = "DUNLIN_TEST_PROFILED";
    let _alone = alone();
    if std::env::var_os(INSIDE).is_some() {
        assert_eq!(dunlin::block_on(async { blocking(|_| 7).await }).unwrap(), 7);
        // One profile for the program: a later runtime does not overwrite it.
        return dunlin::block_on(async {});
    }
    let path = std::env::temp_dir().join(format!("dunlin-profile-asked-{}", std::process::id()));
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args(["--exact", "profile_that_the_environment_asks_for_is_written_at_the_end_of_the_runtime"]);
    let output = program.env(INSIDE, "1").env("DUNLIN_PROFILE", &path).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let events: Vec<_> = text.lines().skip(2).filter_map(|line| line.split(' ').nth(1)).collect();
    assert_eq!(events, ["dispatch", "trigger", "finish"], "{text}");
}

/// Its wake delays the request until the flag is set.
struct WakesLate(AtomicBool);

impl Wake for WakesLate {
    fn wake(self: Arc<Self>) {
        while !self.0.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
    }
}

/// The call may return before the requesting thread continues.
#[test]
fn stop_request_is_stamped_before_the_return_that_it_causes() {
    let _alone = alone();
    dunlin::block_on(async {
        blocking::limit(Limits::default().threads_max(1));
        let late = Arc::new(WakesLate(AtomicBool::new(false)));
        let mut killed = 0;
        let calls = profiled(async {
            let (waker, (mut began, mut has_begun)) = (late.clone().into(), channel());
            let call = blocking(move |stop| {
                let mut requested = pin!(stop.requested());
                assert!(requested.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
                began.send(()).wait().unwrap();
                while !stop.asked() {
                    std::hint::spin_loop();
                }
            });
            killed = call.pid().as_u64();
            has_begun.recv().await.unwrap();
            // On the only thread: the first call has ended when this one begins.
            let next = blocking(move |_| late.0.store(true, Ordering::Release));
            assert!(matches!(call.terminate().await, Ended::Terminated(())));
            next.await.unwrap();
        })
        .await;
        assert_eq!(events(&calls[&killed]), ["dispatch", "trigger", "kill", "finish"]);
    });
}
