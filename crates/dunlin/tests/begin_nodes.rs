//! Calls and broadcasts in two halves, and buckets beside them, where the other side is at another node.
#![cfg(feature = "net")]

use dunlin::prelude::*;

#[allow(dead_code, reason = "each test needs a part of it")]
#[path = "support/nodes.rs"]
mod support;
use support::{carry, nodes, run};

/// Each choice asks a server at another node, or takes a value that a process here sends: each request is
/// answered once, or is back in its slot.
#[test]
fn a_begun_call_at_another_node_is_answered_and_an_unchosen_one_is_not_asked() {
    run(async {
        let [a, b] = nodes("a_begun_call_at_another_node_is_answered").await;
        let (mut caller, callee) = call::<u32, u32>();
        let mut callee = carry(callee, &a, &b, "callee").await?;
        let (mut tx, mut rx) = channel();
        let (asked, sent, served) = par!(
            async {
                let (mut asked, mut received) = (0, 0);
                let mut slot = None;
                while asked < 50 || received < 50 {
                    let n = *slot.get_or_insert(asked);
                    let begun = alt! {
                        begun = caller.begin_from(&mut slot), if asked < 50 => Some(begun?),
                        v = rx.recv(), if received < 50 => {
                            assert_eq!(v?, received);
                            received += 1;
                            None
                        }
                    };
                    if let Some(begun) = begun {
                        assert_eq!((begun.await?, slot), (n + 1000, None));
                        asked += 1;
                    } else {
                        assert_eq!(slot, Some(n));
                    }
                }
                drop(caller);
                Ok::<_, Error>(asked)
            },
            async {
                for n in 0..50 {
                    tx.send(n).await?;
                }
                Ok::<_, Error>(())
            },
            async {
                let mut served = Vec::new();
                while let Ok(ask) = callee.accept().await {
                    served.push(*ask);
                    let answer = *ask + 1000;
                    ask.reply(answer).expect("it waits");
                }
                served
            },
        );
        sent?;
        assert_eq!((asked?, served), (50, (0..50).collect::<Vec<_>>()));
        Ok(())
    });
}

#[test]
fn a_begun_broadcast_reaches_a_receiver_at_another_node() {
    run(async {
        let [a, b] = nodes("a_begun_broadcast_reaches_a_receiver").await;
        let (clock, joiner) = broadcast::<u32>();
        let mut clock = clock.at_least(1);
        let joiner = carry(joiner, &a, &b, "joiner").await?;
        let (_tx, mut rx) = channel::<u8>();
        let (sent, got) = par!(
            async {
                alt! { begun = clock.begin(7) => begun?.await, _ = rx.recv() => Ok(()) }
            },
            async { joiner.join().recv().await },
        );
        sent?;
        assert_eq!(got?, 7);
        Ok(())
    });
}

/// A choice offers a value to a receiver at another node, and stands in a bucket: a flush counts it, or the
/// receiver has the value.
#[test]
fn a_flush_and_a_receiver_at_another_node_never_both_take_a_choice() {
    run(async {
        let [a, b] = nodes("a_flush_and_a_receiver_at_another_node").await;
        let ((mut tx, far), (flusher, mut mine)) = (channel::<u32>(), bucket());
        let far = carry(far, &a, &b, "far").await?;
        let (mut more, mut go) = channel();
        let (fell, flushed, got) = par!(
            async {
                let (mut fell, mut sent) = (0, 0);
                while sent < 200 {
                    more.send(()).await?;
                    let mut slot = Some(sent);
                    let is_sent = alt! {
                        r = tx.send_from(&mut slot) => { r?; true }
                        r = mine.fall_in() => { r?; false }
                    };
                    assert_eq!(slot.is_none(), is_sent);
                    sent += u32::from(is_sent);
                    fell += usize::from(!is_sent);
                }
                drop((tx, more));
                Ok::<_, Error>(fell)
            },
            async {
                let (mut flushed, mut round) = (0, 0);
                // One flush for each choice, before, during or after its offer's way to the other node.
                while go.next().await?.is_some() {
                    round += 1;
                    for _ in 0..round * 37 % 128 {
                        tokio::task::yield_now().await;
                    }
                    flushed += flusher.flush().await?;
                }
                Ok::<_, Error>(flushed)
            },
            async {
                let (mut far, mut got) = (far, Vec::new());
                while let Ok(value) = far.recv().await {
                    got.push(value);
                }
                got
            },
        );
        assert_eq!(fell?, flushed?);
        assert_eq!(got, (0..200).collect::<Vec<_>>());
        Ok(())
    });
}
