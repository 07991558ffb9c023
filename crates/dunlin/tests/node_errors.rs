//! The texts of errors of names and nodes: the missing part, the node that has a name, and the remedy.
#![cfg(feature = "net")]

use dunlin::call;
use dunlin::node::{NameError, NodeEvent};
use dunlin::prelude::*;

#[allow(dead_code, reason = "each test needs a part of it")]
#[path = "support/nodes.rs"]
mod support;
use support::{nodes, run};

const SHORT: Duration = Duration::from_millis(20);
const LONG: Duration = Duration::from_secs(30);

/// Checks that the text contains all of these.
#[track_caller]
fn has(error: impl std::fmt::Display, parts: &[&str]) {
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
}

/// Waits until the end no longer waits for its other one: the other node may have been quicker.
async fn is_joined(node: &Node, name: &str) {
    while node.waiting().iter().any(|end| end.name == name) {
        tokio::task::yield_now().await;
    }
}

#[derive(Bundle)]
struct Till {
    pay: ToServer<u32>,
    receipt: ToClient<String>,
    price: Call<String, u32>,
}

#[test]
fn a_deadline_names_the_receiver_that_is_missing() {
    run(async {
        let [a, b] = nodes("missing-receiver").await;
        let mut tx = a.sender::<String>("readings").await?;
        let error = tx.send("krill".to_owned()).within(SHORT).await.unwrap_err();
        assert!(error.is_timed_out());
        let parts = [
            "no receiver has declared \"readings\"",
            "only this sender is declared",
            "application \"missing-receiver\"",
            "names at memory:names-of-missing-receiver",
            "Start the program that declares the receiver",
        ];
        has(&error, &parts);
        assert_eq!(error.into_value(), "krill");
        has(tx.send_nowait("krill".to_owned()).within(SHORT).await.unwrap_err(), &parts);
        let error = Error::from(tx.send_from(&mut Some("krill".to_owned())).within(SHORT).await.unwrap_err());
        assert!(error.is_timed_out(), "{error}");
        has(error, &parts);

        let _rx = b.receiver::<String>("readings").await?;
        is_joined(&a, "readings").await;
        let error = tx.send("krill".to_owned()).within(SHORT).await.unwrap_err();
        assert_eq!(error.why(), Some(&Why::TimedOut), "the receiver is there");
        Ok(())
    });
}

#[test]
fn a_deadline_names_the_sender_that_is_missing() {
    run(async {
        let [a, b] = nodes("missing-sender").await;
        let mut rx = b.receiver::<u32>("readings").await?;
        let error = rx.recv().within(SHORT).await.unwrap_err();
        assert!(error.is_timed_out() && Error::from(error.clone()).is_timed_out());
        has(&error, &["no sender has declared \"readings\"", "only this receiver is declared"]);
        let _tx = a.sender::<u32>("readings").await?;
        is_joined(&b, "readings").await;
        assert_eq!(rx.recv().within(SHORT).await, Err(RecvError::TimedOut));

        // With both ends at one node the result is the same.
        let mut rx = b.receiver::<u32>("here").await?;
        has(rx.recv().within(SHORT).await.unwrap_err(), &["no sender has declared \"here\""]);
        let _tx = b.sender::<u32>("here").await?;
        is_joined(&b, "here").await;
        assert_eq!(rx.recv().within(SHORT).await, Err(RecvError::TimedOut));
        Ok(())
    });
}

#[test]
fn a_deadline_names_the_face_of_a_bundle_that_is_missing() {
    run(async {
        let [a, b] = nodes("missing-face").await;
        let mut client = a.client::<Till>("till").await?;
        let parts = ["no server has declared \"till\"", "only this client is declared"];
        has(client.pay.send(7).within(SHORT).await.unwrap_err(), &parts);
        has(client.receipt.recv().within(SHORT).await.unwrap_err(), &parts);
        has(client.price.call("krill".to_owned()).within(SHORT).await.unwrap_err(), &parts);

        let mut server = b.server::<Till>("other till").await?;
        let parts = ["no client has declared \"other till\"", "only this server is declared"];
        has(server.pay.recv().within(SHORT).await.unwrap_err(), &parts);
        has(server.receipt.send(String::new()).within(SHORT).await.unwrap_err(), &parts);

        let mut server = b.server::<Till>("till").await?;
        let mut other = a.client::<Till>("other till").await?;
        is_joined(&a, "till").await;
        is_joined(&b, "other till").await;
        // The server has noticed its client.
        let (sent, received) = par!(client.pay.send(7), server.pay.recv());
        assert_eq!((sent, received), (Ok(()), Ok(7)));
        assert_eq!(client.receipt.recv().within(SHORT).await, Err(RecvError::TimedOut));
        assert_eq!(server.pay.recv().within(SHORT).await, Err(RecvError::TimedOut));
        assert_eq!(server.receipt.send(String::new()).within(SHORT).await.unwrap_err().why(), Some(&Why::TimedOut));
        assert_eq!(other.pay.send(7).within(SHORT).await.unwrap_err().why(), Some(&Why::TimedOut));
        Ok(())
    });
}

/// The name service answers a second client only once the first is gone, or an acceptor is there.
#[test]
fn timed_out_client_error_names_the_earlier_client() {
    run(async {
        let [a, b] = nodes("second-client").await;
        let unknown = "another client of this name is ahead (see `dunlin names list`)";
        for first in [&a, &b] {
            let name = format!("till of {}", first.me());
            let client = first.client::<Till>(&name).await?;
            let (node, address) = (first.me(), &first.addresses()[0]);
            for second in [&a, &b] {
                // On a busy machine the name service may not be found, or may not answer, in so short a time.
                let error = loop {
                    let error = second.client::<Till>(&name).within(SHORT).await.map(drop).unwrap_err().to_string();
                    if !error.contains("has answered yet") && !error.contains("has not answered") {
                        break error;
                    }
                };
                let before = match (second.me() == node, second.serves_names()) {
                    (true, _) => "another client of this name at this node is ahead",
                    (false, true) => &format!("a client of this name at node {node} at {address} is ahead"),
                    (false, false) => unknown,
                };
                has(&error, &["was not admitted within", "name service was reached", before, "`Node::acceptor`"]);
            }
            // An acceptor takes both.
            let second = b.client::<Till>(&name).into_future();
            let (door, second) = par!(async { b.acceptor::<Till>(&name).await }, second);
            drop((door?, second?, client));
        }
        Ok(())
    });
}

#[test]
fn a_deadline_names_the_client_that_an_acceptor_waits_for() {
    run(async {
        let [a, b] = nodes("missing-client").await;
        let mut events = a.events();
        let mut guests = a.acceptor::<Till>("till").await?;
        let parts = [
            "no client has declared \"till\"",
            "only this acceptor is declared",
            "application \"missing-client\"",
            "names at memory:names-of-missing-client",
            "Start the program that declares the client",
        ];
        let error = guests.recv().within(SHORT).await.expect_err("there is no client");
        assert!(error.is_timed_out());
        has(error, &parts);

        // The text includes the refused client.
        assert!(b.client::<OtherTill>("till").await.is_err());
        while !matches!(events.recv().within(LONG).await?, NodeEvent::Mismatch { .. }) {}
        has(guests.recv().within(SHORT).await.expect_err("it does not fit"), &["node", "pay"]);

        // Once a client has joined, the acceptor has been found, and no longer waits for a particular client.
        let mut client = b.client::<Till>("till").await?;
        let mut guest = guests.recv().within(LONG).await?;
        let (sent, received) = par!(client.pay.send(7), guest.pay.recv());
        assert_eq!((sent, received), (Ok(()), Ok(7)));
        assert_eq!(guests.recv().within(SHORT).await.err(), Some(RecvError::TimedOut));
        drop((client, guest));
        assert_eq!(guests.recv().within(SHORT).await.err(), Some(RecvError::TimedOut));
        Ok(())
    });
}

#[test]
fn a_deadline_of_a_channel_without_a_name_is_timed_out() {
    run(async {
        let (mut tx, mut rx) = channel::<u32>();
        assert_eq!(tx.send(7).within(SHORT).await.unwrap_err().why(), Some(&Why::TimedOut));
        assert_eq!(rx.recv().within(SHORT).await, Err(RecvError::TimedOut));
        let (mut caller, _callee) = call::<u32, u32>();
        let error = caller.call(7).within(SHORT).await.unwrap_err();
        assert!(matches!(error, CallError::NotTaken { why: Why::TimedOut, .. }), "{error}");
        Ok(())
    });
}

#[test]
fn the_first_end_is_notified_of_a_mismatch_and_keeps_its_name() {
    run(async {
        let [a, b, c] = nodes("disagreement").await;
        let mut events = a.events();
        let mut rx = a.receiver::<u32>("readings").await?;
        for _ in 0..2 {
            let error = b.sender::<String>("readings").await.unwrap_err();
            let NameError::Mismatch { holder, address, .. } = &error else { panic!("{error}") };
            assert_eq!((holder, address.as_deref()), (&a.me().to_string(), Some(&*a.addresses()[0])));
            has(&error, &[&format!("node {} at {}", a.me(), a.addresses()[0]), "Use the same type at both ends"]);
        }
        let by = format!("node {} at {} declared an unshared sender", b.me(), b.addresses()[0]);
        let differs = "text there, u32 here";
        let told = loop {
            let event = events.recv().within(LONG).await?;
            if let NodeEvent::Mismatch { name, difference } = event {
                break (name, difference);
            }
        };
        assert_eq!(told.0.as_deref(), Some("readings"));
        has(&told.1, &[&by, differs]);
        let waiting = a.waiting();
        has(waiting[0].refused.as_ref().expect("it is shown"), &[&by, differs]);
        let error = rx.recv().within(SHORT).await.unwrap_err().to_string();
        has(&error, &["no sender that fits has declared \"readings\"", &by, differs, "Use the same type"]);
        assert!(!error.contains("Start the program"), "{error}");

        // It has kept its name, and the matching one is joined.
        let mut tx = c.sender::<u32>("readings").await?;
        let (sent, received) = par!(tx.send(7), rx.recv());
        assert_eq!((sent, received), (Ok(()), Ok(7)));
        // It was notified once.
        assert!(
            !std::iter::from_fn(|| events.try_recv().ok()).any(|event| matches!(event, NodeEvent::Mismatch { .. }))
        );
        Ok(())
    });
}

#[derive(Bundle)]
struct OtherTill {
    pay: ToServer<String>,
    receipt: ToClient<String>,
    price: Call<String, u32>,
}

#[test]
fn a_mistyped_client_does_not_stop_an_acceptor() {
    run(async {
        let [a, b] = nodes("mistyped").await;
        let mut events = a.events();
        let mut guests = a.acceptor::<Till>("till").await?;
        let error = b.client::<OtherTill>("till").await.err().expect("it does not fit");
        assert!(matches!(error, NameError::Mismatch { .. }), "{error}");
        let told = loop {
            if let NodeEvent::Mismatch { name, difference } = events.recv().within(LONG).await? {
                break (name, difference);
            }
        };
        assert_eq!(told.0.as_deref(), Some("till"));
        has(&told.1, &[&format!("node {} at", b.me()), "pay"]);
        let mut client = b.client::<Till>("till").await?;
        let mut guest = guests.recv().within(LONG).await?;
        let (sent, received) = par!(client.pay.send(7), guest.pay.recv());
        assert_eq!((sent, received), (Ok(()), Ok(7)));
        Ok(())
    });
}

#[test]
#[ignore = "the next test runs it, in a process without a subscriber of `tracing`"]
fn a_mismatch_without_a_subscriber() {
    run(async {
        let [a, b] = nodes("unheard").await;
        let _rx = a.receiver::<u32>("readings").await?;
        assert!(b.sender::<String>("readings").await.is_err());
        // The test kills it before.
        sleep(LONG).await;
        Ok(())
    });
}

#[test]
fn a_mismatch_without_a_subscriber_is_printed() {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "a_mismatch_without_a_subscriber"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| tell.send(line)));
    let mine = |line: &String| line.contains("declared an unshared sender");
    let line = std::iter::from_fn(|| told.recv_timeout(LONG).ok()).find(mine);
    child.kill().unwrap();
    child.wait().unwrap();
    let parts =
        ["dunlin: application \"unheard\": \"readings\": the two ends do not agree: node ", "text there, u32 here"];
    has(line.expect("it was not printed"), &parts);
}

/// Without the application's name service.
#[test]
fn a_mismatch_at_an_address_in_the_name_is_notified_there() {
    run(async {
        let application = "asked-itself";
        let names = format!("memory:names-of-{application}");
        let join = || Node::builder().app(application).names(&names).listen("127.0.0.1:0").join();
        let (a, b) = (join().await?, join().await?);
        let mut events = a.events();
        let _rx = a.receiver::<u32>("readings").await?;
        let error = b.sender::<String>(&format!("{}/readings", a.addresses()[0])).await.unwrap_err();
        assert!(matches!(error, NameError::Mismatch { .. }), "{error}");
        loop {
            if let NodeEvent::Mismatch { name, .. } = events.recv().within(LONG).await? {
                assert_eq!(name.as_deref(), Some("readings"));
                return Ok(());
            }
        }
    });
}

#[test]
fn the_error_of_a_taken_name_has_the_node_its_address_and_how_to_share() {
    run(async {
        let [a, b] = nodes("taken").await;
        let _rx = a.receiver::<u32>("readings").await?;
        let error = b.receiver::<u32>("readings").await.unwrap_err();
        let place = format!("node {} at {}", a.me(), a.addresses()[0]);
        has(&error, &["\"readings\" is taken", &place, "an unshared receiver", ".shared()", "choose another name"]);
        let _server = a.server::<Till>("till").await?;
        let _client = a.client::<Till>("till").await?;
        let error = b.client::<Till>("till").await.err().expect("there is one");
        has(&error, &["\"till\" is taken", &place, "node.acceptor"]);
        let error = b.server::<Till>("till").await.err().expect("there is one");
        has(&error, &["\"till\" is taken", &place, "choose another name"]);
        let error = b.sender::<u32>("till").await.unwrap_err();
        has(&error, &["\"till\" is taken", &place, "end of a channel"]);
        let _shared = a.server::<Till>("shared").shared().await?;
        let error = b.server::<Till>("shared").shared().await.err().expect("it is declared once");
        has(&error, &[&place, "acceptor"]);
        Ok(())
    });
}

#[test]
fn operations_fail_with_own_node_left_after_the_node_is_dropped() {
    run(async {
        let [a, b] = nodes("own-node").await;
        let (mut tx, mut rx) = (a.sender::<u32>("there").await?, b.receiver::<u32>("there").await?);
        let (mut back, mut answers) = (b.sender::<u32>("back").await?, a.receiver::<u32>("back").await?);
        let (sent, received) = par!(tx.send(7), rx.recv());
        assert_eq!((sent, received), (Ok(()), Ok(7)));
        let (sent, received) = par!(back.send(7), answers.recv());
        assert_eq!((sent, received), (Ok(()), Ok(7)));
        let mut waits = a.sender::<u32>("nobody has it").await?;
        let mut client = a.client::<Till>("nor this").await?;
        let posted = tx.send_nowait(8);
        drop(a);
        // The node is still leaving at first.
        tx.closed().await;
        has(tx.send(9).await.unwrap_err(), &["the node of this end has left its application", "keep its `Node`"]);
        assert_eq!(tx.send(9).await.unwrap_err().why(), Some(&Why::OwnNodeLeft));
        assert_eq!(answers.recv().await, Err(RecvError::OwnNodeLeft));
        assert_eq!(waits.send(9).await.unwrap_err().why(), Some(&Why::OwnNodeLeft));
        assert_eq!(client.pay.send(9).await.unwrap_err().why(), Some(&Why::OwnNodeLeft));
        assert_eq!(client.receipt.recv().await, Err(RecvError::OwnNodeLeft));
        // That value was on its way.
        let error = posted.await.unwrap_err();
        assert!(matches!(error, SendError::Unknown { .. }), "{error:?}");
        assert!(!error.to_string().contains("node is lost"), "{error}");
        // For the other ends, the other node is lost.
        assert_eq!(rx.recv().await, Err(RecvError::NodeLost));
        assert_eq!(back.send(9).await.unwrap_err().why(), Some(&Why::NodeLost));
        has(rx.recv().await.unwrap_err(), &["the node that holds the sender has left its application, or was lost"]);
        has(
            back.send(9).await.unwrap_err(),
            &["the node that holds the receiver has left its application, or was lost"],
        );
        Ok(())
    });
}
