//! Every procedure is documented, and nothing else is.

use std::collections::BTreeSet;

use dunlin_scheme::Scheme;

#[test]
fn every_procedure_has_a_row_in_the_documentation() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/scheme-procedures.md");
    // A packaged crate has no docs.
    let Ok(text) = std::fs::read_to_string(path) else { return };
    let mut documented = BTreeSet::new();
    for row in text.lines().filter_map(|line| line.strip_prefix("| `")) {
        let (names, value) = row.split_once("` | ").expect("a row has two cells");
        assert!(value.len() > 4, "{row}");
        for call in names.split("`, `") {
            let name = call.trim_start_matches('(').split([' ', ')']).next().expect("a call has a name");
            assert!(documented.insert(name.to_owned()), "{name} has two rows");
        }
    }
    let defined: BTreeSet<String> = Scheme::new().globals().into_iter().collect();
    let missing: Vec<_> = defined.difference(&documented).collect();
    let unknown: Vec<_> = documented.difference(&defined).collect();
    assert!(missing.is_empty() && unknown.is_empty(), "without a row: {missing:?}; without a procedure: {unknown:?}");
}
