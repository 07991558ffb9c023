//! Scheme processes over dunlin, on one worker and on two:
//!
//! ```text
//! cargo run --profile measured -p dunlin-scheme-host --example processes -- [ROUNDS] [ROW...]
//! ```
//!
//! Each round runs each row once on one worker and once on two, here and in Erlang if that is installed, in a
//! process of its own. The table has medians over the rounds, 5 by default, and medians of ratios in the same
//! round. A goal that is missed is shown; only that of timers fails the run.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use dunlin::mailbox;
use dunlin_scheme_host::{Program, Value};

/// What is measured: a name, the unit and how much of it one run does, definitions, and a text that is timed.
struct Row {
    name: &'static str,
    unit: &'static str,
    count: f64,
    setup: &'static str,
    run: &'static str,
    /// At most so much of the time on one worker is to be needed on two.
    goal: Option<f64>,
}

const FIB: &str = "(define (fib n) (if (< n 2) n (+ (fib (- n 1)) (fib (- n 2)))))
    (define (await n) (if (> n 0) (begin (?) (await (- n 1)))))
    (define (times n thunk) (if (> n 0) (begin (thunk) (times (- n 1) thunk))))";

const ROWS: [Row; 7] = [
    Row {
        name: "8 processes compute",
        unit: "ms",
        count: 1e-6,
        setup: FIB,
        run: "(define main (self)) (times 8 (lambda () (spawn (lambda () (fib 25) (! main 'done))))) (await 8)",
        goal: Some(0.6),
    },
    Row { name: "1 process computes", unit: "ms", count: 1e-6, setup: FIB, run: "(fib 28)", goal: None },
    Row {
        name: "spawn, run and end",
        unit: "ns",
        count: 20_000.0,
        setup: FIB,
        run: "(define main (self)) (times 20000 (lambda () (spawn (lambda () (! main 1))))) (await 20000)",
        goal: None,
    },
    Row {
        name: "send to another",
        unit: "ns",
        count: 100_000.0,
        setup: "(define (run to n) (if (> n 0) (begin (! to n) (run to (- n 1)))))
            (define (drain to) (recv ('end (! to 'done)) (x (drain to))))",
        run: "(let* ((me (self)) (to (spawn (lambda () (drain me))))) (run to 100000) (! to 'end) (?))",
        goal: None,
    },
    Row {
        name: "hop of a ring of 100",
        unit: "ns",
        count: 100_000.0,
        setup: "(define (link to) (let ((n (?))) (! to n) (if (> n 0) (link to))))
            (define (node to) (recv (0 (! to 0)) (n (! to (- n 1)) (node to))))
            (define (ring n to) (if (= n 1) to (ring (- n 1) (spawn (lambda () (node to))))))
            (define (turn first) (recv (0 'done) (n (! first (- n 1)) (turn first))))",
        run: "(let ((first (ring 100 (self)))) (! first 100000) (turn first))",
        goal: None,
    },
    Row {
        name: "call of a server and its reply",
        unit: "ns",
        count: 20_000.0,
        setup: "(define (serve) (recv ((from tag 'ping) (! from (list tag 'pong)) (serve))))
            (define (run server n) (if (> n 0) (begin (!? server 'ping) (run server (- n 1)))))",
        run: "(run (spawn serve) 20000)",
        goal: None,
    },
    Row {
        name: "value over a channel",
        unit: "ns",
        count: 20_000.0,
        setup: "(define (feed out n) (if (> n 0) (begin (channel-send out n) (feed out (- n 1)))))
            (define (drain in) (if (not (eof-object? (channel-receive in))) (drain in)))",
        run: "(define-values (out in) (make-channel)) (spawn (lambda () (feed out 20000))) (drain in)",
        goal: None,
    },
];

/// Timers of one process while so many others never wait.
const LOOPS: u32 = 50;
/// What else runs beside them, each without an end.
const BESIDE: [(&str, &str); 3] = [
    ("timers", ""),
    (
        "timers and a sort",
        "(define (next s) (modulo (+ (* s 16807) 1) 2147483647))
         (define numbers (let loop ((i 0) (s 1) (l '())) (if (= i 1000000) l (loop (+ i 1) (next s) (cons s l)))))
         (let again () (sort numbers <) (again))",
    ),
    ("timers and a power", "(let again () (string-length (number->string (expt 7 1000000))) (again))"),
];
const TIMERS: u32 = 200;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [flag, name, workers] if flag == "--one" => {
            let workers = workers.parse().expect("a number of workers");
            let beside = BESIDE.iter().find(|(beside, _)| beside == name);
            let figures = if let Some((_, text)) = beside { timers(workers, text) } else { vec![one(name, workers)] };
            let figures: Vec<String> = figures.iter().map(f64::to_string).collect();
            println!("{}", figures.join(" "));
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    let rounds: usize = arguments.first().and_then(|rounds| rounds.parse().ok()).unwrap_or(5);
    let erlang = erlang();
    println!(
        "{:32} {:>12} {:>12} {:>8} {:>13} {:>13}",
        "", "1 worker", "2 workers", "ratio", "1 of erlang", "2 of erlang"
    );
    let is_wanted = |name: &str| arguments.len() < 2 || arguments[1..].iter().any(|wanted| name.contains(&**wanted));
    for row in ROWS.iter().filter(|row| is_wanted(row.name)) {
        let mut times: Vec<[f64; 2]> = Vec::new();
        let mut theirs: Vec<[f64; 2]> = Vec::new();
        for _ in 0..rounds.max(1) {
            times.push([1, 2].map(|workers| child(row.name, workers)[0]));
            if let Some(folder) = erlang.as_ref().filter(|_| row.is_erlang()) {
                theirs.push([1, 2].map(|workers| erlang_child(folder, row.name, workers)));
            }
        }
        let [one, two] = [0, 1].map(|at| median(times.iter().map(|times| times[at]).collect()));
        let ratio = median(times.iter().map(|[one, two]| two / one).collect());
        let of_erlang = [0, 1].map(|at| {
            let ratios: Vec<f64> = times.iter().zip(&theirs).map(|(ours, theirs)| ours[at] / theirs[at]).collect();
            if ratios.is_empty() { "-".to_owned() } else { format!("{:.2}", median(ratios)) }
        });
        let verdict = match row.goal {
            Some(goal) if ratio <= goal => format!("  goal: at most {goal}: reached"),
            Some(goal) => format!("  goal: at most {goal}: missed"),
            None => String::new(),
        };
        let unit = row.unit;
        println!(
            "{:32} {one:9.1} {unit} {two:9.1} {unit} {ratio:8.2} {:>13} {:>13}{verdict}",
            row.name, of_erlang[0], of_erlang[1]
        );
    }
    let mut is_reached = true;
    for (name, _) in BESIDE.iter().filter(|(name, _)| is_wanted(name)) {
        let mut late = child(name, 2);
        late.sort_by(f64::total_cmp);
        let [middle, last] = [late[late.len() / 2], late[late.len() - 1]];
        is_reached &= last <= 10.0;
        let verdict = if last <= 10.0 { "reached" } else { "missed" };
        println!(
            "{TIMERS} {name} beside {LOOPS} loops on 2 workers: late by {middle:.2} ms (median), {last:.2} ms (most); goal: \
             at most 10 ms: {verdict}"
        );
    }
    if let Some(folder) = erlang {
        let _ = std::fs::remove_dir_all(folder);
    }
    if is_reached { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

impl Row {
    /// Whether Erlang has it, too.
    fn is_erlang(&self) -> bool {
        self.name != "value over a channel"
    }
}

/// The folder with the compiled rows for Erlang, if that is installed.
fn erlang() -> Option<PathBuf> {
    let folder = std::env::temp_dir().join(format!("dunlin-scheme-processes-{}", std::process::id()));
    std::fs::create_dir_all(&folder).ok()?;
    std::fs::write(folder.join("processes.erl"), include_str!("processes.erl")).ok()?;
    let compiled = Command::new("erlc").arg("processes.erl").current_dir(&folder).status();
    if compiled.is_ok_and(|status| status.success()) {
        return Some(folder);
    }
    eprintln!("skipped: erlang is not installed; apt-get install -y erlang-base");
    None
}

/// The figure of a row in Erlang, with so many schedulers.
fn erlang_child(folder: &Path, name: &str, workers: usize) -> f64 {
    let schedulers = format!("{workers}:{workers}");
    let mut command = Command::new("erl");
    command.args(["+S", &schedulers, "-noshell", "-run", "processes", "main", name]).current_dir(folder);
    let output = command.output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim().parse().unwrap_or_else(|_| panic!("{name}: {text}{}", String::from_utf8_lossy(&output.stderr)))
}

/// The figures of a run in a process of its own.
fn child(name: &str, workers: usize) -> Vec<f64> {
    let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
    let output = command.args(["--one", name, &workers.to_string()]).output().expect("it runs");
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split_whitespace().map(|figure| figure.parse().expect("a number")).collect()
}

/// What one unit of a row needs: the second run of two.
fn one(name: &str, workers: usize) -> f64 {
    let row = ROWS.iter().find(|row| row.name == name).expect("a row");
    on_workers(workers, async {
        let program = Program::new();
        evaluate(&program, row.setup).await;
        evaluate(&program, row.run).await;
        let started = Instant::now();
        evaluate(&program, row.run).await;
        started.elapsed().as_secs_f64() * 1e9 / if row.unit == "ms" { 1e6 } else { row.count }
    })
}

async fn evaluate(program: &Program, text: &str) -> Value {
    program.spawn("bench", text).expect("it can be read").await.expect("it runs")
}

/// By how many milliseconds timers of 5 ms were late.
fn timers(workers: usize, beside: &'static str) -> Vec<f64> {
    on_workers(workers, async {
        let program = Program::new();
        let (address, mut mailbox) = mailbox::<f64>();
        program.define("rust", &program.address(address)).expect("it is data");
        evaluate(&program, "(define (spin n) (spin (+ n 1)))").await;
        for _ in 0..LOOPS {
            program.spawn("bench", "(spin 0)").expect("it can be read");
        }
        program.spawn("bench", beside).expect("it can be read");
        let text = format!(
            "(define (tick n)
               (if (> n 0)
                   (let ((before (current-jiffy)))
                     (sleep 0.005)
                     (! rust (/ (- (current-jiffy) before 5000) 1000.0))
                     (tick (- n 1)))))
             (tick {TIMERS})"
        );
        program.spawn("bench", &text).expect("it can be read");
        let mut late = Vec::new();
        for _ in 0..TIMERS {
            late.push(mailbox.recv().await.expect("a figure"));
        }
        late
    })
}

fn on_workers<T>(workers: usize, future: impl Future<Output = T>) -> T {
    dunlin::__rt::block_on_workers(Some(workers), future)
}
