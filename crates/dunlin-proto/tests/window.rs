//! How many bytes are on their way: two machines and a pipe between them, in virtual time.

#[path = "support/machines.rs"]
mod machines;

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use dunlin_proto::id::{ChannelId, SocketId};
use dunlin_proto::time::Time;
use dunlin_proto::wire::codec::{self, Next};
use dunlin_proto::wire::{Face, Terms};
use dunlin_proto::{Action, Config, HomeHears, Machine, ProxyHears};
use machines::{THERE, connect, declared, machines};

const MB: usize = 1 << 20;
/// What a kernel buffers for a socket.
const BUFFER: usize = 6 * MB;
/// The same as in the driver of a node, ...
const ROOM: usize = 64 << 10;
/// ... and where no other connection is used.
const ROOM_ALONE: usize = 512 << 10;

const BULK: ChannelId = ChannelId(1);
const PING: ChannelId = ChannelId(2);

/// One direction: the rate of its reader, in bytes per microsecond, and the delay of each byte.
struct Pipe {
    rate: u64,
    delay: u64,
    /// The bytes on their way, and when they are read.
    bytes: VecDeque<(u64, Bytes)>,
    free_at: u64,
}

/// Machine 0 sends, machine 1 receives.
struct World {
    now: u64,
    machines: [Machine; 2],
    pipes: [Pipe; 2],
    socket: SocketId,
    room: usize,
    received: usize,
    /// Whether each received value returns a credit, which carries an acknowledgement along.
    gives_credits: bool,
    /// Bytes of values that were sent, and have not been received.
    sent: usize,
    ping_sent: Option<u64>,
    trips: Vec<u64>,
    most_unacked: usize,
}

impl World {
    /// The reader reads `rate` bytes in a microsecond; each way takes `delay` microseconds.
    fn new(rate: u64, delay: u64) -> Self {
        let mut world = Self {
            now: 1000,
            machines: machines(&Config::new("window")),
            pipes: [rate, u64::MAX].map(|rate| Pipe { rate, delay, bytes: VecDeque::new(), free_at: 0 }),
            socket: SocketId(0),
            room: ROOM,
            received: 0,
            gives_credits: true,
            sent: 0,
            ping_sent: None,
            trips: Vec::new(),
            most_unacked: 0,
        };
        let [a, b] = &mut world.machines;
        for channel in [BULK, PING] {
            let terms = Terms { window: 1, credits: 1 << 20, value_max: 16 << 20 };
            b.open_home(channel, terms, declared(Face::Receiver), false).unwrap();
            a.attach(Time(1000), channel, THERE, declared(Face::Sender)).unwrap();
        }
        world.run(1_000_000);
        world
    }

    /// Runs for this time; keeps `values` of a megabyte waiting on the bulk channel, and one ping on the
    /// other.
    fn transfer(&mut self, time: u64, values: usize, pings: bool) -> usize {
        let (received, until) = (self.received, self.now + time);
        self.most_unacked = 0;
        while self.now < until {
            while self.sent < values * MB {
                self.sent += MB;
                assert!(self.machines[0].send_on_credit(Time(self.now), BULK, Bytes::from(vec![7; MB])));
            }
            if pings && self.ping_sent.is_none() {
                self.ping_sent = Some(self.now);
                self.machines[0].offer(Time(self.now), PING, 1, Bytes::from_static(b"krill"));
            }
            self.step(until);
        }
        self.received - received
    }

    /// Values have been sent before: the reader has given its greatest credit.
    fn used(mut self) -> Self {
        self.transfer(100_000, 1, false);
        self.run(2_000_000);
        self
    }

    fn run(&mut self, time: u64) {
        let until = self.now + time;
        while self.now < until {
            self.step(until);
        }
    }

    /// Does what is due now, then advances to the next event.
    fn step(&mut self, until: u64) {
        let now = Time(self.now);
        let mut busy = true;
        while std::mem::take(&mut busy) {
            for at in 0..2 {
                while let Some(action) = self.machines[at].poll() {
                    busy = true;
                    self.act(at, action);
                }
                let pipe = &mut self.pipes[at];
                let mut out = Vec::new();
                while pipe.bytes.iter().map(|(_, bytes)| bytes.len()).sum::<usize>() < BUFFER
                    && self.machines[at].fill(now, self.socket, self.room, &mut out) > 0
                {
                    for bytes in out.drain(..) {
                        busy = true;
                        pipe.free_at = pipe.free_at.max(self.now + pipe.delay) + bytes.len() as u64 / pipe.rate;
                        pipe.bytes.push_back((pipe.free_at, bytes));
                    }
                }
            }
            for at in 0..2 {
                while self.pipes[at].bytes.front().is_some_and(|(when, _)| *when <= self.now) {
                    let (_, bytes) = self.pipes[at].bytes.pop_front().expect("it was just seen");
                    busy = true;
                    self.machines[1 - at].received(now, self.socket, bytes);
                }
            }
        }
        self.most_unacked = self.most_unacked.max(self.machines[0].census().unacked_bytes);
        let arrivals = self.pipes.iter().filter_map(|pipe| pipe.bytes.front()).map(|(when, _)| *when);
        let ticks = self.machines.iter().filter_map(Machine::next_tick).map(|at| at.0.max(self.now + 1));
        self.now = arrivals.chain(ticks).min().unwrap_or(until).clamp(self.now, until);
        for machine in &mut self.machines {
            machine.tick(Time(self.now));
        }
    }

    fn act(&mut self, at: usize, action: Action) {
        let now = Time(self.now);
        match action {
            Action::Dial(dial, _) => connect(&mut self.machines, at, dial, &mut self.socket, now),
            Action::Home(_, from, HomeHears::Offered(ticket, _)) => {
                self.machines[at].taken(now, PING, from.node, ticket);
            }
            Action::Home(channel, from, HomeHears::Sent(value)) => {
                self.received += value.len();
                self.sent -= value.len();
                self.machines[at].drained(channel, 1, value.len() as u64);
                if self.gives_credits {
                    self.machines[at].credit(now, channel, from.node, 1);
                }
            }
            Action::Proxy(_, ProxyHears::Taken(..)) => {
                self.trips.push(self.now - self.ping_sent.take().expect("it was sent"));
            }
            _ => {}
        }
    }

    /// The socket is lost with its contents, and another one is made.
    fn cut(&mut self) {
        for at in 0..2 {
            self.pipes[at].bytes.clear();
            self.pipes[at].free_at = 0;
            self.machines[at].closed(Time(self.now), self.socket);
        }
    }

    fn median_trip(&mut self) -> u64 {
        let mut trips = std::mem::take(&mut self.trips);
        trips.sort_unstable();
        trips[trips.len() / 2]
    }
}

/// A slow reader makes the window small, so that a ping need not wait for a full window.
#[test]
fn a_ping_beside_a_transfer_does_not_wait_for_megabytes() {
    // 1 GB/s, as between two processes of one machine: 4 MiB would be 4 ms.
    let mut world = World::new(1000, 10);
    let received = world.transfer(1_000_000, 4, true);
    assert!(received >= 950 * 1_000_000, "{received}: the reader reads all the time");
    let trip = world.median_trip();
    assert!(trip < 400, "{trip} us");
    world.transfer(1_000_000, 4, true);
    assert!(world.most_unacked <= 384 << 10, "{}", world.most_unacked);
    // A link on which that takes longer than a ping may wait: 100 MB/s.
    let mut world = World::new(100, 100);
    let received = world.transfer(1_000_000, 4, true);
    assert!(received >= 95 * 1_000_000, "{received}: the reader reads all the time");
    let trip = world.median_trip();
    assert!(trip < 3000, "{trip} us");
}

/// If only one channel has used the connection for a time, more may be on its way, and a value goes in larger
/// pieces: no other channel waits for them. A ping ends that at once.
#[test]
fn lone_transfer_has_a_larger_window() {
    let is_alone = |world: &World| [0, 1].map(|at: usize| world.machines[at].is_alone(world.socket));
    let mut world = World::new(1000, 10);
    world.room = ROOM_ALONE;
    let company = Config::new("window").company.as_micros() as u64;
    world.transfer(100_000, 4, true);
    world.transfer(company - 1000, 4, false);
    assert_eq!(is_alone(&world), [false, false]);
    assert!(world.most_unacked <= 384 << 10, "{}", world.most_unacked);
    world.transfer(100_000, 4, false);
    assert_eq!(is_alone(&world), [true, true]);
    world.transfer(100_000, 4, false);
    // 540 us, and a piece.
    assert!((MB / 2..MB + MB / 8).contains(&world.most_unacked), "{}", world.most_unacked);
    // While another connection is used, the window is as small as before.
    world.room = ROOM;
    world.transfer(10_000, 4, false);
    world.transfer(100_000, 4, false);
    assert!(world.most_unacked <= 384 << 10, "{}", world.most_unacked);
    world.room = ROOM_ALONE;
    world.transfer(1000, 4, true);
    assert_eq!(is_alone(&world), [false, false]);
    world.trips.clear();
    world.transfer(100_000, 4, true);
    assert!(world.most_unacked <= 384 << 10, "{}", world.most_unacked);
    assert!(world.median_trip() < 400);

    // The same in the other direction: a node that receives a ping gives way, too.
    world.transfer(2 * company, 4, false);
    assert_eq!(is_alone(&world), [true, true]);
    world.machines[0].offer(Time(world.now), PING, 1, Bytes::from_static(b"krill"));
    world.ping_sent = Some(world.now);
    world.transfer(2000, 4, false);
    assert_eq!(is_alone(&world), [false, false]);
    // And any value of another channel counts as company.
    world.transfer(2 * company, 4, false);
    assert_eq!(is_alone(&world), [true, true]);
    let other = ChannelId(3);
    let terms = Terms { window: 1, credits: 8, value_max: MB as u64 };
    world.machines[1].open_home(other, terms, declared(Face::Receiver), false).unwrap();
    world.machines[0].attach(Time(world.now), other, THERE, declared(Face::Sender)).unwrap();
    world.transfer(2 * company, 4, false);
    assert_eq!(is_alone(&world), [true, true], "the other channel has sent no value");
    world.sent += 5000;
    assert!(world.machines[0].send_on_credit(Time(world.now), other, Bytes::from(vec![7; 5000])));
    world.transfer(2000, 4, false);
    assert_eq!(is_alone(&world), [false, false]);
}

/// For a channel that is alone, the longest piece of a value is as long as one write.
#[test]
fn longest_piece_of_a_lone_channel_fills_one_write() {
    let longest = |beside: Duration, room: usize, rate: u64| {
        let mut world = World::new(rate, 10);
        world.transfer(20_000, 4, false);
        world.transfer(1000, 0, true);
        world.run(beside.as_micros() as u64);
        let [a, _] = &mut world.machines;
        for _ in 0..3 {
            assert!(a.send_on_credit(Time(world.now), BULK, Bytes::from(vec![7; 3 * MB / 2])));
        }
        let mut written = Vec::new();
        while a.fill(Time(world.now), world.socket, room, &mut written) > 0 {}
        written.iter().map(Bytes::len).max()
    };
    let company = Config::new("window").company;
    assert_eq!(longest(company / 2, ROOM_ALONE, 2000), Some(ROOM));
    assert_eq!(longest(company, ROOM, 2000), Some(ROOM));
    assert_eq!(longest(company, ROOM_ALONE, 2000), Some(ROOM_ALONE));
    assert_eq!(longest(company, ROOM_ALONE, 100), Some(ROOM), "it is a slow link");
}

/// With a round trip of 50 ms, `unacked_max` is on its way in each of them: alone or not, from the start or
/// after the reader was slow.
#[test]
fn transfer_fills_a_long_link() {
    for pings in [false, true] {
        let mut world = World::new(u64::MAX, 25_000);
        let received = world.transfer(1_000_000, 8, pings);
        assert!(received >= 16 * 4 * MB, "{received} bytes in 20 round trips");
        world.pipes[0].rate = 5;
        world.transfer(2_000_000, 8, pings);
        assert!(world.most_unacked <= 5 * MB);
        world.pipes[0].rate = u64::MAX;
        // The reader's backlog, and then six doublings of the window.
        world.transfer(2_000_000, 8, pings);
        let received = world.transfer(1_000_000, 8, pings);
        assert!(received >= 18 * 4 * MB, "{received} bytes in 20 round trips");
    }
}

/// The minimum round trip is measured again from time to time. That costs a transfer hardly anything, and a
/// link that has become longer is filled again.
#[test]
fn transfer_refills_a_link_that_becomes_longer() {
    let mut world = World::new(u64::MAX, 1000);
    world.transfer(500_000, 8, false);
    for pipe in &mut world.pipes {
        pipe.delay = 25_000;
    }
    world.transfer(21_000_000, 8, false);
    let received = world.transfer(10_000_000, 8, false);
    assert!(received >= 190 * 4 * MB, "{received} bytes in 200 round trips");
}

/// The measurements of a socket do not apply to the next one.
#[test]
fn new_socket_starts_with_new_measurements() {
    let mut world = World::new(100, 10);
    world.transfer(200_000, 8, false);
    world.transfer(200_000, 8, false);
    assert!(world.most_unacked <= 384 << 10, "{}", world.most_unacked);
    for pipe in &mut world.pipes {
        pipe.delay = 25_000;
    }
    world.pipes[0].rate = u64::MAX;
    world.cut();
    world.run(60_000);
    let received = world.transfer(500_000, 8, false);
    assert!(received >= 7 * 4 * MB, "{received} bytes in 10 round trips");
    assert!(world.most_unacked >= 4 * MB, "{}", world.most_unacked);
}

/// Many values of a few bytes are also acknowledged before they fill the window.
#[test]
fn small_values_do_not_wait_for_a_late_acknowledgement() {
    let mut world = World::new(100, 10);
    world.transfer(200_000, 4, false);
    world.run(1_000_000);
    world.gives_credits = false;
    let start = world.now;
    let (before, count) = (world.received, 100_000);
    for n in 0..count {
        assert!(world.machines[0].send_on_credit(Time(start), BULK, Bytes::from(vec![n as u8])));
    }
    world.sent += count;
    while world.received - before < count {
        world.step(u64::MAX);
    }
    let time = world.now - start;
    // They are 20 bytes each on the wire.
    assert!(time <= 20_000 + 21_000, "{time} us");
}

/// Small values go at once, even when large ones must wait; but only up to a limit, and in turns with other
/// values.
#[test]
fn small_values_of_others_go_before_large_ones() {
    let mut world = World::new(u64::MAX, 10).used();
    let terms = Terms { window: 1, credits: 1000, value_max: MB as u64 };
    let small: Vec<ChannelId> = (100..1100).map(ChannelId).collect();
    for channel in &small {
        world.machines[1].open_home(*channel, terms, declared(Face::Receiver), false).unwrap();
        world.machines[0].attach(Time(world.now), *channel, THERE, declared(Face::Sender)).unwrap();
    }
    world.run(1_000_000);
    let (now, socket) = (Time(world.now), world.socket);
    let [a, b] = &mut world.machines;
    for _ in 0..4000 {
        assert!(a.send_on_credit(now, BULK, Bytes::from(vec![7; 2000])));
    }
    for channel in &small[..20] {
        a.offer(now, *channel, 1, Bytes::from_static(b"krill"));
    }
    let mut written = Vec::new();
    while a.fill(now, socket, ROOM, &mut written) > 0 {}
    assert!(a.census().unacked_bytes >= 4 * MB);
    assert!(!a.has_something(now, socket), "nothing more may be on its way");
    written.drain(..).for_each(|bytes| b.received(now, socket, bytes));
    let order = std::iter::from_fn(|| b.poll()).filter_map(|action| match action {
        Action::Home(BULK, ..) => Some(true),
        Action::Home(..) => Some(false),
        _ => None,
    });
    let order: Vec<bool> = order.collect();
    assert_eq!(order[..40], [false, true].repeat(20), "in turns");
    assert!(order[40..].iter().all(|bulk| *bulk));

    // Now the window is as small as possible.
    world.pipes[0].rate = 100;
    world.transfer(1_000_000, 4, false);
    let (now, socket) = (Time(world.now), world.socket);
    let [a, _] = &mut world.machines;
    while a.fill(now, socket, ROOM, &mut written) > 0 {}
    let before = a.census().unacked_bytes;
    a.offer(now, small[20], 1, Bytes::from_static(b"krill"));
    assert!(a.has_something(now, socket));
    for channel in &small[21..] {
        a.offer(now, *channel, 1, Bytes::from_static(b"krill"));
    }
    while a.fill(now, socket, ROOM, &mut written) > 0 {}
    let more = a.census().unacked_bytes - before;
    assert!((1000..=17 << 10).contains(&more), "{more}");
    assert!(!a.has_something(now, socket));
}

/// An acknowledgement goes alone in time for the other side's window, but not for a single complete value: an
/// answer may carry it.
#[test]
fn complete_value_is_acknowledged_with_an_answer() {
    let mut world = World::new(u64::MAX, 10).used();
    let (now, socket) = (Time(world.now), world.socket);
    let [a, b] = &mut world.machines;
    let config = Config::new("window");
    let mut written = |bytes: usize| {
        assert!(a.send_on_credit(now, BULK, Bytes::from(vec![7; bytes])));
        let mut out = Vec::new();
        while a.fill(now, socket, ROOM, &mut out) > 0 {}
        out.concat()
    };
    let whole = 3 * config.ack_bytes;
    b.received(now, socket, written(whole).into());
    assert!(!b.has_something(now, socket), "an answer may follow");
    b.received(now, socket, written(config.ack_bytes).into());
    assert!(b.has_something(now, socket), "the other side's window may be no larger");
    b.fill(now, socket, ROOM, &mut Vec::new());
    assert!(!b.has_something(now, socket));

    // After this value, a frame has begun to arrive, ...
    let next = written(100);
    b.received(now, socket, [&written(whole)[..], &next[..50]].concat().into());
    assert!(b.has_something(now, socket));
    b.fill(now, socket, ROOM, &mut Vec::new());
    b.received(now, socket, next[50..].to_vec().into());
    // ... and only the first piece of this value is complete.
    let large = written(MB);
    let Ok(Next::Frame { head, body }) = codec::next(&large) else { panic!("it begins with a frame") };
    b.received(now, socket, large[..head + body].to_vec().into());
    assert!(b.has_something(now, socket));
    b.fill(now, socket, ROOM, &mut Vec::new());
    b.received(now, socket, large[head + body..].to_vec().into());
    b.fill(now, socket, ROOM, &mut Vec::new());

    // The same where the caller keeps the part of a frame.
    let mut buffer = BytesMut::from(&written(whole)[..]);
    b.received_in(now, socket, &mut buffer);
    assert!(!b.has_something(now, socket));
    buffer.extend_from_slice(&written(100)[..50]);
    b.received_in(now, socket, &mut buffer);
    assert_eq!(buffer.len(), 50);
    assert!(b.has_something(now, socket));
}

/// Only large values that may be written count, since they can wait for a moment.
#[test]
fn has_more_of_values_counts_only_large_writable_values() {
    let mut world = World::new(u64::MAX, 10).used();
    let (now, socket) = (Time(world.now), world.socket);
    let a = &mut world.machines[0];
    let mut out = Vec::new();
    assert!(!a.has_more_of_values(socket));
    a.offer(now, PING, 1, Bytes::from_static(b"krill"));
    assert!(a.has_something(now, socket) && !a.has_more_of_values(socket), "it is small");
    assert!(a.send_on_credit(now, BULK, Bytes::from(vec![7; MB])));
    assert!(a.has_more_of_values(socket));
    a.fill(now, socket, ROOM, &mut out);
    assert!(a.has_more_of_values(socket), "there are more pieces");
    while a.fill(now, socket, ROOM, &mut out) > 0 {}
    assert!(!a.has_more_of_values(socket), "all is written");
    for _ in 0..4 {
        assert!(a.send_on_credit(now, BULK, Bytes::from(vec![7; MB])));
    }
    while a.fill(now, socket, ROOM, &mut out) > 0 {}
    assert!(!a.has_more_of_values(socket), "nothing more may be on its way");
}
