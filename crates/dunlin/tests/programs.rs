//! Programs as a user would write them against the API, from a first channel to a farm: they compile and do
//! what their comments promise. Without the feature `serde` a message needs no derive.

#[allow(dead_code, unused_imports)]
mod hello {
    use dunlin::prelude::*;
    #[dunlin::main]
    async fn main() -> Result {
        let (mut tx, mut rx) = channel();
        let greeter = spawn(async move {
            tx.send("hello").await?; // returns once a receive has returned it
            tx.send("goodbye").await
        });
        while let Some(word) = rx.next().await? {
            // None: ended in order. Err: poison, a lost node
            println!("{word}");
        }
        greeter.await??; // its exit, then its result
        Ok(())
    }

    #[test]
    fn greeter_program_exits_with_success() {
        let success = std::process::ExitCode::SUCCESS;
        assert_eq!(format!("{:?}", main()), format!("{success:?}"));
    }
}

#[allow(dead_code, unused_imports)]
mod par {
    use dunlin::prelude::*;
    async fn sums(numbers: &[u64]) -> Result<(u64, u64)> {
        let (mut even, mut evens) = channel();
        let (mut odd, mut odds) = channel();
        let mut seen = 0;
        let (split, a, b) = par!(
            async {
                for &n in numbers {
                    seen += 1; // borrowed
                    if n % 2 == 0 { even.send(n).await? } else { odd.send(n).await? }
                }
                drop((even, odd)); // else only borrowed, and the totals wait for ever
                Ok::<_, Error>(())
            },
            total(&mut evens),
            total(&mut odds),
        );
        split?;
        println!("{seen}");
        Ok((a?, b?))
    }
    async fn total(rx: &mut Receiver<u64>) -> Result<u64> {
        let mut sum = 0;
        while let Some(n) = rx.next().await? {
            sum += n
        }
        Ok(sum)
    }
    async fn squares(xs: &[u64]) -> Vec<u64> {
        xs.iter().map(|x| async move { x * x }).collect::<Par<_>>().await // a list
    }

    #[test]
    fn sums_even_and_odd() {
        assert_eq!(dunlin::block_on(sums(&[1, 2, 3, 4])).unwrap(), (6, 4));
        assert_eq!(dunlin::block_on(squares(&[3, 4])), [9, 16]);
    }
}

#[allow(dead_code, unused_imports)]
mod choice {
    use dunlin::prelude::*;
    struct Job(String);
    async fn depot(
        mut stop: Receiver<()>,
        mut jobs: Receiver<Job>,
        mut out: Sender<Job>,
        mut level: Sender<u64>,
        mut audit: Receiver<Job>,
        mut stats: Callee<String, u64>,
        mut log: Shared<Sender<String>>,
    ) -> Result {
        let (mut held, mut done, mut loaded) = (None, 0, false);
        let mut rates = blocking(|_| std::fs::read_to_string("rates"));
        loop {
            alt! { biased; // in this order; without the word, fair
                r = stop.recv() => return Ok(r?),
                job = jobs.recv(), if held.is_none() => held = Some(job?),
                r = out.send_from(&mut held) => { r?; done += 1 } // off while the slot is empty
                r = level.send(done) => r?, // Copy: nothing to lose
                job = audit.recv_extended() => {
                    let job = job?;
                    out.send(Job(job.0.clone())).await?; // audit's sender waits for this too
                }
                ask = stats.accept() => { let _ = ask?.reply(done); }
                line = log.claim(), if done % 100 == 0 => line?.send(format!("{done} jobs")).await?,
                text = &mut rates, if !loaded => { loaded = true; println!("{}", text??) }
                r = future(tokio::task::yield_now()), if done > 9 => r, // any future, named as such
                _ = sleep(Duration::from_secs(30)) => println!("quiet"),
            }
        }
    }
    async fn poll_once(rx: &mut Receiver<Job>) -> Option<Job> {
        alt! { biased; job = rx.recv() => job.ok(), skip => None }
    }

    #[test]
    fn the_depot_passes_jobs_and_stops() {
        // The program reads `rates` where it runs. No other test of this file reads a file.
        std::env::set_current_dir(env!("CARGO_TARGET_TMPDIR")).unwrap();
        std::fs::write("rates", "1 to 1").unwrap();
        dunlin::block_on(async {
            let ((mut stop, s), (mut jobs, j), (out, mut done)) = (channel(), channel(), channel());
            let ((level, mut levels), (mut audit, a)) = (channel(), channel());
            let ((mut stats, t), (log, mut lines)) = (call(), channel());
            let running = spawn(depot(s, j, out, level, a, t, log.share()));
            let reader = spawn(async move {
                let mut all = Vec::new();
                while let Ok(line) = lines.recv().await {
                    all.push(line);
                }
                all
            });
            jobs.send(Job("dig".into())).await.unwrap();
            assert_eq!(done.recv().await.unwrap().0, "dig");
            assert!(levels.recv().await.unwrap() <= 1);
            assert!(stats.call("how many".into()).await.unwrap() <= 1);
            let (audited, copy) = par!(audit.send(Job("look".into())), done.recv());
            audited.unwrap();
            assert_eq!(copy.unwrap().0, "look");
            stop.send(()).await.unwrap();
            running.await.unwrap().unwrap();
            assert!(reader.await.unwrap().iter().all(|line| line == "0 jobs"));
        });
    }

    #[test]
    fn polls_once() {
        dunlin::block_on(async {
            let (mut tx, mut rx) = channel_with(fifo(1));
            assert!(poll_once(&mut rx).await.is_none());
            tx.send(Job("dig".into())).await.unwrap();
            assert_eq!(poll_once(&mut rx).await.unwrap().0, "dig");
        });
    }
}

#[allow(dead_code, unused_imports)]
mod run_time_choice {
    use dunlin::prelude::*;
    async fn merge(mut inputs: Vec<Receiver<String>>, mut out: Sender<String>) -> Result {
        while !inputs.is_empty() {
            let (index, line) = Choice::fair().all(inputs.iter_mut().map(|rx| rx.next())).await;
            match line? {
                Some(line) => out.send(line).await?,
                None => drop(inputs.swap_remove(index)),
            }
        }
        Ok(())
    }
    enum Event {
        Line(String),
        Tick,
    }
    async fn event(rx: &mut Receiver<String>, open: bool) -> Result<Event> {
        let (_index, event) = Choice::prioritised()
            .on_if(open, || rx.recv(), |line| line.map(Event::Line))
            .on(sleep(Duration::from_secs(1)), |_| Ok(Event::Tick))
            .await;
        Ok(event?)
    }
    async fn farm(jobs: &mut Receiver<String>, workers: &mut [Sender<String>]) -> Result {
        let mut job = None;
        loop {
            job = match job {
                None => jobs.next().await?,
                some => some,
            };
            if job.is_none() {
                return Ok(());
            }
            send_to_any(&mut job, &mut *workers).await?; // one takes it, or it stays here
        }
    }

    #[test]
    fn merges_until_all_have_ended() {
        dunlin::block_on(async {
            let ends: Vec<_> = (0..3).map(|_| channel()).collect();
            let (senders, inputs): (Vec<_>, Vec<_>) = ends.into_iter().unzip();
            let (out, mut merged) = channel();
            let merging = spawn(merge(inputs, out));
            for (n, mut tx) in senders.into_iter().enumerate() {
                spawn(async move {
                    for line in 0..3 {
                        tx.send(format!("{n}.{line}")).await.unwrap();
                    }
                });
            }
            let mut lines = Vec::new();
            while let Some(line) = merged.next().await.unwrap() {
                lines.push(line);
            }
            merging.await.unwrap().unwrap();
            lines.sort();
            assert_eq!(lines, ["0.0", "0.1", "0.2", "1.0", "1.1", "1.2", "2.0", "2.1", "2.2"]);
        });
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_is_a_line_or_a_tick() {
        let (mut tx, mut rx) = channel_with(fifo(1));
        assert!(matches!(event(&mut rx, true).await.unwrap(), Event::Tick));
        tx.send("line".to_string()).await.unwrap();
        assert!(matches!(event(&mut rx, false).await.unwrap(), Event::Tick));
        assert!(matches!(event(&mut rx, true).await.unwrap(), Event::Line(line) if line == "line"));
    }

    #[test]
    fn farms_jobs_out() {
        dunlin::block_on(async {
            let (mut tx, mut jobs) = channel();
            let ends: Vec<_> = (0..2).map(|_| channel()).collect();
            let (mut workers, receivers): (Vec<_>, Vec<_>) = ends.into_iter().unzip();
            let working: Vec<_> = receivers
                .into_iter()
                .map(|mut rx| {
                    spawn(async move {
                        let mut done = 0;
                        while rx.next().await.unwrap().is_some() {
                            done += 1;
                        }
                        done
                    })
                })
                .collect();
            spawn(async move {
                for n in 0..20 {
                    tx.send(n.to_string()).await.unwrap();
                }
            });
            farm(&mut jobs, &mut workers).await.unwrap();
            drop(workers);
            let mut done = 0;
            for worker in working {
                done += worker.await.unwrap();
            }
            assert_eq!(done, 20);
        });
    }
}

#[allow(dead_code, unused_imports)]
mod policies {
    use dunlin::Buffering;
    use dunlin::prelude::*;
    #[derive(Clone)]
    struct ShedLoad {
        high: usize,
    }
    impl Buffering for ShedLoad {
        // decides on counts: one policy for every T
        fn admit(&mut self, queued: usize) -> Admit {
            if queued < self.high { Admit::Keep } else { Admit::DropOldest }
        }
    }
    fn log_to(make: &ChannelFactory) -> (Sender<String>, Receiver<String>) {
        make.channel() // the component does not choose
    }
    fn set_up() {
        let (_tx, _rx) = channel_with::<u8>(fifo(16)); // fifo(0) panics here, with advice
        let (_tx, _log) = log_to(&ChannelFactory::new(ShedLoad { high: 100 }));
        let strict = fifo(4).pending_senders(8, Overflow::Reject); // the ninth gets Why::Refused
        let (_tx, _rx) = channel_with::<f64>(strict);
    }

    #[test]
    fn sets_up() {
        set_up();
        assert!(std::panic::catch_unwind(|| fifo(0)).is_err());
    }
}

#[allow(clippy::unit_arg)] // the program's words
#[allow(dead_code, unused_imports)]
mod fates {
    use dunlin::prelude::*;
    struct Order(u32);
    async fn place(shop: &mut Sender<Order>, order: Order, later: &mut Vec<Order>) -> Result {
        match shop.send(order).within(Duration::from_secs(2)).await {
            Ok(()) => Ok(()), // a receive has returned it
            Err(SendError::NotTaken { value, why: Why::TimedOut }) => Ok(later.push(value)),
            Err(SendError::NotTaken { value, why }) => Ok(println!("{}: {why:?}", value.0)),
            Err(unknown @ SendError::Unknown { .. }) => Err(unknown.into()), // its node died: the outcome is unknown
        }
    }
    async fn hurry(shop: &mut Sender<Order>, order: Order) -> Result<Option<Order>> {
        let mut slot = Some(order);
        tokio::select! {
            r = shop.send_from(&mut slot) => r?,
            _ = sleep(Duration::from_millis(5)) => shop.settle(&mut slot).await?, // remote: asks the home
        }
        Ok(slot) // empty if, and only if, it was taken
    }

    #[tokio::test(start_paused = true)]
    async fn order_is_kept_when_its_send_times_out() {
        let (mut shop, mut orders) = channel();
        let mut later = Vec::new();
        place(&mut shop, Order(1), &mut later).await.unwrap();
        assert_eq!(later.len(), 1, "timed out");
        let (placed, taken) = par!(place(&mut shop, Order(2), &mut later), orders.recv());
        placed.unwrap();
        assert_eq!(taken.unwrap().0, 2);
        assert_eq!(hurry(&mut shop, Order(3)).await.unwrap().unwrap().0, 3);
        let (hurried, taken) = par!(hurry(&mut shop, Order(4)), orders.recv());
        assert!(hurried.unwrap().is_none());
        assert_eq!(taken.unwrap().0, 4);
    }
}

#[allow(dead_code, unused_imports)]
mod tap {
    use dunlin::prelude::*;
    async fn tap<T: Clone>(mut from: Receiver<T>, mut to: Sender<T>, mut copy: Sender<T>) -> Result {
        loop {
            let value = from.recv_extended().await?; // the sender waits
            copy.send(value.clone()).await?;
            to.send(value.clone()).await?;
            drop(value); // now it goes on
        }
    }

    #[test]
    fn the_tap_is_transparent() {
        dunlin::block_on(async {
            let ((mut tx, from), (to, mut rx), (copy, mut log)) = (channel(), channel(), channel());
            let tapping = spawn(tap(from, to, copy));
            let logging = spawn(async move {
                let mut seen = Vec::new();
                while let Ok(value) = log.recv().await {
                    seen.push(value);
                }
                seen
            });
            for value in 0..5 {
                let (sent, got) = par!(tx.send(value), rx.recv());
                assert_eq!((sent, got), (Ok(()), Ok(value)));
            }
            drop(tx);
            assert!(tapping.await.unwrap().unwrap_err().is_closed());
            assert_eq!(logging.await.unwrap(), [0, 1, 2, 3, 4]);
        });
    }
}

#[allow(dead_code, unused_imports)]
mod choir {
    use dunlin::prelude::*;
    async fn choir(tx: Sender<String>) -> Result {
        let tx = tx.share(); // Shared<Sender<String>>: Clone
        let voices: Vec<_> = (0..4)
            .map(|n| {
                let mut tx = tx.clone();
                spawn(async move {
                    tx.send(format!("{n} tunes")).await?; // claims for one message
                    let mut stage = tx.claim().within(Duration::from_secs(1)).await?;
                    stage.send(format!("{n} sings")).await?; // no other value, on any node, comes between
                    stage.send(format!("{n} bows")).await?;
                    Ok::<_, Error>(())
                })
            })
            .collect();
        for voice in voices {
            voice.await??
        }
        Ok(())
    }

    #[test]
    fn singing_and_bowing_stay_together() {
        dunlin::block_on(async {
            let (tx, mut rx) = channel();
            let singing = spawn(choir(tx));
            let mut lines = Vec::new();
            while let Some(line) = rx.next().await.unwrap() {
                lines.push(line);
            }
            singing.await.unwrap().unwrap();
            assert_eq!(lines.len(), 12);
            for n in 0..4 {
                let sings = lines.iter().position(|line| *line == format!("{n} sings")).unwrap();
                assert_eq!(lines[sings + 1], format!("{n} bows"));
            }
        });
    }
}

#[allow(dead_code, unused_imports)]
mod market {
    use dunlin::prelude::*;
    #[cfg(feature = "serde")]
    use dunlin::serde::{Deserialize, Serialize};
    #[cfg_attr(feature = "serde", derive(Serialize, Deserialize), serde(crate = "dunlin::serde"))]
    struct Item(String);
    #[derive(Bundle)]
    struct Till {
        pay: ToServer<u64>,
        receipt: ToClient<String>,
    }
    #[derive(Bundle)]
    struct Shop {
        #[policy(fifo(8))]
        basket: ToServer<Item>,
        price: Call<Item, u64>,
        till: Till,                     // nested; Flip<Till> turns it round
        depot: Share<Till>,             // clients get Shared<TillClient>
        referral: ToClient<ShopClient>, // faces travel, also over themselves
    }
    async fn customer(mut shop: ShopClient) -> Result<String> {
        let price = shop.price.call(Item("krill".into())).within(Duration::from_secs(1)).await?;
        shop.basket.send(Item("krill".into())).await?;
        shop.till.pay.send(price).await?;
        shop.depot.claim().await?.pay.send(price).await?; // a face is claimed whole
        Ok(shop.till.receipt.recv().await?)
    }
    async fn keeper(mut shop: ShopServer) -> Result {
        // `depot` is a `Till` of its own beside `till`: without a process that receives from `depot.pay` the
        // customer's send there would wait for ever.
        let mut depot = std::mem::replace(&mut shop.depot, Till::pair().1);
        spawn(async move { depot.pay.recv().await });
        loop {
            alt! {
                ask = shop.price.accept() => { let ask = ask?; let n = ask.0.len() as u64; let _ = ask.reply(n); }
                item = shop.basket.recv() => println!("{}", item?.0),
                coins = shop.till.pay.recv() => shop.till.receipt.send(format!("paid {}", coins?)).await?,
            }
        }
    }
    async fn market() -> Result<String> {
        let (client, server) = Shop::pair();
        spawn(keeper(server));
        customer(client).await
    }

    #[test]
    fn a_customer_gets_a_receipt() {
        assert_eq!(dunlin::block_on(market()).unwrap(), "paid 5");
    }
}

#[allow(dead_code, unused_imports)]
mod ending {
    use dunlin::prelude::*;
    async fn stage(mut rx: Receiver<u32>, mut tx: Sender<u32, NoPoison>) -> Result {
        loop {
            match rx.next().await {
                Ok(Some(n)) if n > 1000 => {
                    rx.poison("too large");
                    return Ok(());
                } // at once, both ends
                Ok(Some(n)) => tx.send(n).await?,
                Ok(None) => {
                    tx.retire();
                    return Ok(());
                } // whole channel, after what is in it
                Err(RecvError::Poisoned(why)) => {
                    println!("upstream: {why}");
                    return Ok(());
                } // drop: I leave
                Err(e) => return Err(e.into()),
            }
        }
    }
    async fn build() -> Result {
        let ((mut tx, rx), (next, _out)) = (channel(), channel());
        let worker = spawn(stage(rx, next.into())); // it cannot poison what others use
        tx.send(7).await?;
        worker.await?
    }

    #[test]
    fn builds_and_ends() {
        // The worker waits for more, or for its channel's end: dropping `tx` at the end of `build` comes
        // after the await.
        dunlin::block_on(async {
            let ((mut tx, rx), (next, mut out)) = (channel(), channel());
            let worker = spawn(stage(rx, next.into()));
            let (sent, got) = par!(tx.send(7), out.recv());
            assert_eq!((sent, got), (Ok(()), Ok(7)));
            tx.send(2000).await.unwrap();
            assert!(tx.send(1).await.unwrap_err().is_poisoned());
            worker.await.unwrap().unwrap();
            assert_eq!(out.next().await, Ok(None));
        });
    }
}

#[allow(dead_code, unused_imports)]
mod scopes {
    use dunlin::prelude::*;
    #[process]
    async fn indent(
        #[receiver("raw")] mut raw: Receiver<String>,
        #[sender("out")] mut out: Sender<String>,
        by: usize,
    ) -> Result {
        while let Some(line) = raw.next().await? {
            out.send(" ".repeat(by) + &line).await?;
        }
        Ok(()) // leaves both channels
    }
    async fn run() -> Result {
        let scope = Scope::new();
        scope.name::<String>("raw", fifo(4));
        scope.fork(indent(4)); // only what is not wired is an argument
        let other = scope.isolated(); // its own "raw" and "out"; `child()` would inherit
        other.fork(indent(8));
        other.finish(Duration::from_secs(1)).await?;
        scope.finish(Duration::from_secs(5)).await // waits for what it forked, names stragglers
    }

    #[test]
    fn all_parties_leave() {
        // Once the scopes are finished no process can join as the sender of "raw": it has ended, and so do
        // both processes.
        dunlin::block_on(run()).unwrap();
    }
}

#[allow(dead_code, unused_imports)]
mod stopping {
    use dunlin::prelude::*;
    async fn hash(mut cancel: Receiver<()>) -> Result<Option<u64>> {
        let mut job = blocking(|stop| (0..u64::MAX).take_while(|_| !stop.asked()).count() as u64);
        alt! {
            n = &mut job => Ok(Some(n?)),
            _ = cancel.recv() => match job.terminate().await {
                Ended::AlreadyFinished(n) | // it had finished before it was asked to stop
                Ended::JustFinished(n) => Ok(Some(n)),
                Ended::Finishing(job) => Ok(Some(job.await?)), // too late to stop
                Ended::Terminated(_) | Ended::NeverStarted => Ok(None),
                ended => Err(Error::other(format!("{ended:?}"))), // drift: non-exhaustive
            },
        }
    }

    #[test]
    fn hashes_until_cancelled() {
        dunlin::block_on(async {
            let (mut cancel, cancelled) = channel();
            let hashing = spawn(hash(cancelled));
            cancel.send(()).await.unwrap();
            assert_eq!(hashing.await.unwrap().unwrap(), None);
        });
    }
}

#[allow(dead_code, unused_imports)]
mod cells {
    use dunlin::prelude::*;
    async fn cell(mut phase: Barrier, mut quit: Receiver<()>, mut ticks: Receiver<u64>) -> Result {
        loop {
            alt! {
                r = phase.sync() => r?, // every enrolled party takes it, or none does
                tick = ticks.recv() => println!("{}", tick?),
                _ = quit.recv() => return Ok(()), // dropping `phase` resigns
            }
        }
    }
    async fn grid(quit: Receiver<()>) -> Result {
        let (tx, clock) = broadcast::<u64>();
        let phase = barrier();
        spawn(cell(phase.enrol(), quit, clock.join()));
        tx.at_least(1).send(0).await?; // to all receivers that have joined by now
        Ok(())
    }

    #[test]
    fn ticks_reach_the_cell() {
        dunlin::block_on(async {
            let (_quit, quitted) = channel();
            grid(quitted).await.unwrap();
        });
    }

    #[test]
    fn a_clock_and_its_cells() {
        dunlin::block_on(async {
            let (tx, clock) = broadcast::<u64>();
            let mut tx = tx.at_least(3);
            let too_few = tx.send(0).within(Duration::from_millis(1)).await;
            assert!(too_few.is_err_and(|error| error.is_timed_out()));
            let (mut quit, quitted) = channel();
            let phase = barrier(); // no other party syncs, so the cell only sees the clock
            let leaver = spawn(cell(phase.enrol(), quitted, clock.join()));
            let readers: Vec<_> = (0..2)
                .map(|_| {
                    let mut ticks = clock.join();
                    spawn(async move {
                        let mut sum = 0;
                        while let Some(tick) = ticks.next().await? {
                            sum += tick;
                        }
                        Ok::<u64, Error>(sum)
                    })
                })
                .collect();
            for tick in 1..=10 {
                tx.send(tick).await.unwrap();
            }
            quit.send(()).await.unwrap();
            leaver.await.unwrap().unwrap();
            drop(clock);
            let error = Error::from(tx.send(11).await.unwrap_err());
            assert!(error.is_closed(), "two are too few, and no other can join: {error}");
            let mut tx = tx.at_least(2);
            tx.send(11).await.unwrap();
            drop(tx);
            for reader in readers {
                assert_eq!(reader.await.unwrap().unwrap(), 66);
            }
        });
    }

    #[test]
    fn cells_advance_in_phase_until_they_quit() {
        dunlin::block_on(async {
            let mut phase = barrier();
            let mut cells: Vec<_> = (0..3)
                .map(|_| {
                    let ((quit, quits), (tick, ticks)) = (channel(), channel());
                    (quit, tick, spawn(cell(phase.enrol(), quits, ticks)))
                })
                .collect();
            for round in 1..=10 {
                phase.sync().await.unwrap();
                assert_eq!(phase.phases(), round);
                cells[round as usize % 3].1.send(round).await.unwrap();
            }
            while let Some((mut quit, _tick, running)) = cells.pop() {
                quit.send(()).await.unwrap();
                running.await.unwrap().unwrap();
                assert_eq!(phase.parties(), cells.len() + 1);
                phase.sync().await.unwrap();
            }
        });
    }
}
