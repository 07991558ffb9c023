//! `ratchet.toml`: what is left to clean up in each crate, and its tables, which may be long.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// What is left in one crate.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Figures {
    pub(crate) modules_in_cycles: usize,
    /// Functions that may be long: each is a table, one `match` or one list, whose rows are read one by one.
    pub(crate) tables: Vec<String>,
}

/// What is left in each crate; crates without an entry are clean.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(transparent)]
pub(crate) struct Ratchet(BTreeMap<String, Figures>);

pub(crate) fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("ratchet.toml")
}

pub(crate) fn read() -> Ratchet {
    let text = std::fs::read_to_string(path()).expect("ratchet.toml can be read");
    toml::from_str(&text).unwrap_or_else(|error| panic!("ratchet.toml: {error}"))
}

impl Ratchet {
    pub(crate) fn of(crates: impl IntoIterator<Item = (String, Figures)>) -> Self {
        Self(crates.into_iter().filter(|(_, figures)| *figures != Figures::default()).collect())
    }

    /// The file that says this.
    pub(crate) fn to_text(&self) -> String {
        let mut text = String::from(
            "# What is left to clean up, by crate, and tables that may be long. Written by \
                          `cargo run -p dunlin-lint -- --record`.\n",
        );
        for (name, figures) in &self.0 {
            text += &format!("\n[{name}]\nmodules_in_cycles = {}\n", figures.modules_in_cycles);
            text += "tables = [";
            for table in &figures.tables {
                text += &format!("\n    \"{table}\",");
            }
            text += if figures.tables.is_empty() { "]\n" } else { "\n]\n" };
        }
        text
    }

    pub(crate) fn summary(&self) -> String {
        let modules: usize = self.0.values().map(|figures| figures.modules_in_cycles).sum();
        let tables: usize = self.0.values().map(|figures| figures.tables.len()).sum();
        format!(
            "left to clean up: {modules} modules in import cycles; {tables} functions are tables, which may be long"
        )
    }

    /// A line for each figure of `now` that is not what this says.
    pub(crate) fn differences(&self, now: &Self) -> Vec<String> {
        let mut lines = vec![];
        let none = Figures::default();
        for name in self.0.keys().chain(now.0.keys().filter(|name| !self.0.contains_key(*name))) {
            let (before, now) = (self.0.get(name).unwrap_or(&none), now.0.get(name).unwrap_or(&none));
            let (modules, most) = (now.modules_in_cycles, before.modules_in_cycles);
            if modules != most {
                let better = if modules < most { "; lower it in ratchet.toml" } else { "" };
                lines.push(format!("{name}: {modules} modules in import cycles, ratchet.toml says {most}{better}"));
            }
            for long in now.tables.iter().filter(|long| !before.tables.contains(long)) {
                lines.push(format!("{name}: {long} has more than 120 lines, and ratchet.toml names no such table"));
            }
            for short in before.tables.iter().filter(|long| !now.tables.contains(long)) {
                lines.push(format!("{name}: {short} is short now, or gone; remove it from ratchet.toml"));
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(modules_in_cycles: usize, tables: &[&str]) -> Figures {
        Figures { modules_in_cycles, tables: tables.iter().map(|&name| name.to_owned()).collect() }
    }

    #[test]
    fn more_and_fewer_both_differ_and_what_is_written_is_read_again() {
        let before = Ratchet::of([("a".to_owned(), figures(3, &["f", "g"])), ("b".to_owned(), figures(0, &[]))]);
        assert_eq!(toml::from_str::<Ratchet>(&before.to_text()).unwrap(), before);
        assert_eq!(before.differences(&before), Vec::<String>::new());
        let now = Ratchet::of([("a".to_owned(), figures(2, &["g", "h"])), ("b".to_owned(), figures(2, &[]))]);
        assert_eq!(
            before.differences(&now),
            [
                "a: 2 modules in import cycles, ratchet.toml says 3; lower it in ratchet.toml",
                "a: h has more than 120 lines, and ratchet.toml names no such table",
                "a: f is short now, or gone; remove it from ratchet.toml",
                "b: 2 modules in import cycles, ratchet.toml says 0",
            ]
        );
    }
}
