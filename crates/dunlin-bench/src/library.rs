//! A library of channels and processes, as the programs see it.

use std::fmt::Debug;

/// The operations that [`programs`](crate::programs) need. They return the library's own futures, not an
/// `async` block around them, so that the bench measures only the library.
pub(crate) trait Library: 'static {
    /// Its name in the report; for a buffered channel with its capacity.
    const NAME: &'static str;
    /// Whether a choice that drops a receive loses nothing.
    const CHOOSES: bool = true;

    type Tx: Send + 'static;
    type Rx: Send + 'static;

    fn channel() -> (Self::Tx, Self::Rx);

    fn send(tx: &mut Self::Tx, value: u64) -> impl Future<Output = Result<(), impl Debug>> + Send;

    fn recv(rx: &mut Self::Rx) -> impl Future<Output: Received> + Send;

    /// Forks `process` onto the current tokio runtime; the returned future ends with it.
    fn spawn<F>(process: F) -> impl Future<Output = Result<(), impl Debug>> + Send
    where
        F: Future<Output = ()> + Send + 'static,
    {
        tokio::spawn(process)
    }

    /// One value from any of eight, fairly; `None` if one of them has ended.
    fn choose(rxs: &mut [Self::Rx; 8]) -> impl Future<Output = Option<u64>> + Send {
        async {
            let [a, b, c, d, e, f, g, h] = rxs;
            tokio::select! {
                v = Self::recv(a) => v.value(),
                v = Self::recv(b) => v.value(),
                v = Self::recv(c) => v.value(),
                v = Self::recv(d) => v.value(),
                v = Self::recv(e) => v.value(),
                v = Self::recv(f) => v.value(),
                v = Self::recv(g) => v.value(),
                v = Self::recv(h) => v.value(),
            }
        }
    }
}

/// The result of a receive, however the library reports the end of the channel.
pub(crate) trait Received {
    /// The value, or `None` when the channel has ended.
    fn value(self) -> Option<u64>;
}

impl Received for Option<u64> {
    fn value(self) -> Option<u64> {
        self
    }
}

impl<E> Received for Result<u64, E> {
    fn value(self) -> Option<u64> {
        self.ok()
    }
}
