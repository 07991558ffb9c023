//! Two machines, of which the first knows where the second can be dialled.

use dunlin_proto::id::{DialId, Incarnation, Life, NodeId, SocketId};
use dunlin_proto::identity::StandIn;
use dunlin_proto::time::Time;
use dunlin_proto::wire::{Declaration, Expected, Face};
use dunlin_proto::{Config, Machine};

/// The second machine.
pub(crate) const THERE: NodeId = NodeId(2);

pub(crate) fn declared(face: Face) -> Declaration {
    Declaration { face, shared: false, expects: Expected::Unknown, schema: bytes::Bytes::new() }
}

/// Machines of the nodes 1 and 2, which is [`THERE`].
pub(crate) fn machines(config: &Config) -> [Machine; 2] {
    let machine = |node: NodeId| {
        let mut config = config.clone();
        if node == THERE {
            config.addresses = vec!["memory:2".to_owned()];
        }
        StandIn::machine(config, Life { node, incarnation: Incarnation(1) }, 7)
    };
    let mut machines = [machine(NodeId(1)), machine(THERE)];
    machines[0].learn(THERE, &["memory:2".to_owned()]);
    machines
}

/// The machine `at` has dialled the other one: both get the next socket.
pub(crate) fn connect(machines: &mut [Machine; 2], at: usize, dial: DialId, socket: &mut SocketId, now: Time) {
    *socket = SocketId(socket.0 + 1);
    machines[1 - at].accepted(now, *socket);
    machines[at].dialled(now, dial, *socket);
}
