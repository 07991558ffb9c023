//! Sequential programs beside other implementations of Scheme and Erlang, sizes of images, and processes:
//!
//! ```text
//! cargo run --profile measured -p dunlin-scheme --example bench -- [ROUNDS] [PROGRAM...]
//! ```
//!
//! Each round runs every participant once, in a process of its own, so that the load of the machine meets all
//! alike. The tables show medians of processor time (Erlang: elapsed time) over the rounds, 5 by default, and
//! medians of the ratio of two participants in the same round. Participants that are not installed are
//! skipped and named. A goal of time that is missed is shown, and fails nothing; one of size fails the run.
//! `bench -- 1 sizes` runs no program beside others.

mod peers;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use dunlin_scheme::Scheme;
use peers::{DUNLIN, GSI, GUILE_BYTECODE, Peer};
use rustix::time::{ClockId, clock_gettime};

pub(crate) struct Program {
    pub(crate) name: &'static str,
    pub(crate) text: &'static str,
    /// At most so much of the time of another participant.
    goals: &'static [(&'static str, f64)],
}

pub(crate) const PROGRAMS: [Program; 6] = [
    Program { name: "fib", text: include_str!("programs/fib.scm"), goals: &[(GSI, 0.2), (GUILE_BYTECODE, 1.0)] },
    Program { name: "tak", text: include_str!("programs/tak.scm"), goals: &[(GUILE_BYTECODE, 1.0)] },
    Program { name: "nrev", text: include_str!("programs/nrev.scm"), goals: &[(GUILE_BYTECODE, 1.0)] },
    Program { name: "qsort", text: include_str!("programs/qsort.scm"), goals: &[(GUILE_BYTECODE, 1.0)] },
    Program { name: "smith", text: include_str!("programs/smith.scm"), goals: &[(GUILE_BYTECODE, 1.0)] },
    Program { name: "captures", text: include_str!("programs/captures.scm"), goals: &[(GSI, 0.2)] },
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, name] = &arguments[..]
        && flag == "--one"
    {
        return one(name);
    }
    let (rounds, names) = match arguments.first().and_then(|first| first.parse().ok()) {
        Some(rounds) => (rounds, &arguments[1..]),
        None => (5, &arguments[..]),
    };
    if rounds == 0 || names.iter().any(|name| name != "sizes" && !PROGRAMS.iter().any(|program| program.name == name)) {
        eprintln!("usage: bench [ROUNDS] [PROGRAM...]; programs: fib tak nrev qsort smith captures, or sizes");
        return ExitCode::from(2);
    }
    let peers = match peers::all() {
        Ok(peers) => peers,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    println!("{:10} {:16} {:>10} {:>10} {:>16}", "program", "participant", "ms", "of gsi", "of guile's code");
    let wanted = PROGRAMS.iter().filter(|program| names.is_empty() || names.iter().any(|name| name == program.name));
    for program in wanted {
        compare(program, &peers, rounds);
    }
    let is_small = sizes();
    processes(rounds);
    if is_small & parked() & ring() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What a participant needed in each round; empty once it has failed.
struct Times {
    name: &'static str,
    each: Vec<f64>,
}

fn compare(program: &Program, peers: &[Peer], rounds: usize) {
    let mut times: Vec<Times> = peers.iter().map(|peer| Times { name: peer.name, each: Vec::new() }).collect();
    let mut expected = None;
    for round in 0..rounds {
        for (peer, times) in peers.iter().zip(&mut times) {
            let is_absent = peer.name == "erlang" && program.name == "captures";
            if is_absent || times.each.len() < round {
                continue;
            }
            match peer.run(program.name) {
                Ok((value, time)) => {
                    let expected = expected.get_or_insert_with(|| value.clone());
                    assert_eq!(value, *expected, "{} has another value for {}", peer.name, program.name);
                    times.each.push(time);
                }
                Err(error) => eprintln!("failed: {error}"),
            }
        }
    }
    times.retain(|times| times.each.len() == rounds);
    report(program, &times);
}

fn ratio(times: &[Times], ours: &Times, theirs: &str) -> Option<f64> {
    let theirs = times.iter().find(|times| times.name == theirs)?;
    Some(median(ours.each.iter().zip(&theirs.each).map(|(ours, theirs)| ours / theirs).collect()))
}

fn report(program: &Program, times: &[Times]) {
    for ours in times {
        let shown = |theirs| ratio(times, ours, theirs).map_or_else(|| "-".into(), |ratio| format!("{ratio:.2}"));
        let time = median(ours.each.clone());
        println!("{:10} {:16} {time:10.2} {:>10} {:>16}", program.name, ours.name, shown(GSI), shown(GUILE_BYTECODE));
    }
    let Some(ours) = times.iter().find(|times| times.name == DUNLIN) else { return };
    for (theirs, most) in program.goals {
        let verdict = match ratio(times, ours, theirs) {
            Some(ratio) if ratio <= *most => format!("reached ({ratio:.2})"),
            Some(ratio) => format!("missed ({ratio:.2})"),
            None => "not judged".into(),
        };
        println!("{:10} goal: at most {most} of {theirs}: {verdict}", program.name);
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Runs one program as a participant.
fn one(name: &str) -> ExitCode {
    let Some(program) = PROGRAMS.iter().find(|program| program.name == name) else { return ExitCode::from(2) };
    let mut scheme = Scheme::new();
    scheme.eval(name, program.text).expect("the definitions run");
    scheme.eval(name, "(run)").expect("the program runs");
    let started = processor_time();
    let value = scheme.eval(name, "(run)").expect("the program runs");
    println!("{value} {}", (processor_time() - started).as_secs_f64() * 1e3);
    ExitCode::SUCCESS
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Shows a size; false if the goal is missed.
fn size(what: &str, bytes: f64, goal: f64) -> bool {
    let is_reached = bytes <= goal;
    let verdict = if is_reached { "reached" } else { "missed" };
    println!("{what}: {bytes:.1} bytes; goal: at most {goal}: {verdict}");
    is_reached
}

fn sizes() -> bool {
    let started = Instant::now();
    let mut scheme = Scheme::new();
    println!("a machine: {:.2} ms", started.elapsed().as_secs_f64() * 1e3);
    let setup = "(define (adder n) (lambda (m) (+ n m))) (define closure (adder 3))
        (define (deep a n) (if (= n 0) (call/cc (lambda (k) k)) (let ((v (deep a (- n 1)))) (if (pair? v) (cons a v) v))))
        (define one (deep 1 1)) (define many (deep 1 10001))";
    scheme.eval("sizes", setup).expect("the definitions run");
    let mut written = |name| scheme.write_global(name).expect("it can be written").len() as f64;
    let frame = (written("many") - written("one")) / 10_000.0;
    size("a closure", written("closure"), 200.0) & size("a frame", frame, 24.0)
}

/// Processes: nanoseconds of processor time for each.
fn processes(rounds: usize) {
    for (name, count, setup, run) in PROCESS_PROGRAMS {
        let times = (0..rounds).map(|_| {
            let mut scheme = Scheme::new();
            scheme.eval("bench", setup).expect("the definitions run");
            scheme.eval("bench", run).expect("the program runs");
            let started = processor_time();
            scheme.eval("bench", run).expect("the program runs");
            (processor_time() - started).as_secs_f64() * 1e9 / f64::from(*count)
        });
        println!("{name:30} {:8.0} ns", median(times.collect()));
    }
}

/// Bytes of processes that wait.
fn parked() -> bool {
    let mut scheme = Scheme::new();
    scheme
        .eval("bench", "(define (serve) (recv ((from tag 'ping) (! from (list tag 'pong)) (serve))))")
        .expect("defined");
    scheme.eval("bench", "(define first (spawn serve)) (!? first 'ping)").expect("it answers");
    let before = resident();
    let spawn = format!("(let loop ((i 0)) (if (< i {PARKED}) (begin (spawn serve) (loop (+ i 1))))) (sleep 0.5)");
    scheme.eval("bench", &spawn).expect("they wait");
    let process = scheme.processes()[PARKED / 2];
    let counted = scheme.process_bytes(process).expect("it waits");
    let real = resident().saturating_sub(before);
    println!("a parked process: {counted} bytes counted");
    size("a parked process of 1,000,000, resident", (real / PARKED) as f64, 700.0)
}

/// A number that goes once around a ring of a million processes.
fn ring() -> bool {
    let mut scheme = Scheme::new();
    let setup = "(define (node to) (recv (0 (! to 0)) (n (! to (- n 1)) (node to))))
        (define (ring n to) (if (= n 0) to (ring (- n 1) (spawn (lambda () (node to))))))";
    scheme.eval("bench", setup).expect("defined");
    let before = resident();
    let build = Instant::now();
    scheme.eval("bench", &format!("(define first (ring {PARKED} (self))) (sleep 0)")).expect("they wait");
    let hops = Instant::now();
    let value = scheme.eval("bench", &format!("(! first {}) (?)", 2 * PARKED)).expect("it comes back");
    assert_eq!(value, PARKED.to_string(), "each process takes one away");
    let real = resident().saturating_sub(before);
    let each = |time: Duration| time.as_secs_f64() * 1e9 / PARKED as f64;
    println!(
        "a ring of 1,000,000: {:.0} ns to spawn a process, {:.0} ns a hop",
        each(hops - build),
        each(hops.elapsed())
    );
    size("a process of it, resident", (real / PARKED) as f64, 700.0)
}

/// Processes that wait at once.
const PARKED: usize = 1_000_000;

/// Name, how often the second part does it, definitions, and what is measured.
const PROCESS_PROGRAMS: &[(&str, u32, &str, &str)] = &[
    (
        "spawn, run and end",
        100_000,
        "(define (nothing) 1) (define (run n) (if (> n 0) (begin (spawn nothing) (run (- n 1)))))",
        "(run 100000) (sleep 0.00001)",
    ),
    (
        "send to itself and receive",
        100_000,
        "(define (run n) (if (> n 0) (begin (! (self) n) (? 0 #f) (run (- n 1)))))",
        "(run 100000)",
    ),
    (
        "send to another",
        100_000,
        "(define (run to n) (if (> n 0) (begin (! to n) (run to (- n 1)))))
         (define (drain) (recv ('end (! main 'done)) (x (drain)))) (define main (self))",
        "(let ((to (spawn drain))) (run to 100000) (! to 'end) (?))",
    ),
    (
        "call of a server and its reply",
        20_000,
        "(define (serve) (recv ((from tag 'ping) (! from (list tag 'pong)) (serve)))) (define server (spawn serve))
         (define (run n) (if (> n 0) (begin (!? server 'ping) (run (- n 1)))))",
        "(run 20000)",
    ),
    (
        "the same with a list of 1000",
        5_000,
        "(define (serve) (recv ((from tag items) (! from (list tag items)) (serve)))) (define server (spawn serve))
         (define (run items n) (if (> n 0) (begin (!? server items) (run items (- n 1)))))",
        "(run (iota 1000) 5000)",
    ),
    (
        "with a fresh list of 1000",
        5_000,
        "(define (serve) (recv ((from tag items) (! from (list tag items)) (serve)))) (define server (spawn serve))
         (define (fresh n list) (if (= n 0) list (fresh (- n 1) (cons n list))))
         (define (run n) (if (> n 0) (begin (!? server (fresh 1000 '())) (run (- n 1)))))",
        "(run 5000)",
    ),
    (
        "the fresh list alone",
        5_000,
        "(define (fresh n list) (if (= n 0) list (fresh (- n 1) (cons n list))))
         (define (run n) (if (> n 0) (begin (fresh 1000 '()) (run (- n 1)))))",
        "(run 5000)",
    ),
];

/// Bytes of memory that the system has given to this process.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok());
    pages.unwrap_or(0) * 4096
}
