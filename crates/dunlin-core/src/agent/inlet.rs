//! The agent in the place of a sender, for values without their type.

use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use super::{FarChan, FromReceiver, Lone, Missing, Names, PassedOn};
use crate::channel::erased::Erased;
use crate::channel::queue::events::Heard;
use crate::clock::{self, be_patient};
use crate::error::Reason;
use crate::handle::Handle;
use crate::waits::ChannelId;

/// An [`Inlet`](super::Inlet) for values of any type, which it takes and gives without their type. Its
/// methods without values are those of the inlet.
pub struct RawInlet {
    chan: Arc<dyn FarChan>,
    /// If set, it stands in for one handle of a shared sender.
    lone: Option<Box<Lone>>,
}

impl RawInlet {
    pub(crate) fn new(chan: Arc<dyn FarChan>) -> Self {
        chan.any().add_agent(|queue, after| {
            #[cfg(feature = "link")]
            queue.unlink(after);
            #[cfg(not(feature = "link"))]
            let _ = after;
            queue.inlet = Some(Heard::new());
        });
        Self { chan, lone: None }
    }

    #[cfg(feature = "serde")]
    pub(crate) fn of_coming(chan: Arc<dyn FarChan>) -> Self {
        let inlet = Self::new(chan);
        inlet.chan.any().with_queue(|queue, _, _| queue.comes());
        inlet
    }

    pub(crate) fn lone_of(chan: Arc<dyn FarChan>, lone: Lone) -> Self {
        chan.any().add_agent(|queue, after| queue.add_lone_inlet(lone.handle, after));
        Self { chan, lone: Some(Box::new(lone)) }
    }

    #[cfg(feature = "link")]
    pub(crate) fn chan(&self) -> &Arc<dyn FarChan> {
        &self.chan
    }

    #[cfg(feature = "link")]
    pub(crate) fn is_lone(&self) -> bool {
        self.lone.is_some()
    }

    fn of(&self) -> Handle {
        self.lone.as_ref().map_or(Handle::END, |lone| lone.handle)
    }

    /// Records that a lone operation elsewhere waits here, or no longer waits.
    fn waits(&self, number: u64, is_new: bool) {
        let Some(lone) = &self.lone else { return };
        if !is_new {
            return lone.ended(number);
        }
        lone.began(number);
    }

    /// The channel at whose half this agent stands, as in the wait records; for a [lone](Self::lone) inlet,
    /// the handle.
    pub fn channel(&self) -> ChannelId {
        self.lone.as_ref().map_or_else(|| self.chan.any().record.id(), |lone| lone.id)
    }

    /// The name of the offer under this number, for an outlet of the same channel that
    /// [forwards](RawOutlet::passed_on) it.
    pub fn passes_on(&self, number: u64) -> PassedOn {
        PassedOn { channel: self.chan.any().record.id(), of: self.of(), number }
    }

    /// The next event of the receiver's half.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<FromReceiver<Erased>> {
        let of = self.of();
        let event = self.chan.any().with_queue(|queue, _, after| {
            if let Some(event) = queue.next_for_inlet(of) {
                return Poll::Ready(event);
            }
            if let Some(inlet) = queue.inlet_of(of) {
                after.stale.store(&mut inlet.waker, cx.waker());
            }
            Poll::Pending
        });
        if let Poll::Ready(
            FromReceiver::Taken(number)
            | FromReceiver::Held(number)
            | FromReceiver::Failed(number, ..)
            | FromReceiver::Withdrawn(number, _)
            | FromReceiver::Lost(number, ..),
        ) = &event
        {
            self.waits(*number, false);
        }
        if let (Some(lone), Poll::Ready(FromReceiver::Retired | FromReceiver::Poisoned(_))) = (&self.lone, &event) {
            lone.is_over();
        }
        event
    }

    /// Ready once [`FromReceiver::Gone`] or [`FromReceiver::Down`] is among the events of the receiver's
    /// half; [`poll`](Self::poll) still returns them all. Until then each new event wakes the task.
    pub fn poll_gone(&self, cx: &Context<'_>) -> Poll<()> {
        let of = self.of();
        self.chan.any().with_queue(|queue, _, after| {
            let Some(inlet) = queue.inlet_of(of) else { return Poll::Pending };
            if inlet.events.iter().any(|event| matches!(event, FromReceiver::Gone | FromReceiver::Down)) {
                return Poll::Ready(());
            }
            after.stale.store(&mut inlet.waker, cx.waker());
            Poll::Pending
        })
    }

    /// Ready if the receiver's half has an [event](Self::poll). Otherwise the next event, or a place to
    /// promise, wakes the task.
    pub fn poll_stirs(&self, cx: &Context<'_>) -> Poll<()> {
        let of = self.of();
        self.chan.any().with_queue(|queue, _, after| {
            let Some(inlet) = queue.inlet_of(of) else { return Poll::Pending };
            if !inlet.events.is_empty() {
                return Poll::Ready(());
            }
            after.stale.store(&mut inlet.waker, cx.waker());
            Poll::Pending
        })
    }

    /// How many places the sender's half may be given now
    /// ([`Outlet::credit`](crate::agent::RawOutlet::credit)). They belong to it from this call on, and more
    /// follow as [`FromReceiver::Credit`]. A FIFO of n gives those of the n that are free, at most 1024; an
    /// unbounded buffer gives 1024; every other policy none, ever.
    ///
    /// An agent that never calls this gets no places, and offers every value.
    pub fn credits(&self) -> u32 {
        if self.lone.is_some() {
            return 0;
        }
        self.chan.any().with_queue(|queue, _, after| queue.lend(&mut after.wakes))
    }

    /// Like [`credits`](Self::credits), for a new sender's half, which has none of the places promised to its
    /// predecessor. No value sent into those may still be on its way.
    ///
    /// `promised`: how many unused places it was promised where the receiver was before. It gets no fewer.
    pub fn credits_anew(&self, promised: u32) -> u32 {
        if self.lone.is_some() {
            return 0;
        }
        self.chan.any().with_queue(|queue, _, after| queue.lend_anew(promised, &mut after.wakes))
    }

    /// Limits the promised places from now on to `places`, less the values buffered at that time: fewer than
    /// the policy has, if its values are large. Places promised before stay, and at least one always remains.
    /// The default is as many as the policy has.
    pub fn lend_at_most(&self, places: u32) {
        self.chan.any().with_queue(|queue, _, after| queue.lend_at_most(places, &mut after.wakes));
    }

    /// Puts a value that was sent on a credit ([`Event::Sent`]) into the place promised for it. If the
    /// channel was poisoned or the receiver was dropped, the value is destroyed, like those buffered before.
    /// Returns how many values are then buffered.
    ///
    /// # Errors
    /// The value, if the sender's half had no credit left or has already announced that it sends nothing more
    /// ([`retire`](Self::retire)): the peer violates the protocol.
    pub(crate) fn push(&self, value: Erased) -> Result<usize, Erased> {
        self.chan.any().with_queue(|queue, _, after| queue.push_from_far(value, after))
    }

    /// How many values are buffered. When half of the number at the last [`push`](Self::push) has been
    /// received, [`FromReceiver::Credit`] follows, possibly with 0 places.
    pub fn buffered(&self) -> usize {
        self.chan.any().with_queue(|queue, _, _| queue.buffered())
    }

    /// Requests one [`FromReceiver::Awaited`]: at once if a receive waits, otherwise as soon as one does. For
    /// a carrier with a value that arrives only once it is received.
    pub fn ask_awaited(&self) {
        let of = self.of();
        self.chan.any().with_queue(|queue, _, after| queue.ask_awaited(of, after));
    }

    /// Puts a value that was buffered at the receiver's previous half into the buffer, behind those restored
    /// before. The carrier must call this before everything else.
    pub(crate) fn restore(&self, value: Erased) {
        self.chan.any().with_queue(|queue, _, after| queue.restore(value, after));
    }

    /// Offers a value under a number of the agent's choice. [`FromReceiver::Taken`] or
    /// [`FromReceiver::Failed`] answers.
    pub(crate) fn offer(&self, number: u64, value: Erased) {
        self.waits(number, true);
        let of = self.of();
        self.chan
            .any()
            .with_queue(|queue, ends, after| queue.offer_from_far(of, number, Some(value), None, ends, after));
    }

    /// Offers a value that stays where it was sent until a receiver for it is found. A handle of a shared
    /// receiver elsewhere can have the offer as it is ([`LoneOutlet::reserve_unread`]), and read the value
    /// there. A receiver here, or through this half, requests it ([`FromReceiver::Reserve`]): then the
    /// carrier reads the value and [supplies](Self::bring) it.
    pub fn offer_unread(&self, number: u64) {
        self.waits(number, true);
        let of = self.of();
        self.chan.any().with_queue(|queue, ends, after| queue.offer_from_far(of, number, None, None, ends, after));
    }

    /// Supplies the value of an [unread](Self::offer_unread) offer, which keeps its place.
    ///
    /// # Errors
    /// The value, if the offer does not stand here: a handle elsewhere has it, or it has ended.
    pub(crate) fn bring(&self, number: u64, value: Erased) -> Result<(), Erased> {
        let of = self.of();
        self.chan.any().with_queue(|queue, _, after| queue.bring(of, number, value, after))
    }

    /// Sets the names by which the outlet behind this inlet knows its offers.
    pub(super) fn comes_from(&self, names: Names) {
        let of = self.of();
        self.chan.any().with_queue(|queue, _, _| queue.has_names(of, names));
    }

    /// Whether it was made for a receiver that has come from elsewhere and does not yet know the values sent
    /// before.
    #[cfg(feature = "serde")]
    pub(crate) fn is_of_coming(&self) -> bool {
        self.chan.any().with_queue(|queue, _, _| queue.is_coming())
    }

    /// Whether handles of a shared receiver elsewhere may receive offers from here.
    pub fn is_demanded(&self) -> bool {
        self.chan.any().with_queue(|queue, _, _| queue.is_demanded())
    }

    /// Offers a value of the choice with the number `choice`; [`FromReceiver::Reserve`] requests the value.
    pub fn offer_choice(&self, number: u64, choice: u128) {
        self.waits(number, true);
        let of = self.of();
        self.chan
            .any()
            .with_queue(|queue, ends, after| queue.offer_from_far(of, number, None, Some(choice), ends, after));
    }

    /// Supplies the requested value.
    ///
    /// # Errors
    /// The value, if no receiver requests it any more.
    pub(crate) fn grant(&self, number: u64, request: u64, value: Erased) -> Result<(), Erased> {
        let tick = clock::tick();
        let be_patient_now = self.chan.any().with_queue(|queue, _, after| {
            queue.grant(self.of(), number, request, value, tick, after)?;
            Ok(queue.has_grants() && !std::mem::replace(&mut queue.patient, true))
        })?;
        self.be_patient(be_patient_now);
        Ok(())
    }

    /// Grants a request with a value that [stays](Self::offer_unread) where it is. `false`: the requester
    /// needs the value here, or has given up. The carrier reads the value here and then [grants](Self::grant)
    /// it.
    #[must_use = "`false`: the value is wanted here"]
    pub fn grant_unread(&self, number: u64, request: u64) -> bool {
        let tick = clock::tick();
        let (granted, be_patient_now) = self.chan.any().with_queue(|queue, _, after| {
            let granted = queue.grant_unread(self.of(), number, request, tick, after);
            (granted, granted && !std::mem::replace(&mut queue.patient, true))
        });
        self.be_patient(be_patient_now);
        granted
    }

    /// Whether this request for the offer still waits for its value.
    pub(super) fn is_asked(&self, number: u64, request: u64) -> bool {
        self.chan.any().with_queue(|queue, _, _| queue.is_asked(self.of(), number, request))
    }

    fn be_patient(&self, now: bool) {
        if now {
            let patient: Weak<dyn FarChan> = Arc::downgrade(&self.chan);
            be_patient(patient);
        }
    }

    /// Withdraws an offer. `Some`: it had not been taken; the value, if it had come. `None`: an event reports
    /// the outcome, now or later.
    pub(crate) fn withdraw(&self, number: u64) -> Option<Option<Erased>> {
        let withdrawn = self.chan.any().with_queue(|queue, _, after| queue.withdraw_from_far(self.of(), number, after));
        if withdrawn.is_some() {
            self.waits(number, false);
        }
        withdrawn
    }

    /// Reports that the sender's node is lost for good. Its offers are withdrawn; receives get the values
    /// admitted before, and then fail with [`RecvError::NodeLost`](crate::RecvError::NodeLost).
    pub(crate) fn down(self) {
        self.lose();
    }

    /// Reports that the receiver's own node is leaving: [`down`](Self::down) follows, and receives fail with
    /// [`RecvError::OwnNodeLeft`](crate::RecvError::OwnNodeLeft).
    pub fn own_node_leaves(&self) {
        if self.lone.is_none() {
            self.chan.any().with_queue(|queue, _, _| queue.own_node_leaves());
        }
    }

    /// Reports that the other end is not connected yet. Until this is `None` again, a receive whose deadline
    /// passes fails with [`RecvError::Unmatched`](crate::RecvError::Unmatched) and the [text](Missing::text)
    /// of `missing`.
    pub fn unmatched(&self, missing: Option<Arc<dyn Missing>>) {
        self.chan.any().set_unmatched(missing);
    }

    pub(super) fn lose(&self) {
        match &self.lone {
            None => self.chan.any().with_queue(|queue, ends, after| queue.lose_sender(ends, after)),
            Some(lone) => {
                drop(self.chan.any().with_queue(|queue, _, after| queue.remove_lone_inlet(lone.handle, true, after)));
            }
        }
    }

    /// Requests the return of a reservation; [`FromReceiver::Abort`] answers, unless the value has been
    /// taken.
    pub fn revoke(&self, number: u64) {
        self.chan.any().with_queue(|queue, _, after| queue.revoke(self.of(), number, after));
    }

    /// Requests notice of the channel's end, for a [waiting](Event::Watched) task at the sender's half.
    pub fn watch_end(&self) {
        self.chan.any().with_queue(|queue, _, after| queue.watch_end(after));
    }

    /// Retires the channel, which was retired elsewhere, or whose retirement here has reached the sender's
    /// half. No value sent on credits follows.
    pub fn retire(&self) {
        if self.lone.is_none() {
            self.chan.any().with_queue(|queue, _, after| queue.end_lending(after));
        }
        self.chan.any().retire();
    }

    /// Poisons the channel, which was poisoned elsewhere. The channel may be immune to poison of less than
    /// full strength; otherwise [`FromReceiver::Poisoned`] answers.
    pub fn poison(&self, reason: Reason) {
        self.chan.any().poison(reason);
    }
}

impl Drop for RawInlet {
    fn drop(&mut self) {
        // Its unread events may hold values, which are dropped without the channel's lock.
        if let Some(lone) = &self.lone {
            // The handle in it is dropped after this.
            return drop(
                self.chan.any().with_queue(|queue, _, after| queue.remove_lone_inlet(lone.handle, false, after)),
            );
        }
        let unheard = self.chan.any().with_queue(|queue, _, after| {
            queue.end_lending(after);
            queue.drop_choices_from_far(Handle::END, after);
            queue.inlet.take()
        });
        self.chan.any().sender_gone();
        drop(unheard);
    }
}
