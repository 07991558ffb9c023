//! The output of the demo: which worker serves which customer while it runs, and a table of the results.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use dunlin_terminal::output::{self, Lost, Output, complain, printable};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;

use super::event::{Event, Said};
use super::plan::{Plan, Role};
use super::processes::Ending;
use super::tally::{State, Tally};

pub(super) struct Display {
    tally: Tally,
    view: View,
    is_inside: bool,
    began: Instant,
}

enum View {
    /// On a terminal.
    Live(Live),
    /// A line for each event.
    Lines,
    /// The same for scripts.
    Json,
}

impl Display {
    pub(super) fn new(plan: &Plan, json: bool, live: bool, is_inside: bool) -> Self {
        let view = match (json, live) {
            (true, _) => View::Json,
            (_, true) => View::Live(Live::new(plan, ProgressDrawTarget::stdout(), Box::new(terminal_width))),
            _ => View::Lines,
        };
        let count = |role: fn(&Role) -> bool| plan.parts.iter().filter(|part| role(&part.role)).count();
        if !json {
            let (workers, customers) =
                (count(|role| *role == Role::Worker), count(|role| matches!(role, Role::Customer { .. })));
            let (workers, customers) = (many(workers, "worker"), many(customers, "customer"));
            let parts =
                if is_inside { "all in this process" } else { "each a process of its own, with a name service" };
            output::write(format!("A broker, {workers} and {customers}: {parts}.\n").as_bytes());
        }
        Self { tally: Tally::new(plan), view, is_inside, began: Instant::now() }
    }

    /// Shows an event of a part.
    ///
    /// # Errors
    /// The reader of the output has gone, or a write failed.
    pub(super) fn hear(&mut self, said: &Said) -> Result<(), Lost> {
        self.tally.hear(said);
        match &mut self.view {
            View::Live(live) => live.hear(said, &self.tally),
            View::Lines => {
                if let Some(line) = line(said) {
                    output::write(format!("{:<12} {line}\n", said.part).as_bytes());
                }
            }
            View::Json => Output { json: true }.say(said, String::new),
        }
        output::is_written()
    }

    /// Shows the outcome of the whole demo. Returns the exit code.
    pub(super) fn end(self, ending: &Ending) -> u8 {
        let Self { tally, view, is_inside, began } = self;
        let took = began.elapsed();
        let code = code(&tally, ending);
        let columns = if let View::Live(live) = &view { (live.width)() } else { usize::MAX };
        if let View::Json = view {
            let summary = json!({
                "event": "summary",
                "ending": match ending {
                    Ending::Done => "done".to_owned(),
                    Ending::Stopped(_) => "stopped".to_owned(),
                    Ending::Failed(why) | Ending::Unbegun(why) => why.clone(),
                },
                "texts": tally.rows,
                "served": tally.served(),
                "appointments": tally.appointments,
                "carried": tally.carried,
                "carried_bytes": tally.carried_bytes(),
                "returned": tally.returned,
                "troubles": tally.troubles.iter().map(|(part, why)| json!({ "part": part, "why": why })).collect::<Vec<_>>(),
                "seconds": took.as_secs_f64(),
                "exit_code": code,
            });
            output::write(format!("{summary}\n").as_bytes());
            return written(code);
        }
        if let View::Live(live) = view {
            live.clear();
        }
        let report = match ending {
            Ending::Stopped(_) if is_inside => "Stopped.\n".to_owned(),
            Ending::Stopped(_) => "Stopped. All processes have ended.\n".to_owned(),
            Ending::Unbegun(_) => String::new(),
            Ending::Failed(_) | Ending::Done => report(&tally, is_inside, took, columns),
        };
        output::write(report.as_bytes());
        if let Ending::Failed(why) | Ending::Unbegun(why) = ending {
            complain(format_args!("error: {why}"));
        }
        written(code)
    }
}

/// This exit code, or that of a report that could not be written.
fn written(code: u8) -> u8 {
    match output::is_written() {
        Err(lost @ Lost::Unwritten) if code == 0 => lost.code(),
        _ => code,
    }
}

/// The exit code: 0 only if all texts were counted exactly.
fn code(tally: &Tally, ending: &Ending) -> u8 {
    match ending {
        Ending::Stopped(code) => *code,
        Ending::Done if tally.served() == tally.rows.len() => 0,
        _ => 1,
    }
}

fn many(n: usize, what: &str) -> String {
    if n == 1 { format!("one {what}") } else { format!("{n} {what}s") }
}

/// The line for an event, if it has one.
fn line(said: &Said) -> Option<String> {
    let line = match &said.event {
        Event::Started { pid } => format!("is process {pid}"),
        Event::Joined { node, address } => format!("is node {node} at {address}"),
        Event::Registered { worker } => format!("has the handle of {worker}"),
        Event::Appointed { worker, customer } => format!("gives the handle of {worker} to {customer}"),
        Event::Gone { visitor, says } if *says == said.part => format!("learns that {visitor} has left"),
        Event::Gone { visitor, says } => format!("learns from {says} that {visitor} is lost"),
        Event::Closed { .. } => "closes".to_owned(),
        Event::Waits { file } => format!("has {file}, and asks for a worker"),
        Event::Begins { file, worker, .. } => format!("sends {file} to {worker}"),
        Event::Served { worker, table, exact, .. } => {
            let is = if *exact { "exact" } else { "wrong" };
            format!("has the table of {worker}: {} words, {} different, {is}", table.words(), table.distinct())
        }
        Event::Returned { worker } => format!("has sent the handle of {worker} home, over itself"),
        Event::NotReturned { worker, why } => format!("could not send the handle of {worker} home: {why}"),
        Event::Lost { file, worker, outcome } => format!("has lost {worker} with {file}: {outcome}"),
        Event::Unreadable { file, why } => format!("cannot read {file}: {why}"),
        Event::NotServed { file, why } => format!("is not served with {file}: {why}"),
        Event::Counts { customer, file } => format!("counts the words of {file} for {customer}"),
        Event::HandleLost { why } => format!("has made a new handle, since the last one was lost: {why}"),
        Event::Leaves { .. } => "leaves: the broker is lost".to_owned(),
        Event::Failed { why } => format!("cannot continue: {why}"),
        Event::Complains { line } => line.clone(),
        Event::Ended { status, in_order: false } => format!("has ended: {status}"),
        Event::Progress { .. }
        | Event::Connections { .. }
        | Event::Carried { .. }
        | Event::Counted { .. }
        | Event::Ended { .. } => return None,
    };
    // Names of files may contain any characters.
    Some(printable(&line))
}

/// The present width of the terminal, in columns.
fn terminal_width() -> usize {
    console::Term::stdout().size_checked().map_or(80, |(_, columns)| columns.into())
}

/// A line for the broker, and one for each customer, none wider than the terminal.
struct Live {
    lines: MultiProgress,
    broker: ProgressBar,
    customers: BTreeMap<String, Customer>,
    /// The process of each part, so that a user can kill one and watch how the others react.
    pids: BTreeMap<String, u32>,
    width: Box<dyn Fn() -> usize>,
    /// The width that the lines were laid out for.
    laid_out: usize,
    /// Workers whose handles the broker holds.
    idle: Vec<String>,
}

struct Customer {
    bar: ProgressBar,
    worker: String,
    /// The worker with its process.
    shown: String,
    file: String,
}

impl Live {
    fn new(plan: &Plan, target: ProgressDrawTarget, width: Box<dyn Fn() -> usize>) -> Self {
        // The target is hidden until all lines exist: otherwise each new line would be drawn again, and the
        // earlier ones would stay.
        let lines = MultiProgress::with_draw_target(ProgressDrawTarget::hidden());
        let broker = lines.add(ProgressBar::new(0).with_prefix("broker"));
        broker.set_message("starts");
        let mut names: Vec<(&str, usize)> = Vec::new();
        for part in &plan.parts {
            if let Role::Customer { texts } = &part.role {
                names.push((&part.name, texts.len()));
            }
        }
        names.sort_by_key(|(name, _)| (name.len(), *name));
        let customers = names.into_iter().map(|(name, _)| {
            let bar = lines.add(ProgressBar::new(1).with_prefix(name.to_owned()));
            bar.set_message("starts");
            (name.to_owned(), Customer { bar, worker: String::new(), shown: String::new(), file: String::new() })
        });
        let customers = customers.collect();
        let mut live = Self { customers, lines, broker, idle: Vec::new(), pids: BTreeMap::new(), width, laid_out: 0 };
        live.lay_out();
        live.lines.set_draw_target(target);
        live.draw();
        live
    }

    /// Fits the lines to the terminal, if its width has changed.
    fn lay_out(&mut self) {
        let width = (self.width)();
        if width == self.laid_out {
            return;
        }
        self.laid_out = width;
        // The lines drawn for another width may take more rows now.
        let _ = self.lines.clear();
        let (prefix, bar) = match width {
            80.. => ("{prefix:<20.bold}", " {bar:24.cyan/dim}"),
            60..80 => ("{prefix:<20.bold}", " {bar:10.cyan/dim}"),
            _ => ("{prefix:.bold}", ""),
        };
        let style = |bar: &str| {
            ProgressStyle::with_template(&format!("  {prefix}{bar} {{wide_msg}}"))
                .unwrap_or_else(|_| ProgressStyle::default_bar())
                .progress_chars("━╸─")
        };
        self.broker.set_style(style(""));
        for customer in self.customers.values() {
            customer.bar.set_style(style(bar));
        }
        self.draw();
    }

    fn draw(&self) {
        for line in self.customers.values().map(|customer| &customer.bar).chain([&self.broker]) {
            line.tick();
        }
    }

    /// The part with its process.
    fn named(&self, part: &str) -> String {
        self.pids.get(part).map_or_else(|| part.to_owned(), |pid| format!("{part} [{pid}]"))
    }

    fn hear(&mut self, said: &Said, tally: &Tally) {
        self.lay_out();
        match &said.event {
            Event::Started { pid } => {
                self.pids.insert(said.part.clone(), *pid);
                let name = self.named(&said.part);
                if said.part == "broker" {
                    self.broker.set_prefix(name);
                } else if let Some(customer) = self.customers.get(&said.part) {
                    customer.bar.set_prefix(name);
                }
            }
            Event::Registered { worker } => self.idle.push(worker.clone()),
            Event::Appointed { worker, .. } => self.idle.retain(|idle| idle != worker),
            Event::Gone { visitor, .. } => self.idle.retain(|idle| idle != visitor),
            Event::Unreadable { .. }
            | Event::NotServed { .. }
            | Event::Lost { .. }
            | Event::NotReturned { .. }
            | Event::Failed { .. }
            | Event::Complains { .. }
            | Event::Ended { in_order: false, .. } => {
                if let Some(line) = line(said) {
                    let _ = self.lines.println(format!("  {:<13} {line}", said.part));
                }
            }
            _ => {}
        }
        if said.part == "broker" {
            let idle: Vec<_> = self.idle.iter().map(|worker| self.named(worker)).collect();
            let idle = if idle.is_empty() { "none".to_owned() } else { idle.join(", ") };
            let message = match &said.event {
                Event::Closed { .. } => "has closed".to_owned(),
                Event::Ended { in_order: false, .. } => "is gone".to_owned(),
                Event::Ended { .. } => return,
                _ => format!("handed on: {}; free: {idle}", tally.appointments),
            };
            self.broker.set_message(message);
        }
        let worker = match &said.event {
            Event::Begins { worker, .. } => self.named(worker),
            _ => String::new(),
        };
        let Some(customer) = self.customers.get_mut(&said.part) else { return };
        let bar = &customer.bar;
        match &said.event {
            Event::Waits { file } => {
                bar.set_position(0);
                bar.set_message(format!("{}: waits for a worker", printable(file)));
            }
            Event::Begins { file, worker: name, pieces, .. } => {
                (customer.file, customer.worker, customer.shown) = (printable(file), name.clone(), worker);
                bar.set_length(*pieces);
                bar.set_position(0);
                bar.set_message(format!("{} ⇄ {}", customer.file, customer.shown));
            }
            Event::Connections { nodes } => {
                if let Some(link) = tally.link(&customer.worker, nodes) {
                    bar.set_message(format!("{} ⇄ {} ({})", customer.file, customer.shown, link.route));
                }
            }
            Event::Progress { sent, .. } => bar.set_position(*sent),
            Event::Ended { .. } => {
                let (all, done) = tally.of(&said.part);
                bar.set_position(bar.length().unwrap_or_default());
                bar.set_message(format!("{done} of {}", many(all, "text")));
            }
            _ => {}
        }
    }

    fn clear(self) {
        let _ = self.lines.clear();
    }
}

/// The table and its totals. Where the terminal has fewer columns than the table, each text has lines of its
/// own.
fn report(tally: &Tally, is_inside: bool, took: Duration, columns: usize) -> String {
    let mut cells = vec![
        ["text", "customer", "worker", "bytes", "pieces", "words", "different", "table", "connection"]
            .map(str::to_owned),
    ];
    for row in &tally.rows {
        cells.push(match &row.state {
            State::Served { worker, bytes, pieces, words, distinct, exact, connection, .. } => [
                printable(&row.file),
                row.customer.clone(),
                worker.clone(),
                bytes.to_string(),
                pieces.to_string(),
                words.to_string(),
                distinct.to_string(),
                if *exact { "exact" } else { "WRONG" }.to_owned(),
                match connection {
                    Some(link) => format!("{}, to {}", link.route, link.address),
                    None if is_inside => "a channel".to_owned(),
                    None => "not seen".to_owned(),
                },
            ],
            State::NotServed { why } | State::Unreadable { why } => {
                let what = if matches!(row.state, State::Unreadable { .. }) { "unreadable" } else { "not served" };
                let mut cells = [const { String::new() }; 9];
                (cells[0], cells[1], cells[2]) =
                    (printable(&row.file), row.customer.clone(), printable(&format!("{what}: {why}")));
                cells
            }
        });
    }
    let mut widths = [0; 9];
    for row in cells.iter().filter(|row| !row[3].is_empty()) {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    for row in &cells {
        for at in 0..2 {
            widths[at] = widths[at].max(row[at].chars().count());
        }
    }
    let mut out = String::from("\n");
    let is_narrow = widths.iter().map(|width| width + 2).sum::<usize>() > columns;
    if is_narrow {
        let labels = cells[0].clone();
        for row in &cells[1..] {
            let _ = writeln!(out, "{}", row[0]);
            for (label, cell) in labels.iter().zip(row).skip(1).filter(|(_, cell)| !cell.is_empty()) {
                let _ = writeln!(out, "  {label:<10} {cell}");
            }
        }
        cells.clear();
    }
    for row in cells {
        let mut line = String::new();
        for (at, (cell, width)) in row.iter().zip(widths).enumerate() {
            // Numbers to the right.
            let _ =
                if (3..=6).contains(&at) { write!(line, "{cell:>width$}  ") } else { write!(line, "{cell:<width$}  ") };
        }
        let _ = writeln!(out, "{}", line.trim_end());
    }
    out.push('\n');
    for row in &tally.rows {
        for lost in &row.lost {
            let file = printable(&row.file);
            let _ = writeln!(out, "{} was lost with {file} of {}: {}.", lost.worker, row.customer, lost.outcome);
        }
    }
    for (part, why) in &tally.troubles {
        let _ = writeln!(out, "{part}: {}.", printable(why));
    }
    let links: Vec<_> = tally
        .rows
        .iter()
        .filter_map(|row| if let State::Served { connection, .. } = &row.state { connection.as_ref() } else { None })
        .collect();
    if !links.is_empty() && links.iter().all(|link| link.route == "direct") {
        let _ = writeln!(
            out,
            "Each customer was connected with its worker directly: the broker has handed on {}, and none of the texts came by it.",
            many(tally.appointments as usize, "handle")
        );
    }
    if let Some((carried, bytes)) = tally.carried.as_ref().zip(tally.carried_bytes()) {
        let each = carried.iter().map(|carried| format!("{} {}", carried.part, carried.sent + carried.received));
        let each = each.collect::<Vec<_>>().join(", ");
        let texts = tally.bytes();
        let _ = if bytes < texts {
            writeln!(out, "The broker's own node has carried {bytes} bytes, where the texts are {texts} ({each}).")
        } else {
            writeln!(
                out,
                "The broker's own node has carried {bytes} bytes for names and handles ({each}): as many with larger texts, --files DIR."
            )
        };
    }
    let all = tally.rows.len();
    let _ = writeln!(
        out,
        "{} of {}, {} bytes, counted exactly; {} went home over themselves. {:.1} s; {}.",
        tally.served(),
        many(all, "text"),
        tally.bytes(),
        many(tally.returned as usize, "handle"),
        took.as_secs_f64(),
        if is_inside { "all in one process" } else { "all processes have ended" },
    );
    out
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use indicatif::{InMemoryTerm, TermLike};

    use super::super::event::{Connection, Outcome};
    use super::super::texts::Text;
    use super::super::words::WordTable;
    use super::*;

    const FILE: &str = "the-walrus.txt";

    /// One text of one customer, and two workers.
    fn plan() -> Plan {
        Plan::new(1, 2, vec![Text::Shipped(FILE.to_owned())])
    }

    fn said(part: &str, event: Event) -> Said {
        Said { part: part.to_owned(), event }
    }

    #[test]
    fn demo_succeeds_only_if_each_table_is_exact() {
        for (exact, expected) in [(true, 0), (false, 1)] {
            let mut tally = Tally::new(&plan());
            assert_eq!(code(&tally, &Ending::Done), 1, "nothing is counted yet");
            let (file, worker, table) = (FILE.to_owned(), "worker 2".to_owned(), WordTable::of("no walrus"));
            let served = said("customer 1", Event::Served { file, worker, bytes: 9, pieces: 1, exact, table });
            tally.hear(&served);
            assert_eq!(code(&tally, &Ending::Done), expected);
            assert_eq!(code(&tally, &Ending::Stopped(130)), 130);
            assert_eq!(code(&tally, &Ending::Failed("no more".to_owned())), 1);
            // The report shows it, too.
            let report = report(&tally, false, Duration::ZERO, usize::MAX);
            assert_eq!(report.contains(" exact "), exact, "{report}");
            assert_eq!(report.contains(" WRONG "), !exact, "{report}");
            assert!(report.contains(if exact { "1 of one text" } else { "0 of one text" }), "{report}");
            assert_eq!(line(&served).unwrap().ends_with(", wrong"), !exact);
        }
    }

    #[test]
    fn a_terminal_shows_which_worker_serves_which_customer() {
        let term = InMemoryTerm::new(10, 100);
        let mut tally = Tally::new(&plan());
        let mut live = Live::new(&plan(), ProgressDrawTarget::term_like(Box::new(term.clone())), Box::new(|| 100));
        let mut shows = |part: &str, event: Event| {
            let said = said(part, event);
            tally.hear(&said);
            live.hear(&said, &tally);
            let contents = term.contents();
            contents.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
        };
        let worker = || "worker 2".to_owned();
        let node = || "n2".to_owned();
        shows("worker 2", Event::Started { pid: 7 });
        shows("worker 2", Event::Joined { node: node(), address: "127.0.0.1:1".to_owned() });
        assert_eq!(
            shows("broker", Event::Registered { worker: worker() })[0],
            "broker handed on: 0; free: worker 2 [7]"
        );
        let waits = shows("customer 1", Event::Waits { file: FILE.to_owned() });
        assert!(
            waits[1].starts_with("customer 1 ") && waits[1].ends_with("the-walrus.txt: waits for a worker"),
            "{waits:?}"
        );
        let appointed = Event::Appointed { worker: worker(), customer: "customer 1".to_owned() };
        assert_eq!(shows("broker", appointed)[0], "broker handed on: 1; free: none");
        let begins =
            shows("customer 1", Event::Begins { file: FILE.to_owned(), worker: worker(), bytes: 9, pieces: 2 });
        assert!(begins[1].ends_with("─ the-walrus.txt ⇄ worker 2 [7]"), "{begins:?}");
        let nodes = vec![Connection { node: node(), route: "direct".to_owned() }];
        let connected = shows("customer 1", Event::Connections { nodes });
        assert!(connected[1].ends_with("─ the-walrus.txt ⇄ worker 2 [7] (direct)"), "{connected:?}");
        // The bar is full when all pieces are sent, and half full when half of them are.
        let full = |lines: Vec<String>| lines[1].chars().filter(|&character| character == '━').count();
        assert_eq!(full(connected), 0);
        assert_eq!(full(shows("customer 1", Event::Progress { file: FILE.to_owned(), sent: 1 })), 12);
        assert_eq!(full(shows("customer 1", Event::Progress { file: FILE.to_owned(), sent: 2 })), 24);
        let lost = Event::Lost { file: FILE.to_owned(), worker: worker(), outcome: Outcome::Unknown { piece: 1 } };
        let lost = shows("customer 1", lost);
        assert_eq!(
            lost[0],
            "customer 1 has lost worker 2 with the-walrus.txt: whether piece 1 was received is not known"
        );
        assert!(lost[2].ends_with("the-walrus.txt ⇄ worker 2 [7] (direct)"), "{lost:?}");
        live.clear();
        assert_eq!(term.contents().lines().count(), 1, "what is lost is still to be read: {}", term.contents());
    }

    /// A terminal that is empty after a resize, and wraps a line that does not fit.
    #[derive(Clone, Debug)]
    struct Resizable(Arc<Mutex<(InMemoryTerm, u16)>>);

    impl Resizable {
        fn new(width: u16) -> Self {
            Self(Arc::new(Mutex::new((InMemoryTerm::new(10, width), width))))
        }

        fn resize(&self, width: u16) {
            *self.0.lock().unwrap() = (InMemoryTerm::new(10, width), width);
        }

        fn now(&self) -> InMemoryTerm {
            self.0.lock().unwrap().0.clone()
        }
    }

    impl TermLike for Resizable {
        fn width(&self) -> u16 {
            self.0.lock().unwrap().1
        }

        fn move_cursor_up(&self, n: usize) -> io::Result<()> {
            self.now().move_cursor_up(n)
        }

        fn move_cursor_down(&self, n: usize) -> io::Result<()> {
            self.now().move_cursor_down(n)
        }

        fn move_cursor_right(&self, n: usize) -> io::Result<()> {
            self.now().move_cursor_right(n)
        }

        fn move_cursor_left(&self, n: usize) -> io::Result<()> {
            self.now().move_cursor_left(n)
        }

        fn write_line(&self, line: &str) -> io::Result<()> {
            self.now().write_line(line)
        }

        fn write_str(&self, text: &str) -> io::Result<()> {
            self.now().write_str(text)
        }

        fn clear_line(&self) -> io::Result<()> {
            self.now().clear_line()
        }

        fn flush(&self) -> io::Result<()> {
            self.now().flush()
        }
    }

    #[test]
    fn lines_fit_a_terminal_that_is_narrow_and_is_resized() {
        let term = Resizable::new(40);
        let now = term.clone();
        let target = ProgressDrawTarget::term_like(Box::new(term.clone()));
        let mut live = Live::new(&plan(), target, Box::new(move || now.width().into()));
        let tally = Tally::new(&plan());
        let mut shows = |part: &str, event: Event| {
            live.hear(&said(part, event), &tally);
            term.now().contents()
        };
        shows("customer 1", Event::Started { pid: 12345 });
        let file = format!("{}.txt", "walrus".repeat(20));
        let waits = shows("customer 1", Event::Waits { file: file.clone() });
        assert_eq!(waits.lines().count(), 2, "{waits}");
        assert!(waits.lines().all(|line| line.chars().count() <= 40), "{waits}");
        assert!(waits.contains("  customer 1 [12345] walrus"), "{waits}");
        term.resize(30);
        let begins = Event::Begins { file: file.clone(), worker: "worker 2".to_owned(), bytes: 9, pieces: 2 };
        let begins = shows("customer 1", begins);
        assert_eq!(begins.lines().count(), 2, "{begins}");
        assert!(begins.lines().all(|line| line.chars().count() <= 30), "{begins}");
        term.resize(100);
        let progress = shows("customer 1", Event::Progress { file, sent: 1 });
        assert_eq!(progress.lines().count(), 2, "{progress}");
        assert!(progress.lines().all(|line| line.chars().count() <= 100), "{progress}");
        assert!(progress.lines().any(|line| line.contains('━')), "there is room for the bar again: {progress}");
    }

    #[test]
    fn a_file_name_cannot_write_to_the_terminal() {
        let file = "\x1b[2Jwalrus\n.txt".to_owned();
        let waits = said("customer 1", Event::Waits { file: file.clone() });
        assert_eq!(line(&waits).unwrap(), "has \\u{1b}[2Jwalrus\\n.txt, and asks for a worker");
        let plan = Plan::new(1, 1, vec![Text::File(file.into())]);
        let report = report(&Tally::new(&plan), false, Duration::ZERO, usize::MAX);
        assert!(!report.contains('\x1b') && report.contains("\\u{1b}[2Jwalrus\\n.txt "), "{report}");
    }

    #[test]
    fn a_table_that_is_wider_than_the_terminal_becomes_lines() {
        let tally = Tally::new(&plan());
        let wide = report(&tally, false, Duration::ZERO, 200);
        assert!(wide.contains("text            customer    worker"), "{wide}");
        let narrow = report(&tally, false, Duration::ZERO, 40);
        assert!(narrow.contains("\nthe-walrus.txt\n  customer   customer 1\n  worker     not served"), "{narrow}");
    }
}
