//! The searches that are small enough for every build. `cargo run --release -p dunlin-models` does all.

use dunlin_models::scenarios;

#[test]
fn all_laws_hold_in_small_worlds() {
    let small =
        ["sender", "receiver", "both", "refuse", "sender-3", "drops", "lazy", "window", "choice", "choice-drops"];
    let small = small.iter().chain(&["loop-22", "loop-31"]);
    let mut searched = 0;
    for scenario in small.clone().filter_map(|name| scenarios::all().into_iter().find(|one| one.name() == *name)) {
        let name = scenario.name();
        searched += 1;
        match scenario.explore(u64::MAX, |_| {}) {
            Ok(seen) => {
                assert!(seen.states > 100 && seen.rests > 2, "{name}: {seen:?}: too few for what it is to search")
            }
            Err(broken) => panic!("{name}: {}\n{}", broken.what, broken.way.join("\n")),
        }
    }
    assert_eq!(searched, small.count(), "a name is not a scenario's");
}
