//! Bodies of requests: where they end, how large they may be, and what follows them.

use super::web::limits::Limits;
use super::{Site, patient, with_limits, with_server};

const CAT: &str = "printf 'Content-Type: text/plain\\n\\n'; cat";

fn exists(site: &Site, name: &str) -> bool {
    site.root().parent().unwrap().join(name).exists()
}

#[test]
fn body_beyond_the_limit_of_memory_is_in_a_file() {
    with_limits(
        Limits { body_memory_max: 1_000, ..patient() },
        |scratch| {
            let script = "printf 'Content-Type: text/plain\\n\\n'; readlink /proc/$$/fd/0; cat";
            scratch.program("where", script);
        },
        |site| async move {
            for (size, place) in [(1_000, "pipe:"), (1_001, "/"), (200_000, "/")] {
                let body = "k".repeat(size);
                for framed in [
                    format!("Content-Length: {size}\r\n\r\n{body}"),
                    format!("Transfer-Encoding: chunked\r\n\r\n{size:x}\r\n{body}\r\n0\r\n\r\n"),
                ] {
                    let mut client = site.client().await;
                    client.send(format!("POST /cgi-bin/where HTTP/1.1\r\nHost: h\r\n{framed}")).await;
                    let response = client.response(false).await.unwrap();
                    let (input, got) = response.text().split_once('\n').unwrap();
                    assert!(input.starts_with(place), "{size}: {input}");
                    assert!(got == body, "{size}");
                }
            }
        },
    );
}

#[test]
fn request_behind_the_body_of_another_one_is_answered() {
    with_server(
        |scratch| {
            scratch.program("cat", CAT);
            scratch.file("x", "salp");
        },
        |site| async move {
            for framed in
                ["Content-Length: 5\r\n\r\nkrill", "Transfer-Encoding: chunked\r\n\r\n5\r\nkrill\r\n0\r\n\r\n"]
            {
                let mut client = site.client().await;
                let next = "GET /x HTTP/1.1\r\nHost: h\r\n\r\n";
                client.send(format!("POST /cgi-bin/cat HTTP/1.1\r\nHost: h\r\n{framed}{next}")).await;
                assert_eq!(client.response(false).await.unwrap().text(), "krill");
                assert_eq!(client.response(false).await.unwrap().text(), "salp");
            }
        },
    );
}

/// The client has not sent what its head announced.
#[test]
fn body_that_ends_early_starts_no_program() {
    with_server(
        |scratch| scratch.program("starts", "touch ../started; printf 'Content-Type: a/b\\n\\n'"),
        |site| async move {
            for part in ["Content-Length: 5\r\n\r\nkril", "Transfer-Encoding: chunked\r\n\r\n5\r\nkrill\r\n"] {
                let mut client = site.client().await;
                client.send(format!("POST /cgi-bin/starts HTTP/1.1\r\nHost: h\r\n{part}")).await;
                drop(client);
            }
            while site.stats.accepted.get() < 2 || site.stats.connections.get() > 0 {
                tokio::task::yield_now().await;
            }
            assert!(!exists(&site, "started"));
            assert_eq!(site.stats.cut.get(), 2);
        },
    );
}

/// The server would take an unread body for a request.
#[test]
fn connection_ends_behind_a_body_that_is_refused() {
    let smuggled = "GET /x HTTP/1.1\r\nHost: h\r\n\r\n";
    with_limits(
        Limits { bodies_max: 0, ..patient() },
        |scratch| drop(scratch.file("x", "krill")),
        |site| async move {
            for (path, status) in [("/cgi-bin/any", 503), ("/x", 405)] {
                for framed in [
                    format!("Content-Length: {}\r\n\r\n{smuggled}", smuggled.len()),
                    format!("Transfer-Encoding: chunked\r\n\r\n{smuggled}"),
                ] {
                    let mut client = site.client().await;
                    client.send(format!("POST {path} HTTP/1.1\r\nHost: h\r\n{framed}")).await;
                    let response = client.response(false).await.unwrap();
                    assert_eq!((response.status, response.header("Connection")), (status, Some("close")));
                    assert!(client.is_at_end().await, "{path}");
                }
            }
        },
    );
}

#[test]
fn malformed_chunks_are_refused_and_start_no_program() {
    with_server(
        |scratch| scratch.program("starts", "touch ../started; printf 'Content-Type: a/b\\n\\n'"),
        |site| async move {
            for chunks in ["x\r\n", "5\r\nkrillX\r\n0\r\n\r\n", "5\r\nkrill0\r\n\r\n"] {
                let mut client = site.client().await;
                let head = "POST /cgi-bin/starts HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
                client.send(format!("{head}{chunks}")).await;
                let response = client.response(false).await.unwrap();
                assert_eq!((response.status, response.header("Connection")), (400, Some("close")), "{chunks:?}");
                assert!(client.is_at_end().await, "{chunks:?}");
            }
            assert!(!exists(&site, "started"));
        },
    );
}
