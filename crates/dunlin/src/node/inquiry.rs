//! What every node answers by itself: pings, and queries for the names that it knows.
//!
//! Each node has an acceptor of its own for this, under the name `dunlin.node`, and all of it is channels.
//! `dunlin ping` and `dunlin names list` use it. Names go in pages over a rendezvous, so a page is made when
//! the one before it has been received: a node keeps one page for each inquirer, and no more than 32 in all.

use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, Weak};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use dunlin_core::{Call, Sender, ToClient, ToServer};
use dunlin_macros::Bundle;
use dunlin_proto::source::{Source, has_place};
use dunlin_proto::wire::Face;
use dunlin_sorted::SortedMap;
use serde::{Deserialize, Serialize};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::events::{Limit, NodeEvent};
use super::state::Driver;
use super::{Client, NameError, Naming, Node, Peer, words};
use crate::lock::lock;
use crate::net::compiled_here;
use crate::{Deadline, Instant};

/// The name of this acceptor, the same at every node.
pub(super) const NAME: &str = "dunlin.node";

/// Between a node and an inquirer. The messages travel as [bytes](words).
#[derive(Bundle)]
pub(super) struct Inquiry {
    /// An empty message, answered by the node's identity.
    ping: Call<Bytes, Bytes>,
    /// An empty message: the names are to follow.
    list: ToServer<Bytes>,
    /// Each a [`Page`].
    pages: ToClient<Bytes>,
}

/// A part of the names that a node knows.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Page {
    /// The node's own fields are repeated in each page.
    pub(super) list: NameList,
    /// Another page follows.
    pub(super) more: bool,
}

/// Where a page begins: at a name, after this many of its ends.
#[derive(Debug, Default)]
pub(super) struct Bookmark {
    pub(super) name: String,
    pub(super) ends: usize,
}

/// The size at which a page ends, in bytes of its entries: about as many as they are encoded in.
pub(super) const PAGE_BYTES: usize = 256 << 10;

/// How many pages may be in transit at once.
pub(super) const PAGES_MAX: usize = 32;

/// How many inquirers a node serves at once. Sources share these places: see
/// [`has_place`](dunlin_proto::source::has_place).
pub(super) const INQUIRERS_MAX: usize = 256;

/// How long a page waits to be received.
const PAGE_WAITS: Duration = Duration::from_secs(10);

/// The names that a node knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NameList {
    /// The node that answered.
    pub node: String,
    /// Where it listens.
    pub listening: Vec<String>,
    /// The address at which it serves the application's names, or finds them; `None`: it has found none yet.
    pub address: Option<String>,
    /// Whether these are the application's names. Otherwise they are the names that were declared to this
    /// node by nodes that dial it for them.
    pub serves: bool,
    /// The declared ends, by name, and those of each name in the order of their declarations.
    pub ends: Vec<NamedEnd>,
}

/// An end that was declared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NamedEnd {
    /// Its name.
    pub name: String,
    /// What it is: "sender", "receiver", "client", "server", "acceptor".
    pub face: String,
    /// Whether it is shared.
    pub shared: bool,
    /// How its messages are encoded.
    pub encoding: String,
    /// The node that has it.
    pub node: String,
    /// Where that node can be dialled.
    pub addresses: Vec<String>,
    /// Its state.
    pub state: State,
    /// How long it has been declared here.
    pub since: Duration,
}

impl NamedEnd {
    /// What it waits for, if it waits.
    pub fn waits_for(&self) -> Option<&'static str> {
        match (self.state, self.face.as_str()) {
            (State::Unadmitted, _) => Some("its admission"),
            (State::Away, _) => Some("its node"),
            (State::Joined | State::Accepting, _) => None,
            (State::Waiting, "sender") => Some("a receiver"),
            (State::Waiting, "receiver") => Some("a sender"),
            (State::Waiting, "client") => Some("a server"),
            (State::Waiting, _) => Some("a client"),
        }
    }
}

/// The state of an end that was declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum State {
    /// It waits to be admitted: the node that serves the names has just taken over, or the obstacle may be
    /// gone.
    Unadmitted,
    /// It waits for its other end.
    Waiting,
    /// It is joined.
    Joined,
    /// It accepts guests.
    Accepting,
    /// The connection to its node is dead; the end keeps its place for a moment.
    Away,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unadmitted => "unadmitted",
            Self::Waiting => "waiting",
            Self::Joined => "joined",
            Self::Accepting => "accepting",
            Self::Away => "away",
        })
    }
}

/// Queries one node: see [`Node::inquire`].
///
/// # Examples
/// ```
/// use dunlin::prelude::*;
///
/// # dunlin::block_on(async {
/// let node = || Node::builder().app("tides").names("memory:tides-inquired").listen("memory:").join();
/// let (here, there) = (node().await?, node().await?);
/// let _tx = there.sender::<u64>("heights").await?;
///
/// let mut asks = here.inquire(None, Duration::from_secs(5)).await?;
/// let (_node, took) = asks.ping(Duration::from_secs(5)).await?;
/// println!("a round trip takes {took:?}");
/// let names = asks.names(Duration::from_secs(5)).await?;
/// assert_eq!((names.ends[0].name.as_str(), names.ends[0].waits_for()), ("heights", Some("a receiver")));
/// # there.leave().await?;
/// # here.leave().await
/// # }).unwrap();
/// ```
pub struct Inquirer {
    client: InquiryClient,
}

impl fmt::Debug for Inquirer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inquirer").finish_non_exhaustive()
    }
}

impl Inquirer {
    pub(super) async fn new(node: &Node, address: Option<&str>, patience: Duration) -> Result<Self, NameError> {
        let name = address.map_or_else(|| NAME.to_owned(), |address| format!("{address}/{NAME}"));
        let client =
            Naming::<Client<Inquiry>>::new(&node.inner.driver, &name, Face::Client).reserved().within(patience).await?;
        Ok(Self { client })
    }

    /// One round trip to the node: its identity, and how long that took. The first may make the connection.
    ///
    /// # Errors
    /// As of a call: also if no answer came within `patience`. If the connection is lost meanwhile, the error
    /// comes only once the connection is back or dead ([`grace`](super::NodeBuilder::grace)): until then this
    /// node cannot know whether the question was received.
    pub fn ping(&mut self, patience: Duration) -> impl Future<Output = crate::Result<(String, Duration)>> + Send {
        compiled_here(self.pinged(patience))
    }

    async fn pinged(&mut self, patience: Duration) -> crate::Result<(String, Duration)> {
        let asked = Instant::now();
        let node = self.client.ping.call(Bytes::new()).within(patience).await?;
        Ok((words::decode(&node).ok_or_else(unreadable)?, asked.elapsed()))
    }

    /// The names that the node knows. They come in pages. An end that is declared or withdrawn meanwhile may
    /// be missing, or appear twice.
    ///
    /// # Errors
    /// As of [`ping`](Self::ping). After an error the inquirer cannot be used again.
    pub fn names(&mut self, patience: Duration) -> impl Future<Output = crate::Result<NameList>> + Send {
        compiled_here(self.listed(patience))
    }

    async fn listed(&mut self, patience: Duration) -> crate::Result<NameList> {
        let until = Instant::now() + patience;
        self.client.list.send(Bytes::new()).within(patience).await?;
        let mut all: Option<NameList> = None;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let page = self.client.pages.recv().within(left).await?;
            let Page { list, more } = words::decode(&page).ok_or_else(unreadable)?;
            match &mut all {
                Some(all) => all.ends.extend(list.ends),
                None => all = Some(list),
            }
            if !more {
                return Ok(all.expect("a page has come"));
            }
        }
    }
}

fn unreadable() -> crate::Error {
    crate::Error::other("the node's answer cannot be decoded")
}

/// The present inquirers.
#[derive(Debug, Default)]
pub(super) struct Inquirers(SortedMap<Source, Arc<()>>);

/// An inquirer's place, for as long as this exists.
pub(super) type Place = Arc<()>;

impl Inquirers {
    /// A place for an inquirer from this source, if one is free.
    pub(super) fn place(&mut self, source: Source) -> Option<Place> {
        // The map has one itself.
        let held = |place: &Place| Arc::strong_count(place) - 1;
        self.0.retain(|_, place| held(place) > 0);
        let all = self.0.values().map(held).sum();
        let mine = self.0.get(&source).map_or(0, held);
        has_place(INQUIRERS_MAX, all, mine).then(|| self.0.get_or_default(source).clone())
    }
}

/// The pages in transit. If there are as many as may be, those of the source with most make room for those of
/// a source with fewer; otherwise a page waits until another has been received.
#[derive(Debug)]
pub(super) struct Pages {
    places: Arc<Semaphore>,
    under_way: Mutex<UnderWay>,
}

#[derive(Debug, Default)]
struct UnderWay {
    /// By age, the oldest first.
    pages: SortedMap<u64, (Source, Held)>,
    next: u64,
}

/// A page's place. Its drop notifies the owner.
#[derive(Debug)]
struct Held {
    place: OwnedSemaphorePermit,
    _owner: oneshot::Sender<()>,
}

/// A page may be in transit for as long as this exists ...
struct Turn<'a> {
    pages: &'a Pages,
    number: u64,
    /// ... and until this resolves.
    gives_way: oneshot::Receiver<()>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        lock(&self.pages.under_way).pages.remove(&self.number);
    }
}

impl Default for Pages {
    fn default() -> Self {
        Self { places: Arc::new(Semaphore::new(PAGES_MAX)), under_way: Mutex::default() }
    }
}

impl Pages {
    /// Waits for a place for a page to that source.
    async fn turn(&self, source: Source) -> Option<Turn<'_>> {
        let free = self.places.clone().try_acquire_owned().ok();
        let place = match free.or_else(|| lock(&self.under_way).take_from_greatest(source)) {
            Some(place) => place,
            None => self.places.clone().acquire_owned().await.ok()?,
        };
        let (owner, gives_way) = oneshot::channel();
        let mut under_way = lock(&self.under_way);
        let number = under_way.next;
        under_way.next += 1;
        under_way.pages.insert(number, (source, Held { place, _owner: owner }));
        Some(Turn { pages: self, number, gives_way })
    }
}

impl UnderWay {
    /// The place of the oldest page of the source with most pages, if this source has fewer, and still has no
    /// more with that place.
    fn take_from_greatest(&mut self, source: Source) -> Option<OwnedSemaphorePermit> {
        let mut shares: SortedMap<Source, usize> = SortedMap::new();
        self.pages.values().for_each(|(source, _)| *shares.get_or_default(*source) += 1);
        let (greatest, most) = shares.iter().max_by_key(|(_, pages)| **pages)?;
        if shares.get(&source).copied().unwrap_or_default() + 1 >= *most {
            return None;
        }
        let number = self.pages.iter().find(|(_, (source, _))| source == greatest).map(|(number, _)| *number)?;
        self.pages.remove(&number).map(|(_, held)| held.place)
    }
}

/// An inquirer.
pub(super) struct Asker {
    pub(super) peer: Peer,
    pub(super) source: Source,
    pub(super) _place: Place,
}

/// Answers an inquirer until it is gone.
pub(super) async fn answer(
    mut server: InquiryServer,
    me: String,
    driver: Weak<Driver>,
    listening: Arc<[String]>,
    pages: Arc<Pages>,
    asker: Asker,
) {
    loop {
        let goes_on = crate::alt! {
            request = server.ping.accept() => match request {
                Ok(request) => request.reply(words::encode(&me)).is_ok(),
                Err(_) => false,
            },
            asked = server.list.recv() => {
                asked.is_ok() && list(&mut server.pages, &driver, &listening, &pages, &asker).await.is_some()
            },
        };
        if !goes_on {
            return;
        }
    }
}

/// Sends all names, page by page. `None`: the inquirer does not receive them, or the node has left.
async fn list(
    to: &mut Sender<Bytes>,
    driver: &Weak<Driver>,
    listening: &[String],
    pages: &Pages,
    asker: &Asker,
) -> Option<()> {
    let mut next = Some(Bookmark::default());
    while let Some(from) = next {
        let mut turn = pages.turn(asker.source).await?;
        let node = driver.upgrade()?;
        let (page, behind) = node.with_hub_now(|hub, cx| Some(hub.page_of_names(cx.now, listening, &from)))?;
        drop(node);
        let mut sending = pin!(to.send(words::encode(&page)).within(PAGE_WAITS));
        let is_received = poll_fn(|cx| match Pin::new(&mut turn.gives_way).poll(cx) {
            Poll::Ready(_) => Poll::Ready(None),
            Poll::Pending => sending.as_mut().poll(cx).map(|sent| Some(sent.is_ok())),
        });
        let Some(is_received) = is_received.await else {
            let limit = NodeEvent::Limit(Limit::Lists { peer: asker.peer, max: PAGES_MAX });
            driver.upgrade()?.with_hub_now(|hub, _| hub.refuse(limit, asker.source));
            return None;
        };
        if !is_received {
            return None;
        }
        next = behind;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn pages_of_the_source_with_most_make_room_for_others() {
        let pages = Pages::default();
        let (one, other) = (Source::V4([127, 0, 0, 2]), Source::V4([127, 0, 0, 3]));
        let mut flood = Vec::new();
        for _ in 0..PAGES_MAX {
            flood.push(pages.turn(one).await.expect("there is room"));
        }
        let gave_way = |turns: &mut [Turn<'_>]| {
            let closed = turns.iter_mut().map(|turn| turn.gives_way.try_recv());
            closed.filter(|heard| *heard == Err(oneshot::error::TryRecvError::Closed)).count()
        };
        // None of its own pages gives way.
        let mut next = std::pin::pin!(pages.turn(one));
        assert!(polled(next.as_mut()).is_none());
        // Another source gets half of the places at once, those of the oldest pages.
        let mut others = Vec::new();
        for _ in 0..PAGES_MAX / 2 {
            others.push(polled(std::pin::pin!(pages.turn(other))).expect("it has fewer").expect("it is open"));
        }
        assert_eq!(gave_way(&mut flood[..PAGES_MAX / 2]), PAGES_MAX / 2);
        assert_eq!((gave_way(&mut flood[PAGES_MAX / 2..]), gave_way(&mut others)), (0, 0));
        assert!(polled(std::pin::pin!(pages.turn(other))).is_none());
        // A turn that gave way has no place to return; one that did not makes room for the waiting page.
        flood.drain(..PAGES_MAX / 2);
        assert!(polled(next.as_mut()).is_none());
        flood.pop();
        assert!(polled(next.as_mut()).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn page_not_received_within_ten_seconds_releases_its_place() {
        let driver = super::super::far::driver();
        let (mut to, _from) = dunlin_core::channel::<Bytes>();
        let (pages, me) = (Pages::default(), driver.with(|state, _| state.machine.me()));
        let asker = Asker { peer: Peer(me), source: Source::Unknown, _place: Place::default() };
        let began = Instant::now();
        {
            let node = Arc::downgrade(&driver);
            let mut listing = pin!(list(&mut to, &node, &[], &pages, &asker));
            assert!(polled(listing.as_mut()).is_none());
            assert_eq!(pages.places.available_permits(), PAGES_MAX - 1);
            let over = tokio::time::timeout(10 * PAGE_WAITS, listing).await;
            assert!(over.expect("it is over").is_none());
        }
        let waited = began.elapsed();
        assert!(waited >= PAGE_WAITS && waited < PAGE_WAITS + Duration::from_millis(10), "{waited:?}");
        assert_eq!((PAGE_WAITS, pages.places.available_permits()), (Duration::from_secs(10), PAGES_MAX));
    }

    /// The output after one poll.
    fn polled<F: Future>(future: std::pin::Pin<&mut F>) -> Option<F::Output> {
        match future.poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        }
    }

    #[test]
    fn inquirers_of_one_source_leave_places_to_others() {
        let (mut inquirers, one, other) =
            (Inquirers::default(), Source::V4([127, 0, 0, 2]), Source::V4([127, 0, 0, 3]));
        let mut many: Vec<Place> = std::iter::from_fn(|| inquirers.place(one)).collect();
        assert_eq!(many.len(), INQUIRERS_MAX / 4 * 3);
        let few: Vec<Place> = std::iter::from_fn(|| inquirers.place(other)).collect();
        assert_eq!(few.len(), 4);
        // An inquirer that leaves makes room.
        many.truncate(10);
        assert!(inquirers.place(one).is_some());
        drop((many, few));
        assert!(inquirers.place(other).is_some() && inquirers.0.len() == 1, "{inquirers:?}");
    }
}
