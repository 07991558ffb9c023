//! What the server does where the system lacks something, and its command line.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

use dunlin::prelude::*;
use dunlin::waits::{self, Pid};
use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketType};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::client::Client;
use super::farm::FEW;
use super::web::farm::{NUMBERS, Numbers};
use super::web::file::{Files, Found, open_without_links};
use super::web::limits::Limits;
use super::webserver_example::linux::{parse, warning};
use super::{Scratch, patient, serve, serve_root, with_limits};

#[test]
fn without_openat2_no_path_leads_through_a_link() {
    let scratch = Scratch::new();
    scratch.file("x", "krill");
    scratch.file("sub/y", "squid");
    fs::write(scratch.path("secret"), "salp").unwrap();
    let root = scratch.path("root");
    for (link, to) in
        [("file", "x"), ("out", "../secret"), ("absolute", "/etc/passwd"), ("folder", "sub"), ("up", "..")]
    {
        symlink(to, root.join(link)).unwrap();
    }
    let root = rustix::fs::open(&root, OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty()).unwrap();
    let open = |path: &str| open_without_links(&root, path, OFlags::RDONLY | OFlags::CLOEXEC);
    for path in ["x", "sub/y", "sub", "sub/"] {
        open(path).unwrap();
    }
    for path in ["file", "out", "absolute", "folder", "folder/y", "up/secret", "none", "x/", "x/y", ""] {
        open(path).unwrap_err();
    }
}

/// Where reads never wait.
#[test]
fn file_in_memory_is_sent_whole() {
    let root = PathBuf::from(format!("/dev/shm/dunlin-web-{}", std::process::id()));
    fs::create_dir_all(&root).unwrap();
    let contents: Vec<u8> = (0..200_000_u32).map(|n| (n ^ n >> 8 ^ n >> 16) as u8).collect();
    fs::write(root.join("x"), &contents).unwrap();
    dunlin::block_on(async {
        let files = Files::new(&root, 9).unwrap();
        let Ok(Found::File(file)) = files.find("/x", patient().disk).await else { panic!("it is there") };
        let mut read = Vec::new();
        while (read.len() as u64) < file.length {
            let range = read.len() as u64..file.length;
            assert_ne!(file.read(&mut read, &range, patient().disk).await.unwrap(), 0);
        }
        assert!(read == contents);
    });
    fs::remove_dir_all(&root).unwrap();
}

/// In a program of its own with few descriptors.
#[test]
fn clients_wait_while_there_are_no_descriptors_and_are_served_after() {
    const INSIDE: &str = "DUNLIN_TEST_DESCRIPTORS";
    if std::env::var_os(INSIDE).is_some() {
        let scratch = Scratch::new();
        scratch.file("x", "krill");
        scratch.file("y", "squid");
        return dunlin::block_on(async {
            let server = serve(&scratch, Limits { body_memory_max: 3, ..patient() }).await;
            let to = server.address.to_string();
            let (mut first, mut sends) = (Client::connect(&to).await, Client::connect(&to).await);
            for client in [&mut first, &mut sends] {
                assert_eq!(client.get("/x").await.text(), "krill");
            }
            let before = getrlimit(Resource::Nofile);
            let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
            setrlimit(Resource::Nofile, Rlimit { current: Some(64), ..before }).unwrap();
            let mut used = Vec::new();
            while let Ok(file) = fs::File::open("/dev/null") {
                used.push(file);
            }
            // The system connects the second client, and the server cannot accept it.
            let (mut connected, mut is_connected) = channel();
            let second = blocking(move |_| {
                rustix::net::connect(&socket, &to.parse::<SocketAddr>().unwrap()).unwrap();
                connected.send(()).wait().unwrap();
                let mut client = TcpStream::from(socket);
                client.write_all(b"GET /y HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").unwrap();
                let mut response = String::new();
                client.read_to_string(&mut response).map(|_| response)
            });
            is_connected.recv().await.unwrap();
            let unopened = first.get("/y").await;
            assert_eq!((unopened.status, unopened.header("Retry-After")), (503, Some("1")));
            assert_eq!(first.get("/x").await.text(), "krill", "it is open");
            sends.send("POST /cgi-bin/any HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nsquid").await;
            assert_eq!(sends.response(false).await.unwrap().status, 503, "there is no file for the body");
            assert_eq!(server.site.stats.accepted.get(), 2);
            setrlimit(Resource::Nofile, before).unwrap();
            drop(used);
            let response = second.await.unwrap().unwrap();
            assert!(response.starts_with("HTTP/1.1 200 OK\r\n") && response.ends_with("squid"), "{response}");
            drop((first, sends));
            server.stop().await.unwrap();
            println!("all were served");
        });
    }
    run_alone("scarce::clients_wait_while_there_are_no_descriptors_and_are_served_after", INSIDE, ":");
}

/// Runs a test in a program of its own, after the shell's `preparation`.
fn run_alone(test: &str, inside: &str, preparation: &str) {
    let mut program = Command::new("sh");
    program.args(["-c", &format!("{preparation}; exec \"$@\""), "sh"]).arg(std::env::current_exe().unwrap());
    let output = program.args(["--exact", test, "--nocapture"]).env(inside, "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("all were served"), "{output:?}");
}

/// In a program of its own whose files may have one block, as if the disk had no room for more.
#[test]
fn body_without_room_on_the_disk_is_answered() {
    const INSIDE: &str = "DUNLIN_TEST_FULL_DISK";
    if std::env::var_os(INSIDE).is_none() {
        let preparation = "trap '' XFSZ; ulimit -f 1";
        return run_alone("scarce::body_without_room_on_the_disk_is_answered", INSIDE, preparation);
    }
    let limits = Limits { body_memory_max: 3, ..patient() };
    let prepare = |scratch: &Scratch| drop(scratch.file("x", "krill"));
    with_limits(limits, prepare, |site| async move {
        let (mut client, body) = (site.client().await, "x".repeat(10_000));
        client.send(format!("POST /cgi-bin/any HTTP/1.1\r\nHost: h\r\nContent-Length: 10000\r\n\r\n{body}")).await;
        assert_eq!(client.response(false).await.unwrap().status, 500);
        assert_eq!(site.client().await.get("/x").await.text(), "krill");
    });
    println!("all were served");
}

#[test]
fn without_a_directory_for_programs_there_are_none() {
    let scratch = Scratch::new();
    scratch.program("good", "printf 'Content-Type: a/b\\n\\nsquid'");
    scratch.file("cgi-bin/x", "krill");
    dunlin::block_on(async {
        let server = serve_root(scratch.path("root"), patient(), None).await;
        let mut client = Client::connect(&server.address.to_string()).await;
        assert_eq!(client.get("/cgi-bin/good").await.status, 404);
        assert_eq!(client.get("/cgi-bin/x").await.text(), "krill");
        drop(client);
        server.stop().await.unwrap();
    });
}

#[test]
fn each_process_of_the_default_layout_has_a_name_and_waits() {
    let scratch = Scratch::new();
    dunlin::block_on(async {
        let server = serve(&scratch, patient()).await;
        let client = Client::connect(&server.address.to_string()).await;
        let waiting = || -> BTreeSet<String> {
            let pids: Vec<Pid> = waits::snapshot().into_iter().map(|wait| wait.who).collect();
            waits::processes().into_iter().filter(|p| pids.contains(&p.first)).filter_map(|p| p.name).collect()
        };
        while ["acceptor", "connection", "log"].iter().any(|name| !waiting().contains(*name)) {
            tokio::task::yield_now().await;
        }
        drop(client);
        server.stop().await.unwrap();
    });
}

#[test]
fn command_line_is_settings_or_refused() {
    let parsed = |line: &str| parse(line.split_whitespace().map(str::to_owned));
    let (address, settings) = parsed("--root r").unwrap().unwrap();
    assert_eq!((&*address, settings.root, settings.farm), ("127.0.0.1:8080", "r".into(), None));
    assert_eq!((settings.cgi, settings.log), (None, None));
    let line = "--farm --root r --cgi c --log l --listen [::1]:0";
    let (address, settings) = parsed(line).unwrap().unwrap();
    assert_eq!((&*address, settings.farm), ("[::1]:0", Some(NUMBERS)));
    assert_eq!((settings.cgi, settings.log), (Some("c".into()), Some("l".into())));
    let numbers = Some(Numbers { readers: 4, files: 4, programs: 2 });
    assert_eq!((parsed("--root r --farm 4,4,2").unwrap().unwrap().1.farm, numbers), (numbers, Some(FEW)));
    assert!(parsed("--root r --help").unwrap().is_none());
    for bad in [
        "",
        "--root",
        "--root r --krill",
        "--root r --farm 4,4",
        "--root r --farm 4,4,0",
        "--root r --farm 4,x,4,2",
        "--root r --farm 4,4,2,1",
        "--root r r",
    ] {
        assert!(parsed(bad).is_err(), "{bad}");
    }
}

#[test]
fn server_warns_if_it_may_open_fewer_files_than_it_has_connections() {
    assert!(warning(1_024, 20_000).unwrap().contains("1024 open files (ulimit -n)"));
    assert_eq!(warning(20_000, 20_000), None);
}
