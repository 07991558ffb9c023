//! Agents: how a channel extends over something that is not memory.
//!
//! A channel whose ends are apart is two halves. The half at the sender has an [`Outlet`] in place of its
//! receiver; the half at the receiver has an [`Inlet`] in place of its sender. Each is just another party at
//! the same queue, so a channel without agents pays nothing for them. The carrier of the messages (the crate
//! `dunlin`'s nodes, or [`join`] within memory) polls both and answers:
//!
//! ```text
//!   sender's half                                          receiver's half
//!   Outlet::credit       ◀── Inlet::credits, Credit ──
//!   Sent(value)                    ── value ──▶            Inlet::push
//!   FirmOffer(ticket, value)       ── offer ──▶            Inlet::offer
//!   ChoiceOffer(ticket, id)        ── offer, no value ──▶  Inlet::offer_choice
//!   Outlet::reserve      ◀── Reserve ──      value ──▶     Inlet::grant; it may go back: Outlet::give_back
//!     (Later: kept until Unlocked(ticket), unless AskedBack(ticket) comes first.
//!     Gone: ── refuse ──▶ Inlet::withdraw, unanswered.)
//!   Outlet::held         ◀── Held ──
//!   Outlet::taken        ◀── Taken, Released ──
//!   Outlet::give_back    ◀── Abort ──
//!   Outlet::failed       ◀── Failed ──
//!   AskedBack(ticket)              ── withdraw ──▶         Inlet::withdraw: Outlet::withdrawn, or too late
//!   Revoke(ticket)                 ── revoke ──▶           Inlet::revoke
//!   Outlet::retire, Outlet::gone    ◀── Retired, Gone ──
//!   Retired                        ── retire ──▶           Inlet::retire
//!   Poisoned, Outlet::poison    ◀── poison ──▶             Poisoned, Inlet::poison
//!     (Only poison of full strength. The receiver's half decides about the rest: it knows the immunity.)
//!   Gone                           ── gone ──▶             the inlet is dropped, and then the outlet
//! ```
//!
//! Each side's messages arrive in the order in which it sent them.
//!
//! The policy, the bounds and the buffer are those of the receiver's half. Section 3 of `docs/choice.md`
//! defines the protocol.
//!
//! # Credits
//!
//! A send into a FIFO of n or an unbounded buffer costs no round trip. The receiver's half promises places
//! (*credits*), which count as taken there from then on. At the sender's half a send with a credit is
//! complete at once; a send without one waits there, and no message for it crosses. So granted and buffered
//! places together never exceed n, and both ends behave like those of a buffer in one memory:
//! - *retire*, from either end, keeps the values that were sent. If the receiver retires, receives wait for
//!   values on their way until the sender's half has answered
//!   ([`Inlet::retire`](crate::agent::RawInlet::retire)). Until then the receiver's half promises places for
//!   sends that have waited there since before;
//! - *poison*, from either end, destroys buffered values and those on their way;
//! - an extended receive keeps its place until the release.
//!
//! All other policies, and a bound on pending senders, decide on a value when it arrives: no places are
//! promised.
//!
//! # Values
//!
//! A carrier over a network owns the value of [`Event::FirmOffer`] and of [`Reserved::Granted`]. It encodes
//! the value by reference and keeps it under the ticket until it learns the outcome:
//!
//! | message | call at the sender's half | the value |
//! |---|---|---|
//! | `Taken`, `Released` | [`Outlet::taken`](crate::agent::RawOutlet::taken) | is dropped |
//! | `Held` | [`Outlet::held`](crate::agent::RawOutlet::held); `Released` follows | is dropped |
//! | `Failed` | [`Outlet::failed`] | is returned; `None` if it never left |
//! | an answer to a withdrawal: not taken | [`Outlet::withdrawn`] | is returned; `None` if it never left |
//! | `Abort` | [`Outlet::give_back`] | is returned |
//! | none, and the node is lost | [`Outlet::lost`] | is returned |
//!
//! At the receiver's half the values in `Failed`, in `Abort` and from [`Inlet::withdraw`] are copies, which
//! are dropped. When two answers cross (an `Abort` and a withdrawal), the first has the value and the second
//! has none. [`Outlet::failed`] returns a value that cannot be encoded. [`Event::Sent`] has no answer: a
//! carrier drops the value once it is encoded.
//!
//! # The end
//!
//! - *The sender is dropped.* Its forgotten offers stand (as in one memory) and are carried, with credits for
//!   them; the answers about its dropped offers are awaited. So after [`Event::Gone`] or [`Event::Lost`] no
//!   ticket is open and no message is outstanding: the event goes to the receiver's half, behind all others,
//!   and both agents are dropped.
//! - *The receiver is dropped.* [`FromReceiver::Gone`], or [`FromReceiver::Down`], is not the last event:
//!   offers on their way fail when they arrive, and their values come back. The carrier calls
//!   [`Outlet::gone`](crate::agent::RawOutlet::gone). [`Event::Retired`] answers, unless the channel was
//!   retired before, and no offer follows it. Both agents are dropped when that answer has reached the
//!   receiver's half and that half's events until then have come back, or at [`Event::Gone`].
//! - *A node is lost for good.* At the sender's half: [`Outlet::lost`] for every value that is kept, then
//!   [`Outlet::down`]. At the receiver's: [`Inlet::down`].

mod inlet;
mod joint;
mod lone;
mod outlet;
mod ticket;

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use crate::call::{Callee, Caller};
pub(crate) use crate::channel::elsewhere::Names;
pub use crate::channel::elsewhere::{Missing, PassedOn};
use crate::channel::erased::Erased;
pub use crate::channel::queue::events::{FromReceiver, Given, Reserved};
use crate::channel::receiver::Receiver;
use crate::channel::sender::Sender;
pub(crate) use crate::channel::state::FarChan;
use crate::channel::state::{AnyChan, Chan};
use crate::choice::decision;
use crate::error::{MessageId, Reason, Why};
use crate::handle::Handle;
use crate::reply::Reply;
use crate::share::Shared;
pub use inlet::RawInlet;
#[cfg(feature = "serde")]
pub(crate) use joint::join as join_raw;
pub(crate) use lone::Lone;
pub use lone::RawLoneOutlet;
pub use outlet::RawOutlet;

/// Makes the numbers of choices unique among several operating system processes. Of two choices that wait for
/// each other one gives way, and both must pick the same one, so their numbers have one order everywhere. The
/// high half of a number is `origin`, unique to this process (for a node: its incarnation, or 64 random
/// bits); the low half counts. A process without agents needs no origin.
///
/// It must be called before the first choice with a send over an agent, because that choice's number must not
/// change. The first origin stands.
///
/// # Errors
/// `false`: another origin was set before.
#[must_use = "another origin may stand"]
pub fn set_origin(origin: u64) -> bool {
    decision::set_origin(origin)
}

/// The name of this inlet's offer under this number. An offer from another half within this memory has its
/// name from there: only the half that carries it over the network knows the name.
fn name_of(chan: &AnyChan<'_>, far: Option<(Handle, u64)>) -> Option<PassedOn> {
    let (of, number) = far?;
    // Each name is looked up without a lock.
    match chan.with_queue(|queue, _, _| queue.names_of(of)) {
        Some(names) => names(number),
        None => Some(PassedOn { channel: chan.record.id(), of, number }),
    }
}

/// An event from the sending half to an agent. Tickets name its offers.
#[derive(Debug)]
pub enum Event<T> {
    /// This value was sent on a [credit](RawOutlet::credit): its send is complete. It has no ticket, and the
    /// agent reports nothing about it.
    Sent(T),
    /// A send offers this value. The agent now owns it and must report the outcome.
    FirmOffer(u64, T),
    /// A choice offers a value, which [reserve](Outlet::reserve) returns. The second number is the choice's,
    /// for the order in which choices give way to each other: see [`set_origin`].
    ChoiceOffer(u64, u128),
    /// The sender withdraws the offer: it timed out, was dropped, is held back by a claim, or its choice was
    /// decided.
    AskedBack(u64),
    /// A reservation that returned [`Reserved::Later`] may be tried again.
    Unlocked(u64),
    /// The reserved choice could decide for another branch.
    Revoke(u64),
    /// A task here waits for the end of the channel. The receiver may not know of an end that was not used
    /// since it arrived: from now on the end is in use.
    Watched,
    /// This half retired the channel.
    Retired,
    /// This half poisoned the channel.
    Poisoned(Reason),
    /// The sender was dropped, and all its values and offers have been reported and settled: the carrier
    /// drops both agents.
    Gone,
    /// Like `Gone`, but the sender was lost with its node before the receiver came to its present place: the
    /// carrier calls [`Inlet::down`] at the receiver's half.
    Lost,
}

impl<T> Event<T> {
    /// The same event with another value.
    pub(crate) fn map<U>(self, f: impl FnOnce(T) -> U) -> Event<U> {
        match self {
            Self::Sent(value) => Event::Sent(f(value)),
            Self::FirmOffer(ticket, value) => Event::FirmOffer(ticket, f(value)),
            Self::ChoiceOffer(ticket, choice) => Event::ChoiceOffer(ticket, choice),
            Self::AskedBack(ticket) => Event::AskedBack(ticket),
            Self::Unlocked(ticket) => Event::Unlocked(ticket),
            Self::Revoke(ticket) => Event::Revoke(ticket),
            Self::Watched => Event::Watched,
            Self::Retired => Event::Retired,
            Self::Poisoned(reason) => Event::Poisoned(reason),
            Self::Gone => Event::Gone,
            Self::Lost => Event::Lost,
        }
    }
}

/// Defines an agent for values of a type over one for values without their type.
macro_rules! agent {
    ($(#[$doc:meta])* $name:ident of $raw:ident) => {
        $(#[$doc])*
        pub struct $name<T: Send + 'static> {
            pub(crate) raw: $raw,
            values: PhantomData<fn(T) -> T>,
        }

        impl<T: Send + 'static> $name<T> {
            fn of_raw(raw: $raw) -> Self {
                Self { raw, values: PhantomData }
            }

            fn value(value: Erased) -> T {
                // SAFETY: the constructors make this agent for a channel of `T`, and only it has the agent
                // below.
                unsafe { value.into_value() }
            }
        }

        /// The methods without values.
        impl<T: Send + 'static> Deref for $name<T> {
            type Target = $raw;

            fn deref(&self) -> &$raw {
                &self.raw
            }
        }

        impl<T: Send + 'static> fmt::Debug for $name<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_tuple(stringify!($name)).field(&self.raw.channel()).finish()
            }
        }
    };
}

agent! {
    /// Stands in for the receiver at the half where the sender is.
    ///
    /// Dropping it drops the receiver; values that it took and did not hand over count as received.
    Outlet of RawOutlet
}

agent! {
    /// Stands in for one handle of a shared receiver, where the channel's queue is. To the half elsewhere it
    /// is a sender that always offers branches of a choice: a receive there reserves one, which is its
    /// demand, and gets the channel's next value. [`Outlet`] explains the calls.
    ///
    /// Dropping it drops that handle; the other handles continue.
    LoneOutlet of RawLoneOutlet
}

agent! {
    /// Stands in for the sender at the half where the receiver is.
    ///
    /// Dropping it drops the sender; its offers stay. They get no answer any more, so a carrier drops it only
    /// when nothing is left to answer: after [`Event::Gone`].
    Inlet of RawInlet
}

impl<T: Send + 'static> Outlet<T> {
    /// Takes the place of a receiver. If that has been in use, its buffered values go to the agent first: on
    /// the first [credits](Self::credit), or without credits as firm offers (their sends are complete, so a
    /// failure has no effect). From now on this half has no buffer, for that is at the other half. Standing
    /// offers follow, and then how the channel ended, if it has.
    pub fn new<P>(receiver: Receiver<T, P>) -> Self {
        let raw = RawOutlet::new(receiver.chan().clone());
        // The receiver's end lives on in this agent.
        receiver.into_outlet();
        Self::of_raw(raw)
    }

    /// Takes the buffered values that have not been reported. A carrier that moves the channel itself takes
    /// them along, and drops this agent.
    pub fn take_buffered(&self) -> Vec<T> {
        self.raw.take_buffered().into_iter().map(Self::value).collect()
    }
}

/// The methods with values of an agent in a receiver's place.
macro_rules! with_values {
    ($($name:ident)*) => { $(
        impl<T: Send + 'static> $name<T> {
            /// The next event of the sender's half.
            pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Event<T>> {
                self.raw.poll(cx).map(|event| event.map(Self::value))
            }

            /// Promises an offer of a choice to a receiver elsewhere. After [`Reserved::Granted`] no other
            /// branch of that choice can happen until [`taken`](Self::taken), [`give_back`](Self::give_back)
            /// or [`failed`](Self::failed).
            pub fn reserve(&self, ticket: u64) -> Reserved<T> {
                self.raw.reserve(ticket).map(Self::value)
            }

            /// Like [`reserve`](Self::reserve), for a carrier that can read a value [where it was
            /// sent](RawInlet::offer_unread). A carrier always uses the same one of the two.
            pub fn reserve_unread(&self, ticket: u64) -> Reserved<Given<T>> {
                self.raw.reserve_unread(ticket).map(|given| given.map(Self::value))
            }

            /// Returns a value that is not needed now; the offer stands as before.
            pub fn give_back(&self, ticket: u64, value: impl Into<Given<T>>) {
                self.raw.give_back(ticket, value.into().map(Erased::new));
            }

            /// Reports that the offer failed elsewhere. No value: it is still here, or on its way back.
            pub fn failed(&self, ticket: u64, value: Option<Given<T>>, why: Why) {
                self.raw.failed(ticket, value.map(|given| given.map(Erased::new)), why);
            }

            /// Reports that the [withdrawn](Event::AskedBack) offer has not been taken. No value: the other
            /// half had none.
            pub fn withdrawn(&self, ticket: u64, value: Option<Given<T>>) {
                self.raw.withdrawn(ticket, value.map(|given| given.map(Erased::new)));
            }

            /// Reports that the receiver's node is lost for good, and that it is unknown whether a receive
            /// there has returned this value. The send ends as
            /// [`SendError::Unknown`](crate::SendError::Unknown), and with it the choice, if the send was a
            /// branch of one.
            pub fn lost(&self, ticket: u64, value: impl Into<Given<T>>, id: MessageId) {
                self.raw.lost(ticket, value.into().map(Erased::new), id);
            }
        }
    )* };
}

with_values! { Outlet LoneOutlet }

impl<T: Send + 'static> Outlet<T> {
    /// Reports that the receiver's node is lost for good. Values that wait here, and all that are sent from
    /// now on, were certainly not taken, and fail with [`Why::NodeLost`]. Offers whose values the carrier has
    /// must have ended as [`lost`](Self::lost) before; any others count as received, as in a drop.
    pub fn down(self) {
        self.raw.down();
    }
}

impl<T: Send + 'static> LoneOutlet<T> {
    /// Takes the place of a handle.
    pub fn new<P: 'static>(handle: Shared<Receiver<T, P>>) -> Self {
        let (chan, lone) = Lone::of(handle);
        Self::of(chan, lone)
    }

    pub(crate) fn of(chan: Arc<Chan<T>>, lone: Lone) -> Self {
        Self::of_raw(RawLoneOutlet::of(chan, lone))
    }
}

impl<T: Send + 'static> Inlet<T> {
    /// Takes the place of a sender. Offers that the sender forgot stay offered. If the channel has ended,
    /// that is the first event.
    pub fn new<P>(sender: Sender<T, P>) -> Self {
        let raw = RawInlet::new(sender.chan().clone());
        // The sender's end lives on in this agent.
        sender.into_inlet();
        Self::of_raw(raw)
    }

    /// Like [`new`](Self::new), for a receiver that has come from elsewhere. Until the first
    /// [credits](Self::credits) it awaits the values sent before, even if it retires the channel meanwhile.
    #[cfg(feature = "serde")]
    pub(crate) fn of_coming<P>(sender: Sender<T, P>) -> Self {
        let raw = RawInlet::of_coming(sender.chan().clone());
        sender.into_inlet();
        Self::of_raw(raw)
    }

    /// Takes the place of one handle of a shared sender: its offers are lone sends, which are held back while
    /// a claim is out. It is promised no places, and the other handles continue after its drop.
    pub fn lone<P: 'static>(handle: Shared<Sender<T, P>>) -> Self {
        let (chan, lone) = Lone::of(handle);
        Self::lone_of(chan, lone)
    }

    pub(crate) fn lone_of(chan: Arc<Chan<T>>, lone: Lone) -> Self {
        Self::of_raw(RawInlet::lone_of(chan, lone))
    }

    /// The next event of the receiver's half.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<FromReceiver<T>> {
        self.raw.poll(cx).map(|event| event.map(Self::value))
    }

    /// Puts a value that was sent on a credit ([`Event::Sent`]) into the place promised for it. If the
    /// channel was poisoned or the receiver was dropped, the value is destroyed, like those buffered before.
    /// Returns how many values are then buffered.
    ///
    /// # Errors
    /// The value, if the sender's half had no credit left or has already announced that it sends nothing more
    /// ([`retire`](RawInlet::retire)): the peer violates the protocol.
    pub fn push(&self, value: T) -> Result<usize, T> {
        self.raw.push(Erased::new(value)).map_err(Self::value)
    }

    /// Puts a value that was buffered at the receiver's previous half into the buffer, behind those restored
    /// before. The carrier must call this before everything else.
    pub fn restore(&self, value: T) {
        self.raw.restore(Erased::new(value));
    }

    /// Offers a value under a number of the agent's choice. [`FromReceiver::Taken`] or
    /// [`FromReceiver::Failed`] answers.
    pub fn offer(&self, number: u64, value: T) {
        self.raw.offer(number, Erased::new(value));
    }

    /// Supplies the value of an [unread](RawInlet::offer_unread) offer, which keeps its place.
    ///
    /// # Errors
    /// The value, if the offer does not stand here: a handle elsewhere has it, or it has ended.
    pub fn bring(&self, number: u64, value: T) -> Result<(), T> {
        self.raw.bring(number, Erased::new(value)).map_err(Self::value)
    }

    /// Supplies the requested value.
    ///
    /// # Errors
    /// The value, if no receiver requests it any more.
    pub fn grant(&self, number: u64, request: u64, value: T) -> Result<(), T> {
        self.raw.grant(number, request, Erased::new(value)).map_err(Self::value)
    }

    /// Withdraws an offer. `Some`: it had not been taken; the value, if it had come. `None`: an event reports
    /// the outcome, now or later.
    pub fn withdraw(&self, number: u64) -> Option<Option<T>> {
        self.raw.withdraw(number).map(|value| value.map(Self::value))
    }

    /// Reports that the sender's node is lost for good. Its offers are withdrawn; receives get the values
    /// admitted before, and then fail with [`RecvError::NodeLost`](crate::RecvError::NodeLost).
    pub fn down(self) {
        self.raw.down();
    }
}

/// The ends of a call channel whose requests travel on this channel.
pub fn calls<Q, A>(requests: Sender<(Q, Reply<A>)>, asked: Receiver<(Q, Reply<A>)>) -> (Caller<Q, A>, Callee<Q, A>) {
    (Caller { requests }, Callee { asked })
}

/// Carries all messages between two halves within memory, until both are done: the second transport of the
/// laws.
///
/// # Examples
/// ```
/// use dunlin_core::agent::{Inlet, Outlet, join};
/// use dunlin_core::{channel, par};
/// # dunlin_core::doc::block_on(async {
/// let ((mut tx, rx), (ty, mut ry)) = (channel(), channel());
/// let (sent, received, ()) = par!(
///     async move { tx.send("krill").await },
///     async move { ry.recv().await },
///     join(Outlet::new(rx), Inlet::new(ty)),
/// );
/// assert_eq!((sent, received), (Ok(()), Ok("krill")));
/// # });
/// ```
pub fn join<T: Send + 'static>(outlet: Outlet<T>, inlet: Inlet<T>) -> impl Future<Output = ()> + Send {
    outlet.credit(inlet.credits());
    join_with(outlet, inlet)
}

/// Like [`join`], once the outlet has its first credits.
pub(crate) fn join_with<T: Send + 'static>(
    outlet: impl OutletOf<T>,
    inlet: Inlet<T>,
) -> impl Future<Output = ()> + Send {
    joint::join(outlet.raw(), inlet.raw)
}

/// An agent in the place of a receiver of `T`.
pub(crate) trait OutletOf<T> {
    fn raw(self) -> impl joint::SendingHalf + 'static;
}

impl<T: Send + 'static> OutletOf<T> for Outlet<T> {
    fn raw(self) -> impl joint::SendingHalf + 'static {
        self.raw
    }
}

impl<T: Send + 'static> OutletOf<T> for LoneOutlet<T> {
    fn raw(self) -> impl joint::SendingHalf + 'static {
        self.raw
    }
}

/// What the receiver of a channel lacks, where a task of the carrier holds the sender in place of ends at
/// other nodes.
#[derive(Debug)]
pub struct Lack<T>(Weak<Chan<T>>);

impl<T> Lack<T> {
    /// The lack of the receiver that belongs to this sender.
    pub fn of(sender: &Sender<T>) -> Self {
        Self(Arc::downgrade(sender.chan()))
    }

    /// Like [`Inlet::unmatched`](crate::agent::RawInlet::unmatched).
    pub fn unmatched(&self, missing: Option<Arc<dyn Missing>>) {
        if let Some(chan) = self.0.upgrade() {
            chan.set_unmatched(missing);
        }
    }
}
