//! Two machines with the bytes between them.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use dunlin_proto::id::{DialId, SocketId};
use dunlin_proto::time::Time;
use dunlin_proto::wire::{Frame, codec};
use dunlin_proto::{Config, Machine};

use super::machines::{connect, machines};

pub(crate) const SENDER: usize = 0;
pub(crate) const HOME: usize = 1;

pub(crate) struct Pair {
    pub(crate) now: u64,
    pub(crate) machines: [Machine; 2],
    /// The bytes on their way to the other machine.
    pub(crate) pipes: [VecDeque<Bytes>; 2],
    pub(crate) socket: SocketId,
}

impl Pair {
    pub(crate) fn new(config: &Config) -> Self {
        Self { now: 1000, machines: machines(config), pipes: Default::default(), socket: SocketId(0) }
    }

    pub(crate) fn time(&self) -> Time {
        Time(self.now)
    }

    /// The machine `at` dials the other one.
    pub(crate) fn dial(&mut self, at: usize, dial: DialId) {
        self.pipes = Default::default();
        connect(&mut self.machines, at, dial, &mut self.socket, Time(self.now));
    }

    /// The machine writes a little, about `most` bytes, so that cuts strike within values. `false`: it has
    /// nothing to write.
    pub(crate) fn write(&mut self, at: usize, most: usize) -> bool {
        let mut out = Vec::new();
        self.machines[at].fill(Time(self.now), self.socket, most, &mut out);
        let wrote = !out.is_empty();
        self.pipes[at].extend(out);
        wrote
    }

    /// Each machine reads what is next. `false`: there is nothing.
    pub(crate) fn read(&mut self) -> bool {
        let mut read = false;
        for at in [SENDER, HOME] {
            if let Some(bytes) = self.pipes[at].pop_front() {
                read = true;
                self.machines[1 - at].received(Time(self.now), self.socket, bytes);
            }
        }
        read
    }

    /// The machine `at` receives frames that the other one has not sent.
    pub(crate) fn forge(&mut self, at: usize, frames: &[Frame]) {
        let mut bytes = BytesMut::new();
        for frame in frames {
            let piece = codec::encode(frame, &mut bytes);
            bytes.extend_from_slice(&piece.unwrap_or_default());
        }
        self.machines[at].received(Time(self.now), self.socket, bytes.freeze());
    }

    /// The socket is lost with its contents.
    pub(crate) fn cut(&mut self) {
        self.pipes = Default::default();
        for machine in &mut self.machines {
            machine.closed(Time(self.now), self.socket);
        }
    }

    pub(crate) fn wait(&mut self, time: u64) {
        self.now += time;
        for machine in &mut self.machines {
            machine.tick(Time(self.now));
        }
    }
}
