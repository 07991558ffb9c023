//! Maps and sets in the order of their keys, in place of those of `std`.
//!
//! A [`BTreeMap`](std::collections::BTreeMap) is compiled anew for each type of key and value, 6,000 to
//! 10,000 lines of LLVM's language each. The crates of [dunlin](https://docs.rs/dunlin) have about a hundred
//! types of maps, and trees were a fifth of what they compiled to. The maps here have two levels, a list of
//! sorted lists, and move their entries as bytes: what moves them is compiled once, and what searches them
//! once for each type of key.
//!
//! ```
//! use dunlin_sorted::{SortedMap, SortedSet};
//!
//! let mut ports = SortedMap::new();
//! assert_eq!(ports.insert("names", 9870), None);
//! *ports.get_or_default("krill") += 1;
//! assert!(ports.keys().eq(&["krill", "names"]));
//! assert_eq!(ports.remove("names"), Some(9870));
//!
//! let numbers: SortedSet<_> = [5, 3, 9].into_iter().collect();
//! assert!(numbers.range(4..).eq(&[5, 9]));
//! ```

mod map;
mod raw;
mod set;

pub use map::{IntoIter, Iter, IterMut, SortedMap};
pub use set::{Elements, IntoElements, SortedSet};
