//! Standard streams: over each kind of descriptor that a program may get.

use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::task::Poll;

use dunlin::io::standard::{Input, Output};
use dunlin::io::{Bytes, standard};
use dunlin::prelude::*;
use dunlin::waits;
use rustix::fs::OFlags;

use super::{LARGE, large, poll, until_waits};

/// What the program has as its input, and the other side of it.
fn inputs() -> Vec<(&'static str, OwnedFd, Box<dyn Write>)> {
    let (read, write) = std::io::pipe().unwrap();
    let (here, there) = UnixStream::pair().unwrap();
    vec![
        ("pipe", read.into(), Box::new(write)),
        ("socket", here.into(), Box::new(there)),
        #[cfg(target_os = "linux")]
        terminal(),
    ]
}

/// A terminal that gives whole lines, and no echo.
#[cfg(target_os = "linux")]
fn terminal() -> (&'static str, OwnedFd, Box<dyn Write>) {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
    let there = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&there).unwrap();
    unlockpt(&there).unwrap();
    let name = ptsname(&there, Vec::new()).unwrap();
    let here = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY, rustix::fs::Mode::empty()).unwrap();
    let mut modes = tcgetattr(&here).unwrap();
    modes.local_modes.remove(LocalModes::ECHO);
    tcsetattr(&here, OptionalActions::Now, &modes).unwrap();
    ("terminal", here, Box::new(std::fs::File::from(there)))
}

fn scratch(contents: &[u8]) -> std::fs::File {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("dunlin-io-standard-{}-{number}", std::process::id()));
    let mut file = std::fs::File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    file.write_all(contents).unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    file
}

#[test]
fn read_that_is_not_chosen_has_taken_nothing_whatever_the_input_is() {
    dunlin::block_on(async {
        for (name, here, mut there) in inputs() {
            let mut input = Input::of(here.as_fd()).unwrap();
            let (mut tx, mut rx) = channel_with(fifo(1));
            tx.send(7).await.unwrap();
            let mut read = input.read(4096);
            assert!(poll(&mut read).is_pending(), "{name}");
            there.write_all(b"krill\nsquid\n").unwrap();
            alt! { biased;
                n = rx.recv() => assert_eq!(n, Ok(7)),
                piece = &mut read => panic!("{name}: {piece:?}"),
            }
            drop(read);
            let mut all = Vec::new();
            while all.len() < 12 {
                all.extend_from_slice(&input.read(4).await.unwrap());
            }
            assert_eq!(all, b"krill\nsquid\n", "{name}");
            let timed_out = input.read(4096).within(Duration::from_millis(1)).await.unwrap_err();
            assert_eq!(timed_out.kind(), ErrorKind::TimedOut, "{name}");
            there.write_all(b"salp\n").unwrap();
            assert_eq!(input.read(4096).await.unwrap(), "salp\n", "{name}");
        }
    });
}

#[test]
fn streams_that_other_programs_share_stay_as_they_are() {
    dunlin::block_on(async {
        for (name, here, mut there) in inputs() {
            let mut input = Input::of(here.as_fd()).unwrap();
            assert!(poll(&mut input.read(4096)).is_pending(), "{name}");
            let flags = rustix::fs::fcntl_getfl(&here).unwrap();
            assert!(!flags.contains(OFlags::NONBLOCK), "{name}");
            there.write_all(b"krill\n").unwrap();
            assert_eq!(input.read(4096).await.unwrap(), "krill\n", "{name}");
        }
        let (read, write) = std::io::pipe().unwrap();
        let mut output = Output::of(write.as_fd()).unwrap();
        let mut bytes = large();
        while poll(&mut output.write(&mut bytes)).is_ready() {}
        assert!(!rustix::fs::fcntl_getfl(&write).unwrap().contains(OFlags::NONBLOCK));
        drop(read);
    });
}

#[test]
fn reads_are_shown_while_they_wait_and_not_after() {
    dunlin::block_on(async {
        for (_, here, there) in inputs() {
            let mut input = Input::of(here.as_fd()).unwrap();
            let (mut tx, mut rx) = channel_with(fifo(1));
            let process = spawn(async move {
                let n = alt! {
                    piece = input.read(4096) => panic!("{piece:?}"),
                    n = rx.recv() => n,
                };
                std::future::pending::<()>().await;
                (n, input)
            });
            until_waits(process.pid()).await;
            tx.send(7).await.unwrap();
            let pid = process.pid();
            while waits::snapshot().iter().any(|wait| wait.who == pid) {
                tokio::task::yield_now().await;
            }
            drop(there);
        }
    });
}

/// The system always calls a file ready, so it is read by calls: one that no operation waits for goes on.
#[test]
fn file_is_read_to_its_end_also_by_reads_that_are_not_chosen() {
    dunlin::block_on(async {
        let file = scratch(&large()[..200_000]);
        let mut input = Input::of(file.as_fd()).unwrap();
        let mut all = Vec::new();
        loop {
            let mut read = input.read(50_000);
            if let Poll::Ready(piece) = poll(&mut read) {
                all.extend_from_slice(&piece.unwrap());
            }
            drop(read);
            let piece = input.read(1_000).await.unwrap();
            assert!(piece.len() <= 1_000);
            if piece.is_empty() {
                break;
            }
            all.extend_from_slice(&piece);
        }
        assert!(all == large()[..200_000]);
    });
}

/// Only one write at a time goes by a call. One that has to wait for the call before has written nothing.
#[test]
fn file_has_what_was_written_and_nothing_of_writes_that_were_not_chosen() {
    dunlin::block_on(async {
        let mut file = scratch(b"");
        let mut output = Output::of(file.as_fd()).unwrap();
        let mut expected = Vec::new();
        for n in 0..200_u8 {
            let mut bytes = Bytes::from(vec![n; 1_000]);
            if let Poll::Ready(written) = poll(&mut output.write(&mut bytes)) {
                assert_eq!(written.unwrap(), 1_000);
                expected.extend_from_slice(&[n; 1_000]);
            } else {
                assert_eq!(bytes.len(), 1_000);
            }
        }
        output.flush().await.unwrap();
        output.write_all(&mut large()).await.unwrap();
        expected.extend_from_slice(&large());
        let mut read = Vec::new();
        file.seek(SeekFrom::Start(0)).unwrap();
        file.read_to_end(&mut read).unwrap();
        assert!(read == expected);
    });
}

#[test]
fn failed_write_by_a_call_is_told_by_the_flush() {
    dunlin::block_on(async {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut output = Output::of(full.as_fd()).unwrap();
        let mut bytes = Bytes::from("krill");
        output.write(&mut bytes).await.unwrap();
        assert_eq!(output.flush().await.unwrap_err().kind(), ErrorKind::StorageFull);
        output.flush().await.unwrap();
        let error = output.write_all(&mut Bytes::from("squid")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull);
    });
}

#[test]
fn null_device_is_empty_and_takes_all() {
    dunlin::block_on(async {
        let null = std::fs::File::options().read(true).write(true).open("/dev/null").unwrap();
        assert!(Input::of(null.as_fd()).unwrap().read(4096).await.unwrap().is_empty());
        Output::of(null.as_fd()).unwrap().write_all(&mut large()).await.unwrap();
    });
}

#[test]
fn streams_are_ends_of_channels() {
    dunlin::block_on(async {
        let (read, write) = std::io::pipe().unwrap();
        let (mut tx, process) = Output::of(write.as_fd()).unwrap().into_sender();
        drop(write);
        let mut rx = Input::of(read.as_fd()).unwrap().into_receiver();
        let ((), all) = par!(
            async {
                tx.send(large()).await.unwrap();
                drop(tx);
                process.await.unwrap().unwrap();
            },
            async {
                let mut all = Vec::new();
                while let Ok(piece) = rx.recv().await {
                    all.extend_from_slice(&piece);
                }
                all
            }
        );
        assert_eq!(all.len(), LARGE);
        assert!(all == large());
    });
}

/// In a program of its own, whose standard streams are those of the test.
#[test]
fn standard_streams_are_those_of_the_program() {
    const INSIDE: &str = "DUNLIN_TEST_STANDARD";
    if std::env::var_os(INSIDE).is_some() {
        return dunlin::block_on(async {
            let mut rx = standard::input().unwrap().into_receiver();
            let (mut output, mut error) = (standard::output().unwrap(), standard::error().unwrap());
            while let Ok(mut piece) = rx.recv().await {
                error.write_all(&mut Bytes::from(format!("{} bytes\n", piece.len()))).await.unwrap();
                output.write_all(&mut piece).await.unwrap();
            }
        });
    }
    let file = scratch(b"krill and squid");
    let mut program = std::process::Command::new(std::env::current_exe().unwrap());
    program.args(["--exact", "standard::standard_streams_are_those_of_the_program", "--nocapture"]);
    let output = program.env(INSIDE, "1").stdin(file).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("krill and squid"), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "15 bytes\n");
}
