//! Calls and broadcasts in two halves: the first is a branch of a choice, and gives the second to await.
#![cfg(not(any(loom, shuttle)))]

mod common;

use std::future::ready;

use dunlin_core::waits::{self, Doing};
use dunlin_core::{BroadcastError, CallError, Operation, RecvError, Why, alt, broadcast, call, channel, doc, par};

use common::{hand, now, waiting};

/// The client of the paper's program: it asks whichever of two servers accepts first, and does not wait for
/// the other.
#[test]
fn a_client_asks_the_server_that_accepts_first() {
    let ((mut one, _busy), (mut two, mut free)) = (call::<String, usize>(), call::<String, usize>());
    let (mut first, mut second) = (Some("krill".to_string()), Some("squid".to_string()));
    let (reply, asked) = doc::block_on(async {
        par!(
            async {
                let begun = alt! {
                    begun = one.begin_from(&mut first) => begun,
                    begun = two.begin_from(&mut second) => begun,
                };
                begun.unwrap().await
            },
            async {
                let ask = free.accept().await.unwrap();
                let asked = (*ask).clone();
                ask.reply(5).unwrap();
                asked
            },
        )
    });
    assert_eq!((reply, asked.as_str()), (Ok(5), "squid"));
    assert_eq!((first.as_deref(), second), (Some("krill"), None), "the other request is back in its slot");
}

#[test]
fn a_branch_is_chosen_when_the_request_is_accepted_and_not_when_it_is_answered() {
    let ((mut caller, mut callee), (_tx, mut rx)) = (call::<u32, u32>(), channel::<u8>());
    let mut choice = waiting(async {
        alt! { begun = caller.begin(7) => Some(begun.unwrap()), _ = rx.recv() => None }
    });
    let ask = now(callee.accept()).unwrap();
    let mut begun = choice.poll().expect("it is accepted").expect("it is not received");
    drop(choice);
    // The caller can begin another call meanwhile, and be dropped.
    let mut second = waiting(caller.begin(8));
    let other = now(callee.accept()).unwrap();
    let later = second.poll().unwrap().unwrap();
    drop(second);
    drop(caller);
    let mut reply = waiting(&mut begun);
    assert_eq!((*ask, *other), (7, 8));
    ask.reply(70).unwrap();
    assert_eq!((reply.woken.count(), reply.poll()), (1, Some(Ok(70))));
    drop(other);
    assert_eq!(now(later), Err(CallError::NoReply(RecvError::Closed)));
}

#[test]
fn an_unchosen_or_dropped_beginning_has_asked_nothing() {
    let ((mut caller, mut callee), (mut tx, mut rx)) = (call::<String, u8>(), channel());
    let mut slot = Some("krill".to_string());
    let mut choice = waiting(async {
        alt! { biased; begun = caller.begin_from(&mut slot) => begun.is_ok(), v = rx.recv() => v.is_err() }
    });
    let mut send = waiting(tx.send(1));
    assert_eq!((choice.poll(), send.poll()), (Some(false), Some(Ok(()))));
    drop((choice, send));
    assert_eq!(slot.as_deref(), Some("krill"));
    assert!(hand(callee.accept()).poll().is_none(), "nothing is asked");
    drop(waiting(caller.begin_from(&mut slot)));
    assert_eq!(slot.as_deref(), Some("krill"));
    let skipped = now(async {
        alt! { biased; begun = caller.begin_from(&mut slot) => begun.is_err(), skip => true }
    });
    assert!(skipped && slot.is_some());
    // The branch of an empty slot is off.
    let mut none = None;
    let mut send = waiting(tx.send(2));
    let received = now(async {
        alt! { biased; begun = caller.begin_from(&mut none) => begun.is_err(), v = rx.recv() => v == Ok(2) }
    });
    assert!(received && send.poll() == Some(Ok(())));
    let begun = now(caller.begin_from(&mut none)).unwrap();
    assert_eq!(now(begun), Err(CallError::NoReply(RecvError::Closed)));
    assert!(hand(callee.accept()).poll().is_none(), "nothing is asked");
}

#[test]
fn a_beginning_that_fails_returns_the_request() {
    let timed_out = |request| CallError::NotTaken { request, why: Why::TimedOut };
    let (mut caller, callee) = call::<u32, u8>();
    let mut slot = Some(7);
    assert_eq!(now(caller.begin(7).until(ready(()))).unwrap_err(), timed_out(7));
    let CallError::NotTaken { why: Why::TimedOut, .. } =
        now(caller.begin_from(&mut slot).until(ready(()))).unwrap_err()
    else {
        panic!()
    };
    assert_eq!(slot, Some(7));
    let mut ends = waiting(caller.begin_from(&mut slot));
    drop(callee);
    assert!(matches!(ends.poll(), Some(Err(CallError::NotTaken { why: Why::Closed, .. }))));
    drop(ends);
    assert_eq!(slot, Some(7));
    assert_eq!(now(caller.begin(8)).unwrap_err(), CallError::NotTaken { request: 8, why: Why::Closed });
    let failed = now(async {
        alt! { begun = caller.begin(9) => begun.unwrap_err() }
    });
    assert_eq!(failed, CallError::NotTaken { request: 9, why: Why::Closed });
}

#[test]
fn a_begun_call_is_a_branch_and_takes_a_deadline() {
    let ((mut caller, mut callee), (mut tx, mut rx)) = (call::<u32, u32>(), channel());
    let mut begin = waiting(caller.begin(7));
    let ask = now(callee.accept()).unwrap();
    let mut begun = begin.poll().unwrap().unwrap();
    // Unchosen, it stands.
    let mut choice = waiting(async {
        alt! { biased; reply = &mut begun => reply.ok(), v = rx.recv() => v.ok() }
    });
    let mut send = waiting(tx.send(1));
    assert_eq!((choice.poll(), send.poll()), (Some(Some(1)), Some(Ok(()))));
    drop((choice, send));
    let mut choice = waiting(async {
        alt! { reply = &mut begun => reply.ok(), v = rx.recv() => v.ok() }
    });
    ask.reply(70).unwrap();
    assert_eq!(choice.poll(), Some(Some(70)));
    drop(choice);

    drop(begin);
    let mut begin = waiting(caller.begin(8));
    let ask = now(callee.accept()).unwrap();
    let begun = begin.poll().unwrap().unwrap();
    assert_eq!(now(begun.until(ready(()))), Err(CallError::NoReply(RecvError::TimedOut)));
    assert_eq!(ask.reply(80), Err(80), "the caller has gone");
}

#[test]
fn an_unchosen_reply_leaves_no_wait() {
    let ((mut caller, mut callee), (mut tx, mut rx)) = (call::<u32, u32>(), channel());
    let (mut begin, made) = (waiting(caller.begin(7)), line!());
    let lines = || {
        let here = |wait: &waits::Wait| wait.made.file().ends_with("tests/begin.rs") && wait.made.line() == made;
        waits::snapshot().into_iter().filter(here).count()
    };
    let _ask = now(callee.accept()).unwrap();
    let mut begun = begin.poll().unwrap().unwrap();
    let mut choice = waiting(async {
        alt! { biased; reply = &mut begun => reply.ok(), v = rx.recv() => v.ok() }
    });
    assert_eq!(lines(), 1);
    let send = waiting(tx.send(1));
    assert_eq!(choice.poll(), Some(Some(1)));
    drop((choice, send));
    assert_eq!(lines(), 0);
}

#[test]
fn a_shared_caller_begins_calls_too() {
    let ((caller, mut callee), (_tx, mut rx)) = (call::<String, usize>(), channel::<u8>());
    let (mut one, mut slot) = (caller.share(), Some("krill".to_string()));
    let mut two = one.clone();
    let claim = now(two.claim()).unwrap();
    let mut choice = waiting(async {
        alt! { begun = one.begin_from(&mut slot) => Some(begun.unwrap()), _ = rx.recv() => None }
    });
    assert!(hand(callee.accept()).poll().is_none(), "held back by the claim");
    drop(claim);
    let _ = choice.poll();
    let mut accept = hand(callee.accept());
    let ask = accept.poll().expect("the claim is over").unwrap();
    drop(accept);
    let begun = choice.poll().unwrap().unwrap();
    drop(choice);
    ask.reply(5).unwrap();
    assert_eq!((now(begun), slot), (Ok(5), None));
}

#[test]
fn a_broadcast_is_chosen_when_enough_have_joined_and_then_goes_to_all() {
    let ((tx, joiner), (mut other, mut rx)) = (broadcast(), channel());
    let mut tx = tx.at_least(2);
    let mut a = joiner.join();
    let mut slot = Some("tick".to_string());
    let mut choice = waiting(async {
        alt! { biased; begun = tx.begin_from(&mut slot) => begun.is_ok(), v = rx.recv() => v.is_err() }
    });
    let mut send = waiting(other.send(()));
    assert_eq!((choice.poll(), send.poll()), (Some(false), Some(Ok(()))));
    drop((choice, send));
    assert_eq!(slot.as_deref(), Some("tick"));
    assert!(a.try_recv().is_err());

    let mut choice = waiting(async {
        alt! { begun = tx.begin_from(&mut slot) => Some(begun.unwrap()), _ = rx.recv() => None }
    });
    let mut b = joiner.join();
    let mut begun = hand(choice.poll().expect("two have joined").expect("nothing was received"));
    drop(choice);
    let mut late = joiner.join();
    assert!(begun.poll().is_none());
    assert_eq!((a.try_recv().as_deref(), b.try_recv().as_deref()), (Ok("tick"), Ok("tick")));
    assert!(late.try_recv().is_err(), "it joined after the send had begun");
    assert_eq!(begun.poll(), Some(Ok(())));
    drop(begun);
    assert_eq!(slot, None);

    // Dropped before it is awaited, it reaches no receiver.
    let begun = now(tx.begin("tock".to_string())).unwrap();
    drop(begun);
    assert!(a.try_recv().is_err() && b.try_recv().is_err());
}

#[test]
fn a_broadcast_that_cannot_begin_returns_its_value() {
    let (tx, joiner) = broadcast();
    let mut tx = tx.at_least(1);
    let error = |value, why| BroadcastError { value, why, received: 0 };
    assert_eq!(now(tx.begin(1).until(ready(()))).unwrap_err(), error(1, Why::TimedOut));
    let mut slot = Some(2);
    let failed = now(tx.begin_from(&mut slot).until(ready(()))).unwrap_err();
    assert_eq!((failed.why, slot), (Why::TimedOut, Some(2)));
    let mut choice = waiting(async {
        alt! { begun = tx.begin(3) => begun.unwrap_err() }
    });
    drop(joiner);
    assert_eq!(choice.poll(), Some(error(3, Why::Closed)));
    drop(choice);
    tx.poison("mine");
    assert_eq!(now(tx.begin(4)).unwrap_err(), error(4, Why::Poisoned("mine".into())));
}

#[test]
fn a_broadcast_that_waits_in_a_choice_is_shown_until_it_is_not_chosen() {
    let ((tx, _joiner), made) = (broadcast::<u8>(), line!());
    let (mut other, mut rx) = channel();
    let mut tx = tx.at_least(1);
    let lines = || {
        let here = |wait: &waits::Wait| wait.made.file().ends_with("tests/begin.rs") && wait.made.line() == made;
        waits::snapshot().into_iter().filter(here).map(|wait| wait.doing).collect::<Vec<_>>()
    };
    let mut begin = tx.begin(1);
    let mut choice = waiting(async {
        alt! { biased; begun = &mut begin => begun.is_ok(), v = rx.recv() => v.is_err() }
    });
    assert_eq!(lines(), [Doing::Join]);
    let send = waiting(other.send(()));
    assert_eq!(choice.poll(), Some(false));
    drop((choice, send));
    assert_eq!(lines(), []);
    drop(begin);
}
