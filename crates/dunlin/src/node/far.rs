//! Another node, for unit tests: a machine with one socket to a driver here. The test carries the bytes of
//! that socket.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dunlin_proto::id::{Incarnation, Life, SocketId};
use dunlin_proto::{Action, Config, Machine};

use super::builder::registry;
use super::hub::Hub;
use super::identity::Key;
use super::log::Log;
use super::state::Driver;
use crate::net::Networks;

/// The driver's end of the socket, and the other one.
pub(super) const SOCKET: SocketId = SocketId(0);

fn machine() -> Machine {
    Machine::new(Config::new("krill"), Incarnation(1), 1, Arc::new(Key::draw()))
}

/// The hub of this node.
pub(super) fn hub(me: Life) -> Hub {
    Hub::new(me, false, registry())
}

/// A driver without tasks or sockets of its own.
pub(super) fn driver() -> Arc<Driver> {
    let machine = machine();
    let hub = hub(machine.me());
    Driver::new(machine, Networks::default(), Duration::from_secs(1), hub, Log::default())
}

/// A node that has joined this driver's node.
pub(super) fn joins(driver: &Arc<Driver>) -> Machine {
    let (mut far, here) = (machine(), driver.me());
    driver.with(|state, now| {
        far.learn(here, &["here".to_owned()]);
        far.connect(now, here);
        state.machine.accepted(now, SOCKET);
        loop {
            while let Some(action) = far.poll() {
                if let Action::Dial(dial, _) = action {
                    far.dialled(now, dial, SOCKET);
                }
            }
            let (mut said, mut heard) = (Vec::new(), Vec::new());
            far.fill(now, SOCKET, 1 << 16, &mut said);
            state.machine.received(now, SOCKET, Bytes::from(said.concat()));
            state.machine.fill(now, SOCKET, 1 << 16, &mut heard);
            far.received(now, SOCKET, Bytes::from(heard.concat()));
            if said.is_empty() && heard.is_empty() {
                break;
            }
        }
    });
    assert_eq!(far.carried_by(here), Some(SOCKET));
    far
}
