//! Numbered messages from node to node, and introductions.

use dunlin_proto::id::Life;
use dunlin_proto::wire::Names;

use crate::world::{Event, World, address, node_id, node_index};

impl World {
    pub(crate) fn chat(&mut self, proc: usize) {
        if self.healed || self.procs[proc].leaving {
            return;
        }
        let other = self.random.index(self.plan.nodes);
        let (me, now) = (self.procs[proc].node, self.time());
        if other != me {
            match self.random.below(100) {
                0..40 => {
                    self.reach(proc, other);
                    let view = &mut self.procs[proc].views[other];
                    let number = (view.epoch << 32) | view.said;
                    view.said += 1;
                    self.note(40, number, || format!("n{me} sends {number:#x} to n{other}"));
                    self.procs[proc]
                        .machine
                        .say_names(now, node_id(other), Names::BadName { number })
                        .expect("it has no text");
                    self.pump(proc);
                }
                40..50 => {
                    self.procs[proc].introductions += 1;
                    self.procs[proc].machine.introduce(address(other));
                    self.pump(proc);
                }
                50..60 => self.learn(proc, other),
                60..70 => {
                    self.reach(proc, other);
                    self.procs[proc].machine.connect(now, node_id(other));
                    self.pump(proc);
                }
                _ => {}
            }
        }
        let wait = self.random.between(5000, 150_000);
        self.after(wait, Event::Chat(proc));
    }

    pub(crate) fn introduced(&mut self, proc: usize, to: &str, result: Result<dunlin_proto::id::NodeId, String>) {
        let node = &mut self.procs[proc];
        if node.introductions == 0 {
            return self.broke(format!("an introduction at {to} has two answers"));
        }
        node.introductions -= 1;
        if let Ok(id) = result
            && address(node_index(id)) != to
        {
            self.broke(format!("at {to}, n{} is introduced", node_index(id)));
        }
    }

    pub(crate) fn names_heard(&mut self, proc: usize, from: Life, said: Names) {
        let Names::BadName { number } = said else { return self.broke(format!("{said:?} was not sent")) };
        let (epoch, count) = (number >> 32, number & 0xffff_ffff);
        let node = node_index(from.node);
        let view = &mut self.procs[proc].views[node];
        let life = view.life;
        if life != from.incarnation.0 {
            return self.broke(format!("n{node}/{} is received while n{node}/{life} is known", from.incarnation.0));
        }
        let right = match view.hears {
            None => count == 0,
            Some((old, next)) => old == epoch && count == next,
        };
        let before = view.hears.replace((epoch, count + 1));
        if !right {
            self.broke(format!("of n{node}, message {epoch}/{count} is received after {before:?}"));
        }
    }
}
