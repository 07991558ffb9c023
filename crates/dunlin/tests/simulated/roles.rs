//! A main node and its members: joining, shutdown, and their events about each other; in virtual time.

use std::sync::{Arc, Mutex};

use dunlin::node::roles::JoinWait;
use dunlin::node::{NameError, NodeBuilder, NodeError, NodeEvent, Role};
use dunlin::prelude::*;
use dunlin::sim::Sim;
use dunlin::waits;

const SEEDS: u64 = 20;

/// In many simulations.
fn run(test: impl AsyncFn(&Sim) -> Result) {
    for seed in 0..SEEDS {
        let sim = Sim::new(seed);
        let result = sim.run(test(&sim));
        result.unwrap_or_else(|error| panic!("with seed {seed}: {error}"));
    }
}

fn builder() -> NodeBuilder {
    Node::builder().app("roles")
}

async fn main_node() -> Result<Node, NodeError> {
    builder().role(Role::Main).named("master").join().await
}

async fn member(name: &str) -> Result<Node, NodeError> {
    builder().role(Role::Member).named(name).join().await
}

/// The node that serves the names, and stays: other nodes join and leave before one of them is the main one.
async fn names() -> Result<Node> {
    let names = Node::join("roles").await?;
    let _ = names.sender::<u32>("somebody serves the names").await?;
    Ok(names)
}

/// A main node, and members.
async fn nodes<const N: usize>() -> Result<(Node, [Node; N])> {
    let main = main_node().await?;
    let mut members = Vec::new();
    for n in 0..N {
        members.push(member(&format!("worker-{n}")).await?);
    }
    Ok((main, members.try_into().unwrap()))
}

/// The joins and departures of members, and the fate of the main node, in the order of the events.
fn news(events: &mut Receiver<NodeEvent>) -> Vec<String> {
    let all = std::iter::from_fn(|| events.try_recv().ok());
    let of_roles = |event: &NodeEvent| !matches!(event, NodeEvent::Connection(..));
    all.filter(of_roles).map(|event| event.to_string()).collect()
}

/// Waits for the event with this text.
async fn hears(events: &mut Receiver<NodeEvent>, text: &str) -> Result<NodeEvent> {
    loop {
        let event = events.recv().await?;
        if event.to_string() == text {
            return Ok(event);
        }
    }
}

fn seconds(sim: &Sim, since: Duration) -> u64 {
    (sim.elapsed() - since).as_secs()
}

#[test]
fn first_member_reports_its_wait_for_a_main_node() {
    run(async |sim| {
        let _names = names().await?;
        let said = Arc::new(Mutex::new(Vec::<JoinWait>::new()));
        let says = said.clone();
        let waits = builder().role(Role::Member).on_wait(move |wait| says.lock().unwrap().push(wait.clone()));
        let line = line!() - 1;
        let joining = spawn(waits.join());
        sleep(Duration::from_secs(12)).await;
        // A quarter of a second, and then every five.
        let said = said.lock().unwrap().clone();
        let times: Vec<u64> = said.iter().map(|wait| wait.waited.as_secs()).collect();
        assert_eq!(times, [0, 5, 10]);
        assert_eq!((said[0].role, said[0].without_names.as_ref()), (Role::Member, None));
        let text = said[0].to_string();
        assert!(text.contains("waiting for the main node of the application \"roles\""), "{text}");
        assert!(text.contains("role(Role::Main)"), "{text}");
        let here = |wait: &waits::Wait| wait.made.file() == file!() && wait.made.line() == line;
        let wait = waits::snapshot().into_iter().find(here).expect("the join is a wait");
        assert_eq!(wait.who, joining.pid());

        let main = main_node().await?;
        let began = sim.elapsed();
        let member = joining.await??;
        assert!(seconds(sim, began) < 1);
        assert_eq!((main.role(), member.role()), (Some(Role::Main), Some(Role::Member)));
        assert!(!waits::snapshot().iter().any(here));
        let members = main.members();
        assert_eq!(members.len(), 1);
        assert_eq!((members[0].peer, &*members[0].name), (member.me(), &*member.me().to_string()));
        Ok(())
    });
}

#[test]
fn member_times_out_without_a_main_node() {
    run(async |sim| {
        let _names = names().await?;
        let began = sim.elapsed();
        let patient = builder().role(Role::Member).wait_for_main(Duration::from_secs(7)).join();
        let Err(NodeError::NoMain { application, waited, without_names: None }) = patient.await else {
            panic!("there is no main node")
        };
        assert_eq!((&*application, waited.as_secs(), seconds(sim, began)), ("roles", 7, 7));
        Ok(())
    });
}

#[test]
fn second_main_node_is_refused() {
    run(async |_| {
        let _names = names().await?;
        let main = main_node().await?;
        let Err(NodeError::SecondMain { application, holder, .. }) = main_node().await else {
            panic!("there is a main node already")
        };
        assert_eq!((application, holder), ("roles".to_owned(), main.me().to_string()));
        // The refused node is gone, and the present one does not notice.
        let member = member("worker").await?;
        assert_eq!(main.members().len(), 1);
        member.leave().await?;
        main.leave().await?;
        main_node().await?.leave().await
    });
}

#[test]
fn a_main_node_that_is_lost_is_replaced() {
    run(async |sim| {
        let names = names().await?;
        let (main, [a, b]) = nodes().await?;
        let (mut of_a, mut of_b) = (a.events(), b.events());
        for node in [&names, &a, &b] {
            sim.part(&main, node);
        }
        let began = sim.elapsed();
        assert!(matches!(main_node().await, Err(NodeError::SecondMain { .. })), "its connections may come back");
        for events in [&mut of_a, &mut of_b] {
            let lost = hears(events, "the main node master is lost; waiting for the next one").await?;
            assert_eq!(lost, NodeEvent::MainLost { peer: main.me(), name: "master".to_owned() });
        }
        // The members knew each other only through the main node.
        assert_eq!((news(&mut a.events()), news(&mut b.events())), (Vec::new(), Vec::new()));
        assert!((15..25).contains(&seconds(sim, began)));
        let next = builder().role(Role::Main).named("next").join().await?;
        for (events, other) in [(&mut of_a, "worker-1"), (&mut of_b, "worker-0")] {
            let mut joined = Vec::new();
            while joined.len() < 2 {
                if let NodeEvent::Joined { name, .. } = events.recv().await? {
                    joined.push(name);
                }
            }
            joined.sort();
            assert_eq!(joined, ["next", other]);
        }
        assert_eq!(next.members().len(), 2);
        Ok(())
    });
}

#[test]
fn a_main_node_that_is_dropped_is_replaced_at_once() {
    run(async |sim| {
        let _names = names().await?;
        let (main, [a]) = nodes().await?;
        let mut events = a.events();
        drop(main);
        hears(&mut events, "the main node master is lost; waiting for the next one").await?;
        let began = sim.elapsed();
        let next = main_node().await?;
        hears(&mut events, "master has joined").await?;
        assert!(seconds(sim, began) < 5);
        assert_eq!(next.members().len(), 1);
        Ok(())
    });
}

#[test]
fn a_dropped_main_node_notifies_its_members_and_waits_for_them() {
    run(async |sim| {
        let _names = names().await?;
        let (main, [a, b]) = nodes().await?;
        let (mut of_main, mut of_b) = (main.events(), b.events());
        let closing = a.closing();
        let leaves = spawn(async move {
            assert_eq!(closing.await, Duration::from_secs(1));
            a.leave().await
        });
        drop(main);
        leaves.await??;
        hears(&mut of_main, "worker-0 has left").await?;
        // The other member does not leave.
        let began = sim.elapsed();
        hears(&mut of_b, "the main node master is lost; waiting for the next one").await?;
        assert!(seconds(sim, began) < 2);
        Ok(())
    });
}

#[test]
fn members_are_notified_of_each_other() {
    run(async |_| {
        let (main, [a, b]) = nodes().await?;
        hears(&mut a.events(), "worker-1 has joined").await?;
        let (mut of_main, mut of_a, mut of_b) = (main.events(), a.events(), b.events());
        let mut present = [news(&mut of_main), news(&mut of_a), news(&mut of_b)];
        present.iter_mut().for_each(|news| news.sort());
        let joined = |names: &[&str]| names.iter().map(|name| format!("{name} has joined")).collect::<Vec<_>>();
        assert_eq!(
            present,
            [joined(&["worker-0", "worker-1"]), joined(&["master", "worker-1"]), joined(&["master", "worker-0"]),]
        );
        let c = member("late").await?;
        for events in [&mut of_main, &mut of_a, &mut of_b] {
            let joined = hears(events, "late has joined").await?;
            assert_eq!(joined, NodeEvent::Joined { peer: c.me(), name: "late".to_owned() });
        }
        c.leave().await?;
        for events in [&mut of_main, &mut of_a] {
            hears(events, "late has left").await?;
        }
        // The drop of the last handle also leaves in order.
        drop(b);
        for events in [&mut of_main, &mut of_a] {
            hears(events, "worker-1 has left").await?;
        }
        assert_eq!(main.members().iter().map(|member| &*member.name).collect::<Vec<_>>(), ["worker-0"]);
        Ok(())
    });
}

/// Each member has a task before it leaves, which needs the names that the main node serves.
#[test]
fn the_main_node_leaves_last() {
    run(async |sim| {
        let (main, members) = nodes::<3>().await?;
        assert!(main.serves_names());
        let began = sim.elapsed();
        let working = members.into_iter().zip(1..).map(|(node, n)| {
            let mut events = node.events();
            spawn(async move {
                let mut within = None;
                alt! {
                    _ = sleep(Duration::from_secs(100)) => {}
                    told = future(node.closing()) => within = Some(told),
                }
                assert_eq!(within, Some(Duration::from_secs(10)));
                hears(&mut events, "the application is closing within 10s").await?;
                sleep(Duration::from_secs(n)).await;
                let name = format!("last words of {n}");
                let (tx, rx) =
                    par!(async { node.sender::<u64>(&name).await }, async { node.receiver::<u64>(&name).await });
                let (sent, received) =
                    par!(async { tx?.send(n).await.map_err(Error::from) }, async { Ok::<_, Error>(rx?.recv().await?) });
                sent?;
                assert_eq!(received?, n);
                node.leave().await
            })
        });
        let working: Vec<_> = working.collect();
        let mut events = main.events();
        let closing = main.closing();
        main.leave().await?;
        assert!((3..5).contains(&seconds(sim, began)));
        assert_eq!(closing.await, Duration::from_secs(10));
        let mut left: Vec<String> = news(&mut events).into_iter().filter(|text| text.ends_with("left")).collect();
        left.sort();
        assert_eq!(left, ["worker-0 has left", "worker-1 has left", "worker-2 has left"]);
        for member in working {
            member.await??;
        }
        Ok(())
    });
}

#[test]
fn a_member_that_does_not_leave_is_named() {
    run(async |sim| {
        let _names = names().await?;
        let main = builder().role(Role::Main).shutdown(Duration::from_secs(4)).named("master").join().await?;
        let (quick, slow, gone) = (member("quick").await?, member("slow").await?, member("gone").await?);
        sim.part(&main, &gone);
        let leaves = spawn({
            let closing = quick.closing();
            async move {
                assert_eq!(closing.await, Duration::from_secs(4));
                quick.leave().await
            }
        });
        let mut events = slow.events();
        let began = sim.elapsed();
        let error = main.leave().await.unwrap_err();
        let text = error.to_string();
        let Error::Node(NodeError::Stragglers { members }) = error else { panic!("{text}") };
        assert!((4..10).contains(&seconds(sim, began)));
        let mut named: Vec<_> = members.iter().map(|member| (&*member.name, member.peer, member.leaves)).collect();
        named.sort();
        assert_eq!(named, [("gone", gone.me(), false), ("slow", slow.me(), false)]);
        assert!(members.iter().all(|member| member.since.as_secs() >= 4 && member.process == std::process::id()));
        assert!(text.contains("slow (node ") && text.contains("has not left"), "{text}");
        leaves.await??;
        hears(&mut events, "the application is closing within 4s").await?;
        hears(&mut events, "the main node master is lost; waiting for the next one").await?;
        Ok(())
    });
}

/// The next main node has closed nothing.
#[test]
fn a_member_that_stays_joins_the_next_main_node() {
    run(async |_| {
        let _names = names().await?;
        let main = builder().role(Role::Main).shutdown(Duration::from_secs(1)).named("first").join().await?;
        let member = member("stays").await?;
        let mut events = member.events();
        assert!(main.leave().await.is_err());
        hears(&mut events, "the main node first is lost; waiting for the next one").await?;
        let next = main_node().await?;
        hears(&mut events, "master has joined").await?;
        let mut present = member.events();
        assert_eq!(news(&mut present), ["master has joined"]);
        // That closing belonged to the former application.
        alt! {
            within = future(member.closing()) => panic!("nothing closes: {within:?}"),
            _ = sleep(Duration::from_secs(5)) => {}
        }
        let closing = member.closing();
        let left = spawn(async move {
            closing.await;
            member.leave().await
        });
        next.leave().await?;
        left.await?
    });
}

#[test]
fn member_name_is_truncated_and_loses_control_characters() {
    run(async |_| {
        let _names = names().await?;
        let main = main_node().await?;
        let member = member(&format!("wo\x1b[2Jrk\ner{}", "-".repeat(300))).await?;
        let members = main.members();
        assert_eq!(members[0].name, format!("wo[2Jrker{}", "-".repeat(246)));
        member.leave().await
    });
}

#[test]
fn a_member_leaves_alone() {
    run(async |sim| {
        let _names = names().await?;
        let (main, [a]) = nodes().await?;
        let mut events = main.events();
        let closing = a.closing();
        let began = sim.elapsed();
        a.leave().await?;
        assert_eq!(closing.await, Duration::ZERO, "it was not the application that closed");
        hears(&mut events, "worker-0 has left").await?;
        assert!(seconds(sim, began) < 1);
        assert_eq!(main.members(), []);
        // Between two main nodes there is none to notify.
        let b = member("between").await?;
        let mut of_b = b.events();
        drop(main);
        hears(&mut of_b, "the main node master is lost; waiting for the next one").await?;
        let began = sim.elapsed();
        b.leave().await?;
        assert!(seconds(sim, began) < 1);
        Ok(())
    });
}

#[test]
fn a_member_that_joins_during_closing_waits_for_the_next_main_node() {
    run(async |sim| {
        let _names = names().await?;
        let (main, [a]) = nodes().await?;
        let (left, late) = par!(main.leave(), async {
            a.closing().await;
            let late = builder().role(Role::Member).wait_for_main(Duration::from_secs(2)).join().await;
            a.leave().await?;
            Ok::<_, Error>(late)
        });
        left?;
        assert!(matches!(late?, Err(NodeError::NoMain { .. })));
        assert!(sim.elapsed() < Duration::from_secs(10));
        Ok(())
    });
}

#[test]
fn dropped_join_enrols_no_member() {
    run(async |_| {
        let _names = names().await?;
        alt! {
            _ = future(member("given up")) => panic!("there is no main node"),
            _ = sleep(Duration::from_secs(3)) => {}
        }
        let main = main_node().await?;
        sleep(Duration::from_secs(20)).await;
        assert_eq!(main.members(), []);
        Ok(())
    });
}

/// Waits for a member to join, and then for it to leave in order.
async fn comes_and_has_left(events: &mut Receiver<NodeEvent>) -> Result {
    hears(events, "worker has joined").await?;
    loop {
        match events.recv().await?.to_string().as_str() {
            "worker has left" => return Ok(()),
            "worker is lost" => panic!("it is lost"),
            _ => {}
        }
    }
}

/// The main node has taken the member's call, and the answer is on its way.
#[test]
fn member_whose_join_is_dropped_while_admitted_has_left() {
    run(async |_| {
        let _names = names().await?;
        let main = main_node().await?;
        let (mut joined, mut events) = (main.events(), main.events());
        alt! {
            member = future(member("worker")) => drop(member?),
            told = future(hears(&mut joined, "worker has joined")) => drop(told?),
        }
        comes_and_has_left(&mut events).await
    });
}

/// Like the test above, but for a node that is a member already, and enrols with the next main node.
#[test]
fn a_member_that_leaves_while_it_is_admitted_has_left() {
    run(async |_| {
        let _names = names().await?;
        let (main, worker) = (main_node().await?, member("worker").await?);
        let mut of_worker = worker.events();
        drop(main);
        hears(&mut of_worker, "the main node master is lost; waiting for the next one").await?;
        let main = main_node().await?;
        let (mut joined, mut events) = (main.events(), main.events());
        hears(&mut joined, "worker has joined").await?;
        worker.leave().await?;
        comes_and_has_left(&mut events).await
    });
}

/// The wait for the main node times out at any moment, also while its answer is on its way.
#[test]
fn member_whose_join_times_out_while_admitted_has_left() {
    run(async |sim| {
        let _names = names().await?;
        let main = main_node().await?;
        let mut events = main.events();
        sim.delay(Duration::from_millis(100), Duration::from_millis(101));
        for _ in 0..10 {
            let patience = Duration::from_millis(100 + sim.below(1500));
            match builder().role(Role::Member).named("worker").wait_for_main(patience).join().await {
                Ok(worker) => worker.leave().await?,
                Err(why) => assert!(matches!(why, NodeError::NoMain { .. }), "{why}"),
            }
            sleep(Duration::from_secs(3)).await;
            assert_eq!(main.members(), []);
            let told = news(&mut events);
            assert!(told.is_empty() || told == ["worker has joined", "worker has left"], "{told:?}");
        }
        Ok(())
    });
}

/// The main node has taken a call, and its answer takes longer than the member waits: it counts one member,
/// once.
#[test]
fn a_member_whose_answer_is_late_joins_once() {
    run(async |sim| {
        let _names = names().await?;
        let (main, worker) = (main_node().await?, member("worker").await?);
        let mut of_worker = worker.events();
        drop(main);
        hears(&mut of_worker, "the main node master is lost; waiting for the next one").await?;
        let main = main_node().await?;
        let (mut joined, mut events) = (main.events(), main.events());
        hears(&mut joined, "worker has joined").await?;
        sim.part(&main, &worker);
        sleep(Duration::from_secs(8)).await;
        sim.heal(&main, &worker);
        hears(&mut of_worker, "master has joined").await?;
        sleep(Duration::from_secs(30)).await;
        assert_eq!(main.members().len(), 1);
        assert_eq!(news(&mut events), ["worker has joined"]);
        worker.leave().await?;
        hears(&mut joined, "worker has left").await?;
        Ok(())
    });
}

/// The main node has notified each of them of those that left before.
#[test]
fn members_that_leave_at_once_have_left() {
    run(async |_| {
        let (main, members) = nodes::<8>().await?;
        let mut events = main.events();
        news(&mut events);
        let leaving: Vec<_> = members.into_iter().map(|node| spawn(node.leave())).collect();
        for node in leaving {
            node.await??;
        }
        let mut left = Vec::new();
        while left.len() < 8 {
            if let NodeEvent::Left { name, in_order, .. } = events.recv().await? {
                assert!(in_order, "{name} is lost");
                left.push(name);
            }
        }
        Ok(())
    });
}

#[test]
fn programs_cannot_declare_reserved_names() {
    run(async |_| {
        let node = Node::join("roles").await?;
        for name in ["dunlin.main", "dunlin.", "10.0.0.1:7400/dunlin.main"] {
            let Err(NameError::Reserved(refused)) = node.sender::<u32>(name).await else { panic!("{name}") };
            assert_eq!(refused, name);
        }
        let _ = node.sender::<u32>("dunlin").await?;
        Ok(())
    });
}

/// A main node returns that was considered lost, and has been replaced.
#[test]
fn a_main_node_that_was_replaced_waits_for_its_name() {
    run(async |sim| {
        let names = names().await?;
        let (main, [a]) = nodes().await?;
        let (mut of_main, mut of_a) = (main.events(), a.events());
        for node in [&names, &a] {
            sim.part(&main, node);
        }
        hears(&mut of_a, "the main node master is lost; waiting for the next one").await?;
        let next = loop {
            match builder().role(Role::Main).named("next").join().await {
                Ok(next) => break next,
                Err(NodeError::SecondMain { .. }) => sleep(Duration::from_secs(1)).await,
                Err(error) => return Err(error.into()),
            }
        };
        hears(&mut of_a, "next has joined").await?;
        hears(&mut of_main, "worker-0 is lost").await?;
        for node in [&names, &a] {
            sim.heal(&main, node);
        }
        loop {
            if let NodeEvent::Refused { name, why: NameError::Refused { holder, .. } } = of_main.recv().await? {
                assert_eq!((name, holder), ("dunlin.main".to_owned(), next.me().to_string()));
                break;
            }
        }
        sleep(Duration::from_secs(10)).await;
        assert_eq!((main.members().len(), next.members().len()), (0, 1));
        // It is notified once. Then the name is free.
        assert_eq!(news(&mut of_main), [""; 0]);
        drop(next);
        hears(&mut of_a, "master has joined").await?;
        assert_eq!(main.members().len(), 1);
        Ok(())
    });
}
