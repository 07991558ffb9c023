//! Random operations against models.
//!
//! - [`exact`]: two unshared ends; every poll must have exactly the result of a small sequential model.
//! - [`counted`]: shared ends, claims, choices, futures that are dropped or forgotten; every value must have
//!   exactly one fate.
//!
//! `PROPTEST_CASES=100000 cargo test -p dunlin-core --test model` runs more cases.
#![cfg(not(loom))]

use std::cell::Cell;
use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use dunlin_core::{
    Admit, Buffering, Overflow, Policy, drop_newest, fifo, overwrite_newest, overwrite_oldest, rendezvous, unbounded,
};
use proptest::prelude::*;

/// The effect of a send when the buffer is full.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Full {
    Waits,
    DropsOldest,
    ReplacesNewest,
    DropsThis,
    Refuses,
}

#[derive(Clone)]
struct Refusing(usize);

impl Buffering for Refusing {
    fn admit(&mut self, queued: usize) -> Admit {
        if queued < self.0 { Admit::Keep } else { Admit::Refuse }
    }
}

fn policies() -> Vec<(Policy, usize, Full)> {
    let rendezvous_bounded =
        |overflow| (rendezvous().pending_senders(2, overflow).pending_receivers(1, overflow), 0, Full::Waits);
    vec![
        (rendezvous(), 0, Full::Waits),
        (fifo(1), 1, Full::Waits),
        (fifo(3), 3, Full::Waits),
        (unbounded(), usize::MAX, Full::Waits),
        (overwrite_oldest(2), 2, Full::DropsOldest),
        (overwrite_newest(2), 2, Full::ReplacesNewest),
        (drop_newest(3), 3, Full::DropsThis),
        (Refusing(2).into(), 2, Full::Refuses),
        rendezvous_bounded(Overflow::Fifo),
        rendezvous_bounded(Overflow::Lifo),
        rendezvous_bounded(Overflow::Reject),
    ]
}

/// The place of an end that no operation has.
type Home<E> = Rc<Cell<Option<E>>>;

/// An end, lent to one operation.
struct Lent<E>(Option<E>, Home<E>);

fn lend<E>(home: &Home<E>) -> Option<Lent<E>> {
    let end = home.take()?;
    Some(Lent(Some(end), home.clone()))
}

impl<E> Deref for Lent<E> {
    type Target = E;

    fn deref(&self) -> &E {
        self.0.as_ref().expect("lent")
    }
}

impl<E> DerefMut for Lent<E> {
    fn deref_mut(&mut self) -> &mut E {
        self.0.as_mut().expect("lent")
    }
}

impl<E> Drop for Lent<E> {
    fn drop(&mut self) {
        self.1.set(self.0.take());
    }
}

/// An operation that is dropped, or forgotten if `forget` is set.
struct Cut<F> {
    operation: Option<Pin<Box<F>>>,
    forget: Rc<Cell<bool>>,
}

impl<F> Cut<F> {
    fn new(operation: F, forget: &Rc<Cell<bool>>) -> Self {
        Self { operation: Some(Box::pin(operation)), forget: forget.clone() }
    }
}

impl<F: Future> Future for Cut<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let operation = self.operation.as_mut().expect("not polled after its end");
        dunlin_core::__rt::renew();
        let polled = operation.as_mut().poll(cx);
        if polled.is_ready() {
            self.operation = None;
        }
        polled
    }
}

impl<F> Drop for Cut<F> {
    fn drop(&mut self) {
        if self.forget.get() {
            std::mem::forget(self.operation.take());
        }
    }
}

type Running<T> = Pin<Box<dyn Future<Output = T>>>;

fn poll_once<T>(future: &mut Running<T>) -> Option<T> {
    dunlin_core::__rt::renew();
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

fn config(cases: u32) -> ProptestConfig {
    // `PROPTEST_CASES` overrides this number.
    let given = std::env::var("PROPTEST_CASES").is_ok();
    let config = ProptestConfig { max_shrink_iters: 20_000, failure_persistence: None, ..ProptestConfig::default() };
    if given { config } else { ProptestConfig { cases, ..config } }
}

mod exact {
    //! Two unshared ends against a sequential model: every result is known.

    use std::collections::VecDeque;

    use dunlin_core::{Receiver, RecvError, SendError, Sender, Why, channel_with};

    use super::*;

    #[derive(Clone, Copy, Debug)]
    pub(super) enum Op {
        /// Polls the send in progress, or begins a new one.
        Send,
        DropSend,
        /// Polls the receive in progress, or begins a new one: plain or extended.
        Recv(bool),
        /// Drops the receive, with its guard if it has one.
        DropRecv,
        Release,
        TrySend,
        TryRecv,
        Retire(bool),
        Poison(bool),
        DropSender,
        DropReceiver,
        Look,
    }

    pub(super) fn ops() -> impl Strategy<Value = Vec<Op>> {
        let op = prop_oneof![
            8 => Just(Op::Send),
            2 => Just(Op::DropSend),
            8 => any::<bool>().prop_map(Op::Recv),
            2 => Just(Op::DropRecv),
            3 => Just(Op::Release),
            3 => Just(Op::TrySend),
            3 => Just(Op::TryRecv),
            1 => any::<bool>().prop_map(Op::Retire),
            1 => any::<bool>().prop_map(Op::Poison),
            1 => Just(Op::DropSender),
            1 => Just(Op::DropReceiver),
            3 => Just(Op::Look),
        ];
        prop::collection::vec(op, 1..40)
    }

    #[derive(Clone, Copy, PartialEq)]
    enum Held {
        Nothing,
        Place,
        Offer(u32),
    }

    /// The channel, written as single-threaded code.
    struct Model {
        room: usize,
        full: Full,
        buffer: VecDeque<u32>,
        offer: Option<u32>,
        /// An extended receive from two plain ends occupies the slot while it holds its value: the sender's
        /// first poll after the release makes the next offer.
        waits_for_the_slot: Option<u32>,
        plain: bool,
        held: Held,
        retired: bool,
        poisoned: bool,
        no_sender: bool,
        no_receiver: bool,
    }

    impl Model {
        fn new(room: usize, full: Full, plain: bool) -> Self {
            Self {
                room,
                full,
                buffer: VecDeque::new(),
                offer: None,
                waits_for_the_slot: None,
                plain,
                held: Held::Nothing,
                retired: false,
                poisoned: false,
                no_sender: false,
                no_receiver: false,
            }
        }

        fn queued(&self) -> usize {
            self.buffer.len() + usize::from(self.held == Held::Place)
        }

        fn no_send(&self) -> Option<Why> {
            if self.poisoned {
                return Some(Why::Poisoned("model".into()));
            }
            (self.retired || self.no_receiver).then_some(Why::Closed)
        }

        /// Returns `None` if the send waits.
        fn send(&mut self, value: u32) -> Option<Result<(), Why>> {
            if let Some(why) = self.no_send() {
                return Some(Err(why));
            }
            if self.queued() < self.room {
                self.buffer.push_back(value);
                return Some(Ok(()));
            }
            match self.full {
                Full::Waits => return None,
                Full::Refuses => return Some(Err(Why::Refused)),
                Full::DropsThis => return Some(Ok(())),
                Full::DropsOldest => drop(self.buffer.pop_front()),
                Full::ReplacesNewest => drop(self.buffer.pop_back()),
            }
            self.buffer.push_back(value);
            Some(Ok(()))
        }

        /// The result of the first poll of a send.
        fn send_first(&mut self, value: u32) -> Option<Result<(), Why>> {
            let expected = self.send(value);
            if expected.is_none() && self.plain && matches!(self.held, Held::Offer(_)) {
                self.waits_for_the_slot = Some(value);
            } else if expected.is_none() {
                self.offer = Some(value);
            }
            expected
        }

        /// The result of a later poll of the send.
        fn send_again(&mut self, value: u32) -> Option<Result<(), Why>> {
            if self.waits_for_the_slot == Some(value) {
                let ended = self.no_send().map(Err);
                if ended.is_some() || !matches!(self.held, Held::Offer(_)) {
                    self.waits_for_the_slot = None;
                    self.offer = ended.is_none().then_some(value);
                }
                ended
            } else if self.held == Held::Offer(value) {
                None
            } else if self.offer == Some(value) {
                self.no_send().map(Err).inspect(|_| self.offer = None)
            } else {
                Some(Ok(()))
            }
        }

        fn refill(&mut self) {
            if self.no_send().is_none() && self.queued() < self.room {
                self.buffer.extend(self.offer.take());
            }
        }

        fn recv(&mut self, extended: bool) -> Option<Result<u32, RecvError>> {
            if self.poisoned {
                return Some(Err(RecvError::Poisoned("model".into())));
            }
            if let Some(value) = self.buffer.pop_front() {
                if extended {
                    self.held = Held::Place;
                } else {
                    self.refill();
                }
                return Some(Ok(value));
            }
            if !self.retired
                && let Some(value) = self.offer.take()
            {
                if extended {
                    self.held = Held::Offer(value);
                }
                return Some(Ok(value));
            }
            (self.retired || self.no_sender).then_some(Err(RecvError::Closed))
        }

        fn release(&mut self) {
            let held = std::mem::replace(&mut self.held, Held::Nothing);
            if held == Held::Place {
                self.refill();
            }
        }
    }

    /// A slot that reports the value left in it.
    struct Slot(Option<u32>, Rc<Cell<Option<u32>>>);

    impl Drop for Slot {
        fn drop(&mut self) {
            self.1.set(self.0);
        }
    }

    struct Sends {
        value: u32,
        future: Running<Result<(), SendError<()>>>,
        left: Rc<Cell<Option<u32>>>,
    }

    fn begin_send(home: &Home<Sender<u32>>, value: u32) -> Option<Sends> {
        let mut end = lend(home)?;
        let left = Rc::new(Cell::new(None));
        let slot = Slot(Some(value), left.clone());
        let future = Box::pin(async move {
            let mut slot = slot;
            end.send_from(&mut slot.0).await
        });
        Some(Sends { value, future, left })
    }

    struct Receives {
        future: Running<Result<u32, RecvError>>,
        extended: bool,
        /// The value that an extended receive holds.
        has: Rc<Cell<Option<u32>>>,
        release: Rc<Cell<bool>>,
    }

    fn begin_recv(home: &Home<Receiver<u32>>, extended: bool) -> Option<Receives> {
        let mut end = lend(home)?;
        let (has, release) = (Rc::new(Cell::new(None)), Rc::new(Cell::new(false)));
        let (held, released) = (has.clone(), release.clone());
        let future: Running<_> = Box::pin(async move {
            if !extended {
                return end.recv().await;
            }
            let guard = end.recv_extended().await?;
            held.set(Some(*guard));
            std::future::poll_fn(|_| if released.get() { Poll::Ready(()) } else { Poll::Pending }).await;
            Ok(guard.release())
        });
        Some(Receives { future, extended, has, release })
    }

    pub(super) fn run(which: usize, ops: Vec<Op>) {
        let (policy, room, full) = policies().swap_remove(which);
        let (tx, rx) = channel_with::<u32>(policy);
        let (tx, rx) = (Rc::new(Cell::new(Some(tx))), Rc::new(Cell::new(Some(rx))));
        let mut model = Model::new(room, full, which == 0);
        let (mut send, mut recv): (Option<Sends>, Option<Receives>) = (None, None);
        let mut next = 0;
        for op in ops {
            match op {
                Op::Send => {
                    let expected = match &send {
                        Some(running) => model.send_again(running.value),
                        None => {
                            send = begin_send(&tx, next);
                            if send.is_none() {
                                continue;
                            }
                            next += 1;
                            model.send_first(next - 1)
                        }
                    };
                    let Some(running) = &mut send else { continue };
                    let got = poll_once(&mut running.future);
                    let got = got.map(|sent| sent.map_err(|error| error.why().cloned().expect("local")));
                    assert_eq!(got, expected, "send of {}", running.value);
                    if let Some(got) = got {
                        let Some(Sends { future, left, value }) = send.take() else { continue };
                        drop(future);
                        assert_eq!(left.get(), got.is_err().then_some(value), "the slot");
                    }
                }
                Op::DropSend => {
                    let Some(Sends { value, future, left }) = send.take() else { continue };
                    drop(future);
                    let back = model.offer == Some(value) || model.waits_for_the_slot == Some(value);
                    assert_eq!(left.get(), back.then_some(value), "the slot of a dropped send");
                    if back {
                        (model.offer, model.waits_for_the_slot) = (None, None);
                    }
                }
                Op::Recv(extended) => {
                    if recv.is_none() {
                        recv = begin_recv(&rx, extended);
                    }
                    let Some(running) = &mut recv else { continue };
                    if running.has.get().is_some() {
                        continue;
                    }
                    let expected = model.recv(running.extended);
                    let got = poll_once(&mut running.future);
                    let got = got.or(running.has.get().map(Ok));
                    assert_eq!(got, expected, "receive");
                    if got.is_some() && running.has.get().is_none() {
                        recv = None;
                    }
                }
                Op::DropRecv => {
                    if recv.take().is_some_and(|running| running.has.get().is_some()) {
                        model.release();
                    }
                }
                Op::Release => {
                    let Some(running) = &mut recv else { continue };
                    let Some(value) = running.has.get() else { continue };
                    running.release.set(true);
                    assert_eq!(poll_once(&mut running.future), Some(Ok(value)));
                    recv = None;
                    model.release();
                }
                Op::TrySend => {
                    let Some(mut end) = lend(&tx) else { continue };
                    next += 1;
                    let got = end.try_send(next - 1).map_err(|error| error.why().cloned().expect("local"));
                    assert_eq!(got, model.send(next - 1).unwrap_or(Err(Why::WouldBlock)), "try_send");
                }
                Op::TryRecv => {
                    let Some(mut end) = lend(&rx) else { continue };
                    assert_eq!(end.try_recv(), model.recv(false).unwrap_or(Err(RecvError::WouldBlock)), "try_recv");
                }
                Op::Retire(from_sender) => {
                    let retired =
                        if from_sender { lend(&tx).map(|end| end.retire()) } else { lend(&rx).map(|end| end.retire()) };
                    model.retired |= retired.is_some();
                }
                Op::Poison(from_sender) => {
                    let poisoned = if from_sender {
                        lend(&tx).map(|end| end.poison("model"))
                    } else {
                        lend(&rx).map(|end| end.poison("model"))
                    };
                    if poisoned.is_some() {
                        model.poisoned = true;
                        model.buffer.clear();
                    }
                }
                Op::DropSender => model.no_sender |= tx.take().is_some(),
                Op::DropReceiver => {
                    if rx.take().is_some() {
                        model.no_receiver = true;
                        model.buffer.clear();
                    }
                }
                Op::Look => {
                    if let Some(end) = lend(&tx) {
                        assert_eq!(end.len(), model.buffer.len());
                        assert_eq!(end.is_closed(), model.no_send().is_some());
                    }
                    if let Some(end) = lend(&rx) {
                        assert_eq!(end.len(), model.buffer.len());
                        let left = !model.buffer.is_empty() || model.offer.is_some() && !model.retired;
                        let ended = model.poisoned || (model.retired || model.no_sender) && !left;
                        assert_eq!(end.is_closed(), ended);
                    }
                }
            }
        }
    }
}

mod counted {
    //! All kinds of operations on one thread: every value has exactly one fate, the one that its send
    //! reported.

    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex, MutexGuard};

    use dunlin_core::{Choice, Receiver, Sender, Shared, channel, channel_with};

    use super::*;

    const SENDERS: usize = 3;
    const RECEIVERS: usize = 2;

    #[derive(Clone, Copy, Debug)]
    pub(super) enum Op {
        /// Begins a send by a handle: alone, or in a choice beside a receive from another channel.
        Send(usize, bool),
        /// Begins a receive by a handle: plain, extended, or in a choice.
        Recv(usize, u8),
        /// Begins a process that claims the sending end and sends two values.
        Claim,
        Poll(usize),
        Drop(usize),
        Forget(usize),
        TrySend(usize),
        TryRecv(usize),
        /// Makes the other channel of the choices ready.
        Ring,
        Retire,
        Poison,
    }

    pub(super) fn ops() -> impl Strategy<Value = Vec<Op>> {
        let which = || any::<prop::sample::Index>().prop_map(|index| index.index(16));
        let op = prop_oneof![
            8 => (0..SENDERS, any::<bool>()).prop_map(|(n, choice)| Op::Send(n, choice)),
            8 => (0..RECEIVERS, 0..3_u8).prop_map(|(n, kind)| Op::Recv(n, kind)),
            1 => Just(Op::Claim),
            20 => which().prop_map(Op::Poll),
            3 => which().prop_map(Op::Drop),
            1 => which().prop_map(Op::Forget),
            2 => (0..SENDERS).prop_map(Op::TrySend),
            2 => (0..RECEIVERS).prop_map(Op::TryRecv),
            2 => Just(Op::Ring),
            1 => Just(Op::Retire),
            1 => Just(Op::Poison),
        ];
        prop::collection::vec(op, 1..80)
    }

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Fate {
        Taken,
        GivenBack,
        Destroyed,
    }

    /// The fate of each value, and the results that were promised.
    #[derive(Default)]
    struct Ledger {
        fates: BTreeMap<u32, Vec<Fate>>,
        sent: Vec<u32>,
        /// For each receiver: the sender's handle and the value, in order.
        got: [Vec<(usize, u32)>; RECEIVERS + 1],
    }

    /// Values share it, and a choice requires `Send`.
    #[derive(Clone, Default)]
    struct Book(Arc<Mutex<Ledger>>);

    impl Book {
        fn open(&self) -> MutexGuard<'_, Ledger> {
            self.0.lock().expect("no test panics with it open")
        }
    }

    struct Value {
        number: u32,
        handle: usize,
        book: Option<Book>,
    }

    impl Value {
        fn meets(mut self, fate: Fate) -> (usize, u32) {
            if let Some(book) = self.book.take() {
                book.open().fates.entry(self.number).or_default().push(fate);
            }
            (self.handle, self.number)
        }
    }

    impl Drop for Value {
        fn drop(&mut self) {
            if let Some(book) = self.book.take() {
                book.open().fates.entry(self.number).or_default().push(Fate::Destroyed);
            }
        }
    }

    /// A slot that records its value's fate when its operation ends.
    struct Slot {
        value: Option<Value>,
        number: u32,
        book: Book,
        /// Set when the operation is forgotten: its standing offer may still be received, or not.
        forget: Rc<Cell<bool>>,
    }

    impl Drop for Slot {
        fn drop(&mut self) {
            match self.value.take() {
                Some(value) => drop(value.meets(Fate::GivenBack)),
                None if self.forget.get() => {}
                None => self.book.open().sent.push(self.number),
            }
        }
    }

    fn note(book: &Book, receiver: usize, value: Value) {
        let got = value.meets(Fate::Taken);
        book.open().got[receiver].push(got);
    }

    /// Operations in progress.
    struct Process {
        future: Running<()>,
        forget: Rc<Cell<bool>>,
    }

    struct World {
        book: Book,
        next: u32,
        claims: usize,
        rendezvous: bool,
        tx: Vec<Home<Shared<Sender<Value>>>>,
        rx: Vec<Home<Shared<Receiver<Value>>>>,
        bells: Vec<Home<Receiver<()>>>,
        ringers: Vec<Sender<()>>,
        running: Vec<Process>,
    }

    impl World {
        fn value(&mut self, handle: usize) -> (Value, u32) {
            self.next += 1;
            self.book.open().fates.insert(self.next, Vec::new());
            (Value { number: self.next, handle, book: Some(self.book.clone()) }, self.next)
        }

        fn slot(&mut self, handle: usize, forget: &Rc<Cell<bool>>) -> Slot {
            let (value, number) = self.value(handle);
            Slot { value: Some(value), number, book: self.book.clone(), forget: forget.clone() }
        }

        fn run(&mut self, future: impl Future<Output = ()> + 'static, forget: Rc<Cell<bool>>) {
            self.running.push(Process { future: Box::pin(future), forget });
        }

        fn send(&mut self, n: usize, in_a_choice: bool) {
            let Some(mut end) = lend(&self.tx[n]) else { return };
            let bell = if in_a_choice { lend(&self.bells[n]) } else { None };
            let (book, rendezvous, forget) = (self.book.clone(), self.rendezvous, Rc::new(Cell::new(false)));
            let (mut slot, forgets) = (self.slot(n, &forget), forget.clone());
            let future = async move {
                let sent = match bell {
                    Some(mut bell) => {
                        let choice = Choice::fair().on(end.send_from(&mut slot.value), Some).on(bell.recv(), |_| None);
                        Cut::new(choice.into_future(), &forgets).await.1
                    }
                    None => Some(Cut::new(end.send_from(&mut slot.value), &forgets).await),
                };
                assert_eq!(sent == Some(Ok(())), slot.value.is_none(), "the slot of {}", slot.number);
                if sent == Some(Ok(())) && rendezvous {
                    assert_eq!(book.open().fates[&slot.number], [Fate::Taken], "Ok means received");
                }
            };
            self.run(future, forget);
        }

        fn recv(&mut self, n: usize, kind: u8) {
            let Some(mut end) = lend(&self.rx[n]) else { return };
            let Some(mut bell) = lend(&self.bells[SENDERS + n]) else { return };
            let (book, forget) = (self.book.clone(), Rc::new(Cell::new(false)));
            let forgets = forget.clone();
            let future = async move {
                match kind {
                    0 => {
                        if let Ok(value) = Cut::new(end.recv(), &forgets).await {
                            note(&book, n, value);
                        }
                    }
                    1 => {
                        if let Ok(mut guard) = Cut::new(end.recv_extended(), &forgets).await {
                            let number = guard.number;
                            assert!(book.open().fates[&number].is_empty(), "it had a fate already");
                            // The value is received, whatever happens to the guard.
                            let inside = Value { number, handle: guard.handle, book: guard.book.take() };
                            note(&book, n, inside);
                            let mut first = true;
                            std::future::poll_fn(|_| {
                                if std::mem::take(&mut first) { Poll::Pending } else { Poll::Ready(()) }
                            })
                            .await;
                            if forgets.get() { std::mem::forget(guard) } else { drop(guard) }
                        }
                    }
                    _ => {
                        let choice = Choice::fair().on(end.next(), Some).on(bell.recv(), |_| None);
                        if let (_, Some(Ok(Some(value)))) = Cut::new(choice.into_future(), &forgets).await {
                            note(&book, n, value);
                        }
                    }
                }
            };
            self.run(future, forget);
        }

        fn claim(&mut self) {
            let Some(mut end) = (0..SENDERS).find_map(|n| lend(&self.tx[n])) else { return };
            let forget = Rc::default();
            self.claims += 1;
            let who = SENDERS + self.claims;
            let mut slots = [self.slot(who, &forget), self.slot(who, &forget)];
            let future = async move {
                let mut claim = end.claim().await.expect("granted");
                for slot in &mut slots {
                    let _ = claim.send_from(&mut slot.value).await;
                }
            };
            // A claim is never forgotten: the end of a forgotten claim would never be released.
            self.run(future, Rc::default());
        }

        fn poll(&mut self, n: usize) {
            if n < self.running.len() && poll_once(&mut self.running[n].future).is_some() {
                drop(self.running.swap_remove(n));
            }
        }

        fn try_recv(&mut self, n: usize) -> bool {
            let Some(mut end) = lend(&self.rx[n]) else { return false };
            let Ok(value) = end.try_recv() else { return false };
            note(&self.book, n, value);
            true
        }
    }

    pub(super) fn run(which: usize, ops: Vec<Op>) {
        let (policy, _, full) = policies().swap_remove(which);
        let (tx, rx) = channel_with::<Value>(policy);
        let (tx, rx) = (tx.share(), rx.share());
        let (ringers, bells): (Vec<_>, Vec<_>) = (0..SENDERS + RECEIVERS).map(|_| channel::<()>()).unzip();
        let home = |end| Rc::new(Cell::new(Some(end)));
        let mut world = World {
            book: Book::default(),
            next: 0,
            claims: 0,
            rendezvous: ![1, 2, 3, 4, 5, 6, 7].contains(&which),
            tx: (0..SENDERS).map(|_| Rc::new(Cell::new(Some(tx.clone())))).collect(),
            rx: (0..RECEIVERS).map(|_| Rc::new(Cell::new(Some(rx.clone())))).collect(),
            bells: bells.into_iter().map(home).collect(),
            ringers,
            running: Vec::new(),
        };
        let mut poisoned = false;
        for op in ops {
            match op {
                Op::Send(n, choice) => world.send(n, choice),
                Op::Recv(n, kind) => world.recv(n, kind),
                Op::Claim => world.claim(),
                Op::Poll(n) => world.poll(n),
                Op::Drop(n) if n < world.running.len() => drop(world.running.swap_remove(n)),
                Op::Forget(n) if n < world.running.len() => {
                    let process = world.running.swap_remove(n);
                    process.forget.set(true);
                    drop(process);
                }
                Op::Drop(_) | Op::Forget(_) => {}
                Op::TrySend(n) => {
                    let Some(mut end) = lend(&world.tx[n]) else { continue };
                    let (value, number) = world.value(n);
                    match end.try_send(value) {
                        Ok(()) => world.book.open().sent.push(number),
                        Err(error) => drop(error.into_value().meets(Fate::GivenBack)),
                    }
                }
                Op::TryRecv(n) => drop(world.try_recv(n)),
                Op::Ring => {
                    // Drops the other end of one bell, so its receive stays ready.
                    world.ringers.pop();
                }
                Op::Retire | Op::Poison => {
                    let Some(mut end) = world.rx.iter().find_map(lend) else { continue };
                    let Ok(claim) = end.try_claim() else { continue };
                    if matches!(op, Op::Poison) {
                        claim.poison("model");
                        poisoned = true;
                    } else {
                        claim.retire();
                    }
                }
            }
        }
        // Drops all operations, then receives the values left in the channel.
        world.running.clear();
        while world.try_recv(0) {}
        let book = world.book.clone();
        drop((world, tx, rx));
        let book = book.open();
        for (number, fates) in &book.fates {
            assert_eq!(fates.len(), 1, "value {number}: {fates:?}");
        }
        for number in &book.sent {
            let fate = book.fates[number][0];
            assert_ne!(fate, Fate::GivenBack, "{number} was sent and given back");
            if matches!(full, Full::Waits | Full::Refuses) && !poisoned {
                assert_eq!(fate, Fate::Taken, "{number} was sent and not received");
            }
        }
        for got in &book.got {
            // By sender, in the order of receiving; the sort is stable.
            let mut by_sender = got.clone();
            by_sender.sort_by_key(|(from, _)| *from);
            assert!(by_sender.is_sorted(), "out of order: {got:?}");
        }
    }
}

proptest! {
    #![proptest_config(config(1_500))]

    #[test]
    fn unshared_ends_match_the_model(which in 0_usize..11, ops in exact::ops()) {
        exact::run(which, ops);
    }

    #[test]
    fn every_value_has_one_fate(which in 0_usize..11, ops in counted::ops()) {
        counted::run(which, ops);
    }
}
