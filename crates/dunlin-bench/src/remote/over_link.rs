//! Channels over their own link (feature `link`), without names, on one socket.

use std::time::{Duration, Instant};

use anyhow::Result;
use bytes::Bytes;
use dunlin::node::link::{Link, LinkConfig};
use dunlin::{Receiver, Sender};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};

use super::programs::{ping, pong};
use super::sides::Sides;
use super::{Side, TCP, on_workers, over_dunlin, over_tcp};
use crate::programs::nanoseconds_each;

pub(crate) const LINK: &str = "link Bytes";
pub(super) const PINGPONG: [&str; 3] = [TCP, LINK, over_dunlin::BYTES];

pub(crate) fn served(socket: TcpStream) -> Result<Link> {
    socket.set_nodelay(true)?;
    let link = Link::new(LinkConfig::default());
    tokio::spawn(link.serve(socket));
    Ok(link)
}

pub(super) fn run(side: &Side) -> Result<f64> {
    let mut sides = Sides::start(side.leads(), 2, "")?;
    let (listener, all) = over_tcp::meet(side.leads(), &mut sides, |_| ())?;
    let side = side.clone();
    on_workers(side.threads, async move {
        if side.leads() {
            let link = served(TcpStream::connect(all[1]).await?)?;
            let time = ping(link.sender::<Bytes>(1), link.receiver::<Bytes>(2), side.size, side.n).await?;
            return Ok(nanoseconds_each(time, side.n));
        }
        let link = served(TcpListener::from_std(listener)?.accept().await?.0)?;
        pong(link.receiver::<Bytes>(1), link.sender::<Bytes>(2)).await.map(|()| 0.0)
    })
}

/// A value that takes a second to encode.
struct Slow;

const SLOW: Duration = Duration::from_secs(1);

impl Serialize for Slow {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let until = Instant::now() + SLOW;
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        serializer.serialize_unit()
    }
}

impl<'de> Deserialize<'de> for Slow {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <()>::deserialize(deserializer).map(|()| Self)
    }
}

/// The number of pings, at about one in a millisecond, so that they take as long as the value.
const PINGS: usize = 1_000;

/// Prints the time of round trips on two workers, and their time while one worker encodes a value for the
/// same connection.
pub(crate) fn slow(rounds: u32) -> Result<()> {
    let workers = |n| Builder::new_multi_thread().worker_threads(n).enable_all().build();
    let (here, there) = (workers(2)?, workers(1)?);
    for round in 1..=rounds {
        for is_slow in [false, true] {
            let mut trips = trips(&here, &there, is_slow)?;
            trips.sort_unstable();
            let of = |percent: usize| trips[trips.len() * percent / 100].as_secs_f64() * 1e6;
            let most = trips[trips.len() - 1].as_secs_f64() * 1e6;
            let beside = if is_slow { "beside a value of 1 s" } else { "alone" };
            println!("round {round}, {beside}: p50 {:.0} us, p99 {:.0} us, most {most:.0} us", of(50), of(99));
        }
    }
    here.shutdown_background();
    there.shutdown_background();
    Ok(())
}

fn trips(here: &Runtime, there: &Runtime, is_slow: bool) -> Result<Vec<Duration>> {
    let listener = here.block_on(TcpListener::bind("127.0.0.1:0"))?;
    let address = listener.local_addr()?;
    let other = there.spawn(async move {
        let link = served(TcpStream::connect(address).await?)?;
        let mut slow: Receiver<Slow> = link.receiver(3);
        tokio::spawn(async move { while slow.recv().await.is_ok() {} });
        pong(link.receiver::<Bytes>(1), link.sender::<Bytes>(2)).await
    });
    let pings = here.spawn(async move {
        let link = served(listener.accept().await?.0)?;
        let (mut output, mut back): (Sender<Bytes>, _) = (link.sender(1), link.receiver::<Bytes>(2));
        let mut message = Bytes::from_static(b"8 bytes.");
        let mut trips = Vec::with_capacity(PINGS);
        let mut slow: Sender<Slow> = link.sender(3);
        for trip in 0..100 + PINGS {
            if is_slow && trip == 100 {
                let mut slow = std::mem::replace(&mut slow, link.sender(4));
                tokio::spawn(async move { slow.send(Slow).await.is_ok() });
            }
            let start = Instant::now();
            output.send(message).await.map_err(|error| anyhow::anyhow!("{error}"))?;
            message = back.recv().await?;
            if trip >= 100 {
                trips.push(start.elapsed());
            }
            tokio::time::sleep(Duration::from_micros(500)).await;
        }
        link.lose();
        Ok::<_, anyhow::Error>(trips)
    });
    let trips = here.block_on(pings)??;
    other.abort();
    Ok(trips)
}
