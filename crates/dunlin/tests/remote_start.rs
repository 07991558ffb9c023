//! Functions that are started at another node.
#![cfg(all(feature = "net", feature = "macros"))]

#[path = "support/starts.rs"]
mod starts;

use bytes::Bytes;
use dunlin::node::NameError;
use dunlin::prelude::*;
use dunlin::{RemoteFunction, StartError, StartFailure, exit, monitor};
use serde::{Deserialize, Serialize};
use starts::{Answer, Refusal, Start, Starts, name_of};

/// Nodes of one application.
async fn nodes<const N: usize>(test: &str) -> [Node; N] {
    let names = format!("memory:remote-{test}");
    let mut nodes = Vec::new();
    for _ in 0..N {
        nodes.push(Node::builder().app(test).names(&names).listen("memory:").join().await.unwrap());
    }
    nodes.try_into().unwrap()
}

/// Counts the words of all lines.
#[dunlin::remote]
async fn count_words(mut lines: Receiver<String>) -> usize {
    let mut n = 0;
    while let Ok(line) = lines.recv().await {
        n += line.split_whitespace().count();
    }
    n
}

#[dunlin::remote]
async fn half(n: u32) -> Result<u32, String> {
    if n.is_multiple_of(2) { Ok(n / 2) } else { Err(format!("{n} is odd")) }
}

/// Sends its pid, and runs until it is ended.
#[dunlin::remote]
async fn idle(mut started: Sender<Pid>) {
    started.send(Pid::current().expect("it is a process")).await.unwrap();
    std::future::pending().await
}

#[dunlin::remote]
async fn panics(text: String) {
    panic!("{text}")
}

#[dunlin::remote]
async fn leaves(text: String) -> u8 {
    match exit(text).await {
        Ok(never) => match never {},
        Err(_) => 0,
    }
}

/// Why it was not started, and its arguments.
fn refused<F: RemoteFunction>(
    result: Result<dunlin::RemoteProcess<F::Output>, StartError<F>>,
) -> (StartFailure, F::Arguments) {
    let error = result.unwrap_err();
    let why = error.why().unwrap().clone();
    (why, error.into_call().unwrap().into_arguments())
}

#[dunlin::test]
async fn arguments_and_output_travel_with_their_ends() {
    let [here, there] = nodes("values").await;
    let offer = there.offer("worker").function::<count_words>().function::<half>().await.unwrap();
    assert_eq!(offer.name(), "worker");
    let (mut tx, lines) = channel();
    let count = here.spawn_on("worker", count_words(lines)).await.unwrap();
    tx.send("krill and squid".to_owned()).await.unwrap();
    tx.send("salp".to_owned()).await.unwrap();
    drop(tx);
    assert_eq!(count.await.unwrap(), 4);
    // An output that is an error is an output.
    for (n, expected) in [(10, Ok(5)), (7, Err("7 is odd".to_owned()))] {
        let process = here.spawn_on("worker", half(n)).await.unwrap();
        let down = monitor(process.pid());
        assert_eq!(process.await.unwrap(), expected);
        let reason = expected.map_or_else(ExitReason::Error, |_| ExitReason::Normal);
        let told = down.await.reason;
        assert!(told == reason || told == ExitReason::NoSuchProcess, "{told:?}");
    }
    // A node can use its own offer, and the function can run here.
    assert_eq!(there.spawn_on("worker", half(4)).await.unwrap().await.unwrap(), Ok(2));
    assert_eq!(half(4).await, Ok(2));
    assert_eq!(spawn(half(4)).await.unwrap(), Ok(2));
}

#[dunlin::test]
async fn exits_of_the_process_are_reported() {
    let [here, there] = nodes("exits").await;
    let _offer = there.offer("worker").function::<panics>().function::<leaves>().function::<idle>().await.unwrap();
    let process = here.spawn_on("worker", panics("no krill".into())).await.unwrap();
    assert_eq!(process.await.unwrap_err().reason, ExitReason::Panicked("no krill".into()));
    let process = here.spawn_on("worker", leaves("enough".into())).await.unwrap();
    let pid = process.pid();
    let exit = process.await.unwrap_err();
    assert_eq!((exit.pid, exit.reason), (pid, ExitReason::Error("enough".into())));
    let (tx, mut started) = channel();
    let mut process = here.spawn_on("worker", idle(tx)).await.unwrap();
    assert_eq!(started.recv().await.unwrap(), process.pid());
    alt! {
        biased;
        _ = &mut process => panic!("it has ended"),
        skip => {}
    }
    assert!(process.pid().kill());
    assert_eq!((&mut process).await.unwrap_err().reason, ExitReason::Killed);
}

#[dunlin::test]
async fn refusals_are_typed_and_give_the_ends_back() {
    let [here, there] = nodes("refusals").await;
    let me = here.me();
    let _none = there.offer("none").function::<half>().await.unwrap();
    let _others = there.offer("others").function::<count_words>().allow(move |peer| peer != me).await.unwrap();
    let (mut tx, lines) = channel::<String>();
    let (why, (lines,)) = refused(here.spawn_on("none", count_words(lines)).await);
    assert_eq!(why, StartFailure::NotOffered);
    let (why, (lines,)) = refused(here.spawn_on("others", count_words(lines)).await);
    assert_eq!(why, StartFailure::NotAllowed);
    let soon = Duration::from_millis(50);
    let (why, (lines,)) = refused(here.spawn_on("nobody", count_words(lines)).within(soon).await);
    assert_eq!(why, StartFailure::TimedOut);
    // `main` is no spawned process.
    let (why, (mut lines,)) = refused(here.spawn_on("others", count_words(lines)).linked().await);
    assert!(matches!(why, StartFailure::OutsideProcess(_)), "{why}");
    let (sent, received) = par!(tx.send("krill".to_owned()), lines.recv());
    sent.unwrap();
    assert_eq!(received.unwrap(), "krill");
    // The other node may.
    let process = there.spawn_on("others", count_words(lines)).await.unwrap();
    drop(tx);
    assert_eq!(process.await.unwrap(), 0);
}

/// The words before a start are bytes, so each side may be told what is none of them.
#[dunlin::test]
async fn words_that_cannot_be_read_start_nothing() {
    let [here, there] = nodes("words").await;
    let mut guests = there.acceptor::<Call<Bytes, Bytes>>("another").await.unwrap();
    let answers = spawn(async move {
        let mut callee = guests.recv().await.unwrap().into_face();
        callee.accept().await.unwrap().reply(Bytes::from_static(b"krill")).unwrap();
    });
    let (why, arguments) = refused::<half>(here.spawn_on("another", half(4)).await);
    assert_eq!((why, arguments), (StartFailure::Unreadable, (4,)));
    answers.await.unwrap();

    let _offer = there.offer("worker").function::<half>().await.unwrap();
    let mut asks = here.client::<Call<Bytes, Bytes>>("worker").await.unwrap();
    let not_offered = asks.call(Bytes::from_static(b"\x06unread")).await.unwrap();
    for unreadable in [&b""[..], b"\x09krill", b"\x01krill", b"\x01\xff"] {
        assert_eq!(asks.call(Bytes::copy_from_slice(unreadable)).await.unwrap(), not_offered);
    }
    assert_eq!(here.spawn_on("worker", half(4)).await.unwrap().await.unwrap(), Ok(2));
}

#[dunlin::test]
async fn no_more_processes_run_than_the_offer_allows() {
    let [here, there] = nodes("full").await;
    let _offer = there.offer("worker").function::<idle>().processes_max(2).await.unwrap();
    let mut running = Vec::new();
    for _ in 0..2 {
        let (tx, mut started) = channel();
        running.push(here.spawn_on("worker", idle(tx)).await.unwrap());
        started.recv().await.unwrap();
    }
    let (tx, mut started) = channel();
    let (why, (tx,)) = refused(here.spawn_on("worker", idle(tx)).await);
    assert_eq!(why, StartFailure::Full { max: 2 });
    let first = running.remove(0);
    first.pid().kill();
    assert_eq!(first.await.unwrap_err().reason, ExitReason::Killed);
    // Its place was free before its end was told.
    let third = here.spawn_on("worker", idle(tx)).await.unwrap();
    assert_eq!(started.recv().await.unwrap(), third.pid());
}

#[dunlin::test]
async fn node_that_does_not_ask_is_refused_all_the_same() {
    let [here, there] = nodes("rude").await;
    let me = here.me();
    let _others = there.offer("others").function::<half>().allow(move |peer| peer != me).await.unwrap();
    let _full = there.offer("full").function::<half>().processes_max(1).await.unwrap();
    let mut client = here.client::<Starts<half>>(&name_of::<half>("others")).await.unwrap();
    let (output, _rx) = channel();
    let answer = client.call(Start { arguments: (7,), output }).await.unwrap();
    let Answer::Refused(Refusal::NotAllowed, start) = answer else { panic!("it was not refused") };
    assert_eq!(start.arguments, (7,));
    let mut client = here.client::<Starts<half>>(&name_of::<half>("full")).await.unwrap();
    let (output, _rx) = channel();
    // It never confirms, and this process waits.
    let answer = client.call(Start { arguments: (7,), output }).await.unwrap();
    let Answer::Started(pid, _address) = answer else { panic!("it was refused") };
    let (output, _rx) = channel();
    let answer = client.call(Start { arguments: (7,), output }).await.unwrap();
    assert!(matches!(answer, Answer::Refused(Refusal::Full(1), _)));
    let down = monitor(pid);
    pid.kill();
    assert_eq!(down.await.reason, ExitReason::Killed);
}

mod other {
    //! Programs of another age: the same function at another path.

    use super::*;

    #[dunlin::remote]
    pub(super) async fn half(n: String) -> Result<u32, String> {
        n.parse().map_err(|_| n)
    }
}

/// A function of that name with other parameters.
enum Renamed {}

impl RemoteFunction for Renamed {
    type Arguments = (String,);
    type Output = Result<u32, String>;
    const NAME: &'static str = <half as RemoteFunction>::NAME;

    async fn run((n,): (String,)) -> Result<u32, String> {
        other::half(n).await
    }
}

/// Text that cannot be read.
#[derive(Debug, PartialEq, Serialize)]
struct Sour(u8);

impl<'de> Deserialize<'de> for Sour {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match u8::deserialize(deserializer)? {
            13 => Err(serde::de::Error::custom("it is sour")),
            n => Ok(Self(n)),
        }
    }
}

#[dunlin::remote]
async fn taste(sour: Sour) -> u8 {
    sour.0
}

#[dunlin::test]
async fn arguments_of_another_schema_or_that_cannot_be_read_come_back() {
    let [here, there] = nodes("schemas").await;
    let _offer = there.offer("worker").function::<half>().function::<taste>().await.unwrap();
    let call = dunlin::RemoteCall::<Renamed>::new(("7".to_owned(),));
    let (why, arguments) = refused(here.spawn_on("worker", call).await);
    let StartFailure::Name(NameError::Mismatch { difference, .. }) = why else { panic!("{why}") };
    assert!(difference.to_string().contains("text"), "{difference}");
    assert_eq!(arguments, ("7".to_owned(),));

    let (why, arguments) = refused(here.spawn_on("worker", taste(Sour(13))).await);
    let StartFailure::NotTaken(Why::Unsendable(text)) = why else { panic!("{why}") };
    assert!(text.to_string().contains("it is sour"), "{text}");
    assert_eq!(arguments, (Sour(13),));
    // Others are read.
    assert_eq!(here.spawn_on("worker", taste(Sour(12))).await.unwrap().await.unwrap(), 12);
}

#[dunlin::test]
async fn linked_process_and_its_starter_end_together() {
    let [here, there] = nodes("linked").await;
    let _offer = there.offer("worker").function::<panics>().function::<idle>().await.unwrap();
    let starter = here.clone();
    let linked = spawn(async move {
        let _process = starter.spawn_on("worker", panics("no krill".into())).linked().await.unwrap();
        std::future::pending::<()>().await
    });
    assert_eq!(linked.await.unwrap_err().reason, ExitReason::Panicked("no krill".into()));

    let (tx, mut started) = channel();
    let starter = here.clone();
    let parent = spawn(async move { starter.spawn_on("worker", idle(tx)).linked().await.unwrap().await });
    let far = started.recv().await.unwrap();
    let down = monitor(far);
    parent.pid().kill();
    assert_eq!(down.await.reason, ExitReason::Killed);
}

/// However soon a linked process ends, its starter gets that end, and not that there was no such process.
#[dunlin::test]
async fn no_end_is_missed_between_start_and_link() {
    let [here, there] = nodes("gap").await;
    let _offer = there.offer("worker").function::<panics>().await.unwrap();
    for n in 0..50 {
        let (starter, text) = (here.clone(), format!("at once {n}"));
        let expected = ExitReason::Panicked(text.clone());
        let parent = spawn(async move {
            let process = starter.spawn_on("worker", panics(text)).linked().await.unwrap();
            let (_, mut exits) = mailbox::<Exit>();
            drop(process);
            exits.recv().await
        });
        assert_eq!(parent.await.unwrap_err().reason, expected);
    }
}

#[dunlin::test]
async fn withdrawn_offer_starts_nothing_and_its_name_is_free() {
    let [here, there] = nodes("withdrawn").await;
    let offer = there.offer("worker").function::<idle>().await.unwrap();
    let (tx, mut started) = channel();
    let process = here.spawn_on("worker", idle(tx)).await.unwrap();
    started.recv().await.unwrap();
    drop(offer);
    let offer = loop {
        // The name is free soon.
        match there.offer("worker").function::<half>().await {
            Ok(offer) => break offer,
            Err(NameError::Refused { .. }) => sleep(Duration::from_millis(1)).await,
            Err(error) => panic!("{error}"),
        }
    };
    let (tx, _rx) = channel();
    let (why, _) = refused(here.spawn_on("worker", idle(tx)).await);
    assert_eq!(why, StartFailure::NotOffered);
    // The process runs on.
    process.pid().kill();
    assert_eq!(process.await.unwrap_err().reason, ExitReason::Killed);
    drop(offer);
}

#[dunlin::test]
async fn node_that_leaves_ends_what_waits_for_its_processes() {
    let [here, there] = nodes("leaves").await;
    let _offer = there.offer("worker").function::<idle>().await.unwrap();
    let (tx, mut started) = channel();
    let process = here.spawn_on("worker", idle(tx)).await.unwrap();
    started.recv().await.unwrap();
    there.leave().await.unwrap();
    assert_eq!(process.await.unwrap_err().reason, ExitReason::NodeLeft);
}
