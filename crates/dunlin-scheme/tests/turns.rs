//! Long operations give way: a turn ends soon after its fuel is used up. One unit of fuel is about 40 ns.

use dunlin_scheme::Scheme;

/// Fuel of one turn.
const TURN: u64 = 500;

/// Runs a program in turns; returns its value, and the most fuel that a turn used past its end.
fn overrun(setup: &str, program: &str) -> (String, u64) {
    let mut scheme = Scheme::new();
    scheme.eval("setup", setup).unwrap();
    scheme.take_overrun();
    scheme.set_turn(TURN);
    let value = scheme.eval("test", program).unwrap();
    (value, scheme.take_overrun())
}

#[test]
fn turn_ends_soon_while_many_items_are_sorted() {
    let setup = "(define (next s) (modulo (+ (* s 16807) 1) 2147483647))
        (define numbers (let loop ((i 0) (s 1) (l '())) (if (= i 1000000) l (loop (+ i 1) (next s) (cons s l)))))";
    let (value, over) =
        overrun(setup, "(let ((l (sort numbers <))) (list (length l) (apply < (list (car l) (cadr l)))))");
    assert_eq!(value, "(1000000 #t)");
    assert!(over <= 2 * TURN, "{over}");
}

#[test]
fn turn_ends_soon_while_a_large_power_is_computed() {
    let (value, over) = overrun("", "(modulo (expt 7 1000000) 1000003)");
    assert_eq!(value, modular_power(7, 1_000_000, 1_000_003).to_string());
    assert!(over <= 40_000, "{over}");
}

fn modular_power(base: u64, power: u64, modulus: u64) -> u64 {
    (0..power).fold(1, |product, _| product * base % modulus)
}

/// Time is virtual, and a turn takes 20 us of it. How late a timer is, is counted in turns. With the most
/// fuel that one of them used past its end (25,000 units take 1 ms) that bounds the real time.
#[test]
fn timer_beside_fifty_loops_a_sort_and_a_power_is_a_few_short_turns_late() {
    let mut scheme = Scheme::new();
    scheme.set_virtual_time();
    let setup = "(define (next s) (modulo (+ (* s 16807) 1) 2147483647))
        (define numbers (let loop ((i 0) (s 1) (l '())) (if (= i 1000000) l (loop (+ i 1) (next s) (cons s l)))))
        (define (spin) (spin))
        (define main (self))
        (define (tick n worst)
          (if (= n 0)
              (! main worst)
              (let ((at (+ (%deadline 0) 1000)))
                (sleep 0.001)
                (tick (- n 1) (max worst (- (%deadline 0) at))))))";
    scheme.eval("setup", setup).unwrap();
    scheme.take_overrun();
    let program = "(for-each (lambda (i) (spawn spin)) (iota 50))
        (for-each spawn (list (lambda () (sort numbers <)) (lambda () (expt 7 1000000))))
        (spawn (lambda () (tick 500 0)))
        (?)";
    let value = scheme.eval("test", program).unwrap();
    let (turns, over) = (value.parse::<u64>().unwrap() / 20, scheme.take_overrun());
    assert!(turns <= 5, "a timer was {turns} turns late");
    // 10 ms are 250,000 units.
    assert!((turns + 1) * (TURN + over) <= 250_000, "{turns} turns late, of up to {} units", TURN + over);
}

#[test]
fn turn_ends_soon_while_lists_and_vectors_are_converted() {
    let program = "(let* ((v (list->vector numbers)) (l (vector->list v 1)))
        (list (vector-length v) (length l) (list? l) (car l) (vector-ref v 299999)))";
    let (value, over) = overrun("(define numbers (iota 300000))", program);
    assert_eq!(value, "(300000 299999 #t 1 299999)");
    // `vector-append` copies all words in one step.
    assert!(over <= 20 * TURN, "{over}");
}

#[test]
fn turn_ends_soon_while_large_data_are_compared() {
    let setup = "(define (make) (map (lambda (i) (list i (number->string i) (vector i i))) (iota 50000)))
        (define a (make)) (define b (make)) (define c (append (make) '(end)))
        (define (nest n) (let loop ((n n) (l '())) (if (= n 0) l (loop (- n 1) (list l n)))))
        (define v (list->vector a)) (define w (list->vector b))";
    let program = "(list (equal? a b) (equal? a c) (equal? v w) (equal? (nest 20000) (nest 20000)) (equal? (nest 20000) (nest 20001)))";
    let (value, over) = overrun(setup, program);
    assert_eq!(value, "(#t #f #t #t #f)");
    assert!(over <= 8 * TURN, "{over}");
}

#[test]
fn comparison_of_cyclic_and_shared_data_ends() {
    let program = "(define a '#0=(1 2 . #0#)) (define b '#0=(1 2 1 2 1 2 . #0#)) (define c '#0=(1 2 1 2 3 . #0#))
        (define (shared) (let loop ((i 0) (l '(1))) (if (= i 60) l (loop (+ i 1) (vector l l)))))
        (list (equal? a b) (equal? a c) (equal? (shared) (shared)) (equal? '#0=#(1 #0#) '#0=#(1 #(1 #0#))))";
    assert_eq!(Scheme::new().eval("test", program).unwrap(), "(#t #f #t #t)");
}

#[test]
fn long_products_are_those_of_short_ones() {
    let program = "(define a (+ (expt 3 50000) 12345)) (define b (- (expt 10 30000) 99))
        (define p 1000000007)
        (define (check x y) (= (modulo (* x y) p) (modulo (* (modulo x p) (modulo y p)) p)))
        (list (check a b) (check b a) (check (- a) b) (check a (- b)) (check (- a) (- b)) (check a a)
          (= (quotient (* a b) b) a) (= (apply * (list a b)) (* a b)) (check (expt a 3) b) (= (expt -7 20001) (- (expt 7 20001))))";
    assert_eq!(Scheme::new().eval("test", program).unwrap(), "(#t #t #t #t #t #t #t #t #t #t)");
}

#[test]
fn texts_beyond_the_limit_are_refused() {
    let mut scheme = Scheme::new();
    let text = "(define (try thunk) (guard (e (#t (error-object-kind e))) (thunk)))
        (define big (let loop ((i 0) (l '(1))) (if (= i 40) l (loop (+ i 1) (list l l)))))
        (list (try (lambda () (write big))) (try (lambda () (write-shared big) 'written)))";
    assert_eq!(scheme.eval("test", text).unwrap(), "(limit written)");
    assert!(scheme.take_output().starts_with("(#0=(#1="));
    let error = scheme.eval("test", "(raise big)").unwrap_err().to_string();
    assert!(error.len() < 1 << 17 && error.contains("..."), "{}", error.len());
}

#[test]
fn sums_of_large_numbers_cost_fuel() {
    let mut scheme = Scheme::new();
    scheme.eval("test", "(define big (arithmetic-shift 1 2000000))").unwrap();
    scheme.set_fuel(5_000);
    let text = "(let loop ((n big) (i 0)) (if (= i 10) i (loop (+ n n) (+ i 1))))";
    assert_eq!(scheme.eval("test", text), Err(dunlin_scheme::Error::OutOfFuel));
}

#[test]
fn what_a_primitive_charges_is_taken_from_the_fuel() {
    let mut scheme = Scheme::new();
    scheme.set_fuel(5_000);
    let text = "(begin (make-vector 1000000 0) (let loop ((i 0)) (if (= i 10) i (loop (+ i 1)))))";
    assert_eq!(scheme.eval("test", text), Err(dunlin_scheme::Error::OutOfFuel));
}

#[test]
fn collections_cost_no_fuel() {
    let mut scheme = Scheme::new();
    scheme.set_collect_always(true);
    scheme.set_fuel(1_000);
    assert_eq!(scheme.eval("test", "(let loop ((i 0)) (if (= i 900) i (loop (+ i 1))))").unwrap(), "900");
}

#[test]
fn sums_of_a_list_of_large_numbers_cost_fuel() {
    let mut scheme = Scheme::new();
    scheme.eval("test", "(define big (arithmetic-shift 1 2000000)) (define all (list big big big big big))").unwrap();
    scheme.set_fuel(5_000);
    let text = "(begin (apply + all) (let loop ((i 0)) (if (= i 10) i (loop (+ i 1)))))";
    assert_eq!(scheme.eval("test", text), Err(dunlin_scheme::Error::OutOfFuel));
}

#[test]
fn products_cost_more_fuel_than_sums() {
    let mut scheme = Scheme::new();
    scheme.eval("test", "(define big (- (arithmetic-shift 1 30000) 1))").unwrap();
    scheme.set_fuel(5_000);
    let text = "(let loop ((n big) (i 0)) (if (= i 20) i (loop (%s big big) (+ i 1))))";
    assert_eq!(scheme.eval("test", &text.replace("%s", "+")).unwrap(), "20");
    scheme.set_fuel(5_000);
    assert_eq!(scheme.eval("test", &text.replace("%s", "*")), Err(dunlin_scheme::Error::OutOfFuel));
}

#[test]
fn product_beyond_the_limit_is_refused_at_once() {
    let mut scheme = Scheme::new();
    scheme.eval("test", "(define a (arithmetic-shift 1 40000000))").unwrap();
    scheme.set_fuel(1_000);
    assert!(scheme.eval("test", "(* a a)").unwrap_err().to_string().starts_with("number too large"));
}

#[test]
fn products_beyond_the_limit_are_refused_before_memory_is_taken() {
    let mut scheme = Scheme::new();
    let text = "(define (try thunk) (guard (e (#t (error-object-kind e))) (thunk)))
        (define a (arithmetic-shift 1 40000000))
        (list (try (lambda () (* a a))) (try (lambda () (expt 2 100000000))) (try (lambda () (expt 7 100000000000000000000)))
          (expt 1 100000000000) (expt -1 100000000001) (expt -1 100000000000000000000) (expt 0 5) (expt 0 0) (expt 2 10) (expt 2 -2) (expt 2. 3))";
    let value = scheme.eval("test", text).unwrap();
    assert_eq!(value, "(number number number 1 -1 1 0 1 1024 1/4 8.0)");
}
