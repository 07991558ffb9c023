//! A send that gives its value away cannot be a branch of a choice.

use dunlin::prelude::*;

#[dunlin::main]
async fn main() -> Result {
    let (mut tx, mut rx) = channel::<String>();
    alt! {
        sent = tx.send("herring".to_owned()) => sent.map_err(Error::other)?,
        word = rx.recv() => println!("{}", word?),
    }
    Ok(())
}
