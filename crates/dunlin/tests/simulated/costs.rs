//! The costs of operations between nodes, in messages: measured in virtual time, where a message takes
//! exactly ten milliseconds.

use dunlin::prelude::*;
use dunlin::sim::Sim;

const ONE_WAY: Duration = Duration::from_millis(10);

/// Two nodes that are connected.
fn between(test: impl AsyncFnOnce(&Sim, Node, Node) -> Result) {
    let sim = Sim::new(1);
    sim.delay(ONE_WAY, ONE_WAY);
    sim.run(async {
        let (a, b) = (Node::join("costs").await?, Node::join("costs").await?);
        test(&sim, a, b).await
    })
    .unwrap();
}

/// A channel whose ends have found each other: one value has crossed, and nothing is on its way.
async fn connected(a: &Node, b: &Node, name: &str, policy: Policy) -> Result<(Sender<u32>, Receiver<u32>)> {
    let mut rx = b.receiver::<u32>(name).policy(policy).await?;
    let mut tx = a.sender::<u32>(name).await?;
    let (sent, received) = par!(tx.send(0), rx.recv());
    assert_eq!((sent?, received?), ((), 0));
    sleep(ONE_WAY * 10).await;
    Ok((tx, rx))
}

/// One frame there, one acknowledgement back when the value is taken.
#[test]
fn a_send_is_a_round_trip() {
    between(async |sim, a, b| {
        let (mut tx, mut rx) = connected(&a, &b, "numbers", Policy::default()).await?;
        let began = sim.elapsed();
        let (sent, received) = par!(async { tx.send(1).await.map(|()| sim.elapsed() - began) }, async {
            rx.recv().await.map(|n| (n, sim.elapsed() - began))
        },);
        assert_eq!((sent?, received?), (ONE_WAY * 2, (1, ONE_WAY)));
        Ok(())
    });
}

/// While no receive is polled, the send is pending.
#[test]
fn a_send_waits_for_the_receive() {
    between(async |sim, a, b| {
        let (mut tx, mut rx) = connected(&a, &b, "numbers", Policy::default()).await?;
        let began = sim.elapsed();
        let (sent, received) = par!(async { tx.send(1).await.map(|()| sim.elapsed() - began) }, async {
            sleep(ONE_WAY * 50).await;
            rx.recv().await
        },);
        assert_eq!((sent?, received?), (ONE_WAY * 51, 1));
        Ok(())
    });
}

#[test]
fn many_sends_at_once_are_one_round_trip() {
    between(async |sim, a, b| {
        let (mut senders, mut receivers) = (Vec::new(), Vec::new());
        for n in 0..8 {
            let (tx, rx) = connected(&a, &b, &format!("numbers {n}"), Policy::default()).await?;
            senders.push(tx);
            receivers.push(rx);
        }
        let began = sim.elapsed();
        let sending: Par<_> = senders.iter_mut().map(|tx| tx.send(7)).collect();
        let receiving: Par<_> = receivers.iter_mut().map(|rx| rx.recv()).collect();
        let (sent, received) = par!(
            async {
                let sent = sending.await;
                (sent, sim.elapsed() - began)
            },
            receiving,
        );
        assert!(sent.0.iter().all(Result::is_ok) && received.iter().all(|n| *n == Ok(7)));
        assert_eq!(sent.1, ONE_WAY * 2);
        Ok(())
    });
}

/// The places of a FIFO are promised beforehand: a send with a place needs no answer.
#[test]
fn a_fifo_with_room_costs_no_time() {
    between(async |sim, a, b| {
        let (mut tx, mut rx) = connected(&a, &b, "numbers", fifo(8)).await?;
        let began = sim.elapsed();
        for n in 1..=8 {
            tx.send(n).await?;
        }
        assert_eq!(sim.elapsed(), began);
        for n in 1..=8 {
            assert_eq!(rx.recv().await?, n);
        }
        assert_eq!(sim.elapsed(), began + ONE_WAY);
        Ok(())
    });
}

/// A choice over offers that have arrived takes one at once: it queries no sender, and notifies only that
/// one's sender.
#[test]
fn choice_between_receives_costs_no_extra_message() {
    between(async |sim, a, b| {
        let (mut tx, mut rx) = connected(&a, &b, "some", Policy::default()).await?;
        let (mut ty, mut ry) = connected(&a, &b, "others", Policy::default()).await?;
        let began = sim.elapsed();
        let (chosen, first, second) = par!(
            async {
                sleep(ONE_WAY * 3).await;
                let chosen = alt! { biased; n = rx.recv() => n, n = ry.recv() => n };
                (chosen, sim.elapsed() - began)
            },
            async { tx.send(1).await.map(|()| sim.elapsed() - began) },
            ty.send(2).within(ONE_WAY * 20),
        );
        assert_eq!((chosen, first?), ((Ok(1), ONE_WAY * 3), ONE_WAY * 4));
        assert!(second.unwrap_err().is_timed_out(), "it was not chosen");
        Ok(())
    });
}

#[derive(Bundle)]
struct Adder {
    next: Call<u32, u32>,
}

/// The acknowledgement of the request travels with the reply.
#[test]
fn a_call_is_a_round_trip() {
    between(async |sim, a, b| {
        let mut server = b.server::<Adder>("adder").await?;
        let mut client = a.client::<Adder>("adder").await?;
        let mut times = Vec::new();
        for n in 0..3 {
            sleep(ONE_WAY * 10).await;
            let began = sim.elapsed();
            let (reply, asked) = par!(client.next.call(n), async {
                let ask = server.next.accept().await?;
                let n = *ask + 1;
                let _ = ask.reply(n);
                Result::<()>::Ok(())
            });
            asked?;
            assert_eq!(reply?, n + 1);
            times.push(sim.elapsed() - began);
        }
        assert_eq!(times[1..], [ONE_WAY * 2; 2]);
        Ok(())
    });
}

/// A deadline that passes queries the home first, so the result is exact.
#[test]
fn a_deadline_is_exact() {
    between(async |sim, a, b| {
        let (mut tx, mut rx) = connected(&a, &b, "numbers", Policy::default()).await?;
        // There is no receive: the home returns the offer.
        let began = sim.elapsed();
        assert!(tx.send(1).within(ONE_WAY * 5).await.unwrap_err().is_timed_out());
        assert_eq!(sim.elapsed() - began, ONE_WAY * 7);
        assert!(rx.try_recv().is_err());
        // It is received while the query is on its way: then it was sent.
        let (sent, received) = par!(tx.send(2).within(ONE_WAY * 5), async {
            sleep(ONE_WAY * 5 + ONE_WAY / 2).await;
            rx.recv().await
        });
        assert_eq!((sent, received), (Ok(()), Ok(2)));
        Ok(())
    });
}
