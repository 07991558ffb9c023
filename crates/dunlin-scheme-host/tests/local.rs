//! Channels of a machine without tasks.

use dunlin_scheme::{Error, Scheme, Value};
use dunlin_scheme_host::{ChannelEnd, LocalChannels};

fn machine() -> Scheme {
    let mut scheme = Scheme::new();
    scheme.set_channels(LocalChannels::default());
    scheme
}

const CHANNEL: &str = "(define-values (out in) (make-channel)) (define other (channel-share in))";

#[test]
fn interrupted_operation_is_withdrawn() {
    let mut scheme = machine();
    let interrupter = scheme.interrupter();
    scheme.set_console(move |_| interrupter.interrupt());
    scheme.eval("test", CHANNEL).unwrap();
    scheme.eval("test", "(spawn (lambda () (sleep 100000)))").unwrap();
    assert_eq!(scheme.eval("test", "(display 1) (channel-receive other)"), Err(Error::Interrupted));
    // Nothing receives, and the main process begins anew.
    assert_eq!(scheme.eval("test", "(channel-send out 1 .01 'not-taken)").unwrap(), "not-taken");
    // An end that was to be sent is back.
    scheme.eval("test", "(define-values (line-out line-in) (make-channel))").unwrap();
    assert_eq!(scheme.eval("test", "(display 1) (channel-send line-out out)"), Err(Error::Interrupted));
    let text = "(spawn (let ((out out)) (lambda () (channel-send out 2)))) (channel-receive other 5)";
    assert_eq!(scheme.eval("test", text).unwrap(), "2");
}

#[test]
fn operation_that_waits_when_it_is_interrupted_is_withdrawn() {
    let mut scheme = machine();
    let interrupter = scheme.interrupter();
    scheme.set_console(move |_| interrupter.interrupt());
    scheme.eval("test", CHANNEL).unwrap();
    scheme.eval("test", "(define-values (line-out line-in) (make-channel))").unwrap();
    let text = "(spawn (lambda () (sleep .01) (display 1) (sleep 100000))) (channel-send line-out out)";
    assert_eq!(scheme.eval("test", text), Err(Error::Interrupted));
    let text = "(spawn (let ((out out)) (lambda () (channel-send out 2))))
        (list (channel-receive other 5 'late) (channel-receive line-in 0 'empty))";
    assert_eq!(scheme.eval("test", text).unwrap(), "(2 empty)");
}

#[test]
fn operation_that_fuel_ends_is_asked_anew_with_its_ends() {
    let definitions = format!("{CHANNEL} (define-values (line-out line-in) (make-channel)) (define sender #f)");
    let wait = "(define sender (spawn (lambda () (channel-send line-out out)))) (?)";
    let is_received = "(or (not sender) (channel-sender? (channel-receive line-in 5 'late)))";
    // The fuel ends at each point, until both processes wait.
    for fuel in 0..10_000 {
        let mut scheme = machine();
        scheme.eval("test", &definitions).unwrap();
        scheme.set_fuel(fuel);
        let ended = scheme.eval("test", wait).unwrap_err();
        scheme.set_fuel(1_000_000);
        assert_eq!(scheme.eval("test", is_received).unwrap(), "#t", "{fuel}");
        if ended == Error::Deadlock {
            return;
        }
        assert_eq!(ended, Error::OutOfFuel, "{fuel}");
    }
    panic!("the processes never wait");
}

#[test]
fn operation_takes_fuel_before_its_process_waits() {
    let mut scheme = machine();
    scheme.eval("test", CHANNEL).unwrap();
    // Enough for the calls around the operation, and less than it takes itself.
    scheme.set_fuel(8);
    assert_eq!(scheme.eval("test", "(channel-receive other)"), Err(Error::OutOfFuel));
    scheme.set_fuel(20);
    assert_eq!(scheme.eval("test", "(channel-receive other)"), Err(Error::Deadlock));
}

#[test]
fn end_of_rust_is_an_end_of_the_machine() {
    let mut scheme = machine();
    let (tx, rx) = dunlin::channel::<(u8, String)>();
    scheme.define("out", &Value::End(tx.into_end())).unwrap();
    scheme.define("in", &Value::End(rx.into_end())).unwrap();
    let text = "(spawn (lambda () (channel-send out '(7 \"krill\")))) (channel-receive in)";
    assert_eq!(scheme.eval("test", text).unwrap(), "(7 \"krill\")");
}

#[test]
fn processes_that_wait_for_each_other_are_a_deadlock() {
    let text =
        format!("{CHANNEL} (define main (self)) (spawn (lambda () (channel-receive in))) (channel-receive other)");
    assert_eq!(machine().eval("test", &text), Err(Error::Deadlock));
}

#[test]
fn long_operations_are_computed_on_other_threads() {
    let mut scheme = machine();
    let text = "(define a (expt 7 60000)) (define b (expt 3 90000)) (define main (self))
        (define (check) (! main (= a (+ (* b (quotient a b)) (remainder a b)))))
        (define all (map (lambda (i) (spawn check)) (iota 5)))
        (kill (car all))
        (and (?) (?) (?) (?) (equal? (string->number (number->string a)) a))";
    assert_eq!(scheme.eval("test", text).unwrap(), "#t");
}
