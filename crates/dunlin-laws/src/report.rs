//! Runs the laws over a transport and reports the results.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{Once, PoisonError, RwLock};

use crate::kind::Kind;
use crate::law::{Cx, Law};
use crate::rig::Rig;
use crate::transport::Transport;

/// How many seeds each cell of the matrix runs under, unless `DUNLIN_SEEDS` overrides it.
pub const SEEDS: u64 = 50;

/// The result of one cell.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The law held under all seeds.
    Held,
    /// The law held with all handles of the shared end at one node, for this reason.
    HeldAtOneNode(&'static str),
    /// The law does not apply to this policy.
    NotApplicable,
    /// The transport lacks a feature that the law needs, for this reason.
    Hole(&'static str),
    /// The law is broken, under this seed, with this message.
    Broken {
        /// The seed.
        seed: u64,
        /// The message of the law's panic.
        message: String,
    },
}

impl Outcome {
    fn is_held(&self) -> bool {
        matches!(self, Self::Held | Self::HeldAtOneNode(_))
    }

    /// Why the cell is less than a full `ok`.
    fn reason(&self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Hole(why) => Some(("hole", why)),
            Self::HeldAtOneNode(why) => Some(("one node", why)),
            _ => None,
        }
    }
}

/// The matrix of one transport.
#[derive(Clone, Debug)]
pub struct Report {
    transport: &'static str,
    kinds: Vec<&'static str>,
    rows: Vec<(&'static str, Vec<Outcome>)>,
    /// The command that runs these laws.
    command: String,
}

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
    static LAST: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Keeps panics of this thread out of the output while a law runs: many laws panic on purpose.
fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                return before(info);
            }
            let at = info.location().map(ToString::to_string).unwrap_or_default();
            let text = text(info.payload()).replace('\n', ";");
            LAST.with(|last| *last.borrow_mut() = format!("{text} ({at})"));
        }));
    });
}

fn text(payload: &(dyn Any + Send)) -> String {
    match (payload.downcast_ref::<String>(), payload.downcast_ref::<&str>()) {
        (Some(text), _) => text.clone(),
        (_, Some(text)) => (*text).to_string(),
        _ => "a panic without a text".to_string(),
    }
}

fn number(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name} must be a number, not {value:?}")))
}

/// Runs `laws` over `kinds` on `transport`.
///
/// `DUNLIN_SEED=n` runs seed n, `DUNLIN_SEEDS=n` n seeds, `DUNLIN_LAW=part` the laws with `part` in the name.
pub fn run<X: Transport>(transport: &X, kinds: &[Kind], laws: &[Law<X>]) -> Report {
    listen();
    let only = std::env::var("DUNLIN_LAW").unwrap_or_default();
    let rows = laws
        .iter()
        .filter(|law| law.name.contains(&only))
        .map(|law| (law.name, (0..).zip(kinds).map(|(column, kind)| cell(transport, kind, column, law)).collect()));
    // The test of this crate that runs this transport.
    let test = if transport.name() == "simulated" { "--features sim --test simulated" } else { "--test matrix" };
    Report {
        transport: transport.name(),
        kinds: kinds.iter().map(|kind| kind.name).collect(),
        rows: rows.collect(),
        command: format!("cargo test -p dunlin-laws {test} -- --nocapture"),
    }
}

/// Laws that advance the clock are slow, so they run under at most this many seeds.
const TIMED_SEEDS_MAX: u64 = 10;
static CLOCK: RwLock<()> = RwLock::new(());

fn cell<X: Transport>(transport: &X, kind: &Kind, column: u64, law: &Law<X>) -> Outcome {
    if !(law.applies)(kind) {
        return Outcome::NotApplicable;
    }
    if let Some(hole) = law.needs.iter().find_map(|feature| transport.hole(*feature, kind)) {
        return Outcome::Hole(hole);
    }
    let seeds = match number("DUNLIN_SEED") {
        Some(seed) => seed..seed + 1,
        None => {
            let count = law.seeds_max.min(transport.seeds_max()).min(number("DUNLIN_SEEDS").unwrap_or(SEEDS));
            // A transport with slow runs has few seeds per policy, so each policy gets different ones.
            let first = if transport.seeds_max() < SEEDS { column * count } else { 0 };
            first..first + count
        }
    };
    for seed in seeds {
        // The whole program has one clock, so a law that advances it runs alone.
        let (_alone, _beside) = if law.seeds_max <= TIMED_SEEDS_MAX || transport.moves_time() {
            (Some(CLOCK.write().unwrap_or_else(PoisonError::into_inner)), None)
        } else {
            (None, Some(CLOCK.read().unwrap_or_else(PoisonError::into_inner)))
        };
        QUIET.set(true);
        let ran = std::panic::catch_unwind(AssertUnwindSafe(|| {
            let rig = Rig::new(seed);
            transport.begin(&rig, seed);
            (law.run)(&Cx { rig: &rig, transport, kind });
            drop(rig);
            transport.end();
        }));
        QUIET.set(false);
        if ran.is_err() {
            return Outcome::Broken { seed, message: LAST.take() };
        }
    }
    match law.one_node {
        Some(because) if transport.has_nodes() => Outcome::HeldAtOneNode(because),
        _ => Outcome::Held,
    }
}

impl Report {
    /// Sets the command that runs these laws, if it is not that of this crate's own matrix.
    #[must_use]
    pub fn by(mut self, command: &str) -> Self {
        command.clone_into(&mut self.command);
        self
    }

    /// The number of cells that held.
    pub fn held(&self) -> usize {
        self.rows.iter().flat_map(|(_, cells)| cells).filter(|cell| cell.is_held()).count()
    }

    /// One line for each broken cell, with the command that runs it again.
    pub fn broken(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (law, cells) in &self.rows {
            for (kind, cell) in self.kinds.iter().zip(cells) {
                if let Outcome::Broken { seed, message } = cell {
                    lines.push(format!(
                        "{law} on {kind} over {} with seed {seed}: {message}\n    \
                         replay: DUNLIN_SEED={seed} DUNLIN_LAW={law} {}",
                        self.transport, self.command,
                    ));
                }
            }
        }
        lines
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = self.rows.iter().map(|(law, _)| law.len()).max().unwrap_or(0);
        write!(f, "{:first$}", self.transport)?;
        for kind in &self.kinds {
            write!(f, " {kind:>11}")?;
        }
        writeln!(f)?;
        for (law, cells) in &self.rows {
            write!(f, "{law:first$}")?;
            for cell in cells {
                let shown = match cell {
                    Outcome::Held => "ok",
                    Outcome::HeldAtOneNode(_) => "one node",
                    Outcome::NotApplicable => "n.a.",
                    Outcome::Hole(_) => "hole",
                    Outcome::Broken { .. } => "BROKEN",
                };
                write!(f, " {shown:>11}")?;
            }
            writeln!(f)?;
        }
        for (law, cells) in &self.rows {
            let mut reasons: Vec<_> = cells.iter().filter_map(Outcome::reason).collect();
            reasons.dedup();
            for (what, reason) in reasons {
                writeln!(f, "{law}: {what}: {reason}")?;
            }
        }
        Ok(())
    }
}
