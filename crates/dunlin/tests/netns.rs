//! Nodes in network namespaces: two with a real link between them that goes down and comes up, and some at
//! ports that no other node has. Linux, and root only: elsewhere a test prints that it was
//! skipped, and appends its name to the file `DUNLIN_SKIPPED`.
#![cfg(all(feature = "net", target_os = "linux"))]

#[path = "support/actor.rs"]
mod actor;
#[path = "support/skipped.rs"]
mod skipped;

use std::io::Write;
use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

use actor::{Actor, say};
use dunlin::node::ConnectionState;
use dunlin::prelude::*;
use skipped::report_skipped;

/// Longer than the link is down when it comes back: that lasts only until both nodes have noticed it and this
/// test has read that.
const GRACE: Duration = Duration::from_secs(5);

const NEAR: &str = "10.77.0.1:7500";
const FAR: &str = "10.77.0.2:7500";

#[test]
#[ignore = "what the processes of the other tests run"]
fn a_role() {
    let Some((role, knows)) = actor::role() else { return };
    dunlin::block_on(async {
        if role == "default" {
            return by_default(&knows).await;
        }
        if role == "service" {
            return leaves_the_names(&knows).await;
        }
        if role == "patient" {
            return waits_for_the_names(&knows).await;
        }
        if role == "stopped" {
            return stops(&knows).await;
        }
        if role == "stranger" {
            return strange(&knows);
        }
        let here = if role == "sender" { NEAR } else { FAR };
        let builder = Node::builder().app("netns").names(FAR).listen(here);
        let node = builder.heartbeat(Duration::from_millis(100)).grace(GRACE).join().await?;
        let mut connections = node.connections();
        let states = spawn(async move {
            loop {
                match connections.recv().await?.1 {
                    ConnectionState::Down(_) => return Ok::<_, Error>(()),
                    state => say(format!("{state:?}")),
                }
            }
        });
        match role.as_str() {
            "sender" => send(node).await?,
            _ => receive(node).await?,
        }
        states.await??;
        say("Down");
        Ok::<_, Error>(())
    })
    .unwrap();
}

/// Prints where it listens and where it finds the names, given no more than this: an application, and perhaps
/// addresses.
async fn by_default(knows: &[String]) -> Result {
    let mut builder = Node::builder().app(&knows[0]).no_config();
    if let [_, names, listen] = knows {
        builder = builder.names(names).listen(listen);
    }
    let (node, patience) = (builder.join().await?, Duration::from_secs(30));
    let names = node.inquire(None, patience).await?.names(patience).await?;
    let uses = if node.serves_names() { "serves" } else { "uses" };
    say(format!(
        "listens at {}, {uses} the names at {}",
        node.listening().join(" "),
        names.address.unwrap_or_default()
    ));
    // Until it is killed.
    std::future::pending().await
}

/// Serves names at a default port, and prints whether it leaves them to another node: it looks every 5 s.
async fn leaves_the_names(knows: &[String]) -> Result {
    let node = Node::builder().app(&knows[0]).no_config().join().await?;
    let serves = async |node: &Node, expected: bool, patience: Duration| {
        let until = Instant::now() + patience;
        while node.serves_names() != expected && Instant::now() < until {
            sleep(Duration::from_millis(50)).await;
        }
        node.serves_names() == expected
    };
    assert!(serves(&node, true, Duration::from_secs(30)).await);
    say("serves the names");
    let leaves = serves(&node, false, Duration::from_secs(17)).await;
    say(if leaves { "leaves the names" } else { "keeps the names" });
    Ok(())
}

/// Asks for the names as long as a user waits for a command, and prints the answer; then again, until there
/// are names.
async fn waits_for_the_names(knows: &[String]) -> Result {
    let builder = Node::builder().app(&knows[0]).no_config();
    // It waits three and a half of these for the answer of a listener at a port.
    let node = builder.heartbeat(Duration::from_millis(100)).join().await?;
    let mut asks = loop {
        match node.inquire(None, Duration::from_secs(3)).await {
            Ok(asks) => break asks,
            Err(why) => say(why),
        }
    };
    let names = asks.names(Duration::from_secs(30)).await?;
    let uses = if node.serves_names() { "serves" } else { "uses" };
    say(format!("{uses} the names at {}", names.address.unwrap_or_default()));
    std::future::pending().await
}

/// Serves the names, prints its process id, and stops silently until it is continued.
async fn stops(knows: &[String]) -> Result {
    let node = Node::builder().app(&knows[0]).no_config().join().await?;
    let patience = Duration::from_secs(30);
    node.inquire(None, patience).await?.names(patience).await?;
    assert!(node.serves_names());
    let me = std::process::id();
    say(me);
    run(&format!("kill -STOP {me}")).unwrap();
    std::future::pending().await
}

/// A stranger at the first default port of names, which sends every socket this answer and nothing more.
fn strange(knows: &[String]) -> Result {
    let listener = TcpListener::bind("127.0.0.1:7400").unwrap();
    say("listens");
    // `Refused` 7 of docs/wire.md.
    let says: &[u8] = if knows[0] == "busy" { b"dunlin\r\n\x03\x00\x01\x07" } else { b"" };
    let mut silent = Vec::new();
    for socket in listener.incoming() {
        let mut socket = socket.unwrap();
        socket.write_all(says).unwrap();
        silent.extend(says.is_empty().then_some(socket));
    }
    Ok(())
}

async fn send(node: Node) -> Result {
    let mut tx = node.sender::<u64>("numbers").await?;
    let mut n = 0;
    let error = loop {
        match tx.send(n).await {
            Ok(()) => {
                if n == 0 {
                    say("sends");
                }
                n += 1;
            }
            Err(error) => break error,
        }
    };
    match error {
        SendError::Unknown { value, .. } => {
            assert_eq!(value, n);
            say("Unknown");
        }
        SendError::NotTaken { value, why } => {
            assert_eq!(value, n);
            say(format!("{why:?}"));
        }
    }
    Ok(())
}

async fn receive(node: Node) -> Result {
    let mut rx = node.receiver::<u64>("numbers").await?;
    for expected in 0.. {
        match rx.recv().await {
            Ok(n) => assert_eq!(n, expected, "lost, doubled or out of order"),
            Err(error) => {
                say(format!("{error:?}"));
                break;
            }
        }
        if expected % 100 == 99 {
            say("received a hundred");
        }
    }
    Ok(())
}

/// Reads until the actor prints one of these.
fn hear(actor: &Actor, what: &[&str]) {
    while !what.contains(&&*actor.hear()) {}
}

/// Runs `ip` or another command.
fn run(command: &str) -> Result<(), String> {
    let mut words = command.split(' ');
    let output =
        Command::new(words.next().unwrap()).args(words).output().map_err(|error| format!("{command}: {error}"))?;
    if output.status.success() {
        Ok(())
    } else {
        Err(format!("{command}: {}", String::from_utf8_lossy(&output.stderr).trim()))
    }
}

/// Two namespaces with a link. Its drop removes them.
struct Link {
    near: String,
    far: String,
}

impl Link {
    /// `whose`: the test, as several may run at once.
    fn new(whose: &str) -> Result<Self, String> {
        let id = std::process::id();
        let link = Self { near: format!("dunlin-{whose}-near-{id}"), far: format!("dunlin-{whose}-far-{id}") };
        let Self { near, far } = &link;
        for command in [
            format!("ip netns add {near}"),
            format!("ip netns add {far}"),
            format!("ip -n {near} link add dunlin type veth peer name dunlin netns {far}"),
            format!("ip -n {near} addr add 10.77.0.1/24 dev dunlin"),
            format!("ip -n {far} addr add 10.77.0.2/24 dev dunlin"),
            format!("ip -n {far} link set dunlin up"),
            format!("ip -n {near} link set dunlin up"),
        ] {
            run(&command)?;
        }
        Ok(link)
    }

    fn set(&self, state: &str) {
        run(&format!("ip -n {} link set dunlin {state}", self.near)).unwrap();
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        for namespace in [&self.near, &self.far] {
            let _ = run(&format!("ip netns del {namespace}"));
        }
    }
}

#[test]
fn a_connection_outlives_a_link_that_comes_back() {
    let link = match Link::new("outlives") {
        Ok(link) => link,
        Err(why) => return report_skipped(&format!("a_connection_outlives_a_link_that_comes_back: {why}")),
    };
    let netem = format!("tc -n {} qdisc add dev dunlin root netem delay 3ms 1ms loss 2%", link.near);
    if let Err(why) = run(&netem) {
        report_skipped(&format!("delay and loss on the link: {why}"));
    }
    let start = |namespace: &str, role| Actor::start(&["ip", "netns", "exec", namespace], role, &[]);
    let receiver = start(&link.far, "receiver");
    let sender = start(&link.near, "sender");
    // Not "Up": that may have happened before the sender listened for it.
    hear(&sender, &["sends"]);
    hear(&receiver, &["received a hundred"]);

    for _ in 0..3 {
        link.set("down");
        // Only the silence shows that the link is down.
        hear(&sender, &["Lost"]);
        hear(&receiver, &["Lost"]);
        link.set("up");
        hear(&sender, &["Resumed"]);
        hear(&receiver, &["Resumed"]);
        hear(&receiver, &["received a hundred"]);
    }

    // It stays down: after the grace period both get an error that names the cause.
    link.set("down");
    hear(&sender, &["Unknown", "NodeLost"]);
    hear(&receiver, &["NodeLost"]);
    hear(&sender, &["Down"]);
    hear(&receiver, &["Down"]);
    assert!(sender.end().success() && receiver.end().success());
}

/// The documented ports, which are free in a new namespace.
#[test]
fn nodes_without_settings_have_the_documented_ports() {
    let link = match Link::new("ports") {
        Ok(link) => link,
        Err(why) => return report_skipped(&format!("nodes_without_settings_have_the_documented_ports: {why}")),
    };
    run(&format!("ip -n {} link set lo up", link.near)).unwrap();
    run(&format!("ip -n {} route add default via 10.77.0.2", link.near)).unwrap();
    let mut nodes = Vec::new();
    for (knows, says) in [
        (&["one"][..], "listens at 127.0.0.1:7500, serves the names at 127.0.0.1:7400"),
        (&["one"], "listens at 127.0.0.1:7501, uses the names at 127.0.0.1:7400"),
        (&["another"], "listens at 127.0.0.1:7502, serves the names at 127.0.0.1:7401"),
        (&["another"], "listens at 127.0.0.1:7503, uses the names at 127.0.0.1:7401"),
        (
            &["routed", "default-route", "default-route:7400"],
            "listens at 10.77.0.1:7400, serves the names at 10.77.0.1:7400",
        ),
        (&["routed", "default-route", "default-route"], "listens at 10.77.0.1:7500, uses the names at 10.77.0.1:7400"),
    ] {
        let node = Actor::start(&["ip", "netns", "exec", &link.near], "default", knows);
        assert_eq!(node.hear(), says, "{knows:?}");
        nodes.push(node);
    }
}

/// A second name service appears at the port before the first one's. The first leaves the names to it if both
/// belong to one user, and so share a folder.
#[test]
fn names_at_default_ports_are_left_to_services_of_the_same_user_only() {
    const TEST: &str = "names_at_default_ports_are_left_to_services_of_the_same_user_only";
    let folder = std::env::temp_dir().join(format!("dunlin-{TEST}-{}", std::process::id()));
    for (whose, leaves) in [("another", "keeps the names"), ("own", "leaves the names")] {
        let link = match Link::new(whose) {
            Ok(link) => link,
            Err(why) => return report_skipped(&format!("{TEST}: {why}")),
        };
        run(&format!("ip -n {} link set lo up", link.near)).unwrap();
        let user = |name: &str| {
            std::fs::create_dir_all(folder.join(name)).unwrap();
            format!("XDG_RUNTIME_DIR={}", folder.join(name).display())
        };
        let (own, whose) = (user("own"), user(whose));
        let of = |user: &str, role: &str, knows: &[&str]| {
            Actor::start(&["ip", "netns", "exec", &link.near, "env", user], role, knows)
        };
        let first = of(&own, "default", &["one"]);
        assert_eq!(first.hear(), "listens at 127.0.0.1:7500, serves the names at 127.0.0.1:7400");
        let service = of(&own, "service", &["another"]);
        assert_eq!(service.hear(), "serves the names");
        drop(first);
        // It serves the same application's names at the port that is free now.
        let squatter = of(&whose, "default", &["another", "127.0.0.1:7400", "127.0.0.1:7400"]);
        assert_eq!(squatter.hear(), "listens at 127.0.0.1:7400, serves the names at 127.0.0.1:7400");
        assert_eq!(service.hear(), leaves);
    }
    std::fs::remove_dir_all(folder).unwrap();
}

/// A namespace of one host whose name services are found by the marks in a folder of the test's own.
struct Host {
    link: Link,
    marks: std::path::PathBuf,
}

impl Host {
    fn new(whose: &str) -> Result<Self, String> {
        let link = Link::new(whose)?;
        run(&format!("ip -n {} link set lo up", link.near))?;
        let marks = std::env::temp_dir().join(format!("dunlin-{whose}-{}", std::process::id()));
        std::fs::create_dir_all(&marks).map_err(|error| error.to_string())?;
        Ok(Self { link, marks })
    }

    fn start(&self, role: &str, knows: &[&str]) -> Actor {
        let marks = format!("XDG_RUNTIME_DIR={}", self.marks.display());
        Actor::start(&["ip", "netns", "exec", &self.link.near, "env", &marks], role, knows)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.marks);
    }
}

/// A name service without room, or without an answer for a moment, is still that of its application: a
/// program that starts then logs that and waits. With a service of its own at the next port there would be
/// two networks.
#[test]
fn program_waits_for_a_busy_or_stopped_name_service() {
    const TEST: &str = "program_waits_for_a_busy_or_stopped_name_service";
    let host = match Host::new("busy") {
        Ok(host) => host,
        Err(why) => return report_skipped(&format!("{TEST}: {why}")),
    };
    let busy = host.start("stranger", &["busy"]);
    assert_eq!(busy.hear(), "listens");
    let patient = host.start("patient", &["one"]);
    let told = patient.hear();
    let (first, next) = (
        told.find("127.0.0.1:7400: the node is busy"),
        told.find("127.0.0.1:7401 to 127.0.0.1:7415: Connection refused"),
    );
    assert!(first.is_some() && first < next, "{told}");
    drop(busy);
    let found = std::iter::repeat_with(|| patient.hear()).find(|said| !said.contains("the node is busy"));
    assert_eq!(found.unwrap(), "serves the names at 127.0.0.1:7400");
    drop(patient);

    let stopped = host.start("stopped", &["one"]);
    let service = stopped.hear();
    let patient = host.start("patient", &["one"]);
    let told = patient.hear();
    let (first, next) =
        (told.find("127.0.0.1:7400: "), told.find("127.0.0.1:7401 to 127.0.0.1:7415: Connection refused"));
    assert!(first.is_some() && first < next, "{told}");
    run(&format!("kill -CONT {service}")).unwrap();
    let found = std::iter::repeat_with(|| patient.hear()).find(|said| said.contains("the names at"));
    assert_eq!(found.unwrap(), "uses the names at 127.0.0.1:7400");
}

/// The honest twins: another silent listener there delays no node; nor does another application's name
/// service that does not answer.
#[test]
fn node_skips_default_port_of_silent_or_foreign_listener() {
    const TEST: &str = "node_skips_default_port_of_silent_or_foreign_listener";
    let host = match Host::new("passed") {
        Ok(host) => host,
        Err(why) => return report_skipped(&format!("{TEST}: {why}")),
    };
    for (role, knows) in [("stranger", "silent"), ("stopped", "another")] {
        let other = host.start(role, &[knows]);
        other.hear();
        let patient = host.start("patient", &["one"]);
        assert_eq!(patient.hear(), "serves the names at 127.0.0.1:7401", "{knows}");
    }
}
