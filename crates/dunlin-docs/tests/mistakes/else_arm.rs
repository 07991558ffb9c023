//! `else` in place of `skip`, as tokio's `select!` has it.

use dunlin::prelude::*;

#[dunlin::main]
async fn main() -> Result {
    let (_tx, mut rx) = channel::<u32>();
    alt! {
        number = rx.recv() => println!("{}", number?),
        else => println!("nothing"),
    }
    Ok(())
}
