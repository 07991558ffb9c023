//! A program with five types of messages: `.ci/types` counts what it compiles. It is never run.

mod types;

types::types! { A B C D E }

#[dunlin::main]
async fn main() -> dunlin::prelude::Result {
    run().await
}
