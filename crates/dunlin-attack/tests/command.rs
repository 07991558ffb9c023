//! Configurations and names that try to hang the command, to fill its memory, or to write to a terminal. The
//! command runs as a process of its own. This binary is that command, too, when the variable
//! `DUNLIN_ATTACK_COMMAND` is set.

use std::io::Write;
use std::process::{Child, Command, ExitCode, Output, Stdio};
use std::time::{Duration, Instant};

/// The variable that makes this process the command.
const IS_COMMAND: &str = "DUNLIN_ATTACK_COMMAND";

/// The limit for each run, on a busy machine: an attack that works takes minutes, or never ends.
const LIMIT: Duration = Duration::from_secs(20);

/// The size of the largest configuration.
const BYTES_MAX: usize = 1 << 20;

fn main() -> ExitCode {
    if std::env::var_os(IS_COMMAND).is_some() {
        return dunlin_cli::commands::run();
    }
    let folder = Folder::new();
    for (name, test) in [
        ("configurations_that_never_end_are_refused", configurations_that_never_end_are_refused as fn(&Folder)),
        ("configurations_of_the_largest_size_are_read", configurations_of_the_largest_size_are_read),
        #[cfg(target_os = "linux")]
        ("many_sections_take_no_longer_each", many_sections_take_no_longer_each),
        ("names_and_sizes_out_of_bounds_are_refused", names_and_sizes_out_of_bounds_are_refused),
        ("names_and_sizes_at_their_bounds_are_accepted", names_and_sizes_at_their_bounds_are_accepted),
    ] {
        print!("test {name} ... ");
        let _ = std::io::stdout().flush();
        // (A test that fails panics, and then no other runs.)
        test(&folder);
        println!("ok");
    }
    ExitCode::SUCCESS
}

/// The folder in which the command runs. Its drop removes it.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("dunlin-attack-command-{}", std::process::id()));
        std::fs::create_dir(&path).expect("it is new");
        Self(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::write(&path, bytes).expect("there is room");
        path
    }

    fn command(&self, line: &[&str]) -> Command {
        let mut command = Command::new(std::env::current_exe().expect("it runs"));
        command.current_dir(&self.0).env_clear().env(IS_COMMAND, "1").env("HOME", &self.0).args(line);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The output of the command. A command that exceeds the limit is killed, and the test fails.
fn ended(mut child: Child, what: &str) -> Output {
    let began = Instant::now();
    while child.try_wait().expect("it is a child").is_none() {
        if began.elapsed() > LIMIT {
            let _ = child.kill();
            panic!("{what} has not ended after {LIMIT:?}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().expect("it has ended")
}

fn run(folder: &Folder, line: &[&str]) -> Output {
    ended(folder.command(line).spawn().expect("it starts"), &line.join(" "))
}

fn is_refused(output: &Output, why: &str) {
    is_refused_with(1, output, why);
}

/// 1: the configuration is invalid; 2: the command line is wrong.
fn is_refused_with(code: i32, output: &Output, why: &str) {
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(code) && told.contains(why), "{why:?} is not in {told:?}");
    assert!(!told.contains("panicked") && !told.trim_end().contains(|c: char| c.is_control()), "{told:?}");
}

fn is_accepted(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A pipe without a writer, a device without an end, and endless standard input: all commands that read a
/// configuration refuse each.
fn configurations_that_never_end_are_refused(folder: &Folder) {
    let pipe = folder.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("there is mkfifo").success());
    let large = folder.write("large.toml", vec![b'#'; BYTES_MAX + 1]);
    for (path, why) in [(&*pipe, "is not a regular file"), ("/dev/zero", "is not a regular file"), (&large, "1 MiB")] {
        is_refused(&run(folder, &["config", "--check", path]), why);
        for line in [&["config"][..], &["names", "list"], &["names", "serve"], &["node", "a"], &["ping", "a"]] {
            is_refused(&run(folder, &[line, &["--config", path]].concat()), why);
            let mut command = folder.command(line);
            let child = command.env("DUNLIN_CONFIG", path).spawn().expect("it starts");
            is_refused(&ended(child, path), why);
        }
    }
    let mut command = folder.command(&["config", "--config", "-"]);
    let zero = std::fs::File::open("/dev/zero").expect("the system has it");
    let child = command.stdin(Stdio::from(zero)).spawn().expect("it starts");
    is_refused(&ended(child, "standard input"), "1 MiB");
}

/// The twin of [`configurations_that_never_end_are_refused`].
fn configurations_of_the_largest_size_are_read(folder: &Folder) {
    let text = format!("app = 'weather'\n{}", "#".repeat(BYTES_MAX - 16));
    let path = folder.write("full.toml", &text);
    is_accepted(&run(folder, &["config", "--check", &path]));
    let mut command = folder.command(&["config", "--config", "-"]);
    let mut child = command.stdin(Stdio::piped()).spawn().expect("it starts");
    child.stdin.take().expect("it is piped").write_all(text.as_bytes()).expect("it reads");
    let shown = ended(child, "standard input");
    is_accepted(&shown);
    assert!(String::from_utf8_lossy(&shown.stdout).contains("\"weather\""));
}

/// The processor time of all commands that have ended: other programs on the machine do not count.
#[cfg(target_os = "linux")]
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("the system reports it");
    // The fields follow the name, which may contain anything. Linux counts hundredths of a second there,
    // whatever its clock.
    let (_, fields) = stat.rsplit_once(") ").expect("it has a name");
    let hundredths = fields.split(' ').skip(13).take(2).map(|field| field.parse::<u64>().expect("it is a number"));
    Duration::from_millis(10 * hundredths.sum::<u64>())
}

/// Four times as many sections take about four times as long. (The fastest of three runs counts.)
#[cfg(target_os = "linux")]
fn many_sections_take_no_longer_each(folder: &Folder) {
    let took = |count: usize| {
        let sections: String = (0..count).map(|n| format!("[node.n{n}]\nrun='names'\n")).collect();
        let path = folder.write("sections.toml", sections);
        let timed = |_| {
            let before = processor_time();
            is_accepted(&run(folder, &["config", "--check", &path]));
            processor_time() - before
        };
        (0..3).map(timed).min().expect("there are three")
    };
    let (few, many) = (took(4_000), took(16_000));
    assert!(many < 8 * few, "{few:?} for 4,000 sections, {many:?} for 16,000");
}

fn names_and_sizes_out_of_bounds_are_refused(folder: &Folder) {
    let bounds = "1 to 64 bytes, without control characters";
    for app in ["a\\u0000b", "a\\nb", "\\u001b[2J", &"a".repeat(65)] {
        let path = folder.write("name.toml", format!("app = \"{app}\"\n"));
        is_refused(&run(folder, &["config", "--check", &path]), bounds);
        is_refused(&run(folder, &["names", "list", "--config", &path]), bounds);
    }
    for app in ["a\nb", "\u{1b}[2J", &"a".repeat(65)] {
        is_refused_with(2, &run(folder, &["names", "list", "--app", app]), bounds);
        let child = folder.command(&["names", "list"]).env("DUNLIN_APP", app).spawn().expect("it starts");
        is_refused(&ended(child, app), bounds);
    }
    for size in ["18446744073709551615", "4294967296", "0"] {
        let path = folder.write("size.toml", format!("[channels]\nreadings = {{ policy = 'fifo({size})' }}\n"));
        is_refused(&run(folder, &["config", "--check", &path]), "with a size from 1 to 4294967295");
    }
}

/// The twin: names and sizes at their bounds.
fn names_and_sizes_at_their_bounds_are_accepted(folder: &Folder) {
    let app = "Wetter für Köln";
    let text = format!("app = \"{app}\"\n[channels]\nreadings = {{ policy = 'fifo(4294967295)' }}\n");
    let path = folder.write("bounds.toml", text);
    is_accepted(&run(folder, &["config", "--check", &path]));
    let shown = run(folder, &["config", "--config", &path, "--app", &"a".repeat(64)]);
    is_accepted(&shown);
    assert!(String::from_utf8_lossy(&shown.stdout).contains("fifo(4294967295)"));
}
