//! A separate network for one run, in which a packet is no larger than on Ethernet, and its counts. Linux
//! only.
//!
//! Loopback carries packets of 64 KiB, and those of every process. A network namespace has its own loopback,
//! whose packets can be limited to 1500 bytes; `/proc/net/dev` has its counts.

use std::ffi::OsString;
use std::fs;
use std::ops::Sub;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::error::PonyError;

/// The bytes of an Ethernet packet that loopback does not count: the frame's header and check sequence.
/// (Preamble and gap, 20 more, are left out.)
pub(super) const ETHERNET: u64 = 14 + 4;

/// Limits the loopback to packets of 1500 bytes, and runs the command that follows.
const LIMITED: &str = "ip link set lo mtu 1500 gso_max_segs 1 up && exec \"$0\" \"$@\"";

/// The traffic of a link in both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Carried {
    /// The bytes of the IP packets, with all their content.
    pub(super) bytes: u64,
    pub(super) packets: u64,
}

impl Carried {
    /// The traffic of this namespace's loopback so far.
    pub(super) fn now() -> Result<Self> {
        let table = fs::read_to_string("/proc/net/dev").context("cannot read what the link has carried")?;
        Self::of(&table).context("/proc/net/dev has no loopback")
    }

    /// The packets sent on loopback, which are those that have arrived there.
    fn of(table: &str) -> Option<Self> {
        let numbers = table.lines().find_map(|line| line.trim_start().strip_prefix("lo:"))?;
        let mut sent = numbers.split_whitespace().skip(8).map(|number| number.parse().ok());
        Some(Self { bytes: sent.next()??, packets: sent.next()?? })
    }
}

impl Sub for Carried {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self { bytes: self.bytes - before.bytes, packets: self.packets - before.packets }
    }
}

/// The prefix of a command that starts it in its own network.
pub(super) fn enter(binary: &Path) -> Result<Vec<OsString>, PonyError> {
    // As a user without rights outside the namespace, or else as a user with the right to create one.
    let ways: [&[&str]; 2] = [&["--user", "--map-root-user", "--net"], &["--net"]];
    let mut why = String::new();
    for way in ways {
        let tried =
            Command::new("unshare").args(way).args(["--", "sh", "-c", LIMITED, "true"]).stdin(Stdio::null()).output();
        match tried {
            Ok(output) if output.status.success() => {
                let all = ["unshare"].iter().chain(way).chain(&["--", "sh", "-c", LIMITED]);
                return Ok(all.map(OsString::from).chain([binary.into()]).collect());
            }
            Ok(output) => String::from_utf8_lossy(&output.stderr).trim().clone_into(&mut why),
            Err(error) => why = error.to_string(),
        }
    }
    Err(PonyError::NoNetwork { why })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transmit_counters_are_columns_nine_and_ten() {
        let table = "Inter-|   Receive  |  Transmit\n face |bytes packets errs drop fifo frame compressed multicast|bytes packets\n\
                     eth0: 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9\n    lo:     1  2 3 4 5 6 7 8 1000 20 0 0 0 0 0 0\n";
        assert_eq!(Carried::of(table), Some(Carried { bytes: 1000, packets: 20 }));
        assert_eq!(Carried::of("eth0: 1 2"), None);
    }
}
