//! The laws of connections, what must end, and what may be left at rest.
//!
//! The laws of values are checked where they apply, in `program/`: the checker compares what a program learns
//! with what the other one did.

use dunlin_proto::id::SocketId;
use dunlin_proto::{Census, Down, State};

use crate::program::Stage;
use crate::socket::end_of;
use crate::thief::is_thiefs;
use crate::view::Standing;
use crate::world::{Event, Proc, World, address, micros, node_id};

/// What an attached half uses of the bytes that its home may keep.
const HALF: usize = 2 << 10;

impl World {
    pub(crate) fn connection_changed(&mut self, proc: usize, node: usize, state: State) {
        let (now, me) = (self.now, self.procs[proc].node);
        let view = &mut self.procs[proc].views[node];
        let was = view.state;
        match state {
            State::Up(life) => {
                let life = life.incarnation.0;
                let known = view.life;
                view.state = Standing::Up;
                view.lives += 1;
                if view.life != life {
                    view.followed = 0;
                }
                view.life = life;
                if was != Standing::Idle {
                    return self.broke(format!("n{me}: the connection to n{node} is up, and was {was:?}"));
                }
                if life < known {
                    return self.broke(format!("n{me} meets n{node}/{life} after n{node}/{known}: a stale life"));
                }
                if !self.procs.iter().any(|proc| proc.node == node && proc.incarnation == life) {
                    self.broke(format!("n{me} meets n{node}/{life}, which there is not"));
                }
                self.join(proc, node);
            }
            State::Lost(until) => {
                view.state = Standing::Lost;
                view.lost_at.get_or_insert(now);
                let grace = micros(self.plan.grace_of(me));
                // The simulator does not look into what a relay carries: see `Walls`.
                let late = self.plan.config.helpers_max == 0 && until.0 > *view.first_lost.get_or_insert(now) + grace;
                if !matches!(was, Standing::Up | Standing::Resumed) {
                    return self.broke(format!("n{me}: the connection to n{node} is lost, and was {was:?}"));
                }
                if late {
                    self.broke(format!(
                        "n{me}: the connection to n{node} has its grace period anew, and has received nothing"
                    ));
                }
            }
            State::Resumed => {
                view.state = Standing::Resumed;
                self.coverage.resumed += 1;
                if was != Standing::Lost {
                    self.broke(format!("n{me}: the connection to n{node} is resumed, and was {was:?}"));
                }
                self.join(proc, node);
            }
            State::Relayed(relay) => {
                self.coverage.relayed += 1;
                if !matches!(was, Standing::Up | Standing::Resumed) {
                    self.broke(format!("n{me}: the connection to n{node} is relayed, and was {was:?}"));
                }
                if relay == node_id(me) || relay == node_id(node) {
                    self.broke(format!("n{me}: the connection to n{node} is relayed by one of the two"));
                }
            }
            State::Down(why) => {
                self.died(proc, node, was, why);
                if self.random.chance(30) {
                    self.reach_again(proc, node);
                }
            }
        }
    }

    /// A socket has taken up a connection at one side. If it has at the other too, the two lives are joined
    /// for good.
    fn join(&mut self, proc: usize, node: usize) {
        let me = self.procs[proc].node;
        if self.procs[proc].machine.relayed_by(node_id(node)).is_some() {
            // No socket shows which node is at the other side.
            self.procs[proc].views[node].carrier = None;
            return;
        }
        let Some(id) = self.procs[proc].machine.carried_by(node_id(node)) else { return };
        if is_thiefs(id) {
            return self.broke(format!("n{me} takes a peer without its key for n{node}"));
        }
        let (socket, side) = end_of(id);
        if side == 1 && !self.sockets[socket].is_confirmed() {
            return self.broke(format!("n{me}: the connection to n{node} goes on, and its dialler has not confirmed"));
        }
        self.procs[proc].views[node].carrier = Some(socket);
        let Some(other) = self.sockets[socket].procs[1 - side] else { return };
        if self.procs[other].views[me].carrier != Some(socket) {
            return;
        }
        for (one, that, other, this) in [(proc, node, other, me), (other, me, proc, node)] {
            let life = (other, self.procs[other].views[this].lives);
            let before = self.procs[one].views[that].joined.replace(life);
            if let Some(before) = before.filter(|before| *before != life) {
                let node = self.procs[one].node;
                return self.broke(format!(
                    "n{node}: a life of the connection to n{that} went on with {before:?}, and now with {life:?}"
                ));
            }
        }
    }

    fn died(&mut self, proc: usize, node: usize, was: Standing, why: Down) {
        let (now, me) = (self.now, self.procs[proc].node);
        let grace = micros(self.plan.grace_of(me));
        self.coverage.deaths += 1;
        self.failed.insert((me, node));
        self.processes_lose(proc, node);
        let view = &mut self.procs[proc].views[node];
        let (life, lost_at) = (view.life, view.lost_at);
        view.state = Standing::Idle;
        view.first_lost = None;
        view.lost_at = None;
        view.joined = None;
        view.carrier = None;
        view.lost_told = false;
        view.dialling = false;
        view.epoch += 1;
        view.said = 0;
        view.hears = None;
        match why {
            Down::GivenUp => view.followed += 1,
            _ => view.ended += 1,
        }
        let followed = view.followed;
        let other = self.procs.iter().position(|other| other.node == node && other.incarnation == life);
        let early = match &why {
            Down::Unreachable(so_long, _) | Down::Unrelayed { waited: so_long, .. } => {
                micros(*so_long) < grace
                    || matches!(was, Standing::Up | Standing::Resumed)
                    || (was == Standing::Lost && lost_at.is_some_and(|at| now - at < grace))
            }
            Down::Died(_) => {
                self.coverage.died += 1;
                // (An earlier life that still runs does not listen at its old address: a later one does.)
                let lives = |other: usize| self.procs[other].alive && self.current[node] == other;
                matches!(was, Standing::Up | Standing::Resumed) || other.is_some_and(lives)
            }
            Down::GivenUp => {
                was == Standing::Idle || other.is_none_or(|other| self.procs[other].views[me].ended < followed)
            }
            Down::Restarted => {
                was == Standing::Idle || !self.procs.iter().any(|other| other.node == node && other.incarnation > life)
            }
            Down::Left => {
                was == Standing::Idle
                    || !(self.procs[proc].leaving || other.is_some_and(|other| self.procs[other].leaving))
            }
            Down::Refused(_) => self.current[me] == proc,
            _ => true,
        };
        if matches!(why, Down::Refused(_)) && !std::mem::replace(&mut self.procs[proc].replaced, true) {
            self.coverage.replaced += 1;
        }
        if early {
            return self.broke(format!("n{me}: the connection to n{node} ends without a cause: {why}"));
        }
        // The machine must have notified every end at this node that concerns the other one.
        let half = self.channels.iter().any(|channel| {
            channel.proc == proc && channel.ended.is_none() && channel.halves.iter().any(|half| half.node == node)
        });
        let sender = self.senders.iter().any(|sender| {
            sender.proc == proc
                && matches!(sender.stage, Stage::Attaching { .. } | Stage::Attached)
                && self.procs[self.channels[sender.channel].proc].node == node
        });
        if half || sender {
            return self.broke(format!("n{me}: the connection to n{node} ended, and not all its ends were notified"));
        }
        // A channel that has ended receives no notice.
        for channel in &mut self.channels {
            if channel.proc == proc {
                channel.halves.retain(|half| half.node != node);
            }
        }
        let Some(other) = other else { return };
        if was != Standing::Idle
            && why == Down::Left
            && !self.procs[proc].leaving
            && let Some(late) = self.senders.iter().position(|sender| {
                let channel = &self.channels[sender.channel];
                sender.proc == other
                    && channel.proc == proc
                    && !sender.lost
                    && channel.ended.is_none()
                    && sender.sent_arrived < sender.sent
            })
        {
            self.broke(format!("n{node} left in good order, and what sender {late} sent has not arrived"));
        }
    }

    // After the faults.

    /// How long operations may take after the last fault.
    pub(crate) fn patience(&self) -> u64 {
        let config = &self.plan.config;
        let bytes: usize = self.offers.iter().filter(|offer| !offer.arrived).map(|offer| offer.size + 100).sum();
        let bytes = bytes + self.processes_bytes();
        // With a small window, every few bytes wait for a delayed acknowledgement.
        let windows = (bytes / config.unacked_min.min(config.chunk * 4) + 10) as u64;
        let redials = if self.plan.walls.is_some() { 10 * micros(config.redial) } else { 0 };
        redials
            + 4 * micros(config.silence + self.plan.grace_max() + config.handshake + config.backoff_max)
            + 1_000_000
            + windows * (micros(config.ack_delay) + 10 * self.plan.latency)
    }

    /// Runs until `what` waits for nothing more. What it still waits for after `patience` is kept as `stuck`.
    pub(crate) fn wait_for(&mut self, patience: u64, what: fn(&Self) -> Option<String>) -> Option<()> {
        let until = self.now + patience;
        while let Some(missing) = what(self) {
            if self.broken.is_some() {
                return Some(());
            }
            if self.now >= until {
                self.note(98, 0, || format!("STUCK: {missing}"));
                self.stuck = Some(missing);
                return Some(());
            }
            self.run_until(self.now + 10_000);
        }
        self.broken.is_some().then_some(())
    }

    /// An operation that has not ended.
    pub(crate) fn unsettled(&self) -> Option<String> {
        if let Some(at) = self.procs.iter().position(|proc| proc.alive && proc.leaving) {
            return Some(format!("n{} has not left", self.procs[at].node));
        }
        for (at, sender) in self.senders.iter().enumerate().filter(|(_, sender)| self.procs[sender.proc].alive) {
            let channel = &self.channels[sender.channel];
            let late = sender.stage == Stage::Attached
                && channel.ended.is_none()
                && self.procs[channel.proc].alive
                && sender.sent_arrived < sender.sent;
            if late {
                return Some(format!("what sender {at} sent on credit has not all arrived"));
            }
            if matches!(sender.stage, Stage::New | Stage::Attaching { .. } | Stage::Closing)
                || (sender.gone && sender.stage != Stage::Over)
            {
                return Some(format!("sender {at} is {:?}, gone: {}", sender.stage, sender.gone));
            }
        }
        let open = self
            .offers
            .iter()
            .position(|offer| offer.outcome.is_none() && self.procs[self.senders[offer.sender].proc].alive);
        if let Some(offer) = open {
            return Some(format!("{offer} has no outcome; at its home it is {:?}", self.offers[offer].at_home));
        }
        if let Some(missing) = self.travel_unsettled().or_else(|| self.processes_unsettled()) {
            return Some(missing);
        }
        let alive = || self.procs.iter().filter(|proc| proc.alive);
        if let Some(proc) = alive().find(|proc| proc.introductions > 0) {
            return Some(format!("an introduction by n{} has no answer", proc.node));
        }
        alive()
            .find(|proc| {
                let census = proc.machine.census();
                let relays = census.relayed + census.relays > 0;
                !proc.machine.is_flushed() && (!relays || census.unsaid > 0 || unheard(&census) > 0)
            })
            .map(|proc| format!("not all messages of n{} have arrived", proc.node))
    }

    /// Connects every node with every other.
    pub(crate) fn meet(&mut self) {
        let alive: Vec<usize> = self.current.iter().copied().filter(|proc| self.procs[*proc].alive).collect();
        for proc in &alive {
            for other in &alive {
                if proc != other {
                    let (now, node) = (self.time(), node_id(self.procs[*other].node));
                    self.reach(*proc, self.procs[*other].node);
                    self.procs[*proc].machine.connect(now, node);
                    self.pump(*proc);
                }
            }
        }
    }

    pub(crate) fn unmet(&self) -> Option<String> {
        let alive = || self.current.iter().filter(|proc| self.procs[**proc].alive).map(|proc| &self.procs[*proc]);
        for one in alive() {
            for (node, view) in one.views.iter().enumerate() {
                if !self.procs[self.current[node]].alive && view.state != Standing::Idle {
                    return Some(format!(
                        "n{}'s connection to n{node}, which is no more, is {:?}",
                        one.node, view.state
                    ));
                }
            }
            for other in alive().filter(|other| other.node != one.node) {
                let view = &one.views[other.node];
                let mine = one.machine.carried_by(node_id(other.node));
                let theirs = other.machine.carried_by(node_id(one.node));
                let is_up = matches!(view.state, Standing::Up | Standing::Resumed);
                let relays = [one.machine.relayed_by(node_id(other.node)), other.machine.relayed_by(node_id(one.node))];
                let agree = match relays {
                    [None, None] => {
                        view.joined.is_some() && mine.map(|id| end_of(id).0) == theirs.map(|id| end_of(id).0)
                    }
                    [mine, theirs] => mine == theirs,
                };
                // An introduction may have passed on the address of a node that does not advertise it.
                let can = |from: &Proc, to: usize| {
                    !self.plan.is_walled(from.node, to) && from.machine.addresses_of(node_id(to)).contains(&address(to))
                };
                if relays[0].is_some() && (can(one, other.node) || can(other, one.node)) {
                    return Some(format!(
                        "n{}'s connection to n{} is relayed, though one of them can dial the other",
                        one.node, other.node
                    ));
                }
                if !is_up || view.life != other.incarnation || !agree {
                    return Some(format!(
                        "n{}'s connection to n{} is {:?} (in its life {}, joined with {:?}), carried by {mine:?} and {theirs:?}",
                        one.node, other.node, view.state, view.life, view.joined
                    ));
                }
            }
        }
        None
    }

    /// Checks that only records of what exists are left, only heartbeats are sent, and no connection is lost.
    pub(crate) fn rest(&mut self) {
        self.at_rest();
        let (ticks, sockets) = (self.ticks, self.carriers());
        let pairs = self.current.len() * (self.current.len() - 1);
        self.run_until(self.now + 1_000_000);
        let ticks = self.ticks - ticks;
        let beats = 1_000_000 / micros(self.plan.config.heartbeat);
        let bound = pairs as u64 * (4 * beats + 10);
        if ticks > bound {
            self.broke(format!("at rest there are {ticks} ticks in a second; {bound} would be many"));
        }
        if sockets != self.carriers() {
            self.broke("at rest a socket was replaced");
        }
        self.at_rest();
    }

    fn carriers(&self) -> Vec<Option<SocketId>> {
        let alive = || self.current.iter().filter(|proc| self.procs[**proc].alive).map(|proc| &self.procs[*proc]);
        alive().flat_map(|one| (0..self.plan.nodes).map(|node| one.machine.carried_by(node_id(node)))).collect()
    }

    fn at_rest(&mut self) {
        self.travel_at_rest();
        for proc in self.current.clone() {
            let one = &self.procs[proc];
            if !one.alive {
                continue;
            }
            let others = self.current.iter().filter(|other| **other != proc && self.procs[**other].alive).count();
            let homes = || {
                self.channels
                    .iter()
                    .filter(|channel| channel.proc == proc && channel.opened.is_some() && channel.ended.is_none())
            };
            let attached: usize = homes().map(|channel| channel.halves.len()).sum();
            let proxies =
                self.senders.iter().filter(|sender| sender.proc == proc && sender.stage == Stage::Attached).count();
            let real: usize = homes()
                .map(|channel| {
                    let id = |sender: &&crate::program::Sender| {
                        self.channels[sender.channel].id == channel.id
                            && sender.stage == Stage::Attached
                            && self.procs[sender.proc].alive
                            && self.current[self.procs[sender.proc].node] == sender.proc
                    };
                    self.senders.iter().filter(id).count()
                })
                .sum();
            let census = one.machine.census();
            let node = one.node;
            // A relayed node tries now and then whether it can dial.
            let probes = match self.plan.walls {
                Some(_) => (census.sockets + census.relayed).saturating_sub(others).min(others),
                None => 0,
            };
            let relayed_by = |relay| {
                let alive = || self.current.iter().map(|proc| &self.procs[*proc]).filter(|proc| proc.alive);
                let peers = |one: &crate::world::Proc| {
                    alive().filter(|other| one.machine.relayed_by(node_id(other.node)) == Some(node_id(relay))).count()
                };
                alive().map(peers).sum::<usize>() / 2
            };
            let travelling = self.travel_census(proc);
            // One for each attached half; the bytes of values are not counted here in other runs.
            let held = if self.plan.holds { attached * HALF } else { self.held(proc) as usize };
            let facts = [
                ("homes", census.homes, homes().count() + travelling.0),
                ("attached halves", census.attached, attached + travelling.1),
                ("halves that think they are attached", real, attached),
                ("proxies", census.proxies, proxies + travelling.2),
                ("receivers on their way", census.visitors, travelling.3),
                ("offers", census.offers, 0),
                ("places for replies", census.replies, 0),
                ("bytes kept for others", self.held(proc) as usize, held),
                ("unfinished values", census.unfinished, 0),
                ("unacknowledged bytes", unheard(&census), 0),
                ("sockets", census.sockets + census.relayed - probes, others),
                ("sockets relayed for others", census.relays, relayed_by(node)),
            ];
            for (what, counted, right) in facts {
                if counted != right {
                    self.broke(format!("at rest n{node} has {counted} {what}, not {right}"));
                }
            }
        }
    }

    /// The bytes that a process keeps for the other nodes.
    pub(crate) fn held(&self, proc: usize) -> u64 {
        (0..self.plan.nodes).map(|node| self.procs[proc].machine.held_for(node_id(node))).sum()
    }

    /// Runs after every event.
    pub(crate) fn check_told(&mut self, proc: usize) {
        if self.plan.holds {
            let (held, most) = (self.held(proc), self.plan.held_max());
            self.coverage.held = self.coverage.held.max(held);
            if held > most {
                self.broke(format!("n{} keeps {held} bytes for others, more than {most}", self.procs[proc].node));
            }
        }
        if let Some(node) = self.procs[proc].views.iter().position(|view| view.lost_told) {
            let me = self.procs[proc].node;
            self.broke(format!("n{me}: a channel is notified that n{node} is lost, and the connection has not ended"));
        }
        if self.procs[proc].replaced
            && let Some(node) = self.procs[proc].views.iter().position(|view| view.state != Standing::Idle)
        {
            let Proc { node: me, incarnation, .. } = self.procs[proc];
            self.broke(format!("n{me}/{incarnation} knows that it is replaced, and has a connection with n{node}"));
        }
    }

    pub(crate) fn leaves(&mut self, proc: usize) {
        let now = self.time();
        self.procs[proc].machine.leave(now);
        self.pump(proc);
        self.after(1000, Event::Exit(proc));
    }

    /// Ends a process, once it is flushed or its time to leave has passed.
    pub(crate) fn exit(&mut self, proc: usize) {
        let (flushed, late) = (self.procs[proc].machine.is_flushed(), self.now >= self.procs[proc].leave_until);
        if !flushed && !late {
            return self.after(5000, Event::Exit(proc));
        }
        self.note(50, proc as u64, || "a process ends".to_owned());
        self.procs[proc].alive = false;
        self.travel_dies(proc);
        for socket in 0..self.sockets.len() {
            for side in 0..2 {
                if self.sockets[socket].procs[side] == Some(proc) && self.sockets[socket].open[side] {
                    self.end_side(socket, side);
                }
            }
        }
    }
}

/// Bytes that have not been received. Frames over a relay, heartbeats included, are acknowledged to the relay
/// and by it: some of those bytes are always on their way.
fn unheard(census: &Census) -> usize {
    let heartbeats = 64 * (census.relayed + 2 * census.relays);
    if census.unacked_bytes <= heartbeats { 0 } else { census.unacked_bytes }
}
