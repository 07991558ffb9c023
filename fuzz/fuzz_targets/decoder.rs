//! Decodes any bytes; a value that the decoder accepts is one that the encoder writes.
#![no_main]

#[path = "../../crates/dunlin-proto/tests/fuzz/decoder.rs"]
mod decoder;

libfuzzer_sys::fuzz_target!(|data: &[u8]| decoder::run(data));
