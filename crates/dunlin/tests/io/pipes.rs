//! Pipes.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;

use dunlin::io::pipe::{self, ReadEnd, WriteEnd};
use dunlin::io::{Bytes, tcp};
use dunlin::prelude::*;

use super::{LARGE, large, poll, until_waits};

async fn read_all(read_end: &mut ReadEnd) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        let piece = read_end.read(64 << 10).await.unwrap();
        if piece.is_empty() {
            return all;
        }
        all.extend_from_slice(&piece);
    }
}

#[test]
fn pipe_reads_written_bytes_then_end_of_stream() {
    dunlin::block_on(async {
        let (mut read_end, mut write_end) = pipe::pair().unwrap();
        write_end.write_all(&mut Bytes::from("krill")).await.unwrap();
        assert_eq!(read_end.read(3).await.unwrap(), "kri", "at most three bytes");
        assert_eq!(read_end.read(4096).await.unwrap(), "ll", "what there is");
        assert!(poll(&mut read_end.read(1)).is_pending());
        assert_eq!(write_end.write(&mut Bytes::new()).await.unwrap(), 0, "nothing is written at once");
        drop(write_end);
        assert!(read_end.read(1).await.unwrap().is_empty());
        assert!(read_end.read(1).await.unwrap().is_empty(), "the end stays");
    });
}

#[test]
fn short_write_to_pipe_leaves_unwritten_bytes_in_buffer() {
    dunlin::block_on(async {
        let (mut read_end, mut write_end) = pipe::pair().unwrap();
        let mut bytes = large();
        let written = write_end.write(&mut bytes).await.unwrap();
        assert!(0 < written && written < LARGE);
        assert_eq!(bytes, large()[written..]);
        let ((), read) = par!(
            async {
                write_end.write_all(&mut bytes).await.unwrap();
                drop(write_end);
            },
            async { read_all(&mut read_end).await }
        );
        assert!(read == large());
    });
}

#[test]
fn unchosen_read_of_pipe_consumes_nothing() {
    dunlin::block_on(async {
        let (mut read_end, mut write_end) = pipe::pair().unwrap();
        let (mut tx, mut rx) = channel_with(fifo(1));
        tx.send(7).await.unwrap();
        let mut read = read_end.read(4096);
        assert!(poll(&mut read).is_pending());
        write_end.write_all(&mut Bytes::from("krill")).await.unwrap();
        alt! { biased;
            n = rx.recv() => assert_eq!(n, Ok(7)),
            piece = &mut read => panic!("{piece:?}"),
        }
        drop(read);
        alt! {
            n = rx.recv() => panic!("{n:?}"),
            piece = read_end.read(4096) => assert_eq!(piece.unwrap(), "krill"),
        }
        let timed_out = read_end.read(4096).within(Duration::from_millis(1)).await.unwrap_err();
        assert_eq!(timed_out.kind(), ErrorKind::TimedOut);
        write_end.write_all(&mut Bytes::from("squid")).await.unwrap();
        assert_eq!(read_end.read(4096).await.unwrap(), "squid");
    });
}

/// The pipe is full: one write waits, and then the choice takes another branch.
#[test]
fn unchosen_write_to_pipe_writes_nothing() {
    dunlin::block_on(async {
        let (mut read_end, mut write_end) = pipe::pair().unwrap();
        let mut bytes = large();
        while poll(&mut write_end.write(&mut bytes)).is_ready() {}
        let written = LARGE - bytes.len();
        let (mut tx, mut rx) = channel_with(fifo(1));
        tx.send(7).await.unwrap();
        let mut more = Bytes::from("krill");
        alt! { biased;
            written = write_end.write(&mut more) => panic!("{written:?}"),
            n = rx.recv() => assert_eq!(n, Ok(7)),
        }
        let timed_out = write_end.write(&mut more).within(Duration::ZERO).await.unwrap_err();
        assert_eq!((timed_out.kind(), &*more), (ErrorKind::TimedOut, &b"krill"[..]));
        drop(write_end);
        assert_eq!(read_all(&mut read_end).await.len(), written);
    });
}

#[test]
fn write_to_a_pipe_without_reader_fails() {
    dunlin::block_on(async {
        let (read_end, mut write_end) = pipe::pair().unwrap();
        drop(read_end);
        let mut bytes = Bytes::from("krill");
        assert_eq!(write_end.write(&mut bytes).await.unwrap_err().kind(), ErrorKind::BrokenPipe);
        assert_eq!(bytes, "krill");
    });
}

#[test]
fn operations_are_shown_while_they_wait() {
    dunlin::block_on(async {
        let (mut read_end, mut write_end) = pipe::pair().unwrap();
        let reader = spawn(async move { read_end.read(1).await });
        until_waits(reader.pid().into()).await;
        write_end.write_all(&mut Bytes::from("k")).await.unwrap();
        reader.await.unwrap().unwrap();
        let (_read_end, mut write_end) = pipe::pair().unwrap();
        let writer = spawn(async move { write_end.write_all(&mut large()).await });
        until_waits(writer.pid().into()).await;
    });
}

#[test]
fn ends_of_a_pipe_are_ends_of_channels() {
    dunlin::block_on(async {
        let (read_end, write_end) = pipe::pair().unwrap();
        let ((mut tx, process), mut rx) = (write_end.into_sender(), read_end.into_receiver());
        let ((), all) = par!(
            async {
                tx.send(large()).await.unwrap();
                drop(tx);
            },
            async {
                let mut all = Vec::new();
                while let Ok(piece) = rx.recv().await {
                    all.extend_from_slice(&piece);
                }
                all
            }
        );
        assert!(all == large());
        process.await.unwrap().unwrap();
    });
}

#[test]
fn error_of_a_pipe_and_poison_end_its_process_with_the_reason() {
    dunlin::block_on(async {
        let (read_end, write_end) = pipe::pair().unwrap();
        let (mut tx, process) = write_end.into_sender();
        drop(read_end.into_receiver());
        let error = loop {
            if let Err(error) = tx.send(Bytes::from("krill")).await {
                break error;
            }
        };
        assert!(!error.is_closed(), "it is no orderly end: {error}");
        assert_eq!(process.await.unwrap().unwrap_err().kind(), ErrorKind::BrokenPipe);

        let (mut read_end, write_end) = pipe::pair().unwrap();
        let (tx, process) = write_end.into_sender();
        tx.poison("no more krill");
        assert!(process.await.unwrap().unwrap_err().to_string().contains("no more krill"));
        assert!(read_end.read(1).await.unwrap().is_empty());
    });
}

#[test]
fn descriptors_become_ends_if_they_are_the_right_end_of_a_pipe() {
    dunlin::block_on(async {
        let (mut read, mut write) = std::io::pipe().unwrap();
        let mut read_end = ReadEnd::try_from(OwnedFd::from(read.try_clone().unwrap())).unwrap();
        write.write_all(b"krill").unwrap();
        assert_eq!(read_end.read(4096).await.unwrap(), "krill");
        let mut write_end = WriteEnd::try_from(OwnedFd::from(write.try_clone().unwrap())).unwrap();
        write_end.write_all(&mut Bytes::from("squid")).await.unwrap();
        let mut five = [0; 5];
        read.read_exact(&mut five).unwrap();
        assert_eq!(&five, b"squid");

        let listener = tcp::listen("127.0.0.1:0").await.unwrap();
        let socket = std::net::TcpStream::connect(listener.address().unwrap().to_string()).unwrap();
        for error in [
            WriteEnd::try_from(OwnedFd::from(read)).unwrap_err(),
            ReadEnd::try_from(OwnedFd::from(write)).unwrap_err(),
            ReadEnd::try_from(OwnedFd::from(socket)).unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
        }
    });
}

/// The system never reports a FIFO as ready that has had no writer.
#[test]
fn fifo_without_writers_is_at_its_end() {
    use rustix::fs::{FileType, Mode, OFlags};
    dunlin::block_on(async {
        let path = std::env::temp_dir().join(format!("dunlin-io-fifo-{}", std::process::id()));
        rustix::fs::mknodat(rustix::fs::CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let fd = rustix::fs::open(&path, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).unwrap();
        let mut read_end = ReadEnd::try_from(fd).unwrap();
        assert!(read_end.read(1).await.unwrap().is_empty());
        let mut writer = std::fs::File::options().write(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(poll(&mut read_end.read(1)).is_pending(), "now it waits for the writer");
        writer.write_all(b"krill").unwrap();
        assert_eq!(read_end.read(4096).await.unwrap(), "krill");
        drop(writer);
        assert!(read_end.read(1).await.unwrap().is_empty());
    });
}

#[test]
fn read_of_any_size_gives_the_available_bytes() {
    dunlin::block_on(async {
        let (mut read_end, mut write_end) = pipe::pair().unwrap();
        for max in [usize::MAX, 1 << 46] {
            write_end.write_all(&mut Bytes::from("krill")).await.unwrap();
            assert_eq!(read_end.read(max).await.unwrap(), "krill");
        }
    });
}

#[test]
fn write_all_has_a_deadline_and_leaves_the_unwritten_rest() {
    dunlin::block_on(async {
        let (mut read_end, mut write_end) = pipe::pair().unwrap();
        let mut bytes = large();
        let timed_out = write_end.write_all(&mut bytes).within(Duration::from_millis(1)).await.unwrap_err();
        assert_eq!(timed_out.kind(), std::io::ErrorKind::TimedOut);
        assert!(!bytes.is_empty() && bytes.len() < LARGE);
        let (read, ()) = par!(async { read_all(&mut read_end).await }, async {
            write_end.write_all(&mut bytes).await.unwrap();
            drop(write_end);
        });
        assert!(read == large(), "each byte is written once");
    });
}
