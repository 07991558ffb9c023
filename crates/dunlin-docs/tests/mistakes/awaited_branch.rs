//! The program awaits the operation of a branch.

use dunlin::prelude::*;

#[dunlin::main]
async fn main() -> Result {
    let (mut tx, mut rx) = channel();
    let sender = spawn(async move { tx.send(1).await });
    alt! {
        number = rx.recv().await => println!("{}", number?),
        _ = sleep(Duration::from_secs(1)) => println!("nothing"),
    }
    sender.await??;
    Ok(())
}
