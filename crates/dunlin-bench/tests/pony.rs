//! Pony's benches from end to end, as short as possible: their output, their plots, and the arguments that
//! they refuse. The tests do not judge figures.
#![cfg(unix)]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// A folder for one test.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&folder).expect("cargo gives tests a folder");
    folder
}

fn pony(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dunlin-bench"));
    command.arg("pony").args(arguments).output().expect("the binary starts")
}

/// Runs with windows of 50 ms, once, with JSON output.
fn shortly(arguments: &[&str]) -> Vec<Value> {
    let output = pony(&[arguments, &["--quick", "--json", "--warm-up", "0.05", "--window", "0.05"]].concat());
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("JSON is text");
    text.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect()
}

/// The number of points in each series.
fn series_in(svg: &Path) -> Vec<usize> {
    let text = fs::read_to_string(svg).expect("the chart exists");
    let document = roxmltree::Document::parse(&text).expect("the SVG is well-formed");
    assert_eq!(document.root_element().tag_name().name(), "svg");
    let lines = document.descendants().filter(|node| node.has_tag_name("polyline"));
    lines.map(|line| line.attribute("points").map_or(0, |points| points.split(' ').count())).collect()
}

fn who(rows: &[Value]) -> Vec<&str> {
    rows.iter().map(|row| row["who"].as_str().expect("every row has a name")).collect()
}

#[test]
fn throughput_rows_have_consistent_rates_and_baselines() {
    let svg = folder("throughput").join("nodes.svg");
    let rows = shortly(&["throughput", "--vary", "nodes", "--at", "1,2", "--svg", svg.to_str().expect("UTF-8 path")]);
    assert_eq!(rows.len(), 2 * 6);
    for (number, row) in rows.iter().enumerate() {
        assert_eq!(row["bench"], "pony-throughput");
        assert_eq!(row["nodes"], 1 + number / 6);
        assert_eq!(row["workers"], 2);
        assert_eq!(row["size"], 100_000);
        assert_eq!(row["quick"], true);
        let (megabytes, messages) = (row["mb_per_second"].as_f64(), row["messages_per_second"].as_f64());
        let (megabytes, messages) = (megabytes.expect("a number"), messages.expect("a number"));
        assert!(megabytes > 0.0 && (messages * 0.1 - megabytes).abs() < 1e-6 * megabytes);
    }
    // Sockets are compared with the better of the plain ones; channels also with a socket whose messages are
    // handed on.
    for rows in rows.chunks(6) {
        let compared: Vec<&str> = rows.iter().filter_map(|row| row["vs"].as_str()).collect();
        let [of_sockets @ .., of_rendezvous, of_fifo] = &*compared else { panic!("{compared:?}") };
        assert_eq!(of_sockets.len(), 3);
        assert!(of_sockets.iter().all(|vs| vs.starts_with("tokio tcp") && *vs == of_sockets[0]));
        assert_eq!((*of_rendezvous, *of_fifo), (who(rows)[3], who(rows)[3]));
    }
    assert_eq!(series_in(&svg), [2; 6]);
}

#[test]
fn master_receives_from_sixty_workers_at_one_node() {
    assert_eq!(shortly(&["throughput", "--vary", "workers", "--at", "60"]).len(), 6);
}

#[test]
fn throughput_is_the_mean_of_the_rounds() {
    let rows = shortly(&["throughput", "--vary", "size", "--at", "1", "--rounds", "3"]);
    assert_eq!(rows.len(), 6);
    // A rendezvous of small messages is compared with a socket that answers each.
    let vs: Vec<&str> = rows[4..].iter().filter_map(|row| row["vs"].as_str()).collect();
    assert!(vs[0] == who(&rows)[2] && vs[1] != vs[0], "{vs:?}");
    for row in &rows {
        let runs: Vec<f64> = row["runs"].as_array().expect("a list of runs").iter().filter_map(Value::as_f64).collect();
        assert_eq!((runs.len(), &row["rounds"]), (3, &3.into()));
        let (value, mean) = (row["mb_per_second"].as_f64().expect("a number"), runs.iter().sum::<f64>() / 3.0);
        assert!((value - mean).abs() < 1e-9 * mean, "{row}");
    }
}

#[test]
fn overhead_counts_every_byte_of_plain_sockets() {
    let svg = folder("overhead").join("overhead.svg");
    let rows = shortly(&["overhead", "--at", "1000", "--svg", svg.to_str().expect("UTF-8 path")]);
    assert_eq!(who(&rows), ["tokio tcp", "tokio tcp, acked", "dunlin", "dunlin, fifo(16)"]);
    // A length of four bytes, and an answer of one byte.
    assert_eq!(rows[0]["own_bytes"], 4.0);
    assert_eq!(rows[1]["own_bytes"], 5.0);
    for row in &rows {
        assert!(row["own_bytes"].as_f64().expect("a number") > 0.0);
        // Without network namespaces the row lacks this field.
        if let Some(packets) = row["packets"].as_f64() {
            let network = row["network_bytes"].as_f64().expect("bytes beside packets");
            // Every packet has headers, and a kilobyte fits into one packet. So the network adds only the
            // headers, of 52 to 84 bytes.
            assert!((52.0 * packets..84.0 * packets).contains(&network), "{row}");
        }
    }
    assert!(series_in(&svg).len() >= 2);
}

/// Bytes, unlike times, are the same on a busy machine: the test judges this goal.
#[test]
fn dunlin_overhead_at_100_kilobytes_stays_within_goal() {
    let rows = shortly(&["overhead", "--at", "100000"]);
    let of_dunlin: Vec<&Value> = rows.iter().filter(|row| !row["goal_percent"].is_null()).collect();
    assert_eq!(of_dunlin.iter().map(|row| &row["who"]).collect::<Vec<_>>(), ["dunlin", "dunlin, fifo(16)"]);
    for row in of_dunlin {
        let percent = row["own_percent"].as_f64().expect("a number");
        assert!(percent > 0.0 && percent <= 1.8, "{row}");
        assert_eq!((&row["goal_percent"], &row["reached"]), (&1.8.into(), &true.into()));
    }
}

#[test]
fn processor_time_is_the_sum_of_both_sides() {
    let svg = folder("cpu").join("cpu.svg");
    let rows = shortly(&["cpu", "--vary", "items", "--at", "10", "--svg", svg.to_str().expect("UTF-8 path")]);
    assert_eq!(who(&rows), ["tokio tcp, acked", "dunlin"].repeat(3));
    let number = |row: &Value, field: &str| row[field].as_f64().expect("a number");
    for row in &rows {
        assert_eq!(row["items"], 10);
        let all = number(row, "us_per_send");
        assert!((number(row, "user_us") + number(row, "system_us") - all).abs() < 1e-6 * all.max(1.0));
        assert!((number(row, "sender_us") + number(row, "receiver_us") - all).abs() < 1e-6 * all.max(1.0));
    }
    assert_eq!(series_in(&svg), [1; 6]);
}

#[test]
fn plot_uses_last_of_duplicate_rows_and_refuses_other_benchmarks() {
    let folder = folder("plot");
    let row = |who: &str, nodes: usize, value: f64| {
        serde_json::json!({
            "bench": "pony-throughput", "vary": "nodes", "nodes": nodes, "workers": 2, "size": 100_000, "who": who,
            "mb_per_second": value, "messages_per_second": 10.0 * value, "runs": [value], "vs": null, "ratio": null,
            "warm_up_s": 2.0, "window_s": 10.0, "rounds": 3, "threads": 2, "cores": 2, "quick": false,
        })
        .to_string()
    };
    let (first, second) = (folder.join("first.jsonl"), folder.join("second.jsonl"));
    fs::write(&first, [row("dunlin", 1, 5.0), row("dunlin", 2, 6.0)].join("\n")).expect("the test has a folder");
    fs::write(&second, row("dunlin", 2, 7.0)).expect("the test has a folder");
    let out = folder.join("svg");
    let paths = [&first, &second, &out].map(|path| path.to_str().expect("UTF-8 path"));
    let output = pony(&["plot", paths[0], paths[1], "--svg-dir", paths[2]]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // The second row for 2 nodes replaces the first.
    assert_eq!(series_in(&out.join("throughput-nodes.svg")), [2]);
    assert!(!out.join("overhead.svg").exists());

    fs::write(&first, "{\"bench\": \"commstime\"}").expect("the test has a folder");
    let output = pony(&["plot", paths[0], "--svg-dir", paths[2]]);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("first.jsonl line 1"));
}

/// Output that cannot be written is an error; a closed pipe is not.
#[test]
fn pony_reports_unwritable_output_and_accepts_a_closed_pipe() {
    let folder = folder("full");
    let rows = folder.join("rows.jsonl");
    let shortly = ["--quick", "--warm-up", "0.05", "--window", "0.05"];
    let line = [&["cpu", "--vary", "size", "--at", "1"], &shortly[..]].concat();
    let run = |line: &[&str], out: Stdio| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dunlin-bench"));
        let output = command.arg("pony").args(line).stdout(out).output().expect("the binary starts");
        (output.status.code(), String::from_utf8(output.stderr).expect("errors are text"))
    };
    for how in [&[][..], &["--json"]] {
        let (reader, closed) = std::io::pipe().expect("the system has pipes");
        drop(reader);
        let (code, errors) = run(&[&line[..], how].concat(), closed.into());
        assert!(code == Some(141) && !errors.contains("rror") && !errors.contains("panicked"), "{code:?}: {errors}");
    }
    let Ok(full) = File::options().write(true).open("/dev/full") else { return };
    for how in [&[][..], &["--json"]] {
        let (code, errors) = run(&[&line[..], how].concat(), full.try_clone().expect("a file").into());
        let told = "Error: the output could not be written: No space left on device";
        assert!(code == Some(1) && errors.contains(told), "{code:?}: {errors}");
    }
    // If either the rows or the plot cannot be written, the other one still is.
    let svg = folder.join("cpu-size.svg");
    let _ = fs::remove_file(&svg);
    let drawn = [&line[..], &["--svg", svg.to_str().expect("UTF-8 path")]].concat();
    assert_eq!(run(&drawn, full.into()).0, Some(1));
    assert!(!series_in(&svg).is_empty());

    fs::remove_file(&svg).expect("the chart exists");
    std::os::unix::fs::symlink("/dev/full", &svg).expect("the test has a folder");
    let told = format!("cannot write {}: No space left on device", svg.display());
    let (code, errors) = run(&[&drawn[..], &["--json"]].concat(), File::create(&rows).expect("the rows file").into());
    assert!(code == Some(1) && errors.contains(&told), "{code:?}: {errors}");
    assert_eq!(fs::read_to_string(&rows).expect("the rows exist").lines().count(), 4);
    let (rows, folder) = (rows.to_str().expect("UTF-8 path"), folder.to_str().expect("UTF-8 path"));
    let (code, errors) = run(&["plot", rows, "--svg-dir", folder], Stdio::null());
    assert!(code == Some(1) && errors.contains(&told), "{code:?}: {errors}");
    fs::remove_file(&svg).expect("the link exists");
}

#[test]
fn pony_refuses_invalid_arguments_before_it_runs() {
    for (arguments, says) in [
        (&["throughput", "--vary", "nodes", "--at", "0"][..], "there has to be one at least"),
        (&["throughput", "--vary", "nodes", "--at", "5000"], "too much for one machine"),
        (&["throughput", "--vary", "nodes", "--window", "0"], "more than 0"),
        (&["cpu", "--vary", "size", "--svg", "/no/such/folder/a.svg"], "cannot write /no/such/folder/a.svg"),
        (&["throughput"], "--vary"),
    ] {
        let output = pony(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains(says), "{arguments:?}: {error}");
    }
}
