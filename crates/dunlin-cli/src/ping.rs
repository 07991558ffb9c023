//! `dunlin ping`: round trips to a node.

use std::time::Duration;

use clap::Args;
use dunlin::config::{Config, Sources};
use dunlin::node::Node;
use dunlin_terminal::failure::Failure;
use dunlin_terminal::output::{Output, is_written};
use serde_json::json;

use crate::names;
use crate::reach::{self, PATIENCE, can_be_dialled, unanswered};
use crate::who::{Who, visit};

/// Options of `dunlin ping`.
#[derive(Args, Debug)]
pub struct Options {
    #[command(flatten)]
    who: Who,
    /// The node: its address, its name in the configuration, or the name of one of its ends
    #[arg(value_name = "ADDRESS|NAME")]
    node: String,
    /// The number of round trips
    #[arg(long, short, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
}

/// Pings a node.
///
/// # Errors
/// [`Failure::Failed`] if no node answers; [`Failure::Lost`] if the output cannot be written.
pub async fn run(options: &Options, output: Output) -> Result<(), Failure> {
    // The node's own section may name its application.
    let sources = options.who.sources()?;
    let config = options.who.config(&sources, None)?;
    let is_of_one = config.app.value.is_empty() && sources.nodes("").contains(&options.node);
    let config = options.who.application(&sources, is_of_one.then_some(&*options.node))?;
    let visitor = visit(&config).await?;
    let pinged = pings(options, &sources, &config, &visitor, output).await;
    // A visitor has nothing to lose.
    let _ = visitor.leave().await;
    pinged
}

async fn pings(
    options: &Options,
    sources: &Sources,
    config: &Config,
    visitor: &Node,
    output: Output,
) -> Result<(), Failure> {
    let address = address_of(&options.node, sources, config, visitor).await?;
    let nobody = |why: &dyn std::fmt::Display| reach::nobody(&config.app.value, &address, why);
    let mut asks =
        visitor.inquire(Some(&address), PATIENCE).await.map_err(|why| unanswered(&config.app.value, &address, &why))?;
    // The first ping opens the connection, so it does not count as a round trip.
    let (node, _) = asks.ping(PATIENCE).await.map_err(|why| nobody(&why))?;
    if !output.json {
        output.say(&(), || format!("node {node} at {address}"));
    }
    let mut times = Vec::new();
    for number in 1..=options.count {
        let (_, took) = asks.ping(PATIENCE).await.map_err(|why| nobody(&why))?;
        times.push(took);
        let line = json!({ "node": node, "number": number, "micros": micros(took) });
        output.say(&line, || format!("{number}: {}", shown(took)));
        is_written()?;
    }
    let mean = times.iter().sum::<Duration>() / options.count;
    let (min, max) = (times.iter().min().copied().unwrap_or(mean), times.iter().max().copied().unwrap_or(mean));
    let all = json!({
        "node": node,
        "address": address,
        "count": options.count,
        "min_micros": micros(min),
        "mean_micros": micros(mean),
        "max_micros": micros(max),
    });
    output.say(&all, || {
        format!("{} round trips: min {}, mean {}, max {}", options.count, shown(min), shown(mean), shown(max))
    });
    Ok(())
}

fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1000.0
}

fn shown(time: Duration) -> String {
    match time {
        time if time < Duration::from_millis(10) => format!("{:.0} µs", micros(time)),
        time => format!("{:.1} ms", micros(time) / 1000.0),
    }
}

/// The address of a node: the argument itself if it is an address, otherwise that of a node of the
/// configuration, or of the holder of an end with this name.
async fn address_of(node: &str, sources: &Sources, config: &Config, visitor: &Node) -> Result<String, Failure> {
    if node.contains(':') {
        return Ok(node.to_owned());
    }
    if sources.nodes(&config.app.value).iter().any(|name| name == node) {
        let of_node = sources.resolve(Some(&config.app.value), Some(node)).map_err(Failure::failed)?;
        // The node that serves the names is at the address of the names.
        let names = of_node.names.value.iter().filter(|_| of_node.run.value.as_deref() == Some("names"));
        let said = of_node.advertise.value.iter().chain(&of_node.listen.value).chain(names);
        return said.into_iter().find(|address| can_be_dialled(address)).cloned().ok_or_else(|| {
            Failure::failed(format_args!(
                "the configuration has no address of node {node}: write listen = \"host:port\" into [node.{node}], or \
                 ping its address"
            ))
        });
    }
    let nowhere = |why: &dyn std::fmt::Display| {
        Failure::failed(format_args!(
            "there is no section [node.{node}] in the configuration, and {why}. Ping an address: host:port"
        ))
    };
    let names = names::ask(config, visitor).await.map_err(|why| nobody_knows(&why)).map_err(|why| nowhere(&why))?;
    let ends = names.ends.iter().filter(|end| end.name == node);
    let end = ends.min_by_key(|end| matches!(end.face.as_str(), "sender" | "client"));
    let end = end.ok_or_else(|| nowhere(&"no end of a channel has that name"))?;
    end.addresses.first().cloned().ok_or_else(|| nowhere(&"the node that has an end of that name has no address"))
}

fn nobody_knows(why: &Failure) -> String {
    format!("the name service did not answer ({why})")
}
