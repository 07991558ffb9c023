//! The bytes on the wire besides the messages.

use serde::{Deserialize, Serialize};

use super::error::PonyError;
use super::link::ETHERNET;
use super::over_dunlin::{DUNLIN, FIFO};
use super::plot::{Axis, Chart, Scale, Series, bytes};
use super::run::Measured;
use super::task::Task;
use super::{How, at, mean};
use crate::remote::{TCP, TCP_ACKED};

/// The maximum percentage that dunlin may add to messages of this many bytes: the issue names it as pony's.
const GOAL: (usize, f64) = (100_000, 1.8);

const ALL: [&str; 4] = [TCP, TCP_ACKED, DUNLIN, FIFO];

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Row {
    size: usize,
    who: String,
    messages: u64,
    /// Bytes for each message that the program adds, in both directions: frames, encodings, answers; for
    /// plain sockets the length.
    own_bytes: f64,
    own_percent: f64,
    /// Bytes for each message that the network adds, in both directions: headers of TCP, IP and Ethernet, and
    /// acknowledgements. `None` if they could not be counted.
    network_bytes: Option<f64>,
    network_percent: Option<f64>,
    /// Packets for each message, in both directions.
    packets: Option<f64>,
    /// The maximum of `own_percent`, and whether `own_percent` is within it.
    goal_percent: Option<f64>,
    reached: Option<bool>,
    #[serde(flatten)]
    how: How,
}

pub(super) fn points(how: &How, asked: Option<&[usize]>) -> Result<Vec<Vec<Task>>, PonyError> {
    let usual = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000];
    let point = |size: usize| {
        // Enough that a heartbeat or two do not matter; 100 MB of large messages.
        let count = (100_000_000 / size as u64).clamp(100, 20_000) / if how.quick { 20 } else { 1 };
        ALL.map(|who| Task { count, ..how.task(who, size) }).to_vec()
    };
    Ok(at(&usual, asked, 16_000_000)?.into_iter().map(point).collect())
}

pub(super) fn rows(how: &How, outcomes: &[(Task, Vec<Measured>)]) -> Vec<Row> {
    let row = |(task, measured): &(Task, Vec<Measured>)| {
        let size = task.payload() as f64;
        let each = |of: fn(&Measured) -> Option<u64>| -> Option<f64> {
            let runs: Option<Vec<f64>> =
                measured.iter().map(|one| of(one).map(|all| all as f64 / one.messages as f64)).collect();
            runs.map(|runs| mean(&runs))
        };
        let carried = each(|one| one.carried)?;
        let packets = each(|one| one.link.map(|link| link.packets));
        let on_link = each(|one| one.link.map(|link| link.bytes + ETHERNET * link.packets));
        let network_bytes = on_link.map(|on_link| on_link - carried);
        let own_percent = 100.0 * (carried - size) / size;
        let goal = (task.size == GOAL.0 && [DUNLIN, FIFO].contains(&task.who.as_str())).then_some(GOAL.1);
        Some(Row {
            size: task.size,
            who: task.who.clone(),
            messages: task.count,
            own_bytes: carried - size,
            own_percent,
            network_bytes,
            network_percent: network_bytes.map(|bytes| 100.0 * bytes / size),
            packets,
            goal_percent: goal,
            reached: goal.map(|goal| own_percent <= goal),
            how: *how,
        })
    };
    outcomes.iter().filter_map(row).collect()
}

/// The rows of this sweep; if two are for the same point, the later one.
pub(super) fn of(rows: &[super::Row]) -> Vec<Row> {
    let mut all: Vec<Row> = Vec::new();
    for row in rows {
        if let super::Row::Overhead(row) = row {
            all.retain(|other| (&other.who, other.size) != (&row.who, row.size));
            all.push(row.clone());
        }
    }
    all
}

pub(super) fn table(rows: &[Row]) -> Vec<[String; 8]> {
    let heading =
        ["size", "who", "own, B/message", "own, %", "network, B/message", "network, %", "packets/message", "goal"];
    let cells = |row: &Row| {
        let number = |value: Option<f64>, digits: usize| {
            value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
        };
        let goal = row
            .goal_percent
            .zip(row.reached)
            .map(|(goal, reached)| format!("own at most {goal} %: {}", if reached { "reached" } else { "missed" }));
        [
            bytes(row.size),
            row.who.clone(),
            number(Some(row.own_bytes), 1),
            number(Some(row.own_percent), 3),
            number(row.network_bytes, 1),
            number(row.network_percent, 2),
            number(row.packets, 2),
            goal.unwrap_or_default(),
        ]
    };
    std::iter::once(heading.map(str::to_owned)).chain(rows.iter().map(cells)).collect()
}

pub(super) fn chart(rows: &[Row]) -> Option<Chart> {
    let how = rows.first()?.how;
    let series = |name: &str, who: &str, is_dashed: bool, percent: fn(&Row) -> Option<f64>| Series {
        name: name.to_owned(),
        points: rows
            .iter()
            .filter(|row| row.who == who)
            .filter_map(|row| Some((row.size as f64, percent(row)?)))
            .collect(),
        is_dashed,
    };
    Some(Chart {
        title: "Bytes on the wire beside the messages, one worker".to_owned(),
        below: how.below(false),
        x: Axis { label: "bytes of a message".to_owned(), scale: Scale::Log, is_bytes: true },
        y: Axis { label: "% of the message".to_owned(), scale: Scale::Log, is_bytes: false },
        series: vec![
            series("network, tokio tcp", TCP, true, |row| row.network_percent),
            series("network, tokio tcp, acked", TCP_ACKED, true, |row| row.network_percent),
            series("network, dunlin", DUNLIN, true, |row| row.network_percent),
            series("network, dunlin, fifo(16)", FIFO, true, |row| row.network_percent),
            series("dunlin's own", DUNLIN, false, |row| Some(row.own_percent)),
            series("dunlin's own, fifo(16)", FIFO, false, |row| Some(row.own_percent)),
        ],
        goal: Some((GOAL.1, "goal for dunlin's own at 100 KB: 1.8 %".to_owned())),
    })
}
