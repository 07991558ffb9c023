//! The tests, files and links that the documents name exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn files(folder: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && !name.starts_with('.') && !name.starts_with("target") {
            files(&path, extension, found);
        } else if path.extension().is_some_and(|found| found == extension) {
            found.push(path);
        }
    }
}

fn documents() -> Vec<PathBuf> {
    let mut found = Vec::new();
    files(&root().join("docs"), "md", &mut found);
    found.extend(["README.md", "SECURITY.md", "CONTRIBUTING.md", "ARCHITECTURE.md"].map(|name| root().join(name)));
    found
}

/// The words between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.lines().flat_map(|line| line.split('`').skip(1).step_by(2))
}

/// The name of a test has four words or more; names of the API have fewer.
fn is_test_name(word: &str) -> bool {
    word.matches('_').count() >= 3
        && word.chars().all(|one| one.is_ascii_lowercase() || one.is_ascii_digit() || one == '_')
}

#[test]
fn tests_that_documents_name_exist() {
    let mut sources = Vec::new();
    files(&root(), "rs", &mut sources);
    let mut names = BTreeSet::new();
    for source in sources {
        let text = fs::read_to_string(source).unwrap();
        for declared in text.split("fn ").skip(1) {
            let end = declared.find(|one: char| !one.is_ascii_alphanumeric() && one != '_').unwrap_or(declared.len());
            names.insert(declared[..end].to_owned());
        }
        // The tests of a macro that is given names and what they run.
        names.extend(text.lines().filter_map(|line| line.trim().strip_suffix(':')).map(str::to_owned));
    }
    let mut missing = Vec::new();
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        for word in quoted(&text).filter(|word| is_test_name(word) && !names.contains(*word)) {
            missing.push(format!("{}: {word}", document.display()));
        }
    }
    assert!(missing.is_empty(), "these tests do not exist:\n{}", missing.join("\n"));
}

#[test]
fn links_between_documents_resolve() {
    let mut dead = Vec::new();
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            if path.contains("://") {
                continue;
            }
            let target = if path.is_empty() { document.clone() } else { document.parent().unwrap().join(path) };
            let has_anchor =
                || fs::read_to_string(&target).is_ok_and(|text| text.lines().any(|line| heads(line, anchor)));
            if !target.exists() || (!anchor.is_empty() && !has_anchor()) {
                dead.push(format!("{}: {link}", document.display()));
            }
        }
    }
    assert!(dead.is_empty(), "these links are dead:\n{}", dead.join("\n"));
}

/// Whether this line is a heading with that anchor, as GitHub makes it.
fn heads(line: &str, anchor: &str) -> bool {
    let Some(title) = line.strip_prefix('#') else { return false };
    let title = title.trim_start_matches('#').trim().to_lowercase();
    let made: String = title
        .chars()
        .filter(|one| one.is_alphanumeric() || matches!(one, ' ' | '-' | '_'))
        .map(|one| if one == ' ' { '-' } else { one })
        .collect();
    made == anchor
}
