//! Processor time of a send, of the sender's and the receiver's process together.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::error::PonyError;
use super::over_dunlin::{DUNLIN, FIFO};
use super::plot::{Axis, Chart, Scale, Series, bytes};
use super::run::{Measured, Usage};
use super::task::Task;
use super::{How, at, mean};
use crate::measure;
use crate::remote::{TCP, TCP_ACKED};

/// The varied quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Vary {
    Size,
    Items,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) vary: Vary,
    /// The size of each item, if there are items.
    size: usize,
    items: usize,
    who: String,
    /// Microseconds of processor time for each send: mean of `runs`.
    us_per_send: f64,
    user_us: f64,
    system_us: f64,
    sender_us: f64,
    receiver_us: f64,
    runs: Vec<f64>,
    /// The plain sockets that do the same, and how many microseconds more this participant takes: the median
    /// over the rounds.
    vs: Option<String>,
    more_us: Option<f64>,
    #[serde(flatten)]
    how: How,
}

/// The peer that does the same over plain sockets.
fn versus(who: &str) -> Option<&'static str> {
    match who {
        DUNLIN => Some(TCP_ACKED),
        FIFO => Some(TCP),
        _ => None,
    }
}

/// Bytes of an item.
const ITEMS: [usize; 3] = [1, 1_000, 1_000_000];
/// Larger messages show nothing new.
const MESSAGE_MAX: usize = 10_000_000;

pub(super) fn points(vary: Vary, how: &How, asked: Option<&[usize]>) -> Result<Vec<Vec<Task>>, PonyError> {
    match vary {
        Vary::Size => {
            let usual = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000];
            let point = |size| [TCP, TCP_ACKED, DUNLIN, FIFO].map(|who| how.task(who, size)).to_vec();
            Ok(at(&usual, asked, MESSAGE_MAX)?.into_iter().map(point).collect())
        }
        Vary::Items => {
            let at = at(&[1, 2, 5, 10, 100, 1_000, 10_000], asked, MESSAGE_MAX)?;
            let all = ITEMS.iter().flat_map(|size| at.iter().map(move |items| (*size, *items)));
            let point = |(size, items)| [TCP_ACKED, DUNLIN].map(|who| Task { items, ..how.task(who, size) }).to_vec();
            Ok(all.filter(|(size, items)| size * items <= MESSAGE_MAX).map(point).collect())
        }
    }
}

pub(super) fn rows(vary: Vary, how: &How, outcomes: &[(Task, Vec<Measured>)]) -> Vec<Row> {
    let runs = |measured: &[Measured], of: fn(&Measured) -> f64| -> Vec<f64> {
        measured.iter().map(|one| 1e6 * of(one) / one.messages as f64).collect()
    };
    let all = |one: &Measured| (one.master + one.nodes).total();
    let row = |(task, measured): &(Task, Vec<Measured>)| {
        let own = runs(measured, all);
        let plain = outcomes.iter().find(|(other, _)| Some(other.who.as_str()) == versus(&task.who));
        let more = plain.map(|(_, plain)| {
            let differences: Vec<f64> = own.iter().zip(runs(plain, all)).map(|(own, plain)| own - plain).collect();
            measure::median(&differences)
        });
        let of = |of: fn(&Measured) -> f64| mean(&runs(measured, of));
        Row {
            vary,
            size: task.size,
            items: task.items,
            who: task.who.clone(),
            us_per_send: mean(&own),
            user_us: of(|one| (one.master + one.nodes).user),
            system_us: of(|one| (one.master + one.nodes).system),
            sender_us: of(|one| Usage::total(one.nodes)),
            receiver_us: of(|one| Usage::total(one.master)),
            vs: plain.map(|(plain, _)| plain.who.clone()),
            more_us: more,
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
        if let super::Row::Cpu(row) = row
            && row.vary == vary
        {
            all.retain(|other| (&other.who, other.size, other.items) != (&row.who, row.size, row.items));
            all.push(row.clone());
        }
    }
    all
}

pub(super) fn table(rows: &[Row]) -> Vec<[String; 9]> {
    let heading =
        ["items", "size", "who", "us/send", "user", "system", "sender", "receiver", "more than plain sockets, us"];
    let cells = |row: &Row| {
        let us = |value: f64| format!("{value:.1}");
        [
            if row.items == 0 { "-".to_owned() } else { row.items.to_string() },
            bytes(row.size),
            row.who.clone(),
            us(row.us_per_send),
            us(row.user_us),
            us(row.system_us),
            us(row.sender_us),
            us(row.receiver_us),
            row.more_us.map_or_else(String::new, us),
        ]
    };
    std::iter::once(heading.map(str::to_owned)).chain(rows.iter().map(cells)).collect()
}

pub(super) fn chart(vary: Vary, rows: &[Row]) -> Option<Chart> {
    let how = rows.first()?.how;
    let y = Axis { label: "us of processor time for each send".to_owned(), scale: Scale::Log, is_bytes: false };
    if vary == Vary::Size {
        let series = |who: &&str| Series {
            name: (*who).to_owned(),
            points: rows.iter().filter(|row| row.who == *who).map(|row| (row.size as f64, row.us_per_send)).collect(),
            is_dashed: who.starts_with("tokio"),
        };
        return Some(Chart {
            title: "Processor time of both sides for each send, by size".to_owned(),
            below: how.below(true),
            x: Axis { label: "bytes of a message".to_owned(), scale: Scale::Log, is_bytes: true },
            y,
            series: [TCP, TCP_ACKED, DUNLIN, FIFO].iter().map(series).collect(),
            goal: None,
        });
    }
    let series = |(size, who): (usize, &str)| Series {
        name: format!("{who}, items of {}", bytes(size)),
        points: rows
            .iter()
            .filter(|row| row.who == who && row.size == size)
            .map(|row| (row.items as f64, row.us_per_send))
            .collect(),
        is_dashed: who == TCP_ACKED,
    };
    Some(Chart {
        title: "Processor time of both sides for each send, by items in it".to_owned(),
        below: how.below(true),
        x: Axis { label: "items of a message".to_owned(), scale: Scale::Log, is_bytes: false },
        y,
        series: ITEMS.iter().flat_map(|&size| [TCP_ACKED, DUNLIN].map(|who| (size, who))).map(series).collect(),
        goal: None,
    })
}
