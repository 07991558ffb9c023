//! The bounds: a file for people to read, written by `--record`.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use crate::measure::{Figure, Kind};
use crate::programs::{self, Program};

/// The recorded value of each figure.
pub(crate) struct Bounds(Vec<Bound>);

struct Bound {
    program: String,
    kind: String,
    value: f64,
    slack: f64,
}

/// A figure compared with its bound.
pub(crate) struct Verdict {
    /// The recorded figure, and by how many percent this one may exceed it. `None`: no bound is recorded.
    bound: Option<(f64, f64)>,
}

/// Counts are differences of whole numbers, divided: a smaller excess is rounding.
const ROUNDING: f64 = 0.01;

/// By how many percent calls may exceed their bound.
const SLACK_OF_CALLS: f64 = 25.0;

const HEAD: &str = "\
# What communications cost, for each unit: the gate fails when a figure is above its bound by more than the slack (`bash .ci/run counts`).
# Written by `cargo run --profile measured -p dunlin-counts -- --record`. A commit that raises a bound says what for.
#
# Instructions are those of valgrind's callgrind on the communicating thread; bytes and allocations are what its allocator was asked for
# (of a parked process: the bytes that it and its channel hold). A dev build counts calls instead: locks of a node's state, of all its mutexes
# and of channels, searches of trees, reads of the clock, and wakes (`cargo run -p dunlin-counts`; both nodes and all tasks of one thread).
";

fn path() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/bounds.txt"))
}

impl Bounds {
    pub(crate) fn read() -> Result<Self, String> {
        match fs::read_to_string(path()) {
            Ok(text) => Self::parse(&text).map_err(|error| format!("{}: {error}", path().display())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self(Vec::new())),
            Err(error) => Err(format!("cannot read {}: {error}", path().display())),
        }
    }

    fn parse(text: &str) -> Result<Self, String> {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        lines
            .map(|line| Bound::parse(line).ok_or_else(|| format!("cannot read the line `{line}`")))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    fn of(&self, figure: &Figure) -> Option<&Bound> {
        self.0.iter().find(|bound| bound.program == figure.program.name && bound.kind == figure.kind.name())
    }

    pub(crate) fn judge(&self, figure: &Figure) -> Verdict {
        Verdict { bound: self.of(figure).map(|bound| (bound.value, bound.slack)) }
    }

    /// Makes this figure the bound.
    pub(crate) fn record(&mut self, figure: &Figure) {
        self.0.retain(|bound| bound.program != figure.program.name || bound.kind != figure.kind.name());
        let (program, kind) = (figure.program.name.to_owned(), figure.kind.name().to_owned());
        let slack = match figure.kind {
            Kind::Instructions => figure.program.slack.0,
            Kind::Bytes | Kind::Allocations => figure.program.slack.1,
            // Valgrind slows a program down, so what a node does at certain times counts for more.
            _ => SLACK_OF_CALLS,
        };
        self.0.push(Bound { program, kind, value: figure.value, slack });
    }

    pub(crate) fn write(&self) -> Result<(), String> {
        fs::write(path(), self.text()).map_err(|error| format!("cannot write {}: {error}", path().display()))?;
        println!("{} is written", path().display());
        Ok(())
    }

    /// In the order of the programs, each with its unit.
    fn text(&self) -> String {
        let mut text = format!("{HEAD}\n# {:<22}{:<14}{:>10}   slack\n", "program", "figure", "bound");
        for program in programs::ALL {
            for bound in Kind::all()
                .filter_map(|kind| self.0.iter().find(|b| b.program == program.name && b.kind == kind.name()))
            {
                let Bound { program: name, kind, value, slack } = bound;
                writeln!(text, "  {name:<22}{kind:<14}{value:>10.2}   {slack} %").expect("a string has room");
            }
        }
        text
    }
}

impl Bound {
    fn parse(line: &str) -> Option<Self> {
        let [program, kind, value, slack, "%"] = line.split_whitespace().collect::<Vec<_>>()[..] else { return None };
        let (value, slack) = (value.parse().ok()?, slack.parse().ok()?);
        Some(Self { program: program.to_owned(), kind: kind.to_owned(), value, slack })
    }
}

impl Verdict {
    fn is_above(&self, figure: &Figure) -> bool {
        self.bound.is_none_or(|(bound, slack)| figure.value > bound * (1.0 + slack / 100.0) + ROUNDING)
    }

    /// The line of the table.
    pub(crate) fn line(&self, figure: &Figure) -> String {
        let Figure { program: Program { name, unit, .. }, kind, value } = figure;
        let measure = format!("{} for each {unit}", kind.name());
        let beside = match self.bound {
            None => "no bound: ABOVE".to_owned(),
            Some((bound, slack)) if self.is_above(figure) => format!("{bound:>10.2} + {slack} %: ABOVE"),
            Some((bound, slack)) if *value < bound * (1.0 - slack / 100.0) - ROUNDING => {
                format!("{bound:>10.2} + {slack} %: lower; --record holds it there")
            }
            Some((bound, slack)) => format!("{bound:>10.2} + {slack} %"),
        };
        format!("{name:<22} {measure:<34} {value:>10.2}   bound {beside}")
    }

    /// The message about a figure that exceeds its bound.
    pub(crate) fn complaint(&self, figure: &Figure) -> Option<String> {
        let Figure { program, kind, value } = figure;
        let (name, unit, kind) = (program.name, program.unit, kind.name());
        let profile = if Kind::CALLS.contains(&figure.kind) { "" } else { "--profile measured " };
        let run = format!("cargo run {profile}-p dunlin-counts --");
        let Some((bound, slack)) = self.bound else {
            return Some(format!(
                "{name}: {value:.2} {kind} for each {unit}, and bounds.txt has no bound for that. `{run} --record {name}` writes it."
            ));
        };
        self.is_above(figure).then(|| {
            let n = program.shorter;
            if Kind::CALLS.contains(&figure.kind) {
                return format!(
                    "{name}: {value:.2} {kind} for each {unit}; the bound is {bound:.2} + {slack} %.\n\
                     Their callers, before the change and after it:\n  \
                     valgrind --tool=callgrind --separate-callers=9 --callgrind-out-file=target/{name} target/debug/dunlin-counts run {name} {n}\n\
                     If they are meant: `{run} --record {name}`, and the commit says what they are for."
                );
            }
            format!(
                "{name}: {value:.2} {kind} for each {unit}; the bound is {bound:.2} + {slack} %.\n\
                 Some change made it dearer. Where instructions go, line by line, before the change and after it:\n  \
                 valgrind --tool=callgrind --callgrind-out-file=target/{name} target/measured/dunlin-counts run {name} {n}\n  \
                 callgrind_annotate --auto=yes target/{name}\n\
                 A look at what is not inlined any more comes first: one outcome that goes through memory costs as much as all else.\n\
                 If the cost is meant: `{run} --record {name}`, and the commit says what it is for."
            )
        })
    }

    /// One line of `--json`.
    pub(crate) fn json(&self, figure: &Figure) -> String {
        let Figure { program: Program { name, unit, .. }, kind, value } = figure;
        let (bound, slack) = self
            .bound
            .map_or(("null".to_owned(), "null".to_owned()), |(bound, slack)| (bound.to_string(), slack.to_string()));
        let (kind, above) = (kind.name(), self.is_above(figure));
        format!(
            r#"{{"program":"{name}","figure":"{kind}","unit":"{unit}","value":{value:.4},"bound":{bound},"slack_percent":{slack},"above":{above}}}"#
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(kind: Kind, value: f64) -> Figure {
        Figure { program: programs::find("commstime-par").unwrap(), kind, value }
    }

    fn recorded() -> Bounds {
        let mut bounds = Bounds(Vec::new());
        bounds.record(&figure(Kind::Instructions, 300.0));
        bounds.record(&figure(Kind::Bytes, 0.0));
        bounds
    }

    #[test]
    fn a_figure_within_its_slack_passes() {
        let within = figure(Kind::Instructions, 305.9);
        assert!(recorded().judge(&within).complaint(&within).is_none());
    }

    #[test]
    fn complaint_names_the_figure_and_its_bound() {
        let above = figure(Kind::Instructions, 306.5);
        let complaint = recorded().judge(&above).complaint(&above).unwrap();
        assert!(
            complaint
                .starts_with("commstime-par: 306.50 instructions for each communication; the bound is 300.00 + 2 %.")
        );
        assert!(complaint.contains("--record commstime-par"), "{complaint}");
    }

    #[test]
    fn one_byte_exceeds_a_bound_of_zero() {
        let above = figure(Kind::Bytes, 1.0);
        assert!(recorded().judge(&above).complaint(&above).is_some());
    }

    #[test]
    fn a_figure_without_a_bound_fails() {
        let new = figure(Kind::Allocations, 0.0);
        let complaint = recorded().judge(&new).complaint(&new).unwrap();
        assert!(complaint.contains("no bound"), "{complaint}");
    }

    #[test]
    fn bounds_round_trip_through_text() {
        let text = recorded().text();
        assert_eq!(Bounds::parse(&text).unwrap().text(), text);
        assert!(Bounds::parse("commstime-par instructions many 2 %").is_err());
    }

    #[test]
    fn each_figure_has_a_bound() {
        let bounds = Bounds::read().unwrap();
        for program in programs::ALL {
            for kind in Kind::all().filter(|kind| program.has_calls || Kind::COSTS.contains(kind)) {
                assert!(bounds.of(&Figure { program, kind, value: 0.0 }).is_some(), "{} {}", program.name, kind.name());
            }
        }
    }

    /// A call searches no mailbox.
    #[test]
    fn unread_messages_cost_a_call_at_most_a_tenth() {
        let bounds = Bounds::read().unwrap();
        for (name, with_unread) in [("server-call", "server-call-unread"), ("asked", "asked-unread")] {
            let [empty, unread] = [name, with_unread].map(|name| programs::find(name).unwrap());
            for kind in Kind::COSTS {
                let of = |program| bounds.of(&Figure { program, kind, value: 0.0 }).unwrap().value;
                assert!(of(unread) <= 1.1 * of(empty) + ROUNDING, "{with_unread} {}", kind.name());
            }
        }
    }
}
