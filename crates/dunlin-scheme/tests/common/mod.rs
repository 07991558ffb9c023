//! Runs programs with processes, and damages images.

#![allow(dead_code)] // every file that includes this uses some of it

use dunlin_scheme::Scheme;

/// A machine whose time is virtual.
pub(crate) fn scheme() -> Scheme {
    let mut scheme = Scheme::new();
    scheme.set_virtual_time();
    scheme
}

/// The value of a program: the same as it is, with a collection wherever one may be, and with each process
/// written and read at every end of its turns, long ones and such of one unit of fuel.
pub(crate) fn value(text: &str) -> String {
    let mut plain = scheme();
    let expected = plain.eval("test", text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    for (turn, collects, rewrites) in [(u64::MAX, false, true), (u64::MAX, true, false), (1, false, true)] {
        let mut scheme = scheme();
        scheme.set_turn(turn);
        scheme.set_collect_always(collects);
        scheme.set_rewrite(rewrites);
        let value = scheme.eval("test", text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(value, expected, "turn {turn}, collects {collects}, rewrites {rewrites}: {text}");
    }
    expected
}

/// Damaged copies of an image: 2,000, or as many as `DUNLIN_FUZZ` says.
pub(crate) fn damaged(good: &[u8], seed: u64) -> impl ExactSizeIterator<Item = Vec<u8>> {
    let rounds: usize = std::env::var("DUNLIN_FUZZ").map_or(2_000, |text| text.parse().expect("a number"));
    let mut random = seed;
    let mut next = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    (0..rounds).map(move |_| {
        let mut bytes = good.to_vec();
        for _ in 0..1 + next() % 3 {
            let at = 5 + next() as usize % (bytes.len() - 5);
            match next() % 4 {
                0 => bytes[at] = next() as u8,
                1 => bytes[at] ^= 1 << (next() % 8),
                2 => bytes[at] = bytes[at].wrapping_add(1),
                _ => bytes.truncate(at.max(6)),
            }
        }
        bytes
    })
}
