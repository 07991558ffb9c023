//! Shared ends whose handles are at several nodes.
//!
//! The end stays where it was shared: that node *keeps* it. A handle that is sent elsewhere becomes, there, a shared end of its own, whose
//! - lone operations go through an agent that stands in the channel's queue here as one more handle ([`Inlet::lone`](crate::agent::Inlet),
//!   [`LoneOutlet`]);
//! - claims are asked for at a *desk*, by two channels of a few words. Here a *keeper* stands in the line for it. Granted, that handle acts here as if it held the
//!   end; of a face, which has no lone operations, the end itself goes along and comes back.
//!
//! A claim that has been granted stays there when nobody uses it, until somebody elsewhere wants it: repeated claims of one node cost no message. Who is told to give it
//! back does so when its present claim ends, but may claim once if it has not yet. If the node is lost, or all its handles are gone, the desk's channels end, and the
//! claim with them: what it offered is not the claimer's any more. So no claim is ever held by two, and none is lost.
//!
//! A handle can be sent on from there in the same way: who has it then claims from the node in between, which claims from here.
//!
//! # Source
//! Caching a token until somebody else asks, along a tree: Raymond, *A tree-based algorithm for distributed mutual exclusion*, 1989.

use std::future::{Future, poll_fn};
use std::panic::Location;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use serde::{Deserialize, Serialize};

use super::line::{Line, Wish};
use super::{Claimer, Core, End, Shared};
use crate::agent::{Inlet, LoneOutlet, Outlet};
use crate::call::Caller;
use crate::channel::policy::{fifo, rendezvous};
use crate::channel::queue::Handle;
use crate::channel::receiver::Receiver;
use crate::channel::sender::Sender;
use crate::channel::{MayPoison, ends};
use crate::lock::Lock;
use crate::portable::Portable;
use crate::portable::carrier::{Agent, Chore, EndKind, Several};

/// What the desk says. At most two of them are ever on their way.
#[derive(Serialize, Deserialize)]
#[serde(bound = "E: Portable")]
enum Ask<E> {
    /// Somebody there would claim the end.
    Claim,
    /// The claim goes back, and with it the end, if that went along.
    Return(Option<E>),
}

/// What the keeper says.
#[derive(Serialize, Deserialize)]
#[serde(bound = "E: Portable")]
enum Word<E> {
    /// The claim, and with it the end of a face.
    Granted(Option<E>),
    /// Somebody else wants it.
    Recall,
}

/// How many words fit into a desk's channels, so that saying one needs no waiting.
const WORDS: usize = 4;

/// An end whose handles can go to other nodes: any that can go itself.
pub trait Lend: End<Link: Send + Sync> + Portable {
    /// What the handles are, as the carrier calls it.
    #[doc(hidden)]
    const KIND: EndKind = EndKind::Shared;

    /// The agent for lone operations of a handle that is elsewhere. A face has none.
    #[doc(hidden)]
    fn lone(_handle: Shared<Self>) -> Option<Agent> {
        None
    }

    /// What a handle that came from elsewhere is made of: the end, of a face without one; and the agent for its lone operations.
    #[doc(hidden)]
    fn adopt() -> (Option<Self>, Self::Link, Option<Agent>);
}

impl<T: Portable, P: 'static> Lend for Sender<T, P> {
    const KIND: EndKind = EndKind::SharedSender;

    fn lone(handle: Shared<Self>) -> Option<Agent> {
        Some(Agent::Inlet(Inlet::lone(handle).into()))
    }

    fn adopt() -> (Option<Self>, Self::Link, Option<Agent>) {
        let (here, there) = ends::<T, P, MayPoison>(&rendezvous(), Location::caller());
        let link = here.link();
        (Some(here), link, Some(Agent::Outlet(Outlet::new(there).into())))
    }
}

impl<T: Portable, P: 'static> Lend for Receiver<T, P> {
    const KIND: EndKind = EndKind::SharedReceiver;

    fn lone(handle: Shared<Self>) -> Option<Agent> {
        Some(Agent::Outlet(LoneOutlet::new(handle).into()))
    }

    fn adopt() -> (Option<Self>, Self::Link, Option<Agent>) {
        let (there, here) = ends::<T, MayPoison, P>(&rendezvous(), Location::caller());
        let link = here.link();
        (Some(here), link, Some(Agent::Inlet(Inlet::new(there).into())))
    }
}

impl<Q: Portable, A: Portable> Lend for Caller<Q, A> {
    const KIND: EndKind = EndKind::SharedSender;

    fn lone(handle: Shared<Self>) -> Option<Agent> {
        let (chan, lone) = handle.into_lone();
        Some(Agent::Inlet(Inlet::lone_of(chan, lone).into()))
    }

    fn adopt() -> (Option<Self>, Self::Link, Option<Agent>) {
        let (here, link, agent) = Sender::adopt();
        (here.map(Self::over), link, agent)
    }
}

impl<E: Lend> Shared<E> {
    /// This handle goes elsewhere: what stands here for it.
    pub(crate) fn into_agents(self) -> Several {
        let (asks, asked) = ends::<Ask<E>, MayPoison, MayPoison>(&fifo(WORDS), Location::caller());
        let (says, words) = ends::<Word<E>, MayPoison, MayPoison>(&fifo(WORDS), Location::caller());
        let (core, claimer) = (self.core.clone(), Claimer(self.number()));
        let mut agents: Vec<Agent> = E::lone(self).into_iter().collect();
        agents.push(Agent::Inlet(Inlet::new(asks).into()));
        agents.push(Agent::Outlet(Outlet::new(words).into()));
        Several { agents, chore: Box::pin(keep(core, claimer, asked, says)) }
    }

    /// A handle of an end that another node keeps.
    pub(crate) fn adopt() -> (Self, Several) {
        let (asks, asked) = ends::<Ask<E>, MayPoison, MayPoison>(&rendezvous(), Location::caller());
        let (says, words) = ends::<Word<E>, MayPoison, MayPoison>(&fifo(WORDS), Location::caller());
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
        });
        let chore: Chore = Box::pin(desk(core.clone(), asks, words));
        (Self::handle(core), Several { agents, chore })
    }
}

/// A claim that is out for handles elsewhere. Dropped, it is back.
struct Lent<E: Lend> {
    core: Arc<Core<E>>,
    /// The end went along.
    moved: bool,
}

impl<E: Lend> Drop for Lent<E> {
    fn drop(&mut self) {
        if self.moved {
            // It is lost with the node that had it.
            self.core.line.lose();
        }
        E::hold_back(&self.core.link, false, Claimer(Handle::END));
        self.core.line.release();
    }
}

/// A place in the line; dropped, it is given up.
struct Place<'a> {
    line: &'a Arc<Line>,
    ticket: Option<u64>,
}

impl Place<'_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.line.poll(&mut self.ticket, cx.waker(), || true) { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.line.leave(ticket);
        }
    }
}

/// Where the end is kept: claims it for handles that are at another node.
async fn keep<E: Lend>(core: Arc<Core<E>>, claimer: Claimer, mut asked: Receiver<Ask<E>>, mut says: Sender<Word<E>>) {
    loop {
        match asked.recv().await {
            Ok(Ask::Claim) => {}
            // Returned without having been given: no honest desk does.
            Ok(Ask::Return(_)) => continue,
            Err(_) => return,
        }
        let Some(mut lent) = claim_for(&core, claimer, &mut asked).await else { return };
        let end = if E::KIND == EndKind::Shared { core.end.lock().take() } else { None };
        lent.moved = end.is_some();
        if says.send(Word::Granted(end)).await.is_err() {
            return;
        }
        let back = {
            // Asked back at most once: the desk remembers.
            if let Some(back) = until_wanted(&core.line, claimer, &mut asked).await {
                back
            } else if says.send(Word::Recall).await.is_ok() {
                asked.recv().await.map_err(|_| ())
            } else {
                return;
            }
        };
        match back {
            Ok(Ask::Return(end)) => {
                if let Some(end) = end {
                    let other = core.end.lock().replace(end);
                    lent.moved = false;
                    drop(other);
                }
                drop(lent);
            }
            // It has the claim and asks for it: no honest desk does.
            Ok(Ask::Claim) | Err(()) => return,
        }
    }
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
    Some(Lent { core: core.clone(), moved: false })
}

/// Until somebody else wants what is claimed: `None`. Else what the desk said before.
async fn until_wanted<E: Lend>(
    line: &Arc<Line>,
    claimer: Claimer,
    asked: &mut Receiver<Ask<E>>,
) -> Option<Result<Ask<E>, ()>> {
    let mut asked = pin!(asked.recv());
    poll_fn(|cx| {
        if let Poll::Ready(said) = asked.as_mut().poll(cx) {
            return Poll::Ready(Some(said.map_err(|_| ())));
        }
        line.poll_wanted(claimer.0, cx).map(|()| None)
    })
    .await
}

/// Where handles of an end are that another node keeps: asks for the claim and gives it back.
async fn desk<E: Lend>(core: Arc<Core<E>>, mut asks: Sender<Ask<E>>, mut words: Receiver<Word<E>>) {
    // However this ends, nothing can be claimed here any more.
    struct Over<'a>(&'a Line);
    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.lose();
        }
    }
    let line = core.line.clone();
    let _over = Over(&line);
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
                        line.granted();
                    }
                    Word::Recall => line.recalled(),
                }
                drop(word);
                word = Box::pin(words.recv());
                continue;
            }
            Next::Heard(None) => return,
            Next::Wish(Wish::Ask) => Ask::Claim,
            Next::Wish(Wish::Return) => Ask::Return(end_of(&core)),
            Next::Wish(Wish::Leave(has_claim)) => {
                if has_claim {
                    let _ = asks.send(Ask::Return(end_of(&core))).await;
                }
                return;
            }
        };
        if asks.send(said).await.is_err() {
            return;
        }
    }
}

enum Next<E> {
    Heard(Option<Word<E>>),
    Wish(Wish),
}

/// The end of a face, which goes back with its claim.
fn end_of<E: Lend>(core: &Core<E>) -> Option<E> {
    if E::KIND == EndKind::Shared { core.end.lock().take() } else { None }
}
