//! The configuration of nodes: files, environment variables, and where each value came from.
//!
//! A [`Node`](crate::node::Node) that joins reads it for every setting that the program has not set. From the
//! strongest source to the weakest:
//!
//! 1. the program: [`NodeBuilder`](crate::node::NodeBuilder);
//! 2. variables: `DUNLIN_NAMES`, `DUNLIN_LISTEN`, ... (an empty one is ignored);
//! 3. `dunlin.toml` in the working directory;
//! 4. `dunlin.toml` in the folder of the user's configuration: `$XDG_CONFIG_HOME/dunlin/`, or
//!    `~/.config/dunlin/`; on Windows `%APPDATA%\dunlin\`;
//! 5. defaults.
//!
//! `DUNLIN_CONFIG=path`, or [`NodeBuilder::config`](crate::node::NodeBuilder::config), names one file instead
//! of 3 and 4. Within a file, the strongest section is that of a node within an application, then that of the
//! node, then that of the application, then the settings for all. In a simulation nothing is read.
//!
//! ```toml
//! app = "weather"
//! names = "tcp://names.example:7411"
//! grace = "20s"
//!
//! [channels]
//! readings = { policy = "fifo(64)", message_max_bytes = 65536 }
//!
//! [node.station]
//! listen = "default-route:7510"
//! ```
//!
//! `docs/config.md` has all keys, and `dunlin config` shows each value and where it came from.
//!
//! - [`Sources`]: the files and variables, read and checked; [`Config`]: what follows from them for one node;
//! - [`Setting`], [`Origin`]: a value, and where it came from; [`ConfigError`].

mod error;
mod file;
mod keys;
mod origin;

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dunlin_core::Policy;
use dunlin_sorted::{SortedMap, SortedSet};
use ipnet::IpNet;

pub use error::ConfigError;
use file::{Chosen, File, Section, refused};
pub(crate) use keys::default_route;
pub use keys::is_application;
use keys::{Key, Raw, nearest, show_time};
pub use origin::{Origin, Setting};

use crate::node::Role;

/// The bytes of a channel's values that may stay at its receiver's node, by default.
pub(crate) const BUFFERED_MAX: u64 = 16 << 20;

/// Values of this many bytes or more are offered unread, by default: smaller ones pass through the keeper
/// before they could be requested.
pub(crate) const STRAIGHT_MIN: u64 = 64 << 10;

/// The file's name, in the working directory and in the user's folder.
const FILE: &str = "dunlin.toml";

/// The settings of a channel.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ChannelConfig {
    /// Its policy, as written and as parsed; `None`: rendezvous.
    pub policy: Setting<Option<(String, Policy)>>,
    /// The largest message that its receiver accepts, in bytes; `None`: the node's limit.
    pub message_max_bytes: Setting<Option<u64>>,
}

/// All settings of one node, and where each came from.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// The application's name. Empty: not set.
    pub app: Setting<String>,
    /// Which node's section applies.
    pub node: Setting<Option<String>>,
    /// Where the name service is. `None`: at the first of [`NAMES_PORTS`](crate::node::NAMES_PORTS) on
    /// loopback that serves this application.
    pub names: Setting<Option<String>>,
    /// Where the node listens. Empty: at the first free of [`LISTEN_PORTS`](crate::node::LISTEN_PORTS) on
    /// loopback.
    pub listen: Setting<Vec<String>>,
    /// The addresses that other nodes dial. Empty: where it listens.
    pub advertise: Setting<Vec<String>>,
    /// How long a disconnected peer may take to reconnect.
    pub grace: Setting<Duration>,
    /// The minimum time between two refusals at an address of this node before other nodes take it for dead.
    pub refused: Setting<Duration>,
    /// The interval between heartbeats.
    pub heartbeat: Setting<Duration>,
    /// The largest encoded message that the node accepts.
    pub message_max_bytes: Setting<u64>,
    /// The bytes that the buffer of a channel may take here.
    pub buffered_max_bytes: Setting<u64>,
    /// The bytes that it keeps for all other nodes. `None`: a quarter of the machine's memory.
    pub held_max_bytes: Setting<Option<u64>>,
    /// Values of this many bytes or more bypass this node on their way to receivers elsewhere.
    pub straight_min_bytes: Setting<u64>,
    /// Whether it relays for other nodes.
    pub relay: Setting<bool>,
    /// Whether to dial addresses of this host that peers sent over a network.
    pub dial_local: Setting<bool>,
    /// Whether a relay on its own host may connect nodes of other hosts to it.
    pub relayed: Setting<bool>,
    /// Each socket from these addresses counts as a source of its own: they are routers or load balancers,
    /// which represent many hosts.
    pub trusted_sources: Setting<Vec<IpNet>>,
    /// Its role in the application.
    pub role: Setting<Option<Role>>,
    /// What `dunlin node` runs as this node.
    pub run: Setting<Option<String>>,
    /// The node that serves the application's names: the first whose section has `run = "names"`. The other
    /// nodes then leave the names to it.
    pub names_node: Option<String>,
    /// The settings of channels, by their names.
    pub channels: BTreeMap<String, ChannelConfig>,
    /// The files that were read, from the strongest to the weakest.
    pub files: Vec<PathBuf>,
}

impl Default for Config {
    fn default() -> Self {
        let machine = dunlin_proto::Config::new("");
        Self {
            app: Setting::default(String::new()),
            node: Setting::default(None),
            names: Setting::default(None),
            listen: Setting::default(Vec::new()),
            advertise: Setting::default(Vec::new()),
            grace: Setting::default(machine.grace),
            refused: Setting::default(machine.refused),
            heartbeat: Setting::default(machine.heartbeat),
            message_max_bytes: Setting::default(machine.value_max as u64),
            buffered_max_bytes: Setting::default(BUFFERED_MAX),
            held_max_bytes: Setting::default(None),
            straight_min_bytes: Setting::default(STRAIGHT_MIN),
            relay: Setting::default(true),
            dial_local: Setting::default(false),
            relayed: Setting::default(false),
            trusted_sources: Setting::default(Vec::new()),
            role: Setting::default(None),
            run: Setting::default(None),
            names_node: None,
            channels: BTreeMap::new(),
            files: Vec::new(),
        }
    }
}

/// A value for people and scripts to read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Value {
    /// Not set: the meaning of that, in words.
    Unset(&'static str),
    /// Text; a time is text too.
    Text(String),
    /// Several texts.
    List(Vec<String>),
    /// A number.
    Number(u64),
    /// Yes or no.
    Flag(bool),
}

impl fmt::Display for Value {
    /// As in a file; unset values in brackets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unset(means) => write!(f, "({means})"),
            Self::Text(text) => write!(f, "{text:?}"),
            Self::List(texts) => write!(f, "{texts:?}"),
            Self::Number(number) => number.fmt(f),
            Self::Flag(flag) => flag.fmt(f),
        }
    }
}

/// The settings that depend on each other.
struct Together {
    message_max_bytes: Setting<u64>,
    held_max_bytes: Setting<Option<u64>>,
    listen: Setting<Vec<String>>,
    advertise: Setting<Vec<String>>,
}

impl Together {
    /// Whether a node can start with them.
    fn check(&self) -> Result<(), ConfigError> {
        let refused = |origin: &Origin, what| Err(ConfigError::Invalid { origin: origin.clone(), what });
        let (message, held) = (&self.message_max_bytes, &self.held_max_bytes);
        let least = held_least(message.value);
        if let Some(held_max) = held.value.filter(|held_max| *held_max < least) {
            let what = format!(
                "held_max_bytes = {held_max} is too small: write at least {least}, four times message_max_bytes ({}, {}), or a \
                 smaller message_max_bytes",
                message.value, message.origin
            );
            return refused(&held.origin, what);
        }
        let count = self.listen.value.len();
        if self.advertise.value.is_empty() && count > keys::ADDRESSES_MAX {
            let what = format!(
                "listen has {count} addresses, and a node announces at most {}: shorten the list, or set advertise to \
                 those that other nodes need",
                keys::ADDRESSES_MAX
            );
            return refused(&self.listen.origin, what);
        }
        Ok(())
    }
}

/// The minimum of `held_max_bytes` for messages of up to this many bytes.
fn held_least(message_max_bytes: u64) -> u64 {
    message_max_bytes.saturating_mul(4)
}

impl Config {
    /// Checks the settings that depend on each other. `NodeBuilder::join` calls this with the settings of the
    /// program.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        Together {
            message_max_bytes: self.message_max_bytes.clone(),
            held_max_bytes: self.held_max_bytes.clone(),
            listen: self.listen.clone(),
            advertise: self.advertise.clone(),
        }
        .check()
    }

    /// `held_max_bytes`, or the default for a node of this machine: a quarter of the memory.
    pub(crate) fn held_max(&self) -> u64 {
        let of_memory = || held_least(self.message_max_bytes.value).max(crate::node::memory_here() / 4);
        self.held_max_bytes.value.unwrap_or_else(of_memory)
    }

    /// Each setting: its key (`channels.readings.policy`, ...), its value, and where that came from.
    pub fn rows(&self) -> Vec<(String, Value, Origin)> {
        fn row<T>(key: &str, setting: &Setting<T>, show: impl Fn(&T) -> Value) -> (String, Value, Origin) {
            (key.to_owned(), show(&setting.value), setting.origin.clone())
        }
        let text =
            |unset: &'static str| move |text: &Option<String>| text.clone().map_or(Value::Unset(unset), Value::Text);
        let list = |unset: &'static str| {
            move |texts: &Vec<String>| if texts.is_empty() { Value::Unset(unset) } else { Value::List(texts.clone()) }
        };
        let time = |time: &Duration| Value::Text(show_time(*time));
        let number = |number: &u64| Value::Number(*number);
        let mut rows = vec![
            row("app", &self.app, |app| match app.as_str() {
                "" => Value::Unset("none: required"),
                app => Value::Text(app.to_owned()),
            }),
            row("node", &self.node, text("none")),
            row(
                "names",
                &self.names,
                text("127.0.0.1, the first of the ports 7400 to 7415 that has the application's"),
            ),
            row("listen", &self.listen, list("127.0.0.1, the first free port from 7500")),
            row("advertise", &self.advertise, list("where it listens")),
            row("grace", &self.grace, time),
            row("refused", &self.refused, time),
            row("heartbeat", &self.heartbeat, time),
            row("message_max_bytes", &self.message_max_bytes, number),
            row("buffered_max_bytes", &self.buffered_max_bytes, number),
            // (A quarter of the memory is another number on each machine.)
            row("held_max_bytes", &self.held_max_bytes, |_| Value::Number(self.held_max())),
            row("straight_min_bytes", &self.straight_min_bytes, number),
            row("relay", &self.relay, |relay| Value::Flag(*relay)),
            row("dial_local", &self.dial_local, |dial| Value::Flag(*dial)),
            row("relayed", &self.relayed, |relayed| Value::Flag(*relayed)),
            row("trusted_sources", &self.trusted_sources, |sources| match &sources[..] {
                [] => Value::Unset("none"),
                some => Value::List(some.iter().map(ToString::to_string).collect()),
            }),
            row("role", &self.role, |role| {
                let role = match role {
                    Some(Role::Main) => "main",
                    Some(Role::Member) => "member",
                    None => "none",
                };
                Value::Text(role.to_owned())
            }),
            row("run", &self.run, text("nothing")),
        ];
        for (name, channel) in &self.channels {
            rows.push(row(&format!("channels.{name}.policy"), &channel.policy, |policy| match policy {
                Some((written, _)) => Value::Text(written.clone()),
                None => Value::Text("rendezvous".to_owned()),
            }));
            let limit = &channel.message_max_bytes;
            rows.push(row(&format!("channels.{name}.message_max_bytes"), limit, |max| {
                max.map_or(Value::Unset("the node's"), Value::Number)
            }));
        }
        rows
    }
}

/// The files and variables that configure nodes, read and checked.
///
/// # Examples
/// ```
/// use dunlin::config::{Origin, Sources};
///
/// # let folder = std::env::temp_dir().join(format!("dunlin-sources-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder).unwrap();
/// # let path = folder.join("dunlin.toml");
/// std::fs::write(&path, "app = 'weather'\n[node.station]\ngrace = '20s'\n")?;
/// let config = Sources::file(&path)?.resolve(None, Some("station"))?;
/// assert_eq!(config.app.value, "weather");
/// assert_eq!(config.grace.value.as_secs(), 20);
/// assert_eq!(config.grace.origin, Origin::File { path, line: 3 });
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Sources {
    /// From the strongest to the weakest.
    files: Vec<File>,
    variables: Variables,
}

/// The variables that are set.
type Variables = SortedMap<&'static str, String>;

/// Where a search looks.
struct Places<'a> {
    variable: &'a dyn Fn(&str) -> Option<OsString>,
    here: PathBuf,
    user: Option<PathBuf>,
}

fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

/// The environment of this process.
fn surroundings() -> Places<'static> {
    // (The path is relative, so it is shown as such.)
    Places { variable: &variable, here: PathBuf::from(FILE), user: users_file(variable) }
}

/// The file in the folder of the user's configuration, where the system has them.
fn users_file(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    // The specification ignores a relative path (XDG Base Directory Specification).
    let folder = |name: &str| variable(name).map(PathBuf::from).filter(|folder| folder.is_absolute());
    let folder = if cfg!(windows) {
        folder("APPDATA")
    } else {
        folder("XDG_CONFIG_HOME").or_else(|| Some(folder("HOME")?.join(".config")))
    };
    Some(folder?.join("dunlin").join(FILE))
}

impl Sources {
    /// Reads what a node reads by itself: the variables, and the file that `DUNLIN_CONFIG` names, or
    /// `dunlin.toml` in the working directory and in the user's folder.
    ///
    /// # Errors
    /// [`ConfigError`]. Only the file that `DUNLIN_CONFIG` names must exist. On unix, a file in the working
    /// directory is refused if another user but root owns it or its folder, or can write them.
    pub fn search() -> Result<Self, ConfigError> {
        Self::search_in(&surroundings())
    }

    /// Reads the variables, and this file instead of the standard ones.
    ///
    /// # Errors
    /// [`ConfigError`], also if the file does not exist.
    pub fn file(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        let files = File::open(path.as_ref(), Chosen::Named)?.into_iter().collect();
        Ok(Self { files, variables: variables(&surroundings())? })
    }

    fn search_in(places: &Places<'_>) -> Result<Self, ConfigError> {
        let variables = variables(places)?;
        let mut files = Vec::new();
        match (places.variable)(CONFIG).filter(|path| !path.is_empty()) {
            Some(path) => files.extend(File::open(Path::new(&path), Chosen::Named)?),
            None => {
                files.extend(File::open(&places.here, Chosen::Here)?);
                if let Some(path) = &places.user {
                    files.extend(File::open(path, Chosen::Users)?);
                }
            }
        }
        Ok(Self { files, variables })
    }

    /// The names of the nodes that have a section, for an application or for any.
    pub fn nodes(&self, app: &str) -> Vec<String> {
        let sections = self.files.iter().flat_map(File::nodes);
        let here = sections.filter(|section| section.application.as_deref().is_none_or(|of| of == app));
        let names: SortedSet<String> = here.filter_map(|section| section.node.clone()).collect();
        names.into_iter().collect()
    }

    /// What the files let nodes run (`run = "..."`), and where: for a program that knows what can be run.
    pub fn runs(&self) -> Vec<Setting<String>> {
        let said = self.files.iter().flat_map(File::runs);
        said.filter_map(|(raw, origin)| Some(Setting { value: (keys::RUN.read)(raw)?, origin })).collect()
    }

    /// Environment variables with `dunlin`'s prefix that name no setting: perhaps misspelt. Each comes with
    /// the nearest known variable, if one is near.
    pub fn unknown_variables() -> Vec<(String, Option<&'static str>)> {
        let known = || keys::variables().chain([NODE, CONFIG, crate::watchdog::VARIABLE]);
        let all = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        let unknown = all.filter(|name| name.starts_with("DUNLIN_") && known().all(|known| known != name));
        unknown.map(|name| (nearest(&name, known()), name)).map(|(near, name)| (name, near)).collect()
    }

    /// Checks the result of each section together with the weaker ones, as a node does when it joins:
    /// `held_max_bytes` against `message_max_bytes`, and the number of addresses that other nodes get. A
    /// node's section belongs to the application that the section or the file names.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`].
    pub fn check(&self) -> Result<(), ConfigError> {
        let mut checked = HashSet::new();
        let all = [Section::default()];
        for section in all.iter().chain(self.files.iter().flat_map(File::sections)) {
            let node = section.node.as_deref();
            let app = match &section.application {
                Some(app) => app.clone(),
                None => self.find(&keys::APP, &sections("", node), None)?.map_or(String::new(), |app| app.value),
            };
            let at = sections(&app, node);
            if !checked.insert((app, section.node.clone())) {
                continue;
            }
            let default = Config::default();
            Together {
                message_max_bytes: self.find(&keys::MESSAGE_MAX_BYTES, &at, None)?.unwrap_or(default.message_max_bytes),
                held_max_bytes: self.find(&keys::HELD_MAX_BYTES, &at, None)?.map_or(default.held_max_bytes, some),
                listen: self.find(&keys::LISTEN, &at, None)?.unwrap_or(default.listen),
                advertise: self.find(&keys::ADVERTISE, &at, None)?.unwrap_or(default.advertise),
            }
            .check()?;
        }
        Ok(())
    }

    /// The configuration of a node: of this application and with this name, if the program sets them.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`], if a variable has a value that is not accepted.
    pub fn resolve(&self, app: Option<&str>, node: Option<&str>) -> Result<Config, ConfigError> {
        let mut config =
            Config { files: self.files.iter().map(|file| file.path.clone()).collect(), ..Config::default() };
        if let Some(name) = self.variables.get(NODE) {
            config.node = Setting { value: Some(name.clone()), origin: Origin::Variable(NODE) };
        }
        config.node.overridden(node.map(|node| Some(node.to_owned())));
        let name = config.node.value.clone();
        // Sections of an application do not set its name.
        let app_sections = sections("", name.as_deref());
        config.app = self.find(&keys::APP, &app_sections, None)?.unwrap_or(config.app);
        config.app.overridden(app);
        let app = config.app.value.clone();
        if let (Some(name), Origin::Variable(_)) = (&name, &config.node.origin) {
            self.is_there(name, &app)?;
        }
        let at = sections(&app, name.as_deref());
        config.names = self.find(&keys::NAMES, &at, None)?.map_or(config.names, some);
        config.listen = self.find(&keys::LISTEN, &at, None)?.unwrap_or(config.listen);
        config.advertise = self.find(&keys::ADVERTISE, &at, None)?.unwrap_or(config.advertise);
        config.grace = self.find(&keys::GRACE, &at, None)?.unwrap_or(config.grace);
        config.refused = self.find(&keys::REFUSED, &at, None)?.unwrap_or(config.refused);
        config.heartbeat = self.find(&keys::HEARTBEAT, &at, None)?.unwrap_or(config.heartbeat);
        config.message_max_bytes = self.find(&keys::MESSAGE_MAX_BYTES, &at, None)?.unwrap_or(config.message_max_bytes);
        config.buffered_max_bytes =
            self.find(&keys::BUFFERED_MAX_BYTES, &at, None)?.unwrap_or(config.buffered_max_bytes);
        config.held_max_bytes = self.find(&keys::HELD_MAX_BYTES, &at, None)?.map_or(config.held_max_bytes, some);
        config.straight_min_bytes =
            self.find(&keys::STRAIGHT_MIN_BYTES, &at, None)?.unwrap_or(config.straight_min_bytes);
        config.relay = self.find(&keys::RELAY, &at, None)?.unwrap_or(config.relay);
        config.dial_local = self.find(&keys::DIAL_LOCAL, &at, None)?.unwrap_or(config.dial_local);
        config.relayed = self.find(&keys::RELAYED, &at, None)?.unwrap_or(config.relayed);
        config.trusted_sources = self.find(&keys::TRUSTED_SOURCES, &at, None)?.unwrap_or(config.trusted_sources);
        config.role = self.find(&keys::ROLE, &at, None)?.unwrap_or(config.role);
        config.run = self.find(&keys::RUN, &at, None)?.map_or(config.run, some);
        for node in self.nodes(&app) {
            let runs = self.find(&keys::RUN, &sections(&app, Some(&node)), None)?;
            if runs.is_some_and(|runs| runs.value == NAMES) {
                config.names_node = Some(node);
                break;
            }
        }
        let channels: SortedSet<&str> =
            at.iter().flat_map(|section| self.files.iter().flat_map(|file| file.channels(section))).collect();
        for channel in channels {
            let policy = self.find(&keys::POLICY, &at, Some(channel))?;
            let max = self.find(&keys::CHANNEL_MESSAGE_MAX_BYTES, &at, Some(channel))?;
            let policy = policy.map_or(Setting::default(None), some);
            let message_max_bytes = max.map_or(Setting::default(None), some);
            config.channels.insert(channel.to_owned(), ChannelConfig { policy, message_max_bytes });
        }
        Ok(config)
    }

    /// The strongest source of a setting.
    fn find<T>(
        &self,
        key: &Key<T>,
        sections: &[Section],
        channel: Option<&str>,
    ) -> Result<Option<Setting<T>>, ConfigError> {
        let variable = key.variable.and_then(|name| self.variables.get_key_value(name));
        let variable = variable.map(|(name, value)| (Raw::Word(value.clone()), Origin::Variable(name)));
        let in_files = || {
            self.files
                .iter()
                .flat_map(|file| sections.iter().map(move |section| (file, section)))
                .find_map(|(file, section)| file.find(section, channel, key.name))
                .map(|(raw, origin)| (raw.clone(), origin))
        };
        let Some((raw, origin)) = variable.or_else(in_files) else { return Ok(None) };
        match (key.read)(&raw) {
            Some(value) => Ok(Some(Setting { value, origin })),
            None => Err(ConfigError::Invalid { origin, what: refused(key.name, &raw, key.form) }),
        }
    }

    /// A variable that names an unknown node is misspelt.
    fn is_there(&self, name: &str, app: &str) -> Result<(), ConfigError> {
        let nodes = self.nodes(app);
        if nodes.iter().any(|node| node == name) {
            return Ok(());
        }
        let near = nearest(name, nodes.iter().map(String::as_str));
        let what = match near {
            Some(near) => format!("there is no section [node.{name}]; [node.{near}] is the nearest"),
            None if nodes.is_empty() => format!("there is no section [node.{name}], nor one of another node"),
            None => format!("there is no section [node.{name}]; there are: {}", nodes.join(", ")),
        };
        Err(ConfigError::Invalid { origin: Origin::Variable(NODE), what })
    }
}

/// The value of `run` for a node that serves the names.
pub(crate) const NAMES: &str = "names";

/// The sections that apply to a node, from the strongest to the weakest.
fn sections(app: &str, node: Option<&str>) -> Vec<Section> {
    let of = |application: Option<&str>, node: Option<&str>| Section {
        application: application.map(str::to_owned),
        node: node.map(str::to_owned),
    };
    let mut sections = Vec::new();
    if node.is_some() {
        sections.extend([of(Some(app), node), of(None, node)]);
    }
    sections.extend([of(Some(app), None), of(None, None)]);
    sections
}

/// The variable that names the file.
const CONFIG: &str = "DUNLIN_CONFIG";

/// The variable that selects the node's section.
const NODE: &str = "DUNLIN_NODE";

fn some<T>(setting: Setting<T>) -> Setting<Option<T>> {
    Setting { value: Some(setting.value), origin: setting.origin }
}

fn variables(places: &Places<'_>) -> Result<Variables, ConfigError> {
    let names = keys::variables().chain([NODE]);
    let mut variables = Variables::new();
    for name in names {
        match (places.variable)(name).map(OsString::into_string) {
            Some(Ok(value)) if !value.is_empty() => {
                variables.insert(name, value);
            }
            Some(Err(_)) => {
                let origin = Origin::Variable(name);
                return Err(ConfigError::Invalid { origin, what: "the value is not Unicode".to_owned() });
            }
            _ => {}
        }
    }
    Ok(variables)
}

#[cfg(test)]
mod tests;
