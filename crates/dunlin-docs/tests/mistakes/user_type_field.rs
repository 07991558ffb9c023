//! A field of a bundle is a message type of the program, not a channel.

use dunlin::prelude::*;

struct Order {
    fish: String,
}

#[derive(Bundle)]
struct Shop {
    order: Order,
}

#[dunlin::main]
async fn main() -> Result {
    let node = Node::join("market").await?;
    let shop = node.client::<Shop>("shop").await?;
    drop(shop);
    let order = Order { fish: "herring".to_owned() };
    println!("{}", order.fish);
    Ok(())
}
