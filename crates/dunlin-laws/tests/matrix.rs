//! The law matrix over every transport but the simulated one (`simulated.rs`). The tests print the table and
//! fail with law, policy, transport and seed.

mod support;

use dunlin_laws::{Apart, Joined, Kind, Local, Tcp, Transport, kinds, laws, run};

fn matrix<X: Transport>(transport: &X) {
    part(transport.name(), transport, &kinds());
}

fn part<X: Transport>(name: &str, transport: &X, kinds: &[Kind]) {
    support::judge(name, &run(transport, kinds, &laws()));
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
fn two_halves_with_messages_in_flight() {
    matrix(&Apart);
}

/// Sockets are slower than the other transports, so the two halves of the policies run in parallel.
#[test]
fn two_nodes_over_tcp_and_half_of_the_policies() {
    let kinds: Vec<_> = kinds().into_iter().step_by(2).collect();
    part("tcp-1", &Tcp::default(), &kinds);
}

#[test]
fn two_nodes_over_tcp_and_the_other_half() {
    let kinds: Vec<_> = kinds().into_iter().skip(1).step_by(2).collect();
    part("tcp-2", &Tcp::default(), &kinds);
}
