//! A message of a bundle does not derive `Serialize` and `Deserialize`.

use dunlin::prelude::*;

struct Order {
    fish: String,
    weight: u32,
}

#[derive(Bundle)]
struct Shop {
    order: ToServer<Order>,
    price: Call<Order, u64>,
}

#[dunlin::main]
async fn main() -> Result {
    let node = Node::join("market").await?;
    let mut shop = node.client::<Shop>("shop").await?;
    shop.order.send(Order { fish: "herring".to_owned(), weight: 3 }).await?;
    Ok(())
}
