//! Nodes: named channels between nodes of one program, over memory and TCP.
#![cfg(feature = "net")]

use std::time::Duration;

use dunlin::node::{ConnectionState, Encoding, Expects, NameError};
use dunlin::prelude::*;

/// Nodes of an application of their own, which is named for the test.
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
fn a_value_crosses() {
    run(async {
        let [a, b] = nodes("a_value_crosses", "memory:").await;
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
fn over_tcp() {
    run(async {
        let [a, b] = nodes("over_tcp", "127.0.0.1:0").await;
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

/// Bytes are bytes, whatever holds them.
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
        // What is sent before the word of it has come counts as sent, and arrives.
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
fn a_bundle_with_calls() {
    run(async {
        let [a, b] = nodes("a_bundle_with_calls", "memory:").await;
        let server = b.server::<Shop>("shop").await?;
        let keeper = spawn(keeper(server));
        customer(a.client::<Shop>("shop").await?, "krill").await?;
        assert!(keeper.await?.is_err(), "its client has gone");
        Ok(())
    });
}

#[test]
fn an_acceptor_has_guests() {
    run(async {
        let [a, b, c] = nodes("an_acceptor_has_guests", "127.0.0.1:0").await;
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
fn both_ends_on_one_node() {
    run(async {
        let [a] = nodes("both_ends_on_one_node", "memory:").await;
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
fn client_and_server_on_one_node() {
    run(async {
        let [a] = nodes("client_and_server_on_one_node", "memory:").await;
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
fn a_name_that_tells_the_node() {
    run(async {
        let [a, b] = nodes("a_name_that_tells_the_node", "127.0.0.1:0").await;
        let mut rx = a.receiver::<u32>("numbers").await?;
        let mut tx = b.sender::<u32>(&format!("{}/numbers", a.addresses()[0])).await?;
        let (sent, received) = par!(tx.send(7), rx.recv());
        sent?;
        assert_eq!(received?, 7);
        Ok(())
    });
}

#[test]
fn what_does_not_fit_is_refused() {
    run(async {
        let [a, b] = nodes("what_does_not_fit_is_refused", "memory:").await;
        let _rx = a.receiver::<u32>("numbers").expects(Expects::Shared).await?;
        let error = b.sender::<u32>("numbers").await.unwrap_err();
        let NameError::Refused { mine, theirs, .. } = &error else { panic!("{error}") };
        assert_eq!(mine, "an unshared sender (cbor)");
        assert_eq!(theirs, "an unshared receiver (cbor) that expects the other end to be shared");
        assert!(matches!(b.sender::<u32>("a\nb").await, Err(NameError::BadName(_))));
        Ok(())
    });
}

#[test]
fn encodings_must_agree() {
    run(async {
        let [a, b] = nodes("encodings_must_agree", "memory:").await;
        let mut rx = a.receiver::<u32>("numbers").encoding(Encoding::Compact).await?;
        let mut tx = b.sender::<u32>("numbers").encoding(Encoding::Compact).await?;
        let (sent, received) = par!(tx.send(7), rx.recv());
        sent?;
        assert_eq!(received?, 7);
        let _rx = a.receiver::<u32>("others").encoding(Encoding::Compact).await?;
        let error = b.sender::<u32>("others").await.unwrap_err();
        assert!(error.to_string().contains("an unshared sender (cbor) does not fit an unshared receiver (compact)"));
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

/// Who leaves hears of its own connections what the others hear of theirs.
#[test]
fn who_leaves_hears_that_its_connections_are_over() {
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
        // It may have been up before anybody looked.
        heard.retain(|state| *state != ConnectionState::Up);
        assert_eq!(heard, [ConnectionState::Down(dunlin::node::Down::Left)]);
        drop((rx, tx));
        Ok(())
    });
}

/// The node that serves the names ends; another one takes over, and what was joined goes on.
#[test]
fn names_are_taken_over() {
    run(async {
        let [first, a, b] = nodes("names_are_taken_over", "memory:").await;
        let mut tx = a.sender::<u32>("before").await?;
        let mut rx = b.receiver::<u32>("before").await?;
        let (sent, received) = par!(tx.send(1), rx.recv());
        assert_eq!((sent?, received?), ((), 1));
        assert!(first.serves_names());
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
fn a_name_may_tell_the_node_itself() {
    run(async {
        let [a] = nodes("a_name_may_tell_the_node_itself", "127.0.0.1:0").await;
        let mut rx = a.receiver::<u32>("numbers").await?;
        let mut tx = a.sender::<u32>(&format!("{}/numbers", a.addresses()[0])).await?;
        let (sent, received) = par!(tx.send(7), rx.recv());
        sent?;
        assert_eq!(received?, 7);
        Ok(())
    });
}

#[test]
fn others_dial_what_is_advertised() {
    run(async {
        let port = std::net::TcpListener::bind("127.0.0.1:0")?;
        let advertised = port.local_addr()?.to_string();
        let node = || Node::builder().app("others_dial_what_is_advertised").names("memory:names-of-advertised");
        // Whoever serves the names has met the others already, and so need not dial them.
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
fn what_was_declared_to_a_node_stays_when_it_serves_the_names() {
    run(async {
        // Whoever asks here for the names gets no answer.
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

/// Poison that may be too weak goes to the receiver's node, also if the sender did not know that one yet.
#[test]
fn poison_before_the_receiver_is_there() {
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

/// One holder has a shared end: who declares it again is told so, and what to do.
#[test]
fn a_shared_end_is_declared_once() {
    run(async {
        let [a, b] = nodes("a_shared_end_is_declared_once", "memory:").await;
        let shared = |error: NameError| match &error {
            NameError::Shared { name, what, holder, here } => {
                assert_eq!(name, "numbers");
                (*what, holder.clone(), *here, error.to_string())
            }
            _ => panic!("{error}"),
        };
        let tx = a.sender::<u32>("numbers").shared().await?;
        let (what, holder, here, text) = shared(a.sender::<u32>("numbers").shared().await.unwrap_err());
        assert_eq!((what, holder, here), ("sender", a.me().to_string(), true));
        assert!(text.contains("at this node: share that end (`share()`)"), "{text}");
        let (what, holder, here, text) = shared(b.sender::<u32>("numbers").shared().await.unwrap_err());
        assert_eq!((what, holder, here), ("sender", a.me().to_string(), false));
        assert!(text.contains(&format!("at node {}", a.me())), "{text}");

        // The first goes on, and so does what it is joined to.
        let mut rx = b.receiver::<u32>("numbers").shared().expects(Expects::Shared).await?;
        let (what, ..) = shared(a.receiver::<u32>("numbers").shared().await.unwrap_err());
        assert_eq!(what, "receiver");
        let (one, other) = (tx.share(), rx.recv());
        let (sent, received) = par!(one.clone().send(7), other);
        sent?;
        assert_eq!(received?, 7);

        // Of clients too, once there is a server; an acceptor has as many as there come.
        let _server = b.server::<Shop>("shop").shared().await?;
        let _client = a.client::<Shop>("shop").shared().await?;
        let error = b.client::<Shop>("shop").shared().await.err().unwrap();
        assert!(matches!(&error, NameError::Shared { what: "client", .. }), "{error}");
        let error = a.server::<Shop>("shop").shared().await.err().unwrap();
        assert!(matches!(&error, NameError::Shared { what: "server", .. }), "{error}");
        let mut guests = a.acceptor::<Shop>("shops").await?;
        let (_one, _other) = (b.client::<Shop>("shops").shared().await?, b.client::<Shop>("shops").shared().await?);
        guests.recv().await?;
        guests.recv().await?;
        Ok(())
    });
}
