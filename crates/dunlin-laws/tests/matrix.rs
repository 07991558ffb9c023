//! The law matrix, over every transport: prints the table, and fails with law, policy, transport and seed.

use dunlin_laws::{Apart, Joined, Kind, Local, Simulated, Tcp, Transport, kinds, laws, run};

fn matrix_of<X: Transport>(transport: &X) {
    matrix(transport, &kinds());
}

fn matrix<X: Transport>(transport: &X, kinds: &[Kind]) {
    let report = run(transport, kinds, &laws());
    println!("\n{report}\n{} cells hold", report.held());
    let broken = report.broken();
    assert!(broken.is_empty(), "{} cells are broken:\n{}", broken.len(), broken.join("\n"));
}

#[test]
fn both_ends_in_one_program() {
    matrix_of(&Local);
}

#[test]
fn two_halves_joined_by_agents() {
    matrix_of(&Joined);
}

#[test]
fn two_halves_with_messages_on_their_way() {
    matrix_of(&Apart);
}

#[test]
fn two_nodes_over_tcp() {
    // Over real sockets a column takes seconds: one of each sort. `DUNLIN_SEEDS=1` runs them all.
    let some = ["rendezvous", "fifo(4)", "oldest(2)", "own(3)", "p.reject(2)"];
    let all = std::env::var_os("DUNLIN_SEEDS").is_some();
    let kinds: Vec<Kind> = kinds().into_iter().filter(|kind| all || some.contains(&kind.name)).collect();
    matrix(&Tcp::default(), &kinds);
}

#[test]
fn two_nodes_in_a_simulation() {
    matrix_of(&Simulated::default());
}
