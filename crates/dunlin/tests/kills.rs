//! Four OS processes, each a node. The test kills one after the other at a random moment and starts it again.
//!
//! - *names* serves the names, and nothing else.
//! - The *broker* makes one channel after the other, and sends its ends to the other two. That is a
//!   *session*.
//! - The *producer* sends a fixed number of values, the *consumer* receives them; then both ask for the next
//!   session.
//! - In every third session both share a sender to the broker, and claim it again and again for a few values.
//!
//! Each declares its names anew for each session, so a session needs all four to begin, and only two to
//! continue. The invariants, whichever process is killed:
//!
//! - no process hangs: if a new session takes too long to begin the test fails, and prints what each process
//!   waits for;
//! - a session to which both have attached continues to its end without broker and names;
//! - a claim is released when its claimer is killed, and while it lasts no other value comes between its
//!   values;
//! - an interrupted session has a typed outcome at both ends, and no value that was reported to its sender as
//!   received is missing;
//! - only the killed process ends, and once it is back a whole new session takes place.
//!
//! `DUNLIN_KILLS` is the number of kills; `DUNLIN_SEED` draws the processes and the moments.
//!
//! [`produces`], [`consumes`] and [`claims`] use the ends, and [`Cast::judge`] decides which outcomes are
//! allowed.
#![cfg(feature = "net")]

#[path = "support/actor.rs"]
#[expect(dead_code, reason = "the test reads from all these processes at once")]
mod actor;
#[path = "support/random.rs"]
mod random;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::{BufRead, Write};
use std::process::Child;
use std::sync::{OnceLock, mpsc};
use std::time::{Duration, Instant};

use actor::say;
use dunlin::node::{Kind, NameError, Naming};
use dunlin::prelude::*;
use dunlin::{rendezvous, waits};
use random::Random;
use serde::{Deserialize, Serialize};

/// The values of a session.
const VALUES: u64 = 40;
/// After this many values both report their progress.
const STEP: u64 = 8;
/// The places of the buffer that every third session has.
const PLACES: usize = 4;
/// How many values are sent in one claim.
const CLAIMED: u64 = 4;
/// A process hangs if a new session takes longer to begin. (A connection is given up after half a second, and
/// a name of its dead holder 3 seconds later.)
const PATIENCE: Duration = Duration::from_secs(30);

// The processes.

#[test]
#[ignore = "what the processes of the other test run"]
fn a_role() {
    let Some((role, knows)) = actor::role() else { return };
    let [application, names, life] = &knows[..] else { panic!("{knows:?}") };
    dunlin::block_on(async {
        let builder = Node::builder().app(application).grace(Duration::from_millis(500));
        let node = match role.as_str() {
            "names" => builder.listen(names).names(names).join().await?,
            // This address leads there too, and no node takes it for its own, to serve the names unasked.
            _ => builder.names(&names.replace("127.0.0.1", "0.0.0.0")).join().await?,
        };
        answer_to_the_test(&node);
        say("joined");
        match role.as_str() {
            "names" => std::future::pending().await,
            "broker" => broker(&node, life).await,
            "producer" | "consumer" => loop {
                match session(&node, &role).await? {
                    (session, Part::Sends(tx)) => produces(&session, tx).await,
                    (session, Part::Receives(rx)) => consumes(&session, rx).await,
                    (session, Part::Claims(tx)) => claims(&session, &role, tx).await,
                }
            },
            _ => panic!("there is no role {role}"),
        }
    })
    .unwrap();
}

/// A thread, so that it answers whatever the processes wait for: it lists each waiting process. It ends the
/// process when the test has ended.
fn answer_to_the_test(node: &Node) {
    static NODE: OnceLock<Node> = OnceLock::new();
    NODE.set(node.clone()).unwrap();
    std::thread::spawn(|| {
        for _asked in std::io::stdin().lock().lines().map_while(Result::ok) {
            waits::snapshot().iter().for_each(|wait| say(format_args!("waits: {wait}")));
            NODE.get().unwrap().waiting().iter().for_each(|end| say(format_args!("waits: {end:?}")));
        }
        std::process::exit(0);
    });
}

/// Declares an end. A name is held until the loss of its holder has been noticed, or its end has arrived.
async fn declare<'a, E>(naming: impl Fn() -> Naming<'a, E>) -> Result<E>
where
    E: Kind<End = E> + 'a,
{
    loop {
        match naming().await {
            Err(error @ NameError::Refused { .. }) => {
                say(format_args!("refused: {error}"));
                sleep(Duration::from_millis(20)).await;
            }
            other => return Ok(other?),
        }
    }
}

/// What a role receives for a session.
#[derive(Serialize, Deserialize)]
enum Part {
    Sends(Sender<u64>),
    Receives(Receiver<u64>),
    /// Both have a handle of it; the broker receives.
    Claims(Shared<Sender<u64>>),
}

/// Makes channels, and sends their ends to the others.
async fn broker(node: &Node, life: &str) -> Result {
    for number in 0u64.. {
        let session = format!("{life}.{number}{}", if number % 3 == 2 { "c" } else { "" });
        let (for_producer, for_consumer) = match number % 3 {
            2 => {
                let (tx, rx) = channel();
                drop(spawn(hears_claims(rx)));
                let tx = tx.share();
                (Part::Claims(tx.clone()), Part::Claims(tx))
            }
            policy => {
                let (tx, rx) = channel_with(if policy == 0 { rendezvous() } else { fifo(PLACES) });
                (Part::Sends(tx), Part::Receives(rx))
            }
        };
        say(format_args!("makes {session}"));
        let (to_producer, to_consumer) =
            par!(hand(node, &session, "producer", for_producer), hand(node, &session, "consumer", for_consumer));
        to_producer?;
        to_consumer?;
    }
    Ok(())
}

/// Sends a part to the process with this role, until that has received it.
async fn hand(node: &Node, session: &str, role: &str, part: Part) -> Result {
    let mut message = (session.to_owned(), part);
    loop {
        let mut way = declare(|| node.sender(role)).await?;
        match way.send(message).await {
            Ok(()) => {
                say(format_args!("{session} handed to {role}"));
                return Ok(());
            }
            Err(error) => {
                say(format_args!("{session} not handed to {role}: {}", outcome(&error)));
                message = error.into_value();
            }
        }
    }
}

fn outcome<T>(error: &SendError<T>) -> String {
    match error {
        SendError::NotTaken { why, .. } => format!("{why:?}"),
        SendError::Unknown { .. } => "Unknown".to_owned(),
    }
}

/// Asks the broker for a part.
async fn session(node: &Node, role: &str) -> Result<(String, Part)> {
    loop {
        let mut way = declare(|| node.receiver::<(String, Part)>(role)).await?;
        say("asks");
        match way.recv().await {
            Ok((session, part)) => {
                say(format_args!("{session} has begun"));
                return Ok((session, part));
            }
            Err(error) => say(format_args!("asked in vain: {error:?}")),
        }
    }
}

/// The producer's part of a session.
async fn produces(session: &str, mut tx: Sender<u64>) {
    for n in 0..VALUES {
        if let Err(error) = tx.send(n).await {
            return say(format_args!("{session} ends after {n}: {}", outcome(&error)));
        }
        if n % STEP == 0 {
            say(format_args!("{session} at {n}"));
        }
    }
    say(format_args!("{session} ends after {VALUES}: Closed"));
}

/// The consumer's.
async fn consumes(session: &str, mut rx: Receiver<u64>) {
    for expected in 0.. {
        match rx.recv().await {
            Ok(n) => assert_eq!(n, expected),
            Err(error) => return say(format_args!("{session} ends after {expected}: {error:?}")),
        }
        if expected % STEP == 0 {
            say(format_args!("{session} at {expected}"));
        }
    }
}

/// Either's, where it shares the sender.
async fn claims(session: &str, role: &str, mut tx: Shared<Sender<u64>>) {
    let me = if role == "producer" { 0 } else { VALUES };
    for first in (0..VALUES).step_by(CLAIMED as usize) {
        let mut claim = match tx.claim().await {
            Ok(claim) => claim,
            Err(error) => return say(format_args!("{session} ends after {first}: {error:?}")),
        };
        for n in first..first + CLAIMED {
            if let Err(error) = claim.send(me + n).await {
                return say(format_args!("{session} ends after {n}: {}", outcome(&error)));
            }
        }
        drop(claim);
        say(format_args!("{session} at {first}"));
    }
    say(format_args!("{session} ends after {VALUES}: Closed"));
}

/// The values of one claim arrive without any other between.
async fn hears_claims(mut rx: Receiver<u64>) {
    let mut last = None;
    while let Ok(n) = rx.recv().await {
        if n % CLAIMED != 0 && last != Some(n - 1) {
            say(format_args!("{n} came after {last:?}"));
            // (A panic would end only this process of dunlin.)
            std::process::exit(1);
        }
        last = Some(n);
    }
}

// The test.

const PARTIES: [&str; 4] = ["names", "broker", "producer", "consumer"];
const BROKER: usize = 1;
const PRODUCER: usize = 2;
const CONSUMER: usize = 3;

/// A report of a process and the life that made it; `None`: the process has ended.
type Heard = (usize, u32, Option<String>);

struct Party {
    child: Child,
    life: u32,
}

/// The state of a session.
#[derive(Default)]
struct Session {
    /// The producer is attached to the consumer's node.
    is_attached: bool,
    /// How many values were sent, and how many received, at its end; `Err`: it was interrupted.
    ends: [Option<Result<u64, u64>>; 2],
}

impl Session {
    fn is_whole(&self) -> bool {
        self.ends == [Some(Ok(VALUES)); 2]
    }
}

struct Cast {
    random: Random,
    application: String,
    names: String,
    parties: Vec<Party>,
    tell: mpsc::Sender<Heard>,
    heard: mpsc::Receiver<Heard>,
    sessions: HashMap<String, Session>,
    /// When a new session has to be complete.
    deadline: Instant,
    /// The process that was killed last.
    victim: Option<usize>,
    /// The latest reports and actions.
    log: VecDeque<String>,
    /// The outcomes of sessions, of deliveries, and of names, and how often each occurred.
    outcomes: BTreeMap<String, u32>,
}

impl Cast {
    fn new(seed: u64) -> Self {
        let (tell, heard) = mpsc::channel();
        // A port that was free a moment ago.
        let names = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let mut cast = Self {
            random: Random(seed),
            application: format!("kills {}", std::process::id()),
            names,
            parties: Vec::new(),
            tell,
            heard,
            sessions: HashMap::new(),
            deadline: Instant::now() + PATIENCE,
            victim: None,
            log: VecDeque::new(),
            outcomes: BTreeMap::new(),
        };
        for who in 0..PARTIES.len() {
            let child = cast.start(who, 0);
            cast.parties.push(Party { child, life: 0 });
        }
        cast
    }

    fn start(&self, who: usize, life: u32) -> Child {
        let tell = self.tell.clone();
        let knows = [&*self.application, &self.names, &life.to_string()];
        actor::start(&[], PARTIES[who], &knows, move |said| drop(tell.send((who, life, said))))
    }

    fn note(&mut self, what: String) {
        // A process that asks again and again for a taken name must leave room for the others.
        if self.log.iter().rev().take(PARTIES.len()).any(|line| *line == what) {
            return;
        }
        if self.log.len() == 200 {
            self.log.pop_front();
        }
        self.log.push_back(what);
    }

    /// Kills it without a warning (on Unix by the signal 9), and starts it again after this time.
    fn kill(&mut self, who: usize, later: Duration) {
        self.note(format!("{} is killed, and stays away for {later:?}", PARTIES[who]));
        self.victim = Some(who);
        self.parties[who].child.kill().unwrap();
        self.parties[who].child.wait().unwrap();
        std::thread::sleep(later);
        self.deadline = Instant::now() + PATIENCE;
        let life = self.parties[who].life + 1;
        let child = self.start(who, life);
        self.parties[who] = Party { child, life };
    }

    /// The next report of a living process.
    fn hear(&mut self) -> (usize, String) {
        loop {
            let patience = self.deadline.saturating_duration_since(Instant::now());
            let Ok((who, life, said)) = self.heard.recv_timeout(patience) else { self.hangs() };
            let is_dead = life != self.parties[who].life;
            self.note(format!("{} {life}: {}", PARTIES[who], said.as_deref().unwrap_or("(ended)")));
            match said {
                // (Before it was killed.)
                Some(said) if is_dead => drop(self.judge(who, &said)),
                Some(said) => {
                    if let Err(why) = self.judge(who, &said) {
                        self.fails(&why);
                    }
                    return (who, said);
                }
                None if is_dead => {}
                None => self.fails("somebody ended who was not killed"),
            }
        }
    }

    /// Whether the report is allowed, with this victim.
    fn judge(&mut self, who: usize, said: &str) -> Result<(), String> {
        let words: Vec<&str> = said.split(' ').collect();
        match words[..] {
            [session, "at", _] => {
                // A value was received at its home, so the producer has attached there.
                self.sessions.entry(session.to_owned()).or_default().is_attached |=
                    who == CONSUMER && !session.ends_with('c');
            }
            [session, "ends", "after", count, outcome] => {
                let count: u64 = count.trim_end_matches(':').parse().unwrap();
                let known = self.sessions.entry(session.to_owned()).or_default();
                let end = if outcome == "Closed" && count == VALUES { Ok(count) } else { Err(count) };
                known.ends[usize::from(who == CONSUMER)] = Some(end);
                let is_claimed = session.ends_with('c');
                if let [Some(Ok(sent) | Err(sent)), Some(Ok(received) | Err(received))] = known.ends
                    && !is_claimed
                    && sent > received + PLACES as u64
                {
                    return Err(format!("of {sent} values {received} were received"));
                }
                if end.is_err() {
                    let may_be = match self.victim {
                        // They share a sender that is kept at the broker.
                        Some(PRODUCER | CONSUMER) => !is_claimed,
                        Some(BROKER) => !known.is_attached,
                        _ => false,
                    };
                    let is_typed = match who {
                        _ if is_claimed => ["NodeLost", "Unknown"].contains(&outcome),
                        // (`Closed`: it was delivered after the receiver had been lost.)
                        PRODUCER => ["NodeLost", "Unknown", "Closed"].contains(&outcome),
                        _ => outcome == "NodeLost",
                    };
                    if !may_be || !is_typed {
                        return Err(format!("nobody was killed for whom this would have to be: {said}"));
                    }
                }
                self.count(format!("{}{}: {outcome}", PARTIES[who], if is_claimed { ", claims" } else { "" }));
            }
            [_, "not", "handed", "to", _, outcome] => self.count(format!("{}: hands over, {outcome}", PARTIES[who])),
            ["asked", "in", "vain:", outcome] => self.count(format!("{}: asks, {outcome}", PARTIES[who])),
            ["refused:", ..] => self.count(format!("{}: name refused", PARTIES[who])),
            _ => {}
        }
        Ok(())
    }

    fn count(&mut self, outcome: String) {
        *self.outcomes.entry(outcome).or_default() += 1;
    }

    /// Waits until a session that began after now is complete.
    fn recovers(&mut self) {
        let mut new = Vec::new();
        loop {
            let (who, said) = self.hear();
            if who == BROKER
                && let Some(session) = said.strip_prefix("makes ")
            {
                new.push(session.to_owned());
            }
            if new.iter().any(|session| self.sessions.get(session).is_some_and(Session::is_whole)) {
                self.sessions.retain(|_, session| session.ends.iter().any(Option::is_none));
                self.deadline = Instant::now() + PATIENCE;
                return;
            }
        }
    }

    fn hangs(&mut self) -> ! {
        for party in &mut self.parties {
            // (It may have ended.)
            let _ = party.child.stdin.as_mut().unwrap().write_all(b"who waits?\n");
        }
        let until = Instant::now() + Duration::from_secs(2);
        while let Ok((who, _, said)) = self.heard.recv_timeout(until.saturating_duration_since(Instant::now())) {
            self.note(format!("{} {}", PARTIES[who], said.as_deref().unwrap_or("(ended)")));
        }
        self.fails("somebody hangs")
    }

    fn fails(&self, why: &str) -> ! {
        let log: Vec<&str> = self.log.iter().map(String::as_str).collect();
        panic!(
            "{}\n{why}, {} having been killed last",
            log.join("\n"),
            self.victim.map_or("nobody", |who| PARTIES[who])
        );
    }
}

impl Drop for Cast {
    fn drop(&mut self) {
        for party in &mut self.parties {
            let _ = party.child.kill();
            let _ = party.child.wait();
        }
    }
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |number| number.parse().unwrap())
}

#[test]
fn killed_nodes_return_and_no_process_hangs() {
    let (kills, seed) = (number("DUNLIN_KILLS", 4), number("DUNLIN_SEED", 1));
    println!("DUNLIN_SEED={seed} DUNLIN_KILLS={kills}");
    let mut cast = Cast::new(seed);
    cast.recovers();
    let mut killed = [0; PARTIES.len()];
    let mut slowest = [Duration::ZERO; PARTIES.len()];
    let mut turn = Vec::new();
    while killed.iter().sum::<u64>() < kills {
        // Each as often as any other, in a random order.
        if turn.is_empty() {
            turn.extend(0..PARTIES.len());
        }
        let who = turn.swap_remove(cast.random.below(turn.len() as u64) as usize);
        // A session takes some twenty reports.
        for _ in 0..cast.random.below(40) {
            cast.hear();
        }
        std::thread::sleep(Duration::from_micros(cast.random.below(2000)));
        let began = Instant::now();
        // In half of the cases it is back before the others have given it up, or may be.
        let away = Duration::from_millis(if cast.random.below(2) == 0 { 0 } else { cast.random.below(1000) });
        cast.kill(who, away);
        killed[who] += 1;
        // Sometimes again, while it restarts.
        if cast.random.below(4) == 0 {
            std::thread::sleep(Duration::from_micros(cast.random.below(20_000)));
            cast.kill(who, Duration::ZERO);
            killed[who] += 1;
        }
        cast.recovers();
        slowest[who] = slowest[who].max(began.elapsed());
    }
    println!("killed {PARTIES:?} {killed:?} times; a new session was whole at most {slowest:.1?} later");
    println!("{:#?}", cast.outcomes);
}
