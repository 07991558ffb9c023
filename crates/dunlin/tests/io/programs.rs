//! Programs: their streams, their exit, and that none is left.

use std::io::ErrorKind;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use dunlin::blocking::ChildEnd;
use dunlin::io::program::{self, Program};
use dunlin::io::{Bytes, pipe::ReadEnd};
use dunlin::prelude::*;

use super::runs::runs;
use super::{large, poll, until_waits};

/// A shell with this script, all of whose streams are pipes.
async fn shell(script: &str) -> Program {
    let mut command = Command::new("sh");
    command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    program::start(command).await.unwrap()
}

/// A shell with a child of its own, both endless: the ids of both.
async fn family() -> (Program, [u32; 2]) {
    let mut shell = shell("sleep 1000 & echo $!; wait").await;
    let pids = [shell.id(), line(shell.stdout.as_mut().unwrap()).await.parse().unwrap()];
    assert!(pids.iter().all(|pid| runs(*pid)));
    (shell, pids)
}

async fn line(stream: &mut ReadEnd) -> String {
    let mut line = String::new();
    while !line.ends_with('\n') {
        let piece = stream.read(4096).await.unwrap();
        assert!(!piece.is_empty(), "the output has ended after {line:?}");
        line.push_str(std::str::from_utf8(&piece).unwrap());
    }
    line.trim().to_owned()
}

/// A program that crashed is not reported as killed by this.
#[test]
fn exit_with_group_kills_the_programs_that_the_leader_leaves_behind() {
    dunlin::block_on(async {
        for (end, code, signal) in [("exit 7", Some(7), None), ("kill -9 $$", None, Some(9))] {
            let mut shell = shell(&format!("sleep 1000 >&- 2>&- & echo $!; {end}")).await;
            let left: u32 = line(shell.stdout.as_mut().unwrap()).await.parse().unwrap();
            let ChildEnd::Exited(status) = shell.exit_with_group().await.unwrap() else { panic!("{end}") };
            assert_eq!((status.code(), status.signal()), (code, signal));
            while runs(left) {
                tokio::task::yield_now().await;
            }
            let again = shell.exit_with_group().await.unwrap();
            assert_eq!((again, again.to_string()), (ChildEnd::Exited(status), status.to_string()));
        }
    });
}

/// Whether it exists, also as a zombie.
fn is_there(pid: u32) -> bool {
    std::fs::exists(format!("/proc/{pid}")).unwrap()
}

/// Waits until the leader has been reaped and the member, which has another parent, was killed.
async fn until_gone([leader, member]: [u32; 2]) {
    while is_there(leader) || runs(member) {
        tokio::task::yield_now().await;
    }
}

#[test]
fn program_has_its_streams_and_exit() {
    dunlin::block_on(async {
        let mut cat = shell("cat; echo squid >&2; exit 7").await;
        let (mut stdin, mut stdout) = (cat.stdin.take().unwrap(), cat.stdout.take().unwrap());
        let ((), read) = par!(
            async {
                stdin.write_all(&mut large()).await.unwrap();
                drop(stdin);
            },
            async {
                let mut read = Vec::new();
                loop {
                    let piece = stdout.read(64 << 10).await.unwrap();
                    if piece.is_empty() {
                        return read;
                    }
                    read.extend_from_slice(&piece);
                }
            }
        );
        assert!(read == large());
        assert_eq!(line(cat.stderr.as_mut().unwrap()).await, "squid");
        let ChildEnd::Exited(status) = cat.exit().await.unwrap() else { panic!() };
        assert_eq!(status.code(), Some(7));
        assert_eq!(cat.exit().await.unwrap(), ChildEnd::Exited(status), "again is harmless");
        assert_eq!(cat.terminate().await.unwrap(), ChildEnd::Exited(status), "it had ended before");
        assert!(!is_there(cat.id()), "it is reaped");
    });
}

#[test]
fn unchosen_exit_keeps_status_for_next_exit() {
    dunlin::block_on(async {
        let mut shell = shell("read line; exit 7").await;
        let (mut tx, mut rx) = channel_with(fifo(1));
        tx.send(7).await.unwrap();
        let mut exit = shell.exit();
        assert!(poll(&mut exit).is_pending());
        alt! { biased;
            end = &mut exit => panic!("{end:?}"),
            n = rx.recv() => assert_eq!(n, Ok(7)),
        }
        drop(exit);
        assert_eq!(shell.exit().within(Duration::ZERO).await.unwrap_err().kind(), ErrorKind::TimedOut);
        shell.stdin = None;
        alt! {
            n = rx.recv() => panic!("{n:?}"),
            end = shell.exit() => assert!(matches!(end.unwrap(), ChildEnd::Exited(status) if status.code() == Some(7))),
        }
        assert!(!is_there(shell.id()));
    });
}

#[test]
fn exit_is_shown_while_it_waits() {
    dunlin::block_on(async {
        let mut shell = shell("read line").await;
        let stdin = shell.stdin.take();
        let process = spawn(async move { shell.exit().await });
        until_waits(process.pid().into()).await;
        drop(stdin);
        process.await.unwrap().unwrap();
    });
}

#[test]
fn program_that_is_dropped_is_killed_with_its_group_and_reaped() {
    dunlin::block_on(async {
        for _ in 0..20 {
            let (program, pids) = family().await;
            drop(program);
            until_gone(pids).await;
        }
    });
}

#[test]
fn program_that_is_terminated_is_killed_with_its_group_and_reaped() {
    dunlin::block_on(async {
        for _ in 0..20 {
            let (mut program, pids) = family().await;
            let end = program.terminate().await.unwrap();
            assert_eq!((end, &*end.to_string()), (ChildEnd::Killed, "killed with its group"));
            assert!(!is_there(pids[0]), "it is reaped");
            until_gone(pids).await;
            assert_eq!(program.exit().await.unwrap(), ChildEnd::Killed);
        }
    });
}

#[test]
fn program_is_killed_with_the_process_that_waits_for_it() {
    dunlin::block_on(async {
        let (mut program, pids) = family().await;
        let process = spawn(async move { program.exit().await });
        until_waits(process.pid().into()).await;
        process.cancel();
        until_gone(pids).await;
    });
}

#[test]
fn program_does_not_outlive_its_runtime() {
    let (program, pids) = dunlin::block_on(family());
    drop(program);
    assert!(!is_there(pids[0]), "it is reaped");
    while runs(pids[1]) {
        std::thread::yield_now();
    }
    let pids = dunlin::block_on(async {
        let (program, pids) = family().await;
        drop(program.into_ends());
        pids
    });
    assert!(!is_there(pids[0]), "it is reaped");
    while runs(pids[1]) {
        std::thread::yield_now();
    }
}

/// Its id may be another group's, so the remaining member is not killed: it answers.
#[test]
fn group_whose_leader_other_code_has_reaped_is_left_alone() {
    dunlin::block_on(async {
        let mut shell = shell("exec 3<&0; cat <&3 & exit").await;
        let (mut stdin, mut stdout) = (shell.stdin.take().unwrap(), shell.stdout.take().unwrap());
        let pid = rustix::process::Pid::from_raw(i32::try_from(shell.id()).unwrap()).unwrap();
        rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty()).unwrap();
        assert_eq!(shell.terminate().await.unwrap(), ChildEnd::Unknown);
        drop(shell);
        stdin.write_all(&mut Bytes::from("krill\n")).await.unwrap();
        assert_eq!(line(&mut stdout).await, "krill");
    });
}

#[test]
fn program_start_reports_missing_program() {
    dunlin::block_on(async {
        let error = program::start(Command::new("no such program")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
    });
}

#[test]
fn streams_that_are_not_piped_are_no_ends() {
    dunlin::block_on(async {
        let mut command = Command::new("cat");
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let mut cat = program::start(command).await.unwrap();
        assert!(cat.stdin.is_none() && cat.stdout.is_none() && cat.stderr.is_none());
        assert!(cat.exit().await.unwrap().is_success());
    });
}

#[test]
fn ends_carry_the_streams_and_the_process_gives_the_exit() {
    dunlin::block_on(async {
        let ends = shell("cat; echo squid >&2; exit 7").await.into_ends();
        let (mut stdin, mut stdout, mut stderr) = (ends.stdin.unwrap(), ends.stdout.unwrap(), ends.stderr.unwrap());
        let ((), read) = par!(
            async {
                stdin.send(large()).await.unwrap();
                drop(stdin);
            },
            async {
                let mut read = Vec::new();
                while let Ok(piece) = stdout.recv().await {
                    read.extend_from_slice(&piece);
                }
                read
            }
        );
        assert!(read == large());
        assert_eq!(stderr.recv().await.unwrap(), "squid\n");
        assert!(stderr.recv().await.unwrap_err().is_closed());
        let end = ends.process.await.unwrap().unwrap();
        assert!(matches!(end, ChildEnd::Exited(status) if status.code() == Some(7)), "{end:?}");
    });
}

/// The child of the program keeps its streams.
#[test]
fn ends_live_on_until_the_output_has_ended() {
    dunlin::block_on(async {
        let shell = shell("exec 3<&0; cat <&3 2>&- & exec 2>&-; exit").await;
        let leader = shell.id();
        let ends = shell.into_ends();
        let (mut stdin, mut stdout) = (ends.stdin.unwrap(), ends.stdout.unwrap());
        while is_there(leader) {
            tokio::task::yield_now().await;
        }
        stdin.send(Bytes::from("krill")).await.unwrap();
        assert_eq!(stdout.recv().await.unwrap(), "krill");
        drop(stdin);
        assert!(stdout.recv().await.unwrap_err().is_closed());
        assert!(ends.process.await.unwrap().unwrap().is_success());
    });
}

/// A sender notices that the program has exited.
#[test]
fn sender_of_a_program_that_has_ended_fails() {
    dunlin::block_on(async {
        let ends = shell("exit 7").await.into_ends();
        let mut stdin = ends.stdin.unwrap();
        let end = ends.process.await.unwrap().unwrap();
        assert!(matches!(end, ChildEnd::Exited(status) if status.code() == Some(7)), "{end:?}");
        stdin.send(Bytes::from("krill")).await.unwrap_err();

        let ends = shell("exec <&-; echo closed; cat /dev/zero").await.into_ends();
        let (mut stdin, mut stdout) = (ends.stdin.unwrap(), ends.stdout.unwrap());
        assert!(stdout.recv().await.unwrap().starts_with(b"closed\n"));
        let error = loop {
            if let Err(error) = stdin.send(large()).await {
                break error;
            }
        };
        assert!(!error.is_closed(), "it is no orderly end: {error}");
        // A write without a reader ends it.
        drop(stdout);
        let end = ends.process.await.unwrap().unwrap();
        assert!(matches!(end, ChildEnd::Exited(status) if !status.success()), "{end:?}");
    });
}

#[test]
fn poison_kills_the_program_and_its_reason_is_kept() {
    dunlin::block_on(async {
        let (program, pids) = family().await;
        let ends = program.into_ends();
        ends.stdin.unwrap().poison("no more krill");
        for mut output in [ends.stdout.unwrap(), ends.stderr.unwrap()] {
            assert!(output.recv().await.unwrap_err().to_string().contains("no more krill"));
        }
        assert!(ends.process.await.unwrap().unwrap_err().to_string().contains("no more krill"));
        until_gone(pids).await;
    });
}

#[test]
fn cancelled_process_kills_its_program() {
    dunlin::block_on(async {
        let (program, pids) = family().await;
        let ends = program.into_ends();
        ends.process.cancel();
        until_gone(pids).await;
        assert!(ends.stdout.unwrap().recv().await.is_err());
    });
}
