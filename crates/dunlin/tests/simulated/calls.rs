//! Calls between nodes, in simulations: each ends in its reply, or in an error that says why there is none.

use std::time::Duration;

use dunlin::prelude::*;
use dunlin::sim::Sim;
use dunlin::{Bundle, Call, CallError, RecvError, Reply, Request};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::support::nothing_is_left;

/// Fails to be written as 13, and to be read as 14.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Picky(u32);

impl Serialize for Picky {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match self.0 {
            13 => Err(serde::ser::Error::custom("13 is not written")),
            n => n.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Picky {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        match u32::deserialize(deserializer)? {
            14 => Err(serde::de::Error::custom("14 is not read")),
            n => Ok(Self(n)),
        }
    }
}

/// Its drop panics at the server, once it was sent, and at the caller.
#[derive(Debug, Serialize, Deserialize)]
struct Bomb(u32);

impl Drop for Bomb {
    fn drop(&mut self) {
        if self.0 == 1 {
            panic!("a reply is dropped");
        }
    }
}

#[derive(Bundle)]
struct Desk {
    text: Call<usize, String>,
    picky: Call<u32, Picky>,
    bomb: Call<u32, Bomb>,
    end: Call<u32, Receiver<u32>>,
}

/// A client and a server of a desk, on two nodes. Nothing is left there after `run`.
fn with_desk(seed: u64, run: impl AsyncFnOnce(&Sim, &[Node; 2], &mut DeskClient, &mut DeskServer) -> Result) -> Result {
    let sim = Sim::new(seed);
    sim.run(async {
        let nodes = [Node::join("calls").await?, Node::join("calls").await?];
        let mut server = nodes[1].server::<Desk>("desk").await?;
        let mut client = nodes[0].client::<Desk>("desk").await?;
        run(&sim, &nodes, &mut client, &mut server).await?;
        drop((client, server));
        nothing_is_left(&nodes).await
    })
}

/// The next request of this call channel, which comes.
async fn next<Q, A>(callee: &mut dunlin::Callee<Q, A>) -> Result<Request<Q, A>> {
    Ok(callee.accept().await?)
}

#[test]
fn a_reply_of_any_size_arrives() -> Result {
    with_desk(1, async |_, _, client, server| {
        for len in [0, 1, 1_000, 1_020, 1_021, 1_022, 1_023, 1_024, 1_025, 2_000, 300_000] {
            let (reply, served) = par!(client.text.call(len), async {
                let request = next(&mut server.text).await?;
                let len = *request;
                Ok::<_, Error>(request.reply("k".repeat(len)).is_ok())
            });
            assert_eq!((reply?.len(), served?), (len, true));
        }
        Ok(())
    })
}

#[test]
fn a_reply_with_an_end_in_it_arrives() -> Result {
    with_desk(2, async |_, _, client, server| {
        let (there, served) = par!(client.end.call(1), async {
            let request = next(&mut server.end).await?;
            let (tx, rx) = channel();
            request.reply(rx).map_err(|_| Error::other("the caller waits"))?;
            Ok::<_, Error>(tx)
        });
        let (mut rx, mut tx) = (there?, served?);
        let (sent, received) = par!(tx.send(7), rx.recv());
        sent?;
        assert_eq!(received?, 7);
        Ok(())
    })
}

#[test]
fn a_place_dropped_by_the_server_is_no_reply() -> Result {
    with_desk(3, async |_, _, client, server| {
        let (reply, served) = par!(client.picky.call(1), async { next(&mut server.picky).await.map(drop) });
        served?;
        assert_eq!(reply, Err(CallError::NoReply(RecvError::Closed)));
        Ok(())
    })
}

#[test]
fn a_reply_that_cannot_be_written_or_read_tells_the_caller_why() -> Result {
    with_desk(4, async |_, _, client, server| {
        for (n, why) in [(13, "13 is not written"), (14, "14 is not read")] {
            let (reply, served) = par!(client.picky.call(n), async {
                let request = next(&mut server.picky).await?;
                let n = *request;
                let _ = request.reply(Picky(n));
                Ok::<_, Error>(())
            });
            served?;
            let Err(CallError::NoReply(RecvError::Poisoned(reason))) = reply else { panic!("{reply:?}") };
            assert!(reason.to_string().contains(why), "{reason}");
        }
        Ok(())
    })
}

#[test]
fn the_server_learns_that_a_caller_is_gone() -> Result {
    with_desk(5, async |_, _, client, server| {
        let mut places = Vec::new();
        for n in 0..3 {
            let (late, place) = par!(client.picky.call(n).within(Duration::from_secs(1)), async {
                Ok::<_, Error>(next(&mut server.picky).await?.split().1)
            });
            assert_eq!(late, Err(CallError::NoReply(RecvError::TimedOut)));
            places.push(place?);
        }
        sleep(Duration::from_secs(1)).await;
        for place in places {
            let place: Reply<Picky> = place;
            assert_eq!(place.send(Picky(1)), Err(Picky(1)), "the reply comes back");
        }
        Ok(())
    })
}

#[test]
fn a_call_whose_server_leaves_ends() -> Result {
    let sim = Sim::new(6);
    sim.run(async {
        let nodes = [Node::join("calls").await?, Node::join("calls").await?];
        let mut server = nodes[1].server::<Desk>("desk").await?;
        let mut client = nodes[0].client::<Desk>("desk").await?;
        let (reply, left) = par!(client.picky.call(1), async {
            let place = next(&mut server.picky).await?.split().1;
            nodes[1].clone().leave().await?;
            Ok::<_, Error>(place)
        });
        let place = left?;
        assert_eq!(reply, Err(CallError::NoReply(RecvError::NodeLost)));
        assert_eq!(place.send(Picky(1)), Err(Picky(1)), "no caller waits");
        Ok(())
    })
}

#[test]
fn a_call_ends_when_its_connection_is_lost_for_good() -> Result {
    with_desk(7, async |sim, nodes, client, server| {
        let (reply, place) = par!(client.picky.call(1), async {
            let place = next(&mut server.picky).await?.split().1;
            // Its caller knows by then that the request was taken.
            sleep(Duration::from_secs(1)).await;
            sim.part(&nodes[0], &nodes[1]);
            Ok::<_, Error>(place)
        });
        assert_eq!(reply, Err(CallError::NoReply(RecvError::NodeLost)));
        // The server's node gives its peer up at a time of its own.
        sleep(Duration::from_secs(60)).await;
        assert_eq!(place?.send(Picky(1)), Err(Picky(1)), "no caller waits");
        Ok(())
    })
}

#[test]
fn a_reply_whose_drop_panics_hurts_nobody() -> Result {
    with_desk(8, async |sim, _, client, server| {
        sim.delay(Duration::from_millis(1), Duration::from_millis(1));
        // The caller has given up when the reply arrives, or takes it.
        for patience in [10_000, 1_500] {
            let (called, served) = par!(client.bomb.call(1).within(Duration::from_micros(patience)), async {
                let request = server.bomb.accept().within(Duration::from_millis(20)).await?;
                sleep(Duration::from_millis(1)).await;
                let _ = request.reply(Bomb(1));
                Ok::<_, Error>(())
            });
            let has_replied = called.is_ok();
            std::mem::forget(called);
            served?;
            assert_eq!(has_replied, patience == 10_000);
            let (called, served) = par!(client.bomb.call(2), async {
                let request = next(&mut server.bomb).await?;
                Ok::<_, Error>(request.reply(Bomb(2)).is_ok())
            });
            assert_eq!((called?.0, served?), (2, true));
        }
        Ok(())
    })
}

/// The caller's patience ends in the moment in which its reply arrives.
#[test]
fn a_caller_that_gives_up_when_its_reply_arrives_leaves_nothing() -> Result {
    let (mut replies, mut calls) = (0, 0);
    for seed in 0..200 {
        with_desk(seed, async |sim, _, client, server| {
            sim.delay(Duration::from_millis(1), Duration::from_millis(1));
            for len in [3, 2_000, 4, 1] {
                // The first request waits for the server's half.
                let patience = Duration::from_micros(if calls % 4 == 0 { 10_000 } else { 2_999 + sim.below(3) });
                let (called, served) = par!(client.text.call(len).within(patience), async {
                    let request = next(&mut server.text).await?;
                    sleep(Duration::from_millis(1)).await;
                    let _ = request.reply("k".repeat(len));
                    Ok::<_, Error>(())
                });
                replies += usize::from(called.is_ok());
                calls += 1;
                served?;
                // Nothing of it is on its way.
                sleep(Duration::from_millis(10)).await;
            }
            Ok(())
        })?;
    }
    assert!(replies > calls * 3 / 10 && replies < calls * 9 / 10, "{replies} of {calls}");
    Ok(())
}

/// Sockets are cut at any time, also between a request, its acknowledgement and the reply.
#[test]
fn each_call_has_its_own_reply_while_sockets_are_cut() -> Result {
    for seed in 0..200 {
        with_desk(seed, async |sim, nodes, client, server| {
            sim.delay(Duration::from_micros(10), Duration::from_millis(3));
            let (mut cuts, mut calls) = (0, 0);
            let ((), served, called) = par!(
                async {
                    while cuts < 20 {
                        sleep(Duration::from_micros(sim.below(4_000))).await;
                        sim.cut(&nodes[0], &nodes[1]);
                        cuts += 1;
                    }
                },
                async {
                    while let Ok(request) = server.text.accept().await {
                        let len = *request;
                        if sim.below(2) == 0 {
                            sleep(Duration::from_micros(sim.below(5_000))).await;
                        }
                        request.reply("k".repeat(len)).map_err(|_| Error::other("the caller waits"))?;
                    }
                    Ok::<_, Error>(())
                },
                async {
                    for _ in 0..40 {
                        let len = sim.below(1_500) as usize;
                        assert_eq!(client.text.call(len).await?.len(), len);
                        calls += 1;
                    }
                    client.text.retire();
                    Ok::<_, Error>(())
                },
            );
            served?;
            called?;
            assert_eq!(calls, 40);
            Ok(())
        })?;
    }
    Ok(())
}
