//! The smallest program with a node: it joins an application, prints its name there, and leaves.
//!
//! It compiles next to nothing of the node (`bash .ci/run light` counts that): the node is compiled once,
//! with the library.
//!
//! Run it: `cargo run --release --example hello`

use dunlin::prelude::*;

#[dunlin::main]
async fn main() -> Result {
    let node = Node::builder().app("hello").names("memory:names-of-hello").listen("memory:").join().await?;
    println!("Joined {} as {}.", node.application(), node.me());
    node.leave().await
}
