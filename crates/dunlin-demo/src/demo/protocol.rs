//! What broker, workers and customers send each other.
//!
//! ```text
//!   worker ── hello, registry ──▶ broker        Entrance: how one comes in
//!          ── name, handle ─────▶               Registry: shared by all workers, claimed for these two
//! customer ── wish ─────────────▶ broker
//!          ◀── a worker's handle ─
//!          ── text, piece by piece ───────▶ worker      Desk: directly, whichever part handed the handle on
//!          ◀── table of words ────────────
//!          ── the handle, over itself ────▶             and the worker registers it again
//! ```

use dunlin::prelude::*;
use serde::{Deserialize, Serialize};

use super::words::WordTable;

/// How a visitor enters: the only bundle with a name.
#[derive(Bundle)]
pub struct Entrance {
    /// A visitor sends its name. The answer confirms that there is a broker.
    pub hello: Call<String, ()>,
    /// For workers: how they register.
    pub registry: Call<(), Registry>,
    /// For customers: a worker, as soon as one is idle.
    pub worker: Call<Wish, Appointment>,
}

/// A handle of the sender to the broker that all workers share.
pub type Registry = Shared<Sender<Registration>>;

/// A registration is two messages, so a worker claims the [`Registry`] for them: no other comes between.
#[derive(Serialize, Deserialize)]
pub enum Registration {
    /// First: its name.
    Name(String),
    /// Then: its handle.
    Handle(Handle),
}

/// What a customer asks the broker.
#[derive(Serialize, Deserialize)]
pub struct Wish {
    /// The customer that asks.
    pub customer: String,
    /// A worker that was lost with a text of this customer.
    pub lost: Option<String>,
}

/// The broker's answer to a customer.
#[derive(Serialize, Deserialize)]
pub struct Appointment {
    /// The worker's name.
    pub worker: String,
    /// The worker's handle.
    pub handle: Handle,
}

/// The worker that made it serves its holder. Each worker has one, which circulates: worker, broker,
/// customer, worker.
#[derive(Serialize, Deserialize)]
pub struct Handle {
    /// The customer's side of the desk.
    pub desk: DeskClient,
    /// The way back to its worker, for the handle: so the handle travels over itself.
    pub home: Shared<Sender<Self>>,
}

/// Where a worker serves a customer.
#[derive(Bundle)]
pub struct Desk {
    /// The text. Each piece has been received when its send is complete.
    pub text: ToServer<Piece>,
    /// Its words.
    pub table: ToClient<WordTable>,
}

/// The parts of a text in transfer.
#[derive(Serialize, Deserialize)]
pub enum Piece {
    /// A text begins.
    Begin {
        /// The customer.
        customer: String,
        /// The text's name.
        file: String,
    },
    /// The next characters.
    Characters(String),
    /// The text ends.
    End,
    /// A worker sends this to itself, over its returned handle.
    Home,
}
