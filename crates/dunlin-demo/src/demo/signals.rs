//! The signals by which the user or the system ends the command.

use dunlin::{Receiver, channel_with, unbounded};

/// The exit codes of signals that end the command, received from now on: 130 is Ctrl-C. Needs a runtime of
/// tokio.
pub(super) fn signals() -> Receiver<u8> {
    let (tx, rx) = channel_with(unbounded());
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let tx = tx.share();
        for (kind, code) in
            [(SignalKind::interrupt(), 130), (SignalKind::terminate(), 143), (SignalKind::hangup(), 129)]
        {
            let Ok(mut signals) = signal(kind) else { continue };
            let mut tx = tx.clone();
            drop(dunlin::spawn(async move { while signals.recv().await.is_some() && tx.send(code).await.is_ok() {} }));
        }
    }
    // (A new `tokio::signal::ctrl_c()` in each round would miss a signal between two rounds.)
    #[cfg(windows)]
    if let Ok(mut signals) = tokio::signal::windows::ctrl_c() {
        let mut tx = tx;
        drop(dunlin::spawn(async move { while signals.recv().await.is_some() && tx.send(130).await.is_ok() {} }));
    }
    rx
}
