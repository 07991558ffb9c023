//! Whether an end may poison its channel: a parameter of its type.

/// The power to poison a channel, which an end has by default.
#[derive(Clone, Copy, Debug)]
pub struct MayPoison;

/// No power to poison: a `Sender<T, NoPoison>` or `Receiver<T, NoPoison>` has no method `poison`, so a
/// signature that takes one promises not to poison the channel.
#[derive(Clone, Copy, Debug)]
pub struct NoPoison;
