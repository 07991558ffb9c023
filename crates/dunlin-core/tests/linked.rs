//! The halves of a channel over a link, one word at a time: events during encoding and decoding, and that
//! only the ends drop a value.

mod polls;
mod way;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use bytes::Bytes;
use dunlin_core::carrier::Format;
use dunlin_core::remote::{Ended, Half, Terms, Word, receiving_half, sending_half};
use dunlin_core::{
    Admit, Buffering, Choice, Operation, Overflow, Policy, Portable, Receiver, RecvError, SendError, Sender, Why,
    channel, channel_with, fifo, overwrite_oldest, rendezvous, send_to_any,
};
use polls::{poll, ready};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use way::Way;

struct Halves {
    sending: Arc<dyn Half>,
    home: Arc<dyn Half>,
    forth: Arc<Way>,
    back: Arc<Way>,
}

impl Halves {
    /// Carries words until neither half sends any more, as the task of a socket does.
    fn carry(&self) {
        loop {
            let (forth, back) = (self.forth.take(), self.back.take());
            if forth.is_empty() && back.is_empty() {
                return;
            }
            by_the_socket(|| {
                forth.into_iter().for_each(|word| self.home.hear(word).unwrap());
                back.into_iter().for_each(|word| self.sending.hear(word).unwrap());
            });
        }
    }
}

fn over_a_link<T: Portable>() -> (Sender<T>, Receiver<T>, Arc<Halves>) {
    let (tx, rx, halves) = not_opened(rendezvous());
    halves.carry();
    (tx, rx, halves)
}

/// As over a link, but the sending half has not yet received how its home takes values.
fn not_opened<T: Portable>(policy: Policy) -> (Sender<T>, Receiver<T>, Arc<Halves>) {
    let terms = Terms { format: Format::Cbor, value_max: 1 << 20, is_message: false };
    let ((tx, far), (near, rx)) = (channel(), channel_with(policy));
    let (forth, back) = (Arc::new(Way::default()), Arc::new(Way::default()));
    let (sending, home) = (sending_half(far, terms, forth.clone()), receiving_half(near, terms, back.clone()));
    (tx, rx, Arc::new(Halves { sending, home, forth, back }))
}

thread_local! {
    static IN_SOCKET: Cell<bool> = const { Cell::new(false) };
    static ON_READ: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
    static ON_WRITE: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
}

fn by_the_socket(f: impl FnOnce()) {
    IN_SOCKET.set(true);
    f();
    IN_SOCKET.set(false);
}

/// Calls `f` in the middle of the next decoding.
fn while_it_is_read(f: impl FnOnce() + 'static) {
    ON_READ.set(Some(Box::new(f)));
}

/// Calls `f` in the middle of the next encoding.
fn while_it_is_written(f: impl FnOnce() + 'static) {
    ON_WRITE.set(Some(Box::new(f)));
}

/// A value that only the ends of its channel encode, decode and drop. Number 13 cannot be read, number 14
/// cannot be written.
#[derive(Debug, PartialEq, Eq)]
struct Own {
    number: u32,
    padding: usize,
}

fn own(number: u32) -> Own {
    Own { number, padding: 0 }
}

/// A value too large to keep its bytes while a choice offers it.
fn large(number: u32) -> Own {
    Own { number, padding: 4000 }
}

impl Drop for Own {
    fn drop(&mut self) {
        assert!(!IN_SOCKET.get() || std::thread::panicking(), "{self:?} is dropped by the task of a socket");
    }
}

impl Serialize for Own {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        assert!(!IN_SOCKET.get(), "encoded by the task of a socket");
        ON_WRITE.take().into_iter().for_each(|f| f());
        if self.number == 14 {
            return Err(serde::ser::Error::custom("14 cannot be written"));
        }
        (self.number, vec![0u8; self.padding]).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Own {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        assert!(!IN_SOCKET.get(), "decoded by the task of a socket");
        let (number, padding) = <(u32, Vec<u8>)>::deserialize(deserializer)?;
        ON_READ.take().into_iter().for_each(|f| f());
        let own = Self { number, padding: padding.len() };
        if number == 13 { Err(D::Error::custom("13 cannot be read")) } else { Ok(own) }
    }
}

#[test]
fn value_is_decoded_and_dropped_by_the_ends() {
    let (mut tx, mut rx, halves) = over_a_link::<Own>();
    let mut send = pin!(tx.send(own(1)));
    let mut recv = pin!(rx.recv());
    assert!(poll(recv.as_mut()).is_pending() && poll(send.as_mut()).is_pending());
    halves.carry();
    assert_eq!(ready(recv).unwrap().number, 1);
    assert!(poll(send.as_mut()).is_pending(), "its sender has not received the answer");
    halves.carry();
    ready(send).unwrap();
}

#[test]
fn choice_receives_an_offer_that_arrived_before_it() {
    let (mut tx, mut rx, halves) = over_a_link::<Own>();
    let (_other_tx, mut other_rx) = channel::<u32>();
    let mut send = Box::pin(tx.send(own(1)));
    assert!(poll(send.as_mut()).is_pending());
    halves.carry();
    let choice = Choice::fair().on(rx.recv(), Ok).on(other_rx.recv(), Err).skip(Err(Ok(0)));
    assert!(matches!(ready(pin!(choice.into_future())), (0, Ok(Ok(_)))));
    halves.carry();
    ready(send.as_mut()).unwrap();
}

#[test]
fn value_read_during_a_withdrawal_does_not_answer_the_next_offer() {
    let (_tx, mut rx, halves) = over_a_link::<Own>();
    let bytes = |number: u32| vec![0x82, number as u8, 0x80].into();
    halves.home.hear(Word::Offer { ticket: 2, value: bytes(1) }).unwrap();
    let there = halves.clone();
    while_it_is_read(move || {
        there.home.hear(Word::Withdraw { ticket: 2 }).unwrap();
        there.home.hear(Word::Offer { ticket: 3, value: bytes(2) }).unwrap();
    });
    assert_eq!(ready(pin!(rx.recv())), Ok(own(2)));
    assert!(matches!(halves.back.take()[..], [Word::Withdrawn { ticket: 2 }, Word::Taken { ticket: 3 }]));
    // A later offer leaves the value that is being read alone, so nothing is read twice.
    halves.home.hear(Word::Offer { ticket: 4, value: bytes(3) }).unwrap();
    let there = halves.clone();
    while_it_is_read(move || {
        there.home.hear(Word::Offer { ticket: 5, value: bytes(4) }).unwrap();
        while_it_is_read(|| panic!("it is read twice"));
    });
    assert_eq!(ready(pin!(rx.recv())), Ok(own(3)));
    ON_READ.set(None);
    assert_eq!(ready(pin!(rx.recv())), Ok(own(4)));
}

/// Whether it has been woken since the last check.
#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Flag {
    fn is_woken(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

/// A lone operation of an end keeps its offer or its waker out of the queue; all later messages find it.
#[test]
fn lone_operation_is_found_by_later_messages() {
    let flag = Arc::new(Flag::default());
    let waker = Waker::from(flag.clone());
    let mut cx = Context::from_waker(&waker);

    // A waiting receive is woken by a choice's offer, whose value it must request first.
    let (mut tx, mut rx, halves) = over_a_link::<Own>();
    let mut recv = Box::pin(rx.recv());
    assert!(recv.as_mut().poll(&mut cx).is_pending());
    by_the_socket(|| halves.home.hear(Word::OfferChoice { ticket: 9, choice: 1 }).unwrap());
    assert!(flag.is_woken(), "by the choice");
    assert!(recv.as_mut().poll(&mut cx).is_pending(), "it has reserved");
    halves.home.hear(Word::Withdraw { ticket: 9 }).unwrap();
    halves.back.take();
    drop(recv);

    // The first of two offers that have arrived is received first.
    let (first, second) = (tx.send_nowait(own(1)), tx.send_nowait(own(2)));
    halves.carry();
    assert_eq!(ready(pin!(rx.recv())), Ok(own(1)));
    assert_eq!(ready(pin!(rx.recv())), Ok(own(2)));
    halves.carry();
    ready(pin!(first)).unwrap();
    ready(pin!(second)).unwrap();

    // A waiting send is woken, whether it is polled before its value is taken or after.
    for looks_before in [true, false] {
        flag.is_woken();
        let mut send = Box::pin(tx.send(own(3)));
        assert!(send.as_mut().poll(&mut cx).is_pending());
        let [Word::Offer { ticket, .. }] = halves.forth.take()[..] else { panic!("nothing was offered") };
        // An answer for an offer that no longer exists.
        let look = || halves.sending.hear(Word::Withdrawn { ticket: 99 }).unwrap();
        if looks_before {
            look();
        }
        by_the_socket(|| halves.sending.hear(Word::Taken { ticket }).unwrap());
        look();
        assert!(flag.is_woken());
        let Err(Word::Taken { .. }) = halves.sending.hear(Word::Taken { ticket }) else { panic!("taken twice") };
        let Poll::Ready(Ok(())) = send.as_mut().poll(&mut cx) else { panic!("it has not been sent") };
    }

    // A remote extended receive.
    let mut send = Box::pin(tx.send(own(4)));
    assert!(send.as_mut().poll(&mut cx).is_pending());
    let [Word::Offer { ticket, .. }] = halves.forth.take()[..] else { panic!("nothing was offered") };
    halves.sending.hear(Word::Held { ticket }).unwrap();
    assert!(send.as_mut().poll(&mut cx).is_pending());
    flag.is_woken();
    halves.sending.hear(Word::Released { ticket }).unwrap();
    assert!(flag.is_woken());
    let Poll::Ready(Ok(())) = send.as_mut().poll(&mut cx) else { panic!("it has not been sent") };
    drop(send);

    // The end drops the value of a forgotten send.
    let mut send = Box::pin(tx.send(own(5)));
    assert!(send.as_mut().poll(&mut cx).is_pending());
    let [Word::Offer { ticket, .. }] = halves.forth.take()[..] else { panic!("nothing was offered") };
    std::mem::forget(send);
    by_the_socket(|| halves.sending.hear(Word::Taken { ticket }).unwrap());
    let mut send = Box::pin(tx.send(own(6)));
    assert!(send.as_mut().poll(&mut cx).is_pending());
    let [Word::Offer { ticket, .. }] = halves.forth.take()[..] else { panic!("nothing was offered") };
    by_the_socket(|| halves.sending.hear(Word::Taken { ticket }).unwrap());
    std::mem::forget(send);
    drop(tx);
}

#[test]
fn send_that_is_dropped_while_its_value_is_read_is_not_taken() {
    let (mut tx, mut rx, halves) = over_a_link::<Own>();
    let mut recv = pin!(rx.recv());
    {
        let mut send = pin!(tx.send(own(1)));
        assert!(poll(send.as_mut()).is_pending());
        halves.carry();
    }
    let there = halves.clone();
    while_it_is_read(move || there.carry());
    assert!(poll(recv.as_mut()).is_pending(), "the decoded value is not taken");
    halves.carry();
    let mut slot = None;
    ready(pin!(tx.settle(&mut slot))).unwrap();
    assert_eq!(slot, Some(own(1)));
    let mut send = pin!(tx.send(own(2)));
    assert!(poll(send.as_mut()).is_pending());
    halves.carry();
    assert_eq!(ready(recv).unwrap().number, 2);
    halves.carry();
    ready(send).unwrap();
}

#[test]
fn send_agrees_with_receive_when_deadline_passes_during_read() {
    for read_first in [false, true] {
        let (mut tx, mut rx, halves) = over_a_link::<Own>();
        let (mut clock, mut bell) = channel::<()>();
        let mut send = pin!(tx.send(own(1)).until(bell.recv()));
        assert!(poll(send.as_mut()).is_pending());
        halves.carry();
        let mut ring = pin!(clock.send(()));
        assert!(poll(ring.as_mut()).is_pending());
        // The deadline has passed, and the offer is withdrawn.
        while poll(send.as_mut()).is_pending() && halves.forth.0.lock().unwrap().is_empty() {}
        let there = halves.clone();
        if !read_first {
            while_it_is_read(move || there.carry());
        }
        let received = poll(pin!(rx.recv()).as_mut());
        halves.carry();
        let sent = ready(send);
        match received {
            Poll::Ready(value) => assert_eq!((value.unwrap(), sent), (own(1), Ok(()))),
            Poll::Pending => assert_eq!(sent, Err(SendError::NotTaken { value: own(1), why: Why::TimedOut })),
        }
    }
}

#[test]
fn unreadable_value_fails_its_send_but_not_the_receive() {
    let (mut tx, mut rx, halves) = over_a_link::<Own>();
    let bad = tx.send_nowait(own(13));
    let good = tx.send_nowait(own(2));
    halves.carry();
    assert_eq!(ready(pin!(rx.recv())).unwrap().number, 2);
    halves.carry();
    let Err(SendError::NotTaken { value, why: Why::Unsendable(why) }) = ready(pin!(bad)) else { panic!("13 was read") };
    assert!(why.as_str().contains("13 cannot be read"), "{why}");
    assert_eq!(value.number, 13);
    ready(pin!(good)).unwrap();
}

/// Reads fewer bytes than were written, and panics when it is dropped.
#[derive(Debug, Serialize)]
struct Short(u32);

impl<'de> Deserialize<'de> for Short {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(u32::deserialize(deserializer)?))
    }
}

impl Drop for Short {
    fn drop(&mut self) {
        assert!(self.0 != 13, "13 is dropped");
    }
}

#[test]
fn panicking_drop_of_unreadable_value_leaves_receiver_usable() {
    let (_tx, mut rx, halves) = over_a_link::<Short>();
    // 13, and one more byte.
    halves.home.hear(Word::Offer { ticket: 2, value: vec![13, 0].into() }).unwrap();
    assert!(poll(pin!(rx.recv())).is_pending());
    assert!(matches!(halves.back.take()[..], [Word::Failed { ticket: 2, .. }]));
    halves.home.hear(Word::Offer { ticket: 3, value: vec![7].into() }).unwrap();
    assert_eq!(ready(pin!(rx.recv())).unwrap().0, 7);
}

#[test]
fn refused_send_leaves_no_bytes_for_the_next_offer() {
    let terms = Terms { format: Format::Cbor, value_max: 1 << 20, is_message: false };
    let (tx, far) = channel_with::<Own>(rendezvous().pending_senders(1, Overflow::Reject));
    let forth = Arc::new(Way::default());
    let sending = sending_half(far, terms, forth.clone());
    sending.hear(Word::Opened { places: None }).unwrap();
    let mut a = tx.share();
    let (mut b, mut c) = (a.clone(), a.clone());
    let (_other_tx, mut other_rx) = channel::<u32>();
    let mut slot = Some(own(1));
    let mut first =
        Box::pin(Choice::fair().on(a.send_from(&mut slot), |_| ()).on(other_rx.recv(), |_| ()).into_future());
    assert!(poll(first.as_mut()).is_pending());
    assert!(ready(pin!(b.send(own(2)))).is_err(), "one sender waits already");
    drop(first);
    let mut slot = Some(large(3));
    let mut third =
        Box::pin(Choice::fair().on(c.send_from(&mut slot), |_| ()).on(other_rx.recv(), |_| ()).into_future());
    assert!(poll(third.as_mut()).is_pending());
    let Some(Word::OfferChoice { ticket, .. }) = forth.take().pop() else { panic!("nothing was offered") };
    by_the_socket(|| sending.hear(Word::Reserve { ticket, request: 1 }).unwrap());
    assert!(poll(third.as_mut()).is_pending());
    let Some(Word::Grant { value, .. }) = forth.take().pop() else { panic!("nothing was granted") };
    assert!(value.len() > 3000, "the third value, and not the second");
}

#[test]
fn choices_encode_at_the_grant_and_unreadable_value_decides_neither() {
    for number in [7, 13] {
        let (mut tx, mut rx, halves) = over_a_link::<Own>();
        let (mut other_tx, mut other_rx) = channel::<u32>();
        let (mut back_tx, mut back_rx) = channel::<u32>();
        let mut slot = Some(large(number));
        let mut back = Some(5);
        let mut sends = Box::pin(Choice::fair().on(tx.send_from(&mut slot), Ok).on(other_rx.recv(), Err).into_future());
        // Its other branch offers, so the choice has its own decision.
        let mut receives =
            Box::pin(Choice::fair().on(rx.recv(), Ok).on(back_tx.send_from(&mut back), Err).into_future());
        assert!(poll(sends.as_mut()).is_pending());
        assert!(matches!(halves.forth.0.lock().unwrap()[..], [Word::OfferChoice { .. }]));
        halves.carry();
        assert!(poll(receives.as_mut()).is_pending(), "it has reserved");
        halves.carry();
        assert!(halves.forth.0.lock().unwrap().is_empty(), "nothing is granted before the owner is polled");
        assert!(poll(sends.as_mut()).is_pending());
        assert!(matches!(halves.forth.0.lock().unwrap()[..], [Word::Grant { .. }]));
        halves.carry();
        if number == 7 {
            assert_eq!(ready(receives.as_mut()).0, 0);
            halves.carry();
            assert!(matches!(ready(sends.as_mut()), (0, Ok(Ok(())))));
            drop(sends);
            assert_eq!(slot, None);
            continue;
        }
        assert!(poll(receives.as_mut()).is_pending(), "an unreadable value decides nothing");
        halves.carry();
        let (0, Ok(Err(SendError::NotTaken { why: Why::Unsendable(_), .. }))) = ready(sends.as_mut()) else {
            panic!("its send has not failed")
        };
        drop(sends);
        assert_eq!(slot.as_ref().map(|own| own.number), Some(13));
        // Both continue: the receiving choice takes its other branch.
        assert_eq!(ready(pin!(back_rx.recv())), Ok(5));
        assert!(matches!(ready(receives.as_mut()), (1, Err(Ok(())))));
        drop(other_tx.send_nowait(1));
    }
}

#[test]
fn value_that_cannot_be_encoded_at_the_grant_fails_its_branch() {
    let (mut tx, mut rx, halves) = over_a_link::<Own>();
    let (_other_tx, mut other_rx) = channel::<u32>();
    let mut slot = Some(own(14));
    let mut sends = Box::pin(Choice::fair().on(tx.send_from(&mut slot), Ok).on(other_rx.recv(), Err).into_future());
    // Small values are encoded when they are offered, and fail at once.
    let (0, Ok(Err(SendError::NotTaken { why: Why::Unsendable(_), .. }))) = ready(sends.as_mut()) else {
        panic!("14 was written")
    };
    drop(sends);
    // With several channels, the value is encoded when it is reserved.
    let mut senders = [tx];
    let mut any = Box::pin(send_to_any(&mut slot, &mut senders));
    assert!(poll(any.as_mut()).is_pending());
    halves.carry();
    let mut recv = pin!(rx.recv());
    assert!(poll(recv.as_mut()).is_pending());
    halves.carry();
    let Err(SendError::NotTaken { why: Why::Unsendable(_), .. }) = ready(any.as_mut()) else {
        panic!("14 was written")
    };
    assert_eq!(halves.forth.0.lock().unwrap().len(), 1, "the refusal, and no withdrawal");
    halves.carry();
    assert!(poll(recv.as_mut()).is_pending());
    drop(any);
    assert_eq!(slot, Some(own(14)));
}

#[test]
fn value_being_encoded_cannot_be_received() {
    let (tx, mut rx, halves) = over_a_link::<Own>();
    let (local_tx, local_rx) = channel::<Own>();
    let mut slot = Some(large(7));
    let mut senders = [tx, local_tx];
    let mut any = Box::pin(send_to_any(&mut slot, &mut senders));
    // It gives a remote receiver some turns before it offers on the next channel.
    assert!((0..40).all(|_| poll(any.as_mut()).is_pending()));
    halves.carry();
    let mut recv = pin!(rx.recv());
    assert!(poll(recv.as_mut()).is_pending());
    halves.carry();
    let there = halves.clone();
    let local_rx = Arc::new(Mutex::new(local_rx));
    let local = local_rx.clone();
    while_it_is_written(move || {
        assert_eq!(local.lock().unwrap().try_recv(), Err(RecvError::WouldBlock), "its choice is closed");
        // The home sends another request.
        by_the_socket(|| there.sending.hear(Word::Reserve { ticket: 2, request: 9 }).unwrap());
    });
    assert!(poll(any.as_mut()).is_pending());
    let [Word::Grant { ticket: 2, request: 9, .. }] = halves.forth.0.lock().unwrap()[..] else { panic!("no grant") };
    assert_eq!(local_rx.lock().unwrap().try_recv(), Err(RecvError::WouldBlock), "it is reserved");
    // The grant does not answer the home's own request, so the home returns it; then the value is free for
    // both.
    halves.carry();
    assert!(poll(any.as_mut()).is_pending());
    assert_eq!(local_rx.lock().unwrap().try_recv().unwrap().number, 7);
    assert_eq!(ready(any.as_mut()), Ok(1));
    halves.carry();
    assert!(poll(recv.as_mut()).is_pending());
}

#[test]
fn end_of_the_channel_during_a_read_fails_receive_and_send() {
    for ended in [Ended::Poisoned("now".into()), Ended::Retired] {
        let (mut tx, mut rx, halves) = over_a_link::<Own>();
        let post = tx.send_nowait(own(1));
        halves.carry();
        let (there, word) = (halves.clone(), Word::Ended(ended.clone()));
        while_it_is_read(move || by_the_socket(|| there.home.hear(word).unwrap()));
        let received = ready(pin!(rx.recv()));
        match ended {
            Ended::Poisoned(_) => assert!(matches!(received, Err(RecvError::Poisoned(_)))),
            _ => assert_eq!(received, Err(RecvError::Closed)),
        }
        halves.carry();
        assert!(ready(pin!(post)).is_err());
    }
}

#[test]
fn connection_loss_during_read_fails_receive_and_leaves_send_unknown() {
    let (mut tx, mut rx, halves) = over_a_link::<Own>();
    let mut send = Box::pin(tx.send(own(1)));
    assert!(poll(send.as_mut()).is_pending());
    halves.carry();
    let there = halves.clone();
    while_it_is_read(move || by_the_socket(|| there.home.lost()));
    assert_eq!(ready(pin!(rx.recv())), Err(RecvError::NodeLost));
    by_the_socket(|| halves.sending.lost());
    let Err(SendError::Unknown { value, .. }) = ready(send.as_mut()) else { panic!("it is known") };
    drop(send);
    assert_eq!(value, own(1));
    let Err(SendError::NotTaken { why: Why::NodeLost, .. }) = ready(pin!(tx.send(own(2)))) else {
        panic!("the send must fail")
    };
}

#[test]
fn unexpected_words_are_errors() {
    let (mut tx, _rx, halves) = over_a_link::<Own>();
    let post = tx.send_nowait(own(1));
    let [Word::Offer { ticket, ref value }] = halves.forth.take()[..] else { panic!("no offer") };
    halves.home.hear(Word::Offer { ticket, value: value.clone() }).unwrap();
    assert!(halves.home.hear(Word::Offer { ticket, value: value.clone() }).is_err(), "twice");
    assert!(halves.home.hear(Word::Taken { ticket }).is_err(), "to the home");
    for word in [Word::Released { ticket }, Word::Taken { ticket: ticket + 1 }, Word::OfferChoice { ticket, choice: 1 }]
    {
        assert!(halves.sending.hear(word).is_err());
    }
    drop(post);
}

#[test]
fn dropped_ends_leave_no_half_open() {
    for receiver_first in [false, true] {
        let (mut tx, rx, halves) = over_a_link::<Own>();
        let post = tx.send_nowait(own(1));
        halves.carry();
        if receiver_first {
            drop(rx);
            halves.carry();
            assert!(matches!(ready(pin!(post)), Err(SendError::NotTaken { why: Why::Closed, .. })));
            assert!(matches!(ready(pin!(tx.send(own(2)))), Err(SendError::NotTaken { why: Why::Closed, .. })));
            drop(tx);
        } else {
            drop(post);
            drop(tx);
            halves.carry();
            let mut rx = rx;
            assert_eq!(ready(pin!(rx.recv())).unwrap().number, 1, "the offered value stays");
            halves.carry();
            assert_eq!(ready(pin!(rx.recv())), Err(RecvError::Closed));
        }
        halves.carry();
    }
}

/// The end asks for the outcome of its unsettled send, and the send that carries the end waits for the
/// answer. (Ends cannot move over a link yet, so it fails then.)
#[test]
fn send_waits_until_the_end_in_its_value_is_settled() {
    let (mut inner, _far, inner_halves) = over_a_link::<u32>();
    // The offer is sent and its send dropped: the answer is in flight.
    {
        let mut dropped = pin!(inner.send(2));
        assert!(poll(dropped.as_mut()).is_pending());
    }
    let (mut tx, _rx, halves) = over_a_link::<(u8, Sender<u32>)>();
    let mut send = pin!(tx.send((7, inner)));
    assert!(poll(send.as_mut()).is_pending());
    assert!(halves.forth.0.lock().unwrap().is_empty(), "nothing leaves before the end is at rest");
    inner_halves.carry();
    let Poll::Ready(Err(SendError::NotTaken { value, why: Why::Unsendable(why) })) = poll(send.as_mut()) else {
        panic!("the end is at rest")
    };
    assert!(why.as_str().contains("ends do not move"), "{why}");
    drop(value);
}

/// The kinds of the words, without their contents.
fn kinds(way: &Way) -> Vec<&'static str> {
    let words = way.0.lock().unwrap();
    let kind = |word: &Word| match word {
        Word::Opened { .. } => "opened",
        Word::Credit { .. } => "credit",
        Word::Sent { .. } => "sent",
        Word::Offer { .. } => "offer",
        Word::OfferChoice { .. } => "offer of a choice",
        Word::Grant { .. } => "grant",
        Word::Taken { .. } => "taken",
        Word::Ended(_) => "ended",
        _ => "another",
    };
    words.iter().map(kind).collect()
}

#[test]
fn nothing_is_offered_before_the_home_has_opened() {
    for (policy, said) in [(rendezvous(), "offer"), (fifo(1), "sent"), (overwrite_oldest(1), "offer")] {
        let (mut tx, _rx, halves) = not_opened::<Own>(policy);
        let mut send = pin!(tx.send(own(1)));
        assert!(poll(send.as_mut()).is_pending());
        assert!(halves.forth.take().is_empty());
        let [opened] = &halves.back.take()[..] else { panic!("expected one word from the home") };
        by_the_socket(|| halves.sending.hear(opened.clone()).unwrap());
        assert_eq!(kinds(&halves.forth), [said]);
        assert_eq!(poll(send.as_mut()).is_ready(), said == "sent");
        halves.carry();
    }
}

#[test]
fn send_uses_a_promised_place_without_asking_the_home() {
    let (mut tx, mut rx, halves) = not_opened::<Own>(fifo(2));
    halves.carry();
    tx.try_send(own(1)).unwrap();
    ready(pin!(tx.send(own(2)))).unwrap();
    let back = tx.try_send(own(3)).unwrap_err();
    assert!(matches!(back.why(), Some(Why::WouldBlock)), "{back:?}");
    let mut third = Box::pin(tx.send(own(3)));
    assert!(poll(third.as_mut()).is_pending());
    halves.carry();
    assert_eq!(rx.len(), 2);
    assert_eq!(ready(pin!(rx.recv())).unwrap().number, 1);
    assert_eq!(kinds(&halves.back), ["credit"]);
    // The value of the waiting send goes out when its place is promised; its owner drops it.
    halves.carry();
    ready(third.as_mut()).unwrap();
    drop(third);
    halves.carry();
    assert_eq!([2, 3].map(|_| ready(pin!(rx.recv())).unwrap().number), [2, 3]);
    drop(tx);
    halves.carry();
    assert!(matches!(ready(pin!(rx.recv())), Err(RecvError::Closed)));
}

#[test]
fn home_takes_no_value_for_which_it_has_no_place() {
    let (_tx, mut rx, halves) = not_opened::<Own>(fifo(1));
    halves.carry();
    let bytes = || Bytes::from_static(&[0x82, 1, 0x80]);
    halves.home.hear(Word::Sent { value: bytes() }).unwrap();
    assert_eq!(halves.home.hear(Word::Sent { value: bytes() }), Err(Word::Sent { value: bytes() }));
    assert_eq!(ready(pin!(rx.recv())).unwrap().number, 1);
    halves.home.hear(Word::Sent { value: bytes() }).unwrap();

    let (_tx, _rx, halves) = not_opened::<Own>(rendezvous());
    assert!(halves.home.hear(Word::Sent { value: bytes() }).is_err());
    halves.carry();
    let credit = Word::Credit { places: 1 };
    assert_eq!(halves.sending.hear(credit.clone()), Err(credit), "the home has declared that it promises no places");
    assert!(halves.sending.hear(Word::Opened { places: None }).is_err(), "the home has opened twice");
}

#[test]
fn value_sent_before_receiver_retires_is_received() {
    let (mut tx, mut rx, halves) = not_opened::<Own>(fifo(2));
    halves.carry();
    ready(pin!(tx.send(own(1)))).unwrap();
    rx.retire();
    // The home does not know yet that a value is in flight.
    assert!(poll(pin!(rx.recv())).is_pending());
    halves.carry();
    assert_eq!(ready(pin!(rx.recv())).unwrap().number, 1);
    assert!(matches!(ready(pin!(rx.recv())), Err(RecvError::Closed)));
    assert!(ready(pin!(tx.send(own(2)))).is_err());
}

#[test]
fn unreadable_value_in_the_buffer_poisons_the_channel() {
    for policy in [fifo(2), overwrite_oldest(2)] {
        let (mut tx, mut rx, halves) = not_opened::<Own>(policy);
        halves.carry();
        for number in [13, 1] {
            let mut send = pin!(tx.send(own(number)));
            let first = poll(send.as_mut());
            halves.carry();
            assert!(first.is_ready() || poll(send.as_mut()).is_ready());
        }
        let Err(RecvError::Poisoned(reason)) = ready(pin!(rx.recv())) else { panic!("13 cannot be read") };
        assert!(reason.to_string().contains("13 cannot be read"), "{reason}");
        halves.carry();
        let Err(SendError::NotTaken { why: Why::Poisoned(_), .. }) = ready(pin!(tx.send(own(2)))) else {
            panic!("its send must fail")
        };
    }
}

#[test]
fn large_value_of_a_choice_is_encoded_when_a_place_is_promised() {
    let (mut tx, mut rx, halves) = not_opened::<Own>(fifo(1));
    halves.carry();
    ready(pin!(tx.send(own(1)))).unwrap();
    let (_other, mut never) = channel::<Own>();
    let mut slot = Some(large(2));
    let choice = Choice::fair().on(tx.send_from(&mut slot), |sent| sent.is_ok()).on(never.recv(), |_| false);
    let mut choice = Box::pin(choice.into_future());
    assert!(poll(choice.as_mut()).is_pending());
    halves.carry();
    assert_eq!(ready(pin!(rx.recv())).unwrap().number, 1);
    let flag = Arc::new(Flag::default());
    let waker = Waker::from(flag.clone());
    assert!(choice.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    flag.is_woken();
    by_the_socket(|| halves.back.take().into_iter().for_each(|word| halves.sending.hear(word).unwrap()));
    assert_eq!(kinds(&halves.forth), [""; 0], "nothing has encoded it");
    assert!(flag.is_woken(), "its owner is to encode it");
    let chosen = (0..40).find_map(|_| match poll(choice.as_mut()) {
        Poll::Ready(chosen) => Some(chosen),
        Poll::Pending => None,
    });
    assert_eq!(chosen, Some((0, true)));
    halves.carry();
    assert_eq!(ready(pin!(rx.recv())).unwrap().number, 2);
}

#[test]
fn send_to_any_sends_to_the_buffer_with_a_free_place() {
    let (mut full, _kept, halves) = not_opened::<Own>(fifo(1));
    let (mut free, mut rx, others) = not_opened::<Own>(fifo(1));
    halves.carry();
    others.carry();
    ready(pin!(full.send(own(1)))).unwrap();
    ready(pin!(free.send(own(2)))).unwrap();
    let mut senders = [full, free];
    for size in [0, 4000] {
        let mut slot = Some(Own { number: 3, padding: size });
        let mut any = Box::pin(send_to_any(&mut slot, &mut senders));
        assert!(poll(any.as_mut()).is_pending());
        others.carry();
        ready(pin!(rx.recv())).unwrap();
        others.carry();
        let sent = (0..40).find_map(|_| match poll(any.as_mut()) {
            Poll::Ready(sent) => Some(sent),
            Poll::Pending => None,
        });
        assert!(matches!(sent, Some(Ok(1))), "{sent:?}");
        drop(any);
        assert_eq!(slot, None);
        others.carry();
    }
    assert_eq!(ready(pin!(rx.recv())).unwrap().number, 3);
}

#[test]
fn dropped_send_does_not_return_a_value_already_sent_on_a_credit() {
    let (tx, mut rx, halves) = not_opened::<Own>(fifo(1));
    let (other, _kept, others) = not_opened::<Own>(fifo(1));
    halves.carry();
    others.carry();
    let mut senders = [tx, other];
    for sender in &mut senders {
        ready(pin!(sender.send(own(1)))).unwrap();
    }
    let mut slot = Some(own(2));
    let mut any = Box::pin(send_to_any(&mut slot, &mut senders));
    assert!(poll(any.as_mut()).is_pending());
    halves.carry();
    ready(pin!(rx.recv())).unwrap();
    // A place is promised and the value is sent; then the send is dropped before it is polled again.
    halves.carry();
    drop(any);
    for sender in &mut senders {
        ready(pin!(sender.settle(&mut slot))).unwrap();
    }
    assert_eq!(slot, None, "it has been sent");
    assert_eq!(ready(pin!(rx.recv())).unwrap().number, 2);
}

#[test]
fn receive_returns_pending_while_its_value_keeps_being_overwritten() {
    fn overwrite(home: Arc<dyn Half>, ticket: u64, last: u64) {
        while_it_is_read(move || {
            let value = Bytes::from(vec![0x82, ticket as u8 - 100, 0x80]);
            home.hear(Word::Offer { ticket, value }).unwrap();
            if ticket < last {
                overwrite(home, ticket + 1, last);
            }
        });
    }
    let (mut tx, mut rx, halves) = not_opened::<Own>(overwrite_oldest(1));
    halves.carry();
    let mut first = pin!(tx.send(own(1)));
    assert!(poll(first.as_mut()).is_pending());
    halves.carry();
    overwrite(halves.home.clone(), 101, 120);
    assert!(poll(pin!(rx.recv())).is_pending(), "a poll has an end");
    ON_READ.set(None);
    assert_eq!(ready(pin!(rx.recv())).unwrap().number, 16, "the overwritten value is read again");
}

#[test]
fn value_that_arrives_after_poison_is_dropped() {
    let (mut tx, mut rx, halves) = not_opened::<Own>(fifo(2));
    halves.carry();
    ready(pin!(tx.send(own(1)))).unwrap();
    rx.poison("oil");
    by_the_socket(|| halves.forth.take().into_iter().for_each(|word| halves.home.hear(word).unwrap()));
    assert_eq!(rx.len(), 0);
    halves.carry();
    assert!(matches!(ready(pin!(rx.recv())), Err(RecvError::Poisoned(_))));
}

/// An inconsistent policy: it has room, then none, then some again.
#[derive(Clone)]
struct Fickle(u32);

impl Buffering for Fickle {
    fn admit(&mut self, _queued: usize) -> Admit {
        self.0 += 1;
        if self.0 == 2 { Admit::Wait } else { Admit::Keep }
    }
}

#[test]
fn choice_keeps_its_offer_when_buffer_is_full_at_the_grant() {
    let (mut tx, mut rx, halves) = not_opened::<Own>(Fickle(0).into());
    halves.carry();
    let (_other, mut never) = channel::<Own>();
    let mut slot = Some(own(2));
    let choice = Choice::fair().on(tx.send_from(&mut slot), |sent| sent.is_ok()).on(never.recv(), |_| false);
    let mut choice = Box::pin(choice.into_future());
    assert!(poll(choice.as_mut()).is_pending());
    // The buffer requests the value but has no room for it when it is granted: the offer stands and is
    // received.
    halves.carry();
    assert!((0..40).all(|_| poll(choice.as_mut()).is_pending()));
    let mut recv = Box::pin(rx.recv());
    assert!(poll(recv.as_mut()).is_pending());
    halves.carry();
    assert_eq!(ready(recv.as_mut()).unwrap().number, 2);
    halves.carry();
    assert_eq!(ready(choice.as_mut()), (0, true));
}

#[test]
fn value_overwritten_during_its_read_is_not_received() {
    let (mut tx, mut rx, halves) = not_opened::<Own>(overwrite_oldest(1));
    halves.carry();
    let mut first = pin!(tx.send(own(1)));
    assert!(poll(first.as_mut()).is_pending());
    halves.carry();
    ready(first.as_mut()).unwrap();
    let (home, bytes) = (halves.home.clone(), Bytes::from_static(&[0x82, 2, 0x80]));
    while_it_is_read(move || {
        home.hear(Word::Offer { ticket: 9, value: bytes }).unwrap();
    });
    assert_eq!(ready(pin!(rx.recv())).unwrap().number, 2);
    assert_eq!(kinds(&halves.back), ["taken"]);
    assert!(rx.is_empty());
}

/// The memory that a socket reads into.
struct ReadBuffer(Vec<u8>, Arc<AtomicBool>);

impl AsRef<[u8]> for ReadBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for ReadBuffer {
    fn drop(&mut self) {
        self.1.store(true, Ordering::SeqCst);
    }
}

/// An offer may wait for hours; it must not keep the whole read buffer that it arrived in.
#[test]
fn small_waiting_value_does_not_keep_its_read_buffer() {
    for (bytes, is_apart) in [(100, true), (20 << 10, false)] {
        let (_tx, _rx, halves) = over_a_link::<Own>();
        let is_gone = Arc::new(AtomicBool::new(false));
        let buffer = Bytes::from_owner(ReadBuffer(vec![0; 256 << 10], is_gone.clone()));
        halves.home.hear(Word::Offer { ticket: 2, value: buffer.slice(1000..1000 + bytes) }).unwrap();
        drop(buffer);
        assert_eq!(is_gone.load(Ordering::SeqCst), is_apart, "{bytes} bytes");
    }
}
