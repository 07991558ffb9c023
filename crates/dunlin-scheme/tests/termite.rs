//! Programs of Termite (Germain, Feeley, Monnier: "Termite: a Lisp for Distributed Computing", 2005, and
//! "Concurrency Oriented Programming in Termite Scheme", 2006), as far as they need one node. They follow a
//! transcription of the listings of 2005: where it has a slip, it is corrected and the comment says so.
//! `spawn` takes a procedure, as in 2006.

mod common;

use common::value;

#[test]
fn a_process_sends_to_the_one_that_made_it() {
    let text = r#"
        (let ((me (self)))
          (spawn
            (lambda () (! me "hello, world."))))
        (?)"#;
    assert_eq!(value(text), r#""hello, world.""#);
}

#[test]
fn a_server_answers_pings_and_drops_the_rest() {
    let text = "
        (define pong-server
          (spawn
            (lambda ()
              (let loop ()
                (let ((msg (?)))
                  (if (and (list? msg)
                           (= (length msg) 2)
                           (pid? (car msg))
                           (eq? (cadr msg) 'ping))
                      (let ((from (car msg)))
                        (! from 'pong)
                        (loop))
                      (loop)))))))
        (! pong-server 'no-list)
        (! pong-server (list (self) 'ping))
        (?)";
    assert_eq!(value(text), "pong");
}

#[test]
fn a_server_selects_messages_by_pattern() {
    let text = "
        (define better-pong-server
          (spawn
            (lambda ()
              (let loop ()
                (recv
                  ((from 'ping)        ; pattern to match
                   (where (pid? from)) ; constraint
                   (! from 'pong)))    ; action
                (loop)))))
        (! better-pong-server '(7 ping))
        (! better-pong-server (list (self) 'ping))
        (?)";
    assert_eq!(value(text), "pong");
}

#[test]
fn a_predicate_selects_messages() {
    let text = "
        (! (self) 1)
        (! (self) 2)
        (! (self) 3)
        (list (?? even?) (?) (?))";
    assert_eq!(value(text), "(2 1 3)");
}

#[test]
fn a_timeout_is_raised_or_has_a_default() {
    let text = "
        (list (guard (e (#t e)) (? 1))
              (? 1 'ok)
              (guard (e (#t e)) (recv ('never 'came) (after 1 (raise 'timeout)))))";
    assert_eq!(value(text), "(timeout ok timeout)");
}

/// The transcribed client matches `(tag result)`, which binds `tag` to anything: it must be `(,tag result)`.
#[test]
fn a_remote_procedure_is_called() {
    let text = "
        (define rpc-server
          (spawn
            (lambda ()
              (let loop ()
                (recv
                  ((from tag ('add a b))
                   (! from (list tag (+ a b)))))
                (loop)))))
        (define first
          (let ((tag (make-tag)))
            (! (self) (list (make-tag) 'wrong))
            (! rpc-server (list (self) tag (list 'add 21 21)))
            (recv
              ;; note the reference to the tag in the current lexical scope
              ((,tag reply) reply))))
        (list first (!? rpc-server (list 'add 21 21)))";
    assert_eq!(value(text), "(42 42)");
}

#[test]
fn a_process_keeps_what_would_be_mutable() {
    let text = "
        (define (make-cell content)
          (spawn
            (lambda ()
              (let loop ((content content))
                (recv
                  ((from tag 'ref)
                   (! from (list tag content))
                   (loop content))
                  (('set! content)
                   (loop content)))))))
        (define (cell-ref cell)
          (!? cell 'ref))
        (define (cell-set! cell value)
          (! cell (list 'set! value)))
        (define cell (make-cell 1))
        (define before (cell-ref cell))
        (cell-set! cell 2)
        (list before (cell-ref cell))";
    assert_eq!(value(text), "(1 2)");
}

/// `catch` and `handle` of the paper are forms of R7RS here: `guard`, and `with-exception-handler`.
#[test]
fn handlers_leave_or_go_on() {
    let text = "
        (define log '())
        (define (work what) (! (self) what))
        (define caught
          (guard (exception (#t exception))
            (work 'one)
            (raise 'err)
            (work 'never)
            'never))
        (define handled
          (with-exception-handler
            (lambda (exception) exception)
            (lambda ()
              (work 'two)
              (let ((value (raise 'err)))
                (work 'three)
                (list 'went-on value)))))
        (list caught handled (?) (?) (?) (? 0 'none))";
    assert_eq!(value(text), "(err (went-on err) one two three none)");
}

#[test]
fn an_error_reaches_linked_processes_only() {
    let text = "
        (define alone
          (guard (exception (#t (list 'caught exception)))
            (spawn (lambda () (raise 'error)))
            (? 1 'ok)
            'nothing-came))
        (define linked
          (guard (exception (#t (list 'caught exception)))
            (spawn-link (lambda () (raise 'error)))
            (? 1 'ok)
            'nothing-came))
        (list alone linked)";
    assert_eq!(value(text), "(nothing-came (caught error))");
}

#[test]
fn a_process_clones_itself() {
    let text = "
        (define original
          (spawn
            (lambda ()
              (let loop ((n 0))
                (recv
                  ((from tag 'clone)
                   (call/cc
                     (lambda (clone)
                       (! from (list tag (lambda () (clone #t)))))))
                  ((from tag 'count)
                   (! from (list tag n))))
                (loop (+ n 1))))))
        (!? original 'count)
        (!? original 'count)
        (define clone (spawn (!? original 'clone)))
        (list (!? clone 'count) (!? clone 'count) (!? original 'count) (eq? clone original))";
    assert_eq!(value(text), "(3 4 3 #f)");
}

/// Transcribed with `(lambda s (k) ...)` for what receives the continuation, and one answer without its `!`.
#[test]
fn a_server_is_replaced_while_it_runs() {
    let text = "
        (define server
          (spawn
            (lambda ()
              (let loop ()
                (recv
                  (('update k)
                   (k #t))
                  ((from tag 'ping)
                   (! from (list tag 'gnop)))) ; bug
                (loop)))))
        (define new-server
          (spawn
            (lambda ()
              (let loop ()
                (recv
                  (('update k)
                   (k #t))
                  ((from tag 'clone)
                   (call/cc
                     (lambda (k)
                       (! from (list tag k)))))
                  ((from tag 'ping)
                   (! from (list tag 'pong)))) ; fixed
                (loop)))))
        (define before (!? server 'ping))
        (let ((replacement (!? new-server 'clone)))
          (! server (list 'update replacement)))
        (list before (!? server 'ping))";
    assert_eq!(value(text), "(gnop pong)");
}

/// Section 5.2. The transcribed `cast` has its clause in one pair of parentheses too many.
#[test]
fn a_plugin_makes_a_generic_server_a_store() {
    let text = "
        (define key/value-generic-server-plugin
          (make-generic-server-plugin
            (lambda () ; INIT
              (make-dict))
            (lambda (term from state) ; CALL
              (match term
                (('store key val)
                 (dict-set! state key val)
                 (list 'reply 'ok state))
                (('lookup key)
                 (list 'reply (dict-ref state key) state))))
            (lambda (term state) ; CAST
              (match term
                ('stop (list 'stop 'normal state))))
            (lambda (reason state) ; TERMINATE
              (! main (list 'terminating reason)))))
        (define main (self))
        (define (kv:start) (generic-server-start-link key/value-generic-server-plugin))
        (define (kv:stop server) (generic-server-cast server 'stop))
        (define (kv:store server key val) (generic-server-call server (list 'store key val)))
        (define (kv:lookup server key) (generic-server-call server (list 'lookup key)))
        (define server (kv:start))
        (define answers
          (list (kv:store server 'auk 1) (kv:store server 'dunlin 2) (kv:lookup server 'auk) (kv:lookup server 'owl)))
        (kv:stop server)
        (list answers (?) (guard (e (#t e)) (generic-server-call server '(lookup auk) 1)))";
    assert_eq!(value(text), "((ok ok 1 #f) (terminating normal) timeout)");
}

/// Section 5.3.
#[test]
fn a_supervisor_restarts_a_worker_that_crashed() {
    let text = "
        (define (start-pong-server)
          (let loop ()
            (recv
              ((from tag 'crash)
               (! from (list tag (/ 1 0))))
              ((from tag 'ping)
               (! from (list tag 'pong))))
            (loop)))
        (define robust-pong-server
          (spawn-thunk-supervised start-pong-server))
        (list (!? robust-pong-server 'ping)
              (!? robust-pong-server 'crash 1 'no-answer)
              (!? robust-pong-server 'ping))";
    assert_eq!(value(text), "(pong no-answer pong)");
}

/// It takes no other exit for that of its worker: then there would be two workers.
#[test]
fn a_supervisor_ends_with_its_worker_when_another_process_that_is_linked_to_it_fails() {
    let text = "
        (define main (self))
        (define (work)
          (! main (list 'worker (self)))
          (guard (e (#t (! main (list 'heard e)) (raise e)))
            (let loop () (recv ((from tag 'ping) (! from (list tag 'pong)))) (loop))))
        (define supervisor (spawn-thunk-supervised work))
        (define first (car (?)))
        (define answer (!? supervisor 'ping))
        (spawn (lambda () (outbound-link supervisor) (raise 'died)))
        (let* ((heard (?)) (more (? 1 'no-other-worker)))
          (list first answer heard more (!? supervisor 'ping 1 'gone)))";
    assert_eq!(value(text), "(worker pong (heard died) no-other-worker gone)");
}

/// Section 5.1 without nodes: meters report, and their supervisor averages. It goes on with `meters`, where
/// the transcribed one goes on with `dict`.
#[test]
fn meters_report_to_a_supervisor() {
    let text = "
        (define (start-meter supervisor load)
          (let loop ()
            (! supervisor (list 'load-report (self) load))
            (recv (after 1 'ok)) ; pause for a second
            (loop)))
        (define (average loads) (/ (apply + loads) (length loads)))
        (define (meter-supervisor)
          (let loop ((meters (make-map)))
            (recv
              (('load-report from load)
               (loop (map-set meters from load)))
              ((from tag 'average-load)
               (! from (list tag (average (map-values meters))))
               (loop meters)))))
        (define supervisor (spawn meter-supervisor))
        (for-each (lambda (load) (spawn (lambda () (start-meter supervisor load)))) '(1 2 6))
        (sleep 3)
        (!? supervisor 'average-load)";
    assert_eq!(value(text), "3");
}
