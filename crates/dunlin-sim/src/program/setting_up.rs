//! How channels and their senders are set up.

use std::collections::VecDeque;

use dunlin_proto::id::ChannelId;
use dunlin_proto::wire::Terms;

use super::{Channel, Sender, Stage};
use crate::world::{Event, World};

impl World {
    pub(crate) fn set_up(&mut self) {
        // In runs that hold values, one node has so many channels that it has no room for all values.
        let (count, crowded) = if self.plan.holds { (10, Some(0)) } else { (self.random.between(1, 3), None) };
        for _ in 0..count {
            let node = crowded.unwrap_or_else(|| self.random.index(self.plan.nodes));
            self.new_channel(self.current[node]);
        }
        for channel in 0..self.channels.len() {
            for _ in 0..self.random.between(1, 2) {
                self.new_sender(channel);
            }
        }
        self.set_up_travel();
    }

    pub(crate) fn new_channel(&mut self, proc: usize) {
        let many = self.random.chance(40);
        let room = if self.random.chance(50) { 0 } else { self.random.between(1, 6) };
        let terms = Terms {
            window: self.random.between(1, 4) as u32,
            credits: if many || room == 0 { 0 } else { self.random.between(0, room) as u32 },
            value_max: self.plan.value_max,
        };
        let id = ChannelId(u128::from(self.random.next()) << 64 | u128::from(self.random.next()));
        self.channels.push(Channel {
            id,
            proc,
            opened: None,
            ended: None,
            mail: false,
            many,
            room,
            terms,
            queue: Vec::new(),
            buffer: VecDeque::new(),
            asked: false,
            halves: Vec::new(),
            forgot_in: 0,
            asks: 0,
        });
        let wait = if self.random.chance(80) { self.random.below(5000) } else { self.random.below(100_000) };
        self.after(wait, Event::Home(self.channels.len() - 1));
    }

    /// Makes a sender for this channel, at a node that has none.
    pub(crate) fn new_sender(&mut self, channel: usize) {
        let node = self.random.index(self.plan.nodes);
        self.new_sender_at(channel, node);
    }

    pub(crate) fn new_sender_at(&mut self, channel: usize, node: usize) {
        let home = self.procs[self.channels[channel].proc].node;
        let proc = self.current[node];
        let most = if self.channels[channel].mail { 70 } else { 10 };
        let taken = self
            .senders
            .iter()
            .any(|sender| sender.channel == channel && sender.proc == proc && !self.is_forgotten(sender));
        if node == home || taken || !self.procs[proc].alive || self.procs[proc].leaving || self.senders.len() > most {
            return;
        }
        let misfit = self.random.chance(4);
        self.senders.push(Sender {
            proc,
            channel,
            stage: Stage::New,
            credits: 0,
            value_max: u64::MAX,
            misfit,
            gone: false,
            ended: Vec::new(),
            sent: 0,
            sent_arrived: 0,
            lost: false,
            last_arrived: None,
        });
        let wait = self.random.below(20_000);
        self.after(wait, Event::Sender(self.senders.len() - 1));
    }

    /// Whether its machine has forgotten it, so that another one may attach.
    pub(super) fn is_forgotten(&self, sender: &Sender) -> bool {
        sender.stage == Stage::Over && !self.procs[sender.proc].machine.has_half(self.channels[sender.channel].id)
    }

    pub(super) fn open_offers(&self, sender: usize) -> impl Iterator<Item = usize> + '_ {
        (0..self.offers.len()).filter(move |at| self.offers[*at].sender == sender && self.offers[*at].outcome.is_none())
    }
}
