//! The examples work as documented, at a small size.

// Their `main` is for `cargo run --example`.
#[allow(dead_code)]
#[path = "../../../examples/agents.rs"]
mod agents;
#[allow(dead_code)]
#[path = "../../../examples/dining_philosophers.rs"]
mod dining_philosophers;
#[allow(dead_code)]
#[path = "../../../examples/game_of_life.rs"]
mod game_of_life;
#[allow(dead_code)]
#[path = "../../../examples/mandelbrot.rs"]
mod mandelbrot;
#[allow(dead_code)]
#[path = "../../../examples/scopes.rs"]
mod scopes;
#[allow(dead_code)]
#[path = "../../../examples/sieve.rs"]
mod sieve;
#[allow(dead_code)]
#[path = "../../../examples/solo_group.rs"]
mod solo_group;
#[allow(dead_code)]
#[path = "../../../examples/token_ring.rs"]
mod token_ring;

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
fn the_token_comes_home_with_one_more_for_each_process_and_cycle() {
    dunlin::block_on(async {
        let tokens = [token_ring::in_one_task(256, 16).await, token_ring::spawned(256, 16).await];
        for token in tokens {
            assert_eq!(token.unwrap().0, 256 * 17);
        }
    });
}

#[test]
fn every_philosopher_eats_and_no_fork_is_in_two_hands() {
    let (eaten, used) = dunlin::block_on(dining_philosophers::dinner(200)).unwrap();
    assert_eq!(eaten, [200; dining_philosophers::PHILOSOPHERS]);
    assert_eq!(used[0], [200, 0, 0, 0, 200]);
    assert_eq!(used[4], [0, 0, 0, 200, 200]);
}

#[test]
fn marks_of_agents_do_not_depend_on_their_order() {
    let marks = dunlin::block_on(agents::walked(300, 20)).unwrap();
    assert_eq!(marks, agents::computed(300, 20));
    assert_eq!(marks.len(), agents::SIDE * agents::SIDE);
    assert!(marks.iter().all(|mark| *mark > 0), "every cell was visited");
}

#[test]
fn every_word_is_counted_once() {
    let text = "krill squid\n\n  krill\tsalp krill\n".repeat(100);
    for counters in [1, 5] {
        assert_eq!(dunlin::block_on(scopes::words(&text, counters)).unwrap(), 500);
    }
}

#[test]
fn the_group_of_units_steps_together_or_not_at_all() {
    let seen = dunlin::block_on(solo_group::work(8)).unwrap();
    assert_eq!(seen.len(), 9);
    assert!(seen.windows(2).all(|two| two[0] < two[1]), "the group steps in each round: {seen:?}");
}

/// The next generation, computed by one process on a second board.
fn next_generation(picture: &str) -> String {
    let lines: Vec<&[u8]> = picture.lines().map(str::as_bytes).collect();
    let (width, height) = (lines[0].len() as isize, lines.len() as isize);
    let alive = |x: isize, y: isize| lines[y.rem_euclid(height) as usize][x.rem_euclid(width) as usize] == b'#';
    let mut next = String::new();
    for y in 0..height {
        for x in 0..width {
            let around = [(-1, -1), (0, -1), (1, -1), (-1, 0), (1, 0), (-1, 1), (0, 1), (1, 1)];
            let neighbours = around.iter().filter(|(dx, dy)| alive(x + dx, y + dy)).count();
            next.push(if neighbours == 3 || neighbours == 2 && alive(x, y) { '#' } else { '.' });
        }
        next.push('\n');
    }
    next
}

#[test]
fn a_game_of_life_in_strips_is_the_game_of_life() {
    for strips in [1, 3, 20] {
        let pictures = dunlin::block_on(game_of_life::play(game_of_life::GUN, strips, 40)).unwrap();
        assert_eq!((pictures.len(), pictures[0].as_str()), (41, game_of_life::GUN));
        for two in pictures.windows(2) {
            assert_eq!(two[1], next_generation(&two[0]), "with {strips} strips");
        }
    }
    let glider = ".#....\n..#...\n###...\n......\n......\n";
    let moved = "......\n..#...\n...#..\n.###..\n......\n";
    let pictures = dunlin::block_on(game_of_life::play(glider, 5, 4)).unwrap();
    assert_eq!(pictures[4], moved, "after four generations a glider has moved by one cell");
}
