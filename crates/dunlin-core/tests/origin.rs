//! The numbers of choices have one order over several processes. The test has a process of its own, because
//! an origin is set once.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use dunlin_core::agent::{Event, FromReceiver, Inlet, Outlet, Reserved, set_origin};
use dunlin_core::{alt, channel};

/// A choice {send, receive}: its send is reserved for a remote receiver, and it has reserved the send of the
/// remote choice `theirs`. Returns its number, and whether it has given that reservation back.
fn meets(theirs: impl FnOnce(u128) -> u128) -> (u128, bool) {
    let ((mut tx, far), (near, mut rx)) = (channel(), channel());
    let (mut outlet, mut inlet) = (Outlet::new(far), Inlet::new(near));
    let cx = &mut Context::from_waker(Waker::noop());
    let mut slot = Some(1);
    let mut choice = pin!(async {
        alt! { sent = tx.send_from(&mut slot) => drop(sent), got = rx.recv() => drop(got) }
    });
    // At first the choice gives receivers a turn.
    for _ in 0..20 {
        assert!(choice.as_mut().poll(cx).is_pending());
    }
    let Poll::Ready(Event::ChoiceOffer(ticket, number)) = outlet.poll(cx) else { panic!("a choice offers") };
    inlet.offer_choice(7, theirs(number));
    assert!(choice.as_mut().poll(cx).is_pending());
    let Poll::Ready(FromReceiver::Reserve(7, request)) = inlet.poll(cx) else {
        panic!("the choice requests that offer")
    };
    let Reserved::Granted(1) = outlet.reserve(ticket) else { panic!("it is open") };
    assert_eq!(inlet.grant(7, request, 2), Ok(()));
    assert!(choice.as_mut().poll(cx).is_pending());
    (number, matches!(inlet.poll(cx), Poll::Ready(FromReceiver::Abort(7, Some(2)))))
}

#[test]
fn the_origin_comes_first_in_the_order_of_choices() {
    assert!(set_origin(5) && set_origin(5));
    assert!(!set_origin(6), "the first one stands");
    let (first, _) = meets(|mine| mine + 1);
    let (second, _) = meets(|mine| mine + 1);
    assert_eq!((first >> 64, second >> 64), (5, 5));
    assert!(first < second);
    assert!(meets(|mine| mine + 1).1, "the lower gives back");
    assert!(!meets(|mine| mine - 1).1);
    assert!(meets(|_| 6 << 64).1, "first by origin, then by count");
    assert!(!meets(|_| (4 << 64) + u128::from(u64::MAX)).1);
}
