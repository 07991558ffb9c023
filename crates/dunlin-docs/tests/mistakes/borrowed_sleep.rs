//! A branch borrows a timer that moves when it is borrowed.

use dunlin::prelude::*;

#[dunlin::main]
async fn main() -> Result {
    let (_tx, mut rx) = channel::<u32>();
    let mut pause = sleep(Duration::from_secs(1));
    loop {
        alt! {
            number = rx.recv() => println!("{}", number?),
            _ = &mut pause => break,
        }
    }
    Ok(())
}
