//! What a node that starts a function and one that offers it say to each other, for tests that speak for one
//! of them.

use dunlin::prelude::*;
use dunlin::{Portable, RemoteFunction};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
#[serde(bound = "A: Portable, R: Portable")]
pub(crate) struct Start<A, R> {
    pub(crate) arguments: A,
    pub(crate) output: Sender<R>,
}

#[derive(Serialize, Deserialize)]
pub(crate) enum Refusal {
    NotOffered,
    NotAllowed,
    Full(u64),
}

#[derive(Serialize, Deserialize)]
#[serde(bound = "S: Portable")]
pub(crate) enum Answer<S> {
    Started(Pid, Address<()>),
    Refused(Refusal, S),
}

type StartOf<F> = Start<<F as RemoteFunction>::Arguments, <F as RemoteFunction>::Output>;

/// The face of a node that starts this function, which asks for nothing before.
pub(crate) type Starts<F> = Call<StartOf<F>, Answer<StartOf<F>>>;

/// The name of the function's acceptor in this offer.
pub(crate) fn name_of<F: RemoteFunction>(offer: &str) -> String {
    format!("{offer}:{}", F::NAME)
}
