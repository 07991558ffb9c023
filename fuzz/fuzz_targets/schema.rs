//! Reads any bytes as schemas, and compares two of them.
#![no_main]

#[path = "../../crates/dunlin-schema/tests/fuzz/schema.rs"]
mod schema;

libfuzzer_sys::fuzz_target!(|data: &[u8]| schema::run(data));
