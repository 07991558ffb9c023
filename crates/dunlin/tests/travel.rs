//! Senders, callers and places for replies that travel from node to node, while they are used.
#![cfg(feature = "net")]

use std::time::Duration;

use dunlin::prelude::*;
use dunlin::{Callee, Reply, SendError, Why, call};
use serde::{Deserialize, Serialize};

#[allow(dead_code, reason = "each test needs a part of it")]
#[path = "support/nodes.rs"]
mod support;
use support::{along, carry, nodes, run, way};

#[test]
fn forwarded_sender_works_after_the_forwarding_node_leaves() {
    run(async {
        let [a, b, c] = nodes("a_sender_goes_on").await;
        let mut ab = way::<Sender<u32>>(&a, &b, "ab").await?;
        let mut bc = way::<Sender<u32>>(&b, &c, "bc").await?;
        let (tx, mut rx) = channel::<u32>();
        let mut tx = along(tx, &mut ab).await?;
        for n in 0..3 {
            let (sent, received) = par!(tx.send(n), rx.recv());
            sent?;
            assert_eq!(received?, n);
        }
        let mut tx = along(tx, &mut bc).await?;
        let (sent, received) = par!(tx.send(3), rx.recv());
        sent?;
        assert_eq!(received?, 3);
        drop((ab, bc));
        b.leave().await?;
        for n in 4..20 {
            let (sent, received) = par!(tx.send(n), rx.recv());
            sent?;
            assert_eq!(received?, n);
        }
        drop(tx);
        assert_eq!(rx.recv().await, Err(RecvError::Closed));
        Ok(())
    });
}

#[test]
fn sender_works_after_its_return() {
    run(async {
        let [a, b] = nodes("sender_works_after_its_return").await;
        let mut ab = way::<Sender<u32>>(&a, &b, "ab").await?;
        let mut ba = way::<Sender<u32>>(&b, &a, "ba").await?;
        let (mut tx, mut rx) = channel::<u32>();
        for round in 0..5 {
            tx = along(tx, &mut ab).await?;
            if round % 2 == 0 {
                let (sent, received) = par!(tx.send(round), rx.recv());
                sent?;
                assert_eq!(received?, round);
            }
            tx = along(tx, &mut ba).await?;
            let (sent, received) = par!(tx.send(100 + round), rx.recv());
            sent?;
            assert_eq!(received?, 100 + round);
        }
        drop(tx);
        assert_eq!(rx.recv().await, Err(RecvError::Closed));
        Ok(())
    });
}

/// Values sent on credits arrive before those sent from the next node, and nothing is lost.
#[test]
fn a_buffer_is_filled_from_several_nodes() {
    run(async {
        let [a, b, c] = nodes("a_buffer_is_filled").await;
        let mut ab = way::<Sender<u32>>(&a, &b, "ab").await?;
        let mut bc = way::<Sender<u32>>(&b, &c, "bc").await?;
        let mut cb = way::<Sender<u32>>(&c, &b, "cb").await?;
        let (mut tx, mut rx) = channel_with::<u32>(fifo(4));
        tx.send(0).await?;
        let mut tx = along(tx, &mut ab).await?;
        let mut next = 1;
        let mut expected = 0;
        for _ in 0..10 {
            tx.send(next).await?;
            tx.send(next + 1).await?;
            tx = along(tx, &mut bc).await?;
            tx.send(next + 2).await?;
            next += 3;
            for _ in 0..3 {
                assert_eq!(rx.recv().await?, expected);
                expected += 1;
            }
            tx = along(tx, &mut cb).await?;
        }
        assert_eq!(rx.recv().await?, expected);
        drop(tx);
        assert_eq!(rx.recv().await, Err(RecvError::Closed));
        Ok(())
    });
}

/// The sender travels round and round, and sends a value at each stop.
#[test]
fn a_sender_travels_in_a_ring() {
    run(async {
        let nodes: [Node; 4] = nodes("a_sender_travels_in_a_ring").await;
        let mut ways = Vec::new();
        for n in 0..4 {
            ways.push(way::<Sender<usize>>(&nodes[n], &nodes[(n + 1) % 4], &format!("way {n}")).await?);
        }
        let (mut tx, mut rx) = channel::<usize>();
        for stop in 0..60 {
            tx = along(tx, &mut ways[stop % 4]).await?;
            // At some stops it is only forwarded.
            if stop % 3 != 1 {
                let (sent, received) = par!(tx.send(stop), rx.recv());
                sent?;
                assert_eq!(received?, stop);
            }
        }
        Ok(())
    });
}

/// A node that only forwards an end attaches nothing there: it keeps no half of the channel, and sends
/// nothing to the other end's node.
#[test]
fn forwarding_node_attaches_nothing() {
    run(async {
        let [a, b, c, d] = nodes("who_passes_an_end_on").await;
        let mut senders =
            [way::<Sender<u32>>(&a, &b, "sab").await?, way(&b, &c, "sbc").await?, way(&a, &d, "sad").await?];
        let mut receivers =
            [way::<Receiver<u32>>(&a, &b, "rab").await?, way(&b, &c, "rbc").await?, way(&a, &d, "rad").await?];
        // Frames about the end before this one may still be on their way; and on a slow machine an end may
        // rest for too long.
        let (mut heard, mut attached) = ([u64::MAX; 2], [usize::MAX; 2]);
        for _ in 0..200 {
            if (heard, attached) == ([0, 0], [0, 0]) {
                break;
            }
            let (tx, rx) = channel::<u32>();
            let mut rx = along(rx, &mut receivers[2]).await?;
            let before = (b.records().homes, d.heard());
            let tx = along(tx, &mut senders[0]).await?;
            let mut tx = along(tx, &mut senders[1]).await?;
            attached[0] = attached[0].min(b.records().homes.saturating_sub(before.0));
            heard[0] = heard[0].min(d.heard() - before.1);
            par!(tx.send(1), rx.recv()).0?;

            let (tx, rx) = channel::<u32>();
            let mut tx = along(tx, &mut senders[2]).await?;
            let before = (b.records().homes, d.heard());
            let rx = along(rx, &mut receivers[0]).await?;
            let mut rx = along(rx, &mut receivers[1]).await?;
            attached[1] = attached[1].min(b.records().homes.saturating_sub(before.0));
            heard[1] = heard[1].min(d.heard() - before.1);
            par!(tx.send(2), rx.recv()).0?;
        }
        assert_eq!((heard, attached), ([0, 0], [0, 0]));
        Ok(())
    });
}

#[test]
fn an_end_that_is_dropped_unused_ends_its_channel() {
    run(async {
        let [a, b, c] = nodes("an_end_that_is_dropped_unused").await;
        let mut ab = way::<Sender<u32>>(&a, &b, "ab").await?;
        let mut bc = way::<Sender<u32>>(&b, &c, "bc").await?;
        let (tx, mut rx) = channel::<u32>();
        let tx = along(tx, &mut ab).await?;
        let tx = along(tx, &mut bc).await?;
        drop(tx);
        assert_eq!(rx.recv().await, Err(RecvError::Closed));
        Ok(())
    });
}

/// A node is lost with an unused end that it had received.
#[test]
fn an_end_that_is_lost_unused_ends_its_channel() {
    run(async {
        let [a, b, c] = nodes("an_end_that_is_lost_unused").await;
        let mut ab = way::<Sender<u32>>(&a, &b, "ab").await?;
        let mut bc = way::<Sender<u32>>(&b, &c, "bc").await?;
        let (tx, mut rx) = channel::<u32>();
        let tx = along(tx, &mut ab).await?;
        let tx = along(tx, &mut bc).await?;
        c.leave().await?;
        assert!(rx.recv().await.is_err());
        drop(tx);
        Ok(())
    });
}

/// The values that it has posted are received first: until then the message with the sender waits.
#[test]
fn sender_travels_only_after_its_posts_are_received() {
    run(async {
        let [a, b, c] = nodes("a_sender_is_at_rest").await;
        let mut ab = way::<Sender<u32>>(&a, &b, "ab").await?;
        let mut bc = way::<Sender<u32>>(&b, &c, "bc").await?;
        let (tx, mut rx) = channel::<u32>();
        let mut tx = along(tx, &mut ab).await?;
        let posted = tx.send_nowait(7);
        let (tx, received) = par!(along(tx, &mut bc), rx.recv());
        assert_eq!(received?, 7);
        posted.await?;
        let mut tx = tx?;
        let (sent, received) = par!(tx.send(8), rx.recv());
        sent?;
        assert_eq!(received?, 8);
        Ok(())
    });
}

/// A send of the waiting message can be dropped.
#[test]
fn send_of_a_waiting_message_can_be_dropped() {
    run(async {
        let [a, b, c] = nodes("a_message_that_waits").await;
        let mut ab = way::<Sender<u32>>(&a, &b, "ab").await?;
        let mut bc = way::<Sender<u32>>(&b, &c, "bc").await?;
        let (tx, mut rx) = channel::<u32>();
        let mut tx = along(tx, &mut ab).await?;
        let posted = tx.send_nowait(7);
        let given_up = bc.0.send(tx).within(Duration::from_millis(20)).await.unwrap_err();
        let mut tx = given_up.into_value();
        assert_eq!(rx.recv().await?, 7);
        posted.await?;
        let (sent, received) = par!(tx.send(8), rx.recv());
        sent?;
        assert_eq!(received?, 8);
        Ok(())
    });
}

#[test]
fn forwarded_caller_receives_replies() {
    run(async {
        let [a, b, c] = nodes("forwarded_caller_receives_replies").await;
        let mut ab = way::<Caller<u32, String>>(&a, &b, "ab").await?;
        let mut bc = way::<Caller<u32, String>>(&b, &c, "bc").await?;
        let (caller, mut callee) = call::<u32, String>();
        let mut caller = along(caller, &mut ab).await?;
        let answer = async {
            for _ in 0..2 {
                let (question, reply) = callee.accept().await?.split();
                reply.send(format!("{question}?")).expect("the caller waits");
            }
            Ok::<(), dunlin::Error>(())
        };
        let ask = async {
            assert_eq!(caller.call(1).await?, "1?");
            let mut caller = along(caller, &mut bc).await?;
            assert_eq!(caller.call(2).await?, "2?");
            Ok::<(), dunlin::Error>(())
        };
        let (answered, asked) = par!(answer, ask);
        answered?;
        asked
    });
}

#[derive(Bundle)]
struct Front {
    ask: Call<u32, String>,
}

/// A question travels from node to node with the place for its answer.
#[test]
fn reply_answers_the_caller_from_another_node() {
    run(async {
        let [a, b, c] = nodes("a_place_for_a_reply").await;
        let (shop, desk) = par!(async { a.client::<Front>("front").await }, async { b.server::<Front>("front").await });
        let (mut shop, mut desk) = (shop?, desk?);
        let mut back = way::<(u32, Reply<String>)>(&b, &c, "back").await?;
        let serve = async {
            let (question, reply) = desk.ask.accept().await?.split();
            back.0.send((question, reply)).await?;
            Ok::<(), dunlin::Error>(())
        };
        let work = async {
            let (question, reply) = back.1.recv().await?;
            reply.send(format!("{question} from afar")).expect("the caller waits");
            Ok::<(), dunlin::Error>(())
        };
        let (answer, served, worked) = par!(shop.ask.call(5), serve, work);
        served?;
        worked?;
        assert_eq!(answer?, "5 from afar");
        Ok(())
    });
}

#[test]
fn receiver_works_at_each_node_of_its_way() {
    run(async {
        let [a, b, c] = nodes("a_receiver_goes").await;
        let mut ab = way::<Receiver<u32>>(&a, &b, "ab").await?;
        let mut bc = way::<Receiver<u32>>(&b, &c, "bc").await?;
        let mut ca = way::<Receiver<u32>>(&c, &a, "ca").await?;
        let (mut tx, mut rx) = channel::<u32>();
        for n in 0..20 {
            rx = along(rx, &mut ab).await?;
            let (sent, received) = par!(tx.send(3 * n), rx.recv());
            sent?;
            assert_eq!(received?, 3 * n);
            rx = along(rx, &mut bc).await?;
            let (sent, received) = par!(tx.send(3 * n + 1), rx.recv());
            sent?;
            assert_eq!(received?, 3 * n + 1);
            rx = along(rx, &mut ca).await?;
            let (sent, received) = par!(tx.send(3 * n + 2), rx.recv());
            sent?;
            assert_eq!(received?, 3 * n + 2);
        }
        drop(tx);
        assert_eq!(rx.recv().await, Err(RecvError::Closed));
        Ok(())
    });
}

/// Buffered values travel with it, in order; so do promised places, and the policy.
#[test]
fn a_buffer_moves_with_its_receiver() {
    run(async {
        let [a, b, c] = nodes("a_buffer_moves").await;
        let mut ab = way::<Receiver<u32>>(&a, &b, "ab").await?;
        let mut bc = way::<Receiver<u32>>(&b, &c, "bc").await?;
        let mut cb = way::<Receiver<u32>>(&c, &b, "cb").await?;
        let (mut tx, mut rx) = channel_with::<u32>(fifo(4));
        for n in 0..3 {
            tx.send(n).await?;
        }
        rx = along(rx, &mut ab).await?;
        let (mut next, mut expected) = (3, 0);
        for _ in 0..10 {
            tx.send(next).await?;
            rx = along(rx, &mut bc).await?;
            assert_eq!((rx.recv().await?, rx.recv().await?), (expected, expected + 1));
            tx.send(next + 1).await?;
            next += 2;
            expected += 2;
            rx = along(rx, &mut cb).await?;
        }
        assert!(tx.send(next).within(Duration::from_secs(5)).await.is_ok());
        drop(tx);
        while expected <= next {
            assert_eq!(rx.recv().await?, expected);
            expected += 1;
        }
        assert_eq!(rx.recv().await, Err(RecvError::Closed));
        Ok(())
    });
}

/// A send that waits when the receiver leaves is received at the receiver's new node.
#[test]
fn waiting_send_reaches_its_receiver_at_the_new_node() {
    run(async {
        let [a, b, c] = nodes("an_offer_finds").await;
        let mut ab = way::<Receiver<u32>>(&a, &b, "ab").await?;
        let mut bc = way::<Receiver<u32>>(&b, &c, "bc").await?;
        let (mut tx, rx) = channel::<u32>();
        let rx = along(rx, &mut ab).await?;
        let move_and_receive = async {
            let mut rx = along(rx, &mut bc).await?;
            let first = rx.recv().await?;
            Ok::<_, dunlin::Error>((first, rx))
        };
        let (sent, received) = par!(tx.send(1), move_and_receive);
        sent?;
        let (first, mut rx) = received?;
        assert_eq!(first, 1);
        let (sent, received) = par!(tx.send(2), rx.recv());
        sent?;
        assert_eq!(received?, 2);
        Ok(())
    });
}

/// Both ends, from node to node, at the same time.
#[test]
fn both_ends_of_a_channel_travel_at_once() {
    run(async {
        let nodes: [Node; 3] = nodes("both_ends_travel").await;
        let (mut senders, mut receivers) = (Vec::new(), Vec::new());
        for n in 0..3 {
            let next = &nodes[(n + 1) % 3];
            let before = &nodes[(n + 2) % 3];
            senders.push(way::<Sender<usize>>(&nodes[n], next, &format!("sender {n}")).await?);
            receivers.push(way::<Receiver<usize>>(&nodes[n], before, &format!("receiver {n}")).await?);
        }
        let (tx, rx) = channel::<usize>();
        let mut tx = along(tx, &mut senders[0]).await?;
        let mut rx = along(rx, &mut receivers[0]).await?;
        let (mut at, mut from) = (1, 2);
        for n in 0..40 {
            let (sent, received) = par!(tx.send(n), rx.recv());
            sent?;
            assert_eq!(received?, n);
            let (moved, came) = par!(along(tx, &mut senders[at]), along(rx, &mut receivers[from]));
            (tx, rx) = (moved?, came?);
            (at, from) = ((at + 1) % 3, (from + 2) % 3);
        }
        drop(rx);
        assert!(tx.send(0).await.unwrap_err().is_closed());
        Ok(())
    });
}

/// A forwarded server keeps serving the same clients.
#[test]
fn forwarded_callee_serves_the_same_caller() {
    run(async {
        let [a, b, c] = nodes("forwarded_callee_serves_the_same_caller").await;
        let mut ab = way::<Callee<u32, u32>>(&a, &b, "ab").await?;
        let mut bc = way::<Callee<u32, u32>>(&b, &c, "bc").await?;
        let (mut caller, callee) = call::<u32, u32>();
        let mut callee = along(callee, &mut ab).await?;
        let ask = async {
            for n in 0..10 {
                assert_eq!(caller.call(n).await?, n + 1);
            }
            Ok::<(), dunlin::Error>(())
        };
        let serve = async {
            for _ in 0..5 {
                let (n, reply) = callee.accept().await?.split();
                reply.send(n + 1).expect("the caller waits");
            }
            let mut callee = along(callee, &mut bc).await?;
            for _ in 0..5 {
                let (n, reply) = callee.accept().await?.split();
                reply.send(n + 1).expect("the caller waits");
            }
            Ok::<(), dunlin::Error>(())
        };
        let (asked, served) = par!(ask, serve);
        asked?;
        served
    });
}

/// Ends found by a name.
#[test]
fn named_ends_transfer_values_after_both_move() {
    run(async {
        let [a, b, c] = nodes("named_ends_transfer_values_after_both_move").await;
        let (tx, rx) = way::<u32>(&a, &b, "numbers").await?;
        let mut ac = way::<Sender<u32>>(&a, &c, "ac").await?;
        let mut ba = way::<Receiver<u32>>(&b, &a, "ba").await?;
        let mut tx = along(tx, &mut ac).await?;
        let mut rx = along(rx, &mut ba).await?;
        for n in 0..5 {
            let (sent, received) = par!(tx.send(n), rx.recv());
            sent?;
            assert_eq!(received?, n);
        }
        Ok(())
    });
}

/// A node that has sent an end away may declare its name anew at once: the name is free before the send is
/// complete.
#[test]
fn name_of_a_forwarded_end_is_free() {
    run(async {
        let [a, b, c] = nodes("the_name_is_free").await;
        let (mut ac, mut at_c) = way::<Sender<u32>>(&a, &c, "ac").await?;
        for n in 0..200 {
            let name = format!("numbers {n}");
            let (mut tx, mut rx) = way::<u32>(&a, &b, &name).await?;
            // They have found each other.
            let (sent, received) = par!(tx.send(n), rx.recv());
            assert_eq!((sent?, received?), ((), n));
            let again = async {
                ac.send(tx).await?;
                a.sender::<u32>(&name).await?;
                Ok::<(), dunlin::Error>(())
            };
            let (again, tx) = par!(again, at_c.recv());
            again?;
            tx?;
        }
        Ok(())
    });
}

#[derive(Clone)]
struct Mine;

impl dunlin::Buffering for Mine {
    fn admit(&mut self, _: usize) -> dunlin::Admit {
        dunlin::Admit::Keep
    }
}

/// A sender that arrived through a node in between, and is still unused, notices that its receiver is
/// dropped.
#[test]
fn unused_sender_is_notified_of_a_dropped_receiver() {
    run(async {
        let [a, b, c] = nodes("unused_sender_is_notified_of_a_dropped_receiver").await;
        let mut first = way::<Sender<u32>>(&a, &b, "first").await?;
        let mut second = way::<Sender<u32>>(&b, &c, "second").await?;
        let (tx, rx) = channel::<u32>();
        let tx = along(tx, &mut first).await?;
        let mut tx = along(tx, &mut second).await?;
        let ((), ()) = par!(tx.closed(), async { drop(rx) });
        Ok(())
    });
}

/// An end that cannot travel is refused, and the value returned.
#[test]
fn refused_send_returns_receiver_with_a_custom_policy() {
    run(async {
        let [a, b] = nodes("refused_send_returns_receiver_with_a_custom_policy").await;
        let (mut way, _there) = way::<Receiver<u32>>(&a, &b, "way").await?;
        let (mut tx, rx) = channel_with::<u32>(Mine);
        let refused = way.send(rx).await.unwrap_err();
        assert!(refused.to_string().contains("a custom policy"), "{refused}");
        let mut rx = refused.into_value();
        tx.send(1).await?;
        assert_eq!(rx.recv().await?, 1);
        Ok(())
    });
}

#[derive(Debug, Serialize, Deserialize)]
enum Loop {
    End(Receiver<Self>),
    Number(u32),
}

/// In one program it waits for an impossible receiver, and a deadline returns it; a channel between nodes
/// refuses it.
#[test]
fn receiver_cannot_travel_over_its_own_channel() {
    run(async {
        let [a, b] = nodes("a_receiver_over_its_own_channel").await;
        let (mut tx, mut rx) = channel::<Loop>();
        for been_away in [false, true] {
            if been_away {
                let there = carry(rx, &a, &b, "away").await?;
                rx = carry(there, &b, &a, "home").await?;
            }
            let sent = tx.send(Loop::End(rx));
            let sent = if been_away { sent.await } else { sent.within(Duration::from_millis(20)).await };
            let Err(SendError::NotTaken { value: Loop::End(back), why }) = sent else { panic!("{sent:?}") };
            let own = Why::Unsendable("an end cannot be sent over its own channel".into());
            assert_eq!(why, if been_away { own } else { Why::TimedOut });
            rx = back;
            for n in 0..3 {
                let (sent, received) = par!(tx.send(Loop::Number(n)), rx.recv());
                sent?;
                assert!(matches!(received?, Loop::Number(got) if got == n));
            }
        }
        drop(tx);
        assert!(matches!(rx.recv().await, Err(RecvError::Closed)));
        Ok(())
    });
}

/// Ends in values that are buffered at a home that moves.
#[test]
fn ends_move_with_the_buffer_that_they_are_in() {
    run(async {
        let [a, b, c] = nodes("ends_move_with_the_buffer").await;
        let mut ab = way::<Receiver<Sender<u32>>>(&a, &b, "ab").await?;
        let mut bc = way::<Receiver<Sender<u32>>>(&b, &c, "bc").await?;
        let (mut ends, rx) = channel_with::<Sender<u32>>(fifo(4));
        let rx = along(rx, &mut ab).await?;
        let mut receivers = Vec::new();
        for _ in 0..3 {
            let (tx, rx) = channel::<u32>();
            ends.send(tx).await?;
            receivers.push(rx);
        }
        let mut rx = along(rx, &mut bc).await?;
        for (n, inner) in (0..).zip(&mut receivers) {
            let mut tx = rx.recv().await?;
            let (sent, received) = par!(tx.send(n), inner.recv());
            sent?;
            assert_eq!(received?, n);
        }
        Ok(())
    });
}

/// The ends in a reply arrive, though the replying process has continued.
#[test]
fn ends_arrive_in_replies() {
    run(async {
        let [a, b] = nodes("ends_arrive_in_replies").await;
        let mut ab = way::<Caller<u32, (Sender<u32>, Receiver<u32>)>>(&a, &b, "ab").await?;
        let (caller, mut callee) = call::<u32, (Sender<u32>, Receiver<u32>)>();
        let mut caller = along(caller, &mut ab).await?;
        for round in 0..20 {
            let ((to_here, mut here), (mut from_here, there)) = (channel(), channel());
            let (answer, asked) = par!(caller.call(round), async {
                let asked = callee.accept().await?;
                asked.reply((to_here, there)).map_err(|_| Error::other("the caller has left"))
            });
            asked?;
            let (mut to_there, mut there) = answer?;
            let (sent, received) = par!(to_there.send(round), here.recv());
            sent?;
            assert_eq!(received?, round);
            let (sent, received) = par!(from_here.send(round), there.recv());
            sent?;
            assert_eq!(received?, round);
        }
        Ok(())
    });
}

/// Both ends of a channel in one message: they form a channel where they arrive, with the buffered values,
/// and can travel on from there.
#[test]
fn both_ends_of_a_channel_travel_in_one_message() {
    run(async {
        let [a, b, c] = nodes("both_ends_in_one").await;
        let mut ab = way::<(Sender<u32>, Receiver<u32>)>(&a, &b, "ab").await?;
        let mut ba = way::<(Receiver<u32>, Sender<u32>)>(&b, &a, "ba").await?;
        let mut bc = way::<Receiver<u32>>(&b, &c, "bc").await?;
        for buffered in [0, 3] {
            let (mut tx, rx) = if buffered > 0 { channel_with(fifo(4)) } else { channel() };
            for n in 0..buffered {
                tx.send(n).await?;
            }
            let (mut tx, mut rx) = along((tx, rx), &mut ab).await?;
            let sends = async {
                for n in buffered..20 {
                    tx.send(n).await?;
                }
                Ok::<(), dunlin::Error>(())
            };
            let receives = async {
                for n in 0..20 {
                    assert_eq!(rx.recv().await?, n);
                }
                Ok::<(), dunlin::Error>(())
            };
            let (sent, received) = par!(sends, receives);
            sent?;
            received?;
            // Both return, and the receiver travels on by another way.
            let (rx, mut tx) = along((rx, tx), &mut ba).await?;
            let (_, mut rx) = along((channel().0, rx), &mut ab).await?;
            let (sent, received) = par!(tx.send(20), rx.recv());
            assert_eq!((sent?, received?), ((), 20));
            let mut rx = along(rx, &mut bc).await?;
            let (sent, received) = par!(tx.send(21), rx.recv());
            assert_eq!((sent?, received?), ((), 21));
            drop(tx);
            assert_eq!(rx.recv().await, Err(RecvError::Closed));
        }
        Ok(())
    });
}

/// Also where its receiver travels after that.
#[test]
fn forwarded_receiver_reports_its_lost_sender() {
    run(async {
        for policy in [dunlin::rendezvous(), fifo(4)] {
            let [a, b, c] = nodes("a_sender_that_is_lost").await;
            let mut ab = way::<Sender<u32>>(&a, &b, "ab").await?;
            let mut ac = way::<Receiver<u32>>(&a, &c, "ac").await?;
            let (tx, mut rx) = channel_with::<u32>(policy);
            let mut tx = along(tx, &mut ab).await?;
            let (sent, received) = par!(tx.send(1), rx.recv());
            sent?;
            assert_eq!(received?, 1);
            let mut news = a.connections();
            b.leave().await?;
            while !matches!(news.recv().await?.1, dunlin::node::ConnectionState::Down(_)) {}
            let mut rx = along(rx, &mut ac).await?;
            assert_eq!(rx.recv().await, Err(RecvError::NodeLost));
        }
        Ok(())
    });
}

/// The same with the roles exchanged.
#[test]
fn forwarded_sender_reports_its_lost_receiver() {
    run(async {
        for policy in [dunlin::rendezvous(), fifo(4)] {
            let [a, b, c] = nodes("a_receiver_that_is_lost").await;
            let mut ab = way::<Receiver<u32>>(&a, &b, "ab").await?;
            let mut ac = way::<Sender<u32>>(&a, &c, "ac").await?;
            let (mut tx, rx) = channel_with::<u32>(policy);
            let mut rx = along(rx, &mut ab).await?;
            let (sent, received) = par!(tx.send(1), rx.recv());
            sent?;
            assert_eq!(received?, 1);
            let mut news = a.connections();
            b.leave().await?;
            while !matches!(news.recv().await?.1, dunlin::node::ConnectionState::Down(_)) {}
            let mut tx = along(tx, &mut ac).await?;
            // Some values of a buffer may have found a place before the end was known.
            let error = loop {
                if let Err(error) = tx.send(2).await {
                    break error;
                }
            };
            assert!(matches!(error, SendError::NotTaken { why: Why::NodeLost, .. }), "{error:?}");
        }
        Ok(())
    });
}

/// Again and again through the same nodes, where it has been before, and with the other end at none of them.
#[test]
fn sender_travels_many_rounds_through_the_same_nodes() {
    run(async {
        let nodes: [Node; 4] = nodes("sender_travels_many_rounds_through_the_same_nodes").await;
        let mut ways = Vec::new();
        for n in 0..3 {
            ways.push(way::<Sender<usize>>(&nodes[n], &nodes[(n + 1) % 3], &format!("way {n}")).await?);
        }
        let (mut tx, mut rx) = way::<usize>(&nodes[0], &nodes[3], "values").await?;
        for stop in 0..1000 {
            let sends = async { Ok::<_, dunlin::Error>(tx.send(stop).await?) };
            let ((), received) = tokio::try_join!(sends, async { Ok(rx.recv().await?) })?;
            assert_eq!(received, stop);
            let (there, here) = &mut ways[stop % 3];
            // Errors should be reported here instead of a hang.
            let carries = async { there.send(tx).await.map_err(|error| Error::other(error.to_string())) };
            ((), tx) = tokio::try_join!(carries, async { Ok(here.recv().await?) })?;
        }
        Ok(())
    });
}

/// A value sent on a credit has left, whether it is received or not: the ends in it are dropped where it
/// arrives.
#[test]
fn unreceived_ends_on_credits_are_dropped() {
    run(async {
        let [a, b] = nodes("ends_that_nobody_receives").await;
        let mut there = way::<Receiver<u32>>(&a, &b, "there").await?;
        for round in 0..20 {
            let mut ab = way::<Receiver<Sender<u32>>>(&a, &b, &format!("ab {round}")).await?;
            let (mut to_b, from_a) = channel_with::<Sender<u32>>(fifo(4));
            let mut from_a = along(from_a, &mut ab).await?;
            // This brings the credits.
            let (sent, received) = par!(to_b.send(channel().0), from_a.recv());
            assert!(sent.is_ok() && received.is_ok(), "{sent:?}");
            // One end has not been between nodes, the other one has.
            let (tx, mut rx) = channel();
            let (known, rx_there) = channel();
            let mut rx_there = along(rx_there, &mut there).await?;
            drop(from_a);
            for tx in [tx, known] {
                drop(to_b.send(tx).await);
            }
            assert_eq!(rx.recv().await, Err(RecvError::Closed));
            assert_eq!(rx_there.recv().await, Err(RecvError::Closed));
        }
        Ok(())
    });
}

/// Decodes nothing.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct Unreadable(Sender<u32>, #[serde(deserialize_with = "refuse")] u8);

fn refuse<'de, D: serde::Deserializer<'de>>(_: D) -> std::result::Result<u8, D::Error> {
    Err(serde::de::Error::custom("that is no krill"))
}

/// The same if it cannot be decoded.
#[test]
fn ends_on_credits_that_cannot_be_read_are_dropped() {
    run(async {
        let [a, b] = nodes("ends_that_cannot_be_read").await;
        let mut there = way::<Receiver<u32>>(&a, &b, "there").await?;
        for is_known in [false, true] {
            let mut ab = way::<Receiver<Unreadable>>(&a, &b, &format!("ab {is_known}")).await?;
            let (mut to_b, from_a) = channel_with::<Unreadable>(fifo(4));
            let mut from_a = along(from_a, &mut ab).await?;
            let (tx, mut rx) = channel();
            if is_known {
                rx = along(rx, &mut there).await?;
            }
            let (sent, received) = par!(to_b.send(Unreadable(tx, 1)), from_a.recv());
            assert!(sent.is_ok(), "{sent:?}");
            assert!(matches!(received, Err(RecvError::Poisoned(_))), "{received:?}");
            assert_eq!(rx.recv().await, Err(RecvError::Closed));
        }
        Ok(())
    });
}

/// An end in a value whose send is complete at once belongs to this node before it can be received: so it can
/// travel on at once, and leaves nothing behind.
#[test]
fn end_received_on_a_credit_is_forwarded_at_once() {
    run(async {
        let [a, b, c] = nodes("an_end_that_came_on_a_credit").await;
        for round in 0..20 {
            let (to_b, from_a) = channel_with::<Sender<u32>>(fifo(4));
            let (to_c, from_b) = channel_with::<Sender<u32>>(fifo(4));
            let mut ab = way::<Receiver<Sender<u32>>>(&a, &b, &format!("ab {round}")).await?;
            let mut bc = way::<Receiver<Sender<u32>>>(&b, &c, &format!("bc {round}")).await?;
            let (mut to_b, mut from_a) = (to_b, along(from_a, &mut ab).await?);
            let (mut to_c, mut from_b) = (to_c, along(from_b, &mut bc).await?);
            let (tx, mut rx) = channel::<u32>();
            to_b.send(tx).await.map_err(|error| Error::other(error.to_string()))?;
            to_c.send(from_a.recv().await?).await.map_err(|error| Error::other(error.to_string()))?;
            let mut tx = from_b.recv().await?;
            let (sent, received) = par!(tx.send(round), rx.recv());
            sent?;
            assert_eq!(received?, round);
        }
        // Records of forwarded ends are removed with the ends.
        for node in [&a, &b, &c] {
            while node.records().proxies > 0 {
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    });
}

/// The receiver of an end sends it on at once, before its previous node knows that it was received.
#[test]
fn end_is_forwarded_before_its_receipt_is_acknowledged() {
    run(async {
        let [a, b, c] = nodes("an_end_goes_on_as_soon").await;
        let (mut to_b, mut from_a) = way::<Sender<u32>>(&a, &b, "ab").await?;
        let (mut to_c, mut from_b) = way::<Sender<u32>>(&b, &c, "bc").await?;
        let broker = spawn(async move {
            while let Some(end) = from_a.next().await? {
                to_c.send(end).await.map_err(|error| Error::other(error.to_string()))?;
            }
            Result::<()>::Ok(())
        });
        let far = spawn(async move {
            for n in 0..300 {
                from_b.recv().await?.send(n).await?;
            }
            Result::<()>::Ok(())
        });
        for n in 0..300 {
            let (tx, mut rx) = channel::<u32>();
            let (sent, received) = par!(to_b.send(tx), rx.recv());
            sent.map_err(|error| Error::other(error.to_string()))?;
            assert_eq!(received?, n);
        }
        drop(to_b);
        broker.await??;
        far.await?
    });
}

/// A receiver whose sender is dropped travels in a message whose send is complete at once: the notice of the
/// channel's end waits for the new home.
#[test]
fn receiver_without_a_sender_reports_closed_after_moving_on_a_credit() {
    run(async {
        let [a, b] = nodes("a_receiver_without_a_sender").await;
        let mut ab = way::<Receiver<Receiver<u32>>>(&a, &b, "ab").await?;
        let (mut ends, rx) = channel_with::<Receiver<u32>>(fifo(4));
        let mut there = along(rx, &mut ab).await?;
        for retired in [true, false, true, false] {
            let (tx, rx) = channel::<u32>();
            if retired {
                tx.retire();
            }
            drop(tx);
            ends.send(rx).await.map_err(|error| Error::other(error.to_string()))?;
            let mut ended = there.recv().await?;
            assert_eq!(ended.recv().await, Err(RecvError::Closed));
        }
        Ok(())
    });
}
