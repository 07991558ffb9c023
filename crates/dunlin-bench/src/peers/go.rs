//! Go: goroutines and unbuffered channels, `peers/go/main.go`.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::compile;
use crate::program::Bench;

/// Its name in the report; it is the reference of everything else.
pub(crate) const GO: &str = "go";

/// The built program.
pub(crate) struct Go {
    binary: PathBuf,
}

impl Go {
    pub(super) fn build(sources: &Path, out: &Path) -> anyhow::Result<Self> {
        let binary = out.join("go-peer");
        // The installed toolchain is enough: a bench should not download anything.
        compile(
            Command::new("go")
                .current_dir(sources)
                .env("GOTOOLCHAIN", "local")
                .args(["build", "-o"])
                .arg(&binary)
                .arg("."),
        )?;
        Ok(Self { binary })
    }

    pub(crate) fn command(&self, bench: &Bench, workers: usize) -> Command {
        let mut command = Command::new(&self.binary);
        command.args([bench.program.to_string(), bench.n.to_string()]).env("GOMAXPROCS", workers.to_string());
        // Otherwise a crash prints the stacks of a million goroutines.
        command.env("GOTRACEBACK", "single");
        command
    }
}
