//! Claims of a shared end whose handles are at several nodes, as the real code runs them
//! (`dunlin-core/src/share/`): [`live`](crate::live).
//!
//! Node 0 keeps the end. Users have handles there and at other nodes, and each follows a script.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::{Future, pending, ready};
use std::rc::Rc;

use dunlin_core::carrier::{Agent, Chore};
use dunlin_core::{
    Claim, ClaimError, End, Lend, Operation, Receiver, RecvError, SendError, Sender, Shared, Why, alt, channel,
    channel_with, fifo, future,
};
use serde::{Deserialize, Serialize};

use crate::live::{Bounds, Gate, Ground, Laws, Node, Play, Word};

/// The kind of end that is shared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum What {
    /// The sender of a channel.
    #[default]
    Sender,
    /// Its receiver.
    Receiver,
    /// The face of a bundle, which moves with a claim.
    Face,
}

/// A world to search.
///
/// A script is a text; each letter is the user's next action: `1` to `9` claims the end for that many values;
/// `c` claims it and uses it for nothing; `o` is a lone operation, `e` an extended one, `x` one in a choice;
/// `h` claims the end only if it is free, in a choice that ends at once; `r` claims a receiver and retires
/// its channel; `z` receives to the end of the channel; `A`, `B` and so on moves with its handle to node 0, 1
/// and so on; `.` keeps the handle to the end. Otherwise the user drops the handle at the end.
#[derive(Clone, Debug, Default)]
pub struct Scenario {
    /// The name of the scenario.
    pub name: &'static str,
    /// The kind of the shared end.
    pub what: What,
    /// The node of each user's handle, and the user's script.
    pub users: &'static [(Node, &'static str)],
    /// The node that passed all handles elsewhere on, before the search begins.
    pub through: Option<Node>,
    /// The node of the channel's other end.
    pub other: Node,
    /// How many values that end sends, if the receiver is shared.
    pub values: u32,
    /// Whether it sends them in choices.
    pub by_choice: bool,
    /// The places of the channel's buffer.
    pub buffer: usize,
    /// The faults and other events that may happen.
    pub bounds: Bounds,
}

/// The observations of the users.
#[derive(Default)]
pub struct Facts {
    claims: Cell<u32>,
    words: Cell<u32>,
    /// The nodes of the users that have the claim now.
    holders: RefCell<Vec<Node>>,
    heard: RefCell<Vec<Word>>,
    /// The claim in which each value was received, if the receiver is shared.
    heard_in: RefCell<Vec<(u32, Word)>>,
    /// The outcome of each value: sent, not sent, or unknown.
    sent: RefCell<BTreeMap<u32, Option<bool>>>,
    /// Users that have not finished, by name.
    open: RefCell<Vec<(Node, String)>>,
    broken: RefCell<Option<String>>,
    died: Cell<Option<Node>>,
    /// The node that a face has gone to, until it returns.
    face_at: Cell<Option<Node>>,
    /// The face can neither move to these nodes nor be used from there.
    refused: Cell<&'static [Node]>,
    /// The face was at a node when that node was lost.
    face_lost: Cell<bool>,
    /// Nodes that have passed handles on with the keeper's knowledge.
    welcome: RefCell<Vec<Node>>,
    /// The claimer of the receiver has retired its channel.
    retired: Cell<bool>,
    /// Whether the channel has no buffer.
    is_rendezvous: Cell<bool>,
}

impl Facts {
    fn word(&self, node: Node, claim: u32) -> Word {
        self.words.set(self.words.get() + 1);
        (node as u32, claim, self.words.get())
    }

    fn became<T>(&self, word: Word, sent: &Result<(), SendError<T>>) {
        let became = match sent {
            Ok(()) => Some(true),
            Err(SendError::NotTaken { .. }) => Some(false),
            Err(SendError::Unknown { .. }) => None,
        };
        self.sent.borrow_mut().insert(word.2, became);
        if let Err(error) = sent
            && self.died.get().is_none()
            && !matches!(error, SendError::NotTaken { why: Why::TimedOut, .. })
            && !(self.retired.get() && error.is_closed())
        {
            self.fail(format!("{word:?} could not be sent: {:?}", error.why()));
        }
    }

    fn fail(&self, what: String) {
        self.broken.borrow_mut().get_or_insert(what);
    }
}

/// The user has the claim while this value lives.
struct Held(Rc<Facts>, Node);

impl Held {
    fn new(facts: &Rc<Facts>, node: Node) -> Self {
        facts.holders.borrow_mut().push(node);
        if facts.holders.borrow().len() > 1 {
            facts.fail(format!("two have the claim, at {:?}", facts.holders.borrow()));
        }
        Self(facts.clone(), node)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut holders = self.0.holders.borrow_mut();
        if let Some(at) = holders.iter().position(|node| *node == self.1) {
            holders.swap_remove(at);
        }
    }
}

/// A user that follows a script.
struct User {
    name: String,
    node: Node,
    /// The node that passed its handle on, unless that was the keeper.
    came_by: Option<Node>,
    facts: Rc<Facts>,
    ground: Ground,
    gate: Rc<Gate>,
}

/// The form of a lone operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Plain,
    Extended,
    /// As a branch of a choice, whose other branch may become ready at any time.
    Chosen,
}

/// A send as a branch of a choice, which may take another branch if waits may be given up. `true`: the value
/// was sent.
macro_rules! choose {
    ($user:expr, $word:expr, $send:expr) => {{
        let (user, word) = (&$user, $word);
        let sent = alt! {
            sent = $send => sent,
            _ = future(user.gate.give_up("takes another branch")) => {
                Err(SendError::NotTaken { value: (), why: Why::TimedOut })
            }
        };
        user.facts.became(word, &sent);
        sent.is_ok()
    }};
}

/// A kind of end that users share here.
trait Used: Lend {
    /// Sends or receives one value within a claim.
    fn within(user: &User, claim: &mut Claim<'_, Self>, number: u32) -> impl Future<Output = ()>;
    /// Sends or receives one value without a claim.
    fn alone(user: &User, handle: &mut Shared<Self>, how: How) -> impl Future<Output = ()>;
    /// Retires the channel of a receiver.
    async fn retire_it(_: &User, _: &mut Claim<'_, Self>) {}
    /// Receives all values to the end of the channel.
    async fn drain(_: &User, _: &mut Shared<Self>) {}
}

impl Used for Sender<Word> {
    async fn within(user: &User, claim: &mut Claim<'_, Self>, number: u32) {
        let word = user.facts.word(user.node, number);
        user.sends(word, claim.send(word)).await;
    }

    async fn alone(user: &User, handle: &mut Shared<Self>, how: How) {
        let word = user.facts.word(user.node, 0);
        match how {
            How::Chosen => {
                let mut slot = Some(word);
                let _ = choose!(user, word, handle.send_from(&mut slot));
            }
            _ => drop(user.sends(word, handle.send(word)).await),
        }
    }
}

impl Used for Receiver<Word> {
    async fn within(user: &User, claim: &mut Claim<'_, Self>, number: u32) {
        user.receives(number, async || claim.recv().await).await;
    }

    async fn alone(user: &User, handle: &mut Shared<Self>, how: How) {
        match how {
            How::Plain => user.receives(0, async || handle.recv().await).await,
            How::Extended => user.receives(0, async || handle.recv_extended().await.map(|held| *held)).await,
            How::Chosen => {
                let by_choice = async || {
                    alt! {
                        word = handle.recv() => word,
                        _ = future(pending::<()>()) => Err(RecvError::TimedOut),
                    }
                };
                user.receives(0, by_choice).await;
            }
        }
    }

    async fn retire_it(user: &User, claim: &mut Claim<'_, Self>) {
        claim.retire();
        user.facts.retired.set(true);
        if user.facts.is_rendezvous.get() {
            match claim.recv().await {
                Ok(word) => user.facts.fail(format!("{word:?} was refused, and it was received")),
                Err(error) => user.ended(&error),
            }
        }
    }

    async fn drain(user: &User, handle: &mut Shared<Self>) {
        loop {
            match handle.recv().await {
                Ok(word) => user.facts.heard.borrow_mut().push(word),
                Err(RecvError::Closed) => return,
                Err(error) => return user.ended(&error),
            }
        }
    }
}

/// The face of a bundle. Its channels are not used: the search is about the claim.
#[derive(Serialize, Deserialize)]
struct Face {
    ask: Sender<Word>,
}

impl End for Face {
    type Link = ();

    fn link(&self) {}
}

impl Lend for Face {
    type Other = ();

    fn lone(_: Shared<Self>) -> Option<Agent> {
        None
    }

    fn another() -> (Option<Agent>, ()) {
        (None, ())
    }

    fn carry(_: Shared<Self>, (): ()) -> Option<Chore> {
        None
    }

    fn adopt() -> (Option<Self>, (), Option<Agent>) {
        (None, (), None)
    }
}

impl Used for Face {
    async fn within(_: &User, claim: &mut Claim<'_, Self>, _: u32) {
        assert!(!claim.ask.is_closed(), "the face is another one");
    }

    async fn alone(_: &User, _: &mut Shared<Self>, _: How) {}
}

impl User {
    /// Whether its node has reason to report that the end is lost.
    fn is_cut_off(&self) -> bool {
        let Some(dead) = self.facts.died.get() else { return false };
        let is_on_the_way = self.came_by == Some(dead) && !self.facts.welcome.borrow().contains(&dead);
        dead == 0 || self.facts.face_lost.get() || is_on_the_way
    }

    /// A send that may be given up. `true`: the value was sent.
    async fn sends(&self, word: Word, send: impl Operation<Output = Result<(), SendError<Word>>>) -> bool {
        let sent = send.until(self.gate.give_up("gives up its send")).await;
        self.facts.became(word, &sent);
        sent.is_ok()
    }

    /// A receive that may be given up, and then starts again.
    async fn receives(&self, claim: u32, mut receive: impl AsyncFnMut() -> Result<Word, RecvError>) {
        loop {
            let heard = self.gate.unless("gives up its receive", receive()).await;
            match heard {
                None => continue,
                Some(Ok(word)) => {
                    self.facts.heard.borrow_mut().push(word);
                    self.facts.heard_in.borrow_mut().push((claim, word));
                }
                Some(Err(error)) => self.ended(&error),
            }
            return;
        }
    }

    /// A receive reports that the channel has ended.
    fn ended(&self, error: &RecvError) {
        let is_retired = self.facts.retired.get() && *error == RecvError::Closed;
        if !is_retired && self.facts.died.get().is_none() {
            self.facts.fail(format!("{}: {error}", self.name));
        }
    }

    async fn retires<E: Used>(&self, handle: &mut Shared<E>) {
        self.gate.pass("wants the claim").await;
        let mut claim = match handle.claim().await {
            Ok(claim) => claim,
            Err(ClaimError::NodeLost) if self.is_cut_off() => return,
            Err(error) => return self.facts.fail(format!("{}: {error}", self.name)),
        };
        let _held = Held::new(&self.facts, self.node);
        self.gate.pass("retires the channel").await;
        E::retire_it(self, &mut claim).await;
        self.gate.pass("gives the claim back").await;
    }

    async fn looks_for_a_claim<E: Used>(&self, handle: &mut Shared<E>) {
        self.gate.pass("looks for the claim").await;
        let claim = alt! { biased;
            claim = handle.claim() => claim,
            _ = future(ready(())) => return,
        };
        match claim {
            Ok(_claim) => {
                let _held = Held::new(&self.facts, self.node);
                self.gate.pass("gives the claim back").await;
            }
            Err(ClaimError::NodeLost) if self.is_cut_off() => {}
            Err(error) => self.facts.fail(format!("{}: {error}", self.name)),
        }
    }

    async fn claims<E: Used>(&self, handle: &mut Shared<E>, values: u32) {
        self.gate.pass("wants the claim").await;
        let claimed = self.gate.unless("gives up its claim", handle.claim()).await;
        let mut claim = match claimed {
            None => return,
            Some(Ok(claim)) => claim,
            Some(Err(ClaimError::NodeLost)) if self.is_cut_off() => return,
            Some(Err(ClaimError::Unsendable(_))) if self.facts.refused.get().contains(&self.node) => return,
            Some(Err(error)) => return self.facts.fail(format!("{}: {error}", self.name)),
        };
        let _held = Held::new(&self.facts, self.node);
        // The end is here.
        let _: &mut E = &mut claim;
        self.facts.claims.set(self.facts.claims.get() + 1);
        let number = self.facts.claims.get();
        for _ in 0..values {
            E::within(self, &mut claim, number).await;
        }
        self.gate.pass("gives the claim back").await;
    }

    async fn follow<E: Used>(self, mut handle: Shared<E>, script: &'static str) {
        for (at, act) in script.bytes().enumerate() {
            match act {
                b'c' => self.claims(&mut handle, 0).await,
                b'1'..=b'9' => self.claims(&mut handle, u32::from(act - b'0')).await,
                b'o' => {
                    self.gate.pass("begins").await;
                    E::alone(&self, &mut handle, How::Plain).await;
                }
                b'e' => {
                    self.gate.pass("begins").await;
                    E::alone(&self, &mut handle, How::Extended).await;
                }
                b'x' => {
                    self.gate.pass("begins").await;
                    E::alone(&self, &mut handle, How::Chosen).await;
                }
                b'h' => self.looks_for_a_claim(&mut handle).await,
                b'r' => self.retires(&mut handle).await,
                b'z' => E::drain(&self, &mut handle).await,
                b'.' => {
                    self.done();
                    pending::<()>().await;
                }
                _ => {
                    let to = Node::from(act - b'A');
                    self.gate.pass("goes on").await;
                    let handle = self.ground.carry(self.node, to, handle);
                    self.done();
                    let came_by = Some(self.node).filter(|node| *node != 0);
                    return begin(&self.facts, &self.ground, (to, came_by), handle, &script[at + 1..]);
                }
            }
        }
        self.gate.pass("drops its handle").await;
        drop(handle);
        self.done();
    }

    fn done(&self) {
        self.facts.open.borrow_mut().retain(|(_, name)| *name != self.name);
    }
}

fn begin<E: Used>(
    facts: &Rc<Facts>,
    ground: &Ground,
    (node, came_by): (Node, Option<Node>),
    handle: Shared<E>,
    script: &'static str,
) {
    let name = format!("{script:?} at {node}");
    let name = match facts.open.borrow().iter().filter(|(_, other)| other.starts_with(&name)).count() {
        0 => name,
        others => format!("{name} ({others})"),
    };
    facts.open.borrow_mut().push((node, name.clone()));
    let (facts, on) = (facts.clone(), ground.clone());
    ground.user(node, name.clone(), |gate| {
        let user = User { name, node, came_by, facts, ground: on, gate };
        user.follow(handle, script)
    });
}

impl Scenario {
    fn handles<E: Used>(&self, ground: &Ground, facts: &Rc<Facts>, shared: Shared<E>) {
        let mut at = BTreeMap::from([(0, shared)]);
        let through = self.through.map(|node| (node, ground.carry(0, node, at[&0].clone())));
        at.extend(through);
        for (node, script) in self.users {
            let from = self.through.unwrap_or(0);
            let handle = match at.get(node) {
                Some(handle) => handle.clone(),
                None => ground.carry(from, *node, at[&from].clone()),
            };
            if self.users.iter().filter(|(other, _)| other == node).count() > 1 {
                at.entry(*node).or_insert_with(|| handle.clone());
            }
            begin(facts, ground, (*node, None), handle, script);
        }
    }
}

impl Play for Scenario {
    type Laws = Rc<Facts>;

    fn bounds(&self) -> Bounds {
        self.bounds.clone()
    }

    fn begin(&self, ground: &Ground) -> Rc<Facts> {
        let facts = Rc::new(Facts::default());
        let channel = || if self.buffer > 0 { channel_with::<Word>(fifo(self.buffer)) } else { channel() };
        match self.what {
            What::Sender => {
                let (tx, mut rx) = channel();
                self.handles(ground, &facts, tx.share());
                if self.other != 0 {
                    rx = ground.carry(0, self.other, rx);
                }
                let heard = facts.clone();
                ground.serve(self.other, "the receiver", async move {
                    while let Ok(word) = rx.recv().await {
                        heard.heard.borrow_mut().push(word);
                    }
                });
            }
            What::Receiver => {
                let (mut tx, rx) = channel();
                facts.is_rendezvous.set(self.buffer == 0);
                self.handles(ground, &facts, rx.share());
                if self.other != 0 {
                    tx = ground.carry(0, self.other, tx);
                }
                let (node, values, by_choice) = (self.other, self.values, self.by_choice);
                let (facts, on, name) = (facts.clone(), ground.clone(), "the sender".to_string());
                ground.user(node, name.clone(), |gate| async move {
                    let user = User { name, node, came_by: None, facts, ground: on, gate };
                    let mut sent = 0;
                    while sent < values {
                        let word = user.facts.word(node, 0);
                        let is_sent = if by_choice {
                            let mut slot = Some(word);
                            choose!(user, word, tx.send_from(&mut slot))
                        } else {
                            user.sends(word, tx.send(word)).await
                        };
                        sent += u32::from(is_sent);
                        // A send that fails without a reason would fail for ever.
                        let is_over = user.facts.retired.get() || user.facts.broken.borrow().is_some();
                        if user.facts.died.get().is_some() || !is_sent && is_over {
                            return;
                        }
                    }
                });
            }
            What::Face => {
                facts.refused.set(if self.bounds.refuses { self.bounds.lends } else { &[] });
                let (ask, server) = channel();
                self.handles(ground, &facts, Face { ask }.share());
                ground.serve(0, "the server", async move {
                    let _server = server;
                    pending::<()>().await;
                });
            }
        }
        facts
    }
}

impl Laws for Rc<Facts> {
    fn check(&self) -> Result<(), String> {
        if let Some(broken) = &*self.broken.borrow() {
            return Err(broken.clone());
        }
        let heard = self.heard.borrow();
        for (at, word) in heard.iter().enumerate() {
            if heard[..at].contains(word) {
                return Err(format!("{word:?} was received twice"));
            }
            if self.sent.borrow().get(&word.2) == Some(&Some(false)) {
                return Err(format!("{word:?} was not sent, and it was received"));
            }
        }
        // The values of a claim are consecutive.
        for (at, word) in heard.iter().enumerate().filter(|(_, word)| word.1 != 0) {
            let before = heard[..at].iter().rposition(|other| other.1 == word.1);
            if before.is_some_and(|before| before + 1 != at) {
                return Err(format!("another value came between those of claim {}: {heard:?}", word.1));
            }
        }
        let heard_in = self.heard_in.borrow();
        for (at, (claim, word)) in heard_in.iter().enumerate().filter(|(_, (claim, _))| *claim != 0) {
            let Some(before) = heard_in[..at].iter().rposition(|(other, _)| other == claim) else { continue };
            let first = heard_in[before].1.2;
            let mut between = self.sent.borrow().clone();
            between.retain(|other, sent| first < *other && *other < word.2 && *sent == Some(true));
            if first > word.2 || !between.is_empty() {
                return Err(format!("claim {claim} did not get the values in a row: {heard_in:?}"));
            }
        }
        Ok(())
    }

    fn check_rest(&self, dead: Option<Node>) -> Result<(), String> {
        let waiting: Vec<_> = self.open.borrow().iter().filter(|(node, _)| Some(*node) != dead).cloned().collect();
        if !waiting.is_empty() {
            return Err(format!("they wait for ever: {waiting:?}"));
        }
        let heard = self.heard.borrow();
        if dead.is_none() {
            for (word, sent) in &*self.sent.borrow() {
                if *sent == Some(true) && !heard.iter().any(|other| other.2 == *word) {
                    return Err(format!("value {word} was sent and not received"));
                }
            }
        }
        Ok(())
    }

    fn heard(&self, from: Node, to: Node, text: &str) {
        if text.starts_with("{\"Granted\":{") {
            self.face_at.set(Some(to));
            if self.died.get() == Some(to) {
                self.face_lost.set(true);
            }
        }
        if text.starts_with("{\"Another\"") {
            self.welcome.borrow_mut().push(from);
        }
        if text.starts_with("{\"Return\":{") && self.face_at.get() == Some(from) {
            self.face_at.set(None);
        }
    }

    fn died(&self, node: Node) {
        self.died.set(Some(node));
        self.holders.borrow_mut().retain(|holder| *holder != node);
        self.face_lost.set(self.face_at.get() == Some(node));
    }
}
