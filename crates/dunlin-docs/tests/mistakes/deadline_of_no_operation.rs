//! A future that is not an operation gets a deadline.

use dunlin::io::tcp;
use dunlin::prelude::*;

#[dunlin::main]
async fn main() -> Result {
    let connection = tcp::connect("127.0.0.1:7000").within(Duration::from_secs(1)).await?;
    println!("{}", connection.peer()?);
    Ok(())
}
