//! One file: its whole content, checked.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use super::error::ConfigError;
use super::keys::{self, AnyKey, Raw, nearest};
use super::origin::Origin;

/// What a section is for. `None`: for all nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Section {
    pub(super) application: Option<String>,
    pub(super) node: Option<String>,
}

/// Where a setting stands.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct At {
    section: Section,
    channel: Option<String>,
    key: &'static str,
}

/// One setting of a file.
#[derive(Debug)]
struct Entry {
    at: At,
    raw: Raw,
    line: usize,
}

/// A file whose settings are all known, and have an accepted form.
#[derive(Debug)]
pub(super) struct File {
    pub(super) path: PathBuf,
    entries: Vec<Entry>,
    /// Where each is among them.
    places: HashMap<At, usize>,
    /// The nodes that have a section, with their applications.
    nodes: Vec<Section>,
}

/// How a file was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Chosen {
    /// The program, the command or a variable names it: it must exist.
    Named,
    /// It is in the folder of the user's configuration.
    Users,
    /// It is in the working directory, which may be a folder that other users can write: see [`distrust`].
    Here,
}

/// The path that means standard input.
const STDIN: &str = "-";

/// The most bytes of a configuration.
const BYTES_MAX: u64 = 1 << 20;

/// Why a configuration in the working directory must not be read: another user has put it there, or could
/// have. It decides which names this node trusts and where it listens.
#[cfg(unix)]
pub(super) fn distrust(me: Owner, owner: Owner, mode: u32) -> Option<&'static str> {
    if owner.user != me.user && owner.user != 0 {
        return Some("the owner is another user");
    }
    // Many systems give each user a group, and let it write the user's files.
    let is_shared = mode & 0o002 != 0 || mode & 0o020 != 0 && owner.group != me.group && owner.group != 0;
    is_shared.then_some("other users can write to it")
}

/// The owner of a file, or the user of a process.
#[cfg(unix)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner {
    pub(super) user: u32,
    pub(super) group: u32,
}

/// Applies [`distrust`] to the file and to its folder.
#[cfg(unix)]
fn distrust_found(path: &Path, file: &std::fs::File) -> Result<(), ConfigError> {
    use std::os::unix::fs::MetadataExt;

    let me = Owner { user: rustix::process::geteuid().as_raw(), group: rustix::process::getegid().as_raw() };
    let unreadable = |error| ConfigError::Unreadable { path: path.to_owned(), error };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    for (which, metadata) in [(path, file.metadata()), (folder, std::fs::metadata(folder))] {
        let what = metadata.map_err(unreadable)?;
        if let Some(why) = distrust(me, Owner { user: what.uid(), group: what.gid() }, what.mode()) {
            return Err(ConfigError::Untrusted { path: path.to_owned(), which: which.to_owned(), why });
        }
    }
    Ok(())
}

/// Reads all of a regular file or of standard input. (Anything else might not end, or not begin.)
fn read(path: &Path, chosen: Chosen) -> Result<Vec<u8>, ConfigError> {
    let unreadable = |error| ConfigError::Unreadable { path: path.to_owned(), error };
    let mut bytes = Vec::new();
    let mut read_from = |from: &mut dyn Read| from.take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable);
    if chosen == Chosen::Named && path == Path::new(STDIN) {
        read_from(&mut io::stdin().lock())?;
    } else {
        let mut file = open(path).map_err(unreadable)?;
        #[cfg(unix)]
        if chosen == Chosen::Here {
            distrust_found(path, &file)?;
        }
        let kind = file.metadata().map_err(unreadable)?.file_type();
        if kind.is_dir() {
            return Err(unreadable(io::ErrorKind::IsADirectory.into()));
        }
        if !kind.is_file() {
            return Err(ConfigError::NoFile { path: path.to_owned() });
        }
        read_from(&mut file)?;
    }
    if bytes.len() as u64 > BYTES_MAX {
        return Err(ConfigError::TooLarge { path: path.to_owned(), max: BYTES_MAX });
    }
    Ok(bytes)
}

/// Opens it without waiting for a pipe's writer.
fn open(path: &Path) -> io::Result<std::fs::File> {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK);
    options.read(true).open(path)
}

impl File {
    /// `None`: there is no file, which is no error unless it was named.
    pub(super) fn open(path: &Path, chosen: Chosen) -> Result<Option<Self>, ConfigError> {
        match read(path, chosen) {
            Ok(bytes) => match std::str::from_utf8(&bytes) {
                Ok(text) => Self::parse(path, text).map(Some),
                Err(error) => {
                    let line = line(&bytes, error.valid_up_to());
                    let what = "the file is not UTF-8: save the file as UTF-8".to_owned();
                    Err(ConfigError::Invalid { origin: Origin::File { path: path.to_owned(), line }, what })
                }
            },
            Err(ConfigError::Unreadable { error, .. })
                if error.kind() == io::ErrorKind::NotFound && chosen != Chosen::Named =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    pub(super) fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let (entries, places, nodes) = (Vec::new(), HashMap::new(), Vec::new());
        let mut file = Self { path: path.to_owned(), entries, places, nodes };
        let ends: Vec<usize> = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at).collect();
        let document = DeTable::parse(text).map_err(|error| {
            let span = error.span().unwrap_or(0..0);
            let (at, reading) = (span.start, Reading { file: &mut file, text, ends: &ends });
            let more = if error.message() == "duplicate key" {
                // (It may be right both times.)
                text.get(span).map(|key| format!(" `{key}`"))
            } else {
                reading.form_at(at).map(|form| format!(". Write {form}"))
            };
            reading.refuse(at, format!("invalid TOML: {}{}", error.message(), more.unwrap_or_default()))
        })?;
        Reading { file: &mut file, text, ends: &ends }.section(document.get_ref(), &Section::default())?;
        Ok(file)
    }

    /// The value of a setting in this section.
    pub(super) fn find(&self, section: &Section, channel: Option<&str>, key: &'static str) -> Option<(&Raw, Origin)> {
        let at = At { section: section.clone(), channel: channel.map(str::to_owned), key };
        let entry = &self.entries[*self.places.get(&at)?];
        Some((&entry.raw, Origin::File { path: self.path.clone(), line: entry.line }))
    }

    /// The channels that this section configures.
    pub(super) fn channels(&self, section: &Section) -> impl Iterator<Item = &str> {
        let here = self.entries.iter().filter(move |entry| entry.at.section == *section);
        here.filter_map(|entry| entry.at.channel.as_deref())
    }

    /// The section of each setting.
    pub(super) fn sections(&self) -> impl Iterator<Item = &Section> {
        self.entries.iter().map(|entry| &entry.at.section)
    }

    /// What nodes run, and where that is set.
    pub(super) fn runs(&self) -> impl Iterator<Item = (&Raw, Origin)> {
        let runs = self.entries.iter().filter(|entry| entry.at.key == keys::RUN.name);
        runs.map(|entry| (&entry.raw, Origin::File { path: self.path.clone(), line: entry.line }))
    }

    pub(super) fn nodes(&self) -> impl Iterator<Item = &Section> {
        self.nodes.iter()
    }
}

/// The line, from 1, of the byte at this offset.
fn line(text: &[u8], at: usize) -> usize {
    1 + text.iter().take(at).filter(|byte| **byte == b'\n').count()
}

/// A file that is being read.
struct Reading<'a> {
    file: &'a mut File,
    text: &'a str,
    /// Where its lines end.
    ends: &'a [usize],
}

impl Reading<'_> {
    fn line(&self, at: usize) -> usize {
        1 + self.ends.partition_point(|end| *end < at)
    }

    /// The form of the key that begins the line there. `None`: the value is a string, as it should be; only
    /// its characters are wrong, or its closing quote is missing.
    fn form_at(&self, at: usize) -> Option<&'static str> {
        let (key, value) = self.text.lines().nth(self.line(at) - 1)?.split_once('=')?;
        let form = keys::all().find(|known| known.name() == key.trim()).map(|known| known.form())?;
        let is_string = |value: &str| value.trim_start().starts_with(['"', '\'']);
        let both = is_string(value) && form.split_once('=').is_some_and(|(_, value)| is_string(value));
        (!both).then_some(form)
    }

    fn refuse(&self, at: usize, what: String) -> ConfigError {
        ConfigError::Invalid { origin: Origin::File { path: self.file.path.clone(), line: self.line(at) }, what }
    }

    fn section(&mut self, table: &DeTable<'_>, section: &Section) -> Result<(), ConfigError> {
        // Which keys exist depends on what the section is for.
        let mut known: Vec<&'static dyn AnyKey> = keys::SETTINGS.to_vec();
        let mut tables = vec!["channels"];
        if section.application.is_none() {
            known.insert(0, &keys::APP);
        }
        match (&section.application, &section.node) {
            (_, Some(_)) => known.push(&keys::RUN),
            (Some(_), None) => tables.push("node"),
            (None, None) => tables.extend(["application", "node"]),
        }
        for (key, value) in table {
            let (key, at, value) = (key.get_ref().as_ref(), key.span().start, value.get_ref());
            if !tables.contains(&key) {
                continue;
            }
            for (name, value) in self.table(key, value, at, form_of(key))? {
                let (name, at, value) = (name.get_ref().as_ref(), name.span().start, value.get_ref());
                let inside = self.table(name, value, at, form_of(key))?;
                match key {
                    "channels" => self.settings(inside, &keys::CHANNEL, section, Some(name), &[])?,
                    "application" => {
                        self.section(inside, &Section { application: Some(name.to_owned()), node: None })?;
                    }
                    _ => {
                        let section = Section { node: Some(name.to_owned()), ..section.clone() };
                        self.file.nodes.push(section.clone());
                        self.section(inside, &section)?;
                    }
                }
            }
        }
        self.settings(table, &known, section, None, &tables)
    }

    fn table<'a, 'i>(
        &self,
        name: &str,
        value: &'a DeValue<'i>,
        at: usize,
        form: &str,
    ) -> Result<&'a DeTable<'i>, ConfigError> {
        match value {
            DeValue::Table(table) => Ok(table),
            other => Err(self.refuse(at, format!("{name} = {} is not accepted: write {form}", raw(other)))),
        }
    }

    fn settings(
        &mut self,
        table: &DeTable<'_>,
        known: &[&'static dyn AnyKey],
        section: &Section,
        channel: Option<&str>,
        tables: &[&str],
    ) -> Result<(), ConfigError> {
        for (written, value) in table {
            let (name, at) = (written.get_ref().as_ref(), written.span().start);
            if tables.contains(&name) {
                continue;
            }
            let Some(key) = known.iter().find(|key| key.name() == name) else {
                let names = || known.iter().map(|key| key.name()).chain(tables.iter().copied());
                let what = match nearest(name, names()) {
                    Some(near) => {
                        let key = known.iter().find(|key| key.name() == near);
                        let form = key.map_or_else(|| form_of(near), |key| key.form());
                        format!("there is no key {name:?} here; {near:?} is the nearest. Write {form}")
                    }
                    None => {
                        format!("there is no key {name:?} here; there are: {}", names().collect::<Vec<_>>().join(", "))
                    }
                };
                return Err(self.refuse(at, what));
            };
            let raw = raw(value.get_ref());
            if !key.accepts(&raw) {
                return Err(self.refuse(at, refused(name, &raw, key.form())));
            }
            let line = self.line(at);
            let at = At { section: section.clone(), channel: channel.map(str::to_owned), key: key.name() };
            self.file.places.insert(at.clone(), self.file.entries.len());
            self.file.entries.push(Entry { at, raw, line });
        }
        Ok(())
    }
}

/// How a table of tables is written.
fn form_of(key: &str) -> &'static str {
    match key {
        "channels" => r#"[channels] readings = { policy = "fifo(64)" }"#,
        "application" => "a section, [application.weather]",
        _ => "a section, [node.worker]",
    }
}

/// The error for a value that is not accepted.
pub(super) fn refused(name: &str, raw: &Raw, form: &str) -> String {
    format!("{name} = {raw} is not accepted: write {form}")
}

fn raw(value: &DeValue<'_>) -> Raw {
    match value {
        DeValue::String(text) => Raw::Text(text.to_string()),
        DeValue::Integer(number) => {
            let decimal = u64::from_str_radix(number.as_str(), number.radix());
            Raw::Number(decimal.map_or_else(|_| number.to_string(), |number| number.to_string()))
        }
        DeValue::Float(number) => Raw::Number(number.as_str().to_owned()),
        DeValue::Boolean(flag) => Raw::Flag(*flag),
        DeValue::Array(list) => Raw::List(list.iter().map(|value| raw(value.get_ref())).collect()),
        DeValue::Datetime(_) => Raw::Other("a date"),
        DeValue::Table(_) => Raw::Other("a table"),
    }
}
