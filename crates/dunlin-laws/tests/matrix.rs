//! The law matrix, over every transport but the simulated one (`simulated.rs`): prints the table, and fails
//! with law, policy, transport and seed.

use dunlin_laws::{Apart, Joined, Kind, Local, Tcp, Transport, kinds, laws, run};

fn matrix<X: Transport>(transport: &X) {
    judge(transport, &kinds());
}

fn judge<X: Transport>(transport: &X, kinds: &[Kind]) {
    let report = run(transport, kinds, &laws());
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

/// Sockets take longer than all else here, so half of the policies are tried beside the other half.
#[test]
fn two_nodes_over_tcp_and_half_of_the_policies() {
    let kinds: Vec<_> = kinds().into_iter().step_by(2).collect();
    judge(&Tcp::default(), &kinds);
}

#[test]
fn two_nodes_over_tcp_and_the_other_half() {
    let kinds: Vec<_> = kinds().into_iter().skip(1).step_by(2).collect();
    judge(&Tcp::default(), &kinds);
}
