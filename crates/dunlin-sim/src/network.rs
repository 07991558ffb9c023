//! Sockets: two queues of bytes each, with delays, buffers that fill, and cuts at any byte.

use bytes::Bytes;
use dunlin_proto::id::{DialId, SocketId};
use dunlin_proto::{Closed, Source};

use crate::coverage::{Fault, Met};
use crate::socket::{HEAD, Mute, Pipe, Socket, end, end_of};
use crate::world::{Event, World};

impl World {
    pub(crate) fn latency(&mut self) -> u64 {
        let base = self.plan.latency;
        if self.random.chance(5) {
            self.random.between(base, base * 20)
        } else {
            self.random.between(base / 2, base * 2)
        }
    }

    // Dialling.

    pub(crate) fn dial(&mut self, by: usize, dial: DialId, to: &str) {
        let from = self.procs[by].node;
        let to: usize = to[1..].parse().expect("addresses are made by `address`");
        self.procs[by].views[to].dialling = true;
        self.dials[from][to] += 1;
        if self.dials[to][from] > 0 {
            self.met(Fault::Crossed, from, to, None);
        }
        let blocked = self.plan.is_walled(from, to) || self.mutes[from][to].blocks() || self.mutes[to][from].blocks();
        let fails = blocked || (!self.healed && self.random.chance(self.plan.dial_fails));
        let mut wait = self.latency();
        if !self.healed && self.random.chance(5) {
            // A dial that hangs: longer than a handshake may last, and perhaps longer than the grace period.
            wait += self.random.below(800_000);
            wait = wait.min(self.plan.heal_at.saturating_sub(self.now) + 50_000);
        }
        if fails {
            self.met(Fault::DialFails, from, to, None);
        }
        self.after(wait, Event::DialDone { by, dial, to: (!fails).then_some(to) });
        if fails {
            // `DialDone` no longer knows where the dial went.
            self.dials[from][to] = self.dials[from][to].saturating_sub(1);
        }
    }

    pub(crate) fn dial_done(&mut self, by: usize, dial: DialId, to: Option<usize>) {
        let now = self.time();
        let from = self.procs[by].node;
        let Some(to) = to else {
            self.procs[by].machine.dial_failed(now, dial, "no answer".into());
            return self.pump(by);
        };
        self.dials[from][to] = self.dials[from][to].saturating_sub(1);
        if !self.procs[self.current[to]].alive || self.now < self.refuses_until[to] {
            self.procs[by].machine.dial_refused(now, dial, false, "refused".into());
            return self.pump(by);
        }
        if self.thief.is_there && !self.healed && self.random.chance(10) {
            return self.thief_answers(by, dial, to);
        }
        let socket = self.sockets.len();
        let pipe = |limit| Pipe { limit, ..Pipe::default() };
        let limits = [0, 1].map(|_| {
            if self.plan.holds {
                self.random.between(20_000, 200_000) as usize
            } else if self.random.chance(self.plan.small_buffers) {
                self.random.between(1, 60) as usize
            } else {
                self.random.between(300, 4000) as usize
            }
        });
        self.sockets.push(Socket {
            procs: [Some(by), None],
            nodes: [from, to],
            open: [true, false],
            pipes: limits.map(pipe),
            deaf: [false; 2],
            cut: false,
            close_heard: [false; 2],
        });
        let mut wait = self.latency();
        if !self.healed && self.random.chance(self.plan.late_accepts) {
            wait += self.random.below(900_000);
            wait = wait.min(self.plan.heal_at.saturating_sub(self.now) + 20_000);
            self.met(Fault::LateAccept, from, to, None);
        }
        self.note(3, socket as u64, || format!("socket {socket}: n{from} has dialled n{to}"));
        self.after(wait, Event::Accept(socket));
        self.procs[by].machine.dialled(now, dial, end(socket, 0));
        self.pump(by);
    }

    pub(crate) fn accept(&mut self, socket: usize) {
        let node = self.sockets[socket].nodes[1];
        let mut proc = self.current[node];
        // An address may still lead to the earlier life.
        if self.random.chance(self.plan.old_addresses)
            && let Some(old) = (0..proc).rev().find(|old| self.procs[*old].node == node && self.procs[*old].alive)
        {
            proc = old;
        }
        let until = self.procs[proc].busy_until;
        if !self.procs[proc].alive {
            self.after(0, Event::HearClose(socket, 0));
            return;
        }
        if until > self.now {
            return self.after(until - self.now, Event::Accept(socket));
        }
        let (now, life) = (self.time(), self.procs[proc].incarnation);
        self.sockets[socket].procs[1] = Some(proc);
        self.sockets[socket].open[1] = true;
        let near = self.plan.bound[node] && self.random.chance(30);
        self.note(4, socket as u64, || format!("socket {socket}: n{node}/{life} accepts"));
        // Each node is a host of its own.
        let source = Source::V4([10, 0, 0, self.sockets[socket].nodes[0] as u8]);
        self.procs[proc].machine.accepted_from(now, end(socket, 1), source);
        if near {
            self.procs[proc].machine.is_near(end(socket, 1));
        }
        self.pump(proc);
        self.after(0, Event::Deliver(socket, 1));
        if self.sockets[socket].pipes[0].ended {
            let wait = self.latency();
            self.after(wait, Event::HearClose(socket, 1));
        }
    }

    // Writing and reading.

    pub(crate) fn flush(&mut self, socket: usize, side: usize) {
        let Some(proc) = self.sockets[socket].procs[side] else { return };
        loop {
            if !self.sockets[socket].open[side] {
                return;
            }
            let room = self.sockets[socket].pipes[side].room();
            if room == 0 {
                let [from, to] = self.sockets[socket].nodes;
                self.sockets[socket].pipes[side].waits = true;
                if !self.healed && self.procs[proc].machine.has_something(self.time(), end(socket, side)) {
                    self.met(Fault::Full, from, to, Some(socket));
                }
                return;
            }
            let room = if self.random.chance(30) { self.random.between(1, room as u64) as usize } else { room };
            let out = self.fill(proc, end(socket, side), room);
            let empty = out.is_empty();
            self.write(socket, side, &out);
            self.give_back(out);
            if empty {
                return;
            }
        }
    }

    fn write(&mut self, socket: usize, side: usize, out: &[Bytes]) {
        let length: usize = out.iter().map(Bytes::len).sum();
        if length == 0 {
            return;
        }
        let latency = self.latency();
        let nodes = self.sockets[socket].nodes;
        let mute = self.mutes[nodes[side]][nodes[1 - side]];
        let now = self.now;
        let pipe = &mut self.sockets[socket].pipes[side];
        if mute == Mute::Vanish {
            pipe.gone = true;
        }
        if pipe.gone {
            pipe.vanished += length;
            return;
        }
        let mut through = 0;
        for piece in out {
            let missing = HEAD.saturating_sub(pipe.head.len()).min(piece.len());
            pipe.head.extend_from_slice(&piece[..missing]);
            let handshake = pipe.handshake(side).map_or(piece.len(), |bytes| bytes.saturating_sub(pipe.written));
            let passes = match mute {
                _ if pipe.deaf => 0,
                Mute::Deaf { behind_handshake: false } => 0,
                Mute::Deaf { behind_handshake: true } => piece.len().min(handshake),
                Mute::Large { from } if piece.len() >= from => 0,
                _ => piece.len(),
            };
            pipe.deaf |= passes < piece.len();
            pipe.written += piece.len();
            pipe.bytes.extend(&piece[..passes]);
            through += passes;
        }
        if through == 0 {
            return;
        }
        let length = through;
        pipe.last = pipe.last.max(now + latency);
        pipe.arrivals.push_back((pipe.last, length));
        let wait = pipe.last - now;
        self.after(wait, Event::Deliver(socket, 1 - side));
    }

    pub(crate) fn writable(&mut self, socket: usize, side: usize) {
        if std::mem::take(&mut self.sockets[socket].pipes[side].waits) {
            self.flush(socket, side);
            if let Some(proc) = self.sockets[socket].procs[side] {
                self.pump(proc);
            }
        }
    }

    pub(crate) fn deliver(&mut self, socket: usize, side: usize) {
        let entry = &mut self.sockets[socket];
        let Some(proc) = entry.procs[side].filter(|_| entry.open[side]) else { return };
        let (from, to) = (entry.nodes[1 - side], entry.nodes[side]);
        if self.mutes[from][to] == Mute::Stalled {
            return;
        }
        let now = self.now;
        let pipe = &mut entry.pipes[1 - side];
        let mut arrived = 0;
        for (at, length) in &pipe.arrivals {
            if *at > now {
                break;
            }
            arrived += length;
        }
        if arrived == 0 {
            return;
        }
        let take =
            if self.random.chance(self.plan.torn) { self.random.between(1, arrived as u64) as usize } else { arrived };
        let bytes: Bytes = pipe.bytes.drain(..take).collect();
        let mut left = take;
        while left > 0 {
            let front = pipe.arrivals.front_mut().expect("the bytes are there");
            let part = front.1.min(left);
            front.1 -= part;
            left -= part;
            if front.1 == 0 {
                pipe.arrivals.pop_front();
            }
        }
        let waits = pipe.waits;
        if take < arrived {
            let wait = self.random.below(300);
            self.after(wait, Event::Deliver(socket, side));
        }
        if waits {
            let wait = self.random.below(500);
            self.after(wait, Event::Writable(socket, 1 - side));
        }
        let pipe = &mut self.sockets[socket].pipes[1 - side];
        pipe.delivered += take;
        if pipe.handshake(1 - side).is_some_and(|bytes| pipe.delivered > bytes) {
            self.procs[proc].views[from].first_lost = None;
        }
        self.note(5, ((socket as u64) << 20) | take as u64, || format!("socket {socket}: {take} bytes for n{to}"));
        let time = self.time();
        self.procs[proc].machine.received(time, end(socket, side), bytes);
        self.pump(proc);
    }

    // Closing.

    /// The machine has closed its end: the bytes it has still to write go first.
    pub(crate) fn close_end(&mut self, proc: usize, id: SocketId, why: &Closed) {
        let (socket, side) = end_of(id);
        if !self.sockets[socket].open[side] {
            return;
        }
        if let Closed::Garbage(_) | Closed::Unproven(_) = why {
            self.broke(format!("between honest nodes: {why}"));
        }
        self.made_room(proc, why);
        let out = self.fill(proc, end(socket, side), 1 << 20);
        self.write(socket, side, &out);
        self.give_back(out);
        self.end_side(socket, side);
        let wait = if self.random.chance(50) { 0 } else { self.random.below(2000) };
        self.after(wait, Event::OwnClosed(socket, side));
    }

    /// A socket of an honest node is closed. When too many have no handshake, the source that has most of
    /// them loses one.
    pub(crate) fn made_room(&mut self, proc: usize, why: &Closed) {
        if *why == Closed::Crowded && self.thief_crowds(proc) {
            let node = self.procs[proc].node;
            self.broke(format!("n{node} closes the socket of an honest node to make room for the thief's"));
        }
    }

    /// One end is closed; the other side learns that after all bytes.
    pub(crate) fn end_side(&mut self, socket: usize, side: usize) {
        let entry = &mut self.sockets[socket];
        entry.open[side] = false;
        entry.pipes[side].ended = true;
        let at = entry.pipes[side].last.max(self.now);
        let wait = at - self.now + self.latency();
        self.after(wait, Event::HearClose(socket, 1 - side));
    }

    pub(crate) fn own_closed(&mut self, socket: usize, side: usize) {
        let Some(proc) = self.sockets[socket].procs[side] else { return };
        let now = self.time();
        self.procs[proc].machine.closed(now, end(socket, side));
        self.pump(proc);
    }

    pub(crate) fn hear_close(&mut self, socket: usize, side: usize) {
        let entry = &self.sockets[socket];
        let Some(proc) = entry.procs[side].filter(|_| entry.open[side] && !entry.close_heard[side]) else { return };
        let pipe = &entry.pipes[1 - side];
        if self.mutes[entry.nodes[1 - side]][entry.nodes[side]].blocks() {
            // The close does not arrive either; `unmute` asks again for what arrives later.
            return;
        }
        if entry.deaf[side] || (pipe.gone && !entry.cut) {
            return;
        }
        if !pipe.bytes.is_empty() {
            let wait = self.random.between(100, 2000);
            return self.after(wait, Event::HearClose(socket, side));
        }
        self.sockets[socket].close_heard[side] = true;
        self.sockets[socket].open[side] = false;
        self.note(6, socket as u64, || format!("socket {socket}: closed for side {side}"));
        let now = self.time();
        self.procs[proc].machine.closed(now, end(socket, side));
        self.pump(proc);
        // Its own end is closed with it.
        if !self.sockets[socket].pipes[side].ended {
            self.end_side(socket, side);
        }
    }

    /// Cuts a socket: of the bytes under way in each direction, some still arrive.
    pub(crate) fn cut(&mut self, socket: usize, half_open: bool) {
        self.sockets[socket].cut = true;
        for side in 0..2 {
            let keep = self.random.below(self.sockets[socket].pipes[side].bytes.len() as u64 + 1) as usize;
            let pipe = &mut self.sockets[socket].pipes[side];
            let dropped = pipe.bytes.len() - keep;
            pipe.bytes.truncate(keep);
            pipe.gone = true;
            let mut left = dropped;
            while left > 0 {
                let back = pipe.arrivals.back_mut().expect("the bytes are there");
                let part = back.1.min(left);
                back.1 -= part;
                left -= part;
                if back.1 == 0 {
                    pipe.arrivals.pop_back();
                }
            }
            let wait = if self.random.chance(50) { self.random.below(3000) } else { self.random.below(400_000) };
            self.after(wait, Event::HearClose(socket, side));
        }
        if half_open {
            let side = self.random.index(2);
            self.sockets[socket].deaf[side] = true;
        }
    }

    pub(crate) fn unmute(&mut self, from: usize, to: usize) {
        let was = std::mem::replace(&mut self.mutes[from][to], Mute::None);
        if was == Mute::None {
            return;
        }
        self.note(7, (from * 8 + to) as u64, || format!("n{from} is received by n{to} again"));
        for socket in 0..self.sockets.len() {
            let entry = &self.sockets[socket];
            let Some(side) = (0..2).find(|side| entry.nodes[1 - side] == from && entry.nodes[*side] == to) else {
                continue;
            };
            if entry.open[side] {
                let ended = entry.pipes[1 - side].ended;
                self.after(0, Event::Deliver(socket, side));
                if ended || self.sockets[socket].cut {
                    let wait = self.random.below(5000);
                    self.after(wait, Event::HearClose(socket, side));
                }
            }
        }
    }

    /// The use of a socket, as far as the outside shows it.
    pub(crate) fn phase_of(&self, socket: usize) -> Met {
        let entry = &self.sockets[socket];
        let carries = |side: usize| {
            entry.procs[side].is_some_and(|proc| {
                let other = crate::world::node_id(entry.nodes[1 - side]);
                self.procs[proc].machine.carried_by(other) == Some(end(socket, side))
            })
        };
        match (carries(0), carries(1)) {
            (true, _) => Met::Carries,
            (false, true) => Met::Greeting,
            (false, false) => Met::Stranger,
        }
    }
}
