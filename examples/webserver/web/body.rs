//! The body of a request, read completely before it is used.

use std::fs;
use std::io::{self, Seek, Write};

use dunlin::Instant;
use dunlin::io::Connection;
use dunlin::prelude::*;
use rustix::fs::{Mode, OFlags};

use super::chunked::Chunked;
use super::limits::{Limits, left};
use super::pool::{is_scarce, on_pool};
use super::request::Framing;
use super::status::Status;

/// All of a body.
#[derive(Debug)]
pub(crate) enum Body {
    Memory(Vec<u8>),
    /// A file without a name, positioned at its beginning.
    File(fs::File, u64),
}

impl Body {
    pub(crate) fn length(&self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::File(_, length) => *length,
        }
    }
}

/// Reads a body from `buffer` and then from the connection. The bytes after it stay in `buffer`.
pub(crate) async fn read(
    connection: &mut Connection,
    buffer: &mut Vec<u8>,
    framing: Framing,
    limits: &Limits,
) -> io::Result<Result<Body, Status>> {
    if matches!(framing, Framing::Length(length) if length > limits.body_max) {
        return Ok(Err(Status::ContentTooLarge));
    }
    let (mut file, mut length, mut chunked, mut memory) = (None, 0, Chunked::default(), Vec::new());
    let begin = Instant::now();
    loop {
        let before = memory.len();
        let is_over = match framing {
            Framing::Length(all) => {
                let take = usize::try_from(all - length).unwrap_or(usize::MAX).min(buffer.len());
                memory.extend(buffer.drain(..take));
                length + take as u64 == all
            }
            Framing::Chunked => {
                let mut input = &buffer[..];
                let decoded = chunked.decode(&mut input, |data| memory.extend_from_slice(data));
                let taken = buffer.len() - input.len();
                buffer.drain(..taken);
                match decoded {
                    Ok(is_over) => is_over,
                    Err(status) => return Ok(Err(status)),
                }
            }
        };
        length += (memory.len() - before) as u64;
        if length > limits.body_max {
            return Ok(Err(Status::ContentTooLarge));
        }
        if memory.len() > limits.body_memory_max || is_over && file.is_some() {
            match spill(file, std::mem::take(&mut memory), limits).await {
                Ok(spilled) => file = Some(spilled),
                // The disk is full or does not answer, or no descriptor is left.
                Err(error) if is_scarce(&error) => return Ok(Err(Status::ServiceUnavailable)),
                Err(_) => return Ok(Err(Status::InternalServerError)),
            }
        }
        if is_over {
            return Ok(Ok(match file {
                None => Body::Memory(memory),
                Some(mut file) => {
                    file.rewind()?;
                    Body::File(file, length)
                }
            }));
        }
        // A client that sends a byte now and then must not keep its place.
        let longest = limits.piece + Duration::from_secs(length / limits.body_rate_min);
        let patience = left(begin + longest).min(limits.piece);
        match connection.read(64 << 10).within(patience).await {
            Ok(piece) if piece.is_empty() => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(piece) => buffer.extend_from_slice(&piece),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => return Ok(Err(Status::RequestTimeout)),
            Err(error) => return Err(error),
        }
    }
}

/// Moves the bytes in memory to the end of the file.
async fn spill(file: Option<fs::File>, memory: Vec<u8>, limits: &Limits) -> io::Result<fs::File> {
    on_pool(limits.disk, move |_| {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let open = || rustix::fs::open(std::env::temp_dir(), flags, Mode::RUSR | Mode::WUSR);
        let mut file = file.map_or_else(|| open().map(fs::File::from), Ok)?;
        file.write_all(&memory)?;
        Ok(file)
    })
    .await
}
