//! The slice of the redesign as a transport: two halves that push words over a link, and values as bytes.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use dunlin::carrier::Format;
use dunlin::remote::{Half, Link, Terms, Word, receiving_half, sending_half};
use dunlin::{Policy, Portable, Receiver, Sender, channel, channel_with};

use crate::joined::hole;
use crate::kind::Kind;
use crate::transport::{Background, Feature, Transport};

/// Two halves, with words on their way between them.
#[derive(Clone, Copy, Debug)]
pub struct Linked;

const TERMS: Terms = Terms { format: Format::Cbor, value_max: 1 << 20 };

impl Transport for Linked {
    fn name(&self) -> &'static str {
        "link"
    }

    fn channel<T: Portable>(&self, policy: Policy, spawn: &mut dyn FnMut(Background)) -> (Sender<T>, Receiver<T>) {
        if !format!("{policy:?}").contains("\"rendezvous\"") {
            // Not in the slice: of these a law only makes clocks.
            return channel_with(policy);
        }
        let ((sender, far), (near, receiver)) = (channel(), channel_with(policy));
        let (forth, back) = (Arc::new(Way::default()), Arc::new(Way::default()));
        let halves = [sending_half(far, TERMS, forth.clone()), receiving_half(near, TERMS, back.clone())];
        let mut wire = Wire { halves, ways: [forth, back], random: 1 };
        spawn(Box::pin(poll_fn(move |cx| wire.poll(cx))));
        (sender, receiver)
    }

    fn hole(&self, feature: Feature, kind: &Kind) -> Option<&'static str> {
        match feature {
            Feature::Moved => Some("a value crosses as a copy, and both are dropped"),
            Feature::Shared | Feature::Calls | Feature::Stretched => Some("not in the slice"),
            _ => hole(feature, kind),
        }
    }
}

/// What one half has said.
#[derive(Default)]
struct Way(Mutex<(VecDeque<Word>, Option<Waker>, bool)>);

impl Link for Way {
    fn say(&self, word: Word) -> Option<Waker> {
        let mut way = self.0.lock().expect("nothing panics under it");
        way.0.push_back(word);
        way.1.take()
    }

    fn close(&self) -> Option<Waker> {
        let mut way = self.0.lock().expect("nothing panics under it");
        way.2 = true;
        way.1.take()
    }
}

struct Wire {
    /// The sending half, and the home.
    halves: [Arc<dyn Half>; 2],
    /// What each of them has said.
    ways: [Arc<Way>; 2],
    random: u32,
}

impl Wire {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut waits = [0, 0];
        for (waits, way) in waits.iter_mut().zip(&self.ways) {
            let mut way = way.0.lock().expect("nothing panics under it");
            way.1 = Some(cx.waker().clone());
            *waits = way.0.len();
        }
        let closed = self.ways[1].0.lock().expect("nothing panics under it").2;
        if waits == [0, 0] {
            return if closed { Poll::Ready(()) } else { Poll::Pending };
        }
        cx.waker().wake_by_ref();
        // Xorshift (Marsaglia, 2003).
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        let from = (self.random % 3) as usize;
        if from < 2 {
            let word = self.ways[from].0.lock().expect("nothing panics under it").0.pop_front();
            if let Some(word) = word {
                self.halves[1 - from].hear(word).expect("a half says what the other one expects");
            }
        }
        Poll::Pending
    }
}
