//! Runs programs with processes.

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
