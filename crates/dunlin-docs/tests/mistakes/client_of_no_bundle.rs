//! The program requests a face of a struct that does not derive `Bundle`.

use dunlin::prelude::*;

struct Shop {
    price: Call<String, u64>,
}

#[dunlin::main]
async fn main() -> Result {
    let node = Node::join("market").await?;
    let mut shop = node.client::<Shop>("shop").await?;
    println!("{}", shop.price.call("krill".to_owned()).await?);
    Ok(())
}
