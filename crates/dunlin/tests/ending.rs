//! How a node ends that was not asked to leave, and the outcome of the values that its ends have sent.
#![cfg(feature = "net")]

use std::fmt;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use dunlin::node::{NodeBuilder, NodeError, NodeEvent, Peer, Role, Unacknowledged};
use dunlin::prelude::*;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

#[path = "support/actor.rs"]
mod actor;
use actor::{Actor, say};

const COUNT: u32 = 100;

/// The bytes of one value: all values together are more than sockets take, and less than a node queues for a
/// peer that reads nothing.
const LARGE: usize = 40_000;

/// An application that no other test has, and an address for its names that was free a moment ago.
fn application() -> (String, String) {
    static COUNTED: AtomicU64 = AtomicU64::new(0);
    let number = COUNTED.fetch_add(1, Ordering::Relaxed);
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    (format!("ending {} {number}", std::process::id()), address.to_string())
}

/// A node that gives lost peers up soon.
fn soon_gives_up(application: &(String, String)) -> NodeBuilder {
    let builder = Node::builder().no_config().app(&application.0).names(&application.1);
    builder.heartbeat(Duration::from_millis(500)).grace(Duration::from_secs(2))
}

async fn join(application: &(String, String)) -> Result<Node> {
    Ok(soon_gives_up(application).join().await?)
}

/// A node that gives a lost peer up only after 18 seconds.
async fn join_patiently(application: &(String, String)) -> Result<Node> {
    Ok(Node::builder().no_config().app(&application.0).names(&application.1).join().await?)
}

/// A receiver in a runtime of its own, which receives until the channel ends, and returns the number of
/// values.
fn receiver(application: &(String, String)) -> JoinHandle<usize> {
    let (ready, is_ready) = mpsc::channel();
    let application = application.clone();
    let receiver = std::thread::spawn(move || {
        let received = async {
            let node = join(&application).await?;
            let mut rx = node.receiver::<Vec<u8>>("values").policy(fifo(COUNT as usize)).await?;
            ready.send(()).unwrap();
            let mut count = 0;
            while rx.recv().within(Duration::from_secs(30)).await.is_ok() {
                count += 1;
            }
            node.leave().await?;
            Result::<usize>::Ok(count)
        };
        dunlin::block_on(received).unwrap()
    });
    is_ready.recv_timeout(Duration::from_secs(30)).unwrap();
    receiver
}

/// Sends the values, each of this many bytes. Each send returns `Ok`.
async fn send(node: &Node, bytes: usize) -> Result<Sender<Vec<u8>>> {
    let mut tx = node.sender::<Vec<u8>>("values").await?;
    for _ in 0..COUNT {
        tx.send(vec![7; bytes]).await?;
    }
    Ok(tx)
}

#[test]
#[ignore = "what the processes of the other tests run"]
fn a_role() {
    let Some((role, knows)) = actor::role() else { return };
    let application = (knows[0].clone(), knows[1].clone());
    match role.as_str() {
        // Like the body of `#[dunlin::main]`.
        "sender" => dunlin::block_on(async {
            let node = join(&application).await?;
            send(&node, 20_000).await?;
            say("sent");
            Result::<()>::Ok(())
        })
        .unwrap(),
        // Like the body of `#[tokio::main]`.
        "sender in tokio" => {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
            runtime
                .block_on(async {
                    let node = join_patiently(&application).await?;
                    send(&node, LARGE).await?;
                    Result::<()>::Ok(())
                })
                .unwrap();
        }
        "sender that is not heard" => {
            static HELD: Mutex<Option<Node>> = Mutex::new(None);
            dunlin::block_on(async {
                let node = join_patiently(&application).await?;
                send(&node, LARGE).await?;
                *HELD.lock().unwrap() = Some(node);
                Result::<()>::Ok(())
            })
            .unwrap();
        }
        "sender in main" => assert_eq!(format!("{:?}", in_main::main()), format!("{:?}", ExitCode::SUCCESS)),
        _ => panic!("there is no role {role}"),
    }
}

mod in_main {
    use super::*;

    #[dunlin::main(workers = 1)]
    pub async fn main() -> Result {
        sends().await
    }
}

/// What `main`, or a test, does in the role of the sender before it returns.
async fn sends() -> Result {
    let (_, knows) = actor::role().expect("another test has started this");
    let node = join(&(knows[0].clone(), knows[1].clone())).await?;
    send(&node, 20_000).await?;
    say("sent");
    Ok(())
}

#[dunlin::test]
#[ignore = "another test runs it, in a process of its own"]
async fn a_test_that_sends_and_returns() -> Result {
    sends().await
}

#[dunlin::test(workers = 1)]
async fn a_test_may_await() -> Result {
    let (mut tx, mut rx) = channel();
    let (sent, received) = par!(tx.send("krill"), rx.recv());
    sent?;
    assert_eq!(received?, "krill");
    Ok(())
}

#[dunlin::test]
#[ignore = "the next test runs it"]
async fn a_test_that_returns_an_error() -> Result {
    Err(Error::NotTaken(Why::Closed))
}

#[test]
fn the_error_of_a_test_is_printed_by_its_text() {
    let mut test = std::process::Command::new(std::env::current_exe().unwrap());
    let output = test.args(["--ignored", "--exact", "a_test_that_returns_an_error"]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success(), "{told}");
    assert!(told.contains(&Error::NotTaken(Why::Closed).to_string()) && !told.contains("NotTaken"), "{told}");
}

#[dunlin::test]
async fn a_test_may_return_a_unit() -> () {}

#[dunlin::test]
#[should_panic = "this was to be"]
async fn a_test_may_be_meant_to_panic() {
    panic!("this was to be");
}

#[test]
fn values_arrive_when_the_main_of_another_process_returns() {
    for role in ["sender", "sender in main"] {
        let application = application();
        let receiver = receiver(&application);
        let sender = Actor::start(&[], role, &[&application.0, &application.1]);
        assert_eq!(sender.hear(), "sent");
        assert!(sender.end().success());
        assert_eq!(receiver.join().unwrap(), COUNT as usize, "{role}");
    }
}

#[test]
fn values_arrive_when_a_test_returns() {
    let application = application();
    let receiver = receiver(&application);
    let mut test = std::process::Command::new(std::env::current_exe().unwrap());
    test.args(["--ignored", "--exact", "a_test_that_sends_and_returns"]);
    test.env("DUNLIN_TEST_ROLE", "sender in a test");
    test.env("DUNLIN_TEST_KNOWS", format!("{}\n{}", application.0, application.1));
    let output = test.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert_eq!(receiver.join().unwrap(), COUNT as usize);
}

#[test]
fn values_arrive_when_main_returns_an_error() {
    let application = application();
    let receiver = receiver(&application);
    let outcome = dunlin::block_on(async {
        let node = join(&application).await?;
        let _tx = send(&node, 10_000).await?;
        Result::<()>::Err(Error::other("this was to be"))
    });
    assert_eq!(outcome.unwrap_err().to_string(), "this was to be");
    assert_eq!(receiver.join().unwrap(), COUNT as usize);
}

#[test]
fn values_arrive_when_main_panics() {
    let application = application();
    let receiver = receiver(&application);
    let panicked = std::panic::catch_unwind(|| {
        dunlin::block_on(async {
            let node = join(&application).await.unwrap();
            let _tx = send(&node, 10_000).await.unwrap();
            panic!("this was to be");
        });
    });
    assert_eq!(*panicked.unwrap_err().downcast::<&str>().unwrap(), "this was to be");
    assert_eq!(receiver.join().unwrap(), COUNT as usize);
}

/// The process still runs when `main` returns; it is cancelled after the node has left.
#[test]
fn values_arrive_when_a_process_holds_the_node() {
    let application = application();
    let receiver = receiver(&application);
    dunlin::block_on(async {
        let node = join(&application).await?;
        let tx = send(&node, 10_000).await?;
        spawn(async move {
            let _held = (node, tx);
            std::future::pending::<()>().await;
        });
        Result::<()>::Ok(())
    })
    .unwrap();
    assert_eq!(receiver.join().unwrap(), COUNT as usize);
}

#[test]
fn a_node_leaves_in_order_when_main_returns() {
    let application = application();
    let (joined, has_joined) = mpsc::channel();
    let here = application.clone();
    let watcher = std::thread::spawn(move || {
        dunlin::block_on(async {
            let node = join(&here).await?;
            let mut events = node.events();
            let mut rx = node.receiver::<u8>("beacon").await?;
            joined.send(()).unwrap();
            rx.recv().await?;
            loop {
                if let NodeEvent::Left { in_order, .. } = events.recv().within(Duration::from_secs(30)).await? {
                    return Result::<bool>::Ok(in_order);
                }
            }
        })
    });
    has_joined.recv_timeout(Duration::from_secs(30)).unwrap();
    dunlin::block_on(async {
        let node = join(&application).await?;
        node.sender::<u8>("beacon").await?.send(7).await?;
        spawn(async move {
            let _held = node;
            std::future::pending::<()>().await;
        });
        Result::<()>::Ok(())
    })
    .unwrap();
    assert!(watcher.join().unwrap().unwrap(), "it was lost");
}

/// A node with a role.
async fn join_as(application: &(String, String), role: Role, name: &str) -> Result<Node> {
    let builder = Node::builder().no_config().app(&application.0).names(&application.1);
    Ok(builder.role(role).named(name).join().await?)
}

/// Whether the node of this name leaves in order, as `node` is notified.
async fn goes(node: &Node, name: &str) -> Result<bool> {
    let mut events = node.events();
    loop {
        if let NodeEvent::Left { name: gone, in_order, .. } = events.recv().within(Duration::from_secs(30)).await?
            && gone == name
        {
            return Ok(in_order);
        }
    }
}

/// The node is a local of `main`: its last handle is dropped before the runtime makes it leave.
#[test]
fn a_member_whose_main_returns_has_left() {
    let application = application();
    dunlin::block_on(async {
        let main = join_as(&application, Role::Main, "master").await?;
        let member = application.clone();
        let member = std::thread::spawn(move || {
            dunlin::block_on(async {
                let _node = join_as(&member, Role::Member, "worker").await?;
                Result::<()>::Ok(())
            })
        });
        assert!(goes(&main, "worker").await?, "it is lost");
        member.join().unwrap()
    })
    .unwrap();
}

/// In a runtime that lives on.
#[test]
fn a_member_whose_last_handle_is_dropped_has_left() {
    let application = application();
    dunlin::block_on(async {
        let main = join_as(&application, Role::Main, "master").await?;
        let member = join_as(&application, Role::Member, "worker").await?;
        drop(member.clone());
        drop(member);
        assert!(goes(&main, "worker").await?, "it is lost");
        Result::<()>::Ok(())
    })
    .unwrap();
}

/// Its members are notified that the application closes, and have a moment to leave.
#[test]
fn a_main_node_whose_main_returns_waits_for_its_members() {
    let application = application();
    let (joined, has_joined) = mpsc::channel();
    let here = application.clone();
    let main = std::thread::spawn(move || {
        dunlin::block_on(async {
            let node = join_as(&here, Role::Main, "master").await?;
            joined.send(()).unwrap();
            let mut events = node.events();
            while !matches!(events.recv().within(Duration::from_secs(30)).await?, NodeEvent::Joined { .. }) {}
            Result::<()>::Ok(())
        })
    });
    has_joined.recv_timeout(Duration::from_secs(30)).unwrap();
    dunlin::block_on(async {
        let member = join_as(&application, Role::Member, "worker").await?;
        alt! {
            within = future(member.closing()) => assert_eq!(within, Duration::from_secs(1)),
            _ = sleep(Duration::from_secs(30)) => panic!("nothing closes"),
        }
        member.leave().await
    })
    .unwrap();
    main.join().unwrap().unwrap();
}

/// In a runtime of the program's own, which lives on.
#[test]
fn values_arrive_when_the_last_handle_is_dropped() {
    let application = application();
    let receiver = receiver(&application);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let node = join(&application).await.unwrap();
        let tx = send(&node, LARGE).await.unwrap();
        drop(node);
        drop(tx);
        let count = tokio::task::spawn_blocking(|| receiver.join().unwrap()).await.unwrap();
        assert_eq!(count, COUNT as usize);
    });
}

/// The warnings: the application, the number of values, the text.
static WARNINGS: Mutex<Vec<(String, u64, String)>> = Mutex::new(Vec::new());

#[derive(Default)]
struct Fields {
    application: String,
    values: Option<u64>,
    text: String,
}

impl Visit for Fields {
    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "values" {
            self.values = Some(value);
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "application" {
            self.application = value.to_owned();
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.text = format!("{value:?}");
        }
    }
}

struct Subscribed;

impl Subscriber for Subscribed {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "dunlin::node" && *metadata.level() == Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        if let Some(values) = fields.values {
            WARNINGS.lock().unwrap().push((fields.application, values, fields.text));
        }
    }
}

/// The warnings of this application.
fn warnings(application: &(String, String)) -> Vec<(u64, String)> {
    let all = WARNINGS.lock().unwrap();
    let here = all.iter().filter(|warning| warning.0 == application.0);
    here.map(|(_, values, text)| (*values, text.clone())).collect()
}

fn subscribe() {
    let _ = tracing::subscriber::set_global_default(Subscribed);
}

#[test]
fn a_warning_counts_the_values_if_the_runtime_ends_first() {
    subscribe();
    let application = application();
    let receiver = receiver(&application);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let node = join_patiently(&application).await.unwrap();
        send(&node, LARGE).await.unwrap();
    });
    drop(runtime);
    let arrived = receiver.join().unwrap();
    assert!(arrived < COUNT as usize, "all have arrived: nothing is shown");
    let warnings = warnings(&application);
    let [(values, text)] = &warnings[..] else { panic!("{warnings:?}") };
    // Values that have arrived may lack an acknowledgement, but never the other way round.
    assert!((u64::from(COUNT) - arrived as u64..=u64::from(COUNT)).contains(values), "{values}, and {arrived} arrived");
    assert!(text.contains("its runtime ended") && text.contains("Node::flush"), "{text}");
}

/// A program without a subscriber of `tracing` warns on its standard error that values may be lost.
#[test]
fn lost_values_are_reported_on_standard_error() {
    for (role, why) in [("sender in tokio", "its runtime ended"), ("sender that is not heard", "`main` returned")] {
        let application = application();
        let stuck = Stuck::start(&application);
        let ran = actor::command(&[], role, &[&application.0, &application.1]).output().unwrap();
        let told = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{told}");
        let lines: Vec<&str> = told.lines().filter(|line| line.starts_with("dunlin: ")).collect();
        let [line] = lines[..] else { panic!("{role}: {told}") };
        let (whose, peer) = (format!("application {:?}", application.0), stuck.peer.to_string());
        for part in [&whose, why, &peer, "values", "Node::flush"] {
            assert!(line.contains(part), "{part} in {line}");
        }
        stuck.let_go();
    }
}

#[cfg(unix)]
#[test]
fn a_main_without_a_runtime_ends_with_an_error() {
    for files in 5..10 {
        let few_files = ["sh", "-c", &format!(r#"ulimit -n {files}; exec "$0" "$@""#)];
        let ran = actor::command(&few_files, "sender in main", &["nobody", "nowhere"]).output().unwrap();
        let told = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(1), "{files} files: {told}");
        let is_told = |line: &str| line.starts_with("Error: ") && line.contains("runtime") && line.contains("files");
        assert!(told.lines().any(is_told) && !told.contains("panicked"), "{files} files: {told}");
    }
}

#[test]
fn no_warning_is_logged_if_everything_arrived() {
    subscribe();
    let application = application();
    let receiver = receiver(&application);
    dunlin::block_on(async {
        let node = join(&application).await?;
        send(&node, 1000).await?;
        Result::<()>::Ok(())
    })
    .unwrap();
    assert_eq!(receiver.join().unwrap(), COUNT as usize);
    assert_eq!(warnings(&application), []);
}

/// A node that acknowledges nothing after its first value, until the test releases it.
struct Stuck {
    peer: Peer,
    go: mpsc::Sender<()>,
    thread: JoinHandle<()>,
}

impl Stuck {
    fn start(application: &(String, String)) -> Self {
        let (ready, is_ready) = mpsc::channel();
        let (go, goes) = mpsc::channel();
        let application = application.clone();
        // The only thread of this runtime is blocked when the values arrive.
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                // There is room for all values before their size is known, so each send returns `Ok`.
                let node = soon_gives_up(&application).buffered_max_bytes(u64::from(COUNT) << 20).join().await.unwrap();
                let mut rx = node.receiver::<Vec<u8>>("values").policy(fifo(COUNT as usize)).await.unwrap();
                ready.send(node.me()).unwrap();
                rx.recv().await.unwrap();
                goes.recv().unwrap();
            });
        });
        Self { peer: is_ready.recv_timeout(Duration::from_secs(30)).unwrap(), go, thread }
    }

    fn let_go(self) {
        self.go.send(()).unwrap();
        self.thread.join().unwrap();
    }

    /// It is the only unacknowledged peer; returns its number of values.
    fn is(&self, peers: &[Unacknowledged]) -> u64 {
        let [found] = peers else { panic!("{peers:?}") };
        assert_eq!(found.peer.to_string(), self.peer.to_string());
        assert!(found.to_string().contains(&format!("node {} at 127.0.0.1:", self.peer)), "{found}");
        found.values
    }
}

/// The second that nodes have to leave, and an allowance for a busy machine.
const RETURNS_WITHIN: Duration = Duration::from_millis(2500);

/// The least of three times that `block_on` takes to return after the end of its future; `run` returns the
/// moment of that end.
fn returns(mut run: impl FnMut() -> std::time::Instant) -> Duration {
    (0..3).map(|_| run().elapsed()).min().unwrap()
}

#[test]
fn main_returns_though_a_peer_acknowledges_nothing() {
    subscribe();
    let mut all_stuck = Vec::new();
    let took = returns(|| {
        let application = application();
        let stuck = Stuck::start(&application);
        let returned = dunlin::block_on(async {
            let node = join_patiently(&application).await?;
            send(&node, LARGE).await?;
            Result::<_>::Ok(std::time::Instant::now())
        });
        all_stuck.push((application, stuck));
        returned.unwrap()
    });
    assert!(took < RETURNS_WITHIN, "it took {took:?}");
    for (application, stuck) in all_stuck {
        let warnings = warnings(&application);
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!((1..=u64::from(COUNT)).contains(&warnings[0].0), "{warnings:?}");
        stuck.let_go();
    }
}

/// The second is for all nodes together, whether their handles are dropped or held. One after the other they
/// would take four.
#[test]
fn main_returns_though_the_peers_of_several_nodes_acknowledge_nothing() {
    let (mut all_stuck, mut held) = (Vec::new(), Vec::new());
    let took = returns(|| {
        let applications: [_; 4] = std::array::from_fn(|_| application());
        all_stuck.extend(applications.each_ref().map(Stuck::start));
        let returned = dunlin::block_on(async {
            for (n, application) in applications.iter().enumerate() {
                let node = join_patiently(application).await?;
                send(&node, LARGE).await?;
                if n % 2 == 1 {
                    held.push(node);
                }
            }
            Result::<_>::Ok(std::time::Instant::now())
        });
        returned.unwrap()
    });
    assert!(took < RETURNS_WITHIN, "it took {took:?}");
    all_stuck.into_iter().for_each(Stuck::let_go);
}

/// Like `a_warning_counts_the_values_if_the_runtime_ends_first`, but for the flush.
#[test]
fn flushed_values_arrive_though_the_runtime_ends_at_once() {
    subscribe();
    let application = application();
    let receiver = receiver(&application);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let node = join(&application).await.unwrap();
        send(&node, LARGE).await.unwrap();
        node.flush().await.unwrap();
    });
    drop(runtime);
    assert_eq!(receiver.join().unwrap(), COUNT as usize);
    assert_eq!(warnings(&application), []);
}

#[test]
fn flush_does_not_wait_for_values_that_are_sent_later() {
    dunlin::block_on(async {
        let application = application();
        let [a, b] = [join(&application).await?, join(&application).await?];
        let mut other = b.receiver::<u32>("other").policy(fifo(8)).await?;
        let mut rx = b.receiver::<Vec<u8>>("values").policy(fifo(COUNT as usize)).await?;
        let tx = send(&a, 30_000).await?;
        let mut busy = a.sender::<u32>("other").await?;
        let busy = spawn(async move { while busy.send(7).await.is_ok() {} });
        let drain = spawn(async move { while other.recv().await.is_ok() {} });
        a.flush().await?;
        drop(tx);
        while rx.recv().await.is_ok() {}
        b.leave().await?;
        let _ = (busy.await, drain.await);
        a.flush().await?;
        let again = a.clone();
        a.leave().await?;
        assert!(again.flush().await.unwrap_err().to_string().contains("has left"));
        Result::<()>::Ok(())
    })
    .unwrap();
}

#[test]
fn flush_names_the_node_whose_connection_ended_first() {
    let application = application();
    let stuck = Stuck::start(&application);
    dunlin::block_on(async {
        let node = join(&application).await?;
        let _tx = send(&node, LARGE).await?;
        let flushed = node.flush().await;
        let Err(Error::Node(NodeError::NotFlushed { peers })) = flushed else { panic!("{flushed:?}") };
        stuck.is(&peers);
        Result::<()>::Ok(())
    })
    .unwrap();
    stuck.let_go();
}

#[test]
fn leave_names_the_node_that_has_not_acknowledged_values() {
    let application = application();
    let stuck = Stuck::start(&application);
    dunlin::block_on(async {
        let node = join_patiently(&application).await?;
        let _tx = send(&node, LARGE).await?;
        let error = node.leave().await.unwrap_err();
        assert!(error.to_string().contains(&format!("by node {} at ", stuck.peer)), "{error}");
        let Error::Node(NodeError::NotFlushed { peers }) = error else { panic!("{error}") };
        assert!((1..=u64::from(COUNT)).contains(&stuck.is(&peers)), "{peers:?}");
        Result::<()>::Ok(())
    })
    .unwrap();
    stuck.let_go();
}
