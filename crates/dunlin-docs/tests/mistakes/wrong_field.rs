//! A field of a bundle is a message, not a channel.

use dunlin::prelude::*;

#[derive(Bundle)]
struct Shop {
    order: ToServer<String>,
    price: u64,
}

#[dunlin::main]
async fn main() -> Result {
    let (mut client, mut server) = Shop::pair();
    let buyer = spawn(async move { client.order.send("herring".to_owned()).await });
    println!("{}", server.order.recv().await?);
    buyer.await??;
    Ok(())
}
