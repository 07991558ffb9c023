//! Named ends of one node: declared, and dropped when all are declared.

use std::time::Duration;

use anyhow::{Result, bail};
use dunlin::prelude::*;

/// The reference of the others.
pub(crate) const RECEIVERS: &str = "receivers";
const SENDERS: &str = "senders";

pub(super) const ALL: [&str; 2] = [RECEIVERS, SENDERS];

/// The time until `n` names are free again.
pub(super) async fn run(who: &str, node: Node, n: u64, now: impl Fn() -> Duration) -> Result<Duration> {
    let began = now();
    let names = (0..n).map(|number| format!("end {number}"));
    match who {
        RECEIVERS => {
            let mut ends = Vec::new();
            for name in names {
                ends.push(node.receiver::<u64>(&name).await?);
            }
        }
        SENDERS => {
            let mut ends = Vec::new();
            for name in names {
                ends.push(node.sender::<u64>(&name).await?);
            }
        }
        _ => bail!("there are no ends of {who:?}"),
    }
    // Leaving first sends the pending messages of the ends.
    node.leave().await?;
    Ok(now() - began)
}
