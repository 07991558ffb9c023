//! The participants in this binary, and the hidden subcommand that runs one program on one of them.

use anyhow::bail;

use crate::actors;
use crate::dunlin_side::{self, Dunlin, PAR, SPAWN};
use crate::library::Library;
use crate::nodes;
use crate::offload;
use crate::parked;
use crate::peers::async_channel::AsyncChannel;
use crate::peers::flume::Flume;
use crate::peers::kanal::Kanal;
use crate::peers::tokio_mpsc::TokioMpsc;
use crate::program::{One, Program};
use crate::programs;
use crate::runtime::on_tokio;
use crate::streams;
use crate::stressed::{self, How, Shape};

/// A library whose processes are tokio tasks.
pub(crate) struct Spawning {
    pub(crate) who: &'static str,
    pub(crate) chooses: bool,
    run: fn(&One) -> anyhow::Result<f64>,
}

/// dunlin's spawned processes.
pub(crate) const DUNLIN: Spawning = spawning::<Dunlin>();

/// The other Rust channels.
pub(crate) const RIVALS: [Spawning; 4] =
    [spawning::<TokioMpsc>(), spawning::<Flume>(), spawning::<AsyncChannel>(), spawning::<Kanal>()];

const fn spawning<L: Library>() -> Spawning {
    Spawning { who: L::NAME, chooses: L::CHOOSES, run: of_library::<L> }
}

/// Runs one program and prints its figure.
pub(crate) fn run(one: &One) -> anyhow::Result<()> {
    let figure = match (Shape::of(one.program), one.who.as_str()) {
        _ if one.program.is_over_nodes() => nodes::run(one)?,
        _ if one.program.is_offload() => offload::run(one)?,
        _ if one.program.is_of_streams() => streams::run(one)?,
        _ if one.program.is_of_actors() => actors::run(one)?,
        (Some(shape), PAR) => dunlin::block_on(stressed::run(PAR, How::Par, shape, one.n))?,
        (Some(shape), SPAWN) => on_tokio(one, stressed::run(SPAWN, How::Spawned, shape, one.n))?,
        _ if one.program == Program::SharedParked => shared_parked(one)?,
        (None, PAR) => dunlin_side::par(one.program, one.n)?,
        (_, who) => {
            let Some(library) = [DUNLIN].into_iter().chain(RIVALS).find(|library| library.who == who) else {
                bail!("there is no {who:?} in this binary");
            };
            (library.run)(one)?
        }
    };
    println!("{figure}");
    Ok(())
}

fn shared_parked(one: &One) -> anyhow::Result<f64> {
    match one.who.as_str() {
        PAR => dunlin::block_on(parked::in_par(one.n)),
        SPAWN => on_tokio(one, parked::spawned::<Dunlin>(one.n)),
        Flume::NAME => on_tokio(one, parked::spawned::<Flume>(one.n)),
        AsyncChannel::NAME => on_tokio(one, parked::spawned::<AsyncChannel>(one.n)),
        who => bail!("{who:?} has no shared receivers in this bench"),
    }
}

fn of_library<L: Library>(one: &One) -> anyhow::Result<f64> {
    on_tokio(one, programs::spawned::<L>(one.program, one.n))
}
