//! Send, Sync and Unpin of every public type, for messages that are both, neither, or only `Send`.
//!
//! A channel carries its message to another thread, so an end is `Send` and `Sync` exactly when the message
//! is `Send`; it never requires a `Sync` message. A type that holds a message by itself (errors, guards) has
//! the auto traits of the message.

use std::cell::Cell;
use std::future::Ready;
use std::marker::PhantomPinned;
use std::rc::Rc;

use dunlin::scope::{AsSender, Join, Joining, Straggler, WaitingName};
use dunlin::waits::{ChannelId, Known, Pid, Wait};
use dunlin::{
    Accepting, Barrier, BeginningBroadcast, BeginningBroadcastFrom, BeginningCall, BeginningCallFrom, BegunCall,
    Blocking, Broadcast, BroadcastError, Broadcasting, Bucket, CallError, Callee, Caller, Calling, ChannelFactory,
    Choice, ChoiceFuture, Claim, Claiming, ClosedReceiving, ClosedSending, Completing, Ended, Error, Exit, Extended,
    Extending, Falling, FinishError, Flusher, Flushing, Foreign, Interval, Joiner, Lone, Next, NoPoison, Par, Place,
    Policy, Posted, Process, Reason, Receiver, Receiving, RecvError, Reply, Request, Requested, Retiring, Scope,
    ScopeError, SendError, Sender, SenderSink, Sending, SendingFrom, SendingToAny, Shared, Sleep, Stop, Strength,
    SyncError, Syncing, Terminating, Tick, Timer, Until, Why,
};

/// The assertions of the table about one type: by autoref, so that it can assert "not" too.
macro_rules! is {
    ($type:ty: $bound:path) => {{
        struct Probe<T: ?Sized>(std::marker::PhantomData<T>);
        #[allow(dead_code)]
        trait No {
            fn is(&self) -> bool {
                false
            }
        }
        impl<T: ?Sized> No for &Probe<T> {}
        #[allow(dead_code)]
        impl<T: $bound + ?Sized> Probe<T> {
            fn is(&self) -> bool {
                true
            }
        }
        (&Probe::<$type>(std::marker::PhantomData)).is()
    }};
}

macro_rules! table {
    ($($type:ty: $send:literal $sync:literal $unpin:literal;)*) => {
        $(assert_eq!(
            (is!($type: Send), is!($type: Sync), is!($type: Unpin)),
            ($send == 1, $sync == 1, $unpin == 1),
            "(Send, Sync, Unpin) of {}", stringify!($type),
        );)*
    };
}

type OnlySend = Cell<u8>;
type Neither = Rc<u8>;

#[test]
fn ends() {
    table! {
        Sender<u8>: 1 1 1;
        Sender<OnlySend>: 1 1 1;
        Sender<Neither>: 0 0 1;
        Sender<PhantomPinned>: 1 1 1;
        Sender<u8, NoPoison>: 1 1 1;
        Sender<Neither, NoPoison>: 0 0 1;
        Receiver<u8>: 1 1 1;
        Receiver<OnlySend>: 1 1 1;
        Receiver<Neither>: 0 0 1;
        Receiver<PhantomPinned>: 1 1 1;
        Shared<Sender<u8>>: 1 1 1;
        Shared<Sender<OnlySend>>: 1 1 1;
        Shared<Sender<Neither>>: 0 0 1;
        Shared<Receiver<OnlySend>>: 1 1 1;
        Shared<Receiver<Neither>>: 0 0 1;
        Caller<u8, OnlySend>: 1 1 1;
        Caller<u8, Neither>: 0 0 1;
        Caller<Neither, u8>: 0 0 1;
        Callee<OnlySend, u8>: 1 1 1;
        Callee<Neither, u8>: 0 0 1;
        Shared<Caller<u8, u8>>: 1 1 1;
        Reply<OnlySend>: 1 1 1;
        Reply<Neither>: 0 0 1;
        ChannelFactory: 1 1 1;
        Policy: 1 1 1;
    }
}

#[test]
fn operations() {
    table! {
        Sending<'static, u8>: 1 1 1;
        Sending<'static, OnlySend>: 1 0 1;
        Sending<'static, Neither>: 0 0 1;
        SendingFrom<'static, u8>: 1 1 1;
        SendingFrom<'static, OnlySend>: 1 0 1;
        SendingFrom<'static, Neither>: 0 0 1;
        Receiving<'static, OnlySend>: 1 1 1;
        Receiving<'static, Neither>: 0 0 1;
        Next<'static, OnlySend>: 1 1 1;
        Next<'static, Neither>: 0 0 1;
        Extending<'static, OnlySend>: 1 1 1;
        Extending<'static, Neither>: 0 0 1;
        ClosedSending<'static, OnlySend>: 1 1 1;
        ClosedReceiving<'static, Neither>: 0 0 1;
        Accepting<'static, OnlySend, u8>: 1 1 1;
        Accepting<'static, Neither, u8>: 0 0 1;
        Calling<'static, Sending<'static, (u8, Reply<u8>)>, u8>: 1 1 1;
        Calling<'static, Sending<'static, (Neither, Reply<u8>)>, u8>: 0 0 1;
        BeginningCall<'static, OnlySend, u8>: 1 0 1;
        BeginningCall<'static, Neither, u8>: 0 0 1;
        BeginningCallFrom<'static, OnlySend, u8>: 1 0 1;
        BegunCall<OnlySend>: 1 1 1;
        BegunCall<Neither>: 0 0 1;
        BeginningBroadcast<'static, u8>: 1 1 1;
        BeginningBroadcastFrom<'static, Neither>: 0 0 1;
        Barrier: 1 1 1;
        Bucket: 1 1 1;
        Flusher: 1 1 1;
        Falling<'static>: 1 1 1;
        Flushing<'static>: 1 1 1;
        Syncing<'static>: 1 1 1;
        SyncError: 1 1 1;
        Claiming<'static, Sender<OnlySend>>: 1 1 1;
        Claiming<'static, Sender<Neither>>: 0 0 1;
        Lone<'static, Receiving<'static, u8>>: 1 1 1;
        Lone<'static, Receiving<'static, Neither>>: 0 0 1;
        SendingToAny<'static, OnlySend>: 1 0 1;
        SendingToAny<'static, Neither>: 0 0 1;
        Until<Receiving<'static, u8>, Ready<()>>: 1 1 1;
        Until<Receiving<'static, Neither>, Ready<()>>: 0 0 1;
        Until<Receiving<'static, u8>, PhantomPinned>: 1 1 0;
        Foreign<Ready<Neither>>: 0 0 1;
        Foreign<PhantomPinned>: 1 1 0;
        Choice<'static, OnlySend>: 1 0 1;
        Choice<'static, Neither>: 0 0 1;
        ChoiceFuture<'static, OnlySend>: 1 0 1;
        ChoiceFuture<'static, Neither>: 0 0 1;
        Par<Ready<u8>>: 1 1 1;
        Par<Ready<OnlySend>>: 1 0 1;
        Par<Ready<Neither>>: 0 0 1;
        Sleep: 1 1 0;
        Timer: 1 1 1;
        Interval: 1 1 1;
        Tick<'static>: 1 1 1;
        Completing<'static, u8, Ready<()>, Ready<()>>: 1 1 1;
        Completing<'static, Neither, Ready<()>, Ready<()>>: 0 0 1;
        Completing<'static, u8, PhantomPinned, Ready<()>>: 1 1 0;
        Retiring<'static, Sender<OnlySend>>: 1 1 1;
        Retiring<'static, Sender<Neither>>: 0 0 1;
        Process<OnlySend>: 1 1 1;
        Process<Neither>: 0 0 1;
        Scope: 1 1 1;
        Join<Sender<OnlySend>, AsSender>: 1 1 1;
        Joining<Sender<OnlySend>>: 1 0 1;
        Place: 1 1 1;
        ScopeError: 1 1 1;
        FinishError: 1 1 1;
        Straggler: 1 1 1;
        WaitingName: 1 1 1;
        Blocking<OnlySend>: 1 1 1;
        Blocking<Neither>: 0 0 1;
        Terminating<OnlySend>: 1 1 1;
        Terminating<PhantomPinned>: 1 1 1;
        Terminating<Neither>: 0 0 1;
        Ended<u8>: 1 1 1;
        Ended<OnlySend>: 1 0 1;
        Ended<Neither>: 0 0 1;
        Stop: 1 1 1;
        Requested<'static>: 1 1 1;
    }
}

#[test]
fn message_holders_are_send_and_sync_as_their_message_allows() {
    table! {
        Extended<'static, u8>: 1 1 1;
        Extended<'static, OnlySend>: 1 0 1;
        Extended<'static, Neither>: 0 0 1;
        Claim<'static, Sender<OnlySend>>: 1 1 1;
        Claim<'static, Sender<Neither>>: 0 0 1;
        Request<u8, u8>: 1 1 1;
        Request<OnlySend, u8>: 1 0 1;
        Request<Neither, u8>: 0 0 1;
        Posted<u8>: 1 1 1;
        Posted<OnlySend>: 1 0 1;
        Posted<Neither>: 0 0 1;
        SenderSink<u8>: 1 1 1;
        SenderSink<OnlySend>: 1 0 1;
        SenderSink<Neither>: 0 0 1;
        Broadcast<OnlySend>: 1 1 1;
        Broadcast<Neither>: 0 0 1;
        Joiner<OnlySend>: 1 1 1;
        Joiner<Neither>: 0 0 1;
        Broadcasting<'static, u8>: 1 1 1;
        BroadcastError<OnlySend>: 1 0 1;
        Strength: 1 1 1;
        SendError<OnlySend>: 1 0 1;
        SendError<Neither>: 0 0 1;
        CallError<OnlySend>: 1 0 1;
        CallError<Neither>: 0 0 1;
        Error: 1 1 1;
        Exit: 1 1 1;
        RecvError: 1 1 1;
        Why: 1 1 1;
        Reason: 1 1 1;
        Wait: 1 1 1;
        Known: 1 1 1;
        Pid: 1 1 1;
        ChannelId: 1 1 1;
    }
}

#[test]
fn par_and_alt_are_send_when_their_branches_are() {
    async fn of_send(mut rx: Receiver<OnlySend>, mut tx: Sender<u8>) -> bool {
        let (got, sent) = dunlin::par!(rx.recv(), tx.send(1));
        let chosen = dunlin::alt! {
            value = rx.recv() => value.is_ok(),
            sent = tx.send(2) => sent.is_ok(),
        };
        chosen && got.is_ok() && sent.is_ok()
    }
    async fn of_rc(mut rx: Receiver<Neither>) -> bool {
        dunlin::alt! { value = rx.recv() => value.is_ok(), skip => false }
    }
    fn is_send<T: Send>(_: &T) {}
    let ((_t, r), (t, _r)) = (dunlin::channel(), dunlin::channel());
    is_send(&of_send(r, t));
    // `of_rc` is not, and still runs on one thread.
    let (_tx, rx) = dunlin::channel();
    assert!(!dunlin::block_on(of_rc(rx)));
}
