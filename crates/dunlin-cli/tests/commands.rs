//! The command as its users run it.
#![cfg(unix)]

mod support;

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};

use dunlin::node::Role;
use dunlin::prelude::*;
use serde_json::Value;
use support::{Ended, Stage, ended, started};

/// A name service, and a node.
const FILE: &str = r#"app = "weather"
names = "unix:DIR/names"

[node.hub]
run = "names"

[node.station]
listen = "unix:DIR/station"
"#;

fn lines(ended: &Ended) -> Vec<Value> {
    ended.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// [`FILE`], with a main node and a member.
fn roles() -> String {
    let main = FILE.replace("[node.hub]", "[node.hub]\nrole = 'main'");
    main.replace("[node.station]", "[node.station]\nrole = 'member'")
}

/// A command whose error output is merged with its results.
fn aloud(stage: &Stage, line: &[&str]) -> Command {
    through(stage, line, r#"exec "$0" "$@" 2>&1"#)
}

/// A command that this shell script starts.
fn through(stage: &Stage, line: &[&str], script: &str) -> Command {
    let plain = stage.command(line);
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(plain.get_program()).args(plain.get_args());
    command.current_dir(stage.path());
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

/// A full disk, where the system has one.
fn full() -> Option<File> {
    File::options().write(true).open("/dev/full").ok()
}

/// A node in this process, in the application of the stage.
async fn joined(stage: &Stage, listen: &str) -> Result<Node> {
    let builder = Node::builder().no_config().app("weather").names(&stage.address("names"));
    Ok(builder.listen(&stage.address(listen)).serve_names(false).join().await?)
}

#[test]
fn config_shows_the_origin_of_each_value() {
    let stage = Stage::new(FILE);
    std::fs::create_dir_all(stage.path().join(".config/dunlin")).unwrap();
    std::fs::write(stage.path().join(".config/dunlin/dunlin.toml"), "\ngrace = '20s'\n").unwrap();
    let mut command = stage.command(&["config", "--node", "station"]);
    let shown = ended(command.env("DUNLIN_HEARTBEAT", "2s").output().unwrap());
    assert_eq!(shown.code, Some(0), "{}", shown.err);
    let line = |key: &str| {
        let line = shown.out.lines().find(|line| line.split_whitespace().next() == Some(key)).unwrap();
        line.split_whitespace().skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    let folder = stage.path().display();
    assert_eq!(line("app"), ["\"weather\"", "dunlin.toml:1"]);
    assert_eq!(line("node"), ["\"station\"", "the", "command", "line"]);
    assert_eq!(line("listen"), [format!("[\"unix:{folder}/station\"]"), "dunlin.toml:8".to_owned()]);
    assert_eq!(line("grace"), ["\"20s\"".to_owned(), format!("{folder}/.config/dunlin/dunlin.toml:2")]);
    assert_eq!(line("heartbeat"), ["\"2s\"", "DUNLIN_HEARTBEAT"]);
    assert_eq!(line("relay"), ["true", "default"]);

    let json = lines(&stage.run(&["config", "--json"]));
    let row = |key| json.iter().find(|row| row["key"] == key).unwrap();
    assert_eq!(row("app")["value"], "weather");
    assert_eq!(
        (&row("app")["origin"], &row("app")["place"], &row("app")["line"]),
        (&"file".into(), &"dunlin.toml".into(), &1.into())
    );
    assert_eq!((&row("relay")["value"], &row("relay")["origin"]), (&true.into(), &"default".into()));
    assert_eq!(row("node")["value"], Value::Null);
}

#[test]
fn profile_prints_spans_and_draws_threads() {
    let stage = Stage::new("");
    let stamps = "dunlin profile 1\ndropped 0\n100 dispatch 7\n1100 trigger 7 0\n2100 finish 7 0\n";
    std::fs::write(stage.path().join("calls"), stamps).unwrap();
    let shown = stage.run(&["profile", "calls"]);
    assert!(shown.code == Some(0) && shown.out.contains("dispatch to trigger  1      1.00 us"), "{}", shown.out);
    assert!(std::fs::read_to_string(stage.path().join("calls.svg")).unwrap().contains("thread 0"));

    let shown = stage.run(&["profile", "calls", "--svg", "drawn.svg", "--json"]);
    assert_eq!(lines(&shown)[1]["span"], "dispatch to trigger");
    assert_eq!(lines(&shown)[1]["avg_ns"], 1000);
    assert!(stage.path().join("drawn.svg").exists());

    for (file, why) in [("none", "No such file"), ("dunlin.toml", "not a profile")] {
        let refused = stage.run(&["profile", file]);
        assert!(refused.code == Some(1) && refused.err.contains(why) && refused.err.contains(file), "{}", refused.err);
    }
}

#[test]
fn config_checks_a_file() {
    let stage = Stage::new(FILE);
    let good = stage.run(&["config", "--check", "dunlin.toml"]);
    assert_eq!((good.code, good.out.as_str()), (Some(0), "dunlin.toml: the configuration is valid\n"));
    std::fs::write(stage.path().join("bad.toml"), "app = 'a'\n[node.b]\nrelais = true\n").unwrap();
    let bad = stage.run(&["config", "--check", "bad.toml"]);
    let told =
        "error: bad.toml:3: there is no key \"relais\" here; \"relay\" is the nearest. Write relay = true, or false\n";
    assert_eq!((bad.code, bad.out.as_str(), bad.err.as_str()), (Some(1), "", told));
    // The check includes what nodes run, for every node of the file.
    std::fs::write(stage.path().join("runs.toml"), "[node.a]\nrun = 'names'\n[application.b.node.a]\nrun = 'namse'\n")
        .unwrap();
    let runs = stage.run(&["config", "--check", "runs.toml"]);
    let told = "error: runs.toml:4: unknown component \"namse\"; there are: \"nothing\" (";
    assert!(runs.code == Some(1) && runs.err.starts_with(told), "{}", runs.err);
}

/// The check refuses a file that a node would refuse at its start: with the line, for every node of the file.
#[test]
fn config_checks_settings_against_each_other() {
    let stage = Stage::new(FILE);
    let checked = |text: &str| {
        std::fs::write(stage.path().join("f.toml"), text).unwrap();
        stage.run(&["config", "--check", "f.toml"])
    };
    let small = "held_max_bytes = 1000 is too small: write at least 268435456, four times message_max_bytes (67108864, default)";
    let least = |max, at: &str, least| {
        format!(
            "held_max_bytes = 1000 is too small: write at least {least}, four times message_max_bytes ({max}, {at})"
        )
    };
    let many = format!("listen = {:?}\n", (1..10).map(|n| format!("127.0.0.1:{n}")).collect::<Vec<_>>());
    for (text, told) in [
        ("app = 'a'\nheld_max_bytes = 1000\n", format!("f.toml:2: {small}")),
        ("held_max_bytes = 1000\nmessage_max_bytes = 251\n", format!("f.toml:1: {}", least(251, "f.toml:2", 1004))),
        ("[node.a]\nheld_max_bytes = 1000\n", format!("f.toml:2: {small}")),
        (
            "held_max_bytes = 1000\nmessage_max_bytes = 250\n[node.a]\nmessage_max_bytes = 300\n",
            format!("f.toml:1: {}", least(300, "f.toml:4", 1200)),
        ),
        ("[application.b]\nheld_max_bytes = 1000\n", format!("f.toml:2: {small}")),
        (
            "[node.a]\napp = 'b'\nmessage_max_bytes = 300\n[application.b]\nheld_max_bytes = 1000\nmessage_max_bytes = 9\n",
            format!("f.toml:5: {}", least(300, "f.toml:3", 1200)),
        ),
        (
            "[application.b]\nmessage_max_bytes = 300\n[application.b.node.a]\nheld_max_bytes = 1000\n",
            format!("f.toml:4: {}", least(300, "f.toml:2", 1200)),
        ),
        (
            &many,
            "f.toml:1: listen has 9 addresses, and a node announces at most 8: shorten the list, or set advertise to \
             those that other nodes need"
                .to_owned(),
        ),
    ] {
        let refused = checked(text);
        let begins = format!("error: {told}");
        assert!(refused.code == Some(1) && refused.err.starts_with(&begins), "{text}: {} not {begins}", refused.err);
    }
    for text in [
        "held_max_bytes = 1000\nmessage_max_bytes = 250\n".to_owned(),
        "held_max_bytes = 1000\nmessage_max_bytes = 249\n[node.a]\nmessage_max_bytes = 250\n".to_owned(),
        // No node of this file belongs to both.
        "[node.a]\napp = 'a'\nheld_max_bytes = 268435456\n[application.b]\nmessage_max_bytes = 268435456\n".to_owned(),
        format!("{many}advertise = 'gate:7500'\n"),
    ] {
        let accepted = checked(&text);
        assert_eq!(accepted.code, Some(0), "{text}: {}", accepted.err);
    }
}

/// Each command that reads a configuration takes it from `--config`: a file, or standard input. The file in
/// the working directory, which is of another application, and the variable then have no effect.
#[test]
fn config_of_a_command_can_be_named() {
    let stage = Stage::new("app = 'elsewhere'\nnames = 'unix:DIR/nothing'\n");
    let folder = stage.path().join("etc");
    std::fs::create_dir(&folder).unwrap();
    let text = FILE.replace("DIR", stage.path().to_str().unwrap());
    std::fs::write(folder.join("weather.toml"), &text).unwrap();
    const NAMED: [&str; 2] = ["--config", "etc/weather.toml"];
    let hub = stage.start(&[&["node", "hub"][..], &NAMED].concat());
    hub.says("serving the names of \"weather\"");
    let station = stage.start(&[&["node", "station"][..], &NAMED].concat());
    station.says("runs nothing");
    let row = |of: &Ended| of.out.lines().find(|line| line.starts_with("app ")).unwrap_or_default().to_owned();
    let with = |line: &[&str]| {
        let mut command = stage.command(&[line, &NAMED].concat());
        ended(command.env("DUNLIN_CONFIG", "nowhere.toml").output().unwrap())
    };
    for line in [&["config"][..], &["names", "list"], &["ping", "station", "--count", "1"]] {
        let ended = with(line);
        assert_eq!(ended.code, Some(0), "{line:?}: {}", ended.err);
    }
    assert!(row(&with(&["config"])).ends_with("etc/weather.toml:1"), "{}", row(&with(&["config"])));
    assert!(with(&["names", "serve"]).err.contains("already serves the names of \"weather\""));

    // The command reads standard input once, however often it needs the text.
    let piped = |line: &[&str], variable: &str| {
        let mut command = stage.command(line);
        let mut child =
            command.env("DUNLIN_CONFIG", variable).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(text.replace("station\"", "second\"").as_bytes()).unwrap();
        child
    };
    for (line, variable) in [(&["node", "station", "--config", "-"][..], "nowhere"), (&["node", "station"], "-")] {
        let mut child = piped(line, variable);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let up = lines.next().unwrap().unwrap();
        assert!(up.contains(&stage.address("second")), "{line:?}: {up}");
        let _ = child.kill();
        let _ = child.wait();
    }
    for line in [&["names", "list", "--config", "-"][..], &["config", "--config", "-"]] {
        assert_eq!(piped(line, "nowhere").wait_with_output().unwrap().status.code(), Some(0), "{line:?}");
    }

    let large = folder.join("large.toml");
    std::fs::write(&large, vec![b'#'; (1 << 20) + 1]).unwrap();
    for (path, why) in [
        ("/dev/zero", "is not a regular file"),
        ("etc", "directory"),
        ("etc/large.toml", "1 MiB"),
        ("no.toml", "no.toml"),
    ] {
        for line in [&["config"][..], &["names", "list"], &["names", "serve"], &["node", "a"], &["ping", "a"]] {
            let refused = stage.run(&[line, &["--config", path]].concat());
            assert!(refused.code == Some(1) && refused.err.contains(why), "{line:?} {path}: {}", refused.err);
        }
    }
}

/// `-` stands for standard input.
#[test]
fn config_check_reads_standard_input() {
    let stage = Stage::new(FILE);
    let checked = |text: &[u8]| {
        let mut command = stage.command(&["config", "--check", "-"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // The command may read no more than it has to, so the write may fail.
        let _ = child.stdin.take().unwrap().write_all(text);
        ended(child.wait_with_output().unwrap())
    };
    assert_eq!(checked(b"app = 'weather'\n").code, Some(0));
    let wrong = checked(b"app = 'weather'\nrelais = true\n");
    assert_eq!(wrong.code, Some(1));
    assert!(wrong.err.starts_with("error: -:2: there is no key \"relais\""), "{}", wrong.err);
    let endless = checked(&vec![b'#'; (1 << 20) + 1]);
    assert_eq!(endless.code, Some(1));
    assert!(endless.err.contains("1 MiB"), "{}", endless.err);
}

#[test]
fn command_refuses_invalid_application_name() {
    let stage = Stage::new("");
    let long = "a".repeat(65);
    let names = ["a\nb", "\u{1b}[2J", "", &long];
    let commands = [&["names", "list"][..], &["config"]];
    for (app, command) in names.iter().flat_map(|app| commands.map(|command| (*app, command))) {
        let refused = stage.run(&[command, &["--app", app]].concat());
        assert_eq!(refused.code, Some(2), "{}", refused.err);
        assert!(refused.err.contains("1 to 64 bytes, without control characters"), "{}", refused.err);
        assert!(!refused.err.trim_end().contains(|c: char| c.is_control()), "{:?}", refused.err);
    }
}

/// Whichever step is the first without a file: the error names the limit, and nothing panics.
#[test]
fn too_few_files_are_an_error_that_names_the_limit() {
    let stage = Stage::new(&FILE.replace("unix:DIR/names", "127.0.0.1:1"));
    // The last counts are enough for the command. Then no node answers, which takes a while.
    for files in (6..=18).step_by(2) {
        let mut command = through(&stage, &["names", "list"], &format!(r#"ulimit -n {files}; exec "$0" "$@""#));
        let told = ended(command.output().unwrap());
        assert_eq!(told.code, Some(1), "with {files}: {}", told.err);
        assert!(!told.err.contains("panicked"), "with {files}: {}", told.err);
        let is_for_files = told.err.contains("open files") || told.err.contains("os error 24");
        let names_it = told.err.contains(&format!("{files} files")) && told.err.contains("ulimit -n");
        assert!(!is_for_files || names_it, "with {files}: {}", told.err);
        if files < 16 {
            assert!(names_it, "with {files}: {}", told.err);
        }
    }
}

/// The command distinguishes a node without room for another connection from an absent one.
#[test]
fn busy_name_service_is_reported_as_busy() {
    for line in [&["names", "list"][..], &["names", "list", "--at", "ADDRESS"], &["ping", "ADDRESS"]] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let stage = Stage::new(&FILE.replace("unix:DIR/names", &address));
        let line: Vec<&str> = line.iter().map(|word| if *word == "ADDRESS" { &*address } else { word }).collect();
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                // `Refused` 7 of docs/wire.md.
                socket.unwrap().write_all(b"dunlin\r\n\x03\x00\x01\x07").unwrap();
            }
        });
        let told = ended(stage.command(&line).output().unwrap());
        assert_eq!(told.code, Some(1), "{line:?}: {}", told.err);
        assert!(told.err.contains("the node is busy") && told.err.contains("Try again"), "{line:?}: {}", told.err);
    }
}

#[test]
fn config_shows_unknown_variables() {
    let stage = Stage::new("");
    let run = |json: &[&str]| {
        let mut command = stage.command(&[&["config"], json].concat());
        ended(command.env("DUNLIN_GRCE", "3s").output().unwrap()).out
    };
    let shown = run(&[]);
    let last: Vec<&str> = shown.lines().last().unwrap().split_whitespace().collect();
    assert_eq!(last.join(" "), "? (no setting has this variable; DUNLIN_GRACE is the nearest) DUNLIN_GRCE");
    let row: Value = serde_json::from_str(run(&["--json"]).lines().last().unwrap()).unwrap();
    assert_eq!((&row["place"], &row["nearest"]), (&"DUNLIN_GRCE".into(), &"DUNLIN_GRACE".into()));
}

#[test]
fn wrong_command_line_exits_with_2() {
    let stage = Stage::new("");
    for line in [
        &["sea"][..],
        &["ping"],
        &["ping", "x:1", "--count", "0"],
        &["names"],
        &["sim", "--seeds", "0"],
        &["names", "serve", "--app", "a", "--listen", "127.0.0.1:0"],
        &["names", "serve", "--app", "a", "--listen", "memory:a"],
        &["config", "--check", "a", "--app", "b"],
        &["config", "--check", "a", "--config", "b"],
        &["demo", "--names", "foo"],
        &["demo", "--names", "127.0.0.1:0"],
    ] {
        assert_eq!(stage.run(line).code, Some(2), "{line:?}");
    }
    let nowhere = stage.run(&["ping", "unix:/nowhere"]);
    assert_eq!(nowhere.code, Some(2));
    assert_eq!(
        nowhere.err,
        "error: no application is given: use --app NAME, DUNLIN_APP=NAME, or app = \"NAME\" in dunlin.toml\n"
    );
    let nobody = Stage::new(FILE).run(&["node", "staton"]);
    assert_eq!(nobody.code, Some(2));
    assert_eq!(
        nobody.err,
        "error: no section [node.staton] in the configuration; there are: hub, station. Write one in dunlin.toml\n"
    );
}

#[test]
fn a_mistyped_command_suggests_only_commands_for_users() {
    let stage = Stage::new("");
    for mistyped in ["demo-par", "demo-parts", "dem"] {
        let ended = stage.run(&[mistyped]);
        assert_eq!(ended.code, Some(2));
        assert!(ended.err.contains("'demo'") && !ended.err.contains("'demo-part'"), "{}", ended.err);
    }
}

#[test]
fn name_service_follows_its_configuration() {
    let stage = Stage::new("app = 'weather'\nnames = 'unix:DIR/names'\nheld_max_bytes = 1000\n");
    let refused = stage.run(&["names", "serve"]);
    assert_eq!(refused.code, Some(1));
    assert!(
        refused.err.contains("dunlin.toml:3: held_max_bytes = 1000 is too small: write at least 268435456"),
        "{}",
        refused.err
    );
}

#[test]
fn names_are_served_and_listed() {
    let stage = Stage::new(FILE);
    let nobody = stage.run(&["names", "list"]);
    assert_eq!(nobody.code, Some(1));
    assert!(nobody.err.contains("Start one with `dunlin names serve --app weather`"), "{}", nobody.err);
    assert!(!nobody.err.contains("dunlin.node"), "{}", nobody.err);

    let mut server = stage.start(&["names", "serve"]);
    let line = server.says("serving");
    assert_eq!(line, format!("serving the names of \"weather\" at {}", stage.address("names")));
    // A second server finds the address in use, and names the process.
    let second = stage.run(&["names", "serve"]);
    assert_eq!(second.code, Some(1));
    assert!(second.err.contains("already serves the names of \"weather\""), "{}", second.err);
    // What is no node of the application is no name service of it.
    let _other = std::os::unix::net::UnixListener::bind(stage.path().join("other")).unwrap();
    let third = stage.run(&["names", "serve", "--listen", &stage.address("other")]);
    assert_eq!(third.code, Some(1));
    assert!(third.err.contains("end that one, or choose another path"), "{}", third.err);
    // At another address it finds that the names are served. (Its own leads nowhere else.)
    assert_eq!(stage.run(&["names", "list"]).out.lines().nth(1), Some("no name is declared"));

    dunlin::block_on(async {
        let (here, there) = (joined(&stage, "here").await?, joined(&stage, "there").await?);
        let _waits = here.receiver::<u32>("alone").await?;
        let mut tx = here.sender::<u32>("both").await?;
        let mut rx = there.receiver::<u32>("both").await?;
        let (sent, received) = par!(tx.send(1), rx.recv());
        sent?;
        received?;
        let listed = stage.run(&["names", "list", "--json"]);
        let ends: Vec<[String; 5]> = lines(&listed)
            .iter()
            .map(|end| {
                ["name", "end", "state", "waits_for", "node"].map(|key| end[key].as_str().unwrap_or("-").to_owned())
            })
            .collect();
        let (me, other) = (here.me().to_string(), there.me().to_string());
        assert_eq!(
            ends,
            [
                ["alone", "receiver", "waiting", "a sender", &me],
                ["both", "sender", "joined", "-", &me],
                ["both", "receiver", "joined", "-", &other],
            ]
            .map(|end| end.map(str::to_owned))
        );
        assert_eq!(lines(&listed)[0]["addresses"][0], stage.address("here"));
        assert!(lines(&listed)[0]["since_seconds"].as_f64().unwrap() > 0.0);
        let table = stage.run(&["names", "list"]).out;
        assert!(table.lines().any(|line| line.starts_with("alone  receiver  waits for a sender  ")), "{table}");
        // A node knows the declarations made to itself.
        let own = lines(&stage.run(&["names", "list", "--json", "--at", &stage.address("there")]));
        assert_eq!(own.len(), 1, "{own:?}");
        assert_eq!((&own[0]["name"], &own[0]["end"]), (&"both".into(), &"receiver".into()));
        here.leave().await?;
        there.leave().await
    })
    .unwrap();

    assert_eq!(server.ends_with("-INT"), Some(130));
    assert!(!stage.path().join("names").exists(), "it has left in order");
}

#[test]
fn pings_go_to_an_address_a_node_or_the_holder_of_a_name() {
    let stage = Stage::new(FILE);
    let nobody = stage.run(&["ping", "station"]);
    assert_eq!((nobody.code, nobody.out.as_str()), (Some(1), ""));
    let told = |at| format!("error: no node of application \"weather\" at {at} (No such file");
    assert!(nobody.err.starts_with(&told(stage.address("station"))), "{}", nobody.err);
    // The node that runs the names is at their address.
    let nobody = stage.run(&["ping", "hub"]);
    assert!(nobody.err.starts_with(&told(stage.address("names"))), "{}", nobody.err);
    let nobody = stage.run(&["names", "list", "--at", &stage.address("station")]);
    assert!(nobody.err.starts_with(&told(stage.address("station"))), "{}", nobody.err);
    // A node's own section may name its application.
    let own = Stage::new("[node.a]\napp = 'weather'\nlisten = 'unix:DIR/a'\n");
    let nobody = own.run(&["ping", "a"]);
    assert!(nobody.err.starts_with(&told(own.address("a"))), "{}", nobody.err);

    let server = stage.start(&["names", "serve"]);
    server.says("serving");
    let mut station = stage.start(&["--json", "node", "station"]);
    let up: Value = serde_json::from_str(&station.says("\"up\"")).unwrap();
    for node in ["station", &stage.address("station")] {
        let pinged = stage.run(&["ping", node, "--count", "3", "--json"]);
        assert_eq!(pinged.code, Some(0), "{}", pinged.err);
        let lines = lines(&pinged);
        assert_eq!(lines.len(), 4);
        assert!(lines.iter().all(|line| line["node"] == up["node"]), "{lines:?}");
        let time = |key| lines[3][key].as_f64().unwrap();
        assert!(0.0 < time("min_micros") && time("min_micros") <= time("mean_micros"));
        assert!(time("mean_micros") <= time("max_micros"));
    }
    dunlin::block_on(async {
        let here = joined(&stage, "here").await?;
        let _waits = here.sender::<u32>("heights").await?;
        let pinged = stage.run(&["ping", "heights", "--count", "1"]);
        assert!(
            pinged.out.starts_with(&format!("node {} at {}\n1: ", here.me(), stage.address("here"))),
            "{}",
            pinged.out
        );
        assert!(pinged.out.lines().last().unwrap().starts_with("1 round trips: min "), "{}", pinged.out);
        here.leave().await
    })
    .unwrap();
    let nobody = stage.run(&["ping", "depths"]);
    assert_eq!(nobody.code, Some(1));
    assert!(nobody.err.contains("no end of a channel has that name"), "{}", nobody.err);
    // The node belongs to another application.
    let other = stage.run(&["ping", &stage.address("station"), "--app", "sea"]);
    assert_eq!(other.code, Some(1));
    assert!(other.err.contains("no node of application \"sea\" at"), "{}", other.err);
    assert_eq!(station.ends_with("-TERM"), Some(143));
}

/// The ping reports a stopped node, whatever the grace of its application.
#[test]
fn ping_reports_a_stopped_node() {
    let stage = Stage::new(&FILE.replace("[node.hub]", "grace = '1h'\n[node.hub]"));
    let _hub = stage.start(&["node", "hub"]);
    let station = stage.start(&["node", "station"]);
    station.says("runs");
    let mut ping = started(aloud(&stage, &["ping", "station", "--count", "1000000000"]));
    ping.says("1: ");
    station.signal("-STOP");
    ping.says("no node of application");
    assert_eq!(ping.ends(), Some(1));
}

#[test]
fn nodes_show_joins_and_leaves() {
    let stage = Stage::new(FILE);
    let mut hub = stage.start(&["node", "hub"]);
    assert!(hub.says("runs").ends_with(&format!("of \"weather\" at {}, and runs names", stage.address("names"))));
    hub.says("serving");
    let mut station = stage.start(&["--json", "node", "station"]);
    let up: Value = serde_json::from_str(&station.says("\"up\"")).unwrap();
    let node = up["node"].as_str().unwrap();
    hub.says(&format!("connected with {node}"));
    assert_eq!(up["listening"][0], stage.address("station"));
    assert_eq!(station.ends_with("-INT"), Some(130));
    hub.says(&format!("the connection with {node} ended"));
    // A variable is stronger than the file.
    let mut command = stage.command(&["--json", "node", "station"]);
    command.env("DUNLIN_LISTEN", stage.address("elsewhere"));
    let up: Value = serde_json::from_str(&started(command).says("\"up\"")).unwrap();
    assert_eq!(up["listening"][0], stage.address("elsewhere"));
    assert_eq!(hub.ends_with("-INT"), Some(130));

    let stage = Stage::new(&FILE.replace("\"names\"", "\"stars\""));
    let wrong = stage.run(&["node", "hub"]);
    assert_eq!(wrong.code, Some(1));
    assert!(
        wrong.err.starts_with("error: dunlin.toml:5: unknown component \"stars\"; there are: \"nothing\" ("),
        "{}",
        wrong.err
    );
}

/// A node without a role waits for no other: its log reports that there are no names.
#[test]
fn a_node_without_names_reports_it() {
    let stage = Stage::new("app = 'weather'\nnames = '10.255.255.1:1'\n[node.p]\nlisten = 'unix:DIR/p'\n");
    let mut quiet = aloud(&stage, &["node", "p"]);
    let mut loud = aloud(&stage, &["node", "p"]);
    loud.env("DUNLIN_LISTEN", stage.address("q")).env("RUST_LOG", "info");
    quiet.env_remove("RUST_LOG");
    let (quiet, loud) = (started(quiet), started(loud));
    assert!(quiet.says("the name service cannot be reached").contains("Start the node that serves the names"));
    loud.says("listening");
}

/// A suggestion names the file, where there is one.
#[test]
fn a_member_prints_how_to_start_a_main_node() {
    let stage = Stage::new(&roles().replace("role = 'main'\n", ""));
    let _hub = stage.start(&["node", "hub"]);
    let station = started(aloud(&stage, &["node", "station"]));
    assert!(station.says("waiting for the main node").contains("role = \"main\""));
    let stage = Stage::new(&format!("{}[node.second]\nlisten = 'unix:DIR/second'\nrole = 'main'\n", roles()));
    let hub = stage.start(&["node", "hub"]);
    hub.says("serving");
    let second = stage.run(&["node", "second"]);
    assert!(second.code == Some(1) && second.err.contains("role = \"member\""), "{}", second.err);
}

/// Roles come from the configuration: the main node's leave asks its member to leave, which then ends with
/// success.
#[test]
fn a_member_ends_with_its_main_node() {
    let stage = Stage::new(&roles());
    let mut hub = stage.start(&["node", "hub"]);
    let mut station = stage.start(&["node", "--json", "station"]);
    station.says("\"up\"");
    hub.says("station has joined");
    assert_eq!(hub.ends_with("-INT"), Some(130));
    station.says("closing");
    assert_eq!(station.ends(), Some(0));
}

/// A node that starts first leaves the address of the names to the node that is to serve them, and waits for
/// it; so does a user's program.
#[test]
fn nodes_start_before_the_names() {
    let stage = Stage::new(&roles());
    let station = started(aloud(&stage, &["node", "station"]));
    assert!(station.says("the name service cannot be reached").contains("Start the name service: `dunlin node hub`"));
    station.says("waiting for a name service");
    assert!(!stage.path().join("names").exists());
    let config = stage.path().join("dunlin.toml");
    dunlin::block_on(async {
        let own = Node::builder().config(&config)?.named("own").listen(&stage.address("own")).role(Role::Member);
        let (tell, mut told) = dunlin::channel_with::<()>(dunlin::unbounded());
        let mut tell = Some(tell);
        let own = spawn(own.on_wait(move |_| drop(tell.take())).join());
        assert!(told.recv().await.is_err(), "it waits");
        let hub = stage.start(&["node", "hub"]);
        // The waiting nodes may join before this one prints that it serves.
        let tells = |line: &String| line.contains("serving") || line.contains("has joined");
        let mut said: Vec<_> = std::iter::repeat_with(|| hub.says("")).filter(tells).take(3).collect();
        said.sort();
        assert_eq!([&*said[0], &*said[2]], ["own has joined", "station has joined"]);
        assert!(said[1].starts_with("serving"), "{said:?}");
        own.await??.leave().await
    })
    .unwrap();
}

#[test]
fn completions_are_for_five_shells() {
    let stage = Stage::new("");
    for (shell, begins) in [
        ("bash", "_dunlin() {"),
        ("elvish", "edit:completion:arg-completer[dunlin]"),
        ("fish", "__fish_dunlin"),
        ("powershell", "-CommandName 'dunlin'"),
        ("zsh", "#compdef dunlin"),
    ] {
        let script = stage.run(&["completions", shell]);
        assert_eq!((script.code, script.err.as_str()), (Some(0), ""));
        assert!(script.out.lines().take(6).any(|line| line.contains(begins)), "{shell}: {}", script.out);
        assert!(script.out.contains("farm"), "{shell}");
        assert!(!script.out.contains("demo-part"), "{shell} completes what is not for users");
        if shell == "bash" {
            std::fs::write(stage.path().join("dunlin.bash"), script.out).unwrap();
            let read = Command::new("bash").arg("-n").arg(stage.path().join("dunlin.bash")).output().unwrap();
            assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
        }
    }
}

/// A departed reader is no failure; output that cannot be written is one. The table lists the exit codes of
/// both.
#[test]
fn exit_code_depends_on_unread_and_unwritable_output() {
    let stage = Stage::new(FILE);
    let hub = stage.start(&["node", "hub"]);
    hub.says("serving");
    let small = ["--inside", "--workers", "1", "--width", "8", "--height", "8"];
    let series = ["--inside", "--workers", "1", "--coefficients", "9", "--packages", "3", "--trapeziums", "5,6"];
    let mandelbrot = [&["farm", "mandelbrot"][..], &small].concat();
    let fourier = [&["farm", "fourier"][..], &series].concat();
    for (line, unread, unwritten) in [
        (&["--help"][..], 0, 1),
        (&["--version"], 0, 1),
        (&["help", "farm", "worker"], 0, 1),
        (&["completions", "bash"], 0, 1),
        (&["config"], 0, 1),
        (&["config", "--json"], 0, 1),
        (&["config", "--check", "dunlin.toml"], 0, 1),
        (&["names", "list"], 0, 1),
        // Without a reader, the rest of these commands would have no effect.
        (&["ping", "hub", "--count", "1000000000"], 141, 1),
        (&["ping", "hub", "--count", "1000000000", "--json"], 141, 1),
        (&["sim", "--seeds", "1000000000", "--trace"], 141, 7),
        (&["sim", "--seeds", "5"], 0, 7),
        (&["sim", "scale", "--nodes", "4", "--ends", "40"], 0, 7),
        (&["demo"], 141, 1),
        (&["demo", "--json"], 141, 1),
        (&["demo", "--inside"], 141, 1),
        // These still draw a picture.
        (&mandelbrot, 0, 1),
        (&[&mandelbrot[..], &["--json"]].concat(), 0, 1),
        (&fourier, 0, 1),
        (&[&fourier[..], &["--json"]].concat(), 141, 1),
    ] {
        let (reader, closed) = std::io::pipe().unwrap();
        drop(reader);
        let run = ended(stage.command(line).stdout(closed).output().unwrap());
        assert_eq!(run.code, Some(unread), "{line:?}: {}", run.err);
        // (Farms print the workers that have joined there.)
        assert!(!run.err.contains("error") && !run.err.contains("panicked"), "{line:?}: {}", run.err);

        let Some(full) = full() else { continue };
        let run = ended(stage.command(line).stdout(full).output().unwrap());
        assert_eq!(run.code, Some(unwritten), "{line:?}: {}", run.err);
        let told = run.err.lines().filter(|line| line.starts_with("error: ")).collect::<Vec<_>>();
        let [told] = told[..] else { panic!("{line:?}: {}", run.err) };
        assert!(told.starts_with("error: cannot write the output: No space left on device"), "{told}");
        if line.contains(&"mandelbrot") {
            std::fs::remove_file(stage.path().join("mandelbrot.png")).unwrap();
        }
    }
}

/// Its node is needed even without its output.
#[test]
fn a_node_that_cannot_print_reports_it_and_continues() {
    if full().is_none() {
        return;
    }
    let stage = Stage::new(FILE);
    for line in [&["names", "serve"][..], &["node", "hub"], &["node", "hub", "--json"]] {
        let mut server = started(through(&stage, line, r#"exec "$0" "$@" 2>&1 >/dev/full"#));
        server.says("error: cannot write the output");
        let listed = stage.run(&["names", "list"]);
        assert_eq!(listed.code, Some(0), "{}", listed.err);
        assert_eq!(server.ends_with("-INT"), Some(130));
    }
}

/// With error output that cannot be written, only the exit code reports the error.
#[test]
fn unwritable_errors_keep_the_exit_code() {
    let stage = Stage::new(&roles());
    for (line, code) in [
        (&["config", "--check", "nowhere.toml"][..], 1),
        (&["ping", "hub"], 1),
        (&["node", "staton"], 2),
        (&["sea"], 2),
        (&["sim", "--bug", "nothing-like-it"], 2),
        (&["demo", "--files", "/no/such/folder"], 2),
        (&["demo-part"], 2),
        (&["farm", "worker", "--at", "unix:/nowhere"], 1),
    ] {
        for broken in ["2>/dev/full", "2>&-"] {
            if full().is_none() && broken.contains("full") {
                continue;
            }
            let run = through(&stage, line, &format!(r#"exec "$0" "$@" </dev/null {broken}"#)).output().unwrap();
            assert_eq!(ended(run).code, Some(code), "{line:?} {broken}");
        }
    }
    // Nothing reads its log, nor the line that it waits: it waits all the same.
    assert!(Command::new("mkfifo").arg(stage.path().join("errors")).status().unwrap().success());
    let mut station = through(&stage, &["node", "station"], r#"exec "$0" "$@" 2>errors"#);
    station.env("RUST_LOG", "debug");
    let mut station = started(station);
    drop(File::open(stage.path().join("errors")).unwrap());
    while !stage.path().join("station").exists() {
        assert!(station.is_running());
    }
    let hub = stage.start(&["node", "hub"]);
    hub.says("station has joined");
    station.says("runs nothing");
}

#[test]
fn a_demo_that_cannot_begin_starts_nothing() {
    let somebody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let demo = Stage::new("").run(&["demo", "--names", &somebody.local_addr().unwrap().to_string()]);
    assert_eq!((demo.code, demo.out.lines().count()), (Some(1), 1), "{}", demo.out);
    assert!(demo.err.contains("another program") && demo.err.contains("--names"), "{}", demo.err);
}

/// Parts that were asked to end have not failed.
#[test]
fn a_demo_that_is_stopped_shows_no_failures() {
    let stage = Stage::new("");
    let mut demo = started(aloud(&stage, &["demo", "--pace", "10000"]));
    demo.says("sends");
    assert_eq!(demo.ends_with("-INT"), Some(130));
    let after: Vec<String> = demo.rest().into_iter().filter(|line| line.contains("has ended")).collect();
    assert!(after.is_empty(), "{after:#?}");
}

/// A second signal ends a node that waits for one that does not leave.
#[test]
fn second_signal_ends_a_node_at_once() {
    let stage = Stage::new(&roles());
    let mut hub = started(aloud(&stage, &["node", "hub"]));
    let station = stage.start(&["node", "station"]);
    hub.says("station has joined");
    station.signal("-STOP");
    hub.signal("-INT");
    hub.says("press Ctrl-C again to quit now");
    // It would wait ten seconds for its member, and then five for unacknowledged frames.
    let asked = std::time::Instant::now();
    assert_eq!(hub.ends_with("-INT"), Some(130));
    assert!(asked.elapsed() < std::time::Duration::from_secs(5), "{:?}", asked.elapsed());
}

/// When its terminal closes, a node leaves instead of being lost to the others.
#[test]
fn node_leaves_when_its_terminal_closes() {
    let stage = Stage::new(&roles());
    let hub = stage.start(&["node", "hub"]);
    let mut station = stage.start(&["node", "station"]);
    hub.says("station has joined");
    // The station may not have its answer yet: it has left in either case.
    assert_eq!(station.ends_with("-HUP"), Some(129));
    hub.says("station has left");
    let said = station.rest();
    let says = |text| said.iter().any(|line: &String| line.ends_with(text));
    assert_eq!(says("runs nothing"), says("ended: this node is leaving"), "{said:#?}");
}

#[test]
fn the_simulator_runs() {
    let stage = Stage::new("");
    for line in [&["sim", "--seeds", "5", "--json"][..], &["--json", "sim", "--seeds", "5"]] {
        let played = stage.run(line);
        assert_eq!(played.code, Some(0), "{}", played.err);
        assert_eq!(lines(&played)[0]["played"], 5);
    }
}

/// A configured node works for one farm after another, as they open at its names.
#[test]
fn a_node_works_for_farms() {
    let file =
        "app = 'dunlin-farm'\nnames = 'unix:DIR/farm'\n[node.hand]\nlisten = 'unix:DIR/hand'\nrun = 'farm-worker'\n";
    let stage = Stage::new(file);
    let mut hand = stage.start(&["node", "hand", "--json"]);
    hand.says("\"waiting\"");
    let at = stage.address("farm");
    for _ in 0..2 {
        let line = ["farm", "fourier", "--coefficients", "50", "--packages", "5", "--trapeziums", "10"];
        let farm = stage.run(&[&line[..], &["--workers", "0", "--listen", &at, "--json"]].concat());
        assert_eq!(farm.code, Some(0), "{}", farm.err);
        hand.says("\"enrolled\"");
        let done: Value = serde_json::from_str(&hand.says("\"dismissed\"")).unwrap();
        assert_eq!(done["done"], 5);
    }
    assert_eq!(hand.ends_with("-INT"), Some(130));
    let elsewhere = Stage::new(&file.replace("dunlin-farm", "weather"));
    let refused = elsewhere.run(&["node", "hand"]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.err.contains("write app = \"dunlin-farm\" in dunlin.toml"), "{}", refused.err);
}
