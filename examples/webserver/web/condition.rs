//! Conditional requests: pure functions.

use std::time::SystemTime;

use super::request::{Method, Request};

/// The validators with which a client may compare its copy of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Validators {
    /// The entity tag, with its quotes.
    pub(crate) tag: String,
    /// The time of the last change, to the second, as in headers.
    pub(crate) modified: SystemTime,
    /// The same as text.
    pub(crate) modified_text: String,
}

/// The result of a request's conditions.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Send,
    NotModified,
    Failed,
}

/// Evaluates the conditions, in the order of RFC 9110, section 13.2.2.
pub(crate) fn verdict(request: &Request, file: &Validators) -> Verdict {
    if let Some(tags) = request.list("If-Match") {
        if !names(&tags, &file.tag, false) {
            return Verdict::Failed;
        }
    } else if date(request, "If-Unmodified-Since").is_some_and(|since| file.modified > since) {
        return Verdict::Failed;
    }
    if let Some(tags) = request.list("If-None-Match") {
        if names(&tags, &file.tag, true) {
            return if request.method == Method::Post { Verdict::Failed } else { Verdict::NotModified };
        }
    } else if date(request, "If-Modified-Since").is_some_and(|since| file.modified <= since) {
        return Verdict::NotModified;
    }
    Verdict::Send
}

/// Whether the header `Range` applies: without `If-Range`, or if `If-Range` names this version of the file.
pub(crate) fn range_counts(request: &Request, file: &Validators) -> bool {
    match request.list("If-Range") {
        None => true,
        Some(tag) if tag.starts_with(b"\"") => tag == file.tag.as_bytes(),
        Some(_) => date(request, "If-Range") == Some(file.modified),
    }
}

fn names(tags: &[u8], tag: &str, weak: bool) -> bool {
    let is_it = |one: &[u8]| one == tag.as_bytes() || weak && one.strip_prefix(b"W/") == Some(tag.as_bytes());
    tags.trim_ascii() == b"*" || tags.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).any(is_it)
}

fn date(request: &Request, name: &str) -> Option<SystemTime> {
    httpdate::parse_http_date(request.header(name)?).ok()
}
