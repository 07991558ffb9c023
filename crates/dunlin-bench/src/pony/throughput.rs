//! The throughput of a master whose workers send as fast as it receives.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::error::PonyError;
use super::over_dunlin::{DUNLIN, FIFO};
#[cfg(feature = "link")]
use super::over_link::{LINK, LINK_FIFO};
use super::over_tcp::{ANSWERED, EACH, MUX, OWNED};
use super::plot::{Axis, Chart, Scale, Series, bytes};
use super::run::Measured;
use super::task::Task;
use super::{How, at, mean};
use crate::measure;

/// The varied quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Vary {
    Nodes,
    Size,
    Workers,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) vary: Vary,
    nodes: usize,
    /// The number of workers at each node.
    workers: usize,
    size: usize,
    who: String,
    /// The mean of `runs`.
    mb_per_second: f64,
    messages_per_second: f64,
    /// Megabytes per second of each round.
    runs: Vec<f64>,
    /// The best of [its references](peers), and what part of its throughput this participant reaches: the
    /// median over the rounds.
    vs: Option<String>,
    ratio: Option<f64>,
    #[serde(flatten)]
    how: How,
}

const PLAIN: [&str; 2] = [MUX, EACH];
const SOCKETS: [&str; 4] = [MUX, EACH, ANSWERED, OWNED];

/// From this size on, copying a message costs more than everything else.
const LARGE: usize = 10_000;

/// The references of a participant: sockets that do as much work for each message.
fn peers(task: &Task) -> &'static [&'static str] {
    let is_socket = SOCKETS.contains(&task.who.as_str());
    // In a participant's name, its policy follows a comma.
    let is_rendezvous = !task.who.contains(',');
    match task.payload() {
        _ if is_socket => &PLAIN,
        LARGE.. => &[OWNED],
        _ if is_rendezvous => &[ANSWERED],
        _ => &PLAIN,
    }
}

pub(super) fn points(vary: Vary, how: &How, asked: Option<&[usize]>) -> Result<Vec<Vec<Task>>, PonyError> {
    let (usual, max): (&[usize], usize) = match vary {
        Vary::Nodes => (&[1, 2, 5, 10, 15, 20, 25], 100),
        Vary::Size => (&[1, 10, 100, 1_000, 10_000, 100_000, 1_000_000], 16_000_000),
        Vary::Workers => (&[1, 2, 5, 10, 20, 50, 100, 200, 500], 5_000),
    };
    let point = |at: usize| {
        let (nodes, workers, size) = match vary {
            Vary::Nodes => (at, 2, 100_000),
            Vary::Size => (1, 50, at),
            Vary::Workers => (1, at, 50_000),
        };
        let all = [MUX, EACH, ANSWERED, OWNED, DUNLIN, FIFO];
        let task = |who: &str| Task { nodes, workers, ..how.task(who, size) };
        let tasks = all.into_iter().map(task);
        #[cfg(feature = "link")]
        let tasks = tasks.chain([LINK, LINK_FIFO].into_iter().map(task));
        tasks.collect()
    };
    Ok(at(usual, asked, max)?.into_iter().map(point).collect())
}

pub(super) fn rows(vary: Vary, how: &How, outcomes: &[(Task, Vec<Measured>)]) -> Vec<Row> {
    let runs = |(task, measured): &(Task, Vec<Measured>)| -> Vec<f64> {
        measured.iter().map(|one| 1e-6 * one.messages as f64 * task.payload() as f64 / one.seconds).collect()
    };
    let row = |outcome: &(Task, Vec<Measured>)| {
        let (task, own) = (&outcome.0, runs(outcome));
        let peers = outcomes.iter().filter(|(other, _)| peers(task).contains(&other.who.as_str()));
        let best = peers.max_by(|one, other| mean(&runs(one)).total_cmp(&mean(&runs(other))));
        let versus = best.filter(|(best, _)| best.who != task.who);
        let mb_per_second = mean(&own);
        Row {
            vary,
            nodes: task.nodes,
            workers: task.workers,
            size: task.size,
            who: task.who.clone(),
            mb_per_second,
            messages_per_second: 1e6 * mb_per_second / task.payload() as f64,
            vs: versus.map(|(best, _)| best.who.clone()),
            ratio: versus.map(|best| measure::ratio(&own, &runs(best))),
            runs: own,
            how: *how,
        }
    };
    outcomes.iter().map(row).collect()
}

/// The rows of a sweep; if two are for the same point, the later one.
pub(super) fn of(vary: Vary, rows: &[super::Row]) -> Vec<Row> {
    let mut all: Vec<Row> = Vec::new();
    for row in rows {
        if let super::Row::Throughput(row) = row
            && row.vary == vary
        {
            all.retain(|other| (&other.who, other.x()) != (&row.who, row.x()));
            all.push(row.clone());
        }
    }
    all
}

impl Row {
    /// The varied quantity.
    fn x(&self) -> usize {
        match self.vary {
            Vary::Nodes => self.nodes,
            Vary::Size => self.size,
            Vary::Workers => self.workers,
        }
    }
}

pub(super) fn table(rows: &[Row]) -> Vec<[String; 8]> {
    let heading = ["nodes", "workers each", "size", "who", "MB/s", "messages/s", "least to greatest MB/s", "beside"];
    let cells = |row: &Row| {
        let least = row.runs.iter().copied().fold(f64::INFINITY, f64::min);
        let greatest = row.runs.iter().copied().fold(0.0, f64::max);
        [
            row.nodes.to_string(),
            row.workers.to_string(),
            bytes(row.size),
            row.who.clone(),
            number(row.mb_per_second),
            format!("{:.0}", row.messages_per_second),
            format!("{} to {}", number(least), number(greatest)),
            row.ratio.zip(row.vs.as_ref()).map_or_else(String::new, |(ratio, vs)| format!("{ratio:.2} of {vs}")),
        ]
    };
    std::iter::once(heading.map(str::to_owned)).chain(rows.iter().map(cells)).collect()
}

fn number(value: f64) -> String {
    if value < 10.0 { format!("{value:.2}") } else { format!("{value:.0}") }
}

pub(super) fn chart(vary: Vary, rows: &[Row]) -> Option<Chart> {
    let how = rows.first()?.how;
    let (title, label, x_scale, y_scale) = match vary {
        Vary::Nodes => ("2 workers at each node, messages of 100 KB", "nodes", Scale::Linear, Scale::Linear),
        Vary::Size => ("50 workers at one node", "bytes of a message", Scale::Log, Scale::Log),
        Vary::Workers => ("one node, messages of 50 KB", "workers", Scale::Log, Scale::Linear),
    };
    let series = |who: &&str| Series {
        name: (*who).to_owned(),
        points: rows.iter().filter(|row| row.who == *who).map(|row| (row.x() as f64, row.mb_per_second)).collect(),
        is_dashed: SOCKETS.contains(who),
    };
    Some(Chart {
        title: format!("Throughput at the master: {title}"),
        below: how.below(true),
        x: Axis { label: label.to_owned(), scale: x_scale, is_bytes: vary == Vary::Size },
        y: Axis { label: "MB/s".to_owned(), scale: y_scale, is_bytes: false },
        series: [MUX, EACH, ANSWERED, OWNED, DUNLIN, FIFO].iter().map(series).collect(),
        goal: None,
    })
}
