//! Each part in a process of its own: starts the processes, reads their events, and ends them.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::TcpListener;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use dunlin::net::Networks;
use dunlin::prelude::*;
use dunlin::{Instant, sleep_until, unbounded};
use dunlin_terminal::output::Lost;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};

use super::event::{Event, Said};
use super::part::{PART, Task};
use super::plan::{Part, Plan, Role};
use super::signals;

/// How long the parts may report nothing before the demo fails: longer than any step takes when all works.
const SILENCE: Duration = Duration::from_secs(30);
/// How long parts that have lost their broker may be silent. Connections end sooner.
const WITHOUT_BROKER: Duration = Duration::from_secs(6);
/// How long parts may take to leave after the order to end at once. Then they are killed.
const LEAVING: Duration = Duration::from_secs(3);

/// How the demo ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All parts have ended by themselves.
    Done,
    /// By a signal, or because its output has lost its reader; the code is what the shell expects.
    Stopped(u8),
    /// It could not continue.
    Failed(String),
    /// It could not begin: no process was started.
    Unbegun(String),
}

/// What the task of a process reports.
enum News {
    Said(Said),
    /// The process has ended.
    Ended(usize, io::Result<ExitStatus>),
}

/// The orders to the task of a process.
enum Order {
    /// Start the process. If another order comes first, the process does not start.
    Start,
    /// End the part in order.
    Close,
    /// End the part at once.
    Leave,
    /// Kill the process.
    Kill,
}

struct Process {
    part: Part,
    orders: Sender<Order>,
    is_started: bool,
    is_closing: bool,
    /// Or will never start.
    has_ended: bool,
}

impl Process {
    fn start(&mut self) {
        self.is_started = true;
        self.order(Order::Start);
    }

    fn order(&mut self, order: Order) {
        self.has_ended |= !self.is_started;
        // It fails if the process has ended.
        let _ = self.orders.try_send(order);
    }

    /// Sends the order to close once.
    fn close(&mut self) {
        if !std::mem::replace(&mut self.is_closing, true) {
            self.order(Order::Close);
        }
    }
}

/// Runs the parts of a plan, each in a process, until all have ended: no process is left when this returns.
/// `names` is the address where the name service listens. If `hear` fails, all are ended.
///
/// # Cancel safety
/// Dropped, it kills the processes.
pub async fn run(plan: &Plan, names: Option<&str>, mut hear: impl FnMut(&Said) -> Result<(), Lost>) -> Ending {
    // Before the first process exists: from now on a signal ends them in order.
    let mut signals = signals::signals();
    let application = format!("demo {:016x}", random());
    let address = names.map_or_else(free_address, str::to_owned);
    // One error here replaces eight of processes that cannot find the names. (The port is closed again at
    // once, for the process that serves the names.)
    if let Err(error) = Networks::default().listen(&address).await {
        return Ending::Unbegun(elsewhere(&error));
    }
    let (tell, mut news) = channel_with(unbounded());
    let tell = tell.share();
    let mut processes = Vec::new();
    for (index, part) in plan.parts.iter().enumerate() {
        let (orders, heard) = channel_with(unbounded());
        let task = Task {
            part: part.clone(),
            application: application.clone(),
            names: address.clone(),
            pace: plan.pace,
            patience: plan.patience,
        };
        drop(spawn(tend(index, task, heard, tell.clone())));
        let part = part.clone();
        processes.push(Process { part, orders, is_started: false, is_closing: false, has_ended: false });
    }
    drop(tell);
    let at_once = if plan.in_turn { 1 } else { processes.len() };
    processes.iter_mut().take(at_once).for_each(Process::start);

    let mut ending = Ending::Done;
    let mut kill_at = None;
    let mut last_heard = Instant::now();
    let mut silence = SILENCE;
    while processes.iter().any(|process| !process.has_ended) {
        let mut stop = None;
        let is_stopping = ending != Ending::Done;
        alt! { biased;
            signal = signals.recv() => if let Ok(code) = signal {
                stop = Some(Ending::Stopped(code));
                if is_stopping {
                    // A second signal kills at once.
                    kill_at = Some(Instant::now());
                }
            },
            told = news.recv() => match told {
                Ok(News::Said(said)) => {
                    last_heard = Instant::now();
                    if let (Event::Failed { why }, "names") = (&said.event, said.part.as_str()) {
                        stop = Some(Ending::Failed(elsewhere(why)));
                    }
                    if matches!(said.event, Event::Joined { .. }) {
                        start_next(&mut processes, &said.part);
                    }
                    // Some parts that were asked to leave miss others, and have nothing new to report.
                    let misses = matches!(
                        said.event,
                        Event::Failed { .. } | Event::Lost { .. } | Event::NotServed { .. } | Event::NotReturned { .. }
                    );
                    if !(misses && matches!(ending, Ending::Stopped(_)))
                        && let Err(lost) = hear(&said)
                    {
                        stop = Some(Ending::Stopped(lost.code()));
                    }
                }
                Ok(News::Ended(index, status)) => {
                    last_heard = Instant::now();
                    let process = &mut processes[index];
                    process.has_ended = true;
                    let (status, in_order) = match status {
                        Ok(status) => (status.to_string(), status.success()),
                        Err(error) => (error.to_string(), false),
                    };
                    if process.part.role == Role::Broker && !process.is_closing {
                        silence = WITHOUT_BROKER;
                    }
                    let part = process.part.name.clone();
                    start_next(&mut processes, &part);
                    if let Err(lost) = hear(&Said { part, event: Event::Ended { status, in_order } }) {
                        stop = Some(Ending::Stopped(lost.code()));
                    }
                }
                Err(_) => break,
            },
            _ = sleep_until(kill_at.unwrap_or(last_heard)), if kill_at.is_some() => {
                kill_at = None;
                for process in &mut processes {
                    process.order(Order::Kill);
                }
            }
            _ = sleep_until(last_heard + silence), if !is_stopping => {
                stop = Some(Ending::Failed(format!("nothing has happened for {silence:?}")));
            }
        }
        if let (Some(reason), false) = (stop, is_stopping) {
            ending = reason;
            kill_at = Some(Instant::now() + LEAVING);
            for process in &mut processes {
                process.order(Order::Leave);
            }
        }
        close_in_order(&mut processes);
    }
    ending
}

fn elsewhere(why: &dyn std::fmt::Display) -> String {
    format!("{why}: choose another address with --names, or omit --names")
}

/// Starts the next process, if this part, which has joined or ended, is that of the last started process.
fn start_next(processes: &mut [Process], part: &str) {
    let Some(last) = processes.iter().rposition(|process| process.is_started) else { return };
    if processes[last].part.name == part
        && let Some(next) = processes[last..].iter_mut().find(|process| !process.is_started && !process.has_ended)
    {
        next.start();
    }
}

/// Without customers or without workers, the broker is not needed; when all others have left, neither are the
/// names.
fn close_in_order(processes: &mut [Process]) {
    let ended = |processes: &[Process], who: fn(&Role) -> bool| {
        processes.iter().all(|process| process.has_ended || !who(&process.part.role))
    };
    let no_customers = ended(processes, |role| matches!(role, Role::Customer { .. }));
    let no_workers = ended(processes, |role| *role == Role::Worker);
    let names_alone = ended(processes, |role| *role != Role::Names);
    for process in processes {
        match process.part.role {
            Role::Broker if no_customers || no_workers => process.close(),
            Role::Names if names_alone => process.close(),
            _ => {}
        }
    }
}

/// Starts a process on its order, forwards its output and its orders, and reports its end.
async fn tend(index: usize, task: Task, mut orders: Receiver<Order>, mut news: Shared<Sender<News>>) {
    let Ok(Order::Start) = orders.recv().await else { return };
    let ended = match start(&task).await {
        Ok(mut child) => {
            let part = &task.part.name;
            if let Some(pid) = child.id() {
                let _ = news.send(News::Said(Said { part: part.clone(), event: Event::Started { pid } })).await;
            }
            let says = child.stdout.take().map(|says| spawn(pass_on(says, part.clone(), news.clone())));
            let complains = child.stderr.take().map(|complains| spawn(pass_on(complains, part.clone(), news.clone())));
            let mut input = child.stdin.take();
            let ended = loop {
                alt! { biased;
                    ended = future(child.wait()) => break ended,
                    order = orders.recv() => match order {
                        Ok(Order::Close) => if let Some(input) = &mut input {
                            let _ = input.write_all(b"close\n").await;
                        },
                        Ok(Order::Leave) => drop(input.take()),
                        Ok(Order::Kill) => drop(child.start_kill()),
                        Ok(Order::Start) => {}
                        // It is not needed any more.
                        Err(_) => break child.kill().await.and(child.wait().await),
                    }
                }
            };
            // The output is forwarded before the event of its end.
            for reader in [says, complains].into_iter().flatten() {
                let _ = reader.await;
            }
            ended
        }
        Err(error) => Err(error),
    };
    let _ = news.send(News::Ended(index, ended)).await;
}

async fn start(task: &Task) -> io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(PART).kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // Ctrl-C on a terminal is for the parent alone: it ends the parts.
    #[cfg(unix)]
    command.process_group(0);
    #[cfg(windows)]
    command.creation_flags(0x200); // CREATE_NEW_PROCESS_GROUP
    let mut child = command.spawn()?;
    let mut line = serde_json::to_vec(task)?;
    line.push(b'\n');
    if let Some(input) = &mut child.stdin {
        input.write_all(&line).await?;
    }
    Ok(child)
}

/// Forwards the output of a process line by line; a line that is no event is a complaint.
async fn pass_on(says: impl AsyncRead + Unpin, part: String, mut news: Shared<Sender<News>>) {
    let mut lines = BufReader::new(says).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let said = serde_json::from_str(&line)
            .unwrap_or_else(|_| Said { part: part.clone(), event: Event::Complains { line } });
        if news.send(News::Said(said)).await.is_err() {
            return;
        }
    }
}

/// An address of this machine that was free a moment ago, among those that the system assigns only on
/// request.
fn free_address() -> String {
    let ports = (0..100).map(|_| 20_000 + (random() % 12_000) as u16);
    let free = ports.map(|port| TcpListener::bind(("127.0.0.1", port))).find_map(Result::ok);
    let free = free.map_or_else(|| TcpListener::bind("127.0.0.1:0"), Ok).and_then(|listener| listener.local_addr());
    free.map_or_else(|_| "127.0.0.1:7400".to_owned(), |address| address.to_string())
}

/// A number that cannot be guessed, and that no other run has.
fn random() -> u64 {
    RandomState::new().hash_one(())
}
