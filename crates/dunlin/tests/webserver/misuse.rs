//! Misuse of the server by clients: each gets an answer, and the server serves the others.

use std::fs;
use std::os::unix::fs::symlink;

use dunlin::io::Bytes;
use dunlin::prelude::*;

use super::web::limits::Limits;
use super::{Scratch, patient, serve, with_limits, with_server};
use crate::client::Client;

#[test]
fn malformed_requests_get_their_status_and_the_connection_ends() {
    let large = format!("GET / HTTP/1.1\r\nHost: h\r\nX: {}", "x".repeat(17 << 10));
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(101));
    let cases: Vec<(&str, u16)> = vec![
        ("krill\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        ("GET / HTTP/1.1\nHost: a\n\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: y\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: y\r\n folded\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\0\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\"><script>\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a:8x\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", 400),
        ("GET http:///x HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET http://:80/x HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET http://u@a/x HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/3.0\r\nHost: a\r\n\r\n", 505),
        ("GET krill HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET /%f HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET /%ff HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("KRILL / HTTP/1.1\r\nHost: a\r\n\r\n", 501),
        ("DELETE / HTTP/1.1\r\nHost: a\r\n\r\n", 405),
        ("GET / HTTP/1.1\r\nHost: a\r\nExpect: krill\r\n\r\n", 417),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 1\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
        ("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (&large, 431),
        (&many, 431),
    ];
    with_server(
        |_| {},
        |site| async move {
            for (request, status) in &cases {
                let mut client = site.client().await;
                client.send(*request).await;
                let response = client.response(false).await.unwrap();
                assert_eq!(response.status, *status, "{request:?}");
                assert_eq!(response.header("Connection"), Some("close"), "{request:?}");
                assert!(client.is_at_end().await, "{request:?}");
            }
        },
    );
}

#[test]
fn nothing_outside_of_the_root_is_served() {
    with_server(
        |scratch| {
            scratch.file("inside", "krill");
            fs::write(scratch.path("secret"), "squid").unwrap();
            symlink(scratch.path("secret"), scratch.path("root").join("absolute")).unwrap();
            symlink("../secret", scratch.path("root").join("relative")).unwrap();
            symlink("..", scratch.path("root").join("up")).unwrap();
            rustix::fs::mknodat(
                rustix::fs::CWD,
                scratch.path("root").join("fifo"),
                rustix::fs::FileType::Fifo,
                rustix::fs::Mode::RWXU,
                0,
            )
            .unwrap();
        },
        |site| async move {
            for path in [
                "/../secret",
                "/%2e%2e/secret",
                "/.%2E/secret",
                "/..%2fsecret",
                "/x/../../secret",
                "/inside%00.html",
                "/absolute",
                "/relative",
                "/up/secret",
                "/fifo",
                "//etc/passwd",
                "/./inside",
            ] {
                let response = site.client().await.get(path).await;
                assert!(matches!(response.status, 400 | 403 | 404), "{path}: {response:?}");
            }
            assert_eq!(site.client().await.get("/inside").await.text(), "krill");
        },
    );
}

#[test]
fn request_that_does_not_end_times_out() {
    with_limits(
        Limits { head: Duration::from_millis(50), ..patient() },
        |_| {},
        |site| async move {
            let mut slow = site.client().await;
            slow.send("GET / HT").await;
            assert_eq!(slow.response(false).await.unwrap().status, 408);
            assert!(slow.is_at_end().await);
        },
    );
}

/// The time limit begins with the first byte, however many arrive.
#[test]
fn request_sent_byte_by_byte_times_out() {
    with_limits(
        Limits { head: Duration::from_millis(100), ..patient() },
        |_| {},
        |site| async move {
            let mut slow = site.client().await;
            slow.send("GET / HTTP/1.1\r\nX: ").await;
            let first = loop {
                match slow.connection.read(4096).within(Duration::from_millis(1)).await {
                    Ok(piece) => break piece,
                    Err(_) => slow.send("x").await,
                }
            };
            slow.unread(&first);
            assert_eq!(slow.response(false).await.unwrap().status, 408);
        },
    );
}

#[test]
fn missing_body_times_out() {
    with_limits(
        Limits { piece: Duration::from_millis(50), ..patient() },
        |scratch| scratch.program("cat", "cat"),
        |site| async move {
            let mut slow = site.client().await;
            slow.send("POST /cgi-bin/cat HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nkr").await;
            assert_eq!(slow.response(false).await.unwrap().status, 408);
            assert!(slow.is_at_end().await);
        },
    );
}

#[test]
fn client_that_does_not_read_ends_at_the_deadline_of_a_piece() {
    for sendfile_min in MANNERS {
        with_limits(
            Limits { piece: Duration::from_millis(50), sendfile_min, ..patient() },
            |scratch| drop(scratch.file("x", vec![0; 20_000_000])),
            |site| async move {
                let mut stuck = site.client().await;
                stuck.send("GET /x HTTP/1.1\r\nHost: h\r\n\r\n").await;
                while site.stats.cut.get() == 0 || site.stats.connections.get() > 0 {
                    tokio::task::yield_now().await;
                }
                assert_eq!(site.stats.cut.get(), 1);
            },
        );
    }
}

#[test]
fn head_of_the_greatest_length_is_read_and_a_longer_one_refused() {
    with_server(
        |scratch| drop(scratch.file("x", "krill")),
        |site| async move {
            for (length, status) in [(16 << 10, 200), ((16 << 10) + 1, 431)] {
                let head = "GET /x HTTP/1.1\r\nHost: h\r\nX: ";
                let padding = "x".repeat(length - head.len() - 4);
                let mut client = site.client().await;
                client.send(format!("{head}{padding}\r\n\r\n")).await;
                assert_eq!(client.response(false).await.unwrap().status, status);
            }
        },
    );
}

#[test]
fn idle_connection_ends_without_an_answer() {
    with_limits(
        Limits { idle: Duration::from_millis(50), ..patient() },
        |_| {},
        |site| async move { assert!(site.client().await.is_at_end().await) },
    );
}

/// The size from which the pool sends files: a usual one, and none.
const MANNERS: [u64; 2] = [1 << 20, u64::MAX];

#[test]
fn client_that_leaves_in_the_middle_of_a_file_leaves_nothing() {
    for sendfile_min in MANNERS {
        with_limits(
            Limits { sendfile_min, ..patient() },
            |scratch| drop(scratch.file("x", vec![0; 20_000_000])),
            |site| async move {
                // The server's sockets are those with its port.
                let port = site.address.rsplit_once(':').unwrap().1.parse().unwrap();
                for _ in 0..10 {
                    let mut client = site.client().await;
                    let before = site.stats.bytes.get();
                    client.send("GET /x HTTP/1.1\r\nHost: h\r\n\r\n").await;
                    while site.stats.bytes.get() < before + 50_000 {
                        tokio::task::yield_now().await;
                    }
                }
                while site.stats.connections.get() > 0 {
                    tokio::task::yield_now().await;
                }
                assert_eq!(site.stats.cut.get(), 10);
                // A call that is under way ends soon. The listener and the cached open file stay.
                while (sockets_at(port), open_at(&site.root().join("x"))) != (1, 1) {
                    tokio::task::yield_now().await;
                }
                assert_eq!(site.stats.sendfile.get() > 0, sendfile_min < u64::MAX);
            },
        );
    }
}

/// Descriptors of this program that lead to `path`.
pub(crate) fn open_at(path: &std::path::Path) -> usize {
    let fds = fs::read_dir("/proc/self/fd").unwrap();
    fds.filter(|fd| fs::read_link(fd.as_ref().unwrap().path()).is_ok_and(|link| link == path)).count()
}

/// Descriptors of this program that are sockets at a local port.
fn sockets_at(port: u16) -> usize {
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let at_port = |line: &&str| line.split_whitespace().nth(1).is_some_and(|at| at.ends_with(&format!(":{port:04X}")));
    let inodes = table.lines().skip(1).filter(at_port).filter_map(|line| line.split_whitespace().nth(9));
    inodes.map(|inode| open_at(format!("socket:[{inode}]").as_ref())).sum()
}

/// The head has promised the length.
#[test]
fn file_that_is_truncated_while_it_is_sent_ends_the_connection() {
    for sendfile_min in MANNERS {
        with_limits(
            Limits { sendfile_min, ..patient() },
            |scratch| drop(scratch.file("x", vec![7; 50_000_000])),
            |site| async move {
                let mut client = site.client().await;
                client.send("GET /x HTTP/1.1\r\nHost: h\r\n\r\n").await;
                let first = client.connection.read(1).await.unwrap();
                let file = fs::File::options().write(true).open(site.root().join("x")).unwrap();
                file.set_len(1 << 20).unwrap();
                client.unread(&first);
                let response = client.response(false).await.unwrap();
                assert_eq!(response.header("Content-Length"), Some("50000000"));
                assert!(!response.is_whole);
                // Pages in the socket are those of the file: the system may have cleared the truncated ones.
                assert!(response.body.iter().take(1 << 20).all(|byte| *byte == 7));
                assert_eq!(site.stats.cut.get(), 1);
                assert_eq!(site.stats.sendfile.get() > 0, sendfile_min < u64::MAX);
            },
        );
    }
}

#[test]
fn connections_beyond_the_limit_are_refused() {
    with_limits(
        Limits { connections_max: 2, ..patient() },
        |scratch| drop(scratch.file("x", "krill")),
        |site| async move {
            let (mut first, mut second) = (site.client().await, site.client().await);
            assert_eq!(first.get("/x").await.status, 200);
            assert_eq!(second.get("/x").await.status, 200);
            let mut third = site.client().await;
            let response = third.response(false).await.unwrap();
            assert_eq!((response.status, response.header("Retry-After")), (503, Some("1")));
            drop((first, third));
            while site.stats.connections.get() > 1 {
                tokio::task::yield_now().await;
            }
            assert_eq!(site.client().await.get("/x").await.status, 200);
            assert_eq!(second.get("/x").await.status, 200);
        },
    );
}

#[test]
fn full_disk_loses_lines_of_the_log_and_nothing_else() {
    let scratch = Scratch::new();
    scratch.file("x", "krill");
    symlink("/dev/full", scratch.path("log")).unwrap();
    dunlin::block_on(async {
        let server = serve(&scratch, patient()).await;
        let mut client = Client::connect(&server.address.to_string()).await;
        for _ in 0..20 {
            assert_eq!(client.get("/x").await.text(), "krill");
        }
        let stats = server.site.stats.clone();
        server.stop().await.unwrap();
        assert_eq!(stats.log_lost.get(), 20);
    });
}

#[test]
fn unread_body_is_not_parsed_as_a_request() {
    with_server(
        |scratch| drop(scratch.file("x", "krill")),
        |site| async move {
            let smuggled = "GET /x HTTP/1.1\r\nHost: h\r\n\r\n";
            for first in ["POST /x", "GET /x"] {
                let mut client = site.client().await;
                let length = smuggled.len();
                client.send(format!("{first} HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n{smuggled}")).await;
                let response = client.response(false).await.unwrap();
                assert_eq!(response.header("Connection"), Some("close"), "{first}");
                assert!(client.is_at_end().await, "{first}");
            }
        },
    );
}

#[test]
fn clients_that_read_nothing_delay_no_others() {
    with_server(
        |scratch| {
            scratch.file("large", vec![0; 20_000_000]);
            scratch.file("small", "krill");
        },
        |site| async move {
            let mut stuck = Vec::new();
            for _ in 0..20 {
                let mut client = site.client().await;
                client.connection.write_all(&mut Bytes::from("GET /large HTTP/1.1\r\nHost: h\r\n\r\n")).await.unwrap();
                stuck.push(client);
            }
            let mut client = site.client().await;
            for _ in 0..100 {
                assert_eq!(client.get("/small").await.text(), "krill");
            }
        },
    );
}
