//! A disk that does not answer. Root only, since the tests mount one.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;

use dunlin::blocking::{CallState, calls};
use dunlin::prelude::*;

use super::client::Client;
use super::farm::FEW;
use super::skipped::report_skipped;
use super::web::limits::Limits;
use super::{Scratch, patient, serve_as, serve_root};

/// A file system in user space (FUSE) with two files. It answers no read, and no look-up of `never`. Serves
/// until the look-up of `end`, or the end of `user`.
///
/// The program that serves it does not use it: the system ends no process that waits for an answer, so a
/// program that served itself could not be killed.
fn serve_file_system(mut fuse: File, user: &mut Child) {
    let mut request = vec![0; 1 << 18];
    loop {
        let length = match fuse.read(&mut request) {
            Ok(length) => length,
            // It is not mounted yet, or no longer.
            Err(_) if user.try_wait().unwrap().is_none() => {
                thread::yield_now();
                continue;
            }
            Err(_) => return,
        };
        let u32_at = |at: usize| u32::from_ne_bytes(request[at..at + 4].try_into().unwrap());
        let u64_at = |at: usize| u64::from_ne_bytes(request[at..at + 8].try_into().unwrap());
        let (operation, unique, node) = (u32_at(4), u64_at(8), u64_at(16));
        let answer = match operation {
            LOOKUP => match &request[40..length - 1] {
                b"never" => continue,
                b"small" => Ok([&words(&[SMALL, 0, 1 << 32, 1 << 32, 0])[..], &attributes(SMALL)].concat()),
                b"large" => Ok([&words(&[LARGE, 0, 1 << 32, 1 << 32, 0])[..], &attributes(LARGE)].concat()),
                b"end" => return,
                _ => Err(ENOENT),
            },
            GETATTR => Ok([&words(&[1 << 32, 0])[..], &attributes(node)].concat()),
            // Version 7.31. A look-up does not wait for others (FUSE_PARALLEL_DIROPS).
            INIT => Ok(words(&[7 | 31 << 32, 1 << 50, 0, 0, 0, 0, 0, 0])),
            // It waits for no read of the file (FOPEN_KEEP_CACHE).
            OPEN => Ok(words(&[0, 2])),
            READ | FORGET | INTERRUPT => continue,
            _ => Err(ENOSYS),
        };
        let (error, body) = answer.map_or_else(|error| (-error, Vec::new()), |body| (0, body));
        let mut reply = u32::try_from(16 + body.len()).unwrap().to_ne_bytes().to_vec();
        reply.extend_from_slice(&error.to_ne_bytes());
        reply.extend_from_slice(&unique.to_ne_bytes());
        reply.extend_from_slice(&body);
        // The request may have been interrupted.
        let _ = fuse.write(&reply);
    }
}

const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const READ: u32 = 15;
const INIT: u32 = 26;
const INTERRUPT: u32 = 36;

const ENOENT: i32 = 2;
const ENOSYS: i32 = 38;

/// The numbers of the files. The root has number 1.
const SMALL: u64 = 2;
const LARGE: u64 = 3;

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// `struct fuse_attr`.
fn attributes(node: u64) -> Vec<u8> {
    let (length, mode): (u64, u32) = match node {
        SMALL => (1_000, 0o100_444),
        LARGE => (2 << 20, 0o100_444),
        _ => (0, 0o040_555),
    };
    let mut all = words(&[node, length, 0, 0, 0, 0]);
    all.extend([0, 0, 0, mode, 1, 0, 0, 0, 4096, 0].iter().flat_map(|word: &u32| word.to_ne_bytes()));
    all
}

/// Ends the file system.
struct End(PathBuf);

impl Drop for End {
    fn drop(&mut self) {
        let _ = fs::metadata(self.0.join("end"));
    }
}

const INSIDE: &str = "DUNLIN_TEST_STUCK";

#[test]
fn disk_that_does_not_answer_delays_no_other_request_and_its_calls_are_listed() {
    if let Some(mounted) = std::env::var_os(INSIDE) {
        return use_file_system(mounted.into());
    }
    let Ok(fuse) = File::options().read(true).write(true).open("/dev/fuse") else {
        return report_skipped("a disk that does not answer: no access to /dev/fuse");
    };
    let scratch = Scratch::new();
    let mounted = scratch.path("stuck");
    fs::create_dir(&mounted).unwrap();
    // The program must have no descriptor of the file system, or its own end would wait for itself.
    let script = "mount -i -t fuse stuck \"$DUNLIN_TEST_STUCK\" -o fd=0,rootmode=40000,user_id=0,group_id=0 || exit 77
        exec \"$@\" < /dev/null";
    let mut program = Command::new("unshare");
    program.args(["--mount", "sh", "-c", script, "sh"]).arg(std::env::current_exe().unwrap());
    program.args(["--exact", "stuck::disk_that_does_not_answer_delays_no_other_request_and_its_calls_are_listed"]);
    program.arg("--nocapture").env(INSIDE, &mounted).stdin(fuse.try_clone().unwrap()).stdout(Stdio::piped());
    let mut user = program.spawn().unwrap();
    // It has a descriptor of the file system, whose last one ends all waits.
    drop(program);
    serve_file_system(fuse, &mut user);
    let output = user.wait_with_output().unwrap();
    if matches!(output.status.code(), Some(1 | 77)) && output.stdout.is_empty() {
        return report_skipped("a disk that does not answer: it cannot be mounted");
    }
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("all others were served"), "{}: {text}", output.status);
}

fn use_file_system(mounted: PathBuf) {
    let _end = End(mounted.clone());
    let scratch = Scratch::new();
    scratch.file("x", "krill");
    for (before, farm) in [(0, None), (3, Some(FEW))] {
        dunlin::block_on(async {
            dunlin::blocking::limit(dunlin::blocking::Limits::default().patience(Duration::ZERO));
            let server = serve_as(&scratch, patient(), farm).await;
            // Long enough for the look-ups that are answered.
            let slow = serve_root(mounted.clone(), Limits { disk: Duration::from_secs(1), ..patient() }, farm).await;
            let mut clients = Vec::new();
            for path in ["never", "small", "large"] {
                let mut client = Client::connect(&slow.address.to_string()).await;
                client.send(format!("GET /{path} HTTP/1.1\r\nHost: h\r\n\r\n")).await;
                clients.push(client);
            }
            let abandoned = || calls().iter().filter(|call| call.state == CallState::Abandoned).count() - before;
            let mut other = Client::connect(&server.address.to_string()).await;
            let mut count = 0;
            while abandoned() < 3 || count < 100 {
                assert_eq!(other.get("/x").await.text(), "krill");
                count += 1;
            }
            assert_eq!(clients[0].response(false).await.unwrap().status, 503);
            // The head, if there is one, has promised more than there is.
            assert!(clients[1].response(false).await.is_none_or(|response| !response.is_whole));
            assert!(clients[2].response(false).await.is_none_or(|response| !response.is_whole));
            assert_eq!(abandoned(), 3);
            drop((clients, other));
            slow.stop().await.unwrap();
            server.stop().await.unwrap();
        });
    }
    println!("all others were served");
}
