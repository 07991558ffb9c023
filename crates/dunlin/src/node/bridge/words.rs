//! Translates how a channel has ended, and why an offer has failed, between the core and the wire.

use dunlin_core::{Reason, Why};
use dunlin_proto::wire::{End, Failure, Poison};

/// In the form of the wire.
pub(in crate::node) fn poison(reason: &Reason) -> Poison {
    Poison { strength: reason.strength().as_u8(), reason: reason.as_str().to_owned() }
}

pub(in crate::node) fn reason(poison: &Poison) -> Reason {
    Reason::from(poison.reason.as_str()).of_strength(poison.strength)
}

pub(in crate::node) fn full_poison(text: &str) -> End {
    End::Poisoned(poison(&text.into()))
}

pub(in crate::node) fn failure(why: Why) -> Failure {
    match why {
        Why::Poisoned(reason) => Failure::Poisoned(poison(&reason)),
        Why::Refused => Failure::Refused,
        Why::Expired => Failure::Expired,
        Why::WouldBlock => Failure::WouldBlock,
        Why::OwnChannel => Failure::OwnChannel,
        // The value was to go on from here.
        Why::TooLarge { bytes_max, .. } => Failure::TooLarge { max: bytes_max },
        Why::Unsendable(text) => Failure::Undecodable(text.as_str().to_owned()),
        _ => Failure::Closed,
    }
}

pub(in crate::node) fn why_failed(why: Failure, bytes: u64) -> Why {
    match why {
        Failure::Closed => Why::Closed,
        Failure::Poisoned(poison) => Why::Poisoned(reason(&poison)),
        Failure::Refused => Why::Refused,
        Failure::Expired => Why::Expired,
        Failure::WouldBlock => Why::WouldBlock,
        Failure::OwnChannel => Why::OwnChannel,
        Failure::TooLarge { max } => Why::TooLarge { bytes, bytes_max: max },
        Failure::Undecodable(text) => Why::Unsendable(text.into()),
        // The node that kept the value reports it; without that nothing had been sent.
        Failure::Unknown => Why::NodeLost,
        // The receiver that was to read it could not; others may.
        Failure::Unread => Why::NodeLost,
    }
}
