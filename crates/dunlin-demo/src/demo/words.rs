//! The words of a text, and the frequency of each.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The frequency of each word of a text. A word stands between characters that are neither letters nor
/// digits; upper case counts as lower case.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WordTable(BTreeMap<String, u64>);

impl WordTable {
    /// Counts the words of a complete text.
    pub fn of(text: &str) -> Self {
        let mut table = Self::default();
        text.split(|c: char| !c.is_alphanumeric()).for_each(|word| table.add(word));
        table
    }

    /// How many words the text has.
    pub fn words(&self) -> u64 {
        self.0.values().sum()
    }

    /// How many different ones.
    pub fn distinct(&self) -> u64 {
        self.0.len() as u64
    }

    fn add(&mut self, word: &str) {
        if !word.is_empty() {
            *self.0.entry(word.to_lowercase()).or_default() += 1;
        }
    }
}

/// Counts the words of a text that arrives in pieces.
#[derive(Debug, Default)]
pub struct Counter {
    table: WordTable,
    /// The last word so far: the next piece may continue it.
    unfinished: String,
}

impl Counter {
    /// Counts the next piece of the text.
    pub fn read(&mut self, piece: &str) {
        for part in piece.split_inclusive(|c: char| !c.is_alphanumeric()) {
            match part.strip_suffix(|c: char| !c.is_alphanumeric()) {
                Some(end) => {
                    self.unfinished.push_str(end);
                    self.table.add(&self.unfinished);
                    self.unfinished.clear();
                }
                None => self.unfinished.push_str(part),
            }
        }
    }

    /// Ends the text.
    pub fn finish(mut self) -> WordTable {
        self.table.add(&self.unfinished);
        self.table
    }
}

/// A text in about a hundred pieces of at least 64 bytes and at most a mebibyte each. A piece may end in the
/// middle of a word.
pub fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let size = text.len().div_ceil(100).clamp(64, 1 << 20);
    let mut rest = text;
    std::iter::from_fn(move || {
        let end = (size..rest.len()).find(|&at| rest.is_char_boundary(at)).unwrap_or(rest.len());
        let (piece, after) = rest.split_at(end);
        rest = after;
        Some(piece).filter(|piece| !piece.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_in_pieces_has_the_same_words_as_the_whole() {
        // The last letter of a Greek word has a small form of its own, so a word must not be lowercased in
        // parts.
        let text = "Tyger, tyger: 2 'tygers'. ὈΔΥΣΣΕΎΣ ὈΔΥΣΣΕΎΣ, naïve\u{a0}Straße--and\nmore";
        let expected = WordTable::of(text);
        assert_eq!((expected.words(), expected.distinct()), (10, 8));
        let ends: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
        for (n, &first) in ends.iter().enumerate() {
            for &second in &ends[n..] {
                let mut counter = Counter::default();
                for piece in [&text[..first], &text[first..second], &text[second..]] {
                    counter.read(piece);
                }
                assert_eq!(counter.finish(), expected, "cut at {first} and {second}");
            }
        }
    }

    #[test]
    fn pieces_add_up_to_the_text() {
        for text in ["", "a", &"é".repeat(40), &"penguin, ".repeat(9999), &"€".repeat(100_000)] {
            assert_eq!(pieces(text).collect::<String>(), text);
            assert!(pieces(text).count() <= 101);
        }
    }
}
