//! Processes on their run queues: what blocks, never returns or ends with its runtime, and many at once.
#![cfg(feature = "run-queues")]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use dunlin::ExitReason;
use dunlin::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::{Builder, Runtime};

fn threads(n: usize) -> Runtime {
    Builder::new_multi_thread().worker_threads(n).enable_all().build().unwrap()
}

fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Runs it as a process, and gives up on it after a time in which a slow machine would be done too.
fn run(runtime: &Runtime, process: impl Future<Output = ()> + Send + 'static) {
    runtime.block_on(async {
        tokio::time::timeout(Duration::from_secs(60), spawn(process)).await.expect("somebody was held up").unwrap();
    });
}

/// Who blocks its thread waits for another process, of which there is no other way to hear.
#[test]
fn who_blocks_in_place_holds_up_nobody() {
    for n in [1, 2] {
        run(&threads(n), async {
            for _ in 0..20 {
                let (mut tx, mut rx) = channel();
                let (mut back, mut answer) = channel();
                spawn(async move {
                    let n: u32 = rx.recv().await.unwrap();
                    back.send(n + 1).await.unwrap();
                });
                tokio::task::yield_now().await;
                let n = tokio::task::block_in_place(move || {
                    tx.send(1).wait().unwrap();
                    answer.recv().wait().unwrap()
                });
                assert_eq!(n, 2);
            }
        });
    }
}

#[test]
fn more_may_block_than_there_are_threads() {
    run(&threads(2), async {
        let (release, released) = std::sync::mpsc::channel::<()>();
        let released = Arc::new(Mutex::new(released));
        let (began, mut all_began) = tokio::sync::mpsc::unbounded_channel();
        let blocked: Vec<_> = (0..6)
            .map(|_| {
                let (began, released) = (began.clone(), released.clone());
                spawn(async move {
                    tokio::task::block_in_place(|| {
                        began.send(()).unwrap();
                        released.lock().unwrap().recv().unwrap();
                    });
                })
            })
            .collect();
        for _ in 0..6 {
            all_began.recv().await.unwrap();
        }
        // Others go on meanwhile.
        let (mut tx, mut rx) = channel();
        let sender = spawn(async move { tx.send(7).await });
        assert_eq!(rx.recv().await, Ok(7));
        sender.await.unwrap().unwrap();
        (0..6).for_each(|_| release.send(()).unwrap());
        for process in blocked {
            process.await.unwrap();
        }
    });
}

/// The one that is woken comes next on the worker of who wakes it; it is taken from there.
#[test]
fn who_never_returns_holds_up_nobody() {
    run(&threads(2), async {
        for _ in 0..10 {
            let (mut tx, mut rx) = channel::<Arc<AtomicBool>>();
            let woken = spawn(async move {
                let done = rx.recv().await.unwrap();
                let others: Vec<_> = (0..10).map(|n| spawn(async move { n })).collect();
                for (n, other) in others.into_iter().enumerate() {
                    assert_eq!(other.await, Ok(n));
                }
                done.store(true, Ordering::Relaxed);
            });
            let done = Arc::new(AtomicBool::new(false));
            tx.send(done.clone()).await.unwrap();
            while !done.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
            woken.await.unwrap();
        }
    });
}

/// A socket that always has something to read takes a turn like everybody.
#[test]
fn an_eager_reader_holds_up_nobody() {
    for runtime in [one_thread(), threads(1)] {
        run(&runtime, async move {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let written = std::thread::spawn(move || {
                let mut stream = std::net::TcpStream::connect(address).unwrap();
                // Until the reader is gone.
                while std::io::Write::write_all(&mut stream, &[0; 4096]).is_ok() {}
            });
            let (mut stream, _) = listener.accept().await.unwrap();
            let reader = spawn(async move {
                let mut byte = [0];
                while stream.read_exact(&mut byte).await.is_ok() {}
            });
            // A pair on another socket, which needs tokio to look at its events.
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let mut client = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (mut server, _) = listener.accept().await.unwrap();
            let echo = spawn(async move {
                let mut byte = [0];
                while server.read_exact(&mut byte).await.is_ok() {
                    server.write_all(&byte).await.unwrap();
                }
            });
            for n in 0..100 {
                client.write_all(&[n]).await.unwrap();
                let mut byte = [0];
                client.read_exact(&mut byte).await.unwrap();
                assert_eq!(byte, [n]);
            }
            drop(client);
            echo.await.unwrap();
            reader.cancel();
            assert_eq!(reader.await.unwrap_err().reason, ExitReason::Cancelled);
            written.join().unwrap();
        });
    }
}

/// Says that it was dropped.
struct Drops(Arc<AtomicUsize>);

impl Drop for Drops {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn all_end_with_their_runtime() {
    for runtime in [one_thread(), threads(1), threads(2)] {
        let drops = Arc::new(AtomicUsize::new(0));
        let wakers = Arc::new(Mutex::new(Vec::<Waker>::new()));
        let mut processes = Vec::new();
        runtime.block_on(async {
            for n in 0..100 {
                let (dropped, wakers) = (Drops(drops.clone()), wakers.clone());
                let process = spawn(async move {
                    let _dropped = dropped;
                    std::future::poll_fn(|cx| {
                        wakers.lock().unwrap().push(cx.waker().clone());
                        // Some are parked, others always busy.
                        if n % 2 == 0 {
                            cx.waker().wake_by_ref();
                        }
                        Poll::<()>::Pending
                    })
                    .await;
                });
                if n % 5 > 0 {
                    processes.push(process);
                }
                tokio::task::yield_now().await;
            }
        });
        drop(runtime);
        assert_eq!(drops.load(Ordering::Relaxed), 100);
        // Stale wakers do no harm.
        wakers.lock().unwrap().drain(..).for_each(Waker::wake);
        one_thread().block_on(async {
            for process in processes {
                assert_eq!(process.await.unwrap_err().reason, ExitReason::Cancelled);
            }
        });
    }
}

#[test]
fn a_runtime_that_has_ended_starts_nothing() {
    for runtime in [one_thread(), threads(1)] {
        let handle = runtime.handle().clone();
        drop(runtime);
        let process = {
            let _entered = handle.enter();
            spawn(async { unreachable!() })
        };
        let exit: Result<(), _> = one_thread().block_on(process);
        assert_eq!(exit.unwrap_err().reason, ExitReason::Cancelled);
    }
}

/// The runtime that is entered counts, also within a process of another.
#[test]
fn a_process_runs_where_it_was_spawned() {
    let thread_name = || std::thread::current().name().unwrap_or_default().to_owned();
    let other = Builder::new_multi_thread().worker_threads(1).thread_name("other").build().unwrap();
    let entered = other.handle().clone();
    let here = Builder::new_multi_thread().worker_threads(1).thread_name("here").enable_all().build().unwrap();
    run(&here, async move {
        let there = {
            let _entered = entered.enter();
            spawn(async move { thread_name() })
        };
        assert_eq!(there.await.unwrap(), "other");
        assert_eq!(spawn(async move { thread_name() }).await.unwrap(), "here");
        // Woken from the other runtime, it still runs here.
        let (mut tx, mut rx) = channel();
        {
            let _entered = entered.enter();
            drop(spawn(async move { tx.send(()).await }));
        }
        rx.recv().await.unwrap();
        assert_eq!(thread_name(), "here");
    });
}

/// Values go round between processes, threads and tokio's tasks, while some are cancelled; each value is received once, in order.
#[test]
fn many_at_once() {
    for runtime in [one_thread(), threads(1), threads(2), threads(4)] {
        let received = Arc::new(AtomicUsize::new(0));
        let total = received.clone();
        run(&runtime, async move {
            let mut ends = Vec::new();
            for n in 0..60 {
                let (mut tx, mut rx) = channel::<usize>();
                let (mut on, mut last) = channel::<usize>();
                let middle = async move {
                    while let Ok(value) = rx.recv().await {
                        if on.send(value).await.is_err() {
                            return;
                        }
                    }
                };
                if n % 3 == 0 {
                    drop(tokio::spawn(middle))
                } else {
                    drop(spawn(middle))
                }
                let send = async move {
                    for value in 0..300 {
                        if tx.send(value).await.is_err() {
                            return;
                        }
                    }
                };
                let mut sender = None;
                if n % 5 == 0 {
                    std::thread::spawn(move || {
                        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(send)
                    });
                } else {
                    sender = Some(spawn(send));
                }
                let total = total.clone();
                let receiver = spawn(async move {
                    let mut next = 0;
                    while let Ok(value) = last.recv().await {
                        assert_eq!(value, next);
                        next += 1;
                        total.fetch_add(1, Ordering::Relaxed);
                        if n % 4 == 1 && next == 100 {
                            // From within, so that it is in the midst of things.
                            if let Some(sender) = &sender {
                                sender.cancel();
                            }
                        }
                        if value % 50 == 0 {
                            tokio::task::yield_now().await;
                        }
                    }
                    if n % 4 == 1 && n % 5 != 0 { assert!(next >= 100) } else { assert_eq!(next, 300) }
                });
                ends.push(receiver);
            }
            for end in ends {
                end.await.unwrap();
            }
        });
        assert!(received.load(Ordering::Relaxed) >= 60 * 100);
    }
}

/// Started and joined by one another, in a burst and one after the other.
#[test]
fn families() {
    fn family(depth: u32) -> std::pin::Pin<Box<dyn Future<Output = u64> + Send>> {
        Box::pin(async move {
            if depth == 0 {
                return 1;
            }
            let children: Vec<_> = (0..4).map(|_| spawn(family(depth - 1))).collect();
            let mut sum = 0;
            for child in children {
                sum += child.await.unwrap();
            }
            sum
        })
    }
    for n in [1, 2, 4] {
        run(&threads(n), async { assert_eq!(family(6).await, 4096) });
    }
}
