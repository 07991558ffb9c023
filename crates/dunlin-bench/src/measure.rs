//! Runs the participants round by round, and computes with the figures that they print.

use std::process::Command;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::child;

/// A participant.
pub(crate) struct Participant {
    pub(crate) who: &'static str,
    pub(crate) workers: usize,
    /// The commands that can run it; the best figure of each round counts.
    pub(crate) ways: Vec<Command>,
}

/// The figures of one participant.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) who: &'static str,
    pub(crate) workers: usize,
    /// One value per round.
    pub(crate) values: Vec<f64>,
}

/// Runs every participant once per round, so that a change in the machine's load affects all of them alike.
/// If a participant fails, this function reports it on standard error and excludes it from then on.
pub(crate) fn interleaved(bench: &str, mut participants: Vec<Participant>, rounds: u32) -> Vec<Outcome> {
    let bar = ProgressBar::new(u64::from(rounds) * participants.len() as u64).with_style(
        ProgressStyle::with_template("{prefix} {bar:30} {pos}/{len} {elapsed} of about {duration}  {msg}")
            .expect("the template is a constant"),
    );
    bar.set_prefix(bench.to_owned());
    bar.enable_steady_tick(Duration::from_secs(1));

    let mut outcomes: Vec<Outcome> = participants
        .iter()
        .map(|participant| Outcome { who: participant.who, workers: participant.workers, values: Vec::new() })
        .collect();
    for round in 1..=rounds {
        for (participant, outcome) in participants.iter_mut().zip(&mut outcomes) {
            bar.inc(1);
            // Only a complete series can be compared round by round.
            let failed_before = outcome.values.len() + 1 < round as usize;
            if failed_before {
                continue;
            }
            bar.set_message(format!("{}, workers: {}", participant.who, participant.workers));
            match best_way(participant) {
                Ok(value) => outcome.values.push(value),
                Err(error) => bar.suspend(|| eprintln!("{bench}: {} FAILED: {error:#}", participant.who)),
            }
        }
    }
    bar.finish_and_clear();
    outcomes.retain(|outcome| outcome.values.len() == rounds as usize);
    outcomes
}

/// The lowest figure of all the ways to run a participant.
fn best_way(participant: &mut Participant) -> anyhow::Result<f64> {
    let mut best = f64::INFINITY;
    for way in &mut participant.ways {
        best = best.min(child::figure(way)?);
    }
    Ok(best)
}

/// The middle value; of an even number of values, the mean of the two in the middle.
pub(crate) fn median(values: &[f64]) -> f64 {
    assert!(!values.is_empty(), "no median of no values");
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[upper] } else { f64::midpoint(sorted[upper - 1], sorted[upper]) }
}

/// The median over the rounds of `ours / theirs`: unlike the ratio of two medians, it compares only
/// neighbours in time.
pub(crate) fn ratio(ours: &[f64], theirs: &[f64]) -> f64 {
    assert_eq!(ours.len(), theirs.len(), "rounds are compared one by one");
    let per_round: Vec<f64> = ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect();
    median(&per_round)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_the_middle_of_the_sorted_values() {
        assert_eq!(median(&[7.0]), 7.0);
        assert_eq!(median(&[9.0, 1.0, 5.0]), 5.0);
        assert_eq!(median(&[9.0, 1.0, 5.0, 6.0]), 5.5);
    }

    #[test]
    #[should_panic(expected = "no median of no values")]
    fn median_refuses_an_empty_list() {
        median(&[]);
    }

    #[test]
    fn ratio_compares_only_values_of_the_same_round() {
        // The machine became ten times slower in the second round; each round has the ratio 1/2.
        assert_eq!(ratio(&[10.0, 100.0, 10.0], &[20.0, 200.0, 20.0]), 0.5);
        assert_eq!(ratio(&[10.0, 30.0, 20.0], &[20.0, 20.0, 20.0]), 1.0);
    }
}
