//! A node beside a peer that sends anything. `fuzz/fuzz_targets/node.rs` runs this for long with any bytes;
//! here it runs with the corpus, and with bytes from a small generator.

use std::fs;
use std::path::Path;

#[allow(dead_code, reason = "its peer makes its handshakes itself")]
#[path = "../../../dunlin-proto/tests/fuzz/messages.rs"]
mod messages;
#[path = "../fuzz/node.rs"]
mod node;

use crate::ends::End;
use crate::random::Random;
use crate::support::nothing_is_left;

/// The bytes of a run.
const BYTES: usize = 2_000;

/// An endless sequence of bytes from a seed.
fn bytes(seed: u64) -> impl Iterator<Item = u8> {
    let mut random = Random(seed);
    std::iter::repeat_with(move || (random.next() >> 56) as u8)
}

#[test]
fn arbitrary_peer_does_not_break_a_node() {
    for seed in 0..300 {
        eprintln!("seed {seed}");
        node::run(&bytes(seed).take(BYTES).collect::<Vec<_>>());
    }
}

#[test]
fn node_passes_the_fuzz_corpus() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/node");
    let mut count = 0;
    for entry in fs::read_dir(&folder).unwrap_or_else(|why| panic!("{}: {why}", folder.display())) {
        let path = entry.unwrap().path();
        eprintln!("{}", path.display());
        node::run(&fs::read(&path).unwrap());
        count += 1;
    }
    assert!(count >= 10, "only {count} inputs in {}", folder.display());
}
