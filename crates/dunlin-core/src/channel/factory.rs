//! Factories: a component makes its channels without choosing their policy.

use std::panic::Location;

use super::policy::Policy;
use super::receiver::Receiver;
use super::sender::Sender;

/// Makes channels of one policy.
///
/// # Examples
/// ```
/// use dunlin_core::{ChannelFactory, MayPoison, NoPoison, Receiver, Sender, fifo};
///
/// fn pipe(make: &ChannelFactory) -> (Sender<u8>, Receiver<u8>) {
///     make.channel() // the component does not choose
/// }
/// let (mut tx, _rx) = pipe(&ChannelFactory::new(fifo(1)));
/// tx.try_send(1).unwrap();
///
/// // Which end may poison is part of the types:
/// let (_tx, rx) = ChannelFactory::default().ends::<u8, NoPoison, MayPoison>();
/// rx.poison("only the receiver can");
/// ```
///
/// # Source
/// Channel factories of C++CSP2 (Brown, 2007).
#[derive(Clone, Debug, Default)]
pub struct ChannelFactory {
    policy: Policy,
    /// The location recorded for the channels, if not that of the factory's caller.
    made: Option<&'static Location<'static>>,
}

impl ChannelFactory {
    /// A factory of channels with this policy. `ChannelFactory::default()` makes rendezvous channels.
    pub fn new(policy: impl Into<Policy>) -> Self {
        Self { policy: policy.into(), made: None }
    }

    /// Sets the location that the wait records give for the channels.
    #[doc(hidden)]
    pub fn made_at(self, made: &'static Location<'static>) -> Self {
        Self { made: Some(made), ..self }
    }

    #[track_caller]
    pub(crate) fn made(&self) -> &'static Location<'static> {
        self.made.unwrap_or(Location::caller())
    }

    /// Makes a channel that either end may poison.
    #[track_caller]
    pub fn channel<T>(&self) -> (Sender<T>, Receiver<T>) {
        super::ends(&self.policy, self.made())
    }

    /// Makes a channel whose ends have the powers `P` (sender) and `Q` (receiver), each
    /// [`MayPoison`](crate::MayPoison) or [`NoPoison`](crate::NoPoison).
    #[track_caller]
    pub fn ends<T, P, Q>(&self) -> (Sender<T, P>, Receiver<T, Q>) {
        super::ends(&self.policy, self.made())
    }

    /// A factory of channels with another policy.
    #[must_use]
    pub fn with(&self, policy: impl Into<Policy>) -> Self {
        Self { policy: policy.into(), made: self.made }
    }

    /// The policy of the channels it makes.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }
}
