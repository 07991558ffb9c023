//! Files.

use std::io::ErrorKind;
use std::path::PathBuf;

use dunlin::blocking::{CallState, calls};
use dunlin::io::{Bytes, file};
use dunlin::prelude::*;

use super::{LARGE, large};

/// The path of a file, which its drop removes.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("dunlin-io-{name}-{}", std::process::id())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn places_are_read_and_written() {
    dunlin::block_on(async {
        let scratch = Scratch::new("places");
        let missing = file::open(&scratch.0).await.unwrap().unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        let file = file::create(&scratch.0).await.unwrap().unwrap();
        file.write_at(6, "squid").await.unwrap().unwrap();
        file.write_at(0, "krill ").await.unwrap().unwrap();
        file.sync().await.unwrap().unwrap();
        let again = file::open(&scratch.0).await.unwrap().unwrap();
        assert_eq!(again.read_at(0, 4096).await.unwrap().unwrap(), "krill squid");
        assert_eq!(again.read_at(6, 3).await.unwrap().unwrap(), "squ");
        assert_eq!(again.read_at(11, 3).await.unwrap().unwrap(), "");
        assert_eq!(again.length().await.unwrap().unwrap(), 11);
        again.write_at(0, "x").await.unwrap().unwrap_err();
    });
}

#[test]
fn operation_is_a_branch() {
    dunlin::block_on(async {
        let file = file::open(std::env::current_exe().unwrap()).await.unwrap().unwrap();
        let (_tx, mut rx) = channel::<u8>();
        let mut read = file.read_at(0, 4);
        alt! {
            n = rx.recv() => panic!("{n:?}"),
            piece = &mut read => assert_eq!(piece.unwrap().unwrap().len(), 4),
        }
    });
}

#[test]
fn file_is_a_channel_both_ways() {
    dunlin::block_on(async {
        let scratch = Scratch::new("channel");
        let file = file::create(&scratch.0).await.unwrap().unwrap();
        let (mut tx, written) = file.clone().into_sender(3);
        for piece in large().chunks(1_000_000) {
            tx.send(Bytes::copy_from_slice(piece)).await.unwrap();
        }
        drop(tx);
        assert_eq!(written.await.unwrap().unwrap(), 3 + LARGE as u64);
        let mut pieces = file.into_receiver(3);
        let mut read = Vec::new();
        let error = loop {
            match pieces.recv().await {
                Ok(piece) => read.extend_from_slice(&piece),
                Err(error) => break error,
            }
        };
        assert!(read == large() && error.is_closed());
    });
}

#[test]
fn errors_poison_the_channels() {
    dunlin::block_on(async {
        let scratch = Scratch::new("errors");
        std::fs::write(&scratch.0, "krill").unwrap();
        let file = file::open(&scratch.0).await.unwrap().unwrap();
        let (mut tx, written) = file.into_sender(0);
        tx.send(Bytes::from("squid")).await.unwrap();
        tx.closed().await;
        assert!(!tx.send(Bytes::from("squid")).await.unwrap_err().is_closed(), "it is no orderly end");
        written.await.unwrap().unwrap_err();
        assert_eq!(std::fs::read(&scratch.0).unwrap(), b"krill");

        let mut options = std::fs::OpenOptions::new();
        options.write(true);
        let file = file::open_with(options, &scratch.0).await.unwrap().unwrap();
        assert!(!file.into_receiver(0).recv().await.unwrap_err().is_closed());
    });
}

#[test]
fn read_of_any_size_gives_the_bytes_of_the_file() {
    let path = std::env::temp_dir().join(format!("dunlin-io-huge-{}", std::process::id()));
    // More than one system call gives.
    let bytes = vec![7; (8 << 20) + 5];
    std::fs::write(&path, &bytes).unwrap();
    dunlin::block_on(async {
        let file = file::open(&path).await.unwrap().unwrap();
        for max in [usize::MAX, 1 << 46, bytes.len()] {
            assert!(file.read_at(0, max).await.unwrap().unwrap() == bytes);
            assert_eq!(file.read_at(8 << 20, max).await.unwrap().unwrap().len(), 5);
        }
        assert_eq!(file.read_at(1, 8 << 20).await.unwrap().unwrap().len(), 8 << 20);
        assert!(file.read_at(0, 0).await.unwrap().unwrap().is_empty());
    });
    std::fs::remove_file(path).unwrap();
}

/// No thread of the pool reads on for nothing.
#[cfg(target_os = "linux")]
#[test]
fn read_that_is_terminated_stops_with_the_bytes_that_it_has() {
    dunlin::block_on(async {
        let zeros = file::open("/dev/zero").await.unwrap().unwrap();
        let read = zeros.read_at(0, 4 << 30);
        while !calls().iter().any(|call| call.pid == read.pid() && call.state == CallState::Running) {
            tokio::task::yield_now().await;
        }
        let Ended::Terminated(Ok(bytes)) = read.terminate().await else { panic!("it has seen the request") };
        assert!((8 << 20..4 << 30).contains(&bytes.len()), "{}", bytes.len());
    });
}
