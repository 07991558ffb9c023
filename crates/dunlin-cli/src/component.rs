//! The components that `dunlin node` can run: a configuration names them by `run = "..."`.

use std::future::Future;
use std::pin::Pin;

use dunlin::config::{Config, Origin};
use dunlin::node::{Node, NodeBuilder};
use dunlin_demo::farm;
use dunlin_terminal::failure::Failure;
use dunlin_terminal::output::Output;

use crate::names;

/// The work of a component, until it ends. It is dropped when this process is asked to end.
pub type Running = Pin<Box<dyn Future<Output = Result<(), Failure>> + Send>>;

/// A component that can run on a node.
#[derive(Clone, Copy, Debug)]
pub struct Component {
    /// Its name in a configuration.
    pub name: &'static str,
    /// Its purpose, in a few words.
    pub about: &'static str,
    /// Adds what its node needs beside the configuration.
    pub prepare: fn(NodeBuilder, &Config) -> NodeBuilder,
    /// Runs it.
    pub run: fn(Node, Output) -> Running,
}

/// All components.
pub static COMPONENTS: &[Component] = &[
    Component {
        name: "nothing",
        about: "be a node of the application: connect and relay",
        prepare: |builder, _| builder,
        run: |_, _| Box::pin(std::future::pending()),
    },
    Component {
        name: "names",
        about: "serve the application's names",
        prepare: |builder, config| match &config.names.value {
            // The address must lead to this node.
            Some(address) if config.listen.value.is_empty() => builder.listen(address),
            _ => builder,
        },
        run: |node, output| Box::pin(async move { names::served(&node, output).await }),
    },
    Component {
        name: "farm-worker",
        about: "work for one farm after the other at this node's names",
        // The master serves the names; this node waits for the master.
        prepare: |builder, _| builder.serve_names(false),
        run: |node, output| Box::pin(farm::serve(node, output)),
    },
];

/// The component that a configuration names in this place.
///
/// # Errors
/// [`Failure::Failed`], with a list of all components.
pub fn find(name: &str, said: &Origin) -> Result<Component, Failure> {
    COMPONENTS.iter().find(|component| component.name == name).copied().ok_or_else(|| {
        let known: Vec<String> =
            COMPONENTS.iter().map(|component| format!("{:?} ({})", component.name, component.about)).collect();
        Failure::failed(format_args!("{said}: unknown component {name:?}; there are: {}", known.join(", ")))
    })
}
