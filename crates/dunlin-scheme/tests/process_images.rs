//! Processes as bytes: a parked process is written whole, and goes on in a fresh program with the same code.

mod common;

use common::{damaged, scheme};
use dunlin_scheme::{ReadError, Scheme};

const COUNTER: &str = "
    (define (count n)
      (recv
        ((from tag 'next) (! from (list tag n)) (count (+ n 1)))
        ((from tag 'self) (! from (list tag (self))) (count n))
        ('fail (raise 'failed))))";

/// A program with one process, which has run until it waits.
fn parked(code: &str, start: &str) -> (Scheme, u64) {
    let mut scheme = scheme();
    scheme.eval("test", code).unwrap();
    scheme.eval("test", start).unwrap();
    scheme.eval("test", "(sleep 1)").unwrap();
    let processes = scheme.processes();
    (scheme, processes[processes.len() - 1])
}

fn fresh(code: &str, image: &[u8]) -> Scheme {
    let mut scheme = scheme();
    // Its processes have other numbers.
    scheme.eval("test", "(spawn (lambda () (?)))").unwrap();
    scheme.eval("test", code).unwrap();
    let process = scheme.read_process(image).unwrap();
    scheme.define_process("moved", process);
    scheme
}

#[test]
fn a_parked_process_goes_on_in_a_fresh_program_and_in_its_own() {
    let (mut here, process) = parked(COUNTER, "(define counter (spawn (lambda () (count 5)))) (!? counter 'next)");
    let image = here.write_process(process).unwrap().unwrap();
    let mut there = fresh(COUNTER, &image);
    assert_eq!(there.eval("test", "(let* ((a (!? moved 'next)) (b (!? moved 'next))) (list a b))").unwrap(), "(6 7)");
    assert_eq!(there.eval("test", "(eq? moved (!? moved 'self))").unwrap(), "#t");
    assert_eq!(here.eval("test", "(!? counter 'next)").unwrap(), "6");
}

#[test]
fn a_mailbox_and_what_a_receive_has_seen_of_it_are_written() {
    let code = "
        (define (wanted? m) (display m) (eq? m 'wanted))
        (define (wait) (let* ((m (recv (m (where (wanted? m)) m))) (a (?)) (b (?))) (display (list m a b))))";
    let start = "(define p (spawn wait)) (! p '(1 #(2))) (! p 'second)";
    let (mut here, process) = parked(code, start);
    assert_eq!(here.take_output(), "(1 #(2))second");
    let image = here.write_process(process).unwrap().unwrap();
    let mut there = fresh(code, &image);
    there.eval("test", "(sleep 1)").unwrap();
    assert_eq!(there.take_output(), "");
    there.eval("test", "(! moved 'third) (! moved 'wanted) (sleep 1)").unwrap();
    assert_eq!(there.take_output(), "thirdwanted(wanted (1 #(2)) second)");
}

#[test]
fn a_timer_goes_on_in_a_fresh_program() {
    let code = "(define (wait) (recv (after 10 (display 'late))))";
    let (mut here, process) = parked(code, "(spawn wait)");
    let image = here.write_process(process).unwrap().unwrap();
    let mut there = fresh(code, &image);
    there.eval("test", "(sleep 9)").unwrap();
    assert_eq!(there.take_output(), "");
    there.eval("test", "(sleep 2)").unwrap();
    assert_eq!(there.take_output(), "late");
}

#[test]
fn exits_that_wait_are_written() {
    let code = "
        (define (wait) (guard (e (#t (display (list 'heard e)))) (?)))
        (define (busy n) (if (> n 0) (busy (- n 1)) (wait)))";
    let mut here = scheme();
    here.eval("test", code).unwrap();
    here.eval(
        "test",
        "(define p (spawn (lambda () (busy 2000)))) (spawn (lambda () (outbound-link p) (raise (list 1))))",
    )
    .unwrap();
    here.eval("test", "(let loop ((i 0)) (if (< i 1200) (loop (+ i 1))))").unwrap();
    assert_eq!(here.take_output(), "");
    let process = here.processes()[0];
    let image = here.write_process(process).unwrap().unwrap();
    let mut there = fresh(code, &image);
    there.eval("test", "(sleep 1)").unwrap();
    assert_eq!(there.take_output(), "(heard (1))");
}

#[test]
fn those_that_hear_of_a_process_hear_of_its_copy() {
    let (mut here, process) = parked(COUNTER, "(spawn-link (lambda () (count 5)))");
    let image = here.write_process(process).unwrap().unwrap();
    let copy = here.read_process(&image).unwrap();
    here.define_process("copy", copy);
    assert_eq!(here.eval("test", "(! copy 'fail) (guard (e (#t e)) (? 1 'nothing))").unwrap(), "failed");
}

/// A continuation captured where the machine itself runs a program's code, in the middle of library
/// procedures.
#[test]
fn a_continuation_captured_in_a_guard_or_a_handler_is_entered_twice_elsewhere() {
    let code = "
        (define main (self))
        (define (ask) (call/cc (lambda (k) (! main k) (?))))
        (define (in-map) (map (lambda (x) (+ x (ask))) '(1)))
        (define (in-sort) (sort '(3 1) (lambda (a b) (ask) (< a b))))
        (define (in-wind) (dynamic-wind values (lambda () (list 'wound (ask))) values))
        (define (in-where) (! (self) '(5)) (recv ((x) (where (number? (ask))) (list 'where x))))
        (define (in-handler) (with-exception-handler (lambda (e) (list e (ask))) (lambda () (raise 'raised))))
        (define (run place) (spawn (lambda () (let ((value (place))) (! main (list 'value value))))))
        (define (value-of k) (spawn (lambda () (k 10))) (recv (('value v) v) (k (where (procedure? k)) (value-of k))))";
    for (place, expected) in [
        ("in-map", "((11) (11))"),
        ("in-sort", "((1 3) (1 3))"),
        ("in-wind", "((wound 10) (wound 10))"),
        ("in-where", "((where 5) (where 5))"),
        ("in-handler", "((raised 10) (raised 10))"),
    ] {
        let mut here = scheme();
        here.eval("test", code).unwrap();
        here.eval("test", &format!("(run {place}) (define k (?))")).unwrap();
        let image = here.write_global("k").unwrap();
        let mut there = scheme();
        there.eval("test", code).unwrap();
        there.read_global("k", &image).unwrap();
        let value = there.eval("test", "(let* ((a (value-of k)) (b (value-of k))) (list a b))").unwrap();
        assert_eq!(value, expected, "{place}");
    }
}

#[test]
fn processes_and_tags_of_another_program_are_not_those_of_this_one() {
    let mut here = scheme();
    here.eval("test", "(define p (spawn (lambda () (?)))) (define tag (make-tag)) (define value (list p p tag tag))")
        .unwrap();
    let image = here.write_global("value").unwrap();
    let mut there = scheme();
    there
        .eval("test", "(define main (self)) (define p (spawn (lambda () (! main (?))))) (define tag (make-tag))")
        .unwrap();
    there.read_global("far", &image).unwrap();
    let text = "(! (car far) 'lost) (list (map pid? far) (eq? (car far) (cadr far)) (eq? (caddr far) (cadddr far))
        (eq? p (car far)) (eq? tag (caddr far)) (? 1 'nothing-came))";
    assert_eq!(there.eval("test", text).unwrap(), "((#t #t #f #f) #t #t #f #f nothing-came)");
    // What comes home is the same again.
    let back = there.write_global("far").unwrap();
    here.read_global("back", &back).unwrap();
    assert_eq!(here.eval("test", "(equal? value back)").unwrap(), "#t");
}

/// A map of another program's processes keeps its order, whatever their numbers are here.
#[test]
fn a_map_with_processes_and_tags_as_keys_is_found_in_elsewhere() {
    let mut here = scheme();
    let text = "
        (define keys (append (map (lambda (i) (spawn (lambda () (?)))) (iota 9)) (map (lambda (i) (make-tag)) (iota 9))))
        (define value (list keys (alist->map (map cons keys (iota 18)))))";
    here.eval("test", text).unwrap();
    let image = here.write_global("value").unwrap();
    let mut there = scheme();
    there.read_global("far", &image).unwrap();
    let text = "(equal? (iota 18) (map (lambda (key) (map-ref (cadr far) key #f)) (map-keys (cadr far))))";
    assert_eq!(there.eval("test", text).unwrap(), "#t");
}

#[test]
fn copy_of_a_process_uses_the_ports_of_its_original() {
    let code = "(define (wait port main) (?) (write 'x port) (! main (get-output-string port)) (wait port main))";
    let (mut here, process) = parked(code, "(define main (self)) (spawn (lambda () (wait (open-output-string) main)))");
    let image = here.write_process(process).unwrap().unwrap();
    let copy = here.read_process(&image).unwrap();
    here.define_process("original", process);
    here.define_process("copy", copy);
    assert_eq!(
        here.eval("test", "(! original 1) (define one (?)) (! copy 1) (list one (?))").unwrap(),
        "(\"x\" \"xx\")"
    );
    assert_eq!(here.write_process(12345), None);
}

/// What is no process leaves the program as it was; whatever is read runs and ends.
#[test]
fn damaged_processes_are_refused_or_run() {
    let (mut here, process) =
        parked(COUNTER, "(define counter (spawn (lambda () (count 5)))) (! counter '(1 2)) (! counter 3)");
    let good = here.write_process(process).unwrap().unwrap();
    let fresh = || {
        let mut there = scheme();
        there.eval("test", COUNTER).unwrap();
        there.set_heap_limit(32 << 20);
        there
    };
    let mut there = fresh();
    let damaged = damaged(&good, 0x2545_f491_4f6c_dd1d);
    let rounds = damaged.len();
    let (mut refused, mut ran) = (0, 0);
    for (round, bytes) in damaged.enumerate() {
        // Names of other programs stay: after many of them a machine refuses all images.
        if round % 10_000 == 0 {
            there = fresh();
        }
        match there.read_process(&bytes) {
            Err(_) => refused += 1,
            Ok(process) => {
                ran += 1;
                there.define_process("damaged", process);
                there.set_fuel(20_000);
                let text = "(for-each (lambda (m) (! damaged m)) (list 'x (list (self) (make-tag) 'next) 'fail)) (sleep 0.001) (kill damaged)";
                let _ = there.eval("damaged", text);
                there.take_output();
            }
        }
    }
    assert!(refused > rounds / 4 && ran > rounds / 50, "{refused} refused, {ran} ran");
    assert_eq!(there.read_process(b"DSI\x04\x04\x00\x00\x00\x00\x00\x05"), Err(ReadError::Unsound));
}

/// A map is a tree in the order of its keys. The copy of a process has another number, and the same place.
#[test]
fn a_map_keyed_by_the_process_itself_finds_it_in_its_copy_and_in_the_copy_of_that() {
    let code = "
        (define (keep others)
          (let ((map (fold (lambda (p map) (map-set map p 'other)) (map-set (make-map) (self) 'me) others)))
            (let loop ()
              (recv ((from tag 'ask)
                     (! from (list tag (list (map-ref map (self) 'missing)
                                             (length (filter (lambda (p) (eq? (map-ref map p #f) 'other)) others))
                                             (map-size (map-set map (self) 'again)))))
                     (loop))))))";
    let mut programs: Vec<Scheme> = (0..6).map(|_| scheme()).collect();
    programs.iter_mut().for_each(|program| drop(program.eval("test", code).unwrap()));
    let start = "
        (define (idle n) (map (lambda (i) (spawn (lambda () (?)))) (iota n)))
        (define before (idle 5))
        (define process (spawn (lambda () (keep (append before (?))))))
        (! process (idle 5))
        (!? process 'ask)";
    assert_eq!(programs[0].eval("test", start).unwrap(), "(me 10 11)");
    let mut process = programs[0].processes()[5];
    let mut image = programs[0].write_process(process).unwrap().unwrap();
    // In its own program, then from each program to the next, and home.
    for at in [0, 1, 2, 3, 4, 5, 0] {
        let program = &mut programs[at];
        process = program.read_process(&image).unwrap();
        program.define_process("moved", process);
        assert_eq!(program.eval("test", "(!? moved 'ask)").unwrap(), "(me 10 11)", "program {at}");
        image = program.write_process(process).unwrap().unwrap();
    }
}
