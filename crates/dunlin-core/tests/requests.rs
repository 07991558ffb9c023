//! Requests over a link: values with places for replies in them, while the agents of their channel stand by.
//! Each place has one owner at any time, also when the request is given back, or not taken once it has been
//! decoded.

mod halves;
mod polls;

use std::cell::RefCell;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Mutex;
use std::task::{Poll, Waker};

use bytes::Bytes;
use dunlin_core::__rt::{Answer, reply};
use dunlin_core::agent::Event;
use dunlin_core::carrier::{Agent, AnyInlet, AnyOutlet, CarriedEnd, EndKind, Inbox, Outbox, Returned, Sealed};
use dunlin_core::remote::{Link, ReadPlaces, Request, SentPlaces, Word};
use dunlin_core::{Choice, Receiver, Reply, SendError, Why, channel};
use dunlin_core::{fifo, rendezvous};
use halves::{Hears, receiving, sending};
use polls::{cx, poll, ready};
use serde::{Deserialize, Deserializer, Serialize};

/// What a half has told its link.
#[derive(Debug)]
enum Said {
    Word(Word),
    Request(u64, Bytes, Sealed),
    Read(Vec<Option<AnyOutlet>>),
    /// Which read was taken for the offer.
    Takes(u64, usize),
    TakesNot(usize),
}

#[derive(Default)]
struct Desk {
    said: Mutex<Vec<Said>>,
    reads: Mutex<usize>,
}

impl Desk {
    fn push(&self, said: Said) {
        self.said.lock().unwrap().push(said);
    }

    fn take(&self) -> Vec<Said> {
        std::mem::take(&mut self.said.lock().unwrap())
    }
}

impl Link for Desk {
    fn say(&self, word: Word) -> Option<Waker> {
        self.push(Said::Word(word));
        None
    }

    fn write_request(&self, write: &mut dyn FnMut() -> Poll<Result<Bytes, Why>>) -> Poll<Result<Request, Why>> {
        let mut outbox = Outbox::new();
        let Ok(value) = outbox.encode(|| match write() {
            Poll::Ready(Ok(value)) => Ok(value),
            _ => Err(()),
        }) else {
            return Poll::Ready(Err(Why::Refused));
        };
        let sealed = outbox.seal().unwrap();
        Poll::Ready(if sealed.ends().any(|end| end.kind != EndKind::Reply) {
            Err(Why::Refused)
        } else if sealed.ends().len() == 0 {
            Ok((value, None))
        } else {
            Ok((value, Some(Box::new(sealed))))
        })
    }

    fn request(&self, ticket: u64, value: Bytes, places: SentPlaces) -> Option<Waker> {
        self.push(Said::Request(ticket, value, *places.downcast().unwrap()));
        None
    }

    fn read_request(
        &self,
        message: &Bytes,
        read: &mut dyn FnMut(&Bytes) -> Result<(), Why>,
    ) -> Result<ReadPlaces, Why> {
        let (count, body) = message.split_first().unwrap();
        let mut inbox = Inbox::default();
        (0..u64::from(*count)).for_each(|token| inbox.expect(token, EndKind::Reply, fifo(1)));
        inbox.decode(|| read(&Bytes::from([&[0], body].concat())))?;
        let slots = inbox.into_adopted().into_iter().map(|end| match end.agent {
            Some(Agent::Outlet(slot)) => Some(slot),
            _ => None,
        });
        self.push(Said::Read(slots.collect()));
        let mut reads = self.reads.lock().unwrap();
        *reads += 1;
        Ok(Box::new(*reads))
    }

    fn takes(&self, ticket: u64, places: ReadPlaces) {
        self.push(Said::Takes(ticket, *places.downcast().unwrap()));
    }

    fn takes_not(&self, places: ReadPlaces) -> Option<Waker> {
        self.push(Said::TakesNot(*places.downcast().unwrap()));
        None
    }

    fn close(&self) -> Option<Waker> {
        None
    }
}

type Ask = (Slow, Reply<u32>);

thread_local! {
    static ON_READ: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
}

/// Calls the function in [`ON_READ`] while it is decoded.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Slow(u8);

impl<'de> Deserialize<'de> for Slow {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = u8::deserialize(deserializer)?;
        ON_READ.take().into_iter().for_each(|f| f());
        Ok(Self(number))
    }
}

/// The message of a request with this body, and with this many places.
fn message(places: u8, body: &[u8]) -> Bytes {
    Bytes::from([&[places], &body[1..]].concat())
}

/// A request as it was sent.
fn sent(number: u8) -> (Bytes, Answer<u32>) {
    let (mut tx, _outlet, desk) = sending::<Ask, Desk>();
    let (place, answer) = reply();
    let mut send = pin!(tx.send((Slow(number), place)));
    assert!(poll(send.as_mut()).is_pending());
    let said = desk.take();
    let [Said::Request(_, body, _)] = &said[..] else { panic!("{said:?}") };
    (message(1, body), answer)
}

/// The agent of a place whose request was taken.
fn hand_over(places: Sealed) -> AnyInlet {
    let ends: Vec<_> = places.hand_over().collect();
    let [Some(end)]: [Option<CarriedEnd>; 1] = ends.try_into().unwrap() else { panic!("it is there") };
    let Agent::Inlet(inlet) = end.into_agent() else { panic!("a reply is sent here") };
    inlet
}

#[test]
fn a_request_and_its_reply_need_no_agent_of_their_channel() {
    let (mut tx, outlet, desk) = sending::<Ask, Desk>();
    let (mut rx, inlet, there) = receiving::<Ask, Desk>(rendezvous());
    for number in 1..4 {
        let (place, mut answer) = reply();
        let mut send = pin!(tx.send((Slow(number), place)));
        assert!(poll(send.as_mut()).is_pending());
        let [Said::Request(ticket, body, places)]: [Said; 1] = desk.take().try_into().unwrap() else {
            panic!("it has a place");
        };
        inlet.hear(Word::Request { ticket, value: message(1, &body) }).unwrap();
        let (slow, place) = ready(pin!(rx.recv())).unwrap();
        let said = there.take();
        let [Said::Read(slots), Said::Takes(taken, _), Said::Word(Word::Taken { ticket: word })] = &said[..] else {
            panic!("{said:?}");
        };
        assert_eq!((slow.0, slots.len(), *taken, *word), (number, 1, ticket, ticket));
        // The place has its new owner before the send drops it.
        let caller = hand_over(places);
        outlet.hear(Word::Taken { ticket }).unwrap();
        assert!(ready(send).is_ok());
        assert!(poll(pin!(&mut answer)).is_pending(), "the dropped place was given away");
        place.send(7).unwrap();
        caller.credits();
        caller.push(caller.shape().wrap(7u32).unwrap_or_else(|_| unreachable!("a u32"))).unwrap();
        assert_eq!(ready(pin!(answer)), Ok(7));
    }
    assert!(outlet.stands_by(&cx()) && inlet.stands_by(&cx()));
}

#[test]
fn a_value_without_places_goes_beside_requests() {
    let (mut tx, outlet, desk) = sending::<(u8, Option<Reply<u32>>), Desk>();
    for place in [Some(reply().0), None] {
        let is_request = place.is_some();
        let mut send = pin!(tx.send((1, place)));
        assert!(poll(send.as_mut()).is_pending());
        let ticket = match &desk.take()[..] {
            [Said::Request(ticket, ..)] if is_request => *ticket,
            [Said::Word(Word::Offer { ticket, value })] if !is_request => {
                assert_eq!(value[0], 0);
                *ticket
            }
            said => panic!("{said:?}"),
        };
        outlet.hear(Word::Taken { ticket }).unwrap();
        assert!(ready(send).is_ok());
    }
}

#[test]
fn a_request_that_is_given_back_has_its_places() {
    let (mut tx, outlet, desk) = sending::<Ask, Desk>();
    let (place, answer) = reply();
    let mut send = Box::pin(tx.send((Slow(1), place)));
    assert!(poll(send.as_mut()).is_pending());
    let said = desk.take();
    let [Said::Request(ticket, ..)] = said[..] else { panic!("{said:?}") };
    outlet.hear(Word::Failed { ticket, why: Why::Refused }).unwrap();
    let Err(SendError::NotTaken { value: (_, place), .. }) = ready(send.as_mut()) else { panic!("it was refused") };
    drop(said);
    place.send(3).unwrap();
    assert_eq!(ready(pin!(answer)), Ok(3));
}

#[test]
fn other_ends_go_to_the_agent() {
    let (mut tx, mut outlet, desk) = sending::<(Reply<u32>, Receiver<u8>), Desk>();
    let mut send = pin!(tx.send((reply().0, channel().1)));
    assert!(poll(send.as_mut()).is_pending());
    assert!(outlet.take_over().is_some_and(|open| open.offers.is_empty()));
    assert!(matches!(outlet.poll(&mut cx()), Poll::Ready(Event::FirmOffer(..))));
    assert!(desk.take().is_empty());
}

#[test]
fn choices_and_extended_receives_take_requests() {
    let (mut rx, inlet, there) = receiving::<Ask, Desk>(rendezvous());
    let (_open, mut never) = channel::<u8>();
    let (request, _answer) = sent(1);
    inlet.hear(Word::Request { ticket: 5, value: request }).unwrap();
    let choice = Choice::fair().on(rx.recv(), Ok).on(never.recv(), Err);
    assert!(matches!(ready(pin!(choice.into_future())), (0, Ok(Ok((Slow(1), _))))));
    let said = there.take();
    let taken = [Said::Takes(5, 1), Said::Word(Word::Taken { ticket: 5 })];
    assert_eq!(format!("{:?}", &said[1..]), format!("{taken:?}"));

    let (request, _answer) = sent(2);
    inlet.hear(Word::Request { ticket: 6, value: request }).unwrap();
    drop(ready(pin!(rx.recv_extended())).unwrap().release());
    let said = there.take();
    let held = [Said::Takes(6, 2), Said::Word(Word::Held { ticket: 6 }), Said::Word(Word::Released { ticket: 6 })];
    assert_eq!(format!("{:?}", &said[1..]), format!("{held:?}"));
    assert!(inlet.stands_by(&cx()));
}

/// A send is given up while its request is decoded.
#[test]
fn a_request_withdrawn_while_it_is_decoded_leaves_its_places() {
    let (mut rx, inlet, there) = receiving::<Ask, Desk>(rendezvous());
    let inlet = Rc::new(inlet);
    let (request, _answer) = sent(1);
    inlet.hear(Word::Request { ticket: 5, value: request }).unwrap();
    let here = inlet.clone();
    ON_READ.set(Some(Box::new(move || here.hear(Word::Withdraw { ticket: 5 }).unwrap())));
    let mut recv = pin!(rx.recv());
    assert!(poll(recv.as_mut()).is_pending());
    let said = there.take();
    let [Said::Word(Word::Withdrawn { ticket: 5 }), Said::Read(_), Said::TakesNot(1)] = &said[..] else {
        panic!("{said:?}");
    };
    let (request, _answer) = sent(2);
    inlet.hear(Word::Request { ticket: 6, value: request }).unwrap();
    assert!(matches!(ready(recv), Ok((Slow(2), _))));
    let said = there.take();
    let [Said::Read(_), Said::Takes(6, 2), Said::Word(Word::Taken { ticket: 6 })] = &said[..] else {
        panic!("{said:?}");
    };
}

/// The agent resumes while a request is decoded, and decodes it again.
#[test]
fn a_request_decoded_for_an_earlier_link_leaves_its_places() {
    let (mut rx, inlet, there) = receiving::<Ask, Desk>(rendezvous());
    let inlet = Rc::new(inlet);
    let (request, _answer) = sent(1);
    inlet.hear(Word::Request { ticket: 5, value: request.clone() }).unwrap();
    let here = inlet.clone();
    ON_READ.set(Some(Box::new(move || here.unlink())));
    assert!(poll(pin!(rx.recv())).is_pending());
    assert_eq!(inlet.take_returned(), Some(vec![Returned::Offer(5, request)]));
    let said = there.take();
    let [Said::Read(_), Said::TakesNot(1)] = &said[..] else { panic!("{said:?}") };
}

#[test]
fn a_request_that_cannot_be_decoded_goes_to_the_agent() {
    for value in [message(1, &[0, 0x61]), message(2, &[0])] {
        let (mut rx, inlet, there) = receiving::<Ask, Desk>(rendezvous());
        inlet.hear(Word::Request { ticket: 5, value: value.clone() }).unwrap();
        assert!(poll(pin!(rx.recv())).is_pending());
        assert_eq!(inlet.take_returned(), Some(vec![Returned::Offer(5, value)]));
        assert!(there.take().is_empty());
    }
}

/// A value enters a buffer unread, but its places belong to a receiver.
#[test]
fn a_buffer_takes_no_request() {
    let (_rx, inlet, there) = receiving::<Ask, Desk>(fifo(1));
    there.take();
    let (request, _answer) = sent(1);
    let word = Word::Request { ticket: 5, value: request };
    assert_eq!(inlet.hear(word.clone()), Err(word));
    assert!(there.take().is_empty());
}

#[derive(Debug, Serialize)]
struct Ignored;

impl<'de> Deserialize<'de> for Ignored {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        serde::de::IgnoredAny::deserialize(deserializer).map(|_| Self)
    }
}

/// The reader of a message need not read every place in it.
#[test]
fn an_unread_place_has_no_slot() {
    let (mut tx, _outlet, desk) = sending::<Ask, Desk>();
    let mut send = pin!(tx.send((Slow(1), reply().0)));
    assert!(poll(send.as_mut()).is_pending());
    let said = desk.take();
    let [Said::Request(_, body, _)] = &said[..] else { panic!("{said:?}") };
    let (mut rx, inlet, there) = receiving::<(Slow, Ignored), Desk>(rendezvous());
    inlet.hear(Word::Request { ticket: 5, value: message(1, body) }).unwrap();
    assert!(ready(pin!(rx.recv())).is_ok());
    let said = there.take();
    let [Said::Read(slots), ..] = &said[..] else { panic!("{said:?}") };
    assert!(matches!(slots[..], [None]));
}
