//! The searches that are small enough for every build.
//! `cargo run --release -p dunlin-models --features search` does all.

use dunlin_models::scenarios;

/// Searches these scenarios completely.
fn hold(small: &[&str]) {
    for name in small {
        let scenario = scenarios::all().into_iter().find(|one| one.name() == *name).expect("a name of a scenario");
        match scenario.explore(u64::MAX, |_| {}) {
            Ok(seen) => {
                assert!(seen.states > 60 && seen.rests > 2, "{name}: {seen:?}: too few states for this scenario")
            }
            Err(broken) => panic!("{name}: {}\n{}", broken.what, broken.way.join("\n")),
        }
    }
}

#[test]
fn all_laws_hold_in_small_worlds() {
    hold(&["sender", "receiver", "both", "refuse", "sender-3", "drops", "lazy", "window", "choice", "choice-drops"]);
    hold(&["sockets-sender", "sockets-receiver", "sockets-02"]);
    hold(&["through", "through-receiver", "through-both"]);
    hold(&["loop-22", "loop-31"]);
}

#[test]
fn claims_hold_in_small_worlds() {
    hold(&[
        "claim",
        "claim-far",
        "claim-three",
        "claim-again",
        "claim-clones",
        "claim-any",
        "claim-last",
        "claim-late",
    ]);
    hold(&[
        "claim-lone",
        "claim-lone-far",
        "claim-lone-late",
        "claim-between",
        "claim-third",
        "claim-drops",
        "claim-drops-1",
    ]);
    hold(&[
        "claim-goes-held",
        "face-far",
        "face-any",
        "face-lent-both",
        "face-refused-far",
        "receive",
        "receive-lone",
        "receive-moved-1",
        "receive-third",
    ]);
    hold(&["claim-wished", "claim-wished-three", "receive-retires", "receive-retires-buffer"]);
    hold(&["unread", "unread-choices", "unread-extended", "unreadable", "unreadable-chosen"]);
    hold(&["unread-through", "unread-through-extended", "receive-through-2"]);
}

/// Values are encoded and decoded in polls, and each search ends without a state from which the world cannot
/// come to rest.
#[test]
fn reading_holds_in_small_worlds() {
    hold(&["read-firm-drops", "read-firm-expires", "read-firm-retires", "read-firm-cut", "read-granted-fails"]);
    hold(&["read-sends-fails", "read-receives-fails", "read-pair-fails", "read-two-drops", "read-two-granted-fails"]);
    hold(&["read-two-mixed", "read-posts-drops", "read-pair-cut"]);
}

#[test]
fn barriers_hold_in_small_worlds() {
    hold(&["sync", "sync-any", "sync-enrols", "sync-chosen"]);
}

/// A node is lost, or a socket is cut, at any moment.
#[test]
fn losses_are_reported_in_small_worlds() {
    hold(&["cut-10", "cut-01", "death-10", "death-01"]);
    hold(&[
        "claim-death",
        "claim-death-go",
        "face-far-death",
        "face-lent-both-death",
        "receive-retires-death",
        "unread-death",
    ]);
    hold(&["sync-death", "sync-death-chosen", "sync-death-goes"]);
}
