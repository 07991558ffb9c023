//! A message is sent to another node, and does not derive `Serialize` and `Deserialize`.

use dunlin::prelude::*;

struct Order {
    fish: String,
    weight: u32,
}

#[dunlin::main]
async fn main() -> Result {
    let node = Node::join("market").await?;
    let mut orders = node.sender::<Order>("orders").await?;
    orders.send(Order { fish: "herring".to_owned(), weight: 3 }).await?;
    Ok(())
}
