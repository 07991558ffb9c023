//! `dunlin node`: a node of the configuration, and what that says it runs.

use clap::Args;
use dunlin::config::Origin;
use dunlin::node::{ConnectionState, Node};
use serde_json::json;

use crate::component;
use crate::config::is_there;
use crate::failure::{Failure, after_leaving};
use crate::output::Output;
use crate::who::Who;

/// What it takes.
#[derive(Args, Debug)]
pub struct Options {
    #[command(flatten)]
    who: Who,
    /// The node: its section is [node.NAME]
    name: String,
}

/// Runs it until what it runs ends, or until Ctrl-C.
///
/// # Errors
/// [`Failure`].
pub async fn run(options: &Options, output: Output) -> Result<(), Failure> {
    let (sources, config) = options.who.application(Some(&options.name))?;
    is_there(&sources, &config.app.value, &options.name)?;
    let component =
        component::find(config.run.value.as_deref().unwrap_or("nothing")).map_err(|failure| {
            match &config.run.origin {
                Origin::Default => failure,
                said => Failure::failed(format_args!("{said}: {failure}")),
            }
        })?;
    let builder = Node::builder().app(&config.app.value).named(&options.name);
    let node = (component.prepare)(builder, &config).join().await.map_err(Failure::failed)?;
    let (me, listening) = (node.me().to_string(), node.listening().join(", "));
    let (app, name, runs) = (&config.app.value, &options.name, component.name);
    let line =
        json!({ "event": "up", "app": app, "name": name, "node": me, "listening": node.listening(), "runs": runs });
    output.say(&line, || format!("{name} is node {me} of {app:?} at {listening}, and runs {runs}"));
    let mut connections = node.connections();
    let shows = tokio::spawn(async move {
        // It ends when the node has left.
        while let Ok((peer, state)) = connections.recv().await {
            let (event, why) = match &state {
                ConnectionState::Up => ("joined", None),
                ConnectionState::Lost => ("lost", None),
                ConnectionState::Resumed => ("back", None),
                ConnectionState::Relayed(relay) => ("relayed", Some(relay.to_string())),
                ConnectionState::Down(why) => ("left", Some(why.to_string())),
                _ => continue,
            };
            let peer = peer.to_string();
            let line = json!({ "event": event, "node": peer, "why": why });
            output.say(&line, || match &why {
                Some(why) => format!("node {peer}: {event} ({why})"),
                None => format!("node {peer}: {event}"),
            });
        }
    });
    let ended = (component.run)(node.clone(), output).await;
    let left = node.leave().await;
    let _ = shows.await;
    after_leaving(ended, left)
}
