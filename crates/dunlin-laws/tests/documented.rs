//! `docs/laws.md` has a line for every law, with the same text as in the code.

use dunlin_laws::{Local, laws};

#[test]
fn every_law_is_in_the_docs() {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/laws.md")).unwrap();
    let lines: Vec<_> = laws::<Local>().into_iter().map(|law| format!("- `{}`: {}", law.name, law.says)).collect();
    let missing: Vec<_> = lines.iter().filter(|line| !text.lines().any(|l| l == line.as_str())).cloned().collect();
    assert!(missing.is_empty(), "docs/laws.md lacks, or words otherwise:\n{}", missing.join("\n"));
    let lines_there = text.lines().filter(|line| line.starts_with("- `") && line.contains("`: ")).count();
    assert_eq!(lines_there, lines.len(), "docs/laws.md has laws that the code does not have");
    assert!(text.lines().count() <= 350, "docs/laws.md is longer than 350 lines");
}
