//! Mistakes of a first program: the compiler's message about each is short and names the cure.
//!
//! The wrong programs are in `tests/mistakes/`; one `cargo build` compiles all of them. The tests compare
//! only a sentence and the number of lines, since the compiler chooses the rest.

use std::collections::BTreeMap;
use std::fs;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cargo_metadata::Message;

/// Each program, and what its messages must contain.
const MISTAKES: [(&str, &[&str]); 11] = [
    ("awaited_branch", &["the operation of a branch is not awaited: remove the `.await`"]),
    ("else_arm", &["`alt!` has no `else`", "`skip => body`"]),
    ("cloned_sender", &["cannot be cloned: share it", "`let end = end.share();`"]),
    ("wrong_field", &["`u64` is not a channel", "`ToServer<u64>`"]),
    ("user_type_field", &["`Order` is not a channel", "`ToServer<Order>`"]),
    ("missing_derive", &["`Order` cannot be sent to another node", "#[derive(serde::Serialize, serde::Deserialize)]"]),
    ("missing_derive_in_bundle", &["`Order` cannot be sent to another node", "#[derive(serde::Serialize"]),
    ("client_of_no_bundle", &["`Shop` is not a channel", "a struct of channels needs `#[derive(Bundle)]`"]),
    ("borrowed_sleep", &["has to be pinned", "`let mut end = std::pin::pin!(end);`", "`Timer::after(duration)`"]),
    ("deadline_of_no_operation", &["is not an operation", "`alt! { x = future(f) => .., _ = sleep(patience) => .. }`"]),
    ("plain_send_branch", &["a send of `String` that goes unchosen would lose its value", "`tx.send_from(&mut slot)`"]),
];

const LINES_MAX: usize = 40;

/// The compiler's messages about each program.
fn messages() -> BTreeMap<String, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let package = tempfile::tempdir().unwrap();
    let programs = package.path().join("src/bin");
    fs::create_dir_all(&programs).unwrap();
    for (name, _) in MISTAKES {
        let program = format!("{name}.rs");
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mistakes").join(&program);
        fs::copy(from, programs.join(program)).unwrap();
    }
    let dunlin = root.join("crates/dunlin");
    let manifest = format!(
        "[package]\nname = \"mistakes\"\nedition = \"2024\"\n\n[dependencies]\ndunlin = {{ path = {dunlin:?} }}\n\n[workspace]\n"
    );
    fs::write(package.path().join("Cargo.toml"), manifest).unwrap();
    // The versions that the tests of this repository use.
    fs::copy(root.join("Cargo.lock"), package.path().join("Cargo.lock")).unwrap();
    // The folder in which the tutorial's first program has built the dependencies.
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let mut cargo = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--bins", "--keep-going", "--message-format=json"])
        .current_dir(package.path())
        .env("CARGO_TARGET_DIR", root.join(target).join("newcomer"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut messages = BTreeMap::<String, String>::new();
    for message in Message::parse_stream(BufReader::new(cargo.stdout.take().unwrap())) {
        if let Message::CompilerMessage(message) = message.unwrap() {
            *messages.entry(message.target.name).or_default() += &message.message.rendered.unwrap_or_default();
        }
    }
    assert!(!cargo.wait().unwrap().success(), "the programs are wrong, and one has compiled");
    messages
}

#[test]
fn messages_about_mistakes_are_short_and_name_the_cure() {
    let messages = messages();
    for (name, sentences) in MISTAKES {
        let message = messages.get(name).unwrap_or_else(|| panic!("{name} was compiled without a word: {messages:?}"));
        for sentence in sentences {
            assert!(message.contains(sentence), "{name} lacks {sentence:?}:\n{message}");
        }
        // An end that cannot be declared is awaited too; the compiler should not report that as well.
        assert!(!message.contains("is not a future"), "{name}:\n{message}");
        let lines = message.lines().count();
        println!("{name}: {lines} lines");
        assert!(lines <= LINES_MAX, "{name} has {lines} lines:\n{message}");
    }
}
