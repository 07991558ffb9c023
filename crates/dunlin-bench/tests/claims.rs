//! The bench of claims from end to end: its participants, and the number of messages of each claim. The test
//! does not judge times.

use std::process::Command;

use serde_json::Value;

#[test]
fn claim_costs_messages_only_when_it_changes_nodes() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dunlin-bench"));
    let output = command
        .args(["claims", "--quick", "--json", "--rounds", "1", "--workers", "1"])
        .output()
        .expect("the binary starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("JSON is text");
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect();
    let of = |bench: &str| -> Vec<&Value> { rows.iter().filter(|row| row["bench"] == bench).collect() };

    let (counted, timed) = (of("claim-messages"), of("claim-tcp"));
    assert_eq!((counted.len(), timed.len()), (8, 9));
    for rows in [&counted, &timed] {
        assert_eq!(rows[0]["vs"], Value::Null);
        assert!(
            rows[1..].iter().all(|row| row["vs"] == rows[0]["who"]),
            "all are compared with the end that is not shared"
        );
    }

    let messages = |who: &str| -> f64 {
        let row = counted.iter().find(|row| row["who"] == who).unwrap_or_else(|| panic!("no row of {who:?}"));
        row["value"].as_f64().expect("a number")
    };
    // An offer and its answer, and once in some 500 values a grant of further offers.
    for who in ["send, not shared", "lone send, shared sender", "sender, claimed again by the same node"] {
        let each = messages(who);
        assert!((2.0..2.01).contains(&each), "{who}: {each}");
    }
    for end in ["sender", "receiver", "face"] {
        let (again, in_turn) = (
            messages(&format!("{end}, claimed again by the same node")),
            messages(&format!("{end}, claimed in turn at two nodes")),
        );
        // `Claim`, `Recall`, `Return`, `Granted`.
        assert!(in_turn >= again + 4.0, "{end}: {again} and {in_turn}");
    }
}
