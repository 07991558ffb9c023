//! One part, in a process of its own: what `dunlin demo` starts.
//!
//! The parent writes the task to the standard input, in one line. The line "close" ends the names and the
//! broker in order. The end of the input ends the part at once, so a part does not outlive its parent,
//! however that ends. The part writes its events to the standard output, a JSON object in each line.

use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::time::Duration;

use dunlin::node::NameError;
use dunlin::prelude::*;
use dunlin::unbounded;
use dunlin_terminal::failure::{exit, has_files};
use dunlin_terminal::output::complain;
use serde::{Deserialize, Serialize};

use super::broker::broker;
use super::customer::customer;
use super::event::{Carriage, Connection, Event, Reporter, Said};
use super::plan::{Part, Role};
use super::protocol::{Entrance, EntranceClient};
use super::worker::worker;

/// The first argument of a process that `dunlin demo` starts as one of its parts.
pub const PART: &str = "demo-part";

/// The name of the entrance.
const BROKER: &str = "broker";
/// A connection without a socket for this long has ended. All parts are on one machine.
const GRACE: Duration = Duration::from_secs(2);
const HEARTBEAT: Duration = Duration::from_millis(300);
/// How long a part may take to leave when its parent is gone.
const LAST: Duration = Duration::from_secs(2);

/// The parent's first line.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Task {
    pub(super) part: Part,
    pub(super) application: String,
    pub(super) names: String,
    pub(super) pace: Duration,
    pub(super) patience: Duration,
}

/// Runs the part that the standard input describes.
pub fn play() -> ExitCode {
    let mut first = String::new();
    let read = std::io::stdin().read_line(&mut first);
    let task: Task = match read
        .map_err(|error| error.to_string())
        .and_then(|_| serde_json::from_str(&first).map_err(|error| error.to_string()))
    {
        Ok(task) => task,
        Err(why) => {
            complain(format_args!(
                "error: no task on standard input ({why}); this command is only for `dunlin demo` to start: run \
                 `dunlin demo`"
            ));
            return ExitCode::from(2);
        }
    };
    if let Err(failure) = has_files() {
        return exit(Err(failure));
    }
    let (close, closed) = channel_with::<()>(unbounded());
    let (leave, mut left) = channel::<()>();
    std::thread::spawn(move || {
        let mut close = Some(close);
        for line in std::io::stdin().lock().lines() {
            match line {
                Ok(line) if line == "close" => close = None,
                _ => break,
            }
        }
        drop((close, leave));
        std::thread::sleep(LAST);
        std::process::exit(1);
    });
    let played = dunlin::block_on(async {
        alt! { biased;
            // It was asked to leave: that is no failure.
            _ = left.recv() => Ok(()),
            played = future(run(task, closed)) => played,
        }
    });
    if played.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Joins, runs the part, and leaves.
async fn run(task: Task, closed: Receiver<()>) -> Result<(), String> {
    let (tx, rx) = channel::<Said>();
    let tx = tx.share();
    let mut said = Reporter::new(&task.part.name, &tx);
    let is_names = task.part.role == Role::Names;
    // A user's configuration of other applications does not concern the demo.
    let builder = Node::builder().no_config().app(&task.application).names(&task.names);
    // The connections should be visibly direct, so no node relays.
    let builder = builder.grace(GRACE).heartbeat(HEARTBEAT).relay(false).serve_names(is_names);
    let joined = builder.listen(if is_names { &task.names } else { "127.0.0.1:0" }).join().await;
    let node = joined.as_ref().ok().cloned();
    let writer = std::thread::spawn(move || write(rx, node));
    let done = match joined {
        Ok(node) => {
            let (name, address) = (node.me().to_string(), node.listening()[0].clone());
            said.say(Event::Joined { node: name, address }).await;
            let played = take_part(&node, &task, closed, said.clone()).await;
            // A killed part does not leave in order, and the remaining ones tolerate that.
            played.and(node.leave().await.map_err(|error| error.to_string()))
        }
        Err(error) => Err(error.to_string()),
    };
    if let Err(why) = &done {
        said.say(Event::Failed { why: why.clone() }).await;
    }
    drop((said, tx));
    let _ = writer.join();
    done
}

async fn take_part(node: &Node, task: &Task, mut closed: Receiver<()>, said: Reporter) -> Result<(), String> {
    let patience = task.patience;
    let absent = |error: NameError| match error {
        NameError::TimedOut { .. } => format!(
            "no name service has answered at {} within {patience:?}: check that the service runs and that no firewall \
             blocks the address",
            task.names
        ),
        error => error.to_string(),
    };
    let failed = |error: Error| match error.is_timed_out() {
        true => format!("the broker did not answer within {patience:?}: check that the broker still runs"),
        false => format!("the broker is lost: {error}"),
    };
    let entrance = async || -> Result<EntranceClient, String> {
        node.client::<Entrance>(BROKER).within(patience).await.map_err(absent)
    };
    match &task.part.role {
        Role::Names => {
            let _ = closed.recv().await;
            Ok(())
        }
        Role::Broker => {
            let mut guests = node.acceptor::<Entrance>(BROKER).within(patience).await.map_err(absent)?;
            let (mut door, visitors) = channel();
            let usher = spawn(async move {
                while let Ok(Some(guest)) = guests.next().await {
                    if door.send(guest.into_face()).await.is_err() {
                        break;
                    }
                }
            });
            broker(visitors, closed, said).await;
            usher.cancel();
            let _ = usher.await;
            Ok(())
        }
        Role::Worker => worker(entrance().await?, patience, said).await.map_err(failed),
        Role::Customer { texts } => {
            customer(entrance().await?, texts.clone(), task.pace, patience, said).await.map_err(failed)
        }
    }
}

/// Writes events; beside a customer's event of being served, the connections of its node; and when the broker
/// leaves, the traffic of its node.
fn write(mut said: Receiver<Said>, node: Option<Node>) {
    let mut out = std::io::stdout().lock();
    while let Ok(Some(said)) = said.next().wait() {
        let seen = match (&said.event, &node) {
            (Event::Progress { sent: 1, .. } | Event::Served { .. }, Some(node)) => {
                let nodes = node.peers().into_iter();
                let nodes = nodes.map(|(node, route)| Connection { node: node.to_string(), route: route.to_string() });
                Some(Said { part: said.part.clone(), event: Event::Connections { nodes: nodes.collect() } })
            }
            (Event::Closed { .. }, Some(node)) => {
                let carried = node.traffic().into_iter().map(|(node, traffic)| Carriage {
                    node: node.to_string(),
                    sent: traffic.written,
                    received: traffic.read,
                });
                Some(Said { part: said.part.clone(), event: Event::Carried { connections: carried.collect() } })
            }
            _ => None,
        };
        for said in [Some(said), seen].into_iter().flatten() {
            let Ok(line) = serde_json::to_string(&said) else { continue };
            if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
                return; // The parent is gone.
            }
        }
    }
}
