//! Tests that need nodes in OS processes of their own: the test starts its own binary again, with a role, and
//! reads its standard output.
//!
//! The binary has an ignored test `a_role` that plays the role given by [`role`].

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// The limit for every wait; only a bug can reach it.
const LIMIT: Duration = Duration::from_secs(60);

/// A process that plays a role. Its drop kills it without a warning: on Unix by the signal 9.
pub(crate) struct Actor {
    child: Child,
    says: mpsc::Receiver<String>,
}

/// A command that runs this binary again in a role.
pub(crate) fn command(before: &[&str], role: &str, knows: &[&str]) -> Command {
    let this = std::env::current_exe().unwrap();
    let mut command = match before {
        [] => Command::new(this),
        [program, args @ ..] => {
            let mut command = Command::new(program);
            command.args(args).arg(this);
            command
        }
    };
    command.args(["--ignored", "--exact", "a_role", "--nocapture"]);
    command.env("DUNLIN_TEST_ROLE", role).env("DUNLIN_TEST_KNOWS", knows.join("\n"));
    command
}

/// Starts this binary again in a role; `hear` receives each of its messages, and `None` after its end. The
/// process reads its standard input.
pub(crate) fn start(
    before: &[&str],
    role: &str,
    knows: &[&str],
    mut hear: impl FnMut(Option<String>) + Send + 'static,
) -> Child {
    let mut command = command(before, role, knows);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // (The thread ends with the process.)
    std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            // The rest is output of the test harness, which on a machine with one processor begins the line
            // with the test's name.
            if let Some((_, said)) = line.split_once("SAYS ") {
                hear(Some(said.to_owned()));
            }
        }
        hear(None);
    });
    child
}

impl Actor {
    /// Starts a process with its role and the role's arguments. `before`: the command that starts it, if any.
    pub(crate) fn start(before: &[&str], role: &str, knows: &[&str]) -> Self {
        let (tell, says) = mpsc::channel();
        let child = start(before, role, knows, move |said| {
            if let Some(said) = said {
                let _ = tell.send(said);
            }
        });
        Self { child, says }
    }

    /// Its next message.
    pub(crate) fn hear(&self) -> String {
        self.says.recv_timeout(LIMIT).expect("it sends nothing more, or not in time")
    }

    /// Waits for its end; it must not send another message.
    pub(crate) fn end(mut self) -> ExitStatus {
        assert_eq!(self.says.recv_timeout(LIMIT), Err(mpsc::RecvTimeoutError::Disconnected), "it speaks, or hangs");
        self.child.wait().unwrap()
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In the process: its role and arguments. `None`: all tests run, the ignored too.
pub(crate) fn role() -> Option<(String, Vec<String>)> {
    let knows = std::env::var("DUNLIN_TEST_KNOWS").ok()?;
    Some((std::env::var("DUNLIN_TEST_ROLE").ok()?, knows.lines().map(str::to_owned).collect()))
}

/// In the process: sends a message to the test.
pub(crate) fn say(what: impl std::fmt::Display) {
    println!("SAYS {what}");
}
