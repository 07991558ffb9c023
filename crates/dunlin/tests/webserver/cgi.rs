//! CGI programs: their input, their permitted output, and that none is left.

use dunlin::prelude::*;

use super::web::limits::Limits;
use super::web::status::Status;
use super::{Site, patient, with_limits, with_server};
use crate::web::cgi::parse_head;

async fn until_none_runs(site: &Site) {
    while site.stats.cgi.get() > 0 {
        tokio::task::yield_now().await;
    }
}

#[test]
fn program_gets_its_variables_and_the_body_and_nothing_else() {
    with_server(
        |scratch| {
            scratch.program("env", "printf 'Content-Type: text/plain\\n\\n'; env; echo; cat");
        },
        |site| async move {
            let mut client = site.client().await;
            client
                .send(
                    "POST /cgi-bin/env/more/info?a=1&b HTTP/1.1\r\nHost: krill:80\r\nContent-Length: 5\r\nProxy: evil\r\n\
                     X_Y: evil\r\nAuthorization: evil\r\nX-Y: good\r\nContent-Type: x/y\r\n\r\nsquid",
                )
                .await;
            let response = client.response(false).await.unwrap();
            assert_eq!((response.status, response.header("Content-Type")), (200, Some("text/plain")));
            assert!(response.is_whole);
            let (variables, body) = response.text().split_once("\n\n").unwrap();
            assert_eq!(body, "squid");
            for expected in [
                "GATEWAY_INTERFACE=CGI/1.1",
                "REQUEST_METHOD=POST",
                "QUERY_STRING=a=1&b",
                "SCRIPT_NAME=/cgi-bin/env",
                "PATH_INFO=/more/info",
                "CONTENT_LENGTH=5",
                "CONTENT_TYPE=x/y",
                "SERVER_NAME=krill",
                "REMOTE_ADDR=127.0.0.1",
                "HTTP_X_Y=good",
            ] {
                assert!(variables.lines().any(|line| line == expected), "{expected} is not in\n{variables}");
            }
            assert!(!variables.contains("evil"), "{variables}");
            assert!(!variables.contains("CARGO"), "the environment is not inherited: {variables}");
            // The connection stays open.
            assert_eq!(client.get("/cgi-bin/env").await.status, 200);
        },
    );
}

#[test]
fn chunked_body_is_gathered_in_memory_or_a_file_and_has_a_length() {
    with_server(
        |scratch| scratch.program("cat", "printf 'Content-Type: text/plain\\n\\n'; echo $CONTENT_LENGTH; cat"),
        |site| async move {
            for size in [0, 10, 1_000_000, 3_000_000] {
                let mut client = site.client().await;
                let mut request =
                    b"POST /cgi-bin/cat HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
                let body: Vec<u8> = (0..size).map(|n| b'a' + (n % 26) as u8).collect();
                for chunk in body.chunks(70_000) {
                    request.extend_from_slice(format!("{:x};extension\r\n", chunk.len()).as_bytes());
                    request.extend_from_slice(chunk);
                    request.extend_from_slice(b"\r\n");
                }
                request.extend_from_slice(b"0\r\nTrailer: x\r\n\r\nGET /none HTTP/1.1\r\nHost: h\r\n\r\n");
                client.send(request).await;
                let response = client.response(false).await.unwrap();
                assert!(response.is_whole);
                let (length, got) = response.text().split_once('\n').unwrap();
                assert_eq!(length, size.to_string());
                assert!(got.as_bytes() == body);
                assert_eq!(
                    client.response(false).await.unwrap().status,
                    404,
                    "the next request begins behind the body"
                );
            }
        },
    );
}

#[test]
fn server_sends_continue_before_it_reads_the_body() {
    with_server(
        |scratch| scratch.program("cat", "printf 'Content-Type: text/plain\\n\\n'; cat"),
        |site| async move {
            let mut client = site.client().await;
            client
                .send("POST /cgi-bin/cat HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
                .await;
            assert_eq!(client.response(false).await.unwrap().status, 100);
            client.send("krill").await;
            assert_eq!(client.response(false).await.unwrap().text(), "krill");
            let none = client.request("POST /cgi-bin/cat", "Content-Length: 0\r\nExpect: 100-continue\r\n").await;
            assert_eq!(none.status, 200, "there is nothing to continue with");
        },
    );
}

#[test]
fn status_and_length_of_a_program_are_its_response() {
    with_server(
        |scratch| {
            scratch.program("teapot", "printf 'Status: 418 Teapot\\r\\nContent-Type: a/b\\r\\n\\r\\nshort'");
            scratch.program("length", "printf 'Content-Type: a/b\\nContent-Length: 5\\n\\nkrill and more'");
            scratch.program("nothing", "printf 'Status: 204\\n\\n'");
        },
        |site| async move {
            let mut client = site.client().await;
            let teapot = client.get("/cgi-bin/teapot").await;
            assert_eq!((teapot.status, teapot.text()), (418, "short"));
            let length = client.get("/cgi-bin/length").await;
            assert_eq!((length.text(), length.header("Transfer-Encoding")), ("krill", None));
            assert_eq!(client.get("/cgi-bin/nothing").await.status, 204);
            let head = client.request("HEAD /cgi-bin/teapot", "").await;
            assert_eq!(head.status, 418);
            client.send("GET /cgi-bin/teapot HTTP/1.0\r\n\r\n").await;
            let old = client.response(false).await.unwrap();
            assert_eq!((old.text(), old.header("Transfer-Encoding")), ("short", None), "1.0 knows no chunks");
        },
    );
}

/// RFC 3875, 6.2.2: the client does not see the redirection.
#[test]
fn location_that_is_a_path_is_answered_in_place() {
    with_server(
        |scratch| {
            scratch.file("x y", "krill");
            scratch.program("file", "cat >&2; echo 'Location: /x%20y?a=b'; echo");
            scratch.program("env", "printf 'Content-Type: a/b\\n\\n'; env; cat");
            scratch
                .program("program", "printf 'Location: /cgi-bin/env/info?a=b\\nX: y\\n\\n'; echo nothing reads this");
            scratch.program("stats", "printf 'Location: /stats.html\\n\\n'");
            scratch.program("missing", "printf 'Location: /none\\n\\n'");
        },
        |site| async move {
            let mut client = site.client().await;
            let file = client.get("/cgi-bin/file").await;
            assert_eq!((file.status, file.text(), file.header("Location")), (200, "krill", None));
            client.send("POST /cgi-bin/file HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nsquid").await;
            assert_eq!(client.response(false).await.unwrap().text(), "krill", "it is a GET");
            let head = client.request("HEAD /cgi-bin/file", "").await;
            assert_eq!((head.status, head.header("Content-Length")), (200, Some("5")));
            let part = client.request("GET /cgi-bin/file", "Range: bytes=1-2\r\n").await;
            assert_eq!((part.status, part.text()), (206, "ri"));
            let body = "POST /cgi-bin/program HTTP/1.1\r\nHost: h\r\nX-Y: z\r\nContent-Type: c/d\r\nContent-Length: 5\r\n\r\nsquid";
            client.send(body).await;
            let program = client.response(false).await.unwrap();
            assert_eq!((program.status, program.header("X")), (200, None));
            for expected in ["REQUEST_METHOD=GET", "PATH_INFO=/info", "QUERY_STRING=a=b", "HTTP_X_Y=z"] {
                assert!(program.text().lines().any(|line| line == expected), "{expected}: {}", program.text());
            }
            for other in ["CONTENT_LENGTH", "CONTENT_TYPE", "squid"] {
                assert!(!program.text().contains(other), "{other}: {}", program.text());
            }
            assert!(client.get("/cgi-bin/stats").await.text().contains("CGI programs now</td><td>0<"), "it has ended");
            assert_eq!(client.get("/cgi-bin/missing").await.status, 404);
        },
    );
}

/// RFC 3875, 6.2.3 and 6.2.4.
#[test]
fn location_that_is_a_uri_is_for_the_client() {
    with_server(
        |scratch| {
            scratch.program("found", "printf 'Location: http://elsewhere/x#y\\n\\n'");
            scratch.program("page", "printf 'Status: 307 x\\nLocation: http://e/\\nContent-Type: a/b\\n\\nkrill'");
            scratch.program("made", "printf 'Status: 201\\nLocation: /made/7\\n\\n'");
        },
        |site| async move {
            let mut client = site.client().await;
            let found = client.get("/cgi-bin/found").await;
            assert_eq!((found.status, found.header("Location"), found.text()), (302, Some("http://elsewhere/x#y"), ""));
            let page = client.get("/cgi-bin/page").await;
            assert_eq!((page.status, page.header("Location"), page.text()), (307, Some("http://e/"), "krill"));
            let made = client.get("/cgi-bin/made").await;
            assert_eq!(
                (made.status, made.header("Location")),
                (201, Some("/made/7")),
                "with a status it is no redirection"
            );
        },
    );
}

#[test]
fn location_that_loops_or_fails_is_a_bad_gateway() {
    with_limits(
        Limits { cgi_redirects_max: 3, ..patient() },
        |scratch| {
            scratch.file("x", "krill");
            scratch.program("loop", "printf 'Location: /cgi-bin/loop\\n\\n'; echo >> ../loops");
            scratch.program("up", "printf 'Location: /../secret\\n\\n'");
            scratch.program("crash", "printf 'Location: /x\\n\\n'; exit 1");
            for (number, steps) in ["/x", "/cgi-bin/0", "/cgi-bin/1", "/cgi-bin/2"].into_iter().enumerate() {
                scratch.program(&number.to_string(), &format!("printf 'Location: {steps}\\n\\n'"));
            }
        },
        |site| async move {
            let mut client = site.client().await;
            for name in ["loop", "up", "crash", "3"] {
                assert_eq!(client.get(&format!("/cgi-bin/{name}")).await.status, 502, "{name}");
            }
            let loops = std::fs::read_to_string(site.root().parent().unwrap().join("loops")).unwrap();
            assert_eq!(loops.lines().count(), 4);
            assert_eq!(client.get("/cgi-bin/2").await.text(), "krill", "as many as are allowed");
        },
    );
}

/// The program's remaining work comes before the redirected response.
#[test]
fn program_with_a_location_runs_to_its_end_or_its_deadline() {
    with_limits(
        Limits { cgi: Duration::from_millis(300), ..patient() },
        |scratch| {
            scratch.program("stays", "printf 'Location: /x\\n\\n'; sleep 1000");
            scratch.program("floods", "printf 'Location: /x\\n\\n'; exec cat /dev/zero");
        },
        |site| async move {
            for name in ["stays", "floods"] {
                assert_eq!(site.client().await.get(&format!("/cgi-bin/{name}")).await.status, 504, "{name}");
            }
            until_none_runs(&site).await;
        },
    );
}

#[test]
fn program_that_crashes_closes_early_or_writes_bad_headers_is_a_bad_gateway() {
    with_server(
        |scratch| {
            scratch.program("crash", "kill -9 $$");
            scratch.program("closes", "exec >&-; sleep 1000");
            scratch.program("empty", "");
            scratch.program("bad", "printf 'krill\\n\\nbody'");
            scratch.program("silent", "printf 'X-Y: z\\n\\n'");
            scratch.program(
                "long",
                "while echo 'X: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'; do :; done",
            );
            scratch.program("status", "printf 'Status: 42\\n\\n'");
            scratch.program("split", "printf 'Content-Type: a/b\\rX: y\\n\\n'");
        },
        |site| async move {
            let mut client = site.client().await;
            for name in ["crash", "closes", "empty", "bad", "silent", "long", "status", "split"] {
                assert_eq!(client.get(&format!("/cgi-bin/{name}")).await.status, 502, "{name}");
            }
            for name in ["none", "", "../cgi/crash", "%2e%2e/x"] {
                let status = client.get(&format!("/cgi-bin/{name}")).await.status;
                assert!(matches!(status, 400 | 404), "{name}: {status}");
                client = site.client().await;
            }
            until_none_runs(&site).await;
        },
    );
}

/// Only the end of the connection can report a crash behind the head.
#[test]
fn program_that_crashes_in_its_output_ends_the_connection_in_the_middle() {
    with_server(
        |scratch| {
            scratch.program("crash", "printf 'Content-Type: a/b\\n\\nkrill'; kill -9 $$");
            scratch.program("short", "printf 'Content-Type: a/b\\nContent-Length: 100\\n\\nkrill'");
        },
        |site| async move {
            for name in ["crash", "short"] {
                let mut client = site.client().await;
                let response = client.get(&format!("/cgi-bin/{name}")).await;
                assert!(!response.is_whole, "{name}: {response:?}");
                assert_eq!(&response.body[..], b"krill");
            }
            assert_eq!(site.stats.cut.get(), 2);
        },
    );
}

#[test]
fn program_that_writes_no_head_is_killed_at_its_deadline() {
    with_limits(
        Limits { cgi_head: Duration::from_millis(100), ..patient() },
        |scratch| scratch.program("hangs", "sleep 1000"),
        |site| async move {
            assert_eq!(site.client().await.get("/cgi-bin/hangs").await.status, 504);
            until_none_runs(&site).await;
        },
    );
}

#[test]
fn program_that_does_not_end_or_floods_is_killed_at_its_deadline() {
    with_limits(
        Limits { cgi: Duration::from_millis(300), ..patient() },
        |scratch| {
            scratch.program("stops", "printf 'Content-Type: a/b\\n\\n'; echo $$; sleep 1000");
            scratch.program("floods", "printf 'Content-Type: a/b\\n\\n'; exec cat /dev/zero");
        },
        |site| async move {
            let stopped = site.client().await.get("/cgi-bin/stops").await;
            assert!(!stopped.is_whole);
            // On a busy machine the deadline may pass before it has written its number.
            if let Ok(pid) = stopped.text().trim().parse::<u32>() {
                while std::fs::exists(format!("/proc/{pid}")).unwrap() {
                    tokio::task::yield_now().await;
                }
            }
            assert!(!site.client().await.get("/cgi-bin/floods").await.is_whole);
            until_none_runs(&site).await;
        },
    );
}

/// Its program delays no other request: it ends with the connection.
#[test]
fn client_that_leaves_ends_its_program() {
    with_server(
        |scratch| scratch.program("floods", "printf 'Content-Type: a/b\\n\\n'; exec cat /dev/zero"),
        |site| async move {
            let mut client = site.client().await;
            client.send("GET /cgi-bin/floods HTTP/1.1\r\nHost: h\r\n\r\n").await;
            client.connection.read(1).await.unwrap();
            drop(client);
            while site.stats.connections.get() > 0 {
                tokio::task::yield_now().await;
            }
            assert_eq!((site.stats.cgi.get(), site.stats.cut.get()), (0, 1));
        },
    );
}

/// The lines of a header are one list (RFC 3875, 4.1.18), and their bytes need not be UTF-8.
#[test]
fn program_gets_all_lines_of_a_header_as_they_are() {
    with_server(
        |scratch| scratch.program("header", "printf 'Content-Type: a/b\\n\\n'; printf %s \"$HTTP_X_Y\""),
        |site| async move {
            let mut client = site.client().await;
            client.send(b"GET /cgi-bin/header HTTP/1.1\r\nHost: h\r\nX-Y: krill\r\nx-y: \xe9\r\n\r\n").await;
            assert_eq!(client.response(false).await.unwrap().body, b"krill, \xe9");
        },
    );
}

#[test]
fn more_programs_than_the_limit_are_unavailable() {
    with_limits(
        Limits { cgi_max: 1, ..patient() },
        |scratch| {
            let script = "printf 'Content-Type: a/b\\n\\nkr'; while [ ! -e ../go ]; do :; done; printf ill";
            scratch.program("waits", script);
        },
        |site| async move {
            let (mut first, mut second) = (site.client().await, site.client().await);
            first.send("GET /cgi-bin/waits HTTP/1.1\r\nHost: h\r\n\r\n").await;
            let begin = first.connection.read(4096).await.unwrap();
            first.unread(&begin);
            let refused = second.get("/cgi-bin/waits").await;
            assert_eq!((refused.status, refused.header("Retry-After")), (503, Some("1")));
            std::fs::write(site.root().parent().unwrap().join("go"), "").unwrap();
            assert_eq!(first.response(false).await.unwrap().text(), "krill");
            until_none_runs(&site).await;
            assert_eq!(site.client().await.get("/cgi-bin/waits").await.status, 200);
        },
    );
}

#[test]
fn head_of_a_program_has_a_bound() {
    with_limits(
        Limits { cgi_head_max: 1_000, ..patient() },
        |scratch| {
            for (name, length) in [("most", 950), ("more", 1_050)] {
                let head = format!("Content-Type: a/b\nX: {}", "x".repeat(length));
                // In two parts, so that the first read does not take the second one.
                scratch
                    .program(name, &format!("printf '{head}'; while [ ! -e ../go ]; do :; done; printf '\\n\\nkrill'"));
            }
        },
        |site| async move {
            let mut client = site.client().await;
            assert_eq!(client.get("/cgi-bin/more").await.status, 502, "it is too long before it ends");
            std::fs::write(site.root().parent().unwrap().join("go"), "").unwrap();
            assert_eq!(client.get("/cgi-bin/most").await.text(), "krill");
        },
    );
}

#[test]
fn body_that_is_too_large_is_refused_before_it_is_read() {
    with_limits(
        Limits { body_max: 1_000, ..patient() },
        |scratch| scratch.program("cat", "printf 'Content-Type: a/b\\n\\n'; cat"),
        |site| async move {
            for request in [
                "Content-Length: 1001\r\n\r\n",
                "Content-Length: 99999999999999999999999999\r\n\r\n",
                "Transfer-Encoding: chunked\r\n\r\n3e9\r\n",
            ] {
                let mut client = site.client().await;
                let body = if request.contains("chunked") { "x".repeat(1_001) } else { String::new() };
                client.send(format!("POST /cgi-bin/cat HTTP/1.1\r\nHost: h\r\n{request}{body}")).await;
                assert_eq!(client.response(false).await.unwrap().status, 413, "{request}");
                assert!(client.is_at_end().await);
            }
            // The permitted maximum, in both framings.
            let krill = "k".repeat(1_000);
            for request in [
                format!("Content-Length: 1000\r\n\r\n{krill}"),
                format!("Transfer-Encoding: chunked\r\n\r\n3e8\r\n{krill}\r\n0\r\n\r\n"),
            ] {
                let mut client = site.client().await;
                client.send(format!("POST /cgi-bin/cat HTTP/1.1\r\nHost: h\r\n{request}")).await;
                assert_eq!(client.response(false).await.unwrap().text(), krill);
            }
        },
    );
}

#[test]
fn head_of_a_program_is_read_or_refused() {
    let cgi = parse_head(
        b"content-TYPE: a/b\r\nX-Y:z \r\nTransfer-Encoding: chunked\r\nConnection: close\r\nContent-Length: 7\r\n\r\n",
    )
    .unwrap();
    assert_eq!((cgi.status, cgi.length), (Status::Ok, Some(7)));
    assert_eq!(cgi.headers, [("content-TYPE".to_owned(), "a/b".to_owned()), ("X-Y".to_owned(), "z".to_owned())]);
    for bad in [
        "",
        "\n",
        "Location: krill\n\n",
        "Location: :x\n\n",
        "Location: 1:x\n\n",
        "Location: /a#b\n\n",
        "Location: \n\n",
        "Location: /a\nLocation: /b\n\n",
        "a/b\n\n",
        ": x\n\n",
        "a b: c\n\n",
        "Content-Type: a\nContent-Length: -1\n\n",
        "Content-Type: a\nContent-Length: 5\nContent-Length: 2\n\n",
        "Status: x\n\n",
        "Status: 100\n\n",
        "Status: 600\n\n",
    ] {
        assert_eq!(parse_head(bad.as_bytes()), None, "{bad:?}");
    }
}
