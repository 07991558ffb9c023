//! Bugs that are planted between nodes: the searches of claims and barriers find each of them.

use dunlin_models::live::Plant;
use dunlin_models::reading;
use dunlin_models::scenarios::{Search, all};

/// The broken law that the search of this scenario finds for the bug.
fn found(name: &str, plant: Plant) -> String {
    let mut search = all().into_iter().find(|one| one.name() == name).expect("a name of a scenario");
    match &mut search {
        Search::Claims(scenario) => scenario.bounds.plant = plant,
        Search::Barriers(scenario) => scenario.bounds.plant = plant,
        _ => panic!("{name} runs no code"),
    }
    match search.explore(100_000, |_| {}) {
        Ok(seen) => panic!("{name}: {plant:?} is not found: {seen:?}"),
        Err(broken) => broken.what,
    }
}

fn is_stuck(name: &str, plant: Plant) {
    let what = found(name, plant);
    assert!(what.starts_with("they wait for ever"), "{name}, {plant:?}: {what}");
}

#[test]
fn planted_a_claim_is_not_asked_for() {
    is_stuck("claim-far", Plant::Lost("\"Claim\""));
}

#[test]
fn planted_a_claim_is_not_granted() {
    is_stuck("claim-far", Plant::Lost("{\"Granted\""));
}

#[test]
fn planted_a_recall_is_forgotten() {
    is_stuck("claim-far", Plant::Lost("\"Recall\""));
    is_stuck("claim-lone-far", Plant::Lost("\"Recall\""));
    is_stuck("receive-far", Plant::Lost("\"Recall\""));
}

#[test]
fn planted_a_claim_is_not_returned() {
    is_stuck("claim-far", Plant::Lost("{\"Return\""));
    is_stuck("face", Plant::Lost("{\"Return\""));
    is_stuck("face-lent", Plant::Lost("{\"Return\":null"));
}

#[test]
fn planted_a_face_is_not_lent() {
    is_stuck("face-lent", Plant::Lost("{\"Lent\""));
    is_stuck("face-refused", Plant::Lost("{\"Refused\""));
}

#[test]
fn planted_a_retirement_is_not_sent() {
    is_stuck("receive-retires", Plant::Lost("\"Retire\""));
    is_stuck("receive-retires", Plant::Lost("\"Retired\""));
}

#[test]
fn planted_two_are_granted_the_claim() {
    let what = found("claim-far", Plant::ToAll("{\"Granted\":null"));
    assert!(what.starts_with("two have the claim"), "{what}");
}

#[test]
fn planted_a_handle_moves_without_notice_to_the_keeper() {
    // The message that would lead to it is dropped, so the user learns at least that loss.
    let what = found("claim-goes-held", Plant::Lost("{\"Another\""));
    assert!(what.contains("the node that keeps the shared end has left or was lost"), "{what}");
    is_stuck("claim-hurries", Plant::Lost("\"Welcome\""));
}

#[test]
fn planted_no_task_is_woken() {
    is_stuck("claim-far", Plant::Deaf("desk of 1"));
    is_stuck("claim-far", Plant::Deaf("keeper for 1"));
    is_stuck("sync", Plant::Deaf("keeper for 1"));
}

#[test]
fn planted_a_value_is_not_given_back() {
    is_stuck("receive-timed", Plant::NotGivenBack);
}

/// How words of a barrier between nodes begin: a list of numbers, of which the first says what it is.
const THERE: &str = "[0,";
const HELD: &str = "[2,";
const DONE: &str = "[6,";
const LEFT: &str = "[7,";

#[test]
fn planted_a_phase_is_not_announced() {
    is_stuck("sync", Plant::Lost(DONE));
    is_stuck("sync", Plant::Lost(THERE));
    is_stuck("sync-drops", Plant::Lost(LEFT));
    is_stuck("sync-chosen-3", Plant::Lost(HELD));
}

#[test]
fn planted_a_group_counts_for_another() {
    let what = found("sync-three", Plant::ToAll(THERE));
    assert!(what.contains("has completed phase"), "{what}");
}

/// The broken law that the search of this scenario finds for a fault in the reading of values.
fn misread(name: &str, plant: reading::Plant) -> String {
    let search = all().into_iter().find(|one| one.name() == name).expect("a name of a scenario");
    let Search::Reading(scenario) = search else { panic!("{name} reads nothing") };
    match Search::Reading(reading::Scenario { plant, ..scenario }).explore(100_000, |_| {}) {
        Ok(seen) => panic!("{name}: {plant:?} is not found: {seen:?}"),
        Err(broken) => broken.what,
    }
}

#[test]
fn planted_faults_of_reading_break_a_law() {
    use reading::Plant::*;
    let plants: [(reading::Plant, &[&str], &str); 11] = [
        (DecidesFirst, &["read-firm-fails", "read-granted-fails"], "and is not received"),
        (BlindReader, &["read-firm-expires", "read-granted-expires"], "its sender has the value back"),
        (GrantKept, &["read-granted-expires"], "its sender has the value back"),
        (UnreadableDecides, &["read-firm-fails", "read-receives-fails"], "ends without a value"),
        (KeepsReservation, &["read-granted-fails"], "is left reserved"),
        (ForgetsReceivers, &["read-two-drops", "read-posts"], "wait for each other"),
        (ForgetsQueue, &["read-granted", "read-two-mixed-fails"], "wait for each other"),
        (GrantsBlindly, &["read-granted-retires"], "is left reserved"),
        (StaysOpen, &["read-ring", "read-two-mixed"], "ends a choice that is reserved"),
        (Overtakes, &["read-posts-drops"], "behind a later one"),
        (AbortsTwice, &["read-two-granted-drops"], "its choice was not reserved"),
    ];
    for (plant, names, says) in plants {
        for name in names {
            let what = misread(name, plant);
            assert!(what.contains(says), "{name}, {plant:?}: {what}");
        }
    }
    let what = misread("read-granted-fails", RefusesAndWithdraws);
    assert!(what.contains("do not agree"), "{what}");
}
