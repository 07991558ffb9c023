//! Mailboxes: sending, bounds, owners, order.

use std::collections::HashSet;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use dunlin::prelude::*;
use dunlin::waits::{Doing, snapshot};
use dunlin::{Address, Bound, ExitReason, MailboxError, Pid, PostError, link, mailbox, mailbox_with};

use super::{Msg, in_order, in_process, poll_once, settle, until_it_waits};

#[test]
fn an_address_is_small_and_compared_by_its_mailbox() {
    assert!(size_of::<Address<[u64; 9]>>() <= 32);
    let ((a, _first), (b, second)) = (mailbox::<u8>(), mailbox::<u8>());
    assert_ne!(a, b);
    assert_eq!(b, second.address());
    assert_eq!(HashSet::from([a.clone(), b, a.clone(), second.address()]).len(), 2);
}

#[test]
fn an_address_keeps_neither_a_mailbox_nor_its_messages() {
    let value = Arc::new(());
    let (address, mailbox) = mailbox();
    address.send(value.clone()).unwrap();
    assert!(!address.is_closed());
    drop(mailbox);
    assert_eq!(Arc::strong_count(&value), 1);
    assert!(address.is_closed());
    assert_eq!(address.send(value.clone()).unwrap_err().into_message(), value);
}

#[test]
fn a_mailbox_is_closed_when_its_process_ends() {
    in_process(async {
        let (address, mut mailbox) = mailbox::<u8>();
        let process = spawn(async move { mailbox.recv().await });
        until_it_waits(process.pid()).await;
        process.pid().kill();
        process.await.unwrap_err();
        assert_eq!(address.send(1), Err(PostError::Closed(1)));
    });
}

#[test]
fn a_full_mailbox_returns_the_message() {
    in_order(async {
        let (address, mut mailbox) = mailbox_with(Bound::reject(2));
        assert_eq!([address.send(1), address.send(2)], [Ok(()), Ok(())]);
        assert_eq!(address.send(3), Err(PostError::Full(3)));
        assert_eq!(mailbox.recv_if(|n| *n == 2).await, Ok(2));
        assert_eq!(address.send(4), Ok(()));
        assert_eq!(address.send(5), Err(PostError::Full(5)));
        assert_eq!((mailbox.recv().await, mailbox.recv().await), (Ok(1), Ok(4)));
        assert!(mailbox.is_empty());
    });
}

#[test]
fn a_mailbox_that_drops_its_oldest_keeps_the_latest() {
    in_order(async {
        let (address, mut mailbox) = mailbox_with(Bound::drop_oldest(3));
        (0..5).for_each(|n| address.send(n).unwrap());
        // The first of those left is in the receiver's list, and loses its place there.
        assert_eq!(mailbox.recv_if(|n| *n == 3).await, Ok(3));
        (5..8).for_each(|n| address.send(n).unwrap());
        assert_eq!(mailbox.len(), 3);
        for n in 5..8 {
            assert_eq!(mailbox.recv().await, Ok(n));
        }
    });
}

#[test]
fn a_receive_that_waits_keeps_its_place_while_the_oldest_are_dropped() {
    in_order(async {
        let (address, mut mailbox) = mailbox_with(Bound::drop_oldest(3));
        (0..3).for_each(|n| address.send(n).unwrap());
        let mut tested = Vec::new();
        let mut receive = mailbox.recv_if(|n| {
            tested.push(*n);
            *n == 6
        });
        assert!(poll_once(&mut receive).is_pending());
        (3..6).for_each(|n| address.send(n).unwrap());
        assert!(poll_once(&mut receive).is_pending());
        address.send(6).unwrap();
        assert_eq!(poll_once(&mut receive), Poll::Ready(Ok(6)));
        drop(receive);
        assert_eq!(tested, [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!((mailbox.recv().await, mailbox.recv().await), (Ok(4), Ok(5)));
    });
}

#[test]
fn offers_get_room_in_the_order_in_which_they_came() {
    in_order(async {
        let (address, mut mailbox) = mailbox_with(Bound::reject(1));
        address.send(0).unwrap();
        for n in 1..5 {
            let address = address.clone();
            drop(spawn(async move { address.offer(n).await }));
            settle().await;
        }
        for n in 0..5 {
            assert_eq!(mailbox.recv().await, Ok(n));
        }
    });
}

#[test]
fn an_offer_that_is_given_up_passes_its_room_on() {
    in_order(async {
        let (address, mut mailbox) = mailbox_with(Bound::reject(1));
        address.send(0).unwrap();
        let mut first = address.offer(1);
        assert!(poll_once(&mut first).is_pending());
        let second = spawn({
            let address = address.clone();
            async move { address.offer(2).await }
        });
        settle().await;
        assert_eq!(mailbox.recv().await, Ok(0));
        settle().await;
        assert!(!second.is_finished(), "the room is kept for the first");
        assert_eq!(first.into_message(), Some(1));
        assert_eq!(second.await.unwrap(), Ok(()));
        assert_eq!(mailbox.recv().await, Ok(2));
    });
}

#[test]
fn an_offer_ends_when_the_mailbox_is_closed_or_a_deadline_passes() {
    in_order(async {
        let (address, mailbox) = mailbox_with(Bound::reject(1));
        address.send("krill").unwrap();
        let late = address.offer("squid").within(Duration::from_millis(5)).await;
        assert_eq!(late, Err(PostError::Full("squid")));
        let mut held = Some("squid");
        let late = address.offer_from(&mut held).within(Duration::from_millis(5)).await;
        assert_eq!((late, held), (Err(PostError::Full(())), Some("squid")));
        let offer = spawn({
            let address = address.clone();
            async move { address.offer("squid").await }
        });
        settle().await;
        drop(mailbox);
        assert_eq!(offer.await.unwrap(), Err(PostError::Closed("squid")));
    });
}

#[test]
fn a_mailbox_belongs_to_the_process_that_first_receives_from_it() {
    in_process(async {
        let (address, mut mailbox) = mailbox::<u8>();
        address.send(1).unwrap();
        let (mut tx, mut rx) = channel();
        let first = spawn(async move {
            assert_eq!(mailbox.recv().await, Ok(1));
            tx.send(mailbox).await.unwrap();
            std::future::pending::<()>().await;
        });
        let owner = first.pid();
        let mut mailbox = rx.recv().await.unwrap();
        address.send(2).unwrap();
        let Err(MailboxError::NotOwner { owner: named, by }) = mailbox.recv().await else { unreachable!() };
        assert!(owner == named && Pid::current().unwrap() == by);
        let refused = dunlin::receive!(mailbox, n => n, after Duration::from_secs(9) => 0);
        assert!(matches!(refused, Err(MailboxError::NotOwner { .. })));
        assert_eq!(mailbox.len(), 1, "the message is still there");
        owner.kill();
        first.await.unwrap_err();
        assert_eq!(mailbox.recv().await, Ok(2), "its process has ended");
    });
}

#[test]
fn code_outside_of_every_process_may_own_a_mailbox() {
    dunlin::block_on(async {
        let (address, mut mailbox) = mailbox();
        address.send(1).unwrap();
        assert_eq!(mailbox.recv().await, Ok(1));
        let stolen = spawn(async move { mailbox.recv().await });
        assert!(matches!(stolen.await.unwrap(), Err(MailboxError::NotOwner { .. })));
    });
}

#[test]
fn posts_and_the_exit_of_a_process_arrive_in_the_order_sent() {
    in_process(async {
        for _ in 0..100 {
            let (address, mut mailbox) = mailbox::<Msg>();
            mailbox.exits().unwrap();
            let (mut tx, mut go) = channel::<()>();
            let process = spawn(async move {
                go.recv().await.unwrap();
                for n in 0..10 {
                    address.send(Msg::Word(n)).unwrap();
                    tokio::task::yield_now().await;
                }
                panic!("no krill");
            });
            link(process.pid(), Pid::current().unwrap()).unwrap();
            tx.send(()).await.unwrap();
            for n in 0..10 {
                assert_eq!(mailbox.recv().await, Ok(Msg::Word(n)));
            }
            let Msg::Exit(exit) = mailbox.recv().await.unwrap() else { unreachable!() };
            assert_eq!(exit.reason, ExitReason::Panicked("no krill".into()));
            drop::<Process<()>>(process);
        }
    });
}

#[test]
fn messages_of_each_sender_arrive_in_order_and_none_is_lost() {
    const EACH: u32 = 20_000;
    in_process(async {
        let (address, mut mailbox) = mailbox::<(usize, u32)>();
        for sender in 0..4 {
            let address = address.clone();
            drop(spawn(async move { (0..EACH).for_each(|n| address.send((sender, n)).unwrap()) }));
        }
        let mut next = [0; 4];
        while next != [EACH; 4] {
            let (sender, n) = mailbox.recv().await.unwrap();
            assert_eq!(n, next[sender]);
            next[sender] += 1;
        }
    });
}

#[test]
fn a_waiting_process_has_a_line_in_the_records() {
    in_process(async {
        let (address, mut mailbox) = mailbox_with(Bound::reject(1));
        let waits_for = |pid: Pid| snapshot().into_iter().find(|wait| pid == wait.who);
        let receiver = spawn(async move {
            mailbox.recv().await.unwrap();
            mailbox
        });
        until_it_waits(receiver.pid()).await;
        let wait = waits_for(receiver.pid()).unwrap();
        assert_eq!((wait.doing, wait.made.file()), (Doing::Receive, file!()));
        address.send(1).unwrap();
        let mailbox = receiver.await.unwrap();
        address.send(2).unwrap();
        let sender = spawn(async move { address.offer(3).await });
        until_it_waits(sender.pid()).await;
        assert_eq!(waits_for(sender.pid()).unwrap().doing, Doing::Send);
        drop(mailbox);
        assert_eq!(sender.await.unwrap(), Err(PostError::Closed(3)));
    });
}

#[test]
fn a_process_that_always_has_a_message_gives_way() {
    in_order(async {
        let (address, mut mailbox) = mailbox();
        let (mut tx, mut stop) = channel();
        address.send(()).unwrap();
        let busy = spawn(async move {
            while stop.try_recv().is_err() {
                mailbox.recv().await.unwrap();
                address.send(()).unwrap();
            }
        });
        settle().await;
        par!(async { tx.send(()).await.unwrap() }, async { busy.await.unwrap() });
    });
}

#[test]
fn a_send_wakes_only_a_receive_that_waits() {
    struct Count(std::sync::atomic::AtomicUsize);
    impl std::task::Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        }
    }
    let count = Arc::new(Count(0.into()));
    let waker = Waker::from(count.clone());
    let wakes = || count.0.load(std::sync::atomic::Ordering::SeqCst);
    let (address, mut mailbox) = mailbox();
    {
        let mut receive = pin!(mailbox.recv());
        assert!(receive.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        address.send(1).unwrap();
        address.send(2).unwrap();
        assert_eq!(wakes(), 1);
    }
    assert!(poll_once(&mut mailbox.recv()).is_ready());
    assert!(poll_once(&mut mailbox.recv()).is_ready());
    let mut given_up = mailbox.recv();
    assert!(std::pin::Pin::new(&mut given_up).poll(&mut Context::from_waker(&waker)).is_pending());
    drop(given_up);
    address.send(3).unwrap();
    assert_eq!(wakes(), 1, "the receive has been given up");
}
