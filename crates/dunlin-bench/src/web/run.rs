//! Cases, rounds and tables.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::{env, fs};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Serialize;

use super::peers::{self, Kind, Running};
use super::side::{Load, raise_open_files};
use super::{Common, Web, process};
use crate::measure::ratio;

#[derive(Clone, Copy, Debug)]
struct Case {
    size: u64,
    in_flight: usize,
    keep_alive: bool,
}

/// The medians of a server in a case, and the ratios of dunlin's figures to its own.
#[derive(Serialize)]
struct Row {
    server: String,
    size: u64,
    in_flight: usize,
    keep_alive: bool,
    per_second: f64,
    p50_us: f64,
    p99_us: f64,
    cpu_us: f64,
    dunlin_per_second: f64,
    dunlin_p99: f64,
    dunlin_cpu: f64,
    failed: u64,
}

/// The running servers, so that Ctrl-C does not leave them running.
static SERVERS: Mutex<Vec<u32>> = Mutex::new(Vec::new());

pub(super) fn run(web: &Web, common: &Common) -> Result<()> {
    raise_open_files()?;
    ctrlc::set_handler(|| {
        let servers = SERVERS.lock().map(|servers| servers.clone()).unwrap_or_default();
        for pid in servers.into_iter().flat_map(|server| process::pids(server).unwrap_or_default()) {
            let _ = kill(Pid::from_raw(pid as i32), Signal::SIGKILL);
        }
        eprintln!("\ninterrupted");
        std::process::exit(130);
    })
    .context("cannot watch for Ctrl-C")?;
    let scratch = Scratch::new()?;
    let sizes = if web.sizes.is_empty() { vec![1 << 10, 8 << 10, 1 << 20] } else { web.sizes.clone() };
    for size in &sizes {
        fs::write(scratch.path().join("root").join(size.to_string()), vec![b'x'; *size as usize])?;
    }
    let in_flight = match (&web.in_flight[..], common.quick) {
        ([], false) => vec![1, 2, 5, 10, 20, 50, 1_000],
        ([], true) => vec![1, 10, 50],
        (given, _) => given.to_vec(),
    };
    let rounds = common.rounds.unwrap_or(if common.quick { 3 } else { 5 });
    let mut servers = Vec::new();
    for kind in peers::ALL {
        let is_wanted = web.only.is_empty() || web.only.iter().any(|part| kind.name().contains(part));
        // The reference of the others.
        if kind == (Kind::Dunlin { farm: false }) || is_wanted {
            servers.extend(Running::start(kind, web.server_core, scratch.path())?);
        }
    }
    if let Ok(mut pids) = SERVERS.lock() {
        pids.extend(servers.iter().map(Running::pid));
    }
    eprintln!("load average {}", load_average());
    for keep_alive in [true, false].into_iter().filter(|kept| web.keep_alive.is_none_or(|only| only == *kept)) {
        for &size in &sizes {
            for &in_flight in &in_flight {
                let case = Case { size, in_flight, keep_alive };
                let rows = measure(&servers, case, rounds, web, common)?;
                print(case, &rows, common)?;
            }
        }
    }
    eprintln!("load average {}", load_average());
    others(&servers, &sizes, web, common)
}

/// All rounds of a case.
fn measure(servers: &[Running], case: Case, rounds: u32, web: &Web, common: &Common) -> Result<Vec<Row>> {
    let seconds = web.seconds.unwrap_or(if common.quick { 0.3 } else { 1.0 });
    let mut samples: Vec<Vec<Load>> = vec![Vec::new(); servers.len()];
    // This also warms up, and opens the files that a cache keeps open.
    let mut requests = Vec::new();
    for server in servers {
        // In the farm each kept connection holds a reader.
        let has_readers = !case.keep_alive || case.in_flight <= super::webserver::farm::NUMBERS.readers;
        if matches!(server.kind, Kind::Dunlin { farm: true }) && !has_readers {
            requests.push(0);
            continue;
        }
        let first = 200.max(case.in_flight as u64);
        let load = load(server, case, first, web.load_core)?;
        requests.push(((load.per_second * seconds) as u64).max(first));
    }
    // Over all rounds, since the processor time of a child is accurate to 10 ms, and exact only once its
    // parent has reaped it. A server uses almost none while another one is measured.
    let spent = || servers.iter().map(|server| process::cpu(server.pid())).collect::<Result<Vec<f64>>>();
    let before = spent()?;
    for _ in 0..rounds {
        for ((server, samples), requests) in servers.iter().zip(&mut samples).zip(&requests) {
            if *requests > 0 {
                samples.push(load(server, case, *requests, web.load_core)?);
            }
        }
    }
    let cpus: Vec<f64> = spent()?
        .iter()
        .zip(before)
        .zip(&samples)
        .map(|((after, before), samples)| {
            let responses: u64 = samples.iter().map(|load| load.responses).sum();
            (after - before) * 1e6 / responses.max(1) as f64
        })
        .collect();
    let figures = |samples: &[Load], figure: fn(&Load) -> f64| -> Vec<f64> { samples.iter().map(figure).collect() };
    let ours = samples[0].clone();
    let all = servers.iter().zip(&samples).zip(&cpus).filter(|((_, samples), _)| !samples.is_empty());
    let rows = all.map(|((server, theirs), cpu)| {
        let of = |figure: fn(&Load) -> f64| {
            (median(figures(theirs, figure)), ratio(&figures(&ours, figure), &figures(theirs, figure)))
        };
        let (per_second, dunlin_per_second) = of(|load| load.per_second);
        let (p99_us, dunlin_p99) = of(|load| load.p99_us);
        Row {
            server: server.kind.name(),
            size: case.size,
            in_flight: case.in_flight,
            keep_alive: case.keep_alive,
            per_second,
            p50_us: of(|load| load.p50_us).0,
            p99_us,
            cpu_us: *cpu,
            dunlin_per_second,
            dunlin_p99,
            dunlin_cpu: cpus[0] / cpu,
            failed: theirs.iter().map(|load| load.failed).sum(),
        }
    });
    Ok(rows.collect())
}

/// One run of the load generator.
pub(super) fn load(server: &Running, case_of: impl Into<Shape>, requests: u64, core: usize) -> Result<Load> {
    let shape = case_of.into();
    let mut command = Command::new("taskset");
    command.args(["-c", &core.to_string()]).arg(env::current_exe()?).args(["web-side", "load"]);
    command.args([&server.address, &format!("/{}", shape.size), "--requests", &requests.to_string()]);
    command.args(["--in-flight", &shape.in_flight.to_string()]).args(shape.keep_alive.then_some("--keep-alive"));
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().context("cannot start taskset")?;
    ensure!(output.status.success(), "{command:?} ended with {}", output.status);
    let load: Load =
        serde_json::from_slice(&output.stdout).with_context(|| format!("{command:?} printed no figures"))?;
    if load.responses == 0 {
        bail!("no response of {}: {}", server.kind.name(), load.why.unwrap_or_default());
    }
    Ok(load)
}

/// The properties that the requests of a run share.
pub(super) struct Shape {
    pub(super) size: u64,
    pub(super) in_flight: usize,
    pub(super) keep_alive: bool,
}

impl From<Case> for Shape {
    fn from(case: Case) -> Self {
        Self { size: case.size, in_flight: case.in_flight, keep_alive: case.keep_alive }
    }
}

pub(super) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn print(case: Case, rows: &[Row], common: &Common) -> Result<()> {
    if common.json {
        for row in rows {
            println!("{}", serde_json::to_string(row)?);
        }
        return Ok(());
    }
    let connections = if case.keep_alive { "kept connections" } else { "a connection each" };
    println!("\n{} bytes, {} in flight, {connections}", case.size, case.in_flight);
    println!(
        "{:<24} {:>10} {:>9} {:>9} {:>8} | dunlin to it: {:>6} {:>6} {:>6}",
        "", "requests/s", "p50 us", "p99 us", "CPU us", "req/s", "p99", "CPU"
    );
    for row in rows {
        let failed = if row.failed > 0 { format!("  {} FAILED", row.failed) } else { String::new() };
        println!(
            "{:<24} {:>10.0} {:>9.0} {:>9.0} {:>8.1} |               {:>6.2} {:>6.2} {:>6.2}{failed}",
            row.server,
            row.per_second,
            row.p50_us,
            row.p99_us,
            row.cpu_us,
            row.dunlin_per_second,
            row.dunlin_p99,
            row.dunlin_cpu
        );
    }
    Ok(())
}

/// The same with the other generators, in one case: ten kept connections.
fn others(servers: &[Running], sizes: &[u64], web: &Web, common: &Common) -> Result<()> {
    let seconds = if common.quick { "1" } else { "3" };
    // The options of each, the words before its requests per second, those before the 99th percentile, and
    // its unit, if the output has none.
    let wrk = (["-t1", "-c10", "--latency", "-d", seconds], "Requests/sec:", "99%", "");
    // At most this many requests in that time: without `-n`, ab ends after 50,000.
    let ab = (["-kq", "-c10", "-t", seconds, "-n10000000"], "Requests per second:", "99%", "ms");
    for (name, package, (options, rate, p99, unit)) in [("wrk", "wrk", wrk), ("ab", "apache2-utils", ab)] {
        let Some(program) = peers::find(name) else {
            eprintln!("{name} is skipped, since it is not installed: apt-get install -y {package}");
            continue;
        };
        for server in servers {
            let mut command = Command::new("taskset");
            command.args(["-c", &web.load_core.to_string()]).arg(&program).args(options);
            command.arg(format!("http://{}/{}", server.address, sizes[0])).stdin(Stdio::null());
            let output = command.output().context("cannot start taskset")?;
            ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
            let text = String::from_utf8_lossy(&output.stdout);
            let figure = |words: &str| word_after(&text, words).with_context(|| format!("{name} printed no {words}"));
            let (rate, p99, server) = (figure(rate)?, format!("{}{unit}", figure(p99)?), server.kind.name());
            if common.json {
                let row = serde_json::json!({ name: server, "size": sizes[0], "per_second": rate, "p99": p99 });
                println!("{row}");
            } else {
                let case = format!("{name}, {} bytes, 10 kept connections:", sizes[0]);
                println!("{case} {server:<24} {rate:>10} requests/s, p99 {p99}");
            }
        }
    }
    Ok(())
}

/// The word after these words, at the beginning of a line.
fn word_after<'a>(text: &'a str, words: &str) -> Option<&'a str> {
    let rest = text.lines().find_map(|line| line.trim_start().strip_prefix(words))?;
    rest.split_whitespace().next()
}

pub(super) fn load_average() -> String {
    fs::read_to_string("/proc/loadavg").unwrap_or_default().trim().to_owned()
}

/// A folder that all servers may read, removed on drop.
pub(super) struct Scratch(std::path::PathBuf);

impl Scratch {
    pub(super) fn new() -> Result<Self> {
        let path = env::temp_dir().join(format!("dunlin-bench-web-{}", std::process::id()));
        fs::create_dir_all(path.join("root"))?;
        Ok(Self(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::word_after;

    #[test]
    fn figures_of_wrk_and_ab_are_found() {
        let wrk = "  Latency Distribution\n     50%  160.00us\n     99%  352.00us\nRequests/sec:  60163.20\n";
        assert_eq!((word_after(wrk, "Requests/sec:"), word_after(wrk, "99%")), (Some("60163.20"), Some("352.00us")));
        let ab =
            "Requests per second:    14812.11 [#/sec] (mean)\n  98%      1\n  99%      2\n 100%      9 (longest)\n";
        assert_eq!((word_after(ab, "Requests per second:"), word_after(ab, "99%")), (Some("14812.11"), Some("2")));
        assert_eq!(word_after(ab, "Requests/sec:"), None);
    }
}
