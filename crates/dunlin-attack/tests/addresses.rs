//! Peers that have nodes dial for them: a dial-back must not scan the hosts of others.

use std::time::Duration;

use dunlin::prelude::*;
use dunlin_attack::{Peer, hello, life, run};
use dunlin_proto::wire::{Frame, Relay};
use tokio::net::{TcpListener, TcpSocket};

const SCANNER: [u8; 4] = [127, 0, 0, 2];
const VICTIM: [u8; 4] = [127, 0, 0, 9];

/// Listens at the same port of two hosts.
fn doors() -> (TcpListener, TcpListener) {
    let listen = |host: [u8; 4], port: u16| {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((host, port).into()).map(|()| socket.listen(16).unwrap())
    };
    loop {
        let own = listen(SCANNER, 0).unwrap();
        // Another program may have that port there.
        if let Ok(victims) = listen(VICTIM, own.local_addr().unwrap().port()) {
            return (own, victims);
        }
    }
}

/// A peer asks a helper to have another node dial a third host. Only the peer's own host is dialled, which is the twin: an honest one
/// that cannot dial that node gets its dial-back.
#[test]
fn dial_backs_reach_no_other_host_than_the_askers() {
    run(async {
        let names = "memory:names-of-scans";
        let builder = || Node::builder().app("scans").names(names).listen("127.0.0.1:0");
        let helper = builder().join().await.unwrap();
        let other = builder().join().await.unwrap();
        // The helper is connected with it.
        let (mut rx, mut tx) = (helper.receiver::<u8>("x").await.unwrap(), other.sender::<u8>("x").await.unwrap());
        let sent = dunlin::spawn(async move { tx.send(1).await.map(|()| tx) });
        assert_eq!(rx.recv().await, Ok(1));
        let _tx = sent.await.unwrap().unwrap();
        let wanted = Peer::who_is(SCANNER, &other.addresses()[0], "scans", life(1)).await.unwrap();

        let there = Peer::who_is(SCANNER, &helper.addresses()[0], "scans", life(1)).await.unwrap();
        let said = hello("scans", life(1), there);
        let mut peer = Peer::join(SCANNER, &helper.addresses()[0], &said, Duration::ZERO).await.unwrap();
        let (own, victims) = doors();
        let addresses = vec![victims.local_addr().unwrap().to_string(), "unix:/run/docker.sock".to_owned()];
        peer.say(&[Frame::Relay(Relay::AskDial { node: wanted.node, addresses })]).await.unwrap();
        tokio::select! {
            dialled = own.accept() => drop(dialled.unwrap()),
            dialled = victims.accept() => panic!("a node dials {VICTIM:?} for a stranger: {dialled:?}"),
        }
        // The answer comes, and nothing has been dialled there until then.
        loop {
            if let Frame::Relay(answer) = peer.hear().await.unwrap() {
                assert!(matches!(answer, Relay::NotDialled(node, _) if node == wanted.node), "{answer:?}");
                break;
            }
        }
        let victims = victims.into_std().unwrap();
        let dialled = victims.accept();
        assert!(dialled.is_err(), "a node dials {VICTIM:?} for a stranger: {dialled:?}");
        drop((helper, other));
    });
}
