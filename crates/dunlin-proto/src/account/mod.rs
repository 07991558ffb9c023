//! What one connection makes this node keep, in bytes, and the limits for that.
//!
//! Each value that arrives is charged to the [`Account`] of its connection, with its whole length, when it
//! begins. The charge is released when this node no longer keeps the value: it was taken, failed or was
//! withdrawn, or its channel or its connection is over.
//!
//! A value arrives in one of two ways. Within the *credit* that the other node has been given, it is sent
//! without asking, and uses the credit; released charges become new credit, sent in few frames. A larger
//! value is *announced* with its length, and sent once it is admitted: its whole length is reserved in the
//! [`Pool`] of the node before that.
//!
//! The pool has a limit for the whole node. Half of what a node can spare goes into credits beyond [`FLOOR`],
//! which each connection has whatever others hold. The rest is for announced values. A connection may reserve
//! as much as remains free after its reservation, and one value in any case, if there is room. So the first
//! of many cannot take it all, and the shares even out (dynamic thresholds: Choudhury and Hahne, 1998). The
//! last part is for sources that have little, since ids are free, and for values for which receives wait: a
//! value that is never received stays here for ever.

mod charge;
mod credit;
mod pool;

use std::collections::VecDeque;

use dunlin_sorted::SortedMap;

use crate::id::ChannelId;
use crate::misbehaved::PeerMisbehaved;
use crate::source::Source;
use crate::wire::{Kind, limits};
pub(crate) use charge::{Charge, Charges, FLOOR, HALF, Ledger, WATCH, Way, cost, may_stand};
pub(crate) use credit::Credit;
pub(crate) use pool::Pool;
use pool::{Need, Share};

/// How many bytes of answers to another node are not counted: they leave at once if that node reads.
const ANSWERS_FREE: u64 = 128 << 10;

/// Room for answers beyond that is taken in parts of this size.
const ANSWERS_PART: u64 = 64 << 10;

/// A value that the other node has announced.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Announced {
    pub(crate) number: u64,
    pub(crate) kind: Kind,
    pub(crate) bytes: u64,
    /// `None`: it waits.
    admitted: Option<Charge>,
    /// It is in a queue; otherwise it waits until its channel has room.
    queued: bool,
    /// A receive waits for it.
    awaited: bool,
    /// The home has been asked to report when one does.
    asked: bool,
}

impl Announced {
    pub(crate) fn new(number: u64, kind: Kind, bytes: u64) -> Self {
        // A granted value was requested.
        let awaited = kind == Kind::Grant;
        Self { number, kind, bytes, admitted: None, queued: false, awaited, asked: false }
    }
}

/// What is kept for the other node of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    /// Where the connection comes from.
    source: Source,
    /// How many bytes the other node may send without asking.
    credit: u64,
    /// How much of that has arrived and is still here.
    kept: u64,
    /// How much of `kept` is reserved in the pool instead: it stays here untaken, and more may arrive
    /// meanwhile.
    moved: u64,
    /// Announced values that are admitted or here.
    reserved: u64,
    /// For halves that are attached.
    halves: u64,
    /// For answers that the other node has not read.
    answers: u64,
    /// Credit and what is kept of it, as far as beyond the floor: taken from the pool.
    lent: u64,
    /// The intended sum of the two when credit was last given.
    window: u64,
    announced: SortedMap<ChannelId, Announced>,
    numbers: SortedMap<u64, ChannelId>,
    /// Values whose channels have room: first those for which a receive waits; then small ones, which need no
    /// room in the pool while the connection has some itself; then large ones.
    queues: [VecDeque<(ChannelId, u64)>; 3],
    /// The connection is in the queue that waits for the pool.
    pub(crate) waits: bool,
    /// How many values were admitted and are not complete.
    unarrived: usize,
}

impl Default for Account {
    fn default() -> Self {
        Self {
            source: Source::default(),
            credit: FLOOR,
            kept: 0,
            moved: 0,
            reserved: 0,
            halves: 0,
            answers: 0,
            lent: 0,
            window: FLOOR,
            announced: SortedMap::new(),
            numbers: SortedMap::new(),
            queues: Default::default(),
            waits: false,
            unarrived: 0,
        }
    }
}

impl Account {
    /// The connection comes from that source now, which is charged for everything kept for it.
    pub(crate) fn comes_from(&mut self, source: Source, pool: &mut Pool) {
        let before = std::mem::replace(&mut self.source, source);
        let mine = Share { reserved: self.in_pool(), lent: self.lent };
        if before != source && mine != Share::default() {
            pool.change(before, |share| {
                *share = Share { reserved: share.reserved - mine.reserved, lent: share.lent - mine.lent }
            });
            pool.change(source, |share| {
                *share = Share { reserved: share.reserved + mine.reserved, lent: share.lent + mine.lent }
            });
        }
    }

    /// The source of the connection.
    pub(crate) fn source(&self) -> Source {
        self.source
    }

    /// How much is reserved in the pool.
    fn in_pool(&self) -> u64 {
        self.reserved + self.halves + self.moved + self.answers
    }

    /// Charges a value that begins and was not announced.
    pub(crate) fn charge(&mut self, total: u64) -> Result<Charge, PeerMisbehaved> {
        let bytes = cost(total);
        let above = PeerMisbehaved::AboveCredit { bytes, bytes_left: self.credit };
        self.credit = self.credit.checked_sub(bytes).ok_or(above)?;
        self.kept += bytes;
        Ok(Charge::of_credit(total))
    }

    /// An announced value begins on this channel. `None`: none was announced there.
    pub(crate) fn begin(&mut self, channel: ChannelId, total: u64) -> Option<Result<Charge, PeerMisbehaved>> {
        if self.announced.is_empty() {
            return None;
        }
        let announced = self.announced.get(&channel)?;
        let Some(charge) = announced.admitted else {
            return Some(Err(PeerMisbehaved::NotAdmitted(announced.number)));
        };
        if announced.bytes != total {
            return Some(Err(PeerMisbehaved::LengthChanged { announced: announced.bytes, bytes: total }));
        }
        self.numbers.remove(&announced.number);
        self.announced.remove(&channel);
        Some(Ok(charge))
    }

    /// Whether a value that begins on this channel is charged as it arrives: it was admitted, or is within
    /// the credit. `false`: it was admitted because none of it is kept.
    pub(crate) fn covers(&self, channel: ChannelId, total: u64) -> Result<bool, PeerMisbehaved> {
        match self.announced.get(&channel) {
            Some(announced) if announced.bytes != total => {
                Err(PeerMisbehaved::LengthChanged { announced: announced.bytes, bytes: total })
            }
            Some(Announced { admitted: Some(charge), .. }) => Ok(*charge != Charge::NONE),
            Some(announced) => Err(PeerMisbehaved::NotAdmitted(announced.number)),
            None if cost(total) <= self.credit => Ok(true),
            None => Err(PeerMisbehaved::AboveCredit { bytes: cost(total), bytes_left: self.credit }),
        }
    }

    /// The value announced on this channel was admitted when none of it was to be kept, and now it is: takes
    /// room for it. `false`: there is none.
    pub(crate) fn keep_unkept(&mut self, channel: ChannelId, pool: &mut Pool) -> bool {
        let Some(announced) = self.announced.get(&channel) else { return false };
        let Some(charge) = self.reserve(announced.bytes, pool) else { return false };
        self.announced.get_mut(&channel).expect("it was just there").admitted = Some(charge);
        true
    }

    /// An admitted value is complete, or never will be.
    pub(crate) fn arrived(&mut self, charge: Charge) {
        if charge.way == Way::Reserved {
            self.unarrived -= 1;
        }
    }

    /// Whether admitted values have yet to arrive.
    pub(crate) fn awaits_values(&self) -> bool {
        self.unarrived > 0
    }

    /// Releases a charge. `true`: the pool has more room than before.
    pub(crate) fn give_back(&mut self, charge: Charge, pool: &mut Pool) -> bool {
        match charge.way {
            Way::Credit => {
                self.kept -= charge.bytes;
                let freed = self.moved.saturating_sub(self.kept);
                self.moved -= freed;
                pool.release(self.source, freed);
                self.settle(pool);
                freed > 0
            }
            Way::Reserved => {
                self.reserved -= charge.bytes;
                pool.release(self.source, charge.bytes);
                true
            }
            Way::Half => {
                self.halves -= charge.bytes;
                pool.release(self.source, charge.bytes);
                true
            }
        }
    }

    /// The sum that counts against the window.
    fn in_use(&self) -> u64 {
        self.credit + self.kept - self.moved
    }

    /// Adjusts what is lent: everything beyond the floor.
    fn settle(&mut self, pool: &mut Pool) {
        let lent = self.in_use().saturating_sub(FLOOR);
        if lent != self.lent {
            let before = std::mem::replace(&mut self.lent, lent);
            pool.lent = pool.lent - before + lent;
            pool.change(self.source, |share| share.lent = share.lent - before + lent);
        }
    }

    /// Whether there may be new credit to send.
    pub(crate) fn wants_credit(&self) -> bool {
        self.credit < self.window / 2 || (self.window > FLOOR && self.in_use() + self.window / 8 <= self.window)
    }

    /// New credit to send, if there is enough for a frame of its own; with `at_once`, if there is any.
    pub(crate) fn top_up(&mut self, at_once: bool, pool: &mut Pool) -> Option<u64> {
        // (A connection that carries little never gets beyond its floor.)
        if !at_once && self.credit >= self.window / 2 && self.window == FLOOR {
            return None;
        }
        let window = pool.target(self.source, self.lent);
        // Untaken values move to the pool step by step, as if they had been announced: announcing many small
        // values one by one would be slow.
        let part = window / 4;
        if self.credit < window / 2
            && self.kept - self.moved >= part
            && pool.reserve(self.source, self.reserved + self.moved, part, Need::Ahead)
        {
            self.moved += part;
            self.settle(pool);
        }
        let more = window.saturating_sub(self.in_use());
        if more == 0 || (!at_once && more < window / 8) {
            return None;
        }
        self.window = window;
        self.credit += more;
        self.settle(pool);
        Some(more)
    }

    /// Takes room for a half that attaches. `None`: there is none.
    pub(crate) fn attach(&mut self, pool: &mut Pool) -> Option<Charge> {
        self.keep(HALF, pool)
    }

    /// A process here is watched from there. `None`: there is no room.
    pub(crate) fn watch(&mut self, pool: &mut Pool) -> Option<Charge> {
        self.keep(WATCH, pool)
    }

    fn keep(&mut self, bytes: u64, pool: &mut Pool) -> Option<Charge> {
        pool.reserve(self.source, self.halves, bytes, Need::Beside).then(|| {
            self.halves += bytes;
            Charge { bytes, way: Way::Half }
        })
    }

    /// Counts the bytes of answers that wait for the other node to read them. `None`: there is no room for
    /// more. Otherwise whether the pool has more room than before.
    pub(crate) fn answers_wait(&mut self, bytes: u64, pool: &mut Pool) -> Option<bool> {
        let counted = bytes.saturating_sub(ANSWERS_FREE).next_multiple_of(ANSWERS_PART);
        if counted > self.answers {
            return pool.reserve(self.source, self.answers, counted - self.answers, Need::Beside).then(|| {
                self.answers = counted;
                false
            });
        }
        // Room for a short burst is kept, not released each time.
        let is_less = counted == 0 || counted + ANSWERS_PART < self.answers;
        let freed = if is_less { self.answers - counted } else { 0 };
        self.answers -= freed;
        pool.release(self.source, freed);
        Some(freed > 0)
    }

    /// A value arrives that was admitted when its channel had ended, but is now kept.
    pub(crate) fn reserve(&mut self, total: u64, pool: &mut Pool) -> Option<Charge> {
        let bytes = cost(total);
        pool.reserve(self.source, self.reserved + self.moved, bytes, Need::Awaited).then(|| {
            self.reserved += bytes;
            self.unarrived += 1;
            Charge { bytes, way: Way::Reserved }
        })
    }

    /// The other node announces a value.
    pub(crate) fn announce(
        &mut self,
        channel: ChannelId,
        number: u64,
        kind: Kind,
        bytes: u64,
    ) -> Result<(), PeerMisbehaved> {
        if self.announced.len() >= limits::ANNOUNCED {
            return Err(PeerMisbehaved::TooManyAnnounced { values_max: limits::ANNOUNCED });
        }
        if self.numbers.insert(number, channel).is_some() {
            return Err(PeerMisbehaved::AnnouncementInUse(number));
        }
        if self.announced.insert(channel, Announced::new(number, kind, bytes)).is_some() {
            return Err(PeerMisbehaved::AnnouncedTwice(number));
        }
        Ok(())
    }

    /// The announced value that waits on this channel.
    pub(crate) fn waits_on(&self, channel: ChannelId) -> Option<Announced> {
        if self.announced.is_empty() {
            return None;
        }
        self.announced.get(&channel).filter(|announced| announced.admitted.is_none()).copied()
    }

    /// The channel of this value has room for it.
    pub(crate) fn queue(&mut self, channel: ChannelId) {
        if let Some(announced) = self.announced.get_mut(&channel).filter(|announced| !announced.queued) {
            announced.queued = true;
            let nth = match announced.awaited {
                true => 0,
                false => 1 + usize::from(cost(announced.bytes) > FLOOR / 2),
            };
            let queue = &mut self.queues[nth];
            queue.push_back((channel, announced.number));
            if queue.len() > 2 * self.announced.len() + 64 {
                // Most have been recanted, behind one that has no room.
                queue.retain(|(channel, number)| {
                    self.announced
                        .get(channel)
                        .is_some_and(|announced| announced.number == *number && announced.admitted.is_none())
                });
            }
        }
    }

    /// Admits and charges the next value that has room: returns the number of its announcement.
    pub(crate) fn admit(&mut self, pool: &mut Pool) -> Option<u64> {
        let in_use = self.in_use();
        for nth in 0..self.queues.len() {
            while let Some((channel, number)) = self.queues[nth].front().copied() {
                let waits = |announced: &&mut Announced| announced.number == number && announced.admitted.is_none();
                let Some(announced) = self.announced.get_mut(&channel).filter(waits) else {
                    // It was recanted, or admitted because its channel is over, or admitted from another
                    // queue.
                    self.queues[nth].pop_front();
                    continue;
                };
                let bytes = cost(announced.bytes);
                let within_window = in_use.saturating_add(bytes) <= pool.target(self.source, self.lent);
                let charge = if within_window {
                    self.kept += bytes;
                    Charge { bytes, way: Way::Credit }
                } else if pool.reserve(self.source, self.reserved + self.moved, bytes, Need::of(announced.awaited)) {
                    self.reserved += bytes;
                    self.unarrived += 1;
                    Charge { bytes, way: Way::Reserved }
                } else {
                    break;
                };
                announced.admitted = Some(charge);
                self.queues[nth].pop_front();
                self.settle(pool);
                return Some(number);
            }
        }
        None
    }

    /// A receive waits for the value that is announced on this channel.
    pub(crate) fn awaited(&mut self, channel: ChannelId) {
        let waits = |announced: &&mut Announced| announced.admitted.is_none() && !announced.awaited;
        if let Some(announced) = self.announced.get_mut(&channel).filter(waits) {
            announced.awaited = true;
            if std::mem::take(&mut announced.queued) {
                self.queue(channel);
            }
        }
    }

    /// The value on this channel has no room now. Returns whether to report that, which happens once: it has
    /// more room if a receive waits.
    pub(crate) fn asks_awaited(&mut self, channel: ChannelId) -> bool {
        let waits = |announced: &&mut Announced| announced.admitted.is_none() && !announced.awaited;
        let announced = self.announced.get_mut(&channel).filter(waits);
        announced.is_some_and(|announced| !std::mem::replace(&mut announced.asked, true))
    }

    /// Whether a value waits for room in the pool.
    pub(crate) fn wants_room(&self) -> bool {
        self.queues.iter().any(|queue| !queue.is_empty())
    }

    /// Admits the value on this channel without room: its channel is over here, and none of it is kept.
    pub(crate) fn admit_unkept(&mut self, channel: ChannelId) -> Option<u64> {
        let announced = self.announced.get_mut(&channel).filter(|announced| announced.admitted.is_none())?;
        announced.admitted = Some(Charge::NONE);
        Some(announced.number)
    }

    /// The other node recants an announcement: returns what was reserved for it.
    pub(crate) fn recant(&mut self, number: u64) -> Result<(ChannelId, Charge), PeerMisbehaved> {
        let unknown = PeerMisbehaved::UnknownAnnouncement(number);
        let channel = self.numbers.remove(&number).ok_or(unknown)?;
        let announced = self.announced.remove(&channel).ok_or(unknown)?;
        Ok((channel, announced.admitted.unwrap_or(Charge::NONE)))
    }

    /// The connection is over: releases everything kept for it.
    pub(crate) fn close(&mut self, pool: &mut Pool) {
        pool.release(self.source, self.in_pool());
        (self.credit, self.kept, self.moved) = (0, 0, 0);
        self.settle(pool);
        *self = Self { source: self.source, ..Self::default() };
    }

    /// How many bytes are kept for the other node, or reserved.
    pub(crate) fn held(&self) -> u64 {
        self.kept + self.reserved + self.halves + self.answers
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::config::Config;

    const MB: u64 = 1 << 20;
    const NODES: usize = 3;

    fn pool() -> Pool {
        let mut config = Config::new("account");
        (config.value_max, config.credit_max, config.held_max) = (MB as usize, MB as usize, 16 * MB);
        Pool::new(&config)
    }

    #[derive(Clone, Debug)]
    enum Event {
        Value(usize, u64),
        Announce(usize, u128, u64),
        Begin(usize, u128),
        Recant(usize, u64),
        Attach(usize),
        Answers(usize, u64),
        GiveBack(usize, usize),
        ComesFrom(usize, u8),
        Close(usize),
    }

    fn event() -> impl Strategy<Value = Event> {
        let node = 0..NODES;
        let size = prop_oneof![0..100_u64, 10_000..100_000_u64, 0..=MB];
        prop_oneof![
            8 => (node.clone(), size.clone()).prop_map(|(node, total)| Event::Value(node, total)),
            6 => (node.clone(), 0..8_u128, size).prop_map(|(node, channel, total)| Event::Announce(node, channel, total)),
            6 => (node.clone(), 0..8_u128).prop_map(|(node, channel)| Event::Begin(node, channel)),
            2 => (node.clone(), 0..40_u64).prop_map(|(node, number)| Event::Recant(node, number)),
            2 => node.clone().prop_map(Event::Attach),
            2 => (node.clone(), 0..4 * MB).prop_map(|(node, bytes)| Event::Answers(node, bytes)),
            10 => (node.clone(), 0..50_usize).prop_map(|(node, nth)| Event::GiveBack(node, nth)),
            2 => (node.clone(), 0..2_u8).prop_map(|(node, host)| Event::ComesFrom(node, host)),
            1 => node.prop_map(Event::Close),
        ]
    }

    /// An account, what was charged to it, and the announced values.
    #[derive(Default)]
    struct One {
        account: Account,
        charges: Vec<Charge>,
        announced: BTreeMap<ChannelId, u64>,
        next: u64,
    }

    impl One {
        fn check(&self) {
            let admitted = self.account.announced.values().filter_map(|announced| announced.admitted);
            let charged: u64 = self.charges.iter().copied().chain(admitted).map(|charge| charge.bytes).sum();
            assert_eq!(self.account.held(), charged + self.account.answers);
        }
    }

    fn check(all: &[One], pool: &Pool) {
        all.iter().for_each(One::check);
        let sum = |f: fn(&Account) -> u64| all.iter().map(|one| f(&one.account)).sum::<u64>();
        assert_eq!(pool.held(), sum(Account::in_pool) + sum(|a| a.lent));
        for from in pool.shares.keys() {
            let of = |f: fn(&Account) -> u64| {
                all.iter().filter(|one| one.account.source == *from).map(|one| f(&one.account)).sum()
            };
            assert_eq!(pool.shares[from], Share { reserved: of(Account::in_pool), lent: of(|a| a.lent) });
        }
        assert!(pool.reserved <= pool.reserved_max && pool.lent <= pool.lent_max, "{pool:?}");
        // Whatever others hold, a connection has its floor: half of it has to be used before it gets more.
        assert!(all.iter().all(|one| one.account.in_use() >= FLOOR / 2));
        // The window is as large as the largest value, and the last one may exceed what is left of it.
        let most = all.iter().map(|one| one.account.in_use()).max().unwrap_or_default();
        assert!(most <= MB + cost(MB), "{most} bytes in use");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn charges_return_to_the_pool_in_full(events in prop::collection::vec(event(), 1..300)) {
            let mut pool = pool();
            let mut all: Vec<One> = (0..NODES).map(|_| One::default()).collect();
            for event in events {
                match event {
                    Event::Value(node, total) => {
                        let one = &mut all[node];
                        one.charges.extend(one.account.charge(total));
                        one.account.top_up(false, &mut pool);
                    }
                    Event::Announce(node, channel, total) => {
                        let one = &mut all[node];
                        let (channel, number) = (ChannelId(channel), one.next);
                        if one.announced.contains_key(&channel) {
                            continue;
                        }
                        one.next += 1;
                        one.account.announce(channel, number, Kind::Offer, total).unwrap();
                        one.announced.insert(channel, total);
                        one.account.queue(channel);
                        one.account.admit(&mut pool);
                        one.account.top_up(true, &mut pool);
                    }
                    Event::Begin(node, channel) => {
                        let one = &mut all[node];
                        let channel = ChannelId(channel);
                        let Some(total) = one.announced.get(&channel) else { continue };
                        if let Some(Ok(charge)) = one.account.begin(channel, *total) {
                            one.account.arrived(charge);
                            one.announced.remove(&channel);
                            one.charges.push(charge);
                        }
                    }
                    Event::Recant(node, number) => {
                        let one = &mut all[node];
                        if let Ok((channel, charge)) = one.account.recant(number) {
                            one.account.arrived(charge);
                            one.announced.remove(&channel);
                            one.account.give_back(charge, &mut pool);
                            one.account.top_up(false, &mut pool);
                        }
                    }
                    Event::Attach(node) => {
                        let one = &mut all[node];
                        one.charges.extend(one.account.attach(&mut pool));
                    }
                    Event::Answers(node, bytes) => {
                        let account = &mut all[node].account;
                        if account.answers_wait(bytes, &mut pool).is_some() {
                            prop_assert!(account.answers + ANSWERS_FREE >= bytes);
                        }
                    }
                    Event::GiveBack(node, nth) => {
                        let one = &mut all[node];
                        if !one.charges.is_empty() {
                            let charge = one.charges.swap_remove(nth % one.charges.len());
                            one.account.give_back(charge, &mut pool);
                            one.account.top_up(false, &mut pool);
                        }
                    }
                    Event::ComesFrom(node, host) => {
                        all[node].account.comes_from(Source::V4([10, 0, 0, host]), &mut pool);
                    }
                    Event::Close(node) => {
                        all[node].account.close(&mut pool);
                        all[node] = One::default();
                    }
                }
                check(&all, &pool);
            }
            for one in &mut all {
                for charge in std::mem::take(&mut one.charges) {
                    one.account.give_back(charge, &mut pool);
                }
                for number in 0..one.next {
                    if let Ok((_, charge)) = one.account.recant(number) {
                        one.account.arrived(charge);
                        one.account.give_back(charge, &mut pool);
                    }
                }
                one.account.top_up(false, &mut pool);
                one.account.answers_wait(0, &mut pool);
            }
            check(&all, &pool);
            for one in &all {
                prop_assert_eq!((one.account.held(), one.account.awaits_values()), (0, false));
            }
            prop_assert_eq!(pool.reserved, 0);
            for one in &mut all {
                one.account.close(&mut pool);
            }
            prop_assert!(pool.lent == 0 && pool.shares.is_empty(), "{:?}", pool);
        }
    }

    #[test]
    fn recanted_announcements_leave_nothing_in_a_queue_without_room() {
        let (mut pool, mut account) = (pool(), Account::default());
        // The first that waits has no room.
        for channel in 0..100 {
            account.announce(ChannelId(channel), channel as u64, Kind::Offer, MB).unwrap();
            account.queue(ChannelId(channel));
            account.admit(&mut pool);
        }
        for number in 1000..100_000 {
            account.announce(ChannelId(1000), number, Kind::Offer, MB).unwrap();
            account.queue(ChannelId(1000));
            assert_eq!(account.recant(number).unwrap().1, Charge::NONE);
        }
        let queued: usize = account.queues.iter().map(VecDeque::len).sum();
        assert!(queued < 400, "{queued}");
    }

    #[test]
    fn no_connection_takes_the_whole_pool() {
        let mut pool = pool();
        let max = pool.reserved_max;
        let fill = |pool: &mut Pool, host: u8| {
            let mut account = Account { source: Source::V4([10, 0, 0, host]), ..Account::default() };
            let mut number = 0;
            loop {
                account.announce(ChannelId(number.into()), number, Kind::Offer, MB).unwrap();
                account.queue(ChannelId(number.into()));
                if account.admit(pool).is_none() {
                    return account.held();
                }
                number += 1;
            }
        };
        let shares: Vec<u64> = (0..4).map(|host| fill(&mut pool, host)).collect();
        // A half, a quarter, and so on; and one value in any case if there is room.
        assert!(shares[0] <= max / 2 && shares[1] <= max / 4 + MB, "{shares:?} of {max}");
        assert!(shares[2] >= MB, "{shares:?} of {max}");
    }
}
