//! Tests that cannot run on this system.

use std::io::Write;

/// Reports a test that cannot run here, past the harness, which shows only the output of failing tests.
pub(crate) fn report_skipped(what: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED {what}");
    // The gate lists the skipped tests at its end.
    if let Some(list) = std::env::var_os("DUNLIN_SKIPPED") {
        let list = std::fs::OpenOptions::new().append(true).create(true).open(list);
        writeln!(list.expect("DUNLIN_SKIPPED is a file"), "{what}").expect("DUNLIN_SKIPPED can be written");
    }
}
