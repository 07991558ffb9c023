//! Nodes: named channels between nodes of one program, over memory and TCP.
#![cfg(feature = "net")]

use std::cell::Cell;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dunlin::Caller;
use dunlin::net::{BoxFuture, Listener, Memory, Network, Socket};
use dunlin::node::{ConnectionState, Encoding, Expects, NameError, NodeError};
use dunlin::prelude::*;
use serde::{Deserialize, Serialize};

/// Nodes of an application of their own, which has the test's name.
async fn nodes<const N: usize>(test: &str, listen: &str) -> [Node; N] {
    let names = format!("memory:names-of-{test}");
    let mut nodes = Vec::new();
    for _ in 0..N {
        nodes.push(Node::builder().app(test).names(&names).listen(listen).join().await.unwrap());
    }
    nodes.try_into().unwrap()
}

fn run(test: impl Future<Output = Result>) {
    dunlin::block_on(async { test.within(Duration::from_secs(60)).await }).unwrap();
}

trait Within: Future + Sized {
    async fn within(self, limit: Duration) -> Self::Output {
        tokio::time::timeout(limit, self).await.expect("the test hangs")
    }
}
impl<F: Future> Within for F {}

#[test]
fn values_arrive_over_memory() {
    run(async {
        let [a, b] = nodes("values_arrive_over_memory", "memory:").await;
        let mut tx = a.sender::<String>("words").await?;
        let mut rx = b.receiver::<String>("words").await?;
        for n in 0..100 {
            let (sent, received) = par!(tx.send(format!("word {n}")), rx.recv());
            sent?;
            assert_eq!(received?, format!("word {n}"));
        }
        drop(tx);
        assert!(rx.recv().await.unwrap_err() == RecvError::Closed);
        a.leave().await?;
        b.leave().await
    });
}

#[test]
fn waiting_end_gets_its_bridge_when_it_is_used_or_its_other_end_is_found() {
    run(async {
        let [a, b] = nodes("waiting_end_gets_its_bridge", "memory:").await;
        let bridges = async |count: usize| {
            while a.records().bridges != count {
                tokio::task::yield_now().await;
            }
        };
        let (mut asks, mut answers) = (a.sender::<u32>("asks").await?, a.receiver::<u32>("answers").await?);
        assert_eq!((a.records().bridges, a.records().by_core), (0, 0));
        // A receiver that only waits needs none.
        let (received, ()) = par!(answers.recv(), async {
            let (sent, ()) = par!(asks.send(1), async {
                bridges(1).await;
                assert_eq!(b.receiver::<u32>("asks").await.unwrap().recv().await, Ok(1));
            });
            assert_eq!(sent, Ok(()));
            let mut answer = b.sender::<u32>("answers").await.unwrap();
            assert_eq!(answer.send(2).await, Ok(()));
        });
        assert_eq!(received, Ok(2));
        drop((asks, answers));
        bridges(0).await;
        // Dropped unused, the ends leave nothing.
        drop((a.sender::<u32>("asks").await?, a.receiver::<u32>("answers").await?));
        while a.records().homes + a.records().declared > 0 {
            tokio::task::yield_now().await;
        }
        a.leave().await?;
        b.leave().await
    });
}

#[test]
fn values_of_any_size_arrive_over_tcp() {
    run(async {
        let [a, b] = nodes("values_of_any_size_arrive_over_tcp", "127.0.0.1:0").await;
        let mut rx = b.receiver::<Vec<u8>>("blobs").await?;
        let mut tx = a.sender::<Vec<u8>>("blobs").await?;
        for size in [0, 1, 1000, 100_000, 3_000_000] {
            let (sent, received) = par!(tx.send(vec![7; size]), rx.recv());
            sent?;
            assert_eq!(received?.len(), size);
        }
        drop(rx);
        assert!(tx.send(vec![]).await.unwrap_err().is_closed());
        Ok(())
    });
}

/// The process in the middle uses two connections in each of its polls: the value goes over one, and the word
/// that it was received over the other.
#[test]
fn relay_keeps_two_connections_going() {
    for listen in ["memory:", "127.0.0.1:0"] {
        run(async {
            let test = format!("relay_keeps_two_connections_going-{}", listen.len());
            let [a, b, c] = nodes(&test, listen).await;
            let mut tx = a.sender::<u32>("to-relay").await?;
            let (mut from, mut to) = (b.receiver::<u32>("to-relay").await?, b.sender::<u32>("to-end").await?);
            let mut rx = c.receiver::<u32>("to-end").await?;
            let relay = spawn(async move {
                while let Ok(number) = from.recv().await {
                    to.send(number).await.unwrap();
                }
            });
            let source = spawn(async move {
                for number in 0..1000 {
                    tx.send(number).await.unwrap();
                }
            });
            for number in 0..1000 {
                assert_eq!(rx.recv().await?, number);
            }
            source.await.unwrap();
            relay.await.unwrap();
            Ok(())
        });
    }
}

#[derive(Bundle)]
struct Two {
    first: ToServer<u8>,
    second: ToServer<u8>,
}

#[test]
fn bundle_keeps_its_name_until_its_last_channel_closes() {
    run(async {
        let [a, b, c] = nodes("two", "memory:").await;
        let mut server = a.server::<Two>("two").await?;
        let TwoClient { first, mut second } = b.client::<Two>("two").await?;
        drop(first);
        assert!(server.first.recv().await.unwrap_err() == RecvError::Closed);
        let taken = c.server::<Two>("two").await;
        assert!(matches!(taken, Err(NameError::Refused { .. })), "{:?}", taken.err());
        let (sent, received) = par!(second.send(7), server.second.recv());
        sent?;
        assert_eq!(received?, 7);
        drop(second);
        assert!(server.second.recv().await.unwrap_err() == RecvError::Closed);
        // Once the name service has registered it.
        while c.server::<Two>("two").await.is_err() {
            tokio::task::yield_now().await;
        }
        Ok(())
    });
}

#[test]
fn traffic_between_nodes_remains_counted_after_disconnect() {
    run(async {
        let [a, b] = nodes("traffic", "127.0.0.1:0").await;
        let mut rx = b.receiver::<Vec<u8>>("blobs").await?;
        let mut tx = a.sender::<Vec<u8>>("blobs").await?;
        for _ in 0..4 {
            let (sent, received) = par!(tx.send(vec![7; 250_000]), rx.recv());
            sent?;
            received?;
        }
        drop((tx, rx));
        let values = 1_000_000..1_010_000;
        let [carried] = b.traffic()[..] else { panic!("{:?}", b.traffic()) };
        assert_eq!(carried.0, a.me());
        assert!(values.contains(&carried.1.read) && (1..10_000).contains(&carried.1.written), "{carried:?}");
        let (mut connections, leaves) = (a.connections(), b.me());
        b.leave().await?;
        while !a.peers().is_empty() {
            connections.recv().await?;
        }
        let [carried] = a.traffic()[..] else { panic!("{:?}", a.traffic()) };
        assert_eq!(carried.0, leaves);
        assert!(values.contains(&carried.1.written) && (1..10_000).contains(&carried.1.read), "{carried:?}");
        Ok(())
    });
}

/// Byte containers of every type have the same encoding.
#[test]
fn a_vector_of_bytes_arrives_as_bytes() {
    run(async {
        let [a, b] = nodes("a_vector_of_bytes_arrives_as_bytes", "memory:").await;
        let mut rx = b.receiver::<bytes::Bytes>("blobs").await?;
        let mut tx = a.sender::<Vec<u8>>("blobs").await?;
        for size in [0, 1, 300_000] {
            let blob: Vec<u8> = (0..size).map(|n| n as u8).collect();
            let (sent, received) = par!(tx.send(blob.clone()), rx.recv());
            sent?;
            assert_eq!(received?, blob);
        }
        Ok(())
    });
}

#[test]
fn a_fifo_is_filled_without_a_receive() {
    run(async {
        let [a, b] = nodes("a_fifo_is_filled_without_a_receive", "memory:").await;
        let mut rx = b.receiver::<u32>("queue").policy(fifo(4)).await?;
        let mut tx = a.sender::<u32>("queue").await?;
        for n in 0..4 {
            tx.send(n).await?;
        }
        assert!(tx.try_send(9).is_err());
        for n in 0..4 {
            assert_eq!(rx.recv().await?, n);
        }
        rx.retire();
        // A value that is sent before the notice arrives counts as sent, and arrives.
        let mut sent = 0;
        while tx.send(sent).await.is_ok() {
            sent += 1;
        }
        for n in 0..sent {
            assert_eq!(rx.recv().await?, n);
        }
        assert_eq!(rx.recv().await, Err(RecvError::Closed));
        Ok(())
    });
}

#[derive(Bundle)]
struct Shop {
    price: Call<String, u64>,
    orders: ToServer<String>,
    receipts: ToClient<String>,
}

async fn keeper(mut shop: ShopServer) -> Result {
    loop {
        alt! {
            ask = shop.price.accept() => {
                let ask = ask?;
                let n = ask.len() as u64;
                let _ = ask.reply(n);
            }
            order = shop.orders.recv() => shop.receipts.send(format!("{} ordered", order?)).await?,
        }
    }
}

async fn customer(mut shop: ShopClient, name: &str) -> Result {
    for _ in 0..10 {
        assert_eq!(shop.price.call(name.to_owned()).await?, name.len() as u64);
        shop.orders.send(name.to_owned()).await?;
        assert_eq!(shop.receipts.recv().await?, format!("{name} ordered"));
    }
    Ok(())
}

#[test]
fn client_and_server_of_a_bundle_exchange_calls() {
    run(async {
        let [a, b] = nodes("client_and_server_of_a_bundle_exchange_calls", "memory:").await;
        let server = b.server::<Shop>("shop").await?;
        let keeper = spawn(keeper(server));
        customer(a.client::<Shop>("shop").await?, "krill").await?;
        assert!(keeper.await?.is_err(), "its client has gone");
        Ok(())
    });
}

#[test]
fn acceptor_serves_guests_of_three_nodes() {
    run(async {
        let [a, b, c] = nodes("acceptor_serves_guests_of_three_nodes", "127.0.0.1:0").await;
        let mut guests = a.acceptor::<Shop>("shop").await?;
        let door = spawn(async move {
            for _ in 0..3 {
                let guest = guests.recv().await?;
                spawn(keeper(guest.into_face()));
            }
            Ok::<_, Error>(())
        });
        // One is on the acceptor's own node.
        let names = ["krill", "squid", "cod"];
        let customers = [&b, &c, &a].into_iter().zip(names).map(|(node, name)| {
            let node = node.clone();
            spawn(async move { customer(node.client::<Shop>("shop").await?, name).await })
        });
        for customer in customers.collect::<Vec<_>>() {
            customer.await??;
        }
        door.await?
    });
}

#[test]
fn channel_works_with_both_ends_on_one_node() {
    run(async {
        let [a] = nodes("channel_works_with_both_ends_on_one_node", "memory:").await;
        let mut rx = a.receiver::<u32>("here").policy(fifo(2)).await?;
        let mut tx = a.sender::<u32>("here").await?;
        for n in 0..10 {
            let (sent, received) = par!(tx.send(n), rx.recv());
            sent?;
            assert_eq!(received?, n);
        }
        Ok(())
    });
}

#[test]
fn bundle_works_with_client_and_server_on_one_node() {
    run(async {
        let [a] = nodes("bundle_works_with_client_and_server_on_one_node", "memory:").await;
        let server = spawn(keeper(a.server::<Shop>("shop").await?));
        customer(a.client::<Shop>("shop").await?, "krill").await?;
        assert!(server.await?.is_err());
        let mut guests = a.acceptor::<Shop>("shops").await?;
        let guest = spawn(async move { keeper(guests.recv().await?.into_face()).await });
        customer(a.client::<Shop>("shops").await?, "krill").await?;
        assert!(guest.await?.is_err());
        Ok(())
    });
}

#[test]
fn name_may_include_the_address_of_its_node() {
    run(async {
        let [a, b] = nodes("name_may_include_the_address_of_its_node", "127.0.0.1:0").await;
        let mut rx = a.receiver::<u32>("numbers").await?;
        let mut tx = b.sender::<u32>(&format!("{}/numbers", a.addresses()[0])).await?;
        let (sent, received) = par!(tx.send(7), rx.recv());
        sent?;
        assert_eq!(received?, 7);
        Ok(())
    });
}

/// A node registers its ends with itself only when a node that dials it asks for their names.
#[test]
fn names_of_a_node_that_serves_none_are_found_and_listed_there() {
    run(async {
        let [a, b] = nodes("names_of_a_node_that_serves_none", "127.0.0.1:0").await;
        let (asking, asked) = if a.serves_names() { (a, b) } else { (b, a) };
        let mut rx = asked.receiver::<u32>("numbers").await?;
        let patience = Duration::from_secs(10);
        let address = asked.addresses()[0].clone();
        let listed = asking.inquire(Some(&address), patience).await?.names(patience).await?;
        let names: Vec<&str> = listed.ends.iter().map(|end| &*end.name).collect();
        assert_eq!((names, listed.ends[0].waits_for()), (vec!["numbers"], Some("a sender")));
        let name = format!("{address}/numbers");
        // The node's own end was registered first.
        let error = asking.receiver::<u32>(&name).await.unwrap_err();
        assert!(matches!(error, NameError::Refused { .. }), "{error}");
        let mut tx = asking.sender::<u32>(&name).await?;
        let (sent, received) = par!(tx.send(7), rx.recv());
        sent?;
        assert_eq!(received?, 7);
        let listed = asking.inquire(Some(&address), patience).await?.names(patience).await?;
        let states: Vec<_> = listed.ends.iter().map(|end| (&*end.face, end.waits_for())).collect();
        assert_eq!(states, [("receiver", None), ("sender", None)]);
        Ok(())
    });
}

#[test]
fn mismatched_declaration_is_refused_with_both_descriptions() {
    run(async {
        let [a, b] = nodes("mismatched_declaration_is_refused_with_both_descriptions", "memory:").await;
        let _rx = a.receiver::<u32>("numbers").expects(Expects::Shared).await?;
        let error = b.sender::<u32>("numbers").await.unwrap_err();
        let NameError::Refused { mine, theirs, .. } = &error else { panic!("{error}") };
        assert_eq!(&**mine, "an unshared sender (cbor)");
        assert_eq!(&**theirs, "an unshared receiver (cbor) that expects the other end to be shared");
        assert!(matches!(b.sender::<u32>("a\nb").await, Err(NameError::BadName(_))));
        Ok(())
    });
}

#[test]
fn ends_with_different_encodings_are_refused() {
    run(async {
        let [a, b] = nodes("ends_with_different_encodings_are_refused", "memory:").await;
        let mut rx = a.receiver::<u32>("numbers").encoding(Encoding::Compact).await?;
        let mut tx = b.sender::<u32>("numbers").encoding(Encoding::Compact).await?;
        let (sent, received) = par!(tx.send(7), rx.recv());
        sent?;
        assert_eq!(received?, 7);
        let _rx = a.receiver::<u32>("others").encoding(Encoding::Compact).await?;
        let error = b.sender::<u32>("others").await.unwrap_err();
        assert!(error.to_string().contains("compact messages there, messages in cbor here"), "{error}");
        Ok(())
    });
}

#[test]
fn a_node_that_leaves_is_lost() {
    run(async {
        let [a, b] = nodes("a_node_that_leaves_is_lost", "memory:").await;
        let mut connections = b.connections();
        let mut tx = a.sender::<u32>("numbers").await?;
        let mut rx = b.receiver::<u32>("numbers").await?;
        let (sent, received) = par!(tx.send(7), rx.recv());
        sent?;
        assert_eq!(received?, 7);
        a.leave().await?;
        assert_eq!(rx.recv().await, Err(RecvError::NodeLost));
        assert!(!tx.send(8).await.unwrap_err().is_closed());
        loop {
            if let (_, ConnectionState::Down(_)) = connections.recv().await? {
                return Ok(());
            }
        }
    });
}

/// A leaving node sees the end of its own connections as the others see the end of theirs.
#[test]
fn a_leaving_node_sees_its_connections_end() {
    run(async {
        let [a, b] = nodes("who_leaves_hears", "memory:").await;
        let mut connections = a.connections();
        let (rx, tx) = (b.receiver::<u32>("numbers").await?, a.sender::<u32>("numbers").await?);
        a.leave().await?;
        let mut heard = Vec::new();
        while let Some((peer, state)) = connections.next().await? {
            assert_eq!(peer, b.me());
            heard.push(state);
        }
        // It may have been up before the watch began.
        heard.retain(|state| *state != ConnectionState::Up);
        assert_eq!(heard, [ConnectionState::Down(dunlin::node::Down::Leaving)]);
        drop((rx, tx));
        Ok(())
    });
}

/// The node that serves the names ends; another one takes over, and joined channels keep working.
#[test]
fn second_node_takes_over_the_names() {
    run(async {
        let [first] = nodes("second_node_takes_over_the_names", "memory:").await;
        // It has joined before it serves them.
        while !first.serves_names() {
            tokio::task::yield_now().await;
        }
        let [a, b] = nodes("second_node_takes_over_the_names", "memory:").await;
        let mut tx = a.sender::<u32>("before").await?;
        let mut rx = b.receiver::<u32>("before").await?;
        let (sent, received) = par!(tx.send(1), rx.recv());
        assert_eq!((sent?, received?), ((), 1));
        first.leave().await?;
        let mut ty = b.sender::<u32>("after").await?;
        let mut ry = a.receiver::<u32>("after").await?;
        let (sent, received) = par!(ty.send(2), ry.recv());
        assert_eq!((sent?, received?), ((), 2));
        assert!(a.serves_names() != b.serves_names());
        let (sent, received) = par!(tx.send(3), rx.recv());
        assert_eq!((sent?, received?), ((), 3));
        Ok(())
    });
}

#[test]
fn a_node_may_serve_the_names_where_it_listens() {
    run(async {
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let node = |names: &str| Node::builder().app("a_node_may_serve_the_names").names(names);
        let a = node(&port).listen(&port).join().await?;
        let b = node(&port).join().await?;
        let mut rx = a.receiver::<u32>("numbers").await?;
        let mut tx = b.sender::<u32>("numbers").await?;
        let (sent, received) = par!(tx.send(7), rx.recv());
        sent?;
        assert_eq!(received?, 7);
        assert!(a.serves_names() && !b.serves_names());
        Ok(())
    });
}

#[test]
fn a_name_may_have_the_address_of_the_node_itself() {
    run(async {
        let [a] = nodes("a_name_may_have_the_address_of_the_node_itself", "127.0.0.1:0").await;
        let mut rx = a.receiver::<u32>("numbers").await?;
        let mut tx = a.sender::<u32>(&format!("{}/numbers", a.addresses()[0])).await?;
        let (sent, received) = par!(tx.send(7), rx.recv());
        sent?;
        assert_eq!(received?, 7);
        Ok(())
    });
}

#[test]
fn other_nodes_dial_the_advertised_address() {
    run(async {
        let port = std::net::TcpListener::bind("127.0.0.1:0")?;
        let advertised = port.local_addr()?.to_string();
        let node =
            || Node::builder().app("other_nodes_dial_the_advertised_address").names("memory:names-of-advertised");
        // The server of the names is connected with the others already, so it need not dial them.
        let names = node().listen("memory:").join().await?;
        let _here = names.receiver::<u32>("others").await?;
        let a = node().listen("127.0.0.1:0").advertise(&advertised).join().await?;
        let b = node().listen("127.0.0.1:0").join().await?;
        assert_eq!(a.addresses(), [advertised]);
        let mut rx = a.receiver::<u32>("numbers").await?;
        let dialled = dunlin::blocking(move |_| port.accept().map(|_| ()));
        let _tx = b.sender::<u32>("numbers").await?;
        alt! {
            dialled = dialled => dialled??,
            _ = rx.recv() => panic!("nothing was sent"),
        }
        Ok(())
    });
}

#[test]
fn declaration_stays_when_its_node_starts_serving_names() {
    run(async {
        // A request for the names gets no answer here.
        let port = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let names = port.local_addr()?.to_string();
        let app = "what_was_declared_to_a_node_stays";
        let a = Node::builder().app(app).names(&names).join().await?;
        let asks = port.accept().await?;
        let b = Node::builder().app(app).names("memory:names-of-what_was_declared").join().await?;
        let mut tx = b.sender::<u32>(&format!("{}/numbers", a.addresses()[0])).await?;
        assert!(!a.serves_names());
        drop((port, asks));
        let mut rx = a.receiver::<u32>("numbers").await?;
        let (sent, received) = par!(tx.send(7), rx.recv());
        sent?;
        assert_eq!(received?, 7);
        Ok(())
    });
}

/// Poison that may be too weak travels to the receiver's node, also if the sender had not found that one yet.
#[test]
fn poison_applies_to_a_receiver_that_joins_later() {
    run(async {
        let [a, b] = nodes("early-poison", "memory:").await;
        let (mut immune, mut weak) = (a.sender::<u8>("immune").await?, a.sender::<u8>("weak").await?);
        assert!(immune.poison_with(2, "weak") && weak.poison_with(2, "weak"));
        assert!(!immune.is_closed() && !weak.is_closed(), "that is not known here");
        let mut strong = b.receiver::<u8>("immune").policy(dunlin::rendezvous().immunity(2)).await?;
        let mut poisoned = b.receiver::<u8>("weak").await?;
        let Err(RecvError::Poisoned(why)) = poisoned.recv().await else { panic!("it is not immune") };
        assert_eq!((why.as_str(), why.strength()), ("weak", dunlin::Strength::from(2)));
        let Err(SendError::NotTaken { why: Why::Poisoned(why), .. }) = weak.send(1).await else { panic!("poisoned") };
        assert_eq!(why.strength(), dunlin::Strength::from(2));
        let (sent, got) = par!(immune.send(7), strong.recv());
        assert_eq!((sent?, got?), ((), 7));
        Ok(())
    });
}

/// Each declaration of a shared end returns a handle of it, at any node; the first node keeps it, and when it
/// is dropped the end can be declared anew.
#[test]
fn a_shared_end_has_handles_at_several_nodes() {
    run(async {
        let [a, b] = nodes("a_shared_end_has_handles", "memory:").await;
        let mut handles = vec![
            a.sender::<u32>("numbers").shared().await?,
            a.sender::<u32>("numbers").shared().await?,
            b.sender::<u32>("numbers").shared().await?,
            b.sender::<u32>("numbers").shared().await?,
        ];
        let rx = b.receiver::<u32>("numbers").shared().expects(Expects::Shared).await?;
        let mut receivers = [rx, a.receiver::<u32>("numbers").shared().await?];
        for (n, tx) in (0..).zip(&mut handles) {
            let rx = &mut receivers[n as usize % 2];
            let (sent, received) = par!(tx.send(n), rx.recv());
            sent?;
            assert_eq!(received?, n);
        }
        // A claim blocks all other handles.
        let [_, _, one, other] = &mut handles[..] else { unreachable!() };
        let (claimed, lone, got) = par!(
            async {
                let mut claim = one.claim().await?;
                claim.send(10).await?;
                claim.send(11).await?;
                Ok::<_, Error>(())
            },
            other.send(12),
            async {
                let [rx, _] = &mut receivers;
                Ok::<_, Error>([rx.recv().await?, rx.recv().await?, rx.recv().await?])
            }
        );
        claimed?;
        lone?;
        let got = got?;
        assert!(got == [10, 11, 12] || got == [12, 10, 11], "{got:?}");

        // All handles are dropped, and so is the end: the next declaration gets it.
        drop(handles);
        for rx in &mut receivers {
            assert_eq!(rx.recv().await, Err(RecvError::Closed));
        }
        drop(receivers);
        let mut tx = b.sender::<u32>("numbers").shared().await?;
        let mut rx = a.receiver::<u32>("numbers").await?;
        let (sent, received) = par!(tx.send(7), rx.recv());
        sent?;
        assert_eq!(received?, 7);
        Ok(())
    });
}

/// A shared declaration of an end that is held alone is refused, and vice versa.
#[test]
fn end_declared_both_shared_and_unshared_is_refused() {
    run(async {
        let [a, b] = nodes("a_shared_end_and_one", "memory:").await;
        let _alone = a.sender::<u32>("alone").await?;
        let error = b.sender::<u32>("alone").shared().await.err().unwrap();
        assert!(matches!(error, NameError::Refused { .. }), "{error}");
        let _shared = a.sender::<u32>("shared").shared().await?;
        let error = b.sender::<u32>("shared").await.err().unwrap();
        assert!(matches!(error, NameError::Refused { .. }), "{error}");
        Ok(())
    });
}

/// The keeper of the end is lost: handles elsewhere fail, and the end can be declared anew.
#[test]
fn shared_end_can_be_declared_again_after_its_keeper_is_lost() {
    run(async {
        let [a, b] = nodes("a_shared_end_whose_keeper", "memory:").await;
        let kept = b.sender::<u32>("numbers").shared().await?;
        let mut handle = a.sender::<u32>("numbers").shared().await?;
        let mut rx = a.receiver::<u32>("numbers").await?;
        let (sent, received) = par!(handle.send(1), rx.recv());
        sent?;
        assert_eq!(received?, 1);
        drop(kept);
        let (sent, received) = par!(handle.send(2), rx.recv());
        sent?;
        assert_eq!(received?, 2);
        let _ = b.leave().await;
        assert!(handle.send(3).await.is_err());
        assert!(rx.recv().await.is_err());
        drop((handle, rx));
        let mut tx = a.sender::<u32>("numbers").shared().await?;
        let mut rx = a.receiver::<u32>("numbers").await?;
        let (sent, received) = par!(tx.send(3), rx.recv());
        sent?;
        assert_eq!(received?, 3);
        Ok(())
    });
}

/// A shared face is declared once: a second declaration is refused, with the remedy. An acceptor has any
/// number of clients.
#[test]
fn a_shared_face_is_declared_once() {
    run(async {
        let [a, b] = nodes("a_shared_face_is_declared_once", "memory:").await;
        let _server = b.server::<Shop>("shop").shared().await?;
        let _client = a.client::<Shop>("shop").shared().await?;
        let shared = |error: NameError| match &error {
            NameError::Shared { name, what, holder, here, .. } => {
                assert_eq!(name, "shop");
                (*what, holder.clone(), *here, error.to_string())
            }
            _ => panic!("{error}"),
        };
        let (what, holder, here, text) = shared(b.client::<Shop>("shop").shared().await.err().unwrap());
        assert_eq!((what, holder, here), ("client", a.me().to_string(), false));
        assert!(text.contains(&format!("at node {}", a.me())), "{text}");
        let (what, _, here, text) = shared(b.server::<Shop>("shop").shared().await.err().unwrap());
        assert_eq!((what, here), ("server", true));
        assert!(text.contains("at this node: share that end (`share()`)"), "{text}");
        let mut guests = a.acceptor::<Shop>("shops").await?;
        let (_one, _other) = (b.client::<Shop>("shops").shared().await?, b.client::<Shop>("shops").shared().await?);
        guests.recv().await?;
        guests.recv().await?;
        Ok(())
    });
}

/// The contents of a message beside values: an end, and ends that cannot leave their node yet.
#[derive(Serialize, Deserialize)]
enum Parcel {
    Sender(Shared<Sender<u8>>),
    Receiver(Shared<Receiver<u8>>),
    Caller(Shared<Caller<u8, u8>>),
    Face(Shared<ShopClient>),
}

/// A message carries a handle of every kind of shared end, and the receiver uses it.
#[test]
fn message_carries_handles_of_shared_ends() {
    run(async {
        let [a, b] = nodes("shared_go_along", "memory:").await;
        let mut tx = a.sender::<Parcel>("parcels").await?;
        let mut rx = b.receiver::<Parcel>("parcels").await?;

        let (end, mut here) = channel();
        let Parcel::Sender(mut end) = carried(Parcel::Sender(end.share()), &mut tx, &mut rx).await else { panic!() };
        let (sent, got) = par!(end.send(1), here.recv());
        assert_eq!((sent, got), (Ok(()), Ok(1)));

        let (mut here, end) = channel();
        let end = Parcel::Receiver(end.share());
        let Parcel::Receiver(mut end) = carried(end, &mut tx, &mut rx).await else { panic!() };
        let (sent, got) = par!(here.send(1), end.recv());
        assert_eq!((sent, got), (Ok(()), Ok(1)));

        let (end, mut callee) = call::<u8, u8>();
        let end = Parcel::Caller(end.share());
        let Parcel::Caller(mut end) = carried(end, &mut tx, &mut rx).await else { panic!() };
        let (reply, ()) = par!(end.call(1), async { callee.accept().await.unwrap().reply(2).unwrap() });
        assert_eq!(reply, Ok(2));
        let mut claimed = end.claim().await?;
        let (reply, ()) = par!(claimed.call(1), async { callee.accept().await.unwrap().reply(3).unwrap() });
        assert_eq!(reply, Ok(3));
        drop(claimed);

        let (client, server) = Shop::pair();
        let keeper = spawn(keeper(server));
        let Parcel::Face(mut client) = carried(Parcel::Face(client.share()), &mut tx, &mut rx).await else { panic!() };
        assert_eq!(client.claim().await?.price.call("krill".to_owned()).await?, 5);
        drop(client);
        assert!(keeper.await?.is_err());
        Ok(())
    });
}

async fn carried(parcel: Parcel, tx: &mut Sender<Parcel>, rx: &mut Receiver<Parcel>) -> Parcel {
    let (sent, received) = par!(tx.send(parcel), rx.recv());
    assert!(sent.is_ok());
    received.unwrap()
}

/// A place for a reply may travel on: the accepter of a call lets a third node answer it.
#[test]
fn forwarded_reply_answers_the_original_caller() {
    run(async {
        let [a, b, c] = nodes("reply_goes_on", "memory:").await;
        let (mut asks, mut asked) = (a.client::<Shop>("shop").await?, b.server::<Shop>("shop").await?);
        let mut tx = b.sender::<dunlin::Reply<u64>>("places").await?;
        let mut rx = c.receiver::<dunlin::Reply<u64>>("places").await?;
        let (reply, sent, given) = par!(
            asks.price.call("krill".to_owned()),
            async {
                let (_word, place) = asked.price.accept().await?.split();
                tx.send(place).await.map_err(|error| Error::other(error.to_string()))
            },
            async { Ok::<_, Error>(rx.recv().await?.send(7)) }
        );
        sent?;
        assert_eq!((reply?, given?), (7, Ok(())));
        Ok(())
    });
}

/// A generic server that hands its replies to another node.
struct Abroad(Sender<dunlin::Reply<u64>>);

impl dunlin::server::Server for Abroad {
    type Call = ();
    type Reply = u64;
    type Cast = ();

    async fn answer(&mut self, (): (), place: dunlin::Reply<u64>) -> Result {
        self.0.send(place).await.map_err(|error| Error::other(error.to_string()))
    }
}

/// The caller waits at a place in this program, which becomes a channel when it travels.
#[test]
fn reply_of_a_generic_server_comes_from_another_node() {
    run(async {
        let [a, b] = nodes("reply_of_a_server_goes", "memory:").await;
        let mut client = dunlin::server::Server::start(Abroad(a.sender("places").await?));
        let mut rx = b.receiver::<dunlin::Reply<u64>>("places").await?;
        let (reply, given) = par!(client.call(()), async { Ok::<_, Error>(rx.recv().await?.send(7)) });
        assert_eq!((reply, given?), (Ok(7), Ok(())));
        // One that is dropped there is no reply.
        let (reply, dropped) = par!(client.call(()), async { rx.recv().await.map(drop) });
        assert_eq!((reply, dropped), (Err(dunlin::server::ServerCallError::NoReply), Ok(())));
        Ok(())
    });
}

/// The sender gets an error with the size and the limit, also if a choice offers the value; and the channel
/// keeps working.
#[test]
fn a_value_that_is_too_large_stays_at_its_sender() {
    run(async {
        let node = || Node::builder().app("too_large").names("memory:names-of-too_large").listen("memory:");
        let (a, b) = (node().join().await?, node().message_max_bytes(1000).join().await?);
        let mut rx = b.receiver::<Vec<u8>>("blobs").await?;
        let mut tx = a.sender::<Vec<u8>>("blobs").await?;
        let is_told = |error: SendError<Vec<u8>>| {
            let Some(&Why::TooLarge { bytes, bytes_max }) = error.why() else { panic!("{error}") };
            assert_eq!((bytes, bytes_max, error.into_value().len()), (1001, 1000, 1001));
        };
        is_told(tx.send(vec![1; 1001]).await.unwrap_err());
        let (sent, received) = par!(
            async {
                let mut slot = Some(vec![1; 1001]);
                let sent = alt! { sent = tx.send_from(&mut slot) => sent };
                assert!(matches!(sent, Err(SendError::NotTaken { why: Why::TooLarge { .. }, .. })), "{sent:?}");
                assert_eq!(slot.map(|value| value.len()), Some(1001));
                tx.send(vec![2; 1000]).await
            },
            rx.recv()
        );
        assert_eq!((sent?, received?), ((), vec![2; 1000]));
        Ok(())
    });
}

/// A place in a buffer was promised beforehand, so the send is complete before the value is encoded: both
/// ends are notified.
#[test]
fn a_value_that_is_too_large_for_a_promised_place_poisons_its_channel() {
    run(async {
        let node = || Node::builder().app("promised").names("memory:names-of-promised").listen("memory:");
        let (a, b) = (node().join().await?, node().message_max_bytes(1000).join().await?);
        let mut rx = b.receiver::<Vec<u8>>("blobs").policy(fifo(4)).await?;
        let mut tx = a.sender::<Vec<u8>>("blobs").await?;
        tx.send(vec![1; 1000]).await?;
        assert_eq!(rx.recv().await?.len(), 1000);
        assert_eq!(tx.send(vec![1; 1001]).await, Ok(()));
        let Err(RecvError::Poisoned(why)) = rx.recv().await else { panic!("not poisoned") };
        assert!(why.as_str().contains("1001 bytes") && why.as_str().contains("at most 1000"), "{why}");
        let sent = tx.send(vec![2; 10]).await;
        assert_eq!(sent, Err(SendError::NotTaken { value: vec![2; 10], why: Why::Poisoned(why) }));
        // The `Ok` of the send was too early, so `flush` reports the failure instead of a second `Ok`; once
        // reported, it is not repeated.
        let Err(Error::Node(NodeError::Unwritten { count: 1, values })) = a.flush().await else { panic!("flushed") };
        assert_eq!(values[0].name.as_deref(), Some("blobs"));
        assert!(values[0].why.contains("1001 bytes") && values[0].why.contains("at most 1000"), "{:?}", values[0]);
        a.flush().await?;
        a.leave().await
    });
}

/// Such a value is also reported where nothing is flushed; a node without one leaves in order.
#[test]
fn a_value_that_could_not_be_written_is_an_error_of_leave() {
    run(async {
        let node = || Node::builder().app("unwritten").names("memory:names-of-unwritten").listen("memory:");
        let (a, b) = (node().join().await?, node().message_max_bytes(1000).join().await?);
        let mut rx = b.receiver::<Vec<u8>>("blobs").policy(fifo(4)).await?;
        let mut tx = a.sender::<Vec<u8>>("blobs").await?;
        tx.send(vec![1; 1000]).await?;
        a.flush().await?;
        let two_flush = a.clone();
        assert_eq!(tx.send(vec![1; 1001]).await, Ok(()));
        // Both flushes that began before the first notification report it.
        let (one, other) = par!(a.flush(), two_flush.flush());
        for flushed in [one, other] {
            assert!(matches!(flushed, Err(Error::Node(NodeError::Unwritten { count: 1, .. }))), "{flushed:?}");
        }
        let mut tx = a.sender::<Vec<u8>>("more").await?;
        let mut more = b.receiver::<Vec<u8>>("more").policy(fifo(4)).await?;
        let (sent, received) = par!(tx.send(vec![1; 1000]), more.recv());
        assert_eq!((sent?, received?.len()), ((), 1000));
        assert_eq!(tx.send(vec![1; 1001]).await, Ok(()));
        drop((two_flush, rx.recv().await));
        let left = a.leave().await;
        assert!(matches!(left, Err(Error::Node(NodeError::Unwritten { count: 1, .. }))), "{left:?}");
        b.leave().await
    });
}

/// A node without a channel to another has no connection to it; one with two channels has one.
#[test]
fn a_connection_is_made_when_it_is_needed() {
    run(async {
        let [names] = nodes("when_needed", "127.0.0.1:0").await;
        while !names.serves_names() {
            tokio::task::yield_now().await;
        }
        let [a, b] = nodes("when_needed", "127.0.0.1:0").await;
        let (mut of_a, mut of_b) = (a.connections(), b.connections());
        // They need none of each other's ends.
        let _alone = (a.receiver::<u8>("of a").await?, b.receiver::<u8>("of b").await?);
        for ups in [&mut of_a, &mut of_b] {
            while let Ok((peer, _)) = ups.try_recv() {
                assert_eq!(peer, names.me());
            }
        }
        let mut ends = Vec::new();
        for name in ["first", "second"] {
            ends.push((a.sender::<u8>(name).await?, b.receiver::<u8>(name).await?));
            ends.push((
                b.sender::<u8>(&format!("{name}, back")).await?,
                a.receiver::<u8>(&format!("{name}, back")).await?,
            ));
        }
        for (tx, rx) in &mut ends {
            let (sent, received) = par!(tx.send(1), rx.recv());
            assert_eq!((sent?, received?), ((), 1));
        }
        let (here, there) = (a.me(), b.me());
        a.leave().await?;
        b.leave().await?;
        for (mut ups, me, other) in [(of_a, here, there), (of_b, there, here)] {
            let mut states = Vec::new();
            while let Some((peer, state)) = ups.next().await? {
                assert!(peer == other || peer == names.me(), "{me}");
                states.extend((peer == other).then_some(state));
            }
            assert!(matches!(states[..], [ConnectionState::Up, ConnectionState::Down(_)]), "{me}: {states:?}");
        }
        Ok(())
    });
}

thread_local! {
    /// Whether this thread is within a poll of the test's own future.
    static CALLER: Cell<bool> = const { Cell::new(false) };
}

/// A memory network that notes for each dial whether it runs in a poll of the test's own future.
#[derive(Clone, Default)]
struct Watched(Arc<Mutex<Vec<bool>>>);

impl Network for Watched {
    fn scheme(&self) -> &'static str {
        "watched"
    }

    fn dial<'a>(&'a self, address: &'a str) -> BoxFuture<'a, std::io::Result<Box<dyn Socket>>> {
        let note = || self.0.lock().unwrap().push(CALLER.get());
        note();
        Box::pin(async move {
            note();
            Memory.dial(address).await
        })
    }

    fn listen<'a>(&'a self, address: &'a str) -> BoxFuture<'a, std::io::Result<Box<dyn Listener>>> {
        Memory.listen(address)
    }
}

#[test]
fn a_node_listens_on_loopback_by_default() {
    run(async {
        let node = Node::builder().app("loopback").names("memory:names-of-loopback").join().await?;
        let [address] = node.listening() else { panic!("{:?}", node.listening()) };
        let address: std::net::SocketAddr = address.parse().expect("an address of TCP");
        assert!(address.ip().is_loopback(), "{address}");
        Ok(())
    });
}

#[test]
fn no_dial_is_on_a_callers_path() {
    let watched = Watched::default();
    let node = || {
        let builder = Node::builder().app("callers").names("memory:names-of-callers").listen("watched:");
        builder.network(watched.clone()).join()
    };
    let mut calls = Box::pin(async {
        // The server of the names is connected with both, so they dial each other over the watched network.
        let names = node().await?;
        while !names.serves_names() {
            tokio::task::yield_now().await;
        }
        let (a, b) = (node().await?, node().await?);
        let mut rx = b.receiver::<u8>("numbers").await?;
        let mut tx = a.sender::<u8>("numbers").await?;
        let (sent, received) = par!(tx.send(7), rx.recv());
        assert_eq!((sent?, received?), ((), 7));
        let mut far = b.sender::<u8>("far").await?;
        let mut here = a.receiver::<u8>("far").await?;
        let (sent, received) = par!(far.send(8), here.recv());
        assert_eq!((sent?, received?), ((), 8));
        a.leave().await?;
        b.leave().await
    });
    run(std::future::poll_fn(move |cx| {
        CALLER.set(true);
        let polled = calls.as_mut().poll(cx);
        CALLER.set(false);
        polled
    }));
    let dials = watched.0.lock().unwrap();
    assert!(!dials.is_empty() && !dials.contains(&true), "{dials:?}");
}

/// So programs can start before the name service, whichever node that will be.
#[test]
fn a_node_that_may_not_serve_names_waits_for_one_that_does() {
    run(async {
        let node = |may| {
            let builder = Node::builder().app("may not serve").names("memory:names-of-may-not-serve").listen("memory:");
            builder.serve_names(may).join()
        };
        let (a, b) = (node(false).await?, node(false).await?);
        let too_early = a.sender::<u8>("numbers").within(Duration::from_millis(50)).await.unwrap_err();
        assert!(matches!(too_early, NameError::TimedOut { .. }), "{too_early}");
        let ends = async { Ok::<_, Error>((a.sender::<u8>("numbers").await?, b.receiver::<u8>("numbers").await?)) };
        let (ends, names) = par!(ends, node(true));
        let ((mut tx, mut rx), names) = (ends?, names?);
        let (sent, received) = par!(tx.send(7), rx.recv());
        assert_eq!((sent?, received?), ((), 7));
        assert_eq!([&names, &a, &b].map(Node::serves_names), [true, false, false]);
        Ok(())
    });
}

/// Two nodes start at one path at the same time, a hundred times: one of them serves the names, and the other
/// one finds it. In every second round the path has the socket of a program that has died.
#[cfg(unix)]
#[test]
fn of_two_nodes_that_start_at_one_path_one_serves_the_names() {
    let folder = std::env::temp_dir().join(format!("dunlin-names-race-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("names");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut served = [0, 0];
    for round in 0..100 {
        if round % 2 == 1 {
            drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        }
        let names = format!("unix:{}", path.display());
        let join = || {
            let names = names.clone();
            tokio::spawn(async move { Node::builder().app("names race").names(&names).listen("memory:").join().await })
        };
        runtime.block_on(async {
            async {
                let (a, b) = (join(), join());
                let (a, b) = (a.await.unwrap()?, b.await.unwrap()?);
                let (mut tx, mut rx) = (a.sender::<u32>("x").await?, b.receiver::<u32>("x").await?);
                let (sent, received) = par!(tx.send(round), rx.recv());
                sent?;
                assert_eq!(received?, round);
                let serve = [a.serves_names(), b.serves_names()];
                assert_eq!(serve.iter().filter(|serves| **serves).count(), 1, "round {round}: {serve:?}");
                (0..2).for_each(|node| served[node] += u32::from(serve[node]));
                drop((tx, rx));
                a.leave().await?;
                b.leave().await?;
                Ok::<_, Error>(())
            }
            .within(Duration::from_secs(60))
            .await
            .unwrap();
        });
        assert!(!path.exists(), "round {round}: the service has left its socket");
    }
    println!("the first of the two served {} times, the other {}", served[0], served[1]);
    std::fs::remove_dir(&folder).unwrap();
}
