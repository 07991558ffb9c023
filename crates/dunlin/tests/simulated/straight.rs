//! Large values that travel straight to their receiver, where nodes cannot reach each other or one is lost.

use bytes::Bytes;
use dunlin::RecvError;
use dunlin::prelude::*;
use dunlin::sim::Sim;

use crate::support::carry;

fn value(number: u8) -> Bytes {
    vec![number; 300_000].into()
}

/// A value that the receiving node cannot read, since it cannot reach the sender's node, arrives through the
/// keeper instead.
#[test]
fn value_from_unreachable_sender_arrives_through_the_keeper() {
    cannot_be_read(false);
}

/// The same for a handle that was forwarded from another node.
#[test]
fn forwarded_handle_receives_unreachable_value_through_the_keeper() {
    cannot_be_read(true);
}

fn cannot_be_read(went_on: bool) {
    let sim = Sim::new(1);
    sim.run(async {
        let join = || Node::builder().app("unread").relay(false).grace(Duration::from_secs(2)).join();
        let (a, b, c, d) = (join().await?, join().await?, join().await?, join().await?);
        let (tx, rx) = channel::<Bytes>();
        let here = rx.share();
        let mut there = if went_on {
            let between = carry(here.clone(), &a, &d, "between").await?;
            carry(between, &d, &c, "handle").await?
        } else {
            carry(here.clone(), &a, &c, "handle").await?
        };
        let mut tx = carry(tx, &a, &b, "sender").await?;
        sim.part(&b, &c);
        for number in 0..4 {
            let began = sim.elapsed();
            let (sent, got) = par!(tx.send(value(number)), there.recv());
            sent?;
            assert_eq!(got?[0], number);
            // Only one value waits for the failed attempt.
            assert_eq!(sim.elapsed() - began > Duration::from_secs(1), number == 1, "value {number}");
        }
        Result::<()>::Ok(())
    })
    .unwrap();
}

/// The sender's node is lost while its value is offered: no process waits for that value for ever.
#[test]
fn lost_sender_delays_no_receiver() {
    for seed in 0..20 {
        let sim = Sim::new(seed);
        sim.run(async {
            let join = || Node::builder().app("unread").grace(Duration::from_secs(2)).join();
            let (a, b, c) = (join().await?, join().await?, join().await?);
            let (tx, rx) = channel::<Bytes>();
            let here = rx.share();
            let mut there = carry(here.clone(), &a, &c, "handle").await?;
            let mut tx = carry(tx, &a, &b, "sender").await?;
            let (sent, got) = par!(tx.send(value(1)), there.recv());
            sent?;
            assert_eq!(got?[0], 1);
            let (sent, got, ()) = par!(tx.send(value(2)), there.recv(), async {
                sleep(Duration::from_micros(sim.below(4000))).await;
                sim.part(&a, &b);
                sim.part(&c, &b);
            });
            match got {
                Ok(value) => assert_eq!(value[0], 2, "seed {seed}"),
                Err(error) => {
                    assert_eq!(error, RecvError::NodeLost, "seed {seed}");
                    assert!(sent.is_err(), "seed {seed}");
                }
            }
            assert_eq!(there.recv().await, Err(RecvError::NodeLost), "seed {seed}");
            Result::<()>::Ok(())
        })
        .unwrap();
    }
}
