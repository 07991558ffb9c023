//! Engines of one program: what one does to a process that is in its turn at another.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex};

use dunlin_scheme::{Branch, End, EndKind, Engine, Error, Host, Operation, Outcome, Step, Value, Workers};

/// What happens when a process asks for the time, which it does in the middle of its turn.
type Hook = Box<dyn FnOnce() + Send>;

/// Notes which processes can run; its time stands still.
#[derive(Clone, Default)]
struct Notes {
    ready: Arc<Mutex<Vec<u64>>>,
    hooks: Arc<Mutex<VecDeque<Hook>>>,
}

impl Host for Notes {
    fn ready(&mut self, process: u64) {
        self.ready.lock().unwrap().push(process);
    }
    fn next(&mut self) -> Option<u64> {
        None
    }
    fn now_us(&mut self) -> u64 {
        let hook = self.hooks.lock().unwrap().pop_front();
        if let Some(hook) = hook {
            hook();
        }
        0
    }
    fn set_timer(&mut self, _: u64, _: u64) {}
    fn cancel_timer(&mut self, _: u64, _: u64) {}
    fn wait(&mut self) -> bool {
        false
    }
}

impl Notes {
    fn take(&self) -> Vec<u64> {
        std::mem::take(&mut *self.ready.lock().unwrap())
    }

    /// At the next look at the time, `hook` uses the other engine.
    fn then(&self, other: &Arc<Mutex<Engine>>, hook: impl FnOnce(&mut Engine) + Send + 'static) {
        let other = other.clone();
        self.hooks.lock().unwrap().push_back(Box::new(move || hook(&mut other.lock().unwrap())));
    }
}

/// Two engines of one program, and the notes of the first.
fn engines() -> (Engine, Notes, Arc<Mutex<Engine>>) {
    let notes = Notes::default();
    let engine = Engine::new(notes.clone());
    let other = engine.workers().engine(Notes::default());
    (engine, notes, Arc::new(Mutex::new(other)))
}

fn run(engine: &mut Engine, process: u64) -> Step {
    loop {
        match engine.turn(process) {
            Step::Again => {}
            step => return step,
        }
    }
}

/// Starts a process and runs it until it waits or ends.
fn start(engine: &mut Engine, text: &str) -> (u64, Step) {
    let process = engine.start("test", text).unwrap();
    let step = run(engine, process);
    (process, step)
}

/// Evaluates a text that ends.
fn eval(engine: &mut Engine, text: &str) -> Value {
    match start(engine, text).1 {
        Step::Ended(Ok(value)) => value,
        step => panic!("{text}: {step:?}"),
    }
}

fn symbol(name: &str) -> Value {
    Value::Symbol(name.into())
}

fn list(items: &[Value]) -> Value {
    Value::List(items.to_vec())
}

fn ended(value: Value) -> Step {
    Step::Ended(Ok(value))
}

#[test]
fn process_has_its_turns_at_any_engine() {
    let (mut one, _, other) = engines();
    let mut other = other.lock().unwrap();
    eval(&mut one, "(define (count n) (if (= n 0) 'done (count (- n 1))))");
    let process = one.start("test", "(list (count 10000) (? 1 'none))").unwrap();
    for _ in 0..5 {
        assert_eq!((one.turn(process), other.turn(process)), (Step::Again, Step::Again));
    }
    assert_eq!(run(&mut one, process), Step::Waiting(Some(1_000_000)));
    assert_eq!(other.send(process, &Value::Integer(7)), Ok(true));
    assert_eq!(other.turn(process), ended(list(&[symbol("done"), Value::Integer(7)])));
    assert!(!one.is_alive(process));
}

#[test]
fn message_during_a_turn_is_found_by_its_wait_or_by_the_next_turn() {
    let (mut engine, notes, other) = engines();
    let process = engine.start("test", "(? 1 'none)").unwrap();
    // `?` looks at the time before it waits.
    notes.then(&other, move |other| assert_eq!(other.send(process, &Value::Integer(1)), Ok(true)));
    assert_eq!(run(&mut engine, process), ended(Value::Integer(1)));
    // Here the wait has looked into the mailbox when the message comes: it wakes the process.
    let process = engine.start("test", "(? 1 'none)").unwrap();
    notes.then(&other, |_| {});
    notes.then(&other, move |other| assert_eq!(other.send(process, &Value::Integer(2)), Ok(true)));
    notes.take();
    assert_eq!(run(&mut engine, process), Step::Waiting(Some(1_000_000)));
    assert_eq!((notes.take(), engine.turn(process)), (vec![process], ended(Value::Integer(2))));
}

#[test]
fn messages_keep_their_order_and_number_across_turns() {
    let (mut engine, notes, other) = engines();
    let process = engine.start("test", "(? 1) (define a (? 1)) (list a (?) (?) (? 1))").unwrap();
    let send = move |other: &mut Engine, n| assert_eq!(other.send(process, &Value::Integer(n)), Ok(true));
    engine.send(process, &Value::Integer(0)).unwrap();
    notes.then(&other, move |other| send(other, 1));
    notes.then(&other, move |other| (2..4).for_each(|n| send(other, n)));
    notes.then(&other, move |other| send(other, 4));
    assert_eq!(run(&mut engine, process), ended(list(&[1, 2, 3, 4].map(Value::Integer))));
}

#[test]
fn exit_during_a_turn_is_raised_by_its_wait_before_messages() {
    let (mut engine, notes, other) = engines();
    let process = engine.start("test", "(guard (e (#t (list 'raised e))) (? 1 'none))").unwrap();
    engine.define("process", &Value::Process(process)).unwrap();
    notes.then(&other, move |other| {
        other.send(process, &Value::Integer(1)).unwrap();
        start(other, "(outbound-link process) (raise 'cold)");
    });
    assert_eq!(run(&mut engine, process), ended(list(&[symbol("raised"), symbol("cold")])));
    // Here the wait has looked already: it is woken.
    let process = engine.start("test", "(guard (e (#t (list 'raised e))) (? 1 'none))").unwrap();
    engine.define("process", &Value::Process(process)).unwrap();
    notes.then(&other, |_| {});
    notes.then(&other, |other| {
        start(other, "(outbound-link process) (raise 'cold)");
    });
    notes.take();
    assert_eq!(run(&mut engine, process), Step::Waiting(Some(1_000_000)));
    assert_eq!(notes.take(), [process]);
    assert_eq!(engine.turn(process), ended(list(&[symbol("raised"), symbol("cold")])));
}

#[test]
fn link_to_a_process_in_its_turn_tells_its_end() {
    // It ends in this turn, or in a later one.
    for text in ["(begin (%deadline 1) (raise 'cold))", "(begin (? 1 'none) (raise 'cold))"] {
        let (mut engine, notes, other) = engines();
        let process = engine.start("test", text).unwrap();
        engine.define("process", &Value::Process(process)).unwrap();
        let (watcher, _) = start(&mut engine, "(?) (inbound-link process) (guard (e (#t e)) (?))");
        notes.then(&other, move |other| {
            other.send(watcher, &Value::Integer(0)).unwrap();
            assert_eq!(run(other, watcher), Step::Waiting(None));
        });
        if run(&mut engine, process) == Step::Waiting(Some(1_000_000)) {
            engine.send(process, &Value::Integer(0)).unwrap();
            run(&mut engine, process);
        }
        assert!(!engine.is_alive(process));
        assert_eq!(run(&mut engine, watcher), ended(symbol("cold")), "{text}");
    }
}

#[test]
fn kill_during_a_turn_ends_the_process_with_the_turn() {
    for text in ["(begin (%deadline 1) (let loop () (loop)))", "(? 1 'none)"] {
        let (mut engine, notes, other) = engines();
        let victim = engine.start("test", text).unwrap();
        engine.define("victim", &Value::Process(victim)).unwrap();
        let (watcher, _) = start(&mut engine, "(inbound-link victim) (guard (e (#t e)) (?))");
        notes.then(&other, |other| {
            eval(other, "(kill victim)");
        });
        let Step::Ended(Err(failure)) = engine.turn(victim) else { panic!("it was killed") };
        assert_eq!((failure.error, engine.is_alive(victim)), (Error::Killed, false));
        assert_eq!(run(&mut engine, watcher), ended(symbol("killed")));
        // Nothing is left of it where its place is used again.
        let (next, step) = start(&mut engine, "(?)");
        assert!(next != victim && step == Step::Waiting(None));
    }
}

#[test]
fn messages_beyond_the_limit_end_a_process_in_its_turn() {
    let (mut engine, notes, other) = engines();
    engine.set_heap_limit(1 << 20);
    let process = engine.start("test", "(? 1 'none) (?)").unwrap();
    let large = Value::Bytes(vec![0; 600 << 10]);
    notes.then(&other, move |other| {
        for _ in 0..2 {
            assert_eq!(other.send(process, &large), Ok(true));
        }
    });
    let Step::Ended(Err(failure)) = run(&mut engine, process) else { panic!("its mailbox is too large") };
    assert!(matches!(failure.error, Error::MailboxLimit { .. }), "{failure}");
    // The limit is that of all engines.
    let grows = "(define (grow l) (grow (cons 1 l))) (grow '())";
    let Step::Ended(Err(failure)) = start(&mut other.lock().unwrap(), grows).1 else { panic!("it grows") };
    assert!(matches!(failure.error, Error::HeapLimit { limit_bytes, .. } if limit_bytes == 1 << 20), "{failure}");
}

#[test]
fn code_and_values_that_come_with_a_message_were_loaded_during_the_turn() {
    let (mut engine, notes, other) = engines();
    let process = engine.start("test", "(define f (? 1)) (list (f 2) numbers)").unwrap();
    engine.define("process", &Value::Process(process)).unwrap();
    notes.then(&other, |other| {
        eval(
            other,
            "(define numbers (list 1 2 3)) (define (twice n) (* 2 n))
            (! process (lambda (n) (cons (twice n) numbers)))",
        );
    });
    let numbers = [1, 2, 3].map(Value::Integer);
    let answer = [&[Value::Integer(4)], &numbers[..]].concat();
    assert_eq!(run(&mut engine, process), ended(list(&[list(&answer), list(&numbers)])));
    // In one turn: `f` is a value, not a definition.
    let process = engine.start("test", "(let ((f (? 1))) (f 2))").unwrap();
    engine.define("process", &Value::Process(process)).unwrap();
    notes.then(&other, |other| {
        eval(other, "(! process (lambda (n) (map (lambda (m) (* m n)) '(5 6 7))))");
    });
    assert_eq!(engine.turn(process), ended(list(&[10, 12, 14].map(Value::Integer))));
}

#[test]
fn end_of_a_channel_goes_to_a_process_in_its_turn_and_is_released_with_it() {
    let (mut engine, notes, other) = engines();
    let end = End::new(EndKind::Receiver, false, Arc::new(()));
    engine.define("in", &Value::End(end.clone())).unwrap();
    let process = engine.start("test", "(let ((in (? 1))) (channel-receive in 5 'late))").unwrap();
    engine.define("process", &Value::Process(process)).unwrap();
    notes.then(&other, |other| {
        eval(other, "(channel-receiver? in) (! process in)");
    });
    let operation = Operation::Choice { branches: vec![Branch::Receive(end.clone())], is_fair: false, skips: false };
    assert_eq!(run(&mut engine, process), Step::Operating(operation, Some(5_000_000)));
    // It is withdrawn for an exit that comes meanwhile, and raised.
    engine.complete(process, Outcome::Withdrawn);
    other.lock().unwrap().kill(process);
    assert_eq!(other.lock().unwrap().take_released_ends(), [end]);
}

#[test]
fn segments_follow_a_process_from_engine_to_engine() {
    let (mut one, _, other) = engines();
    let mut other = other.lock().unwrap();
    // One engine has collected more often than the other.
    eval(&mut one, "(define (busy n) (if (> n 0) (begin (make-vector 100 n) (busy (- n 1))))) (busy 20000)");
    let text = "(define (sum l) (apply + l))
        (define (hold lists n)
          (if (= n 0)
              (map sum lists)
              (begin (make-vector 3000 n) (hold (cons (cdr (?)) (take lists (min 3 (length lists)))) (- n 1)))))
        (define (feed to n) (if (> n 0) (begin (! to (iota 200 n)) (feed to (- n 1)))))";
    eval(&mut one, text);
    let holder = one.start("test", "(hold '() 200)").unwrap();
    one.define("holder", &Value::Process(holder)).unwrap();
    let feeder = other.start("test", "(feed holder 200)").unwrap();
    let mut is_fed = false;
    let sums = (0_u32..).find_map(|round| {
        let (first, second) = if round.is_multiple_of(3) { (&mut one, &mut *other) } else { (&mut *other, &mut one) };
        is_fed = is_fed || matches!(first.turn(feeder), Step::Ended(_));
        if let Step::Ended(result) = second.turn(holder) { Some(result.unwrap()) } else { None }
    });
    let sum = |first: i128| Value::Integer((first + 1..first + 200).sum());
    assert_eq!(sums, Some(list(&[1, 2, 3, 4].map(sum))));
}

/// Runs processes on several threads, each with an engine of its own, until all wait or have ended.
struct Pool {
    workers: Workers,
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    ready: VecDeque<u64>,
    known: HashSet<u64>,
    /// In their turns; those that were woken meanwhile have another one.
    running: HashMap<u64, bool>,
    failures: Vec<String>,
    turns: u64,
}

impl Pool {
    fn wake(queue: &mut Queue, process: u64) {
        if let Some(again) = queue.running.get_mut(&process) {
            *again = true;
        } else if queue.known.insert(process) {
            queue.ready.push_back(process);
        }
    }

    fn work(&self) {
        let notes = Notes::default();
        let mut engine = self.workers.engine(notes.clone());
        loop {
            let mut queue = self.queue.lock().unwrap();
            let process = loop {
                if let Some(process) = queue.ready.pop_front() {
                    break process;
                }
                if queue.running.is_empty() {
                    self.changed.notify_all();
                    return;
                }
                queue = self.changed.wait(queue).unwrap();
            };
            queue.known.remove(&process);
            queue.running.insert(process, false);
            queue.turns += 1;
            drop(queue);
            let step = engine.turn(process);
            let mut queue = self.queue.lock().unwrap();
            for woken in notes.take() {
                Self::wake(&mut queue, woken);
            }
            let again = queue.running.remove(&process).unwrap();
            match step {
                Step::Ended(Err(failure)) if failure.error != Error::Killed => queue.failures.push(failure.to_string()),
                Step::Ended(_) => {}
                Step::Again => Self::wake(&mut queue, process),
                _ if again => Self::wake(&mut queue, process),
                _ => {}
            }
            self.changed.notify_all();
        }
    }
}

/// Runs a text with the processes that it spawns on so many threads, and returns what it defines as `result`.
fn on_threads(threads: usize, text: &str) -> Value {
    let mut engine = Engine::new(Notes::default());
    let main = engine.start("test", text).unwrap();
    let pool = Pool { workers: engine.workers(), queue: Mutex::default(), changed: Condvar::new() };
    Pool::wake(&mut pool.queue.lock().unwrap(), main);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| pool.work());
        }
    });
    let queue = pool.queue.into_inner().unwrap();
    assert_eq!(queue.failures, Vec::<String>::new());
    eval(&mut engine, "result")
}

#[test]
fn processes_on_several_threads_lose_no_message_and_keep_their_order() {
    let text = "
        (define (relay to) (recv (('stop) (! to '(stop))) (x (! to x) (relay to))))
        (define (chain n to) (if (= n 0) to (chain (- n 1) (spawn (lambda () (relay to))))))
        (define (send to from n) (if (> n 0) (begin (! to (list from n (iota 40 n))) (send to from (- n 1)))))
        (define (check counts)
          (recv
            ((from n items)
             (if (not (and (= n (cdr (assv from counts))) (equal? items (iota 40 n)))) (raise (list 'order from n counts)))
             (let ((left (map (lambda (count) (if (eqv? (car count) from) (cons from (- n 1)) count)) counts)))
               (if (every zero? (map cdr left)) (define-result 'all) (check left))))
            (('stop) (check counts))))
        (define (define-result value) (eval (list 'define 'result (list 'quote value)) (interaction-environment)))
        (define checker (spawn (lambda () (check '((1 . 300) (2 . 300) (3 . 300) (4 . 300))))))
        (define (sender from)
          (lambda ()
            (let ((first (chain 3 checker)))
              (send first from 300)
              (! first '(stop)))))
        (for-each (lambda (from) (spawn (sender from))) '(1 2 3 4))";
    for _ in 0..3 {
        assert_eq!(on_threads(3, text), symbol("all"));
    }
}

#[test]
fn body_that_ends_during_the_turn_in_which_a_process_begins_to_wait_for_it_wakes_that() {
    let (mut engine, notes, other) = engines();
    let library = "(define-library (a) (export x) (import (dunlin)) (begin (define x (?))))";
    assert_eq!(start(&mut engine, library).1, ended(Value::Unspecified));
    let (first, step) = start(&mut engine, "(import (a))");
    assert_eq!(step, Step::Waiting(None));
    // With a rate the turn looks at the time when it begins, and when it has ended.
    engine.set_fuel_rate(std::num::NonZero::new(u64::MAX));
    let second = engine.start("test", "(begin (eval '(import (a))) (eval 'x))").unwrap();
    notes.take();
    notes.then(&other, |_| {});
    notes.then(&other, move |other| {
        assert_eq!(other.send(first, &Value::Integer(7)), Ok(true));
        assert_eq!(run(other, first), ended(Value::Unspecified));
    });
    assert_eq!(engine.turn(second), Step::Waiting(None));
    assert_eq!((notes.take(), run(&mut engine, second)), (vec![second], ended(Value::Integer(7))));
}

#[test]
fn two_processes_are_in_their_turns_at_the_same_time() {
    let (notes, other_notes) = (Notes::default(), Notes::default());
    let mut one = Engine::new(notes.clone());
    let mut other = one.workers().engine(other_notes.clone());
    let processes = [(); 2].map(|()| one.start("test", "(begin (%deadline 1) 'done)").unwrap());
    // Each goes on only when the other one is in its turn, too.
    let (ahead, behind) = (std::sync::mpsc::channel(), std::sync::mpsc::channel());
    for (notes, to, from) in [(&notes, ahead.0, behind.1), (&other_notes, behind.0, ahead.1)] {
        notes.hooks.lock().unwrap().push_back(Box::new(move || {
            to.send(()).unwrap();
            from.recv_timeout(std::time::Duration::from_secs(20)).expect("the other process has its turn");
        }));
    }
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(one.turn(processes[0]), ended(symbol("done"))));
        scope.spawn(|| assert_eq!(other.turn(processes[1]), ended(symbol("done"))));
    });
}
