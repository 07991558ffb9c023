//! Shared ends whose handles are at several nodes.
//!
//! The end stays where it was shared: that node *keeps* it. A handle that is sent elsewhere becomes a shared
//! end of its own there. Its
//! - lone operations go through an agent that stands in the channel's queue here as one more handle
//!   ([`Inlet::lone`](crate::agent::Inlet), [`LoneOutlet`]);
//! - claims go through a *desk* there and a *keeper* here, over two channels of a few messages. The keeper
//!   stands in the line for the desk. When its claim is granted, the remote handle acts here as if it held
//!   the end. A face has no lone operations: the end itself moves to the desk and returns. A face that cannot
//!   move stays, and is *lent*: its ends are used from there by agents beside them ([`Loan`]).
//!
//! A granted claim stays at the desk's node while it is unused, until a claimer elsewhere wants it: repeated
//! claims of one node cost no message. A recalled desk returns the claim when its present claim ends, but may
//! claim once if it has not yet. If the node is lost, or all its handles are gone, the desk's channels end,
//! and the claim with them: its offers no longer belong to the claimer. So a claim never has two holders, and
//! none is lost.
//!
//! A handle can be sent on from there: its new channels then lead to the keeper, which gets their other ends
//! from the desk ([`Another`]). The node in between is not involved. A handle that returns home, to the
//! keeper's node, is a local handle again: the carrier knows the end by its [`Number`]. The desk's channels
//! that came along have ended when the keeper gets their other ends.
//!
//! # Source
//! A token cached until another process asks for it: the privilege of Suzuki and Kasami, *A distributed
//! mutual exclusion algorithm*, 1985, kept by one node.

use std::any::Any;
use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::Location;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use serde::{Deserialize, Deserializer, Serialize, Serializer, ser};

use super::{Claimer, Core, End, Shared};
use crate::agent::{Inlet, Lone, LoneOutlet, Outlet, join_with};
use crate::call::{Callee, Caller};
use crate::channel::policy::{Policy, fifo, rendezvous};
use crate::channel::queue::Retires;
use crate::channel::receiver::Receiver;
use crate::channel::sender::Sender;
use crate::channel::{MayPoison, ends};
use crate::error::{RecvError, SendError, Why};
use crate::handle::Handle;
use crate::line::{Line, Polled, Wish};
use crate::lock::Lock;
use crate::portable::Portable;
use crate::portable::carrier::{Agent, AnyShared, CarriedEnd, Chore, EndKind, Several, SharedEnd, lending};
use crate::sync::{AtomicBool, Ordering};

/// A message from the desk. Of the first two kinds at most two are ever in transit.
#[derive(Serialize, Deserialize)]
#[serde(bound = "E: Lend")]
enum Ask<E: Lend> {
    /// A handle there would claim the end.
    Claim,
    /// Returns the claim, and the end, if it moved.
    Return(Option<E>),
    /// A handle was sent on from there.
    Another(Another<E>),
    /// The claimer of the channel's receiver retires the channel.
    Retire,
}

/// The keeper's ends of the channels of a handle that was sent on.
#[derive(Serialize, Deserialize)]
#[serde(bound = "E: Lend")]
struct Another<E: Lend> {
    lone: E::Other,
    asked: Receiver<Ask<E>>,
    says: Sender<Word<E>>,
}

/// A message from the keeper.
#[derive(Serialize, Deserialize)]
#[serde(bound = "E: Lend")]
enum Word<E: Lend> {
    /// The claim, and with it the end of a face.
    Granted(Option<E>),
    /// Another claimer wants it.
    Recall,
    /// The first message: these channels lead here, without the node by which the handle came.
    Welcome,
    /// The channel is retired, as requested.
    Retired,
    /// The claim of a face that cannot move: its ends are used from there.
    Lent(Loan<E>),
    /// They cannot be used from there either, so there is no claim.
    Refused(String),
}

/// A face that stays with its keeper and is used by the holder of its claim.
enum Loan<E: Lend> {
    /// The keeper's value: the claim is out while this is referenced, and each agent of the other value
    /// references it.
    Lent(Arc<Lent<E>>),
    /// The claimer's value, which is dropped with its claim.
    Borrowed(E),
}

impl<E: Lend> Serialize for Loan<E> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        /// Restores the end, also if it cannot be written.
        struct Kept<'a, E: Lend>(&'a Core<E>, Option<E>);
        impl<E: Lend> Drop for Kept<'_, E> {
            fn drop(&mut self) {
                *self.0.end.lock() = self.1.take();
            }
        }
        let Self::Lent(lent) = self else { return Err(ser::Error::custom("what is borrowed does not go on")) };
        let end = lent.core.end.lock().take();
        let kept = Kept(&lent.core, end);
        let Some(end) = &kept.1 else { return Err(ser::Error::custom("it is not here")) };
        lending(lent.clone(), || end.serialize(serializer))
    }
}

impl<'de, E: Lend> Deserialize<'de> for Loan<E> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        E::deserialize(deserializer).map(Self::Borrowed)
    }
}

/// How many messages fit into a desk's channels, so that sending one never waits.
const WORDS: usize = 4;

/// The policy of the keeper's messages. Those about a face go one by one, each until it has arrived: a face
/// that cannot be sent returns to its keeper, with the reason.
fn words<E: Lend>() -> Policy {
    if E::KIND == EndKind::Shared { rendezvous() } else { fifo(WORDS) }
}

/// An end whose handles can be sent to other nodes: any portable end.
pub trait Lend: End<Link: Send + Sync> + Portable {
    /// The carrier's kind of the handles.
    #[doc(hidden)]
    const KIND: EndKind = EndKind::Shared;

    /// The keeper's end of the channel for lone operations of a remote handle. A face has none: `()`.
    #[doc(hidden)]
    type Other: Portable;

    /// The agent for lone operations of a remote handle.
    #[doc(hidden)]
    fn lone(handle: Shared<Self>) -> Option<Agent>;

    /// A new channel for lone operations: the agent for the handle that is sent on, and the keeper's end.
    #[doc(hidden)]
    fn another() -> (Option<Agent>, Self::Other);

    /// Carries the lone operations of a remote handle.
    #[doc(hidden)]
    fn carry(handle: Shared<Self>, lone: Self::Other) -> Option<Chore>;

    /// The parts of a handle that came from elsewhere: the end, except for a face; and the agent for its lone
    /// operations.
    #[doc(hidden)]
    fn adopt() -> (Option<Self>, Self::Link, Option<Agent>);

    /// For an adopted end: it is retired at its keeper, because values buffered there can still be received;
    /// this desk requests that.
    #[doc(hidden)]
    fn retires_by(_link: &Self::Link, _desk: Desk) {}

    /// For an adopted end: it is retired at its keeper now, or its desk is gone.
    #[doc(hidden)]
    fn has_retired(_link: &Self::Link) {}

    /// At the keeper: a remote handle that holds the claim retires the channel.
    #[doc(hidden)]
    fn retire(_link: &Self::Link) {}
}

/// Retires an end that is kept elsewhere.
#[doc(hidden)]
pub struct Desk(Arc<Line>);

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Desk").finish()
    }
}

impl<T: Portable, P: 'static> Lend for Sender<T, P> {
    const KIND: EndKind = EndKind::SharedSender;
    type Other = Receiver<T>;

    fn lone(handle: Shared<Self>) -> Option<Agent> {
        Some(Agent::Inlet(Inlet::lone(handle).into()))
    }

    fn another() -> (Option<Agent>, Receiver<T>) {
        let (there, here) = ends::<T, MayPoison, MayPoison>(&rendezvous(), Location::caller());
        (Some(Agent::Inlet(Inlet::new(there).into())), here)
    }

    fn carry(handle: Shared<Self>, lone: Receiver<T>) -> Option<Chore> {
        Some(Box::pin(join_with(Outlet::new(lone), Inlet::lone(handle))))
    }

    fn adopt() -> (Option<Self>, Self::Link, Option<Agent>) {
        let (here, there) = ends::<T, P, MayPoison>(&rendezvous(), Location::caller());
        let link = here.link();
        (Some(here), link, Some(Agent::Outlet(Outlet::new(there).into())))
    }

    fn retire(link: &Self::Link) {
        link.retire();
    }
}

impl<T: Portable, P: 'static> Lend for Receiver<T, P> {
    const KIND: EndKind = EndKind::SharedReceiver;
    type Other = Sender<T>;

    fn lone(handle: Shared<Self>) -> Option<Agent> {
        Some(Agent::Outlet(LoneOutlet::new(handle).into()))
    }

    fn another() -> (Option<Agent>, Sender<T>) {
        let (here, there) = ends::<T, MayPoison, MayPoison>(&rendezvous(), Location::caller());
        (Some(Agent::Outlet(Outlet::new(there).into())), here)
    }

    fn carry(handle: Shared<Self>, lone: Sender<T>) -> Option<Chore> {
        Some(Box::pin(join_with(LoneOutlet::new(handle), Inlet::new(lone))))
    }

    fn adopt() -> (Option<Self>, Self::Link, Option<Agent>) {
        let (there, here) = ends::<T, MayPoison, P>(&rendezvous(), Location::caller());
        let link = here.link();
        (Some(here), link, Some(Agent::Inlet(Inlet::new(there).into())))
    }

    fn retires_by(link: &Self::Link, Desk(line): Desk) {
        link.with_queue(|queue, _, _| queue.retires = Retires::ByDesk(line));
    }

    fn has_retired(link: &Self::Link) {
        link.with_queue(|queue, _, after| queue.has_retired(after));
    }

    fn retire(link: &Self::Link) {
        link.retire();
    }
}

impl<Q: Portable, A: Portable> Lend for Caller<Q, A> {
    const KIND: EndKind = EndKind::SharedSender;
    type Other = Callee<Q, A>;

    fn lone(handle: Shared<Self>) -> Option<Agent> {
        let (chan, lone) = Lone::of(handle);
        Some(Agent::Inlet(Inlet::lone_of(chan, lone).into()))
    }

    fn another() -> (Option<Agent>, Callee<Q, A>) {
        let (agent, asked) = <Sender<_> as Lend>::another();
        (agent, Callee::over(asked))
    }

    fn carry(handle: Shared<Self>, lone: Callee<Q, A>) -> Option<Chore> {
        let (chan, handle) = Lone::of(handle);
        Some(Box::pin(join_with(Outlet::new(lone.into_inner()), Inlet::lone_of(chan, handle))))
    }

    fn adopt() -> (Option<Self>, Self::Link, Option<Agent>) {
        let (here, link, agent) = Sender::adopt();
        (here.map(Self::over), link, agent)
    }

    fn retire(link: &Self::Link) {
        link.retire();
    }
}

impl<E: Lend> Shared<E> {
    /// This handle moves elsewhere: makes the agents that stand here for it.
    pub(crate) fn into_agents(self) -> Several {
        let (asks, asked) = ends::<Ask<E>, MayPoison, MayPoison>(&fifo(WORDS), Location::caller());
        let (says, words) = ends::<Word<E>, MayPoison, MayPoison>(&words::<E>(), Location::caller());
        let several = |lone: Option<Agent>, chore| {
            let mut agents: Vec<Agent> = lone.into_iter().collect();
            agents.push(Agent::Inlet(Inlet::new(asks).into()));
            agents.push(Agent::Outlet(Outlet::new(words).into()));
            Several { agents, chore }
        };
        if self.core.is_far {
            let (agent, lone) = E::another();
            let another: Box<dyn Any + Send> = Box::new(Another::<E> { lone, asked, says });
            // Done once the carrier knows these channels: it could not write their other ends into a message
            // before. Until then this handle stays.
            return several(agent, Box::pin(async move { self.core.line.pass_on(another) }));
        }
        let keeper = Keeper::new(&self);
        several(E::lone(self), keeper.run(asked, says))
    }

    /// A handle of an end that another node keeps.
    pub(crate) fn adopt() -> (Self, Several) {
        let (asks, asked) = ends::<Ask<E>, MayPoison, MayPoison>(&rendezvous(), Location::caller());
        let (says, words) = ends::<Word<E>, MayPoison, MayPoison>(&words::<E>(), Location::caller());
        let (end, link, lone) = E::adopt();
        let mut agents: Vec<Agent> = lone.into_iter().collect();
        agents.push(Agent::Outlet(Outlet::new(asked).into()));
        agents.push(Agent::Inlet(Inlet::new(says).into()));
        let core = Arc::new(Core {
            end: Lock::new(end),
            link,
            line: Arc::new(Line::far()),
            made: Location::caller(),
            is_far: true,
            number: Number::default(),
        });
        E::retires_by(&core.link, Desk(core.line.clone()));
        let chore: Chore = Box::pin(desk(core.clone(), asks, words));
        (Self::handle(core), Several { agents, chore })
    }
}

/// The number by which nodes know an end that has handles elsewhere.
#[derive(Default)]
pub(super) struct Number {
    number: OnceLock<u128>,
    /// The end is kept on this node too, where the handle was read as another type.
    is_here: OnceLock<()>,
    /// The carrier that brought the first handle here: the desk uses its channels to the keeper, also to
    /// report handles that are sent on.
    carrier: OnceLock<u64>,
}

impl<E: Lend> AnyShared for Core<E> {
    fn number(&self, new: &mut dyn FnMut() -> u128) -> u128 {
        *self.number.number.get_or_init(new)
    }

    fn is_here(&self) -> bool {
        !self.is_far
    }

    fn handle(self: Arc<Self>, token: u64) -> CarriedEnd {
        CarriedEnd::new(token, Shared::handle(self))
    }
}

impl<E: Lend> Shared<E> {
    pub(crate) fn shared_end(&self) -> SharedEnd {
        SharedEnd::new(self.core.clone())
    }

    /// Sets the number of an adopted handle.
    pub(crate) fn has_number(&self, number: u128, is_here: bool) {
        let _ = self.core.number.number.set(number);
        if is_here {
            let _ = self.core.number.is_here.set(());
        }
    }

    /// Whether its keeper is at this node, although it has a desk.
    pub(crate) fn is_kept_beside(&self) -> bool {
        self.core.number.is_here.get().is_some()
    }

    /// Sets the carrier of an adopted handle.
    pub(crate) fn brought_by(&self, carrier: u64) {
        let _ = self.core.number.carrier.set(carrier);
    }

    /// The only carrier that can take it on. `None`: any can.
    pub(crate) fn carrier(&self) -> Option<u64> {
        self.core.number.carrier.get().copied()
    }
}

/// A claim that is out for remote handles. Dropping it returns the claim.
struct Lent<E: Lend> {
    core: Arc<Core<E>>,
    /// The end moved with the claim.
    moved: AtomicBool,
}

impl<E: Lend> Lent<E> {
    fn set_moved(&self, moved: bool) {
        self.moved.store(moved, Ordering::Relaxed);
    }

    /// The end has returned.
    fn put_back(&self, end: E) {
        let other = self.core.end.lock().replace(end);
        self.set_moved(false);
        drop(other);
    }
}

impl<E: Lend> Drop for Lent<E> {
    fn drop(&mut self) {
        if self.moved.load(Ordering::Relaxed) {
            // The end is lost with the node that had it.
            self.core.line.lose();
        }
        E::hold_back(&self.core.link, false, Claimer(Handle::END));
        self.core.line.release();
    }
}

/// A place in the line; dropping it leaves the line.
struct Place<'a> {
    line: &'a Arc<Line>,
    ticket: Option<u64>,
}

impl Place<'_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self.line.poll(&mut self.ticket, cx.waker(), || true) {
            Polled::Given => Poll::Ready(()),
            // A local line refuses no claimer.
            Polled::Waits | Polled::Refused(_) => Poll::Pending,
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.line.leave(ticket);
        }
    }
}

/// Serves the handles at another node, and those that were sent on from there.
struct Keeper<E: Lend> {
    core: Arc<Core<E>>,
    /// The handle that acts here for them.
    claimer: Claimer,
    /// The chores of handles that were sent on, not yet run.
    new: Arc<Lock<Vec<Chore>>>,
}

impl<E: Lend> Keeper<E> {
    fn new(handle: &Shared<E>) -> Self {
        Self { core: handle.core.clone(), claimer: Claimer(handle.number()), new: Arc::default() }
    }

    /// Runs until all remote handles that came by this one are gone.
    fn run(self, asked: Receiver<Ask<E>>, says: Sender<Word<E>>) -> Chore {
        let new = self.new.clone();
        let mut chores: Vec<Chore> = vec![Box::pin(keep(self, asked, says))];
        Box::pin(poll_fn(move |cx| {
            chores.retain_mut(|chore| chore.as_mut().poll(cx).is_pending());
            loop {
                let mut more = std::mem::take(&mut *new.lock());
                if more.is_empty() {
                    break;
                }
                more.retain_mut(|chore| chore.as_mut().poll(cx).is_pending());
                chores.append(&mut more);
            }
            if chores.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        }))
    }

    /// A handle was sent on from there.
    fn another(&self, another: Another<E>) {
        let Another { lone, asked, says } = another;
        let handle = Shared::handle(self.core.clone());
        let keeper = Self { claimer: Claimer(handle.number()), ..self.clone() };
        let mut new = self.new.lock();
        new.push(Box::pin(keep(keeper, asked, says)));
        new.extend(E::carry(handle, lone));
    }

    /// The desk's next message about the claim.
    async fn hear(
        &self,
        asked: &mut Receiver<Ask<E>>,
        says: Option<&mut Sender<Word<E>>>,
    ) -> Result<Ask<E>, RecvError> {
        let mut says = says;
        loop {
            match asked.recv().await? {
                Ask::Another(another) => self.another(another),
                Ask::Retire => {
                    E::retire(&self.core.link);
                    if let Some(says) = &mut says {
                        says.send_nowait(Word::Retired).detach();
                    }
                }
                said => return Ok(said),
            }
        }
    }
}

impl<E: Lend> Clone for Keeper<E> {
    fn clone(&self) -> Self {
        Self { core: self.core.clone(), claimer: self.claimer, new: self.new.clone() }
    }
}

/// Serves the handles at another node, until the last message of the desk there.
async fn keep<E: Lend>(keeper: Keeper<E>, mut asked: Receiver<Ask<E>>, says: Sender<Word<E>>) {
    lend(&keeper, &mut asked, says).await;
    // Before it left, the desk may have reported a handle that was sent on.
    while keeper.hear(&mut asked, None).await.is_ok() {}
}

/// Claims the end for the handles at another node, until the desk there is gone.
async fn lend<E: Lend>(keeper: &Keeper<E>, asked: &mut Receiver<Ask<E>>, mut says: Sender<Word<E>>) {
    let Keeper { core, claimer, .. } = keeper;
    let claimer = *claimer;
    says.send_nowait(Word::Welcome).detach();
    // A message received while one was being sent.
    let mut heard = None;
    loop {
        match hear(keeper, asked, &mut says, &mut heard).await {
            Ok(Ask::Claim) => {}
            // Returned without a grant: no honest desk does that.
            Ok(Ask::Return(_) | Ask::Another(_) | Ask::Retire) => continue,
            Err(()) => return,
        }
        let Some(lent) = claim_for(core, claimer, asked).await else { return };
        let lent = Arc::new(lent);
        match grant(keeper, &lent, asked, &mut says, &mut heard).await {
            Granted::Is => {}
            Granted::Refused(why) => {
                drop(lent);
                says.send_nowait(Word::Refused(why)).detach();
                continue;
            }
            Granted::Gone => return,
        }
        let back = match heard.take() {
            Some(back) => back,
            None => match until_wanted(keeper, asked, &mut says).await {
                Some(back) => back,
                // At most one recall per grant: the desk remembers it.
                None => {
                    // If the desk has left, it has sent the return before.
                    says.send_nowait(Word::Recall).detach();
                    keeper.hear(asked, Some(&mut says)).await.map_err(|_| ())
                }
            },
        };
        match back {
            Ok(Ask::Return(end)) => {
                if let Some(end) = end {
                    lent.put_back(end);
                }
                drop(lent);
            }
            // The desk asks for a claim that it has: no honest desk does that.
            Ok(Ask::Claim | Ask::Another(_) | Ask::Retire) | Err(()) => return,
        }
    }
}

/// The message that the desk sent while one was sent to it, or its next one.
async fn hear<E: Lend>(
    keeper: &Keeper<E>,
    asked: &mut Receiver<Ask<E>>,
    says: &mut Sender<Word<E>>,
    heard: &mut Option<Result<Ask<E>, ()>>,
) -> Result<Ask<E>, ()> {
    match heard.take() {
        Some(heard) => heard,
        None => keeper.hear(asked, Some(says)).await.map_err(|_| ()),
    }
}

/// The outcome of granting a claim.
enum Granted {
    Is,
    /// The face can neither move there nor be used from there.
    Refused(String),
    /// The desk is gone.
    Gone,
}

/// Grants the claim to the desk. A face moves there, or if it cannot, is lent. Otherwise it is here again.
async fn grant<E: Lend>(
    keeper: &Keeper<E>,
    lent: &Arc<Lent<E>>,
    asked: &mut Receiver<Ask<E>>,
    says: &mut Sender<Word<E>>,
    heard: &mut Option<Result<Ask<E>, ()>>,
) -> Granted {
    let end = if E::KIND == EndKind::Shared { keeper.core.end.lock().take() } else { None };
    lent.set_moved(end.is_some());
    match say(keeper, asked, says, Word::Granted(end), heard).await {
        Ok(()) => return Granted::Is,
        Err(SendError::NotTaken { value: Word::Granted(Some(end)), why }) => {
            lent.put_back(end);
            match why {
                Why::Unsendable(_) => {}
                Why::TooLarge { .. } => return Granted::Refused(why.to_string()),
                _ => return Granted::Gone,
            }
        }
        Err(_) => return Granted::Gone,
    }
    // It may belong to another application that this program has joined.
    match say(keeper, asked, says, Word::Lent(Loan::Lent(lent.clone())), heard).await {
        Ok(()) => Granted::Is,
        Err(SendError::NotTaken { why: why @ (Why::Unsendable(_) | Why::TooLarge { .. }), .. }) => {
            Granted::Refused(why.to_string())
        }
        Err(_) => Granted::Gone,
    }
}

/// Sends a message, which may have to wait for its receive. Receives meanwhile, because the desk may not
/// receive before its own message has been received.
async fn say<E: Lend>(
    keeper: &Keeper<E>,
    asked: &mut Receiver<Ask<E>>,
    says: &mut Sender<Word<E>>,
    word: Word<E>,
    heard: &mut Option<Result<Ask<E>, ()>>,
) -> Result<(), SendError<Word<E>>> {
    let mut said = pin!(says.send(word));
    let mut hearing = pin!(keeper.hear(asked, None));
    poll_fn(|cx| {
        if let Poll::Ready(said) = said.as_mut().poll(cx) {
            return Poll::Ready(said);
        }
        if heard.is_none()
            && let Poll::Ready(next) = hearing.as_mut().poll(cx)
        {
            *heard = Some(next.map_err(|_| ()));
        }
        Poll::Pending
    })
    .await
}

/// `None`: the desk is gone.
async fn claim_for<E: Lend>(core: &Arc<Core<E>>, claimer: Claimer, asked: &mut Receiver<Ask<E>>) -> Option<Lent<E>> {
    let mut place = Place { line: &core.line, ticket: None };
    let mut gone = pin!(asked.closed());
    let claimed = poll_fn(|cx| {
        if core.line.is_lost() {
            return Poll::Ready(false);
        }
        match place.poll(cx) {
            Poll::Ready(()) => Poll::Ready(true),
            Poll::Pending => gone.as_mut().poll(cx).map(|()| false),
        }
    })
    .await;
    if !claimed {
        return None;
    }
    E::hold_back(&core.link, true, claimer);
    Some(Lent { core: core.clone(), moved: AtomicBool::new(false) })
}

/// `None` when another claimer wants the end. Otherwise the desk's message before that.
async fn until_wanted<E: Lend>(
    keeper: &Keeper<E>,
    asked: &mut Receiver<Ask<E>>,
    says: &mut Sender<Word<E>>,
) -> Option<Result<Ask<E>, ()>> {
    let mut said = pin!(keeper.hear(asked, Some(says)));
    poll_fn(|cx| {
        if let Poll::Ready(said) = said.as_mut().poll(cx) {
            return Poll::Ready(Some(said.map_err(|_| ())));
        }
        keeper.core.line.poll_wanted(keeper.claimer.0, cx).map(|()| None)
    })
    .await
}

/// Runs beside the handles of an end that another node keeps: asks for the claim and returns it.
async fn desk<E: Lend>(core: Arc<Core<E>>, mut asks: Sender<Ask<E>>, mut words: Receiver<Word<E>>) {
    // When this ends, no claim can be granted here any more.
    struct Over<'a, E: Lend>(&'a Core<E>);
    impl<E: Lend> Drop for Over<'_, E> {
        fn drop(&mut self) {
            self.0.line.lose();
            E::has_retired(&self.0.link);
        }
    }
    let _over = Over::<E>(&core);
    let line = &core.line;
    // The face that is used here stays with its keeper.
    let mut is_lent = false;
    let mut word = Box::pin(words.recv());
    loop {
        let next = poll_fn(|cx| {
            if let Poll::Ready(word) = word.as_mut().poll(cx) {
                return Poll::Ready(Next::Heard(word.ok()));
            }
            line.poll_wish(cx).map(Next::Wish)
        })
        .await;
        let said = match next {
            Next::Heard(Some(heard)) => {
                match heard {
                    Word::Granted(end) => {
                        if let Some(end) = end {
                            let other = core.end.lock().replace(end);
                            drop(other);
                        }
                        is_lent = false;
                        line.granted();
                    }
                    Word::Lent(Loan::Borrowed(end)) => {
                        let other = core.end.lock().replace(end);
                        drop(other);
                        is_lent = true;
                        line.granted();
                    }
                    Word::Lent(Loan::Lent(_)) => unreachable!("what was read is borrowed"),
                    Word::Refused(why) => line.refused(&why.into()),
                    Word::Recall => line.recalled(),
                    Word::Welcome => line.welcomed(),
                    Word::Retired => E::has_retired(&core.link),
                }
                drop(word);
                word = Box::pin(words.recv());
                continue;
            }
            Next::Heard(None) => return,
            Next::Wish(Wish::PassOn(another)) => match another.downcast::<Another<E>>() {
                Ok(another) => Ask::Another(*another),
                Err(_) => unreachable!("handles of this end only are passed on here"),
            },
            Next::Wish(Wish::Retire) => Ask::Retire,
            Next::Wish(Wish::Ask) => Ask::Claim,
            Next::Wish(Wish::Return) => Ask::Return(end_of(&core, is_lent)),
            Next::Wish(Wish::Leave(has_claim)) => {
                if has_claim {
                    let _ = asks.send(Ask::Return(end_of(&core, is_lent))).await;
                }
                return;
            }
        };
        if asks.send(said).await.is_err() {
            return;
        }
    }
}

enum Next<E: Lend> {
    Heard(Option<Word<E>>),
    Wish(Wish),
}

/// The end of a face, which returns with its claim. A lent one is dropped.
fn end_of<E: Lend>(core: &Core<E>, is_lent: bool) -> Option<E> {
    let end = if E::KIND == EndKind::Shared { core.end.lock().take() } else { None };
    end.filter(|_| !is_lent)
}
