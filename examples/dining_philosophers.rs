//! The dining philosophers (Dijkstra, 1965): five of them, five forks, and each needs two to eat.
//!
//! ```text
//!            philosopher 0
//!      fork 0             fork 1
//!  philosopher 4        philosopher 1
//!      fork 4             fork 2
//!   philosopher 3  fork 3  philosopher 2
//! ```
//!
//! A fork is a process. Its two neighbours share the end of the channel to it, and the claimer of that end
//! has the fork. If all took their left fork first, all could wait for their right one for ever; so each
//! claims the fork with the lower number first, and philosopher 4 claims them in the opposite order to the
//! rest. Claims are granted in the order of their requests, so none starves.
//!
//! Each fork checks that no other philosopher touches it between being picked up and being put down, and each
//! philosopher counts its meals.
//!
//! Run it: `cargo run --release --example dining_philosophers [meals]`

use dunlin::prelude::*;

pub(crate) const PHILOSOPHERS: usize = 5;

/// A philosopher's action on a fork, with the philosopher's number.
enum Fork {
    PickUp(usize),
    PutDown(usize),
}

type Hold = Shared<Sender<Fork>>;

/// How often each philosopher used it.
async fn fork(mut hands: Receiver<Fork>) -> Result<[u32; PHILOSOPHERS]> {
    let mut meals = [0; PHILOSOPHERS];
    while let Some(touch) = hands.next().await? {
        let Fork::PickUp(who) = touch else { return Err(Error::other("put down without being picked up")) };
        match hands.recv().await? {
            Fork::PutDown(same) if same == who => meals[who] += 1,
            _ => return Err(Error::other(format!("another philosopher has touched the fork of philosopher {who}"))),
        }
    }
    Ok(meals)
}

/// Thinks and eats this many times; returns how often it has eaten.
async fn philosopher(me: usize, meals: u32, mut left: Hold, mut right: Hold) -> Result<u32> {
    // The forks are numbered round the table, so for all but the last the left one is the lower.
    let (first, second) = if me < PHILOSOPHERS - 1 { (&mut left, &mut right) } else { (&mut right, &mut left) };
    let mut eaten = 0;
    while eaten < meals {
        tokio::task::yield_now().await; // thinking takes a while
        let mut first = first.claim().await?;
        let mut second = second.claim().await?;
        first.send(Fork::PickUp(me)).await?;
        second.send(Fork::PickUp(me)).await?;
        eaten += 1;
        first.send(Fork::PutDown(me)).await?;
        second.send(Fork::PutDown(me)).await?;
    }
    Ok(eaten)
}

/// How often each philosopher has eaten, and how often each fork was used by each.
pub(crate) async fn dinner(meals: u32) -> Result<(Vec<u32>, Vec<[u32; PHILOSOPHERS]>)> {
    let (holds, hands): (Vec<Hold>, Vec<_>) = (0..PHILOSOPHERS)
        .map(|_| {
            let (tx, rx) = channel();
            (tx.share(), rx)
        })
        .unzip();
    let forks: Vec<_> = hands.into_iter().map(|hands| spawn(fork(hands))).collect();
    let philosophers: Vec<_> = (0..PHILOSOPHERS)
        .map(|me| spawn(philosopher(me, meals, holds[me].clone(), holds[(me + 1) % PHILOSOPHERS].clone())))
        .collect();
    drop(holds); // else the forks would wait for one more philosopher
    let mut eaten = Vec::new();
    for philosopher in philosophers {
        eaten.push(philosopher.await??);
    }
    let mut used = Vec::new();
    for fork in forks {
        used.push(fork.await??);
    }
    Ok((eaten, used))
}

#[dunlin::main]
async fn main() -> Result {
    let meals = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(10_000);
    let (eaten, used) = dinner(meals).await?;
    for (philosopher, eaten) in eaten.iter().enumerate() {
        assert_eq!(*eaten, meals);
        println!("philosopher {philosopher} has eaten {eaten} times");
    }
    for (fork, used) in used.iter().enumerate() {
        let by = (fork + PHILOSOPHERS - 1) % PHILOSOPHERS;
        assert_eq!((used[fork], used[by], used.iter().sum()), (meals, meals, 2 * meals), "fork {fork}");
    }
    println!("no fork was ever in two hands");
    Ok(())
}
