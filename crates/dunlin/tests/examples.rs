//! The examples do what they say, at a size for everyday.

// Their `main` is for `cargo run --example`.
#[allow(dead_code)]
#[path = "../../../examples/mandelbrot.rs"]
mod mandelbrot;
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
    assert_eq!(at(20, 20), 255, "-0.75 is of the set");
    assert_eq!((0..SIDE).map(|x| at(x, 0)).max(), Some(3), "far above it all leave soon");
    assert!((0..SIDE).all(|y| at(0, y) <= 2), "and left of it");
}
