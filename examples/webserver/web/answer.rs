//! Responses: their heads, and their bodies in pieces.

use std::cell::RefCell;
use std::fmt::Write;
use std::ops::Range;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use dunlin::io::Bytes;

use super::condition::{Verdict, range_counts, verdict};
use super::file::Opened;
use super::range::{Wanted, wanted};
use super::request::{Method, Request};
use super::status::Status;

/// A response whose length is known.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: Status,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Vec<Piece>,
}

#[derive(Debug)]
pub(crate) enum Piece {
    Bytes(Bytes),
    File(Arc<Opened>, Range<u64>),
}

/// The separator of the parts of a response with several ranges.
const BOUNDARY: &str = "dunlin-part";

impl Answer {
    pub(crate) fn page(status: Status, content_type: &str, body: impl Into<Bytes>) -> Self {
        let headers = vec![("Content-Type", content_type.to_owned())];
        Self { status, headers, body: vec![Piece::Bytes(body.into())] }
    }

    /// A page that names the error.
    pub(crate) fn error(status: Status) -> Self {
        let (code, reason) = (status.code(), status.reason());
        let body = format!("<!DOCTYPE html>\n<title>{code} {reason}</title>\n<h1>{code} {reason}</h1>\n");
        let mut answer = Self::page(status, "text/html; charset=utf-8", body);
        match status {
            Status::MethodNotAllowed => answer.headers.push(("Allow", "GET, HEAD".to_owned())),
            Status::ServiceUnavailable => answer.headers.push(("Retry-After", "1".to_owned())),
            _ => {}
        }
        answer
    }

    pub(crate) fn moved(location: String) -> Self {
        let mut answer = Self::error(Status::Moved);
        answer.headers.push(("Location", location));
        answer
    }

    /// A file, a part of it, or the answer that the client's copy is current.
    pub(crate) fn file(request: &Request, file: &Arc<Opened>) -> Self {
        let mut headers = vec![
            ("ETag", file.validators.tag.clone()),
            ("Last-Modified", file.validators.modified_text.clone()),
            ("Accept-Ranges", "bytes".to_owned()),
        ];
        match verdict(request, &file.validators) {
            Verdict::Send => {}
            Verdict::NotModified => return Self { status: Status::NotModified, headers, body: Vec::new() },
            Verdict::Failed => return Self::error(Status::PreconditionFailed),
        }
        let length = file.length;
        let range = request.header("Range").filter(|_| request.method == Method::Get);
        let range = range.filter(|_| range_counts(request, &file.validators));
        let piece = |range: Range<u64>| Piece::File(file.clone(), range);
        let place = |range: &Range<u64>| format!("bytes {}-{}/{length}", range.start, range.end - 1);
        let (status, body) = match wanted(range, length) {
            Wanted::Whole => (Status::Ok, vec![piece(0..length)]),
            Wanted::Nothing => {
                let mut answer = Self::error(Status::RangeNotSatisfiable);
                answer.headers.push(("Content-Range", format!("bytes */{length}")));
                return answer;
            }
            Wanted::Pieces(pieces) if pieces.len() == 1 => {
                headers.push(("Content-Range", place(&pieces[0])));
                (Status::PartialContent, pieces.into_iter().map(piece).collect())
            }
            Wanted::Pieces(pieces) => {
                let mut body = Vec::new();
                for range in pieces {
                    let (kind, place) = (&file.content_type, place(&range));
                    let head = format!("\r\n--{BOUNDARY}\r\nContent-Type: {kind}\r\nContent-Range: {place}\r\n\r\n");
                    body.push(Piece::Bytes(head.into()));
                    body.push(piece(range));
                }
                body.push(Piece::Bytes(format!("\r\n--{BOUNDARY}--\r\n").into()));
                headers.push(("Content-Type", format!("multipart/byteranges; boundary={BOUNDARY}")));
                return Self { status: Status::PartialContent, headers, body };
            }
        };
        headers.push(("Content-Type", file.content_type.clone()));
        Self { status, headers, body }
    }

    pub(crate) fn length(&self) -> u64 {
        let lengths = self.body.iter().map(|piece| match piece {
            Piece::Bytes(bytes) => bytes.len() as u64,
            Piece::File(_, range) => range.end - range.start,
        });
        lengths.sum()
    }
}

/// The state of the connection after a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    Close,
    /// A response to an HTTP/1.0 client must declare it.
    KeepAlive {
        is_1_1: bool,
    },
}

/// The head of a response, with its empty line.
pub(crate) fn head<'a>(status: Status, headers: impl IntoIterator<Item = (&'a str, &'a str)>, after: After) -> String {
    let (code, reason) = (status.code(), status.reason());
    // Most heads are shorter.
    let mut head = String::with_capacity(384);
    let _ = now(|date| write!(head, "HTTP/1.1 {code} {reason}\r\nDate: {date}\r\nServer: dunlin\r\n"));
    for (name, value) in headers {
        [name, ": ", value, "\r\n"].iter().for_each(|part| head.push_str(part));
    }
    head.push_str(match after {
        After::Close => "Connection: close\r\n\r\n",
        After::KeepAlive { is_1_1: false } => "Connection: keep-alive\r\n\r\n",
        After::KeepAlive { is_1_1: true } => "\r\n",
    });
    head
}

// The second of this thread's last response, and its text.
thread_local!(static NOW: RefCell<(u64, String)> = const { RefCell::new((u64::MAX, String::new())) });

/// Passes on the time as headers have it, whose text is made once in a second.
pub(crate) fn now<R>(then: impl FnOnce(&str) -> R) -> R {
    let now = SystemTime::now();
    let second = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    NOW.with_borrow_mut(|(last, text)| {
        if std::mem::replace(last, second) != second {
            *text = httpdate::fmt_http_date(now);
        }
        then(text)
    })
}
