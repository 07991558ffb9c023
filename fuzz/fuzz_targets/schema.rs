//! Any bytes are read as schemas, and two of them compared.
#![no_main]

#[path = "../../crates/dunlin-schema/tests/fuzz/schema.rs"]
mod schema;

libfuzzer_sys::fuzz_target!(|data: &[u8]| schema::run(data));
