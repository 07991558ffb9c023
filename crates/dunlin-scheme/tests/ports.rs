//! Ports are processes.

mod common;

use common::{scheme, value};
use dunlin_scheme::Scheme;

#[test]
fn port_answers_messages_with_blocks_of_4_kib() {
    let text = "(define in (port-process (open-input-string (make-string 5000 #\\x3bb))))
        (define first (!? in 'read)) (define second (!? in 'read)) (define third (!? in 'read))
        (list (pid? in) (string-length first) (string-length second) (string-length third) (!? in 'read) (!? in 'written)
          (!? (port-process (open-input-bytevector (bytevector 1 2 3))) 'read))";
    assert_eq!(value(text), "(#t 2048 2048 904 #<eof> #f #u8(1 2 3))");
}

#[test]
fn port_takes_blocks_of_text_or_bytes() {
    let text = "(define out (open-output-string)) (define bytes (open-output-bytevector))
        (write 'auk out)
        (define answers (list (!? (port-process out) '(write \" dives\")) (!? (port-process out) '(write #u8(1)))
          (!? (port-process bytes) '(write #u8(1 2))) (!? (port-process bytes) 'read) (!? (port-process bytes) 'unknown)))
        (write-char #\\! out)
        (list answers (!? (port-process out) 'written) (get-output-string out) (!? (port-process bytes) 'written)
          (!? (port-process out) 'close) (output-port-open? out))";
    assert_eq!(value(text), "((#t #f #t #f #f) \"auk dives!\" \"auk dives!\" #u8(1 2) #t #f)");
}

#[test]
fn message_that_is_no_request_is_dropped() {
    let text = "(define in (open-input-string \"ab\")) (define p (port-process in))
        (for-each (lambda (message) (! p message)) (list 'read '(read) (list (self) 'tag) (list 1 2 'read) (list p 'tag 'read) (list (self) 'tag 'read 1) '((1 . 2) . 3)))
        (read-char in)
        (list (?? (lambda (m) #t) 0 'nothing) (read-char in))";
    // One request came from a port, which drops the answer: the block is gone with it.
    assert_eq!(value(text), "(nothing #<eof>)");
}

#[test]
fn processes_that_read_one_port_get_each_character_once() {
    let text = "(define in (open-input-string (list->string (map integer->char (iota 600 32)))))
        (define main (self))
        (define (reader)
          (let loop ((n 0) (last -1))
            (let ((c (read-char in)))
              (cond ((eof-object? c) (! main (list n)))
                    ((< last (char->integer c)) (loop (+ n 1) (char->integer c)))
                    (else (! main 'disorder))))))
        (for-each (lambda (i) (spawn reader)) (iota 3))
        (apply + (map car (list (?) (?) (?))))";
    assert_eq!(value(text), "600");
}

#[test]
fn port_ends_with_the_process_that_opened_it() {
    let text = "(define main (self))
        (define worker (spawn (lambda () (let ((p (open-input-string \"abc\"))) (! main (list p (read-char p))) (?)))))
        (define port (?))
        (define before (list (cadr port) (input-port-open? (car port)) (read-char (car port))))
        (! worker 'end) (sleep 1)
        (define (kind thunk) (guard (e ((error-object? e) (error-object-kind e))) (thunk)))
        (list before (port? (car port)) (input-port? (car port)) (input-port-open? (car port))
          (kind (lambda () (read-char (car port)))))";
    assert_eq!(value(text), "((#\\a #t #\\b) #t #t #f port)");
}

#[test]
fn port_of_the_top_level_stays() {
    let mut scheme = scheme();
    scheme.eval("one", "(define in (open-input-string \"abc\")) (read-char in)").unwrap();
    let text = "(define main (self)) (spawn (lambda () (outbound-link (port-process in)) (! main (read-char in)))) (list (?) (begin (sleep 1) (read-char in)))";
    assert_eq!(scheme.eval("two", text).unwrap(), "(#\\b #\\c)");
}

#[test]
fn closed_ports_take_no_place() {
    let mut scheme = Scheme::new();
    scheme.set_process_limit(10);
    let text = "(define (kind thunk) (guard (e ((error-object? e) (error-object-kind e))) (thunk)))
        (define main (self))
        (define texts (map (lambda (i) (call-with-output-string (lambda (p) (write i p)))) (iota 100)))
        (define (spawned n) (if (> n 0) (begin (spawn (lambda () (open-output-string) (open-output-string) (! main 'end))) (?) (spawned (- n 1)))))
        (spawned 20)
        (list (length texts) (kind (lambda () (map (lambda (i) (open-output-string)) (iota 20)))))";
    assert_eq!(scheme.eval("test", text).unwrap(), "(100 limit)");
}

#[test]
fn text_beyond_the_limit_of_a_heap_is_refused_and_the_port_stays_usable() {
    let mut scheme = Scheme::new();
    scheme.set_heap_limit(4 << 20);
    let text = "(define out (open-output-string)) (define block (make-string 1000000 #\\a)) (define bytes (open-output-bytevector))
        (define (kind thunk) (guard (e ((error-object? e) (error-object-kind e))) (thunk)))
        (define (fill n) (if (= n 0) 'full (begin (write-string block out) (fill (- n 1)))))
        (define kinds (list (kind (lambda () (fill 10))) (kind (lambda () (let loop () (write-bytevector (make-bytevector 1000000 7) bytes) (loop))))
          (!? (port-process out) (list 'write block))))
        (write-char #\\b out)
        (list kinds (string-length (get-output-string out)))";
    assert_eq!(scheme.eval("test", text).unwrap(), "((limit limit #f) 4000001)");
}

#[test]
fn end_of_a_port_is_told_as_that_of_any_process() {
    let text = "(define in (open-input-string \"abc\"))
        (define main (self))
        (spawn (lambda () (inbound-link (port-process in)) (! main 'linked) (! main (guard (e (#t (list 'heard e))) (?)))))
        (define linked (?)) (kill (port-process in))
        (define heard (?))
        (define closed (open-input-string \"abc\"))
        (spawn (lambda () (inbound-link (port-process closed)) (! main 'linked) (! main (guard (e (#t (list 'heard e))) (? 1 'nothing)))))
        (?) (close-port closed)
        (list linked heard (?) (input-port-open? in))";
    assert_eq!(value(text), "(linked (heard killed) nothing #f)");
}

#[test]
fn port_names_its_process_in_an_image() {
    let program = "(define (kind thunk) (guard (e ((error-object? e) (error-object-kind e))) (thunk)))";
    let mut here = scheme();
    here.eval("test", program).unwrap();
    here.eval("test", "(define in (open-input-string \"abc\")) (define value (list in (current-output-port)))")
        .unwrap();
    let image = here.write_global("value").unwrap();
    here.read_global("again", &image).unwrap();
    assert_eq!(
        here.eval("test", "(list (read-char in) (read-char (car again)) (read-char in))").unwrap(),
        "(#\\a #\\b #\\c)"
    );
    let mut there = scheme();
    there.eval("test", program).unwrap();
    there.read_global("value", &image).unwrap();
    let text =
        "(display 'auk (cadr value)) (list (map port? value) (textual-port? (car value)) (input-port-open? (car value))
        (kind (lambda () (read-char (car value)))))";
    assert_eq!(there.eval("test", text).unwrap(), "((#t #t) #t #f port)");
    assert_eq!(there.take_output(), "auk");
}

#[test]
fn wrong_port_is_an_error_of_the_kind_type() {
    let text = "(define (kind thunk) (guard (e ((error-object? e) (error-object-kind e))) (thunk)))
        (define in (open-input-string \"a\")) (define out (open-output-string)) (define bytes (open-input-bytevector (bytevector 1)))
        (map kind (list (lambda () (read-char out)) (lambda () (write-char #\\a in)) (lambda () (read-u8 in)) (lambda () (write-u8 1 out))
          (lambda () (get-output-string in)) (lambda () (get-output-bytevector out)) (lambda () (read bytes)) (lambda () (close-port 7))
          (lambda () (read-char (current-output-port))) (lambda () (write-u8 1 (current-output-port))) (lambda () (write-char #\\a (current-input-port)))))";
    assert_eq!(value(text), "(type type type type type type type type type type type)");
    assert_eq!(
        value("(list (read) (read-char) (peek-char) (read-line) (port-process (current-input-port)))"),
        "(#<eof> #<eof> #<eof> #<eof> #f)"
    );
}
