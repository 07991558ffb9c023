//! `tables.toml`: the functions that may be long.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The tables of each crate, as `path::name`.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(crate) struct Tables(BTreeMap<String, Vec<String>>);

pub(crate) fn read() -> Tables {
    let text = include_str!("../tables.toml");
    toml::from_str(text).unwrap_or_else(|error| panic!("tables.toml: {error}"))
}

impl Tables {
    /// One line for each function that is too long and not a table, and for each table that is not too long.
    pub(crate) fn faults(&self, crate_name: &str, long: &[(String, usize)]) -> Vec<String> {
        let tables = self.0.get(crate_name).map_or(&[][..], Vec::as_slice);
        let no_tables = long.iter().filter(|(name, _)| !tables.contains(name)).map(|(name, lines)| {
            format!("{crate_name}/{name}: a function of {lines} lines, and tables.toml does not name it")
        });
        let short = tables
            .iter()
            .filter(|name| !long.iter().any(|(long, _)| long == *name))
            .map(|name| format!("{crate_name}/{name}: tables.toml names it, and it is short, or gone"));
        no_tables.chain(short).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_name_unlisted_long_functions_and_listed_short_ones() {
        let tables: Tables = toml::from_str("a = ['f.rs::long', 'f.rs::short']").unwrap();
        let long = [("f.rs::long".to_owned(), 130), ("f.rs::other".to_owned(), 121)];
        assert_eq!(
            tables.faults("a", &long),
            [
                "a/f.rs::other: a function of 121 lines, and tables.toml does not name it",
                "a/f.rs::short: tables.toml names it, and it is short, or gone",
            ]
        );
        assert_eq!(tables.faults("b", &[]), Vec::<String>::new());
    }
}
