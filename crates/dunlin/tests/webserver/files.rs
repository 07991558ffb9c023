//! Files: whole, in part, or not at all.

use std::fs;

use dunlin::io::tcp;
use dunlin::prelude::*;

use super::farm::FEW;
use super::web::file::{Files, Found};
use super::{Scratch, Server, Settings, patient, serve, serve_as, with_server};
use crate::client::Client;

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n ^ n >> 8 ^ n >> 16) as u8).collect()
}

#[test]
fn server_sends_whole_file_and_content_type_at_every_size() {
    with_server(
        |scratch| {
            for size in [0, 1, 1_000, 65_536, 65_537, 3_000_000] {
                scratch.file(&format!("{size}.html"), bytes(size));
            }
        },
        |site| async move {
            let mut client = site.client().await;
            for size in [0, 1, 1_000, 65_536, 65_537, 3_000_000] {
                let response = client.get(&format!("/{size}.html")).await;
                assert_eq!((response.status, response.body.len()), (200, size));
                assert!(response.body == bytes(size));
                assert_eq!(response.header("Content-Type"), Some("text/html; charset=utf-8"));
                let head = client.request(&format!("HEAD /{size}.html"), "").await;
                assert_eq!(head.header("Content-Length"), Some(&*size.to_string()));
                assert_eq!(head.status, 200);
            }
        },
    );
}

#[test]
fn files_and_ranges_from_the_limit_on_are_sent_by_the_pool() {
    const MIN: usize = 1 << 20;
    with_server(
        |scratch| drop(scratch.file("x", bytes(30_000_000))),
        |site| async move {
            let all = bytes(30_000_000);
            let mut client = site.client().await;
            let mut by_the_pool = 0;
            for (begin, length) in [(0, MIN - 1), (0, MIN), (7, MIN - 1), (7, MIN), (7, MIN + 1), (1, 29_999_999)] {
                let header = format!("Range: bytes={begin}-{}\r\n", begin + length - 1);
                let part = client.request("GET /x", &header).await;
                assert!(part.status == 206 && part.body == all[begin..begin + length], "{begin}, {length}");
                by_the_pool += if length < MIN { 0 } else { length as u64 };
                // The client may have it before it is counted.
                while site.stats.sendfile.get() < by_the_pool {
                    tokio::task::yield_now().await;
                }
                assert_eq!(site.stats.sendfile.get(), by_the_pool, "{begin}, {length}");
            }
            // A small part between two large ones.
            let three = client.request("GET /x", "Range: bytes=0-1999999,3000000-3000001,4000000-5999999\r\n").await;
            for (begin, end) in [(0, 2_000_000), (3_000_000, 3_000_002), (4_000_000, 6_000_000)] {
                let head = format!("bytes {begin}-{}/30000000\r\n\r\n", end - 1).into_bytes();
                let at = three.body.windows(head.len()).position(|part| part == head).unwrap() + head.len();
                assert!(three.body[at..at + end - begin] == all[begin..end], "{begin}");
            }
            assert_eq!(client.request("HEAD /x", "").await.status, 200);
            assert!(client.get("/x").await.body == all);
            while site.stats.sendfile.get() < by_the_pool + 4_000_000 + 30_000_000 {
                tokio::task::yield_now().await;
            }
            assert_eq!(site.stats.sendfile.get(), by_the_pool + 34_000_000);
        },
    );
}

#[test]
fn directories_have_an_index_and_end_with_a_slash() {
    with_server(
        |scratch| {
            scratch.file("index.html", "top");
            scratch.file("sub/index.html", "below");
            scratch.file("empty/x", "");
            scratch.file("a b/ü.txt", "names");
        },
        |site| async move {
            let mut client = site.client().await;
            assert_eq!(client.get("/").await.text(), "top");
            assert_eq!(client.get("/sub/").await.text(), "below");
            let moved = client.get("/sub?x=1").await;
            assert_eq!((moved.status, moved.header("Location")), (301, Some("/sub/?x=1")));
            let moved = client.get("//sub").await;
            assert_eq!(moved.header("Location"), Some("/sub/"), "it names no other host");
            assert_eq!(client.get("/empty/").await.status, 404);
            assert_eq!(client.get("/sub/index.html/").await.status, 404);
            assert_eq!(client.get("/a%20b/%C3%BC.txt").await.text(), "names");
            assert_eq!(client.get("http://elsewhere/sub/").await.text(), "below", "the absolute form");
        },
    );
}

#[test]
fn http_version_and_connection_header_decide_keep_alive() {
    with_server(
        |scratch| drop(scratch.file("x", "krill")),
        |site| async move {
            let mut client = site.client().await;
            for _ in 0..3 {
                assert_eq!(client.get("/x").await.text(), "krill");
            }
            let last = client.request("GET /x", "Connection: close\r\n").await;
            assert_eq!((last.text(), last.header("Connection")), ("krill", Some("close")));
            assert!(client.is_at_end().await);

            let mut client = site.client().await;
            client.send("GET /x HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n").await;
            let kept = client.response(false).await.unwrap();
            assert_eq!((kept.text(), kept.header("Connection")), ("krill", Some("keep-alive")));
            client.send("GET /x HTTP/1.0\r\n\r\n").await;
            assert_eq!(client.response(false).await.unwrap().text(), "krill");
            assert!(client.is_at_end().await);
        },
    );
}

#[test]
fn number_of_files_that_are_kept_open_is_bounded() {
    const FILES: usize = 1_100;
    with_server(
        |scratch| (0..FILES).for_each(|n| drop(scratch.file(&n.to_string(), n.to_string()))),
        |site| async move {
            let mut client = site.client().await;
            for n in 0..FILES {
                assert_eq!(client.get(&format!("/{n}")).await.text(), n.to_string());
            }
            let fds = fs::read_dir("/proc/self/fd").unwrap();
            let links = fds.filter_map(|fd| fs::read_link(fd.unwrap().path()).ok());
            let open = links.filter(|link| link.parent() == Some(site.root())).count();
            assert!((1..=512).contains(&open), "{open}");
        },
    );
}

#[test]
fn blank_lines_fragment_and_query_are_ignored() {
    with_server(
        |scratch| drop(scratch.file("x", "krill")),
        |site| async move {
            let mut client = site.client().await;
            client
                .send("\r\n\r\nGET /x#part HTTP/1.1\r\nHost: h\r\n\r\n\r\nGET /x?y HTTP/1.1\r\nHost: h\r\n\r\n")
                .await;
            for _ in 0..2 {
                assert_eq!(client.response(false).await.unwrap().text(), "krill");
            }
        },
    );
}

#[test]
fn pipelined_requests_are_answered_in_order_also_byte_by_byte() {
    with_server(
        |scratch| {
            for n in 0..20 {
                scratch.file(&n.to_string(), format!("file {n}"));
            }
        },
        |site| async move {
            let all: String = (0..20).map(|n| format!("GET /{n} HTTP/1.1\r\nHost: h\r\n\r\n")).collect();
            let mut client = site.client().await;
            client.send(all.clone()).await;
            for n in 0..20 {
                assert_eq!(client.response(false).await.unwrap().text(), format!("file {n}"));
            }
            let mut client = site.client().await;
            for byte in all.bytes() {
                client.send([byte]).await;
            }
            for n in 0..20 {
                assert_eq!(client.response(false).await.unwrap().text(), format!("file {n}"));
            }
        },
    );
}

#[test]
fn ranges_are_sent_in_part() {
    with_server(
        |scratch| drop(scratch.file("x", bytes(200_000))),
        |site| async move {
            let mut client = site.client().await;
            let part = client.request("GET /x", "Range: bytes=100000-150000\r\n").await;
            assert_eq!((part.status, part.header("Content-Range")), (206, Some("bytes 100000-150000/200000")));
            assert!(part.body == bytes(200_000)[100_000..=150_000]);
            let none = client.request("GET /x", "Range: bytes=200000-\r\n").await;
            assert_eq!((none.status, none.header("Content-Range")), (416, Some("bytes */200000")));
            let two = client.request("GET /x", "Range: bytes=0-1,5-6\r\n").await;
            assert_eq!(two.status, 206);
            let all = bytes(200_000);
            let expected = [
                &b"\r\n--dunlin-part\r\nContent-Type: application/octet-stream\r\nContent-Range: bytes 0-1/200000\r\n\r\n"[..],
                &all[..2],
                &b"\r\n--dunlin-part\r\nContent-Type: application/octet-stream\r\nContent-Range: bytes 5-6/200000\r\n\r\n"[..],
                &all[5..7],
                &b"\r\n--dunlin-part--\r\n"[..],
            ];
            assert!(two.body == expected.concat());
            let overlap = client.request("GET /x", "Range: bytes=0-9,5-19\r\n").await;
            assert_eq!((overlap.status, overlap.header("Content-Range")), (206, Some("bytes 0-19/200000")));
            let overflow = client.request("GET /x", "Range: bytes=99999999999999999999999-\r\n").await;
            assert_eq!(overflow.status, 416);
            let to_the_end = client.request("GET /x", "Range: bytes=199999-99999999999999999999999\r\n").await;
            assert_eq!((to_the_end.status, to_the_end.body.len()), (206, 1));
            assert_eq!(client.request("HEAD /x", "Range: bytes=0-1\r\n").await.status, 200);
        },
    );
}

#[test]
fn conditional_headers_determine_the_response_status() {
    with_server(
        |scratch| drop(scratch.file("x", "krill")),
        |site| async move {
            let mut client = site.client().await;
            let first = client.get("/x").await;
            let (tag, modified) = (first.header("ETag").unwrap(), first.header("Last-Modified").unwrap());
            let cases = [
                (format!("If-None-Match: {tag}\r\n"), 304),
                (format!("If-None-Match: \"other\", W/{tag}\r\n"), 304),
                ("If-None-Match: *\r\n".to_owned(), 304),
                ("If-None-Match: \"other\"\r\n".to_owned(), 200),
                (format!("If-None-Match: \"other\"\r\nIf-Modified-Since: {modified}\r\n"), 200),
                (format!("If-Modified-Since: {modified}\r\n"), 304),
                ("If-Modified-Since: Thu, 01 Jan 1970 00:00:00 GMT\r\n".to_owned(), 200),
                ("If-Modified-Since: krill\r\n".to_owned(), 200),
                (format!("If-Match: {tag}\r\n"), 200),
                (format!("If-Match: W/{tag}\r\n"), 412),
                (format!("If-Unmodified-Since: {modified}\r\n"), 200),
                ("If-Match: \"other\"\r\n".to_owned(), 412),
                ("If-Unmodified-Since: Thu, 01 Jan 1970 00:00:00 GMT\r\n".to_owned(), 412),
                (format!("Range: bytes=0-1\r\nIf-Range: {tag}\r\n"), 206),
                (format!("Range: bytes=0-1\r\nIf-Range: {modified}\r\n"), 206),
                ("Range: bytes=0-1\r\nIf-Range: \"other\"\r\n".to_owned(), 200),
                // Parts of two different files would form a third.
                (format!("Range: bytes=0-1\r\nIf-Range: W/{tag}\r\n"), 200),
                (format!("Range: bytes=0-1\r\nIf-Range: \"other\", {tag}\r\n"), 200),
                ("Range: bytes=0-1\r\nIf-Range: Fri, 01 Jan 2100 00:00:00 GMT\r\n".to_owned(), 200),
                ("Range: bytes=0-1\r\nIf-Range: Thu, 01 Jan 1970 00:00:00 GMT\r\n".to_owned(), 200),
                ("If-Match: *\r\n".to_owned(), 200),
                (format!("If-Match: {tag}\r\nIf-Unmodified-Since: Thu, 01 Jan 1970 00:00:00 GMT\r\n"), 200),
            ];
            for (headers, status) in cases {
                let response = client.request("GET /x", &headers).await;
                assert_eq!(response.status, status, "{headers}");
                assert_eq!(response.body.is_empty(), matches!(status, 304), "{headers}");
                assert_eq!(response.header("Content-Length").is_none(), matches!(status, 304), "{headers}");
            }
        },
    );
}

/// A file rewritten within the same second with the same length must not pass for the client's copy.
#[test]
fn etag_differs_between_modification_times_within_one_second() {
    let scratch = Scratch::new();
    let path = scratch.file("x", "krill");
    dunlin::block_on(async {
        let mut tags = std::collections::BTreeSet::new();
        for nanoseconds in [0, 1, 999_999_999] {
            let file = fs::File::options().write(true).open(&path).unwrap();
            file.set_modified(std::time::UNIX_EPOCH + Duration::new(1_000_000_000, nanoseconds)).unwrap();
            let Ok(Found::File(found)) = Files::new(&scratch.path("root"), 9).unwrap().find("/x", patient().disk).await
            else {
                panic!("it is there");
            };
            tags.insert(found.validators.tag.clone());
        }
        assert_eq!(tags.len(), 3, "{tags:?}");
    });
}

/// The server looks up an open file again after a second, so it finds a new one in the end.
#[test]
fn replaced_file_is_served_after_a_second() {
    with_server(
        |scratch| drop(scratch.file("x", "krill")),
        |site| async move {
            let mut client = site.client().await;
            assert_eq!(client.get("/x").await.text(), "krill");
            fs::write(site.root().join("new"), "squid!").unwrap();
            fs::rename(site.root().join("new"), site.root().join("x")).unwrap();
            while client.get("/x").await.text() != "squid!" {
                tokio::task::yield_now().await;
            }
        },
    );
}

#[test]
fn requests_are_in_the_log_and_in_the_statistics() {
    let scratch = Scratch::new();
    scratch.file("x", "krill");
    dunlin::block_on(async {
        let server = serve(&scratch, patient()).await;
        let mut client = Client::connect(&server.address.to_string()).await;
        client.get("/x").await;
        client.get("/no\"such").await;
        let page = client.get("/stats.html").await;
        assert!(page.text().contains("<tr><td>responses 2xx</td><td>1</td></tr>"), "{}", page.text());
        assert!(page.text().contains("<tr><td>connections now</td><td>1</td></tr>"), "{}", page.text());
        server.stop().await.unwrap();
    });
    let log = fs::read_to_string(scratch.path("log")).unwrap();
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!(lines.len(), 3, "{log}");
    assert!(
        lines[0].starts_with("127.0.0.1 - - [") && lines[0].ends_with(" +0000] \"GET /x HTTP/1.1\" 200 5"),
        "{log}"
    );
    assert!(lines[1].contains("] \"GET /no%22such HTTP/1.1\" 404 "), "{log}");
}

#[test]
fn time_in_the_log_has_the_common_format() {
    let time = std::time::UNIX_EPOCH + Duration::from_secs(784_111_777);
    assert_eq!(super::web::log::date(&httpdate::fmt_http_date(time)), "06/Nov/1994:08:49:37 +0000");
}

/// In both layouts.
#[test]
fn stop_ends_idle_connections_and_lets_a_request_end() {
    let scratch = Scratch::new();
    scratch.file("x", bytes(20_000_000));
    for farm in [None, Some(FEW)] {
        dunlin::block_on(async {
            let server = serve_as(&scratch, patient(), farm).await;
            let to = server.address.to_string();
            let (mut idle, mut busy) = (Client::connect(&to).await, Client::connect(&to).await);
            assert_eq!(idle.request("HEAD /x", "").await.status, 200);
            // No system accepts this much at once, so the response is under way.
            busy.send("GET /x HTTP/1.1\r\nHost: h\r\n\r\n").await;
            let first = busy.connection.read(1).await.unwrap();
            let ((), response) = par!(async { server.stop().await.unwrap() }, async {
                assert!(idle.is_at_end().await, "it ends at once");
                // The server gives its client some time to close it.
                drop(idle);
                busy.unread(&first);
                busy.response(false).await.unwrap()
            });
            assert!(response.is_whole && response.body == bytes(20_000_000));
            // A program that another test starts holds the listener until it runs.
            while dunlin::io::tcp::connect(&to).await.is_ok() {}
        });
    }
}

/// The rest of its head arrives after the stop.
#[test]
fn stop_lets_a_request_end_whose_head_is_under_way() {
    let scratch = Scratch::new();
    scratch.file("x", "krill");
    for farm in [None, Some(FEW)] {
        dunlin::block_on(async {
            let server = serve_as(&scratch, patient(), farm).await;
            let to = server.address.to_string();
            let mut client = Client::connect(&to).await;
            // One piece: with the first response, the server has the beginning of the second head.
            client.send("GET /x HTTP/1.1\r\nHost: h\r\n\r\nGET /x HTTP/1.1\r\nHo").await;
            assert_eq!(client.response(false).await.unwrap().text(), "krill");
            let ((), response) = par!(async { server.stop().await.unwrap() }, async {
                while dunlin::io::tcp::connect(&to).await.is_ok() {}
                alt! {
                    early = client.connection.read(1) => panic!("{early:?}"),
                    () = sleep(Duration::from_millis(20)) => {}
                }
                client.send("st: h\r\n\r\n").await;
                client.response(false).await.unwrap()
            });
            assert_eq!(response.text(), "krill");
        });
    }
}

#[test]
fn server_names_the_path_that_it_cannot_open() {
    let scratch = Scratch::new();
    let missing = scratch.path("missing");
    let good = Settings { root: scratch.path("root"), cgi: None, log: None, limits: patient(), farm: None };
    let wrong = [
        ("the root", Settings { root: missing.clone(), ..good.clone() }),
        ("the directory of CGI programs", Settings { cgi: Some(missing.clone()), ..good.clone() }),
        ("the log", Settings { log: Some(missing.join("log")), ..good }),
    ];
    dunlin::block_on(async {
        for (what, settings) in wrong {
            let error = Server::start(tcp::listen("127.0.0.1:0").await.unwrap(), settings).unwrap_err();
            let text = error.to_string();
            assert!(text.starts_with(&format!("cannot open {what} {}", missing.display())), "{text}");
        }
    });
}
