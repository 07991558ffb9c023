//! Operations on long numbers hold up no process.

mod common;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use dunlin_scheme::{Channels, Computation, Engine, Host, Operation, Outcome, Scheme, Step, Value};

/// Long numbers, and each long operation with another way to its value. All are true.
const NUMBERS: &str = "(define a (expt 7 60000)) (define b (+ (expt 3 90000) 5)) (define ratio (/ a b)) (define digits (number->string b))\n";
const LONG: &[&str] = &[
    "(let ((q (quotient a b))) (and (<= (* q b) a) (< a (* (+ q 1) b))))",
    "(= (remainder a b) (- a (* b (quotient a b))))",
    "(= (modulo (- a) b) (- b (remainder a b)))",
    "(= (floor-quotient (- a) b) (- -1 (quotient a b)))",
    "(= (floor-remainder a b) (truncate-remainder a b) (remainder a b))",
    "(call-with-values (lambda () (floor/ a b)) (lambda (q r) (and (= q (quotient a b)) (= r (remainder a b)))))",
    "(call-with-values (lambda () (truncate/ (- a) b)) (lambda (q r) (= (- a) (+ (* q b) r))))",
    "(= (gcd (* 6 a) (* 4 a)) (* 2 a))",
    "(= (gcd a (* 2 a) (* 3 a)) a)",
    "(= (/ (* a b) b) a)",
    "(= (apply / (list (* a b 5) a b)) 5)",
    "(= (+ ratio ratio) (* 2 ratio) (- (* 3 ratio) ratio))",
    "(= (* ratio ratio b b) (* a a))",
    "(= (apply + (list ratio ratio)) (* 2 ratio))",
    "(let ((more (+ ratio 1/7))) (and (< ratio more) (not (> ratio more)) (<= ratio more) (not (= ratio more)) (if (< more ratio) #f #t)))",
    "(let ((same (/ (* 2 a) (* 2 b)))) (and (= ratio same) (>= ratio same) (if (= same ratio) #t #f)))",
    "(and (< ratio (+ ratio 1) (+ ratio 2)) (not (< ratio (+ ratio 2) (+ ratio 1))) (apply >= (list (+ ratio 1) ratio ratio)))",
    "(and (= ratio ratio ratio) (guard (e (#t #t)) (< ratio ratio 'x) #f))",
    "(= (sqrt (* a a)) a)",
    "(call-with-values (lambda () (exact-integer-sqrt (+ (* b b) 3))) (lambda (root rest) (and (= root b) (= rest 3))))",
    "(= (string->number digits) b)",
    "(= (string->number (number->string a 16) 16) a)",
    "(not (string->number (string-append digits \"x\")))",
    "(equal? (call-with-output-string (lambda (port) (display b port))) digits)",
    "(let* ((text (number->string ratio)) (shown (lambda (show) (call-with-output-string (lambda (port) (show (list 1 b (vector ratio b)) port))))) (right (string-append \"(1 \" digits \" #(\" text \" \" digits \"))\"))) (and (equal? (shown display) right) (equal? (shown write) right)))",
    "(equal? (call-with-output-string (lambda (port) (write ratio port))) (number->string ratio))",
    "(< 40000 (string-length (call-with-output-string (lambda (port) (write (vector b) port)))))",
    "(< 80000 (string-length (call-with-output-string (lambda (port) (display (list ratio) port)))))",
    "(equal? (apply number->string (list b 10)) digits)",
    "(guard (e ((error-object? e) (eq? (error-object-kind e) 'number))) (exact-integer-sqrt (- a)))",
    "(guard (e ((error-object? e) (eq? (error-object-kind e) 'number))) (quotient a (/ b 7)))",
];

#[test]
fn long_operations_have_the_values_of_short_ones() {
    let mut scheme = Scheme::new();
    scheme.eval("test", NUMBERS).unwrap();
    for text in LONG {
        assert_eq!(scheme.eval("test", text).unwrap(), "#t", "{text}");
    }
}

struct Nothing;

impl Host for Nothing {
    fn ready(&mut self, _: u64) {}
    fn next(&mut self) -> Option<u64> {
        None
    }
    fn now_us(&mut self) -> u64 {
        0
    }
    fn set_timer(&mut self, _: u64, _: u64) {}
    fn cancel_timer(&mut self, _: u64, _: u64) {}
    fn wait(&mut self) -> bool {
        false
    }
}

/// Runs a process of an engine; returns its value, and how much it computed outside of its turns.
fn run(engine: &mut Engine, text: &str) -> (Value, usize) {
    let process = engine.start("test", text).unwrap();
    let mut computed = 0;
    loop {
        match engine.turn(process) {
            Step::Again => {}
            Step::Operating(Operation::Compute(computation), None) => {
                computed += 1;
                assert_eq!(engine.complete(process, Outcome::Computed(computation.run())), None);
            }
            Step::Ended(Ok(value)) => return (value, computed),
            step => panic!("{text}: {step:?}"),
        }
    }
}

#[test]
fn process_of_an_engine_asks_for_long_operations() {
    let mut engine = Engine::new(Nothing);
    run(&mut engine, NUMBERS);
    for text in LONG {
        let (value, computed) = run(&mut engine, text);
        assert_eq!(value, Value::Bool(true), "{text}");
        assert!(computed > 0, "{text}: nothing was computed outside of the turns");
    }
    let (_, computed) = run(&mut engine, "(modulo (expt 7 1000000) 1000003)");
    assert_eq!(computed, 0, "products give way");
    assert_eq!(run(&mut engine, "(quotient (expt 7 1000) (expt 3 900))").1, 0);
}

#[test]
fn long_operation_goes_on_while_exits_and_messages_arrive_and_ends_with_its_process() {
    let mut engine = Engine::new(Nothing);
    run(&mut engine, NUMBERS);
    let start = |engine: &mut Engine| {
        let process = engine
            .start("test", "(let ((q (quotient a b))) (list (guard (e (#t e)) (?)) (?) (= q (quotient a b))))")
            .unwrap();
        let computation = loop {
            match engine.turn(process) {
                Step::Again => {}
                Step::Operating(Operation::Compute(computation), None) => break computation,
                step => panic!("{step:?}"),
            }
        };
        (process, computation)
    };
    let (process, computation) = start(&mut engine);
    engine.raise(process, Some(&Value::Symbol("exit".into())), "");
    assert_eq!(engine.send(process, &Value::Integer(1)), Ok(true));
    engine.complete(process, Outcome::Computed(computation.run()));
    let mut asked = 0;
    let value = loop {
        match engine.turn(process) {
            Step::Again => {}
            Step::Operating(Operation::Compute(computation), None) => {
                asked += 1;
                engine.complete(process, Outcome::Computed(computation.run()));
            }
            Step::Ended(Ok(value)) => break value,
            step => panic!("{step:?}"),
        }
    };
    assert_eq!((value.to_string(), asked), ("(exit 1 #t)".into(), 1));
    let (process, computation) = start(&mut engine);
    engine.kill(process);
    assert!(engine.complete(process, Outcome::Computed(computation.run())).is_some());
}

/// Computes when it was asked so often whether anything has ended.
struct Late {
    asked: Arc<Mutex<usize>>,
    computations: VecDeque<(u64, Computation)>,
    patience: usize,
}

impl Channels for Late {
    fn start(&mut self, process: u64, operation: Operation) {
        let Operation::Compute(computation) = operation else { panic!("{operation:?}") };
        *self.asked.lock().unwrap() += 1;
        self.computations.push_back((process, computation));
    }

    fn finished(&mut self) -> Option<(u64, Outcome)> {
        if self.computations.is_empty() {
            return None;
        }
        self.patience = self.patience.checked_sub(1).unwrap_or(100);
        if self.patience > 0 {
            return None;
        }
        self.computations.pop_front().map(|(process, computation)| (process, Outcome::Computed(computation.run())))
    }

    fn withdraw(&mut self, process: u64) -> Option<Outcome> {
        let at = self.computations.iter().position(|(computing, _)| *computing == process)?;
        self.computations.remove(at).map(|_| Outcome::Withdrawn)
    }
}

#[test]
fn processes_and_timers_have_their_turns_while_one_computes() {
    let asked = Arc::<Mutex<usize>>::default();
    let mut scheme = common::scheme();
    let late = Late { asked: asked.clone(), computations: VecDeque::new(), patience: 100 };
    scheme.eval("test", NUMBERS).unwrap();
    scheme.set_channels(late);
    let text = "(define main (self))
        (define (tick n) (! main n) (sleep 0.00002) (tick (+ n 1)))
        (define ticker (spawn (lambda () (tick 0))))
        (define linked (spawn (lambda () (outbound-link main) (sleep 0.0001) (raise 'gone))))
        (define q (quotient a b))
        (define (count n) (if (integer? (guard (e (#t e)) (? 0 #f))) (count (+ n 1)) n))
        (define gone (guard (e (#t e)) (?)))
        (kill ticker)
        (list gone (< 20 (count 0)))";
    *asked.lock().unwrap() = 0;
    assert_eq!(scheme.eval("test", text).unwrap(), "(gone #t)");
    // An exit came meanwhile: it did not begin anew.
    assert_eq!(*asked.lock().unwrap(), 1);
}

#[test]
fn interrupted_computation_is_withdrawn() {
    let mut scheme = Scheme::new();
    scheme.eval("test", NUMBERS).unwrap();
    let asked = Arc::<Mutex<usize>>::default();
    scheme.set_channels(Late { asked: asked.clone(), computations: VecDeque::new(), patience: usize::MAX });
    let interrupter = scheme.interrupter();
    let interrupt = std::thread::spawn(move || {
        while *asked.lock().unwrap() == 0 {
            std::thread::yield_now();
        }
        interrupter.interrupt();
    });
    assert_eq!(scheme.eval("test", "(quotient a b)"), Err(dunlin_scheme::Error::Interrupted));
    interrupt.join().unwrap();
    assert_eq!(scheme.eval("test", "(+ 1 2)").unwrap(), "3");
    assert_eq!(scheme.eval("test", "(?)"), Err(dunlin_scheme::Error::Deadlock));
}
