//! Programs started by calls: each is killed with its group, and reaped by its call alone.

use std::io::{BufRead, BufReader, Read, Write};
use std::panic::resume_unwind;
use std::process::{Command, Stdio};

use dunlin::blocking::{Child, ChildEnd, Stop};
use dunlin::prelude::*;
use dunlin::waits::Doing;

use super::runs::runs;
use super::{on, until_waits};

/// Whether it exists, also as a zombie.
fn is_there(pid: u32) -> bool {
    std::fs::exists(format!("/proc/{pid}")).unwrap()
}

/// A shell with a child of its own: the ids of both.
fn family<'a>(stop: &'a Stop) -> (Child<'a>, [u32; 2]) {
    let mut shell = Command::new("sh");
    shell.args(["-c", "sleep 1000 & echo $!; wait"]).stdout(Stdio::piped());
    let mut child = stop.command(&mut shell).unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let pids = [child.id(), line.trim().parse().unwrap()];
    (child, pids)
}

async fn until_gone(pids: [u32; 2]) {
    let [leader, member] = pids;
    assert!(!is_there(leader), "it is reaped");
    // The member is killed, but its own parent has to reap it.
    while runs(member) {
        tokio::task::yield_now().await;
    }
}

#[test]
fn stop_request_kills_the_group_and_reaps_the_leader() {
    on(2, async {
        for _ in 0..50 {
            let (mut tell, mut told) = channel();
            let call = blocking(move |stop| {
                let (mut child, pids) = family(stop);
                tell.send(pids).wait().unwrap();
                let end = child.wait().unwrap();
                assert_eq!(child.wait().unwrap(), end, "again is harmless");
                end
            });
            let pids = told.recv().await.unwrap();
            assert!(pids.iter().all(|pid| runs(*pid)));
            until_waits(call.pid(), Doing::Ready).await;
            let ended = call.terminate().await;
            assert!(matches!(ended, Ended::Terminated(ChildEnd::Killed)), "{ended:?}");
            until_gone(pids).await;
        }
    });
}

/// The read of the child's output ends in no other way.
#[test]
fn stop_request_ends_a_read_of_the_output_of_a_child() {
    on(2, async {
        for _ in 0..50 {
            let (mut tell, mut told) = channel();
            let call = blocking(move |stop| {
                let mut shell = Command::new("sh");
                let mut child =
                    stop.command(shell.args(["-c", "echo krill; sleep 1000"]).stdout(Stdio::piped())).unwrap();
                let mut output = BufReader::new(child.stdout.take().unwrap());
                let mut text = String::new();
                output.read_line(&mut text).unwrap();
                tell.send(()).wait().unwrap();
                output.read_to_string(&mut text).unwrap();
                (text, child.wait().unwrap())
            });
            told.recv().await.unwrap();
            let Ended::Terminated((text, ChildEnd::Killed)) = call.terminate().await else { panic!("it was asked") };
            assert_eq!(text, "krill\n");
        }
    });
}

#[test]
fn child_that_starts_after_the_stop_request_is_killed() {
    on(2, async {
        let ((mut began, mut has_begun), (mut word, mut hear)) = (channel(), channel::<()>());
        let call = blocking(move |stop| {
            began.send(()).wait().unwrap();
            hear.recv().wait().unwrap();
            let mut sleep = Command::new("sleep");
            let mut child = stop.command(sleep.arg("1000").stdout(Stdio::piped())).unwrap();
            let read = child.stdout.take().unwrap().read(&mut [0]).unwrap();
            (read, child.wait().unwrap())
        });
        has_begun.recv().await.unwrap();
        let mut ending = call.terminate();
        assert!(super::poll(&mut ending).is_pending());
        word.send(()).await.unwrap();
        assert!(matches!(ending.await, Ended::Terminated((0, ChildEnd::Killed))));
    });
}

#[test]
fn child_that_ends_gives_its_status() {
    on(2, async {
        for code in 0..50 {
            let call = blocking(move |stop| {
                let mut shell = Command::new("sh");
                stop.command(shell.args(["-c", &format!("exit {code}")]))?.wait()
            });
            let ChildEnd::Exited(status) = call.await.unwrap().unwrap() else { panic!("it was not killed") };
            assert_eq!(status.code(), Some(code));
            assert_eq!(ChildEnd::Exited(status).to_string(), format!("exit status: {code}"));
        }
    });
}

#[test]
fn child_that_is_dropped_is_killed() {
    on(2, async {
        let call = blocking(|stop| {
            let (child, pids) = family(stop);
            drop(child);
            pids
        });
        until_gone(call.await.unwrap()).await;
    });
}

#[test]
fn child_of_a_call_that_panics_is_killed() {
    on(2, async {
        let (mut tell, mut told) = channel();
        let call = blocking(move |stop| -> u8 {
            let (_child, pids) = family(stop);
            tell.send(pids).wait().unwrap();
            resume_unwind(Box::new("no more"))
        });
        let pids = told.recv().await.unwrap();
        assert!(call.await.is_err());
        until_gone(pids).await;
    });
}

/// Other code has reaped the child: its id may be another's, so the call kills nothing.
#[test]
fn child_that_other_code_has_reaped_ends_with_an_unknown_status() {
    on(2, async {
        let call = blocking(|stop| {
            let mut child = stop.command(&mut Command::new("true")).unwrap();
            let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
            rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty()).unwrap();
            child.wait().unwrap()
        });
        assert_eq!(call.await.unwrap(), ChildEnd::Unknown);
        let call = blocking(|stop| {
            let child = stop.command(&mut Command::new("true")).unwrap();
            let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
            rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty()).unwrap();
            drop(child);
        });
        call.await.unwrap();
    });
}

/// Its id may be another group's, so the remaining members are not killed: one of them answers.
#[test]
fn group_whose_leader_other_code_has_reaped_is_left_alone() {
    on(1, async {
        let call = blocking(|stop| {
            let mut shell = Command::new("sh");
            shell.args(["-c", "exec 3<&0; cat <&3 & exit"]).stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = stop.command(&mut shell).unwrap();
            let (mut to, mut from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
            let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
            rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty()).unwrap();
            drop(child);
            to.write_all(b"krill")?;
            drop(to);
            let mut answer = String::new();
            from.read_to_string(&mut answer).map(|_| answer)
        });
        assert_eq!(call.await.unwrap().unwrap(), "krill");
    });
}

#[test]
fn stop_command_reports_missing_program() {
    on(1, async {
        let call = blocking(|stop| stop.command(&mut Command::new("no such program")).map(|_| ()));
        assert_eq!(call.await.unwrap().unwrap_err().kind(), std::io::ErrorKind::NotFound);
    });
}
