//! The process of a connection: answers requests, one after the other.

use std::io;

use super::answer::Answer;
use super::cgi;
use super::client::{Client, NoRequest, Sent};
use super::file::Found;
use super::request::{self, Framing, Method, Request};
use super::status::Status;

/// Serves requests until the client, a deadline or the server ends the connection.
pub(crate) async fn serve(mut client: Client) {
    loop {
        let head = match client.read_head().await {
            Ok(head) => head,
            Err(NoRequest::Ended) => return,
            Err(NoRequest::Refused(status)) => return client.refuse("-", status).await,
        };
        let request = match request::parse(&head) {
            Ok(request) => request,
            Err(status) => {
                let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
                return client.refuse(&String::from_utf8_lossy(line), status).await;
            }
        };
        // Apart, so that an idle connection has no room for it.
        match Box::pin(answer(&mut client, &request)).await {
            Ok(sent) => {
                client.note(&format!("{} {}", request.method.name(), request.target), &sent);
                if !sent.goes_on {
                    return client.close().await;
                }
            }
            // The client has left.
            Err(_) => {
                client.site.stats.cut.add(1);
                return;
            }
        }
    }
}

async fn answer(client: &mut Client, request: &Request) -> io::Result<Sent> {
    if client.site.is_cgi(&request.path) {
        return cgi::answer(client, request).await;
    }
    let answer = if request.method == Method::Post {
        Answer::error(Status::MethodNotAllowed)
    } else if request.path == "/stats.html" {
        Answer::page(Status::Ok, "text/html; charset=utf-8", client.site.stats.page())
    } else {
        find(client, request).await
    };
    // What has a body that nobody reads is at its end: the body would be taken for a request.
    let keep_alive = request.keep_alive && request.body == Framing::Length(0);
    client.send(request, answer, keep_alive).await
}

async fn find(client: &Client, request: &Request) -> Answer {
    let path = match request.path.strip_suffix('/') {
        Some(directory) => format!("{directory}/index.html"),
        None => request.path.clone(),
    };
    match client.site.files.find(&path).await {
        Ok(Found::File(file)) => Answer::file(request, &file),
        Ok(Found::Directory) => {
            let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
            let query = if query.is_empty() { String::new() } else { format!("?{query}") };
            // Two slashes would name a host.
            Answer::moved(format!("/{}/{query}", path.trim_start_matches('/')))
        }
        Err(status) => Answer::error(status),
    }
}
