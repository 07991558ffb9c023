//! Any bytes drive a machine; it does not panic, does not loop, and keeps nothing.
#![no_main]

#[path = "../../crates/dunlin-proto/tests/fuzz/machine.rs"]
mod machine;
#[path = "../../crates/dunlin-proto/tests/fuzz/messages.rs"]
mod messages;

libfuzzer_sys::fuzz_target!(|data: &[u8]| machine::run(data));
