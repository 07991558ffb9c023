//! A bank and its customers, each an OS process, over sockets that a proxy cuts, half-closes and stalls,
//! while customers are killed (`kill -9`) or stopped for a while, and the bank is stopped, too.
//!
//! A customer has one *session* with the bank after the other: it pays 0, 1, 2, ... and gets a receipt for
//! each. The invariants:
//!
//! - the bank takes payments in order, and none twice;
//! - it has taken every payment that was reported to the customer as received, and at most one more;
//! - whatever happens to one customer, the others continue, and it has a session again when it is back;
//! - the bank, which also serves the names, holds as much memory at the end as after a sixth of the time.
//!
//! ```sh
//! DUNLIN_SOAK=600 cargo test --release -p dunlin --test soak -- --nocapture
//! # Ten minutes; DUNLIN_SEED has other faults.
//! ```
#![cfg(all(feature = "net", target_os = "linux"))]

#[path = "support/actor.rs"]
#[expect(dead_code, reason = "the test reads from all these processes at once")]
mod actor;
#[path = "support/proxy.rs"]
mod proxy;
#[path = "support/random.rs"]
mod random;

use std::collections::HashMap;
use std::io::Read;
use std::process::Child;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use actor::say;
use dunlin::prelude::*;
use proxy::Proxy;
use random::Random;
use rustix::process::{Pid, Signal, kill_process};

#[derive(Bundle)]
struct Till {
    pay: ToServer<u64>,
    receipt: ToClient<u64>,
}

const APPLICATION: &str = "soak";
const CUSTOMERS: usize = 3;
/// How many payments a customer makes before it leaves and joins again.
const PAYMENTS: u64 = 400;
/// A silent peer is given up after this time: some of the stopped customers are.
const GRACE: Duration = Duration::from_secs(2);
/// A customer that makes no progress for this long, though all processes run, hangs.
const PATIENCE: Duration = Duration::from_secs(30);
/// Memory may grow by this much beside a tenth: the allocator's reserve.
const SLACK: usize = 4 << 20;

// The processes.

#[test]
#[ignore = "what the processes of the other test run"]
fn a_role() {
    let Some((role, knows)) = actor::role() else { return };
    let [address, names, life] = &knows[..] else { panic!("{knows:?}") };
    // The process ends with the test.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    let builder = || Node::builder().no_config().app(APPLICATION).grace(GRACE).relay(false);
    dunlin::block_on(async {
        match role.as_str() {
            "bank" => bank(&builder().listen(address).names(address).advertise(names).join().await?).await,
            "customer" => {
                let life: u64 = life.parse().expect("a number");
                for session in life << 24.. {
                    // A node of its own for each session: the bank has to clean up the remains of the one
                    // before.
                    let node = builder().names(names).serve_names(false).join().await?;
                    pays(&node, session).await;
                    let _ = node.leave().await;
                }
                Ok(())
            }
            _ => panic!("there is no role {role}"),
        }
    })
    .unwrap();
}

async fn bank(node: &Node) -> Result {
    let mut guests = node.acceptor::<Till>("till").await?;
    say("open");
    loop {
        let mut guest = guests.recv().await?;
        drop(spawn(async move {
            let Ok(session) = guest.pay.recv().await else { return };
            let mut taken = 0;
            while guest.receipt.send(taken).await.is_ok() {
                match guest.pay.recv().await {
                    Ok(n) if n == taken => taken += 1,
                    Ok(n) => return say(format_args!("wrong {session} {n}")),
                    Err(_) => break,
                }
            }
            say(format_args!("took {session} {taken}"));
        }));
    }
}

/// One session, until it is interrupted or complete.
async fn pays(node: &Node, session: u64) {
    let Ok(mut till) = node.client::<Till>("till").within(PATIENCE).await else { return say("unserved") };
    say(format_args!("begins {session} 0"));
    if till.pay.send(session).await.is_err() {
        return say(format_args!("unheard {session} 0"));
    }
    let mut told = 0;
    while let Ok(n) = till.receipt.recv().await {
        assert_eq!(n, told, "a receipt is lost, doubled or out of order");
        if till.pay.send(told).await.is_err() {
            break;
        }
        told += 1;
        if told == PAYMENTS {
            break;
        }
        if told % 50 == 0 {
            say(format_args!("paid {session} {told}"));
        }
    }
    say(format_args!("over {session} {told}"));
}

// The test.

/// The state of a session.
#[derive(Default)]
struct Session {
    /// The number of payments reported to the customer as received, in its last report.
    told: u64,
    /// The customer has printed that at the end.
    is_over: bool,
    /// How many payments the bank has taken.
    taken: Option<u64>,
}

impl Session {
    /// The error of the session, once both ends are known, or the customer is dead.
    fn judge(&self, customer_is_dead: bool) -> Result<(), String> {
        let Some(taken) = self.taken else { return Ok(()) };
        if taken < self.told {
            return Err(format!("{} payments were told to be received, and {taken} were", self.told));
        }
        if self.is_over && !customer_is_dead && taken > self.told + 1 {
            return Err(format!("{taken} payments were received, and {} were told to be", self.told));
        }
        Ok(())
    }
}

/// A report of a process and the life that made it; `None`: the process has ended.
type Heard = (usize, u64, Option<String>);

/// The number of the bank among the processes.
const BANK: usize = CUSTOMERS;

struct Town {
    random: Random,
    address: String,
    proxy: String,
    processes: Vec<(Child, u64)>,
    tell: mpsc::Sender<Heard>,
    heard: mpsc::Receiver<Heard>,
    sessions: HashMap<u64, Session>,
    payments: u64,
    /// The time of each customer's last report of a received payment.
    progress: [Instant; CUSTOMERS],
}

impl Town {
    fn start(&mut self, who: usize, life: u64) {
        let tell = self.tell.clone();
        let role = if who == BANK { "bank" } else { "customer" };
        // Its sessions have numbers that no other life has.
        let life_of_all = (life * CUSTOMERS as u64 + who as u64).to_string();
        let knows = [&*self.address, &self.proxy, &life_of_all];
        let child = actor::start(&[], role, &knows, move |said| drop(tell.send((who, life, said))));
        if who < self.processes.len() {
            self.processes[who] = (child, life);
        } else {
            self.processes.push((child, life));
        }
    }

    fn pid(&self, who: usize) -> Pid {
        Pid::from_child(&self.processes[who].0)
    }

    /// Resident memory of the bank, in bytes.
    fn memory(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid(BANK).as_raw_nonzero())).unwrap();
        let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")).unwrap();
        kib.parse::<usize>().unwrap() << 10
    }

    /// Reads reports until then, or until `enough`.
    fn hear_until(&mut self, until: Instant, enough: impl Fn(&Self) -> bool) -> bool {
        while !enough(self) {
            let Ok((who, life, said)) = self.heard.recv_timeout(until.saturating_duration_since(Instant::now())) else {
                return false;
            };
            match said {
                Some(said) => self.judge(who, &said),
                None if life != self.processes[who].1 => {}
                None => panic!("process {who} ended, and was not killed"),
            }
        }
        true
    }

    fn judge(&mut self, who: usize, said: &str) {
        if ["open", "unserved"].contains(&said) {
            return;
        }
        let words: Vec<&str> = said.split(' ').collect();
        let [what, session, count] = words[..] else { panic!("{said:?}") };
        let (number, count): (u64, u64) = (session.parse().unwrap(), count.parse().unwrap());
        let session = self.sessions.entry(number).or_default();
        match what {
            "begins" => {}
            "paid" => {
                session.told = count;
                self.progress[who] = Instant::now();
            }
            "over" => {
                session.told = count;
                session.is_over = true;
            }
            "took" => {
                assert_eq!(session.taken.replace(count), None, "session {number} has ended twice");
                self.payments += count;
            }
            // The bank may have noticed the session, or not.
            "unheard" => drop(self.sessions.remove(&number)),
            _ => panic!("{said}"),
        }
        let Some(session) = self.sessions.get(&number) else { return };
        if let Err(why) = session.judge(self.is_dead(number)) {
            panic!("session {number:x}: {why}");
        }
    }

    /// Whether the life of this session has ended.
    fn is_dead(&self, session: u64) -> bool {
        let life = session >> 24;
        self.processes[life as usize % CUSTOMERS].1 != life / CUSTOMERS as u64
    }

    /// The ended sessions for which the bank has not reported its number of payments.
    fn unsettled(&self) -> Vec<String> {
        let sessions = self.sessions.iter().filter(|(number, session)| {
            // The bank need not have noticed a session whose customer died early.
            session.taken.is_none() && (session.is_over || session.told > 0 && self.is_dead(**number))
        });
        sessions.map(|(number, session)| format!("{number:x}, {} payments", session.told)).collect()
    }

    /// Harms one participant.
    fn harm(&mut self) {
        let who = self.random.below(CUSTOMERS as u64 + 1) as usize;
        let now = Instant::now();
        if who < BANK && self.random.below(2) == 0 {
            let (child, life) = &mut self.processes[who];
            child.kill().unwrap();
            child.wait().unwrap();
            let life = *life + 1;
            self.start(who, life);
            return;
        }
        // Shorter and longer than the grace; for the bank only shorter.
        let longest = if who == BANK { 1_000 } else { 4_000 };
        let stopped = Duration::from_millis(self.random.below(longest));
        let pid = self.pid(who);
        kill_process(pid, Signal::STOP).unwrap();
        self.hear_until(now + stopped, |_| false);
        kill_process(pid, Signal::CONT).unwrap();
    }
}

impl Drop for Town {
    fn drop(&mut self) {
        for (child, _) in &mut self.processes {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

#[test]
fn nothing_is_lost_or_kept_while_customers_die_and_sockets_break() {
    let (seconds, seed) = (setting("DUNLIN_SOAK", 8), setting("DUNLIN_SEED", 1));
    println!("DUNLIN_SEED={seed} DUNLIN_SOAK={seconds}");
    // The proxy has threads of its own; this one reads reports.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let faults = Proxy::new(seed, u64::MAX);
    // A port that was free a moment ago.
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let proxy = runtime.block_on(async {
        let port = faults.port().await;
        let proxy = port.address();
        port.lead_to(&address);
        proxy
    });
    let (tell, heard) = mpsc::channel();
    let mut town = Town {
        random: Random(seed),
        address,
        proxy,
        processes: Vec::new(),
        tell,
        heard,
        sessions: HashMap::new(),
        payments: 0,
        progress: [Instant::now(); CUSTOMERS],
    };
    for who in 0..=CUSTOMERS {
        town.start(who, 0);
    }
    let begin = Instant::now();
    let whole = Duration::from_secs(seconds);
    let mut early = 0;
    while begin.elapsed() < whole {
        let pause = Duration::from_millis(town.random.below(500));
        town.hear_until(Instant::now() + pause, |_| false);
        town.harm();
        if begin.elapsed() < whole / 6 {
            early = town.memory();
        }
        for (who, progress) in town.progress.into_iter().enumerate() {
            assert!(progress.elapsed() < PATIENCE, "customer {who} has paid nothing for {:?}", progress.elapsed());
        }
    }
    // Each makes progress, and both ends have reported each ended session.
    let now = Instant::now();
    let go_on = |town: &Town| town.progress.iter().all(|progress| *progress > now);
    assert!(town.hear_until(now + PATIENCE, go_on), "a customer hangs: {:?}", town.progress.map(|at| at.elapsed()));
    let settled = town.hear_until(now + PATIENCE, |town| town.unsettled().is_empty());
    assert!(settled, "the bank does not know that these sessions are over: {:?}", town.unsettled());
    let late = town.memory();
    println!(
        "{} payments; {:?}; the bank's memory {} KiB after a sixth, {} KiB at the end",
        town.payments,
        faults.counts,
        early >> 10,
        late >> 10
    );
    assert!(town.payments > 0, "no session has ended");
    assert!(late < early + early / 10 + SLACK, "the bank's memory has grown from {early} to {late} bytes");
}
