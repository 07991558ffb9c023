//! The laws, by subject.

mod asking;
mod broadcasting;
mod calling;
mod choosing;
mod cutting;
mod ending;
mod extending;
mod fairness;
mod order;
mod panics;
mod pending;
mod policies;
mod posting;
mod returning;
mod sharing;
mod sinking;
mod syncing;
mod taking;
mod waiting;

use crate::law::Law;
use crate::transport::Transport;

/// All laws, for this transport.
pub fn laws<X: Transport>() -> Vec<Law<X>> {
    let subjects = [
        taking::laws(),
        returning::laws(),
        order::laws(),
        policies::laws(),
        pending::laws(),
        extending::laws(),
        asking::laws(),
        ending::laws(),
        cutting::laws(),
        panics::laws(),
        posting::laws(),
        sinking::laws(),
        broadcasting::laws(),
        sharing::laws(),
        calling::laws(),
        choosing::laws(),
        syncing::laws(),
        fairness::laws(),
        waiting::laws(),
    ];
    subjects.into_iter().flatten().collect()
}
