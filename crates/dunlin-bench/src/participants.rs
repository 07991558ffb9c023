//! The participants of a bench, and their commands.

use crate::actors;
use crate::dunlin_side::PAR;
use crate::library::Library;
use crate::local::{DUNLIN, RIVALS, Spawning};
use crate::measure::Participant;
use crate::nodes;
use crate::offload;
use crate::peers::Foreign;
use crate::peers::async_channel::AsyncChannel;
use crate::peers::erlang::ERLANG;
use crate::peers::flume::Flume;
use crate::peers::go::GO;
use crate::program::{Bench, Program};
use crate::remote;
use crate::streams;

/// All participants of `bench`, with the reference first.
pub(crate) fn of(bench: &Bench, workers: &[usize], foreign: &Foreign) -> anyhow::Result<Vec<Participant>> {
    if bench.program.is_over_nodes() {
        return nodes::participants(bench, workers);
    }
    if bench.program.is_offload() {
        return offload::participants(bench, workers);
    }
    if bench.program.is_of_streams() {
        return streams::participants(bench, workers);
    }
    if bench.program.is_of_actors() {
        return actors::participants(bench, workers, foreign);
    }
    if bench.program.is_remote() {
        return remote::participants(bench, workers, foreign);
    }
    // The memory of a parked process does not depend on the workers; the only worker counts it.
    let workers = if bench.program == Program::Memory { &[1] } else { workers };
    let mut all = Vec::new();
    // Go and Erlang have no such program.
    let foreign = if bench.program == Program::SharedParked { &Foreign::default() } else { foreign };
    if let Some(go) = &foreign.go {
        all.extend(workers.iter().map(|&workers| Participant {
            who: GO,
            workers,
            ways: vec![go.command(bench, workers)],
        }));
    }
    if workers.contains(&1) {
        all.push(Participant { who: PAR, workers: 1, ways: vec![bench.command(PAR, 1)?] });
    }
    for &workers in workers {
        all.push(Participant { who: DUNLIN.who, workers, ways: vec![bench.command(DUNLIN.who, workers)?] });
        for rival in RIVALS.iter().filter(|rival| takes_part(rival, bench.program)) {
            let mut ways = vec![bench.command(rival.who, workers)?];
            if workers == 1 {
                // tokio has two runtimes with one thread, and the program determines which is faster. Rivals
                // get the faster in each round; dunlin always runs on the multi-threaded one, as in most
                // programs.
                let mut current_thread = bench.command(rival.who, 1)?;
                current_thread.arg("--current-thread");
                ways.push(current_thread);
            }
            all.push(Participant {
                // That bench uses no channel.
                who: if bench.program == Program::Spawn { "tokio" } else { rival.who },
                workers,
                ways,
            });
        }
        if let Some(erlang) = foreign.erlang.as_ref().filter(|erlang| erlang.has(bench.program)) {
            all.push(Participant { who: ERLANG, workers, ways: vec![erlang.command(bench, workers)] });
        }
    }
    Ok(all)
}

fn takes_part(rival: &Spawning, program: Program) -> bool {
    match program {
        Program::ChoiceReady | Program::ChoiceWaits => rival.chooses,
        // None of them has a choice among two hundred, or a log.
        Program::StressedAlt8x4 | Program::StressedAlt200x100 => false,
        // tokio's receivers cannot be shared, and kanal's are like flume's.
        Program::SharedParked => [Flume::NAME, AsyncChannel::NAME].contains(&rival.who),
        // All of them spawn with `tokio::spawn`, so one represents all.
        Program::Spawn => rival.who == RIVALS[0].who,
        _ => true,
    }
}
