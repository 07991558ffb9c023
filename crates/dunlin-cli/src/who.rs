//! The application and the node that a command concerns.

use std::path::PathBuf;

use clap::Args;
use dunlin::config::{Config, Sources, is_application};
use dunlin::node::{Node, NodeBuilder};
use dunlin_terminal::failure::Failure;

use crate::reach::PATIENCE;

/// Options of all commands that are about an application.
#[derive(Args, Clone, Debug, Default)]
pub struct Who {
    /// The application. Default: from the configuration
    #[arg(long, short, value_name = "NAME")]
    pub app: Option<String>,
    /// Read this configuration, a file or `-` for standard input, instead of dunlin.toml and DUNLIN_CONFIG
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

impl Who {
    /// The configuration of the nodes here. It is read once: standard input provides it only once.
    ///
    /// # Errors
    /// [`Failure::Failed`] if it is invalid or cannot be read.
    pub fn sources(&self) -> Result<Sources, Failure> {
        match &self.config {
            Some(path) => Sources::file(path),
            None => Sources::search(),
        }
        .map_err(Failure::failed)
    }

    /// The resolved configuration of a node.
    ///
    /// # Errors
    /// [`Failure::Failed`] if a variable has an invalid value.
    pub fn config(&self, sources: &Sources, node: Option<&str>) -> Result<Config, Failure> {
        if let Some(app) = self.app.as_ref().filter(|app| !is_application(app)) {
            let what = "is not accepted: write 1 to 64 bytes, without control characters";
            return Err(Failure::Line(format!("--app {app:?} {what}")));
        }
        sources.resolve(self.app.as_deref(), node).map_err(Failure::failed)
    }

    /// As [`config`](Self::config), for an application that has a name.
    ///
    /// # Errors
    /// Also [`Failure::Line`] if it has none.
    pub fn application(&self, sources: &Sources, node: Option<&str>) -> Result<Config, Failure> {
        let config = self.config(sources, node)?;
        if config.app.value.is_empty() {
            let what = "no application is given: use --app NAME, DUNLIN_APP=NAME, or app = \"NAME\" in dunlin.toml";
            return Err(Failure::Line(what.to_owned()));
        }
        Ok(config)
    }
}

/// Joins as a visitor, which only inspects an application: it takes no port, serves no names, and has no
/// role.
///
/// # Errors
/// [`Failure::Failed`].
pub async fn visit(config: &Config) -> Result<Node, Failure> {
    visitor(config).join().await.map_err(Failure::failed)
}

fn visitor(config: &Config) -> NodeBuilder {
    // The grace period is at most `PATIENCE`, so that the visitor detects the loss of a node as soon as its
    // answer would be late.
    let visitor = plain(config).grace(config.grace.value.min(PATIENCE));
    let visitor = visitor.listen("memory:").serve_names(false).relay(false);
    match &config.names.value {
        Some(names) => visitor.names(names),
        None => visitor,
    }
}

/// A node without a role, with the times of its application.
pub fn plain(config: &Config) -> NodeBuilder {
    let node = Node::builder().no_config().app(&config.app.value);
    node.grace(config.grace.value).heartbeat(config.heartbeat.value)
}
