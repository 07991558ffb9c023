//! A peer sends anything to a node that has ends of all kinds; nothing panics, two honest nodes keep working,
//! and no state is left.
#![no_main]

#[path = "../../crates/dunlin/tests/support/ends.rs"]
mod ends;
#[allow(dead_code, reason = "its peer makes its handshakes itself")]
#[path = "../../crates/dunlin-proto/tests/fuzz/messages.rs"]
mod messages;
#[path = "../../crates/dunlin/tests/fuzz/node.rs"]
mod node;
#[allow(dead_code, reason = "only a part of what tests of nodes share is needed")]
#[path = "../../crates/dunlin/tests/support/nodes.rs"]
mod support;

use ends::End;
use support::nothing_is_left;

libfuzzer_sys::fuzz_target!(|data: &[u8]| node::run(data));
