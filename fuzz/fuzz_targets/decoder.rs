//! Any bytes are decoded; what is accepted is what the encoder writes.
#![no_main]

#[path = "../../crates/dunlin-proto/tests/fuzz/decoder.rs"]
mod decoder;

libfuzzer_sys::fuzz_target!(|data: &[u8]| decoder::run(data));
