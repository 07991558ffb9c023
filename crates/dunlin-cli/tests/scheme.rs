//! `dunlin scheme` as its users run it.
#![cfg(unix)]

#[allow(dead_code, reason = "these programs end by themselves")]
mod support;

use std::io::Write;
use std::process::Stdio;

use support::{Stage, ended};

fn stage(program: &str) -> Stage {
    let stage = Stage::new("");
    std::fs::write(stage.path().join("program.scm"), program).unwrap();
    stage
}

#[test]
fn program_prints_and_ends_with_zero() {
    let ran = stage("(define (f n) (* n 2)) (display (f 21)) (newline) (f 1)").run(&["scheme", "program.scm"]);
    assert_eq!((ran.code, &*ran.out, &*ran.err), (Some(0), "42\n", ""));
}

#[test]
fn arguments_reach_the_program_also_those_with_dashes() {
    let line = ["scheme", "program.scm", "one", "--check", "-x"];
    let ran = stage("#!/usr/bin/env dunlin-scheme\n(write (command-line))").run(&line);
    assert_eq!((ran.code, &*ran.out), (Some(0), r#"("program.scm" "one" "--check" "-x")"#), "{}", ran.err);
}

#[test]
fn exit_sets_the_exit_code() {
    for (program, code) in [("(exit 7) (display 1)", 7), ("(exit)", 0), ("(exit #f)", 1)] {
        let ran = stage(program).run(&["scheme", "program.scm"]);
        assert_eq!((ran.code, &*ran.out, &*ran.err), (Some(code), "", ""), "{program}");
    }
}

#[test]
fn failing_program_shows_the_line_and_the_calls_after_its_output() {
    let program = "#! /bin/sh\n(define (f x)\n\t(+ 1 (car x)))\n(display \"before\")\n(list (f 5))\n";
    let ran = stage(program).run(&["scheme", "program.scm"]);
    assert_eq!((ran.code, &*ran.out), (Some(1), "before"));
    let expected = "error: program.scm:3:7: expected a pair, got 5
3 | \t(+ 1 (car x)))
  | \t     ^
  in f at program.scm:3:7
  at program.scm:5:7
";
    assert_eq!(ran.err, expected);
}

#[test]
fn program_ends_with_its_main_process() {
    let program = "(define main (self))
(define (forever) (display \"\") (forever))
(define (fails) (car 5))
(spawn forever)
(spawn (lambda () (! main (list 1 2))))
(write (?))
(spawn fails)
(sleep 0.01)
(write (guard (e (#t e)) (spawn-link (lambda () (raise 'died))) (?)))";
    let ran = stage(program).run(&["scheme", "program.scm"]);
    assert_eq!((ran.code, &*ran.out), (Some(0), "(1 2)died"), "{}", ran.err);
    assert!(ran.err.contains("expected a pair, got 5") && ran.err.lines().count() < 4, "{}", ran.err);
    let ran = stage("(?)").run(&["scheme", "program.scm"]);
    let expected = "error: the main process waits for a message that no process can send\n";
    assert_eq!((ran.code, &*ran.out, &*ran.err), (Some(1), "", expected));
}

#[test]
fn check_compiles_and_runs_nothing() {
    let good = stage("(display 1) (car 5)").run(&["scheme", "--check", "program.scm"]);
    assert_eq!((good.code, &*good.out, &*good.err), (Some(0), "", ""));
    let wrong = stage("(display 1)\n(if)").run(&["scheme", "--check", "program.scm"]);
    let expected = "error: program.scm:2:1: expected (if test then else)\n2 | (if)\n  | ^\n";
    assert_eq!((wrong.code, &*wrong.out, &*wrong.err), (Some(1), "", expected));
}

#[test]
fn dash_reads_the_program_from_standard_input() {
    let stage = Stage::new("");
    let mut command = stage.command(&["scheme", "-", "word"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"(write (cdr (command-line))) (car 1)").unwrap();
    let ran = ended(child.wait_with_output().unwrap());
    assert_eq!((ran.code, &*ran.out), (Some(1), "(\"word\")"));
    assert!(ran.err.starts_with("error: (standard input):1:30: expected a pair, got 1\n"), "{}", ran.err);
}

#[test]
fn missing_program_is_an_error_of_the_command_line() {
    let stage = Stage::new("");
    let ran = stage.run(&["scheme", "none.scm"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.err.starts_with("error: none.scm: "), "{}", ran.err);
    assert_eq!(stage.run(&["scheme"]).code, Some(2));
    assert_eq!(stage.run(&["scheme", "--unknown", "none.scm"]).code, Some(2));
}

#[test]
fn scheme_reports_program_with_invalid_utf8() {
    let stage = Stage::new("");
    std::fs::write(stage.path().join("program.scm"), b"(display 1)\n\xff").unwrap();
    let ran = stage.run(&["scheme", "program.scm"]);
    assert_eq!((ran.code, &*ran.err), (Some(1), "error: program.scm:2: the text is not UTF-8\n"));
}

#[test]
fn program_has_channels() {
    let stage = Stage::new("");
    let text = "(define-values (out in) (make-channel))\n(spawn (lambda () (channel-send out 'krill)))
        (write (alt ((channel-receive in fish) (list 'got fish)) (after 10 'late)))\n(channel-receive in)(car 1)";
    std::fs::write(stage.path().join("program.scm"), text).unwrap();
    let ran = stage.run(&["scheme", "program.scm"]);
    assert_eq!((ran.code, &*ran.out), (Some(1), "(got krill)"));
    assert!(ran.err.contains("expected a pair, got 1"), "{}", ran.err);
}

#[test]
fn libraries_and_included_files_are_found_beside_the_program() {
    let stage = Stage::new("");
    let write = |path: &str, text: &str| {
        let path = stage.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("program/main.scm", "(import (birds auk))\n(include \"parts/rest.scm\")\n(dive 3)\n");
    write("program/parts/rest.scm", "(include \"more.scm\")\n(display more)\n");
    write("program/parts/more.scm", "(define more 'more)");
    write(
        "program/birds/auk.sld",
        "(define-library (birds auk)\n (export dive) (import (scheme base))\n (begin (define (dive n)\n (car n))))\n",
    );
    let ran = stage.run(&["scheme", "program/main.scm"]);
    let expected =
        "error: birds/auk.sld:4:2: expected a pair, got 3\n  in dive at birds/auk.sld:4:2\n  at program/main.scm:3:1\n";
    assert_eq!((ran.code, &*ran.out, &*ran.err), (Some(1), "more", expected));
    let ran = stage.run(&["scheme", "--check", "program/main.scm"]);
    assert_eq!((ran.code, &*ran.out, &*ran.err), (Some(0), "", ""));
    for (program, expected) in [
        ("(import (birds hawk))", "birds/hawk.sld: "),
        ("(include \"parts\")", "cannot include parts: it is no file"),
        ("(include \"bytes\")", "cannot include bytes: the text is not UTF-8"),
        ("(include \"../program/main.scm\")", "relative path without .."),
    ] {
        write("program/wrong.scm", program);
        std::fs::write(stage.path().join("program/bytes"), b"\xff").unwrap();
        let ran = stage.run(&["scheme", "program/wrong.scm"]);
        assert_eq!(ran.code, Some(1), "{program}");
        assert!(ran.err.contains(expected) && ran.err.contains("1 | ("), "{program}: {}", ran.err);
    }
}
