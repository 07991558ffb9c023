//! A client of the server: its connection, and the functions that read from it and write to it.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use dunlin::Instant;
use dunlin::io::{Address, Bytes, Connection};
use dunlin::prelude::*;
use rustix::net::sockopt::set_tcp_cork;

use super::answer::{After, Answer, Piece, head};
use super::body::{self, Body};
use super::file::Opened;
use super::limits::left;
use super::log::Log;
use super::request::{self, Framing, Method, Request};
use super::sendfile;
use super::site::Site;
use super::status::Status;

/// A client, and the handles that its process needs.
pub(crate) struct Client {
    pub(crate) site: Arc<Site>,
    pub(crate) connection: Connection,
    /// Bytes received but not parsed yet, also those of later requests.
    pub(crate) buffer: Vec<u8>,
    /// Ends when the server stops.
    pub(crate) stop: Shared<Receiver<()>>,
    pub(crate) log: Log,
    /// The address of its host.
    pub(crate) name: String,
    /// Whether there were too many connections when this one was accepted.
    pub(crate) is_one_too_many: bool,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.site.stats.connections.take(1);
    }
}

/// Why there is no request.
pub(crate) enum NoRequest {
    Ended,
    /// The request is refused, with the line for the log.
    Refused(Status, String),
}

/// The sent part of a response.
pub(crate) struct Sent {
    pub(crate) status: Status,
    pub(crate) bytes: u64,
    /// The client has the whole response, and may send its next request.
    pub(crate) goes_on: bool,
}

/// Most requests fit into one piece.
const PIECE: usize = 4096;

impl Client {
    pub(crate) fn new(site: Arc<Site>, connection: Connection, stop: Shared<Receiver<()>>, log: Log) -> Self {
        let name = match connection.peer() {
            Ok(Address::Tcp(address)) => address.ip().to_string(),
            _ => "-".to_owned(),
        };
        let is_one_too_many = site.stats.connections.add(1) > site.limits.connections_max as u64;
        Self { site, connection, buffer: Vec::new(), stop, log, name, is_one_too_many }
    }

    /// Reads the head of the next request.
    pub(crate) async fn read_head(&mut self) -> Result<Vec<u8>, NoRequest> {
        let limits = self.site.limits.clone();
        let (mut searched, mut deadline) = (0, None);
        let refused = |status| Err(NoRequest::Refused(status, "-".to_owned()));
        if self.is_one_too_many {
            return refused(Status::ServiceUnavailable);
        }
        loop {
            // Skips empty lines before a request, all at once: the buffer moves. A read may have ended
            // between the two bytes of one.
            let empty = self.buffer.chunks_exact(2).take_while(|line| line == b"\r\n").count();
            if empty > 0 {
                self.buffer.drain(..2 * empty);
                searched = 0;
            }
            match request::head_length(&self.buffer, &mut searched) {
                Ok(Some(length)) if length <= limits.head_max => {
                    let rest = self.buffer.split_off(length);
                    return Ok(std::mem::replace(&mut self.buffer, rest));
                }
                Ok(None) if self.buffer.len() <= limits.head_max => {}
                Ok(_) => return refused(Status::HeadTooLarge),
                Err(status) => return refused(status),
            }
            let is_idle = self.buffer.is_empty();
            if is_idle {
                // An idle connection holds no buffer.
                self.buffer = Vec::new();
            }
            let patience =
                if is_idle { limits.idle } else { left(*deadline.get_or_insert_with(|| Instant::now() + limits.head)) };
            let piece = alt! {
                piece = self.connection.read(PIECE).within(patience) => piece,
                _ = self.stop.recv(), if is_idle => return Err(NoRequest::Ended),
            };
            match piece {
                Ok(piece) if is_idle && !piece.is_empty() => self.buffer = piece.into(),
                Ok(piece) if !piece.is_empty() => self.buffer.extend_from_slice(&piece),
                Err(error) if error.kind() == io::ErrorKind::TimedOut && !is_idle => {
                    return refused(Status::RequestTimeout);
                }
                _ => return Err(NoRequest::Ended),
            }
        }
    }

    /// Sends a response whose length is known.
    pub(crate) async fn send(&mut self, request: &Request, answer: Answer, keep_alive: bool) -> io::Result<Sent> {
        let has_body = request.method != Method::Head && answer.status != Status::NotModified;
        let after = if keep_alive { After::KeepAlive { is_1_1: request.is_1_1 } } else { After::Close };
        if !keep_alive {
            // The end of the connection goes with the end of the response, in one packet.
            let _ = set_tcp_cork(&self.connection, true);
        }
        let status = answer.status;
        let (bytes, is_whole) = self.send_answer(answer, after, has_body).await?;
        Ok(Sent { status, bytes, goes_on: keep_alive && is_whole })
    }

    /// Sends a response. Returns the bytes of the body that were sent, and whether these are all.
    async fn send_answer(&mut self, answer: Answer, after: After, has_body: bool) -> io::Result<(u64, bool)> {
        let length = answer.length().to_string();
        let headers = answer.headers.iter().map(|(name, value)| (*name, value.as_str()));
        let length = (answer.status != Status::NotModified).then_some(("Content-Length", length.as_str()));
        let mut out = head(answer.status, headers.chain(length), after).into_bytes();
        let mut sent = 0;
        for piece in answer.body.into_iter().filter(|_| has_body) {
            match piece {
                Piece::Bytes(bytes) => {
                    sent += bytes.len() as u64;
                    out.extend_from_slice(&bytes);
                }
                Piece::File(file, range) => {
                    let length = range.end - range.start;
                    let got = self.send_file(&mut out, &file, range).await?;
                    sent += got;
                    if got < length {
                        // The head has declared the length, so only the end of the connection reports the
                        // failure to the client.
                        self.write(out).await?;
                        self.site.stats.cut.add(1);
                        return Ok((sent, false));
                    }
                }
            }
        }
        self.write(out).await?;
        Ok((sent, true))
    }

    /// Sends the bytes in `out`, and then a part of a file. Returns the number of the file's bytes that it
    /// sent: less than the range if the file has become shorter.
    async fn send_file(&mut self, out: &mut Vec<u8>, file: &Opened, mut range: Range<u64>) -> io::Result<u64> {
        let begin = range.start;
        if range.end - range.start >= self.site.limits.sendfile_min {
            self.write(std::mem::take(out)).await?;
            let (at, is_over) = sendfile::send(&mut self.connection, file, range.clone(), &self.site).await?;
            if is_over {
                return Ok(at - begin);
            }
            range.start = at;
        }
        while !range.is_empty() {
            let read = file.read(out, &range, self.site.limits.disk).await?;
            if read == 0 {
                break;
            }
            range.start += read as u64;
            self.write(std::mem::take(out)).await?;
        }
        Ok(range.start - begin)
    }

    /// Writes all bytes, each piece within its deadline.
    pub(crate) async fn write(&mut self, bytes: impl Into<Bytes>) -> io::Result<()> {
        self.write_until(bytes.into(), None).await
    }

    /// Writes all bytes, each piece within its deadline, and all until `deadline`.
    pub(crate) async fn write_until(&mut self, mut bytes: Bytes, deadline: Option<Instant>) -> io::Result<()> {
        while !bytes.is_empty() {
            let piece = self.site.limits.piece;
            let patience = deadline.map_or(piece, |deadline| left(deadline).min(piece));
            let written = self.connection.write(&mut bytes).within(patience).await?;
            self.site.stats.bytes.add(written as u64);
        }
        Ok(())
    }

    /// Reads the body of a request. The inner error is for the client.
    pub(crate) async fn read_body(&mut self, request: &Request) -> io::Result<Result<Body, Status>> {
        if request.expects_continue && request.body != Framing::Length(0) {
            self.write(Bytes::from_static(b"HTTP/1.1 100 Continue\r\n\r\n")).await?;
        }
        body::read(&mut self.connection, &mut self.buffer, request.body, &self.site.limits).await
    }

    /// Answers an invalid request, and ends the connection.
    pub(crate) async fn refuse(mut self, line: &str, status: Status) {
        match self.send_answer(Answer::error(status), After::Close, true).await {
            Ok((bytes, _)) => {
                self.note(line, &Sent { status, bytes, goes_on: false });
                self.close().await;
            }
            Err(_) => self.note_cut(line),
        }
    }

    pub(crate) fn note(&mut self, line: &str, sent: &Sent) {
        self.site.stats.responded(sent.status);
        self.log.line(&self.name, line, sent.status.code(), sent.bytes);
    }

    /// Records a request whose response could not be sent, mostly because its client left or did not read. A
    /// program may have run for it, so the log has it, with the status that other servers use for this.
    pub(crate) fn note_cut(&mut self, line: &str) {
        self.site.stats.cut.add(1);
        self.log.line(&self.name, line, 499, 0);
    }

    /// Lets the client read the response, even while it still sends.
    pub(crate) async fn close(mut self) {
        let _ = self.connection.close().within(self.site.limits.close).await;
    }
}
