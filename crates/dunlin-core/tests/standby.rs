//! Agents that stand by while values go over a link, one word at a time. When an agent resumes, it owns all
//! open state, and none of it is lost or duplicated.

mod halves;
mod polls;
mod way;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use bytes::Bytes;
use dunlin_core::agent::{Event, FromReceiver, Inlet, Outlet, Reserved};
use dunlin_core::carrier::{AnyInlet, AnyOutlet, Returned, Value};
use dunlin_core::remote::{Link, Word};
use dunlin_core::{Choice, Why, channel, channel_with, drop_newest, fifo, overwrite_oldest, rendezvous};
use halves::{Hears, TERMS, receiving, sending};
use polls::{cx, poll, ready};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use way::Way;

/// The only word that a half has sent.
#[track_caller]
fn one(way: &Way) -> Word {
    let mut words = way.take();
    assert_eq!(words.len(), 1, "{words:?}");
    words.remove(0)
}

/// A value encoded as a node's message: no ends, and the number.
fn message(number: u8) -> Bytes {
    Bytes::copy_from_slice(&[0, number])
}

#[test]
fn values_use_the_link_while_agents_stand_by() {
    let (mut tx, mut outlet, forth) = sending::<u8, Way>();
    let (mut rx, mut inlet, back) = receiving::<_, Way>(rendezvous());
    for number in 1..4 {
        let mut send = pin!(tx.send(number));
        assert!(poll(send.as_mut()).is_pending());
        let Word::Offer { ticket, value } = one(&forth) else { panic!("it is offered") };
        assert_eq!(value, message(number));
        inlet.hear(Word::Offer { ticket, value }).unwrap();
        assert_eq!(ready(pin!(rx.recv())), Ok(number));
        outlet.hear(one(&back)).unwrap();
        assert_eq!(ready(send), Ok(()));
    }
    assert!(outlet.stands_by(&cx()) && inlet.stands_by(&cx()));
    assert!(outlet.poll(&mut cx()).is_pending() && inlet.poll(&mut cx()).is_pending());
}

/// The offer is sent, and its home answers the agent.
#[test]
fn resumed_agent_settles_an_offer_in_flight() {
    let (mut tx, mut outlet, forth) = sending::<u8, Way>();
    let mut send = pin!(tx.send(7));
    assert!(poll(send.as_mut()).is_pending());
    let Word::Offer { ticket, .. } = one(&forth) else { panic!("it is offered") };
    assert!(outlet.take_over().is_none(), "the agent stands by");
    let count = Arc::new(Count::default());
    assert!(outlet.stands_by(&Context::from_waker(&Waker::from(count.clone()))));
    outlet.unlink();
    assert_eq!(count.0.load(Ordering::SeqCst), 1, "the agent has to be polled");
    assert!(!outlet.stands_by(&cx()));
    let open = outlet.take_over().expect("the agent has resumed");
    let [(taken_over, value, false)] = &open.offers[..] else { panic!("{open:?}") };
    assert_eq!((*taken_over, value.downcast_ref()), (ticket, Some(&7u8)));
    assert!(outlet.poll(&mut cx()).is_pending(), "it is not offered once more");
    outlet.taken(ticket);
    assert_eq!(ready(send), Ok(()));
    assert!(forth.take().is_empty());
}

/// An agent offers a value that has arrived at a home under the same number.
#[test]
fn resumed_agent_offers_arrived_value_under_its_ticket() {
    let (mut rx, mut inlet, back) = receiving::<u8, Way>(rendezvous());
    inlet.hear(Word::Offer { ticket: 5, value: message(1) }).unwrap();
    assert!(inlet.take_returned().is_none(), "the agent stands by");
    let count = Arc::new(Count::default());
    assert!(inlet.stands_by(&Context::from_waker(&Waker::from(count.clone()))));
    inlet.unlink();
    assert_eq!(count.0.load(Ordering::SeqCst), 1, "the agent has to be polled");
    assert!(poll(pin!(rx.recv())).is_pending(), "nothing stands here");
    assert_eq!(inlet.take_returned(), Some(vec![Returned::Offer(5, message(1))]));
    assert_eq!(inlet.take_returned(), Some(vec![]), "once");
    let value: Value = inlet.shape().wrap(1u8).unwrap_or_else(|_| unreachable!("a u8"));
    inlet.offer(5, value);
    assert_eq!(ready(pin!(rx.recv())), Ok(1));
    assert!(matches!(inlet.poll(&mut cx()), Poll::Ready(FromReceiver::Taken(5))));
    assert!(back.take().is_empty());
}

/// A value that has arrived for a choice's offer goes to the agent; the offer stands.
#[test]
fn resumed_agent_takes_over_a_grant() {
    let (mut rx, inlet, back) = receiving::<u8, Way>(rendezvous());
    let (_other, mut never) = channel::<u8>();
    inlet.hear(Word::OfferChoice { ticket: 5, choice: 9 }).unwrap();
    let choice = Choice::fair().on(rx.recv(), Ok).on(never.recv(), Err);
    let mut choice = pin!(choice.into_future());
    assert!(poll(choice.as_mut()).is_pending());
    let Word::Reserve { ticket: 5, request } = one(&back) else { panic!("it is asked for") };
    inlet.hear(Word::Grant { ticket: 5, request, value: message(3) }).unwrap();
    inlet.unlink();
    assert!(poll(choice.as_mut()).is_pending(), "the value is with the agent");
    assert_eq!(inlet.take_returned(), Some(vec![Returned::Grant(5, request, message(3))]));
    let value: Value = inlet.shape().wrap(3u8).unwrap_or_else(|_| unreachable!("a u8"));
    assert!(inlet.grant(5, request, value).is_ok());
    assert!(matches!(ready(choice), (0, Ok(Ok(3)))));
}

/// The agent retries a request for a choice's offer that arrived before its value was encoded.
#[test]
fn resumed_agent_retries_a_request() {
    let (mut tx, mut outlet, forth) = sending::<Large, Way>();
    let ((mut other, _never), mut slot) = (channel::<Large>(), Some(Large(4000)));
    let mut other_slot = Some(Large(1));
    let choice = Choice::fair().on(tx.send_from(&mut slot), Ok).on(other.send_from(&mut other_slot), Err);
    let mut choice = pin!(choice.into_future());
    assert!(poll(choice.as_mut()).is_pending());
    let Word::OfferChoice { ticket, .. } = one(&forth) else { panic!("it is offered") };
    outlet.hear(Word::Reserve { ticket, request: 3 }).unwrap();
    outlet.unlink();
    let open = outlet.take_over().expect("the agent has resumed");
    assert_eq!((open.offers.len(), &open.requests[..]), (0, &[(ticket, 3)][..]));
    assert!(outlet.poll(&mut cx()).is_pending(), "its home knows of the offer");
    assert!(matches!(outlet.reserve(ticket), Reserved::Granted(_)));
    outlet.taken(ticket);
    assert!(matches!(ready(choice), (0, Ok(Ok(())))));
}

/// A choice's value that has been sent differs from a firm offer's: its home may return it.
#[test]
fn resumed_agent_distinguishes_granted_value_from_firm_offer() {
    let (mut tx, outlet, forth) = sending::<u8, Way>();
    let ((mut other, _never), mut slot, mut other_slot) = (channel::<u8>(), Some(4), Some(1));
    let choice = Choice::fair().on(tx.send_from(&mut slot), Ok).on(other.send_from(&mut other_slot), Err);
    let mut choice = pin!(choice.into_future());
    assert!(poll(choice.as_mut()).is_pending());
    let Word::OfferChoice { ticket, .. } = one(&forth) else { panic!("it is offered") };
    outlet.hear(Word::Reserve { ticket, request: 3 }).unwrap();
    assert!(matches!(one(&forth), Word::Grant { request: 3, .. }));
    outlet.unlink();
    let open = outlet.take_over().expect("the agent has resumed");
    assert!(matches!(open.offers[..], [(given, _, true)] if given == ticket), "{open:?}");
    outlet.taken(ticket);
    assert!(matches!(ready(choice), (0, Ok(Ok(())))));
}

/// A value that waits for a place is sent when its agent receives a credit.
#[test]
fn resumed_agent_sends_waiting_value_on_a_credit() {
    let (mut tx, far) = channel::<u8>();
    let mut outlet = AnyOutlet::from(Outlet::new(far));
    outlet.credit(1);
    let forth = Arc::new(Way::default());
    assert!(outlet.link(TERMS, forth.clone()));
    assert_eq!(ready(pin!(tx.send(1))), Ok(()));
    assert!(matches!(one(&forth), Word::Sent { .. }));
    let mut send = pin!(tx.send(2));
    assert!(poll(send.as_mut()).is_pending());
    outlet.unlink();
    assert!(outlet.take_over().is_some_and(|open| open.offers.is_empty()));
    assert!(outlet.poll(&mut cx()).is_pending(), "there is no place");
    outlet.credit(1);
    assert!(matches!(outlet.poll(&mut cx()), Poll::Ready(Event::Sent(_))));
    assert_eq!(ready(send), Ok(()));
    assert!(forth.take().is_empty());
}

thread_local! {
    static ON_READ: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
}

/// Calls the function in [`ON_READ`] during its decoding.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Slow(u8);

impl<'de> Deserialize<'de> for Slow {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = u8::deserialize(deserializer)?;
        ON_READ.take().into_iter().for_each(|f| f());
        Ok(Self(number))
    }
}

/// The agent resumes and stands by again while a value is decoded, and meanwhile another value has arrived:
/// the decoded value belongs to neither.
#[test]
fn value_decoded_for_an_earlier_link_is_not_received() {
    let (mut rx, inlet, back) = receiving::<Slow, Way>(rendezvous());
    let inlet = Rc::new(inlet);
    inlet.hear(Word::Offer { ticket: 5, value: message(1) }).unwrap();
    let (there, way) = (inlet.clone(), back.clone());
    ON_READ.set(Some(Box::new(move || {
        there.unlink();
        assert_eq!(there.take_returned(), Some(vec![Returned::Offer(5, message(1))]));
        assert!(there.link(TERMS, way));
        there.hear(Word::Offer { ticket: 6, value: message(2) }).unwrap();
    })));
    assert_eq!(ready(pin!(rx.recv())), Ok(Slow(2)));
    assert!(matches!(one(&back), Word::Taken { ticket: 6 }));
}

/// Encodes to this many bytes.
#[derive(Debug, PartialEq, Eq, Deserialize)]
struct Large(usize);

impl Serialize for Large {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0 == 13 {
            return Err(serde::ser::Error::custom("13 cannot be written"));
        }
        serializer.serialize_bytes(&vec![0; self.0])
    }
}

/// Counts its wakes.
#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn unencodable_value_goes_to_the_agent() {
    let (mut tx, mut outlet, forth) = sending::<Large, Way>();
    let count = Arc::new(Count::default());
    let waker = Waker::from(count.clone());
    assert!(outlet.stands_by(&Context::from_waker(&waker)));
    let mut send = pin!(tx.send(Large(13)));
    assert!(poll(send.as_mut()).is_pending());
    assert_eq!(count.0.load(Ordering::SeqCst), 1, "the agent has to be polled");
    assert!(outlet.take_over().is_some_and(|open| open.offers.is_empty()));
    assert!(matches!(outlet.poll(&mut cx()), Poll::Ready(Event::FirmOffer(..))));
    assert!(forth.take().is_empty());
}

#[test]
fn undecodable_value_goes_to_the_agent() {
    let (mut rx, inlet, back) = receiving::<u8, Way>(rendezvous());
    let bytes = Bytes::from_static(&[0, 0x61, b'x']);
    inlet.hear(Word::Offer { ticket: 5, value: bytes.clone() }).unwrap();
    assert!(poll(pin!(rx.recv())).is_pending());
    assert_eq!(inlet.take_returned(), Some(vec![Returned::Offer(5, bytes)]));
    assert!(back.take().is_empty(), "its agent reports the fault");
}

/// Claims and handles need an agent from now on.
#[test]
fn operation_of_a_shared_end_resumes_the_agent() {
    let (tx, outlet, way) = sending::<u8, Way>();
    let shared = tx.share();
    let mut other = shared.clone();
    let mut send = pin!(other.send(1));
    assert!(poll(send.as_mut()).is_pending());
    assert!(outlet.take_over().is_some() && !outlet.link(TERMS, way.clone()));

    let (rx, inlet, way) = receiving::<u8, Way>(rendezvous());
    let mut shared = rx.share();
    let mut recv = pin!(shared.recv());
    assert!(poll(recv.as_mut()).is_pending());
    assert!(inlet.take_returned().is_some() && !inlet.link(TERMS, way.clone()));
}

/// Values are buffered as bytes, and the receive that takes one decodes it.
#[test]
fn a_buffer_keeps_bytes_while_the_agent_stands_by() {
    let (mut rx, mut inlet, back) = receiving::<Slow, Way>(fifo(2));
    ON_READ.set(Some(Box::new(|| panic!("nothing is decoded before it is received"))));
    inlet.hear(Word::Sent { value: message(1) }).unwrap();
    inlet.hear(Word::Sent { value: message(2) }).unwrap();
    let refused = Word::Sent { value: message(3) };
    assert_eq!(inlet.hear(refused.clone()), Err(refused), "there is no place");
    ON_READ.set(None);
    assert!(back.take().is_empty());
    assert_eq!(ready(pin!(rx.recv())), Ok(Slow(1)));
    assert_eq!(one(&back), Word::Credit { places: 1 });
    assert_eq!(ready(pin!(rx.recv())), Ok(Slow(2)));
    assert_eq!(one(&back), Word::Credit { places: 1 });
    assert!(inlet.stands_by(&cx()) && inlet.poll(&mut cx()).is_pending());
}

/// A buffered value does not keep the read buffer that it arrived in.
#[test]
fn buffered_value_keeps_only_its_own_bytes() {
    let (mut rx, inlet, _) = receiving::<Vec<u8>, Way>(fifo(2));
    let read = Bytes::from(vec![7; 1 << 20]);
    inlet.hear(Word::Sent { value: read.slice(..100_000) }).unwrap();
    assert!(read.is_unique());
    assert_eq!(ready(pin!(rx.recv())).unwrap().len(), 100_000);
    // A waiting receive gets the value in its original bytes.
    let mut recv = pin!(rx.recv());
    assert!(poll(recv.as_mut()).is_pending());
    inlet.hear(Word::Sent { value: read.slice(..100_000) }).unwrap();
    assert!(!read.is_unique());
    assert_eq!(ready(recv).unwrap().len(), 100_000);
}

/// The link counts arriving values, and is notified of receives before there is a further place to promise.
#[test]
fn link_counts_buffered_values() {
    let (near, mut rx) = channel_with::<u8>(fifo(8));
    let (inlet, way) = (AnyInlet::from(Inlet::new(near)), Arc::new(Counts::default()));
    inlet.lend_at_most(4);
    assert_eq!(inlet.credits(), 4);
    assert!(inlet.link(TERMS, way.clone()));
    for number in 1..=4 {
        inlet.hear(Word::Sent { value: message(number) }).unwrap();
    }
    assert_eq!(way.take(), [Counted::Come(2, 1), Counted::Come(2, 2), Counted::Come(2, 3), Counted::Come(2, 4)]);
    way.most.store(2, Ordering::SeqCst);
    for number in 1..=3 {
        assert_eq!(ready(pin!(rx.recv())), Ok(number));
    }
    // Until a value has arrived, the link has not reported less room.
    let places = [Counted::Promised(1, 3), Counted::Promised(1, 2), Counted::Promised(1, 1)];
    assert_eq!(way.take(), places);
    inlet.hear(Word::Sent { value: message(5) }).unwrap();
    assert_eq!(way.take(), [Counted::Come(2, 2)]);
    assert_eq!(ready(pin!(rx.recv())), Ok(4));
    assert_eq!(ready(pin!(rx.recv())), Ok(5));
    // Two places are already promised, which is the maximum; half of the buffered values are received.
    assert_eq!(way.take(), [Counted::Promised(0, 0)]);
}

/// The agent returns buffered values to their places as values, and no later value overtakes them.
#[test]
fn buffered_values_keep_their_order_when_agent_resumes() {
    let (mut rx, mut inlet, back) = receiving::<u8, Way>(fifo(2));
    inlet.hear(Word::Sent { value: message(1) }).unwrap();
    inlet.hear(Word::Sent { value: message(2) }).unwrap();
    inlet.unlink();
    assert!(poll(pin!(rx.recv())).is_pending(), "the values are with the agent");
    assert_eq!(inlet.take_returned(), Some(vec![]), "they are none of its offers");
    let three: Value = inlet.shape().wrap(3u8).unwrap_or_else(|_| unreachable!("a u8"));
    let Err(three) = inlet.push(three) else { panic!("there is no place") };
    assert_eq!(ready(pin!(rx.recv())), Ok(1));
    assert!(matches!(inlet.poll(&mut cx()), Poll::Ready(FromReceiver::Credit(1))));
    assert_eq!(inlet.push(three).ok(), Some(2));
    assert_eq!(ready(pin!(rx.recv())), Ok(2));
    assert_eq!(ready(pin!(rx.recv())), Ok(3));
    assert!(back.take().is_empty());
}

/// While the agent has buffered values, the channel has not ended, though the sender has ended it.
#[test]
fn channel_stays_open_while_the_agent_has_buffered_values() {
    let (mut rx, inlet, _) = receiving::<u8, Way>(fifo(2));
    inlet.hear(Word::Sent { value: message(1) }).unwrap();
    inlet.unlink();
    inlet.retire();
    assert!(poll(pin!(rx.recv())).is_pending(), "a value is to come");
    assert_eq!(inlet.take_returned(), Some(vec![]));
    assert_eq!(ready(pin!(rx.recv())), Ok(1));
}

/// A receive that waits for them is woken; a receiver that has poisoned the channel meanwhile gets nothing.
#[test]
fn returned_buffered_values_are_received_or_dropped() {
    let (mut rx, inlet, _) = receiving::<u8, Way>(fifo(2));
    inlet.hear(Word::Sent { value: message(1) }).unwrap();
    inlet.unlink();
    let mut recv = pin!(rx.recv());
    let count = Arc::new(Count::default());
    assert!(recv.as_mut().poll(&mut Context::from_waker(&Waker::from(count.clone()))).is_pending());
    assert!(inlet.take_returned().is_some());
    assert_eq!(count.0.load(Ordering::SeqCst), 1);
    assert_eq!(ready(recv), Ok(1));

    let (rx, inlet, _) = receiving::<Living, Way>(fifo(2));
    inlet.hear(Word::Sent { value: message(1) }).unwrap();
    inlet.unlink();
    rx.poison("done");
    assert!(inlet.take_returned().is_some());
    assert_eq!(ALIVE.get(), 0, "it is dropped");
}

thread_local! {
    static ALIVE: Cell<u32> = const { Cell::new(0) };
}

/// Is counted while it exists.
#[derive(Serialize)]
struct Living(u8);

impl<'de> Deserialize<'de> for Living {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = u8::deserialize(deserializer)?;
        ALIVE.set(ALIVE.get() + 1);
        Ok(Self(number))
    }
}

impl Drop for Living {
    fn drop(&mut self) {
        ALIVE.set(ALIVE.get() - 1);
    }
}

/// New values do not take the places of values that the agent has.
#[test]
fn new_value_does_not_overtake_values_held_by_the_agent() {
    let (mut rx, inlet, _) = receiving::<u8, Way>(drop_newest(1));
    inlet.hear(Word::Offer { ticket: 1, value: message(1) }).unwrap();
    inlet.unlink();
    inlet.offer(2, inlet.shape().wrap(2u8).unwrap_or_else(|_| unreachable!("a u8")));
    assert!(inlet.take_returned().is_some());
    assert_eq!(ready(pin!(rx.recv())), Ok(1));
    assert!(poll(pin!(rx.recv())).is_pending(), "the second found no place");
}

/// The agent reports a value that cannot be decoded.
#[test]
fn undecodable_buffered_value_goes_to_the_agent() {
    let (mut rx, inlet, _) = receiving::<u8, Way>(fifo(2));
    inlet.hear(Word::Sent { value: Bytes::from_static(&[0, 0x61, b'x']) }).unwrap();
    inlet.hear(Word::Sent { value: message(2) }).unwrap();
    assert!(poll(pin!(rx.recv())).is_pending());
    let returned = inlet.take_returned().expect("the agent has resumed");
    assert!(matches!(returned[..], [Returned::Unreadable(Why::Unsendable(_))]), "{returned:?}");
}

/// A policy that drops values drops bytes as well.
#[test]
fn an_overflow_policy_decides_over_bytes() {
    let (mut rx, inlet, back) = receiving::<u8, Way>(overwrite_oldest(2));
    for number in 1..=3 {
        inlet.hear(Word::Offer { ticket: number.into(), value: message(number) }).unwrap();
        assert_eq!(one(&back), Word::Taken { ticket: number.into() });
    }
    assert_eq!(ready(pin!(rx.recv())), Ok(2));
    inlet.unlink();
    assert_eq!(inlet.take_returned(), Some(vec![]));
    assert_eq!(ready(pin!(rx.recv())), Ok(3));
    assert!(poll(pin!(rx.recv())).is_pending());
}

/// A link's notices about a buffer.
#[derive(Debug, PartialEq, Eq)]
enum Counted {
    Come(usize, usize),
    Promised(u32, usize),
}

#[derive(Default)]
struct Counts {
    heard: Mutex<Vec<Counted>>,
    /// The value that it answers; 0 means no answer.
    most: AtomicU32,
}

impl Counts {
    fn take(&self) -> Vec<Counted> {
        std::mem::take(&mut self.heard.lock().unwrap())
    }
}

impl Link for Counts {
    fn say(&self, _: Word) -> Option<Waker> {
        None
    }

    fn close(&self) -> Option<Waker> {
        None
    }

    fn promise(&self, places: u32, buffered: usize) -> Option<Waker> {
        self.heard.lock().unwrap().push(Counted::Promised(places, buffered));
        None
    }

    fn has_come(&self, bytes: usize, buffered: usize) -> Option<u32> {
        self.heard.lock().unwrap().push(Counted::Come(bytes, buffered));
        Some(self.most.load(Ordering::SeqCst)).filter(|most| *most > 0)
    }
}

/// Open operations have to be settled first.
#[test]
fn agent_with_open_operations_does_not_stand_by() {
    let (near, _rx) = channel_with::<u8>(fifo(2));
    let inlet = AnyInlet::from(Inlet::new(near));
    assert!(!inlet.link(TERMS, Arc::new(Way::default())), "no place has been promised");
    assert_eq!(inlet.credits(), 2);
    assert!(inlet.link(TERMS, Arc::new(Way::default())));

    let (near, mut rx) = channel_with::<u8>(fifo(4));
    let mut inlet = AnyInlet::from(Inlet::new(near));
    assert_eq!(inlet.credits(), 4);
    for number in 0..4u8 {
        assert!(inlet.push(inlet.shape().wrap(number).unwrap_or_else(|_| unreachable!("a u8"))).is_ok());
    }
    inlet.lend_at_most(1);
    for number in 0..3 {
        assert_eq!(ready(pin!(rx.recv())), Ok(number));
    }
    assert!(!inlet.link(TERMS, Arc::new(Way::default())), "the sender must be notified of the smaller buffer");
    assert!(matches!(inlet.poll(&mut cx()), Poll::Ready(FromReceiver::Credit(0))));
    assert!(inlet.link(TERMS, Arc::new(Way::default())));

    let (mut tx, far) = channel::<u8>();
    let mut outlet = AnyOutlet::from(Outlet::new(far));
    {
        let mut send = pin!(tx.send(1));
        assert!(poll(send.as_mut()).is_pending());
        assert!(!outlet.link(TERMS, Arc::new(Way::default())), "an offer has not been sent");
        let Poll::Ready(Event::FirmOffer(ticket, value)) = outlet.poll(&mut cx()) else { panic!("it is offered") };
        assert!(!outlet.link(TERMS, Arc::new(Way::default())), "an offer is out");
        outlet.failed(ticket, Some(value), Why::Refused);
        assert!(ready(send).is_err());
    }
    tx.retire();
    assert!(matches!(outlet.poll(&mut cx()), Poll::Ready(Event::Retired)));
    assert!(!outlet.link(TERMS, Arc::new(Way::default())), "the channel has ended");
}

/// The agent reports the end of the channel as if it had not stood by.
#[test]
fn standby_agent_reports_channel_end() {
    let (tx, mut outlet, forth) = sending::<u8, Way>();
    drop(tx);
    assert!(!outlet.stands_by(&cx()));
    assert!(matches!(outlet.poll(&mut cx()), Poll::Ready(Event::Gone)));
    assert!(forth.take().is_empty());

    let (rx, mut inlet, back) = receiving::<u8, Way>(rendezvous());
    rx.retire();
    assert!(!inlet.stands_by(&cx()));
    assert!(matches!(inlet.poll(&mut cx()), Poll::Ready(FromReceiver::Retired)));
    assert!(back.take().is_empty());
}
