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

/// How one comes in: the only thing that has a name.
#[derive(Bundle)]
pub struct Entrance {
    /// A visitor says its name. The answer tells that there is a broker.
    pub hello: Call<String, ()>,
    /// For workers: how they register.
    pub registry: Call<(), Registry>,
    /// For customers: a worker, as soon as one has time.
    pub worker: Call<Wish, Appointment>,
}

/// A handle of the way to the broker that all workers share.
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
    /// A worker that has got lost with a text of this customer.
    pub lost: Option<String>,
}

/// What the broker answers.
#[derive(Serialize, Deserialize)]
pub struct Appointment {
    /// Its name.
    pub worker: String,
    /// Its handle.
    pub handle: Handle,
}

/// Its holder is served by the worker that made it. Each worker has one, which goes round: worker, broker,
/// customer, worker.
#[derive(Serialize, Deserialize)]
pub struct Handle {
    /// The customer's side of the desk.
    pub desk: DeskClient,
    /// The way back to its worker, for the handle: so it travels over itself.
    pub home: Shared<Sender<Self>>,
}

/// Where a customer is served.
#[derive(Bundle)]
pub struct Desk {
    /// The text. Each piece has been received when its send is complete.
    pub text: ToServer<Piece>,
    /// Its words.
    pub table: ToClient<WordTable>,
}

/// What a text is sent in.
#[derive(Serialize, Deserialize)]
pub enum Piece {
    /// A text begins.
    Begin {
        /// The customer.
        customer: String,
        /// Its name.
        file: String,
    },
    /// The next characters.
    Characters(String),
    /// That was the text.
    End,
    /// What a worker sends itself, over a handle that has come home.
    Home,
}
