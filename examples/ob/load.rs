//! Requests to a server, and their outcomes.
//!
//! ```text
//!   plan ── tickets ─▶ worker (one for each request in flight) ─▶ server
//!     ▲                  │
//!     └───── ends ◀──────┘   (with waves)
//! ```

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dunlin::io::{Bytes, Connection, tcp};
use dunlin::prelude::{
    Receiver, Sender, Shared, alt, channel, channel_with, future, sleep, sleep_until, spawn, unbounded,
};

use super::histogram::Histogram;

/// What to send.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// host:port
    pub(crate) address: String,
    pub(crate) path: String,
    pub(crate) requests: u64,
    pub(crate) in_flight: usize,
    pub(crate) keep_alive: bool,
    pub(crate) pace: Pace,
    /// The deadline of each request, after which it has failed.
    pub(crate) patience: Duration,
}

/// When a request begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Pace {
    /// As soon as another request has ended.
    Flow,
    /// When all requests in flight have ended, as in the load generator of Barnes (2000).
    Waves,
    /// This many requests a second, whatever the server does. Latencies count from the planned beginning, so
    /// they include the requests that would have been sent while a server stalls.
    Rate(f64),
}

/// The outcomes of the requests.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    /// The latencies of the responses.
    pub(crate) latencies: Histogram,
    /// Responses whose status is not 2xx.
    pub(crate) not_ok: u64,
    /// Requests without a whole response.
    pub(crate) failed: u64,
    pub(crate) first_failure: Option<String>,
    /// The bytes of heads and bodies.
    pub(crate) bytes: u64,
    pub(crate) took: Duration,
}

impl Report {
    fn new() -> Self {
        Self { latencies: Histogram::new(), not_ok: 0, failed: 0, first_failure: None, bytes: 0, took: Duration::ZERO }
    }

    fn merge(&mut self, other: Self) {
        self.latencies.merge(&other.latencies);
        self.not_ok += other.not_ok;
        self.failed += other.failed;
        self.first_failure = self.first_failure.take().or(other.first_failure);
        self.bytes += other.bytes;
    }
}

/// Sends the requests of a plan.
pub(crate) async fn run(plan: Plan) -> Report {
    let plan = Arc::new(plan);
    // With a rate, a ticket waits for a worker, and its latency already counts.
    let (tickets, work) = if let Pace::Rate(_) = plan.pace { channel_with(unbounded()) } else { channel() };
    let (work, (done, ends)) = (work.share(), channel());
    let done = done.share();
    let workers: Vec<_> = (0..plan.in_flight)
        .map(|_| {
            let done = (plan.pace == Pace::Waves).then(|| done.clone());
            spawn(worker(plan.clone(), work.clone(), done))
        })
        .collect();
    drop((work, done));
    let begin = Instant::now();
    plan_requests(&plan, tickets, ends).await;
    let mut all = Report::new();
    for worker in workers {
        match worker.await {
            Ok(report) => all.merge(report),
            Err(exit) => {
                all.failed += 1;
                all.first_failure = Some(exit.to_string());
            }
        }
    }
    all.took = begin.elapsed();
    all
}

/// Sends a ticket for each request, with its planned beginning.
async fn plan_requests(plan: &Plan, mut tickets: Sender<Instant>, mut ends: Receiver<()>) {
    let begin = Instant::now();
    for n in 0..plan.requests {
        let ticket = match plan.pace {
            Pace::Rate(rate) => {
                let planned = begin + Duration::from_secs_f64(n as f64 / rate);
                if planned > Instant::now() {
                    sleep_until(planned.into()).await;
                }
                planned
            }
            Pace::Flow | Pace::Waves => Instant::now(),
        };
        if tickets.send(ticket).await.is_err() {
            return;
        }
        let in_wave = n % plan.in_flight as u64 + 1;
        if plan.pace == Pace::Waves && (in_wave == plan.in_flight as u64 || n + 1 == plan.requests) {
            for _ in 0..in_wave {
                if ends.recv().await.is_err() {
                    return;
                }
            }
        }
    }
}

/// Sends one request after the other, until there are no more tickets.
async fn worker(plan: Arc<Plan>, mut work: Shared<Receiver<Instant>>, mut done: Option<Shared<Sender<()>>>) -> Report {
    let (mut report, mut kept) = (Report::new(), None);
    let connection = if plan.keep_alive { "keep-alive" } else { "close" };
    let request = format!("GET {} HTTP/1.1\r\nHost: {}\r\nConnection: {connection}\r\n\r\n", plan.path, plan.address);
    let request = Bytes::from(request);
    while let Ok(planned) = work.recv().await {
        // A request of a flow begins when a worker takes it.
        let begin = if matches!(plan.pace, Pace::Rate(_)) { planned } else { Instant::now() };
        let exchanged = alt! {
            exchanged = future(Box::pin(exchange(&plan, &request, kept.take()))) => exchanged,
            () = sleep(plan.patience) => Err(io::ErrorKind::TimedOut.into()),
        };
        match exchanged {
            Ok(response) => {
                report.latencies.add(begin.elapsed());
                report.bytes += response.bytes;
                report.not_ok += u64::from(!(200..300).contains(&response.status));
                kept = response.connection.filter(|_| plan.keep_alive);
            }
            Err(error) => {
                report.failed += 1;
                report.first_failure.get_or_insert_with(|| error.to_string());
            }
        }
        if let Some(done) = &mut done
            && done.send(()).await.is_err()
        {
            break;
        }
    }
    report
}

struct Response {
    status: u16,
    bytes: u64,
    /// The connection, if it can be reused.
    connection: Option<Connection>,
}

async fn exchange(plan: &Plan, request: &Bytes, kept: Option<Connection>) -> io::Result<Response> {
    let mut connection = match kept {
        Some(connection) => connection,
        None => tcp::connect(&plan.address).await?,
    };
    connection.write_all(&mut request.clone()).await?;
    let mut buffer = Vec::new();
    let head = loop {
        if let Some(head) = head(&buffer)? {
            break head;
        }
        let piece = connection.read(16 << 10).await?;
        if piece.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        buffer.extend_from_slice(&piece);
    };
    let mut bytes = buffer.len() as u64;
    let end = head.length.map(|length| head.size + length);
    while end.is_none_or(|end| bytes < end) {
        let piece = connection.read(64 << 10).await?;
        if piece.is_empty() {
            match end {
                None => return Ok(Response { status: head.status, bytes, connection: None }),
                Some(_) => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
        bytes += piece.len() as u64;
    }
    Ok(Response { status: head.status, bytes, connection: Some(connection).filter(|_| !head.closes) })
}

struct Head {
    status: u16,
    size: u64,
    /// The length of the body; without it, the body ends with the connection.
    length: Option<u64>,
    closes: bool,
}

/// Parses the head of a response; `None` if it is incomplete.
fn head(buffer: &[u8]) -> io::Result<Option<Head>> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut response = httparse::Response::new(&mut headers);
    let size = match response.parse(buffer) {
        Ok(httparse::Status::Complete(size)) => size as u64,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => return Err(io::Error::new(io::ErrorKind::InvalidData, error)),
    };
    let value = |name: &str| {
        let header = response.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name))?;
        std::str::from_utf8(header.value).ok()
    };
    if value("Transfer-Encoding").is_some() {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "a response in chunks: ask for a file"));
    }
    Ok(Some(Head {
        status: response.code.unwrap_or(0),
        size,
        length: value("Content-Length").and_then(|length| length.parse().ok()),
        closes: value("Connection").is_some_and(|value| value.eq_ignore_ascii_case("close")),
    }))
}
