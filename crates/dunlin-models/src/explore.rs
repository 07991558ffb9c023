//! The search: breadth first, so that what it finds is a shortest way to it.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

/// What can be searched.
pub trait World: Clone {
    /// A text that is the same for two states that cannot be told apart.
    fn state(&self) -> String;
    /// What can happen next, and what comes of it.
    fn next(&self) -> Vec<(String, Self)>;
    /// Whether nothing happens any more without a user.
    fn is_at_rest(&self) -> bool;
    /// What must hold in every state.
    ///
    /// # Errors
    /// What does not.
    fn check(&self) -> Result<(), String>;
    /// What must hold at rest.
    ///
    /// # Errors
    /// What does not.
    fn check_rest(&self) -> Result<(), String>;
}

/// What a search has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Different states.
    pub states: u64,
    /// Steps between them.
    pub steps: u64,
    /// States at rest.
    pub rests: u64,
    /// The longest way there, in steps.
    pub depth: u32,
    /// The bound was reached: there is more.
    pub capped: bool,
}

/// A way to a state that must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// What does not hold.
    pub what: String,
    /// What happened, in order.
    pub way: Vec<String>,
}

/// Searches all that can come of `start`, up to `states_max` states. `progress` hears of every 100,000th.
///
/// States are told apart by 64-bit hashes: two that share one are taken for the same.
///
/// # Errors
/// A state that breaks a law, and a shortest way there.
pub fn explore<W: World>(start: W, states_max: u64, mut progress: impl FnMut(Seen)) -> Result<Seen, Box<Broken>> {
    let hash = |world: &W| {
        let mut hasher = DefaultHasher::new();
        world.state().hash(&mut hasher);
        hasher.finish()
    };
    let mut seen = Seen { states: 1, ..Seen::default() };
    let first = hash(&start);
    // From which state, by the which-th step, at which depth.
    let mut known: HashMap<u64, (u64, u16, u32)> = HashMap::from([(first, (first, 0, 0))]);
    let mut queue = VecDeque::from([(first, start.clone())]);
    let broken = |known: &HashMap<u64, (u64, u16, u32)>, at: u64, what: String| {
        let mut steps = Vec::new();
        let mut here = at;
        while here != first {
            let (from, step, _) = known[&here];
            steps.push(step);
            here = from;
        }
        let (mut world, mut way) = (start.clone(), Vec::new());
        for step in steps.into_iter().rev() {
            let (name, next) = world.next().swap_remove(usize::from(step));
            way.push(name);
            world = next;
        }
        Box::new(Broken { what, way })
    };
    while let Some((at, world)) = queue.pop_front() {
        let depth = known[&at].2;
        seen.depth = seen.depth.max(depth);
        if world.is_at_rest() {
            seen.rests += 1;
            world.check_rest().map_err(|what| broken(&known, at, what))?;
        }
        for (index, (_, next)) in world.next().into_iter().enumerate() {
            seen.steps += 1;
            let hash = hash(&next);
            let Entry::Vacant(entry) = known.entry(hash) else { continue };
            entry.insert((at, index as u16, depth + 1));
            next.check().map_err(|what| broken(&known, hash, what))?;
            seen.states += 1;
            if seen.states.is_multiple_of(100_000) {
                progress(seen);
            }
            if seen.states >= states_max {
                seen.capped = true;
                return Ok(seen);
            }
            queue.push_back((hash, next));
        }
    }
    Ok(seen)
}
