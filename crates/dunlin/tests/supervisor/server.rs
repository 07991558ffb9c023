//! Generic servers, and their clients.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;

use dunlin::prelude::*;
use dunlin::server::{self, Client, Incoming, Info, Me, ReplaceError, Server, ServerCallError, requests};
use dunlin::supervisor::{ChildState, Supervisor};
use dunlin::{Error, ExitReason, Pid, mailbox};

use super::{Log, settle};

/// What a test's server is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Ask {
    Echo(u32),
    Sleep(Duration),
    Fail,
    Panic,
    /// Keeps the place for the reply.
    Keep,
    /// Drops the places that it kept.
    Drop,
    CallYourself,
    Monitor(Pid),
    Demonitor(Pid),
    Stop,
}

/// Logs what it serves.
struct Logger {
    log: Log,
    me: Me,
    kept: Vec<Reply<u32>>,
    itself: Option<Client<Ask, u32, u32>>,
}

impl Logger {
    fn new(log: &Log) -> Self {
        Self { log: log.clone(), me: Me::default(), kept: Vec::new(), itself: None }
    }
}

impl Server for Logger {
    type Call = Ask;
    type Reply = u32;
    type Cast = u32;

    async fn init(&mut self, me: &Me) -> Result {
        self.me = me.clone();
        self.log.add("init");
        Ok(())
    }

    async fn call(&mut self, call: Ask) -> Result<u32> {
        match call {
            Ask::Echo(n) => {
                self.log.add(format!("call {n}"));
                return Ok(n);
            }
            Ask::Sleep(duration) => sleep(duration).await,
            Ask::Fail => return Err(Error::other("no krill")),
            Ask::Panic => panic!("out of krill"),
            Ask::Drop => self.kept.clear(),
            Ask::CallYourself => {
                let Some(client) = &mut self.itself else { return Ok(0) };
                let called = client.call(Ask::Echo(1)).await;
                assert_eq!(called, Err(ServerCallError::Oneself(Ask::Echo(1))));
                let state = |state: Self| state;
                assert_eq!(client.replace(state).await, Err(ReplaceError::Oneself));
                return Ok(1);
            }
            Ask::Monitor(pid) => self.me.monitor(pid),
            Ask::Demonitor(pid) => self.me.demonitor(pid),
            Ask::Stop => self.me.stop(),
            Ask::Keep => {}
        }
        Ok(0)
    }

    async fn answer(&mut self, call: Ask, reply: Reply<u32>) -> Result {
        if call == Ask::Keep {
            self.kept.push(reply);
            return Ok(());
        }
        let answer = self.call(call).await?;
        let _ = reply.send(answer);
        Ok(())
    }

    async fn cast(&mut self, cast: u32) -> Result {
        self.log.add(format!("cast {cast}"));
        Ok(())
    }

    async fn info(&mut self, info: Info) -> Result {
        let Info::Down(down) = info else { return Ok(()) };
        self.log.add(format!("down: {}", down.exit.reason));
        Ok(())
    }

    async fn terminate(&mut self, ended: &Result) {
        self.log.add(match ended {
            Ok(()) => "terminate".into(),
            Err(error) => format!("terminate: {error}"),
        });
    }
}

#[tokio::test(start_paused = true)]
async fn calls_and_casts_of_one_process_are_served_in_the_order_sent() {
    let log = Log::default();
    let mut client = Logger::new(&log).start();
    for n in 0..100 {
        client.cast(n).unwrap();
        if n % 10 == 0 {
            assert_eq!(client.clone().call(Ask::Echo(n)).await, Ok(n));
        }
    }
    client.call(Ask::Echo(100)).await.unwrap();
    let expected = (0..100).flat_map(|n| {
        let call = (n % 10 == 0).then(|| format!("call {n}"));
        std::iter::once(format!("cast {n}")).chain(call)
    });
    let expected: Vec<_> = std::iter::once("init".into()).chain(expected).chain(["call 100".into()]).collect();
    assert_eq!(log.take(), expected.join(" "));
}

#[tokio::test(start_paused = true)]
async fn a_server_ends_in_order_when_its_last_client_is_dropped() {
    let log = Log::default();
    let mut client = Logger::new(&log).start();
    let other = client.clone();
    client.cast(1).unwrap();
    drop(client);
    settle().await;
    let down = dunlin::monitor(other.pid().unwrap());
    assert_eq!(log.take(), "init cast 1");
    drop(other);
    assert_eq!(down.await.reason, ExitReason::Normal);
    assert_eq!(log.take(), "terminate");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stops_itself_replies_first_and_serves_nothing_that_waits() {
    let log = Log::default();
    let mut client = Logger::new(&log).start();
    let mut other = client.clone();
    let (stopped, waiting) = par!(client.call(Ask::Stop), other.call(Ask::Echo(1)));
    assert_eq!(stopped, Ok(0));
    assert_eq!(waiting.unwrap_err().into_call(), Some(Ask::Echo(1)));
    assert_eq!(log.take(), "init terminate");
}

#[tokio::test(start_paused = true)]
async fn a_monitor_that_has_ended_brings_no_down() {
    let log = Log::default();
    let mut client = Logger::new(&log).start();
    let process = spawn(std::future::pending::<()>());
    client.call(Ask::Monitor(process.pid())).await.unwrap();
    client.call(Ask::Demonitor(process.pid())).await.unwrap();
    process.cancel();
    settle().await;
    assert_eq!(log.take(), "init");
}

#[tokio::test(start_paused = true)]
async fn a_call_ends_with_the_exit_of_a_server_that_fails_in_it() {
    for (ask, reason, terminated) in [
        (Ask::Panic, ExitReason::Panicked("out of krill".into()), "init"),
        (Ask::Fail, ExitReason::Error("no krill".into()), "init terminate: no krill"),
    ] {
        let log = Log::default();
        let mut client = Logger::new(&log).start();
        let pid = client.pid();
        let mut other = client.clone();
        let (called, waiting) = par!(client.call(ask), other.call(Ask::Echo(1)));
        let Err(ServerCallError::Exit(exit)) = called else { panic!("{called:?}") };
        assert_eq!((Some(exit.pid), exit.reason), (pid, reason));
        // What it had not received comes back.
        assert_eq!(waiting, Err(ServerCallError::NotTaken { call: Ask::Echo(1), why: Why::Closed }));
        assert_eq!(log.take(), terminated);
        assert!(client.is_closed());
        assert_eq!(client.pid(), None);
        assert!(client.cast(7).unwrap_err().is_closed());
        assert_eq!(client.call(Ask::Fail).await.unwrap_err().into_call(), Some(Ask::Fail));
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_ends_with_the_exit_of_a_server_that_is_killed_in_it() {
    let mut client = Logger::new(&Log::default()).start();
    let pid = client.pid().unwrap();
    let (called, killed) = par!(client.call(Ask::Sleep(Duration::from_secs(60))), async {
        settle().await;
        pid.kill()
    });
    assert!(killed);
    let Err(ServerCallError::Exit(exit)) = called else { panic!("{called:?}") };
    assert_eq!(exit.reason, ExitReason::Killed);
}

#[tokio::test(start_paused = true)]
async fn at_its_deadline_a_call_is_not_taken_or_timed_out_and_a_late_reply_is_dropped() {
    let log = Log::default();
    let mut client = Logger::new(&log).start();
    let mut other = client.clone();
    let second = Duration::from_secs(1);
    let (late, waiting) = par!(client.call(Ask::Sleep(3 * second)).within(second), async {
        settle().await;
        other.call(Ask::Echo(1)).within(second).await
    });
    assert_eq!(late, Err(ServerCallError::TimedOut));
    assert_eq!(waiting, Err(ServerCallError::NotTaken { call: Ask::Echo(1), why: Why::TimedOut }));
    // The late reply is for no later call.
    assert_eq!(client.call(Ask::Echo(2)).await, Ok(2));
    assert_eq!(log.take(), "init call 2");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_before_it_is_received_has_not_happened() {
    let log = Log::default();
    let mut client = Logger::new(&log).start();
    let mut other = client.clone();
    let _busy = spawn(async move { client.call(Ask::Sleep(Duration::from_secs(1))).await });
    settle().await;
    {
        let mut call = pin!(other.call(Ask::Echo(1)));
        std::future::poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx).is_pending())).await;
    }
    assert_eq!(other.call(Ask::Echo(2)).await, Ok(2));
    assert_eq!(log.take(), "init call 2");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_calls_itself_gets_an_error() {
    struct Start(Logger, Receiver<Client<Ask, u32, u32>>);
    impl Server for Start {
        type Call = Ask;
        type Reply = u32;
        type Cast = u32;
        async fn init(&mut self, me: &Me) -> Result {
            self.0.itself = Some(self.1.recv().await?);
            self.0.init(me).await
        }
        async fn call(&mut self, call: Ask) -> Result<u32> {
            self.0.call(call).await
        }
    }
    let (mut send, sent) = channel();
    let mut client = Start(Logger::new(&Log::default()), sent).start();
    send.send(client.clone()).await.unwrap_or_else(|_| panic!("not taken"));
    assert_eq!(client.call(Ask::CallYourself).await, Ok(1));
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_gives_calls_and_casts_back() {
    let mut client = Logger::new(&Log::default()).start_with(fifo(1));
    client.cast(1).unwrap();
    let Err(SendError::NotTaken { value: 2, why: Why::WouldBlock }) = client.cast(2) else { panic!("taken") };
    let called = client.call(Ask::Echo(3)).await;
    assert_eq!(called, Err(ServerCallError::NotTaken { call: Ask::Echo(3), why: Why::WouldBlock }));
    settle().await;
    assert_eq!(client.call(Ask::Echo(4)).await, Ok(4));
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_is_kept_is_sent_later_and_one_that_is_dropped_is_no_reply() {
    let mut client = Logger::new(&Log::default()).start();
    let mut other = client.clone();
    let (kept, dropped) = par!(client.call(Ask::Keep), async {
        settle().await;
        other.call(Ask::Drop).await
    });
    assert_eq!((kept, dropped), (Err(ServerCallError::NoReply), Ok(0)));
}

/// Hands its replies on to another process.
struct HandsOn(Sender<(u32, Reply<u32>)>);

impl Server for HandsOn {
    type Call = u32;
    type Reply = u32;
    type Cast = ();

    async fn answer(&mut self, call: u32, reply: Reply<u32>) -> Result {
        self.0.send((call, reply)).await.map_err(Error::from)
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_reply_was_handed_on_survives_the_server() {
    let (tx, mut rx) = channel();
    let mut client = HandsOn(tx).start();
    let pid = client.pid().unwrap();
    let (called, ()) = par!(client.call(7), async {
        let (n, reply) = rx.recv().await.unwrap();
        settle().await;
        assert!(pid.kill());
        assert_eq!(dunlin::monitor(pid).await.reason, ExitReason::Killed);
        reply.send(n + 1).unwrap();
    });
    assert_eq!(called, Ok(8));
}

#[tokio::test(start_paused = true)]
async fn a_down_comes_behind_what_the_process_had_sent() {
    let log = Log::default();
    let mut client = Logger::new(&log).start();
    let mut other = client.clone();
    let (mut go, mut going) = channel();
    let process = spawn(async move {
        going.recv().await.unwrap();
        for n in 0..5 {
            other.cast(n).unwrap();
        }
        panic!("done");
    });
    client.call(Ask::Monitor(process.pid())).await.unwrap();
    log.take();
    go.send(()).await.unwrap();
    // The server is busy while the process casts and ends.
    client.call(Ask::Sleep(Duration::from_secs(1))).await.unwrap();
    settle().await;
    assert_eq!(log.take(), "cast 0 cast 1 cast 2 cast 3 cast 4 down: panicked: done");
    // One that has ended is down at once.
    client.call(Ask::Monitor(process.pid())).await.unwrap();
    settle().await;
    assert_eq!(log.take(), format!("down: {}", ExitReason::NoSuchProcess));
}

struct Linked(Log);

impl Server for Linked {
    type Call = ();
    type Reply = ();
    type Cast = ();

    async fn init(&mut self, me: &Me) -> Result {
        me.receive_exits();
        Ok(())
    }

    async fn call(&mut self, (): ()) -> Result {
        dunlin::spawn_linked(async { Err::<(), _>("no krill") })?;
        Ok(())
    }

    async fn info(&mut self, info: Info) -> Result {
        let Info::Exit(exit) = info else { return Ok(()) };
        self.0.add(format!("exit: {}", exit.reason));
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn exits_of_linked_processes_come_as_infos() {
    let log = Log::default();
    let mut client = Linked(log.clone()).start();
    client.call(()).await.unwrap();
    settle().await;
    assert_eq!(log.take(), "exit: failed: no krill");
    assert!(client.pid().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_state_is_replaced_between_two_messages_and_what_waits_stays() {
    struct Doubling(Log);
    impl Server for Doubling {
        type Call = Ask;
        type Reply = u32;
        type Cast = u32;
        async fn call(&mut self, call: Ask) -> Result<u32> {
            let Ask::Echo(n) = call else { return Ok(0) };
            Ok(2 * n)
        }
        async fn cast(&mut self, cast: u32) -> Result {
            self.0.add(format!("cast 2 * {cast}"));
            Ok(())
        }
    }
    let log = Log::default();
    let mut client = Logger::new(&log).start();
    let (mut before, mut after) = (client.clone(), client.clone());
    client.cast(1).unwrap();
    let ((), replaced, called) =
        par!(async { before.cast(2).unwrap() }, client.replace(|state: Logger| Doubling(state.log.clone())), async {
            after.cast(3).unwrap();
            after.call(Ask::Echo(4)).await
        },);
    assert_eq!((replaced, called), (Ok(()), Ok(8)));
    assert_eq!(log.take(), "init cast 1 cast 2 cast 2 * 3");
    assert_eq!(client.replace(|state: Logger| state).await, Err(ReplaceError::OtherState));
    assert_eq!(client.call(Ask::Echo(1)).await, Ok(2));
}

#[tokio::test(start_paused = true)]
async fn a_replacement_that_panics_ends_the_server() {
    let mut client = Logger::new(&Log::default()).start();
    let down = dunlin::monitor(client.pid().unwrap());
    let replaced = client.replace(|_: Logger| -> Logger { panic!("no successor") }).await;
    assert_eq!(replaced, Err(ReplaceError::Ended));
    assert_eq!(down.await.reason, ExitReason::Panicked("no successor".into()));
}

/// Panics where it is told to.
struct Brittle(&'static str);

impl Server for Brittle {
    type Call = ();
    type Reply = ();
    type Cast = ();

    async fn init(&mut self, _: &Me) -> Result {
        match self.0 {
            "init" => panic!("init"),
            "error" => Err(Error::other("error")),
            _ => Ok(()),
        }
    }

    async fn terminate(&mut self, _: &Result) {
        assert_ne!(self.0, "terminate", "terminate");
    }
}

impl Drop for Brittle {
    fn drop(&mut self) {
        assert!(self.0 != "drop" || std::thread::panicking(), "drop");
    }
}

#[tokio::test(start_paused = true)]
async fn an_init_terminate_or_drop_that_fails_ends_the_server_with_its_exit() {
    for place in ["init", "error", "drop", "terminate"] {
        let mut client = Brittle(place).start();
        let down = dunlin::monitor(client.pid().unwrap());
        if place == "init" || place == "error" {
            // It has received no call.
            assert_eq!(client.call(()).await.unwrap_err().into_call(), Some(()));
        }
        drop(client);
        let reason = down.await.reason;
        assert!(reason.to_string().contains(place), "{place}: {reason}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_or_cast_that_a_server_does_not_serve_ends_it_with_an_error() {
    let mut client = Brittle("").start();
    let Err(ServerCallError::Exit(exit)) = client.call(()).await else { panic!("served") };
    assert!(exit.to_string().contains("has no `call`"), "{exit}");
    let mut client = Brittle("").start();
    let down = dunlin::monitor(client.pid().unwrap());
    client.cast(()).unwrap();
    assert!(down.await.to_string().contains("has no `cast`"));
}

#[tokio::test(start_paused = true)]
async fn what_waits_at_the_crash_of_a_supervised_server_is_served_by_its_successor() {
    let log = Log::default();
    let made = log.clone();
    let (mut client, child) = server::child("logger", unbounded(), move || Logger::new(&made));
    let tree = Supervisor::one_for_one().with(child).spawn();
    assert!(tree.started().await);
    let mut other = client.clone();
    let (crashed, served) = par!(client.call(Ask::Panic), async {
        other.cast(1).unwrap();
        other.call(Ask::Echo(2)).await
    });
    let Err(ServerCallError::Exit(exit)) = crashed else { panic!("{crashed:?}") };
    assert_eq!(exit.reason, ExitReason::Panicked("out of krill".into()));
    assert_eq!(served, Ok(2));
    assert_eq!(log.take(), "init init cast 1 call 2");
    // And again, by the same client.
    let Err(ServerCallError::Exit(exit)) = client.call(Ask::Fail).await else { panic!("served") };
    assert_eq!(exit.reason, ExitReason::Error("no krill".into()));
    settle().await;
    assert_eq!(tree.tree().children[0].restarts, 2);
    log.take();
    tree.shutdown();
    tree.await.unwrap().unwrap();
    assert_eq!(log.take(), "terminate");
    assert!(client.is_closed());
}

#[tokio::test(start_paused = true)]
async fn a_supervised_server_has_started_when_init_has_returned() {
    struct Slow;
    impl Server for Slow {
        type Call = ();
        type Reply = ();
        type Cast = ();
        async fn init(&mut self, _: &Me) -> Result {
            sleep(Duration::from_secs(3)).await;
            Ok(())
        }
    }
    let (_client, child) = server::child("slow", unbounded(), || Slow);
    let tree = Supervisor::one_for_one().with(child).spawn();
    settle().await;
    assert_eq!(tree.tree().children[0].state, ChildState::Starting);
    let start = Instant::now();
    assert!(tree.started().await);
    assert!(start.elapsed() >= Duration::from_millis(2_990));
    tree.shutdown();
    tree.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_hand_written_server_skips_calls_that_were_withdrawn() {
    let (mut client, mut requests) = requests::<u32, u32, u32>(fifo(8));
    let second = Duration::from_secs(1);
    assert!(client.call(1).within(second).await.unwrap_err().is_timed_out());
    client.cast(2).unwrap();
    let Incoming::Cast(2) = requests.accept().await.unwrap() else { panic!("a call") };
    assert_eq!(
        client.replace(|state: Brittle2| state).within_a_second(&mut requests).await,
        Err(ReplaceError::OtherState)
    );
}

/// A server for the same messages as the hand-written one.
struct Brittle2;

impl Server for Brittle2 {
    type Call = u32;
    type Reply = u32;
    type Cast = u32;
}

/// Runs the replacement beside a server that waits for calls.
trait WithinASecond: Future + Sized {
    async fn within_a_second(self, requests: &mut server::Requests<u32, u32, u32>) -> Self::Output {
        let (output, accepted) = par!(self, requests.accept().within(Duration::from_secs(1)));
        assert!(matches!(accepted, Err(RecvError::TimedOut)));
        output
    }
}

impl<F: Future> WithinASecond for F {}

#[tokio::test(start_paused = true)]
async fn a_call_that_a_hand_written_server_drops_is_no_reply_or_its_exit() {
    for ends in [false, true] {
        let (mut client, mut requests) = requests::<u32, u32, ()>(fifo(8));
        let server = spawn(async move {
            let Ok(Incoming::Call(asked)) = requests.accept().await else { panic!("no call") };
            assert!(!ends, "out of krill");
            drop(asked);
            requests.accept().await.map(drop)
        });
        match client.call(1).await {
            Err(ServerCallError::NoReply) => assert!(!ends),
            Err(ServerCallError::Exit(exit)) => assert_eq!((ends, exit.pid), (true, server.pid())),
            other => panic!("{other:?}"),
        }
    }
}

/// Counts the polls of a call while the caller's mailbox has so many messages.
async fn polls(unread: u32) -> u32 {
    let mut client = Logger::new(&Log::default()).start();
    let polls = spawn(async move {
        let (address, mut mailbox) = mailbox::<u32>();
        mailbox.len();
        (0..unread).for_each(|n| address.send(n).unwrap());
        let polls = Arc::new(AtomicU32::new(0));
        let mut call = pin!(client.call(Ask::Echo(7)));
        let answer = std::future::poll_fn(|cx| {
            polls.fetch_add(1, Ordering::Relaxed);
            call.as_mut().poll(cx)
        });
        assert_eq!(answer.await, Ok(7));
        assert_eq!(mailbox.len(), unread as usize);
        polls.load(Ordering::Relaxed)
    });
    polls.await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_call_takes_no_step_for_the_messages_in_the_callers_mailbox() {
    assert_eq!(polls(100_000).await, polls(0).await);
}
