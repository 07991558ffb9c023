//! The example `webserver`: its answers, and what clients and programs may do to it. And the example `ob`.
//! Small numbers; the README has the commands of the large ones.

#![cfg(target_os = "linux")]

mod body;
mod cgi;
mod client;
mod farm;
mod files;
mod hostile;
mod misuse;
mod ob;
#[expect(dead_code, reason = "its main is for `cargo run --example`")]
#[path = "../../../../examples/ob/main.rs"]
mod ob_example;
mod pure;
#[path = "../support/runs.rs"]
mod runs;
mod scarce;
mod sendfile;
#[path = "../support/skipped.rs"]
mod skipped;
mod stop;
mod stuck;
#[expect(dead_code, reason = "its main is for `cargo run --example`")]
#[path = "../../../../examples/webserver/main.rs"]
mod webserver_example;

use std::fs;
use std::future::Future;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use dunlin::io::tcp;
use dunlin::prelude::Duration;

use client::Client;
use web::farm::Numbers;
use web::limits::Limits;
use web::server::{Server, Settings};
use webserver_example::web;

/// A directory that its drop removes.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("dunlin-web-{}-{number}", std::process::id()));
        fs::create_dir_all(path.join("root")).unwrap();
        fs::create_dir_all(path.join("cgi")).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join("root").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, contents).unwrap();
        path
    }

    /// A CGI program, with this script.
    fn program(&self, name: &str, script: &str) {
        let (text, path) = (self.0.join("text"), self.0.join("cgi").join(name));
        fs::write(&text, format!("#!/bin/sh\n{script}\n")).unwrap();
        // Another program writes the file: a program that another test starts meanwhile would inherit this
        // one's descriptor, and the system runs no file that is open for writing.
        assert!(Command::new("cp").arg(text).arg(&path).status().unwrap().success());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Limits that no test reaches on a busy machine.
fn patient() -> Limits {
    let long = Duration::from_secs(300);
    Limits {
        head: long,
        idle: long,
        piece: long,
        disk: long,
        cgi_head: long,
        cgi: long,
        shutdown: long,
        ..Limits::default()
    }
}

/// Serves a directory.
async fn serve(scratch: &Scratch, limits: Limits) -> Server {
    serve_as(scratch, limits, None).await
}

async fn serve_as(scratch: &Scratch, limits: Limits, farm: Option<Numbers>) -> Server {
    let root = scratch.path("root");
    let settings = Settings { root, cgi: Some(scratch.path("cgi")), log: Some(scratch.path("log")), limits, farm };
    Server::start(tcp::listen("127.0.0.1:0").await.unwrap(), settings).unwrap()
}

/// Serves `root` alone, without programs and a log.
async fn serve_root(root: PathBuf, limits: Limits, farm: Option<Numbers>) -> Server {
    let settings = Settings { root, cgi: None, log: None, limits, farm };
    Server::start(tcp::listen("127.0.0.1:0").await.unwrap(), settings).unwrap()
}

/// Runs a server for `test`, and stops it.
fn with_server<F: Future<Output = ()>>(prepare: impl FnOnce(&Scratch), test: impl FnOnce(Site) -> F) {
    with_limits(patient(), prepare, test);
}

fn with_limits<F: Future<Output = ()>>(limits: Limits, prepare: impl FnOnce(&Scratch), test: impl FnOnce(Site) -> F) {
    let scratch = Scratch::new();
    prepare(&scratch);
    dunlin::block_on(async {
        let server = serve(&scratch, limits).await;
        let site =
            Site { address: server.address.to_string(), root: scratch.path("root"), stats: server.site.stats.clone() };
        test(site).await;
        server.stop().await.unwrap();
    });
}

/// A test's view of its server.
#[derive(Clone)]
struct Site {
    address: String,
    root: PathBuf,
    stats: std::sync::Arc<web::stats::Stats>,
}

impl Site {
    async fn client(&self) -> Client {
        Client::connect(&self.address).await
    }

    fn root(&self) -> &Path {
        &self.root
    }
}

/// The lines of each file of the server, without comments and empty ones. `--nocapture` prints them.
#[test]
fn web_server_has_at_most_2000_lines() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/webserver");
    let files = |folder: &Path| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    let mut all = 0;
    for file in files(&folder).into_iter().chain(files(&folder.join("web"))).filter(|file| file.is_file()) {
        if file.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&file).unwrap();
            let is_code = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with("//");
            let lines = text.lines().filter(is_code).count();
            println!("{lines:>5} {}", file.file_name().unwrap().display());
            all += lines;
        }
    }
    println!("{all:>5} in all");
    assert!((1_000..=2_000).contains(&all), "{all} lines");
}
