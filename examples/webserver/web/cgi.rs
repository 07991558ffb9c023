//! CGI/1.1: a program for each request, killed with its group when the response is over.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};
use std::sync::Arc;

use dunlin::Instant;
use dunlin::io::program::{self, Program};
use dunlin::io::{Address, Bytes};
use dunlin::prelude::*;

use super::answer::{After, Answer, head};
use super::body::Body;
use super::client::{Client, Sent};
use super::limits::left;
use super::pool::is_scarce;
use super::request::{Framing, Method, Request};
use super::site::{PREFIX, Site};
use super::stats::{Count, Stats};
use super::status::Status;

/// The head that a program writes before its output.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CgiHead {
    pub(crate) status: Status,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) length: Option<u64>,
    /// A target of this server, whose response becomes that of the program (RFC 3875, 6.2.2).
    pub(crate) local: Option<String>,
}

/// The outcome of a program.
pub(crate) enum Outcome {
    Sent(Sent),
    /// The program has not written the response; the server sends this one instead. The flag keeps the
    /// connection.
    Instead(Answer, bool),
    /// The server sends the response of this target.
    Local(String),
}

fn refused(status: Status, keep_alive: bool) -> Outcome {
    Outcome::Instead(Answer::error(status), keep_alive)
}

/// One of a bounded number of places, until it is dropped.
struct Slot {
    site: Arc<Site>,
    count: fn(&Stats) -> &Count,
}

impl Slot {
    fn take(site: &Arc<Site>, count: fn(&Stats) -> &Count, max: usize) -> Option<Self> {
        let slot = Self { site: site.clone(), count };
        (count(&site.stats).add(1) <= max as u64).then_some(slot)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        (self.count)(&self.site.stats).take(1);
    }
}

/// Writes the body to a program. Dropped, it ends: a program that has left the group may hold the pipe.
struct Feeding(Process<io::Result<()>>);

impl Drop for Feeding {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Runs the program of a request and sends its output.
pub(crate) async fn answer(client: &mut Client, request: &Request) -> io::Result<Outcome> {
    let site = client.site.clone();
    let busy = || Ok(refused(Status::ServiceUnavailable, false));
    // Not a place of a program yet: clients that send slowly must not take these from all others.
    let has_body = request.body != Framing::Length(0);
    let receiving = has_body.then(|| Slot::take(&site, |stats| &stats.bodies, site.limits.bodies_max));
    if matches!(receiving, Some(None)) {
        return busy();
    }
    let body = match client.read_body(request).await? {
        Ok(body) => body,
        Err(status) => return Ok(refused(status, false)),
    };
    let Some(_slot) = Slot::take(&site, |stats| &stats.cgi, site.limits.cgi_max) else {
        return busy();
    };
    drop(receiving);
    let (begin, command) = (Instant::now(), command(client, request, &body));
    let mut output = Vec::new();
    let answered = async {
        // It may be on a disk that does not answer.
        let (mut program, feeding) = start(command.ok_or(Status::NotFound)?, body).await?;
        let cgi = read_head(&mut program, &mut output, site.limits.cgi_head_max).await?;
        Ok((program, feeding, cgi))
    };
    let answered = alt! {
        answered = future(Box::pin(answered)) => answered,
        () = sleep(site.limits.cgi_head) => Err(Status::GatewayTimeout),
    };
    let (program, _feeding, cgi) = match answered {
        Ok(answered) => answered,
        Err(status) => return Ok(refused(status, request.keep_alive)),
    };
    let deadline = begin + site.limits.cgi;
    if let Some(target) = cgi.local {
        return Ok(match run_to_its_end(program, deadline).await {
            Ok(()) => Outcome::Local(target),
            Err(status) => refused(status, request.keep_alive),
        });
    }
    send(client, request, program, cgi, output, deadline).await.map(Outcome::Sent)
}

/// Lets a program that does more than write a head run to its end. Its output is discarded.
async fn run_to_its_end(mut program: Program, deadline: Instant) -> Result<(), Status> {
    let status = |error: io::Error| match error.kind() {
        io::ErrorKind::TimedOut => Status::GatewayTimeout,
        _ => Status::BadGateway,
    };
    let stdout = program.stdout.as_mut().ok_or(Status::InternalServerError)?;
    while !stdout.read(16 << 10).within(left(deadline)).await.map_err(status)?.is_empty() {}
    let end = program.exit_with_group().within(left(deadline)).await.map_err(status)?;
    if end.is_success() { Ok(()) } else { Err(Status::BadGateway) }
}

/// The command of a request; `None` if its path names no program.
fn command(client: &Client, request: &Request, body: &Body) -> Option<Command> {
    let directory = client.site.cgi.as_deref()?;
    let rest = request.path.strip_prefix(PREFIX)?;
    let (name, info) = rest.find('/').map_or((rest, ""), |slash| rest.split_at(slash));
    if name.is_empty() {
        return None;
    }
    let host = request.header("Host").unwrap_or_default();
    let (address, port) = match client.connection.address() {
        Ok(Address::Tcp(address)) => (address.ip().to_string(), address.port().to_string()),
        _ => Default::default(),
    };
    let mut command = Command::new(directory.join(name));
    command.current_dir(directory).env_clear();
    command.env("GATEWAY_INTERFACE", "CGI/1.1");
    command.env("PATH", "/usr/local/bin:/usr/bin:/bin");
    command.env("QUERY_STRING", &request.query);
    command.env("REMOTE_ADDR", &client.name);
    command.env("REQUEST_METHOD", request.method.name());
    command.env("REQUEST_URI", &request.target);
    command.env("SCRIPT_NAME", format!("{PREFIX}{name}"));
    command.env("SCRIPT_FILENAME", directory.join(name));
    command.env("SERVER_NAME", if host.is_empty() { &address } else { host_name(host) });
    command.env("SERVER_PORT", port);
    command.env("SERVER_PROTOCOL", request.version());
    command.env("SERVER_SOFTWARE", "dunlin");
    if !info.is_empty() {
        command.env("PATH_INFO", info);
    }
    if request.method == Method::Post || body.length() > 0 {
        command.env("CONTENT_LENGTH", body.length().to_string());
        command.envs(request.header("Content-Type").map(|value| ("CONTENT_TYPE", value)));
    }
    // `Proxy` would become the variable that sets a proxy, and `A_B` would equal `A-B`.
    let own = ["proxy", "content-length", "content-type", "transfer-encoding", "connection", "authorization"];
    for (name, _) in &request.headers {
        if !name.contains('_') && own.iter().all(|own| !name.eq_ignore_ascii_case(own)) {
            let variable = format!("HTTP_{}", name.to_ascii_uppercase().replace('-', "_"));
            command.env(variable, OsStr::from_bytes(&request.list(name).unwrap_or_default()));
        }
    }
    Some(command)
}

/// The host without the port. An IPv6 address has colons of its own, in brackets.
fn host_name(host: &str) -> &str {
    let split = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
    split.map_or(host, |(name, _)| name)
}

async fn start(mut command: Command, body: Body) -> Result<(Program, Option<Feeding>), Status> {
    let (stdin, body) = match body {
        Body::Memory(bytes) if bytes.is_empty() => (Stdio::null(), None),
        Body::Memory(bytes) => (Stdio::piped(), Some(Bytes::from(bytes))),
        Body::File(file, _) => (file.into(), None),
    };
    command.stdin(stdin).stdout(Stdio::piped());
    let mut program = program::start(command).await.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Status::NotFound,
        io::ErrorKind::PermissionDenied => Status::Forbidden,
        _ if is_scarce(&error) => Status::ServiceUnavailable,
        _ => Status::BadGateway,
    })?;
    let input = program.stdin.take().zip(body);
    // The program may write before it has read the whole body, or never read.
    let feeding = input.map(|(mut stdin, mut body)| Feeding(spawn(async move { stdin.write_all(&mut body).await })));
    Ok((program, feeding))
}

/// Reads the head of the program's output; `output` holds the bytes after it.
async fn read_head(program: &mut Program, output: &mut Vec<u8>, max: usize) -> Result<CgiHead, Status> {
    let stdout = program.stdout.as_mut().ok_or(Status::InternalServerError)?;
    loop {
        if let Some(end) = head_end(output) {
            let head: Vec<u8> = output.drain(..end).collect();
            return parse_head(&head).ok_or(Status::BadGateway);
        }
        let piece = stdout.read(4096).await.unwrap_or_default();
        output.extend_from_slice(&piece);
        if piece.is_empty() || output.len() > max && head_end(output).is_none() {
            return Err(Status::BadGateway);
        }
    }
}

/// Programs end lines with or without a carriage return.
fn head_end(output: &[u8]) -> Option<usize> {
    let mut end = 0;
    output.split_inclusive(|byte| *byte == b'\n').find_map(|line| {
        end += line.len();
        matches!(line, b"\n" | b"\r\n").then_some(end)
    })
}

/// Parses the head that a program has written, with its empty line. `None` if it is malformed.
pub(crate) fn parse_head(head: &[u8]) -> Option<CgiHead> {
    let text = std::str::from_utf8(head).ok()?;
    let mut cgi = CgiHead { status: Status::Ok, headers: Vec::new(), length: None, local: None };
    let (mut has_status, mut has_type, mut location) = (false, false, None);
    for line in text.lines().take_while(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':')?;
        let value = value.trim();
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if name.is_empty() || !name.bytes().all(is_token) || value.chars().any(char::is_control) {
            return None;
        }
        match &*name.to_ascii_lowercase() {
            "status" => {
                let code = value.get(..3).and_then(|code| code.parse().ok())?;
                cgi.status = (200..600).contains(&code).then_some(Status::Other(code))?;
                has_status = true;
            }
            "content-length" if cgi.length.is_none() && value.bytes().all(|byte| byte.is_ascii_digit()) => {
                cgi.length = Some(value.parse().ok()?);
            }
            // The server sets these headers.
            "connection" | "transfer-encoding" | "keep-alive" | "date" | "server" => {}
            "location" if location.is_none() => location = Some(value.to_owned()),
            "content-length" | "location" => return None,
            other => {
                has_type |= other == "content-type";
                cgi.headers.push((name.to_owned(), value.to_owned()));
            }
        }
    }
    let says_something = has_status || has_type || location.is_some();
    match location {
        // The client does not see the target, so a fragment would be lost.
        Some(target) if !has_status && target.starts_with('/') => {
            cgi.local = Some((!target.contains('#')).then_some(target)?);
        }
        Some(target) => {
            if !has_status {
                cgi.status = is_absolute(&target).then_some(Status::Found)?;
            }
            cgi.headers.push(("Location".to_owned(), target));
        }
        None => {}
    }
    says_something.then_some(cgi)
}

/// Whether a URI begins with its scheme.
fn is_absolute(uri: &str) -> bool {
    uri.split_once(':').is_some_and(|(scheme, rest)| {
        let is_scheme = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
        scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && scheme.chars().all(is_scheme) && !rest.is_empty()
    })
}

/// Sends the program's output: with the length that it declared, otherwise in chunks, otherwise until the
/// program ends.
async fn send(
    client: &mut Client,
    request: &Request,
    mut program: Program,
    cgi: CgiHead,
    mut output: Vec<u8>,
    deadline: Instant,
) -> io::Result<Sent> {
    let has_no_body = request.method == Method::Head || matches!(cgi.status.code(), 204 | 304);
    let in_chunks = cgi.length.is_none() && request.is_1_1 && !has_no_body;
    let goes_on = request.keep_alive && (cgi.length.is_some() || in_chunks || has_no_body);
    let after = if goes_on { After::KeepAlive { is_1_1: request.is_1_1 } } else { After::Close };
    // RFC 9110, 8.6: a client may take what follows a 204 for the body that the length announces.
    let length = cgi.length.filter(|_| cgi.status.code() != 204).map(|length| length.to_string());
    let headers = cgi.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let headers = headers.chain(length.as_deref().map(|length| ("Content-Length", length)));
    let headers = headers.chain(in_chunks.then_some(("Transfer-Encoding", "chunked")));
    client.write_until(head(cgi.status, headers, after).into(), Some(deadline)).await?;
    let total = cgi.length.unwrap_or(u64::MAX);
    let mut unsent = total;
    if has_no_body {
        return Ok(Sent { status: cgi.status, bytes: 0, goes_on });
    }
    let is_whole = loop {
        output.truncate(usize::try_from(unsent).unwrap_or(usize::MAX));
        unsent -= output.len() as u64;
        if !output.is_empty() {
            let piece = std::mem::take(&mut output);
            let length = format!("{:x}\r\n", piece.len());
            let chunk = [length.as_bytes(), &piece, b"\r\n"];
            let piece = if in_chunks { chunk.concat() } else { piece };
            client.write_until(piece.into(), Some(deadline)).await?;
        }
        if unsent == 0 {
            break true;
        }
        let Some(stdout) = program.stdout.as_mut() else { break false };
        match stdout.read(16 << 10).within(left(deadline)).await {
            Ok(piece) if piece.is_empty() => {
                // If the program has declared a longer output or crashed, the response is incomplete.
                let end = program.exit_with_group().within(left(deadline)).await;
                break cgi.length.is_none() && end.is_ok_and(dunlin::blocking::ChildEnd::is_success);
            }
            Ok(piece) => output = piece.into(),
            Err(_) => break false,
        }
    };
    if is_whole && in_chunks {
        client.write(Bytes::from_static(b"0\r\n\r\n")).await?;
    }
    if !is_whole {
        client.site.stats.cut.add(1);
    }
    Ok(Sent { status: cgi.status, bytes: total - unsent, goes_on: goes_on && is_whole })
}
