use super::*;

/// The result of a search with these variables and files, in the working directory and the user's folder.
fn search(variables: &[(&str, &str)], here: Option<&str>, user: Option<&str>) -> Result<Sources, ConfigError> {
    let folder = Folder::new();
    let write = |name: &str, text: Option<&str>| {
        let path = folder.0.join(name);
        text.inspect(|text| std::fs::write(&path, text).unwrap());
        path
    };
    let variable = |name: &str| {
        let (_, value) = variables.iter().find(|(variable, _)| *variable == name)?;
        Some(OsString::from(value))
    };
    let user = Some(write("user.toml", user));
    Sources::search_in(&Places { variable: &variable, here: write("here.toml", here), user })
}

/// A folder of one test. Dropped, it is removed.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("dunlin-config-{:032x}", crate::world::random()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Where it came from, without the folder.
fn place(origin: &Origin) -> String {
    match origin {
        Origin::File { path, line } => format!("{}:{line}", path.file_name().unwrap().to_str().unwrap()),
        other => other.to_string(),
    }
}

fn refused(text: &str) -> String {
    let error = File::parse(Path::new("dunlin.toml"), text).unwrap_err();
    error.to_string()
}

const HERE: &str = r#"
grace = "2s"
heartbeat = "200ms"
relay = false
"#;

const USER: &str = r#"
grace = "1s"
heartbeat = "100ms"
relay = true
buffered_max_bytes = 1_000
"#;

#[test]
fn each_config_layer_overrides_the_next() {
    let sources = search(&[("DUNLIN_GRACE", "3s"), ("DUNLIN_RELAY", "")], Some(HERE), Some(USER)).unwrap();
    let config = sources.resolve(Some("sea"), None).unwrap();
    let ms = Duration::from_millis;
    assert_eq!((config.app.value.as_str(), place(&config.app.origin)), ("sea", "the program".to_owned()));
    assert_eq!((config.grace.value, place(&config.grace.origin)), (ms(3000), "DUNLIN_GRACE".to_owned()));
    assert_eq!((config.heartbeat.value, place(&config.heartbeat.origin)), (ms(200), "here.toml:3".to_owned()));
    // An empty variable is ignored.
    assert_eq!((config.relay.value, place(&config.relay.origin)), (false, "here.toml:4".to_owned()));
    let buffered = &config.buffered_max_bytes;
    assert_eq!((buffered.value, place(&buffered.origin)), (1000, "user.toml:5".to_owned()));
    assert_eq!((config.listen.value.len(), config.listen.origin), (0, Origin::Default));
    assert_eq!(config.files.len(), 2);
}

#[test]
fn without_files_and_variables_there_are_defaults() {
    let config = search(&[], None, None).unwrap().resolve(None, None).unwrap();
    assert!(config.rows().iter().all(|(_, _, origin)| *origin == Origin::Default));
    assert_eq!(config.files.len(), 0);
    let shown: Vec<String> = config.rows().iter().map(|(key, value, _)| format!("{key} = {value}")).collect();
    // A number, of this machine.
    let held_max = (crate::node::memory_here() / 4).max(4 * 67_108_864);
    assert_eq!(
        shown,
        [
            "app = (none: required)",
            "node = (none)",
            "names = (127.0.0.1, the first of the ports 7400 to 7415 that has the application's)",
            "listen = (127.0.0.1, the first free port from 7500)",
            "advertise = (where it listens)",
            r#"grace = "15s""#,
            r#"refused = "1s""#,
            r#"heartbeat = "1s""#,
            "message_max_bytes = 67108864",
            "buffered_max_bytes = 16777216",
            &format!("held_max_bytes = {held_max}"),
            "straight_min_bytes = 65536",
            "relay = true",
            "dial_local = false",
            "relayed = false",
            "trusted_sources = (none)",
            r#"role = "none""#,
            "run = (nothing)",
        ]
    );
}

#[cfg(not(windows))]
#[test]
fn users_config_file_is_in_the_folder_of_the_system() {
    let file = |variables: &[(&str, &str)]| {
        let variables = variables.to_vec();
        users_file(move |name| {
            variables.iter().find(|(variable, _)| *variable == name).map(|(_, value)| OsString::from(value))
        })
    };
    let there = |path| Some(PathBuf::from(path));
    assert_eq!(file(&[("HOME", "/home/a")]), there("/home/a/.config/dunlin/dunlin.toml"));
    assert_eq!(file(&[("HOME", "/home/a"), ("XDG_CONFIG_HOME", "/c")]), there("/c/dunlin/dunlin.toml"));
    assert_eq!(file(&[("HOME", "/home/a"), ("XDG_CONFIG_HOME", "c")]), there("/home/a/.config/dunlin/dunlin.toml"));
    assert_eq!(file(&[]), None);
}

#[test]
fn named_config_file_replaces_the_searched_ones() {
    let folder = Folder::new();
    let named = folder.0.join("named.toml");
    std::fs::write(&named, "grace = '9s'").unwrap();
    let variables = [("DUNLIN_CONFIG", named.to_str().unwrap())];
    let config = search(&variables, Some(HERE), Some(USER)).unwrap().resolve(None, None).unwrap();
    assert_eq!(config.grace.value, Duration::from_secs(9));
    assert_eq!((config.heartbeat.origin, config.files), (Origin::Default, vec![named]));

    let absent = folder.0.join("absent.toml");
    let error = search(&[("DUNLIN_CONFIG", absent.to_str().unwrap())], Some(HERE), None).unwrap_err();
    assert!(matches!(&error, ConfigError::Unreadable { path, .. } if *path == absent), "{error}");
    let error = Sources::file(&absent).unwrap_err().to_string();
    assert!(error.starts_with(&format!("cannot read the configuration {}: ", absent.display())), "{error}");
    // A folder is there, and cannot be read.
    let error = Sources::file(&folder.0).unwrap_err();
    assert!(
        matches!(&error, ConfigError::Unreadable { .. }) && error.to_string().ends_with("; name the file in it"),
        "{error}"
    );
    let latin = folder.0.join("latin.toml");
    std::fs::write(&latin, b"grace = '1s'\n# caf\xe9\n").unwrap();
    let error = Sources::file(&latin).unwrap_err().to_string();
    assert_eq!(error, format!("{}:2: the file is not UTF-8: save the file as UTF-8", latin.display()));
}

const SECTIONS: &str = r#"
app = "weather"
grace = "1s"
names = "unix:/run/all"

[channels]
readings = { policy = "fifo(8)", message_max_bytes = 1000 }

[application.weather]
grace = "2s"
names = "unix:/run/weather"

[application.weather.channels.readings]
message_max_bytes = 0x10

[application.weather.node.station]
grace = "4s"
run = "names"

[application.sea]
grace = "10s"

[node.station]
grace = "3s"
names = "unix:/run/station"
listen = ["127.0.0.1:7501", "default-route:7502"]

[node.ship]
app = "sea"
"#;

#[test]
fn more_specific_sections_override_general_ones() {
    let sources = search(&[], Some(SECTIONS), Some("[node.station]\nheartbeat = '3s'\ngrace = '5s'")).unwrap();
    let of = |app, node| sources.resolve(app, node).unwrap();
    let seconds = |config: &Config| config.grace.value.as_secs();
    assert_eq!(seconds(&of(Some("other"), None)), 1);
    assert_eq!(seconds(&of(None, None)), 2);
    let station = of(None, Some("station"));
    assert_eq!((seconds(&station), place(&station.grace.origin)), (4, "here.toml:17".to_owned()));
    assert_eq!(station.names.value.as_deref(), Some("unix:/run/station"));
    assert_eq!((station.run.value.as_deref(), place(&station.heartbeat.origin)), (Some("names"), "user.toml:2".into()));
    assert_eq!(station.listen.value, ["127.0.0.1:7501", "default-route:7502"]);
    // Another application's section is ignored; one for the node in any application is not.
    assert_eq!(seconds(&of(Some("other"), Some("station"))), 3);
    // The node's section sets its application.
    let ship = of(None, Some("ship"));
    assert_eq!((ship.app.value.as_str(), seconds(&ship)), ("sea", 10));
    // A node that no file knows has the settings of all.
    assert_eq!(seconds(&of(None, Some("boat"))), 2);
    assert_eq!(sources.nodes("weather"), ["ship", "station"]);
    // The node that serves the names follows from all sections, whichever node asks.
    assert_eq!(of(None, Some("boat")).names_node.as_deref(), Some("station"));
    assert_eq!(of(Some("other"), None).names_node, None);

    let readings = &of(None, None).channels["readings"];
    assert_eq!(readings.policy.value.as_ref().unwrap().0, "fifo(8)");
    assert_eq!(
        (readings.message_max_bytes.value, place(&readings.message_max_bytes.origin)),
        (Some(16), "here.toml:14".to_owned())
    );
    let readings = &of(Some("sea"), None).channels["readings"];
    assert_eq!(readings.message_max_bytes.value, Some(1000));
}

#[test]
fn a_variable_selects_the_node() {
    let config = |node| search(&[("DUNLIN_NODE", node)], Some(SECTIONS), None)?.resolve(None, None);
    let station = config("station").unwrap();
    assert_eq!((station.grace.value.as_secs(), station.node.origin), (4, Origin::Variable("DUNLIN_NODE")));
    let slip = config("staton").unwrap_err().to_string();
    assert_eq!(slip, "DUNLIN_NODE: there is no section [node.staton]; [node.station] is the nearest");
    let slip = config("boat7").unwrap_err().to_string();
    assert_eq!(slip, "DUNLIN_NODE: there is no section [node.boat7]; there are: ship, station");
}

#[test]
fn variables_set_values_of_any_type() {
    let variables = [
        ("DUNLIN_APP", "sea"),
        ("DUNLIN_LISTEN", "127.0.0.1:1, unix:/run/a"),
        ("DUNLIN_MESSAGE_MAX_BYTES", "500"),
        ("DUNLIN_RELAY", "false"),
        ("DUNLIN_ROLE", "member"),
    ];
    let config = search(&variables, None, None).unwrap().resolve(None, None).unwrap();
    assert_eq!((config.app.value.as_str(), config.message_max_bytes.value, config.relay.value), ("sea", 500, false));
    assert_eq!(
        (config.listen.value, config.role.value),
        (vec!["127.0.0.1:1".to_owned(), "unix:/run/a".to_owned()], Some(Role::Member))
    );

    let refused =
        |name, value| search(&[(name, value)], None, None).unwrap().resolve(None, None).unwrap_err().to_string();
    assert_eq!(
        refused("DUNLIN_GRACE", "20"),
        r#"DUNLIN_GRACE: grace = "20" is not accepted: write grace = "20s": a time from "0s" to "168h", in ms, s, m or h"#
    );
    assert_eq!(
        refused("DUNLIN_LISTEN", "127.0.0.1:1,"),
        r#"DUNLIN_LISTEN: listen = "127.0.0.1:1," is not accepted: write listen = "127.0.0.1:7500", or a list of addresses: "host:port", "unix:/path", "memory:name", "default-route" or "default-route:7510""#
    );
}

#[test]
fn an_unknown_key_is_reported_with_its_line() {
    assert_eq!(
        refused("\n\ngraec = '20s'"),
        r#"dunlin.toml:3: there is no key "graec" here; "grace" is the nearest. Write grace = "20s": a time from "0s" to "168h", in ms, s, m or h"#
    );
    assert_eq!(
        refused("colour = 1"),
        "dunlin.toml:1: there is no key \"colour\" here; there are: app, names, listen, advertise, grace, refused, heartbeat, \
         message_max_bytes, buffered_max_bytes, held_max_bytes, straight_min_bytes, relay, dial_local, relayed, trusted_sources, role, channels, application, node"
    );
    assert_eq!(
        refused("[channels]\nreadings = { polcy = 'fifo(1)' }"),
        r#"dunlin.toml:2: there is no key "polcy" here; "policy" is the nearest. Write policy = "fifo(64)", "rendezvous", "unbounded", "overwrite_oldest(8)", "overwrite_newest(8)" or "drop_newest(8)", with a size from 1 to 4294967295"#
    );
    assert_eq!(
        refused("[nodes.a]\nrun = 'x'"),
        "dunlin.toml:1: there is no key \"nodes\" here; \"node\" is the nearest. Write a section, [node.worker]"
    );
    // Only a node's section sets `run`, and an application's section does not set its name.
    assert!(refused("run = 'names'").starts_with(r#"dunlin.toml:1: there is no key "run" here; there are: app, "#));
    assert!(
        refused("[application.a]\napp = 'b'")
            .starts_with(r#"dunlin.toml:2: there is no key "app" here; there are: names"#)
    );
    assert!(refused("[node.a.node.b]\n").starts_with(r#"dunlin.toml:1: there is no key "node" here; "#));
    assert!(refused("[application.a.node.b]\nrelai = true").starts_with("dunlin.toml:2: there is no key \"relai\""));
}

#[test]
fn a_rejected_value_is_reported_with_its_line() {
    let grace = |value: &str, shown: &str| {
        let form = r#"write grace = "20s": a time from "0s" to "168h", in ms, s, m or h"#;
        let expected = format!("dunlin.toml:2: grace = {shown} is not accepted: {form}");
        assert_eq!(refused(&format!("relay = true\ngrace = {value}")), expected);
    };
    grace("20", "20");
    grace("20.5", "20.5");
    grace("true", "true");
    grace("'20'", "\"20\"");
    grace("'200h'", "\"200h\"");
    grace("['20s']", "[\"20s\"]");
    grace("2026-11-22", "a date");
    grace("{ s = 1 }", "a table");
    for (text, begins) in [
        ("message_max_bytes = 0", "message_max_bytes = 0 is not accepted: write message_max_bytes = 65536: a number"),
        ("message_max_bytes = -1", "message_max_bytes = -1 is not accepted"),
        ("message_max_bytes = 1099511627777", "message_max_bytes = 1099511627777 is not accepted"),
        ("message_max_bytes = '64'", "message_max_bytes = \"64\" is not accepted"),
        (
            "heartbeat = '0s'",
            "heartbeat = \"0s\" is not accepted: write heartbeat = \"1s\": a time from \"1ms\" to \"1h\"",
        ),
        ("trusted_sources = '10.0.0.0/40'", "trusted_sources = \"10.0.0.0/40\" is not accepted"),
        ("relay = 'true'", "relay = \"true\" is not accepted: write relay = true, or false"),
        ("role = 'chief'", "role = \"chief\" is not accepted: write role = \"main\", \"member\" or \"none\""),
        ("app = ''", "app = \"\" is not accepted: write app = \"weather\""),
        (
            "names = 'names.example'",
            "names = \"names.example\" is not accepted: write names = \"tcp://names.example:7411\"",
        ),
        ("names = '127.0.0.1:0'", "names = \"127.0.0.1:0\" is not accepted: write names = "),
        ("listen = []", "listen = [] is not accepted"),
        ("listen = [1]", "listen = [1] is not accepted"),
        ("advertise = 'default-route'", "advertise = \"default-route\" is not accepted"),
        ("channels = 1", "channels = 1 is not accepted: write [channels] readings = { policy = \"fifo(64)\" }"),
        (
            "channels.a = 'fifo(1)'",
            "a = \"fifo(1)\" is not accepted: write [channels] readings = { policy = \"fifo(64)\" }",
        ),
        ("channels.a.policy = 'fifo(0)'", "policy = \"fifo(0)\" is not accepted: write policy = \"fifo(64)\""),
        ("node = 'a'", "node = \"a\" is not accepted: write a section, [node.worker]"),
        ("application.a = 1", "a = 1 is not accepted: write a section, [application.weather]"),
    ] {
        let error = refused(text);
        assert!(error.starts_with(&format!("dunlin.toml:1: {begins}")), "{error}");
    }
}

/// The statements of `docs/config.md` hold.
#[test]
fn config_document_matches_the_code() {
    let document = include_str!("../../../../docs/config.md");
    let example = document.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let sources = search(&[], Some(example), None).unwrap();
    assert_eq!(sources.nodes("weather"), ["hub", "station"]);
    let station = sources.resolve(None, Some("station")).unwrap();
    assert_eq!((station.app.value.as_str(), station.grace.value), ("weather", Duration::from_secs(60)));
    let alarms = &station.channels["alarms"];
    assert_eq!(
        (alarms.policy.value.as_ref().unwrap().0.as_str(), alarms.message_max_bytes.value),
        ("overwrite_oldest(8)", Some(1024))
    );
    // The example has every key, and the table has every key with its variable.
    let said = sources.resolve(None, Some("hub")).unwrap().rows();
    let defaults: Vec<_> = said.iter().filter(|(_, _, origin)| *origin == Origin::Default).collect();
    assert!(defaults.is_empty(), "{defaults:?}");
    for key in keys::SETTINGS.iter().chain([&(&keys::APP as &dyn keys::AnyKey)]) {
        let row = document
            .lines()
            .find(|line| line.starts_with(&format!("| `{}`", key.name())))
            .unwrap_or_else(|| panic!("{}", key.name()));
        assert!(row.ends_with(&format!("| `{}` |", key.variable().unwrap())), "{row}");
    }
    // These are the errors that it shows.
    let slip = refused("\n\ngraec = '20s'");
    assert!(document.contains(&slip), "{slip}");
    let slip = search(&[("DUNLIN_RELAY", "yes")], None, None).unwrap().resolve(None, None).unwrap_err().to_string();
    assert!(document.contains(&slip), "{slip}");
}

#[test]
fn invalid_toml_is_reported_with_its_line() {
    let error = refused("app = 'weather'\ngrace = 20s\n");
    assert!(error.starts_with("dunlin.toml:2: invalid TOML: "), "{error}");
    assert!(error.ends_with(r#". Write grace = "20s": a time from "0s" to "168h", in ms, s, m or h"#), "{error}");
    let error = refused("colour = red\n");
    assert!(!error.contains("Write"), "{error}");
    let error = refused("app = 'a'\napp = 'b'\n");
    assert_eq!(error, "dunlin.toml:2: invalid TOML: duplicate key `app`");
    let error = refused("[channels.a]\nfail_fast = true\n[channels.a]\n");
    assert_eq!(error, "dunlin.toml:3: invalid TOML: duplicate key `a`");
    // An unterminated string is a mistake of syntax, not a value that is not accepted.
    let error = refused("grace = '20s\n");
    assert!(error.starts_with("dunlin.toml:1: invalid TOML: ") && !error.contains("Write"), "{error}");
    let error = refused("grace = \"20\\s\"\n");
    assert!(error.starts_with("dunlin.toml:1: invalid TOML: ") && !error.contains("Write"), "{error}");
}

/// Anything but a regular file is refused at once: a pipe without a writer would hang, and a device never
/// ends.
#[cfg(unix)]
#[test]
fn only_regular_files_are_read() {
    let folder = Folder::new();
    let pipe = folder.0.join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for path in [pipe.as_path(), Path::new("/dev/zero"), Path::new("/dev/null")] {
        for chosen in [Chosen::Named, Chosen::Users] {
            let error = File::open(path, chosen).unwrap_err().to_string();
            assert!(error.contains(&path.display().to_string()) && error.contains("regular file"), "{error}");
        }
    }
}

/// A file in the working directory may be another user's: /tmp, or an unpacked folder.
#[cfg(unix)]
#[test]
fn a_found_configuration_that_others_can_write_is_refused() {
    use std::os::unix::fs::PermissionsExt;

    let folder = Folder::new();
    let path = folder.0.join("dunlin.toml");
    std::fs::write(&path, "app = 'weather'\n").unwrap();
    let allow = |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    let refused = |chosen| File::open(&path, chosen).err().map(|error| error.to_string());
    for (of_folder, of_file, culprit) in [
        (0o755, 0o644, None),
        (0o775, 0o664, None),
        (0o777, 0o644, Some(&folder.0)),
        (0o1777, 0o644, Some(&folder.0)),
        (0o755, 0o646, Some(&path)),
    ] {
        allow(&folder.0, of_folder);
        allow(&path, of_file);
        let error = refused(Chosen::Here);
        assert_eq!(error.is_some(), culprit.is_some(), "{of_folder:o} {of_file:o}: {error:?}");
        if let (Some(error), Some(culprit)) = (error, culprit) {
            assert!(
                error.contains("--config") && error.contains(&format!("because of {}", culprit.display())),
                "{error}"
            );
        }
        // A named file is read, whichever users may write it.
        assert_eq!(refused(Chosen::Named), None);
        assert_eq!(refused(Chosen::Users), None);
    }
}

#[cfg(unix)]
#[test]
fn path_that_another_user_owns_or_can_write_is_distrusted() {
    use super::file::{Owner, distrust};

    const ME: Owner = Owner { user: 1000, group: 100 };
    const ANOTHERS: Option<&str> = Some("the owner is another user");
    const OPEN: Option<&str> = Some("other users can write to it");
    for (user, group, mode, expected) in [
        (1000, 100, 0o644, None),
        (0, 0, 0o644, None),
        (0, 7, 0o644, None),
        (1001, 100, 0o644, ANOTHERS),
        (1001, 100, 0o600, ANOTHERS),
        // By this user's own group, or root's.
        (1000, 100, 0o664, None),
        (1000, 0, 0o664, None),
        (0, 0, 0o664, None),
        (1000, 7, 0o664, OPEN),
        (0, 7, 0o664, OPEN),
        (1000, 7, 0o620, OPEN),
        (1000, 100, 0o646, OPEN),
        (1000, 100, 0o602, OPEN),
        (0, 0, 0o646, OPEN),
        // With the type of the file, and /tmp's bit.
        (0, 0, 0o041777, OPEN),
        (1000, 100, 0o100644, None),
    ] {
        let owner = Owner { user, group };
        assert_eq!(distrust(ME, owner, mode), expected, "{owner:?} {mode:o}");
        // Root does not accept another user's file either.
        let for_root = distrust(Owner { user: 0, group: 0 }, owner, mode);
        assert_eq!(for_root.is_some(), user != 0 || for_root == OPEN, "{owner:?} {mode:o} for root");
    }
}

#[test]
fn files_of_more_than_a_mebibyte_are_refused() {
    let folder = Folder::new();
    let path = folder.0.join("large.toml");
    let text = |len: usize| format!("app = 'weather'\n#{}", "x".repeat(len - 17));
    std::fs::write(&path, text(1 << 20)).unwrap();
    assert!(File::open(&path, Chosen::Named).unwrap().is_some());
    std::fs::write(&path, text((1 << 20) + 1)).unwrap();
    let error = File::open(&path, Chosen::Named).unwrap_err().to_string();
    assert!(error.contains("large.toml") && error.contains("1 MiB"), "{error}");
}

/// Four times as many sections take about four times as long to read, check and resolve for a node; it would
/// be sixteen times if each step iterated over all of them. (The fastest of three runs counts, since other
/// processes take turns too.)
#[test]
fn many_sections_take_no_longer_each() {
    let few = (1..=3).map(|_| read_sections(3_000)).min().unwrap();
    let many = (1..=3).map(|_| read_sections(12_000)).min().unwrap();
    assert!(many < 8 * few, "{few:?} for 3,000 sections, {many:?} for 12,000");
}

fn read_sections(count: usize) -> Duration {
    let sections: String = (0..count).map(|n| format!("[node.n{n}]\nrun='a'\n")).collect();
    let began = std::time::Instant::now();
    let sources = search(&[(NODE, "n7")], Some(&sections), None).unwrap();
    assert_eq!(sources.nodes("").len(), count);
    sources.check().unwrap();
    let config = sources.resolve(None, None).unwrap();
    assert_eq!(config.run.value.as_deref(), Some("a"));
    assert_eq!(place(&config.run.origin), "here.toml:16");
    began.elapsed()
}

#[test]
fn names_with_control_characters_are_refused() {
    for name in [r"a\u0000b", r"a\nb", r"\u001b[2J", r"a\u007f"] {
        let error = refused(&format!("app = \"{name}\""));
        assert!(error.contains("1 to 64 bytes, without control characters"), "{error}");
    }
    assert!(File::parse(Path::new("dunlin.toml"), "app = 'Wetter für Köln'").is_ok());
}

#[test]
fn sizes_that_no_buffer_has_are_refused() {
    for policy in ["fifo(18446744073709551615)", "fifo(4294967296)", "drop_newest(0)", "overwrite_oldest(99999999999)"]
    {
        let error = refused(&format!("[channels]\nreadings = {{ policy = '{policy}' }}"));
        assert!(error.contains("with a size from 1 to 4294967295"), "{error}");
    }
    let text = "[channels]\nreadings = { policy = 'fifo(4294967295)' }";
    assert!(File::parse(Path::new("dunlin.toml"), text).is_ok());
}
