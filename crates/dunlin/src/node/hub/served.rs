//! The name service that this node uses, and the names that it serves.

use std::time::Duration;

use dunlin_proto::Source;
use dunlin_proto::id::{Life, NodeId};
use dunlin_proto::wire::Names;
use dunlin_sorted::SortedMap;
use tokio::sync::oneshot;

use super::Hub;
use crate::node::error::{NameError, is_busy};
use crate::node::state::Locked;

/// How long a node waits before it asks again at an address where no node answers.
pub(super) const ASK_AGAIN: Duration = Duration::from_millis(250);

/// How many nodes are remembered that ends were declared to. Nodes in use may answer in any case.
const DECLARED_TO_MAX: usize = 64;

impl Hub {
    pub(crate) fn serves_names(&self) -> bool {
        self.serves
    }

    /// The application's names are found at this address, or served there.
    pub(crate) fn names_are_at(&mut self, address: String) {
        self.names_at = Some(address);
    }

    /// Asks which node is at this address.
    pub(crate) fn ask(&mut self, cx: &mut Locked<'_>, address: String) -> oneshot::Receiver<Result<NodeId, String>> {
        let (asked, answer) = oneshot::channel();
        self.asked.push((address.clone(), asked));
        cx.state.machine.introduce(address);
        answer
    }

    /// This node serves the application's names from now on. `again`: another node did before.
    pub(crate) fn serve(&mut self, cx: &mut Locked<'_>, again: bool) {
        // Declarations that other nodes made because they dialled this one, perhaps for its names already,
        // are the application's now.
        if again {
            self.service.take_over(cx.now);
        }
        self.service.met(self.me, cx.state.machine.addresses_here(), Source::Unknown);
        for (node, life) in self.lives.iter() {
            let machine = &cx.state.machine;
            self.service.met(*life, machine.addresses_of(*node), machine.source_of(*node));
        }
        (self.serves, self.ceded) = (true, false);
        self.directory.server_is(self.me.node);
    }

    /// Another node serves the application's names, at an address that comes before this node's: all users of
    /// this node's service go there.
    pub(crate) fn cede(&mut self, cx: &mut Locked<'_>, to: NodeId) {
        (self.serves, self.ceded) = (false, true);
        let nodes: Vec<NodeId> = self.lives.keys().copied().collect();
        nodes.into_iter().for_each(|node| self.tell_elsewhere(cx, node));
        self.directory.leave_server();
        // Declarations of this node's own ends for nodes that dial it stay, but are withdrawn with the rest:
        // so they are made again.
        self.own.server_lost();
        self.own.server_is(self.me.node);
        self.use_names_of(cx, to);
    }

    pub(super) fn tell_elsewhere(&mut self, cx: &mut Locked<'_>, node: NodeId) {
        let _ = cx.state.machine.say_names(cx.now, node, Names::Elsewhere);
    }

    /// That node serves the application's names.
    pub(crate) fn use_names_of(&mut self, cx: &mut Locked<'_>, node: NodeId) {
        if self.leaving {
            return;
        }
        self.directory.server_is(node);
        cx.state.machine.connect(cx.now, node);
    }

    /// How far this node is from a name service, for display: `None` if it has one.
    pub(crate) fn without_names(&self) -> Option<String> {
        if self.directory.server().is_some() {
            return None;
        }
        let mut why = self.unreached.clone();
        for (address, _) in &self.asked {
            why.get_or_insert_with(address.clone(), || "no answer yet".to_owned());
        }
        Some(reasons(&why).unwrap_or_else(|| "no name service has answered yet".to_owned()))
    }

    pub(super) fn introduced(&mut self, cx: &mut Locked<'_>, address: &str, who: Result<NodeId, String>) {
        while let Some(at) = self.asked.iter().position(|(asked, _)| asked == address) {
            let _ = self.asked.swap_remove(at).1.send(who.clone());
            match &who {
                Ok(_) => self.unreached.remove(address),
                Err(why) => self.unreached.insert(address.to_owned(), why.clone()),
            };
        }
        if who.is_ok() {
            self.unwelcome.remove(address);
        }
        let Some(directory) = self.others.get_mut(address) else { return };
        match who {
            Ok(node) => {
                directory.server_is(node);
                if node != self.me.node {
                    cx.state.machine.connect(cx.now, node);
                }
            }
            Err(why) => self.unreachable(cx, address, &why),
        }
    }

    /// Ends that wait for an answer from that address fail. Ends that were admitted there wait for a node
    /// there.
    pub(super) fn unreachable(&mut self, cx: &mut Locked<'_>, address: &str, why: &str) {
        let waits = self.ends.iter().filter(|(_, end)| end.at() == Some(address) && end.answer.is_some());
        let waits: Vec<u64> = waits.map(|(number, _)| number).collect();
        for number in waits {
            let error = NameError::Unreachable { address: address.to_owned(), why: why.to_owned() };
            self.fail(cx, number, error);
        }
        if self.others.get(address).is_some_and(|directory| !directory.is_empty()) {
            self.ask_again.insert(address.to_owned(), cx.now + ASK_AGAIN);
        }
    }

    /// Records that an end is declared to that node.
    pub(super) fn has_declared_to(&mut self, node: NodeId) {
        if self.declared_to.back() != Some(&node) {
            self.declared_to.retain(|other| *other != node);
            self.declared_to.push_back(node);
            if self.declared_to.len() > DECLARED_TO_MAX {
                self.declared_to.pop_front();
            }
        }
    }

    /// Whether an end was declared to that node. Its answer may arrive after this node has changed to another
    /// name service.
    fn may_answer(&self, node: NodeId) -> bool {
        let mut directories = std::iter::once(&self.directory).chain(self.others.values());
        self.declared_to.contains(&node) || directories.any(|directory| directory.server() == Some(node))
    }

    /// That node's declarations here take more or less memory than before.
    pub(super) fn count_declared(&self, cx: &mut Locked<'_>, node: NodeId) {
        // The name service admitted them, so the memory suffices.
        let _ = cx.state.machine.keep_declared(node, self.service.cost_of(node));
    }

    /// Leases expire: declarations of lost nodes are released.
    pub(super) fn forget_declared(&mut self, cx: &mut Locked<'_>) {
        let due = self.service.next_tick().is_some_and(|due| due <= cx.now);
        self.service.tick(cx.now);
        if due {
            for node in cx.state.machine.declarers() {
                self.count_declared(cx, node);
            }
        }
    }

    pub(super) fn names(&mut self, cx: &mut Locked<'_>, from: Life, said: Names) {
        match said {
            Names::Declare { .. } | Names::Undeclare { .. } => {
                let mut steps = 0;
                if let Names::Declare { name, .. } = &said
                    && from != self.me
                {
                    steps += self.asked_for(cx, name);
                }
                self.forget_declared(cx);
                let machine = &mut cx.state.machine;
                let has_room = &mut |bytes| machine.keep_declared(from.node, bytes);
                steps += self.service.heard(cx.now, from, said, has_room);
                machine.compares(cx.now, from.node, steps);
                self.count_declared(cx, from.node);
            }
            Names::Guest { acceptor, guest } => self.guest(cx, from, acceptor, guest),
            Names::Elsewhere if self.directory.server() == Some(from.node) => {
                self.directory.leave_server();
                if !self.leaving {
                    self.names_lost.notify_one();
                }
            }
            Names::Elsewhere => {}
            answer => {
                if from != self.me && !self.may_answer(from.node) {
                    const WHY: &str = "an answer of a name service that was not asked";
                    return cx.state.machine.broke_the_protocol(cx.now, from.node, WHY);
                }
                self.directory.heard(from.node, answer.clone());
                self.own.heard(from.node, answer.clone());
                self.others.values_mut().for_each(|directory| directory.heard(from.node, answer.clone()));
            }
        }
    }
}

/// Each address with its own reason. Addresses with the same reason are grouped, and the smallest group comes
/// first: one port that is busy or silent is more informative than fifteen without a listener.
fn reasons(why: &SortedMap<String, String>) -> Option<String> {
    let mut groups: Vec<(String, Vec<usize>)> = Vec::new();
    let addresses: Vec<&String> = why.keys().collect();
    for (at, (address, why)) in why.iter().enumerate() {
        let mut why = why.clone();
        for said in [format!("cannot connect to `{address}`: "), format!("{address}: ")] {
            why = why.replace(&said, "");
        }
        match groups.iter_mut().find(|(same, _)| *same == why) {
            Some((_, group)) => group.push(at),
            None => groups.push((why, vec![at])),
        }
    }
    groups.sort_by_key(|(why, group)| (!is_busy(why), group.len()));
    let texts = groups.iter().map(|(why, group)| {
        let runs = group.chunk_by(|at, next| at + 1 == *next).map(|run| match run {
            [first, _, .., last] => format!("{} to {}", addresses[*first], addresses[*last]),
            few => few.iter().map(|at| addresses[*at].as_str()).collect::<Vec<_>>().join(", "),
        });
        format!("{}: {why}", runs.collect::<Vec<_>>().join(", "))
    });
    Some(texts.collect::<Vec<_>>().join("; ")).filter(|all| !all.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_grouped_by_address_with_the_most_specific_first() {
        let said = |port: u16, why: &str| (format!("127.0.0.1:{port}"), why.to_owned());
        let refused = |port| said(port, &format!("cannot connect to `127.0.0.1:{port}`: Connection refused"));
        let text = |all: Vec<(String, String)>| reasons(&all.into_iter().collect());
        assert_eq!(text(Vec::new()), None);
        assert_eq!(text(vec![refused(7400)]).unwrap(), "127.0.0.1:7400: Connection refused");
        let other = "the node belongs to application \"sea\"";
        let mut all = vec![said(7400, other), said(7402, other), said(7403, "it is silent")];
        all.extend((7404..7416).map(refused));
        let expected = format!(
            "127.0.0.1:7403: it is silent; 127.0.0.1:7400, 127.0.0.1:7402: {other}; 127.0.0.1:7404 to 127.0.0.1:7415: \
             Connection refused"
        );
        assert_eq!(text(all.clone()).unwrap(), expected);
        let busy = dunlin_proto::wire::handshake::Refusal::Busy.to_string();
        all.extend([said(7404, &busy), said(7405, &busy)]);
        let all: SortedMap<String, String> = all.into_iter().collect();
        assert!(reasons(&all).unwrap().starts_with(&format!("127.0.0.1:7404, 127.0.0.1:7405: {busy}; ")));
    }
}
