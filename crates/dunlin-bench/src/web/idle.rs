//! Idle connections: the memory of each, and what they cost the others.

use std::io::{Read, Write};
use std::net::TcpStream;

use anyhow::{Context, Result, ensure};

use super::peers::{Kind, Running};
use super::run::{Scratch, Shape, load, load_average, median};
use super::side::raise_open_files;
use super::{Common, Idle, process};

const SIZE: u64 = 1024;

pub(super) fn run(idle: &Idle, common: &Common) -> Result<()> {
    raise_open_files()?;
    let scratch = Scratch::new()?;
    std::fs::write(scratch.path().join("root").join(SIZE.to_string()), [b'x'; SIZE as usize])?;
    let start = |core| -> Result<Running> {
        let server = Running::start(Kind::Dunlin { farm: false }, core, scratch.path())?;
        server.context("dunlin is always there")
    };
    // The second one has no idle connections.
    let (server, other) = (start(0)?, start(0)?);
    let shape = || Shape { size: SIZE, in_flight: 10, keep_alive: true };
    let requests = if common.quick { 5_000 } else { 50_000 };
    for server in [&server, &other] {
        load(server, shape(), requests, 1)?;
    }
    let before = process::resident(server.pid())?;
    let connections = (0..idle.connections).map(|_| open(&server.address)).collect::<Result<Vec<_>>>();
    let connections = connections.context("opening the connections; see ulimit -Hn")?;
    let after = process::resident(server.pid())?;
    let each = (after.saturating_sub(before)) as f64 / idle.connections as f64;
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for _ in 0..common.rounds.unwrap_or(5) {
        with.push(load(&server, shape(), requests, 1)?.p99_us);
        without.push(load(&other, shape(), requests, 1)?.p99_us);
    }
    // Checks that all of them are still open.
    for mut connection in connections {
        get(&mut connection)?;
    }
    let ratio = crate::measure::ratio(&with, &without);
    let (with, without) = (median(with), median(without));
    if common.json {
        let row = serde_json::json!({
            "idle": idle.connections, "bytes_each": each, "p99_us": with, "p99_us_without": without, "ratio": ratio,
        });
        println!("{row}");
    } else {
        println!("{} idle connections: {each:.0} bytes each (goal: at most 8,192)", idle.connections);
        println!("p99 of 10 active ones: {with:.0} us, without the idle ones {without:.0} us: {ratio:.2} (goal: 2)");
        println!("load average {}", load_average());
    }
    Ok(())
}

/// A connection after its first request.
fn open(address: &str) -> Result<TcpStream> {
    let mut connection = TcpStream::connect(address)?;
    get(&mut connection)?;
    Ok(connection)
}

fn get(connection: &mut TcpStream) -> Result<()> {
    connection.write_all(format!("GET /{SIZE} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes())?;
    let mut response = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let read = connection.read(&mut piece)?;
        ensure!(read > 0, "the server has ended a connection");
        response.extend_from_slice(&piece[..read]);
        let head = response.windows(4).position(|four| four == b"\r\n\r\n");
        if head.is_some_and(|head| response.len() as u64 >= head as u64 + 4 + SIZE) {
            return Ok(());
        }
    }
}
