//! The sides of a remote program: the leader starts the others, and sends each side the addresses of all. The
//! other sides end with the leader.

use std::env;
use std::io::{BufRead, BufReader, Write, stdin};
use std::net::TcpListener;
use std::process::{Child, ChildStdout, Command, Stdio, exit};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use anyhow::Context;

/// The other sides, as seen by the leader.
pub(crate) struct Sides {
    children: Vec<(Child, BufReader<ChildStdout>)>,
}

impl Sides {
    /// Starts sides 1 to `count` - 1 of a program, if this is the leader: with the leader's own arguments,
    /// and `--role` and `--names`.
    pub(crate) fn start(leads: bool, count: usize, names: &str) -> anyhow::Result<Self> {
        let this_binary = env::current_exe().context("cannot find this binary")?;
        let mut children = Vec::new();
        if leads {
            for role in 1..count {
                let mut command = Command::new(&this_binary);
                command.args(env::args_os().skip(1)).args(["--role", &role.to_string(), "--names", names]);
                let mut child =
                    command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("cannot start a side")?;
                let stdout = child.stdout.take().context("the side has no standard output")?;
                children.push((child, BufReader::new(stdout)));
            }
        }
        Ok(Self { children })
    }

    /// Sends the address of this side to the others, and returns the addresses of all, the leader first.
    /// Waits for all sides. At a side that does not lead, it calls `told` with each line that the leader
    /// [sends](Self::tell) later.
    pub(crate) fn meet(
        &mut self,
        leads: bool,
        here: &str,
        mut told: impl FnMut(&str) + Send + 'static,
    ) -> anyhow::Result<Vec<String>> {
        if leads {
            let mut all = vec![here.to_owned()];
            all.extend(self.hear()?);
            self.tell(&all.join(" "))?;
            return Ok(all);
        }
        println!("{here}");
        let mut line = String::new();
        stdin().read_line(&mut line).context("the leader says nothing")?;
        thread::spawn(move || {
            stdin().lines().map_while(Result::ok).for_each(|line| told(&line));
            // The input ends with the leader, however the leader ends.
            exit(0);
        });
        Ok(line.split_whitespace().map(str::to_owned).collect())
    }

    /// Sends a line to all other sides.
    pub(crate) fn tell(&mut self, line: &str) -> anyhow::Result<()> {
        for (child, _) in &mut self.children {
            writeln!(child.stdin.as_mut().context("the side has no standard input")?, "{line}")?;
        }
        Ok(())
    }

    /// Receives a line from each of the other sides.
    pub(crate) fn hear(&mut self) -> anyhow::Result<Vec<String>> {
        let hear = |(_, stdout): &mut (Child, BufReader<ChildStdout>)| {
            let mut line = String::new();
            let length = stdout.read_line(&mut line).context("a side cannot be heard")?;
            anyhow::ensure!(length > 0, "a side has ended; what it had to say is above");
            Ok(line.trim().to_owned())
        };
        self.children.iter_mut().map(hear).collect()
    }
}

impl Drop for Sides {
    fn drop(&mut self) {
        for (child, _) in &mut self.children {
            drop(child.stdin.take());
            // The side has ended, or will end by itself.
            let _ = child.wait();
        }
    }
}

/// A free port, which another program is unlikely to take before it is used: each process has twenty of its
/// own, below those that the system gives out for port 0.
pub(crate) fn free_port() -> anyhow::Result<u16> {
    const EACH: u32 = 20;
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    let first = 10_000 + std::process::id() % 1_000 * EACH;
    for _ in 0..EACH {
        let port = u16::try_from(first + TAKEN.fetch_add(1, Ordering::Relaxed) % EACH)?;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    anyhow::bail!("the ports from {first} to {} are in use", first + EACH - 1)
}
