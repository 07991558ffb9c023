//! The law matrix, over every transport: prints the table, and fails with law, policy, transport and seed.

use dunlin_laws::{Apart, Joined, Local, Simulated, Transport, kinds, laws, run};

fn matrix_of<X: Transport>(transport: &X) {
    let report = run(transport, &kinds(), &laws());
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
fn two_nodes_in_a_simulation() {
    matrix_of(&Simulated::default());
}
