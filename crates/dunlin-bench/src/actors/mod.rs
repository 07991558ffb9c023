//! Processes that fail well, beside those of Erlang and of two actor libraries for Rust, and beside plain
//! tasks of tokio with its unbounded channel.
//!
//! All of them run the same programs, each in the way that its library is fastest: unbounded mailboxes, no
//! names, no tracing, and starts that do not wait for one another.
//!
//! - [`Program::ProcessSpawn`]: processes that end at once, until all have ended.
//! - [`Program::ProcessDown`]: the same with a monitor each, one after the other.
//! - [`Program::LinkExit`]: a chain of parked processes, each linked to the next. The first one is killed,
//!   and the time ends with the last one. tokio has no links.
//! - [`Program::Post`]: one process posts numbers into the mailbox of another, which receives all of them.
//! - [`Program::ServerCall`]: calls of a generic server, one after the other.
//! - [`Program::ProcessBytes`], [`Program::LinkBytes`]: resident memory of parked processes with a mailbox
//!   each, and what a link of two of them adds, in both directions.
//! - [`Program::AddressPingpong`], [`Program::AddressPosts`]: round trips, and posts in one direction,
//!   between mailboxes of two nodes; of dunlin and Erlang alone. The sides are those of [`crate::remote`].

mod counts;
mod library;
mod over_dunlin;
mod over_kameo;
mod over_ractor;
mod over_tokio;

use anyhow::{Context, Result, bail};

use crate::measure::Participant;
use crate::memory::{all_wait, bytes_each, places, resident_bytes};
use crate::peers::Foreign;
use crate::peers::erlang::ERLANG;
use crate::program::{Bench, One, Program};
use crate::programs::nanoseconds_each;
use crate::remote;
use crate::runtime::on_tokio;

use library::Actors;
pub(crate) use over_dunlin::DUNLIN;
use over_dunlin::Dunlin;
use over_kameo::Kameo;
use over_ractor::Ractor;
use over_tokio::Tokio;

/// Runs one participant and returns its figure.
pub(crate) fn run(one: &One) -> Result<f64> {
    match one.who.as_str() {
        // In a process: only one may link others.
        DUNLIN => {
            let process = program::<Dunlin>(one.program, one.n);
            on_tokio(one, async { dunlin::spawn(process).await? })
        }
        over_tokio::TOKIO => on_tokio(one, program::<Tokio>(one.program, one.n)),
        over_ractor::RACTOR => on_tokio(one, program::<Ractor>(one.program, one.n)),
        over_kameo::KAMEO => on_tokio(one, program::<Kameo>(one.program, one.n)),
        who => bail!("there are no processes of {who:?} in this binary"),
    }
}

async fn program<A: Actors>(program: Program, n: u64) -> Result<f64> {
    Ok(match program {
        Program::ProcessSpawn => nanoseconds_each(A::spawn(n).await?, n),
        Program::ProcessDown => nanoseconds_each(A::down(n).await?, n),
        Program::Post => nanoseconds_each(A::post(n).await?, n),
        Program::ServerCall => nanoseconds_each(A::call(n).await?, n),
        Program::LinkExit => {
            let (_, _, mut parked) = parked::<A>(n).await?;
            link_all::<A>(&parked).await?;
            let last = parked.last_mut().and_then(Option::take).context("there are processes")?;
            let first = parked.first().and_then(Option::as_ref).context("there are two processes")?;
            nanoseconds_each(A::exit(first, last).await?, n)
        }
        Program::ProcessBytes => {
            let (before, after, _parked) = parked::<A>(n).await?;
            bytes_each(before, after, n)
        }
        Program::LinkBytes => {
            let (_, before, parked) = parked::<A>(n).await?;
            link_all::<A>(&parked).await?;
            bytes_each(before, resident_bytes()?, n)
        }
        program => bail!("{program} has no processes with mailboxes"),
    })
}

/// `n` parked processes, and the resident bytes before they were started and when all of them wait.
async fn parked<A: Actors>(n: u64) -> Result<(u64, u64, Vec<Option<A::Parked>>)> {
    let mut parked = places(n);
    let before = resident_bytes()?;
    for place in &mut parked {
        *place = Some(A::park());
    }
    while !all_wait(n) {
        tokio::task::yield_now().await;
    }
    Ok((before, resident_bytes()?, parked))
}

/// Links each process to the next.
async fn link_all<A: Actors>(parked: &[Option<A::Parked>]) -> Result<()> {
    for pair in parked.windows(2) {
        if let [Some(one), Some(other)] = pair {
            A::link(one, other).await?;
        }
    }
    Ok(())
}

/// All participants of `bench`, with the reference first.
pub(crate) fn participants(bench: &Bench, workers: &[usize], foreign: &Foreign) -> Result<Vec<Participant>> {
    // Memory does not depend on the workers.
    let is_memory = matches!(bench.program, Program::ProcessBytes | Program::LinkBytes);
    let workers = if is_memory { &[1] } else { workers };
    let mut all = Vec::new();
    for &workers in workers {
        if let Some(erlang) = &foreign.erlang {
            all.push(Participant { who: ERLANG, workers, ways: vec![erlang.command(bench, workers)] });
        }
        if bench.program.is_of_addresses() {
            all.push(remote::side(bench, DUNLIN, workers)?);
            continue;
        }
        for who in [DUNLIN, over_tokio::TOKIO, over_ractor::RACTOR, over_kameo::KAMEO] {
            let links = matches!(bench.program, Program::LinkExit | Program::LinkBytes);
            if links && who == over_tokio::TOKIO {
                continue;
            }
            let mut ways = vec![bench.command(who, workers)?];
            if workers == 1 && who != DUNLIN {
                // As for the other benches: peers get the faster of tokio's runtimes.
                let mut current_thread = bench.command(who, 1)?;
                current_thread.arg("--current-thread");
                ways.push(current_thread);
            }
            all.push(Participant { who, workers, ways });
        }
    }
    Ok(all)
}
