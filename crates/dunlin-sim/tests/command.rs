//! The simulator as a program: the first and last lines it prints, and its exit codes.

use std::process::Command;

/// The exit code, and what the program prints.
fn sim(arguments: &str) -> (i32, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_dunlin-sim")).args(arguments.split(' ')).output().unwrap();
    (output.status.code().expect("it exits"), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn clean_seeds_are_counted() {
    let (code, said) = sim("--from 7 --seeds 40 --threads 1");
    assert_eq!(code, 0, "{said}");
    let first = said.lines().next().unwrap();
    assert!(first.ends_with("seeds 7 to 46, 1 threads, planted bug: none"), "{first}");
    assert!(said.contains("\n40 seeds in "), "{said}");
    // A row for each fault, a column for each state.
    assert!(said.contains("\ncut ") && said.contains(" reserved "), "{said}");
    assert!(said.ends_with("all laws held\n"), "{said}");
}

#[test]
fn a_broken_law_is_reported_with_its_replay_command() {
    let (code, said) = sim("--bug newest-first --seeds 500");
    assert_eq!(code, 1, "{said}");
    let command = "replay: cargo run --release -p dunlin-sim --features planted -- ";
    let replay = said.lines().find_map(|line| line.strip_prefix(command));
    let replay = replay.unwrap_or_else(|| panic!("no command: {said}"));
    assert!(said.contains(": a law is broken: "), "{said}");
    let broken = said.split(": a law is broken: ").nth(1).and_then(|rest| rest.lines().next()).unwrap();

    let (code, again) = sim(replay);
    assert_eq!(code, 1);
    assert!(again.contains(broken), "{broken} is not in {again}");
    assert_eq!(again, sim(replay).1, "one seed, one trace");
}

/// A reader that stops ends a command that only prints; a full disk hides no outcome.
#[test]
#[cfg(unix)]
fn output_goes_where_it_can() {
    let run = |arguments: &str, out: std::process::Stdio| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dunlin-sim"));
        let output = command.args(arguments.split(' ')).stdout(out).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let for_ever = "--seeds 1000000000000 --trace";
    let planted = "--bug newest-first --seeds 500";
    for (arguments, unread, unwritten) in [
        ("--seeds 3", 0, 7),
        ("--seeds 3 --json", 0, 7),
        (for_ever, 141, 7),
        ("--bugs --seeds 4000", 141, 7),
        (planted, 1, 1),
    ] {
        let (reader, closed) = std::io::pipe().unwrap();
        drop(reader);
        assert_eq!(run(arguments, closed.into()), (Some(unread), String::new()), "{arguments}");
        let Ok(full) = std::fs::File::options().write(true).open("/dev/full") else { continue };
        let (code, errors) = run(arguments, full.into());
        assert_eq!(code, Some(unwritten), "{arguments}");
        assert!(errors.starts_with("error: cannot write the output: No space left"), "{errors}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
    }
}

#[test]
fn every_outcome_has_an_exit_code() {
    // It takes hundreds of seeds to find this one.
    let (code, said) = sim("--bug goodbye-first --seeds 2");
    assert_eq!(code, 4, "{said}");
    assert!(said.contains("NOT FOUND"), "{said}");
    for wrong in ["--bug nothing-like-it", "--seeds 0", "--sedes 4", "--bug newest-first --bugs"] {
        assert_eq!(sim(wrong).0, 2, "{wrong}");
    }
    for wrong in ["scale --nodes 3", "scale --ends 1", "--seeds 2 scale"] {
        assert_eq!(sim(wrong).0, 2, "{wrong}");
    }
    let (code, said) = sim("scale --nodes 4 --ends 40 --json");
    assert_eq!(code, 0, "{said}");
    assert!(said.starts_with("{\"nodes\":4,\"ends\":40,\"seed\":0,\"code\":0,\"homes\":24,"), "{said}");
    let (code, said) = sim("--travelling --seeds 3");
    assert!(code == 0 && said.contains(": 3 to 6 nodes with ends that travel,"), "{said}");
    let (code, said) = sim("--seeds 2 --json");
    assert_eq!(code, 0);
    assert!(said.starts_with("{\"from\":0,\"played\":2,") && said.contains("\"code\":0,\"failure\":null"), "{said}");
}
