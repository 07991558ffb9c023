//! The examples do what they say, at a size for everyday.

// Their `main` is for `cargo run --example`.
#[allow(dead_code)]
#[path = "../../../examples/mandelbrot.rs"]
mod mandelbrot;
#[allow(dead_code)]
#[path = "../../../examples/scopes.rs"]
mod scopes;
#[allow(dead_code)]
#[path = "../../../examples/sieve.rs"]
mod sieve;

#[test]
fn the_sieve_finds_the_primes_and_all_its_stages_end() {
    let found = dunlin::block_on(sieve::primes(100)).unwrap();
    let divided: Vec<u64> = (2..=541).filter(|n| (2..*n).all(|d| n % d != 0)).collect();
    assert_eq!(found, divided);
}

#[test]
fn every_pixel_of_the_mandelbrot_set_arrives_at_its_place() {
    const SIDE: usize = 40;
    let picture = dunlin::block_on(mandelbrot::draw(SIDE)).unwrap();
    assert_eq!(picture.len(), SIDE * SIDE);
    let at = |x: usize, y: usize| picture[y * SIDE + x];
    assert_eq!(at(4, 20), 255, "-1.95 is of the set");
    assert!(at(20, 4) < 16, "-0.75 - 1.2i is not");
    assert_eq!(picture.iter().min(), Some(&1), "every pixel was drawn, and the corners leave at once");
}

#[test]
fn every_word_is_counted_once() {
    let text = "krill squid\n\n  krill\tsalp krill\n".repeat(100);
    for counters in [1, 5] {
        assert_eq!(dunlin::block_on(scopes::words(&text, counters)).unwrap(), 500);
    }
}
