//! The two sides: a server, and requests to one.

use std::io::Read;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::Role;
use super::load::{self, Pace, Plan};
use super::webserver::farm::NUMBERS;
use super::webserver::limits::Limits;
use super::webserver::server::{Server, Settings};

/// The output of a load generator.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Load {
    pub(super) per_second: f64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    pub(super) responses: u64,
    /// Requests without a whole response, or with a status other than 2xx.
    pub(super) failed: u64,
    pub(super) why: Option<String>,
}

pub(super) fn run(role: &Role) -> Result<()> {
    raise_open_files()?;
    match role {
        Role::Serve { root, log, farm } => dunlin::block_on(async {
            let settings = Settings {
                root: root.clone(),
                cgi: None,
                log: Some(log.clone()),
                limits: Limits { idle: std::time::Duration::from_secs(3_600), ..Limits::default() },
                farm: farm.then_some(NUMBERS),
            };
            let server = Server::start(dunlin::io::tcp::listen("127.0.0.1:0").await?, settings)?;
            println!("{}", server.address);
            dunlin::blocking(|_| std::io::stdin().read_to_end(&mut Vec::new())).await??;
            server.stop().await.context("stopping the server")
        }),
        Role::Load { address, path, requests, in_flight, keep_alive } => {
            let plan = Plan {
                address: address.clone(),
                path: path.clone(),
                requests: *requests,
                in_flight: *in_flight,
                keep_alive: *keep_alive,
                pace: Pace::Flow,
                patience: std::time::Duration::from_secs(30),
            };
            let report = dunlin::block_on(load::run(plan));
            let latencies = &report.latencies;
            let load = Load {
                per_second: latencies.count() as f64 / report.took.as_secs_f64(),
                p50_us: latencies.quantile(0.5).as_secs_f64() * 1e6,
                p99_us: latencies.quantile(0.99).as_secs_f64() * 1e6,
                responses: latencies.count(),
                failed: report.failed + report.not_ok,
                why: report.first_failure,
            };
            println!("{}", serde_json::to_string(&load)?);
            Ok(())
        }
    }
}

/// Raises the limit of open files, since each connection is a file.
pub(super) fn raise_open_files() -> Result<()> {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).context("raising the limit of open files")
}
