//! All settings: their names, what they accept, and how their values are read.

use std::net::IpAddr;
use std::time::Duration;

use dunlin_core::{Policy, drop_newest, fifo, overwrite_newest, overwrite_oldest, rendezvous, unbounded};
use ipnet::IpNet;

use crate::node::Role;

/// The text of a file or a variable, not yet read as a setting.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Raw {
    /// From a variable: it may be of any kind of setting.
    Word(String),
    Text(String),
    Number(String),
    Flag(bool),
    List(Vec<Self>),
    /// A value that no setting accepts, in words.
    Other(&'static str),
}

impl std::fmt::Display for Raw {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Word(text) | Self::Text(text) => write!(f, "{text:?}"),
            Self::Number(digits) => f.write_str(digits),
            Self::Flag(flag) => flag.fmt(f),
            Self::List(list) => {
                f.write_str("[")?;
                for (at, raw) in list.iter().enumerate() {
                    write!(f, "{}{raw}", if at > 0 { ", " } else { "" })?;
                }
                f.write_str("]")
            }
            Self::Other(what) => f.write_str(what),
        }
    }
}

/// A setting.
pub(super) struct Key<T> {
    pub(super) name: &'static str,
    /// The variable that overrides it.
    pub(super) variable: Option<&'static str>,
    /// What it accepts, with an example.
    pub(super) form: &'static str,
    pub(super) read: fn(&Raw) -> Option<T>,
}

/// A [`Key`] of any type.
pub(super) trait AnyKey: Sync {
    fn name(&self) -> &'static str;
    fn form(&self) -> &'static str;
    fn variable(&self) -> Option<&'static str>;
    fn accepts(&self, raw: &Raw) -> bool;
}

impl<T> AnyKey for Key<T> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn form(&self) -> &'static str {
        self.form
    }

    fn variable(&self) -> Option<&'static str> {
        self.variable
    }

    fn accepts(&self, raw: &Raw) -> bool {
        (self.read)(raw).is_some()
    }
}

pub(super) const APP: Key<String> = Key {
    name: "app",
    variable: Some("DUNLIN_APP"),
    form: r#"app = "weather": the application's name, 1 to 64 bytes, without control characters"#,
    read: |raw| text(raw).filter(|name| is_application(name)),
};

pub(super) const NAMES: Key<String> = Key {
    name: "names",
    variable: Some("DUNLIN_NAMES"),
    form: r#"names = "tcp://names.example:7411": the address of the name service, "host:port", "unix:/path", "memory:name" or "default-route:7400""#,
    // Other nodes could not find the name service at an arbitrary free port.
    read: |raw| {
        let is_place = |address: &String| is_address(address) || default_route(address).is_some();
        text(raw).filter(|address| is_place(address) && !address.ends_with(":0"))
    },
};

pub(super) const LISTEN: Key<Vec<String>> = Key {
    name: "listen",
    variable: Some("DUNLIN_LISTEN"),
    form: concat!(
        r#"listen = "127.0.0.1:7500", or a list of addresses: "host:port", "unix:/path", "memory:name", "#,
        r#""default-route" or "default-route:7510""#
    ),
    read: |raw| texts(raw, |address| is_address(address) || default_route(address).is_some()),
};

pub(super) const ADVERTISE: Key<Vec<String>> = Key {
    name: "advertise",
    variable: Some("DUNLIN_ADVERTISE"),
    form: r#"advertise = "node7.example:7500", or a list of up to 8 addresses: "host:port", "unix:/path" or "memory:name""#,
    read: |raw| texts(raw, is_address).filter(|addresses| addresses.len() <= ADDRESSES_MAX),
};

pub(super) const GRACE: Key<Duration> = Key {
    name: "grace",
    variable: Some("DUNLIN_GRACE"),
    form: r#"grace = "20s": a time from "0s" to "168h", in ms, s, m or h"#,
    read: |raw| time(raw).filter(|time| *time <= Duration::from_secs(168 * 60 * 60)),
};

pub(super) const REFUSED: Key<Duration> = Key {
    name: "refused",
    variable: Some("DUNLIN_REFUSED"),
    form: r#"refused = "1s": a time from "0s" to "168h", in ms, s, m or h"#,
    read: GRACE.read,
};

pub(super) const HEARTBEAT: Key<Duration> = Key {
    name: "heartbeat",
    variable: Some("DUNLIN_HEARTBEAT"),
    form: r#"heartbeat = "1s": a time from "1ms" to "1h", in ms, s, m or h"#,
    read: |raw| time(raw).filter(|time| (Duration::from_millis(1)..=Duration::from_secs(60 * 60)).contains(time)),
};

pub(super) const MESSAGE_MAX_BYTES: Key<u64> = Key {
    name: "message_max_bytes",
    variable: Some("DUNLIN_MESSAGE_MAX_BYTES"),
    form: "message_max_bytes = 65536: a number of bytes from 1 to 1099511627776",
    read: bytes,
};

pub(super) const BUFFERED_MAX_BYTES: Key<u64> = Key {
    name: "buffered_max_bytes",
    variable: Some("DUNLIN_BUFFERED_MAX_BYTES"),
    form: "buffered_max_bytes = 16777216: a number of bytes from 1 to 1099511627776",
    read: bytes,
};

pub(super) const HELD_MAX_BYTES: Key<u64> = Key {
    name: "held_max_bytes",
    variable: Some("DUNLIN_HELD_MAX_BYTES"),
    form: "held_max_bytes = 1073741824: a number of bytes from 1 to 1099511627776, at least four times message_max_bytes",
    read: bytes,
};

pub(super) const STRAIGHT_MIN_BYTES: Key<u64> = Key {
    name: "straight_min_bytes",
    variable: Some("DUNLIN_STRAIGHT_MIN_BYTES"),
    form: "straight_min_bytes = 65536: a number of bytes from 1 to 1099511627776",
    read: bytes,
};

pub(super) const RELAY: Key<bool> = Key {
    name: "relay",
    variable: Some("DUNLIN_RELAY"),
    form: "relay = true, or false",
    read: |raw| match raw {
        Raw::Flag(flag) => Some(*flag),
        Raw::Word(word) => word.parse().ok(),
        _ => None,
    },
};

pub(super) const DIAL_LOCAL: Key<bool> = Key {
    name: "dial_local",
    variable: Some("DUNLIN_DIAL_LOCAL"),
    form: "dial_local = true, or false",
    read: RELAY.read,
};
pub(super) const RELAYED: Key<bool> =
    Key { name: "relayed", variable: Some("DUNLIN_RELAYED"), form: "relayed = true, or false", read: RELAY.read };

pub(super) const TRUSTED_SOURCES: Key<Vec<IpNet>> = Key {
    name: "trusted_sources",
    variable: Some("DUNLIN_TRUSTED_SOURCES"),
    form: r#"trusted_sources = ["10.0.0.7", "192.168.0.0/16"]: addresses, or networks of them"#,
    read: |raw| texts(raw, |text| network(text).is_some())?.iter().map(|text| network(text)).collect(),
};

pub(super) const ROLE: Key<Option<Role>> = Key {
    name: "role",
    variable: Some("DUNLIN_ROLE"),
    form: r#"role = "main", "member" or "none""#,
    read: |raw| match text(raw)?.as_str() {
        "main" => Some(Some(Role::Main)),
        "member" => Some(Some(Role::Member)),
        "none" => Some(None),
        _ => None,
    },
};

/// In a node's section only: what `dunlin node` runs.
pub(super) const RUN: Key<String> =
    Key { name: "run", variable: None, form: r#"run = "names": what `dunlin node` runs as this node"#, read: text };

pub(super) const POLICY: Key<(String, Policy)> = Key {
    name: "policy",
    variable: None,
    form: concat!(
        r#"policy = "fifo(64)", "rendezvous", "unbounded", "overwrite_oldest(8)", "overwrite_newest(8)" or "#,
        r#""drop_newest(8)", with a size from 1 to 4294967295"#
    ),
    read: |raw| {
        let text = text(raw)?;
        let policy = policy(&text)?;
        Some((text, policy))
    },
};

pub(super) const CHANNEL_MESSAGE_MAX_BYTES: Key<u64> = Key { variable: None, ..MESSAGE_MAX_BYTES };

/// The settings of a node.
pub(super) static SETTINGS: [&dyn AnyKey; 15] = [
    &NAMES,
    &LISTEN,
    &ADVERTISE,
    &GRACE,
    &REFUSED,
    &HEARTBEAT,
    &MESSAGE_MAX_BYTES,
    &BUFFERED_MAX_BYTES,
    &HELD_MAX_BYTES,
    &STRAIGHT_MIN_BYTES,
    &RELAY,
    &DIAL_LOCAL,
    &RELAYED,
    &TRUSTED_SOURCES,
    &ROLE,
];

/// All settings, of nodes and channels.
pub(super) fn all() -> impl Iterator<Item = &'static dyn AnyKey> {
    let others: [&'static dyn AnyKey; 2] = [&APP, &RUN];
    SETTINGS.iter().copied().chain(others).chain(CHANNEL)
}

/// The variables of the settings.
pub(super) fn variables() -> impl Iterator<Item = &'static str> {
    all().filter_map(AnyKey::variable)
}

/// The settings of a channel.
pub(super) static CHANNEL: [&dyn AnyKey; 2] = [&POLICY, &CHANNEL_MESSAGE_MAX_BYTES];

const BYTES_MAX: u64 = 1 << 40;

/// The most addresses that a node sends others (`limits::ADDRESSES` of the wire), and the most bytes of each.
pub(super) const ADDRESSES_MAX: usize = 8;
const ADDRESS_MAX: usize = 255;

/// Whether it is a valid application name: 1 to 64 bytes, without control characters.
pub fn is_application(name: &str) -> bool {
    (1..=64).contains(&name.len()) && !name.contains(char::is_control)
}

fn text(raw: &Raw) -> Option<String> {
    match raw {
        Raw::Word(text) | Raw::Text(text) if !text.is_empty() => Some(text.clone()),
        _ => None,
    }
}

/// An address, or a network of them.
fn network(text: &str) -> Option<IpNet> {
    text.parse().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))
}

/// A list, or a single text: in a variable, separated by commas.
fn texts(raw: &Raw, is_one: fn(&str) -> bool) -> Option<Vec<String>> {
    let texts: Vec<String> = match raw {
        Raw::Word(word) => word.split(',').map(|text| text.trim().to_owned()).collect(),
        Raw::Text(text) => vec![text.clone()],
        Raw::List(list) => list.iter().map(text).collect::<Option<_>>()?,
        _ => return None,
    };
    (!texts.is_empty() && texts.iter().all(|text| is_one(text))).then_some(texts)
}

fn time(raw: &Raw) -> Option<Duration> {
    let text = text(raw)?;
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    let milliseconds = match unit.trim_start() {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    Some(Duration::from_millis(number.checked_mul(milliseconds)?))
}

/// A time as [`GRACE`] takes it.
pub(super) fn show_time(time: Duration) -> String {
    match time.as_millis() {
        0 => "0s".to_owned(),
        ms if ms % 3_600_000 == 0 => format!("{}h", ms / 3_600_000),
        ms if ms % 60_000 == 0 => format!("{}m", ms / 60_000),
        ms if ms % 1000 == 0 => format!("{}s", ms / 1000),
        ms => format!("{ms}ms"),
    }
}

fn bytes(raw: &Raw) -> Option<u64> {
    let (Raw::Word(digits) | Raw::Number(digits)) = raw else { return None };
    digits.parse().ok().filter(|bytes| (1..=BYTES_MAX).contains(bytes))
}

fn policy(text: &str) -> Option<Policy> {
    match text {
        "rendezvous" => return Some(rendezvous()),
        "unbounded" => return Some(unbounded()),
        _ => {}
    }
    let (name, size) = text.strip_suffix(')')?.split_once('(')?;
    let make = match name {
        "fifo" => fifo,
        "overwrite_oldest" => overwrite_oldest,
        "overwrite_newest" => overwrite_newest,
        "drop_newest" => drop_newest,
        _ => return None,
    };
    // 0 is not a size: constructing one would panic.
    let size: u32 = size.trim().parse().ok().filter(|size| *size > 0)?;
    usize::try_from(size).ok().map(make)
}

/// Whether it can be an address: also of a network that only the program knows, with a prefix of letters.
fn is_address(address: &str) -> bool {
    let is_free_of_space = !address.contains(char::is_whitespace);
    let Some((scheme, rest)) = address.split_once(':') else { return false };
    if address.len() > ADDRESS_MAX {
        return false;
    }
    if scheme == "memory" {
        // Any text is a name; an empty text takes a free one.
        return true;
    }
    let is_scheme = scheme.len() > 1 && scheme.bytes().all(|byte| byte.is_ascii_lowercase());
    // `localhost:75000` is not an address of a network `localhost`.
    let is_port = |rest: &str| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit());
    let is_tcp = crate::net::is_tcp(address);
    is_free_of_space && (is_tcp || (is_scheme && scheme != "tcp" && !rest.is_empty() && !is_port(rest)))
}

/// The port of `default-route:port`: `Some(None)` without one.
pub(crate) fn default_route(address: &str) -> Option<Option<u16>> {
    match address.strip_prefix("default-route")? {
        "" => Some(None),
        rest => Some(Some(rest.strip_prefix(':')?.parse().ok()?)),
    }
}

/// The known name that is most like the written one, if any is similar.
pub(super) fn nearest<'a>(written: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let (distance, nearest) = known.map(|known| (distance(written, known), known)).min_by_key(|(d, _)| *d)?;
    (distance <= ((nearest.len() + 1) / 3).max(1)).then_some(nearest)
}

/// How many letters must be changed, inserted or removed (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, a) in a.chars().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, b) in b.iter().enumerate() {
            let changed = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_unit() {
        let ms = Duration::from_millis;
        for (text, time) in [("20s", ms(20_000)), ("500ms", ms(500)), ("2 m", ms(120_000)), ("0s", ms(0))] {
            assert_eq!((GRACE.read)(&Raw::Text(text.into())), Some(time), "{text}");
        }
        for text in ["", "20", "s", "1.5s", "-1s", "20S", "169h", "99999999999999999999s", "6000000000000000h"] {
            assert_eq!((GRACE.read)(&Raw::Text(text.into())), None, "{text}");
        }
        for time in [0, 1, 1500, 20_000, 90_000, 120_000, 7_200_000].map(ms) {
            assert_eq!((GRACE.read)(&Raw::Text(show_time(time))), Some(time));
        }
    }

    #[test]
    fn invalid_addresses_are_rejected() {
        for address in
            ["localhost:7500", ":7500", "tcp:h:1", "tcp://names.example:7411", "[::1]:1", "unix:/a", "quic:h:1"]
        {
            assert!(is_address(address), "{address}");
        }
        for address in ["", "localhost", "localhost:75000", "host:", "tcp:", "a b:1", "::1:7500", "tcp://h", "unix:"] {
            assert!(!is_address(address), "{address}");
        }
        assert_eq!(default_route("default-route:7510"), Some(Some(7510)));
        assert_eq!(default_route("default-route:75100"), None);
        assert_eq!(default_route("default-route7"), None);
    }

    #[test]
    fn malformed_policy_is_rejected() {
        for text in ["fifo(0)", "fifo()", "fifo", "fifo(-1)", "fifo(1", "stack(3)", "rendezvous(1)"] {
            assert!(policy(text).is_none(), "{text}");
        }
        for text in
            ["fifo(64)", "rendezvous", "unbounded", "overwrite_oldest(1)", "overwrite_newest(2)", "drop_newest(3)"]
        {
            assert!(policy(text).is_some(), "{text}");
        }
    }

    #[test]
    fn nearest_key_is_suggested_only_if_it_is_near() {
        let known = || SETTINGS.iter().map(|key| key.name());
        assert_eq!(nearest("graec", known()), Some("grace"));
        assert_eq!(nearest("mesage_max_byte", known()), Some("message_max_bytes"));
        assert_eq!(nearest("colour", known()), None);
    }
}
