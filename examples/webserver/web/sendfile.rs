//! Large files: threads of the pool send them to the socket without a copy, since `sendfile` may wait for the
//! disk.

use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;

use dunlin::blocking::Stop;
use dunlin::io::Connection;
use dunlin::prelude::*;
use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};

use super::file::Opened;
use super::pool::on_pool;
use super::site::Site;

/// The maximum bytes of one call, however fast the client reads: other clients wait for its thread.
const CALL_MAX: u64 = 8 << 20;

/// Sends a range of a file, each piece within its deadlines. Returns the position that it has reached, and
/// whether it is done: before the end of the range if the file has become shorter. Not every file system
/// supports `sendfile`.
pub(crate) async fn send(
    connection: &mut Connection,
    file: &Opened,
    mut range: Range<u64>,
    site: &Site,
) -> io::Result<(u64, bool)> {
    // Its own descriptor: the call may outlive the process that awaits it, and the connection ends with that
    // process.
    let socket = Arc::new(connection.as_fd().try_clone_to_owned()?);
    while !range.is_empty() {
        // A thread must not wait for a client.
        connection.writable().within(site.limits.piece).await?;
        let (copy, file, part) = (socket.clone(), file.file.clone(), range.clone());
        let step = on_pool(site.limits.disk, move |stop| step(&*copy, &*file, part, stop)).await;
        if step.is_err() {
            // An abandoned call keeps its descriptor of the socket: dropping the connection would not end it.
            let _ = shutdown(&socket, Shutdown::Both);
        }
        let begin = range.start;
        match step? {
            Some((at, file_ends)) => range = at..if file_ends { at } else { range.end },
            None => return Ok((begin, false)),
        }
        site.stats.bytes.add(range.start - begin);
        site.stats.sendfile.add(range.start - begin);
    }
    Ok((range.end, true))
}

/// Sends until the socket is full. Returns the position that it has reached, and whether the file ends there;
/// `None` if the file system does not support it.
fn step(socket: impl AsFd, file: impl AsFd, range: Range<u64>, stop: &Stop) -> io::Result<Option<(u64, bool)>> {
    let end = range.end.min(range.start + CALL_MAX);
    let mut at = range.start;
    while at < end && !stop.asked() {
        let count = usize::try_from(end - at).unwrap_or(usize::MAX);
        match rustix::fs::sendfile(&socket, &file, Some(&mut at), count) {
            Ok(0) => return Ok(Some((at, true))),
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => break,
            Err(Errno::INVAL | Errno::NOSYS) if at == range.start => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Some((at, false)))
}
