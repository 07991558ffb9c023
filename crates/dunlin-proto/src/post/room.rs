//! How much a node may send to one mailbox of another node: as the sending node knows it, and as the node of
//! the mailbox does.

use crate::misbehaved::PeerMisbehaved;
use crate::planted::planted;
use crate::wire::limits::{POST_ROOM, POSTS_FIRST};

/// How many messages of one node a mailbox has room for, at most.
const POSTS_MAX: u32 = 512;

/// What this node may still send to a mailbox of another node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    posts: u32,
    bytes: u64,
    /// The other node has been asked for more.
    asked: bool,
    /// The random bits of the last message.
    bits: Option<u64>,
}

impl Default for Room {
    fn default() -> Self {
        Self { posts: POSTS_FIRST, bytes: POST_ROOM, asked: false, bits: None }
    }
}

impl Room {
    /// Whether there is room for a message that costs that many bytes.
    pub(crate) fn has(&self, cost: u64) -> bool {
        self.posts > 0 && self.bytes >= cost
    }

    /// Such a message is sent.
    pub(crate) fn spend(&mut self, cost: u64) {
        self.posts -= 1;
        self.bytes -= cost;
    }

    /// Whether the last message had other bits, or there was none: then the home may not know the schema.
    pub(crate) fn is_first(&mut self, bits: u64) -> bool {
        self.bits.replace(bits) != Some(bits)
    }

    pub(crate) fn grow(&mut self, posts: u32, bytes: u64) {
        self.posts = self.posts.saturating_add(posts);
        self.bytes = self.bytes.saturating_add(bytes);
        self.may_ask();
    }

    /// The other node has answered, or has given credit.
    pub(crate) fn may_ask(&mut self) {
        self.asked = false;
    }

    /// A message does not fit. `true`: the other node has to be asked.
    pub(crate) fn asks(&mut self) -> bool {
        !std::mem::replace(&mut self.asked, true)
    }
}

/// What a mailbox of this node has room for from one other node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Granted {
    /// What that node may still send.
    posts: u32,
    bytes: u64,
    /// What has become free and that node has not been told of.
    posts_free: u32,
    bytes_free: u64,
    /// How many messages the mailbox has room for, and how many once that node sends many.
    window: u32,
    window_max: u32,
    /// That node waits for room.
    asked: bool,
    /// What that node sends cannot be read here.
    pub(crate) is_unfit: bool,
}

impl Granted {
    /// For a mailbox with `posts_max` places.
    pub(crate) fn new(posts_max: u32) -> Self {
        Self {
            posts: POSTS_FIRST,
            bytes: POST_ROOM,
            posts_free: 0,
            bytes_free: 0,
            window: POSTS_FIRST,
            window_max: posts_max.clamp(POSTS_FIRST, POSTS_MAX),
            asked: false,
            is_unfit: false,
        }
    }

    /// A message begins to arrive.
    pub(crate) fn arrives(&mut self, mailbox: u64, cost: u64) -> Result<(), PeerMisbehaved> {
        let (posts_left, bytes_left) = (self.posts, self.bytes);
        let above = PeerMisbehaved::AbovePostRoom { mailbox, bytes: cost, bytes_left, posts_left };
        let left = posts_left.checked_sub(1).zip(bytes_left.checked_sub(cost));
        (self.posts, self.bytes) = left.ok_or(above)?;
        if self.posts < self.window / 2 && self.window < self.window_max {
            self.posts_free += self.window_max - self.window;
            self.window = self.window_max;
        }
        Ok(())
    }

    /// A message has been received, or dropped.
    pub(crate) fn received(&mut self, cost: u64) {
        self.posts_free += u32::from(!planted!(PlaceLost) || self.posts_free == 0);
        self.bytes_free += cost;
    }

    /// That node waits for room. `false`: it has asked before, and has not been answered.
    pub(crate) fn asks(&mut self) -> bool {
        !std::mem::replace(&mut self.asked, true)
    }

    /// What to allow that node now: all that is free, if that is a quarter, or if that node waits.
    pub(crate) fn grant(&mut self) -> Option<(u32, u64)> {
        let is_much = self.posts_free >= self.window / 4 || self.bytes_free >= POST_ROOM / 4;
        if self.posts_free == 0 || !(is_much || self.asked) {
            return None;
        }
        self.asked = false;
        let free = (std::mem::take(&mut self.posts_free), std::mem::take(&mut self.bytes_free));
        self.posts += free.0;
        self.bytes += free.1;
        Some(free)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_that_sends_few_messages_gets_a_quarter_back_at_once() {
        let mut granted = Granted::new(u32::MAX);
        for at in 1..=4 {
            granted.arrives(1, 200).unwrap();
            granted.received(200);
            assert_eq!(granted.grant(), (at == 4).then_some((4, 800)), "{at}");
        }
    }

    #[test]
    fn node_that_sends_many_messages_gets_all_places_of_the_mailbox() {
        for (posts_max, more) in [(u32::MAX, 496), (40, 24), (3, 0)] {
            let mut granted = Granted::new(posts_max);
            (0..9).for_each(|_| granted.arrives(1, 200).unwrap());
            assert_eq!(granted.grant(), (more > 0).then_some((more, 0)), "{posts_max}");
        }
    }

    #[test]
    fn sender_that_waits_gets_whatever_is_free() {
        let mut granted = Granted::new(16);
        granted.arrives(1, POST_ROOM).unwrap();
        let above = PeerMisbehaved::AbovePostRoom { mailbox: 1, bytes: 129, bytes_left: 0, posts_left: 15 };
        assert_eq!(granted.arrives(1, 129), Err(above));
        assert!(granted.asks() && !granted.asks());
        // It is answered when there is room.
        assert_eq!(granted.grant(), None);
        granted.received(POST_ROOM);
        assert_eq!(granted.grant(), Some((1, POST_ROOM)));
        granted.arrives(1, 200).unwrap();
        granted.received(200);
        assert_eq!(granted.grant(), None);
        assert!(granted.asks());
        assert_eq!(granted.grant(), Some((1, 200)));
    }

    #[test]
    fn both_sides_count_the_same_room() {
        let (mut room, mut granted) = (Room::default(), Granted::new(u32::MAX));
        for at in 0..5_000 {
            let cost = 128 + (at * 7919) % 20_000;
            while !room.has(cost) {
                room.asks();
                granted.asks();
                let (posts, bytes) = granted.grant().expect("everything has been received");
                room.grow(posts, bytes);
            }
            room.spend(cost);
            granted.arrives(1, cost).unwrap();
            granted.received(cost);
            if let Some((posts, bytes)) = granted.grant() {
                room.grow(posts, bytes);
            }
        }
    }
}
