//! The laws of an unshared rendezvous over a link.

use dunlin_laws::{Linked, kinds, laws, run};

#[test]
fn two_halves_that_push_words() {
    let kinds: Vec<_> = kinds().into_iter().filter(|kind| kind.is_plain_rendezvous()).collect();
    let report = run(&Linked, &kinds, &laws());
    println!("\n{report}\n{} cells hold", report.held());
    let broken = report.broken();
    assert!(broken.is_empty(), "{} cells are broken:\n{}", broken.len(), broken.join("\n"));
}
