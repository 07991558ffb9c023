//! Halves of channels whose agents stand by.

use std::sync::Arc;

use dunlin_core::agent::{Inlet, Outlet};
use dunlin_core::carrier::{AnyInlet, AnyOutlet, Format};
use dunlin_core::remote::{Link, Terms, Word};
use dunlin_core::{Policy, Portable, Receiver, Sender, channel, channel_with};

pub(crate) const TERMS: Terms = Terms { format: Format::Cbor, value_max: 1 << 20, is_message: true };

pub(crate) fn sending<T: Portable, L: Link + Default + 'static>() -> (Sender<T>, AnyOutlet, Arc<L>) {
    let (tx, far) = channel();
    let (outlet, link) = (AnyOutlet::from(Outlet::new(far)), Arc::new(L::default()));
    assert!(outlet.link(TERMS, link.clone()), "nothing is open");
    (tx, outlet, link)
}

pub(crate) fn receiving<T: Portable, L: Link + Default + 'static>(
    policy: impl Into<Policy>,
) -> (Receiver<T>, AnyInlet, Arc<L>) {
    let (near, rx) = channel_with(policy);
    let (inlet, link) = (AnyInlet::from(Inlet::new(near)), Arc::new(L::default()));
    inlet.credits();
    assert!(inlet.link(TERMS, link.clone()), "nothing is open");
    (rx, inlet, link)
}

/// An agent that hears a word, if it stands by.
pub(crate) trait Hears {
    fn hear(&self, word: Word) -> Result<(), Word>;
}

impl Hears for AnyOutlet {
    fn hear(&self, word: Word) -> Result<(), Word> {
        self.word_sink().expect("it can stand by").hear(word)
    }
}

impl Hears for AnyInlet {
    fn hear(&self, word: Word) -> Result<(), Word> {
        self.word_sink().expect("it can stand by").hear(word)
    }
}
