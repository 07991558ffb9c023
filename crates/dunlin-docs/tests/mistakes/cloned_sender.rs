//! The program clones a sender, which other crates allow.

use dunlin::prelude::*;

#[dunlin::main]
async fn main() -> Result {
    let (tx, mut rx) = channel();
    for number in 0..3 {
        let mut tx = tx.clone();
        spawn(async move { tx.send(number).await });
    }
    drop(tx);
    while let Some(number) = rx.next().await? {
        println!("{number}");
    }
    Ok(())
}
