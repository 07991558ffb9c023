//! Attacks on the server by clients: what they may neither read, nor forge, nor take from others.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration as StdDuration, SystemTime};

use dunlin::prelude::*;

use super::misuse::open_at;
use super::runs::runs;
use super::web::limits::Limits;
use super::{Scratch, patient, serve, with_limits, with_server};
use crate::client::Client;

const CAT: &str = "printf 'Content-Type: text/plain\\n\\n'; cat";

async fn until(is_true: impl Fn() -> bool) {
    while !is_true() {
        tokio::task::yield_now().await;
    }
}

/// The directory of the programs may be beneath the root.
#[test]
fn slashes_before_the_prefix_of_programs_do_not_show_their_source() {
    with_server(
        |scratch| {
            scratch.file("cgi-bin/x", "secret");
            scratch.program("x", "printf 'Content-Type: a/b\\n\\nkrill'");
        },
        |site| async move {
            for path in ["/cgi-bin/x", "//cgi-bin/x", "///cgi-bin/x", "http://h//cgi-bin/x", "/%63gi-bin/x"] {
                assert_eq!(site.client().await.get(path).await.text(), "krill", "{path}");
            }
        },
    );
}

#[test]
fn host_of_an_absolute_target_replaces_the_header() {
    with_server(
        |scratch| {
            scratch.program("host", "printf \"Content-Type: a/b\\n\\n$SERVER_NAME $HTTP_HOST $QUERY_STRING\"");
            scratch.file("index.html", "salp");
            scratch.file("dir/x", "krill");
        },
        |site| async move {
            for (target, text) in [
                ("http://krill:81/cgi-bin/host?a=/b", "krill krill:81 a=/b"),
                ("HTTP://[::1]:81/cgi-bin/host", "[::1] [::1]:81 "),
                ("/cgi-bin/host", "h h "),
                ("http://krill", "salp"),
                ("http://krill?x=/dir/x", "salp"),
            ] {
                assert_eq!(site.client().await.get(target).await.text(), text, "{target}");
            }
            for target in ["http://krill/dir?x", "http://krill/dir?x#y", "/dir?x#y"] {
                let moved = site.client().await.get(target).await;
                assert_eq!((moved.status, moved.header("Location")), (301, Some("/dir/?x")), "{target}");
            }
        },
    );
}

/// RFC 9110, 5.3: the lines of a list are one list.
#[test]
fn conditions_in_several_lines_are_one_list() {
    with_server(
        |scratch| drop(scratch.file("x", "krill")),
        |site| async move {
            let mut client = site.client().await;
            let tag = client.get("/x").await.header("ETag").unwrap().to_owned();
            let future = "If-Modified-Since: Fri, 31 Dec 9999 23:59:59 GMT\r\n";
            for (headers, status) in [
                (format!("If-None-Match: \"a\"\r\nIf-None-Match: {tag}\r\n"), 304),
                (format!("If-None-Match: \"a\"\r\nIf-None-Match: \"b\"\r\n{future}"), 200),
                (format!("If-None-Match: \"\u{e9}\"\r\n{future}"), 200),
                (format!("If-None-Match: {tag}\r\nIf-None-Match: \"\u{e9}\"\r\n"), 304),
                ("If-Match: \"a\"\r\nIf-Match: \"b\"\r\n".to_owned(), 412),
                (format!("If-Match: \"a\"\r\nIf-Match: {tag}\r\n"), 200),
                ("Range: bytes=0-0\r\nIf-Range: \"a\"\r\nIf-Range: \"b\"\r\n".to_owned(), 200),
                (format!("Range: bytes=0-0\r\nIf-Range: {tag}\r\n"), 206),
            ] {
                assert_eq!(client.request("GET /x", &headers).await.status, status, "{headers}");
            }
            client.send(b"GET /x HTTP/1.1\r\nHost: h\r\nIf-Match: \"\xff\"\r\n\r\n").await;
            assert_eq!(client.response(false).await.unwrap().status, 412, "a tag need not be UTF-8");
        },
    );
}

/// A header has no year 10000, but `tmpfs` has.
#[test]
fn file_of_any_time_is_served() {
    let root = Path::new("/dev/shm").join(format!("dunlin-web-times-{}", std::process::id()));
    fs::create_dir_all(&root).unwrap();
    with_server(
        |scratch| {
            fs::remove_dir(scratch.path("root")).unwrap();
            std::os::unix::fs::symlink(&root, scratch.path("root")).unwrap();
            for (name, seconds) in [("last", 253_402_300_799), ("later", 253_402_300_800), ("far", 1 << 60)] {
                let file = fs::File::create(root.join(name)).unwrap();
                file.set_modified(SystemTime::UNIX_EPOCH + StdDuration::from_secs(seconds)).unwrap();
                // Other file systems keep what they can represent.
                assert!(file.metadata().unwrap().mtime() > 0);
            }
        },
        |site| async move {
            for name in ["last", "later", "far"] {
                assert_eq!(site.client().await.get(&format!("/{name}")).await.status, 200, "{name}");
            }
        },
    );
    fs::remove_dir_all(root).unwrap();
}

/// A terminal that shows the log must not obey a client.
#[test]
fn request_lines_in_the_log_are_printable_ascii() {
    let scratch = Scratch::new();
    dunlin::block_on(async {
        let server = serve(&scratch, patient()).await;
        for line in [
            "GET /\u{1b}[2J HTTP/1.1",
            "\u{1b}c\u{7}",
            "GET /\u{9b}2J HTTP/1.1",
            "GET /\"\u{202e} HTTP/1.1",
            "GET /a\\ HTTP/1.1",
        ] {
            let mut client = Client::connect(&server.address.to_string()).await;
            client.send(format!("{line}\r\nHost: h\r\n\r\n")).await;
            assert!(client.response(false).await.unwrap().status >= 400, "{line:?}");
        }
        server.stop().await.unwrap();
    });
    let log = fs::read_to_string(scratch.path("log")).unwrap();
    assert_eq!(log.lines().count(), 5, "{log:?}");
    assert!(log.lines().all(|line| line.bytes().all(|byte| matches!(byte, b' '..=b'~'))), "{log:?}");
    assert!(log.contains("\"GET /%1B[2J HTTP/1.1\" 400 "), "{log}");
    assert!(log.contains("\"GET /a%5C HTTP/1.1\" 404 "), "{log}");
    assert!(log.lines().all(|line| line.matches('"').count() == 2), "{log}");
}

/// Its program may have done something.
#[test]
fn request_of_a_client_that_leaves_is_in_the_log() {
    let scratch = Scratch::new();
    scratch.program("floods", "printf 'Content-Type: a/b\\n\\n'; exec cat /dev/zero");
    dunlin::block_on(async {
        let server = serve(&scratch, patient()).await;
        let mut client = Client::connect(&server.address.to_string()).await;
        client.send("GET /cgi-bin/floods?squid HTTP/1.1\r\nHost: h\r\n\r\n").await;
        client.connection.read(1).await.unwrap();
        drop(client);
        server.stop().await.unwrap();
    });
    let log = fs::read_to_string(scratch.path("log")).unwrap();
    assert!(log.contains("\"GET /cgi-bin/floods?squid HTTP/1.1\" 499 "), "{log}");
}

#[test]
fn bodies_that_arrive_slowly_leave_the_places_of_programs_to_others() {
    with_limits(
        Limits { cgi_max: 1, bodies_max: 2, ..patient() },
        |scratch| scratch.program("cat", CAT),
        |site| async move {
            let head = "POST /cgi-bin/cat HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nkr";
            let (mut slow, mut slower) = (site.client().await, site.client().await);
            slow.send(head).await;
            slower.send(head).await;
            until(|| site.stats.bodies.get() == 2).await;
            let mut client = site.client().await;
            assert_eq!(client.get("/cgi-bin/cat").await.status, 200);
            assert_eq!(client.request("POST /cgi-bin/cat", "Content-Length: 5\r\n").await.status, 503);
            slow.send("ill").await;
            assert_eq!(slow.response(false).await.unwrap().text(), "krill");
            drop(slower);
            until(|| site.stats.bodies.get() == 0).await;
        },
    );
}

/// Each byte comes within the deadline of a piece.
#[test]
fn body_that_is_sent_byte_by_byte_times_out() {
    with_limits(
        Limits { piece: Duration::from_millis(200), body_rate_min: 1_000_000, ..patient() },
        |scratch| scratch.program("cat", CAT),
        |site| async move {
            let mut slow = site.client().await;
            slow.send("POST /cgi-bin/cat HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n").await;
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

/// Each piece goes out within its deadline, but all together would take longer than the program may.
#[test]
fn client_that_reads_slowly_does_not_keep_a_program_beyond_its_deadline() {
    with_limits(
        Limits { cgi: Duration::from_millis(300), ..patient() },
        |scratch| scratch.program("floods", "printf 'Content-Type: a/b\\n\\n'; exec cat /dev/zero"),
        |site| async move {
            let mut stuck = site.client().await;
            stuck.send("GET /cgi-bin/floods HTTP/1.1\r\nHost: h\r\n\r\n").await;
            until(|| site.stats.cut.get() == 1).await;
            until(|| site.stats.cgi.get() == 0).await;
        },
    );
}

/// Those that a program has started in its group end with it, however its response is framed.
#[test]
fn programs_that_a_program_leaves_behind_are_killed() {
    with_server(
        |scratch| {
            for (name, length) in [("chunks", ""), ("length", "Content-Length: 6\\n")] {
                let script = "sleep 1000 >/dev/null & printf '%06d' $! > ../pid";
                scratch.program(name, &format!("{script}; printf 'Content-Type: a/b\\n{length}\\n'; cat ../pid"));
            }
        },
        |site| async move {
            for name in ["chunks", "length"] {
                let response = site.client().await.get(&format!("/cgi-bin/{name}")).await;
                let pid: u32 = response.text().parse().unwrap();
                until(|| !runs(pid)).await;
            }
        },
    );
}

/// A program in a session of its own keeps the pipe of the body, and is not killed.
#[test]
fn body_that_the_program_leaves_to_others_ends_with_the_response() {
    with_server(
        |scratch| {
            let later = "touch ../left; while [ ! -e ../go ]; do :; done; cat > ../part; mv ../part ../rest";
            let script = format!("exec 3<&0; setsid sh -c '{later}' <&3 >/dev/null 2>&1 &");
            // Before it has left the group, it would be killed with it.
            let script = format!("{script}\nwhile [ ! -e ../left ]; do :; done");
            scratch.program("leaves", &format!("{script}\nprintf 'Content-Type: a/b\\n\\nkrill'"));
        },
        |site| async move {
            let mut client = site.client().await;
            let body = "x".repeat(900_000);
            let head = "POST /cgi-bin/leaves HTTP/1.1\r\nHost: h\r\nContent-Length: 900000\r\n\r\n";
            client.send(format!("{head}{body}")).await;
            assert_eq!(client.response(false).await.unwrap().text(), "krill");
            // The server is done with the program before it answers the next request.
            assert_eq!(client.get("/none").await.status, 404);
            let directory = site.root().parent().unwrap();
            fs::write(directory.join("go"), "").unwrap();
            until(|| directory.join("rest").exists()).await;
            let rest = fs::metadata(directory.join("rest")).unwrap().len();
            assert!(rest < 900_000, "nothing holds the rest of the body: {rest}");
        },
    );
}

/// Without a body a length would make a client wait for it, and take the next response for it.
#[test]
fn response_without_a_body_has_no_length() {
    with_server(
        |scratch| scratch.program("none", "printf 'Status: 204\\nContent-Length: 5\\n\\nkrill'"),
        |site| async move {
            let mut client = site.client().await;
            let none = client.get("/cgi-bin/none").await;
            assert_eq!((none.status, none.header("Content-Length")), (204, None));
            assert_eq!(client.get("/none").await.status, 404);
        },
    );
}

/// They would take all descriptors where the limit is low. A file has many names.
#[test]
fn files_that_stay_open_are_bounded() {
    with_limits(
        Limits { open_files_max: 3, ..patient() },
        |scratch| drop(scratch.file("a/x", "krill")),
        |site| async move {
            let path = fs::canonicalize(site.root().join("a/x")).unwrap();
            for slashes in 1..20 {
                assert_eq!(site.client().await.get(&format!("/a{}x", "/".repeat(slashes))).await.text(), "krill");
            }
            let open = open_at(&path);
            assert!((1..=3).contains(&open), "{open}");
        },
    );
}

/// RFC 9112, 2.2. A read may end in one of them.
#[test]
fn empty_lines_before_a_request_are_skipped_however_they_arrive() {
    with_server(
        |scratch| drop(scratch.file("x", "krill")),
        |site| async move {
            let mut client = site.client().await;
            let get = "GET /x HTTP/1.1\r\nHost: h\r\n\r\n";
            for (before, after) in [("", "\r\n\r\n"), ("\r", "\n\r\n"), ("\r\n\r", "\n\r\n\r\n")] {
                // One piece: with the response, the server has the bytes behind the request.
                client.send(format!("{get}{before}")).await;
                assert_eq!(client.response(false).await.unwrap().text(), "krill");
                client.send(format!("{after}{get}")).await;
                assert_eq!(client.response(false).await.unwrap().text(), "krill", "{before:?} {after:?}");
            }
        },
    );
}
