//! Continuations: entered again, across winders, handlers and parameters, and as bytes on another machine.

use dunlin_scheme::{ReadError, Scheme};

fn run(text: &str) -> (String, String) {
    let mut scheme = Scheme::new();
    let value = scheme.eval("test", text).unwrap_or_else(|error| panic!("{text}\n{error}"));
    let output = scheme.take_output();
    let mut stressed = Scheme::new();
    stressed.set_collect_always(true);
    stressed.set_turn(3);
    stressed.set_rewrite(true);
    let again = stressed.eval("test", text).unwrap_or_else(|error| panic!("rewritten: {text}\n{error}"));
    assert_eq!((&again, &stressed.take_output()), (&value, &output), "rewritten at every third call: {text}");
    (value, output)
}

#[test]
fn a_continuation_is_entered_more_than_once() {
    let text = "(define k #f)
        (define (f) (let ((v (call/cc (lambda (c) (cons c 0))))) (if (pair? v) (list 'first (car v)) v)))
        (define r (f)) (define k (cadr r))
        (list (car r) (call/cc (lambda (back) (+ 1 (call/cc (lambda (c) 5))))))";
    assert_eq!(run(text).0, "(first 6)");
    let generator = "(define (tree-leaves tree) (call/cc (lambda (return)
        (let walk ((t tree)) (if (pair? t) (begin (walk (car t)) (walk (cdr t))) (if (eq? t 'stop) (return 'found) t)))
        'none)))
        (list (tree-leaves '((1 . 2) . (3 . stop))) (tree-leaves '(1 . 2)))";
    assert_eq!(run(generator).0, "(found none)");
}

#[test]
fn winders_run_on_the_way_out_and_on_the_way_in() {
    let text = "(let ((k (call/cc (lambda (escape)
          (dynamic-wind
            (lambda () (display \"[in]\"))
            (lambda () (call/cc (lambda (inside) (escape inside))))
            (lambda () (display \"[out]\")))))))
        (if (procedure? k) (k 'again) k))";
    assert_eq!(run(text), ("again".into(), "[in][out][in][out]".into()));
}

#[test]
fn a_handler_returns_to_the_raise_and_sees_the_outer_handler() {
    let text = "(with-exception-handler (lambda (e) 10) (lambda () (+ 1 (raise 'oops))))";
    assert_eq!(run(text).0, "11");
    let text = "(with-exception-handler (lambda (e) 10) (lambda () (+ 1 (car 5) (vector-ref (vector 1) 9))))";
    assert_eq!(run(text).0, "21");
    let text = "(with-exception-handler (lambda (e) (list 'outer e))
        (lambda () (with-exception-handler (lambda (e) (raise (list 'inner e))) (lambda () (raise 'x)))))";
    assert_eq!(run(text).0, "(outer (inner x))");
    let text = "(guard (e ((symbol? e) (list 'caught e))) (dynamic-wind (lambda () (display 1)) (lambda () (raise 'x)) (lambda () (display 2))))";
    assert_eq!(run(text), ("(caught x)".into(), "12".into()));
    let text = "(guard (e ((string? e) 'outer)) (guard (e ((number? e) 'inner)) (raise \"s\")))";
    assert_eq!(run(text).0, "outer");
}

#[test]
fn parameters_belong_to_the_continuation() {
    let text = "(define p (make-parameter 1 (lambda (x) (* x 2))))
        (define k (parameterize ((p 5)) (let ((v (call/cc (lambda (c) c)))) (if (procedure? v) v (list v (p))))))
        (if (procedure? k) (list (p) k) k)";
    assert!(run(text).0.starts_with("(2 #<procedure>"));
    assert_eq!(run("(define p (make-parameter 1)) (list (p) (parameterize ((p 2)) (p)) (p))").0, "(1 2 1)");
}

#[test]
fn a_continuation_entered_after_its_letrec_was_made_is_an_error() {
    let text = "(define k #f)
        (define (f) (letrec ((b (lambda () a)) (a (call/cc (lambda (c) c)))) (if (procedure? (b)) (list (b) b) 'done)))
        (define first (f))
        ((car first) 1)";
    let error = Scheme::new().eval("test", text).unwrap_err().to_string();
    assert!(error.starts_with("letrec entered twice\n  in f at test:2:"), "{error}");
}

/// What captures a continuation: `(step x)` returns x, and the first time sets off the capture.
const CAPTURES: &[(&str, &str, &str)] = &[
    ("map", "(map (lambda (x) (if (= x 2) (pause) x)) '(1 2 3))", "(1 20 3)"),
    ("sort", "(sort '(3 1 2) (lambda (a b) (if (and (= a 1) (= b 3)) (= (pause) 20) (< a b))))", "(1 2 3)"),
    (
        "dynamic-wind",
        "(dynamic-wind (lambda () (display \"<\")) (lambda () (list 'in (pause))) (lambda () (display \">\")))",
        "(in 20)",
    ),
    ("handler", "(with-exception-handler (lambda (e) (pause)) (lambda () (list 'value (raise 'x))))", "(value 20)"),
    ("parameter", "(parameterize ((p 5)) (let ((v (pause))) (list v (p))))", "(20 5)"),
    ("deep", "(let count ((n 5000)) (if (= n 0) (pause) (+ 1 (count (- n 1)))))", "5020"),
    ("record", "(let ((r (make-bird 'auk \"kr\"))) (list (bird-name r) (pause) (bird-sound r)))", "(auk 20 \"kr\")"),
    ("promise", "(let ((d (delay (pause)))) (list (force d) (force d)))", "(20 20)"),
];

const LIBRARY: &str = "
    (define p (make-parameter 1))
    (define-record-type bird (make-bird name sound) bird? (name bird-name) (sound bird-sound))
    (define (pause) (call/cc (lambda (inside) (%throw-out inside))))
    (define (%throw-out inside) ((outer) inside))
    (define outer (make-parameter #f))
    (define (capture thunk)
      (call/cc (lambda (escape) (parameterize ((outer escape)) (cons 'result (thunk))))))
    (define (enter k value) (call/cc (lambda (escape) (parameterize ((outer escape)) (k value)))))";

#[test]
fn a_continuation_is_written_and_entered_twice_on_a_fresh_machine() {
    for (name, expression, expected) in CAPTURES {
        let mut first = Scheme::new();
        first.eval("library", LIBRARY).unwrap();
        let program = format!("(define captured (capture (lambda () {expression})))");
        first.eval(name, &program).unwrap();
        assert_eq!(first.eval("check", "(procedure? captured)").unwrap(), "#t", "{name} pauses");
        let image = first.write_global("captured").unwrap();

        let mut second = Scheme::new();
        second.eval("library", LIBRARY).unwrap();
        second.load("elsewhere", &program).unwrap();
        second.read_global("k", &image).unwrap();
        second.set_collect_always(true);
        for time in 1..=2 {
            // The moved continuation ends in its own `define`, whose value is the result.
            second.eval("enter", "(k 20)").unwrap();
            let value = second.eval("check", "(cdr captured)").unwrap();
            assert_eq!(value, *expected, "{name}, entered the {time}. time");
        }
        // The value of a promise stays; nothing else has changed.
        if *name != "promise" {
            assert_eq!(second.write_global("k").unwrap(), image, "{name}: the same image again");
        }
    }
}

#[test]
fn an_image_names_code_that_must_be_loaded() {
    let mut first = Scheme::new();
    first.eval("test", "(define (f x) (lambda (y) (+ x y))) (define g (f 3))").unwrap();
    let image = first.write_global("g").unwrap();
    let mut second = Scheme::new();
    assert_eq!(second.read_global("g", &image), Err(ReadError::UnknownCode));
    // Positions and the text's name are no part of the hash, the code is.
    second.load("other", "\n\n(define (f x)   (lambda (y) (+ x y)))").unwrap();
    second.read_global("g", &image).unwrap();
    assert_eq!(second.eval("test", "(g 4)").unwrap(), "7");
    let mut third = Scheme::new();
    third.load("other", "(define (f x) (lambda (y) (- x y)))").unwrap();
    assert_eq!(third.read_global("g", &image), Err(ReadError::UnknownCode));
}

#[test]
fn an_image_needs_the_same_constants_operands_and_names() {
    for (here, elsewhere) in [
        ("(define (f) \"a\")", "(define (f) \"b\")"),
        ("(define (f) 'a)", "(define (f) 'b)"),
        ("(define (f x y) x)", "(define (f x y) y)"),
        ("(define (f) (ab c))", "(define (f) (ab d))"),
        // What is named is told apart from how the names follow each other.
        ("(define (f) (ab c))", "(define (f) (a bc))"),
    ] {
        let mut first = Scheme::new();
        first.eval("here", here).unwrap();
        let image = first.write_global("f").unwrap();
        let mut second = Scheme::new();
        second.load("elsewhere", elsewhere).unwrap();
        assert_eq!(second.read_global("f", &image), Err(ReadError::UnknownCode), "{here} and {elsewhere}");
        second.load("elsewhere", here).unwrap();
        assert_eq!(second.read_global("f", &image), Ok(()), "{here}");
    }
}

#[test]
fn a_captured_frame_is_moved_to_the_heap_once() {
    let mut scheme = Scheme::new();
    let text = "(define (deep n) (if (= n 0) (many 1000) (+ 1 (deep (- n 1)))))
        (define (many n) (if (= n 0) 0 (begin (call/cc (lambda (k) k)) (many (- n 1)))))
        (deep 20000)";
    assert_eq!(scheme.eval("test", text).unwrap(), "20000");
    // A copy for each capture would be 20 million frames, and collections by the thousand.
    assert!(scheme.collections() < 100, "{}", scheme.collections());
}
