//! Which application and node a command is about.

use clap::Args;
use dunlin::config::{Config, Sources};
use dunlin::node::{Node, NodeBuilder};

use crate::failure::Failure;
use crate::ping::PATIENCE;

/// Options of all commands that are about an application.
#[derive(Args, Clone, Debug, Default)]
pub struct Who {
    /// The application. Default: what the configuration says
    #[arg(long, short, value_name = "NAME")]
    pub app: Option<String>,
}

impl Who {
    /// The configuration that counts here.
    ///
    /// # Errors
    /// [`Failure::Failed`]: it is not accepted, or cannot be read.
    pub fn config(&self, node: Option<&str>) -> Result<(Sources, Config), Failure> {
        let sources = Sources::search().map_err(Failure::failed)?;
        let config = sources.resolve(self.app.as_deref(), node).map_err(Failure::failed)?;
        Ok((sources, config))
    }

    /// As [`config`](Self::config), of an application that has a name.
    ///
    /// # Errors
    /// Also [`Failure::Line`], if it has none.
    pub fn application(&self, node: Option<&str>) -> Result<(Sources, Config), Failure> {
        let (sources, config) = self.config(node)?;
        if config.app.value.is_empty() {
            let what = "which application? Say --app NAME, DUNLIN_APP=NAME, or app = \"NAME\" in dunlin.toml";
            return Err(Failure::Line(what.to_owned()));
        }
        Ok((sources, config))
    }
}

/// A node that only looks at an application: it takes no port, serves no names, and has no role.
///
/// # Errors
/// [`Failure::Failed`].
pub async fn visit(config: &Config) -> Result<Node, Failure> {
    visitor(config).join().await.map_err(Failure::failed)
}

fn visitor(config: &Config) -> NodeBuilder {
    // Who is asked and gone is to be known as soon as an answer would be late.
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
