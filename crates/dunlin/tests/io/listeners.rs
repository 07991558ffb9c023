//! Listeners: an accept is a receive.

use std::future::Future;
use std::io::ErrorKind;

use dunlin::io::{Bytes, tcp};
use dunlin::prelude::*;

use super::{poll, until_waits};

#[test]
fn unchosen_accept_takes_no_connection() {
    dunlin::block_on(async {
        let mut listener = tcp::listen("127.0.0.1:0").await.unwrap();
        let to = listener.address().unwrap().to_string();
        let (mut tx, mut rx) = channel_with(fifo(1));
        tx.send(7).await.unwrap();
        let mut accept = listener.accept();
        assert!(poll(&mut accept).is_pending());
        let client = tcp::connect(&to).await.unwrap();
        alt! { biased;
            n = rx.recv() => assert_eq!(n, Ok(7)),
            accepted = &mut accept => panic!("{accepted:?}"),
        }
        drop(accept);
        alt! {
            n = rx.recv() => panic!("{n:?}"),
            accepted = listener.accept() => assert_eq!(accepted.unwrap().peer().unwrap(), client.address().unwrap()),
        }
        let timed_out = listener.accept().within(Duration::from_millis(1)).await.unwrap_err();
        assert_eq!(timed_out.kind(), ErrorKind::TimedOut);
    });
}

/// With a queue of 128, the default of the standard library, Linux drops the next, and its client retries
/// again and again.
#[test]
fn connections_wait_to_be_accepted() {
    dunlin::block_on(async {
        let listener = tcp::listen("127.0.0.1:0").await.unwrap();
        let to = listener.address().unwrap().to_string();
        let mut clients = Vec::new();
        for _ in 0..300 {
            clients.push(tcp::connect(&to).await.unwrap());
        }
    });
}

#[test]
fn receiver_of_connections_is_shared_and_ends_with_its_receivers() {
    dunlin::block_on(async {
        let listener = tcp::listen("127.0.0.1:0").await.unwrap();
        let to = listener.address().unwrap().to_string();
        let connections = listener.into_receiver().share();
        let workers: Vec<_> = (0..3)
            .map(|n| {
                let mut connections = connections.clone();
                spawn(async move {
                    let mut connection = connections.recv().await.unwrap();
                    connection.write_all(&mut Bytes::copy_from_slice(&[n])).await.unwrap();
                })
            })
            .collect();
        drop(connections);
        let mut seen = Vec::new();
        for _ in 0..3 {
            let mut client = tcp::connect(&to).await.unwrap();
            seen.push(client.read(16).await.unwrap()[0]);
        }
        seen.sort_unstable();
        assert_eq!(seen, [0, 1, 2]);
        for worker in workers {
            worker.await.unwrap();
        }
        // The listener's process notices that the receivers are dropped, and closes the socket.
        while tcp::connect(&to).await.is_ok() {
            tokio::task::yield_now().await;
        }
    });
}

#[cfg(unix)]
#[test]
fn unix_sockets_are_listened_at() {
    use dunlin::io::{Address, unix};
    dunlin::block_on(async {
        let path = std::env::temp_dir().join(format!("dunlin-io-{}", std::process::id()));
        let mut listener = unix::listen(&path).unwrap();
        assert_eq!(listener.address().unwrap(), Address::Unix(Some(path.clone())));
        assert_eq!(unix::listen(&path).unwrap_err().kind(), ErrorKind::AddrInUse);
        let mut client = unix::connect(&path).await.unwrap();
        let mut server = listener.accept().await.unwrap();
        assert_eq!(server.peer().unwrap(), Address::Unix(None));
        client.write_all(&mut Bytes::from("krill")).await.unwrap();
        assert_eq!(server.read(4096).await.unwrap(), "krill");
        drop(listener);
        assert_eq!(unix::connect(&path).await.unwrap_err().kind(), ErrorKind::ConnectionRefused);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(unix::connect(&path).await.unwrap_err().kind(), ErrorKind::NotFound);
    });
}

#[test]
fn accept_is_shown_while_it_waits() {
    dunlin::block_on(async {
        let mut listener = tcp::listen("127.0.0.1:0").await.unwrap();
        let process = spawn(async move { listener.accept().await });
        until_waits(process.pid().into()).await;
    });
}

/// In a program of its own with few descriptors.
#[cfg(target_os = "linux")]
#[test]
fn accept_waits_for_a_descriptor_and_does_not_spin() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    const INSIDE: &str = "DUNLIN_TEST_DESCRIPTORS";
    if std::env::var_os(INSIDE).is_some() {
        return dunlin::__rt::block_on_workers(Some(1), async {
            let mut listener = tcp::listen("127.0.0.1:0").await.unwrap();
            let to = listener.address().unwrap().to_string();
            let client = tcp::connect(&to).await.unwrap();
            let before = getrlimit(Resource::Nofile);
            setrlimit(Resource::Nofile, Rlimit { current: Some(64), ..before }).unwrap();
            let mut used = Vec::new();
            while let Ok(file) = std::fs::File::open("/dev/null") {
                used.push(file);
            }
            let (mut polls, mut accept) = (0, Box::pin(listener.accept().within(Duration::from_millis(300))));
            let timed_out = std::future::poll_fn(|cx| {
                polls += 1;
                accept.as_mut().poll(cx)
            });
            assert_eq!(timed_out.await.unwrap_err().kind(), ErrorKind::TimedOut);
            assert!(polls < 10, "it has spun: {polls} polls");
            drop((accept, used));
            // The connection was not lost.
            assert_eq!(listener.accept().await.unwrap().peer().unwrap(), client.address().unwrap());
            println!("it was accepted");
        });
    }
    let mut program = std::process::Command::new(std::env::current_exe().unwrap());
    program.args(["--exact", "listeners::accept_waits_for_a_descriptor_and_does_not_spin", "--nocapture"]);
    let output = program.env(INSIDE, "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("it was accepted"), "{output:?}");
}
