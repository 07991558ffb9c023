//! What a node is told once: its application, its times, its limits.

use std::time::Duration;

use crate::wire::codec::WireError;
use crate::wire::handshake::Bound;
use crate::wire::{check_addresses, limits};

/// The settings of a machine. [`Config::new`] has defaults for all but the application's name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// Nodes of different applications refuse each other. At most 64 bytes.
    pub application: String,
    /// The driver says of each node whether it may have a connection with this one
    /// ([`Action::Authorize`](crate::Action::Authorize)), in each handshake. Default: all may.
    pub authorizes: bool,
    /// Where others can dial this node: at most 8, of at most 255 bytes each. Empty: it has to dial them.
    pub addresses: Vec<String>,
    /// Those of `addresses` at which this node listens itself, and not a proxy or a router for it. A node
    /// that has reached it there takes it for dead when its dials are [refused](Self::refused) at all of
    /// them.
    pub bound: Vec<String>,
    /// What others are told: so far apart two refusals at such an address have to be, unless it is on their
    /// own host. At least the grace period: only that counts.
    pub refused: Duration,
    /// If nothing else was to be sent for so long, a heartbeat is.
    pub heartbeat: Duration,
    /// A socket on which no byte arrived for so long counts as lost.
    pub silence: Duration,
    /// For so long a connection without a socket may come back; then it is dead.
    pub grace: Duration,
    /// An acknowledgement that could ride on nothing goes alone after so long.
    pub ack_delay: Duration,
    /// So many bytes that have arrived are acknowledged at once while more of a value is arriving; [four
    /// times](Self::QUIET) as many when nothing is, since an acknowledgement that waits may ride on an
    /// answer. Others should have at least as many as that for `unacked_min`.
    pub ack_bytes: usize,
    /// A socket that has not shaken hands after so long is closed.
    pub handshake: Duration,
    /// The first wait between two attempts to dial; it doubles...
    pub backoff_min: Duration,
    /// ... up to this.
    pub backoff_max: Duration,
    /// Values are cut into pieces of so many bytes, so that several channels can share a socket. At most 1
    /// MiB.
    pub chunk: usize,
    /// While only one channel has values to send, those of up to so many bytes go in one piece, and longer
    /// ones in halves of that: larger pieces cost less. At most 1 MiB; with less than `chunk`, pieces are as
    /// they are for several.
    pub chunk_alone: usize,
    /// So many bytes may be sent and not yet acknowledged; then a connection sends no more values.
    pub unacked_max: usize,
    /// So many bytes of values may be here that another node has sent unasked, each with [128 bytes
    /// beside](limits::VALUE), and have not been received. What is larger, or beyond that, is announced, and
    /// sent when there is room. A connection begins with [256 KiB](limits::CREDIT), which it has in any case.
    /// Twice `unacked_max`: with less, a long link would wait for credit before its window is full.
    pub credit_max: usize,
    /// So many bytes this node keeps for others in all, beside the 256 KiB of each: at least four times
    /// `value_max`.
    pub held_max: u64,
    /// Less than `unacked_max` may be, if the other side is slow to read: what is on its way makes all that
    /// is behind it wait. But never less than this, if that is not more than `unacked_max`.
    pub unacked_min: usize,
    /// So long what is on its way may wait to be read, beyond one and a half times the least round trip that
    /// was measured of late.
    pub queueing: Duration,
    /// The same for a connection of which nobody but one channel has made use [of late](Self::company), for
    /// its large values, if more than `chunk_alone` is written at once: nobody waits.
    pub queueing_alone: Duration,
    /// So long a connection is taken for one that several use, once something small was said or heard, or of
    /// another channel.
    pub company: Duration,
    /// The largest encoded value, in bytes.
    pub value_max: usize,
    /// So many sockets that were accepted may be without a finished handshake at once. One more, and one of
    /// the [source](crate::Source) that has most of them is closed.
    pub strangers_max: usize,
    /// So many other nodes are remembered; one more that dials is told to come later.
    /// [Sources](crate::Source) share these places: see [`has_place`](crate::source::has_place).
    pub peers_max: usize,
    /// So many channels may be attached by one other node.
    pub attached_max: usize,
    /// After so long without a socket others are asked to help, if they have not been before: all addresses
    /// have failed, or there are none. As long as that who was asked for a dial-back has time, and a socket
    /// that was lost, to come back before the connection is relayed.
    pub patience: Duration,
    /// So often, or up to twice as often, it is tried to dial the other node of a connection that is relayed.
    pub redial: Duration,
    /// So many others are asked one after the other to help with one connection. 0: nobody is.
    pub helpers_max: usize,
    /// So many sockets between other nodes are relayed at once. 0: this node does not relay. Sources share
    /// them: see [`has_place`](crate::source::has_place).
    pub relays_max: usize,
    /// An address that this node was only told is dialled again after so long at the earliest.
    pub retell: Duration,
    /// Addresses of this host may be dialled even if they were told over a network.
    pub dial_local: bool,
    /// A relay on this node's own host may let nodes of other hosts come here. A relay that this node reaches
    /// over a network may in any case.
    pub relayed: bool,
    /// This node has the same id when it is started again. So there may be a later life of it already, while
    /// this one was only held up: if another node says that it has met one, this one is replaced. It ends all
    /// its connections, and makes no more. If every start has an id of its own, there is no later life: then
    /// who says so is wrong, and only the connection with that one is over.
    pub keeps_id: bool,
}

impl Config {
    /// So many times [`ack_bytes`](Self::ack_bytes) are acknowledged at once in any case.
    pub const QUIET: usize = 4;

    /// What this node says of its addresses.
    pub(crate) fn bound_of_addresses(&self) -> Bound {
        let bits = self.addresses.iter().take(limits::ADDRESSES).enumerate();
        let which = bits.filter(|(_, address)| self.bound.contains(address)).map(|(at, _)| 1 << at).sum();
        Bound { which, refused_ms: u64::try_from(self.refused.as_millis()).unwrap_or(u64::MAX) }
    }

    /// Heartbeats go at multiples of this time: a timer fires once for many connections.
    pub(crate) fn heartbeat_grid(&self) -> Duration {
        self.first_heartbeat() / 16
    }

    /// The first heartbeat on a socket that resumes a connection comes after this time.
    pub(crate) fn first_heartbeat(&self) -> Duration {
        self.heartbeat.min(Duration::from_secs(1))
    }

    /// The defaults for an application of this name.
    pub fn new(application: impl Into<String>) -> Self {
        Self {
            application: application.into(),
            authorizes: false,
            addresses: Vec::new(),
            bound: Vec::new(),
            refused: Duration::from_secs(1),
            heartbeat: Duration::from_secs(1),
            silence: Duration::from_millis(3500),
            grace: Duration::from_secs(15),
            ack_delay: Duration::from_millis(20),
            ack_bytes: 32 << 10,
            handshake: Duration::from_secs(5),
            backoff_min: Duration::from_millis(20),
            backoff_max: Duration::from_secs(1),
            chunk: 16 << 10,
            chunk_alone: 128 << 10,
            unacked_max: 4 << 20,
            credit_max: 8 << 20,
            held_max: 1 << 30,
            unacked_min: 128 << 10,
            queueing: Duration::from_micros(50),
            queueing_alone: Duration::from_micros(500),
            company: Duration::from_millis(200),
            value_max: 64 << 20,
            strangers_max: 1024,
            peers_max: 1 << 16,
            attached_max: 1 << 20,
            patience: Duration::from_secs(1),
            redial: Duration::from_secs(30),
            helpers_max: 8,
            relays_max: 64,
            retell: Duration::from_secs(1),
            dial_local: false,
            relayed: false,
            keeps_id: true,
        }
    }

    /// Whether a machine can work with these settings.
    ///
    /// # Errors
    /// What is wrong with the first that cannot be, and what is allowed.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.application.len() > limits::APPLICATION {
            return Err(ConfigError::Application { bytes: self.application.len() });
        }
        check_addresses(&self.addresses).map_err(ConfigError::Addresses)?;
        for (what, value, max) in [
            ("chunk", self.chunk, limits::CHUNK),
            ("chunk_alone", self.chunk_alone, limits::CHUNK),
            ("unacked_max", self.unacked_max, usize::MAX),
            ("unacked_min", self.unacked_min, usize::MAX),
            ("strangers_max", self.strangers_max, usize::MAX),
        ] {
            if !(1..=max).contains(&value) {
                return Err(ConfigError::Size { what, value, max });
            }
        }
        let held_min = (self.value_max as u64).saturating_mul(4);
        if self.held_max < held_min {
            return Err(ConfigError::Held { bytes: self.held_max, bytes_min: held_min });
        }
        for (what, value) in [
            ("heartbeat", self.heartbeat),
            ("handshake", self.handshake),
            ("backoff_min", self.backoff_min),
            ("patience", self.patience),
            ("redial", self.redial),
        ] {
            if value.as_micros() == 0 {
                return Err(ConfigError::NoTime { what });
            }
        }
        for (shorter, short, longer, long) in [
            ("heartbeat", self.heartbeat, "silence", self.silence),
            ("backoff_min", self.backoff_min, "backoff_max", self.backoff_max),
            ("backoff_max", self.backoff_max, "a day", Duration::from_secs(24 * 60 * 60)),
            ("patience", self.patience, "a day", Duration::from_secs(24 * 60 * 60)),
            ("redial", self.redial, "a day", Duration::from_secs(24 * 60 * 60)),
        ] {
            if short > long {
                return Err(ConfigError::Order { shorter, short, longer, long });
            }
        }
        Ok(())
    }
}

/// Why a machine cannot work with a [`Config`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The application's name does not go into a handshake.
    #[error("the application's name has {bytes} bytes; at most {} are allowed", limits::APPLICATION)]
    Application {
        /// How long it is.
        bytes: usize,
    },
    /// The addresses do not go into a handshake.
    #[error("`addresses`: {0}")]
    Addresses(WireError),
    /// A number of bytes or things is zero, or too large.
    #[error("`{what}` is {value}; it must be from 1 to {max}")]
    Size {
        /// Which setting.
        what: &'static str,
        /// Its value.
        value: usize,
        /// What is allowed.
        max: usize,
    },
    /// Less may be kept for others than four values take.
    #[error("`held_max` is {bytes} bytes; it must be at least {bytes_min}, four times the largest value")]
    Held {
        /// The setting.
        bytes: u64,
        /// What is needed.
        bytes_min: u64,
    },
    /// A time is less than a microsecond, so that what it separates would follow without end.
    #[error("`{what}` is less than a microsecond")]
    NoTime {
        /// Which setting.
        what: &'static str,
    },
    /// A time is longer than one that it must not exceed.
    #[error("`{shorter}` ({short:?}) must not be longer than {longer} ({long:?})")]
    Order {
        /// Which setting.
        shorter: &'static str,
        /// Its value.
        short: Duration,
        /// The other one, or a limit.
        longer: &'static str,
        /// Its value.
        long: Duration,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(change: impl FnOnce(&mut Config)) -> Result<(), String> {
        let mut config = Config::new("tides");
        change(&mut config);
        config.check().map_err(|why| why.to_string())
    }

    fn is(text: &str) -> Result<(), String> {
        Err(text.to_owned())
    }

    #[test]
    fn the_defaults_will_do() {
        assert_eq!(checked(|_| {}), Ok(()));
    }

    #[test]
    fn sizes_have_exact_limits() {
        assert_eq!(checked(|config| config.application = "a".repeat(64)), Ok(()));
        let refused = is("the application's name has 65 bytes; at most 64 are allowed");
        assert_eq!(checked(|config| config.application = "a".repeat(65)), refused);
        assert_eq!(checked(|config| config.addresses = vec!["a".repeat(255); 8]), Ok(()));
        let refused = is("`addresses`: an address of 256 bytes; at most 255 are allowed");
        assert_eq!(checked(|config| config.addresses = vec!["a".repeat(256)]), refused);
        let refused = is("`addresses`: a count of addresses cannot be 9");
        assert_eq!(checked(|config| config.addresses = vec![String::new(); 9]), refused);
        assert_eq!(checked(|config| config.chunk = 1), Ok(()));
        assert_eq!(checked(|config| config.chunk = 1 << 20), Ok(()));
        assert_eq!(checked(|config| config.chunk = 0), is("`chunk` is 0; it must be from 1 to 1048576"));
        let refused = is("`chunk` is 1048577; it must be from 1 to 1048576");
        assert_eq!(checked(|config| config.chunk = (1 << 20) + 1), refused);
        assert!(checked(|config| config.unacked_max = 0).is_err());
        assert!(checked(|config| config.unacked_min = 0).is_err());
        assert!(checked(|config| config.strangers_max = 0).is_err());
    }

    #[test]
    fn times_are_in_order() {
        let second = Duration::from_secs(1);
        assert_eq!(checked(|config| config.silence = second), Ok(()));
        let refused = is("`heartbeat` (1s) must not be longer than silence (999ms)");
        assert_eq!(checked(|config| config.silence = Duration::from_millis(999)), refused);
        assert_eq!(checked(|config| config.backoff_min = second), Ok(()));
        assert!(checked(|config| config.backoff_min = 2 * second).is_err());
        let day = 86_400 * second;
        assert_eq!(checked(|config| config.backoff_max = day), Ok(()));
        assert!(checked(|config| config.backoff_max = day + second).is_err());
        assert_eq!(checked(|config| config.grace = Duration::MAX), Ok(()));
        let refused = is("`backoff_min` is less than a microsecond");
        assert_eq!(checked(|config| config.backoff_min = Duration::from_nanos(999)), refused);
        assert!(checked(|config| config.heartbeat = Duration::ZERO).is_err());
        assert!(checked(|config| config.handshake = Duration::ZERO).is_err());
        assert!(checked(|config| config.patience = Duration::ZERO).is_err());
        assert!(checked(|config| config.patience = day + second).is_err());
    }
}
