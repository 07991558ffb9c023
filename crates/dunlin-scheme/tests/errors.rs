//! Wrong programs, and what is shown of each: position, message, line and caret, calls.

use dunlin_scheme::Scheme;

/// Programs, each with the text of its error.
const WRONG: &[(&str, &str)] = &[
    ("(car 5)", "wrong.scm:1:1: expected a pair, got 5\n1 | (car 5)\n  | ^\n  at wrong.scm:1:1"),
    (
        "(define x 1)\n(display (+ x y))",
        "wrong.scm:2:15: variable is not defined: y\n2 | (display (+ x y))\n  |               ^\n  at wrong.scm:2:15",
    ),
    (
        "(define (f x)\n  (* 2 (car x)))\n(+ 1 (f 'a))",
        "wrong.scm:2:8: expected a pair, got a\n2 |   (* 2 (car x)))\n  |        ^\n  in f at wrong.scm:2:8\n  at wrong.scm:3:6",
    ),
    ("(display \"a\"\n(newline)", "wrong.scm:1:1: list is not closed\n1 | (display \"a\"\n  | ^"),
    ("(display 1))", "wrong.scm:1:12: unexpected )\n1 | (display 1))\n  |            ^"),
    ("\"no end", "wrong.scm:1:1: string is not closed\n1 | \"no end\n  | ^"),
    (
        "(let ((x 1) (x 2)) x)",
        "wrong.scm:1:14: this identifier is bound twice\n1 | (let ((x 1) (x 2)) x)\n  |              ^",
    ),
    ("(if)", "wrong.scm:1:1: expected (if test then else)\n1 | (if)\n  | ^"),
    ("(lambda (x x) x)", "wrong.scm:1:12: this identifier is bound twice\n1 | (lambda (x x) x)\n  |            ^"),
    (
        "(define v (vector 1 2))\n\t(vector-set! v 0 1)",
        "wrong.scm:2:3: vector-set! is not available, objects never change: use vector-map, or list->vector\n2 | \t(vector-set! v 0 1)\n  | \t ^",
    ),
    (
        "(let ((x 1))\n  (set! x 2))",
        "wrong.scm:2:3: set! is not available, variables never change: bind a new one with let or a loop\n2 |   (set! x 2))\n  |   ^",
    ),
    (
        "((lambda (x) x))",
        "wrong.scm:1:1: procedure: expected 1 argument, got 0\n1 | ((lambda (x) x))\n  | ^\n  at wrong.scm:1:1",
    ),
    ("(5 6)", "wrong.scm:1:1: expected a procedure, got 5\n1 | (5 6)\n  | ^\n  at wrong.scm:1:1"),
    (
        "(error \"no such town:\" 'bern 42)",
        "wrong.scm:1:1: no such town: bern 42\n1 | (error \"no such town:\" 'bern 42)\n  | ^\n  at wrong.scm:1:1",
    ),
    ("(raise 'oops)", "wrong.scm:1:1: uncaught object: oops\n1 | (raise 'oops)\n  | ^\n  at wrong.scm:1:1"),
    (
        "(vector-ref (vector 1 2 3) 3)",
        "wrong.scm:1:1: index out of range, expected 0 to 2, got 3\n1 | (vector-ref (vector 1 2 3) 3)\n  | ^\n  at wrong.scm:1:1",
    ),
    ("(quotient 1 0)", "wrong.scm:1:1: division by zero\n1 | (quotient 1 0)\n  | ^\n  at wrong.scm:1:1"),
    (
        "(define-syntax two (syntax-rules () ((_ a b) (+ a b))))\n(two 1)",
        "wrong.scm:2:1: no rule of the macro matches this form\n2 | (two 1)\n  | ^",
    ),
    (
        "(string-append \"a\" 'b)",
        "wrong.scm:1:1: expected a string, got b\n1 | (string-append \"a\" 'b)\n  | ^\n  at wrong.scm:1:1",
    ),
    (
        "(letrec ((a b) (b 1)) a)",
        "wrong.scm:1:1: variable is used before it has a value: b\n1 | (letrec ((a b) (b 1)) a)\n  | ^\n  at wrong.scm:1:1",
    ),
    ("(match 3 (4 'four))", "wrong.scm:1:1: no clause matches 3\n1 | (match 3 (4 'four))\n  | ^\n  at wrong.scm:1:1"),
    (
        "(display #\\nosuchname)",
        "wrong.scm:1:10: unknown character #\\nosuchname\n1 | (display #\\nosuchname)\n  |          ^",
    ),
    ("'(1 . 2 3)", "wrong.scm:1:9: more than one datum after a dot\n1 | '(1 . 2 3)\n  |         ^"),
    ("(else)", "wrong.scm:1:2: variable is not defined: else\n1 | (else)\n  |  ^\n  at wrong.scm:1:2"),
];

#[test]
fn wrong_programs_are_explained() {
    for (text, expected) in WRONG {
        let error = Scheme::new().run_text("wrong.scm", text).expect_err(text);
        let explained = error.explain("wrong.scm", text);
        assert_eq!(explained, *expected, "{text}");
    }
}
