//! The law matrix, over every transport but the simulated one (`simulated.rs`): prints the table, and fails
//! with law, policy, transport and seed.

use dunlin_laws::{Apart, Joined, Local, Tcp, Transport, kinds, laws, run};

fn matrix<X: Transport>(transport: &X) {
    let report = run(transport, &kinds(), &laws());
    println!("\n{report}\n{} cells hold", report.held());
    let broken = report.broken();
    assert!(broken.is_empty(), "{} cells are broken:\n{}", broken.len(), broken.join("\n"));
}

#[test]
fn both_ends_in_one_program() {
    matrix(&Local);
}

#[test]
fn two_halves_joined_by_agents() {
    matrix(&Joined);
}

#[test]
fn two_halves_with_messages_on_their_way() {
    matrix(&Apart);
}

#[test]
fn two_nodes_over_tcp() {
    matrix(&Tcp::default());
}
