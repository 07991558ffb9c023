//! Carries bytes between a descriptor and a channel.

use std::future::Future;
use std::io;

use bytes::Bytes;
use dunlin_core::{Branch, Receiver, Sender, alt};

/// A source that is read piece by piece.
pub(super) trait Source {
    /// Reads one piece of 1 to `max` bytes, or none at the end. Dropped, it has lost no byte.
    fn piece(&mut self, max: usize) -> impl Branch<Output = io::Result<Bytes>> + Unpin + Send;
}

/// What is written.
pub(super) trait Sink {
    /// Writes all of `bytes`.
    fn put(&mut self, bytes: &mut Bytes) -> impl Future<Output = io::Result<()>> + Send;

    /// Nothing more is written.
    fn end(&mut self) -> impl Future<Output = io::Result<()>> + Send;
}

/// How many pieces are in flight in each direction, so that a remote receiver does not wait a round trip for
/// each.
pub(super) const PIECES: usize = 4;

/// Larger reads gain little: most systems have less than this ready at once.
pub(super) const PIECE_MAX: usize = 64 << 10;

/// From the source to the channel, which is dropped at the end.
pub(super) async fn inward(source: &mut impl Source, place: &mut Option<Sender<Bytes>>) -> io::Result<()> {
    while let Some(tx) = place {
        let piece = alt! { biased;
            () = tx.closed() => break,
            piece = source.piece(PIECE_MAX) => piece,
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
pub(super) struct Poisoned(pub(super) String);

/// From the channel to the sink.
pub(super) async fn outward(sink: &mut impl Sink, mut rx: Receiver<Bytes>) -> Result<io::Result<()>, Poisoned> {
    loop {
        match rx.recv().await {
            Ok(mut bytes) => {
                if let Err(error) = sink.put(&mut bytes).await {
                    rx.poison(error.to_string());
                    return Ok(Err(error));
                }
            }
            Err(error) if error.is_closed() => return Ok(sink.end().await),
            Err(error) => return Err(Poisoned(error.to_string())),
        }
    }
}
