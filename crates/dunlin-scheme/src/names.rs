//! Symbols, interned: equal names have the same number.

use std::collections::HashMap;
use std::sync::Arc;

/// An identifier: an interned symbol, or an alias that the expander made of one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct Name(pub(crate) u32);

impl Name {
    /// Names from here on are aliases of the expander; the table of symbols never grows so far.
    pub(crate) const FIRST_ALIAS: u32 = 1 << 31;

    pub(crate) fn is_alias(self) -> bool {
        self.0 >= Self::FIRST_ALIAS
    }
}

/// The table of symbols of one machine.
#[derive(Clone, Default)]
pub(crate) struct Symbols {
    texts: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, u32>,
}

impl Symbols {
    /// How many symbols one machine may intern: a program that makes names without end fails by this.
    pub(crate) const COUNT_MAX: usize = 1 << 22;

    /// The symbol of this text; made if it is new.
    pub(crate) fn intern(&mut self, text: &str) -> Name {
        if let Some(&number) = self.numbers.get(text) {
            return Name(number);
        }
        let number = self.texts.len() as u32;
        let text: Arc<str> = text.into();
        self.texts.push(text.clone());
        self.numbers.insert(text, number);
        Name(number)
    }

    /// The text of a symbol.
    ///
    /// # Panics
    /// If this table did not make the symbol.
    pub(crate) fn text(&self, name: Name) -> &Arc<str> {
        &self.texts[name.0 as usize]
    }

    /// The number of symbols.
    pub(crate) fn len(&self) -> usize {
        self.texts.len()
    }
}
