//! Standard streams over each kind of descriptor that a program may get.

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

/// The input of the program, and its other side.
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

/// A terminal that delivers whole lines, without an echo.
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
fn unchosen_read_consumes_nothing_from_any_kind_of_input() {
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
            until_waits(process.pid().into()).await;
            tx.send(7).await.unwrap();
            let pid = process.pid();
            while waits::snapshot().iter().any(|wait| wait.who == pid) {
                tokio::task::yield_now().await;
            }
            drop(there);
        }
    });
}

/// The system always reports a file as ready, so calls read it: one for which no operation waits continues.
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

/// Only one write at a time runs as a call. One that waits for an earlier call has written nothing.
#[test]
fn file_contains_completed_writes_and_nothing_of_unchosen_ones() {
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
fn flush_reports_failure_of_earlier_write() {
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
fn write_reports_failure_of_earlier_write_and_takes_no_bytes() {
    dunlin::block_on(async {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut output = Output::of(full.as_fd()).unwrap();
        output.write(&mut Bytes::from("krill")).await.unwrap();
        let mut bytes = Bytes::from("squid");
        assert_eq!(output.write(&mut bytes).await.unwrap_err().kind(), ErrorKind::StorageFull);
        assert_eq!(bytes, "squid");
        output.flush().await.unwrap();
    });
}

/// It has passed its last piece to a call when its sender is dropped.
#[test]
fn process_of_a_sender_gives_the_error_of_the_last_write() {
    dunlin::block_on(async {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let (mut tx, process) = Output::of(full.as_fd()).unwrap().into_sender();
        tx.send(Bytes::from("krill")).await.unwrap();
        drop(tx);
        assert_eq!(process.await.unwrap().unwrap_err().kind(), ErrorKind::StorageFull);
    });
}

#[test]
fn failed_read_by_a_call_is_an_error_and_no_end() {
    dunlin::block_on(async {
        let directory = std::fs::File::open("/").unwrap();
        let mut input = Input::of(directory.as_fd()).unwrap();
        assert_eq!(input.read(4096).await.unwrap_err().kind(), ErrorKind::IsADirectory);
        let end = input.into_receiver().recv().await.unwrap_err();
        assert!(end.to_string().contains("directory"), "{end}");
    });
}

/// How many descriptors of this program refer to the same counter.
#[cfg(target_os = "linux")]
fn copies(counter: &OwnedFd) -> usize {
    use std::os::fd::AsRawFd;
    let id = |text: String| text.lines().find(|line| line.starts_with("eventfd-id:")).map(str::to_owned);
    let own = id(std::fs::read_to_string(format!("/proc/self/fdinfo/{}", counter.as_raw_fd())).unwrap());
    let all = std::fs::read_dir("/proc/self/fdinfo").unwrap();
    // Another test may close one meanwhile.
    let all = all.filter_map(|info| std::fs::read_to_string(info.unwrap().path()).ok());
    all.filter(|info| id(info.clone()) == own).count()
}

/// Linux cannot open a counter again, so calls read it, though a read may wait for ever.
#[cfg(target_os = "linux")]
#[test]
fn waiting_call_serves_next_read_and_ends_with_its_stream() {
    use dunlin::blocking::{CallState, KnownCall, calls};
    use rustix::event::{EventfdFlags, eventfd};
    dunlin::block_on(async {
        let counter = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let number = |n: u64| Bytes::copy_from_slice(&n.to_ne_bytes());
        let mut input = Input::of(counter.as_fd()).unwrap();
        assert!(poll(&mut input.read(8)).is_pending());
        Output::of(counter.as_fd()).unwrap().write_all(&mut number(5)).await.unwrap();
        assert_eq!(input.read(8).await.unwrap(), number(5));
        assert!(poll(&mut input.read(8)).is_pending());
        // A call that has not begun needs no end. Those of other tests return at once.
        let long = |call: &KnownCall| {
            call.state == CallState::Running
                && call.made.file().ends_with("standard.rs")
                && waits::tick().wrapping_sub(call.since) > 20
        };
        while !calls().iter().any(long) {
            tokio::task::yield_now().await;
        }
        drop(input);
        while copies(&counter) > 1 {
            tokio::task::yield_now().await;
        }
    });
}

/// The system writes the part for which it has room, and refuses the rest.
#[test]
fn write_by_a_call_that_the_system_cuts_short_is_an_error() {
    dunlin::block_on(async {
        let mut file = scratch(b"");
        // The greatest length of a file here.
        let (mut length, mut more) = (0, 1_u64 << 63);
        while more - length > 1 {
            let middle = length + (more - length) / 2;
            let fits = file.seek(SeekFrom::Start(middle)).is_ok();
            (length, more) = if fits { (middle, more) } else { (length, middle) };
        }
        file.seek(SeekFrom::Start(length - 3)).unwrap();
        let mut output = Output::of(file.as_fd()).unwrap();
        assert!(output.write_all(&mut Bytes::from("krill")).await.is_err());
    });
}

/// A pipe that another program also holds would never end.
#[cfg(target_os = "linux")]
#[test]
fn programs_do_not_inherit_the_descriptor_of_a_stream() {
    const CLOSE_ON_EXEC: u32 = 0o2_000_000;
    dunlin::block_on(async {
        let (read, write) = std::io::pipe().unwrap();
        let (pipe, socket) = (rustix::fs::fstat(&read).unwrap().st_ino, UnixStream::pair().unwrap());
        let socket_inode = rustix::fs::fstat(&socket.0).unwrap().st_ino;
        let file = scratch(b"");
        let file_inode = rustix::fs::fstat(&file).unwrap().st_ino;
        let inputs = [read.as_fd(), socket.0.as_fd(), file.as_fd()].map(|fd| Input::of(fd).unwrap());
        let outputs = [write.as_fd(), socket.0.as_fd(), file.as_fd()].map(|fd| Output::of(fd).unwrap());
        let mut seen = 0;
        for fd in std::fs::read_dir("/proc/self/fdinfo").unwrap() {
            let Ok(info) = std::fs::read_to_string(fd.unwrap().path()) else { continue };
            let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
            let inode: Option<u64> = field("ino:").and_then(|inode| inode.parse().ok());
            if inode.is_some_and(|inode| [pipe, socket_inode, file_inode].contains(&inode)) {
                let flags = u32::from_str_radix(field("flags:").unwrap(), 8).unwrap();
                assert!(flags & CLOSE_ON_EXEC != 0, "{info}");
                seen += 1;
            }
        }
        // Those of the test, and a copy for each stream.
        assert_eq!(seen, 10);
        drop((inputs, outputs));
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
