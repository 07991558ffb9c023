//! The searches that are small enough for every build. `cargo run --release -p dunlin-models` does all.

use dunlin_models::explore::explore;
use dunlin_models::scenarios;
use dunlin_models::travel::Travel;

#[test]
fn all_laws_hold_in_small_worlds() {
    let small = ["sender", "receiver", "both", "refuse", "sender-3", "drops", "lazy"];
    for scenario in scenarios::all().into_iter().filter(|scenario| small.contains(&scenario.name)) {
        let name = scenario.name;
        match explore(Travel::new(scenario), u64::MAX, |_| {}) {
            Ok(seen) => {
                assert!(seen.states > 100 && seen.rests > 10, "{name}: {seen:?}: too few for what it is to search")
            }
            Err(broken) => panic!("{name}: {}\n{}", broken.what, broken.way.join("\n")),
        }
    }
}
