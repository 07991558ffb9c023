//! `dunlin names`: the name service of an application, and its contents.

use std::time::Duration;

use clap::{Args, Subcommand};
use dunlin::config::Config;
use dunlin::node::inquiry::NameList;
use dunlin::node::{Node, NodeBuilder, NodeError};
use dunlin_terminal::failure::{Failure, Signals, after_leaving};
use dunlin_terminal::output::{Output, columns, printable};
use serde_json::json;

use crate::log;
use crate::reach::{self, PATIENCE, can_be_dialled, plainly};
use crate::who::{Who, visit};

/// How long the listener at the address of the names may take to identify itself.
const LOOK: Duration = Duration::from_secs(1);

/// Subcommands of `dunlin names`.
#[derive(Debug, Subcommand)]
pub enum Options {
    /// Serve an application's names until Ctrl-C
    Serve(Serve),
    /// List the names: which node holds which end, which end is missing, and for how long
    List(List),
}

/// Options of `dunlin names serve`.
#[derive(Args, Debug)]
pub struct Serve {
    #[command(flatten)]
    who: Who,
    /// The address: "host:port", "unix:/path", "default-route". Default: from the configuration, or the first
    /// free port from 7400 of 127.0.0.1
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
}

/// Options of `dunlin names list`.
#[derive(Args, Debug)]
pub struct List {
    #[command(flatten)]
    who: Who,
    /// Ask the node at this address for the names that it knows. Default: the application's name service
    #[arg(long, value_name = "ADDR")]
    at: Option<String>,
}

/// Serves or lists names.
///
/// # Errors
/// [`Failure`].
pub async fn run(options: &Options, output: Output) -> Result<(), Failure> {
    match options {
        Options::Serve(options) => serve(options, output).await,
        Options::List(options) => list(options, output).await,
    }
}

async fn serve(options: &Serve, output: Output) -> Result<(), Failure> {
    let sources = options.who.sources()?;
    let config = options.who.application(&sources, None)?;
    log::show();
    // The configuration sets its limits.
    let mut builder = Node::builder().sources(sources).app(&config.app.value).serve_names(true);
    let address = match options.listen.as_deref() {
        // Other nodes must know the port beforehand.
        Some("default-route") => Some("default-route:7400"),
        Some(address) => Some(address),
        None => config.names.value.as_deref(),
    };
    if let Some(address) = address {
        if address.starts_with("memory:") || address.ends_with(":0") {
            return Err(Failure::Line(format!(
                "no other process would find the names at {address}: give an address that all know, such as \
                 127.0.0.1:7400 or unix:/path"
            )));
        }
        builder = builder.listen(address).names(address);
    }
    let mut signals = Signals::hear()?;
    let node = signals.or(join(builder, &config)).await?;
    let ended = signals.or(served(&node, output)).await;
    let left = signals.leaving(node).await;
    after_leaving(ended, left)
}

/// Joins. If another node of the application serves the names at the address where this node should listen,
/// the error names that node.
///
/// # Errors
/// [`Failure::Failed`].
pub async fn join(builder: NodeBuilder, config: &Config) -> Result<Node, Failure> {
    let error = match builder.join().await {
        Ok(node) => return Ok(node),
        Err(error) => error,
    };
    if let NodeError::Listen { address, error: why, .. } = &error
        && why.kind() == std::io::ErrorKind::AddrInUse
        && can_be_dialled(address)
    {
        let visitor = visit(config).await?;
        let there = known_at(&config.app.value, address, &visitor, LOOK).await;
        // A visitor has nothing to lose.
        let _ = visitor.leave().await;
        if let Some(there) = there.ok().filter(|there| there.serves) {
            return Err(already(&there.node, &config.app.value, address));
        }
    }
    Err(Failure::failed(error))
}

fn already(node: &str, app: &str, at: &str) -> Failure {
    Failure::failed(format_args!(
        "node {node} already serves the names of {app:?} at {at}. To serve the names here, end that node first; to \
         serve them elsewhere, give all nodes another address (names = \"host:port\")"
    ))
}

/// Serves names. It returns only with an error.
///
/// # Errors
/// [`Failure::Failed`] if another node serves them.
pub async fn served(node: &Node, output: Output) -> Result<(), Failure> {
    let names = ask(node.config(), node).await?;
    let (app, at) = (node.application(), names.address.clone().unwrap_or_default());
    if names.node != node.me().to_string() {
        return Err(already(&names.node, app, &at));
    }
    let line = json!({ "event": "serving", "app": app, "address": at, "node": names.node });
    output.say(&line, || format!("serving the names of {app:?} at {at}"));
    std::future::pending().await
}

/// The contents of the application's name service.
///
/// # Errors
/// [`Failure::Failed`] if there is none.
pub async fn ask(config: &Config, node: &Node) -> Result<NameList, Failure> {
    let nobody = |why: &dyn std::fmt::Display, is_busy: bool| {
        let at = match &config.names.value {
            Some(address) => format!("at {address}"),
            None => "at 127.0.0.1, ports 7400 to 7415".to_owned(),
        };
        let app = &config.app.value;
        if is_busy {
            return Failure::failed(format_args!(
                "the name service {at} refuses this connection ({why}). Try again; its log names the limit"
            ));
        }
        Failure::failed(format_args!(
            "no name service of the application {app:?} answers {at} ({why}). Start one with `dunlin names serve \
             --app {app}`, or give its address: names = \"host:port\" in dunlin.toml, or DUNLIN_NAMES"
        ))
    };
    let mut asks = node.inquire(None, PATIENCE).await.map_err(|why| nobody(&plainly(&why), why.is_busy()))?;
    asks.names(PATIENCE).await.map_err(|why| {
        let app = &config.app.value;
        Failure::failed(format_args!(
            "the name service of the application {app:?} answered, but did not send all its names within {} s \
             ({why}). Try again: the service has many names, or the service or this machine is busy",
            PATIENCE.as_secs()
        ))
    })
}

async fn list(options: &List, output: Output) -> Result<(), Failure> {
    let config = options.who.application(&options.who.sources()?, None)?;
    let visitor = visit(&config).await?;
    let names = match &options.at {
        None => ask(&config, &visitor).await,
        Some(address) => known_at(&config.app.value, address, &visitor, PATIENCE).await,
    };
    // A visitor has nothing to lose.
    let _ = visitor.leave().await;
    let names = names?;
    if output.json {
        for end in &names.ends {
            let line = json!({
                "name": end.name,
                "end": end.face,
                "shared": end.shared,
                "encoding": end.encoding,
                "node": end.node,
                "addresses": end.addresses,
                "state": end.state,
                "waits_for": end.waits_for(),
                "since_seconds": end.since.as_secs_f64(),
            });
            output.say(&line, String::new);
        }
        return Ok(());
    }
    output.say(&(), || table(&names, &config.app.value));
    Ok(())
}

/// The text for a terminal. Other nodes choose their names and addresses, so the terminal must not interpret
/// them as commands.
fn table(names: &NameList, app: &str) -> String {
    let of = if names.serves {
        let at = printable(names.address.as_deref().unwrap_or("no address"));
        format!(", which serves the names of {app:?} at {at}")
    } else {
        String::new()
    };
    let mut rows = vec![["NAME", "END", "STATE", "SINCE", "NODE", "AT"].map(str::to_owned).to_vec()];
    for end in &names.ends {
        let face = if end.shared { format!("shared {}", end.face) } else { end.face.clone() };
        let state = end.waits_for().map_or_else(|| end.state.to_string(), |what| format!("waits for {what}"));
        let since = format!("{:.1} s", end.since.as_secs_f64());
        let row = [end.name.clone(), face, state, since, end.node.clone(), end.addresses.join(", ")];
        rows.push(row.map(|cell| printable(&cell)).to_vec());
    }
    let table = if names.ends.is_empty() { "no name is declared".to_owned() } else { columns(&rows) };
    format!("node {}{of}\n{table}", printable(&names.node))
}

async fn known_at(app: &str, address: &str, visitor: &Node, patience: Duration) -> Result<NameList, Failure> {
    let mut asks =
        visitor.inquire(Some(address), patience).await.map_err(|why| reach::unanswered(app, address, &why))?;
    asks.names(patience).await.map_err(|why| reach::nobody(app, address, &why))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A node refuses to declare such a name, but the answering program need not be a node.
    #[test]
    fn control_characters_from_another_node_reach_no_terminal() {
        let harmful = "a\x1b[2J\u{202e}";
        let answer = json!({
            "node": harmful,
            "listening": [],
            "address": harmful,
            "serves": true,
            "ends": [{
                "name": harmful,
                "face": harmful,
                "shared": false,
                "encoding": "postcard",
                "node": harmful,
                "addresses": [harmful],
                "state": "joined",
                "since": { "secs": 1, "nanos": 0 },
            }],
        });
        let table = table(&serde_json::from_value(answer).unwrap(), "weather");
        assert!(!table.contains(['\x1b', '\u{202e}']), "{table:?}");
        assert_eq!(table.matches(r"a\u{1b}[2J\u{202e}").count(), 6, "{table}");
    }
}
