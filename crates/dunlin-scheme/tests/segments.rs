//! Large messages lie in segments that processes share.

mod common;

use common::{scheme, value};
use dunlin_scheme::Error;

/// A copy of 200,000 words costs 12,500 units of fuel.
#[test]
fn a_value_sent_again_or_passed_on_or_sent_in_part_is_not_copied() {
    for body in [
        "(begin (! (self) items) (?) items)",
        "(begin (! (self) (list 'take items)) (?) items)",
        "(begin (! (self) (vector (cdr items) (cddr items))) (?) items)",
        "(begin (! (self) (lambda () items)) ((?)) items)",
        "(begin (! (self) items) (?))",
        "(begin (! (self) items) (cdr (?)))",
        "(begin (spawn (lambda () (length items))) items)",
    ] {
        // A local variable: the value of a global is never copied.
        let text = format!("(let loop ((i 0) (items (iota 100000))) (if (< i 200) (loop (+ i 1) {body}) 'done))");
        let mut scheme = scheme();
        scheme.set_fuel(1_000_000);
        assert_eq!(scheme.eval("test", &text), Ok("done".into()), "{body}");
    }
}

#[test]
fn every_kind_of_object_keeps_its_value_in_a_segment() {
    let text = r#"
        (define-record-type point (make-point x y) point? (x px) (y py))
        (define main (self))
        (define (filled) (iota 100))
        (define (kinds n)
          (let ((param (make-parameter 5)))
            (list n 1.5 (expt 7 100) 1/3 "text äöü" (bytevector 1 2 3) #\x 'name (vector 'a (list n)) (make-point n 2)
                  (lambda () (* 2 n)) param (call/cc (lambda (k) k)) (make-promise n) (filled))))
        (define (show k)
          (list (take k 8) (vector->list (list-ref k 8)) (px (list-ref k 9)) ((list-ref k 10)) ((list-ref k 11))
                (procedure? (list-ref k 12)) (force (list-ref k 13)) (apply + (list-ref k 14))))
        (define (echo) (spawn (lambda () (let loop () (recv ((from tag m) (! from (list tag (list (show m) m)))) ) (loop)))))
        (define one (echo))
        (define two (echo))
        (let loop ((i 0) (results '()))
          (if (= i 3)
              (reverse results)
              (let* ((sent (kinds i)) (first (!? one sent)) (second (!? two (cadr first))) (third (length (cadr second))))
                (loop (+ i 1)
                      (cons (list (equal? (car first) (show sent)) (equal? (car first) (car second)) third) results)))))"#;
    assert_eq!(value(text), "((#t #t 15) (#t #t 15) (#t #t 15))");
}

/// Lists, parts of them and lists of them go round; what comes back depends on all that was sent.
#[test]
fn segments_of_segments_survive_collections_and_images() {
    let text = "
        (define (relay next)
          (spawn (lambda ()
            (let loop ((kept '()) (n 0))
              (recv
                ((to 'sum) (! to (apply + (map length kept))) (loop kept n))
                (items
                  (if next (! next (if (odd? n) (cdr items) (append (iota 40) items))))
                  (loop (cons (cdr items) (if (> (length kept) 3) (take kept 2) kept)) (+ n 1))))))))
        (define last (relay #f))
        (define middle (relay last))
        (define first (relay middle))
        (let loop ((i 0) (items (iota 70)))
          (if (< i 12)
              (begin (! first items) (loop (+ i 1) (if (even? i) (cons i items) (cdr items))))))
        (sleep 1)
        (map (lambda (p) (! p (list (self) 'sum)) (?)) (list first middle last))";
    assert_eq!(value(text), "(278 356 434)");
}

#[test]
fn a_value_with_an_unforced_promise_is_copied_to_each_receiver() {
    let text = "
        (define main (self))
        (define (force-it) (spawn (lambda () (let ((m (?))) (! main (list (force (car m)) (force (car m)) (length m)))))))
        (let ((m (cons (delay (begin (! main 'forced) (list 1))) (iota 100))))
          (! (force-it) m)
          (let* ((a (?)) (b (?)))
            (! (force-it) m)
            (let* ((c (?)) (d (?)))
              (force (car m))
              (let ((e (?)))
                (! (force-it) m)
                (list a b c d e (?) (? 1 'none))))))";
    assert_eq!(value(text), "(forced ((1) (1) 101) forced ((1) (1) 101) forced ((1) (1) 101) none)");
}

#[test]
fn what_was_received_can_be_defined_raised_and_spawned_with() {
    let text = "
        (define main (self))
        (define got (begin (let ((m (iota 100))) (! main m) (! main m)) (?)))
        (define (double) (map + got got))
        (define other (?))
        (define raised (begin (spawn-link (lambda () (raise (list 'big other)))) (guard (e (#t e)) (?))))
        (let ((m (cdr raised)))
          (spawn (lambda () (! main (apply + (car m)))))
          (list (?) (apply + (double)) (eq? (car raised) 'big) (equal? got other)))";
    assert_eq!(value(text), "(4950 9900 #t #t)");
}

#[test]
fn a_million_messages_of_the_same_list_take_one_list() {
    let mut scheme = scheme();
    let text = "
        (define deaf (spawn (lambda () (let loop ((n 0)) (recv ('count n) (m (where (pair? m)) (loop (+ n (car m)))))))))
        (define (flood items i) (if (< i 1000000) (begin (! deaf items) (flood items (+ i 1)))))
        (define sender (spawn (lambda () (flood (cons 1 (iota 1000)) 0))))";
    scheme.eval("test", text).unwrap();
    // Each is received: the segment is held, and nothing grows.
    scheme.eval("test", "(sleep 60)").unwrap();
    let process = *scheme.processes().first().unwrap();
    let bytes = scheme.process_bytes(process).unwrap();
    assert!(bytes < 1 << 17, "{bytes}");

    let mut scheme = common::scheme();
    scheme.set_heap_limit(128 << 20);
    let text = "
        (define deaf (spawn (lambda () (let loop () (loop)))))
        (let loop ((items (iota 1000)) (i 0)) (if (< i 1000000) (begin (! deaf items) (loop items (+ i 1)))))";
    scheme.eval("test", text).unwrap();
    let bytes = scheme.process_bytes(scheme.processes()[0]).unwrap();
    assert!(bytes < 128 << 20, "a place in the mailbox for each, and one list: {bytes}");
}

#[test]
fn segments_that_a_process_keeps_count_to_its_limit_alone() {
    let mut scheme = scheme();
    scheme.set_heap_limit(1 << 20);
    let text = "
        (define steady (spawn (lambda () (let loop ((last '())) (recv ((from tag 'ping) (! from (list tag (length last))) (loop last))
                                                                      (items (loop items)))))))
        (define hoards (spawn-link (lambda () (let loop ((kept '())) (loop (cons (?) kept))))))
        (define (feed n)
          (let ((items (iota 1000))) (! steady items) (! hoards items) (if (> n 0) (begin (sleep 0.001) (feed (- n 1))))))
        (define failed (guard (e (#t (list (error-object-kind e) (error-object-message e)))) (feed 1000)))
        (list failed (!? steady 'ping))";
    let value = scheme.eval("test", text).unwrap();
    assert!(
        value.starts_with(r#"((limit "heap limit of 1048576 bytes exceeded"#) && value.ends_with(" 1000)"),
        "{value}"
    );
    // One that drops them takes as many as there are.
    let text = "(let loop ((i 0)) (if (< i 2000) (begin (! steady (iota 1000)) (sleep 0.001) (loop (+ i 1))) (!? steady 'ping)))";
    assert_eq!(scheme.eval("test", text).unwrap(), "1000");
    let waits = "
        (define deaf (spawn-link (lambda () (let loop () (loop)))))
        (guard (e (#t (error-object-message e))) (let loop () (! deaf (iota 1000)) (? 0 #f) (loop)))";
    assert_eq!(scheme.eval("test", waits).unwrap(), r#""mailbox limit of 1048576 bytes exceeded""#);
}

#[test]
fn a_chain_of_segments_counts_to_the_limit_of_whoever_holds_its_end() {
    let chain = |limit: usize, count: usize| {
        let mut scheme = scheme();
        scheme.set_heap_limit(limit);
        let text = format!(
            "(define (chain end n) (if (= n 0) end (begin (! (self) (make-vector 100 end)) (chain (?) (- n 1)))))
             (vector? (chain '#() {count}))"
        );
        scheme.eval("test", &text)
    };
    assert_eq!(chain(64 << 20, 20_000), Ok("#t".into()));
    // Its mailbox holds the end first.
    assert_eq!(chain(4 << 20, 20_000), Err(Error::MailboxLimit { limit_bytes: 4 << 20 }));
}

#[test]
fn a_process_that_keeps_a_little_of_each_message_keeps_only_that() {
    let mut scheme = scheme();
    scheme.set_heap_limit(1 << 20);
    let text = "
        (define keeps (spawn (lambda () (let loop ((kept '()))
          (recv ((from tag 'sum) (! from (list tag (apply + (map car kept)))) (loop kept))
                (items (loop (cons (list-tail items 999) kept))))))))
        (let loop ((i 0)) (if (< i 2000) (begin (! keeps (iota 1000)) (sleep 0.001) (loop (+ i 1)))))
        (!? keeps 'sum)";
    assert_eq!(scheme.eval("test", text).unwrap(), "1998000");
    let bytes = scheme.process_bytes(scheme.processes()[0]).unwrap();
    // 2,000 times two pairs, and what has come since the last census.
    assert!(bytes < 200_000, "{bytes}");
}

#[test]
fn an_image_has_each_object_of_a_segment_once() {
    let size = |start: &str| {
        let mut scheme = scheme();
        let code = "(define (wait a b c) (let loop () (?) (loop (length a))))";
        scheme.eval("test", code).unwrap();
        scheme.eval("test", start).unwrap();
        scheme.eval("test", "(sleep 1)").unwrap();
        let process = *scheme.processes().last().unwrap();
        scheme.write_process(process).unwrap().unwrap().len()
    };
    let one = size("(spawn (lambda () (let ((m (iota 1000))) (wait m 0 0))))");
    let sent = size(
        "(spawn (lambda () (let ((m (iota 1000))) (! (self) m) (let ((n (?))) (! (self) (cdr m)) (wait m n (?))))))",
    );
    assert!(sent < one + 100, "{sent} {one}");
    // Also before a collection has put the copy in the place of what was sent.
    let twice = "
        (let ((m (iota 1000)))
          (! (self) m)
          (let ((bytes (value->bytes (list m (cdr (?))))))
            (list (- (bytevector-length bytes) (bytevector-length (value->bytes (list m (cdr m)))))
                  (let ((both (bytes->value bytes))) (eq? (cdar both) (cadr both))))))";
    assert_eq!(scheme().eval("test", twice).unwrap(), "(0 #t)");
}
