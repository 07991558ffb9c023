//! Programs and what they give: expressions, bindings, macros, procedures, errors.

use dunlin_scheme::{Error, Scheme};

/// The value of the last form, on a machine as it comes, on one that collects at every point that may, and on
/// one whose turns end at every call: they must agree.
fn value(text: &str) -> String {
    let result = Scheme::new().eval("test", text);
    let mut stressed = Scheme::new();
    stressed.set_collect_always(true);
    assert_eq!(stressed.eval("test", text), result, "collecting always: {text}");
    let mut interrupted = Scheme::new();
    interrupted.set_turn(1);
    assert_eq!(interrupted.eval("test", text), result, "a turn for each call: {text}");
    result.unwrap_or_else(|error| panic!("{text}\n{error}"))
}

fn error(text: &str) -> String {
    match Scheme::new().eval("test", text) {
        Ok(value) => panic!("{text} is {value}"),
        Err(error) => error.to_string(),
    }
}

macro_rules! values {
    ($($name:ident: $($text:expr => $value:expr),+ $(,)?;)*) => {
        $(#[test] fn $name() { $(assert_eq!(value($text), $value, "{}", $text);)+ })*
    };
}

values! {
    constants_evaluate_to_themselves:
        "42" => "42", "#\\a" => "#\\a", "\"a\\nb\"" => "\"a\\nb\"", "#t" => "#t", "'(1 . 2)" => "(1 . 2)", "#(1 2)" => "#(1 2)";
    procedures_are_closures:
        "((lambda (x) (+ x x)) 4)" => "8",
        "(define (adder n) (lambda (m) (+ n m))) ((adder 3) 4)" => "7",
        "((lambda (a . rest) (list a rest)) 1 2 3)" => "(1 (2 3))",
        "((lambda all all) 1 2)" => "(1 2)",
        "((case-lambda ((a) (list 'one a)) ((a b) (list 'two a b)) ((a . rest) (list 'many rest))) 1 2 3)" => "(many (2 3))",
        "((case-lambda ((a) (list 'one a)) ((a b) (list 'two a b))) 1 2)" => "(two 1 2)";
    named_let_loops_return_their_value:
        "(let loop ((i 0) (list '())) (if (= i 5) list (loop (+ i 1) (cons i list))))" => "(4 3 2 1 0)",
        "(+ 1 (let loop ((i 0)) (if (< i 10) (loop (+ i 1)) i)))" => "11",
        "(do ((i 0 (+ i 1)) (sum 0 (+ sum i))) ((= i 5) sum))" => "10",
        "(let outer ((i 0) (n 0)) (if (= i 3) n (let inner ((j 0) (n n)) (if (= j 4) (outer (+ i 1) n) (inner (+ j 1) (+ n 1))))))" => "12";
    a_loop_whose_procedure_escapes_is_a_closure:
        "(map (lambda (f) (f 1)) (let loop ((i 0) (fs '())) (if (= i 3) fs (loop (+ i 1) (cons (lambda (x) (+ x i)) fs)))))" => "(3 2 1)",
        "(let loop ((i 3)) (if (= i 0) '() (cons i (loop (- i 1)))))" => "(3 2 1)";
    letrec_procedures_use_each_other:
        "(letrec ((even? (lambda (n) (if (= n 0) #t (odd? (- n 1))))) (odd? (lambda (n) (if (= n 0) #f (even? (- n 1)))))) (even? 1000))" => "#t",
        "(define (f) (define a 1) (define (g) (+ a b)) (define b 2) (g)) (f)" => "3",
        "(define (f) (define (g) (h)) (define x (lambda () 5)) (define (h) (x)) (g)) (f)" => "5";
    sequences_of_definitions_run_in_order:
        "(let () (define a 1) (define b (+ a 1)) (define c (* b 2)) (list a b c))" => "(1 2 4)",
        "(define-values (q . rest) (values 1 2 3)) (list q rest)" => "(1 (2 3))";
    cond_case_and_or_choose:
        "(cond ((assv 'b '((a 1) (b 2))) => cadr) (else #f))" => "2",
        "(case (* 2 3) ((2 3 5 7) 'prime) ((1 4 6 8 9) 'composite))" => "composite",
        "(case 'x ((a) 1) (else => (lambda (v) (list v))))" => "(x)",
        "(list (and) (or) (and 1 2) (or #f 3) (if (or #f (and 1 #f)) 1 2) (not (or #f #f)))" => "(#t #f 2 3 2 #t)";
    quasiquote_nests:
        "`(1 ,(+ 1 1) ,@(list 3 4) . 5)" => "(1 2 3 4 . 5)",
        "`#(1 ,(+ 1 1))" => "#(1 2)",
        "`(a `(b ,(c ,(+ 1 2))))" => "(a `(b ,(c 3)))";
    macros_capture_nothing:
        "(define-syntax swap (syntax-rules () ((_ a b) (let ((tmp a)) (list b tmp))))) (let ((tmp 1) (other 2)) (swap tmp other))" => "(2 1)",
        "(define-syntax my-or (syntax-rules () ((_ a b) (let ((t a)) (if t t b))))) (let ((t 5)) (my-or #f t))" => "5",
        "(let ((if list)) (define-syntax m (syntax-rules () ((_ x) (if 1 2 x)))) (m 3))" => "(1 2 3)",
        "(define-syntax m (syntax-rules () ((_ x) (if #t x 0)))) (let ((if list)) (m 3))" => "3",
        "(let ((=> #f)) (cond (#t => 'ok)))" => "ok";
    macros_define_macros:
        "(define-syntax def (syntax-rules () ((_ n v) (define-syntax n (syntax-rules () ((_) v)))))) (def five 5) (five)" => "5",
        "(define-syntax be-like (syntax-rules () ((_ name) (define-syntax name (syntax-rules () ((_ x (... ...)) (list x (... ...)))))))) (be-like seq) (seq 1 2 3)" => "(1 2 3)",
        "(define-syntax tail (syntax-rules () ((_ a ... b) (list b a ...)))) (tail 1 2 3)" => "(3 1 2)",
        "(define-syntax flat (syntax-rules () ((_ (a b ...) ...) '(a ... (b ... ) ...)))) (flat (1 2 3) (4))" => "(1 4 (2 3) ())";
    records_are_updated_by_copy:
        "(define-record-type point (make-point x y) point? (x point-x) (y point-y)) (define p (make-point 1 2)) (define q (record-update p 'x 5)) (list (point-x p) (point-x q) (point-y q) (point? q) (point? 1))" => "(1 5 2 #t #f)";
    several_values_pass_through:
        "(call-with-values (lambda () (values 1 2)) list)" => "(1 2)",
        "(let-values (((a b) (values 1 2)) ((c) (values 3))) (list a b c))" => "(1 2 3)",
        "(let*-values (((a b) (values 1 2)) ((c) (values (+ a b)))) c)" => "3",
        "(receive (a . rest) (values 1 2 3) rest)" => "(2 3)",
        "(apply + 1 2 '(3 4))" => "10";
    eval_compiles_at_run_time:
        "(eval '(* 7 3) (environment '(scheme base)))" => "21",
        "(define x 5) (eval '(begin (define y (+ x 1)) y))" => "6",
        "(guard (e (#t 'wrong)) (eval '(lambda)))" => "wrong";
    match_takes_data_apart:
        "(match '(add 1 (mul 2 3)) (('add a ('mul b c)) (list a b c)))" => "(1 2 3)",
        "(match 5 ((a . b) 'pair) (5 'five) (_ 'other))" => "five",
        "(match '(1 2 3) ((a . rest) (list a rest)))" => "(1 (2 3))",
        "(let ((v 2)) (match '(1 2) ((a ,v) (list 'same a)) (_ 'other)))" => "(same 1)",
        "(let ((v 3)) (match '(1 2) ((a ,v) (list 'same a)) (_ 'other)))" => "other",
        "(match '(1 2) ((a b) (where (> a b)) 'down) ((a b) (where (< a b)) 'up))" => "up",
        "(match #(1 (2) \"s\") (#(a (b) \"s\") (list b a)))" => "(2 1)",
        "(map (lambda (x) (match x (() 'nil) (#t 'true) ('sym 'sym) (#\\a 'char) (_ 'any))) '(() #t sym #\\a 0))" => "(nil true sym char any)",
        "(guard (e (#t (error-object-irritants e))) (match 7 (8 'eight)))" => "(7)",
        "(define (sum t) (match t ((a . b) (+ (sum a) (sum b))) (() 0) (n n))) (sum '(1 (2 3) 4))" => "10";
    results_of_slow_arithmetic_are_kept:
        "(let ((a (+ 1.5 2.25)) (b (* 1.5 2.5)) (c (+ 4611686018427387904 1))) (list (- a 1) b c))" => "(2.75 3.75 4611686018427387905)",
        "(let ((x 5)) (list (- x -8388608) (- x 8388608) (- x -8388609) (- x 8388607)))" => "(8388613 -8388603 8388614 -8388602)";
    sums_beyond_fixnums_are_exact:
        "(let ((x 1152921504606846975)) (list (+ x 1) (+ x x) (- -1152921504606846976 x) (- (- 0 x) 2)))" => "(1152921504606846976 2305843009213693950 -2305843009213693951 -1152921504606846977)",
        "(let ((x 1099511627776)) (list x 549755813888 -549755813889))" => "(1099511627776 549755813888 -549755813889)";
    division_by_negative_numbers_rounds_as_its_name_says:
        "(list (modulo 7 -2) (modulo -7 -2) (remainder 7 -2) (remainder -7 -2) (quotient 7 -2))" => "(-1 -1 1 -1 -3)",
        "(let ((least -1152921504606846976)) (list (quotient least -1) (remainder least -1)))" => "(1152921504606846976 0)";
    comparisons_of_other_numbers_with_constants:
        "(let ((x 1.5) (y 1.)) (list (> y 1) (>= y 1) (= y 1) (= 1 x) (< x 2) (<= x 1) (< 1 x) (> 1 y)))" => "(#f #t #t #f #t #f #t #f)",
        "(define (test . all) all) (let* ((first 7) (y 1.)) (test first (if (> y 1) 1 0) (if (>= y 1) 1 0) (if (= y 1) 1 0) (if (< y 1) 1 0) (if (<= y 1) 1 0)))" => "(7 0 1 1 0 1)",
        "(let ((n +nan.0)) (list (< n 1) (= n n) (>= n 1) (if (<= n n) 1 0) (if (> n 1) 1 0)))" => "(#f #f #f 0 0)";
    calls_of_a_loop_that_are_not_last_return:
        "(let find ((t '((1 2) (3 x)))) (cond ((eq? t 'x) 'found) ((pair? t) (or (find (car t)) (find (cdr t)))) (else #f)))" => "found",
        "(let count ((n 3)) (if (= n 0) 0 (+ 1 (count (- n 1)))))" => "3",
        "(let nest ((n 3)) (if (= n 0) '() (list (nest (- n 1)))))" => "(((())))",
        "(let loop ((i 0)) (if (= i 3) i ((lambda (next) (next)) (lambda () (loop (+ i 1))))))" => "3";
    procedures_of_a_letrec_keep_other_variables_too:
        "(define (f n) (letrec ((e (lambda (k) (if (= k 0) (list n 'even) (o (- k 1))))) (o (lambda (k) (if (= k 0) (list n 'odd) (e (- k 1)))))) (e 7))) (f 'n)" => "(n odd)";
    unset_variable_whose_value_is_not_used_is_an_error:
        "(guard (e (#t (error-object-kind e))) (letrec ((a (begin b 1)) (b 2)) a))" => "unbound";
    definition_that_is_complete_may_be_entered_again:
        "(let () (define k (call/cc (lambda (c) c))) (define (again) k) (if (procedure? (again)) (k 5) (again)))" => "5";
    several_values_pass_through_a_continuation:
        "(call-with-values (lambda () (call/cc (lambda (k) (k 1 2)))) list)" => "(1 2)",
        "(call-with-values (lambda () (call/cc (lambda (k) (k)))) list)" => "()";
    values_of_let_do_not_see_its_variables:
        "(let ((x 1)) (let ((x 2) (y x)) y))" => "1",
        "(let ((f (lambda () 'outer))) (let f ((x (f))) x))" => "outer";
    literals_of_macros_match_what_means_the_same:
        "(define-syntax m (syntax-rules (=>) ((_ => x) 'arrow) ((_ a x) 'other))) (list (m => 1) (let ((=> 1)) (m => 1)))" => "(arrow other)",
        "(define-syntax m (syntax-rules () ((_ \"a\") 1) ((_ x) 2))) (list (m \"a\") (m \"b\"))" => "(1 2)",
        "(define-syntax m (syntax-rules (...) ((_ x ...) 'dots) ((_ x y z) 'other))) (list (m 1 ...) (m 1 2 3))" => "(dots other)",
        "(define-syntax m (syntax-rules () ((_ _ x) '(x _)))) (m 1 2)" => "(2 _)";
    types_of_records_differ_by_their_fields:
        "(define-record-type a (make-a x) a? (x a-x)) (define r (make-a 1)) (define-record-type a (make-a y z) a? (y a-y) (z a-z)) (list (a? r) (a? (make-a 1 2)))" => "(#f #t)";
    programs_replace_standard_procedures:
        "(define (when x) (list 'mine x)) (when 1)" => "(mine 1)",
        "(define (car x) 'mine) (car 5)" => "mine",
        "(define (square x) 'mine) (map square '(1))" => "(mine)";
}

#[test]
fn deep_recursion_moves_frames_to_the_heap() {
    let text = "(define (count n) (if (= n 0) 0 (+ 1 (count (- n 1))))) (count 1000000)";
    assert_eq!(Scheme::new().eval("test", text).unwrap(), "1000000");
}

#[test]
fn wrong_numbers_of_arguments_are_errors_in_loops_and_primitives() {
    assert!(error("(let loop ((i 0)) (if (= i 0) (loop) i))").starts_with("loop: expected 1 argument, got 0"));
    assert!(error("(let loop ((i 0)) (if (= i 0) (loop 1 2) i))").starts_with("loop: expected 1 argument, got 2"));
    assert!(error("(vector-length #(1) 2)").contains("expected 1 argument, got 2"));
    assert!(error("(vector-length)").contains("expected 1 argument, got 0"));
}

#[test]
fn garbage_is_collected_while_a_loop_runs() {
    let mut scheme = Scheme::new();
    scheme.set_heap_limit(16 << 20);
    let text = "(let loop ((i 0) (last '())) (if (= i 300000) (length last) (loop (+ i 1) (list i i i i i i i i))))";
    assert_eq!(scheme.eval("test", text).unwrap(), "8");
    assert!(scheme.collections() > 10);
}

#[test]
fn errors_name_place_and_callers() {
    let text = "(define (inner x)\n  (* 2 (car x)))\n(define (outer x)\n  (+ 1 (inner x)))\n(outer 5)";
    assert_eq!(error(text), "expected a pair, got 5\n  in inner at test:2:8\n  in outer at test:4:8\n  at test:5:1");
    assert_eq!(
        error("(define (f) (list (g 1)))\n(f)"),
        "variable is not defined: g\n  in f at test:1:20\n  at test:2:1"
    );
    assert_eq!(error("(+ 1 \"a\")"), "expected a number, got \"a\"\n  at test:1:1");
    assert_eq!(error("(error \"no such bird:\" 'auk 3)"), "no such bird: auk 3\n  at test:1:1");
    assert_eq!(error("(raise 'some-object)"), "uncaught object: some-object\n  at test:1:1");
    assert!(error("((lambda (x) x))").starts_with("procedure: expected 1 argument, got 0"));
    assert!(error("(vector-ref #(1 2) 2)").starts_with("index out of range, expected 0 to 1, got 2"));
    assert!(error("(5 5)").starts_with("expected a procedure, got 5"));
    assert!(error("(/ 1 0)").starts_with("division by zero"));
}

#[test]
fn mutation_is_a_compile_error_that_names_the_alternative() {
    assert!(error("(define x 1) (set! x 2)").starts_with("test:1:14: set! is not available"));
    assert!(error("(set-car! (list 1) 2)").contains("use cons"));
    assert!(error("(vector-set! (vector 1) 0 2)").contains("use vector-map"));
    assert!(error("(define-record-type p (make x) p? (x get set-x!))").contains("record-update"));
}

#[test]
fn a_program_may_define_a_name_of_a_mutator() {
    assert_eq!(value("(define (set-car! a b) 'mine) (set-car! 1 2)"), "mine");
}

#[test]
fn text_that_is_no_program_is_an_error_with_its_position() {
    assert_eq!(error("(+ 1\n  (* 2 3)"), "test:1:1: list is not closed");
    assert_eq!(error("(list 1))"), "test:1:9: unexpected )");
    assert_eq!(error("\"abc"), "test:1:1: string is not closed");
    assert_eq!(error("#| never"), "test:1:1: block comment is not closed");
    assert_eq!(error("(let ((x)) x)"), "test:1:7: expected (identifier value)");
    assert_eq!(error("(lambda (x x) x)"), "test:1:12: this identifier is bound twice");
    assert_eq!(error("(match 1 ((a a) 1))"), "test:1:14: this identifier is in the pattern twice");
    assert_eq!(error("(if)"), "test:1:1: expected (if test then else)");
    assert_eq!(error("(1 . 2)"), "test:1:1: a call is a proper list");
    assert_eq!(error("()"), "test:1:1: () is no expression; write '() for the empty list");
    assert_eq!(error("#\\nosuch"), "test:1:1: unknown character #\\nosuch");
    assert_eq!(error("(else)"), "variable is not defined: else\n  at test:1:2");
}

#[test]
fn expansion_without_end_is_an_error() {
    let endless = "(define-syntax m (syntax-rules () ((_ x) (m (x x))))) (m 1)";
    assert_eq!(error(endless), "test:1:55: the expansion nests deeper than 3000");
    let wide = "(define-syntax m (syntax-rules () ((_) (begin (m) (m))))) (m)";
    assert_eq!(error(wide), "test:1:59: forms nest deeper than 2000");
    let same = "(define-syntax m (syntax-rules () ((_) (m)))) (m)";
    assert_eq!(error(same), "test:1:47: expansion takes too many steps");
}

#[test]
fn variables_under_one_ellipsis_match_equally_often() {
    let macro_text = "(define-syntax m (syntax-rules () ((_ (a ...) (b ...)) '((a b) ...))))";
    assert_eq!(value(&format!("{macro_text} (m (1 2) (3 4))")), "((1 3) (2 4))");
    assert!(error(&format!("{macro_text} (m (1 2) (3))")).contains("matched different numbers of forms"));
}

#[test]
fn long_forms_nest_nothing_for_the_compiler() {
    let many = |open: &str, item: &str, close: &str| format!("{open}{}{close}", item.repeat(20_000));
    assert_eq!(Scheme::new().eval("test", &many("(and ", "1 ", "2)")).unwrap(), "2");
    assert_eq!(Scheme::new().eval("test", &many("(cond ", "(#f 1) ", "(else 2))")).unwrap(), "2");
    assert_eq!(Scheme::new().eval("test", &many("(length `(", ",1 ", "2))")).unwrap(), "20001");
}

#[test]
fn deep_nesting_is_an_error_and_long_lists_are_not() {
    let deep = format!("'{}{}", "(".repeat(100_000), ")".repeat(100_000));
    assert!(error(&deep).contains("nested deeper than"));
    let calls = format!("{}1{}", "(+ 1 ".repeat(1500), ")".repeat(1500));
    assert_eq!(Scheme::new().eval("test", &calls).unwrap(), "1501");
    let long = format!("(length '({}))", "1 ".repeat(200_000));
    assert_eq!(Scheme::new().eval("test", &long).unwrap(), "200000");
}

#[test]
fn runaway_programs_end_by_their_limits_and_the_machine_stays_usable() {
    let mut scheme = Scheme::new();
    scheme.set_heap_limit(8 << 20);
    let grow = "(define (grow list) (grow (cons list list))) (grow '())";
    assert!(matches!(scheme.eval("test", grow), Err(Error::HeapLimit { .. })));
    let recurse = "(define (recurse n) (+ 1 (recurse n))) (recurse 1)";
    assert!(matches!(scheme.eval("test", recurse), Err(Error::HeapLimit { .. })));
    assert!(matches!(scheme.eval("test", "(make-vector 100000000 0)"), Err(Error::HeapLimit { .. })));
    assert!(scheme.eval("test", "(expt 7 (expt 10 30))").unwrap_err().to_string().contains("number too large"));
    assert!(scheme.eval("test", "(exact (expt 7 100000000))").unwrap_err().to_string().contains("number too large"));
    scheme.set_fuel(100_000);
    assert_eq!(scheme.eval("test", "(let loop () (loop))"), Err(Error::OutOfFuel));
    scheme.set_fuel(100_000);
    assert_eq!(scheme.eval("test", "(+ 1 2)").unwrap(), "3");
}

#[test]
fn number_beyond_the_heap_limit_is_refused_before_it_is_stored() {
    let mut scheme = Scheme::new();
    scheme.eval("test", "(define n (arithmetic-shift 1 12000000))").unwrap();
    scheme.set_heap_limit(1 << 20);
    assert!(matches!(scheme.eval("test", "(begin (+ n n) 1)"), Err(Error::HeapLimit { .. })));
}

#[test]
fn exit_runs_the_after_thunks_and_gives_its_code() {
    let mut scheme = Scheme::new();
    let text = "(dynamic-wind (lambda () #f) (lambda () (exit 7)) (lambda () (display \"after\")))";
    assert_eq!(scheme.eval("test", text), Err(Error::Exit(7)));
    assert_eq!(scheme.take_output(), "after");
}

#[test]
fn macros_of_define_macro_are_procedures_on_data() {
    let mut scheme = Scheme::new();
    let text = "(define-macro (swap! . parts) `(list ,@(reverse parts)))
        (define-macro (unless2 test . body) `(if ,test #f (begin ,@body)))
        (define-macro twice (lambda (x) (list '* 2 x)))
        (define (f x) (let ((y (twice x))) (unless2 (= y 0) (swap! x y (twice (twice 1))))))";
    scheme.eval("test", text).unwrap();
    assert_eq!(scheme.eval("test", "(list (f 0) (f 3))").unwrap(), "(#f (4 6 3))");
    // Also while a program runs, with frames below and a collection at each point.
    scheme.set_collect_always(true);
    let inner = "(define (sum n) (if (= n 0) (eval '(twice (twice 5))) (+ 1 (sum (- n 1)))))
        (parameterize ((current-error-port #f)) (list 'a (sum 30) (current-error-port)))";
    assert_eq!(scheme.eval("test", inner).unwrap(), "(a 50 #f)");
}

#[test]
fn loading_runs_definitions_of_macros_and_nothing_else() {
    let mut scheme = Scheme::new();
    scheme.load("test", "(define-macro (m x) `(+ 1 ,x)) (display 1) (define (f) (m 2)) (car 5)").unwrap();
    assert_eq!(scheme.take_output(), "");
    assert!(scheme.load("test", "(m)").is_err());
}

#[test]
fn failing_macros_of_define_macro_are_errors_of_the_form() {
    let mut scheme = Scheme::new();
    let setup = "(define-macro (bad x) (car x)) (define-macro (endless) (let loop () (loop)))
        (define-macro (same) '(same)) (define-macro (closure) car)";
    scheme.eval("test", setup).unwrap();
    for (text, expected) in [
        ("(list (bad 5))", "1:7: macro bad: expected a pair, got 5"),
        ("(bad)", "1:1: macro bad: bad: expected 1 argument, got 0"),
        ("(endless)", "macro endless: it takes too long"),
        ("(same)", "more than 1000 uses"),
        ("(closure)", "macro closure: its value is not a datum"),
        ("(let () (define-macro (m) 1) (m))", "a definition belongs at the top level"),
        ("(define-macro 5)", "expected (define-macro"),
        ("(begin (define-macro (later) 1) (later))", "its definition has not run"),
    ] {
        let error = scheme.eval("test", text).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
        assert_eq!(scheme.eval("test", "(+ 1 2)").unwrap(), "3");
    }
}

#[test]
fn arguments_are_set_also_where_no_definition_fits_the_limit() {
    let mut scheme = Scheme::new();
    scheme.set_heap_limit(1 << 10);
    scheme.set_arguments(["program", "argument"]);
    scheme.set_heap_limit(1 << 20);
    assert_eq!(scheme.eval("test", "(command-line)").unwrap(), r#"("program" "argument")"#);
}
