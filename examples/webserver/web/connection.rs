//! The process of a connection: answers requests, one after the other.

use std::io;

use super::answer::Answer;
use super::cgi::{self, Outcome};
use super::client::{Client, NoRequest, Sent};
use super::file::Found;
use super::request::{self, Framing, Method, Request};
use super::site::{PREFIX, Site};
use super::status::Status;

/// A request, and the next step of its processing.
pub(crate) struct Turn {
    request: Request,
    pub(crate) next: Next,
    /// The request line for the log: a program may lead to another request.
    pub(crate) line: String,
    redirects: usize,
}

pub(crate) enum Next {
    File,
    Program,
    /// Send this response. The flag keeps the connection.
    Answer(Answer, bool),
}

/// What the server does with a connection after a request.
pub(crate) enum Then {
    NextRequest,
    /// The client may still be sending.
    Close,
    /// The client has left, or has announced that it sends nothing more.
    Drop,
}

/// Serves requests until the client, a deadline or the server ends the connection.
pub(crate) async fn serve(mut client: Client) {
    loop {
        let mut turn = match read(&mut client).await {
            Ok(turn) => turn,
            Err(NoRequest::Ended) => return client.close().await,
            Err(NoRequest::Refused(status, line)) => return Box::pin(client.refuse(&line, status)).await,
        };
        let sent = loop {
            // Boxed, so that an idle connection does not reserve memory for it.
            if let Some(sent) = Box::pin(turn.step(&mut client)).await.transpose() {
                break sent;
            }
        };
        match turn.end(&mut client, sent) {
            Then::NextRequest => {}
            Then::Close => return client.close().await,
            Then::Drop => return,
        }
    }
}

/// Reads the next request.
pub(crate) async fn read(client: &mut Client) -> Result<Box<Turn>, NoRequest> {
    let head = client.read_head().await?;
    let request = request::parse(&head).map_err(|status| {
        let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
        NoRequest::Refused(status, String::from_utf8_lossy(line).into_owned())
    })?;
    let line = [request.method.name(), &request.target, request.version()].join(" ");
    Ok(Box::new(Turn { next: first_step(&client.site, &request), request, line, redirects: 0 }))
}

impl Turn {
    /// Records the sent response.
    pub(crate) fn end(&self, client: &mut Client, sent: io::Result<Sent>) -> Then {
        match sent {
            Ok(sent) => {
                client.note(&self.line, &sent);
                if sent.goes_on {
                    return Then::NextRequest;
                }
                // A client that has announced its last request sends nothing after it (RFC 9112, 9.6).
                let is_last = !self.request.keep_alive && self.request.body == Framing::Length(0);
                if is_last && client.buffer.is_empty() { Then::Drop } else { Then::Close }
            }
            Err(_) => {
                client.note_cut(&self.line);
                Then::Drop
            }
        }
    }

    /// Performs the next step. `None`: more steps follow.
    pub(crate) async fn step(&mut self, client: &mut Client) -> io::Result<Option<Sent>> {
        match std::mem::replace(&mut self.next, Next::File) {
            Next::File => file(client, &self.request).await.map(Some),
            Next::Answer(answer, keep_alive) => client.send(&self.request, answer, keep_alive).await.map(Some),
            Next::Program => {
                self.next = match cgi::answer(client, &self.request).await? {
                    Outcome::Sent(sent) => return Ok(Some(sent)),
                    Outcome::Instead(answer, keep_alive) => Next::Answer(answer, keep_alive),
                    Outcome::Local(target) => self.redirected(&client.site, &target),
                };
                Ok(None)
            }
        }
    }

    fn redirected(&mut self, site: &Site, target: &str) -> Next {
        match self.request.redirected(target) {
            Ok(request) if self.redirects < site.limits.cgi_redirects_max => {
                self.redirects += 1;
                self.request = request;
                first_step(site, &self.request)
            }
            _ => Next::Answer(Answer::error(Status::BadGateway), self.request.keep_alive),
        }
    }
}

fn first_step(site: &Site, request: &Request) -> Next {
    if site.cgi.is_some() && request.path.starts_with(PREFIX) { Next::Program } else { Next::File }
}

async fn file(client: &mut Client, request: &Request) -> io::Result<Sent> {
    let answer = if request.method == Method::Post {
        Answer::error(Status::MethodNotAllowed)
    } else if request.path == "/stats.html" {
        Answer::page(Status::Ok, "text/html; charset=utf-8", client.site.stats.page())
    } else {
        find(client, request).await
    };
    // Close the connection after a request with an unread body: the server would parse the body as a request.
    let keep_alive = request.keep_alive && request.body == Framing::Length(0);
    client.send(request, answer, keep_alive).await
}

async fn find(client: &Client, request: &Request) -> Answer {
    let index = request.path.ends_with('/').then(|| format!("{}index.html", request.path));
    let path = index.as_ref().unwrap_or(&request.path);
    match client.site.files.find(path, client.site.limits.disk).await {
        Ok(Found::File(file)) => Answer::file(request, &file),
        Ok(Found::Directory) => {
            let (_, origin) = request::origin(&request.target);
            let (path, query) = origin.split_once('?').unwrap_or((origin, ""));
            let query = if query.is_empty() { String::new() } else { format!("?{query}") };
            // A target that begins with two slashes would name a host.
            Answer::moved(format!("/{}/{query}", path.trim_start_matches('/')))
        }
        Err(status) => Answer::error(status),
    }
}
