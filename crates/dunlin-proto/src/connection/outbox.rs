//! What a connection has to send, in two lanes, and what it may have to send again.
//!
//! A numbered frame gets its number when it is first written, not when it is queued. So control frames
//! overtake waiting values, and there is still only one sequence to resume.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::{Buf, Bytes, BytesMut};
use dunlin_sorted::{SortedMap, SortedSet};

use super::window::Window;
use crate::account::{Credit, cost};
use crate::config::Config;
use crate::id::{ChannelId, Ticket};
use crate::planted::planted;
use crate::post::queue::Queue;
use crate::time::Time;
use crate::wire::{Frame, Head, Memory, Post, Relay, Signal, ToHome, codec, limits};

/// A numbered frame that has been written and not been acknowledged.
#[derive(Clone, Debug)]
struct Written {
    head: Bytes,
    /// A piece of a value that was not copied behind its head.
    piece: Option<Bytes>,
}

impl Written {
    /// The frame.
    fn read(&self) -> Option<Frame> {
        let mut bytes = BytesMut::from(&self.head[..]);
        bytes.extend(self.piece.iter().flatten());
        let Ok(codec::Next::Frame { head, .. }) = codec::next(&bytes) else { return None };
        let kind = bytes[0];
        codec::decode(kind, bytes.split_off(head).freeze()).ok()
    }

    fn len(&self) -> usize {
        self.head.len() + self.piece.as_ref().map_or(0, Bytes::len)
    }

    /// How many bytes it takes if it is an answer to the other node.
    fn answer(&self) -> usize {
        weight(self.head[0], self.head.len())
    }
}

/// Frames that wait in the control lane, as they will be written, and about how many bytes the answers to the
/// other node among them will take.
#[derive(Clone, Debug, Default)]
struct Control {
    bytes: BytesMut,
    lengths: VecDeque<u32>,
    answers: usize,
}

impl Control {
    fn push(&mut self, frame: &Frame) {
        let start = self.bytes.len();
        let piece = codec::encode(frame, &mut self.bytes);
        debug_assert!(piece.is_none(), "only values have pieces");
        let length = self.bytes.len() - start;
        self.answers += weight(self.bytes[start], length);
        self.lengths.push_back(u32::try_from(length).expect("a frame is short"));
    }

    /// Moves the next frame to `out`. `false`: there is none.
    fn pop(&mut self, out: &mut BytesMut) -> bool {
        let Some(length) = self.lengths.pop_front() else { return false };
        let length = length as usize;
        self.answers -= weight(self.bytes[0], length);
        out.extend_from_slice(&self.bytes[..length]);
        if self.lengths.is_empty() {
            self.bytes.clear();
        } else {
            self.bytes.advance(length);
        }
        true
    }

    /// The next frame, for models.
    #[cfg(feature = "model")]
    fn pop_frame(&mut self) -> Option<Frame> {
        let mut head = BytesMut::new();
        if !self.pop(&mut head) {
            return None;
        }
        Written { head: head.freeze(), piece: None }.read()
    }

    fn len(&self) -> usize {
        self.lengths.len()
    }

    fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }
}

/// How many bytes a frame of this kind and length takes until it is acknowledged, if it is an answer to the
/// other node.
fn weight(kind: u8, length: usize) -> usize {
    if codec::is_answer(kind) { size_of::<Written>() + length } else { 0 }
}

/// Whether a home reports that a value is taken, for a planted fault.
fn is_taken(bytes: &[u8]) -> bool {
    let frame = Written { head: Bytes::copy_from_slice(bytes), piece: None }.read();
    matches!(frame, Some(Frame::FromHome(_, crate::wire::FromHome::Taken(_))))
}

/// The same for a signal, which is written later.
fn weight_of_signal(frame: &Frame) -> usize {
    let mut bytes = BytesMut::new();
    codec::encode(frame, &mut bytes);
    weight(bytes[0], bytes.len())
}

/// The frames that one channel waits to send.
#[derive(Clone, Debug, Default)]
struct Stream {
    /// Distinguishes it from earlier streams of this channel.
    born: u64,
    /// How many frames of `waiting` have been taken out to be written.
    begun: u64,
    /// The rest of a value whose head has been written.
    rest: Option<(Head, Bytes)>,
    /// Set if the value in front of `waiting` is not within the credit.
    announced: Option<Announced>,
    waiting: VecDeque<ToHome>,
    /// What the waiting values sent on credits cost.
    queued: u64,
}

/// A value that waits for the other node to have room.
#[derive(Clone, Copy, Debug)]
struct Announced {
    number: u64,
    /// It may be sent. Until then its stream has no turns.
    admitted: bool,
}

/// What a channel had to send when it was [marked](Outbox::mark), and has not been written.
#[derive(Clone, Debug)]
pub(crate) enum Unwritten {
    /// Written once `begun` frames have been begun, and the last of them is complete.
    Channel { channel: ChannelId, born: u64, begun: u64 },
    /// Messages for mailboxes: see [`Queue::mark`].
    Posts(u64),
}

/// Bytes of a relayed socket that wait to be sent. They are copied together, so that many small pieces from a
/// peer take no more memory than their bytes.
#[derive(Clone, Debug, Default)]
struct Relayed {
    bytes: BytesMut,
    /// The stream ends after these bytes.
    ended: bool,
}

/// A sender of frames that takes turns with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Speaker {
    Channel(ChannelId),
    Relayed(u64),
    Posts,
}

/// Small frames are written into pieces of this many bytes...
pub(crate) const PAGE: usize = 4 << 10;
/// ... until less is left. A frame that needs more takes a piece of its own.
pub(crate) const PAGE_MIN: usize = 256;

/// For how many frames of a stream room is kept for the next stream.
const SPARE_MAX: usize = 8;

/// How many bytes of values sent on credits may be queued for one connection, and how many of messages for
/// mailboxes.
pub(crate) fn queued_max(config: &Config) -> u64 {
    2 * config.unacked_max as u64
}

/// How much of that each channel may have, however much others have.
fn queued_min(config: &Config) -> u64 {
    (queued_max(config) / 128).max(1)
}

/// A value of at most this many bytes is small.
pub(crate) const SMALL: usize = 1 << 10;

/// Whether it hardly delays others.
fn is_small(said: &ToHome) -> bool {
    !matches!(said, ToHome::Value { first, .. } if first.len() > SMALL)
}

/// Whether the connection carries, in both directions, only large values of one channel.
#[derive(Clone, Debug, Default)]
pub(crate) struct Company {
    /// The channels that sent last at this side and at the other, and when.
    last: [Option<(ChannelId, Time)>; 2],
    /// When another channel last had traffic.
    at: Time,
    pub(crate) is_alone: bool,
}

impl Company {
    pub(crate) fn meet(&mut self, now: Time, said_here: bool, channel: ChannelId, small: bool, config: &Config) {
        let before = self.last[usize::from(said_here)].replace((channel, now));
        if small || before.is_some_and(|(other, at)| other != channel && now.since(at) < config.company) {
            self.at = now;
        }
        self.is_alone = now.since(self.at) >= config.company;
    }

    /// A frame that may be of any channel.
    fn meet_others(&mut self, now: Time) {
        (self.at, self.is_alone) = (now, false);
    }
}

/// The outcome of recalling a value from the outbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recalled {
    /// It has not been sent, at least not all of it: the other side does not have it.
    Unsent,
    /// All of it has been written.
    Sent,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Outbox {
    control: Control,
    streams: SortedMap<ChannelId, Stream>,
    /// How many streams there have been.
    born: u64,
    /// The channel of the stream that finished last. It stays until another one finishes: a channel that
    /// sends one value after another begins no new stream for each.
    idle: Option<ChannelId>,
    /// The empty queue of an earlier one, for reuse.
    spare: VecDeque<ToHome>,
    relayed: SortedMap<u64, Relayed>,
    /// Messages for mailboxes.
    posts: Queue,
    /// The channels, relayed sockets and messages for mailboxes with something to send, in the order of their
    /// turns...
    turns: VecDeque<Speaker>,
    /// ... and those that have just begun, with something small. They alternate with the others.
    newcomers: VecDeque<Speaker>,
    /// The last turn was a newcomer's.
    others_wait: bool,
    written: VecDeque<Written>,
    written_bytes: usize,
    /// How many bytes the answers to the other node among `written` take.
    written_answers: usize,
    /// The number of the first frame in `written`.
    acked: u64,
    /// How many of `written` have been written to the present socket.
    current: usize,
    window: Window,
    company: Company,
    /// The caller writes more at once than others should have to wait for.
    is_roomy: bool,
    goodbye: Goodbye,
    /// What may be sent without an announcement.
    credit: Credit,
    /// The channels of announced values, by the numbers of the announcements.
    announced: SortedMap<u64, ChannelId>,
    announcements: u64,
    /// How many channels have no turns until their values are admitted...
    parked: usize,
    /// ... and which of them have yet to announce theirs, since too many announcements are open.
    unannounced: VecDeque<ChannelId>,
    /// What the waiting values sent on credits cost, in all streams.
    queued: u64,
    /// The channels whose senders wait until less is queued.
    short: SortedSet<ChannelId>,
    /// Of those, the channels whose streams have become short enough.
    roomy: Vec<ChannelId>,
    /// When no more than this is queued, all of `short` may have room.
    roomy_below: u64,
    /// Room for small frames.
    page: BytesMut,
    /// An empty buffer, kept for its capacity.
    numbered: Vec<Range<usize>>,
}

/// A leaving node sends its goodbye after everything else, and then nothing more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Goodbye {
    #[default]
    No,
    ToSay,
    Said,
}

impl Outbox {
    pub(crate) fn push(&mut self, frame: Frame) {
        match frame {
            Frame::ToHome(channel, said) => {
                // These concern frames already written, and must not wait behind a parked value.
                if self.parked > 0 && matches!(said, ToHome::Withdraw(_) | ToHome::Revoke(_)) && self.is_parked(channel)
                {
                    return self.control.push(&Frame::ToHome(channel, said));
                }
                let mut begins = self.idle.take_if(|idle| *idle == channel).is_some();
                let stream = self.streams.get_or_insert_with(channel, || {
                    begins = true;
                    Stream { waiting: std::mem::take(&mut self.spare), ..Stream::default() }
                });
                if begins {
                    self.born += 1;
                    (stream.born, stream.begun) = (self.born, 0);
                    if is_small(&said) { &mut self.newcomers } else { &mut self.turns }
                        .push_back(Speaker::Channel(channel));
                }
                if let ToHome::Value { head: Head::Sent, total, .. } = &said {
                    stream.queued += cost(*total);
                    self.queued += cost(*total);
                }
                stream.waiting.push_back(said);
            }
            Frame::Relay(Relay::Bytes { stream, piece }) => {
                self.relayed(stream, piece.len()).bytes.extend_from_slice(&piece);
            }
            Frame::Relay(Relay::End { stream }) => self.relayed(stream, 0).ended = true,
            Frame::Post(Post::Message { to, first: message, .. }) => {
                if self.posts.is_empty() {
                    if message.len() <= SMALL { &mut self.newcomers } else { &mut self.turns }
                        .push_back(Speaker::Posts);
                }
                self.posts.push(to, message);
            }
            Frame::Signal(signal) => {
                if self.posts.is_empty() {
                    self.newcomers.push_back(Speaker::Posts);
                }
                let is_answer = matches!(*signal, Signal::Down { .. });
                let frame = Frame::Signal(signal);
                let answers = if is_answer { weight_of_signal(&frame) } else { 0 };
                self.posts.push_signal(frame, answers);
            }
            Frame::Goodbye if !planted!(GoodbyeFirst) => self.goodbye = Goodbye::ToSay,
            control => self.control.push(&control),
        }
    }

    /// What waits for this relayed socket, to which a piece of `bytes` bytes is added.
    fn relayed(&mut self, stream: u64, bytes: usize) -> &mut Relayed {
        self.relayed.get_or_insert_with(stream, || {
            if bytes <= SMALL { &mut self.newcomers } else { &mut self.turns }.push_back(Speaker::Relayed(stream));
            Relayed::default()
        })
    }

    /// How many bytes of this relayed socket have not been written.
    pub(crate) fn unsaid_of(&self, stream: u64) -> usize {
        self.relayed.get(&stream).map_or(0, |relayed| relayed.bytes.len())
    }

    /// How many channels, control frames and messages for mailboxes wait to be written.
    pub(crate) fn unsaid(&self) -> usize {
        self.streams.len() - usize::from(self.idle.is_some()) + self.control.len() + self.posts.len()
    }

    /// How many messages for mailboxes, and signals, wait to be written.
    pub(crate) fn posts_waiting(&self) -> usize {
        self.posts.len()
    }

    /// How many frames wait in the control lane.
    pub(crate) fn control_waiting(&self) -> usize {
        self.control.len()
    }

    /// Recalls an offer that may not have been sent yet.
    pub(crate) fn recall(&mut self, channel: ChannelId, ticket: Ticket) -> Recalled {
        self.take_back(
            channel,
            |head| matches!(head, Head::Offer(t) | Head::Unread(t) if *t == ticket),
            |said| matches!(said, ToHome::OfferChoice(t, _) if *t == ticket),
        )
    }

    /// Recalls a granted value that may not have been sent yet.
    pub(crate) fn recall_grant(&mut self, channel: ChannelId, ticket: Ticket) -> Recalled {
        let is_it = |head: &Head| matches!(head, Head::Grant(t, _) | Head::GrantUnread(t, _) if *t == ticket);
        self.take_back(channel, is_it, |_| false)
    }

    fn take_back(
        &mut self,
        channel: ChannelId,
        is_value: impl Fn(&Head) -> bool,
        is_other: impl Fn(&ToHome) -> bool,
    ) -> Recalled {
        let Some(stream) = self.streams.get_mut(&channel) else { return Recalled::Sent };
        if matches!(&stream.rest, Some((begun, _)) if is_value(begun)) {
            stream.rest = None;
            self.control.push(&Frame::Cut(channel));
            return Recalled::Unsent;
        }
        let position = stream.waiting.iter().position(|said| match said {
            ToHome::Value { head, .. } => is_value(head),
            other => is_other(other),
        });
        let Some(at) = position else { return Recalled::Sent };
        stream.waiting.remove(at);
        if at == 0
            && let Some(announced) = stream.announced.take()
        {
            if !announced.admitted {
                // The frames behind it may be within the credit.
                self.parked -= 1;
                self.turns.push_back(Speaker::Channel(channel));
            }
            self.unannounced.retain(|other| *other != channel);
            if announced.admitted || self.announced.remove(&announced.number).is_some() {
                self.control.push(&Frame::Memory(Memory::Recant(announced.number)));
            }
        }
        Recalled::Unsent
    }

    fn is_parked(&self, channel: ChannelId) -> bool {
        self.streams.get(&channel).is_some_and(|stream| stream.announced.is_some_and(|announced| !announced.admitted))
    }

    /// How many more bytes of values sent on credits may be queued for this channel. All channels share twice
    /// the limit of unacknowledged bytes. The fuller the queue, the less each channel may have (see
    /// [`crate::account`]), but always a little.
    pub(crate) fn room_for(&self, channel: ChannelId, config: &Config) -> u64 {
        let mine = self.streams.get(&channel).map_or(0, |stream| stream.queued);
        let share = queued_max(config).saturating_sub(self.queued);
        share.max(queued_min(config)).saturating_sub(mine)
    }

    /// The sender of this channel waits until less is queued.
    pub(crate) fn is_short(&mut self, channel: ChannelId, config: &Config) {
        if self.short.is_empty() {
            self.roomy_below = self.queued.saturating_sub(queued_max(config) / 16);
        }
        self.short.insert(channel);
    }

    /// The channels that [wait](Self::is_short) and may have room now. They stop waiting.
    pub(crate) fn now_roomy(&mut self) -> Vec<ChannelId> {
        if self.short.is_empty() {
            return Vec::new();
        }
        if self.queued <= self.roomy_below {
            self.roomy.clear();
            return std::mem::take(&mut self.short).into_iter().collect();
        }
        let roomy = std::mem::take(&mut self.roomy);
        roomy.into_iter().filter(|channel| self.short.remove(channel)).collect()
    }

    /// Bytes of values sent on credits that have not been written.
    pub(crate) fn queued(&self) -> u64 {
        self.queued
    }

    /// Takes the credit for a message of that many bytes. `false`: there is not enough.
    pub(crate) fn spend_credit(&mut self, bytes: u64) -> bool {
        self.credit.spend(bytes)
    }

    /// What the messages for mailboxes cost of which nothing has been written.
    pub(crate) fn queued_posts(&self) -> u64 {
        self.posts.bytes()
    }

    /// Adds to the credit that the other node gives.
    pub(crate) fn grow_credit(&mut self, bytes: u64) {
        self.credit.grow(bytes);
    }

    /// An announced value may be sent. `false`: it was recalled.
    pub(crate) fn admitted(&mut self, number: u64) -> bool {
        let Some(channel) = self.announced.remove(&number) else { return false };
        if let Some(channel) = self.unannounced.pop_front() {
            self.announce_next(channel);
        }
        let Some(stream) = self.streams.get_mut(&channel) else { return false };
        stream.announced = Some(Announced { number, admitted: true });
        self.parked -= 1;
        self.turns.push_back(Speaker::Channel(channel));
        true
    }

    /// Announces the value in front of this stream, which waits for the other node, unless too many
    /// announcements are open.
    fn announce_next(&mut self, channel: ChannelId) {
        let Some(stream) = self.streams.get_mut(&channel) else { return };
        let Some(ToHome::Value { head, total, .. }) = stream.waiting.front() else { return };
        if self.announced.len() >= limits::ANNOUNCED {
            return self.unannounced.push_back(channel);
        }
        let number = stream.announced.map_or(0, |announced| announced.number);
        self.announced.insert(number, channel);
        let said = Memory::Announce { number, channel, kind: head.kind(), total: *total };
        self.control.push(&Frame::Memory(said));
    }

    /// The value in front of this channel's stream may not be written yet: announces it, and the stream has
    /// no turns until it is admitted.
    fn park(&mut self, channel: ChannelId) {
        let Some(stream) = self.streams.get_mut(&channel) else { return };
        stream.announced = Some(Announced { number: self.announcements, admitted: false });
        self.announcements += 1;
        self.parked += 1;
        self.announce_next(channel);
    }

    /// Whether no byte of this offer has been written.
    pub(crate) fn is_unsent(&self, channel: ChannelId, ticket: Ticket) -> bool {
        self.streams.get(&channel).is_some_and(|stream| {
            stream.waiting.iter().any(|said| match said {
                ToHome::Value { head: Head::Offer(t) | Head::Unread(t), .. } | ToHome::OfferChoice(t, _) => {
                    *t == ticket
                }
                _ => false,
            }) || matches!(&stream.rest, Some((Head::Offer(t) | Head::Unread(t), _)) if *t == ticket)
        })
    }

    /// Appends what may be written now to `out`, about `room` bytes; `moment` goes first. Returns how many
    /// bytes.
    pub(crate) fn fill(
        &mut self,
        now: Time,
        moment: Option<Frame>,
        config: &Config,
        room: usize,
        out: &mut Vec<Bytes>,
    ) -> usize {
        let before = self.acked + self.written.len() as u64;
        self.is_roomy = room > config.chunk_alone;
        if self.page.capacity() < PAGE_MIN {
            self.page.reserve(PAGE);
        }
        let mut page =
            Page { bytes: std::mem::take(&mut self.page), numbered: std::mem::take(&mut self.numbered), total: 0 };
        if let Some(frame) = moment {
            // A frame without a number never carries a piece of a value.
            codec::encode(&frame, &mut page.bytes);
            page.total = page.bytes.len();
        }
        if self.current < self.written.len() {
            page.flush(self, out);
        }
        while page.total < room && self.current < self.written.len() {
            let again = &self.written[self.current];
            out.push(again.head.clone());
            out.extend(again.piece.clone());
            page.total += again.len();
            self.current += 1;
        }
        while page.total < room && self.goodbye != Goodbye::Said {
            let start = page.bytes.len();
            let piece = if self.control.pop(&mut page.bytes) {
                None
            } else {
                let frame = match self.next_of_channels(start, config, room) {
                    Some(frame) => {
                        self.meets(now, true, &frame, config);
                        frame
                    }
                    // Values that may not be sent yet have been announced in the control lane.
                    None if !self.control.is_empty() => continue,
                    None if self.goodbye == Goodbye::ToSay && self.are_quiet() => {
                        self.goodbye = Goodbye::Said;
                        Frame::Goodbye
                    }
                    None => break,
                };
                codec::encode(&frame, &mut page.bytes)
            };
            if planted!(TakenUnnumbered) && is_taken(&page.bytes[start..]) {
                page.total += page.bytes.len() - start;
                continue;
            }
            page.numbered.push(start..page.bytes.len());
            page.total += page.bytes.len() - start;
            if let Some(piece) = piece {
                page.flush(self, out);
                page.total += piece.len();
                self.written_bytes += piece.len();
                self.written.back_mut().expect("its head was just written").piece = Some(piece.clone());
                out.push(piece);
            }
        }
        page.flush(self, out);
        self.page = page.bytes;
        let count = self.acked + self.written.len() as u64;
        if count > before {
            self.window.written(now, count, self.written_bytes, !self.turns.is_empty(), config);
        }
        self.numbered = page.numbered;
        page.total
    }

    /// Whether values may be written, with `in_hand` bytes not flushed yet; and whether small frames may:
    /// newcomers have a little more room.
    fn room(&self, in_hand: usize, config: &Config) -> (bool, bool) {
        let (on_its_way, window) = (self.written_bytes + in_hand, self.window.bytes(self.is_undisturbed(), config));
        let small = window.saturating_add(config.chunk).min(config.unacked_max.max(window));
        (on_its_way < window, on_its_way < small)
    }

    /// Updates which channels use the connection: that frame was sent, or received.
    pub(crate) fn meets(&mut self, now: Time, said_here: bool, frame: &Frame, config: &Config) {
        match frame {
            Frame::ToHome(channel, said) => self.company.meet(now, said_here, *channel, is_small(said), config),
            Frame::More(channel, _) => self.company.meet(now, said_here, *channel, false, config),
            Frame::Relay(_) | Frame::Post(_) | Frame::Signal(_) => self.company.meet_others(now),
            // A home's frames follow those sent to it; others are rare.
            _ => {}
        }
    }

    /// Whether the connection has lately carried, in both directions, only large values of one channel.
    pub(crate) fn is_alone(&self) -> bool {
        self.company.is_alone
    }

    /// Whether nothing waits for what is written, on this connection or, as the driver reports, another one.
    fn is_undisturbed(&self) -> bool {
        self.is_roomy && self.company.is_alone
    }

    /// The next frame in the channels' turns, with `in_hand` bytes not flushed yet and `at_once` bytes
    /// written at once.
    fn next_of_channels(&mut self, in_hand: usize, config: &Config, at_once: usize) -> Option<Frame> {
        let (room, room_for_small) = self.room(in_hand, config);
        loop {
            // Newcomers come first, as in fq_codel (RFC 8290), but not twice in succession while others wait.
            let first = room_for_small && (!room || !self.others_wait || self.turns.is_empty());
            let newcomer = if first { self.newcomers.pop_front() } else { None };
            self.others_wait = newcomer.is_some();
            let speaker = newcomer.or_else(|| if room { self.turns.pop_front() } else { None })?;
            let alone = self.turns.is_empty() && self.newcomers.is_empty();
            let sizes = match alone {
                true if self.is_undisturbed() && self.window.is_wide(at_once, config) => {
                    Sizes::undisturbed(config, at_once)
                }
                true => Sizes::alone(config),
                false => Sizes::beside_others(config),
            };
            let (frame, done) = match speaker {
                Speaker::Channel(channel) => {
                    let Some(stream) = self.streams.get_mut(&channel) else { continue };
                    if !stream.may_go_on(&mut self.credit) {
                        self.park(channel);
                        continue;
                    }
                    let queued = stream.queued;
                    let frame = stream.next(channel, sizes);
                    let left = stream.queued;
                    self.queued -= queued - left;
                    if left <= queued_min(config) / 2 && left < queued && self.short.contains(&channel) {
                        self.roomy.push(channel);
                    }
                    let done = stream.rest.is_none() && stream.waiting.is_empty();
                    if done {
                        self.rests(channel);
                    }
                    (frame, done)
                }
                Speaker::Relayed(stream) => {
                    let Some(relayed) = self.relayed.get_mut(&stream) else { continue };
                    let frame = relayed.next(stream, sizes);
                    let done = relayed.bytes.is_empty() && !relayed.ended;
                    if done {
                        self.relayed.remove(&stream);
                    }
                    (Some(frame), done)
                }
                Speaker::Posts => {
                    let frame = self.posts.next(sizes.whole, sizes.piece);
                    (frame, self.posts.is_empty())
                }
            };
            if !done {
                self.turns.push_back(speaker);
            }
            if frame.is_some() {
                return frame;
            }
        }
    }

    /// The stream of this channel has finished.
    fn rests(&mut self, channel: ChannelId) {
        let Some(before) = self.idle.replace(channel) else { return };
        if let Some(Stream { waiting, .. }) = self.streams.remove(&before)
            && waiting.capacity() <= SPARE_MAX
        {
            self.spare = waiting;
        }
    }

    /// Whether no channel has anything to send.
    fn are_quiet(&self) -> bool {
        self.turns.is_empty() && self.newcomers.is_empty() && self.parked == 0
    }

    /// Whether the other side can have received this many frames.
    pub(crate) fn can_resume(&self, seen: u64) -> bool {
        planted!(ResendAll) || (self.acked..=self.acked + self.written.len() as u64).contains(&seen)
    }

    /// Whether something that was written has not been acknowledged.
    pub(crate) fn owes(&self) -> bool {
        !self.written.is_empty()
    }

    /// A new socket, with an unknown round trip, carries the connection from now on, and the other side has
    /// received `seen` frames.
    ///
    /// `false`: that is impossible, and the connection cannot resume.
    pub(crate) fn resume(&mut self, seen: u64) -> bool {
        self.window = Window::default();
        let plausible = planted!(ResendAll) || self.forget(seen);
        self.current = 0;
        plausible
    }

    /// The other side has received this many frames. `false`: that is impossible.
    pub(crate) fn acknowledge(&mut self, now: Time, seen: u64, config: &Config) -> bool {
        let plausible = self.forget(seen);
        if plausible {
            self.window.acknowledged(now, seen, config);
        }
        plausible
    }

    fn forget(&mut self, seen: u64) -> bool {
        if !(self.acked..=self.acked + self.written.len() as u64).contains(&seen) {
            return false;
        }
        let count = (seen - self.acked) as usize;
        let (mut bytes, mut answers) = (0, 0);
        for written in self.written.drain(..count) {
            bytes += written.len();
            answers += written.answer();
        }
        self.written_bytes -= bytes;
        self.written_answers -= answers;
        self.acked = seen;
        self.current = self.current.saturating_sub(count);
        true
    }

    /// For models: the next frame, as if it had been written and acknowledged.
    #[cfg(feature = "model")]
    pub(crate) fn next_for_model(&mut self, config: &Config) -> Option<Frame> {
        let frame = self.control.pop_frame().or_else(|| self.next_of_channels(0, config, 0));
        frame.or_else(|| self.control.pop_frame())
    }

    /// Whether [`fill`](Self::fill) would write anything numbered.
    pub(crate) fn has_something(&self, config: &Config) -> bool {
        let (room, room_for_small) = self.room(0, config);
        let speak = !self.turns.is_empty() || !self.newcomers.is_empty();
        let channels = (room && speak) || (room_for_small && !self.newcomers.is_empty());
        let goodbye = self.goodbye == Goodbye::ToSay && self.are_quiet();
        let more = !self.control.is_empty() || channels || goodbye;
        self.current < self.written.len() || (self.goodbye != Goodbye::Said && more)
    }

    /// Whether [`fill`](Self::fill) would write values that are not new, or not small.
    pub(crate) fn has_more_of_values(&self, config: &Config) -> bool {
        self.room(0, config).0 && !self.turns.is_empty()
    }

    /// Whether everything has been written and acknowledged.
    pub(crate) fn is_done(&self) -> bool {
        let all_said = match self.goodbye {
            Goodbye::No => self.control.is_empty() && self.are_quiet(),
            Goodbye::ToSay => false,
            Goodbye::Said => true,
        };
        self.written.is_empty() && all_said
    }

    /// What channels, and processes that post, have to send now that has not been written.
    pub(crate) fn mark(&self) -> Vec<Unwritten> {
        let unwritten = self.streams.iter().map(|(channel, stream)| Unwritten::Channel {
            channel: *channel,
            born: stream.born,
            begun: stream.begun + stream.waiting.len() as u64,
        });
        let posts = (!self.posts.is_empty()).then(|| Unwritten::Posts(self.posts.mark()));
        unwritten.chain(posts).collect()
    }

    /// Whether all of this has been written since.
    pub(crate) fn has_written(&self, unwritten: &Unwritten) -> bool {
        let (channel, born, begun) = match unwritten {
            Unwritten::Channel { channel, born, begun } => (channel, *born, *begun),
            Unwritten::Posts(mark) => return self.posts.has_written(*mark),
        };
        let Some(stream) = self.streams.get(channel) else { return true };
        let last_is_begun = stream.begun == begun && stream.rest.is_none();
        stream.born != born || stream.begun > begun || last_is_begun
    }

    /// The number of the next frame: an acknowledgement of this many covers everything written.
    pub(crate) fn written(&self) -> u64 {
        self.acked + self.written.len() as u64
    }

    /// How many values of complete sends have not been wholly written, or not acknowledged.
    pub(crate) fn unacked_sent(&self) -> u64 {
        let is_sent = |said: &ToHome| matches!(said, ToHome::Value { head: Head::Sent, .. });
        let mut count = 0;
        // For each channel, whether the last piece written belongs to such a value.
        let mut last: SortedMap<ChannelId, bool> = SortedMap::new();
        for written in &self.written {
            match written.read() {
                Some(Frame::ToHome(channel, said)) => {
                    count += u64::from(is_sent(&said));
                    last.insert(channel, is_sent(&said));
                }
                // (It may be a value of another send, which also waits for its acknowledgement.)
                Some(Frame::More(channel, _)) => count += u64::from(last.insert(channel, true).is_none()),
                _ => {}
            }
        }
        for (channel, stream) in self.streams.iter() {
            let begun = matches!(stream.rest, Some((Head::Sent, _))) && !last.contains_key(channel);
            count += u64::from(begun) + stream.waiting.iter().filter(|said| is_sent(said)).count() as u64;
        }
        count
    }

    /// Whether values of complete sends, or messages to mailboxes, have not been acknowledged.
    pub(crate) fn owes_values(&self) -> bool {
        let is_message =
            |written: &Written| matches!(written.read(), Some(Frame::Post(Post::Message { .. } | Post::More(_))));
        self.unacked_sent() > 0 || self.posts.has_messages() || self.written.iter().any(is_message)
    }

    /// Whether this node leaves and has yet to write its goodbye: the next write may be its last.
    pub(crate) fn says_goodbye(&self) -> bool {
        self.goodbye == Goodbye::ToSay
    }

    /// How many frames the other side is known to have received.
    pub(crate) fn acked(&self) -> u64 {
        self.acked
    }

    /// About how many bytes wait for the other side to read them, without values that have not been written.
    pub(crate) fn owed_bytes(&self) -> usize {
        // Everything of relayed sockets except their ends is on credit. Ends of watched processes are not
        // bounded here: there are no more than watches, and many processes may end at once.
        self.written_bytes + self.control.answers + self.relayed.len() * 64
    }

    /// How many bytes the answers take that the other side has not acknowledged.
    pub(crate) fn answers(&self) -> usize {
        self.control.answers + self.posts.answers() + self.written_answers
    }

    /// Bytes that are kept because they are not acknowledged.
    pub(crate) fn unacked_bytes(&self) -> usize {
        self.written_bytes
    }
}

/// How large the pieces of values are.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    /// A value of at most this size goes in one piece...
    pub(crate) whole: usize,
    /// ... and a longer one in pieces of this size.
    pub(crate) piece: usize,
}

impl Sizes {
    pub(crate) fn alone(config: &Config) -> Self {
        Self { whole: config.chunk.max(config.chunk_alone), piece: config.chunk.max(config.chunk_alone / 2) }
    }

    pub(crate) fn beside_others(config: &Config) -> Self {
        Self { whole: config.chunk, piece: config.chunk }
    }

    /// Nothing waits behind a large write, so it may be one piece: the other side need not reassemble it.
    pub(crate) fn undisturbed(config: &Config, at_once: usize) -> Self {
        let Self { piece, .. } = Self::alone(config);
        let piece = piece.max(at_once.min(4 * config.chunk_alone).min(limits::CHUNK / 2));
        Self { whole: (2 * piece).min(limits::CHUNK), piece }
    }
}

impl Stream {
    /// Whether the next frame may be written: a value that begins must be admitted, or within the credit.
    fn may_go_on(&mut self, credit: &mut Credit) -> bool {
        let (None, Some(ToHome::Value { total, .. })) = (&self.rest, self.waiting.front()) else { return true };
        self.announced.take().is_some() || credit.spend(*total)
    }

    fn next(&mut self, channel: ChannelId, sizes: Sizes) -> Option<Frame> {
        if let Some((head, mut rest)) = self.rest.take() {
            let piece = rest.split_to(rest.len().min(sizes.piece));
            if head == Head::Sent {
                self.queued -= piece.len() as u64;
            }
            self.rest = (!rest.is_empty()).then_some((head, rest));
            return Some(Frame::More(channel, piece));
        }
        let said = self.waiting.pop_front()?;
        self.begun += 1;
        let ToHome::Value { head, total, first: mut value } = said else {
            return Some(Frame::ToHome(channel, said));
        };
        if planted!(NewestFirst) {
            self.waiting.make_contiguous().reverse();
        }
        let first = value.split_to(if value.len() <= sizes.whole { value.len() } else { sizes.piece });
        if head == Head::Sent {
            self.queued -= cost(first.len() as u64);
        }
        self.rest = (!value.is_empty()).then_some((head, value));
        Some(Frame::ToHome(channel, ToHome::Value { head, total, first }))
    }
}

impl Relayed {
    fn next(&mut self, stream: u64, sizes: Sizes) -> Frame {
        if self.bytes.is_empty() {
            self.ended = false;
            return Frame::Relay(Relay::End { stream });
        }
        let length = if self.bytes.len() <= sizes.whole { self.bytes.len() } else { sizes.piece };
        let length = length.min(limits::RELAYED_PIECE);
        Frame::Relay(Relay::Bytes { stream, piece: self.bytes.split_to(length).freeze() })
    }
}

/// Consecutive small frames, so that they go out as one piece.
struct Page {
    bytes: BytesMut,
    /// Where the numbered frames are in `bytes`.
    numbered: Vec<Range<usize>>,
    total: usize,
}

impl Page {
    fn flush(&mut self, outbox: &mut Outbox, out: &mut Vec<Bytes>) {
        if self.bytes.is_empty() {
            return;
        }
        let bytes = self.bytes.split().freeze();
        for range in self.numbered.drain(..) {
            let written = Written { head: bytes.slice(range), piece: None };
            outbox.written_bytes += written.head.len();
            outbox.written_answers += written.answer();
            outbox.written.push_back(written);
            outbox.current += 1;
        }
        out.push(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{MailboxId, NodeId};
    use crate::wire::{End, Exit, Failure, FromHome, Names, NoRelay, Read, Reason, Terms, Travel, Which};

    /// The stream of a channel is used again for its next value, which no earlier mark waits for.
    #[test]
    fn mark_is_written_whatever_its_channel_sends_later() {
        let (config, channel) = (Config::new("test"), ChannelId(1));
        let mut outbox = Outbox::default();
        outbox.grow_credit(1 << 10);
        let mut marks = Vec::new();
        for ticket in 0..4 {
            let value = ToHome::Value { head: Head::Offer(ticket), total: 1, first: Bytes::from_static(b"x") };
            outbox.push(Frame::ToHome(channel, value));
            assert!(marks.iter().all(|mark| outbox.has_written(mark)), "{ticket}");
            let [mark]: [Unwritten; 1] = outbox.mark().try_into().unwrap();
            assert!(!outbox.has_written(&mark) && outbox.unsaid() == 1);
            assert!(outbox.fill(Time(0), None, &config, 1 << 10, &mut Vec::new()) > 0);
            assert!(outbox.has_written(&mark) && outbox.unsaid() == 0);
            marks.push(mark);
        }
    }

    /// An answer counts as one before and after it is written, and nothing else does.
    #[test]
    fn frame_counts_as_an_answer_before_and_after_it_is_written() {
        let (channel, terms) = (ChannelId(1), Terms { window: 1, credits: 0, value_max: 1 });
        let value = |head| ToHome::Value { head, total: 1, first: Bytes::from_static(b"x") };
        let mut frames: Vec<Frame> = [
            FromHome::Attached(terms),
            FromHome::Taken(1),
            FromHome::Failed(1, Failure::Closed),
            FromHome::Credit(1),
            FromHome::Ended(End::Gone),
            FromHome::Moving { epoch: 1, to: NodeId(1), addresses: vec!["a".into()] },
            FromHome::Drained,
            FromHome::Onward(1),
            FromHome::Unread(1),
        ]
        .map(|said| Frame::FromHome(channel, said))
        .into();
        frames.extend([Names::Waiting { number: 1 }, Names::Elsewhere, Names::BadName { number: 1 }].map(Frame::Names));
        frames.extend([Memory::Credit(1), Memory::Admit(1)].map(Frame::Memory));
        frames.extend([Post::Room { mailbox: 1, posts: 1, bytes: 1 }, Post::Closed(1)].map(Frame::Post));
        frames.push(Frame::Post(Post::Mismatch { mailbox: 1, schema: Bytes::new() }));
        let exit = Exit::of(Reason::Killed);
        frames.push(Frame::Signal(Box::new(Signal::Down { watch: 1, exit: exit.clone() })));
        frames.extend([Relay::Admit, Relay::Credit { stream: 1 }, Relay::Undialled(NodeId(1))].map(Frame::Relay));
        frames.push(Frame::Relay(Relay::Refused { stream: 1, why: NoRelay::Unwilling }));
        frames.push(Frame::Travel(channel, Travel::Over(Which::Sender, End::Gone)));
        let theirs = frames.len();
        frames.extend([
            Frame::Goodbye,
            Frame::Cut(channel),
            Frame::More(channel, Bytes::new()),
            Frame::Read(channel, Read { key: 1, value_max: 1 }),
            Frame::Memory(Memory::Recant(1)),
            Frame::Post(Post::Ask(1)),
            Frame::Post(Post::Use { to: MailboxId { number: 1, bits: 2 }, schema: Bytes::new() }),
            Frame::Post(Post::More(Bytes::from_static(b"x"))),
            Frame::Signal(Box::new(Signal::Unwatch(1))),
            Frame::Names(Names::Undeclare { number: 1 }),
            Frame::Names(Names::Guest { acceptor: channel, guest: channel }),
            Frame::Relay(Relay::To { stream: 1, node: NodeId(1) }),
            Frame::Relay(Relay::AskDial { node: NodeId(1), addresses: Vec::new() }),
        ]);
        let said = [value(Head::Offer(1)), value(Head::Unread(1)), value(Head::GrantUnread(1, 1)), ToHome::Withdraw(1)];
        frames.extend(said.map(|said| Frame::ToHome(channel, said)));
        for (index, frame) in frames.into_iter().enumerate() {
            let mut outbox = Outbox::default();
            outbox.grow_credit(1 << 10);
            let text = format!("{frame:?}");
            outbox.push(frame);
            let waiting = outbox.answers();
            assert_eq!(waiting > 0, index < theirs, "{text}");
            assert!(outbox.fill(Time(0), None, &Config::new("test"), 1 << 10, &mut Vec::new()) > 0, "{text}");
            assert_eq!((outbox.control.answers, outbox.answers()), (0, waiting), "{text}");
        }
    }
}
