//! `ratchet.toml`: what is left to clean up in each crate.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// What is left in one crate.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Figures {
    pub(crate) modules_in_cycles: usize,
    pub(crate) wide_comments: usize,
    pub(crate) long_functions: Vec<String>,
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
        let mut text =
            String::from("# What is left to clean up, by crate; `cargo run -p dunlin-lint -- --record` writes it.\n");
        for (name, figures) in &self.0 {
            text += &format!("\n[{name}]\nmodules_in_cycles = {}\n", figures.modules_in_cycles);
            text += &format!("wide_comments = {}\nlong_functions = [", figures.wide_comments);
            for function in &figures.long_functions {
                text += &format!("\n    \"{function}\",");
            }
            text += if figures.long_functions.is_empty() { "]\n" } else { "\n]\n" };
        }
        text
    }

    pub(crate) fn summary(&self) -> String {
        let sum = |of: fn(&Figures) -> usize| self.0.values().map(of).sum::<usize>();
        let functions = sum(|figures| figures.long_functions.len());
        let (modules, comments) = (sum(|figures| figures.modules_in_cycles), sum(|figures| figures.wide_comments));
        format!(
            "left to clean up: {modules} modules in import cycles, {comments} wide comments, {functions} long functions"
        )
    }

    /// A line for each figure of `now` that is not what this says.
    pub(crate) fn differences(&self, now: &Self) -> Vec<String> {
        let mut lines = vec![];
        let none = Figures::default();
        for name in self.0.keys().chain(now.0.keys().filter(|name| !self.0.contains_key(*name))) {
            let (before, now) = (self.0.get(name).unwrap_or(&none), now.0.get(name).unwrap_or(&none));
            let mut compare = |what: &str, before: usize, now: usize| {
                if before != now {
                    let better = if now < before { "; lower it in ratchet.toml" } else { "" };
                    lines.push(format!("{name}: {now} {what}, ratchet.toml says {before}{better}"));
                }
            };
            compare("modules in import cycles", before.modules_in_cycles, now.modules_in_cycles);
            compare("comments over 110 columns", before.wide_comments, now.wide_comments);
            for long in now.long_functions.iter().filter(|long| !before.long_functions.contains(long)) {
                lines.push(format!("{name}: {long} has more than 120 lines"));
            }
            for short in before.long_functions.iter().filter(|long| !now.long_functions.contains(long)) {
                lines.push(format!("{name}: {short} is short now, or gone; remove it from ratchet.toml"));
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(modules_in_cycles: usize, wide_comments: usize, long: &[&str]) -> Figures {
        Figures { modules_in_cycles, wide_comments, long_functions: long.iter().map(|&name| name.to_owned()).collect() }
    }

    #[test]
    fn more_and_fewer_both_differ_and_what_is_written_is_read_again() {
        let before = Ratchet::of([("a".to_owned(), figures(3, 2, &["f", "g"])), ("b".to_owned(), figures(0, 0, &[]))]);
        assert_eq!(toml::from_str::<Ratchet>(&before.to_text()).unwrap(), before);
        assert_eq!(before.differences(&before), Vec::<String>::new());
        let now = Ratchet::of([("a".to_owned(), figures(2, 3, &["g", "h"])), ("b".to_owned(), figures(2, 0, &[]))]);
        assert_eq!(
            before.differences(&now),
            [
                "a: 2 modules in import cycles, ratchet.toml says 3; lower it in ratchet.toml",
                "a: 3 comments over 110 columns, ratchet.toml says 2",
                "a: h has more than 120 lines",
                "a: f is short now, or gone; remove it from ratchet.toml",
                "b: 2 modules in import cycles, ratchet.toml says 0",
            ]
        );
    }
}
