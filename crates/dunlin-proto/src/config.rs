//! The configuration of a node: its application, its times, its limits.

use std::time::Duration;

use crate::wire::codec::WireError;
use crate::wire::handshake::Bound;
use crate::wire::{check_addresses, limits};

/// The settings of a machine. [`Config::new`] has defaults for all except the application's name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// Nodes of different applications refuse each other. At most 64 bytes.
    pub application: String,
    /// Whether the driver decides, in each handshake, if a node may have a connection with this one
    /// ([`Action::Authorize`](crate::Action::Authorize)). Default: all may.
    pub authorizes: bool,
    /// Where others can dial this node: at most 8, of at most 255 bytes each. Empty: this node has to dial
    /// them.
    pub addresses: Vec<String>,
    /// The `addresses` at which this node listens itself, not through a proxy or a router. A node that has
    /// reached this one there considers it dead when its dials are [refused](Self::refused) at all of them.
    pub bound: Vec<String>,
    /// The minimum time between two refusals at such an address, as declared to other nodes; a node on the
    /// same host does not wait for it. If it is at least the grace period, refusals never count: only that
    /// period does.
    pub refused: Duration,
    /// A heartbeat is sent after this time without other frames.
    pub heartbeat: Duration,
    /// A socket on which no byte arrives for this long counts as lost.
    pub silence: Duration,
    /// How long a connection may be without a socket before it is dead.
    pub grace: Duration,
    /// An acknowledgement that finds no other frame to travel with is sent alone after this time.
    pub ack_delay: Duration,
    /// How many received bytes are acknowledged at once while more of a value is arriving. Otherwise [four
    /// times](Self::QUIET) as many are, since an acknowledgement that waits may travel with an answer.
    /// `unacked_min` of other nodes should be at least that larger number.
    pub ack_bytes: usize,
    /// A socket without a complete handshake after this time is closed.
    pub handshake: Duration,
    /// The first wait between two attempts to dial; it doubles...
    pub backoff_min: Duration,
    /// ... up to this.
    pub backoff_max: Duration,
    /// Values are cut into pieces of this many bytes, so that several channels can share a socket. At most 1
    /// MiB.
    pub chunk: usize,
    /// While only one channel has values to send, values of up to this many bytes go in one piece, and longer
    /// ones in pieces of half the size: larger pieces cost less. At most 1 MiB; if less than `chunk`, pieces
    /// are as they are for several channels.
    pub chunk_alone: usize,
    /// How many bytes may be sent and not yet acknowledged; at this limit a connection sends no more values.
    pub unacked_max: usize,
    /// How many bytes of values another node may have sent unasked that are here and not yet received, each
    /// with an [overhead of 128 bytes](limits::VALUE). A larger value, or one beyond that, is announced, and
    /// sent when there is room. A connection begins with [256 KiB](limits::CREDIT), which it always has.
    /// Default: twice `unacked_max`; with less, a long link would wait for credit before its window is full.
    pub credit_max: usize,
    /// How many bytes this node keeps for all others, besides the 256 KiB of each: at least four times
    /// `value_max`.
    pub held_max: u64,
    /// The limit may be lower than `unacked_max` if the other side reads slowly, because bytes in flight
    /// delay everything behind them. It is never lower than this, if this is at most `unacked_max`.
    pub unacked_min: usize,
    /// How long bytes in flight may wait to be read, beyond twice the least round trip measured recently.
    pub queueing: Duration,
    /// The same for the large values of a connection that only one channel has used [lately](Self::company),
    /// if more than `chunk_alone` is written at once: nothing else waits.
    pub queueing_alone: Duration,
    /// How long a connection counts as shared by several channels after a small frame, or a frame of another
    /// channel.
    pub company: Duration,
    /// The largest encoded value, in bytes.
    pub value_max: usize,
    /// How many accepted sockets may be in an unfinished handshake at once. One more, and one of the
    /// [source](crate::Source) that has most of them is closed.
    pub strangers_max: usize,
    /// How many other nodes are remembered; another node that dials is refused as busy.
    /// [Sources](crate::Source) share these places: see [`has_place`](crate::source::has_place).
    pub peers_max: usize,
    /// How many channels one other node may attach.
    pub attached_max: usize,
    /// After this time without a socket other nodes are asked to help, or earlier if all addresses have
    /// failed, or none is known. A node that was asked for a dial-back, and a lost socket, have the same time
    /// before the connection is relayed.
    pub patience: Duration,
    /// How often this node tries to dial the other node of a relayed connection directly: after this time, or
    /// as little as half of it.
    pub redial: Duration,
    /// How many nodes are asked, one after the other, to help with one connection. 0: none.
    pub helpers_max: usize,
    /// How many sockets between other nodes are relayed at once. 0: this node does not relay. Sources share
    /// them: see [`has_place`](crate::source::has_place).
    pub relays_max: usize,
    /// The minimum time before an address learned from other nodes is dialled again.
    pub retell: Duration,
    /// Whether addresses of this host may be dialled even if they were received over a network.
    pub dial_local: bool,
    /// Whether a relay on this node's own host may admit nodes of other hosts to this one. A relay that this
    /// node reaches over a network always may.
    pub relayed: bool,
    /// Whether this node has the same id when it is started again. Then a later life of it may already exist,
    /// while this one was only held up. If another node reports one that it has met, this one is replaced: it
    /// ends all its connections, and makes no more. If every start has an id of its own, no later life
    /// exists: then such a report is wrong, and ends only the connection with the reporting node.
    pub keeps_id: bool,
}

impl Config {
    /// How many times [`ack_bytes`](Self::ack_bytes) are acknowledged at once in any case.
    pub const QUIET: usize = 4;

    /// What this node declares about its addresses.
    pub(crate) fn bound_of_addresses(&self) -> Bound {
        let bits = self.addresses.iter().take(limits::ADDRESSES).enumerate();
        let which = bits.filter(|(_, address)| self.bound.contains(address)).map(|(at, _)| 1 << at).sum();
        Bound { which, refused_ms: u64::try_from(self.refused.as_millis()).unwrap_or(u64::MAX) }
    }

    /// Heartbeats are sent at multiples of this time, so that a timer fires once for many connections.
    pub(crate) fn heartbeat_grid(&self) -> Duration {
        self.first_heartbeat() / 16
    }

    /// The first heartbeat on a socket that resumes a connection is sent after this time.
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

    /// Checks that a machine can work with these settings.
    ///
    /// # Errors
    /// The first invalid setting, with the allowed range.
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
    /// The application's name does not fit into a handshake.
    #[error("the application's name has {bytes} bytes; at most {} are allowed", limits::APPLICATION)]
    Application {
        /// Its length.
        bytes: usize,
    },
    /// The addresses do not fit into a handshake.
    #[error("`addresses`: {0}")]
    Addresses(WireError),
    /// A number is zero, or too large.
    #[error("`{what}` is {value}; it must be from 1 to {max}")]
    Size {
        /// The setting.
        what: &'static str,
        /// Its value.
        value: usize,
        /// The maximum.
        max: usize,
    },
    /// `held_max` is less than four values take.
    #[error("`held_max` is {bytes} bytes; it must be at least {bytes_min}, four times the largest value")]
    Held {
        /// The setting.
        bytes: u64,
        /// The minimum.
        bytes_min: u64,
    },
    /// A time is less than a microsecond: the actions that it separates would follow each other without end.
    #[error("`{what}` is less than a microsecond")]
    NoTime {
        /// The setting.
        what: &'static str,
    },
    /// A time is longer than one that it must not exceed.
    #[error("`{shorter}` ({short:?}) must not be longer than {longer} ({long:?})")]
    Order {
        /// The setting.
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
    fn default_config_is_valid() {
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
