//! Processes whose turns come from outside.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use dunlin_scheme::{Branch, End, EndKind, Engine, Error, Host, Operation, Outcome, Request, Step, Value};

/// Notes which processes can run, and has a time that is set.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<(BTreeSet<u64>, u64)>>);

impl Host for Notes {
    fn ready(&mut self, process: u64) {
        self.0.lock().unwrap().0.insert(process);
    }
    fn next(&mut self) -> Option<u64> {
        None
    }
    fn now_us(&mut self) -> u64 {
        self.0.lock().unwrap().1
    }
    fn set_timer(&mut self, _: u64, _: u64) {}
    fn cancel_timer(&mut self, _: u64, _: u64) {}
    fn wait(&mut self) -> bool {
        false
    }
}

impl Notes {
    fn take(&self) -> Vec<u64> {
        std::mem::take(&mut self.0.lock().unwrap().0).into_iter().collect()
    }
}

fn engine() -> (Engine, Notes) {
    let notes = Notes::default();
    (Engine::new(notes.clone()), notes)
}

/// Gives a process turns until it waits or ends.
fn run(engine: &mut Engine, process: u64) -> Step {
    loop {
        match engine.turn(process) {
            Step::Again => {}
            step => return step,
        }
    }
}

fn symbol(name: &str) -> Value {
    Value::Symbol(name.into())
}

#[test]
fn processes_share_definitions_and_have_turns_of_their_own() {
    let (mut engine, _) = engine();
    let setup = engine.start("setup", "(define (count n) (if (= n 0) 'done (count (- n 1)))) (define x 7)").unwrap();
    assert_eq!(run(&mut engine, setup), Step::Ended(Ok(Value::Unspecified)));
    let [one, two] = [100_000, 3].map(|n| engine.start("test", &format!("(list x (count {n}))")).unwrap());
    assert_eq!(engine.turn(one), Step::Again);
    let done = Step::Ended(Ok(Value::List(vec![Value::Integer(7), symbol("done")])));
    assert_eq!(run(&mut engine, two), done);
    assert_eq!(run(&mut engine, one), done);
    assert!(!engine.is_alive(one) && !engine.is_alive(two));
}

#[test]
fn spawned_and_woken_processes_are_named_to_the_host() {
    let (mut engine, notes) = engine();
    let text =
        "(define main (self)) (define child (spawn (lambda () (! main (list (?) (? 1 'late)))))) (! child 1) (?)";
    let main = engine.start("test", text).unwrap();
    assert_eq!(run(&mut engine, main), Step::Waiting(None));
    let [child] = notes.take()[..] else { panic!("one process was spawned") };
    assert_eq!(run(&mut engine, child), Step::Waiting(Some(1_000_000)));
    assert_eq!((notes.take(), engine.turn(child)), (vec![], Step::Waiting(Some(1_000_000))));
    notes.0.lock().unwrap().1 = 1_000_000;
    assert_eq!(run(&mut engine, child), Step::Ended(Ok(Value::Unspecified)));
    assert_eq!(notes.take(), [main]);
    assert_eq!(run(&mut engine, main), Step::Ended(Ok(Value::List(vec![Value::Integer(1), symbol("late")]))));
}

#[test]
fn failure_has_the_object_and_reaches_linked_processes_once_they_wait() {
    let (mut engine, notes) = engine();
    let watcher = engine.start("test", "(define watcher (self)) (guard (e (#t (list 'heard e))) (?))").unwrap();
    run(&mut engine, watcher);
    let failing = engine.start("test", "(outbound-link watcher) (raise '(krill 7))").unwrap();
    let Step::Ended(Err(failure)) = run(&mut engine, failing) else { panic!("it raises") };
    let object = Value::List(vec![symbol("krill"), Value::Integer(7)]);
    assert_eq!(failure.object.as_ref(), Some(&object));
    assert_eq!(notes.take(), [watcher]);
    assert_eq!(run(&mut engine, watcher), Step::Ended(Ok(Value::List(vec![symbol("heard"), object]))));
}

#[test]
fn kill_ends_a_process_for_all_that_know_it() {
    let (mut engine, notes) = engine();
    let victim = engine.start("test", "(define victim (self)) (?)").unwrap();
    run(&mut engine, victim);
    let watcher = engine.start("test", "(inbound-link victim) (guard (e (#t e)) (?))").unwrap();
    run(&mut engine, watcher);
    engine.kill(victim);
    assert!(notes.take().contains(&watcher) && !engine.is_alive(victim));
    assert_eq!(run(&mut engine, watcher), Step::Ended(Ok(symbol("killed"))));
    assert_eq!(engine.send(victim, &Value::Integer(1)), Ok(false));
    // Killed by a process: the host hears, and the next turn tells.
    let victim = engine.start("test", "(define victim (self)) (?)").unwrap();
    run(&mut engine, victim);
    let killer = engine.start("test", "(kill victim)").unwrap();
    run(&mut engine, killer);
    assert_eq!(notes.take(), [victim]);
    let Step::Ended(Err(failure)) = engine.turn(victim) else { panic!("it was killed") };
    assert_eq!(failure.error, Error::Killed);
}

#[test]
fn what_is_outside_gets_messages_links_and_kills() {
    let (mut engine, _) = engine();
    let outside = Engine::outside(5);
    engine.define("outside", &Value::Process(outside)).unwrap();
    let text = "(! outside '(1 a)) (! outside car) (inbound-link outside) (outbound-link outside) (kill outside)
        (guard (e ((error-object? e) (list (error-object-kind e) (error-object-message e))) (#t e)) (?))";
    let process = engine.start("test", text).unwrap();
    assert_eq!(run(&mut engine, process), Step::Waiting(None));
    let requests = engine.take_requests();
    let list = Value::List(vec![Value::Integer(1), symbol("a")]);
    assert_eq!(requests[0], Request::Post { to: outside, message: Ok(list) });
    assert!(matches!(requests[1], Request::Post { to, message: Err(_) } if to == outside));
    let links =
        [Request::Link { source: outside, target: process }, Request::Link { source: process, target: outside }];
    assert_eq!(requests[2..], [links.to_vec(), vec![Request::Kill(outside)]].concat());
    assert_eq!((Engine::outside_place(outside), Engine::outside_place(process)), (Some(5), None));
    engine.raise(process, None, "gone");
    assert_eq!(
        run(&mut engine, process),
        Step::Ended(Ok(Value::List(vec![symbol("exit"), Value::String("gone".into())])))
    );
}

#[test]
fn process_past_a_limit_ends_and_others_go_on() {
    let (mut engine, _) = engine();
    engine.set_heap_limit(4 << 20);
    engine.set_process_limit(2);
    let grows = engine.start("test", "(define (grow l) (grow (cons 1 l))) (grow '())").unwrap();
    let waits = engine.start("test", "(?) (?)").unwrap();
    assert_eq!(engine.start("test", "1"), Err(Error::TooManyProcesses));
    run(&mut engine, waits);
    let Step::Ended(Err(failure)) = run(&mut engine, grows) else { panic!("it grows") };
    assert!(matches!(failure.error, Error::HeapLimit { .. }));
    let large = Value::Bytes(vec![0; 5 << 20]);
    assert!(engine.send(waits, &large).is_ok());
    let Step::Ended(Err(failure)) = engine.turn(waits) else { panic!("its mailbox is too large") };
    assert!(matches!(failure.error, Error::MailboxLimit { .. }), "{failure}");
    assert!(engine.start("test", "(").is_err());
    let fails = engine.start("test", "(define ok 1) (if)").unwrap();
    assert!(matches!(run(&mut engine, fails), Step::Ended(Err(failure)) if matches!(failure.error, Error::Syntax(_))));
}

#[test]
fn process_waits_for_the_outcome_of_an_operation_and_not_for_messages() {
    let (mut engine, notes) = engine();
    let end = End::new(EndKind::Receiver, false, Arc::new(()));
    engine.define("in", &Value::End(end.clone())).unwrap();
    let text = "(guard (e (#t (list 'raised e))) (list (channel-receive in 5 'late) (?)))";
    let start = |engine: &mut Engine| {
        let process = engine.start("test", text).unwrap();
        let step = run(engine, process);
        (process, step)
    };
    let (process, step) = start(&mut engine);
    let branches = vec![Branch::Receive(end.clone())];
    let operation = Operation::Choice { branches, is_fair: false, skips: false };
    assert_eq!(step, Step::Operating(operation.clone(), Some(5_000_000)));
    engine.send(process, &Value::Integer(1)).unwrap();
    assert_eq!(notes.take(), []);
    // Withdrawn for no reason: it asks anew.
    assert_eq!(engine.complete(process, Outcome::Withdrawn), None);
    assert_eq!(run(&mut engine, process), Step::Operating(operation.clone(), Some(5_000_000)));
    // Done, although its time has come and an exit waits.
    notes.0.lock().unwrap().1 = 5_000_000;
    engine.raise(process, Some(&symbol("cold")), "");
    assert_eq!(notes.take(), [process]);
    engine.complete(process, Outcome::Done(0, Value::Integer(7)));
    assert_eq!(run(&mut engine, process), Step::Ended(Ok(Value::List(vec![symbol("raised"), symbol("cold")]))));
    assert!(engine.take_released_ends().contains(&end));
    // Late, and killed: the outcome comes back.
    engine.define("in", &Value::End(end)).unwrap();
    let (process, step) = start(&mut engine);
    assert_eq!(step, Step::Operating(operation, Some(10_000_000)));
    notes.0.lock().unwrap().1 = 10_000_000;
    engine.complete(process, Outcome::Withdrawn);
    assert_eq!(run(&mut engine, process), Step::Waiting(None));
    engine.kill(process);
    let outcome = Outcome::Done(0, Value::Integer(7));
    assert_eq!(engine.complete(process, outcome.clone()), Some(outcome));
}
