//! The laws of an unshared rendezvous over a link: the slice of the redesign. `DUNLIN_SEEDS=1000` looks as long as its verdict asks.

use dunlin_laws::{Linked, Pushed, Transport, kinds, laws, run};

fn judge<X: Transport>(transport: &X) {
    let kinds: Vec<_> = kinds().into_iter().filter(|kind| kind.is_plain_rendezvous()).collect();
    let report = run(transport, &kinds, &laws());
    println!("\n{report}\n{} cells hold", report.held());
    let broken = report.broken();
    assert!(broken.is_empty(), "{} cells are broken:\n{}", broken.len(), broken.join("\n"));
}

#[test]
fn two_halves_that_push_words() {
    judge(&Pushed);
}

#[test]
fn two_links_whose_wire_is_cut() {
    judge(&Linked::default());
}
