//! The search: breadth first, so it finds a shortest way to each state.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

/// A world that can be searched.
pub trait World: Clone {
    /// A text that is the same for two states that do not differ.
    fn state(&self) -> String;
    /// The steps that can happen next, and the world after each.
    fn next(&self) -> Vec<(String, Self)>;
    /// Whether nothing more happens without a user.
    fn is_at_rest(&self) -> bool;
    /// Checks the laws of every state.
    ///
    /// # Errors
    /// The law that fails.
    fn check(&self) -> Result<(), String>;
    /// Checks the laws of states at rest.
    ///
    /// # Errors
    /// The law that fails.
    fn check_rest(&self) -> Result<(), String>;
}

/// The counts of a search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Different states.
    pub states: u64,
    /// Steps between them.
    pub steps: u64,
    /// States at rest.
    pub rests: u64,
    /// The length of the longest way, in steps.
    pub depth: u32,
    /// Whether the search stopped at its bound: there are more states.
    pub capped: bool,
    /// Whether some states can be reached again from themselves. Only [`explore_to_rest`] looks for that.
    pub cycles: bool,
}

/// A way to a state that breaks a law.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The law that fails.
    pub what: String,
    /// The steps, in order.
    pub way: Vec<String>,
}

/// Searches all states that `start` can lead to, up to `states_max`. Calls `progress` for every 100,000th.
///
/// States are compared by 64-bit hashes: two with the same hash are taken for one.
///
/// # Errors
/// A state that breaks a law, and a shortest way there.
pub fn explore<W: World>(start: W, states_max: u64, progress: impl FnMut(Seen)) -> Result<Seen, Box<Broken>> {
    search(start, states_max, None, progress)
}

/// Searches as [`explore`] does. From each state, the world must also be able to come to rest by steps whose
/// names do not mark them as chance.
///
/// # Errors
/// As of [`explore`]; or a state from which the world cannot come to rest, and a shortest way there.
pub fn explore_to_rest<W: World>(
    start: W,
    states_max: u64,
    is_by_chance: fn(&str) -> bool,
    progress: impl FnMut(Seen),
) -> Result<Seen, Box<Broken>> {
    search(start, states_max, Some(is_by_chance), progress)
}

fn search<W: World>(
    start: W,
    states_max: u64,
    is_by_chance: Option<fn(&str) -> bool>,
    mut progress: impl FnMut(Seen),
) -> Result<Seen, Box<Broken>> {
    let hash = |world: &W| {
        let mut hasher = DefaultHasher::new();
        world.state().hash(&mut hasher);
        hasher.finish()
    };
    let mut seen = Seen { states: 1, ..Seen::default() };
    let first = hash(&start);
    // The previous state, the index of the step from there, and the depth; and the number of this state.
    let mut known: HashMap<u64, (u64, u16, u32, u32)> = HashMap::from([(first, (first, 0, 0, 0))]);
    // By numbers of states: steps that are not by chance, reversed; and the states at rest.
    let (mut back, mut rests) = (Vec::new(), Vec::new());
    let mut queue = VecDeque::from([(first, start.clone())]);
    let broken = |known: &HashMap<u64, (u64, u16, u32, u32)>, at: u64, what: String| {
        let mut steps = Vec::new();
        let mut here = at;
        while here != first {
            let (from, step, ..) = known[&here];
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
        let (_, _, depth, number) = known[&at];
        seen.depth = seen.depth.max(depth);
        if world.is_at_rest() {
            seen.rests += 1;
            rests.push(number);
            world.check_rest().map_err(|what| broken(&known, at, what))?;
        }
        for (index, (name, next)) in world.next().into_iter().enumerate() {
            seen.steps += 1;
            // Also checks a known state: this step may have broken a law on its way there.
            if let Err(what) = next.check() {
                let mut broken = broken(&known, at, what);
                broken.way.push(name);
                return Err(broken);
            }
            let hash = hash(&next);
            let entry = known.entry(hash);
            if is_by_chance.is_some_and(|is_by_chance| !is_by_chance(&name)) {
                let to = if let Entry::Occupied(entry) = &entry { entry.get().3 } else { seen.states as u32 };
                back.push((to, number));
            }
            let Entry::Vacant(entry) = entry else { continue };
            entry.insert((at, index as u16, depth + 1, seen.states as u32));
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
    if is_by_chance.is_some() {
        back.sort_unstable();
        let ends = reached(seen.states as usize, &back, rests, false);
        let never = known.iter().filter(|(_, state)| !ends[state.3 as usize]).min_by_key(|(_, state)| state.3);
        if let Some((at, _)) = never {
            return Err(broken(&known, *at, "from here the world never comes to rest".into()));
        }
        let mut leads_on = vec![false; seen.states as usize];
        back.iter().for_each(|(_, from)| leads_on[*from as usize] = true);
        let last = (0..seen.states as u32).filter(|state| !leads_on[*state as usize]).collect();
        seen.cycles = reached(seen.states as usize, &back, last, true).contains(&false);
    }
    Ok(seen)
}

/// The states from which these can be reached, by steps that are given reversed and sorted. With `whatever`,
/// only those where every step leads to such a state.
fn reached(states: usize, back: &[(u32, u32)], mut these: Vec<u32>, whatever: bool) -> Vec<bool> {
    let (mut is_reached, mut steps) = (vec![false; states], vec![u32::from(!whatever); states]);
    if whatever {
        back.iter().for_each(|(_, from)| steps[*from as usize] += 1);
    }
    these.iter().for_each(|state| is_reached[*state as usize] = true);
    while let Some(state) = these.pop() {
        let begin = back.partition_point(|(to, _)| *to < state);
        for (_, from) in back[begin..].iter().take_while(|(to, _)| *to == state) {
            let from = *from as usize;
            steps[from] = steps[from].saturating_sub(1);
            if steps[from] == 0 && !std::mem::replace(&mut is_reached[from], true) {
                these.push(from as u32);
            }
        }
    }
    is_reached
}
