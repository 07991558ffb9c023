//! A program with one type of messages: `.ci/types` counts what it compiles. It is never run.

mod types;

types::types! { A }

#[dunlin::main]
async fn main() -> dunlin::prelude::Result {
    run().await
}
