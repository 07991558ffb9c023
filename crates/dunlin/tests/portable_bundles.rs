//! Faces of bundles inside messages, carried by hand through serde_json.
#![cfg(all(feature = "serde", feature = "macros", feature = "rt"))]

use dunlin::carrier::{EndKind, Inbox, Outbox, Sealed};
use dunlin::prelude::*;
use dunlin::{Portable, par};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Debug, PartialEq)]
struct Item(String);

#[derive(Bundle)]
struct Till {
    pay: ToServer<u64>,
    receipt: ToClient<String>,
}

#[derive(Bundle)]
struct Shop {
    #[policy(fifo(8))]
    basket: ToServer<Item>,
    price: Call<Item, u64>,
    till: Till,
    back: Flip<Till>,
    depot: Share<Till>,
    referral: ToClient<ShopClient>,
    successor: ToClient<ShopServer>,
}

/// What cannot travel can still be a bundle.
#[derive(Bundle)]
#[bundle(local)]
#[allow(dead_code)]
struct Files {
    file: ToServer<std::fs::File>,
}

fn encode<M: Portable>(message: &M) -> (Sealed, String) {
    let mut outbox = Outbox::new();
    let json = outbox.encode(|| serde_json::to_string(message)).unwrap();
    (outbox.seal().unwrap(), json)
}

fn carry<M: Portable>(message: M) -> M {
    let (sealed, json) = encode(&message);
    Inbox::new(sealed.commit(message).unwrap()).decode(|| serde_json::from_str(&json)).unwrap()
}

async fn customer(mut shop: ShopClient) -> Result<String> {
    let price = shop.price.call(Item("krill".into())).await?;
    shop.basket.send(Item("krill".into())).await?;
    shop.till.pay.send(price).await?;
    let mut depot = shop.depot.claim().await?;
    depot.pay.send(price).await?;
    let stored = depot.receipt.recv().await?;
    drop(depot);
    let paid = shop.till.receipt.recv().await?;
    shop.back.receipt.send(format!("{stored}, {paid}")).await?;
    Ok(shop.back.pay.recv().await?.to_string())
}

async fn keeper(mut shop: ShopServer) -> Result<String> {
    let ask = shop.price.accept().await?;
    let price = ask.0.len() as u64;
    ask.reply(price).unwrap();
    assert_eq!(shop.basket.recv().await?, Item("krill".into()));
    let paid = shop.till.pay.recv().await?;
    let stored = shop.depot.pay.recv().await?;
    shop.depot.receipt.send(format!("stored {stored}")).await?;
    shop.till.receipt.send(format!("paid {paid}")).await?;
    let text = shop.back.receipt.recv().await?;
    shop.back.pay.send(9).await?;
    Ok(text)
}

async fn trade(client: ShopClient, server: ShopServer) {
    let (bought, sold) = par!(customer(client), keeper(server));
    assert_eq!((bought.unwrap().as_str(), sold.unwrap().as_str()), ("9", "stored 5, paid 5"));
}

#[test]
fn faces_are_portable() {
    fn portable<T: Portable>() {}
    portable::<ShopClient>();
    portable::<ShopServer>();
    portable::<Shared<ShopClient>>();
    portable::<Sender<Receiver<Shared<TillServer>>>>();
}

#[test]
fn both_faces_move() {
    dunlin::block_on(async {
        let (client, server) = Shop::pair();
        trade(carry(client), carry(server)).await;
        let (client, server) = carry(Shop::pair());
        trade(carry(client), server).await;
    });
}

#[test]
fn a_face_is_its_ends_field_by_field() {
    let (client, _server) = Shop::pair();
    let (sealed, json) = encode(&client);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["till"], serde_json::json!({ "pay": 2, "receipt": 3 }));
    assert_eq!(json["referral"], 7);
    let kinds: Vec<_> = sealed.ends().map(|end| end.kind).collect();
    assert_eq!(kinds.len(), 9);
    assert_eq!(
        (kinds[0], kinds[1], kinds[6]),
        (EndKind::Sender { may_poison: true }, EndKind::Caller, EndKind::Shared)
    );
}

#[test]
fn faces_travel_over_themselves() {
    dunlin::block_on(async {
        let (mut client, mut server) = carry(Shop::pair());
        let (other_client, other_server) = Shop::pair();
        let (a, b, received) =
            par!(server.referral.send(carry(other_client)), server.successor.send(carry(other_server)), async {
                (client.referral.recv().await, client.successor.recv().await)
            },);
        a.unwrap();
        b.unwrap();
        trade(carry(received.0.unwrap()), received.1.unwrap()).await;
        trade(client, server).await;
    });
}

#[test]
fn a_shared_face_moves() {
    dunlin::block_on(async {
        let (client, mut server) = Till::pair();
        let home = client.share();
        let mut away = carry(home.clone());
        drop(home);
        let (done, paid) = par!(
            async {
                let mut till = away.claim().await?;
                till.pay.send(3).await?;
                Ok::<_, Error>(till.receipt.recv().await?)
            },
            async {
                let paid = server.pay.recv().await.unwrap();
                server.receipt.send(format!("paid {paid}")).await.unwrap();
                paid
            },
        );
        assert_eq!((done.unwrap().as_str(), paid), ("paid 3", 3));
        drop(away);
        assert_eq!(server.pay.recv().await, Err(RecvError::Closed));
    });
}

#[test]
fn a_face_that_failed_to_be_encoded_is_whole() {
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
    let (client, server) = Shop::pair();
    let whole = encode(&client).1.len();
    for room in 0..whole {
        Outbox::new().encode(|| serde_json::to_writer(Room(room), &client)).unwrap_err();
        Outbox::new().encode(|| serde_json::to_writer(Room(room), &server)).unwrap_err();
    }
    dunlin::block_on(trade(client, server));
}

#[test]
fn a_face_with_a_field_too_few_is_refused_and_ends() {
    let (client, mut server) = Till::pair();
    let (sealed, _) = encode(&client);
    let mut inbox = Inbox::new(sealed.commit(client).unwrap());
    let read = inbox.decode(|| serde_json::from_str::<TillClient>(r#"{"pay":0}"#).map(drop));
    assert_eq!(read.unwrap_err().to_string(), "missing field `receipt` at line 1 column 9");
    drop(inbox);
    assert!(server.receipt.is_closed());
    assert_eq!(server.pay.try_recv(), Err(RecvError::Closed));
}
