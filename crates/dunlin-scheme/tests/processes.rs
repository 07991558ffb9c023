//! Processes: spawning, messages, links, ends, limits.

mod common;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use common::{scheme, value};
use dunlin_scheme::{Error, Host, Scheme};

#[test]
fn a_message_keeps_the_sharing_inside_it() {
    let text = "
        (define main (self))
        (spawn (lambda () (let ((shared (list 1 2))) (! main (vector shared shared (list shared))))))
        (let ((v (?))) (list v (eq? (vector-ref v 0) (vector-ref v 1)) (eq? (vector-ref v 0) (car (vector-ref v 2)))))";
    assert_eq!(value(text), "(#((1 2) (1 2) ((1 2))) #t #t)");
}

#[test]
fn a_cyclic_message_arrives_as_a_cycle() {
    let text = "
        (define echo (spawn (lambda () (let loop () (recv ((from tag ('echo x)) (! from (list tag x)))) (loop)))))
        (define back (!? echo '(echo #0=(a b . #0#))))
        (list (car back) (caddr back) (eq? back (cddr back)))";
    assert_eq!(value(text), "(a a #t)");
}

#[test]
fn messages_that_match_nothing_stay_in_order() {
    let text = "
        (for-each (lambda (m) (! (self) m)) '(1 a 2 b 3 c))
        (define letters (list (?? symbol?) (recv ((where) 'never) (x (where (symbol? x)) x)) (?? symbol?)))
        (list letters (?) (?) (?) (? 0 'empty))";
    assert_eq!(value(text), "((a b c) 1 2 3 empty)");
}

#[test]
fn a_receive_tests_no_message_twice() {
    let text = "
        (define main (self))
        (define tests (spawn (lambda () (let loop ((n 0)) (recv ('test (loop (+ n 1))) ((from tag 'count) (! from (list tag n))))))))
        (define (wanted? m) (! tests 'test) (eq? m 'wanted))
        (define slow
          (spawn (lambda () (recv (m (where (wanted? m)) (! main 'found))))))
        (for-each (lambda (i) (! slow i) (sleep 1)) '(1 2 3 4 5))
        (! slow 'wanted)
        (list (?) (!? tests 'count))";
    assert_eq!(value(text), "(found 6)");
}

#[test]
fn patterns_bind_compare_and_nest() {
    let text = r#"
        (define x 5)
        (define (try message)
          (! (self) message)
          (recv
            (('quoted 1.5 "text" #\c) 'literals)
            ((,x a) (list 'value a))
            ((_ _ . rest) (where (equal? rest '(last))) (list 'rest rest))
            (#(a #(b)) (list 'vector a b))
            ((a (b . c) #f) (list 'nested a b c))
            ((1 . two) (list 'dotted two))
            (() 'empty)
            (other (list 'other other))))
        (map try (list '(quoted 1.5 "text" #\c) '(5 a) '(8 9 last) #(1 #(2)) '(1 (2 3 4) #f) '(1 . 2) '() '(6 a) 'x))"#;
    let expected =
        "(literals (value a) (rest (last)) (vector 1 2) (nested 1 2 (3 4)) (dotted 2) empty (other (6 a)) (other x))";
    assert_eq!(value(text), expected);
}

#[test]
fn wrong_clauses_are_refused_when_the_program_is_compiled() {
    for (text, message) in [
        ("(recv ((a a) 1))", "this identifier is in the pattern twice"),
        ("(recv (a))", "expected"),
        ("(recv)", "expected (recv (pattern expression ...) ...)"),
        ("(recv (after 1 2) (a 1))", "the clause of after comes last, and once"),
        ("(recv (a 1) (after 1))", "expected (after seconds expression ...)"),
        ("(recv 5)", "expected (pattern expression ...)"),
    ] {
        let error = Scheme::new().eval("test", text).unwrap_err().to_string();
        assert!(error.contains(message), "{text}: {error}");
    }
}

#[test]
fn a_timeout_bounds_the_whole_wait() {
    let text = "
        (define main (self))
        (define noise (spawn (lambda () (let loop () (! main 'noise) (sleep 1) (loop)))))
        (define result (recv ('never 1) (after 5.5 'late)))
        (kill noise)
        (list result (let loop ((n 0)) (if (eq? (? 0 #f) 'noise) (loop (+ n 1)) n)))";
    assert_eq!(value(text), "(late 6)");
}

#[test]
fn timeouts_that_are_no_times_are_errors() {
    let text = "
        (define (try thunk) (guard (e (#t (error-object-kind e))) (thunk)))
        (! (self) 'here)
        (list (try (lambda () (? -1))) (try (lambda () (? 'soon))) (try (lambda () (sleep +nan.0)))
              (? +inf.0) (? 0 'none))";
    assert_eq!(value(text), "(type type type here none)");
}

/// The body of a clause is a tail call: a server runs for ever in constant memory.
#[test]
fn a_server_takes_no_more_memory_with_each_message() {
    let mut scheme = scheme();
    scheme.set_heap_limit(1 << 20);
    let text = "
        (define (serve) (recv ((from tag 'ping) (! from (list tag 'pong)) (serve))))
        (define server (spawn serve))
        (let loop ((i 0)) (if (< i 30000) (begin (!? server 'ping) (loop (+ i 1)))))";
    scheme.eval("test", text).unwrap();
    let server = scheme.processes()[0];
    assert!(scheme.process_bytes(server).unwrap() < 1300, "{:?}", scheme.process_bytes(server));
}

#[test]
fn an_exit_is_raised_at_the_next_retrieve_before_messages() {
    let text = "
        (define main (self))
        (define result
          (begin
            (! main 'first)
            (spawn-link (lambda () (raise (list 'broken (make-vector 2 7)))))
            (sleep-without-retrieving)
            (let* ((exit (guard (e (#t e)) (?))) (message (?))) (list exit message))))
        result";
    let busy = "(define (sleep-without-retrieving) (let loop ((i 0)) (if (< i 20000) (loop (+ i 1)))))";
    assert_eq!(value(&format!("{busy}{text}")), "((broken #(7 7)) first)");
}

#[test]
fn an_exit_wakes_every_kind_of_wait() {
    let text = "
        (define (dies-later) (spawn-link (lambda () (sleep 1) (raise 'died))))
        (define silent (spawn (lambda () (?))))
        (define (try wait) (dies-later) (guard (e (#t e)) (wait)))
        (list (try (lambda () (?))) (try (lambda () (?? odd?))) (try (lambda () (!? silent 'hello)))
              (try (lambda () (sleep 5))) (try (lambda () (recv ('a 1)))) (try (lambda () (recv (after 9 1)))))";
    assert_eq!(value(text), "(died died died died died died)");
}

#[test]
fn the_value_of_an_exit_s_handler_is_that_of_the_retrieve() {
    let text = "
        (spawn-link (lambda () (raise 'died)))
        (with-exception-handler (lambda (e) (list 'handled e)) (lambda () (list (recv ('never 1)) (? 0 'none))))";
    assert_eq!(value(text), "((handled died) none)");
}

#[test]
fn a_normal_end_raises_nothing() {
    let text = "
        (spawn-link (lambda () 'value))
        (spawn-link (lambda () (halt!)))
        (? 1 'nothing)";
    assert_eq!(value(text), "nothing");
}

#[test]
fn links_have_a_direction() {
    let text = "
        (define main (self))
        (define (watcher pid link)
          (spawn (lambda () (link pid) (! main 'linked) (! main (list link (guard (e (#t (list 'heard e))) (? 1 'nothing)))))))
        (define (try link)
          (let ((dies (spawn (lambda () (recv ('die (raise 'died)))))))
            (watcher dies link) (?) (! dies 'die) (cadr (?))))
        (list (try inbound-link) (try outbound-link) (try full-link))";
    assert_eq!(value(text), "((heard died) nothing (heard died))");
}

#[test]
fn an_outbound_link_ends_the_other_process() {
    let text = "
        (define main (self))
        (define other (spawn (lambda () (guard (e (#t (! main (list 'other e)))) (?)))))
        (spawn (lambda () (outbound-link other) (car 5)))
        (let ((heard (?))) (list (car heard) (error-object-kind (cadr heard))))";
    assert_eq!(value(text), "(other type)");
}

#[test]
fn an_exit_passes_along_a_ring_of_links_once() {
    let text = "
        (define main (self))
        (define (make name next)
          (spawn (lambda () (if next (full-link next)) (! main 'ready) (guard (e (#t (! main (list name e)) (raise e))) (?)))))
        (define a (make 'a #f))
        (define b (make 'b a))
        (define c (make 'c b))
        (?) (?) (?)
        (spawn (lambda () (outbound-link a) (inbound-link a) (raise 'broken)))
        (define (heard) (? 1 'none))
        (let* ((one (heard)) (two (heard)) (three (heard))) (list one two three (heard)))";
    assert_eq!(value(text), "((a broken) (b broken) (c broken) none)");
}

#[test]
fn a_link_to_oneself_does_nothing_and_one_to_a_dead_process_is_told() {
    let text = "
        (full-link (self))
        (define dead (spawn (lambda () 1)))
        (sleep 1)
        (outbound-link dead)
        (define first (? 1 'nothing))
        (inbound-link dead)
        (list first (guard (e (#t e)) (? 1 'nothing)))";
    assert_eq!(value(text), "(nothing no-process)");
}

#[test]
fn a_killed_process_runs_no_after_thunk() {
    let text = "
        (define main (self))
        (define (wound) (dynamic-wind (lambda () #f) (lambda () (! main 'in) (?)) (lambda () (! main 'after))))
        (define waiting (spawn wound))
        (define first (?))
        (kill waiting)
        (define second (? 1 'nothing))
        (define itself (spawn-link (lambda () (sleep 1) (dynamic-wind values (lambda () (kill (self))) (lambda () (! main 'after))))))
        (define third (guard (e (#t e)) (?)))
        (spawn (lambda () (dynamic-wind values halt! (lambda () (! main 'after)))))
        (list first second third (? 1 'nothing))";
    assert_eq!(value(text), "(in nothing killed nothing)");
}

#[test]
fn a_message_to_a_dead_process_is_dropped() {
    let text = "
        (define dead (spawn (lambda () 1)))
        (sleep 1)
        (! dead 'hello)
        (define next (spawn (lambda () (? 1 'nothing-came))))
        (list (eq? dead next) (!? dead 'hello 1 'no-answer))";
    assert_eq!(value(text), "(#f no-answer)");
}

#[test]
fn a_guard_that_raises_leaves_its_message() {
    let text = "
        (! (self) '(1 2))
        (define failed (guard (e (#t (error-object-kind e))) (recv ((a b) (where (car a)) 'never))))
        (list failed (?))";
    assert_eq!(value(text), "(type (1 2))");
}

#[test]
fn a_guard_may_receive_itself() {
    let text = "
        (for-each (lambda (m) (! (self) m)) '(one two (three)))
        (list (recv ((x) (where (eq? (?) 'one)) x)) (?))";
    assert_eq!(value(text), "(three two)");
}

#[test]
fn a_process_past_its_heap_limit_ends_and_others_go_on() {
    for grows in ["(let loop ((l '())) (loop (cons l l)))", "(let loop () (+ 1 (loop)))", "(make-vector 10000000 1)"] {
        let mut scheme = scheme();
        scheme.set_heap_limit(1 << 20);
        let text = format!(
            "(define steady (spawn (lambda () (let loop () (recv ((from tag 'ping) (! from (list tag 'pong)))) (loop)))))
             (define failed (guard (e (#t (error-object-kind e))) (spawn-link (lambda () {grows})) (?)))
             (list failed (!? steady 'ping))"
        );
        assert_eq!(scheme.eval("test", &text).unwrap(), "(limit pong)", "{grows}");
    }
}

#[test]
fn a_mailbox_past_the_limit_ends_its_process_and_not_the_sender() {
    let mut scheme = scheme();
    scheme.set_heap_limit(4 << 20);
    let text = "
        (define deaf (spawn-link (lambda () (let loop () (loop)))))
        (define (flood i) (if (< i 1000000) (begin (! deaf i) (flood (+ i 1)))))
        (flood 0)
        (list (guard (e (#t (list (error-object-kind e) (error-object-message e)))) (?)) (! deaf 'more) 'alive)";
    let value = scheme.eval("test", text).unwrap();
    assert!(value.starts_with(r#"((limit "mailbox limit of 4194304 bytes exceeded")"#), "{value}");
    let itself = "(define (fill i) (! (self) i) (fill (+ i 1))) (fill 0)";
    assert_eq!(scheme.eval("test", itself), Err(Error::MailboxLimit { limit_bytes: 4 << 20 }));
    assert_eq!(scheme.eval("test", "(! (self) 'more) (list (?) (? 0 'empty))").unwrap(), "(more empty)");
}

#[test]
fn a_million_messages_are_received_in_order() {
    let text = "
        (define main (self))
        (spawn (lambda () (let loop ((i 0)) (if (< i 1000000) (begin (! main i) (loop (+ i 1)))))))
        (let loop ((i 0)) (if (= i 1000000) 'all (if (= (?) i) (loop (+ i 1)) i)))";
    assert_eq!(scheme().eval("test", text).unwrap(), "all");
}

#[test]
fn a_promise_of_the_top_level_is_forced_once_in_each_process() {
    let text = "
        (define main (self))
        (define p (delay (begin (! main 'forced) (list 1))))
        (define here (list (eq? (force p) (force p)) (?) (? 0 'once)))
        (define (there) (! main (list (equal? (force p) '(1)) (eq? (force p) (force p)))))
        (spawn there)
        (let* ((one (?)) (two (?))) (list here one two (? 1 'once)))";
    assert_eq!(value(text), "((#t forced once) forced (#t #t) once)");
}

#[test]
fn a_definition_counts_for_all_processes() {
    let text = "
        (define (answer) 1)
        (define server (spawn (lambda () (let loop () (recv ((from tag 'ask) (! from (list tag (answer))))) (loop)))))
        (define before (!? server 'ask))
        (define (answer) (list 'now 2))
        (list before (!? server 'ask))";
    assert_eq!(value(text), "(1 (now 2))");
}

#[test]
fn a_continuation_goes_on_in_another_process() {
    let text = "
        (define main (self))
        (define param (make-parameter 'outside))
        (define (work)
          (parameterize ((param 'inside))
            (guard (e (#t (! main (list 'guarded e (eq? (self) first)))))
              (let ((n (+ 1 (call/cc (lambda (k) (! main k) (?))))))
                (! main (list n (param) (eq? (self) first)))
                (raise 'end)))))
        (define first (spawn (lambda () (recv ('go (work))))))
        (! first 'go)
        (define k (?))
        (spawn (lambda () (k 10)))
        (define one (list (?) (?)))
        (spawn (lambda () (k 20)))
        (define two (list (?) (?)))
        (! first 30)
        (list one two (list (?) (?)))";
    let expected =
        "(((11 inside #f) (guarded end #f)) ((21 inside #f) (guarded end #f)) ((31 inside #t) (guarded end #t)))";
    assert_eq!(value(text), expected);
}

/// A guard's continuation holds the number of a message of its own process: elsewhere that means nothing.
#[test]
fn a_continuation_of_a_guard_takes_no_message_of_another_process() {
    let text = "
        (define main (self))
        (define (keep m) (call/cc (lambda (k) (! main k) #f)))
        (define first (spawn (lambda () (recv ((m) (where (keep m)) (! main (list 'matched m))) ('end (! main 'ended))))))
        (for-each (lambda (m) (! first m)) '(noise noise (1)))
        (define k (?))
        (define (enter value)
          (spawn (lambda () (for-each (lambda (m) (! (self) m)) '(mine (2) end)) (k value))))
        (enter #t)
        (define matched (?))
        (enter #f)
        (define asked-again (procedure? (?)))
        (define ended (?))
        (! first 'end)
        (list matched asked-again ended (?) (? 1 'none))";
    assert_eq!(value(text), "((matched 1) #t ended ended none)");
}

#[test]
fn a_program_without_a_process_that_can_run_ends_with_an_error() {
    let mut scheme = scheme();
    assert_eq!(scheme.eval("test", "(spawn (lambda () (?))) (?)"), Err(Error::Deadlock));
    assert_eq!(scheme.eval("test", "(? 1 'later)").unwrap(), "later");
    assert_eq!(scheme.eval("test", "(define main (self)) (spawn (lambda () (kill main))) (?)"), Err(Error::Killed));
    assert_eq!(scheme.eval("test", "(spawn (lambda () (exit 3))) (?)"), Err(Error::Exit(3)));
    let both = "(define main (self)) (spawn (lambda () (kill main) (exit 3))) (?)";
    assert_eq!(scheme.eval("test", both), Err(Error::Exit(3)));
    assert_eq!(scheme.eval("test", "(? 1 'later)").unwrap(), "later");
    assert_eq!(scheme.eval("test", "(halt!)"), Err(Error::Exit(0)));
    assert_eq!(scheme.eval("test", "(+ 1 2)").unwrap(), "3");
}

#[test]
fn an_unlinked_failure_is_logged_with_its_place() {
    let mut scheme = scheme();
    let log = Arc::new(Mutex::new(Vec::new()));
    let kept = log.clone();
    scheme.set_failure_log(move |process, error| kept.lock().unwrap().push((process, error.to_string())));
    let text =
        "(define (fails) (car 1)) (spawn fails) (spawn-link (lambda () (raise 'linked))) (guard (e (#t e)) (? 1))";
    assert_eq!(scheme.eval("test", text).unwrap(), "linked");
    scheme.eval("test", "(sleep 1)").unwrap();
    let log = log.lock().unwrap();
    assert_eq!(log.len(), 1, "{log:?}");
    assert!(log[0].1.starts_with("expected a pair, got 1\n  in fails at test:1:"), "{log:?}");
}

#[test]
fn more_processes_than_the_limit_are_an_error_in_the_program() {
    let mut scheme = scheme();
    scheme.set_process_limit(10);
    let text = "
        (define (count n) (guard (e (#t (list n (error-object-kind e)))) (spawn (lambda () (?))) #f))
        (let loop ((n 0)) (or (count n) (loop (+ n 1))))";
    assert_eq!(scheme.eval("test", text).unwrap(), "(9 limit)");
    scheme.set_process_limit(11);
    assert_eq!(
        scheme.eval("test", "(!? (spawn (lambda () (recv ((from tag x) (! from (list tag x)))))) 1)").unwrap(),
        "1"
    );
}

#[test]
fn an_exit_of_the_program_in_a_process_leaves_the_others() {
    let mut scheme = scheme();
    let text = "
        (define server (spawn (lambda () (let loop ((n 0)) (recv ((from tag 'next) (! from (list tag n)) (loop (+ n 1))))))))
        (define (busy) (let loop ((i 0)) (if (< i 5000) (loop (+ i 1)) (! server (list (self) (make-tag) 'next)))))
        (spawn busy)
        (spawn (lambda () (map (lambda (x) (exit x)) '(4))))
        (sleep 1)";
    assert_eq!(scheme.eval("test", text), Err(Error::Exit(4)));
    assert_eq!(scheme.processes().len(), 2);
    assert_eq!(scheme.eval("test", "(sleep 1) (!? server 'next)").unwrap(), "1");
}

#[test]
fn processes_go_on_after_the_main_one_has_failed() {
    let mut scheme = scheme();
    scheme
        .eval(
            "test",
            "(define main (self)) (define (busy) (let loop ((i 0)) (if (< i 9000) (loop (+ i 1)) (! main 'done))))",
        )
        .unwrap();
    scheme.eval("test", "(spawn busy) (spawn busy) (spawn (lambda () (kill main)))").unwrap();
    assert_eq!(scheme.eval("test", "(?)"), Err(Error::Killed));
    assert_eq!(scheme.eval("test", "(list (?) (?) (? 1 'none))").unwrap(), "(done done none)");
    scheme.set_fuel(3_000);
    assert_eq!(scheme.eval("test", "(spawn busy) (?)"), Err(Error::OutOfFuel));
    scheme.set_fuel(1_000_000);
    assert_eq!(scheme.eval("test", "(?)").unwrap(), "done");
}

#[test]
fn exits_that_are_never_raised_count_as_messages() {
    let mut scheme = scheme();
    scheme.set_heap_limit(1 << 20);
    let text = "
        (define (fail) (raise (make-vector 1000 0)))
        (define deaf (spawn-link (lambda () (let loop () (spawn-link fail) (loop)))))
        (guard (e (#t (error-object-message e))) (?))";
    assert_eq!(scheme.eval("test", text).unwrap(), "\"mailbox limit of 1048576 bytes exceeded\"");
}

#[test]
fn exits_that_a_process_brings_on_itself_count_too() {
    let mut scheme = scheme();
    scheme.set_heap_limit(1 << 20);
    scheme.set_fuel(10_000_000);
    scheme.eval("test", "(define dead (spawn (lambda () 1))) (sleep 1)").unwrap();
    for text in ["(let loop () (inbound-link dead) (loop))", "(let loop () (kill (spawn-link (lambda () 1))) (loop))"] {
        assert_eq!(scheme.eval("test", text), Err(Error::MailboxLimit { limit_bytes: 1 << 20 }), "{text}");
    }
}

/// Each has heard almost as much as it may when it hears of the end before: that ends it, too.
#[test]
fn a_long_chain_of_ends_takes_no_stack() {
    let mut scheme = scheme();
    scheme.set_heap_limit(4 << 20);
    let log = Arc::new(Mutex::new(Vec::new()));
    let kept = log.clone();
    scheme.set_failure_log(move |_, error| kept.lock().unwrap().push(error.clone()));
    // The first two raise half of the limit each, but for a few words.
    let text = "
        (define (link-to next) (lambda () (if next (outbound-link next)) (?)))
        (define all (let loop ((i 0) (made '())) (if (= i 20000) made
          (loop (+ i 1) (cons (spawn (link-to (if (pair? made) (car made) #f))) made)))))
        (define (fails object heard-by) (spawn (lambda () (for-each outbound-link heard-by) (recv ('go (raise object))))))
        (define (half) (make-vector 262135 0))
        (define failing (list (fails (half) all) (fails (half) all) (fails (iota 10) (list (car all)))))
        (sleep 1)
        (for-each (lambda (pid) (! pid 'go)) failing)
        (sleep 1)";
    scheme.eval("test", text).unwrap();
    assert_eq!(*log.lock().unwrap(), [Error::MailboxLimit { limit_bytes: 4 << 20 }]);
    assert!(scheme.processes().is_empty());
}

/// Gives turns in the order in which processes became ready, and tells that order. It has no clock.
struct InOrder {
    ready: VecDeque<u64>,
    seen: Arc<Mutex<Vec<u64>>>,
}

impl Host for InOrder {
    fn ready(&mut self, process: u64) {
        self.ready.push_back(process);
    }

    fn next(&mut self) -> Option<u64> {
        let next = self.ready.pop_front()?;
        self.seen.lock().unwrap().push(next);
        Some(next)
    }

    fn now_us(&mut self) -> u64 {
        0
    }

    fn set_timer(&mut self, _process: u64, _at_us: u64) {}

    fn cancel_timer(&mut self, _process: u64, _at_us: u64) {}

    fn wait(&mut self) -> bool {
        false
    }
}

#[test]
fn every_process_that_can_run_has_a_turn_before_one_has_two() {
    let mut scheme = Scheme::new();
    let seen = Arc::new(Mutex::new(Vec::new()));
    scheme.set_host(InOrder { ready: VecDeque::new(), seen: seen.clone() });
    let text = "(define (forever) (forever)) (for-each (lambda (i) (spawn forever)) (iota 50))
        (let loop ((i 0)) (if (< i 20000) (loop (+ i 1))))";
    scheme.eval("test", text).unwrap();
    let seen = seen.lock().unwrap();
    let rounds: Vec<&[u64]> = seen.chunks_exact(51).collect();
    assert!(rounds.len() > 20, "{}", rounds.len());
    for round in rounds {
        let mut sorted = round.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), 51);
    }
}

/// A turn is 20 us of virtual time: at most three turns pass between a timer and its process.
#[test]
fn fifty_loops_that_never_wait_delay_no_timer() {
    let mut scheme = scheme();
    let text = "
        (define (forever) (forever))
        (for-each (lambda (i) (spawn forever)) (iota 50))
        (define (late n worst)
          (if (= n 0)
              worst
              (let ((due (+ (%deadline 0) 5000))) (sleep 0.005) (late (- n 1) (max worst (- (%deadline 0) due))))))
        (late 20 0)";
    let late: u64 = scheme.eval("test", text).unwrap().parse().unwrap();
    assert!(late <= 60, "{late} us");
}

#[test]
fn timers_that_pass_at_once_leave_turns_to_others() {
    let mut scheme = scheme();
    let text = "
        (define main (self))
        (for-each (lambda (i) (spawn (lambda () (let loop () (sleep 0.000001) (loop))))) (iota 10))
        (spawn (lambda () (let loop ((i 0)) (if (< i 50000) (loop (+ i 1)) (! main 'done)))))
        (? 1 'starved)";
    assert_eq!(scheme.eval("test", text).unwrap(), "done");
}

#[test]
fn a_hundred_thousand_processes_wait_at_once() {
    let mut scheme = scheme();
    let text = "
        (define main (self))
        (define (wait) (recv ('go (! main 1))))
        (define all (let loop ((i 0) (all '())) (if (= i 100000) all (loop (+ i 1) (cons (spawn wait) all)))))
        (for-each (lambda (pid) (! pid 'go)) all)
        (let loop ((i 0) (sum 0)) (if (= i 100000) sum (loop (+ i 1) (+ sum (?)))))";
    assert_eq!(scheme.eval("test", text).unwrap(), "100000");
    assert!(scheme.processes().is_empty());
}

#[test]
fn arguments_that_are_no_processes_or_procedures_are_errors() {
    let text = "
        (define (try thunk) (guard (e (#t (error-object-kind e))) (thunk)))
        (map try (list (lambda () (! 'me 1)) (lambda () (spawn 5)) (lambda () (kill 5)) (lambda () (inbound-link '()))
          (lambda () (outbound-link #f)) (lambda () (!? 1 2)) (lambda () (spawn-link car car))))";
    assert_eq!(value(text), "(type type type type type type arity)");
}

#[test]
fn an_interrupt_ends_the_evaluation_and_leaves_processes_and_definitions() {
    let mut scheme = Scheme::new();
    let interrupter = scheme.interrupter();
    scheme.set_console(move |_| interrupter.interrupt());
    let program = "(define (count n) (if (eq? (? 0 'none) 'tell) n (count (+ n 1))))
        (define counting (spawn (lambda () (let ((n (count 0))) (! main n)))))
        (define main (self))
        (define (forever) (forever))";
    scheme.eval("test", program).unwrap();
    for wait in ["(forever)", "(sleep 100000)"] {
        assert_eq!(scheme.eval("test", &format!("(display 1) {wait}")), Err(Error::Interrupted), "{wait}");
    }
    scheme.set_console(|_| {});
    assert_eq!(scheme.eval("test", "(! counting 'tell) (integer? (?))").unwrap(), "#t");
}

#[test]
fn an_interrupt_from_another_thread_ends_a_wait_for_a_timer() {
    let mut scheme = Scheme::new();
    let interrupter = scheme.interrupter();
    let (tell, told) = std::sync::mpsc::channel();
    let interrupting = std::thread::spawn(move || {
        told.recv().unwrap();
        interrupter.interrupt();
    });
    scheme.set_console(move |_| tell.send(()).unwrap());
    assert_eq!(scheme.eval("test", "(display 1) (sleep 100000)"), Err(Error::Interrupted));
    interrupting.join().unwrap();
}

#[test]
fn an_interrupt_without_an_evaluation_does_nothing() {
    let mut scheme = Scheme::new();
    scheme.interrupter().interrupt();
    let text = "(define (count n) (if (= n 0) 'done (count (- n 1)))) (count 100000)";
    assert_eq!(scheme.eval("test", text).unwrap(), "done");
}

#[test]
fn an_interrupt_while_another_process_runs_leaves_it_running() {
    let mut scheme = Scheme::new();
    let interrupter = scheme.interrupter();
    scheme.set_console(move |_| interrupter.interrupt());
    scheme.eval("test", "(define (chatter n) (display n) (chatter (+ n 1))) (spawn (lambda () (chatter 0)))").unwrap();
    assert_eq!(scheme.eval("test", "(sleep 100000)"), Err(Error::Interrupted));
    let (tell, told) = std::sync::mpsc::channel();
    scheme.set_console(move |text| tell.send(text.to_owned()).unwrap());
    scheme.eval("test", "(sleep .05)").unwrap();
    assert!(told.try_recv().is_ok(), "it prints");
}
