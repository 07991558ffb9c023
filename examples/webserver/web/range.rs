//! Ranges of a file: pure functions.

use std::ops::Range;

/// The part of a file that a request asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// All of it: without a range, or with one that is malformed or excessive, which may be ignored.
    Whole,
    /// These pieces, which do not overlap.
    Pieces(Vec<Range<u64>>),
    /// No range has a byte of the file.
    Nothing,
}

/// A request with more ranges gets the whole file, because an answer in parts is not worth it.
const RANGES_MAX: usize = 16;

/// Parses the header `Range` for a file of `length` bytes. Ranges that overlap or touch become one.
pub(crate) fn wanted(header: Option<&str>, length: u64) -> Wanted {
    let list = header.and_then(|header| header.split_once('='));
    let list =
        list.filter(|(unit, list)| unit.trim().eq_ignore_ascii_case("bytes") && list.split(',').count() <= RANGES_MAX);
    let Some((_, list)) = list else { return Wanted::Whole };
    let all = list.split(',').map(str::trim).filter(|one| !one.is_empty()).map(|one| piece(one, length));
    let Some(mut pieces) = all.collect::<Option<Vec<_>>>() else { return Wanted::Whole };
    pieces.retain(|piece| !piece.is_empty());
    if pieces.is_empty() { Wanted::Nothing } else { Wanted::Pieces(merged(pieces)) }
}

/// Parses one range: an empty one if it is beyond the file, `None` if it is malformed.
fn piece(text: &str, length: u64) -> Option<Range<u64>> {
    let (first, last) = text.split_once('-')?;
    if first.is_empty() {
        return Some(length.saturating_sub(number(last)?)..length);
    }
    let first = number(first)?;
    let end = if last.is_empty() { length } else { number(last)?.saturating_add(1) };
    if !last.is_empty() && end <= first && first != u64::MAX {
        return None;
    }
    Some(first.min(length)..end.min(length).max(first.min(length)))
}

/// Digits only. A value that overflows is beyond every file.
fn number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(u64::MAX))
}

/// Merges ranges. Each result has the place of its first range.
fn merged(pieces: Vec<Range<u64>>) -> Vec<Range<u64>> {
    let mut all: Vec<Range<u64>> = Vec::new();
    for mut piece in pieces {
        let mut at = all.len();
        while let Some(other) = all.iter().position(|other| other.start <= piece.end && piece.start <= other.end) {
            let other = all.remove(other);
            piece = piece.start.min(other.start)..piece.end.max(other.end);
            at = at.min(all.len());
        }
        all.insert(at.min(all.len()), piece);
    }
    all
}
