//! `dunlin node`: a node of the configuration, and the component that it runs.

use clap::Args;
use dunlin::node::{Node, NodeEvent};
use dunlin_terminal::failure::{Failure, Signals, after_leaving};
use dunlin_terminal::output::{Output, complain};
use serde_json::{Value, json};

use crate::component;
use crate::config::is_there;
use crate::log;
use crate::names::join;
use crate::who::Who;

/// Options of `dunlin node`.
#[derive(Args, Debug)]
pub struct Options {
    #[command(flatten)]
    who: Who,
    /// The node: its section is [node.NAME]
    name: String,
}

/// Runs the node until its component ends, until its main node leaves, or until Ctrl-C.
///
/// # Errors
/// [`Failure`].
pub async fn run(options: &Options, output: Output) -> Result<(), Failure> {
    let sources = options.who.sources()?;
    let config = options.who.application(&sources, Some(&options.name))?;
    is_there(&sources, &config.app.value, &options.name)?;
    let component = component::find(config.run.value.as_deref().unwrap_or("nothing"), &config.run.origin)?;
    log::show();
    let builder = Node::builder().sources(sources).app(&config.app.value).named(&options.name);
    let mut signals = Signals::hear()?;
    let builder = (component.prepare)(builder, &config).on_wait(|wait| complain(wait));
    let node = signals.or(join(builder, &config)).await?;
    let (me, listening) = (node.me().to_string(), node.listening().join(", "));
    let (app, name, runs) = (&config.app.value, &options.name, component.name);
    let line =
        json!({ "event": "up", "app": app, "name": name, "node": me, "listening": node.listening(), "runs": runs });
    output.say(&line, || format!("{name} is node {me} of {app:?} at {listening}, and runs {runs}"));
    let mut events = node.events();
    let shows = tokio::spawn(async move {
        // The event stream ends when the node has left.
        while let Ok(event) = events.recv().await {
            output.say(&object(&event), || event.to_string());
        }
    });
    let running = async {
        tokio::select! {
            ended = (component.run)(node.clone(), output) => ended,
            // The main node leaves, and waits for this node.
            _ = node.closing() => Ok(()),
        }
    };
    let ended = signals.or(running).await;
    let left = signals.leaving(node).await;
    let _ = shows.await;
    after_leaving(ended, left)
}

/// An event for scripts: its kind, the node that it concerns, and the text for people.
fn object(event: &NodeEvent) -> Value {
    let (kind, node) = match event {
        NodeEvent::Joined { peer, .. } => ("joined", Some(peer)),
        NodeEvent::Left { peer, in_order: true, .. } => ("left", Some(peer)),
        NodeEvent::Left { peer, in_order: false, .. } => ("lost", Some(peer)),
        NodeEvent::Connection(peer, _) => ("connection", Some(peer)),
        NodeEvent::MainLost { peer, .. } => ("main-lost", Some(peer)),
        NodeEvent::Closing { .. } => ("closing", None),
        NodeEvent::Refused { .. } => ("refused", None),
        NodeEvent::Mismatch { .. } => ("mismatch", None),
        NodeEvent::Stranger { .. } => ("stranger", None),
        NodeEvent::Unwelcome { .. } => ("unwelcome", None),
        NodeEvent::Limit(_) => ("limit", None),
        NodeEvent::Conflict(_) => ("conflict", None),
        _ => ("other", None),
    };
    json!({ "event": kind, "node": node.map(ToString::to_string), "text": event.to_string() })
}
