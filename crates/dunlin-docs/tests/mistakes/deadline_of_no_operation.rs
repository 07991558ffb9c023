//! A future that is not an operation gets a deadline.

use dunlin::io::tcp;
use dunlin::prelude::*;

async fn greet() -> Result<usize> {
    let connection = tcp::connect("127.0.0.1:7000").await?;
    Ok(connection.write("hello").await?)
}

#[dunlin::main]
async fn main() -> Result {
    let bytes = greet().within(Duration::from_secs(1)).await?;
    println!("{bytes} bytes");
    Ok(())
}
