//! What a mailbox shares with its addresses: what has arrived since the receiver looked, and who waits.

use std::collections::VecDeque;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Waker;

use dunlin_core::__rt::{keep, wake_all};
use dunlin_sorted::SortedMap;
#[cfg(feature = "net")]
use tokio::sync::oneshot;

use super::super::core::{Core, Exits};
use super::super::down::Down;
use super::super::exit::Exit;
use super::super::signal::Link;
use super::super::watch::Roused;
use super::bound::{Bound, Packed};
#[cfg(feature = "net")]
use super::came::{Came, Exported};
use super::error::PostError;
use crate::lock::lock;
#[cfg(feature = "net")]
use crate::node::mailboxes::OpenAt;

/// A message, or something that becomes one.
pub(super) enum Entry<M> {
    Post(M),
    Notice(Box<Notice<M>>),
    /// A post from another node.
    #[cfg(feature = "net")]
    Far(Box<Came<M>>),
}

impl<M> Entry<M> {
    pub(super) fn is_post(&self) -> bool {
        !matches!(self, Self::Notice(_))
    }
}

/// An exit or a down. It becomes a message when the receiver looks at it: the conversion is users' code, and
/// does not run in the process that ends.
pub(super) struct Notice<M> {
    validity: Validity,
    form: Form<M>,
}

/// What can still withdraw a notice.
enum Validity {
    /// An exit without a link.
    Always,
    Link(Link),
    Monitor(Arc<AtomicBool>),
}

enum Form<M> {
    Exit(Exit, fn(Exit) -> M),
    Down(Down, fn(Down) -> M),
    Message(M),
}

impl<M> Notice<M> {
    /// The message; `None` if its link or monitor has ended.
    pub(super) fn message(&mut self) -> Option<&M> {
        let is_valid = match &self.validity {
            Validity::Always => true,
            Validity::Link(link) => Core::current().is_some_and(|core| core.counts(*link)),
            Validity::Monitor(alive) => alive.load(Ordering::Acquire),
        };
        if !is_valid {
            return None;
        }
        // Cloned, so that a conversion that panics leaves the notice as it was.
        match &self.form {
            Form::Exit(exit, convert) => self.form = Form::Message(convert(exit.clone().received())),
            Form::Down(down, convert) => self.form = Form::Message(convert(down.clone())),
            Form::Message(_) => {}
        }
        match &self.form {
            Form::Message(message) => Some(message),
            _ => None,
        }
    }

    /// The message is received. `None`: it was not looked at before.
    pub(super) fn received(self) -> Option<M> {
        if let (Validity::Link(link), Some(core)) = (&self.validity, Core::current()) {
            core.consume(*link);
        }
        match self.form {
            Form::Message(message) => Some(message),
            _ => None,
        }
    }
}

/// What a mailbox shares with its addresses. (Many processes have a mailbox that holds nothing: what few of
/// them need is in a box.)
pub(super) struct Shared<M> {
    /// Unique while the program runs.
    pub(super) number: u64,
    bound: Packed,
    pub(super) made: &'static Location<'static>,
    inbox: Mutex<Inbox<M>>,
}

struct Inbox<M> {
    /// What has arrived since the receiver looked; `None`: the mailbox is closed.
    entries: Option<VecDeque<Entry<M>>>,
    receiver: Option<Waker>,
    rare: Option<Box<Rare>>,
}

/// What a mailbox has that is bounded, or known to other nodes.
#[derive(Default)]
struct Rare {
    /// In a bounded mailbox: how many posts have not been received, those in the receiver's list included.
    posts: usize,
    /// How many of them are in the receiver's list.
    at_receiver: usize,
    /// How many posts of the receiver's list, the oldest, have lost their places to later ones.
    pushed_out: usize,
    offers: Offers,
    #[cfg(feature = "net")]
    exported: Option<Exported>,
}

/// The operations that wait for room, in the order of their first polls.
#[derive(Default)]
struct Offers {
    next: u64,
    waiting: SortedMap<u64, Waker>,
}

/// The place of an operation that waits for room.
pub(super) type Ticket = u64;

impl<M> Shared<M> {
    pub(super) fn new(bound: Bound, made: &'static Location<'static>) -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);

        let inbox = Inbox { entries: Some(VecDeque::new()), receiver: None, rare: None };
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self { number, bound: bound.into(), made, inbox: Mutex::new(inbox) })
    }

    pub(super) fn bound(&self) -> Bound {
        self.bound.into()
    }

    pub(super) fn is_closed(&self) -> bool {
        lock(&self.inbox).is_closed()
    }

    pub(super) fn post(&self, message: M) -> Result<(), PostError<M>> {
        let mut inbox = lock(&self.inbox);
        if inbox.is_closed() {
            return Err(PostError::Closed(message));
        }
        let Ok((dropped, _)) = inbox.make_room(self.bound) else { return Err(PostError::Full(message)) };
        inbox.add(Entry::Post(message));
        let receiver = inbox.receiver.take();
        drop(inbox);
        receiver.into_iter().for_each(Waker::wake);
        drop(dropped);
        Ok(())
    }

    /// Sends the message in `slot` if there is room for it and for all earlier operations. Otherwise, `None`,
    /// keeps the waker under the ticket.
    pub(super) fn offer(
        &self,
        slot: &mut Option<M>,
        ticket: &mut Option<Ticket>,
        waker: &Waker,
    ) -> Option<Result<(), PostError<M>>> {
        let Bound::Reject(max) = self.bound() else { return Some(slot.take().map_or(Ok(()), |m| self.post(m))) };
        let mut inbox = lock(&self.inbox);
        let is_closed = inbox.is_closed();
        let rare = inbox.rare();
        let room = max.get().saturating_sub(rare.posts);
        let offers = &mut rare.offers;
        let own = ticket.unwrap_or(offers.next);
        if offers.waiting.range(..own).take(room).count() >= room && !is_closed {
            offers.next = offers.next.max(own + 1);
            *ticket = Some(own);
            let old = offers.waiting.insert(own, keep(waker));
            drop(inbox);
            drop(old);
            return None;
        }
        let old = ticket.take().and_then(|_| offers.waiting.remove(&own));
        let posted = match slot.take() {
            Some(message) if is_closed => Err(PostError::Closed(message)),
            Some(message) => {
                rare.posts += 1;
                inbox.add(Entry::Post(message));
                Ok(())
            }
            None => Ok(()),
        };
        let receiver = if posted.is_ok() { inbox.receiver.take() } else { None };
        drop(inbox);
        drop(old);
        receiver.into_iter().for_each(Waker::wake);
        Some(posted)
    }

    /// An operation no longer waits for room. If there is room, the next one is woken.
    pub(super) fn leave(&self, ticket: Option<Ticket>) {
        let Some(ticket) = ticket else { return };
        let mut inbox = lock(&self.inbox);
        let own = inbox.rare().offers.waiting.remove(&ticket);
        let woken = self.woken(&inbox);
        drop(inbox);
        drop(own);
        wake_all(woken);
    }

    /// The operations for which there is room. They keep their places until they have used it.
    fn woken(&self, inbox: &Inbox<M>) -> Vec<Waker> {
        let (Bound::Reject(max), Some(rare)) = (self.bound(), &inbox.rare) else { return Vec::new() };
        let room = if inbox.is_closed() { usize::MAX } else { max.get().saturating_sub(rare.posts) };
        rare.offers.waiting.values().take(room).map(keep).collect()
    }

    /// A post of the receiver's list is received. `rank`: how many older posts are in the list.
    #[inline(always)]
    pub(super) fn received(&self, rank: impl FnOnce() -> usize) {
        if !self.bound.is_unbounded() {
            self.give_up_place(rank);
        }
    }

    #[inline(never)]
    fn give_up_place(&self, rank: impl FnOnce() -> usize) {
        let mut inbox = lock(&self.inbox);
        let rare = inbox.rare();
        if rare.pushed_out > 0 && rank() < rare.pushed_out {
            // It had lost its place since the receiver looked, and was not counted any more.
            rare.pushed_out -= 1;
            return;
        }
        rare.posts -= 1;
        rare.at_receiver -= 1;
        let woken = self.woken(&inbox);
        drop(inbox);
        wake_all(woken);
    }

    /// How many of the oldest posts in the receiver's list have lost their places since the last call.
    pub(super) fn take_pushed_out(&self) -> usize {
        if self.bound.is_unbounded() {
            return 0;
        }
        lock(&self.inbox).rare.as_mut().map_or(0, |rare| std::mem::take(&mut rare.pushed_out))
    }

    /// Moves what has arrived into the receiver's list. `false`: nothing has, and the waker is kept.
    pub(super) fn take_arrived(&self, list: &mut VecDeque<Entry<M>>, waker: Option<&Waker>) -> bool {
        let mut inbox = lock(&self.inbox);
        let Inbox { entries, receiver, rare } = &mut *inbox;
        let Some(entries) = entries.as_mut().filter(|entries| !entries.is_empty()) else {
            let old = match waker {
                Some(waker) if receiver.as_ref().is_some_and(|kept| kept.will_wake(waker)) => None,
                Some(waker) => receiver.replace(keep(waker)),
                None => None,
            };
            drop(inbox);
            drop(old);
            return false;
        };
        if !self.bound.is_unbounded() {
            let posts = entries.iter().filter(|entry| entry.is_post()).count();
            rare.get_or_insert_default().at_receiver += posts;
        }
        if list.is_empty() {
            std::mem::swap(list, entries);
        } else {
            list.append(entries);
        }
        true
    }

    /// The receiver no longer waits.
    pub(super) fn forget_receiver(&self) {
        let waker = lock(&self.inbox).receiver.take();
        drop(waker);
    }

    /// The mailbox is dropped: from now on sends fail, and the operations that wait for room end.
    pub(super) fn close(&self) {
        let mut inbox = lock(&self.inbox);
        let dropped = (inbox.entries.take(), inbox.receiver.take());
        let woken = self.woken(&inbox);
        #[cfg(feature = "net")]
        let closing = inbox.exported().map(|exported| exported.close());
        drop(inbox);
        #[cfg(feature = "net")]
        if let Some(closing) = closing {
            closing.notify(self.number);
        }
        wake_all(woken);
        drop(dropped);
    }

    /// Adds a message from another node, and wakes no receiver. Returns what is dropped for it, and whether
    /// the mailbox was full.
    #[cfg(feature = "net")]
    pub(super) fn deliver_entry(&self, entry: Entry<M>) -> (Option<Entry<M>>, bool) {
        let mut inbox = lock(&self.inbox);
        if inbox.is_closed() {
            return (Some(entry), false);
        }
        let Ok((dropped, was_full)) = inbox.make_room(self.bound) else { return (Some(entry), true) };
        inbox.add(entry);
        (dropped, was_full)
    }

    #[cfg(feature = "net")]
    pub(super) fn take_receiver(&self) -> Option<Waker> {
        lock(&self.inbox).receiver.take()
    }

    /// The random bits with which other nodes know the mailbox.
    #[cfg(feature = "net")]
    pub(super) fn bits(&self) -> u64 {
        lock(&self.inbox).export().bits
    }

    /// Those bits, if other nodes may know the mailbox.
    #[cfg(feature = "net")]
    pub(super) fn known_bits(&self) -> Option<u64> {
        lock(&self.inbox).exported().map(|exported| exported.bits)
    }

    /// The mailbox is open to others at this node. If it is closed already, that ends at once.
    #[cfg(feature = "net")]
    pub(super) fn is_open_at(&self, node: OpenAt) {
        let mut inbox = lock(&self.inbox);
        let is_closed = inbox.is_closed();
        let exported = inbox.export();
        if !exported.nodes.iter().any(|known| known.is(&node)) {
            exported.nodes.push(node);
        }
        let closing = is_closed.then(|| exported.close());
        drop(inbox);
        if let Some(closing) = closing {
            closing.notify(self.number);
        }
    }

    /// Dropped when the mailbox is.
    #[cfg(feature = "net")]
    pub(super) fn when_closed(&self) -> oneshot::Receiver<()> {
        let (ends, ended) = oneshot::channel();
        let mut inbox = lock(&self.inbox);
        if !inbox.is_closed() {
            inbox.export().ends.push(ends);
        }
        ended
    }

    /// Adds an exit or a down, which is not bounded. Returns what is to be woken.
    fn notice(&self, notice: Box<Notice<M>>) -> Result<Roused, Box<Notice<M>>> {
        let mut inbox = lock(&self.inbox);
        if inbox.is_closed() {
            return Err(notice);
        }
        inbox.add(Entry::Notice(notice));
        Ok(Roused::of(inbox.receiver.take()))
    }
}

impl<M> Inbox<M> {
    fn is_closed(&self) -> bool {
        self.entries.is_none()
    }

    /// Adds an entry to a mailbox that is not closed.
    fn add(&mut self, entry: Entry<M>) {
        if let Some(entries) = &mut self.entries {
            entries.push_back(entry);
        }
    }

    fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    /// Counts one more post. Returns what is dropped for it, and whether the mailbox was full; `Err`: it
    /// rejects the post.
    #[inline]
    fn make_room(&mut self, bound: Packed) -> Result<(Option<Entry<M>>, bool), Full> {
        if bound.is_unbounded() { Ok((None, false)) } else { self.make_room_within(bound.into()) }
    }

    fn make_room_within(&mut self, bound: Bound) -> Result<(Option<Entry<M>>, bool), Full> {
        let posts = &mut self.rare().posts;
        match bound {
            Bound::Reject(max) if *posts >= max.get() => return Err(Full),
            Bound::DropOldest(max) if *posts >= max.get() => return Ok((self.push_out(), true)),
            Bound::Unbounded | Bound::Reject(_) | Bound::DropOldest(_) => *posts += 1,
        }
        Ok((None, false))
    }

    /// Makes room for one post: the oldest loses its place. Those in the receiver's list are older.
    fn push_out(&mut self) -> Option<Entry<M>> {
        let rare = self.rare();
        if rare.at_receiver > 0 {
            rare.at_receiver -= 1;
            rare.pushed_out += 1;
            return None;
        }
        let entries = self.entries.as_mut()?;
        let oldest = entries.iter().position(Entry::is_post)?;
        entries.remove(oldest)
    }

    /// How other nodes know the mailbox, if they may.
    #[cfg(feature = "net")]
    fn exported(&mut self) -> Option<&mut Exported> {
        self.rare.as_mut()?.exported.as_mut()
    }

    /// How other nodes know the mailbox, from now on.
    #[cfg(feature = "net")]
    fn export(&mut self) -> &mut Exported {
        self.rare().exported.get_or_insert_with(Exported::new)
    }
}

/// A mailbox has no room for a post.
struct Full;

/// A mailbox as monitors and links know it.
pub(crate) struct Notices<M>(pub(super) Arc<Shared<M>>);

impl<M> Notices<M> {
    /// Adds the down of a monitor that may still end.
    pub(in super::super) fn down(&self, down: Down, convert: fn(Down) -> M, alive: Arc<AtomicBool>) -> Roused {
        let form = Form::Down(down, convert);
        // A mailbox that has been dropped receives nothing.
        self.0.notice(Box::new(Notice { validity: Validity::Monitor(alive), form })).unwrap_or(Roused::Nothing)
    }
}

/// The mailbox that receives the exits of a process.
pub(super) struct ExitsInto<M> {
    pub(super) shared: Arc<Shared<M>>,
    pub(super) convert: fn(Exit) -> M,
}

impl<M: Send> Exits for ExitsInto<M> {
    fn receive(&self, exit: Exit, link: Option<Link>) -> Result<Roused, Exit> {
        let validity = link.map_or(Validity::Always, Validity::Link);
        let notice = Box::new(Notice { validity, form: Form::Exit(exit, self.convert) });
        self.shared.notice(notice).map_err(|notice| match notice.form {
            Form::Exit(exit, _) => exit,
            Form::Down(down, _) => down.exit,
            Form::Message(_) => unreachable!("an exit that was refused has not been looked at"),
        })
    }
}
