//! The process that carries bytes between a connection and two channels.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::task::Poll;

use bytes::Bytes;
use dunlin_core::{Receiver, Sender, alt, channel_with, fifo};

use super::connection::{Connection, Reader, Writer};
use crate::{Process, spawn};

/// The ends of a [connection](Connection::into_ends).
#[derive(Debug)]
pub struct Ends {
    /// What is sent here goes to the peer.
    pub outgoing: Sender<Bytes>,
    /// What the peer sends is received here.
    pub incoming: Receiver<Bytes>,
    /// The process between them and the connection. Dropped, it runs on.
    pub process: Process<io::Result<()>>,
}

/// Pieces that are on their way in each direction, so that a receiver elsewhere does not wait a round trip
/// for each.
const PIECES: usize = 4;

/// Larger reads gain little: this is more than most systems have ready at once.
const PIECE_MAX: usize = 64 << 10;

impl Connection {
    /// Makes ordinary ends of it, and a process that serves them.
    ///
    /// What the peer sends can be received in pieces of 1 byte to 64 KiB, and what is sent goes to the peer.
    /// The ends may go to another node; the process and the descriptor stay.
    ///
    /// - When the peer has ended, [`incoming`](Ends::incoming) ends after what has come. When `outgoing` is
    ///   dropped, the peer gets the end after what was sent.
    /// - An error of the connection poisons the end that is concerned, with its text.
    /// - Poison of `outgoing` poisons `incoming`, and resets the connection.
    /// - When `incoming` is dropped, nothing more is read.
    /// - The process ends when both directions have, with the first error.
    ///
    /// Each direction has up to 4 pieces on their way.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    ///
    /// # Examples
    /// ```
    /// use dunlin::io::{Bytes, tcp};
    /// use dunlin::prelude::*;
    /// # dunlin::block_on(async {
    /// let mut listener = tcp::listen("127.0.0.1:0").await?;
    /// let client = tcp::connect(listener.address()?.to_string()).await?;
    /// let (mut here, mut there) = (client.into_ends(), listener.accept().await?.into_ends());
    /// here.outgoing.send(Bytes::from("krill")).await?;
    /// assert_eq!(there.incoming.recv().await?, "krill");
    /// drop(here.outgoing);
    /// assert!(there.incoming.recv().await.unwrap_err().is_closed());
    /// # Ok::<(), Error>(())
    /// # }).unwrap();
    /// ```
    pub fn into_ends(self) -> Ends {
        let (tx, incoming) = channel_with(fifo(PIECES));
        let (outgoing, rx) = channel_with(fifo(PIECES));
        Ends { outgoing, incoming, process: spawn(carry(self, tx, rx)) }
    }
}

async fn carry(mut connection: Connection, tx: Sender<Bytes>, rx: Receiver<Bytes>) -> io::Result<()> {
    let mut tx = Some(tx);
    let carried = {
        let (reader, writer) = connection.split();
        let (mut inward, mut outward) = (pin!(inward(reader, &mut tx)), pin!(outward(writer, rx)));
        let (mut read, mut written) = (None, None);
        poll_fn(|cx| {
            if read.is_none()
                && let Poll::Ready(done) = inward.as_mut().poll(cx)
            {
                read = Some(done);
            }
            if written.is_none()
                && let Poll::Ready(done) = outward.as_mut().poll(cx)
            {
                // Poison ends the other direction, too.
                written = Some(done?);
            }
            match (&read, &written) {
                (Some(_), Some(_)) => Poll::Ready(Ok(())),
                _ => Poll::Pending,
            }
        })
        .await
        .map(|()| read.into_iter().chain(written).collect::<io::Result<()>>())
    };
    match carried {
        Ok(done) => done,
        Err(Poisoned(reason)) => {
            if let Some(tx) = &tx {
                tx.poison(reason.clone());
            }
            connection.reset();
            Err(io::Error::other(reason))
        }
    }
}

/// From the peer to the channel, which is dropped at the end.
async fn inward(mut reader: Reader<'_>, place: &mut Option<Sender<Bytes>>) -> io::Result<()> {
    while let Some(tx) = place {
        let piece = alt! { biased;
            () = tx.closed() => break,
            piece = reader.read(PIECE_MAX) => piece,
        };
        match piece {
            Ok(piece) if piece.is_empty() => break,
            Ok(piece) => {
                if tx.send(piece).await.is_err() {
                    break;
                }
            }
            Err(error) => {
                tx.poison(error.to_string());
                *place = None;
                return Err(error);
            }
        }
    }
    *place = None;
    Ok(())
}

/// The channel was poisoned, for this reason.
struct Poisoned(String);

/// From the channel to the peer.
async fn outward(mut writer: Writer<'_>, mut rx: Receiver<Bytes>) -> Result<io::Result<()>, Poisoned> {
    loop {
        match rx.recv().await {
            Ok(mut bytes) => {
                if let Err(error) = writer.write_all(&mut bytes).await {
                    rx.poison(error.to_string());
                    return Ok(Err(error));
                }
            }
            Err(error) if error.is_closed() => return Ok(writer.finish()),
            Err(error) => return Err(Poisoned(error.to_string())),
        }
    }
}
