//! What people read of a node's events, through `tracing`: which events, at which level, and how many
//! refusals.
//!
//! Lines are written where nothing is locked ([`Log`]): a subscriber is users' code.

use std::collections::VecDeque;
use std::fmt;
use std::io::Write;
use std::sync::Mutex;
use std::time::Duration;

use dunlin_proto::Source;
use dunlin_proto::time::Time;
use tracing::Level;
use tracing::level_filters::LevelFilter;

use super::events::{Limit, NodeEvent};
use super::{ConnectionState, Down, Peer};
use crate::lock::lock;
use crate::world;

/// Events that are still to be written for people.
#[derive(Default)]
pub(crate) struct Log {
    application: String,
    /// The node is one of a runtime of dunlin's own, which prints events that nothing else would show.
    in_own_runtime: bool,
    lines: Mutex<VecDeque<Line>>,
    /// Held by the writing thread: one at a time, so that lines stay in order.
    writing: Mutex<()>,
}

impl Log {
    pub(crate) fn new(application: String, in_own_runtime: bool) -> Self {
        Self { application, in_own_runtime, ..Self::default() }
    }

    /// The application of the log's node.
    pub(crate) fn application(&self) -> &str {
        &self.application
    }

    /// Adds lines to be written after those that are here.
    pub(crate) fn keep(&self, lines: Vec<Line>) {
        lock(&self.lines).extend(lines);
    }

    /// Writes all lines. Must not be called where the node is locked.
    pub(crate) fn write(&self) {
        while !lock(&self.lines).is_empty() {
            // The thread that is writing takes these lines as well.
            let Ok(_writing) = self.writing.try_lock() else { return };
            loop {
                let next = lock(&self.lines).pop_front();
                let (level, event) = match next {
                    None => break,
                    Some(Line::Event(level, event)) => (level, event),
                    Some(Line::Unwritten(count)) => {
                        let application = &self.application;
                        tracing::warn!(target: "dunlin::node", application, "{count} more refusals in the last minute");
                        continue;
                    }
                    Some(Line::UnwrittenEvents(count)) => {
                        let application = &self.application;
                        tracing::warn!(target: "dunlin::node", application, "{count} more events in the last minute");
                        continue;
                    }
                };
                if self.in_own_runtime && event.is_for_stderr() {
                    tell(&self.application, format_args!("{event}"));
                }
                write(&self.application, level, &event);
            }
        }
    }
}

/// Whether the program has no subscriber of `tracing`: important lines then go to its standard error.
pub(super) fn nobody_reads() -> bool {
    !tracing::dispatcher::has_been_set() && !world::is_simulated()
}

/// Writes to standard error. A closed one is no reason to panic.
pub(super) fn tell(application: &str, what: fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "dunlin: application {application:?}: {what}");
}

fn write(application: &str, level: Level, event: &NodeEvent) {
    // A level is part of the call site of an event: it cannot be chosen at run time.
    macro_rules! write_at {
        ($level:expr) => {
            match event.peer() {
                Some(peer) => tracing::event!(target: "dunlin::node", $level, application, %peer, "{event}"),
                None => tracing::event!(target: "dunlin::node", $level, application, "{event}"),
            }
        };
    }
    match level {
        Level::WARN => write_at!(Level::WARN),
        Level::INFO => write_at!(Level::INFO),
        _ => write_at!(Level::DEBUG),
    }
}

/// A line for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    Event(Level, NodeEvent),
    /// How many refusals were not written in the minute that is over.
    Unwritten(u64),
    /// The same for events that are not refusals.
    UnwrittenEvents(u64),
}

/// How many refusals are written in a minute, of as many sources.
const LINES_MAX: usize = 10;

/// How many other events are written in a minute: other nodes cause most of these too, by joining and
/// leaving.
const EVENTS_MAX: usize = 1_000;

const MINUTE: Duration = Duration::from_secs(60);

/// Keeps the log from becoming a flood itself. Of the refusals in a minute it writes one for each source, and
/// [`LINES_MAX`] in all; of other events [`EVENTS_MAX`]. The rest are counted.
#[derive(Debug, Default)]
pub(super) struct Throttle {
    /// When the present minute ends. `None`: nothing has been refused lately.
    until: Option<Time>,
    /// The sources of which a refusal was written.
    sources: Vec<Source>,
    unwritten: u64,
    /// Other events that were written, and those that were not.
    events: usize,
    unwritten_events: u64,
}

impl Throttle {
    /// Whether a refusal of this source is to be written.
    pub(super) fn admits(&mut self, now: Time, source: Source) -> bool {
        self.until.get_or_insert(now + MINUTE);
        let is_written = self.sources.len() < LINES_MAX && !self.sources.contains(&source);
        if is_written {
            self.sources.push(source);
        } else {
            self.unwritten += 1;
        }
        is_written
    }

    /// Whether another event is to be written.
    pub(super) fn admits_event(&mut self, now: Time) -> bool {
        self.until.get_or_insert(now + MINUTE);
        let is_written = self.events < EVENTS_MAX;
        if is_written {
            self.events += 1;
        } else {
            self.unwritten_events += 1;
        }
        is_written
    }

    /// When to ask what is [over](Self::over), if anything waits for that.
    pub(super) fn due(&self) -> Option<Time> {
        self.until.filter(|_| self.unwritten > 0 || self.unwritten_events > 0)
    }

    /// After the minute: what was not written in it, if anything.
    pub(super) fn over(&mut self, now: Time) -> impl Iterator<Item = Line> + use<> {
        let is_over = self.until.is_some_and(|until| now >= until);
        let last = if is_over { std::mem::take(self) } else { Self::default() };
        let refusals = (last.unwritten > 0).then_some(Line::Unwritten(last.unwritten));
        let events = (last.unwritten_events > 0).then_some(Line::UnwrittenEvents(last.unwritten_events));
        refusals.into_iter().chain(events)
    }
}

impl NodeEvent {
    /// The level of the event in the log.
    pub(super) fn level(&self) -> Level {
        match self {
            Self::Connection(_, ConnectionState::Lost) => Level::WARN,
            Self::Connection(_, ConnectionState::Down(why))
                if !matches!(why, Down::Left | Down::Leaving | Down::Violation(_)) =>
            {
                Level::WARN
            }
            // They are logged as joined, as having left, and as a limit.
            Self::Connection(_, ConnectionState::Up | ConnectionState::Down(_)) => Level::DEBUG,
            Self::Joined { .. } | Self::Connection(..) | Self::Closing { .. } => Level::INFO,
            Self::Left { in_order, .. } => {
                if *in_order {
                    Level::INFO
                } else {
                    Level::WARN
                }
            }
            // This is normal while this node looks for its name service.
            Self::Unwelcome { .. } => Level::DEBUG,
            Self::Refused { .. }
            | Self::Stranger { .. }
            | Self::Mismatch { .. }
            | Self::Unreadable { .. }
            | Self::Limit(_)
            | Self::Conflict(_)
            | Self::MainLost { .. } => Level::WARN,
        }
    }

    /// Whether the event is written anywhere at this level.
    pub(super) fn is_of_interest(&self, level: Level) -> bool {
        level <= LevelFilter::current() || self.is_for_stderr()
    }

    /// Whether it goes to standard error under a runtime of dunlin's own: a mismatch, if the program has no
    /// subscriber of `tracing`. Otherwise the end that was declared first would only wait, without a message.
    fn is_for_stderr(&self) -> bool {
        matches!(self, Self::Mismatch { .. }) && nobody_reads()
    }

    /// The node that it is about.
    fn peer(&self) -> Option<Peer> {
        match self {
            Self::Joined { peer, .. }
            | Self::Left { peer, .. }
            | Self::Connection(peer, _)
            | Self::MainLost { peer, .. }
            | Self::Unreadable { peer, .. }
            | Self::Limit(
                Limit::Guests { peer, .. }
                | Limit::Memory { peer, .. }
                | Limit::Registrations { peer, .. }
                | Limit::Relays { peer }
                | Limit::Lists { peer, .. }
                | Limit::Halves { peer, .. }
                | Limit::DialBacks { peer }
                | Limit::Post { peer }
                | Limit::Signal { peer }
                | Limit::Links { peer }
                | Limit::Mailbox { peer }
                | Limit::Admittance { peer, .. }
                | Limit::Peer { peer, .. },
            ) => Some(*peer),
            Self::Conflict(conflict) => Some(conflict.holder),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(last: u8) -> Source {
        Source::V4([10, 0, 0, last])
    }

    #[test]
    fn refusals_are_written_once_for_a_source_and_ten_times_in_a_minute() {
        let mut throttle = Throttle::default();
        let (begin, second) = (Time(0), Duration::from_secs(1));
        assert_eq!(throttle.due(), None);
        let written = (0..100).filter(|n| throttle.admits(begin + second, host(n / 4))).count();
        assert_eq!(written, LINES_MAX);
        let end = begin + second + MINUTE;
        assert_eq!((throttle.due(), throttle.over(begin + MINUTE).next()), (Some(end), None));
        assert_eq!(throttle.over(end).collect::<Vec<_>>(), [Line::Unwritten(90)]);
        assert_eq!((throttle.due(), throttle.over(end + MINUTE).next()), (None, None));
        // A new minute has lines of its own, and no count if all were written.
        assert!(throttle.admits(end, host(1)));
        assert_eq!(throttle.due(), None);
        assert_eq!(throttle.over(end + MINUTE).next(), None);
    }

    #[test]
    fn other_events_are_written_a_thousand_times_in_a_minute() {
        let (mut throttle, begin) = (Throttle::default(), Time(7));
        assert_eq!((0..1_500).filter(|_| throttle.admits_event(begin)).count(), EVENTS_MAX);
        // Refusals have lines of their own.
        assert!(throttle.admits(begin, host(1)));
        assert_eq!(throttle.over(begin + MINUTE).collect::<Vec<_>>(), [Line::UnwrittenEvents(500)]);
        assert!(throttle.admits_event(begin + MINUTE));
    }
}
