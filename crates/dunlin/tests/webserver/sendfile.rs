//! How a file is sent where `sendfile` is not possible, and one outside the page cache.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};

use dunlin::io::tcp;
use dunlin::prelude::*;
use rustix::fs::{Advice, OFlags, fadvise, fcntl_getfl, fcntl_setfl};

use super::web::limits::Limits;
use super::web::log::Log;
use super::web::site::Site;
use super::web::{client, connection};
use super::{Scratch, patient, serve, with_limits};
use crate::client::Client;

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n ^ n >> 8 ^ n >> 16) as u8).collect()
}

/// Linux sends no file to a descriptor that appends, though on a socket that means nothing. This holds for
/// all copies of the descriptor.
fn forbid_sendfile(socket: OwnedFd) {
    fcntl_setfl(&socket, fcntl_getfl(&socket).unwrap() | OFlags::APPEND).unwrap();
}

/// Serves one connection. Returns its client, and a copy of the server's socket.
async fn serve_one(site: &std::sync::Arc<Site>) -> (Client, OwnedFd, Process<()>) {
    let mut listener = tcp::listen("127.0.0.1:0").await.unwrap();
    let client = Client::connect(&listener.address().unwrap().to_string()).await;
    let connection = listener.accept().await.unwrap();
    let socket = connection.as_fd().try_clone_to_owned().unwrap();
    let (log, _) = Log::start(None, site.stats.clone()).unwrap();
    let (stop, stopped) = channel();
    let served = client::Client::new(site.clone(), connection, stopped.share(), log);
    let process = spawn(async move {
        connection::serve(served).await;
        drop(stop);
    });
    (client, socket, process)
}

#[test]
fn file_is_sent_whole_and_in_part_where_sendfile_is_not_possible() {
    const LENGTH: usize = 5_000_000;
    let scratch = Scratch::new();
    scratch.file("x", bytes(LENGTH));
    dunlin::block_on(async {
        let server = serve(&scratch, patient()).await;
        let (mut client, socket, process) = serve_one(&server.site).await;
        forbid_sendfile(socket);
        let all = bytes(LENGTH);
        for _ in 0..2 {
            let whole = client.get("/x").await;
            assert!(whole.status == 200 && whole.body == all);
            let part = client.request("GET /x", "Range: bytes=1000001-3999999\r\n").await;
            assert!(part.status == 206 && part.body == all[1_000_001..4_000_000]);
        }
        let two = client.request("GET /x", "Range: bytes=0-1999999,3000000-4999999\r\n").await;
        for (begin, end) in [(0, 2_000_000), (3_000_000, LENGTH)] {
            let head = format!("bytes {begin}-{}/{LENGTH}\r\n\r\n", end - 1).into_bytes();
            let at = two.body.windows(head.len()).position(|part| part == head).unwrap() + head.len();
            assert!(two.body[at..at + end - begin] == all[begin..end], "{begin}");
        }
        assert_eq!(server.site.stats.sendfile.get(), 0);
        assert_eq!(server.site.stats.cut.get(), 0);
        drop(client);
        process.await.unwrap();
        server.stop().await.unwrap();
    });
}

/// Each byte is sent once, by whichever method.
#[test]
fn fallback_resumes_at_the_byte_where_sendfile_stopped() {
    const LENGTH: usize = 20_000_000;
    let scratch = Scratch::new();
    scratch.file("x", bytes(LENGTH));
    dunlin::block_on(async {
        let server = serve(&scratch, patient()).await;
        let (mut client, socket, process) = serve_one(&server.site).await;
        client.send("GET /x HTTP/1.1\r\nHost: h\r\n\r\n").await;
        // The client reads nothing yet, so no system takes all of it.
        while server.site.stats.sendfile.get() == 0 {
            tokio::task::yield_now().await;
        }
        forbid_sendfile(socket);
        let response = client.response(false).await.unwrap();
        assert!(response.is_whole && response.body == bytes(LENGTH));
        assert!(server.site.stats.sendfile.get() < LENGTH as u64);
        assert!(client.get("/none").await.status == 404, "the connection is kept");
        drop(client);
        process.await.unwrap();
        server.stop().await.unwrap();
    });
}

/// A read in place would block, and the pool reads instead.
#[test]
fn uncached_file_is_sent_whole_and_in_part() {
    const LENGTH: usize = 3_000_000;
    with_limits(
        Limits { sendfile_min: u64::MAX, ..patient() },
        |scratch| drop(scratch.file("x", bytes(LENGTH))),
        |site| async move {
            let all = bytes(LENGTH);
            let file = fs::File::open(site.root().join("x")).unwrap();
            let mut client = site.client().await;
            for begin in [0, 1_000_001, 2_999_999] {
                // This drops the written pages from the cache; a file system in memory keeps them.
                file.sync_all().unwrap();
                fadvise(&file, 0, None, Advice::DontNeed).unwrap();
                let part = client.request("GET /x", &format!("Range: bytes={begin}-\r\n")).await;
                assert!(part.status == 206 && part.body == all[begin..], "{begin}");
            }
            assert_eq!(site.stats.cut.get(), 0);
        },
    );
}
