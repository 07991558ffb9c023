//! Agents that walk over a grid of cells, each a process.
//!
//! ```text
//!     cell ─ cell ─ cell
//!      │      │      │         An agent stands at a cell: it holds the door of that cell, a shared end that calls it.
//!     cell ─ cell ─ cell       It calls the cell to leave its mark and its next direction, and the reply is the
//!      │      │      │         door of the neighbour there.
//!     cell ─ cell ─ cell
//! ```
//!
//! So ends travel in messages: no agent knows the grid, and no cell knows the agents. The grid is a torus: an
//! agent that leaves it on one side returns on the other.
//!
//! The order in which agents visit a cell is not determined. The final state of the cells is: an agent's own
//! numbers alone decide its path, and marks only add up. The program repeats all walks in a plain loop and
//! compares.
//!
//! Run it: `cargo run --release --example agents [agents] [steps]`

use std::time::Instant;

use dunlin::prelude::*;

/// The grid has this many cells on each side.
pub(crate) const SIDE: usize = 16;

/// East, south, west, north: columns and rows to go.
const DIRECTIONS: [(usize, usize); 4] = [(1, 0), (0, 1), (SIDE - 1, 0), (0, SIDE - 1)];

/// Where a direction leads.
fn neighbour(cell: usize, direction: usize) -> usize {
    let (columns, rows) = DIRECTIONS[direction];
    (cell / SIDE + rows) % SIDE * SIDE + (cell % SIDE + columns) % SIDE
}

/// What an agent sends the cell where it stands.
struct Visit {
    mark: u64,
    direction: usize,
}

/// Calls a cell. The reply is the door of the neighbour.
#[derive(Clone)]
struct Door(Shared<Caller<Visit, Self>>);

/// Admits agents until its door is retired; returns the sum of their marks.
async fn cell(mut visits: Callee<Visit, Door>, doors: [Door; 4]) -> Result<u64> {
    let mut marks = 0;
    loop {
        let visit = match visits.accept().await {
            Err(error) if error.is_closed() => return Ok(marks),
            visit => visit?,
        };
        marks += visit.mark;
        let door = doors[visit.direction].clone();
        // An agent that has left meanwhile needs no door.
        let _ = visit.reply(door);
    }
}

/// The steps of an agent, which follow from its number.
fn itinerary(agent: u64) -> impl Iterator<Item = Visit> {
    // The generator of Knuth's MMIX; the upper bits are the better ones.
    let mut state = agent;
    std::iter::repeat_with(move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        Visit { mark: state >> 50, direction: (state >> 62) as usize }
    })
}

async fn agent(number: u64, steps: usize, mut at: Door) -> Result {
    for visit in itinerary(number).take(steps) {
        at = at.0.call(visit).await?;
    }
    Ok(())
}

/// The marks of all cells after this many agents have taken this many steps.
pub(crate) async fn walked(agents: u64, steps: usize) -> Result<Vec<u64>> {
    let (doors, visits): (Vec<_>, Vec<_>) = (0..SIDE * SIDE)
        .map(|_| {
            let (caller, callee) = call();
            (Door(caller.share()), callee)
        })
        .unzip();
    let around = |cell| std::array::from_fn(|direction| doors[neighbour(cell, direction)].clone());
    let cells: Vec<_> = visits.into_iter().enumerate().map(|(n, visits)| spawn(cell(visits, around(n)))).collect();

    let start = |number: u64| doors[number as usize % doors.len()].clone();
    let agents: Vec<_> = (0..agents).map(|number| spawn(agent(number, steps, start(number)))).collect();
    for agent in agents {
        agent.await??;
    }
    // The cells hold each other's doors, so no cell would end by itself.
    for mut door in doors {
        door.0.claim().await?.retire();
    }
    let mut marks = Vec::new();
    for cell in cells {
        marks.push(cell.await??);
    }
    Ok(marks)
}

/// The same result, computed in a plain loop.
pub(crate) fn computed(agents: u64, steps: usize) -> Vec<u64> {
    let mut marks = vec![0; SIDE * SIDE];
    for agent in 0..agents {
        let mut at = agent as usize % marks.len();
        for Visit { mark, direction } in itinerary(agent).take(steps) {
            marks[at] += mark;
            at = neighbour(at, direction);
        }
    }
    marks
}

#[dunlin::main]
async fn main() -> Result {
    let mut numbers = std::env::args().skip(1).filter_map(|n| n.parse().ok());
    let (agents, steps) = (numbers.next().unwrap_or(1000), numbers.next().unwrap_or(200));
    let began = Instant::now();
    let marks = walked(agents, steps as usize).await?;
    println!("{agents} agents went {steps} steps each over {} cells: {:.1?}", SIDE * SIDE, began.elapsed());
    assert_eq!(marks, computed(agents, steps as usize));
    println!("the marks of all cells are what they must be, {} in all", marks.iter().sum::<u64>());
    Ok(())
}
