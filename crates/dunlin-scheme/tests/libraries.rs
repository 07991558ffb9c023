//! Libraries: what they bind, what they refuse, and what their hash is part of.

use std::collections::HashMap;
use std::io::{Error, ErrorKind};
use std::sync::{Arc, Mutex};

use dunlin_scheme::Scheme;

/// A machine whose programs find these files, and the paths that were asked for.
fn with_files(files: &[(&str, &str)]) -> (Scheme, Arc<Mutex<Vec<String>>>) {
    let files: HashMap<String, String> =
        files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let noted = asked.clone();
    let mut scheme = Scheme::new();
    scheme.set_files(move |path| {
        noted.lock().unwrap().push(path.to_owned());
        files.get(path).cloned().ok_or_else(|| Error::from(ErrorKind::NotFound))
    });
    (scheme, asked)
}

fn value_with(files: &[(&str, &str)], text: &str) -> String {
    with_files(files).0.eval("test", text).unwrap_or_else(|error| panic!("{text}\n{error}"))
}

fn error_with(files: &[(&str, &str)], text: &str) -> String {
    match with_files(files).0.eval("test", text) {
        Ok(value) => panic!("{text} is {value}"),
        Err(error) => error.to_string(),
    }
}

/// The value of a program, the same with a collection wherever one may be, and with each process written and
/// read at every end of its turns.
fn value(text: &str) -> String {
    let expected = value_with(&[], text);
    for (turn, collects) in [(u64::MAX, true), (1, false)] {
        let mut scheme = Scheme::new();
        scheme.set_turn(turn);
        scheme.set_collect_always(collects);
        scheme.set_rewrite(!collects);
        assert_eq!(scheme.eval("test", text).as_ref(), Ok(&expected), "turn {turn}: {text}");
    }
    expected
}

fn error(text: &str) -> String {
    error_with(&[], text)
}

const STACK: &str = "(define-library (stack)
  (export make push (rename top peek) (rename stack-record? stack?) with-pushed)
  (import (scheme base))
  (begin
    (define-record-type stack-record (new items) stack-record? (items items))
    (define (make) (new '()))
    (define (push stack item) (new (cons item (items stack))))
    (define (top stack) (if (even-length? (items stack)) (car (items stack)) (car (items stack))))
    (define (even-length? list) (or (null? list) (odd-length? (cdr list))))
    (define (odd-length? list) (and (pair? list) (even-length? (cdr list))))
    (define-syntax with-pushed
      (syntax-rules () ((_ stack item body) (let ((stack (push stack item))) body))))))\n";

#[test]
fn library_exports_variables_and_syntax_and_keeps_the_rest() {
    let use_it = "(import (stack)) (let ((s (push (make) 1))) (list (stack? s) (peek s) (with-pushed s 2 (peek s))))";
    assert_eq!(value(&format!("{STACK}{use_it}")), "(#t 1 2)");
    for hidden in ["top", "items", "stack-record?", "new"] {
        let error = error(&format!("{STACK}(import (stack)) ({hidden} 1)"));
        assert!(error.contains(&format!("variable is not defined: {hidden}")), "{error}");
    }
}

#[test]
fn macro_of_a_library_uses_its_bindings_whatever_the_program_defines() {
    let program = "(import (only (stack) with-pushed make))
        (define (push . all) 'mine) (define (peek . all) 'mine) (define s (make))
        (list (pair? s) (let ((push 5)) (with-pushed s 7 (eq? s 'mine))))";
    assert_eq!(value(&format!("{STACK}{program}")), "(#f #f)");
}

#[test]
fn import_sets_choose_and_rename() {
    let numbers = "(define-library (numbers) (export one two three) (import (scheme base))
        (begin (define one 1) (define two 2) (define three 3)))\n";
    for (sets, text, expected) in [
        ("(numbers)", "(list one two three)", "(1 2 3)"),
        ("(only (numbers) one three)", "(list one three)", "(1 3)"),
        ("(except (numbers) one)", "(list two three)", "(2 3)"),
        ("(prefix (numbers) n-)", "(list n-one n-two)", "(1 2)"),
        ("(rename (numbers) (one two) (two one))", "(list one two three)", "(2 1 3)"),
        ("(prefix (only (rename (numbers) (one uno)) uno two) x:)", "(list x:uno x:two)", "(1 2)"),
        ("(rename (prefix (numbers) a) (aone b))", "(list b atwo)", "(1 2)"),
        ("(only (numbers) one) (only (numbers) one two)", "(list one two)", "(1 2)"),
    ] {
        assert_eq!(value(&format!("{numbers}(import {sets}) {text}")), expected, "{sets}");
    }
    for (sets, missing) in [
        ("(only (numbers) one)", "two"),
        ("(except (numbers) two)", "two"),
        ("(prefix (numbers) n-)", "two"),
        ("(rename (numbers) (two deux))", "two"),
    ] {
        let error = error(&format!("{numbers}(import {sets}) {missing}"));
        assert!(error.contains("variable is not defined: two"), "{sets}: {error}");
    }
}

#[test]
fn library_sees_what_it_imports_and_nothing_else() {
    let error =
        error("(define-library (a) (export f) (import (only (scheme base) define))\n (begin (define (f x) (car x))))");
    assert_eq!(error, "test:2:24: car is neither imported nor defined in this library");
    let program = "(define y 5) (define-library (a) (import (scheme base)) (begin (define x y)))";
    let seen = Scheme::new().eval("test", program).unwrap_err().to_string();
    assert_eq!(seen, "test:1:74: y is neither imported nor defined in this library");
    let text = "(define-library (a) (export f) (import (prefix (scheme base) b:))
        (begin (b:define (f x) (b:cond ((b:null? x) 0) (else (b:car x))))))
        (import (a)) (list (f '()) (f '(1)))";
    assert_eq!(value(text), "(0 1)");
}

#[test]
fn bodies_run_once_in_the_order_of_imports() {
    let text = "
        (define-library (low) (export low) (import (scheme base) (scheme write))
          (begin (display 'low) (define low 1)))
        (define-library (high) (export high low) (import (scheme base) (scheme write) (low))
          (begin (define high (+ low 1)) (display 'high)))
        (define-library (unused) (import (scheme base) (scheme write)) (begin (display 'unused)))
        (display 'first)
        (import (high)) (import (low) (high))
        (list low high)";
    let mut scheme = Scheme::new();
    assert_eq!(scheme.eval("test", text).unwrap(), "(1 2)");
    assert_eq!(scheme.take_output(), "firstlowhigh");
}

#[test]
fn bindings_of_a_library_never_change() {
    let library = "(define-library (a) (export x f) (import (scheme base))
        (begin (define x 1) (define (f) (list x (square 3)))))\n";
    // A definition of the program is another variable, also if the name is a standard one.
    let text = format!(
        "{library}(import (a)) (define (g) x) (define x 5) (define (square n) 'mine) (list x (g) (f) (square 3))"
    );
    assert_eq!(value(&text), "(5 1 (1 9) mine)");
    let early = format!("(define (square n) 'mine){library}(import (a)) (list (f) (square 3))");
    assert_eq!(value(&early), "((1 9) mine)");
    // Another library of that name is another library: what was compiled with the first one keeps it.
    let text = format!(
        "{library}(import (a)) (define (g) (f))
        (define-library (a) (export f) (import (scheme base)) (begin (define (f) 'second)))
        (define old (g)) (import (a)) (list old (g) (f))"
    );
    assert_eq!(value(&text), "((1 9) (1 9) second)");
}

#[test]
fn continuation_that_enters_a_body_again_changes_no_binding() {
    let text = "
        (define-library (a) (export x) (import (scheme base))
          (begin (define x (call/cc (lambda (k) (list k))))))
        (import (a))
        (define before x)
        (if (pair? x) ((car x) 'second))
        (list (pair? x) (eq? x before))";
    assert_eq!(value_with(&[], text), "(#t #t)");
}

/// The value of a program whose time is virtual, and what it printed.
fn value_and_output(text: &str) -> (String, String) {
    let mut scheme = Scheme::new();
    scheme.set_virtual_time();
    let value = scheme.eval("test", text).unwrap();
    (value, scheme.take_output())
}

const SLOW: &str = "
    (define-library (slow) (export x) (import (dunlin)) (begin (display 'begin) (define x (begin (sleep 1) (self))) (display 'end)))
    (define main (self))
    (define (go) (eval '(import (slow))) (! main (eval 'x)))\n";

#[test]
fn body_runs_once_also_for_processes_that_import_at_the_same_time() {
    let text = "(spawn go) (spawn go) (spawn go) (go)
        (let ((all (list (?) (?) (?) (?)))) (list (pid? (car all)) (every (lambda (x) (eq? x (car all))) all)))";
    let (value, output) = value_and_output(&format!("{SLOW}{text}"));
    assert_eq!((&*value, &*output), ("(#t #t)", "beginend"));
}

#[test]
fn process_that_waits_for_a_body_runs_it_if_the_first_one_ends() {
    let text = "(define first-one (spawn go)) (define second-one (spawn go)) (spawn go)
        (sleep 0.5) (kill first-one) (let ((x (?))) (list (eq? x second-one) (eq? x (?))))";
    let (value, output) = value_and_output(&format!("{SLOW}{text}"));
    assert_eq!((&*value, &*output), ("(#t #t)", "beginbeginend"));
    let failing =
        "(define-library (a) (export x) (import (dunlin)) (begin (sleep 1) (display 'tried) (define x (car (?)))))
        (define main (self))
        (define (go) (! main (guard (e (#t 'failed)) (eval '(import (a))) (eval 'x))))
        (define one (spawn go)) (define two (spawn go))
        (! one 'wrong) (! two '(right)) (let* ((first (?)) (second (?))) (list first second))";
    let (value, output) = value_and_output(failing);
    assert_eq!((&*value, &*output), ("(failed right)", "triedtried"));
}

#[test]
fn interrupted_text_leaves_the_bodies_that_it_ran() {
    let mut scheme = Scheme::new();
    scheme.set_virtual_time();
    let text = "(define-library (a) (export x) (import (dunlin)) (begin (define x (if (eq? (? 0 'none) 'go) 1 (let loop () (loop))))))";
    scheme.eval("test", text).unwrap();
    scheme.set_fuel(10_000);
    assert_eq!(scheme.eval("test", "(import (a))"), Err(dunlin_scheme::Error::OutOfFuel));
    scheme.set_fuel(100_000);
    let retried = "(define main (self)) (! (spawn (lambda () (eval '(import (a))) (! main (eval 'x)))) 'go) (?)";
    assert_eq!(scheme.eval("test", retried).unwrap(), "1");
}

#[test]
fn bodies_that_wait_for_each_other_are_an_error() {
    // A body imports through `eval`: its own library, or one whose body imports the first in another process.
    let text = "
        (define-library (own) (export x) (import (dunlin))
          (begin (define x (guard (e ((error-object? e) (error-object-kind e))) (eval '(import (own)))))))
        (import (own))
        (define-library (one) (export one) (import (dunlin)) (begin (sleep 1) (define one (eval '(begin (import (two)) 1)))))
        (define-library (two) (export two) (import (dunlin)) (begin (sleep 1) (define two (eval '(begin (import (one)) 2)))))
        (define main (self))
        (define (go form) (spawn (lambda () (! main (guard (e ((error-object? e) (error-object-kind e))) (eval form) 'done)))))
        (go '(import (one))) (go '(import (two)))
        (let* ((first (?)) (second (?))) (list x first second))";
    let (value, _) = value_and_output(text);
    assert_eq!(value, "(import import import)");
}

#[test]
fn process_that_waits_for_a_body_hears_of_exits_where_it_retrieves() {
    let text = "(spawn go)
        (define linked (spawn (lambda () (eval '(import (slow))) (! main (guard (e (#t e)) (?))))))
        (spawn (lambda () (outbound-link linked) (raise 'gone)))
        (let* ((first (?)) (second (?))) (list (pid? first) second))";
    let (value, output) = value_and_output(&format!("{SLOW}{text}"));
    assert_eq!((&*value, &*output), ("(#t gone)", "beginend"));
}

#[test]
fn code_that_uses_a_library_names_its_hash() {
    let library =
        |body: &str| format!("(define-library (a) (export f) (import (scheme base)) (begin {body}))\n(import (a))\n");
    let program = "(define (call) (lambda () (f 1)))\n(define value (call))";
    let original = library("(define (help n) (+ n 1)) (define (f n) (help n))");
    let mut here = Scheme::new();
    here.eval("test", &format!("{original}{program}")).unwrap();
    let image = here.write_global("value").unwrap();
    let reads = |library: &str| {
        let mut there = Scheme::new();
        there.eval("elsewhere", &format!("{library}{program}")).unwrap();
        there.read_global("read", &image).map(|()| there.eval("test", "(read)").unwrap())
    };
    assert_eq!(reads(&original).unwrap(), "2");
    // Positions, local names and docs are no part of the hash.
    let renamed = "\n ; documented\n (define (assist number) (+ number 1))\n (define (f m) (assist m))";
    assert_eq!(reads(&library(renamed)).unwrap(), "2");
    // A change of what no one exports is one of the library, and of all that uses it.
    assert!(reads(&library("(define (help n) (+ n 2)) (define (f n) (help n))")).is_err());
    // So is one of a library that it imports.
    let through = |number: &str| {
        format!(
            "(define-library (base) (export n) (import (scheme base)) (begin (define n {number})))
            (define-library (a) (export f) (import (scheme base) (base)) (begin (define (f m) (+ m n))))
            (import (a))\n"
        )
    };
    let mut here = Scheme::new();
    here.eval("test", &format!("{}{program}", through("1"))).unwrap();
    let image = here.write_global("value").unwrap();
    for (number, fits) in [("1", true), ("2", false)] {
        let mut there = Scheme::new();
        there.eval("test", &format!("{}{program}", through(number))).unwrap();
        assert_eq!(there.read_global("read", &image).is_ok(), fits, "{number}");
    }
}

#[test]
fn names_of_globals_of_libraries_cannot_be_defined() {
    let zeros = "0".repeat(64);
    let error = error(&format!("(define |library {zeros} 1| 5)"));
    assert!(error.ends_with("this name is that of a library's global"), "{error}");
}

#[test]
fn declarations_may_come_in_any_order_and_from_files() {
    let files = [
        (
            "birds/auk.sld",
            "(define-library (birds auk)\n (include-library-declarations \"auk/exports.scm\")
            (begin (define a 1)) (include \"auk/one.scm\" \"auk/two.scm\") (include-ci \"auk/loud.scm\")
            (cond-expand ((library (birds nest)) (import (birds nest))) (else (begin (define nest 'none))))
            (import (scheme base)))",
        ),
        ("birds/auk/exports.scm", "(export a b c d nest)"),
        ("birds/auk/one.scm", "(define b (+ a 1))"),
        ("birds/auk/two.scm", "(define c (+ b 1)) (include \"three.scm\")"),
        ("birds/auk/three.scm", "(define d 4)"),
        ("birds/auk/loud.scm", "(DEFINE E 'LOUD)"),
    ];
    assert_eq!(value_with(&files, "(import (birds auk)) (list a b c d nest)"), "(1 2 3 4 none)");
    let (mut scheme, asked) = with_files(&files);
    scheme.eval("test", "(import (birds auk)) (import (only (birds auk) a))").unwrap();
    let asked = asked.lock().unwrap();
    assert_eq!(asked.iter().filter(|path| *path == "birds/auk.sld").count(), 1, "{asked:?}");
}

#[test]
fn included_forms_stand_where_the_include_does() {
    let files = [("three.scm", "(define x 3) (* x 2)"), ("more.scm", "(define y 1)\n(car y)")];
    assert_eq!(value_with(&files, "(include \"three.scm\") x"), "3");
    assert_eq!(value_with(&files, "(define (f) (include \"three.scm\")) (f)"), "6");
    assert_eq!(value_with(&files, "(let ((x 1)) (list (let () (include \"three.scm\")) x))"), "(6 1)");
    // Errors name the file that they are in, at any depth.
    let shown = error_with(&files, "(define (f)\n (include \"more.scm\"))\n(f)");
    assert!(shown.contains("expected a pair, got 1\n  in f at more.scm:2:1\n"), "{shown}");
    assert_eq!(error_with(&[("x.scm", "\n(if)")], "(include \"x.scm\")"), "x.scm:2:1: expected (if test then else)");
    assert_eq!(error_with(&[("x.scm", "1\n (2")], "(include \"x.scm\")"), "x.scm:2:2: list is not closed");
}

#[test]
fn wrong_libraries_are_errors_with_their_place() {
    let a = "(define-library (a) (export x) (import (scheme base)) (begin (define x 1)))\n";
    let b = "(define-library (b) (export x) (import (scheme base)) (begin (define x 2)))\n";
    for (text, expected) in [
        ("(import (a))", "test:1:9: there is no library (a)"),
        ("(import (scheme base) (srfi 999))", "test:1:23: there is no library (srfi 999)"),
        ("(import)", ""),
        ("(import 5)", "test:1:9: expected the name of a library, or (only ...), (except ...) and so on"),
        ("(import (some (scheme base) car))", "test:1:9: expected only, except, prefix or rename before an import set"),
        ("(import (only (scheme base) carr))", "test:1:29: (scheme base) has no carr"),
        ("(import (except (scheme base) carr))", "test:1:31: (scheme base) has no carr"),
        ("(import (rename (scheme base) (carr kar)))", "test:1:32: (scheme base) has no carr"),
        ("(import (rename (scheme base) (car cdr)))", "test:1:9: two names are renamed to cdr, or it is one already"),
        ("(import (prefix (scheme base) 5))", "test:1:31: expected an identifier"),
        (
            "(import (only (scheme base) set-car!))",
            "test:1:29: (scheme base) has no set-car!, objects never change: use cons",
        ),
        (
            "(define-library (a) (export x) (import (scheme base)))",
            "test:1:29: (a) exports x, which it neither defines nor imports",
        ),
        (
            "(define-library (a) (export car (rename cdr car)) (import (scheme base)))",
            "test:1:45: (a) exports car twice",
        ),
        (
            "(define-library (a) (import (scheme base)) (begin (define x 1) (define x 2)))",
            "test:1:72: this identifier is imported or defined already, and bindings of libraries never change",
        ),
        (
            "(define-library (a) (import (scheme base)) (begin (define (car x) x)))",
            "test:1:60: this identifier is imported or defined already, and bindings of libraries never change",
        ),
        (
            "(define-library (a) (import (scheme base)) (begin (define-syntax car (syntax-rules ()))))",
            "test:1:51: this identifier is imported or defined already, and bindings of libraries never change",
        ),
        ("(define-library (scheme base) (export))", "test:1:17: (scheme base) is a standard library"),
        ("(define-library a (export))", "test:1:17: expected the name of a library: (identifier or number ...)"),
        ("(define-library (a -1) (export))", "test:1:17: expected the name of a library: (identifier or number ...)"),
        (
            "(define-library (a) (exports x))",
            "test:1:21: expected export, import, begin, include, include-ci, include-library-declarations or cond-expand",
        ),
        (
            "(define-library (a) (export 5))",
            "test:1:29: expected identifier or (rename identifier exported-identifier)",
        ),
        ("(define-library (a) (import (a)))", "test:1:29: libraries import each other: (a) imports (a)"),
        (
            "(let () (import (scheme base)) 1)",
            "test:1:9: a definition belongs at the top level, or at the beginning of a body",
        ),
        (
            "(define-library (a) (import (scheme base)) (begin (set! car 1)))",
            "test:1:51: set! is not available, variables never change: bind a new one with let or a loop",
        ),
        ("(include \"x.scm\")", "test:1:10: cannot include x.scm: there are no files here"),
        ("(include)", "test:1:1: expected (include \"file\" ...)"),
        ("(include x)", "test:1:10: expected the name of a file, as a string"),
    ] {
        match Scheme::new().eval("test", text) {
            Err(error) => assert_eq!(error.to_string(), expected, "{text}"),
            Ok(_) => assert_eq!(expected, "", "{text}"),
        }
    }
    assert_eq!(error(&format!("{a}{b}(import (a) (b))")), "test:3:13: x is imported twice, with two meanings");
    let in_library = format!("{a}{b}(define-library (c) (import (a) (b)))");
    assert_eq!(error(&in_library), "test:3:33: x is imported twice, with two meanings");
}

#[test]
fn import_cycles_through_files_are_errors() {
    let library = |name: &str, imports: &str| format!("(define-library ({name})\n (import (scheme base) ({imports})))");
    let (a, b, c) = (library("a", "b"), library("b", "c"), library("c", "a"));
    let files = [("a.sld", &*a), ("b.sld", &b), ("c.sld", &c)];
    let error = error_with(&files, "(import (a))");
    assert_eq!(error, "c.sld:2:24: libraries import each other: (a) imports (b) imports (c) imports (a)");
    // After the error the machine is usable, and no half of a library is left.
    let (mut scheme, _) = with_files(&files);
    assert!(scheme.eval("test", "(import (a))").is_err());
    assert!(scheme.eval("test", "(import (c))").unwrap_err().to_string().contains("import each other"));
    assert_eq!(scheme.eval("test", "(+ 1 1)").unwrap(), "2");
    let early = [("a.sld", "(define-library (z) (import (a)))")];
    assert_eq!(error_with(&early, "(import (a))"), "a.sld:1:29: the file of (a) imports (a) before it defines it");
}

#[test]
fn wrong_files_are_errors() {
    assert_eq!(
        error_with(&[("a.sld", "(define-library (b))")], "(import (a))"),
        "test:1:9: a.sld does not define the library (a)"
    );
    assert_eq!(
        error_with(&[("a.sld", "(define x 1)")], "(import (a))"),
        "a.sld:1:1: the file of a library contains only define-library"
    );
    let error = error_with(&[("a.sld", "(define-library (a)\n (export x)")], "(import (a))");
    assert_eq!(error, "a.sld:1:1: list is not closed");
    let itself = [("x.scm", "(include \"y.scm\")"), ("y.scm", "(include \"x.scm\")")];
    assert_eq!(error_with(&itself, "(include \"x.scm\")"), "y.scm:1:10: x.scm includes itself");
    let long = " ".repeat((16 << 20) + 1);
    assert_eq!(error_with(&[("x.scm", &long)], "(include \"x.scm\")"), "test:1:10: x.scm is longer than 16 MiB");
    // Files that name others more than once each: what they add up to is bounded.
    let mut twice: Vec<(String, String)> = (0..40)
        .map(|n| {
            (format!("{n}.scm"), format!("(include \"{0}.scm\") (include \"{0}.scm\") ;{1}", n + 1, " ".repeat(999)))
        })
        .collect();
    twice.push(("40.scm".into(), "1".into()));
    let twice: Vec<(&str, &str)> = twice.iter().map(|(path, text)| (&**path, &**text)).collect();
    let error = error_with(&twice, "(include \"0.scm\")");
    assert!(error.contains("the files of this form are too long together"), "{error}");
}

#[test]
fn no_path_leaves_the_folder_of_the_program() {
    for text in [
        "(include \"../x.scm\")",
        "(include \"/etc/passwd\")",
        "(include \"\")",
        "(include \"a/../../x\")",
        "(include \"./x\")",
        "(include \"a\\\\..\\\\x\")",
        "(include \"c:x\")",
        "(import (..))",
        "(import (|../x|))",
        "(import (|/etc/passwd|))",
        "(import (a ..))",
        "(import (||))",
        "(import (|c:x|))",
        "(import (|.hidden|))",
        "(cond-expand ((library (|../x|)) 1) (else (import (.. x))))",
    ] {
        let (mut scheme, asked) = with_files(&[]);
        assert!(scheme.eval("test", text).is_err(), "{text}");
        assert!(asked.lock().unwrap().is_empty(), "{text}: {asked:?}");
    }
}

#[test]
fn macros_and_eval_read_no_files() {
    let files = [("x.scm", "1"), ("a.sld", "(define-library (a) (export))")];
    for text in [
        "(define-syntax m (syntax-rules () ((_ f) (include f)))) (m \"x.scm\")",
        "(define-syntax m (syntax-rules () ((_) (import (a))))) (m)",
        "(define-syntax m (syntax-rules () ((_ i) (define-library (z) (import i))))) (m (a))",
        "(define-syntax m (syntax-rules () ((_) (cond-expand ((library (a)) 1))))) (m)",
        "(define-macro (m) '(include \"x.scm\")) (m)",
        "(define-macro (m) '(let () (define-values (a) (include-ci \"x.scm\")) a)) (m)",
        "(define-macro (m) '(begin (import (a)))) (m)",
        "(eval '(include \"x.scm\"))",
        "(eval '(import (a)))",
    ] {
        let (mut scheme, asked) = with_files(&files);
        assert!(scheme.eval("test", text).is_err(), "{text}");
        assert!(asked.lock().unwrap().is_empty(), "{text}: {asked:?}");
    }
    // What a program wrote is read also as an argument of a macro, and data are data.
    assert_eq!(value_with(&files, "(guard (e (#t e)) (include \"x.scm\"))"), "1");
    assert_eq!(value_with(&files, "(define-macro (m) ''(include \"x.scm\")) (m)"), "(include \"x.scm\")");
    assert_eq!(
        value_with(
            &[],
            "(define-library (a) (export x) (import (scheme base)) (begin (define x 1))) (eval '(import (a))) (eval 'x)"
        ),
        "1"
    );
}

#[test]
fn failed_body_is_run_again_by_the_next_import() {
    let text = "(define-library (a) (export x y) (import (scheme base))
        (begin (define x (list 1)) (define y (car (tries)))) (import (tries)))";
    let tries = "(define-library (tries) (export tries) (import (dunlin))
        (begin (define tries (make-parameter '()))))\n";
    let mut scheme = Scheme::new();
    scheme.eval("test", &format!("{tries}{text}")).unwrap();
    assert!(scheme.eval("test", "(import (a))").unwrap_err().to_string().contains("expected a pair"));
    assert!(scheme.eval("test", "y").unwrap_err().to_string().contains("variable is not defined: y"));
    scheme.eval("test", "(import (tries)) (define first x)").unwrap();
    let retried = scheme.eval("test", "(parameterize ((tries '(5))) (eval '(import (a)))) (list x y (equal? x first))");
    assert_eq!(retried.unwrap(), "((1) 5 #t)");
}

#[test]
fn standard_libraries_export_only_what_is_there() {
    for library in [
        "base",
        "case-lambda",
        "char",
        "complex",
        "cxr",
        "eval",
        "file",
        "inexact",
        "lazy",
        "load",
        "process-context",
        "r5rs",
        "read",
        "repl",
        "time",
        "write",
    ] {
        value_with(&[], &format!("(define-library (x) (import (scheme {library})))"));
    }
    for (library, name) in
        [("scheme base", "display"), ("scheme write", "car"), ("srfi 1", "spawn"), ("dunlin", "%eq?")]
    {
        let error = error(&format!("(import (only ({library}) {name}))"));
        assert!(error.contains(&format!("has no {name}")), "{error}");
    }
    let text = "(define-library (x) (export go) (import (scheme base) (only (dunlin) spawn ! ? self) (srfi 1))
        (begin (define (go) (let ((me (self))) (spawn (lambda () (! me (iota 3)))) (fold + 0 (?))))))
        (import (x)) (go)";
    assert_eq!(value(text), "3");
    assert_eq!(value("(cond-expand ((and (library (scheme base)) (not (library (scheme basic)))) 1) (else 2))"), "1");
}

#[test]
fn imported_names_are_those_of_the_machine() {
    let mut scheme = Scheme::new();
    scheme.eval("test", &format!("{STACK}(import (prefix (stack) stack-))")).unwrap();
    let globals = scheme.globals();
    assert!(globals.iter().any(|name| name == "stack-push") && !globals.iter().any(|name| name == "push"));
    assert!(globals.iter().all(|name| !name.starts_with("library ")), "{globals:?}");
    assert!(scheme.syntax_names().iter().any(|name| name == "stack-with-pushed"));
}

#[test]
fn definition_of_a_standard_name_is_the_programs_alone() {
    // Code that was compiled before has the standard procedure, as standard procedures have.
    assert_eq!(value("(define (f x) (square x)) (define (square x) 'mine) (list (f 3) (square 3))"), "(9 mine)");
    // Of names outside of (scheme base) the program has a copy, which its definition replaces.
    assert_eq!(value("(define (f x) (first x)) (define (first x) 'mine) (list (f '(1)) (first '(1)))"), "(mine mine)");
    assert_eq!(value("(define (fold . all) 'mine) (list (fold) (reduce + 0 '(1 2)))"), "(mine 3)");
    // A macro of the prelude that compares the name takes the program's copy, and not its own definition.
    let alt = "(define-syntax m (syntax-rules (fold) ((_ fold) 'fold) ((_ x) 'other)))";
    assert_eq!(value(&format!("{alt} (list (m fold) (let ((fold 1)) (m fold)))")), "(fold other)");
    let library = "(define-library (a) (export m) (import (dunlin)) (begin
        (define-syntax m (syntax-rules (fold) ((_ fold) 'fold) ((_ x) 'other)))))";
    assert_eq!(value(&format!("{library} (import (a)) (m fold)")), "fold");
    assert_eq!(value(&format!("{library} (import (a)) (define (fold) 1) (m fold)")), "other");
    assert!(error("(define |standard fold| 5)").ends_with("this name is that of a library's global"));
    let library = "(define-library (a) (export f) (import (dunlin)) (begin (define (f) (fold + 0 '(1 2)))))";
    assert_eq!(value(&format!("(define (fold . all) 'mine) {library} (import (a)) (list (f) (fold))")), "(3 mine)");
    assert_eq!(value(&format!("{library} (define (fold . all) 'mine) (import (a)) (list (f) (fold))")), "(3 mine)");
    assert_eq!(value("(define (append . all) 'mine) (list (append-map list '(1 2)) `(1 ,@'(2) 3))"), "((1 2) (1 2 3))");
    assert_eq!(
        value("(define old-car car) (define (car x) (list (old-car x))) (list (car '(1)) (map car '((2))))"),
        "((1) ((2)))"
    );
    assert_eq!(value("(define (make-parameter x) x) (define (dynamic-wind a b c) 1) (parameterize () 2)"), "2");
    let mut scheme = Scheme::new();
    scheme.define("square", &dunlin_scheme::Value::Integer(5)).unwrap();
    assert_eq!(scheme.eval("test", "square").unwrap(), "5");
    let image = scheme.write_global("square").unwrap();
    scheme.read_global("cube", &image).unwrap();
    assert_eq!(scheme.eval("test", "(list cube square)").unwrap(), "(5 5)");
    let error = scheme.eval("test", "(define list-copy (car 5))").unwrap_err().to_string();
    assert!(error.contains("expected a pair"), "{error}");
    let error = scheme.eval("test", "(list-copy '(1))").unwrap_err().to_string();
    assert!(error.contains("variable is not defined: list-copy"), "{error}");
}
