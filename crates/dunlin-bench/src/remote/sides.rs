//! The sides of a remote program: the leader starts the others, and tells all where the others are. They end with it.

use std::env;
use std::io::{BufRead, BufReader, Write, stdin};
use std::net::TcpListener;
use std::process::{Child, ChildStdout, Command, Stdio, exit};
use std::thread;

use anyhow::Context;

use super::Side;

/// The other sides, as the leader has them.
pub(super) struct Sides {
    children: Vec<(Child, BufReader<ChildStdout>)>,
}

impl Sides {
    /// Starts sides 1 to `count` - 1 of a program. None at the sides that are no leader.
    pub(super) fn start(side: &Side, count: usize, names: &str) -> anyhow::Result<Self> {
        let this_binary = env::current_exe().context("cannot find this binary")?;
        let mut children = Vec::new();
        if side.leads() {
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

    /// Tells the others where this side is, and returns where all are, the leader first. Waits for all of them.
    pub(super) fn meet(&mut self, side: &Side, here: &str) -> anyhow::Result<Vec<String>> {
        let mut line = String::new();
        if side.leads() {
            let mut all = vec![here.to_owned()];
            for (_, stdout) in &mut self.children {
                line.clear();
                stdout.read_line(&mut line).context("a side says nothing")?;
                all.push(line.trim().to_owned());
            }
            for (child, _) in &mut self.children {
                writeln!(child.stdin.as_mut().context("the side has no standard input")?, "{}", all.join(" "))?;
            }
            return Ok(all);
        }
        println!("{here}");
        stdin().read_line(&mut line).context("the leader says nothing")?;
        thread::spawn(|| {
            // Nothing more comes: it ends when the leader does, however that ends.
            let _ = stdin().read_line(&mut String::new());
            exit(0);
        });
        Ok(line.split_whitespace().map(str::to_owned).collect())
    }
}

impl Drop for Sides {
    fn drop(&mut self) {
        for (child, _) in &mut self.children {
            drop(child.stdin.take());
            // It has ended, or will without being waited for.
            let _ = child.wait();
        }
    }
}

/// A port that nobody has now.
pub(crate) fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
