//! Selective receive: predicates, patterns, marks.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Poll;

use dunlin::prelude::*;
use dunlin::{Mailbox, MailboxError, mailbox, receive};

use super::{in_order, poll_once, settle};

#[derive(Debug, PartialEq, Eq)]
enum Word {
    Number(u32),
    Text(String),
    Stop,
}

#[test]
fn what_does_not_fit_stays_in_order() {
    in_order(async {
        let (address, mut mailbox) = mailbox();
        (0..6).for_each(|n| address.send(n).unwrap());
        assert_eq!(mailbox.recv_if(|n| *n == 3).await, Ok(3));
        assert_eq!(mailbox.recv_if(|n| n % 2 == 1).await, Ok(1));
        for n in [0, 2, 4, 5] {
            assert_eq!(mailbox.recv().await, Ok(n));
        }
    });
}

#[test]
fn a_receive_tests_no_message_twice() {
    in_order(async {
        let (address, mut mailbox) = mailbox();
        (0..100).for_each(|n| address.send(n).unwrap());
        let mut tested = Vec::new();
        let mut receive = mailbox.recv_if(|n| {
            tested.push(*n);
            *n == 200
        });
        for n in 100..201 {
            assert!(poll_once(&mut receive).is_pending());
            address.send(n).unwrap();
        }
        assert_eq!(poll_once(&mut receive), Poll::Ready(Ok(200)));
        drop(receive);
        assert_eq!(tested, (0..201).collect::<Vec<_>>());
        // A new receive begins at the first again.
        assert_eq!(mailbox.recv_if(|n| *n < 50).await, Ok(0));
    });
}

#[test]
fn a_marked_receive_tests_nothing_that_was_there_before() {
    in_order(async {
        let (address, mut mailbox) = mailbox();
        (0..100_000).for_each(|n| address.send(n).unwrap());
        let mut tested = 0;
        for n in 0..1_000 {
            let mut later = mailbox.mark();
            address.send(100_000 + n).unwrap();
            let got = later.recv_if(|_| {
                tested += 1;
                true
            });
            assert_eq!(got.await, Ok(100_000 + n));
        }
        assert_eq!(tested, 1_000);
        let mut later = mailbox.mark();
        assert_eq!(later.recv_if(|_| true).within(Duration::from_millis(1)).await, Err(MailboxError::TimedOut));
        drop(later);
        for n in 0..100_000 {
            assert_eq!(mailbox.recv().await, Ok(n));
        }
    });
}

#[test]
fn marks_nest_and_end() {
    in_order(async {
        let (address, mut mailbox) = mailbox();
        address.send(1).unwrap();
        {
            let mut later = mailbox.mark();
            address.send(2).unwrap();
            {
                let mut latest = later.mark();
                address.send(3).unwrap();
                assert_eq!(latest.recv().await, Ok(3));
            }
            assert_eq!(later.recv().await, Ok(2));
        }
        assert_eq!(mailbox.recv().await, Ok(1));
    });
}

#[test]
fn a_predicate_that_panics_leaves_the_message_where_it_was() {
    in_order(async {
        let (address, mut mailbox) = mailbox();
        (0..3).for_each(|n| address.send(n).unwrap());
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            poll_once(&mut mailbox.recv_if(|n| {
                assert_ne!(*n, 1, "one");
                false
            }))
        }));
        assert!(panicked.is_err());
        for n in 0..3 {
            assert_eq!(mailbox.recv().await, Ok(n));
        }
    });
}

#[test]
fn a_conversion_that_panics_leaves_the_exit_where_it_was() {
    thread_local!(static PANICS: std::cell::Cell<bool> = const { std::cell::Cell::new(true) });
    struct Gone(Exit);
    impl From<Exit> for Gone {
        fn from(exit: Exit) -> Self {
            assert!(!PANICS.get(), "not yet");
            Self(exit)
        }
    }
    in_order(async {
        let (_, mut mailbox) = mailbox::<Gone>();
        mailbox.exits().unwrap();
        let child = dunlin::spawn_linked(async {}).unwrap();
        let pid = child.pid();
        settle().await;
        assert!(catch_unwind(AssertUnwindSafe(|| poll_once(&mut mailbox.recv()).is_ready())).is_err());
        PANICS.set(false);
        let Gone(exit) = mailbox.recv().await.unwrap();
        assert_eq!(exit.pid, pid);
    });
}

#[test]
fn patterns_are_tried_in_order_and_own_in_their_bodies() {
    in_order(async {
        let (address, mut me) = mailbox();
        let wanted = 2;
        for word in [Word::Stop, Word::Number(1), Word::Text("krill".into()), Word::Number(2)] {
            address.send(word).unwrap();
        }
        let got = receive!(me,
            Word::Number(n) if *n == wanted => n.to_string(),
            Word::Text(text) if text.len() > 3 => text, // owned: it was a reference in the guard
        );
        assert_eq!(got.unwrap(), "krill");
        let mut tests = 0;
        let got = receive!(&mut me,
            Word::Number(n) if { tests += 1; *n == wanted } => n,
        );
        assert_eq!((got, tests), (Ok(2), 2), "only numbers come to the guard");
        assert_eq!(receive!(me, Word::Number(1) | Word::Stop => (), after Duration::ZERO => panic!()), Ok(()));
        assert_eq!(me.recv().await, Ok(Word::Number(1)));
    });
}

#[test]
fn a_body_may_return_break_and_await() {
    async fn sum(me: &mut Mailbox<Word>) -> Result<u32> {
        let mut sum = 0;
        loop {
            receive!(me,
                Word::Number(0) => return Err(Error::other("zero")),
                Word::Number(n) => {
                    settle().await;
                    sum += n;
                }
                Word::Stop => break,
            )?;
        }
        Ok(sum)
    }
    in_order(async {
        let (address, mut me) = mailbox();
        for word in [Word::Number(1), Word::Text("krill".into()), Word::Number(2), Word::Stop, Word::Number(0)] {
            address.send(word).unwrap();
        }
        assert_eq!(sum(&mut me).await.unwrap(), 3);
        assert!(sum(&mut me).await.is_err());
        assert_eq!(me.len(), 1);
    });
}

#[test]
fn after_is_a_total_for_the_whole_receive() {
    in_order(async {
        let (address, mut me) = mailbox();
        drop(spawn(async move {
            loop {
                sleep(Duration::from_secs(1)).await;
                if address.send(Word::Number(1)).is_err() {
                    break;
                }
            }
        }));
        let began = dunlin::Instant::now();
        let got = receive!(me, Word::Stop => false, after Duration::from_millis(3_500) => true);
        assert_eq!((got, began.elapsed().as_millis()), (Ok(true), 3_500));
        assert_eq!(me.len(), 3);
        assert_eq!(receive!(me, Word::Number(n) => n, after Duration::ZERO => 0), Ok(1));
        assert_eq!(receive!(me, Word::Text(_) => 1, after Duration::ZERO => 0), Ok(0));
    });
}

#[test]
fn a_receive_that_is_not_chosen_takes_nothing() {
    in_order(async {
        let (address, mut mailbox) = mailbox();
        let (mut tx, mut rx) = channel();
        let sender = spawn(async move { tx.send("channel").await });
        settle().await;
        address.send("mailbox").unwrap();
        let (mut from_channel, mut from_mailbox) = (0, 0);
        for _ in 0..2 {
            alt! {
                got = rx.recv() => from_channel += usize::from(got == Ok("channel")),
                got = mailbox.recv() => from_mailbox += usize::from(got == Ok("mailbox")),
            }
        }
        assert_eq!((from_channel, from_mailbox), (1, 1));
        sender.await.unwrap().unwrap();
        alt! {
            got = mailbox.recv() => panic!("{got:?}"),
            _ = sleep(Duration::from_secs(1)) => {}
        }
    });
}

#[test]
fn a_borrowed_receive_keeps_its_place_over_several_choices() {
    in_order(async {
        let (address, mut mailbox) = mailbox();
        (0..10).for_each(|n| address.send(n).unwrap());
        let mut tested = 0;
        let mut receive = mailbox.recv_if(|n| {
            tested += 1;
            *n == 12
        });
        let mut ticks = 0;
        let got = loop {
            alt! {
                biased;
                got = &mut receive => break got,
                _ = sleep(Duration::from_millis(1)) => {
                    address.send(10 + ticks).unwrap();
                    ticks += 1;
                }
            }
        };
        assert_eq!((got, ticks), (Ok(12), 3));
        assert_eq!(tested, 13);
    });
}
