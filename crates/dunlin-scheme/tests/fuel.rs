//! The fuel that a process has in a second.

use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dunlin_scheme::{Engine, Host, Scheme, Step, Value};

/// Fuel of one turn.
const TURN: u64 = 500;

/// Time that stands still until a test sets it.
#[derive(Clone, Default)]
struct Clock(Arc<AtomicU64>);

impl Host for Clock {
    fn ready(&mut self, _: u64) {}
    fn next(&mut self) -> Option<u64> {
        None
    }
    fn now_us(&mut self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
    fn set_timer(&mut self, _: u64, _: u64) {}
    fn cancel_timer(&mut self, _: u64, _: u64) {}
    fn wait(&mut self) -> bool {
        false
    }
}

/// Gives a process turns while it can go on; returns their number, and when it goes on.
fn until_paused(engine: &mut Engine, process: u64) -> (u64, u64) {
    let mut turns = 0;
    loop {
        match engine.turn(process) {
            Step::Again => turns += 1,
            Step::Paused(at) => return (turns, at),
            step => panic!("{step:?}"),
        }
        assert!(turns < 100_000, "the process has no limit");
    }
}

#[test]
fn process_uses_its_fuel_per_second_and_a_tenth_in_advance() {
    let clock = Clock::default();
    let mut engine = Engine::new(clock.clone());
    engine.set_fuel_rate(NonZero::new(100_000));
    let process = engine.start("test", "(let forever () (forever))").unwrap();
    let mut turns = 0;
    let mut now = 0;
    while now < 10_000_000 {
        clock.0.store(now, Ordering::Relaxed);
        let (more, at) = until_paused(&mut engine, process);
        assert!(at > now && at <= now + 20_000, "at {now} until {at}");
        assert_eq!(engine.turn(process), Step::Paused(at));
        (turns, now) = (turns + more, at);
    }
    let fuel = turns * TURN;
    assert!((950_000..=1_020_000).contains(&fuel), "{fuel} in ten seconds");
}

#[test]
fn time_in_which_a_process_waits_gives_no_more_than_a_tenth_of_a_second() {
    let clock = Clock::default();
    let mut engine = Engine::new(clock.clone());
    engine.set_fuel_rate(NonZero::new(100_000));
    let process = engine.start("test", "(begin (?) (let forever () (forever)))").unwrap();
    assert_eq!(engine.turn(process), Step::Waiting(None));
    clock.0.store(60_000_000, Ordering::Relaxed);
    assert_eq!(engine.send(process, &Value::Integer(1)), Ok(true));
    let (turns, _) = until_paused(&mut engine, process);
    assert!((10_000..=11_000).contains(&(turns * TURN)), "{turns} turns");
}

#[test]
fn paused_process_takes_messages_and_can_be_killed_and_others_have_turns() {
    let mut engine = Engine::new(Clock::default());
    engine.set_fuel_rate(NonZero::new(100_000));
    let process = engine.start("test", "(let forever () (forever))").unwrap();
    until_paused(&mut engine, process);
    assert_eq!(engine.send(process, &Value::Integer(1)), Ok(true));
    assert!(matches!(engine.turn(process), Step::Paused(_)));
    let other = engine.start("test", "(+ 1 2)").unwrap();
    assert_eq!(engine.turn(other), Step::Ended(Ok(Value::Integer(3))));
    engine.kill(process);
    assert!(matches!(engine.turn(process), Step::Ended(Err(_))));
    let unlimited = engine.start("test", "(let loop ((n 1000000)) (if (= n 0) 'end (loop (- n 1))))").unwrap();
    engine.set_fuel_rate(None);
    while engine.turn(unlimited) == Step::Again {}
    assert!(!engine.is_alive(unlimited));
}

/// A machine that gives its turns itself: its time is virtual, and goes on where all processes pause.
#[test]
fn processes_of_a_machine_have_fuel_each() {
    let text = "(define (now) (%deadline 0))
        (define (count n) (if (> n 0) (count (- n 1))))
        (define (timed thunk) (let ((before (now))) (thunk) (- (now) before)))
        (define main (self))
        (define alone (timed (lambda () (count 1000000))))
        (define three (timed (lambda ()
          (for-each (lambda (i) (spawn (lambda () (count 1000000) (! main 'done)))) (iota 3))
          (?) (?) (?))))
        (define counter (spawn (lambda () (count 500000) (! main (list (?) (? 0 'none))))))
        (for-each (lambda (i) (! counter i)) (iota 1000))
        (define woken (?))
        (list alone three woken)";
    for rewrites in [false, true] {
        let mut scheme = Scheme::new();
        scheme.set_virtual_time();
        scheme.set_rewrite(rewrites);
        scheme.set_fuel_rate(NonZero::new(1_000_000));
        let value = scheme.eval("test", text).unwrap();
        let times: Vec<u64> = value[1..].split(' ').filter_map(|word| word.parse().ok()).collect();
        assert!((850_000..1_200_000).contains(&times[0]) && (850_000..1_200_000).contains(&times[1]), "{value}");
        assert!(value.ends_with("(0 1))"), "{value}");
    }
}
