use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use super::*;
use crate::id::Request;
use crate::random::Random;
use crate::wire::codec::WireError;
use crate::wire::{End, Failure};

/// The frames and words that a link has received and sent, and the fault of the last one.
type Rejected<'a> = (Vec<Bytes>, &'a [(u32, Word)], Misstep);

fn config() -> Config {
    // A small window, so that values have to wait for acknowledgements.
    let mut config = Config::new("link");
    (config.unacked_max, config.unacked_min, config.value_max) = (64 << 10, 16 << 10, 300 << 10);
    config
}

struct Chance(Random);

impl Chance {
    fn below(&mut self, n: usize) -> usize {
        (self.0.connection().0 as u64 % n as u64) as usize
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

/// The end of one channel at this side, as a program that acts at random.
#[derive(Default)]
struct Program {
    alias: u32,
    /// Offers that are open, and their values. At the home of a choice: none.
    open: Vec<(Ticket, Option<Bytes>)>,
    /// Those of a choice, with the reservation that has no answer and whether the value was granted.
    choices: BTreeMap<Ticket, (Option<Request>, bool)>,
    withdrawn: Vec<Ticket>,
    held: Vec<Ticket>,
    next: Ticket,
    left: usize,
    /// The tickets of received offers, on which both sides have to agree.
    received: Vec<Ticket>,
    /// The words sent that the other side has not received.
    sent: VecDeque<Word>,
    recalled: Vec<Ticket>,
    refused: Vec<Ticket>,
    /// Of a channel with places: how many are granted, and how many the home has yet to grant again.
    places: u32,
    used: u32,
    peer_gone: bool,
    closed: bool,
}

/// A part of random bytes, so that no two values of this length are equal.
fn value(channel: usize, ticket: Ticket, size: usize) -> Bytes {
    static ALL: LazyLock<Bytes> = LazyLock::new(|| {
        let mut random = Random::new(1);
        (0..32 << 10).flat_map(|_| random.connection().0.to_be_bytes()).collect::<Vec<_>>().into()
    });
    let from = channel * 16_001 + ticket as usize * 501;
    ALL.slice(from..from + size)
}

impl Program {
    fn send(&mut self, link: &mut Link, word: Word) {
        let ticket = word.ticket();
        self.sent.push_back(word.clone());
        link.send(self.alias, word);
        if link.answers.back().is_some_and(|(alias, answer)| *alias == self.alias && answer.ticket() == ticket) {
            // It was not written, so nothing of it arrives.
            self.sent.retain(|word| word.ticket() != ticket);
            self.recalled.extend(ticket);
        }
    }

    /// Sends a value into a place.
    fn send_into_place(&mut self, channel: usize, link: &mut Link, chance: &mut Chance) {
        if self.left == 0 {
            return self.leave(link);
        }
        if self.places > 0 && !chance.one_in(3) {
            let most = [40, 40, 40, 40, 3_000, 3_000, 300 << 10][chance.below(7)];
            let bytes = value(channel, self.next, chance.below(most + 1));
            self.received.push(self.next);
            (self.left, self.next, self.places) = (self.left - 1, self.next + 1, self.places - 1);
            self.send(link, Word::Sent(bytes));
        }
    }

    fn leave(&mut self, link: &mut Link) {
        self.send(link, Word::Ended(End::Gone));
        self.closed = true;
        link.close(self.alias);
    }

    fn settle(&mut self, ticket: Ticket) {
        let before = self.open.len();
        self.open.retain(|(t, _)| *t != ticket);
        assert_eq!(self.open.len() + 1, before, "offer {ticket} is settled once");
        self.choices.remove(&ticket);
        self.held.retain(|t| *t != ticket);
    }

    fn act_as_sender(&mut self, channel: usize, link: &mut Link, chance: &mut Chance) {
        if has_places(channel) {
            return self.send_into_place(channel, link, chance);
        }
        let some = (!self.open.is_empty()).then(|| chance.below(self.open.len().max(1)));
        match chance.below(6) {
            0 | 1 if self.left > 0 && self.open.len() < 4 => {
                self.left -= 1;
                let ticket = self.next;
                self.next += 1 + chance.below(3) as u64;
                let most = [40, 40, 40, 40, 40, 3_000, 3_000, 300 << 10][chance.below(8)];
                let bytes = value(channel, ticket, chance.below(most + 1));
                self.open.push((ticket, Some(bytes.clone())));
                if chance.one_in(2) {
                    self.choices.insert(ticket, (None, false));
                    return self.send(link, Word::OfferChoice(ticket, 7));
                }
                self.send(link, Word::Offer(ticket, bytes));
            }
            2 if some.is_some_and(|at| !self.withdrawn.contains(&self.open[at].0)) => {
                let ticket = self.open[some.unwrap()].0;
                self.withdrawn.push(ticket);
                self.send(link, Word::Withdraw(ticket));
            }
            3 | 4 => {
                let asked = |(ticket, (request, granted)): (&Ticket, &(Option<Request>, bool))| {
                    request.filter(|_| !granted).map(|request| (*ticket, request))
                };
                let Some((ticket, request)) = self.choices.iter().find_map(asked) else { return };
                if chance.one_in(4) && !self.withdrawn.contains(&ticket) {
                    self.send(link, Word::Refuse(ticket));
                    self.refused.push(ticket);
                    return self.settle(ticket);
                }
                let bytes = self.open.iter().find(|(t, _)| *t == ticket).unwrap().1.clone().unwrap();
                self.choices.insert(ticket, (None, true));
                self.send(link, Word::Grant(ticket, request, bytes));
            }
            5 if chance.one_in(3) => {
                let Some(ticket) = self.choices.keys().next().copied() else { return };
                self.send(link, Word::Revoke(ticket));
            }
            _ if self.left == 0 && self.open.is_empty() => self.leave(link),
            _ => {}
        }
    }

    fn act_as_home(&mut self, link: &mut Link, chance: &mut Chance) {
        if let Some(ticket) = self.held.pop() {
            self.settle(ticket);
            return self.send(link, Word::Released(ticket));
        }
        if self.peer_gone && self.open.is_empty() {
            self.closed = true;
            return link.close(self.alias);
        }
        if self.used > 0 {
            let places = 1 + chance.below(self.used as usize) as u32;
            self.used -= places;
            self.send(link, Word::Credit(places));
        }
        if self.open.is_empty() {
            return;
        }
        let (ticket, bytes) = self.open[chance.below(self.open.len())].clone();
        if bytes.is_none() {
            let (request, _) = self.choices[&ticket];
            // This aborts the other reservation, if there is one.
            if request.is_none() || chance.one_in(4) {
                self.next += 1;
                self.choices.insert(ticket, (Some(self.next), false));
                self.send(link, Word::Reserve(ticket, self.next));
            }
            return;
        }
        match chance.below(5) {
            0 => {
                self.held.push(ticket);
                self.received.push(ticket);
                self.send(link, Word::Held(ticket));
            }
            1 => {
                self.settle(ticket);
                self.send(link, Word::Failed(ticket, Failure::Undecodable("it is no krill".to_owned())));
            }
            2 if self.choices.contains_key(&ticket) => {
                self.open.iter_mut().filter(|(t, _)| *t == ticket).for_each(|(_, bytes)| *bytes = None);
                self.choices.insert(ticket, (None, false));
                self.send(link, Word::Abort(ticket));
            }
            _ => {
                self.received.push(ticket);
                self.settle(ticket);
                self.send(link, Word::Taken(ticket));
            }
        }
    }

    /// The peer's words arrive in order. Some that crossed others are dropped.
    fn check_order(&self, theirs: &mut VecDeque<Word>, word: &Word) {
        if matches!(word, Word::Withdrawn(ticket) if self.recalled.contains(ticket)) {
            return;
        }
        if let Word::Credit(places) = word {
            // Consecutive ones may arrive as one.
            let mut sum = 0;
            while sum < *places {
                let Some(Word::Credit(more)) = theirs.pop_front() else { panic!("{sum} places for {word:?}") };
                sum += more;
            }
            return assert_eq!(sum, *places);
        }
        while let Some(sent) = theirs.pop_front() {
            if sent == *word {
                return;
            }
            let may_cross = matches!(sent, Word::Withdraw(_) | Word::Revoke(_) | Word::Grant(..) | Word::Refuse(_))
                || self.refused.contains(&sent.ticket().unwrap_or(0));
            assert!(may_cross, "{sent:?} was lost before {word:?}");
        }
        panic!("{word:?} comes twice, or was never sent");
    }

    fn hear(&mut self, channel: usize, word: Word, link: &mut Link) {
        match word {
            Word::Offer(ticket, bytes) => {
                assert_eq!(bytes, value(channel, ticket, bytes.len()));
                self.open.push((ticket, Some(bytes)));
            }
            Word::Sent(bytes) => {
                assert_eq!(bytes, value(channel, self.next, bytes.len()));
                self.received.push(self.next);
                (self.next, self.used) = (self.next + 1, self.used + 1);
            }
            Word::Opened(places) => self.places = places.unwrap_or_default(),
            Word::Credit(places) => self.places += places,
            Word::OfferChoice(ticket, choice) => {
                assert_eq!(choice, 7);
                self.choices.insert(ticket, (None, false));
                self.open.push((ticket, None));
            }
            Word::Grant(ticket, request, bytes) => {
                assert_eq!(bytes, value(channel, ticket, bytes.len()));
                match self.choices.get(&ticket) {
                    Some((Some(asked), _)) if *asked == request => {
                        let offer = self.open.iter_mut().find(|(t, _)| *t == ticket).unwrap();
                        offer.1 = Some(bytes);
                    }
                    Some(_) => self.send(link, Word::Abort(ticket)),
                    // (The withdrawal before it in the same batch has been answered.)
                    None => {}
                }
            }
            Word::Withdraw(ticket) => self.withdrawn.push(ticket),
            Word::Refuse(ticket) if self.open.iter().all(|(t, _)| *t != ticket) => {}
            Word::Refuse(ticket) | Word::Failed(ticket, _) | Word::Released(ticket) | Word::Withdrawn(ticket) => {
                self.settle(ticket);
            }
            Word::Taken(ticket) => {
                self.received.push(ticket);
                self.settle(ticket);
            }
            Word::Held(ticket) => {
                self.received.push(ticket);
                self.choices.remove(&ticket);
                // It cannot be withdrawn until it is released.
                self.withdrawn.push(ticket);
            }
            Word::Reserve(ticket, request) => self.choices.get_mut(&ticket).unwrap().0 = Some(request),
            Word::Abort(ticket) => self.choices.get_mut(&ticket).unwrap().1 = false,
            Word::Revoke(_) => {}
            Word::Ended(_) => self.peer_gone = true,
        }
    }

    /// The home answers a withdrawal at once.
    fn answer(&mut self, link: &mut Link) {
        for ticket in std::mem::take(&mut self.withdrawn) {
            if self.open.iter().any(|(t, _)| *t == ticket) && !self.held.contains(&ticket) {
                self.settle(ticket);
                self.send(link, Word::Withdrawn(ticket));
            }
        }
    }
}

const CHANNELS: usize = 4;

struct Pair {
    links: [Link; 2],
    buffers: [BytesMut; 2],
    /// The bytes on their way to each side.
    wires: [BytesMut; 2],
    /// By channel, at each side. Channels with an even number have their senders at side 0.
    ends: [Vec<Option<Program>>; 2],
    chance: Chance,
    now: Time,
    cuts: usize,
}

fn is_sender(side: usize, channel: usize) -> bool {
    channel % 2 == side
}

fn has_places(channel: usize) -> bool {
    channel >= CHANNELS / 2
}

impl Pair {
    fn new(seed: u64) -> Self {
        Self {
            links: [Link::new(config()), Link::new(config())],
            buffers: Default::default(),
            wires: Default::default(),
            ends: std::array::from_fn(|_| (0..CHANNELS).map(|_| None).collect()),
            chance: Chance(Random::new(seed)),
            now: Time(1),
            cuts: 0,
        }
    }

    fn open(&mut self, side: usize, channel: usize) {
        let which = if is_sender(side, channel) { Which::Sender } else { Which::Receiver };
        let alias = self.links[side].open(which, channel as u64);
        let mut end = Program { alias, left: 8, next: 1, ..Program::default() };
        if which == Which::Receiver {
            let places = has_places(channel).then(|| self.chance.below(3) as u32);
            end.used = if places == Some(0) { 1 } else { 0 };
            end.send(&mut self.links[side], Word::Opened(places));
        }
        self.ends[side][channel] = Some(end);
        self.links[side].attach(alias);
    }

    fn act(&mut self, side: usize) {
        let channel = self.chance.below(CHANNELS);
        let Some(end) = self.ends[side][channel].as_mut() else { return self.open(side, channel) };
        if end.closed {
            return;
        }
        if is_sender(side, channel) {
            end.act_as_sender(channel, &mut self.links[side], &mut self.chance);
        } else {
            end.act_as_home(&mut self.links[side], &mut self.chance);
        }
    }

    fn write(&mut self, side: usize) {
        let mut out = Vec::new();
        self.links[side].fill(self.now, 1 + self.chance.below(64 << 10), &mut out);
        out.iter().for_each(|bytes| self.wires[1 - side].extend_from_slice(bytes));
    }

    fn read(&mut self, side: usize) {
        let most = [3, 200, 20_000, usize::MAX][self.chance.below(4)];
        let wire = &mut self.wires[side];
        let bytes = wire.split_to(wire.len().min(most));
        self.buffers[side].extend_from_slice(&bytes);
        let mut words = Vec::new();
        self.links[side]
            .receive(self.now, &mut self.buffers[side], &mut |alias, word| words.push((alias, word)))
            .unwrap();
        let [here, there] = &mut self.ends;
        let (here, there) = if side == 0 { (here, there) } else { (there, here) };
        for (alias, word) in words {
            let of = |end: &Option<Program>| end.as_ref().is_some_and(|end| end.alias == alias && !end.closed);
            let channel = here.iter().position(of).expect("a word for an end that is here");
            let end = here[channel].as_mut().unwrap();
            // (An answer of this side to a withdrawal may come before the other one is attached.)
            let mut nothing = VecDeque::new();
            let theirs = there[channel].as_mut().map_or(&mut nothing, |other| &mut other.sent);
            end.check_order(theirs, &word);
            end.hear(channel, word, &mut self.links[side]);
            if !is_sender(side, channel) {
                end.answer(&mut self.links[side]);
            }
        }
    }

    fn cut(&mut self) {
        self.cuts += 1;
        let seen = [self.links[0].seen(), self.links[1].seen()];
        for side in 0..2 {
            self.buffers[side].clear();
            self.wires[side].clear();
            self.links[side].cut();
        }
        self.links[0].resume(seen[1]).unwrap();
        self.links[1].resume(seen[0]).unwrap();
    }

    fn is_over(&self) -> bool {
        self.ends.iter().flatten().all(|end| end.as_ref().is_some_and(|end| end.closed))
            && self.links.iter().all(Link::is_quiet)
    }

    fn step(&mut self) {
        let side = self.chance.below(2);
        match self.chance.below(16) {
            0..5 => self.act(side),
            5..10 => self.write(side),
            10..15 => self.read(side),
            _ if self.chance.one_in(8) => self.cut(),
            _ => self.now = self.now + Duration::from_millis(self.chance.below(8) as u64),
        }
    }
}

fn run(seed: u64) -> usize {
    let mut pair = Pair::new(seed);
    for generation in 0..2 {
        let mut steps = 0;
        while !pair.is_over() {
            pair.step();
            steps += 1;
            assert!(steps < 200_000, "seed {seed} does not end");
        }
        assert_eq!([pair.links[0].halves(), pair.links[1].halves()], [0, 0], "seed {seed}");
        assert!(pair.links.iter().all(|link| link.slab.len() == CHANNELS), "aliases are used again");
        for channel in 0..CHANNELS {
            let mut ends = [0, 1].map(|side| pair.ends[side][channel].take().unwrap());
            ends.iter_mut().for_each(|end| end.received.sort_unstable());
            assert_eq!(ends[0].received, ends[1].received, "seed {seed}, generation {generation}");
        }
    }
    pair.cuts
}

/// Each word arrives once and in order, and each offer is settled once and alike at both sides, however bytes
/// are split and cut.
#[test]
fn link_messages_survive_splits_and_cuts() {
    let seeds = std::env::var("DUNLIN_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(2_000);
    let cuts: usize = (0..seeds).map(run).sum();
    assert!(cuts as u64 > seeds);
}

fn frame(write: impl FnOnce(&mut BytesMut) -> Option<Bytes>) -> Bytes {
    let mut bytes = BytesMut::new();
    let piece = write(&mut bytes);
    bytes.extend(piece);
    bytes.freeze()
}

/// A word for the home, which has alias 0.
fn to_home(word: Word) -> Bytes {
    let total = word.value().map_or(0, Bytes::len);
    frame(|out| codec::write_word(Which::Sender, 0, word, total, out))
}

/// A word for the sending half, which has alias 1.
fn from_home(word: Word) -> Bytes {
    frame(|out| codec::write_word(Which::Receiver, 1, word, 0, out))
}

fn said(to: u32, said: Said) -> Bytes {
    frame(|out| {
        codec::write_said(to, said, out);
        None
    })
}

fn over(from: Which, to: u32) -> Bytes {
    frame(|out| {
        codec::write_over(from, to, out);
        None
    })
}

fn krill() -> Bytes {
    Bytes::from_static(b"krill")
}

fn offer(ticket: Ticket) -> Bytes {
    to_home(Word::Offer(ticket, krill()))
}

fn grant(ticket: Ticket, request: Request) -> Bytes {
    to_home(Word::Grant(ticket, request, krill()))
}

fn choice(ticket: Ticket) -> Bytes {
    to_home(Word::OfferChoice(ticket, 7))
}

/// The first piece of a value.
fn begin(total: usize) -> Bytes {
    frame(|out| codec::write_word(Which::Sender, 0, Word::Offer(1, krill()), total, out))
}

fn more(to: u32) -> Bytes {
    frame(|out| codec::write_more(to, krill(), out))
}

/// The result of the last of these frames. Before it, and behind each of the first frames, a half of the link
/// sends one of the words. The link has a home (alias 0) and a sending half (alias 1).
fn answer_to(frames: &[Bytes], words: &[(u32, Word)]) -> Result<Vec<(u32, Word)>, Violation> {
    let mut link = Link::new(config());
    assert_eq!([link.open(Which::Receiver, 0), link.open(Which::Sender, 1)], [0, 1]);
    [0, 1].into_iter().for_each(|alias| link.attach(alias));
    let read = |link: &mut Link, frame: &Bytes| {
        let mut words = Vec::new();
        link.receive(Time(1), &mut BytesMut::from(&frame[..]), &mut |alias, word| words.push((alias, word)))
            .map(|_| words)
    };
    read(&mut link, &said(9, Said::Attach { number: 0 })).unwrap();
    read(&mut link, &said(1, Said::Attached { alias: 9 })).unwrap();
    let mut words = words.iter();
    let (last, first) = frames.split_last().unwrap();
    let send = |link: &mut Link, (alias, word): &(u32, Word)| {
        link.send(*alias, word.clone());
        link.fill(Time(1), 1 << 20, &mut Vec::new());
    };
    for frame in first {
        words.next().into_iter().for_each(|word| send(&mut link, word));
        read(&mut link, frame).unwrap();
    }
    words.for_each(|word| send(&mut link, word));
    read(&mut link, last)
}

#[test]
fn home_rejects_frames_that_a_sending_half_cannot_send() {
    let gone = || to_home(Word::Ended(End::Gone));
    let withdraw = || to_home(Word::Withdraw(1));
    let refuse = || to_home(Word::Refuse(1));
    let revoke = || to_home(Word::Revoke(1));
    let sent = || to_home(Word::Sent(krill()));
    let reserved = [(0, Word::Taken(9)), (0, Word::Reserve(1, 4))];
    let rejected: Vec<Rejected<'_>> = vec![
        (vec![offer(3), offer(3)], &[], Misstep::TicketReused(3)),
        (vec![offer(3), choice(2)], &[], Misstep::TicketReused(2)),
        ((1..=33).map(offer).collect(), &[], Misstep::TooManyOffers { offers_max: 32 }),
        (vec![withdraw()], &[], Misstep::UnknownTicket(1)),
        (vec![refuse()], &[], Misstep::UnknownTicket(1)),
        (vec![revoke()], &[], Misstep::UnknownTicket(1)),
        (vec![grant(1, 1)], &[], Misstep::UnknownTicket(1)),
        (vec![offer(1), grant(1, 1)], &[], Misstep::NotAChoice(1)),
        (vec![offer(1), revoke()], &[], Misstep::NotAChoice(1)),
        (vec![choice(1), grant(1, 1)], &[], Misstep::NotAsked(1)),
        (vec![choice(1), refuse()], &[], Misstep::NotAsked(1)),
        (vec![choice(1), grant(1, 4), grant(1, 4)], &reserved, Misstep::NotAsked(1)),
        (vec![offer(1), withdraw(), withdraw()], &[], Misstep::WithdrawnTwice(1)),
        (vec![gone(), offer(1)], &[], Misstep::AfterEnd),
        (vec![gone(), gone()], &[], Misstep::AfterEnd),
        (vec![over(Which::Sender, 0), choice(1)], &[], Misstep::AfterEnd),
        (vec![sent()], &[], Misstep::NoPlace),
        (vec![sent()], &[(0, Word::Opened(None))], Misstep::NoPlace),
        (vec![sent(), sent(), sent()], &[(0, Word::Opened(Some(1))), (0, Word::Credit(1))], Misstep::NoPlace),
        (vec![frame(|out| codec::write_word(Which::Sender, 0, Word::Sent(krill()), 9, out))], &[], Misstep::NoPlace),
        (vec![offer(1)], &[(0, Word::Opened(Some(0)))], Misstep::HasPlaces(1)),
        (vec![choice(1)], &[(0, Word::Opened(Some(1)))], Misstep::HasPlaces(1)),
        (vec![gone(), sent()], &[(0, Word::Opened(Some(1)))], Misstep::AfterEnd),
    ];
    for (frames, words, misstep) in rejected {
        assert_eq!(answer_to(&frames, words), Err(Violation::Half { alias: 0, misstep }), "{frames:?}");
    }
}

#[test]
fn sending_half_rejects_frames_that_its_home_cannot_send() {
    let firm = [(1, Word::Offer(1, krill()))];
    let of_choice = [(1, Word::OfferChoice(1, 7))];
    let word = |word| vec![from_home(word)];
    let two = |one, other| vec![from_home(one), from_home(other)];
    let rejected: Vec<Rejected<'_>> = vec![
        (word(Word::Taken(1)), &[], Misstep::UnknownTicket(1)),
        (word(Word::Taken(1)), &of_choice, Misstep::NotGranted(1)),
        (word(Word::Held(1)), &of_choice, Misstep::NotGranted(1)),
        (word(Word::Abort(1)), &of_choice, Misstep::NotGranted(1)),
        (word(Word::Released(1)), &firm, Misstep::NotHeld(1)),
        (word(Word::Withdrawn(1)), &firm, Misstep::NotAsked(1)),
        (word(Word::Reserve(1, 4)), &firm, Misstep::NotAChoice(1)),
        (word(Word::Failed(2, Failure::Closed)), &firm, Misstep::UnknownTicket(2)),
        (two(Word::Taken(1), Word::Taken(1)), &firm, Misstep::Settled(1)),
        (two(Word::Held(1), Word::Taken(1)), &firm, Misstep::IsHeld(1)),
        (vec![over(Which::Receiver, 1), from_home(Word::Reserve(1, 4))], &of_choice, Misstep::AfterEnd),
        (two(Word::Opened(None), Word::Opened(Some(2))), &[], Misstep::OpenedTwice),
        (word(Word::Credit(1)), &[], Misstep::NoPlaces),
        (two(Word::Opened(None), Word::Credit(1)), &[], Misstep::NoPlaces),
    ];
    for (frames, words, misstep) in rejected {
        assert_eq!(answer_to(&frames, words), Err(Violation::Half { alias: 1, misstep }), "{frames:?}");
    }
}

#[test]
fn link_rejects_frames_that_fit_no_half() {
    let taken = |to| frame(|out| codec::write_word(Which::Receiver, to, Word::Taken(1), 0, out));
    let bytes = |bytes: &'static [u8]| vec![Bytes::from_static(bytes)];
    let attach = || said(1, Said::Attach { number: 5 });
    let too_large = Violation::ValueTooLarge { alias: 0, bytes: 300 << 20, bytes_max: 300 << 10 };
    let rejected = vec![
        (vec![taken(7)], Violation::UnknownAlias(7)),
        (vec![taken(0)], Violation::WrongDirection(0)),
        (vec![over(Which::Sender, 1)], Violation::WrongDirection(1)),
        (vec![attach(), attach()], Violation::AttachedTwice(5)),
        (vec![said(1, Said::Attached { alias: 3 })], Violation::AttachedTwice(1)),
        (vec![begin(9), choice(2)], Violation::WithinValue(0)),
        (vec![begin(9), over(Which::Sender, 0)], Violation::WithinValue(0)),
        (vec![more(0)], Violation::StrayPiece(0)),
        (vec![begin(6), more(0)], Violation::StrayPiece(0)),
        (vec![said(0, Said::Cut)], Violation::StrayPiece(0)),
        (vec![begin(300 << 20)], too_large),
        (vec![frame(|out| codec::write_word(Which::Sender, 0, Word::Ended(End::Lost), 0, out))], lost()),
        (bytes(b"\x02\x01\x46"), Violation::Acknowledged(70)),
        (bytes(b"\x30\x01\x00"), Violation::Wire(WireError::UnknownKind(0x30))),
        (bytes(b"\x12\x03\x01\x01\x00"), Violation::Wire(WireError::Trailing(1))),
        (bytes(b"\x19\x06\x01\x80\x80\x80\x80\x10"), too_many_places()),
    ];
    for (frames, why) in rejected {
        assert_eq!(answer_to(&frames, &[]), Err(why), "{frames:?}");
    }
    let mut link = Link::new(Config { attached_max: 1, ..config() });
    let both = [said(1, Said::Attach { number: 1 }), said(2, Said::Attach { number: 2 })].concat();
    let answer = link.receive(Time(1), &mut BytesMut::from(&both[..]), &mut |_, _| {});
    assert_eq!(answer, Err(Violation::TooManyHalves { halves_max: 1 }));
    assert_eq!(link.resume(1), Err(Violation::Acknowledged(1)));
}

fn too_many_places() -> Violation {
    Violation::Wire(WireError::Invalid { what: "a count of places", value: 1 << 32 })
}

fn lost() -> Violation {
    Violation::Wire(WireError::Invalid { what: "an end", value: 3 })
}

#[test]
fn crossed_frames_do_not_reach_the_half() {
    let withdraw = || to_home(Word::Withdraw(1));
    let held = |word| vec![(0, Word::Taken(9)), (0, word)];
    let reserved = |word| vec![(0, Word::Taken(9)), (0, Word::Reserve(1, 4)), (0, word)];
    let crossed = [
        (vec![offer(1), withdraw()], held(Word::Taken(1))),
        (vec![offer(1), withdraw()], held(Word::Held(1))),
        (vec![choice(1), offer(2), grant(1, 4)], reserved(Word::Failed(1, Failure::Closed))),
        (vec![choice(1), withdraw(), to_home(Word::Refuse(1))], held(Word::Reserve(1, 4))),
    ];
    for (frames, words) in crossed {
        assert_eq!(answer_to(&frames, &words), Ok(vec![]), "{frames:?}");
    }
}

/// Every frame is read as it was written, and its head is short.
#[test]
fn frames_are_read_as_they_were_written() {
    use codec::Heard;

    let poison = crate::wire::Poison { strength: 3, reason: "oil".to_owned() };
    let mut frames = Vec::new();
    let mut word = |from, word: Word| {
        let total = word.value().map_or(0, Bytes::len);
        frames.push((frame(|out| codec::write_word(from, 300, word.clone(), total, out)), Heard::Word(from, word)));
    };
    for sent in [
        Word::Offer(200, Bytes::new()),
        Word::Grant(200, 300, krill()),
        Word::Sent(krill()),
        Word::Sent(Bytes::new()),
        Word::OfferChoice(1 << 40, 7 << 80),
        Word::Withdraw(u64::MAX),
        Word::Revoke(0),
        Word::Refuse(128),
        Word::Ended(End::Poisoned(poison.clone())),
    ] {
        word(Which::Sender, sent);
    }
    for sent in [
        Word::Opened(None),
        Word::Opened(Some(0)),
        Word::Opened(Some(u32::MAX)),
        Word::Credit(u32::MAX),
        Word::Taken(1),
        Word::Held(127),
        Word::Released(128),
        Word::Withdrawn(1),
        Word::Reserve(1, u64::MAX),
        Word::Abort(5),
        Word::Failed(1, Failure::Poisoned(poison)),
        Word::Ended(End::Retired),
    ] {
        word(Which::Receiver, sent);
    }
    frames.extend([
        (said(300, Said::Attach { number: u64::MAX }), Heard::Attach { number: u64::MAX }),
        (said(300, Said::Attached { alias: 1 << 20 }), Heard::Attached { alias: 1 << 20 }),
        (said(300, Said::Cut), Heard::Cut),
        (said(300, Said::Over), Heard::Over(Which::Receiver)),
        (over(Which::Sender, 300), Heard::Over(Which::Sender)),
        (more(300), Heard::More(krill())),
    ]);
    for (bytes, heard) in frames {
        for length in 0..bytes.len() {
            assert!(matches!(codec::read(&mut BytesMut::from(&bytes[..length])), Ok(Front::Missing(1..))));
        }
        let mut buffer = BytesMut::from(&bytes[..]);
        assert_eq!(codec::read(&mut buffer), Ok(Front::Frame(300, heard)));
        assert!(buffer.is_empty());
    }
    assert_eq!(offer(3).len() - krill().len(), 5, "kind, length, alias, ticket, length of the value");
}
