//! The command in a folder of its own, without the configuration and the variables of the user that runs the
//! tests.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// The limit for every wait; a test that reaches it fails.
const LIMIT: Duration = Duration::from_secs(120);

/// A folder with `dunlin.toml`, in which the command runs.
pub(crate) struct Stage {
    folder: TempDir,
}

impl Stage {
    pub(crate) fn new(file: &str) -> Self {
        // In `/tmp`, since a socket's path must be short.
        let stage = Self { folder: tempfile::Builder::new().prefix("dn").tempdir_in("/tmp").unwrap() };
        std::fs::write(stage.path().join("dunlin.toml"), file.replace("DIR", stage.path().to_str().unwrap())).unwrap();
        stage
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The address of a unix socket here.
    pub(crate) fn address(&self, name: &str) -> String {
        format!("unix:{}/{name}", self.path().display())
    }

    pub(crate) fn command(&self, line: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dunlin"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("DUNLIN_") {
                command.env_remove(name);
            }
        }
        command.current_dir(self.path()).env("HOME", self.path()).env_remove("XDG_CONFIG_HOME").args(line);
        command
    }

    /// Runs the command to its end.
    pub(crate) fn run(&self, line: &[&str]) -> Ended {
        ended(self.command(line).output().unwrap())
    }

    /// Starts the command, and leaves it running.
    pub(crate) fn start(&self, line: &[&str]) -> Running {
        started(self.command(line))
    }
}

/// A command that has been started.
pub(crate) fn started(mut command: Command) -> Running {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
    let (tell, lines) = mpsc::channel();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    // (The thread ends with the process.)
    std::thread::spawn(move || stdout.lines().map_while(Result::ok).all(|line| tell.send(line).is_ok()));
    Running { child, lines }
}

/// The result of a run.
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

pub(crate) fn ended(output: Output) -> Ended {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ended { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

/// A running command. Its drop kills it.
pub(crate) struct Running {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Running {
    /// Its standard input, which the command has as a pipe; once.
    #[allow(dead_code, reason = "only tests of the REPL have such a command")]
    pub(crate) fn input(&mut self) -> ChildStdin {
        self.child.stdin.take().unwrap()
    }

    /// Waits for a line that contains this.
    pub(crate) fn says(&self, what: &str) -> String {
        // One limit for all lines: some lines are repeated.
        let until = Instant::now() + LIMIT;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left).unwrap_or_else(|_| panic!("never printed {what:?}"));
            if line.contains(what) {
                return line;
            }
        }
    }

    /// The rest of its output, until it ends.
    pub(crate) fn rest(&self) -> Vec<String> {
        self.lines.iter().collect()
    }

    /// Sends a signal, and waits for its end.
    pub(crate) fn ends_with(&mut self, signal: &str) -> Option<i32> {
        self.signal(signal);
        self.ends()
    }

    pub(crate) fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for its end.
    pub(crate) fn ends(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
