//! Starting functions at the less loaded of several nodes.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use dunlin_core::{Caller, alt, future};
use dunlin_sorted::SortedSet;
use tokio::sync::watch;

use super::function::{RemoteCall, RemoteFunction};
use super::request::{Asks, Load, load_name};
use super::start::SpawnOn;
use crate::lock::lock;
use crate::node::{Node, words};
use crate::time::sleep;
use crate::world;

/// How often the load of each offer is read.
const EVERY: Duration = Duration::from_secs(1);

/// How long the answer may take. An offer whose load is not known is passed over.
const PATIENCE: Duration = Duration::from_secs(3);

impl Node {
    /// Starts functions at the nodes that have these offers, each at the less loaded of two that are drawn at
    /// random.
    ///
    /// The load of an offer is how many of its processes run, for all nodes. The dispatcher reads it once a
    /// second, and adds what it has itself started there since. So the starts of a second do not all go to
    /// the node that had the least to do when it began, as with the least load alone. An offer that does not
    /// answer within three seconds, is full, or does not allow this node, is passed over as long as any other
    /// can be used. An offer that is named twice counts once.
    ///
    /// # Examples
    /// ```
    /// use dunlin::prelude::*;
    ///
    /// #[dunlin::remote]
    /// async fn half(n: u32) -> u32 {
    ///     n / 2
    /// }
    /// # dunlin::block_on(async {
    /// # let names = "memory:dispatcher-example";
    /// let here = Node::builder().app("halves").names(names).listen("memory:").join().await?;
    /// let one = Node::builder().app("halves").names(names).listen("memory:").join().await?;
    /// let two = Node::builder().app("halves").names(names).listen("memory:").join().await?;
    /// let _one = one.offer("one").function::<half>().await?;
    /// let _two = two.offer("two").function::<half>().await?;
    ///
    /// let dispatcher = here.dispatcher(["one", "two"]);
    /// let process = dispatcher.spawn(half(10)).await?; // `.linked()`, `.within(d)`
    /// assert_eq!(process.await?, 5);
    /// # drop(dispatcher);
    /// # one.leave().await?;
    /// # two.leave().await?;
    /// # here.leave().await
    /// # }).unwrap();
    /// ```
    ///
    /// # Source
    /// Mitzenmacher, The Power of Two Choices in Randomized Load Balancing, 2001.
    pub fn dispatcher<N: Into<String>>(&self, offers: impl IntoIterator<Item = N>) -> Dispatcher {
        let offers: SortedSet<String> = offers.into_iter().map(Into::into).collect();
        let places = Arc::new(Mutex::new(vec![Place::default(); offers.len()]));
        let (open, closed) = watch::channel(());
        for (index, offer) in offers.iter().enumerate() {
            let (node, name, places) = (self.clone(), load_name(offer), places.clone());
            let mut closed = closed.clone();
            world::spawn_own(async move {
                alt! { biased;
                    _ = future(closed.changed()) => {}
                    never = future(follow(&node, &name, &places, index)) => match never {},
                }
            });
        }
        Dispatcher { node: self.clone(), offers: offers.into_iter().collect(), places, _open: open }
    }
}

/// What a dispatcher knows of an offer.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    /// How many of its processes ran when the load was last read. `None`: the offer cannot be used, or is not
    /// known yet.
    running: Option<u64>,
    /// How many starts have been placed there since the load was asked for.
    placed: u64,
}

impl Place {
    fn load(self) -> u64 {
        self.running.unwrap_or(0).saturating_add(self.placed)
    }
}

/// Starts functions at the less loaded of several nodes. Made by [`Node::dispatcher`]; a handle of its node,
/// which does not leave by itself while it exists.
#[must_use = "a dispatcher reads the loads of its offers until it is dropped"]
pub struct Dispatcher {
    node: Node,
    offers: Vec<String>,
    places: Arc<Mutex<Vec<Place>>>,
    _open: watch::Sender<()>,
}

impl Dispatcher {
    /// Starts a process at one of the offers, as [`Node::spawn_on`] does. Which one, is decided here, and not
    /// when this is awaited: see [`SpawnOn::offer`]. A start that fails counts until the load is read again,
    /// so that another attempt probably goes elsewhere.
    ///
    /// As long as no offer can be used, any of them is chosen, and the start waits for it.
    ///
    /// # Errors
    /// Those of [`Node::spawn_on`], when it is awaited. Without any offer:
    /// [`NameError::BadName`](crate::node::NameError::BadName).
    ///
    /// # Cancel safety
    /// That of [`Node::spawn_on`].
    pub fn spawn<F: RemoteFunction>(&self, call: RemoteCall<F>) -> SpawnOn<'_, F> {
        let chosen = place(&mut lock(&self.places), world::random());
        // No offer has an empty name.
        let offer = chosen.map_or("", |index| self.offers[index].as_str());
        self.node.spawn_on(offer, call)
    }
}

impl fmt::Debug for Dispatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places = lock(&self.places).clone();
        f.debug_map().entries(self.offers.iter().zip(places)).finish()
    }
}

/// Places a start at the better of two random places, and counts it there. `None`: there is no place.
fn place(places: &mut [Place], random: u128) -> Option<usize> {
    let is_any_known = places.iter().any(|place| place.running.is_some());
    let usable = (0..places.len()).filter(|index| !is_any_known || places[*index].running.is_some());
    let usable: Vec<usize> = usable.collect();
    let count = usable.len() as u128;
    if count == 0 {
        return None;
    }
    // Two halves of the bits, for two different places if there are two.
    let first = (random & u128::from(u64::MAX)) % count;
    let second = (first + 1 + (random >> 64) % (count - 1).max(1)) % count;
    let [first, second] = [first, second].map(|at| usable[at as usize]);
    let chosen = if places[second].load() < places[first].load() { second } else { first };
    places[chosen].placed += 1;
    Some(chosen)
}

/// What never is.
enum Never {}

/// Reads the load of an offer once a second.
async fn follow(node: &Node, name: &str, places: &Mutex<Vec<Place>>, index: usize) -> Never {
    loop {
        // This waits until a node has the offer.
        if let Ok(mut meter) = node.client::<Asks>(name).await {
            while let Some(load) = read(&mut meter, places, index).await {
                lock(places)[index].running = load.ok();
                sleep(EVERY).await;
            }
        }
        // Its node is lost, leaves, or does not answer.
        lock(places)[index].running = None;
        sleep(EVERY).await;
    }
}

/// Asks for the load. `None`: there is no answer that can be read.
async fn read(meter: &mut Caller<Bytes, Bytes>, places: &Mutex<Vec<Place>>, index: usize) -> Option<Load> {
    let before = lock(places)[index].placed;
    // A deadline of the call would wait for the other node's word whether it has the question.
    let answer = world::within(PATIENCE, meter.call(Bytes::new())).await?;
    let load = words::decode(&answer.ok()?)?;
    // What was placed while the answer was on its way may not be in it.
    lock(places)[index].placed -= before;
    Some(load)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(loads: &[Option<u64>]) -> Vec<Place> {
        loads.iter().map(|running| Place { running: *running, placed: 0 }).collect()
    }

    /// Two numbers in the two halves of the random bits.
    fn drawn(first: u64, second: u64) -> u128 {
        u128::from(second) << 64 | u128::from(first)
    }

    #[test]
    fn the_better_of_two_places_gets_the_start() {
        for (first, second) in (0..9).flat_map(|first| (0..9).map(move |second| (first, second))) {
            let mut places = places(&[Some(2), Some(1), Some(0)]);
            let chosen = place(&mut places, drawn(first, second)).unwrap();
            let (one, other) = (first % 3, (first % 3 + 1 + second % 2) % 3);
            assert_eq!(chosen as u64, one.max(other), "{first} {second}");
        }
    }

    #[test]
    fn placed_starts_count_as_load() {
        let mut places = places(&[Some(10), Some(0)]);
        for n in 0..40 {
            place(&mut places, drawn(n, n)).unwrap();
        }
        assert_eq!([places[0].load(), places[1].load()], [25, 25]);
    }

    #[test]
    fn places_that_cannot_be_used_are_passed_over() {
        let mut some = places(&[None, Some(1000), None]);
        assert!((0..30).all(|n| place(&mut some, drawn(n, n / 3)) == Some(1)));
        // If none is known, all are used.
        let mut unknown = places(&[None, None, None]);
        (0..30).for_each(|n| assert!(place(&mut unknown, drawn(n, n / 3)).is_some()));
        assert!(unknown.iter().all(|place| place.placed == 10), "{unknown:?}");
        assert_eq!(place(&mut [], 7), None);
        assert_eq!(place(&mut places(&[Some(u64::MAX)]), 7), Some(0));
    }
}
