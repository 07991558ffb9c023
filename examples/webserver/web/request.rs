//! The head of a request: pure functions from bytes.

use super::status::Status;

/// A request whose head was well-formed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) method: Method,
    /// The target as the client wrote it, after the method.
    pub(crate) target: String,
    /// The path of the target, decoded, with one slash before it: no component is `.` or `..`, and none
    /// contains NUL or `/`.
    pub(crate) path: String,
    pub(crate) query: String,
    /// Whether the version is 1.1, not 1.0.
    pub(crate) is_1_1: bool,
    pub(crate) keep_alive: bool,
    pub(crate) body: Framing,
    /// Whether the client waits for `100 Continue` before it sends the body.
    pub(crate) expects_continue: bool,
    pub(crate) headers: Vec<(String, Vec<u8>)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Get,
    Head,
    Post,
}

/// Where the body of a request ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    Length(u64),
    Chunked,
}

impl Method {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
        }
    }
}

impl Request {
    /// The request whose response a CGI program returns as its own: from the same client, without a body.
    pub(crate) fn redirected(&self, target: &str) -> Result<Self, Status> {
        let (path, query) = split_target(target)?;
        let of_the_body = ["content-length", "content-type", "transfer-encoding", "expect"];
        let headers =
            self.headers.iter().filter(|(name, _)| !of_the_body.iter().any(|own| name.eq_ignore_ascii_case(own)));
        Ok(Self {
            method: if self.method == Method::Head { Method::Head } else { Method::Get },
            target: target.to_owned(),
            path,
            query,
            body: Framing::Length(0),
            expects_continue: false,
            headers: headers.cloned().collect(),
            ..*self
        })
    }

    pub(crate) fn version(&self) -> &'static str {
        if self.is_1_1 { "HTTP/1.1" } else { "HTTP/1.0" }
    }

    /// The value of a header that occurs exactly once.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let [value] = lines(&self.headers, name)[..] else { return None };
        std::str::from_utf8(value).ok()
    }

    /// The value of a header that is a list: its lines form one list (RFC 9110, section 5.3).
    pub(crate) fn list(&self, name: &str) -> Option<Vec<u8>> {
        let lines = lines(&self.headers, name);
        (!lines.is_empty()).then(|| lines.join(&b", "[..]))
    }
}

/// The values of all lines of a header.
fn lines<'a>(headers: &'a [(String, Vec<u8>)], name: &str) -> Vec<&'a [u8]> {
    headers.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| &**value).collect()
}

/// Headers of a request; more are refused with 431.
const HEADERS_MAX: usize = 100;

/// The length of the head at the beginning of `buffer`, with its empty line; `None` if it is incomplete.
/// `searched` is the part that earlier calls have scanned, so that a client that sends single bytes costs no
/// more.
pub(crate) fn head_length(buffer: &[u8], searched: &mut usize) -> Result<Option<usize>, Status> {
    for at in *searched..buffer.len() {
        if buffer[at] == b'\n' {
            if at == 0 || buffer[at - 1] != b'\r' {
                return Err(Status::BadRequest);
            }
            if at >= 3 && buffer[at - 2] == b'\n' {
                return Ok(Some(at + 1));
            }
        }
    }
    *searched = buffer.len();
    Ok(None)
}

/// Parses a complete head.
pub(crate) fn parse(head: &[u8]) -> Result<Request, Status> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut headers);
    match parsed.parse(head) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) => return Err(Status::BadRequest),
        Err(httparse::Error::TooManyHeaders) => return Err(Status::HeadTooLarge),
        Err(httparse::Error::Version) => return Err(Status::VersionNotSupported),
        Err(_) => return Err(Status::BadRequest),
    }
    let mut headers: Vec<(String, Vec<u8>)> =
        parsed.headers.iter().map(|header| (header.name.to_owned(), header.value.to_vec())).collect();
    let all = |name: &str| lines(&headers, name);
    let is_1_1 = parsed.version == Some(1);
    let method = match parsed.method {
        Some("GET") => Method::Get,
        Some("HEAD") => Method::Head,
        Some("POST") => Method::Post,
        Some("PUT" | "DELETE" | "OPTIONS" | "TRACE" | "CONNECT" | "PATCH") => return Err(Status::MethodNotAllowed),
        _ => return Err(Status::NotImplemented),
    };
    let hosts = all("Host");
    if hosts.len() > 1 || is_1_1 && hosts.is_empty() || !hosts.iter().all(|host| is_host(host)) {
        return Err(Status::BadRequest);
    }
    let body = framing(&all("Content-Length"), &all("Transfer-Encoding"), is_1_1)?;
    let connection = all("Connection").join(&b',').to_ascii_lowercase();
    let has_option = |option: &[u8]| connection.split(|byte| *byte == b',').any(|one| one.trim_ascii() == option);
    let keep_alive = !has_option(b"close") && (is_1_1 || has_option(b"keep-alive"));
    let expects_continue = match all("Expect")[..] {
        [] => false,
        [one] if one.eq_ignore_ascii_case(b"100-continue") => is_1_1,
        _ => return Err(Status::ExpectationFailed),
    };
    let target = parsed.path.unwrap_or_default().to_owned();
    let (path, query) = split_target(&target)?;
    if let (Some(authority), _) = origin(&target) {
        // It replaces the header (RFC 9112, 3.2.2).
        headers.retain(|(name, _)| !name.eq_ignore_ascii_case("Host"));
        headers.push(("Host".to_owned(), authority.as_bytes().to_vec()));
    }
    Ok(Request { method, path, query, target, is_1_1, keep_alive, body, expects_continue, headers })
}

/// A request that ends its body in two ways is refused: the next server could choose the other way.
fn framing(lengths: &[&[u8]], encodings: &[&[u8]], is_1_1: bool) -> Result<Framing, Status> {
    match (lengths, encodings) {
        ([], []) => Ok(Framing::Length(0)),
        // `parse` alone would accept a sign.
        ([length], []) if !length.is_empty() && length.iter().all(u8::is_ascii_digit) => {
            let length = std::str::from_utf8(length).ok().and_then(|digits| digits.parse().ok());
            length.map(Framing::Length).ok_or(Status::ContentTooLarge)
        }
        ([], [encoding]) if is_1_1 && encoding.eq_ignore_ascii_case(b"chunked") => Ok(Framing::Chunked),
        ([], [_]) if is_1_1 => Err(Status::NotImplemented),
        _ => Err(Status::BadRequest),
    }
}

/// Whether it is a host with or without a port, or empty (RFC 9110, 7.2). Programs may put it into a page.
fn is_host(value: &[u8]) -> bool {
    let colon = value.iter().rposition(|byte| *byte == b':').filter(|colon| !value[*colon..].contains(&b']'));
    let (host, port) = colon.map_or((value, &[][..]), |colon| (&value[..colon], &value[colon + 1..]));
    let is_in_address = |byte: &u8| byte.is_ascii_hexdigit() || b":.".contains(byte);
    let is_in_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=".contains(byte);
    let is_literal = |host: &[u8]| host.strip_suffix(b"]").is_some_and(|address| address.iter().all(is_in_address));
    port.iter().all(u8::is_ascii_digit)
        && host.strip_prefix(b"[").map_or_else(|| host.iter().all(is_in_name), is_literal)
}

/// The authority of a target in absolute form, and the rest, without a fragment. A target in origin form has
/// no authority.
pub(crate) fn origin(target: &str) -> (Option<&str>, &str) {
    let target = target.split('#').next().unwrap_or_default();
    match target.split_once("://") {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => {
            let (authority, rest) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
            (Some(authority), rest)
        }
        _ => (None, target),
    }
}

/// The decoded path and the query of a target in origin form or absolute form.
fn split_target(target: &str) -> Result<(String, String), Status> {
    let (authority, origin) = origin(target);
    let (path, query) = origin.split_once('?').unwrap_or((origin, ""));
    let path = if path.is_empty() && authority.is_some() { "/" } else { path };
    let has_host = authority.map(str::as_bytes).is_none_or(|host| !matches!(host, [] | [b':', ..]) && is_host(host));
    if !path.starts_with('/') || !has_host {
        return Err(Status::BadRequest);
    }
    // More slashes at the beginning name the same path: they must not lead past the prefix of programs.
    let is_plain = |component: &String| !matches!(&**component, "." | "..") && !component.contains(['/', '\0']);
    let components = path.trim_start_matches('/').split('/').map(|component| decode(component).filter(is_plain));
    let components: Option<Vec<String>> = components.collect();
    Ok((format!("/{}", components.ok_or(Status::BadRequest)?.join("/")), query.to_owned()))
}

/// Replaces `%41` by `A`; `None` if the text is malformed or not UTF-8.
fn decode(text: &str) -> Option<String> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let (mut decoded, mut rest) = (Vec::new(), text.as_bytes());
    loop {
        let byte;
        (byte, rest) = match rest {
            [b'%', high, low, after @ ..] => ((digit(high)? * 16 + digit(low)?) as u8, after),
            [b'%', ..] => return None,
            [byte, after @ ..] => (*byte, after),
            [] => return String::from_utf8(decoded).ok(),
        };
        decoded.push(byte);
    }
}
