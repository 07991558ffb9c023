//! `dunlin config`: each value of the configuration, and its origin.

use std::path::PathBuf;

use clap::Args;
use dunlin::config::{Origin, Sources, Value};
use dunlin_terminal::failure::Failure;
use dunlin_terminal::output::{Output, columns};
use serde_json::json;

use crate::component;
use crate::who::Who;

/// Options of `dunlin config`.
#[derive(Args, Debug)]
pub struct Options {
    #[command(flatten)]
    who: Who,
    /// The node, with the section [node.NAME]
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Only check this file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["app", "node", "config"])]
    check: Option<PathBuf>,
}

/// Shows the configuration, or checks a file.
///
/// # Errors
/// [`Failure::Failed`] if the configuration is invalid; [`Failure::Line`] if there is no such node.
pub fn run(options: &Options, output: Output) -> Result<(), Failure> {
    if let Some(path) = &options.check {
        let sources = Sources::file(path).map_err(Failure::failed)?;
        sources.check().map_err(Failure::failed)?;
        for runs in sources.runs() {
            component::find(&runs.value, &runs.origin)?;
        }
        let path = path.display().to_string();
        output.say(&json!({ "file": path, "accepted": true }), || format!("{path}: the configuration is valid"));
        return Ok(());
    }
    let sources = options.who.sources()?;
    let config = options.who.config(&sources, options.node.as_deref())?;
    if let Some(node) = &options.node {
        is_there(&sources, &config.app.value, node)?;
    }
    let rows = config.rows();
    if output.json {
        for (key, value, origin) in &rows {
            let value = match value {
                Value::Text(text) => json!(text),
                Value::List(texts) => json!(texts),
                Value::Number(number) => json!(number),
                Value::Flag(flag) => json!(flag),
                _ => json!(null),
            };
            let (kind, place) = match origin {
                Origin::Code => ("line", json!(null)),
                Origin::Variable(name) => ("variable", json!(name)),
                Origin::File { path, .. } => ("file", json!(path.display().to_string())),
                _ => ("default", json!(null)),
            };
            let line = if let Origin::File { line, .. } = origin { json!(line) } else { json!(null) };
            let row = json!({ "key": key, "value": value, "origin": kind, "place": place, "line": line });
            output.say(&row, String::new);
        }
        for (name, near) in Sources::unknown_variables() {
            let row = json!({ "key": null, "value": null, "origin": "unknown variable", "place": name, "line": null, "nearest": near });
            output.say(&row, String::new);
        }
        return Ok(());
    }
    let shown = |origin: &Origin| match origin {
        Origin::Code => "the command line".to_owned(),
        origin => origin.to_string(),
    };
    let mut rows: Vec<Vec<String>> =
        rows.iter().map(|(key, value, origin)| vec![key.clone(), value.to_string(), shown(origin)]).collect();
    for (name, near) in Sources::unknown_variables() {
        let near = near.map(|near| format!("; {near} is the nearest")).unwrap_or_default();
        rows.push(vec!["?".to_owned(), format!("(no setting has this variable{near})"), name]);
    }
    output.say(&(), || columns(&rows));
    Ok(())
}

/// Checks that a node has a section.
///
/// # Errors
/// [`Failure::Line`] if it has none, with a list of the sections.
pub fn is_there(sources: &Sources, app: &str, node: &str) -> Result<(), Failure> {
    let nodes = sources.nodes(app);
    if nodes.iter().any(|name| name == node) {
        return Ok(());
    }
    let there = match &nodes[..] {
        [] => "no node has one".to_owned(),
        nodes => format!("there are: {}", nodes.join(", ")),
    };
    Err(Failure::Line(format!("no section [node.{node}] in the configuration; {there}. Write one in dunlin.toml")))
}
