//! Ends inside messages, carried by hand through serde_json: what moves, and what a failure leaves unchanged.
#![cfg(feature = "serde")]
// The core starts no threads; these tests do.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]
// Protocols that name themselves are written as users would write them.
#![allow(clippy::use_self)]

use std::fmt::Debug;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use dunlin_core::agent::Event;
use dunlin_core::carrier::{Agent, CarriedEnd, CarryError, EndKind, Inbox, NotHandedOver, Outbox, Sealed};
use dunlin_core::doc::block_on;
use dunlin_core::{
    Callee, Caller, ChannelFactory, MayPoison, NoPoison, Portable, Receiver, RecvError, Reply, Sender, Shared, Why,
    call, channel, channel_with, fifo, par, rendezvous,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize, Serializer};

fn encode<M: Portable>(message: &M) -> (Sealed, String) {
    let mut outbox = Outbox::new();
    let json = outbox.encode(|| serde_json::to_string(message)).unwrap();
    (outbox.seal().unwrap(), json)
}

fn send_off<M: Portable>(message: M) -> (Inbox, String) {
    let (sealed, json) = encode(&message);
    (Inbox::new(sealed.commit(message).unwrap()), json)
}

/// Encodes the message and decodes it again.
fn carry<M: Portable>(message: M) -> M {
    let (mut inbox, json) = send_off(message);
    let message = inbox.decode(|| serde_json::from_str(&json)).unwrap();
    assert_eq!(inbox.error(), None);
    assert!(inbox.into_ends().is_empty());
    message
}

fn poll_once<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Polls the operation once and forgets it: its effects stay.
fn begin<F: Future>(operation: F)
where
    F::Output: Debug,
{
    let mut operation = Box::pin(operation);
    assert!(poll_once(operation.as_mut()).is_pending());
    std::mem::forget(operation);
}

fn decode<M: DeserializeOwned>(inbox: &mut Inbox, json: &str) -> Result<M, String> {
    inbox.decode(|| serde_json::from_str(json)).map_err(|e: serde_json::Error| e.to_string())
}

// ---- each kind of end

#[test]
fn a_sender_sends_after_the_move() {
    let (tx, mut rx) = channel();
    let mut tx = carry(tx);
    block_on(async {
        let (sent, got) = par!(tx.send(1), rx.recv());
        assert_eq!((sent, got), (Ok(()), Ok(1)));
        let mut tx = carry(carry(tx));
        let (sent, got) = par!(tx.send(2), rx.recv());
        assert_eq!((sent, got), (Ok(()), Ok(2)));
        drop(tx);
        assert_eq!(rx.recv().await, Err(RecvError::Closed));
    });
}

#[test]
fn a_receiver_receives_after_the_move() {
    let (mut tx, rx) = channel();
    let mut rx = carry(rx);
    block_on(async {
        let (sent, got) = par!(tx.send(1), rx.recv());
        assert_eq!((sent, got), (Ok(()), Ok(1)));
        drop(carry(rx));
        assert!(tx.send(2).await.unwrap_err().is_closed());
    });
}

#[test]
fn both_ends_of_a_channel_in_one_message() {
    let (tx, rx) = channel_with(fifo(1));
    let (mut tx, mut rx) = carry((tx, rx));
    tx.try_send(7).unwrap();
    assert_eq!(rx.try_recv(), Ok(7));
    drop(tx);
    assert_eq!(rx.try_recv(), Err(RecvError::Closed));
}

#[test]
fn carried_caller_and_callee_exchange_request_and_reply() {
    let (caller, callee) = call::<u32, String>();
    let mut caller: Caller<u32, String> = carry(caller);
    let mut callee: Callee<u32, String> = carry(callee);
    block_on(async {
        let (reply, ()) = par!(caller.call(7), async {
            let ask = callee.accept().await.unwrap();
            let text = format!("{} krill", *ask);
            ask.reply(text).unwrap();
        });
        assert_eq!(reply.unwrap(), "7 krill");
    });
    drop(caller);
    block_on(async { assert_eq!(callee.accept().await.unwrap_err(), RecvError::Closed) });
}

#[test]
fn a_reply_is_given_after_the_move() {
    let (mut caller, mut callee) = call::<u32, String>();
    block_on(async {
        let (reply, ()) = par!(caller.call(7), async {
            let (n, reply) = callee.accept().await.unwrap().split();
            let (n, reply): (u32, Reply<String>) = carry((n, reply));
            reply.send(format!("{n} squid")).unwrap();
        });
        assert_eq!(reply.unwrap(), "7 squid");
        let (reply, ()) = par!(caller.call(8), async {
            let (_, reply) = callee.accept().await.unwrap().split();
            drop(send_off(reply)); // lost in transit
        });
        assert!(matches!(reply.unwrap_err(), dunlin_core::CallError::NoReply(RecvError::Closed)));
    });
}

#[test]
fn a_shared_end_is_claimed_after_the_move() {
    let (tx, mut rx) = channel::<String>();
    let home = tx.share();
    let (mut away, mut home) = (carry(home.clone()), home);
    block_on(async {
        let heard = std::cell::RefCell::new(vec![]);
        par!(
            async {
                let mut stage = away.claim().await.unwrap();
                stage.send("away sings".into()).await.unwrap();
                stage.send("away bows".into()).await.unwrap();
                drop(stage);
                drop(away);
            },
            async {
                home.send("home hums".into()).await.unwrap();
                drop(home);
            },
            async {
                while let Ok(line) = rx.recv().await {
                    heard.borrow_mut().push(line);
                }
            },
        );
        let heard = heard.into_inner();
        assert_eq!(heard.len(), 3);
        let sings = heard.iter().position(|l| l == "away sings").unwrap();
        assert_eq!(heard[sings + 1], "away bows");
    });
}

#[test]
fn shared_end_lives_while_a_handle_is_in_transit() {
    let (tx, mut rx) = channel_with::<u8>(fifo(1));
    let (inbox, _) = send_off(tx.share()); // the only handle
    assert_eq!(rx.try_recv(), Err(RecvError::WouldBlock));
    drop(inbox);
    assert_eq!(rx.try_recv(), Err(RecvError::Closed));
}

#[test]
fn a_shared_end_moves_while_another_handle_has_claimed_it() {
    let (tx, mut rx) = channel_with::<u8>(fifo(4));
    let mut a = tx.share();
    let b = a.clone();
    let mut claim = a.try_claim().unwrap();
    let mut b = carry(b);
    assert!(b.try_claim().is_err());
    assert_eq!(b.try_send(9).unwrap_err().why(), Some(&Why::WouldBlock));
    claim.try_send(1).unwrap();
    drop(claim);
    b.try_claim().unwrap().try_send(2).unwrap();
    assert_eq!((rx.try_recv(), rx.try_recv()), (Ok(1), Ok(2)));
}

#[test]
fn two_handles_of_a_shared_receiver_in_one_message() {
    let (mut tx, rx) = channel_with::<u8>(fifo(2));
    let shared = rx.share();
    let (mut a, mut b) = carry((shared.clone(), shared));
    tx.try_send(1).unwrap();
    tx.try_send(2).unwrap();
    assert_eq!((a.try_recv(), b.try_recv()), (Ok(1), Ok(2)));
    drop(a);
    assert!(!tx.is_closed());
    drop(b);
    assert!(tx.is_closed());
}

// ---- pending state moves with the end

#[test]
fn moved_ends_keep_buffered_values() {
    let (mut tx, rx) = channel_with(fifo(3));
    for n in 0..3 {
        tx.try_send(n).unwrap();
    }
    let mut rx = carry(rx);
    let tx = carry(tx);
    assert_eq!((tx.len(), rx.len()), (3, 3));
    drop(tx);
    assert_eq!([rx.try_recv(), rx.try_recv(), rx.try_recv()], [Ok(0), Ok(1), Ok(2)]);
    assert_eq!(rx.try_recv(), Err(RecvError::Closed));
}

#[test]
fn moved_ends_keep_a_forgotten_offer() {
    for policy in [rendezvous(), rendezvous().pending_senders(4, dunlin_core::Overflow::Fifo)] {
        for moves_receiver in [false, true] {
            let (mut tx, mut rx) = channel_with(policy.clone());
            begin(tx.send(1));
            let mut tx = carry(tx);
            if moves_receiver {
                rx = carry(rx);
            }
            block_on(async {
                // The pending value is taken first; the next send waits for that.
                let (sent, got) = par!(tx.send(2), async { (rx.recv().await, rx.recv().await) });
                assert_eq!((sent, got), (Ok(()), (Ok(1), Ok(2))));
            });
        }
    }
}

#[test]
fn a_forgotten_offer_is_settled_after_the_move() {
    let (mut tx, mut rx) = channel();
    begin(tx.send(1));
    let mut tx = carry(tx);
    let mut slot = None;
    block_on(tx.settle(&mut slot)).unwrap();
    assert_eq!(slot, Some(1));
    assert!(poll_once(pin!(rx.recv())).is_pending());
}

#[test]
fn a_send_that_waits_is_received_by_the_moved_receiver() {
    let (mut tx, rx) = channel();
    let mut sending = pin!(tx.send(5));
    assert!(poll_once(sending.as_mut()).is_pending());
    let mut rx = carry(rx);
    assert!(poll_once(sending.as_mut()).is_pending());
    assert_eq!(rx.try_recv(), Ok(5));
    assert_eq!(poll_once(sending), Poll::Ready(Ok(())));
}

struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_receive_that_waits_is_woken_by_the_moved_sender() {
    let (tx, mut rx) = channel::<u8>();
    let count = Arc::new(Count(AtomicUsize::new(0)));
    let waker = count.clone().into();
    let mut cx = Context::from_waker(&waker);
    let mut receiving = pin!(rx.recv());
    assert!(receiving.as_mut().poll(&mut cx).is_pending());
    let mut tx = carry(tx);
    assert_eq!(count.0.load(Ordering::SeqCst), 0, "the move itself wakes no task");
    let mut sending = pin!(tx.send(5));
    assert!(poll_once(sending.as_mut()).is_pending());
    assert_eq!(count.0.load(Ordering::SeqCst), 1);
    assert_eq!(receiving.poll(&mut cx), Poll::Ready(Ok(5)));
    assert_eq!(poll_once(sending), Poll::Ready(Ok(())));
}

#[test]
fn a_forgotten_extended_guard_holds_the_sender_until_the_moved_receiver_receives() {
    for policy in [rendezvous(), rendezvous().pending_senders(4, dunlin_core::Overflow::Fifo)] {
        let (mut tx, mut rx) = channel_with(policy);
        let mut sending = pin!(tx.send(1));
        assert!(poll_once(sending.as_mut()).is_pending());
        std::mem::forget(block_on(rx.recv_extended()).unwrap());
        let mut rx = carry(rx);
        assert!(poll_once(sending.as_mut()).is_pending(), "still held");
        assert!(poll_once(pin!(rx.recv())).is_pending());
        assert_eq!(poll_once(sending), Poll::Ready(Ok(())));
    }
}

#[test]
fn a_forgotten_extended_guard_is_released_with_the_moved_receiver() {
    let (mut tx, mut rx) = channel_with(fifo(1));
    tx.try_send(1).unwrap();
    std::mem::forget(block_on(rx.recv_extended()).unwrap());
    let rx = carry(rx);
    assert_eq!(tx.try_send(2).unwrap_err().why(), Some(&Why::WouldBlock), "its place is held");
    drop(rx);
    assert_eq!(tx.try_send(2).unwrap_err().why(), Some(&Why::Closed));
}

#[test]
fn ended_channel_stays_ended_when_carried() {
    let (tx, rx) = channel::<u8>();
    rx.poison("salt");
    let mut rx = carry(rx);
    let tx = carry(tx);
    assert!(tx.is_closed());
    assert_eq!(rx.try_recv(), Err(RecvError::Poisoned("salt".into())));

    let (mut tx, rx) = channel_with::<u8>(fifo(1));
    tx.try_send(1).unwrap();
    tx.retire();
    drop(carry(tx));
    let mut rx = carry(rx);
    assert_eq!((rx.try_recv(), rx.try_recv()), (Ok(1), Err(RecvError::Closed)));

    let (tx, rx) = channel::<u8>();
    drop(rx);
    assert!(carry(tx).is_closed());
}

#[test]
fn failed_stream_stays_failed_after_the_move() {
    use futures_core::Stream;
    let (tx, mut rx) = channel::<u8>();
    tx.poison("salt");
    let mut cx = Context::from_waker(Waker::noop());
    assert!(matches!(Pin::new(&mut rx).poll_next(&mut cx), Poll::Ready(Some(Err(_)))));
    let mut rx = carry(rx);
    assert_eq!(Pin::new(&mut rx).poll_next(&mut cx), Poll::Ready(None));
}

#[test]
fn the_ends_of_a_channel_that_is_stretched_already_move() {
    use dunlin_core::agent::{Inlet, Outlet, join};
    let ((tx, far), (near, rx)) = (channel(), channel_with(fifo(2)));
    let stretched = join(Outlet::new(far), Inlet::new(near));
    block_on(async {
        par!(
            async move {
                let mut tx = tx;
                for n in 0..10 {
                    tx = carry(tx);
                    tx.send(n).await.unwrap();
                }
            },
            async move {
                let mut rx = rx;
                for n in 0..10 {
                    rx = carry(rx);
                    assert_eq!(rx.recv().await, Ok(n));
                }
                assert_eq!(rx.recv().await, Err(RecvError::Closed));
            },
            stretched,
        );
    });
}

/// The flag tells a carrier which ends it could only forward from agent to agent.
#[test]
fn an_end_that_is_already_apart_is_rejected() {
    use dunlin_core::agent::{Inlet, Outlet};
    let ((tx, far), (near, rx), (here, there)) = (channel::<u8>(), channel::<u8>(), channel::<u8>());
    let (_outlet, _inlet) = (Outlet::new(far), Inlet::new(near));
    let (caller, callee) = call::<u8, u8>();
    let stretched = |sealed: Sealed| sealed.ends().map(|end| end.stretched).collect::<Vec<_>>();
    let message = ((tx, rx), (here, there), (caller, callee));
    assert_eq!(stretched(encode(&message).0), [true, true, false, false, false, false]);
}

#[test]
fn a_lost_message_drops_its_ends() {
    let (tx, mut rx) = channel::<u8>();
    let (mut back, near) = channel::<u8>();
    let (inbox, _) = send_off((tx, near));
    assert_eq!(rx.try_recv(), Err(RecvError::WouldBlock));
    assert!(!back.is_closed());
    drop(inbox);
    assert_eq!(rx.try_recv(), Err(RecvError::Closed));
    assert_eq!(back.try_send(1).unwrap_err().why(), Some(&Why::Closed));
}

// ---- a failure changes nothing

/// Fails or panics when it is serialised.
#[derive(Deserialize)]
struct Bad {
    panics: bool,
}

impl Serialize for Bad {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        assert!(!self.panics, "in the middle of a message");
        Err(serde::ser::Error::custom("bad"))
    }
}

/// All kinds of ends, and their other ends.
type Ends = (Sender<u8>, Receiver<u8>, Shared<Sender<u8>>, Caller<u8, u8>, Callee<u8, u8>);
type Others = (Receiver<u8>, Sender<u8>, Receiver<u8>, Callee<u8, u8>, Caller<u8, u8>);

fn ends() -> (Ends, Others) {
    let (a, other_a) = channel();
    let (other_b, b) = channel();
    let (c, other_c) = channel();
    let (d, other_d) = call();
    let (other_e, e) = call();
    ((a, b, c.share(), d, e), (other_a, other_b, other_c, other_d, other_e))
}

fn use_all(ends: &mut Ends, others: &mut Others) {
    block_on(async {
        let (sent, got) = par!(ends.0.send(1), others.0.recv());
        assert_eq!((sent, got), (Ok(()), Ok(1)));
        let (sent, got) = par!(others.1.send(2), ends.1.recv());
        assert_eq!((sent, got), (Ok(()), Ok(2)));
        let (sent, got) = par!(ends.2.send(3), others.2.recv());
        assert_eq!((sent, got), (Ok(()), Ok(3)));
        let (reply, ()) = par!(ends.3.call(4), async { others.3.accept().await.unwrap().reply(40).unwrap() });
        assert_eq!(reply, Ok(40));
        let (reply, ()) = par!(others.4.call(5), async { ends.4.accept().await.unwrap().reply(50).unwrap() });
        assert_eq!(reply, Ok(50));
    });
}

fn assert_ended(others: &mut Others) {
    assert_eq!(others.0.try_recv(), Err(RecvError::Closed));
    assert!(others.1.is_closed());
    assert_eq!(others.2.try_recv(), Err(RecvError::Closed));
    block_on(async { assert_eq!(others.3.accept().await.unwrap_err(), RecvError::Closed) });
    assert!(others.4.is_closed());
}

#[test]
fn all_kinds_move_and_end_once() {
    let (ends, mut others) = ends();
    let mut ends = carry(ends);
    use_all(&mut ends, &mut others);
    let mut ends = carry(ends);
    use_all(&mut ends, &mut others);
    drop(ends);
    assert_ended(&mut others);
}

#[test]
fn a_failed_encoding_leaves_the_ends_usable() {
    let (ends, mut others) = ends();
    let mut message = (ends, Bad { panics: false });
    let mut outbox = Outbox::new();
    let error = outbox.encode(|| serde_json::to_string(&message)).unwrap_err();
    assert_eq!(error.to_string(), "bad");
    assert_eq!(outbox.error(), None, "no end is to blame");
    use_all(&mut message.0, &mut others);
    assert_eq!(outbox.seal().unwrap_err(), CarryError::NotEncoded);
    use_all(&mut message.0, &mut others);
    drop(message);
    assert_ended(&mut others);
}

#[test]
fn a_failed_encoding_keeps_nothing_alive() {
    let (tx, mut rx) = channel::<u8>();
    let message = (tx.share(), Bad { panics: false });
    let mut outbox = Outbox::new();
    outbox.encode(|| serde_json::to_string(&message)).unwrap_err();
    drop(message);
    assert_eq!(rx.try_recv(), Err(RecvError::Closed));
    outbox.encode(|| serde_json::to_string("next")).unwrap();
}

/// A writer with room for this many bytes.
struct Room(usize);

impl std::io::Write for Room {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(std::io::ErrorKind::WriteZero)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_size_limit_at_every_byte_leaves_the_ends_usable() {
    let (mut ends, mut others) = ends();
    let mut outbox = Outbox::new();
    let whole = "[0,1,2,3,4]".len();
    for room in 0..whole {
        outbox.encode(|| serde_json::to_writer(Room(room), &ends)).unwrap_err();
        use_all(&mut ends, &mut others);
    }
    outbox.encode(|| serde_json::to_writer(Room(whole), &ends)).unwrap();
    use_all(&mut ends, &mut others);
    assert_eq!(outbox.seal().unwrap().commit(ends).unwrap().len(), 5);
    assert_ended(&mut others);
}

#[test]
fn a_panic_in_the_middle_leaves_the_ends_usable_and_nothing_installed() {
    let (ends, mut others) = ends();
    let mut message = (ends, Bad { panics: true });
    let mut outbox = Outbox::new();
    let encoding = || outbox.encode(|| serde_json::to_string(&message));
    catch_unwind(AssertUnwindSafe(encoding)).unwrap_err();
    assert_eq!(serde_json::to_string(&message.0).unwrap_err().to_string(), CarryError::NotCarried.to_string());
    use_all(&mut message.0, &mut others);
    assert_eq!(outbox.seal().unwrap_err(), CarryError::NotEncoded);
    drop(message);
    assert_ended(&mut others);
}

#[test]
fn outbox_is_reusable_after_a_panic() {
    let (tx, mut rx) = channel::<u8>();
    let mut message = (tx, Bad { panics: true });
    let mut outbox = Outbox::new();
    catch_unwind(AssertUnwindSafe(|| outbox.encode(|| serde_json::to_string(&message)))).unwrap_err();
    message.1.panics = false;
    let (tx, _) = message;
    assert_eq!(outbox.encode(|| serde_json::to_string(&tx)).unwrap(), "0");
    let ends = outbox.seal().unwrap().commit(tx).unwrap();
    assert_eq!(ends.len(), 1);
    drop(ends);
    assert_eq!(rx.try_recv(), Err(RecvError::Closed));
}

#[test]
fn last_of_several_encodings_counts() {
    let (ends, mut others) = ends();
    let mut outbox = Outbox::new();
    let first = outbox.encode(|| serde_json::to_string(&ends)).unwrap();
    assert_eq!(first, outbox.encode(|| serde_json::to_string(&ends)).unwrap());
    let carried = outbox.seal().unwrap().commit(ends).unwrap();
    let mut inbox = Inbox::new(carried);
    let mut ends: Ends = decode(&mut inbox, &first).unwrap();
    use_all(&mut ends, &mut others);

    // The same if the last encoding failed.
    let message = (ends, Bad { panics: false });
    let mut outbox = Outbox::new();
    outbox.encode(|| serde_json::to_string(&message.0)).unwrap();
    outbox.encode(|| serde_json::to_string(&message)).unwrap_err();
    assert_eq!(outbox.seal().unwrap_err(), CarryError::NotEncoded);
}

#[test]
fn panic_in_a_later_encoding_invalidates_the_outbox() {
    let (tx, _rx) = channel::<u8>();
    let message = (tx, Bad { panics: true });
    let mut outbox = Outbox::new();
    outbox.encode(|| serde_json::to_string(&message.0)).unwrap();
    catch_unwind(AssertUnwindSafe(|| outbox.encode(|| serde_json::to_string(&message)))).unwrap_err();
    assert_eq!(outbox.seal().unwrap_err(), CarryError::NotEncoded);
}

#[test]
fn ends_are_unchanged_when_outbox_or_sealed_message_drops() {
    let (mut ends, mut others) = ends();
    let mut outbox = Outbox::new();
    outbox.encode(|| serde_json::to_string(&ends)).unwrap();
    drop(outbox);
    use_all(&mut ends, &mut others);
    let (sealed, _) = encode(&ends);
    assert_eq!(sealed.ends().len(), 5);
    use_all(&mut ends, &mut others);
    drop(sealed);
    use_all(&mut ends, &mut others);
    drop(ends);
    assert_ended(&mut others);
}

#[test]
fn a_message_dropped_while_it_is_sealed_ends_its_channels() {
    let (ends, mut others) = ends();
    let (sealed, _) = encode(&ends);
    drop(ends);
    assert_eq!(others.0.try_recv(), Err(RecvError::Closed));
    drop(sealed);
    assert_ended(&mut others);
}

#[test]
fn commit_after_message_drop_keeps_only_shared_ends() {
    let (ends, mut others) = ends();
    let (sealed, json) = encode(&ends);
    drop(ends);
    let error = sealed.commit(()).unwrap_err();
    let sender = EndKind::Sender { may_poison: true };
    assert_eq!(error.refused.len(), 4);
    assert_eq!(error.refused[0], CarryError::Gone { token: 0, kind: sender });
    assert_eq!(error.refused[3], CarryError::Gone { token: 4, kind: EndKind::Callee });
    assert_eq!(others.0.try_recv(), Err(RecvError::Closed));
    assert!(others.1.is_closed());
    assert_eq!(others.2.try_recv(), Err(RecvError::WouldBlock), "the sealed message keeps its handle");
    let mut inbox = Inbox::new(error.ends);
    decode::<Ends>(&mut inbox, &json).unwrap_err();
    assert_eq!(inbox.error(), Some(&CarryError::NoSuchEnd { token: 0 }));
    drop(inbox);
    assert_ended(&mut others);
}

/// Shares its end with every clone of the `Arc`, as a derive with serde's feature `rc` does.
struct Common<E>(Arc<Mutex<Option<E>>>);

impl<E: Serialize> Serialize for Common<E> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.lock().unwrap().as_ref().unwrap().serialize(serializer)
    }
}

impl<E> Common<E> {
    fn new(end: E) -> (Self, Arc<Mutex<Option<E>>>) {
        let end = Arc::new(Mutex::new(Some(end)));
        (Self(end.clone()), end)
    }
}

fn send_off_any<M: Serialize>(message: M) -> Result<Vec<CarriedEnd>, NotHandedOver> {
    let mut outbox = Outbox::new();
    outbox.encode(|| serde_json::to_string(&message)).unwrap();
    outbox.seal().unwrap().commit(message)
}

#[test]
fn end_also_held_outside_the_message_stays() {
    let (ends, mut others) = ends();
    let ((a, a_kept), (b, b_kept), (c, c_kept)) = (Common::new(ends.0), Common::new(ends.1), Common::new(ends.2));
    let ((d, d_kept), (e, e_kept)) = (Common::new(ends.3), Common::new(ends.4));
    let (own, mut far) = channel::<u8>();
    let error = send_off_any((a, b, c, d, e, own)).unwrap_err();
    let kept = |token, kind| CarryError::Kept { token, kind };
    assert_eq!(
        error.refused,
        [
            kept(0, EndKind::Sender { may_poison: true }),
            kept(1, EndKind::Receiver { may_poison: true }),
            kept(3, EndKind::Caller),
            kept(4, EndKind::Callee),
        ]
    );
    assert!(error.to_string().starts_with("end 0 of the message, a sender, is held elsewhere too and stays there; "));
    // A shared end has one more handle now; the ends that only the message owned have moved.
    assert_eq!(error.ends.iter().map(CarriedEnd::token).collect::<Vec<_>>(), [2, 5]);
    assert_eq!(far.try_recv(), Err(RecvError::WouldBlock));
    drop(error);
    assert_eq!(far.try_recv(), Err(RecvError::Closed));

    fn out<E>(kept: Arc<Mutex<Option<E>>>) -> E {
        kept.lock().unwrap().take().unwrap()
    }
    let mut ends = (out(a_kept), out(b_kept), out(c_kept), out(d_kept), out(e_kept));
    use_all(&mut ends, &mut others);
    drop(ends);
    assert_ended(&mut others);
}

#[test]
fn common_end_moves_with_its_only_holder() {
    let (tx, mut rx) = channel::<u8>();
    let (first, kept) = Common::new(tx);
    let second = Common(kept.clone());
    let third = Common(kept);
    assert!(matches!(send_off_any(first).unwrap_err().refused[..], [CarryError::Kept { token: 0, .. }]));
    assert!(send_off_any(second).is_err());
    let ends = send_off_any(third).unwrap();
    assert_eq!(rx.try_recv(), Err(RecvError::WouldBlock));
    drop(ends);
    assert_eq!(rx.try_recv(), Err(RecvError::Closed));
}

#[test]
fn common_end_twice_in_one_message_is_refused() {
    let (tx, mut rx) = channel::<u8>();
    let (first, kept) = Common::new(tx);
    let mut outbox = Outbox::new();
    outbox.encode(|| serde_json::to_string(&(&first, &Common(kept)))).unwrap_err();
    assert!(matches!(outbox.error(), Some(CarryError::Twice { .. })));
    assert_eq!(rx.try_recv(), Err(RecvError::WouldBlock));
    drop(first);
    assert_eq!(rx.try_recv(), Err(RecvError::Closed));
}

#[test]
fn kept_message_keeps_its_ends_after_failed_commit() {
    let (mut ends, mut others) = ends();
    for _ in 0..3 {
        let (sealed, _) = encode(&ends);
        let error = sealed.commit("something else").unwrap_err();
        assert_eq!(error.refused.len(), 4);
        use_all(&mut ends, &mut others);
        drop(error);
        use_all(&mut ends, &mut others);
    }
    drop(carry(ends));
    assert_ended(&mut others);
}

#[test]
fn a_message_that_was_encoded_twice_is_handed_over_once() {
    let (ends, mut others) = ends();
    let (first, json) = encode(&ends);
    let (second, _) = encode(&ends);
    let mut inbox = Inbox::new(first.commit(ends).unwrap());
    assert_eq!(second.commit(()).unwrap_err().refused.len(), 4);
    let mut ends: Ends = decode(&mut inbox, &json).unwrap();
    use_all(&mut ends, &mut others);
    drop(ends);
    assert_ended(&mut others);
}

#[test]
fn commit_refuses_an_end_dropped_during_encoding() {
    struct Makes;
    impl Serialize for Makes {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            channel::<u8>().0.serialize(serializer)
        }
    }
    let error = send_off_any(Makes).unwrap_err();
    assert!(matches!(error.refused[..], [CarryError::Gone { token: 0, .. }]));
    assert!(error.ends.is_empty());
}

#[test]
fn only_one_of_concurrent_hand_overs_gets_a_common_end() {
    for _ in 0..VALUES / 10 {
        let (tx, mut rx) = channel_with::<u8>(fifo(1));
        let (first, kept) = Common::new(tx);
        let messages = [first, Common(kept.clone()), Common(kept)].map(|message| {
            let mut outbox = Outbox::new();
            outbox.encode(|| serde_json::to_string(&message)).unwrap();
            (outbox.seal().unwrap(), message)
        });
        let mut outcomes = std::thread::scope(|s| {
            let threads = messages.map(|(sealed, message)| s.spawn(|| sealed.commit(message)));
            threads.map(|thread| thread.join().unwrap())
        });
        outcomes.sort_by_key(Result::is_err);
        assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1);
        let [carried, ..] = outcomes;
        let mut tx: Sender<u8> = decode(&mut Inbox::new(carried.unwrap()), "0").unwrap();
        tx.try_send(1).unwrap();
        assert_eq!(rx.try_recv(), Ok(1));
        drop(tx);
        assert_eq!(rx.try_recv(), Err(RecvError::Closed));
    }
}

#[test]
fn a_panic_of_the_message_at_the_hand_over_ends_its_channels() {
    #[derive(Serialize, Deserialize)]
    struct Fragile(Sender<u8>);
    impl Drop for Fragile {
        fn drop(&mut self) {
            panic!("fragile");
        }
    }
    let (tx, mut rx) = channel();
    let message = Fragile(tx);
    let (sealed, _) = encode(&message);
    catch_unwind(AssertUnwindSafe(|| sealed.commit(message))).unwrap_err();
    assert_eq!(rx.try_recv(), Err(RecvError::Closed));
}

// ---- operations that an end refuses

#[test]
fn ends_are_not_encoded_or_decoded_without_a_carrier() {
    let (mut ends, mut others) = ends();
    let text = "an end can only travel inside a message on a dunlin channel";
    let refused = [
        serde_json::to_string(&ends.0),
        serde_json::to_string(&ends.1),
        serde_json::to_string(&ends.2),
        serde_json::to_string(&ends.3),
        serde_json::to_string(&ends.4),
        serde_json::to_string(&ends),
    ];
    for refused in refused {
        assert_eq!(refused.unwrap_err().to_string(), text);
    }
    use_all(&mut ends, &mut others);
    let error = serde_json::from_str::<Sender<u8>>("0").unwrap_err();
    assert_eq!(error.to_string(), "an end can only be read from a message that came over a dunlin channel");
}

#[test]
fn the_same_end_twice_is_refused() {
    struct Twice<E>(E);
    impl<E: Serialize> Serialize for Twice<E> {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            (&self.0, &self.0).serialize(serializer)
        }
    }
    fn refused<E: Portable>(end: E) -> (E, String) {
        let twice = Twice(end);
        let mut outbox = Outbox::new();
        let error = outbox.encode(|| serde_json::to_string(&twice)).unwrap_err();
        assert!(matches!(outbox.error(), Some(CarryError::Twice { .. })));
        (twice.0, error.to_string())
    }
    let (mut ends, mut others) = ends();
    let (a, text) = refused(ends.0);
    assert_eq!(text, "the same sender is in this message twice, and only one can hold it");
    ends.0 = a;
    ends.1 = refused(ends.1).0;
    let (c, text) = refused(ends.2);
    assert_eq!(text, "the same shared sender is in this message twice, and only one can hold it");
    ends.2 = c;
    ends.3 = refused(ends.3).0;
    ends.4 = refused(ends.4).0;
    use_all(&mut ends, &mut others);
}

fn refusal<E: Portable, F: Portable + Debug>(end: E) -> CarryError {
    let (mut inbox, json) = send_off(end);
    let text = decode::<F>(&mut inbox, &json).unwrap_err();
    let error = inbox.error().unwrap().clone();
    assert_eq!(text, error.to_string());
    // The end is still in the inbox and can be read as its own type.
    let ends = inbox.into_ends();
    assert_eq!(ends.len(), 1);
    decode::<E>(&mut Inbox::new(ends), &json).unwrap();
    error
}

#[test]
fn a_wrong_kind_is_refused() {
    let wrong = |expected, found| CarryError::WrongKind { token: 0, expected, found };
    let sender = EndKind::Sender { may_poison: true };
    let receiver = EndKind::Receiver { may_poison: true };
    let (tx, rx) = channel::<u8>();
    assert_eq!(refusal::<_, Receiver<u8>>(tx), wrong(receiver, sender));
    assert_eq!(refusal::<_, Shared<Receiver<u8>>>(rx), wrong(EndKind::SharedReceiver, receiver));
    let (caller, callee) = call::<u8, u8>();
    assert_eq!(refusal::<_, Sender<u8>>(caller), wrong(sender, EndKind::Caller));
    assert_eq!(refusal::<_, Reply<u8>>(callee), wrong(EndKind::Reply, EndKind::Callee));
}

#[test]
fn a_wrong_type_is_refused() {
    let (tx, _rx) = channel::<u8>();
    let error = refusal::<_, Sender<u16>>(tx);
    let CarryError::WrongType { token: 0, expected, found } = error else { panic!("{error}") };
    assert!(expected.contains("u16") && found.contains("u8"), "{expected} {found}");
    let (tx, _rx) = channel::<u8>();
    assert!(matches!(refusal::<_, Shared<Sender<u16>>>(tx.share()), CarryError::WrongType { .. }));
    let (caller, _callee) = call::<u8, u16>();
    assert!(matches!(refusal::<_, Caller<u16, u8>>(caller), CarryError::WrongType { .. }));
}

#[test]
fn carried_end_keeps_its_power_to_poison() {
    let (tx, rx) = ChannelFactory::default().ends::<u8, NoPoison, MayPoison>();
    let (tx, rx): (Sender<u8, NoPoison>, Receiver<u8>) = carry((tx, rx));
    let weak = EndKind::Sender { may_poison: false };
    let strong = EndKind::Sender { may_poison: true };
    assert_eq!(refusal::<_, Sender<u8>>(tx), CarryError::WrongKind { token: 0, expected: strong, found: weak });
    drop(rx);

    let (_tx, rx) = channel::<u8>();
    assert!(matches!(refusal::<_, Receiver<u8>>(rx.no_poison()), CarryError::WrongKind { .. }));
    let (tx, _rx) = channel::<u8>();
    assert!(matches!(refusal::<_, Sender<u8, NoPoison>>(tx), CarryError::WrongKind { .. }));
    let (tx, _rx) = channel::<u8>();
    assert!(matches!(refusal::<_, Shared<Sender<u8>>>(tx.no_poison().share()), CarryError::WrongType { .. }));
}

#[test]
fn a_wrong_number_is_refused() {
    let (tx, _rx) = channel::<u8>();
    let (mut inbox, _) = send_off(tx);
    for json in ["1", "18446744073709551615"] {
        decode::<Sender<u8>>(&mut inbox, json).unwrap_err();
        assert_eq!(inbox.error(), Some(&CarryError::NoSuchEnd { token: json.parse().unwrap() }));
    }
    for json in ["-1", "\"0\"", "0.5", "null", "[0]", "{}", "18446744073709551616", ""] {
        decode::<Sender<u8>>(&mut inbox, json).unwrap_err();
        assert_eq!(inbox.error(), None, "{json}: not a number at all");
    }
    let text = decode::<Sender<u8>>(&mut inbox, "true").unwrap_err();
    assert!(text.contains("invalid type: boolean"), "{text}");
    decode::<Sender<u8>>(&mut inbox, "0").unwrap();
}

#[test]
fn an_end_is_taken_once() {
    let (tx, mut rx) = channel::<u8>();
    let (mut inbox, _) = send_off(tx);
    decode::<(Sender<u8>, Sender<u8>)>(&mut inbox, "[0,0]").unwrap_err();
    assert_eq!(inbox.error(), Some(&CarryError::Taken { token: 0 }));
    assert_eq!(rx.try_recv(), Err(RecvError::WouldBlock), "nothing has happened");
    let tx: Sender<u8> = decode(&mut inbox, "0").unwrap();
    decode::<Sender<u8>>(&mut inbox, "0").unwrap_err();
    assert_eq!(inbox.error(), Some(&CarryError::Taken { token: 0 }));
    drop(tx);
    assert_eq!(rx.try_recv(), Err(RecvError::Closed));
}

#[test]
fn failed_decoding_leaves_the_inbox_unchanged() {
    for json in [
        r#"[0,1,2,3,"no number"]"#, // of a wrong type
        "[0,1,2,3,0]",              // the wrong end
        "[0,1,2,3,9]",              // no end at all
        "[0,1,2,3",                 // cut off
        "[0,1,2,3,4",
        "[0,1,2,3]", // too short
        "[0,1,2,3,4,5]",
        "[0,1,2,3,4] true", // extra data behind it
        "",
    ] {
        let (ends, mut others) = ends();
        let (mut inbox, whole) = send_off(ends);
        decode::<Ends>(&mut inbox, json).map(drop).unwrap_err();
        let carried = inbox.into_ends();
        assert_eq!(carried.iter().map(CarriedEnd::token).collect::<Vec<_>>(), [0, 1, 2, 3, 4], "{json}");
        let mut inbox = Inbox::new(carried);
        decode::<Ends>(&mut inbox, json).map(drop).unwrap_err();
        let mut ends: Ends = decode(&mut inbox, &whole).unwrap();
        use_all(&mut ends, &mut others);
        drop(ends);
        assert_ended(&mut others);
    }
}

#[test]
fn a_message_that_cannot_be_decoded_ends_its_ends() {
    for json in [r#"[0,1,2,3,"no number"]"#, "[0,1,2,3,0]", "[0,1,2", "[0,1,2,3,4,5]", "[0,1,2,3,4] true", "", "7"] {
        let (ends, mut others) = ends();
        let (mut inbox, _) = send_off(ends);
        let mut waits = Box::pin(others.0.recv());
        let count = Arc::new(Count(AtomicUsize::new(0)));
        let waker = count.clone().into();
        assert!(waits.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        decode::<Ends>(&mut inbox, json).map(drop).unwrap_err();
        assert_eq!(count.0.load(Ordering::SeqCst), 0);
        drop(inbox);
        assert_eq!(count.0.load(Ordering::SeqCst), 1, "{json}: the waiting operation is woken");
        drop(waits);
        assert_ended(&mut others);
    }
}

#[test]
fn failed_decoding_does_not_duplicate_taken_ends() {
    let (a, mut other_a) = channel::<u8>();
    let (b, mut other_b) = channel::<u8>();
    let (mut inbox, json) = send_off((a, b));
    let mut out = None;
    let failed = inbox.decode(|| {
        out = Some(serde_json::from_str::<(Sender<u8>, Sender<u8>)>(&json).unwrap().0);
        Err::<(), _>("not this way")
    });
    assert_eq!(failed, Err("not this way"));
    assert_eq!(inbox.into_ends().iter().map(CarriedEnd::token).collect::<Vec<_>>(), [1]);
    assert_eq!(other_b.try_recv(), Err(RecvError::Closed));
    assert_eq!(other_a.try_recv(), Err(RecvError::WouldBlock));
    drop(out);
    assert_eq!(other_a.try_recv(), Err(RecvError::Closed));

    // The same if the decoding panics.
    let (a, mut other_a) = channel::<u8>();
    let (mut inbox, json) = send_off(a);
    let mut out = None;
    let decoding = || {
        inbox.decode(|| {
            out = Some(serde_json::from_str::<Sender<u8>>(&json)?);
            panic!("on purpose");
            #[allow(unreachable_code)] // it sets the return type of the closure
            Ok::<(), serde_json::Error>(())
        })
    };
    catch_unwind(AssertUnwindSafe(decoding)).unwrap_err();
    decode::<Sender<u8>>(&mut inbox, &json).unwrap_err();
    assert_eq!(inbox.error(), Some(&CarryError::Taken { token: 0 }));
    assert!(inbox.into_ends().is_empty());
    drop(out);
    assert_eq!(other_a.try_recv(), Err(RecvError::Closed));
}

#[test]
fn panic_during_decoding_leaves_other_ends_usable() {
    #[derive(Debug)]
    struct Panics;
    impl<'de> Deserialize<'de> for Panics {
        fn deserialize<D: serde::Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
            panic!("in the middle")
        }
    }
    let (a, mut other_a) = channel::<u8>();
    let (b, mut other_b) = channel::<u8>();
    let (mut inbox, _) = send_off((a, b));
    let decoding = || decode::<(Sender<u8>, Panics, Sender<u8>)>(&mut inbox, "[0,0,1]");
    catch_unwind(AssertUnwindSafe(decoding)).unwrap_err();
    assert_eq!(other_a.try_recv(), Err(RecvError::WouldBlock));
    let error = serde_json::from_str::<Sender<u8>>("1").unwrap_err();
    assert_eq!(error.to_string(), CarryError::NotArrived.to_string());
    let mut b: Sender<u8> = decode(&mut inbox, "1").unwrap();
    assert_eq!(other_a.try_recv(), Err(RecvError::Closed), "the failed decoding dropped the end");
    block_on(async {
        let (sent, got) = par!(b.send(1), other_b.recv());
        assert_eq!((sent, got), (Ok(()), Ok(1)));
    });
}

#[test]
fn ends_unknown_to_an_older_reader_close_in_order() {
    #[derive(Serialize, Deserialize)]
    struct New {
        data: Sender<u8>,
        extra: Sender<u8>,
        more: Receiver<u8>,
    }
    #[derive(Serialize, Deserialize)]
    struct Old {
        data: Sender<u8>,
    }
    let (data, mut other_data) = channel_with(fifo(1));
    let (mut extra, mut other_extra) = channel_with(fifo(1));
    let (mut other_more, more) = channel_with(fifo(1));
    extra.try_send(1).unwrap();
    let (mut inbox, json) = send_off(New { data, extra, more });
    let mut old: Old = decode(&mut inbox, &json).unwrap();
    old.data.try_send(2).unwrap();
    assert_eq!(other_data.try_recv(), Ok(2));
    assert_eq!((other_extra.try_recv(), other_extra.try_recv()), (Ok(1), Err(RecvError::Closed)));
    assert_eq!(other_more.try_send(3).unwrap_err().why(), Some(&Why::Closed));
}

#[test]
fn skipped_field_is_dropped_at_commit() {
    #[derive(Serialize, Deserialize)]
    struct Skips {
        data: Sender<u8>,
        #[serde(skip)]
        kept: Option<Sender<u8>>,
    }
    let (data, mut other_data) = channel::<u8>();
    let (kept, mut other_kept) = channel::<u8>();
    let (mut inbox, json) = send_off(Skips { data, kept: Some(kept) });
    assert_eq!(json, r#"{"data":0}"#);
    assert_eq!(other_kept.try_recv(), Err(RecvError::Closed));
    assert_eq!(other_data.try_recv(), Err(RecvError::WouldBlock));
    assert!(decode::<Skips>(&mut inbox, &json).unwrap().kept.is_none());
    assert_eq!(other_data.try_recv(), Err(RecvError::Closed));
}

// ---- types

#[derive(Serialize, Deserialize, Debug)]
enum Turn {
    Play { card: u8, next: Sender<Turn> },
    Over,
}

#[derive(Serialize, Deserialize, Debug)]
enum Ping {
    Pong(Sender<Pong>),
    Many(Shared<Sender<Ping>>),
}

#[derive(Serialize, Deserialize, Debug)]
enum Pong {
    Ping(Receiver<Ping>),
    Deep(Option<Box<Self>>),
    Weak(Sender<Self, NoPoison>),
    Ask(Caller<Ping, Self>, Callee<Self, Ping>),
}

#[derive(Serialize, Deserialize, Debug)]
#[serde(bound = "T: Portable")]
struct Req<T> {
    what: T,
    reply: Sender<T>,
    more: Option<Sender<Req<T>>>,
}

#[test]
fn recursive_types_are_portable() {
    fn portable<T: Portable>() {}
    fn generic<T: Portable>() {
        portable::<Req<T>>();
        portable::<Shared<Receiver<Req<T>>>>();
    }
    portable::<Turn>();
    portable::<Ping>();
    portable::<Sender<Sender<Sender<Req<Pong>>>>>();
    portable::<Reply<Receiver<Turn, NoPoison>>>();
    generic::<Turn>();
}

#[test]
fn a_protocol_that_sends_itself() {
    block_on(async {
        let (mut player, mut dealer) = channel::<Turn>();
        let (next, mut rest) = channel::<Turn>();
        let (sent, turn) = par!(player.send(carry(Turn::Play { card: 7, next })), dealer.recv());
        sent.unwrap();
        let Turn::Play { card: 7, mut next } = carry(turn.unwrap()) else { panic!() };
        let (sent, turn) = par!(next.send(Turn::Over), rest.recv());
        sent.unwrap();
        assert!(matches!(turn, Ok(Turn::Over)));
    });
}

#[test]
fn a_generic_request_with_an_end_that_carries_ends() {
    let (reply, mut replies) = channel::<Sender<u8>>();
    let (more, mut others) = channel();
    let (what, mut whats) = channel_with(fifo(1));
    let Req { mut what, mut reply, more } = carry(Req { what, reply, more: Some(more) });
    what.try_send(3).unwrap();
    assert_eq!(whats.try_recv(), Ok(3));
    block_on(async {
        let (sent, mut what) = par!(reply.send(what), async { carry(replies.recv().await.unwrap()) });
        sent.unwrap();
        what.try_send(4).unwrap();
        assert_eq!(whats.try_recv(), Ok(4));
        drop(more);
        assert!(matches!(others.recv().await, Err(RecvError::Closed)));
    });
}

#[test]
fn enums_of_every_representation() {
    #[derive(Serialize, Deserialize)]
    #[serde(tag = "is")]
    enum Inside {
        A { tx: Sender<u8> },
    }
    #[derive(Serialize, Deserialize)]
    #[serde(tag = "is", content = "of")]
    enum Beside {
        A(Sender<u8>),
    }
    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Untagged {
        B { tx: Sender<u16> },
        A { tx: Sender<u8> },
    }
    #[derive(Serialize, Deserialize)]
    struct Flat {
        n: u8,
        #[serde(flatten)]
        rest: Inside,
    }
    let send = |mut tx: Sender<u8>| tx.try_send(1);
    let (tx, mut rx) = channel_with(fifo(4));
    let Inside::A { tx } = carry(Inside::A { tx });
    let Beside::A(tx) = carry(Beside::A(tx));
    // An end of another type stays where it is, so the next variant finds it.
    let Untagged::A { tx } = carry(Untagged::A { tx }) else { panic!() };
    let Flat { n: 3, rest: Inside::A { tx } } = carry(Flat { n: 3, rest: Inside::A { tx } }) else { panic!() };
    send(tx).unwrap();
    assert_eq!(rx.try_recv(), Ok(1));
}

#[test]
fn an_untagged_enum_tries_its_variants() {
    #[derive(Serialize, Deserialize, Debug)]
    #[serde(untagged)]
    enum Untagged {
        Longer { tx: Sender<u8>, rx: Receiver<u8>, n: u8 },
        Long { rx: Receiver<u8>, tx: Sender<u8>, text: String },
        Short { tx: Sender<u8>, rx: Receiver<u8> },
        Half { tx: Sender<u8> },
    }
    let (tx, mut far_rx) = channel_with(fifo(1));
    let (mut far_tx, rx) = channel_with(fifo(1));
    let Untagged::Short { mut tx, mut rx } = carry(Untagged::Short { tx, rx }) else { panic!() };
    tx.try_send(1).unwrap();
    far_tx.try_send(2).unwrap();
    assert_eq!((far_rx.try_recv(), rx.try_recv()), (Ok(1), Ok(2)));
    let Untagged::Half { mut tx } = carry(Untagged::Half { tx }) else { panic!() };
    tx.try_send(3).unwrap();
    assert_eq!(far_rx.try_recv(), Ok(3));
    drop((tx, rx));
    assert_eq!(far_rx.try_recv(), Err(RecvError::Closed));
    assert!(far_tx.is_closed());
}

#[test]
fn unmatched_untagged_enum_leaves_the_inbox_unchanged() {
    #[derive(Serialize, Deserialize, Debug)]
    #[serde(untagged)]
    enum Other {
        A { tx: Sender<u8>, n: u8 },
        B { tx: Sender<u8>, rx: Receiver<u8> },
    }
    #[derive(Serialize, Deserialize)]
    struct Message {
        tx: Sender<u8>,
    }
    let (tx, mut rx) = channel::<u8>();
    let (mut inbox, json) = send_off(Message { tx });
    let text = decode::<Other>(&mut inbox, &json).unwrap_err();
    assert_eq!(text, "data did not match any variant of untagged enum Other");
    assert_eq!(rx.try_recv(), Err(RecvError::WouldBlock));
    drop(inbox);
    assert_eq!(rx.try_recv(), Err(RecvError::Closed));
}

#[test]
fn an_end_that_only_a_failed_try_has_read_is_dropped() {
    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Untagged {
        Both { tx: Sender<u8>, rx: Receiver<u8>, n: u8 },
        One { rx: Receiver<u8> },
    }
    #[derive(Serialize, Deserialize)]
    struct Message {
        tx: Sender<u8>,
        rx: Receiver<u8>,
    }
    let ((tx, mut far_rx), (far_tx, rx)) = (channel::<u8>(), channel::<u8>());
    let (mut inbox, json) = send_off(Message { tx, rx });
    let Ok(Untagged::One { rx }) = decode(&mut inbox, &json) else { panic!() };
    assert_eq!(far_rx.try_recv(), Err(RecvError::Closed));
    assert!(!far_tx.is_closed());
    drop(rx);
    assert!(far_tx.is_closed());
}

#[test]
fn encoding_unsupported_by_serde_is_refused_without_loss() {
    #[derive(Serialize, Deserialize)]
    #[serde(tag = "is")]
    enum Bare {
        A(Sender<u8>),
    }
    #[derive(Serialize, Deserialize)]
    struct Flat {
        n: u8,
        #[serde(flatten)]
        tx: Sender<u8>,
    }
    fn refused<M: Portable>(message: M, text: &str) -> M {
        let mut outbox = Outbox::new();
        let error = outbox.encode(|| serde_json::to_string(&message)).unwrap_err();
        assert!(error.to_string().contains(text), "{error}");
        assert_eq!(outbox.seal().unwrap_err(), CarryError::NotEncoded);
        message
    }
    let (tx, mut rx) = channel_with(fifo(1));
    let Bare::A(tx) = refused(Bare::A(tx), "cannot serialize tagged newtype variant Bare::A containing an integer");
    let Flat { mut tx, .. } = refused(Flat { n: 1, tx }, "can only flatten structs and maps (got an integer)");
    tx.try_send(1).unwrap();
    assert_eq!(rx.try_recv(), Ok(1));

    // Such JSON from another program is refused as well.
    for json in [r#"{"is":"A"}"#, r#"{"is":"A","n":0}"#, r#"{"n":1,"tx":0}"#] {
        let (tx, mut rx) = channel::<u8>();
        let (mut inbox, _) = send_off(tx);
        decode::<Bare>(&mut inbox, json).map(drop).unwrap_err();
        decode::<Flat>(&mut inbox, json).map(drop).unwrap_err();
        assert_eq!(rx.try_recv(), Err(RecvError::WouldBlock));
        drop(inbox);
        assert_eq!(rx.try_recv(), Err(RecvError::Closed));
    }
}

#[test]
fn ends_decode_from_any_form_of_a_newtype_struct() {
    use serde::de::IntoDeserializer;
    use serde::de::value::{Error, I64Deserializer, SeqDeserializer, U64Deserializer};
    let read = |f: &dyn Fn() -> Result<Sender<u8>, Error>| {
        let (tx, rx) = channel::<u8>();
        let (mut inbox, _) = send_off(tx);
        let tx = inbox.decode(f)?;
        assert!(!tx.is_closed());
        drop(rx);
        assert!(tx.is_closed());
        Ok::<_, Error>(())
    };
    read(&|| Sender::deserialize(U64Deserializer::new(0))).unwrap();
    read(&|| Sender::deserialize(I64Deserializer::new(0))).unwrap();
    read(&|| Sender::deserialize(SeqDeserializer::new([0_u64].into_iter()))).unwrap();
    read(&|| Sender::deserialize(I64Deserializer::new(-1))).unwrap_err();
    read(&|| Sender::deserialize(SeqDeserializer::new([0_u64; 0].into_iter()))).unwrap_err();
    let error = read(&|| Sender::deserialize("krill".into_deserializer())).unwrap_err();
    assert_eq!(error.to_string(), "invalid type: string \"krill\", expected the number of a sender");
}

#[test]
fn many_ends_keep_their_numbers() {
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..300).map(|_| channel_with::<usize>(fifo(1))).unzip();
    let mut senders = carry(senders);
    let mut receivers = carry(receivers);
    for (n, tx) in senders.iter_mut().enumerate() {
        tx.try_send(n).unwrap();
    }
    for (n, rx) in receivers.iter_mut().enumerate() {
        assert_eq!(rx.try_recv(), Ok(n));
    }
}

// ---- carriers inside carriers, and threads

#[test]
fn a_carrier_within_a_carrier() {
    /// Encodes another message while it is being encoded.
    struct Nests(Sender<u8>, Sender<u8>, std::cell::RefCell<Option<(Sealed, String)>>);
    impl Serialize for Nests {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let bad = Bad { panics: false };
            Outbox::new().encode(|| serde_json::to_string(&(&self.1, bad))).unwrap_err();
            *self.2.borrow_mut() = Some(encode(&self.1));
            self.0.serialize(serializer)
        }
    }
    let (a, mut other_a) = channel_with(fifo(1));
    let (b, mut other_b) = channel_with(fifo(1));
    let (c, mut other_c) = channel_with::<u8>(fifo(1));
    let nests = Nests(a, b, None.into());
    let mut outbox = Outbox::new();
    let json = outbox.encode(|| serde_json::to_string(&(&c, &nests))).unwrap();
    assert_eq!(json, "[0,1]");
    let Nests(a, b, inner) = nests;
    let (sealed, inner_json) = inner.into_inner().unwrap();
    let inner_ends = sealed.commit(b).unwrap();
    let mut outer = Inbox::new(outbox.seal().unwrap().commit((c, a)).unwrap());
    let mut inner = Inbox::new(inner_ends);

    // The inner message is decoded during the decoding of the outer one.
    let ((mut c, mut a), mut b) = outer
        .decode(|| {
            let b: Sender<u8> = decode(&mut inner, &inner_json).unwrap();
            decode::<Sender<u8>>(&mut inner, &inner_json).unwrap_err();
            serde_json::from_str::<(Sender<u8>, Sender<u8>)>(&json).map(|ends| (ends, b))
        })
        .unwrap();
    for (n, tx) in [&mut a, &mut b, &mut c].into_iter().enumerate() {
        tx.try_send(n as u8).unwrap();
    }
    assert_eq!((other_a.try_recv(), other_b.try_recv(), other_c.try_recv()), (Ok(0), Ok(1), Ok(2)));
}

#[test]
fn encoding_on_another_thread_is_refused() {
    let (tx, mut rx) = channel::<u8>();
    let mut outbox = Outbox::new();
    let error = outbox.encode(|| std::thread::scope(|s| s.spawn(|| serde_json::to_string(&tx)).join().unwrap()));
    assert_eq!(error.unwrap_err().to_string(), CarryError::NotCarried.to_string());
    assert_eq!(rx.try_recv(), Err(RecvError::WouldBlock));
}

fn wait<F: Future>(future: F) -> F::Output {
    struct Thread(std::thread::Thread, AtomicBool);
    impl Wake for Thread {
        fn wake(self: Arc<Self>) {
            self.1.store(true, Ordering::Release);
            self.0.unpark();
        }
    }
    let thread = Arc::new(Thread(std::thread::current(), AtomicBool::new(false)));
    let waker = thread.clone().into();
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        while !thread.1.swap(false, Ordering::Acquire) {
            std::thread::park();
        }
    }
}

const VALUES: u32 = if cfg!(miri) { 20 } else { 5_000 };

#[test]
fn both_ends_move_all_the_time_while_values_flow() {
    for policy in [rendezvous(), fifo(3)] {
        let (mut tx, mut rx) = channel_with(policy);
        std::thread::scope(|s| {
            s.spawn(move || {
                for n in 0..VALUES {
                    wait(tx.send(n)).unwrap();
                    if n % 3 == 0 {
                        tx = carry(tx);
                    }
                }
            });
            s.spawn(move || {
                for n in 0..VALUES {
                    assert_eq!(wait(rx.recv()), Ok(n));
                    if n % 2 == 0 {
                        rx = carry(rx);
                    }
                }
                assert_eq!(wait(rx.recv()), Err(RecvError::Closed));
            });
        });
    }
}

#[test]
fn ends_wander_between_threads() {
    // Each thread receives the message, uses the end, and sends the message on.
    const THREADS: usize = 4;
    let (tx, mut rx) = channel::<usize>();
    let (first, mut places): (_, Vec<_>) = {
        let (first, rx) = channel::<(Vec<CarriedEnd>, String)>();
        let mut places = vec![(rx, None)];
        for _ in 1..THREADS {
            let (next, rx) = channel();
            places.last_mut().unwrap().1 = Some(next);
            places.push((rx, None));
        }
        (first, places)
    };
    std::thread::scope(|s| {
        for (n, (mut from, to)) in places.drain(..).enumerate() {
            s.spawn(move || {
                let (ends, json) = wait(from.recv()).unwrap();
                let mut tx: Sender<usize> = decode(&mut Inbox::new(ends), &json).unwrap();
                wait(tx.send(n)).unwrap();
                if let Some(mut to) = to {
                    let (sealed, json) = encode(&tx);
                    wait(to.send((sealed.commit(tx).unwrap(), json))).unwrap();
                }
            });
        }
        let mut first = first;
        let (sealed, json) = encode(&tx);
        wait(first.send((sealed.commit(tx).unwrap(), json))).unwrap();
        for n in 0..THREADS {
            assert_eq!(wait(rx.recv()), Ok(n));
        }
        assert_eq!(wait(rx.recv()), Err(RecvError::Closed));
    });
}

#[test]
fn carrier_types_are_send() {
    fn send<T: Send>() {}
    send::<Outbox>();
    send::<Sealed>();
    send::<CarriedEnd>();
    send::<Inbox>();
}

// ---- ends of remote channels

/// The inbox that a carrier between nodes would have built from a frame.
fn far(kinds: &[EndKind]) -> Inbox {
    let mut inbox = Inbox::default();
    for (token, kind) in (0..).zip(kinds) {
        inbox.expect(token, *kind, rendezvous());
    }
    inbox
}

const SENDER: EndKind = EndKind::Sender { may_poison: true };
const RECEIVER: EndKind = EndKind::Receiver { may_poison: true };

#[test]
fn an_expected_end_is_a_half_with_an_agent() {
    let mut inbox = far(&[SENDER, RECEIVER, EndKind::Caller, EndKind::Callee, EndKind::Reply, SENDER]);
    #[allow(clippy::type_complexity)] // the test decodes five ends at once
    let (tx, rx, caller, callee, reply): (Sender<u8>, Receiver<u8>, Caller<u8, u8>, Callee<u8, u8>, Reply<u8>) =
        decode(&mut inbox, "[0,1,2,3,4]").unwrap();
    let mut cx = Context::from_waker(Waker::noop());
    let adopted = inbox.into_adopted();
    assert_eq!(adopted.iter().map(|end| end.token).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    assert!(adopted[5].agent.is_none(), "the message did not decode the end");
    assert_eq!(adopted[0].agent.as_ref().unwrap().channel(), Some(tx.id()));
    assert_eq!(adopted[1].agent.as_ref().unwrap().channel(), Some(rx.id()));
    assert!(reply.send(7).is_ok(), "it need not wait");
    drop((tx, rx, caller, callee));
    let mut heard = String::new();
    for end in adopted {
        match end.agent {
            Some(Agent::Outlet(mut outlet)) => heard += &format!("{:?} ", outlet.poll(&mut cx)),
            Some(Agent::Inlet(mut inlet)) => heard += &format!("{:?} ", inlet.poll(&mut cx)),
            Some(Agent::Several(_)) => panic!("none of them is shared"),
            None => {}
        }
    }
    assert_eq!(heard, r#"Ready(Gone) Ready(Gone) Ready(Gone) Ready(Gone) Ready(FirmOffer(0, Value("u8"))) "#);
}

#[test]
fn an_expected_end_is_of_its_kind_or_refused() {
    let mut inbox = far(&[SENDER, EndKind::SharedSender]);
    decode::<Receiver<u8>>(&mut inbox, "0").unwrap_err();
    assert_eq!(inbox.error(), Some(&CarryError::WrongKind { token: 0, expected: RECEIVER, found: SENDER }));
    decode::<Shared<Receiver<u8>>>(&mut inbox, "1").unwrap_err();
    let (expected, found) = (EndKind::SharedReceiver, EndKind::SharedSender);
    assert_eq!(inbox.error(), Some(&CarryError::WrongKind { token: 1, expected, found }));
    decode::<(Sender<u8>, Sender<u8>)>(&mut inbox, "[0,0]").unwrap_err();
    assert_eq!(inbox.error(), Some(&CarryError::Taken { token: 0 }));
    decode::<(Sender<u8>, u8)>(&mut inbox, "[0").unwrap_err();
    // All attempts failed, so the end is still available, as any type: only the other node knows its type.
    let tx: Sender<String> = decode(&mut inbox, "0").unwrap();
    assert!(!tx.is_closed());
    decode::<Sender<String>>(&mut inbox, "0").unwrap_err();
    assert_eq!(inbox.error(), Some(&CarryError::Taken { token: 0 }));
    let adopted = inbox.into_adopted();
    assert!(adopted[0].agent.is_some() && adopted[1].agent.is_none());
    drop(adopted);
    assert!(tx.is_closed());
}

#[test]
fn undecodable_message_adopts_no_ends() {
    for json in [r#"[0,1,2,3,"no number"]"#, "[0,1,2", "[0,1,2,3,4,5]", "[0,1,2,3,4] true"] {
        let mut inbox = far(&[SENDER, RECEIVER, EndKind::SharedSender, EndKind::Caller, EndKind::Callee]);
        decode::<Ends>(&mut inbox, json).map(drop).unwrap_err();
        assert!(inbox.into_adopted().is_empty());
    }
    let mut inbox = far(&[SENDER]);
    let mut out = None;
    let failed = inbox.decode(|| {
        out = Some(serde_json::from_str::<Sender<u8>>("0").unwrap());
        Err::<(), _>(())
    });
    assert_eq!(failed, Err(()));
    assert!(out.unwrap().is_closed(), "let out all the same, it leads nowhere");
}

#[test]
fn an_untagged_enum_of_expected_ends_tries_its_variants() {
    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Untagged {
        Tried { tx: Sender<u16>, n: u8 },
        Wrong { tx: Receiver<u8> },
        Right { tx: Sender<u8> },
    }
    let mut inbox = far(&[SENDER]);
    let Ok(Untagged::Right { tx }) = decode(&mut inbox, r#"{"tx":0}"#) else { panic!() };
    let [end] = <[_; 1]>::try_from(inbox.into_adopted()).unwrap();
    let Some(Agent::Outlet(outlet)) = end.agent else { panic!() };
    assert_eq!(outlet.channel(), tx.id());
    assert_eq!(outlet.shape().type_name(), "u8");
    assert!(!tx.is_closed());
}

#[test]
fn expected_ends_and_others_in_one_message() {
    let (tx, mut rx) = channel::<u8>();
    let (mut inbox, _) = send_off((tx, 1));
    inbox.expect(1, SENDER, rendezvous());
    let (tx, far): (Sender<u8>, Sender<u8>) = decode(&mut inbox, "[0,1]").unwrap();
    let adopted = inbox.into_adopted();
    assert_eq!(adopted.iter().map(|end| end.token).collect::<Vec<_>>(), [1]);
    assert_eq!(rx.try_recv(), Err(RecvError::WouldBlock));
    drop((tx, adopted));
    assert!(far.is_closed());
    assert_eq!(rx.try_recv(), Err(RecvError::Closed));
}

#[test]
#[should_panic(expected = "a u8 was given to a channel of u16")]
fn a_carrier_that_mixes_up_two_channels_gets_an_error() {
    let mut inbox = far(&[EndKind::Reply, RECEIVER]);
    let (reply, _rx): (Reply<u8>, Receiver<u16>) = decode(&mut inbox, "[0,1]").unwrap();
    reply.send(1).unwrap();
    let [from, to] = <[_; 2]>::try_from(inbox.into_adopted()).unwrap();
    let (Some(Agent::Outlet(mut from)), Some(Agent::Inlet(to))) = (from.agent, to.agent) else { panic!() };
    let Poll::Ready(Event::FirmOffer(0, value)) = from.poll(&mut Context::from_waker(Waker::noop())) else { panic!() };
    to.offer(0, value);
}
