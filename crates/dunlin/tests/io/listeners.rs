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

/// Whether tokio has told the system to report when it is ready.
#[cfg(target_os = "linux")]
fn is_registered(connection: &dunlin::io::Connection) -> bool {
    use std::os::fd::{AsFd, AsRawFd};
    let line = format!("tfd: {:>8} ", connection.as_fd().as_raw_fd());
    let registered = std::fs::read_dir("/proc/self/fdinfo").unwrap().map(|entry| entry.unwrap().path());
    // Other tests close descriptors meanwhile.
    registered.filter_map(|path| std::fs::read_to_string(path).ok()).any(|text| text.contains(&line))
}

#[cfg(target_os = "linux")]
#[test]
fn accepted_connection_is_registered_only_when_it_waits() {
    dunlin::block_on(async {
        let mut listener = tcp::listen("127.0.0.1:0").await.unwrap();
        let mut client = tcp::connect(listener.address().unwrap().to_string()).await.unwrap();
        client.write_all(&mut Bytes::from("krill")).await.unwrap();
        let mut server = listener.accept().await.unwrap();
        // The loopback device delivers a write before it returns.
        assert_eq!(server.read(4096).await.unwrap(), "krill");
        server.write_all(&mut Bytes::from("squid")).await.unwrap();
        assert_eq!(client.read(4096).await.unwrap(), "squid");
        assert!(!is_registered(&server));
        assert!(poll(&mut server.read(4096)).is_pending());
        assert!(is_registered(&server));
        let (read, ()) = par!(server.read(4096), async {
            client.write_all(&mut Bytes::from("krill")).await.unwrap();
        });
        assert_eq!(read.unwrap(), "krill");
    });
}

/// Each write is a message of its own.
#[cfg(unix)]
#[test]
fn both_sides_of_a_tcp_connection_send_small_writes_at_once() {
    dunlin::block_on(async {
        let mut listener = tcp::listen("127.0.0.1:0").await.unwrap();
        let client = tcp::connect(listener.address().unwrap().to_string()).await.unwrap();
        let server = listener.accept().await.unwrap();
        assert!(rustix::net::sockopt::tcp_nodelay(&client).unwrap());
        assert!(rustix::net::sockopt::tcp_nodelay(&server).unwrap());
    });
}

/// The thread that waits first belongs to no runtime.
#[test]
fn accepted_connection_is_read_by_a_thread_outside_of_the_runtime() {
    dunlin::block_on(async {
        let mut listener = tcp::listen("127.0.0.1:0").await.unwrap();
        let mut client = tcp::connect(listener.address().unwrap().to_string()).await.unwrap();
        let mut server = listener.accept().await.unwrap();
        let (mut tx, mut began) = channel();
        let call = std::thread::spawn(move || {
            let mut read = server.read(4096);
            assert!(poll(&mut read).is_pending());
            tx.send(()).wait().unwrap();
            read.wait()
        });
        began.recv().await.unwrap();
        client.write_all(&mut Bytes::from("krill")).await.unwrap();
        let read = blocking(move |_| call.join().unwrap()).await.unwrap();
        assert_eq!(read.unwrap(), "krill");
    });
}
