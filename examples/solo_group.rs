//! Eight units that work alone or as a group.
//!
//! ```text
//!     main ── clicks ──▶ unit 0 … unit 7 ═══ one barrier, on which all of them are enrolled
//! ```
//!
//! A click sends a unit off to work alone, or back. In the group a unit waits for two events: the group's
//! next step, which is a barrier, and a click. The step is an offer: all eight take it, or none does. So a
//! unit that is clicked at the very moment of a step has either taken it with all the others, or leaves alone
//! and no party has taken it. Whenever one of them is alone, all have counted the same steps.
//!
//! Run it: `cargo run --release --example solo_group [rounds]`
//!
//! After the demonstration of barriers in choices that comes with JCSP (`AltingBarrier`).

use dunlin::prelude::*;

const UNITS: usize = 8;

/// What a unit has done.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Steps {
    pub(crate) alone: u64,
    pub(crate) group: u64,
}

/// Begins alone. Ends, and so resigns, when no party is left to click.
async fn unit(mut group: Barrier, mut clicks: Receiver<()>, mut asked: Callee<(), Steps>) -> Result<Steps> {
    let (mut steps, mut alone) = (Steps::default(), true);
    loop {
        alt! {
            click = clicks.next() => match click? {
                Some(()) => alone = !alone,
                None => return Ok(steps),
            },
            ask = asked.accept() => drop(ask?.reply(steps)),
            r = group.sync(), if !alone => { r?; steps.group += 1; }
            () = future(tokio::task::yield_now()), if alone => steps.alone += 1,
        }
    }
}

/// Main's ends of a unit.
struct Controls {
    click: Sender<()>,
    ask: Caller<(), Steps>,
    running: Process<Result<Steps>>,
}

/// Clicks the units into the group and some of them out of it again. Returns the group's count of steps at
/// each moment when one unit was alone.
pub(crate) async fn work(rounds: usize) -> Result<Vec<u64>> {
    let group = barrier();
    let mut units: Vec<Controls> = (0..UNITS)
        .map(|_| {
            let ((click, clicks), (ask, asked)) = (channel(), call());
            Controls { click, ask, running: spawn(unit(group.enrol(), clicks, asked)) }
        })
        .collect();
    drop(group); // else main would be a ninth party
    let mut seen = vec![0];
    let mut alone = vec![true; UNITS];
    for round in 1..=rounds {
        for (unit, alone) in units.iter_mut().zip(&mut alone).filter(|(_, alone)| **alone) {
            unit.click.send(()).await?;
            *alone = false;
        }
        // All eight are in the group: it steps by itself.
        let before = seen[round - 1];
        while units[round % UNITS].ask.call(()).await?.group < before + round as u64 {}
        // Different units in each round: the bits of a multiple of an odd number.
        let who = (round * 37) % 256;
        let leaves = |n: usize| who >> n & 1 == 1 || n == round % UNITS;
        for (n, unit) in units.iter_mut().enumerate().filter(|(n, _)| leaves(*n)) {
            unit.click.send(()).await?; // returns when the unit has received it
            alone[n] = true;
        }
        // One unit is alone, so the group does not step.
        let mut steps = Vec::new();
        for unit in &mut units {
            steps.push(unit.ask.call(()).await?);
        }
        let group = steps[0].group;
        assert!(steps.iter().all(|steps| steps.group == group), "a step was taken by some: {steps:?}");
        let mark = |alone: &bool| if *alone { 'o' } else { '#' };
        println!("{}  the group has taken {group} steps", alone.iter().map(mark).collect::<String>());
        seen.push(group);
    }
    let mut done = Vec::new();
    for Controls { click, ask, running } in units {
        drop(click); // not `ask`, which fails when no party is left to ask
        done.push(running.await??);
        drop(ask);
    }
    println!("alone they have taken {} steps", done.iter().map(|steps| steps.alone).sum::<u64>());
    Ok(seen)
}

#[dunlin::main]
async fn main() -> Result {
    let rounds = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(20);
    work(rounds).await?;
    Ok(())
}
