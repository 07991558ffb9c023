//! The end of a connection's life, and of all of them when this node is replaced.

use super::{Action, Closed, Endpoint, Machine};
use crate::connection::{Attempt, Carried, Down, State};
use crate::id::{ConnectionId, Incarnation, NodeId};
use crate::planted::planted;
use crate::time::Time;
use crate::wire::handshake::Refusal;
use crate::wire::limits;

impl Endpoint {
    /// Whether a connection that has been up has had no acknowledgement for the whole grace period since it
    /// lost its socket.
    pub(super) fn is_unproven_for_long(&self, now: Time, node: NodeId) -> bool {
        let Some(connection) = self.connections.get(node) else { return false };
        connection.was_up && connection.unproven.is_some_and(|since| now >= since + self.config.grace)
    }
}

impl Machine {
    /// The grace period is over.
    pub(super) fn give_up(&mut self, now: Time, node: NodeId) {
        let replaced = self.endpoint.replaced;
        let connection = self.endpoint.connection(node);
        let since = match connection.carried {
            Carried::Lost { since, .. } => since,
            _ => now,
        };
        let dialled = std::mem::take(&mut connection.dialling.last);
        let waited = now.since(connection.unproven.unwrap_or(since));
        let why = match connection.dialling.unrelayed {
            Some((by, why)) => Down::Unrelayed { waited, dialled, by, why },
            None => Down::Unreachable(waited, dialled),
        };
        let why = replaced.map_or(why, |by| Down::Refused(Refusal::Stale(by)));
        self.die(now, node, why);
    }

    /// Another node has met incarnation `met` of this node. If it is a later one, this node is replaced.
    ///
    /// Some peers know that, and have ended their connections with this one; the others may learn it at any
    /// time, or never. To them this node would answer for the later life, for instance that it lacks what
    /// that life has. So it ends all connections, as if it had crashed, and admits no node.
    pub(super) fn hear_of_myself(&mut self, now: Time, met: Incarnation) {
        if !self.endpoint.config.keeps_id
            || met <= self.endpoint.me.incarnation
            || self.endpoint.replaced.is_some()
            || planted!(ReplacedGoesOn)
        {
            return;
        }
        self.endpoint.replaced = Some(met);
        for node in self.endpoint.connections.nodes() {
            let connection = self.endpoint.connection(node);
            if connection.dialling.for_others {
                self.endpoint.forget_dial_back(node);
            } else if !matches!(connection.carried, Carried::Idle) {
                self.die(now, node, Down::Refused(Refusal::Stale(met)));
            }
        }
    }

    /// Ends the life of the connection, for a reason at this side. The next connection is another life.
    pub(crate) fn die(&mut self, now: Time, node: NodeId, why: Down) {
        let run = self.endpoint.connection(node).run + u64::from(!planted!(RunIgnored));
        self.end_life(now, node, why, run);
    }

    /// That node was restarted: what was sent to it before no longer counts.
    pub(super) fn restarted(&mut self, now: Time, node: NodeId) {
        self.end_life(now, node, Down::Restarted, 1);
        let connection = self.endpoint.connection(node);
        connection.their_attempt = 0;
        connection.id = ConnectionId::NONE;
    }

    /// The other side has no record of the connection any more: the next one starts from nothing.
    pub(super) fn forgotten(&mut self, now: Time, node: NodeId) {
        self.end_life(now, node, Down::GivenUp, 1);
        self.endpoint.connection(node).id = ConnectionId::NONE;
    }

    pub(super) fn end_life(&mut self, now: Time, node: NodeId, why: Down, mut run: u64) {
        if run > limits::RUN {
            // Only a node that has proved its id can have sent a number near this one. No `Hello` can carry a
            // greater one.
            self.endpoint.connection(node).id = ConnectionId::NONE;
            run = 1;
        }
        let connection = self.endpoint.connection(node);
        let was = std::mem::replace(&mut connection.carried, Carried::Idle);
        let for_good = why.is_out_of_reach() || matches!(why, Down::Refused(_) | Down::Unauthorized);
        let fresh = !connection.was_up && !for_good;
        let running = connection.dialling.running;
        if fresh {
            // Nothing was sent in this life: the queue can wait for the next one.
            connection.run = run;
            connection.carried = was;
            return;
        }
        let (channels, peers) = self.at(now);
        channels.settle(peers, node);
        self.endpoint.close_account(node);
        self.endpoint.forget_posts(node);
        self.endpoint.lose_watches(node, &why);
        self.endpoint.lately = now;
        let lives = self.endpoint.connections.next_life();
        self.endpoint.connection(node).begin_life(run, lives);
        self.endpoint.connections.rests(node);
        let mut sockets = Vec::new();
        if let Carried::By(socket) = was {
            sockets.push(socket);
        }
        if for_good {
            self.endpoint.connection(node).dialling.running = None;
            if let Some(Attempt::Hello(socket)) = running {
                sockets.push(socket);
            }
        }
        let closed = if matches!(why, Down::Violation(_)) { Closed::Violation(node) } else { Closed::Over };
        for socket in sockets {
            self.endpoint.sockets.remove(socket);
            self.endpoint.act_close(socket, closed.clone());
        }
        if planted!(DeathTwice) {
            self.endpoint.actions.push_back(Action::Connection(node, State::Down(why.clone())));
        }
        // No dial after a death: it would be refused, which is the next death, and so on without a pause. The
        // sponsor answers for the channel. A live node that was taken for dead dials itself, if it has
        // something to send.
        let may_return = !matches!(why, Down::Refused(_) | Down::Unauthorized | Down::Died(_));
        self.endpoint.actions.push_back(Action::Connection(node, State::Down(why)));
        self.end_streams(now, node, false);
        if may_return && self.channels.asks_of_home(node) {
            self.endpoint.connect(now, node);
        }
    }
}
