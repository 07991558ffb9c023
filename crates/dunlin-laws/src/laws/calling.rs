//! Calls: a request to the callee, a reply back to the caller.

use dunlin::{CallError, Choice, RecvError, Why};

use crate::kind::Kind;
use crate::law::{Cx, Law, expired, laws};
use crate::rig::give_way;
use crate::transport::Transport;

fn one(kind: &Kind) -> bool {
    kind.is_rendezvous() && kind.is_open()
}

pub(crate) fn laws<X: Transport>() -> Vec<Law<X>> {
    laws![
        call_and_reply if one, needs [Calls] =>
            "a call returns the reply to its request; a reply does not wait";
        calls_of_many if one, needs [Calls, Shared] =>
            "of many callers each gets its own reply";
        accept_in_a_choice if one, needs [Calls, Choice] =>
            "accept as a branch: unchosen it has accepted nothing";
        no_reply_by_drop if one, needs [Calls] =>
            "a request that is dropped, whole or split, ends its call: NoReply";
        the_caller_is_gone if one, needs [Calls] =>
            "a reply to a dropped caller is returned";
        the_server_is_gone if one, needs [Calls] =>
            "a call to a server that was dropped, or retires, returns the request";
        dropped_call_is_not_accepted if one, needs [Calls] =>
            "a call that is dropped before it is accepted has not happened";
        call_until_before if one, needs [Calls] =>
            "a deadline before acceptance: the request is returned, and is never accepted";
        call_until_after if one, needs [Calls] =>
            "a deadline after acceptance: NoReply, timed out; the late reply is returned";
    ]
}

fn call_and_reply<X: Transport>(cx: &Cx<'_, X>) {
    let (mut caller, mut callee) = cx.call::<u32, String>();
    for n in 0..3 {
        let mut call = cx.begin(caller.call(n));
        assert!(!call.is_done());
        let request = cx.now(callee.accept()).expect("asked");
        assert_eq!(*request, n);
        assert!(!call.poll(), "accepted is not replied");
        assert_eq!(request.reply(n.to_string()), Ok(()));
        assert_eq!(call.out(), Ok(n.to_string()));
    }
}

fn calls_of_many<X: Transport>(cx: &Cx<'_, X>) {
    // The callee and some of the callers are not at the node where the caller was shared: requests and places
    // for replies go through that node.
    let (caller, mut callee) = cx.call();
    let callers: [_; 4] = cx.handles(caller.share());
    let callers: Vec<_> = (0..)
        .zip(callers)
        .map(|(who, mut caller)| {
            cx.spawn(async move {
                for n in 0..5 {
                    let ask = who * 100 + n;
                    if n % 2 == 0 {
                        assert_eq!(caller.call(ask).await, Ok(ask + 1));
                    } else {
                        assert_eq!(caller.claim().await.expect("granted").call(ask).await, Ok(ask + 1));
                    }
                }
            })
        })
        .collect();
    let server = cx.spawn(async move {
        let mut late = Vec::new();
        while let Ok(request) = callee.accept().await {
            late.push(request.split());
            give_way().await;
            // The callee answers the latest request first; each caller waits for its own reply.
            while let Some((ask, reply)) = late.pop() {
                assert_eq!(reply.send(ask + 1), Ok(()));
            }
        }
    });
    cx.settle();
    callers.into_iter().for_each(|caller| caller.out());
    server.out();
}

fn accept_in_a_choice<X: Transport>(cx: &Cx<'_, X>) {
    let (mut caller, mut callee) = cx.call::<u32, u32>();
    let (mut loud, mut other) = cx.channel::<u8>();
    let call = cx.begin(caller.call(1));
    let send = cx.begin(loud.send(2));
    let choice = Choice::prioritised().on(other.recv(), |_| None).on(callee.accept(), Some);
    assert!(cx.now(choice.into_future()).1.is_none());
    assert_eq!(send.out(), Ok(()));
    let choice = Choice::prioritised().on(other.recv(), |_| None).on(callee.accept(), Some);
    let (index, request) = cx.now(choice.into_future());
    assert_eq!(index, 1);
    assert_eq!(request.and_then(Result::ok).map(|request| request.reply(5)), Some(Ok(())));
    assert_eq!(call.out(), Ok(5));
}

fn no_reply_by_drop<X: Transport>(cx: &Cx<'_, X>) {
    let (mut caller, mut callee) = cx.call::<u32, u32>();
    let call = cx.begin(caller.call(1));
    drop(cx.now(callee.accept()));
    assert_eq!(call.out(), Err(CallError::NoReply(RecvError::Closed)));
    let call = cx.begin(caller.call(2));
    let (request, reply) = cx.now(callee.accept()).expect("asked").split();
    assert_eq!(request, 2);
    drop(reply);
    assert_eq!(call.out(), Err(CallError::NoReply(RecvError::Closed)));
}

fn the_caller_is_gone<X: Transport>(cx: &Cx<'_, X>) {
    let (mut caller, mut callee) = cx.call::<u32, u32>();
    let call = cx.begin(caller.call(1));
    let request = cx.now(callee.accept()).expect("asked");
    drop(call);
    cx.settle();
    assert_eq!(request.reply(7), Err(7));
    let call = cx.begin(caller.call(2));
    assert_eq!(cx.now(callee.accept()).expect("asked").reply(3), Ok(()));
    assert_eq!(call.out(), Ok(3), "the next call is not disturbed");
}

fn the_server_is_gone<X: Transport>(cx: &Cx<'_, X>) {
    let closed = |request| Err(CallError::NotTaken { request, why: Why::Closed });
    let (mut caller, callee) = cx.call::<u32, u32>();
    let call = cx.begin(caller.call(1));
    if cx.below(2) == 0 {
        callee.retire()
    } else {
        drop(callee)
    }
    assert_eq!(call.out(), closed(1));
    assert_eq!(cx.now(caller.call(2)), closed(2));
    assert!(caller.is_closed());
}

fn dropped_call_is_not_accepted<X: Transport>(cx: &Cx<'_, X>) {
    let (mut caller, mut callee) = cx.call::<u32, u32>();
    drop(cx.begin(caller.call(1)));
    let mut accept = cx.begin(callee.accept());
    assert!(!accept.poll());
    drop(caller);
    assert_eq!(accept.out().unwrap_err(), RecvError::Closed);
}

fn call_until_before<X: Transport>(cx: &Cx<'_, X>) {
    let (mut caller, mut callee) = cx.call::<u32, u32>();
    assert_eq!(cx.now(expired(caller.call(1))), Err(CallError::NotTaken { request: 1, why: Why::TimedOut }));
    let mut accept = cx.begin(callee.accept());
    assert!(!accept.poll());
}

fn call_until_after<X: Transport>(cx: &Cx<'_, X>) {
    let (mut caller, mut callee) = cx.call::<u32, u32>();
    let (mut clock, mut bell) = cx.channel_of::<()>(dunlin::fifo(1));
    let mut call = cx.begin(dunlin::Operation::until(caller.call(1), bell.recv()));
    let request = cx.now(callee.accept()).expect("asked");
    assert!(!call.run());
    assert_eq!(cx.now(clock.send(())), Ok(()));
    assert_eq!(call.out(), Err(CallError::NoReply(RecvError::TimedOut)));
    cx.settle();
    assert_eq!(request.reply(9), Err(9));
}
