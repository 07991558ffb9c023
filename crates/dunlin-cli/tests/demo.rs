//! `dunlin demo`, as users start it: with its processes in any order, with some of them killed, ended at any
//! moment, with bad files and addresses.
//!
//! A test reads the events of the command (`--json`), and waits for them.
#![cfg(unix)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use dunlin_demo::demo::plan::Plan;
use dunlin_demo::demo::texts::Text;
use serde_json::{Value, json};
use tempfile::TempDir;

/// The limit for every wait; only a bug can reach it.
const LIMIT: Duration = Duration::from_secs(90);

/// A running demo. Its drop kills it.
struct Demo {
    child: Child,
    lines: mpsc::Receiver<String>,
    /// All events so far.
    events: Vec<Value>,
    /// The working directory of the demo, and its folder for temporary files: both empty.
    folder: TempDir,
}

impl Demo {
    fn start(args: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_dunlin"));
        command.args(["demo", "--json"]).args(args).current_dir(folder.path()).env("TMPDIR", folder.path());
        // A shell does the same: a terminal's Ctrl-C reaches all processes of such a group.
        command.process_group(0);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        let (tell, lines) = mpsc::channel();
        // The thread ends with the process.
        std::thread::spawn(move || said.lines().map_while(Result::ok).try_for_each(|line| tell.send(line)));
        Self { child, lines, events: Vec::new(), folder }
    }

    /// The next event; `None` when the demo has ended.
    fn next(&mut self) -> Option<&Value> {
        match self.lines.recv_timeout(LIMIT) {
            Ok(line) => self.events.push(serde_json::from_str(&line).unwrap()),
            Err(mpsc::RecvTimeoutError::Disconnected) => return None,
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("nothing happens after {:#?}", self.events),
        }
        self.events.last()
    }

    /// The next event that matches.
    fn wait_for(&mut self, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        while let Some(event) = self.next() {
            if is(event) {
                return event.clone();
            }
        }
        panic!("{what} has not come: {:#?}", self.events)
    }

    /// All events of this kind, so far.
    fn all(&self, kind: &str) -> impl Iterator<Item = &Value> {
        self.events.iter().filter(move |event| event["event"] == kind)
    }

    /// The id of a part's process.
    fn pid(&self, part: &str) -> u64 {
        let started = self.all("started").find(|event| event["part"] == part);
        started.expect("it has started")["pid"].as_u64().unwrap()
    }

    /// Waits for the end, and checks that nothing is left behind.
    fn end(mut self) -> Ended {
        while self.next().is_some() {}
        let status = self.child.wait().unwrap();
        for started in self.all("started") {
            assert!(!is_alive(started["pid"].as_u64().unwrap()), "{} is left behind", started["part"]);
        }
        let left: Vec<_> = std::fs::read_dir(self.folder.path()).unwrap().collect();
        assert!(left.is_empty(), "{left:?} are left behind");
        Ended { status, events: std::mem::take(&mut self.events) }
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Ended {
    status: ExitStatus,
    events: Vec<Value>,
}

impl Ended {
    fn all(&self, kind: &str) -> Vec<&Value> {
        self.events.iter().filter(|event| event["event"] == kind).collect()
    }

    fn summary(&self) -> &Value {
        let last = self.events.last().expect("it has reported an event");
        assert_eq!(last["event"], "summary");
        last
    }

    /// The table of each text, all of which are exact.
    fn tables(&self) -> BTreeMap<String, &Value> {
        let served = self.all("served");
        assert!(served.iter().all(|served| served["exact"] == true), "{served:#?}");
        served.into_iter().map(|served| (served["file"].to_string(), &served["table"])).collect()
    }
}

fn run(args: &[&str]) -> Ended {
    Demo::start(args).end()
}

/// Sends a signal to a process, or with a minus to a group.
fn signal(name: &str, to: impl ToString) {
    let to = to.to_string();
    let status = Command::new("kill").args([&format!("-{name}"), "--", &to]).status().unwrap();
    assert!(status.success(), "kill -{name} {to}");
}

/// Whether a process with this id runs. (A zombie, whose new parent does not wait for it, does not run.)
fn is_alive(pid: u64) -> bool {
    let state = Command::new("ps").args(["-o", "state=", "-p", &pid.to_string()]).output().unwrap();
    let state = String::from_utf8_lossy(&state.stdout).trim().to_owned();
    !state.is_empty() && !state.starts_with('Z')
}

/// A folder with these files.
fn folder(files: &[(&str, &[u8])]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in files {
        std::fs::write(folder.path().join(name), content).unwrap();
    }
    folder
}

fn path(folder: &TempDir) -> &str {
    folder.path().to_str().unwrap()
}

#[test]
fn demo_result_does_not_depend_on_start_order() {
    let inside = run(&["--inside"]);
    assert!(inside.status.success());
    assert_eq!(inside.tables().len(), 6);
    // Customers before the broker; the broker last; the names last, when the broker has been running for
    // long, and when it has just started.
    for (seed, places) in [
        (4, [("names", 0), ("broker", 4)]),
        (34, [("names", 3), ("broker", 7)]),
        (5, [("broker", 1), ("names", 7)]),
        (35, [("broker", 6), ("names", 7)]),
    ] {
        let mut plan = Plan::new(3, 3, Text::shipped());
        plan.shuffle(seed);
        let order: Vec<&str> = plan.parts.iter().map(|part| part.name.as_str()).collect();
        for (part, place) in places {
            assert_eq!(order[place], part, "{order:?}");
        }
        let demo = run(&["--order", &seed.to_string()]);
        assert!(demo.status.success(), "{:#?}", demo.events);
        assert_eq!(demo.tables(), inside.tables());
        // Each part has joined before the next one started.
        let steps: Vec<_> =
            demo.events.iter().filter(|event| event["event"] == "started" || event["event"] == "joined").collect();
        let steps: Vec<_> = steps
            .into_iter()
            .map(|event| (event["part"].as_str().unwrap(), event["event"].as_str().unwrap()))
            .collect();
        let expected: Vec<_> = order.iter().flat_map(|&part| [(part, "started"), (part, "joined")]).collect();
        assert_eq!(steps, expected);

        // Names, a broker, three workers and three customers: eight processes, and all ended in order.
        let pids: BTreeSet<u64> = demo.all("started").iter().map(|event| event["pid"].as_u64().unwrap()).collect();
        assert_eq!(pids.len(), 8);
        let ended = demo.all("ended");
        assert_eq!(ended.len(), 8);
        assert!(ended.iter().all(|event| event["in_order"] == true), "{ended:#?}");
        // Each handle returned to its worker.
        assert_eq!((demo.all("appointed").len(), demo.all("returned").len()), (6, 6));
        // While a worker served a customer, the customer's node had a direct connection with the worker's.
        let node_of =
            |part: &Value| &demo.all("joined").into_iter().find(|event| event["part"] == *part).unwrap()["node"];
        for text in demo.summary()["texts"].as_array().unwrap() {
            assert_eq!(text["connection"]["route"], "direct", "{text}");
            assert_eq!(text["connection"]["node"], *node_of(&text["worker"]), "{text}");
        }
        // Workers have received exactly what customers have sent.
        let of = |kind: &str, who: &str| -> BTreeSet<String> {
            let told = demo.all(kind);
            told.iter()
                .map(|event| format!("{} {} {} {}", event[who], event["file"], event["pieces"], event["bytes"]))
                .collect()
        };
        assert_eq!(of("served", "part"), of("counted", "customer"));
    }
}

/// The output at the end: a row for each text, with the address of its worker.
#[test]
fn the_table_shows_the_direct_connections() {
    let demo = Command::new(env!("CARGO_BIN_EXE_dunlin")).arg("demo").stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8(demo.stdout).unwrap();
    assert!(demo.status.success(), "{said}");
    // Each worker's address is the one with which it joined.
    let joined: BTreeMap<&str, &str> = said
        .lines()
        .filter_map(|line| {
            line.split_once(" is node ").and_then(|(part, at)| Some((part.trim(), at.split_once(" at ")?.1)))
        })
        .collect();
    assert_eq!(joined.len(), 8, "{said}");
    let (_, table) = said.split_once("\n\n").unwrap();
    let mut lines = table.lines();
    let heading = lines.next().unwrap();
    let columns: Vec<usize> =
        ["text", "customer", "worker", "bytes", "connection"].iter().map(|name| heading.find(name).unwrap()).collect();
    let rows: Vec<&str> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
    assert_eq!(rows.len(), 6, "{said}");
    for row in rows {
        let worker = row[columns[2]..columns[3]].split("  ").next().unwrap();
        assert_eq!(row[columns[4]..], format!("direct, to {}", joined[worker]), "{said}");
    }
    let rest: Vec<&str> = lines.collect();
    let told = "Each customer was connected with its worker directly: the broker has handed on 6 handles, and none of the texts came by it.";
    assert!(rest.contains(&told), "{said}");
    assert!(
        rest[rest.len() - 1].starts_with("6 of 6 texts, 9364 bytes, counted exactly; 6 handles went home"),
        "{said}"
    );
}

/// Beside the direct connections, the traffic proves it: the broker's node has carried too little to have
/// received the texts.
#[test]
fn the_brokers_node_does_not_carry_the_texts() {
    let text = "the sea was boiling hot, and whether pigs have wings: ".repeat(2_000);
    let names = ["1.txt", "2.txt", "3.txt", "4.txt"];
    let folder = folder(&names.map(|name| (name, text.as_bytes())));
    let demo = run(&["--customers", "2", "--workers", "2", "--files", path(&folder)]);
    assert!(demo.status.success(), "{:#?}", demo.summary());
    let summary = demo.summary();
    let texts = (names.len() * text.len()) as u64;
    let carried = summary["carried_bytes"].as_u64().unwrap();
    // The traffic covers every node: it has received from all others, and sent to them.
    let carriages = summary["carried"].as_array().unwrap();
    let parts: Vec<&str> = carriages.iter().map(|carriage| carriage["part"].as_str().unwrap()).collect();
    assert_eq!(parts, ["customer 1", "customer 2", "names", "worker 1", "worker 2"]);
    for carriage in carriages {
        assert!(carriage["sent"].as_u64().unwrap() > 0 && carriage["received"].as_u64().unwrap() > 0, "{carriage}");
    }
    assert!(carried < texts / 4, "{carried} bytes, where the texts are {texts}: {summary:#}");
    // No text of a customer arrived there, not even one.
    assert!(carried < text.len() as u64, "{carried} bytes, where each text is {}", text.len());
}

#[test]
fn more_customers_than_workers_take_turns() {
    let demo = run(&["--customers", "5", "--workers", "2"]);
    assert!(demo.status.success(), "{:#?}", demo.events);
    assert_eq!(demo.tables().len(), 6);
    assert_eq!(demo.summary()["served"], 6);
}

#[test]
fn an_unreadable_file_delays_no_other() {
    let folder =
        folder(&[("a.txt", b"two words"), ("b.txt", b"caf\xe9 au lait"), ("d.txt", b""), (".hidden", b"\xff")]);
    std::os::unix::fs::symlink(folder.path().join("nowhere"), folder.path().join("c.txt")).unwrap();
    std::fs::create_dir(folder.path().join("e.txt")).unwrap();
    for inside in [&[][..], &["--inside"]] {
        let demo = run(&[&["--customers", "1", "--workers", "1", "--files", path(&folder)], inside].concat());
        assert_eq!(demo.status.code(), Some(1));
        let unreadable = demo.all("unreadable");
        let kinds: Vec<_> = unreadable.iter().map(|event| (&event["file"], &event["kind"], &event["at"])).collect();
        assert_eq!(
            kinds,
            [(&json!("b.txt"), &json!("not_text"), &json!(3)), (&json!("c.txt"), &json!("io"), &Value::Null)]
        );
        let expected = BTreeMap::from(
            [("\"a.txt\"".to_owned(), &json!({ "two": 1, "words": 1 })), ("\"d.txt\"".to_owned(), &json!({}))]
                .map(|(name, table)| (name, table.clone())),
        );
        let tables: BTreeMap<String, Value> =
            demo.tables().into_iter().map(|(name, table)| (name, table.clone())).collect();
        assert_eq!(tables, expected);
        assert_eq!(demo.summary()["served"], 2);
    }
}

/// The lost worker's customer reports the outcome, and another worker counts the text.
#[test]
fn text_is_counted_again_after_its_worker_is_killed() {
    let text = "the sea was wet as wet could be, ".repeat(300);
    let folder = folder(&[("sea.txt", text.as_bytes())]);
    let mut demo = Demo::start(&["--customers", "1", "--workers", "2", "--files", path(&folder), "--pace", "20"]);
    let begins = demo.wait_for("the text", |event| event["event"] == "begins");
    demo.wait_for("the middle", |event| event["event"] == "progress" && event["sent"] == 30);
    let worker = begins["worker"].as_str().unwrap();
    signal("KILL", demo.pid(worker));
    let lost = demo.wait_for("the loss", |event| event["event"] == "lost");
    assert_eq!((&lost["worker"], &lost["file"]), (&begins["worker"], &begins["file"]));
    assert!(["unknown", "not_taken"].contains(&lost["outcome"].as_str().unwrap()), "{lost}");
    assert!((30..100).contains(&lost["piece"].as_u64().unwrap()), "{lost}");
    let again = demo.wait_for("another worker", |event| event["event"] == "begins");
    assert_ne!(again["worker"], begins["worker"]);
    let demo = demo.end();
    assert!(demo.status.success(), "{:#?}", demo.events);
    assert_eq!(
        *demo.tables()["\"sea.txt\""],
        json!({
            "the": 300, "sea": 300, "was": 300, "wet": 600, "as": 300, "could": 300, "be": 300
        })
    );
    assert_eq!(demo.summary()["texts"][0]["lost"][0]["worker"], begins["worker"]);
}

#[test]
fn demo_fails_when_its_last_worker_is_killed() {
    let text = "and this was odd ".repeat(300);
    let folder = folder(&[("sea.txt", text.as_bytes())]);
    let mut demo = Demo::start(&["--customers", "1", "--workers", "1", "--files", path(&folder), "--pace", "20"]);
    demo.wait_for("the middle", |event| event["event"] == "progress" && event["sent"] == 10);
    signal("KILL", demo.pid("worker 1"));
    let demo = demo.end();
    assert_eq!(demo.status.code(), Some(1));
    assert_eq!((demo.all("lost").len(), demo.all("not_served").len()), (1, 1), "{:#?}", demo.events);
}

/// A customer with a handle does not need the broker.
#[test]
fn customers_are_served_after_their_broker_is_killed() {
    let text = "the time has come, the walrus said, ".repeat(300);
    let folder = folder(&[("1.txt", text.as_bytes()), ("2.txt", text.as_bytes()), ("3.txt", text.as_bytes())]);
    // The first customer has a second text, for which there will be no broker.
    let mut demo = Demo::start(&["--customers", "2", "--workers", "2", "--files", path(&folder), "--pace", "5"]);
    let mut on_the_way = BTreeSet::new();
    while on_the_way.len() < 2 {
        // Until the first pieces have arrived, the way back of a handle may still lead over the broker.
        let progress = demo.wait_for("both on their way", |event| event["event"] == "progress" && event["sent"] == 20);
        on_the_way.insert(progress["part"].to_string());
    }
    assert_eq!(demo.all("served").count(), 0, "it was too fast for this test");
    signal("KILL", demo.pid("broker"));
    let demo = demo.end();
    assert_eq!(demo.tables().into_keys().collect::<Vec<_>>(), ["\"1.txt\"", "\"2.txt\""]);
    assert!(demo.all("lost").is_empty());
    assert_eq!(demo.all("returned").len(), 2, "handles go home without the broker: {:#?}", demo.events);
    let not_served = demo.all("not_served");
    assert_eq!(not_served.len(), 1);
    assert_eq!(not_served[0]["file"], "3.txt");
    // All others have ended in order.
    let killed: Vec<_> = demo.all("ended").into_iter().filter(|ended| ended["in_order"] == false).collect();
    assert_eq!(killed.len(), 1, "{killed:#?}");
    assert_eq!(killed[0]["part"], "broker");
    assert_eq!(demo.status.code(), Some(1));
}

#[test]
fn demo_can_be_ended_at_any_moment() {
    let rounds: u64 = std::env::var("DUNLIN_DEMO_STOPS").map_or(10, |rounds| rounds.parse().unwrap());
    let seed: u64 = std::env::var("DUNLIN_SEED").map_or(1, |seed| seed.parse().unwrap());
    // Some 170 events for 6 texts.
    let mut state = seed;
    for round in 0..rounds {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        let moment = match round {
            0 => 0,
            // The first has joined, and most of the others have not started.
            1 => 2,
            _ => (state >> 33) % 170,
        };
        let name = ["INT", "TERM", "HUP"][(state >> 20) as usize % 3];
        let mut demo = Demo::start(&["--order", &round.to_string()]);
        let mut has_ended = false;
        for _ in 0..moment {
            has_ended = demo.next().is_none_or(|event| event["event"] == "summary");
            if has_ended {
                break;
            }
        }
        if has_ended {
            demo.end();
            continue;
        }
        let command = i64::from(demo.child.id());
        signal(name, if round % 2 == 0 { -command } else { command });
        let demo = demo.end();
        let (code, number) = match name {
            "INT" => (130, 2),
            "TERM" => (143, 15),
            _ => (129, 1),
        };
        let what = format!("seed {seed}, round {round}: {name} after {moment} events: {:?}", demo.status);
        if demo.status.signal() == Some(number) {
            // The signal came before there was anything to end.
            assert!(demo.all("started").is_empty(), "{what}");
            continue;
        }
        // The signal may have come after the end.
        let summary = demo.summary();
        assert!(
            demo.status.code() == Some(code) && summary["ending"] == "stopped" || summary["ending"] == "done",
            "{what}"
        );
    }
}

/// No process is left to end the others: they end themselves.
#[test]
fn parts_end_when_the_command_is_killed() {
    let mut demo = Demo::start(&["--pace", "20"]);
    demo.wait_for("a text", |event| event["event"] == "progress");
    let pids: Vec<u64> = demo.all("started").map(|event| event["pid"].as_u64().unwrap()).collect();
    assert_eq!(pids.len(), 8);
    drop(demo);
    // They have no parent now, so there is no event to wait for.
    let patience = Instant::now() + LIMIT;
    while pids.iter().any(|&pid| is_alive(pid)) {
        assert!(Instant::now() < patience, "some of {pids:?} are left behind");
    }
}

/// As with `dunlin demo | head`.
#[test]
fn demo_ends_when_its_output_has_no_reader() {
    for args in [&["demo", "--json", "--pace", "5"][..], &["demo"], &["demo", "--inside"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dunlin"));
        let command = command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut first = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        // Processes that it has started would hold this pipe open.
        let ended = child.wait_with_output().unwrap();
        assert_eq!((ended.status.code(), String::from_utf8_lossy(&ended.stderr).as_ref()), (Some(141), ""), "{args:?}");
    }
}

/// All texts were counted, but the report cannot be written: that is a failure.
#[test]
fn demo_fails_when_its_report_cannot_be_written() {
    let texts = folder(&[]);
    for n in 0..30 {
        std::fs::write(texts.path().join(format!("{n}.txt")), "the sea").unwrap();
    }
    let folder = folder(&[]);
    let out = folder.path().join("out");
    let demo = |script: &str| {
        let mut command = Command::new("sh");
        let command = command.args(["-c", script, env!("CARGO_BIN_EXE_dunlin"), "demo", "--inside", "--files"]);
        let command = command.arg(texts.path());
        let ended = command.stdout(File::create(&out).unwrap()).output().unwrap();
        (ended.status.code(), String::from_utf8(ended.stderr).unwrap(), std::fs::read_to_string(&out).unwrap())
    };
    let (code, errors, said) = demo(r#"exec "$0" "$@""#);
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    // Room for all output before the report, and for a part of the report. (In blocks of 512 bytes.)
    let blocks = said.find("\n\n").unwrap() / 512 + 2;
    assert!(said.len() > 512 * blocks, "{said}");
    let (code, errors, said) = demo(&format!(r#"trap "" XFSZ; ulimit -f {blocks}; exec "$0" "$@""#));
    assert_eq!(code, Some(1), "{errors}");
    assert!(errors.starts_with("error: cannot write the output: File too large"), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(said.contains("\n\n"), "the report had come: {said}");
}

#[test]
fn demo_reports_an_address_in_use() {
    let somebody = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = somebody.local_addr().unwrap().to_string();
    let demo = run(&["--names", &address]);
    assert_eq!(demo.status.code(), Some(1));
    let why = demo.summary()["ending"].as_str().unwrap();
    assert!(why.contains(&address) && why.contains("another program") && why.contains("--names"), "{why}");
}

/// The parts wait for the names, but only for a limited time.
#[test]
fn parts_fail_without_a_name_service() {
    for role in [json!("Broker"), json!("Worker"), json!({ "Customer": { "texts": [] } })] {
        let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let mut command = Command::new(env!("CARGO_BIN_EXE_dunlin"));
        let mut part = command.arg("demo-part").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let none = json!({ "secs": 0, "nanos": 0 });
        let patience = json!({ "secs": 0, "nanos": 300_000_000 });
        let task = json!({
            "part": { "name": "lonely", "role": role }, "application": "nobody's", "names": nobody, "pace": none, "patience": patience,
        });
        let mut input = part.stdin.take().unwrap();
        writeln!(input, "{task}").unwrap();
        let said = BufReader::new(part.stdout.take().unwrap()).lines().map_while(Result::ok);
        let failed: Value = serde_json::from_str(&said.last().unwrap()).unwrap();
        let why = failed["why"].as_str().unwrap();
        assert!(why.contains("no name service") && why.contains(&nobody), "{failed}");
        assert_eq!(part.wait().unwrap().code(), Some(1));
        drop(input);
    }
}

#[test]
fn demo_refuses_wrong_options() {
    let fails = |args: &[&str], says: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_dunlin")).args(args).stdin(Stdio::null()).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && error.contains(says), "{args:?}: {:?}, {error}", output.status);
    };
    let empty = folder(&[]);
    assert!(Path::new(path(&empty)).is_dir());
    fails(&["demo", "--files", path(&empty)], "there is no file in");
    fails(&["demo", "--files", "/no/such/folder"], "cannot list /no/such/folder");
    fails(&["demo", "--customers", "0"], "--customers");
    fails(&["demo", "--inside", "--names", "127.0.0.1:7400"], "--names");
    fails(&["demo-part"], "run `dunlin demo`");
}
