//! Processes and mailboxes of the nodes: what they send each other, and its laws.
//!
//! Each node has a few processes, with a mailbox each. They post, call (`calls.rs`), watch, link, kill, send
//! exits, and end; no process begins later. A node that is asked for a link watches the source. What one
//! node sends to another has a number, its *tag*. A message has it in its bytes, an exit in its text, and a
//! link or a kill in the bits of the process that sends it.
//!
//! The laws:
//! - what one node sends to another arrives once and in the order sent, without a gap, as long as the life
//!   of the connection lasts; nothing of a life that is over arrives in the next. So an end overtakes no
//!   message;
//! - each watch is told once, unless it is ended before, and then never;
//! - a watch is told that its node is lost only when the connection's life ends: a connection that resumes
//!   tells nothing, and a new incarnation does;
//! - who is told that there is no room hears when there is some.

use bytes::Bytes;
use dunlin_proto::id::{Contact, Incarnation, Life, MailboxId, NodeId, ProcessId};
use dunlin_proto::wire::{Exit, Reason};
use dunlin_proto::{NotPosted, PostHears, SignalHears};

use crate::process::{ITEM, PROCESSES, Sent, Watch};
use crate::view::Standing;
use crate::world::{Event, World, node_id, node_index};

/// How many messages each node sends to one mailbox of each other node at rest: more than it has room for at
/// once.
const POSTS_AT_REST: usize = 24;

fn mailbox(incarnation: u64, process: usize) -> MailboxId {
    MailboxId { number: process as u64 + 1, bits: incarnation }
}

/// An end, or an exit, with a tag.
fn exit_of(tag: u64, reason: Reason) -> Exit {
    Exit { text: format!("#{tag}"), ..Exit::of(reason) }
}

fn tag_of(exit: &Exit) -> Option<u64> {
    exit.text.strip_prefix('#')?.parse().ok()
}

impl World {
    /// The processes of a node that starts.
    pub(crate) fn processes_start(&mut self, proc: usize) {
        self.processes.here.push(Default::default());
        if !self.processes.is_there {
            return;
        }
        let incarnation = self.procs[proc].incarnation;
        for process in 0..PROCESSES {
            self.procs[proc].machine.open_mailbox(mailbox(incarnation, process), Bytes::new(), 20);
        }
        let wait = self.processes.random.between(1000, 60_000);
        self.after(wait, Event::Process(proc));
    }

    /// The pid of a process of a node's present life, or sometimes of its last one.
    fn some_pid(&mut self, node: usize) -> ProcessId {
        let process = self.processes.random.index(PROCESSES);
        let mut incarnation = self.procs[self.current[node]].incarnation;
        if incarnation > 1 && self.processes.random.chance(10) {
            incarnation -= 1;
        }
        pid(node_id(node), incarnation, process, 0)
    }

    /// A process does something.
    pub(crate) fn process_steps(&mut self, proc: usize) {
        if self.healed || self.procs[proc].leaving {
            return;
        }
        let (me, node) = (self.procs[proc].node, self.processes.random.index(self.plan.nodes));
        if node != me {
            self.reach(proc, node);
            match self.processes.random.below(100) {
                0..50 => {
                    for _ in 0..self.processes.random.between(1, 8) {
                        self.posts(proc, node);
                    }
                }
                50..70 => self.watches(proc, node),
                70..75 => self.unwatches(proc),
                75..95 => self.signals(proc, node),
                _ => {
                    let process = self.processes.random.index(PROCESSES);
                    self.process_ends(proc, process, Reason::Normal);
                }
            }
            self.pump(proc);
        }
        let wait = self.processes.random.between(3000, 60_000);
        self.after(wait, Event::Process(proc));
    }

    fn posts(&mut self, proc: usize, node: usize) {
        let process = self.processes.random.index(PROCESSES);
        let size = if self.processes.random.chance(10) { self.processes.random.between(8, 9000) } else { 8 };
        self.posts_to(proc, node, process, size);
    }

    /// Posts a message of that many bytes to the mailbox of that process. `false`: it has no room.
    fn posts_to(&mut self, proc: usize, node: usize, process: usize, size: u64) -> bool {
        let to = mailbox(self.procs[self.current[node]].incarnation, process);
        let tag = self.processes.tag();
        let mut message = tag.to_le_bytes().to_vec();
        message.resize(size as usize, tag as u8);
        let now = self.time();
        match self.procs[proc].machine.post(now, node_id(node), to, &Bytes::new(), message.into()) {
            Ok(()) => {
                self.note(70, tag, || format!("n{node} is sent message #{tag}"));
                self.processes.sends(proc, node, Sent::Post(process, to.bits), ITEM + size as usize);
                self.may_call(proc, node, tag);
            }
            Err(NotPosted::Full) => {
                self.coverage.full += 1;
                self.processes.full.insert((proc, node, to.number));
                return false;
            }
            Err(NotPosted::NotHere) => {}
            Err(error) => self.broke(format!("a message of {size} bytes to n{node} is refused: {error}")),
        }
        true
    }

    /// At rest, a mailbox whose messages are received has room for the next one, however many there were; and
    /// what messages take at their node is released.
    pub(crate) fn mailboxes_have_room(&mut self, patience: u64) {
        if !self.processes.is_there {
            return;
        }
        let alive: Vec<usize> = self.current.iter().copied().filter(|proc| self.procs[*proc].alive).collect();
        let nodes: Vec<usize> = alive.iter().map(|proc| self.procs[*proc].node).collect();
        let held: Vec<u64> = alive.iter().map(|proc| self.held(*proc)).collect();
        for _ in 0..POSTS_AT_REST {
            for proc in &alive {
                let me = self.procs[*proc].node;
                for node in nodes.iter().filter(|node| **node != me) {
                    if !self.posts_to(*proc, *node, 0, 8) {
                        self.broke(format!("at rest n{me} has no room in a mailbox of n{node}"));
                    }
                }
                self.pump(*proc);
            }
            if self.wait_for(patience, Self::unsettled).is_some() {
                return;
            }
        }
        // (Over a relay, a message of a call that was given up may still be on its way.)
        let until = self.now + patience;
        let keeps = |world: &Self| alive.iter().zip(&held).position(|(proc, before)| world.held(*proc) != *before);
        while let Some(at) = keeps(self) {
            if self.now >= until || self.broken.is_some() {
                let (me, now, before) = (nodes[at], self.held(alive[at]), held[at]);
                let what = format!("at rest n{me} keeps {now} bytes for others, and {before} before its messages");
                return self.broke(what);
            }
            self.run_until(self.now + 10_000);
        }
    }

    fn watches(&mut self, proc: usize, node: usize) {
        let (now, of) = (self.time(), self.some_pid(node));
        if let Ok(number) = self.procs[proc].machine.watch(now, of) {
            self.note(71, number, || format!("a process of n{node} is watched: {number}"));
            self.processes.watches.push(Watch::new(proc, node, number, None));
        }
    }

    /// That node asks for a link from a process of its own.
    fn links(&mut self, proc: usize, source: ProcessId, target: ProcessId) {
        let (now, node, link) = (self.time(), node_index(source.life.node), Some((source.number, target.number)));
        if self.own_process(proc, target).is_none() || self.link(proc, node, link).is_some() {
            return;
        }
        if let Ok(number) = self.procs[proc].machine.watch(now, source) {
            self.note(75, number, || format!("a process of n{node} is watched for a link: {number}"));
            self.processes.watches.push(Watch::new(proc, node, number, link));
        }
    }

    /// That node asks that the link end: no exit of it comes afterwards.
    fn unlinks(&mut self, proc: usize, source: ProcessId, target: ProcessId) {
        let (now, node, event) = (self.time(), node_index(source.life.node), self.coverage.events);
        if let Some(watch) = self.link(proc, node, Some((source.number, target.number))) {
            (watch.has_ended, watch.unlinked_in) = (true, Some(event));
            let number = watch.number;
            self.procs[proc].machine.unwatch(now, node_id(node), number);
        }
    }

    fn link(&mut self, proc: usize, node: usize, link: Option<(u64, u64)>) -> Option<&mut Watch> {
        let is_it = |watch: &&mut Watch| (watch.proc, watch.node, watch.link) == (proc, node, link);
        self.processes.watches.iter_mut().filter(is_it).find(|watch| !watch.is_told && !watch.has_ended)
    }

    fn unwatches(&mut self, proc: usize) {
        let own = |watch: &&mut Watch| watch.proc == proc && watch.link.is_none() && !watch.is_told && !watch.has_ended;
        let Some(watch) = self.processes.watches.iter_mut().find(own) else { return };
        watch.has_ended = true;
        let (node, number) = (watch.node, watch.number);
        let now = self.time();
        self.procs[proc].machine.unwatch(now, node_id(node), number);
    }

    /// Sends an exit, a link or a kill.
    fn signals(&mut self, proc: usize, node: usize) {
        let (now, target, tag) = (self.time(), self.some_pid(node), self.processes.tag());
        let process = self.processes.random.index(PROCESSES);
        // (Which process sends it has no effect.)
        let own = pid(node_id(self.procs[proc].node), self.procs[proc].incarnation, process, tag);
        let machine = &mut self.procs[proc].machine;
        let sent = match self.processes.random.below(4) {
            0 => machine.link(now, own, target),
            1 => machine.unlink(now, own, target),
            2 => machine.exit(now, target, own, exit_of(tag, Reason::Error)),
            _ => machine.kill(now, target, own),
        };
        if sent.is_ok() {
            self.processes.sends(proc, node, Sent::Signal, ITEM);
        }
    }

    fn process_ends(&mut self, proc: usize, process: usize, reason: Reason) {
        let over = &mut self.processes.here[proc][process];
        over.is_over = true;
        for (by, number) in std::mem::take(&mut over.watchers) {
            self.reports(proc, by, number, reason);
        }
    }

    /// Tells a node that a process which it watches has ended.
    fn reports(&mut self, proc: usize, by: Contact, number: u64, reason: Reason) {
        if self.procs[proc].machine.is_over(by) {
            return;
        }
        let (tag, node) = (self.processes.tag(), node_index(by.node));
        // The lives of a node number their watches alike.
        let life = self.procs[proc].views[node].life;
        let of = |watch: &Watch| {
            let by = &self.procs[watch.proc];
            (by.node, by.incarnation, watch.number) == (node, life, number)
        };
        let Some(watch) = self.processes.watches.iter().position(of) else {
            return self.broke(format!("n{node} has no watch {number}"));
        };
        self.processes.sends(proc, node, Sent::Down(watch), ITEM);
        self.procs[proc].machine.down(by, number, exit_of(tag, reason));
    }

    /// All processes end.
    pub(crate) fn processes_end(&mut self) {
        if !self.processes.is_there {
            return;
        }
        for proc in 0..self.procs.len() {
            if self.procs[proc].alive {
                (0..PROCESSES).for_each(|process| self.process_ends(proc, process, Reason::Normal));
                self.pump(proc);
            }
        }
        self.calls_end();
    }

    /// An item arrives.
    fn item_arrives(&mut self, proc: usize, from: usize, tag: u64) {
        let me = self.procs[proc].node;
        let Some(item) = self.processes.items.get(tag as usize) else {
            return self.broke(format!("n{me} receives #{tag}, which was not sent"));
        };
        let (stream, place) = (item.stream, item.place);
        let heard = self.processes.heard.entry((proc, from)).or_default();
        let present = *heard.stream.get_or_insert(stream);
        let next = heard.next;
        heard.next = place + 1;
        if heard.over.contains(&stream) {
            return self.broke(format!("n{me} receives #{tag} of n{from} in a later life of the connection"));
        }
        if stream != present || stream.1 != me || self.procs[stream.0].node != from {
            return self.broke(format!("n{me} receives #{tag} of n{from}, of {stream:?} and not of {present:?}"));
        }
        if place < next {
            return self.broke(format!("n{me} receives #{tag} of n{from} twice, or late"));
        }
        let mut missing = self.processes.streams[&stream][next..place].iter().copied();
        // The end of a watch that has ended here meanwhile is not reported.
        // Nor is a message for a mailbox of an earlier incarnation.
        let is_needed = |tag: &usize| match self.processes.items[*tag].sent {
            Sent::Down(watch) => !self.processes.watches[watch].has_ended,
            Sent::Post(_, incarnation) => incarnation == self.procs[proc].incarnation,
            Sent::Signal => true,
        };
        let gap = missing.find(is_needed);
        if let Some(gap) = gap {
            self.broke(format!("n{me} receives #{tag} of n{from} before #{gap}"));
        }
        self.coverage.items += 1;
    }

    pub(crate) fn post_heard(&mut self, proc: usize, heard: PostHears) {
        match heard {
            PostHears::Message(from, number, message) => {
                let Some(tag) = message.first_chunk().map(|first| u64::from_le_bytes(*first)) else {
                    return self.broke("a message is shorter than any that is sent");
                };
                self.item_arrives(proc, node_index(from.node), tag);
                let sent = self.processes.items.get(tag as usize).map(|item| item.sent);
                let is_whole = message[8..].iter().all(|byte| *byte == tag as u8);
                let to = Sent::Post(number as usize - 1, self.procs[proc].incarnation);
                if sent != Some(to) || !is_whole {
                    return self.broke(format!("message #{tag} is not what was sent"));
                }
                self.may_be_called(proc, from, tag);
                let wait = if self.healed { 0 } else { self.processes.random.below(30_000) };
                self.after(wait, Event::Received(proc, number, from, message.len() as u64));
            }
            PostHears::Room(node, number) => {
                self.processes.full.remove(&(proc, node_index(node), number));
            }
            // The process has been sent something for an earlier life of the node.
            PostHears::Closed(node, number) => {
                let node = node_index(node);
                self.processes.full.remove(&(proc, node, number));
                if self.procs.iter().filter(|proc| proc.node == node).count() < 2 {
                    self.broke(format!("mailbox {number} of n{node} is closed, and is not"));
                }
            }
            PostHears::Mismatch(node, number, _) => {
                self.broke(format!("mailbox {number} of n{} has another schema", node_index(node)));
            }
        }
    }

    /// A message, or an exit if the number is zero, has been received.
    pub(crate) fn item_received(&mut self, proc: usize, number: u64, from: Contact, bytes: u64) {
        let machine = &mut self.procs[proc].machine;
        match number {
            0 => machine.exit_received(from, bytes),
            _ => machine.post_received(number, from, bytes),
        }
        self.pump(proc);
    }

    pub(crate) fn signal_heard(&mut self, proc: usize, heard: SignalHears) {
        match heard {
            SignalHears::Watch(by, number, of) => match self.own_process(proc, of) {
                Some(process) => self.processes.here[proc][process].watchers.push((by, number)),
                None => self.reports(proc, by, number, Reason::NoSuchProcess),
            },
            SignalHears::Unwatch(node, number) => self.forgets(proc, |by, other| by.node == node && other == number),
            SignalHears::AllUnwatched(node) => self.forgets(proc, |by, _| by.node == node),
            SignalHears::Down(node, number, exit) => self.down_heard(proc, node_index(node), number, &exit),
            SignalHears::Link { by, source, target } => {
                self.item_arrives(proc, node_index(by), source.bits);
                self.links(proc, source, target);
            }
            SignalHears::Unlink { by, source, target } => {
                self.item_arrives(proc, node_index(by), source.bits);
                self.unlinks(proc, source, target);
            }
            SignalHears::Exit { by, exit, .. } => {
                let Some(tag) = tag_of(&exit) else { return self.broke("an exit has no tag") };
                self.item_arrives(proc, node_index(by.node), tag);
                let wait = if self.healed { 0 } else { self.processes.random.below(30_000) };
                self.after(wait, Event::Received(proc, 0, by, exit.bytes()));
            }
            SignalHears::Kill { by, to, from } => {
                self.item_arrives(proc, node_index(by), from.bits);
                if let Some(process) = self.own_process(proc, to) {
                    self.process_ends(proc, process, Reason::Killed);
                }
            }
        }
    }

    fn forgets(&mut self, proc: usize, which: impl Fn(&Contact, u64) -> bool) {
        for process in &mut self.processes.here[proc] {
            process.watchers.retain(|(by, number)| !which(by, *number));
        }
    }

    /// A process that runs.
    fn own_process(&self, proc: usize, of: ProcessId) -> Option<usize> {
        let process = (of.number as usize).checked_sub(1)?;
        let is_own = of.life.incarnation.0 == self.procs[proc].incarnation;
        (is_own && !self.processes.here[proc].get(process)?.is_over).then_some(process)
    }

    fn down_heard(&mut self, proc: usize, node: usize, number: u64, exit: &Exit) {
        let me = self.procs[proc].node;
        let own = |watch: &Watch| watch.proc == proc && watch.number == number && watch.node == node;
        let Some(at) = self.processes.watches.iter().position(own) else {
            return self.broke(format!("n{me} is told of n{node}'s watch {number}, which there is not"));
        };
        self.note(72, number, || format!("n{me} is told of watch {number} at n{node}: {exit:?}"));
        let watch = &mut self.processes.watches[at];
        // The end had arrived with the unlink: the program ignores it.
        if watch.unlinked_in.take() == Some(self.coverage.events) {
            return;
        }
        let (was_told, has_ended) = (watch.is_told, watch.has_ended);
        watch.is_told = true;
        self.coverage.told += 1;
        if was_told || has_ended {
            let what = if was_told { "twice" } else { "after it has ended" };
            return self.broke(format!("n{me} is told of watch {number} at n{node} {what}"));
        }
        match (exit.reason, tag_of(exit)) {
            (Reason::NodeLost | Reason::NodeLeft, _) => self.processes.lost.push((proc, node)),
            (_, Some(tag)) => {
                self.item_arrives(proc, node, tag);
                if self.processes.items.get(tag as usize).is_none_or(|item| item.sent != Sent::Down(at)) {
                    self.broke(format!("n{me} is told of watch {number} at n{node} with the end of another"));
                }
            }
            // There was no room for it.
            (Reason::Refused, None) => {}
            (reason, None) => self.broke(format!("n{me} is told of watch {number} at n{node}: {reason:?}")),
        }
    }

    /// The life of a connection has ended at this side.
    pub(crate) fn processes_lose(&mut self, proc: usize, node: usize) {
        *self.processes.lives.entry((proc, node)).or_default() += 1;
        let heard = self.processes.heard.entry((proc, node)).or_default();
        heard.over.extend(heard.stream.take());
        heard.next = 0;
        self.processes.ended_at.insert((proc, node), self.coverage.events);
        self.processes.full.retain(|(waits, at, _)| (*waits, *at) != (proc, node));
    }

    /// Runs after every event.
    pub(crate) fn check_lost(&mut self) {
        for (proc, node) in std::mem::take(&mut self.processes.lost) {
            if self.processes.ended_at.get(&(proc, node)) != Some(&self.coverage.events) {
                let me = self.procs[proc].node;
                self.broke(format!("n{me}: a process is told that n{node} is lost, and the connection's life goes on"));
            }
        }
    }

    /// About how many bytes processes have sent that have not arrived, and will cause.
    pub(crate) fn processes_bytes(&self) -> usize {
        let on_the_way = self.processes.streams.iter().map(|(stream, tags)| {
            let (proc, node, life) = *stream;
            let is_present = self.processes.lives.get(&(proc, node)).copied().unwrap_or(0) == life;
            if !self.procs[proc].alive || !is_present {
                return 0;
            }
            let heard = self.processes.heard.get(&(self.current[node], self.procs[proc].node));
            let next = heard.filter(|heard| heard.stream == Some(*stream)).map_or(0, |heard| heard.next);
            tags[next..].iter().map(|tag| self.processes.items[*tag].size).sum()
        });
        let open = self.processes.watches.iter().filter(|watch| !watch.is_told && !watch.has_ended).count();
        on_the_way.sum::<usize>() + 2 * ITEM * open + self.calls_bytes()
    }

    /// What processes still wait for.
    pub(crate) fn processes_unsettled(&self) -> Option<String> {
        let is_open = |watch: &&Watch| self.procs[watch.proc].alive && !watch.is_told && !watch.has_ended;
        if let Some(watch) = self.processes.watches.iter().find(is_open) {
            let (me, node, number) = (self.procs[watch.proc].node, watch.node, watch.number);
            return Some(format!("n{me}'s watch {number} at n{node} is not told"));
        }
        if let Some(call) = self.calls_unsettled() {
            return Some(call);
        }
        let waits = |(proc, node, _): &&(usize, usize, u64)| {
            self.procs[*proc].alive && self.procs[*proc].views[*node].state != Standing::Idle
        };
        let (proc, node, number) = self.processes.full.iter().find(waits)?;
        Some(format!("n{} waits for room in mailbox {number} of n{node}", self.procs[*proc].node))
    }
}

fn pid(node: NodeId, incarnation: u64, process: usize, bits: u64) -> ProcessId {
    let life = Life { node, incarnation: Incarnation(incarnation) };
    ProcessId { life, number: process as u64 + 1, place: 0, bits }
}
