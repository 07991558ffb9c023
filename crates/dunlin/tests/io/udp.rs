//! Datagrams.

use std::io::ErrorKind;

use dunlin::io::udp;
use dunlin::prelude::*;

use super::poll;

#[test]
fn datagrams_are_whole_and_name_their_sender() {
    dunlin::block_on(async {
        let mut here = udp::bind("127.0.0.1:0").await.unwrap();
        let mut there = udp::bind("127.0.0.1:0").await.unwrap();
        let to = there.address().unwrap();
        here.send_to(b"krill", to).await.unwrap();
        here.send_to(b"squid", to).await.unwrap();
        let (first, from) = there.recv_from(3).await.unwrap();
        assert_eq!((&*first, from), (&b"kri"[..], here.address().unwrap()), "the rest of it is gone");
        assert_eq!(there.recv_from(1500).await.unwrap().0, "squid");
        here.send_to(&[], to).await.unwrap();
        assert_eq!(there.recv_from(1500).await.unwrap().0, "");
    });
}

#[test]
fn unchosen_receive_consumes_no_datagram() {
    dunlin::block_on(async {
        let mut here = udp::bind("127.0.0.1:0").await.unwrap();
        let mut there = udp::bind("127.0.0.1:0").await.unwrap();
        let (mut tx, mut rx) = channel_with(fifo(1));
        tx.send(7).await.unwrap();
        let to = there.address().unwrap();
        let mut receive = there.recv_from(1500);
        assert!(poll(&mut receive).is_pending());
        here.send_to(b"krill", to).await.unwrap();
        alt! { biased;
            n = rx.recv() => assert_eq!(n, Ok(7)),
            datagram = &mut receive => panic!("{datagram:?}"),
        }
        drop(receive);
        alt! {
            n = rx.recv() => panic!("{n:?}"),
            datagram = there.recv_from(1500) => assert_eq!(datagram.unwrap().0, "krill"),
        }
        let timed_out = there.recv_from(1500).within(Duration::from_millis(1)).await.unwrap_err();
        assert_eq!(timed_out.kind(), ErrorKind::TimedOut);
    });
}

#[test]
fn datagram_that_is_too_large_is_an_error() {
    dunlin::block_on(async {
        let mut here = udp::bind("127.0.0.1:0").await.unwrap();
        let to = here.address().unwrap();
        here.send_to(&[0; 70_000], to).await.unwrap_err();
        here.send_to(b"krill", to).await.unwrap();
        assert_eq!(here.recv_from(1500).await.unwrap().0, "krill");
    });
}

#[test]
fn datagram_is_received_into_room_of_any_size() {
    dunlin::block_on(async {
        let (mut here, mut there) = (udp::bind("127.0.0.1:0").await.unwrap(), udp::bind("127.0.0.1:0").await.unwrap());
        for max in [usize::MAX, 1 << 46] {
            here.send_to(&[7; 60_000], there.address().unwrap()).await.unwrap();
            assert_eq!(there.recv_from(max).await.unwrap().0, vec![7; 60_000]);
        }
    });
}
