//! Shared ends whose handles are at several nodes: lone operations, claims, faces, and nodes that are lost
//! with a claim.
#![cfg(feature = "net")]

use std::time::Duration;

use dunlin::ClaimError;
use dunlin::prelude::*;

#[allow(dead_code, reason = "each test needs a part of it")]
#[path = "support/nodes.rs"]
mod support;
use support::{Way, along, nodes, run, way};

/// Sends and receives one value.
async fn passes(sent: impl Future<Output = Result<(), SendError<u32>>>, rx: &mut Receiver<u32>, value: u32) -> Result {
    let (sent, received) = par!(sent, rx.recv());
    sent?;
    assert_eq!(received?, value);
    Ok(())
}

#[test]
fn a_handle_of_a_sender_elsewhere_sends_alone() {
    run(async {
        let [a, b] = nodes("a_handle_of_a_sender").await;
        let mut ab = way::<Shared<Sender<u32>>>(&a, &b, "ab").await?;
        let (tx, mut rx) = channel::<u32>();
        let mut here = tx.share();
        let mut there = along(here.clone(), &mut ab).await?;
        for n in 0..5 {
            passes(there.send(2 * n), &mut rx, 2 * n).await?;
            passes(here.send(2 * n + 1), &mut rx, 2 * n + 1).await?;
        }
        // An unreceived value is returned.
        let given_up = there.send(99).within(Duration::from_millis(20)).await.unwrap_err();
        assert_eq!(given_up.into_value(), 99);
        drop(here);
        passes(there.send(100), &mut rx, 100).await?;
        drop(there);
        assert_eq!(rx.recv().await, Err(RecvError::Closed));
        Ok(())
    });
}

#[test]
fn a_claim_holds_all_others_back() {
    run(async {
        let [a, b, c] = nodes("a_claim_holds_all").await;
        let mut ab = way::<Shared<Sender<u32>>>(&a, &b, "ab").await?;
        let mut ac = way::<Shared<Sender<u32>>>(&a, &c, "ac").await?;
        let (tx, mut rx) = channel::<u32>();
        let mut at_a = tx.share();
        let mut at_b = along(at_a.clone(), &mut ab).await?;
        let mut at_c = along(at_a.clone(), &mut ac).await?;
        let singer = async |shared: &mut Shared<Sender<u32>>, base: u32| {
            for round in 0..3 {
                let mut stage = shared.claim().await?;
                for n in 0..5 {
                    stage.send(base + 10 * round + n).await?;
                }
            }
            shared.send(base + 99).await?;
            Ok::<(), dunlin::Error>(())
        };
        let listen = async {
            let mut heard = Vec::new();
            for _ in 0..3 * (3 * 5 + 1) {
                heard.push(rx.recv().await?);
            }
            Ok::<_, dunlin::Error>(heard)
        };
        let (x, y, z, heard) = par!(singer(&mut at_a, 1000), singer(&mut at_b, 2000), singer(&mut at_c, 3000), listen);
        x?;
        y?;
        z?;
        // No other value comes between the five of one claim.
        let mut heard = heard?;
        heard.retain(|value| value % 1000 != 99);
        for five in heard.chunks(5) {
            let first = five[0];
            assert_eq!(five, (first..first + 5).collect::<Vec<_>>(), "another value came between");
        }
        let mut all = heard;
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 45);
        Ok(())
    });
}

#[test]
fn handles_of_a_receiver_elsewhere_share_its_values() {
    run(async {
        let [a, b, c] = nodes("handles_of_a_receiver").await;
        let mut ab = way::<Shared<Receiver<u32>>>(&a, &b, "ab").await?;
        let mut ac = way::<Shared<Receiver<u32>>>(&a, &c, "ac").await?;
        let (mut tx, rx) = channel::<u32>();
        let mut at_a = rx.share();
        let mut at_b = along(at_a.clone(), &mut ab).await?;
        let mut at_c = along(at_a.clone(), &mut ac).await?;
        let take = async |shared: &mut Shared<Receiver<u32>>| {
            let mut got = Vec::new();
            for _ in 0..20 {
                got.push(shared.recv().await?);
            }
            Ok::<_, dunlin::Error>(got)
        };
        let give = async {
            for n in 0..60 {
                tx.send(n).await?;
            }
            drop(tx);
            Ok::<(), dunlin::Error>(())
        };
        let (given, x, y, z) = par!(give, take(&mut at_a), take(&mut at_b), take(&mut at_c));
        given?;
        let mut all = [x?, y?, z?].concat();
        for shared in [&mut at_a, &mut at_b, &mut at_c] {
            assert_eq!(shared.next().await?, None);
        }
        all.sort_unstable();
        assert_eq!(all, (0..60).collect::<Vec<_>>());
        Ok(())
    });
}

/// Five for the first claimer, five for the next: none lost, none twice.
#[test]
fn claims_of_a_receiver_take_turns() {
    run(async {
        let [a, b, c] = nodes("claims_of_a_receiver").await;
        let mut ab = way::<Shared<Receiver<u32>>>(&a, &b, "ab").await?;
        let mut ac = way::<Shared<Receiver<u32>>>(&a, &c, "ac").await?;
        let (mut tx, rx) = channel::<u32>();
        let at_a = rx.share();
        let mut at_b = along(at_a.clone(), &mut ab).await?;
        let mut at_c = along(at_a.clone(), &mut ac).await?;
        let take = async |shared: &mut Shared<Receiver<u32>>| {
            let mut got = Vec::new();
            for _ in 0..4 {
                let mut held = shared.claim().await?;
                let mut five = Vec::new();
                for _ in 0..5 {
                    five.push(held.recv().await?);
                }
                got.push(five);
            }
            Ok::<_, dunlin::Error>(got)
        };
        let give = async {
            for n in 0..40 {
                tx.send(n).await?;
            }
            Ok::<(), dunlin::Error>(())
        };
        let (given, x, y) = par!(give, take(&mut at_b), take(&mut at_c));
        given?;
        let mut fives = [x?, y?].concat();
        fives.sort_unstable();
        assert_eq!(fives.concat(), (0..40).collect::<Vec<_>>());
        Ok(())
    });
}

#[derive(Bundle)]
struct Till {
    pay: ToServer<u32>,
    receipt: ToClient<String>,
}

/// A face is claimed whole, and travels to its claimer.
#[test]
fn a_face_is_claimed_at_several_nodes() {
    run(async {
        let [a, b, c] = nodes("a_face_is_claimed").await;
        let mut ab = way::<Shared<TillClient>>(&a, &b, "ab").await?;
        let mut ac = way::<Shared<TillClient>>(&a, &c, "ac").await?;
        let (client, mut server) = Till::pair();
        let mut at_a = client.share();
        let mut at_b = along(at_a.clone(), &mut ab).await?;
        let mut at_c = along(at_a.clone(), &mut ac).await?;
        let buy = async |shared: &mut Shared<TillClient>, price: u32| {
            for n in 0..3 {
                let mut till = shared.claim().await?;
                till.pay.send(price + n).await?;
                assert_eq!(till.receipt.recv().await?, format!("paid {}", price + n));
            }
            Ok::<(), dunlin::Error>(())
        };
        let serve = async {
            for _ in 0..9 {
                let paid = server.pay.recv().await?;
                server.receipt.send(format!("paid {paid}")).await?;
            }
            Ok::<(), dunlin::Error>(())
        };
        let (served, x, y, z) = par!(serve, buy(&mut at_a, 100), buy(&mut at_b, 200), buy(&mut at_c, 300));
        served?;
        x?;
        y?;
        z?;
        Ok(())
    });
}

/// The handle of a handle: from a to b, and on to c, while a keeps the end.
#[test]
fn handle_forwarded_to_a_third_node_sends_and_claims() {
    run(async {
        let [a, b, c] = nodes("handle_forwarded_to_a_third_node_sends_and_claims").await;
        let mut ab = way::<Shared<Sender<u32>>>(&a, &b, "ab").await?;
        let mut bc = way::<Shared<Sender<u32>>>(&b, &c, "bc").await?;
        let (tx, mut rx) = channel::<u32>();
        let mut at_b = along(tx.share(), &mut ab).await?;
        let mut at_c = along(at_b.clone(), &mut bc).await?;
        passes(at_c.send(1), &mut rx, 1).await?;
        passes(at_b.send(2), &mut rx, 2).await?;
        let claimed = async {
            let mut stage = at_c.claim().await?;
            for n in 3..6 {
                stage.send(n).await?;
            }
            drop(stage);
            let mut stage = at_b.claim().await?;
            stage.send(6).await?;
            Ok::<(), dunlin::Error>(())
        };
        let heard = async {
            for n in 3..7 {
                assert_eq!(rx.recv().await?, n);
            }
            Ok::<(), dunlin::Error>(())
        };
        let (claimed, heard) = par!(claimed, heard);
        claimed?;
        heard?;
        let given_up = at_c.send(9).within(Duration::from_millis(20)).await.unwrap_err();
        assert_eq!(given_up.into_value(), 9);
        drop((at_b, at_c));
        assert_eq!(rx.recv().await, Err(RecvError::Closed));
        Ok(())
    });
}

/// A claim is released when its node is lost.
#[test]
fn a_claim_is_released_when_its_node_is_lost() {
    run(async {
        let [a, b] = nodes("a_claim_is_released").await;
        let mut ab = way::<Shared<Sender<u32>>>(&a, &b, "ab").await?;
        let (tx, mut rx) = channel::<u32>();
        let mut at_a = tx.share();
        let mut at_b = along(at_a.clone(), &mut ab).await?;
        let mut stage = at_b.claim().await?;
        passes(stage.send(1), &mut rx, 1).await?;
        assert_eq!(at_a.try_claim().err(), Some(ClaimError::WouldBlock));
        let (left, claimed) = par!(b.leave(), at_a.claim());
        left?;
        let mut here = claimed?;
        passes(here.send(2), &mut rx, 2).await?;
        assert!(stage.send(3).await.is_err());
        drop(stage);
        // For the other handle the keeper of the end is lost.
        let refused = loop {
            // It may claim again without cost until it notices that.
            match at_b.claim().await {
                Ok(claim) => drop(claim),
                Err(refused) => break refused,
            }
            tokio::task::yield_now().await;
        };
        assert_eq!(refused, ClaimError::NodeLost);
        Ok(())
    });
}

/// The receiver of a shared sender is at a third node: the values of a handle travel on to it.
#[test]
fn shared_sender_reaches_a_receiver_at_a_third_node() {
    run(async {
        let [a, b, c] = nodes("the_receiver_is_elsewhere").await;
        let mut ab = way::<Shared<Sender<u32>>>(&a, &b, "ab").await?;
        let mut ac = way::<Receiver<u32>>(&a, &c, "ac").await?;
        let (tx, rx) = channel::<u32>();
        let mut at_a = tx.share();
        let mut at_b = along(at_a.clone(), &mut ab).await?;
        let mut rx = along(rx, &mut ac).await?;
        for n in 0..3 {
            passes(at_b.send(n), &mut rx, n).await?;
            passes(at_a.send(10 + n), &mut rx, 10 + n).await?;
        }
        let given_up = at_b.send(99).within(Duration::from_millis(20)).await.unwrap_err();
        assert_eq!(given_up.into_value(), 99);
        passes(at_b.send(7), &mut rx, 7).await?;
        let claimed = async {
            let mut stage = at_b.claim().await?;
            for n in 0..5 {
                stage.send(n).await?;
            }
            Ok::<(), dunlin::Error>(())
        };
        let heard = async {
            for n in 0..5 {
                assert_eq!(rx.recv().await?, n);
            }
            Ok::<(), dunlin::Error>(())
        };
        let (claimed, heard) = par!(claimed, heard);
        claimed?;
        heard?;
        Ok(())
    });
}

/// A value with an end in it passes through the keeper, which does not receive it: the first one is encoded
/// anew for that.
#[test]
fn value_with_an_end_passes_through_the_keeper() {
    run(async {
        let [a, b, c] = nodes("an_end_goes_through").await;
        let mut ab = way::<Shared<Sender<Sender<u32>>>>(&a, &b, "ab").await?;
        let mut ac = way::<Receiver<Sender<u32>>>(&a, &c, "ac").await?;
        let (tx, rx) = channel::<Sender<u32>>();
        let mut at_a = tx.share();
        let mut at_b = along(at_a.clone(), &mut ab).await?;
        let mut rx = along(rx, &mut ac).await?;
        for n in 0..3 {
            let (end, mut here) = channel::<u32>();
            let (sent, got) = par!(at_b.send(end), rx.recv());
            sent.map_err(|error| Error::other(error.to_string()))?;
            let mut there = got?;
            passes(there.send(n), &mut here, n).await?;
            drop(there);
            assert_eq!(here.recv().await, Err(RecvError::Closed));
        }
        // After its send is dropped on the way, it is as before, and travels from the keeper, too.
        let (end, mut here) = channel::<u32>();
        let mut end = at_b.send(end).within(Duration::from_millis(20)).await.unwrap_err().into_value();
        passes(end.send(1), &mut here, 1).await?;
        let (sent, got) = par!(at_a.send(end), rx.recv());
        sent.map_err(|error| Error::other(error.to_string()))?;
        passes(got?.send(2), &mut here, 2).await?;
        Ok(())
    });
}

/// A client that is shared at one node, its handle at another, and the server at a third: replies reach their
/// callers.
#[test]
fn call_and_reply_pass_through_the_keeper() {
    run(async {
        let [a, b, c] = nodes("a_call_goes_through").await;
        let mut ab = way::<Shared<Caller<u32, u32>>>(&a, &b, "ab").await?;
        let mut ac = way::<Callee<u32, u32>>(&a, &c, "ac").await?;
        let (caller, callee) = dunlin::call::<u32, u32>();
        let mut at_b = along(caller.share(), &mut ab).await?;
        let mut callee = along(callee, &mut ac).await?;
        for n in 0..5 {
            let serves = async {
                let request = callee.accept().await?;
                let asked = *request;
                request.reply(asked + 1).map_err(|_| RecvError::Closed)
            };
            let (replied, served) = par!(at_b.call(n), serves);
            served?;
            assert_eq!(replied.map_err(|error| Error::other(error.to_string()))?, n + 1);
        }
        // The server is lost with a request in hand: its caller is notified.
        let (called, request) = par!(at_b.call(9), async {
            drop(callee.accept().await);
            drop(callee);
            c.leave().await
        });
        request?;
        assert!(called.is_err());
        Ok(())
    });
}

/// Each holder of a shared receiver, at every node, notices that the sender's node is lost, and does not take
/// that for an end in order.
#[test]
fn a_lost_sender_is_noticed_everywhere() {
    run(async {
        let [a, b, c] = nodes("a_lost_sender_is_heard_of").await;
        let mut ab = way::<Shared<Receiver<u32>>>(&a, &b, "ab").await?;
        let mut ac = way::<Sender<u32>>(&a, &c, "ac").await?;
        let (tx, rx) = channel::<u32>();
        let mut at_a = rx.share();
        let mut at_b = along(at_a.clone(), &mut ab).await?;
        let mut tx = along(tx, &mut ac).await?;
        let (sent, received) = par!(tx.send(1), at_b.recv());
        sent?;
        assert_eq!(received?, 1);
        c.leave().await?;
        assert_eq!(at_b.recv().await, Err(RecvError::NodeLost));
        assert_eq!(at_a.recv().await, Err(RecvError::NodeLost));
        Ok(())
    });
}

/// A lone send is an offer and its answer; successive claims at one node cost nothing; alternating claims
/// cost their frames.
#[test]
fn shared_sends_and_claims_cost_the_expected_frames() {
    run(async {
        let [a, b] = nodes("shared_sends_and_claims_cost_the_expected_frames").await;
        let mut ab = way::<Shared<Sender<u32>>>(&a, &b, "ab").await?;
        let (tx, mut rx) = channel::<u32>();
        let mut at_a = tx.share();
        let mut at_b = along(at_a.clone(), &mut ab).await?;
        passes(at_b.send(0), &mut rx, 0).await?;
        let heard = || a.heard() + b.heard();
        // Earlier messages may arrive only now, so the least of several counts.
        let (mut lone, mut again, mut with_send, mut in_turn) = (u64::MAX, u64::MAX, u64::MAX, u64::MAX);
        for _ in 0..20 {
            // A send before each count: its answer comes after all earlier frames.
            passes(at_b.send(0), &mut rx, 0).await?;
            let before = heard();
            for n in 0..10 {
                passes(at_b.send(n), &mut rx, n).await?;
            }
            lone = lone.min(heard() - before);

            drop(at_b.claim().await?);
            passes(at_b.send(0), &mut rx, 0).await?;
            let before = heard();
            for _ in 0..10 {
                drop(at_b.claim().await?);
            }
            again = again.min(heard() - before);

            passes(at_b.send(0), &mut rx, 0).await?;
            let before = heard();
            for n in 0..10 {
                let mut stage = at_b.claim().await?;
                passes(stage.send(n), &mut rx, n).await?;
            }
            with_send = with_send.min(heard() - before);

            // Claim, Granted, Recall, Return, and for each a credit for its place in its channel's buffer.
            drop(at_a.claim().await?);
            let before = heard();
            for _ in 0..10 {
                drop(at_b.claim().await?);
                drop(at_a.claim().await?);
            }
            in_turn = in_turn.min(heard() - before);
        }
        assert_eq!((lone, again, with_send), (20, 0, 20), "frames for ten each");
        assert!((40..=80).contains(&in_turn), "{in_turn} frames for ten claims in turn");
        Ok(())
    });
}

/// A handle no longer needs a node through which it only passed.
#[test]
fn forwarded_handle_needs_only_the_keeper() {
    run(async {
        let [a, b, c] = nodes("a_handle_that_went_on").await;
        let mut ab = way::<(Shared<Sender<u32>>, Shared<Receiver<u32>>)>(&a, &b, "ab").await?;
        let mut bc = way::<(Shared<Sender<u32>>, Shared<Receiver<u32>>)>(&b, &c, "bc").await?;
        let (tx, mut rx) = channel::<u32>();
        let (mut ty, ry) = channel::<u32>();
        let (mut at_a, ears) = (tx.share(), ry.share());
        let passed = along((at_a.clone(), ears), &mut ab).await?;
        let (mut at_c, mut ear) = along(passed, &mut bc).await?;
        passes(at_c.send(1), &mut rx, 1).await?;
        drop((ab, bc));
        b.leave().await?;
        for n in 2..5 {
            passes(at_c.send(n), &mut rx, n).await?;
            let (sent, heard) = par!(ty.send(n), ear.recv());
            sent?;
            assert_eq!(heard?, n);
        }
        let mut stage = at_c.claim().await?;
        assert_eq!(at_a.try_claim().err(), Some(ClaimError::WouldBlock));
        passes(stage.send(9), &mut rx, 9).await?;
        drop(stage);
        drop(at_a.claim().await?);
        drop(at_a);
        drop(at_c);
        assert_eq!(rx.recv().await, Err(RecvError::Closed));
        Ok(())
    });
}

/// The only handle of an end travels round: to another node, on to a third, and back to its keeper, where it
/// costs nothing any more.
#[test]
fn only_handle_returns_to_its_keeper_without_cost() {
    run(async {
        let [a, b, c] = nodes("only_handle_returns_to_its_keeper_without_cost").await;
        let mut ab = way::<Shared<Sender<u32>>>(&a, &b, "ab").await?;
        let mut bc = way::<Shared<Sender<u32>>>(&b, &c, "bc").await?;
        let mut ca = way::<Shared<Sender<u32>>>(&c, &a, "ca").await?;
        let (tx, mut rx) = channel::<u32>();
        let mut handle = tx.share();
        let heard = || a.heard() + b.heard() + c.heard();
        let mut cost = u64::MAX;
        for n in 0..50 {
            handle = along(handle, &mut ab).await?;
            handle = along(handle, &mut bc).await?;
            passes(handle.send(n), &mut rx, n).await?;
            handle = along(handle, &mut ca).await?;
            for _ in 0..10 {
                let before = heard();
                let mut stage = handle.claim().await?;
                passes(stage.send(n), &mut rx, n).await?;
                drop(stage);
                passes(handle.send(n), &mut rx, n).await?;
                cost = cost.min(heard() - before);
            }
        }
        assert_eq!(cost, 0, "frames for a claim and a send at home");
        drop(handle);
        assert_eq!(rx.recv().await, Err(RecvError::Closed));
        Ok(())
    });
}

/// The same, over itself.
#[test]
fn handle_returns_to_its_keeper_over_itself() {
    #[derive(serde::Serialize, serde::Deserialize)]
    struct Handle {
        home: Shared<Sender<Self>>,
    }
    run(async {
        let [a, b, c] = nodes("a_handle_goes_home").await;
        let mut ab = way::<Handle>(&a, &b, "ab").await?;
        let mut bc = way::<Handle>(&b, &c, "bc").await?;
        let (tx, mut back) = channel::<Handle>();
        let mut handle = Handle { home: tx.share() };
        for _ in 0..50 {
            handle = along(handle, &mut ab).await?;
            handle = along(handle, &mut bc).await?;
            let mut home = handle.home.clone();
            let (sent, returned) = par!(home.send(handle), back.recv());
            sent.map_err(|error| Error::other(error.to_string()))?;
            handle = returned?;
        }
        drop(handle);
        assert!(matches!(back.recv().await, Err(RecvError::Closed)));
        Ok(())
    });
}

/// Handles of a receiver and of a face return to their keeper, and travel on again.
#[test]
fn receiver_and_face_handles_return_to_their_keeper() {
    run(async {
        let [a, b] = nodes("handles_of_all_kinds").await;
        let mut ab = way::<(Shared<Receiver<u32>>, Shared<TillClient>)>(&a, &b, "ab").await?;
        let mut ba = way::<(Shared<Receiver<u32>>, Shared<TillClient>)>(&b, &a, "ba").await?;
        let (mut tx, rx) = channel::<u32>();
        let (client, mut server) = Till::pair();
        let mut handles = (rx.share(), client.share());
        for n in 0..30 {
            for way in [&mut ab, &mut ba] {
                handles = along(handles, way).await?;
                let (sent, received) = par!(tx.send(n), handles.0.recv());
                sent?;
                assert_eq!(received?, n);
                let mut till = handles.1.claim().await?;
                let (paid, got) = par!(till.pay.send(n), server.pay.recv());
                paid?;
                assert_eq!(got?, n);
            }
        }
        drop(handles);
        assert!(tx.send(0).await.is_err());
        assert_eq!(server.pay.recv().await, Err(RecvError::Closed));
        Ok(())
    });
}

/// A handle that is decoded at its end's keeper with another type than the end has works there. It cannot
/// travel on, and is not lost.
#[test]
fn handle_of_another_type_works_at_its_keeper() {
    #[derive(serde::Serialize, serde::Deserialize, Debug)]
    #[serde(transparent)]
    struct Metres(u32);
    run(async {
        let [a, b] = nodes("a_handle_comes_home_as_another").await;
        let mut ab = way::<Shared<Sender<u32>>>(&a, &b, "ab").await?;
        let (to_a, at_a) = par!(async { b.sender::<Shared<Sender<u32>>>("ba").await }, async {
            a.receiver::<Shared<Sender<Metres>>>("ba").await
        });
        let (mut to_a, mut at_a) = (to_a?, at_a?);
        let mut on = way::<Shared<Sender<Metres>>>(&a, &b, "on").await?;
        let (tx, mut rx) = channel::<u32>();
        let at_b = along(tx.share(), &mut ab).await?;
        let (sent, home) = par!(to_a.send(at_b), at_a.recv());
        sent.map_err(|error| Error::other(error.to_string()))?;
        let mut home = home?;
        for n in 0..3 {
            let (sent, received) = par!(home.send(Metres(n)), rx.recv());
            sent.map_err(|error| Error::other(error.to_string()))?;
            assert_eq!(received?, n);
            let refused = on.0.send(home).await.unwrap_err();
            assert!(matches!(refused.why(), Some(dunlin::Why::Unsendable(_))), "{refused}");
            home = refused.into_value();
            drop(home.claim().await?);
        }
        drop(home);
        assert_eq!(rx.recv().await, Err(RecvError::Closed));
        Ok(())
    });
}

/// A handle travels on from a node that has requested the claim, still waits for it, and has no other handle:
/// the keeper receives both frames.
#[test]
fn handle_is_forwarded_while_its_node_waits_for_a_claim() {
    run(async {
        let [a, b, c] = nodes("a_handle_goes_on_while").await;
        let mut ab = way::<Shared<Sender<u32>>>(&a, &b, "ab").await?;
        let mut bc = way::<Shared<Sender<u32>>>(&b, &c, "bc").await?;
        let (tx, mut rx) = channel::<u32>();
        let mut at_a = tx.share();
        for n in 0..20 {
            let mut at_b = along(at_a.clone(), &mut ab).await?;
            let stage = at_a.claim().await?;
            let claimed = at_b.claim().within(Duration::from_millis(5)).await;
            assert_eq!(claimed.err(), Some(ClaimError::TimedOut));
            let mut at_c = along(at_b, &mut bc).await?;
            drop(stage);
            passes(at_c.send(n), &mut rx, n).await?;
            drop(at_c.claim().await?);
        }
        Ok(())
    });
}

/// The only handle travels from node to node unused, so that no node is welcomed before it has forwarded it.
#[test]
fn handle_forwarded_unused_works_at_its_last_node() {
    run(async {
        let [a, b, c, d] = nodes("handle_forwarded_unused_works_at_its_last_node").await;
        let mut ab = way::<Shared<Sender<u32>>>(&a, &b, "ab").await?;
        let mut bc = way::<Shared<Sender<u32>>>(&b, &c, "bc").await?;
        let mut cd = way::<Shared<Sender<u32>>>(&c, &d, "cd").await?;
        let mut db = way::<Shared<Sender<u32>>>(&d, &b, "db").await?;
        for n in 0..20 {
            let (tx, mut rx) = channel::<u32>();
            let mut handle = along(tx.share(), &mut ab).await?;
            for _ in 0..2 {
                for way in [&mut bc, &mut cd, &mut db] {
                    handle = along(handle, way).await?;
                }
            }
            passes(handle.send(n), &mut rx, n).await?;
            drop(handle.claim().await?);
            drop(handle);
            assert_eq!(rx.recv().await, Err(RecvError::Closed));
        }
        Ok(())
    });
}

/// The claim of a face arrives at a node whose last handle has just been dropped: the claim returns, and the
/// face with it.
#[test]
fn face_granted_to_a_dropped_handle_returns() {
    run(async {
        let [a, b] = nodes("a_face_is_granted").await;
        let mut ab = way::<Shared<TillClient>>(&a, &b, "ab").await?;
        let (client, mut server) = Till::pair();
        let mut at_a = client.share();
        for n in 0..50 {
            let mut at_b = along(at_a.clone(), &mut ab).await?;
            let held = at_a.claim().await?;
            let claimed = at_b.claim().within(Duration::from_millis(5)).await;
            assert_eq!(claimed.err(), Some(ClaimError::TimedOut));
            drop(held);
            for _ in 0..n % 10 {
                tokio::task::yield_now().await;
            }
            drop(at_b);
            let mut till = at_a.claim().await?;
            let (paid, got) = par!(till.pay.send(n), server.pay.recv());
            paid?;
            assert_eq!(got?, n);
        }
        Ok(())
    });
}

/// Keeps the newest four.
#[derive(Clone)]
struct Newest;

impl dunlin::Buffering for Newest {
    fn admit(&mut self, queued: usize) -> dunlin::Admit {
        if queued < 4 { dunlin::Admit::Keep } else { dunlin::Admit::DropOldest }
    }
}

/// A receiver of a channel with a custom policy cannot leave its node: a face that contains it stays, and is
/// used from elsewhere.
#[test]
fn face_with_custom_policy_is_lent() {
    run(async {
        let [a, b] = nodes("a_face_with_a_policy").await;
        let (client, mut server) = <Till as dunlin::Pairing>::pair(&dunlin::ChannelFactory::new(Newest));
        let mut at_a = client.share();
        let mut at_b = along(at_a.clone(), &mut way::<Shared<TillClient>>(&a, &b, "ab").await?).await?;
        for n in 0..4 {
            let handle = if n % 2 == 0 { &mut at_b } else { &mut at_a };
            for n in 0..6 {
                server.receipt.send(n.to_string()).await?;
            }
            let mut till = handle.claim().await?;
            for n in 2..6 {
                assert_eq!(till.receipt.recv().await?, n.to_string());
            }
            till.pay.send(7).await?;
            assert_eq!(server.pay.recv().await?, 7);
            drop(till);
            // A value that was received elsewhere keeps its place in the buffer until the keeper receives the
            // notice: then there is room for three.
            drop(at_a.claim().await?);
        }
        Ok(())
    });
}

/// A face is granted to a node that has more frames to send, of handles that have travelled on from there,
/// than fit into its channel while its keeper waits in the queue: each receives the other's frames.
#[test]
fn a_face_is_granted_to_a_desk_with_many_messages() {
    run(async {
        let [a, b, c] = nodes("a_face_is_granted_to_who").await;
        let mut ab = way::<Shared<TillClient>>(&a, &b, "ab").await?;
        let mut bc = way::<Shared<TillClient>>(&b, &c, "bc").await?;
        let (client, mut server) = Till::pair();
        let mut at_a = client.share();
        let at_b = along(at_a.clone(), &mut ab).await?;
        let mut claims = at_b.clone();
        let held = at_a.claim().await?;
        let mut at_c = Vec::new();
        // It has asked: the claim arrives.
        let claimed = claims.claim().within(Duration::from_millis(5)).await;
        assert_eq!(claimed.err(), Some(ClaimError::TimedOut));
        for _ in 0..12 {
            at_c.push(along(at_b.clone(), &mut bc).await?);
        }
        drop(held);
        let mut till = claims.claim().await?;
        let (paid, got) = par!(till.pay.send(1), server.pay.recv());
        paid?;
        assert_eq!(got?, 1);
        drop(till);
        for (n, mut handle) in (2..).zip(at_c.into_iter().chain([at_a, at_b])) {
            let mut till = handle.claim().await?;
            let (paid, got) = par!(till.pay.send(n), server.pay.recv());
            paid?;
            assert_eq!(got?, n);
        }
        Ok(())
    });
}

/// The claimer of a receiver at another node retires it for all; operations that waited there continue.
#[test]
fn a_claim_elsewhere_retires_the_channel() {
    run(async {
        let [a, b] = nodes("a_claim_elsewhere_retires").await;
        let mut ab = way::<Shared<Receiver<u32>>>(&a, &b, "ab").await?;
        let (mut tx, rx) = channel::<u32>();
        let mut at_a = rx.share();
        let mut at_b = along(at_a.clone(), &mut ab).await?;
        let mut claimed = at_b.claim().await?;
        let (sent, held) = par!(tx.send(1), async { Ok::<u32, RecvError>(claimed.recv_extended().await?.release()) });
        sent?;
        assert_eq!(held?, 1);
        claimed.retire();
        assert!(tx.send(2).await.is_err_and(|error| error.is_closed()));
        drop(claimed);
        assert_eq!(at_a.recv().await, Err(RecvError::Closed));
        assert_eq!(at_b.recv().await, Err(RecvError::Closed));
        Ok(())
    });
}

/// The same with values in the buffer and a waiting send: the send is refused, and handles there receive the
/// buffered values, then the end.
#[test]
fn buffered_values_remain_after_a_remote_claim_retires_the_channel() {
    run(async {
        let [a, b] = nodes("what_is_buffered_outlasts").await;
        let mut ab = way::<Shared<Receiver<u32>>>(&a, &b, "ab").await?;
        for by_claimer in [0, 1, 3] {
            let (mut tx, rx) = channel_with::<u32>(fifo(3));
            let mut at_a = rx.share();
            let mut at_b = along(at_a.clone(), &mut ab).await?;
            let mut other = at_b.clone();
            for n in 0..3 {
                tx.send(n).await?;
            }
            let mut claimed = at_b.claim().await?;
            let late = tx.send_nowait(3);
            claimed.retire();
            for n in 0..by_claimer {
                assert_eq!(claimed.recv().await, Ok(n));
            }
            claimed.retire();
            drop(claimed);
            for n in by_claimer..3 {
                assert_eq!(other.recv().await, Ok(n));
            }
            assert_eq!(other.recv().await, Err(RecvError::Closed));
            assert_eq!(at_b.recv().await, Err(RecvError::Closed));
            assert_eq!(at_a.recv().await, Err(RecvError::Closed));
            assert!(late.await.is_err_and(|error| error.is_closed()));
        }
        Ok(())
    });
}

/// The claim stays at another node, unused: a post here recalls it.
#[test]
fn post_recalls_an_unused_claim() {
    run(async {
        let [a, b] = nodes("a_post_is_not_held_back").await;
        let mut ab = way::<Shared<Sender<u32>>>(&a, &b, "ab").await?;
        let (tx, mut rx) = channel::<u32>();
        let mut at_a = tx.share();
        let mut at_b = along(at_a.clone(), &mut ab).await?;
        for n in 0..5 {
            drop(at_b.claim().await?);
            at_a.send_nowait(n).detach();
            assert_eq!(rx.recv().await?, n);
            let claim = at_b.claim().await?;
            at_a.send_nowait(n).detach();
            let held_back = rx.recv().within(Duration::from_millis(5)).await;
            assert_eq!(held_back, Err(RecvError::TimedOut));
            drop(claim);
            assert_eq!(rx.recv().await?, n);
        }
        Ok(())
    });
}

#[derive(Bundle)]
struct Desk {
    ask: ToServer<u32>,
    answer: ToClient<u32>,
}

#[derive(Bundle)]
struct Office {
    bell: ToServer<u32>,
    desk: Share<Desk>,
    back: Flip<Share<Desk>>,
}

/// Answers the calls at this desk, and makes two at the other side's. With `other`, it also sends a handle of
/// that desk there, which the receiver uses.
async fn clerk(mut office: OfficeServer, other: Option<&mut Way<Shared<DeskClient>>>) -> Result {
    let mut back = office.back;
    if let Some(way) = other {
        back = along(back.clone(), way).await?;
    }
    for _ in 0..office.bell.recv().await? {
        let asked = office.desk.ask.recv().await?;
        office.desk.answer.send(asked + 1).await?;
        let mut claim = back.claim().await?;
        claim.ask.send(2 * asked).await?;
        assert_eq!(claim.answer.recv().await?, 2 * asked + 1);
    }
    Ok(())
}

/// Two handles of the shared face; each makes three calls.
async fn visitors(office: OfficeClient) -> Result {
    let OfficeClient { mut bell, desk, mut back } = office;
    let visits = async |mut desk: Shared<DeskClient>, from: u32| {
        for n in from..from + 3 {
            let mut claim = desk.claim().await?;
            claim.ask.send(n).await?;
            assert_eq!(claim.answer.recv().await?, n + 1);
        }
        Result::<()>::Ok(())
    };
    let answers = async {
        for _ in 0..6 {
            let asked = back.ask.recv().await?;
            back.answer.send(asked + 1).await?;
        }
        Result::<()>::Ok(())
    };
    bell.send(6).await?;
    let (one, two, answered) = par!(visits(desk.clone(), 10), visits(desk, 20), answers);
    one.and(two).and(answered)
}

/// A bundle with a name: the holder of a shared face in it shares it there, and can send handles of it on.
#[test]
fn a_named_bundle_has_a_shared_face() {
    run(async {
        let [a, b, c] = nodes("a_named_bundle").await;
        let (client, server) =
            par!(async { a.client::<Office>("far").await }, async { b.server::<Office>("far").await });
        let mut on = way::<Shared<DeskClient>>(&b, &c, "on").await?;
        let (visited, served) = par!(visitors(client?), clerk(server?, Some(&mut on)));
        visited.and(served)?;

        let (client, server) =
            par!(async { a.client::<Office>("near").await }, async { a.server::<Office>("near").await });
        let (visited, served) = par!(visitors(client?), clerk(server?, None));
        visited.and(served)?;

        let mut guests = b.acceptor::<Office>("guests").await?;
        for node in [&a, &b] {
            let (client, guest) = par!(async { node.client::<Office>("guests").await }, guests.recv());
            let (visited, served) = par!(visitors(client?), clerk(guest?.into_face(), None));
            visited.and(served)?;
        }
        Ok(())
    });
}
