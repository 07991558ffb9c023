//! `dunlin repl` over a pipe.
#![cfg(unix)]

#[allow(dead_code, reason = "other tests of the command use the rest")]
mod support;

use std::io::Write;
use std::process::Stdio;

use support::{Ended, Stage, ended, started};

fn repl(input: &[u8]) -> Ended {
    let stage = Stage::new("");
    let mut command = stage.command(&["repl"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A session that exits before it has read all input closes the pipe.
    let _ = child.stdin.take().unwrap().write_all(input);
    ended(child.wait_with_output().unwrap())
}

#[test]
fn values_are_printed_without_a_prompt_and_definitions_stay() {
    let ran =
        repl(b"(define (f x)\n  (* x 2))\n(f 4) \"a\\nb\" 'c\n\n(display \"open\") (f 5)\n(display 1) (newline)\n2");
    assert_eq!((ran.code, &*ran.out, &*ran.err), (Some(0), "8\n\"a\\nb\"\nc\nopen\n10\n1\n2\n", ""));
}

#[test]
fn error_shows_its_place_in_the_entry_and_the_session_goes_on() {
    let ran = repl(b"1\n(define (f x)\n (car x)) (f 5) 'skipped\n(if)\n)\n2\n(open");
    assert_eq!((ran.code, &*ran.out), (Some(0), "1\n2\n"));
    let expected = "error: (entry 2):2:2: expected a pair, got 5
2 |  (car x)) (f 5) 'skipped
  |  ^
  in f at (entry 2):2:2
";
    assert!(ran.err.starts_with(expected), "{}", ran.err);
    for place in ["(entry 3):1:1: ", "(entry 4):1:1: unexpected )", "(entry 6):1:1: list is not closed"] {
        assert!(ran.err.contains(&format!("error: {place}")), "{place} in {}", ran.err);
    }
}

#[test]
fn exit_ends_the_session_with_its_code() {
    let ran = repl(b"(exit 3)\n1\n");
    assert_eq!((ran.code, &*ran.out, &*ran.err), (Some(3), "", ""));
}

#[test]
fn interrupt_ends_the_evaluation_and_not_the_session() {
    let stage = Stage::new("");
    let mut command = stage.command(&["repl"]);
    let mut running = started({
        command.stdin(Stdio::piped());
        command
    });
    let mut input = running.input();
    input.write_all(b"(define (forever) (forever))\n").unwrap();
    for wait in ["(forever)", "(sleep 100000)"] {
        input
            .write_all(
                format!("(display \"begins\") (newline) {wait} (display \"goes on\") (newline)\n'next\n").as_bytes(),
            )
            .unwrap();
        running.says("begins");
        running.signal("-INT");
        assert_eq!(running.says(""), "next");
    }
    input.write_all(b"'last\n").unwrap();
    running.says("last");
    drop(input);
    assert_eq!(running.ends(), Some(0));
}

#[test]
fn interrupt_without_an_evaluation_ends_a_session_over_a_pipe() {
    let stage = Stage::new("");
    let mut command = stage.command(&["repl"]);
    command.stdin(Stdio::piped());
    let mut running = started(command);
    let mut input = running.input();
    input.write_all(b"'ready\n").unwrap();
    running.says("ready");
    // The first may still find the evaluation that has just printed; it ends nothing then.
    loop {
        running.signal("-INT");
        if !running.is_running() {
            break;
        }
    }
    assert_eq!(running.ends(), Some(130));
}

#[test]
fn replaced_standard_procedure_is_noted_once() {
    let ran = repl(b"(define (reverse l) l)\n(define (reverse l) l)\n(define (mine) 1)\n");
    assert_eq!(ran.err, "note: reverse hides the standard reverse from what is entered\n");
}

#[test]
fn import_binds_a_library_for_the_entries_after_it() {
    let library = "(define-library (a) (export f) (import (scheme base)) (begin (define (f x) (list x))))";
    let ran = repl(format!("{library}\n(import (prefix (a) a-))\n(a-f 1)\n(import (b))\n2\n").as_bytes());
    assert_eq!((ran.code, &*ran.out), (Some(0), "(1)\n2\n"), "{}", ran.err);
    assert!(ran.err.starts_with("error: (entry 4):1:9: there is no library (b): b.sld: "), "{}", ran.err);
}

#[test]
fn error_of_a_process_is_printed_while_others_run() {
    let ran = repl(b"(spawn (lambda () (car 7)))\n(sleep 0.01)\n'after\n");
    assert!(ran.err.contains("expected a pair, got 7") && ran.out.ends_with("after\n"), "{} {}", ran.out, ran.err);
}

#[test]
fn invalid_text_drops_its_entry() {
    let ran = repl(b"1\n(a\n\xff)\n2\n");
    assert_eq!((ran.code, &*ran.out, &*ran.err), (Some(0), "1\n2\n", "error: (entry 2):2: the text is not UTF-8\n"));
}

#[test]
fn channels_carry_values_from_one_entry_to_the_next() {
    let ran = repl(
        b"(define-values (out in) (make-channel))\n(spawn (lambda () (channel-send out 'krill)))\n(channel-receive in)\n",
    );
    assert!(ran.out.ends_with("krill\n") && ran.err.is_empty(), "{} {}", ran.out, ran.err);
}

#[test]
fn error_begins_a_line_after_open_output() {
    let ran = repl(b"(display \"open\") (car 1)\n");
    assert_eq!((&*ran.out, ran.err.is_empty()), ("open\n", false));
    let ran = repl(b"(define child (spawn (lambda () (car 7))))\n(display \"open\") (sleep .01)\n");
    assert_eq!((&*ran.out, ran.err.is_empty()), ("open\n", false));
}
