//! A choice whose offers go through agents: whose turn it is, and how long others wait.

use std::cell::{Cell, RefCell};
use std::future::{Future, pending, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use dunlin_core::agent::{Event, FromReceiver, Inlet, Outlet, Reserved, join};
use dunlin_core::{PATIENCE_TICKS, Receiver, Sender, alt, channel, future, waits};

/// The task that carries between two halves.
type Carrier = Pin<Box<dyn Future<Output = ()>>>;

fn halves() -> (Sender<u32>, Receiver<u32>, Carrier) {
    let ((tx, far), (near, rx)) = (channel(), channel());
    (tx, rx, Box::pin(join(Outlet::new(far), Inlet::new(near))))
}

/// One step of one party, in an order that the test sets: a wake causes no poll.
fn poll<F: Future + ?Sized>(future: &mut Pin<&mut F>) -> Option<F::Output> {
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// More polls than a choice grants the receivers that its offers have woken before it polls its other
/// branches.
const TURNS: u32 = 20;

/// All tests of a program share one clock: the tests that depend on it run one at a time.
fn alone() -> MutexGuard<'static, ()> {
    static TIME: Mutex<()> = Mutex::new(());
    TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Every party is polled in turn, but the choice finds itself reserved each time: it is requested again
/// between its release and its next poll. Its other branch is ready, and happens.
#[test]
fn revoking_choice_is_not_reserved_again_before_its_turn() {
    let _alone = alone();
    let (mut tx, rx, mut agents) = halves();
    let mut rx = rx.share();
    let (mut ry, mut slot, due) = (rx.clone(), Some(1), Cell::new(false));
    let mut choice = pin!(async {
        alt! { biased;
            sent = tx.send_from(&mut slot) => panic!("{sent:?}"),
            () = future(poll_fn(|_| if due.get() { Poll::Ready(()) } else { Poll::Pending })) => {}
        }
    });
    let (mut first, mut second) = (pin!(rx.recv()), pin!(ry.recv()));
    (0..TURNS).for_each(|_| assert_eq!(poll(&mut choice), None));
    assert_eq!(poll(&mut agents.as_mut()), None);
    due.set(true);
    let mut rounds = 0;
    loop {
        assert_eq!((poll(&mut first), poll(&mut second)), (None, None));
        assert_eq!(poll(&mut agents.as_mut()), None);
        if poll(&mut choice).is_some() {
            break;
        }
        assert_eq!(poll(&mut agents.as_mut()), None);
        rounds += 1;
        assert!(rounds < 10, "the receivers request for ever");
    }
}

/// A choice has revoked its reservation: a receiver that requests it again waits until the choice has been
/// polled, or, if it is not polled any more, for no longer than its patience.
#[test]
fn revoking_choice_is_reserved_again_after_its_turn() {
    let _alone = alone();
    for sleeps in [false, true] {
        let (mut tx, mut rx, mut agents) = halves();
        let mut slot = Some(1);
        let mut choice = pin!(async {
            alt! { sent = tx.send_from(&mut slot) => sent, () = future(pending()) => Ok(()) }
        });
        let mut receive = pin!(rx.recv());
        let mut carry = || assert_eq!(poll(&mut agents.as_mut()), None);
        (0..TURNS).for_each(|_| assert_eq!(poll(&mut choice), None));
        carry();
        assert_eq!(poll(&mut receive), None, "asks for it");
        carry();
        assert_eq!(poll(&mut choice), None, "finds itself reserved");
        (0..10).for_each(|_| {
            carry();
            assert_eq!(poll(&mut receive), None, "it is the choice's turn");
        });
        carry();
        if sleeps {
            waits::advance(waits::tick() + PATIENCE_TICKS - 1);
            carry();
            assert_eq!(poll(&mut receive), None, "too early");
            waits::advance(waits::tick() + 1);
        } else {
            assert_eq!(poll(&mut choice), None, "has its turn");
        }
        carry();
        assert_eq!(poll(&mut receive), Some(Ok(1)));
        carry();
        assert_eq!(poll(&mut choice), Some(Ok(())));
    }
}

/// A local receiver may take during the choice's turn: it decides at once and returns nothing.
#[test]
fn local_receiver_does_not_wait_for_the_turn_of_a_choice() {
    let _alone = alone();
    let ((mut tx, mut rx, mut agents), (mut ty, mut ry)) = (halves(), channel());
    let (mut a, mut b) = (Some(1), Some(2));
    let mut choice = pin!(async {
        alt! { biased;
            sent = tx.send_from(&mut a) => panic!("{sent:?}"),
            sent = ty.send_from(&mut b) => sent,
            () = future(pending()) => Ok(()),
        }
    });
    let mut receive = pin!(rx.recv());
    (0..2 * TURNS).for_each(|_| assert_eq!(poll(&mut choice), None));
    assert_eq!((poll(&mut agents.as_mut()), poll(&mut receive)), (None, None));
    assert_eq!(poll(&mut agents.as_mut()), None);
    let mut here = pin!(ry.recv());
    assert_eq!(poll(&mut here), None, "it is reserved");
    assert_eq!(poll(&mut choice), None, "calls back");
    assert_eq!(poll(&mut agents.as_mut()), None);
    assert_eq!((poll(&mut receive), poll(&mut agents.as_mut())), (None, None), "has to wait");
    assert_eq!(poll(&mut here), Some(Ok(2)));
    assert_eq!(poll(&mut choice), Some(Ok(())));
    assert_eq!((poll(&mut agents.as_mut()), poll(&mut receive)), (None, None));
}

/// A choice is reserved while it polls a foreign future, which then happens. The choice's future is kept, so
/// its offer is not withdrawn; the receiver is notified and requests another choice.
#[test]
fn a_receiver_waiting_for_a_choice_is_notified_when_it_is_decided() {
    let _alone = alone();
    let (tx, mut rx, mut agents) = halves();
    let carry = RefCell::new(|| assert_eq!(poll(&mut agents.as_mut()), None));
    let mut one = tx.share();
    let (mut other, mut receive, mut a, mut b, ready) =
        (one.clone(), pin!(rx.recv()), Some(1), Some(2), Cell::new(false));
    let mut offer = one.send_from(&mut a);
    {
        let mut first = pin!(async {
            alt! { biased;
                sent = &mut offer => panic!("{sent:?}"),
                () = future(poll_fn(|_| {
                    let ready = ready.get();
                    if ready {
                        assert_eq!(poll(&mut receive), None);
                        carry.borrow_mut()();
                    }
                    if ready { Poll::Ready(()) } else { Poll::Pending }
                })) => {}
            }
        });
        (0..TURNS).for_each(|_| assert_eq!(poll(&mut first), None));
        carry.borrow_mut()();
        ready.set(true);
        assert_eq!(poll(&mut first), Some(()));
    }
    let mut second = pin!(async {
        alt! { sent = other.send_from(&mut b) => sent, () = future(pending()) => Ok(()) }
    });
    (0..TURNS).for_each(|_| assert_eq!(poll(&mut second), None));
    let mut received = None;
    for _ in 0..4 {
        carry.borrow_mut()();
        received = received.or_else(|| poll(&mut receive));
    }
    assert_eq!((received, poll(&mut second)), (Some(Ok(2)), Some(Ok(()))));
    drop(offer);
    assert_eq!(a, Some(1));
}

/// A future that is never ready has its choice polled more often than a value travels. The choice revokes its
/// reservation once, to poll that future, and leaves the next reservation to the receiver.
#[test]
fn frequently_polled_future_does_not_starve_a_send() {
    let _alone = alone();
    let (mut tx, mut rx, mut agents) = halves();
    let (mut slot, polls) = (Some(1), Cell::new(0));
    let mut choice = pin!(async {
        alt! { biased;
            sent = tx.send_from(&mut slot) => sent,
            () = future(poll_fn(|_| { polls.set(polls.get() + 1); Poll::Pending })) => Ok(()),
        }
    });
    let mut receive = pin!(rx.recv());
    let (mut sent, mut received, mut rounds) = (None, None, 0);
    while sent.is_none() {
        rounds += 1;
        assert!(rounds < 10, "it asks back again and again");
        if received.is_none() {
            received = poll(&mut receive);
        }
        // Between any two steps of the others.
        for _ in 0..2 {
            assert_eq!(poll(&mut agents.as_mut()), None);
            for _ in 0..TURNS {
                if sent.is_none() {
                    sent = poll(&mut choice);
                }
            }
        }
    }
    assert_eq!((sent, received), (Some(Ok(())), Some(Ok(1))));
    assert!(polls.get() > 0, "it has been looked at");
}

/// A branch that stays ready once it is ready is checked while the choice is reserved; the reservation is
/// revoked only when the branch is ready. So a sender that waits for another channel's end does not delay it.
#[test]
fn branch_that_stays_ready_is_checked_without_revoking() {
    let _alone = alone();
    for ends in [false, true] {
        let ((mut tx, mut rx, mut agents), (mut ty, ry)) = (halves(), channel::<u32>());
        let (mut slot, ry) = (Some(1), Cell::new(Some(ry)));
        let mut choice = pin!(async {
            alt! { biased;
                sent = tx.send_from(&mut slot) => { sent.unwrap(); true }
                () = ty.closed() => false,
            }
        });
        let mut receive = pin!(rx.recv());
        (0..TURNS).for_each(|_| assert_eq!(poll(&mut choice), None));
        assert_eq!(poll(&mut agents.as_mut()), None);
        assert_eq!(poll(&mut receive), None, "asks for it");
        assert_eq!(poll(&mut agents.as_mut()), None);
        if ends {
            drop(ry.take());
        }
        assert_eq!(poll(&mut choice), None, "finds itself reserved");
        assert_eq!(poll(&mut agents.as_mut()), None);
        assert_eq!(poll(&mut receive), if ends { None } else { Some(Ok(1)) });
        assert_eq!(poll(&mut agents.as_mut()), None);
        assert_eq!(poll(&mut choice), Some(!ends));
    }
}

fn said(outlet: &mut Outlet<u32>) -> Option<Event<u32>> {
    match outlet.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(event) => Some(event),
        Poll::Pending => None,
    }
}

/// For a branch that must be polled, every other reservation is revoked, once however often the choice is
/// polled; for a branch that is ready, every reservation is.
#[test]
fn choice_revokes_every_other_reservation_unless_a_branch_is_ready() {
    let _alone = alone();
    let ((mut tx, rx), (mut ty, ry)) = (channel(), channel::<u32>());
    let (mut outlet, mut slot, mut ry) = (Outlet::new(rx), Some(1), Some(ry));
    let mut choice = pin!(async {
        alt! { biased;
            sent = tx.send_from(&mut slot) => { sent.unwrap(); true }
            () = future(pending()) => true,
            () = ty.closed() => false,
        }
    });
    (0..TURNS).for_each(|_| assert_eq!(poll(&mut choice), None));
    let Some(Event::ChoiceOffer(ticket, _)) = said(&mut outlet) else { panic!() };
    for (asked, ready) in [(true, false), (false, false), (true, false), (true, true)] {
        let Reserved::Granted(value) = outlet.reserve(ticket) else { panic!() };
        if ready {
            drop(ry.take());
        }
        (0..TURNS).for_each(|_| assert_eq!(poll(&mut choice), None));
        assert_eq!(matches!(said(&mut outlet), Some(Event::Revoke(_))), asked);
        assert!(said(&mut outlet).is_none(), "once");
        outlet.give_back(ticket, value);
        assert_eq!(poll(&mut choice), ready.then_some(false));
    }
}

/// A receiver has been granted a choice's offer and does not use it: the value is returned, and the receiver
/// beside it is woken and requests it.
#[test]
fn another_receiver_is_woken_when_a_grant_is_given_up() {
    let _alone = alone();
    for how in ["it is not polled", "it is dropped", "its grant is asked back"] {
        let (tx, rx) = channel::<u32>();
        let (mut inlet, mut rx) = (Inlet::new(tx), rx.share());
        let mut ry = rx.clone();
        let (mut first, mut second) = (Box::pin(rx.recv()), pin!(ry.recv()));
        let woken = Arc::new(Woken(AtomicBool::new(false)));
        let waker = Waker::from(woken.clone());
        let cx = &mut Context::from_waker(&waker);
        inlet.offer_choice(1, 7);
        assert_eq!(poll(&mut first.as_mut()), None);
        let Poll::Ready(FromReceiver::Reserve(1, request)) = inlet.poll(cx) else { panic!("the first asks") };
        inlet.grant(1, request, 5).unwrap();
        assert!(second.as_mut().poll(cx).is_pending());
        woken.0.store(false, Relaxed);
        match how {
            "it is not polled" => waits::advance(waits::tick() + PATIENCE_TICKS),
            "it is dropped" => drop(first),
            _ => inlet.revoke(1),
        }
        assert!(woken.0.load(Relaxed), "{how}");
        assert!(matches!(inlet.poll(cx), Poll::Ready(FromReceiver::Abort(1, Some(5)))), "{how}");
        assert!(second.as_mut().poll(cx).is_pending());
        let Poll::Ready(FromReceiver::Reserve(1, request)) = inlet.poll(cx) else { panic!("{how}") };
        inlet.grant(1, request, 5).unwrap();
        assert_eq!(second.as_mut().poll(cx), Poll::Ready(Ok(5)), "{how}");
    }
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Relaxed);
    }
}

/// Polls the future while it wakes itself; returns the number of polls and the output.
fn polls<F: Future>(future: &mut Pin<&mut F>) -> (u32, Option<F::Output>) {
    let woken = Arc::<Woken>::default();
    for count in 1.. {
        woken.0.store(false, Relaxed);
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&woken.clone().into())) {
            return (count, Some(output));
        }
        if !woken.0.load(Relaxed) {
            return (count, None);
        }
    }
    unreachable!("it wakes itself for ever")
}

/// A send lets its receivers be polled before the choice takes another branch. Without another branch to
/// take, the choice is not polled repeatedly for that: it waits.
#[test]
fn choice_without_ready_alternative_is_polled_once() {
    let _alone = alone();
    for far in [true, false] {
        let (mut tx, mut rx, _agents) = if far {
            halves()
        } else {
            let (tx, rx) = channel();
            (tx, rx, Box::pin(pending()) as Carrier)
        };
        let (mut other, mut quiet) = channel::<u32>();
        let mut receive = pin!(rx.recv());
        assert_eq!(poll(&mut receive), None);
        let mut slot = Some(1);
        let mut choice = pin!(async {
            alt! { biased; sent = tx.send_from(&mut slot) => sent.map(|()| 1), got = quiet.recv() => Ok(got.unwrap()) }
        });
        assert_eq!(polls(&mut choice), (1, None), "far: {far}");
        // The receiver that was woken here has not been polled yet, and comes first; of a remote receiver
        // this is not known.
        let mut send = pin!(other.send(2));
        assert_eq!(poll(&mut send), None);
        let (count, output) = polls(&mut choice);
        assert_eq!((count > 1, output), (!far, Some(Ok(2))), "far: {far}");
    }
}

/// `skip` counts as another branch.
#[test]
fn a_send_has_its_turn_before_skip() {
    let _alone = alone();
    let (mut tx, mut rx, mut agents) = halves();
    let mut receive = pin!(rx.recv());
    assert_eq!((poll(&mut receive), poll(&mut agents.as_mut())), (None, None));
    let mut slot = Some(1);
    let mut choice = pin!(async {
        alt! { sent = tx.send_from(&mut slot) => Some(sent), skip => None }
    });
    assert_eq!(poll(&mut choice), None);
    assert_eq!((poll(&mut agents.as_mut()), poll(&mut receive)), (None, None));
    assert_eq!((poll(&mut agents.as_mut()), poll(&mut receive)), (None, Some(Ok(1))));
    assert_eq!(poll(&mut agents.as_mut()), None);
    assert_eq!(poll(&mut choice), Some(Some(Ok(()))));
}
