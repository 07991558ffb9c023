//! The blocks and skeletons: how they end, what they forward, and that they lose nothing.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Waker};

use dunlin::blocks::{
    BlockError, FarmError, Progress, delta, delta_all, demultiplex, farm, generate, identity, map, merge, numbers,
    pairs, paraplex, pipeline, prefix, ring, sign, successor, tap,
};
use dunlin::doc::block_on;
use dunlin::prelude::*;

/// Polls whatever is in there once.
fn poll<F: Future>(future: Pin<&mut F>) -> Option<F::Output> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        std::task::Poll::Ready(output) => Some(output),
        std::task::Poll::Pending => None,
    }
}

async fn send_all<T>(mut tx: Sender<T>, values: impl IntoIterator<Item = T>) -> Result<(), SendError<T>> {
    for value in values {
        tx.send(value).await?;
    }
    Ok(())
}

async fn all<T>(mut rx: Receiver<T>) -> Result<Vec<T>, RecvError> {
    let mut values = vec![];
    while let Some(value) = rx.next().await? {
        values.push(value);
    }
    Ok(values)
}

type Ended = Result<(), BlockError<u32>>;
type Block = Pin<Box<dyn Future<Output = Ended>>>;
/// The name of a block, its number of outputs, and its constructor from an input and its outputs.
type Made = (&'static str, usize, fn(Receiver<u32>, Vec<Sender<u32>>) -> Block);

fn two<T>(mut all: Vec<T>) -> (T, T) {
    let second = all.pop().unwrap();
    (all.pop().unwrap(), second)
}

/// All blocks with one input.
fn blocks() -> Vec<Made> {
    vec![
        ("identity", 1, |rx, mut to| Box::pin(identity(rx, to.remove(0)))),
        ("prefix", 1, |rx, mut to| Box::pin(prefix(100, rx, to.remove(0)))),
        ("successor", 1, |rx, mut to| Box::pin(successor(rx, to.remove(0)))),
        ("map", 1, |rx, mut to| Box::pin(map(rx, to.remove(0), async |n| n + 10))),
        ("pairs", 1, |rx, mut to| Box::pin(pairs(rx, to.remove(0)))),
        ("merge", 1, |rx, mut to| Box::pin(merge(vec![rx], to.remove(0)))),
        ("delta", 2, |rx, to| {
            let (one, other) = two(to);
            Box::pin(delta(rx, one, other))
        }),
        ("delta_all", 3, |rx, to| Box::pin(delta_all(rx, to))),
        ("tap", 2, |rx, to| {
            let (to, watcher) = two(to);
            Box::pin(tap(rx, to, watcher))
        }),
    ]
}

/// A block with the far ends of its channels.
fn made(
    make: fn(Receiver<u32>, Vec<Sender<u32>>) -> Block,
    outputs: usize,
) -> (Block, Sender<u32>, Vec<Receiver<u32>>) {
    let (tx, rx) = channel();
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..outputs).map(|_| channel()).unzip();
    (make(rx, senders), tx, receivers)
}

#[test]
fn each_block_does_its_job_and_ends_with_its_input() {
    for (name, outputs, make) in blocks() {
        let expected = match name {
            "prefix" => vec![100, 1, 2, 3, 4],
            "successor" => vec![2, 3, 4, 5],
            "map" => vec![11, 12, 13, 14],
            "pairs" => vec![3, 5, 7],
            _ => vec![1, 2, 3, 4],
        };
        let (block, tx, receivers) = made(make, outputs);
        let all = receivers.into_iter().map(all).collect::<dunlin::Par<_>>();
        let (ended, sent, got) = block_on(async { par!(block, send_all(tx, 1..5), all) });
        assert!(ended.is_ok() && sent.is_ok(), "{name}: {ended:?}, {sent:?}");
        for got in got {
            assert_eq!(got.as_ref(), Ok(&expected), "{name}");
        }
    }
}

#[test]
fn each_block_passes_poison_on_to_all_its_other_ends() {
    for (name, outputs, make) in blocks() {
        // The input, and then each output in turn.
        for poisoned in 0..=outputs {
            let (block, mut tx, mut receivers) = made(make, outputs);
            match poisoned {
                0 => tx.poison("mine"),
                output => receivers[output - 1].poison("mine"),
            }
            let ended = block_on(async {
                let (ended, _, _) = par!(
                    block,
                    // The block waits for these before it meets the poison.
                    async { while tx.send(1).await.is_ok() {} },
                    async {
                        let receives = receivers.iter_mut().map(async |rx| while rx.recv().await.is_ok() {});
                        receives.collect::<dunlin::Par<_>>().await
                    },
                );
                ended
            });
            assert!(ended.is_err_and(|error| error.is_poisoned()), "{name}, end {poisoned}");
            let Err(SendError::NotTaken { why: Why::Poisoned(reason), .. }) = tx.try_send(1) else {
                panic!("{name}: the input is not poisoned by end {poisoned}")
            };
            assert_eq!(reason.as_str(), "mine", "{name}");
            for rx in &mut receivers {
                let Err(RecvError::Poisoned(reason)) = rx.try_recv() else {
                    panic!("{name}: an output is not poisoned by end {poisoned}")
                };
                assert_eq!(reason.as_str(), "mine", "{name}");
            }
        }
    }
}

#[test]
fn block_returns_its_value_when_the_output_ends() {
    for (name, outputs, make) in blocks() {
        let (block, mut tx, mut receivers) = made(make, outputs);
        // The tap keeps the watcher; the delta's other output takes its copy.
        drop(receivers.remove(0));
        let (ended, back) = block_on(async {
            let (ended, back, _) = par!(
                block,
                async {
                    loop {
                        if let Err(error) = tx.send(1).await {
                            return error;
                        }
                    }
                },
                receivers.into_iter().map(all).collect::<dunlin::Par<_>>()
            );
            (ended, back)
        });
        let error = ended.expect_err(name);
        assert!(error.is_closed() && !error.is_poisoned(), "{name}: {error:?}");
        let expected = match name {
            "prefix" => 100,
            "successor" | "pairs" => 2,
            "map" => 11,
            _ => 1,
        };
        assert_eq!(error.into_value(), Some(expected), "{name}");
        assert!(back.is_closed() && back.into_value() == 1, "{name}: a later send returns its value");
    }
}

#[test]
fn block_forwards_other_errors_as_poison() {
    let ((tx, rx), (ty, mut ry)) = (channel(), dunlin::channel_with(RefuseAll));
    let (ended, sent) = block_on(async { par!(identity(rx, ty), send_all(tx, [1, 2])) });
    let error = ended.unwrap_err();
    assert!(!error.is_closed() && !error.is_poisoned());
    assert_eq!(error.to_string(), "not sent: the channel's policy refused the value");
    assert_eq!(error.into_value(), Some(1));
    let Err(SendError::NotTaken { value: 2, why: Why::Poisoned(reason) }) = sent else { panic!("{sent:?}") };
    assert_eq!(reason.as_str(), "not sent: the channel's policy refused the value");
    assert!(ry.try_recv().unwrap_err().is_poisoned());
}

#[derive(Clone)]
struct RefuseAll;

impl Buffering for RefuseAll {
    fn admit(&mut self, _: usize) -> Admit {
        Admit::Refuse
    }
}

#[test]
fn a_delta_sends_in_whichever_order_its_outputs_take() {
    for first in [0, 1] {
        let ((mut tx, rx), (one, a), (other, b)) = (channel(), channel(), channel());
        let mut block = pin!(delta(rx, one, other));
        let mut outputs = [a, b];
        block_on(async {
            let (sent, ()) = par!(tx.send(7), async {
                assert!(poll(block.as_mut()).is_none());
            });
            assert_eq!(sent, Ok(()));
        });
        for output in [first, 1 - first] {
            assert_eq!(outputs[output].try_recv(), Ok(7), "output {output} after {}", 1 - output);
            assert!(poll(block.as_mut()).is_none());
        }
    }
}

#[test]
fn delta_serves_its_remaining_output_and_ends_at_once_on_poison() {
    let ((mut tx, rx), (one, a), (other, mut b)) = (channel(), channel(), channel());
    let mut block = pin!(delta(rx, one, other));
    drop(a);
    let mut send = pin!(tx.send(7));
    assert!(poll(send.as_mut()).is_none());
    assert!(poll(block.as_mut()).is_none(), "the other output has not taken it");
    assert_eq!(poll(send), Some(Ok(())));
    assert_eq!(b.try_recv(), Ok(7));
    assert!(poll(block).is_some_and(|ended| ended.is_err_and(|error| error.is_closed())));

    let ((mut tx, rx), (one, a), (other, mut b)) = (channel(), channel(), channel());
    let block = pin!(delta(rx, one, other));
    a.poison("mine");
    let mut send = pin!(tx.send(7));
    assert!(poll(send.as_mut()).is_none());
    let error = poll(block).expect("it does not wait for the other output").unwrap_err();
    assert_eq!(error.into_value(), Some(7));
    assert!(b.try_recv().unwrap_err().is_poisoned());
}

#[test]
fn rendezvous_through_a_tap_is_a_rendezvous() {
    let ((mut tx, rx), (to, mut out), (show, mut watcher)) = (channel(), channel(), channel());
    let mut block = pin!(tap(rx, to, show));
    let mut send = pin!(tx.send(7));
    assert!(poll(send.as_mut()).is_none() && poll(block.as_mut()).is_none());
    assert_eq!(watcher.try_recv(), Ok(7));
    assert!(poll(block.as_mut()).is_none() && poll(send.as_mut()).is_none(), "it is not received yet");
    assert_eq!(out.try_recv(), Ok(7));
    assert!(poll(block.as_mut()).is_none());
    assert_eq!(poll(send), Some(Ok(())));
}

#[test]
fn tap_continues_after_its_watcher_leaves() {
    let ((tx, rx), (to, out), (show, mut watcher)) = (channel(), channel(), channel());
    let (ended, sent, got, ()) = block_on(async {
        par!(tap(rx, to, show), send_all(tx, 0..5), all(out), async {
            assert_eq!(watcher.recv().await, Ok(0));
            drop(watcher);
        })
    });
    assert!(ended.is_ok() && sent.is_ok());
    assert_eq!(got, Ok(vec![0, 1, 2, 3, 4]));
}

#[test]
fn a_merge_is_fair_outlives_single_inputs_and_passes_the_poison_of_one_to_the_others() {
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..3).map(|_| channel()).unzip();
    let (to, out) = channel();
    let writers = senders.into_iter().enumerate().map(|(n, tx)| send_all(tx, vec![n; 4 * (n + 1)]));
    let (ended, _, got) = block_on(async { par!(merge(receivers, to), writers.collect::<dunlin::Par<_>>(), all(out)) });
    assert!(ended.is_ok());
    let got = got.unwrap();
    let count = |n: usize, of: &[usize]| of.iter().filter(|m| **m == n).count();
    assert_eq!((count(0, &got), count(1, &got), count(2, &got)), (4, 8, 12));
    // While all three send, each has every third turn.
    for third in got[..12].chunks(3) {
        assert_eq!(third.iter().collect::<BTreeSet<_>>().len(), 3, "{got:?}");
    }

    let (mut senders, receivers): (Vec<_>, Vec<_>) = (0..3).map(|_| channel::<u8>()).unzip();
    let (to, mut out) = channel();
    senders[1].poison("mine");
    assert!(block_on(merge(receivers, to)).is_err_and(|error| error.is_poisoned()));
    assert!(senders.iter_mut().all(|tx| tx.try_send(1).unwrap_err().is_poisoned()));
    assert!(out.try_recv().unwrap_err().is_poisoned());
}

/// The example of JCSP's `Paraplex`: numbers, squares and Fibonacci numbers as the columns of a table.
#[test]
fn a_table_is_made_of_the_standard_blocks() {
    let ((a, column_a), (b, column_b), (c, column_c)) = (channel(), channel(), channel());
    let (to, mut rows) = channel();
    // The sums of neighbours of the running sums of the numbers.
    let ((naturals, from), (sums, neighbours)) = (channel(), channel());
    let mut sum = 0;
    let running = map(from, sums, |n| {
        sum += n;
        std::future::ready(sum)
    });
    // A circle that starts with 0 and 1.
    let ((start, zero), (first, one), (round, around), (back, again)) = (channel(), channel(), channel(), channel());
    let (row, squares, fibonacci, (numbered, table)) = block_on(async {
        par!(
            paraplex(vec![column_a, column_b, column_c], to),
            async { par!(numbers(naturals), running, pairs(neighbours, b)) },
            async { par!(prefix(1, again, first), prefix(0, one, start), delta(zero, round, c), pairs(around, back)) },
            async {
                par!(numbers(a), async {
                    let mut table = vec![];
                    for _ in 0..6 {
                        table.push(rows.recv().await.unwrap());
                    }
                    drop(rows);
                    table
                })
            },
        )
    });
    assert_eq!(table, [[0, 1, 0], [1, 4, 1], [2, 9, 1], [3, 16, 2], [4, 25, 3], [5, 36, 5]]);
    // The end of the table ends them all in order, and each has what it had in hand.
    assert_eq!(row.unwrap_err().into_value(), Some(vec![6, 49, 8]));
    assert_eq!(numbered.unwrap_err().into_value(), Some(7));
    let all = [squares.0, squares.1, squares.2, fibonacci.2];
    assert!(all.iter().all(|ended| ended.as_ref().is_err_and(|error| error.is_closed())), "{all:?}");
    assert!(fibonacci.3.is_ok() || fibonacci.3.is_err_and(|error| error.is_closed()));
}

#[test]
fn a_signed_merge_is_taken_apart_by_a_demultiplex() {
    let (senders, inputs): (Vec<_>, Vec<_>) = (0..3).map(|_| channel()).unzip();
    let (signed, merged): (Vec<_>, Vec<_>) = (0..3).map(|_| channel()).unzip();
    let (outputs, receivers): (Vec<_>, Vec<_>) = (0..3).map(|_| channel()).unzip();
    let (to, from) = channel();
    let signs = inputs.into_iter().zip(signed).enumerate().map(|(n, (from, to))| sign(n, from, to));
    let sends = senders.into_iter().enumerate().map(|(n, tx)| send_all(tx, (0..5).map(move |k| 10 * n + k)));
    let (signs, merged, split, sent, got) = block_on(async {
        par!(
            signs.collect::<dunlin::Par<_>>(),
            merge(merged, to),
            demultiplex(from, outputs),
            sends.collect::<dunlin::Par<_>>(),
            receivers.into_iter().map(all).collect::<dunlin::Par<_>>(),
        )
    });
    assert!(signs.iter().all(Result::is_ok) && merged.is_ok() && split.is_ok() && sent.iter().all(Result::is_ok));
    for (n, got) in got.into_iter().enumerate() {
        assert_eq!(got, Ok((0..5).map(|k| 10 * n + k).collect::<Vec<_>>()));
    }
}

#[test]
fn demultiplex_refuses_an_output_that_it_does_not_have_and_tells_all_why() {
    for count in [0, 2] {
        let ((mut tx, rx), (outputs, receivers)) =
            (channel(), (0..count).map(|_| channel()).unzip::<_, _, Vec<_>, Vec<_>>());
        let (ended, sent) = block_on(async { par!(demultiplex(rx, outputs), tx.send((2, 7))) });
        assert!(sent.is_ok());
        let error = ended.unwrap_err();
        assert!(!error.is_closed() && !error.is_poisoned());
        let text = format!("a value for output 2 of a block with {count}, counted from 0");
        assert_eq!(error.to_string(), text);
        assert_eq!(error.into_value(), Some(7));
        let Err(SendError::NotTaken { why: Why::Poisoned(reason), .. }) = tx.try_send((0, 1)) else { panic!() };
        assert_eq!(reason.as_str(), text);
        for mut rx in receivers {
            let Err(RecvError::Poisoned(reason)) = rx.try_recv() else { panic!() };
            assert_eq!(reason.as_str(), text);
        }
    }
}

#[test]
fn a_paraplex_takes_in_any_order_and_returns_the_unfinished_row() {
    let (mut senders, inputs): (Vec<_>, Vec<_>) = (0..3).map(|_| channel()).unzip();
    let (to, mut rows) = channel();
    let mut block = pin!(paraplex(inputs, to));
    for n in [2, 0, 1] {
        let mut send = pin!(senders[n].send(n));
        assert!(poll(send.as_mut()).is_none() && poll(block.as_mut()).is_none());
        assert_eq!(poll(send), Some(Ok(())), "input {n} is received before the row is complete");
    }
    // Until the row is received no input is.
    {
        let mut early = pin!(senders[0].send(10));
        assert!(poll(early.as_mut()).is_none() && poll(block.as_mut()).is_none() && poll(early.as_mut()).is_none());
        assert_eq!(rows.try_recv(), Ok(vec![0, 1, 2]));
        assert!(poll(block.as_mut()).is_none());
        assert_eq!(poll(early), Some(Ok(())));
    }
    drop(senders.remove(1));
    let Some(Ok(row)) = poll(block.as_mut()) else { panic!("no row can be complete") };
    assert_eq!(row, [Some(10), None, None]);
    assert!(block_on(paraplex(Vec::<Receiver<u8>>::new(), channel().0)).is_ok_and(|row| row.is_empty()));
}

#[test]
fn poison_of_one_input_passes_through_a_paraplex_at_once() {
    let (mut senders, inputs): (Vec<_>, Vec<_>) = (0..3).map(|_| channel::<u8>()).unzip();
    let (to, mut rows) = channel();
    senders[1].poison("mine");
    assert!(block_on(paraplex(inputs, to)).is_err_and(|error| error.is_poisoned()));
    assert!(senders.iter_mut().all(|tx| tx.try_send(1).unwrap_err().is_poisoned()));
    assert!(rows.try_recv().unwrap_err().is_poisoned());
}

#[test]
fn delta_all_serves_its_remaining_outputs_and_takes_nothing_without_any() {
    let ((mut tx, rx), (outputs, mut receivers)) =
        (channel(), (0..3).map(|_| channel()).unzip::<_, _, Vec<_>, Vec<_>>());
    let mut block = pin!(delta_all(rx, outputs));
    drop(receivers.remove(1));
    let mut send = pin!(tx.send(7));
    assert!(poll(send.as_mut()).is_none() && poll(block.as_mut()).is_none());
    assert_eq!(poll(send), Some(Ok(())));
    for rx in receivers.iter_mut().rev() {
        assert!(poll(block.as_mut()).is_none(), "an output has not received it");
        assert_eq!(rx.try_recv(), Ok(7));
    }
    assert!(poll(block).is_some_and(|ended| ended.is_err_and(|error| error.is_closed())));

    let (mut tx, rx) = channel();
    let (ended, sent) = block_on(async { par!(delta_all(rx, vec![]), tx.send(7)) });
    assert!(ended.is_ok());
    assert_eq!(sent.unwrap_err().into_value(), 7);
}

#[test]
fn blocks_without_an_input_end_with_their_output_and_pass_no_poison_by() {
    let ((to, mut out), (ty, mut oy)) = (channel(), channel());
    let (made, counted, got) = block_on(async {
        par!(generate(7, to), numbers(ty), async {
            let got = [out.recv().await, out.recv().await].map(Result::unwrap);
            let numbers = [oy.recv().await, oy.recv().await].map(Result::unwrap);
            drop(out);
            oy.poison("mine");
            (got, numbers)
        })
    });
    assert_eq!(got, ([7, 7], [0, 1]));
    let made = made.unwrap_err();
    assert!(made.is_closed() && made.into_value() == Some(7));
    assert!(counted.unwrap_err().is_poisoned());
}

#[test]
fn pipeline_loses_no_value_when_its_end_leaves() {
    let ((tx, rx), (ty, mut ry)) = (channel(), channel());
    let (sent, stages, got) = block_on(async {
        par!(send_all(tx, 0..100), pipeline(rx, ty, 0..4, |_, from, to| identity(from, to)), async {
            let mut got = vec![];
            for _ in 0..10 {
                got.push(ry.recv().await.unwrap());
            }
            drop(ry);
            got
        })
    });
    assert_eq!(got, (0..10).collect::<Vec<_>>());
    let in_hand = stages.into_iter().map(|ended| ended.unwrap_err().into_value().unwrap());
    assert_eq!(in_hand.collect::<Vec<_>>(), [13, 12, 11, 10], "each stage has its own back");
    assert_eq!(sent.unwrap_err().into_value(), 14, "and so has the sender");
}

#[test]
fn a_pipeline_ends_in_order_with_its_input_and_one_stage_is_enough() {
    for stages in [1, 5] {
        let ((tx, rx), (ty, ry)) = (channel::<u32>(), channel());
        let (sent, ended, got) = block_on(async {
            par!(send_all(tx, 0..3), pipeline(rx, ty, 0..stages, |_, rx, tx| successor(rx, tx)), all(ry))
        });
        assert!(sent.is_ok() && ended.len() == stages && ended.iter().all(Result::is_ok));
        assert_eq!(got, Ok(vec![stages as u32, stages as u32 + 1, stages as u32 + 2]));
    }
}

#[test]
#[should_panic(expected = "a pipeline has at least one stage")]
fn a_pipeline_without_stages_is_refused() {
    let ((_tx, rx), (ty, _ry)) = (channel::<u8>(), channel());
    let none: [u8; 0] = [];
    drop(pipeline(rx, ty, none, |_, rx, tx| identity(rx, tx)));
}

#[test]
fn ring_member_receives_from_the_one_before() {
    let heard = ring(0..5, async |me: u32, mut from: Receiver<u32>, mut to: Sender<u32>| {
        let (sent, heard) = par!(to.send(me), from.recv());
        sent.unwrap();
        heard.unwrap()
    });
    assert_eq!(block_on(heard), [4, 0, 1, 2, 3]);
}

#[test]
fn a_ring_ends_when_one_member_leaves() {
    let ended = block_on(ring(0..5, async |me: u32, from: Receiver<u32>, to: Sender<u32>| match me {
        2 => Ok(()),
        _ => identity(from, to).await,
    }));
    assert!(ended.iter().all(Result::is_ok), "the input of each ends in order: {ended:?}");
}

// Farms fork processes, so these tests run on tokio.

#[test]
fn a_farm_does_every_job_once() {
    for workers in [1, 3, 8] {
        let ((tx, rx), (ty, ry)) = (channel(), channel());
        let (ended, sent, got) = dunlin::block_on(async {
            par!(farm(rx, ty, workers, async |n: u64| n * n).into_future(), send_all(tx, 0..200), all(ry))
        });
        assert!(ended.is_ok() && sent.is_ok());
        let mut got = got.unwrap();
        got.sort_unstable();
        assert_eq!(got, (0..200).map(|n| n * n).collect::<Vec<u64>>());
    }
}

/// A farm of three workers, whose first job waits until the test releases it.
struct Held {
    gate: Sender<()>,
    jobs: Sender<u32>,
    results: Receiver<u32>,
    progress: Receiver<Progress>,
    farm: dunlin::Process<Result<(), FarmError<u32>>>,
}

fn held(in_order: bool) -> Held {
    let ((gate, open), (jobs, from), (to, results)) = (channel(), channel(), channel());
    let open = open.share();
    let mut farm = farm(from, to, 3, move |n: u32| {
        let mut open = open.clone();
        async move {
            if n == 0 {
                open.recv().await.unwrap();
            }
            n
        }
    });
    if in_order {
        farm = farm.in_order();
    }
    let (farm, progress) = farm.watched();
    Held { gate, jobs, results, progress, farm: spawn(farm) }
}

async fn until(progress: &mut Receiver<Progress>, so: impl Fn(&Progress) -> bool) {
    while !so(&progress.recv().await.expect("the farm works")) {}
}

#[test]
fn a_farm_sends_as_ready_or_in_the_order_of_the_jobs() {
    dunlin::block_on(async {
        let Held { mut gate, jobs, mut results, farm, .. } = held(false);
        spawn(send_all(jobs, 0..3));
        let mut first = [results.recv().await.unwrap(), results.recv().await.unwrap()];
        first.sort_unstable();
        assert_eq!(first, [1, 2]);
        gate.send(()).await.unwrap();
        assert_eq!(results.recv().await, Ok(0));
        farm.await.unwrap().unwrap();

        let Held { mut gate, jobs, results, farm, mut progress } = held(true);
        spawn(send_all(jobs, 0..3));
        until(&mut progress, |now| now.done == 2 && now.busy == 1).await;
        gate.send(()).await.unwrap();
        assert_eq!(all(results).await, Ok(vec![0, 1, 2]));
        farm.await.unwrap().unwrap();
    });
}

#[test]
fn a_farm_takes_no_more_jobs_than_it_has_room_for() {
    dunlin::block_on(async {
        for in_order in [false, true] {
            let Held { mut gate, mut jobs, results, mut progress, farm } = held(in_order);
            for n in 0..6 {
                jobs.send(n).await.unwrap();
            }
            // Five results wait, or are held up by the first; with the current job there are two for each
            // worker.
            until(&mut progress, |now| now.done == 5 && now.busy == 1).await;
            let refused = jobs.send(6).within(Duration::ZERO).await;
            assert!(refused.unwrap_err().is_timed_out());
            gate.send(()).await.unwrap();
            let (got, ()) = par!(all(results), async {
                jobs.send(6).await.unwrap();
                drop(jobs);
            });
            let mut got = got.unwrap();
            if !in_order {
                got.sort_unstable();
            }
            assert_eq!(got, (0..7).collect::<Vec<_>>());
            farm.await.unwrap().unwrap();
            let last = all(progress).await.unwrap().pop().unwrap();
            assert_eq!((last.done, last.busy, last.total), (7, 0, Some(7)));
        }
    });
}

#[test]
fn farm_returns_all_jobs_when_its_results_end() {
    dunlin::block_on(async {
        for in_order in [false, true] {
            let Held { mut gate, mut jobs, results, mut progress, farm } = held(in_order);
            for n in 0..4 {
                jobs.send(n).await.unwrap();
            }
            until(&mut progress, |now| now.done == 3 && now.busy == 1).await;
            drop(results);
            // In order, the first job, still running, finds the results ended.
            if in_order {
                gate.send(()).await.unwrap();
            }
            jobs.closed().await;
            assert_eq!(jobs.send(9).await.unwrap_err().into_value(), 9);
            if !in_order {
                gate.send(()).await.unwrap();
            }
            let FarmError { mut unsent, error } = farm.await.unwrap().unwrap_err();
            assert!(error.is_closed());
            unsent.sort_unstable();
            assert_eq!(unsent, [0, 1, 2, 3]);
        }
    });
}

#[test]
fn poison_passes_through_a_farm_at_once_both_ways() {
    dunlin::block_on(async {
        for backwards in [false, true] {
            let Held { mut gate, mut jobs, mut results, mut progress, farm } = held(false);
            jobs.send(0).await.unwrap();
            jobs.send(1).await.unwrap();
            until(&mut progress, |now| now.done == 1 && now.busy == 1).await;
            if backwards {
                results.poison("mine");
                jobs.closed().await;
            } else {
                jobs.poison("mine");
                results.closed().await;
            }
            // The first job has not ended yet.
            let SendError::NotTaken { why: Why::Poisoned(reason), .. } = jobs.send(2).await.unwrap_err() else {
                panic!()
            };
            assert_eq!(reason.as_str(), "mine");
            assert!(results.recv().await.unwrap_err().is_poisoned());
            gate.send(()).await.unwrap();
            let FarmError { mut unsent, error } = farm.await.unwrap().unwrap_err();
            assert!(error.is_poisoned());
            unsent.sort_unstable();
            assert_eq!(unsent, [0, 1]);
        }
    });
}

#[test]
fn a_panic_in_a_job_ends_the_farm_with_its_text() {
    dunlin::block_on(async {
        let ((tx, rx), (ty, ry)) = (channel(), channel());
        let work = async |n: u32| {
            assert!(n != 3, "no threes");
            n
        };
        let (ended, sent, got) = par!(farm(rx, ty, 2, work).in_order().into_future(), send_all(tx, 0..100), all(ry));
        let error = ended.unwrap_err().error;
        assert!(matches!(&error, Error::Exit(_)) && error.to_string().contains("no threes"), "{error}");
        assert!(sent.unwrap_err().is_poisoned());
        let Err(RecvError::Poisoned(reason)) = got else { panic!("{got:?}") };
        assert!(reason.as_str().contains("no threes"));
    });
}

#[test]
fn a_farm_that_is_dropped_cancels_its_jobs() {
    static DROPPED: AtomicUsize = AtomicUsize::new(0);
    struct Counts(Sender<()>);
    impl Drop for Counts {
        fn drop(&mut self) {
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
    }
    dunlin::block_on(async {
        let ((mut tx, rx), (ty, _ry), (held, mut released)) = (channel(), channel::<()>(), channel());
        let farm = spawn(farm(rx, ty, 2, async |held: Counts| {
            let mut held = held;
            held.0.closed().await;
        }));
        tx.send(Counts(held)).await.unwrap();
        farm.cancel();
        // The drop of the job drops its end.
        assert_eq!(released.next().await, Ok(None));
        assert_eq!(DROPPED.load(Ordering::Relaxed), 1);
    });
}
