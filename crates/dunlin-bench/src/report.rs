//! The report: rows with goals, as a table or as JSON lines.

use std::io::{self, Write};

use serde::Serialize;

use crate::bench::Goal;
use crate::measure::{self, Outcome};
use crate::program::Bench;

/// The report could not be printed.
#[derive(Debug, thiserror::Error)]
#[error("the output could not be written: {0}; make room, or let it go elsewhere")]
pub(crate) struct Unprinted(#[from] io::Error);

impl Unprinted {
    /// The reader has closed the pipe, which is no failure.
    pub(crate) fn is_unread(&self) -> bool {
        self.0.kind() == io::ErrorKind::BrokenPipe
    }
}

/// One line of the report.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    bench: &'static str,
    who: &'static str,
    workers: usize,
    value: f64,
    unit: &'static str,
    /// Its reference; `None` for the reference itself, and if the reference is missing.
    vs: Option<&'static str>,
    /// The ratio of its value to that of `vs`: below 1 is less time or memory.
    ratio: Option<f64>,
    #[serde(skip)]
    goal: Option<Goal>,
}

/// Compares every outcome with Go's, or that of Go's substitute, with the same number of workers.
pub(crate) fn rows(bench: &Bench, outcomes: &[Outcome]) -> Vec<Row> {
    outcomes
        .iter()
        .map(|outcome| {
            let versus = bench.versus();
            let them = outcomes
                .iter()
                .find(|other| other.who == versus && other.workers == outcome.workers && outcome.who != versus);
            Row {
                bench: bench.name,
                who: outcome.who,
                workers: outcome.workers,
                value: measure::median(&outcome.values),
                unit: bench.unit,
                vs: them.map(|them| them.who),
                ratio: them.map(|them| measure::ratio(&outcome.values, &them.values)),
                goal: Goal::of(bench, outcome.who),
            }
        })
        .collect()
}

/// Prints each row as one JSON object on a line of its own.
pub(crate) fn print_json(rows: &[impl Serialize]) -> Result<(), Unprinted> {
    let lines: serde_json::Result<Vec<String>> = rows.iter().map(serde_json::to_string).collect();
    lines.map_err(io::Error::from)?.iter().try_for_each(|line| print_line(line))
}

/// Prints a line. (`println!` would panic on a failure.)
pub(crate) fn print_line(line: &str) -> Result<(), Unprinted> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

/// Prints an aligned table, with the goals and whether they are reached.
pub(crate) fn print_table(rows: &[Row]) -> Result<(), Unprinted> {
    let heading = ["bench", "who", "workers", "value", "unit", "ratio", "goal", ""].map(str::to_owned);
    let lines: Vec<[String; 8]> = std::iter::once(heading).chain(rows.iter().map(cells)).collect();
    print_aligned(&lines, |column| matches!(column, 2 | 3))
}

/// Prints lines with aligned cells: numbers to the right, words to the left.
pub(crate) fn print_aligned<const COLUMNS: usize>(
    lines: &[[String; COLUMNS]],
    is_number: impl Fn(usize) -> bool,
) -> Result<(), Unprinted> {
    let width: [usize; COLUMNS] =
        std::array::from_fn(|column| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0));
    for line in lines {
        let mut text = String::new();
        for (column, cell) in line.iter().enumerate() {
            let width = width[column];
            text += &if is_number(column) { format!("{cell:>width$}  ") } else { format!("{cell:<width$}  ") };
        }
        print_line(text.trim_end())?;
    }
    print_line("")
}

fn cells(row: &Row) -> [String; 8] {
    let goal = row.goal.map_or_else(String::new, |goal| match goal {
        Goal::OneOverOfGo(times) => format!("at most 1/{times} of Go"),
        Goal::Times(times) => format!("at most {times:.2} of that"),
        Goal::AtMost(limit) => format!("at most {limit}"),
    });
    let verdict = match row.goal.map(|goal| goal.reached(row.value, row.ratio)) {
        None => "",
        Some(Some(true)) => "reached",
        Some(Some(false)) => "missed",
        Some(None) => "not judged: nothing to compare with",
    };
    [
        row.bench.to_owned(),
        row.who.to_owned(),
        row.workers.to_string(),
        if row.value < 1.0 { format!("{:.3}", row.value) } else { format!("{:.1}", row.value) },
        row.unit.to_owned(),
        row.ratio.zip(row.vs).map_or_else(String::new, |(ratio, vs)| of(ratio, vs)),
        goal,
        verdict.to_owned(),
    ]
}

/// "1/6.8 of Go" for a much lower value, "0.93 of Go" and "1.30 of Go" for a similar or higher one.
fn of(ratio: f64, vs: &str) -> String {
    if ratio < 0.75 { format!("1/{:.1} of {vs}", 1.0 / ratio) } else { format!("{ratio:.2} of {vs}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench;
    use crate::dunlin_side::{PAR, SPAWN};
    use crate::peers::go::GO;
    use crate::program::Program;

    fn commstime(outcomes: &[Outcome]) -> Vec<Row> {
        rows(&bench::benches(Program::Commstime, true)[0], outcomes)
    }

    fn outcome(who: &'static str, workers: usize, values: &[f64]) -> Outcome {
        Outcome { who, workers, values: values.to_vec() }
    }

    #[test]
    fn json_has_exactly_the_promised_fields_in_order() {
        let rows = commstime(&[outcome(GO, 1, &[100.0]), outcome(PAR, 1, &[12.5])]);
        assert_eq!(
            serde_json::to_string(&rows[1]).expect("a row is plain data"),
            r#"{"bench":"commstime","who":"dunlin par","workers":1,"value":12.5,"unit":"ns/communication","vs":"go","ratio":0.125}"#
        );
        assert_eq!(
            serde_json::to_string(&rows[0]).expect("a row is plain data"),
            r#"{"bench":"commstime","who":"go","workers":1,"value":100.0,"unit":"ns/communication","vs":null,"ratio":null}"#
        );
    }

    #[test]
    fn rows_compare_with_go_at_the_same_worker_count() {
        let rows = commstime(&[
            outcome(GO, 1, &[100.0]),
            outcome(GO, 2, &[400.0]),
            outcome(SPAWN, 1, &[50.0]),
            outcome(SPAWN, 2, &[50.0]),
        ]);
        assert_eq!(rows[2].ratio, Some(0.5));
        assert_eq!(rows[3].ratio, Some(0.125));
    }

    #[test]
    fn a_row_shows_whether_its_goal_is_reached() {
        let rows = commstime(&[outcome(GO, 1, &[100.0]), outcome(PAR, 1, &[12.5]), outcome(SPAWN, 1, &[50.0])]);
        assert_eq!(cells(&rows[1])[5..], ["1/8.0 of go", "at most 1/6.5 of Go", "reached"]);
        assert_eq!(cells(&rows[2])[5..], ["1/2.0 of go", "at most 1/2.8 of Go", "missed"]);
        let alone = commstime(&[outcome(PAR, 1, &[12.5])]);
        assert_eq!(cells(&alone[0])[5..], ["", "at most 1/6.5 of Go", "not judged: nothing to compare with"]);
    }

    #[test]
    fn only_small_ratios_are_shown_as_fractions() {
        assert_eq!(of(0.147, "go"), "1/6.8 of go");
        assert_eq!(of(0.93, "go"), "0.93 of go");
        assert_eq!(of(1.26, "tokio tcp"), "1.26 of tokio tcp");
    }
}
