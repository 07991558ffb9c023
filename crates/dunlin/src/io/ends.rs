//! The process that carries bytes between a connection and two channels.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::task::Poll;

use bytes::Bytes;
use dunlin_core::{Branch, Receiver, Sender, channel_with, fifo};

use super::carry::{PIECES, Poisoned, Sink, Source, inward, outward};
use super::connection::{Connection, Reader, Writer};
use super::spawn;
use crate::Process;

/// The ends of a [connection](Connection::into_ends).
#[derive(Debug)]
pub struct Ends {
    /// Values sent here go to the peer.
    pub outgoing: Sender<Bytes>,
    /// Bytes from the peer are received here.
    pub incoming: Receiver<Bytes>,
    /// The process between them and the connection. Dropped, it runs on.
    pub process: Process<io::Result<()>>,
}

impl Connection {
    /// Makes ordinary ends of it, and a process that serves them.
    ///
    /// Bytes from the peer are received in pieces of 1 byte to 64 KiB, and pieces sent go to the peer. The
    /// ends may go to another node; the process and the descriptor stay.
    ///
    /// - When the peer has ended, [`incoming`](Ends::incoming) ends after the bytes that have arrived. When
    ///   `outgoing` is dropped, the peer gets the end after the bytes that were sent.
    /// - An error of the connection poisons the affected end, with its text.
    /// - Poison of `outgoing` poisons `incoming`, and resets the connection.
    /// - When `incoming` is dropped, nothing more is read.
    /// - The process ends when both directions have ended, with the first error.
    ///
    /// Each direction has up to 4 pieces in flight.
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
        let (mut reader, mut writer) = connection.split();
        let (mut inward, mut outward) = (pin!(inward(&mut reader, &mut tx)), pin!(outward(&mut writer, rx)));
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
                // Poison also ends the other direction.
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

impl Source for Reader<'_> {
    fn piece(&mut self, max: usize) -> impl Branch<Output = io::Result<Bytes>> + Unpin + Send {
        self.read(max)
    }
}

impl Sink for Writer<'_> {
    async fn put(&mut self, bytes: &mut Bytes) -> io::Result<()> {
        self.write_all(bytes).await
    }

    async fn end(&mut self) -> io::Result<()> {
        self.finish()
    }
}
