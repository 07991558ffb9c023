//! Channels over a link, as two transports. In the first, halves push words, with values as bytes; in the
//! second, two links exchange them over a wire that carries bytes in pieces and is cut again and again.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use dunlin::carrier::Format;
use dunlin::node::link::{Link as Connection, LinkConfig, Wire as Side};
use dunlin::remote::{Half, Link, Terms, Word, receiving_half, sending_half};
use dunlin::{Policy, Portable, Receiver, Sender, channel, channel_with};

use crate::joined::hole;
use crate::kind::Kind;
use crate::rig::{Random, Rig};
use crate::transport::{Background, Feature, Transport};

/// Two halves, with words in flight between them.
#[derive(Clone, Copy, Debug)]
pub struct Pushed;

const TERMS: Terms = Terms { format: Format::Cbor, value_max: 1 << 20, is_message: false };

impl Transport for Pushed {
    fn name(&self) -> &'static str {
        "push"
    }

    fn channel<T: Portable>(&self, policy: Policy, spawn: &mut dyn FnMut(Background)) -> (Sender<T>, Receiver<T>) {
        let ((sender, far), (near, receiver)) = (channel(), channel_with(policy));
        let (forth, back) = (Arc::new(Way::default()), Arc::new(Way::default()));
        let halves = [sending_half(far, TERMS, forth.clone()), receiving_half(near, TERMS, back.clone())];
        let mut wire = Wire { halves, ways: [forth, back], random: 1 };
        spawn(Box::pin(poll_fn(move |cx| wire.poll(cx))));
        (sender, receiver)
    }

    fn hole(&self, feature: Feature, kind: &Kind) -> Option<&'static str> {
        not_over_a_link(feature, kind)
    }

    fn seeds_max(&self) -> u64 {
        seeds_max()
    }
}

/// A word over a link takes more steps than one in memory, so each policy runs under few seeds, unless
/// `DUNLIN_SEEDS` overrides it.
fn seeds_max() -> u64 {
    if std::env::var_os("DUNLIN_SEEDS").is_some() { u64::MAX } else { 8 }
}

fn not_over_a_link(feature: Feature, kind: &Kind) -> Option<&'static str> {
    match feature {
        Feature::Moved => Some("a value crosses as a copy, and both are dropped"),
        Feature::BufferedValues => Some("what is buffered is bytes, and a value is dropped when its send is over"),
        Feature::Shared | Feature::Calls | Feature::Stretched => Some("ends in values do not go over a link yet"),
        _ => hole(feature, kind),
    }
}

/// Two links, and a wire between them that is cut at random, from the law's seed.
pub struct Linked {
    world: RefCell<Option<Rc<World>>>,
    /// The wire carries fewer than this many bytes at once.
    piece_max: u64,
}

impl Default for Linked {
    fn default() -> Self {
        Self::in_pieces(200)
    }
}

impl Linked {
    /// Creates links whose wire carries fewer than `piece_max` bytes at once. A value that takes very many
    /// pieces never gets through between two cuts.
    pub fn in_pieces(piece_max: u64) -> Self {
        Self { world: RefCell::default(), piece_max }
    }

    /// How many halves of channels each link has.
    pub fn halves(&self) -> [usize; 2] {
        let world = self.world.borrow();
        world.as_ref().map_or([0, 0], |world| world.links.each_ref().map(Connection::halves))
    }
}

struct World {
    links: [Connection; 2],
    channels: Cell<u64>,
}

/// One in this many steps of the wire cuts it.
const CUTS: u64 = 60;

impl Transport for Linked {
    fn name(&self) -> &'static str {
        "link"
    }

    fn begin(&self, rig: &Rig, seed: u64) {
        let links = [(); 2].map(|()| Connection::new(LinkConfig::default()));
        let mut cable = Cable {
            sides: [links[0].by_hand(), links[1].by_hand()],
            ways: Default::default(),
            piece_max: self.piece_max,
            now: Duration::ZERO,
            random: Random::new(seed),
        };
        rig.spawn_boxed(Box::pin(poll_fn(move |cx| cable.poll(cx))));
        self.world.replace(Some(Rc::new(World { links, channels: Cell::new(0) })));
    }

    fn end(&self) {
        let Some(world) = self.world.replace(None) else { return };
        // The wire no longer carries any output, so a half that still waits to send is left over.
        drop(world);
    }

    fn channel<T: Portable>(&self, policy: Policy, _: &mut dyn FnMut(Background)) -> (Sender<T>, Receiver<T>) {
        let world = self.world.borrow().clone().expect("the run has begun");
        let number = world.channels.get();
        world.channels.set(number + 1);
        let (from, to) = ((number % 2) as usize, 1 - (number % 2) as usize);
        (world.links[from].sender(number), world.links[to].receiver_with(number, policy))
    }

    fn hole(&self, feature: Feature, kind: &Kind) -> Option<&'static str> {
        not_over_a_link(feature, kind)
    }

    fn seeds_max(&self) -> u64 {
        seeds_max()
    }
}

impl fmt::Debug for Linked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Linked").finish_non_exhaustive()
    }
}

/// The wire between two links.
struct Cable {
    sides: [Side; 2],
    /// The bytes in flight from each side.
    ways: [VecDeque<u8>; 2],
    piece_max: u64,
    now: Duration,
    random: Random,
}

impl Cable {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.now += Duration::from_micros(100);
        for (side, way) in self.sides.iter_mut().zip(&mut self.ways) {
            if let Poll::Ready(bytes) = side.poll_output(cx, self.now) {
                way.extend(bytes.expect("the other side keeps to the protocol"));
                cx.waker().wake_by_ref();
            }
        }
        if self.ways.iter().all(VecDeque::is_empty) {
            return Poll::Pending;
        }
        cx.waker().wake_by_ref();
        if self.random.below(CUTS) == 0 {
            self.cut();
            return Poll::Pending;
        }
        let from = self.random.below(2) as usize;
        let length = self.ways[from].len().min(self.random.below(self.piece_max) as usize);
        let bytes: Vec<u8> = self.ways[from].drain(..length).collect();
        self.sides[1 - from].input(self.now, &bytes).expect("the other side keeps to the protocol");
        Poll::Pending
    }

    /// Drops all bytes in flight; each side resumes after the last message that the other has seen.
    fn cut(&mut self) {
        self.ways.iter_mut().for_each(VecDeque::clear);
        self.sides.iter_mut().for_each(Side::cut);
        let seen = [self.sides[0].seen(), self.sides[1].seen()];
        self.sides[0].resume(seen[1]).expect("it has seen no more than was sent");
        self.sides[1].resume(seen[0]).expect("it has seen no more than was sent");
    }
}

/// The words that one half has sent.
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
    /// The sending half and the home.
    halves: [Arc<dyn Half>; 2],
    /// The words that each of them has sent.
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
                self.halves[1 - from].hear(word).expect("each half follows the protocol");
            }
        }
        Poll::Pending
    }
}
