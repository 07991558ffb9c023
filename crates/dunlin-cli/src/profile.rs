//! `dunlin profile`: the spans in a profile of blocking calls, and their picture.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::Read;
use std::path::PathBuf;

use clap::Args;
use dunlin_terminal::failure::Failure;
use dunlin_terminal::output::{Output, columns, is_written};
use serde_json::json;

/// Options of `dunlin profile`.
#[derive(Args, Debug)]
pub struct Options {
    /// The profile, written by a program that ran with DUNLIN_PROFILE=FILE
    file: PathBuf,
    /// Draw to this file [default: FILE.svg]
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// The longest profile has some 3 MB.
const BYTES_MAX: u64 = 64 << 20;

/// Prints the spans of a profile, and draws its threads.
///
/// # Errors
/// [`Failure::Failed`] if the file cannot be read or is not a profile, or the picture cannot be written;
/// [`Failure::Lost`] if the output is lost.
pub fn run(options: &Options, output: Output) -> Result<(), Failure> {
    let path = options.file.display();
    let failed = |what: &dyn std::fmt::Display| Failure::failed(format!("{path}: {what}"));
    let file = std::fs::File::open(&options.file).map_err(|error| failed(&error))?;
    let mut text = String::new();
    file.take(BYTES_MAX).read_to_string(&mut text).map_err(|error| failed(&error))?;
    let profile = Profile::read(&text).map_err(|wrong| failed(&wrong))?;

    if output.json {
        let counts = json!({ "calls": profile.calls.len(), "dropped": profile.dropped });
        output.say(&counts, String::new);
        for span in Span::ALL {
            if let Some(Summary { count, min, average, max }) = profile.summary(span) {
                let line =
                    json!({ "span": span.name(), "calls": count, "min_ns": min, "avg_ns": average, "max_ns": max });
                output.say(&line, String::new);
            }
        }
    } else {
        output.say(&(), || profile.table());
    }
    let svg = options.svg.clone().unwrap_or_else(|| {
        let mut name = options.file.clone().into_os_string();
        name.push(".svg");
        name.into()
    });
    std::fs::write(&svg, profile.svg()).map_err(|error| Failure::failed(format!("{}: {error}", svg.display())))?;
    output.say(&json!({ "svg": svg.display().to_string() }), || format!("threads: {}", svg.display()));
    Ok(is_written()?)
}

/// The stamps of a profile, by call.
#[derive(Debug, Default)]
struct Profile {
    calls: BTreeMap<u64, Call>,
    /// How many stamps the program did not keep.
    dropped: u64,
    last: u64,
}

/// The times of one call's events, in nanoseconds since the profile began.
#[derive(Clone, Debug, Default)]
struct Call {
    dispatch: Option<u64>,
    trigger: Option<u64>,
    kill: Option<u64>,
    finish: Option<u64>,
    thread: Option<u64>,
}

/// The span from one stamp of a call to another.
#[derive(Clone, Copy)]
enum Span {
    /// The call waits for a thread.
    DispatchToTrigger,
    /// The call runs.
    TriggerToFinish,
    /// The call still runs after a request to stop.
    KillToFinish,
    /// The whole call.
    DispatchToFinish,
}

struct Summary {
    count: u64,
    min: u64,
    average: u64,
    max: u64,
}

impl Profile {
    fn read(text: &str) -> Result<Self, String> {
        let mut lines = text.lines().enumerate();
        match lines.next() {
            Some((_, "dunlin profile 1")) => {}
            Some((_, other)) if other.starts_with("dunlin profile ") => {
                return Err("a profile of another version: this command reads version 1".to_owned());
            }
            _ => return Err("not a profile: expected \"dunlin profile 1\" in line 1".to_owned()),
        }
        let mut profile = Self::default();
        let dropped = lines.next().and_then(|(_, line)| line.strip_prefix("dropped ")?.parse().ok());
        profile.dropped = dropped.ok_or("expected \"dropped\" and a number in line 2")?;
        for (number, line) in lines {
            let wrong = || {
                let number = number + 1;
                format!("expected a time, an event, a call and perhaps a thread in line {number}")
            };
            profile.stamp(line).ok_or_else(wrong)?;
        }
        Ok(profile)
    }

    /// Parses one line; `None` if it is not a stamp.
    fn stamp(&mut self, line: &str) -> Option<()> {
        let mut words = line.split(' ');
        let at = words.next()?.parse().ok()?;
        let event = words.next()?;
        let call = self.calls.entry(words.next()?.parse().ok()?).or_default();
        let thread = words.next().map(str::parse).transpose().ok()?;
        if words.next().is_some() {
            return None;
        }
        let place = match event {
            "dispatch" => &mut call.dispatch,
            "trigger" => &mut call.trigger,
            "kill" => &mut call.kill,
            "finish" => &mut call.finish,
            _ => return None,
        };
        *place = Some(at);
        call.thread = call.thread.or(thread);
        self.last = self.last.max(at);
        Some(())
    }

    fn summary(&self, span: Span) -> Option<Summary> {
        let times: Vec<u64> = self.calls.values().filter_map(|call| span.of(call)).collect();
        let count = times.len() as u64;
        let sum: u128 = times.iter().map(|time| u128::from(*time)).sum();
        let average = u64::try_from(sum.checked_div(u128::from(count))?).unwrap_or(u64::MAX);
        Some(Summary { count, min: *times.iter().min()?, average, max: *times.iter().max()? })
    }

    fn table(&self) -> String {
        let words = |words: [&str; 5]| words.map(str::to_owned).to_vec();
        let mut rows = vec![words(["span", "calls", "min", "avg", "max"])];
        for span in Span::ALL {
            if let Some(Summary { count, min, average, max }) = self.summary(span) {
                let times = [min, average, max].map(duration);
                rows.push([vec![span.name().to_owned(), count.to_string()], times.to_vec()].concat());
            }
        }
        let mut text = columns(&rows);
        let _ = write!(text, "\n{} calls", self.calls.len());
        if self.dropped > 0 {
            let _ = write!(text, "; {} older stamps were not kept", self.dropped);
        }
        text
    }
}

impl Span {
    const ALL: [Self; 4] = [Self::DispatchToTrigger, Self::TriggerToFinish, Self::KillToFinish, Self::DispatchToFinish];

    fn name(self) -> &'static str {
        match self {
            Self::DispatchToTrigger => "dispatch to trigger",
            Self::TriggerToFinish => "trigger to finish",
            Self::KillToFinish => "kill to finish",
            Self::DispatchToFinish => "dispatch to finish",
        }
    }

    /// The length of the span, if the call has both stamps.
    fn of(self, call: &Call) -> Option<u64> {
        let (from, to) = match self {
            Self::DispatchToTrigger => (call.dispatch, call.trigger),
            Self::TriggerToFinish => (call.trigger, call.finish),
            Self::KillToFinish => (call.kill, call.finish),
            Self::DispatchToFinish => (call.dispatch, call.finish),
        };
        to?.checked_sub(from?)
    }
}

/// Three digits, and a unit.
fn duration(nanoseconds: u64) -> String {
    let (value, unit) = match nanoseconds {
        0..1_000 => return format!("{nanoseconds} ns"),
        1_000..1_000_000 => (nanoseconds as f64 / 1e3, "us"),
        1_000_000..1_000_000_000 => (nanoseconds as f64 / 1e6, "ms"),
        _ => (nanoseconds as f64 / 1e9, "s"),
    };
    let digits = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    format!("{value:.digits$} {unit}")
}

const WIDTH: f64 = 1200.0;
const LEFT: f64 = 90.0;
const RIGHT: f64 = WIDTH - 20.0;
const TOP: f64 = 50.0;
/// The height of a strip, and the distance from one strip to the next.
const STRIP: f64 = 16.0;
const STEP: f64 = 22.0;

/// Colours that colour-blind people can tell apart (Okabe and Ito).
const RUNS: &str = "#0072b2";
const ASKED: &str = "#d55e00";

impl Profile {
    /// One strip for each thread: when it ran calls, and when these had been asked to stop.
    fn svg(&self) -> String {
        let mut threads = BTreeMap::<u64, Vec<(u64, &Call)>>::new();
        for (number, call) in &self.calls {
            if let Some(thread) = call.thread {
                threads.entry(thread).or_default().push((*number, call));
            }
        }
        let starts = self.calls.values().flat_map(|call| [call.dispatch, call.trigger, call.kill, call.finish]);
        let first = starts.flatten().min().unwrap_or(0);
        let length = self.last.saturating_sub(first).max(1);
        let x = |at: u64| LEFT + (RIGHT - LEFT) * (at.saturating_sub(first) as f64 / length as f64);
        let height = TOP + threads.len().max(1) as f64 * STEP + 40.0;
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
             height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\">\n\
             <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\"/>\n\
             <text x=\"{LEFT}\" y=\"20\" font-size=\"16\" font-weight=\"bold\">Blocking calls by thread</text>\n\
             <text x=\"{LEFT}\" y=\"38\" fill=\"#666\">{} calls in {}; <tspan fill=\"{RUNS}\">runs</tspan>, \
             <tspan fill=\"{ASKED}\">runs on after it was asked to stop</tspan></text>\n",
            self.calls.len(),
            duration(length),
        );
        let mut bar = |y: f64, from: u64, to: u64, colour: &str, title: &str| {
            let (left, right) = (x(from), x(to));
            let width = (right - left).max(0.5);
            let _ = writeln!(
                out,
                "<rect x=\"{left:.2}\" y=\"{y}\" width=\"{width:.2}\" height=\"{STRIP}\" fill=\"{colour}\">\
                 <title>{title}</title></rect>"
            );
        };
        for (row, calls) in threads.values().enumerate() {
            let y = TOP + row as f64 * STEP;
            bar(y, first, self.last, "#eee", "idle");
            for (number, call) in calls {
                // A call whose beginning was dropped starts at the first moment. A call without an end still
                // runs.
                let (from, to) = (call.trigger.unwrap_or(first), call.finish.unwrap_or(self.last));
                let title = format!("call {number}: {}", duration(to.saturating_sub(from)));
                bar(y, from, to, RUNS, &title);
                if let Some(kill) = call.kill.filter(|kill| (from..=to).contains(kill)) {
                    bar(y, kill, to, ASKED, &title);
                }
            }
        }
        for (row, thread) in threads.keys().enumerate() {
            let y = TOP + row as f64 * STEP + 12.0;
            let _ = writeln!(out, "<text x=\"{:.0}\" y=\"{y}\" text-anchor=\"end\">thread {thread}</text>", LEFT - 8.0);
        }
        for part in 0..=4 {
            let at = first + length / 4 * part;
            let label = duration(at - first);
            let y = height - 14.0;
            let _ = writeln!(out, "<text x=\"{:.2}\" y=\"{y}\" text-anchor=\"middle\">{label}</text>", x(at));
        }
        out += "</svg>\n";
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "dunlin profile 1\ndropped 2\n\
                        100 dispatch 7\n1100 trigger 7 0\n1200 dispatch 8\n1500 trigger 8 1\n\
                        2100 finish 7 0\n2500 kill 8\n4500 finish 8 1\n5000 dispatch 9\n";

    #[test]
    fn spans_have_minimum_average_and_maximum() {
        let profile = Profile::read(TEXT).unwrap();
        let spans = Span::ALL.map(|span| {
            let Summary { count, min, average, max } = profile.summary(span).unwrap();
            (count, min, average, max)
        });
        assert_eq!(spans, [(2, 300, 650, 1000), (2, 1000, 2000, 3000), (1, 2000, 2000, 2000), (2, 2000, 2650, 3300)]);
        let table = profile.table();
        assert!(table.contains("dispatch to trigger  2      300 ns   650 ns   1.00 us"), "{table}");
        assert!(table.ends_with("3 calls; 2 older stamps were not kept"), "{table}");
    }

    #[test]
    fn strips_are_drawn_for_each_thread() {
        let svg = Profile::read(TEXT).unwrap().svg();
        assert!(svg.contains(">thread 0<") && svg.contains(">thread 1<") && !svg.contains(">thread 2<"));
        // Two threads, two calls, and the time that one call ran after the request to stop.
        assert_eq!(svg.matches("<title>").count(), 5);
        assert_eq!(svg.matches(ASKED).count(), 2);
    }

    #[test]
    fn profile_without_calls_is_drawn_too() {
        let profile = Profile::read("dunlin profile 1\ndropped 0\n").unwrap();
        assert!(profile.table().ends_with("0 calls"));
        assert!(profile.svg().ends_with("</svg>\n"));
    }

    #[test]
    fn profile_parse_error_names_the_line() {
        for (text, part) in [
            ("", "line 1"),
            ("dunlin profile 2\n", "another version"),
            ("dunlin profile 1\n", "line 2"),
            ("dunlin profile 1\ndropped x\n", "line 2"),
            ("dunlin profile 1\ndropped 0\n1 trigger\n", "line 3"),
            ("dunlin profile 1\ndropped 0\n1 dispatch 1\n1 nonsense 1 1\n", "line 4"),
            ("dunlin profile 1\ndropped 0\n1 trigger 1 1 1\n", "line 3"),
            ("dunlin profile 1\ndropped 0\n99999999999999999999999 trigger 1 1\n", "line 3"),
        ] {
            let wrong = Profile::read(text).unwrap_err();
            assert!(wrong.contains(part), "{text:?}: {wrong}");
        }
    }

    #[test]
    fn profile_accepts_stamps_out_of_order() {
        let text = format!("dunlin profile 1\ndropped 0\n{0} finish 1 3\n5 trigger 1 3\n{0} dispatch 1\n", u64::MAX);
        let profile = Profile::read(&text).unwrap();
        assert!(profile.summary(Span::DispatchToTrigger).is_none());
        assert!(profile.svg().contains("thread 3"));
    }

    #[test]
    fn durations_have_three_digits() {
        let texts = [999, 1_000, 9_994, 9_996, 99_940, 123_456, 5_000_000_000].map(duration);
        assert_eq!(texts, ["999 ns", "1.00 us", "9.99 us", "10.0 us", "99.9 us", "123 us", "5.00 s"]);
    }
}
