;; Processes. A wait for a message takes steps: `%wait` tells the number of the next message after one that
;; its owner has looked at. In another process, where a continuation went on, it begins with the first.

(define (%process thunk) (thunk))

;; The body of a library runs once: a process that needs it while another one runs it waits.
(define (%run-body body)
  (if (%claim-body body)
      (dynamic-wind
       (lambda () #f)
       (lambda () (body) (%finish-body body))
       (lambda () (%leave-body body)))))

(define (%raise-exit) (%raise (%take-exit)))

(define ?
  (case-lambda
    (() (%first #f (lambda () (%raise 'timeout))))
    ((seconds) (%first (%deadline seconds) (lambda () (%raise 'timeout))))
    ((seconds default) (%first (%deadline seconds) (lambda () default)))))
(define (%first deadline otherwise)
  (let ((step (%wait #f 0 deadline)))
    (cond ((eq? step #t) (%raise-exit))
          (step (let ((message (%message step))) (%accept (%self) step) message))
          (else (otherwise)))))

(define ??
  (case-lambda
    ((accepts?) (%first-that accepts? #f (lambda () (%raise 'timeout))))
    ((accepts? seconds) (%first-that accepts? (%deadline seconds) (lambda () (%raise 'timeout))))
    ((accepts? seconds default) (%first-that accepts? (%deadline seconds) (lambda () default)))))
(define (%first-that accepts? deadline otherwise)
  (let loop ((owner #f) (seen 0))
    (let ((step (%wait owner seen deadline)) (me (%self)))
      (cond ((eq? step #t) (%raise-exit))
            (step
             (let ((message (%message step)))
               (if (accepts? message) (begin (%accept me step) message) (loop me step))))
            (else (otherwise))))))

(define !?
  (case-lambda
    ((to message) (%ask to message #f (lambda () (%raise 'timeout))))
    ((to message seconds) (%ask to message (%deadline seconds) (lambda () (%raise 'timeout))))
    ((to message seconds default) (%ask to message (%deadline seconds) (lambda () default)))))
(define (%ask to message deadline otherwise)
  (let ((tag (make-tag)))
    (! to (list (%self) tag message))
    (let ((reply
           (%first-that
            (lambda (reply)
              (and (pair? reply) (eq? (car reply) tag) (pair? (cdr reply)) (null? (cddr reply))))
            deadline
            (lambda () #f))))
      (if reply (cadr reply) (otherwise)))))

(define (sleep seconds)
  (let ((deadline (%deadline seconds)))
    (let loop ((owner #f) (seen 0))
      (let ((step (%wait owner seen deadline)))
        (cond ((eq? step #t) (%raise-exit))
              (step (loop (%self) step)))))))

(define (full-link pid) (inbound-link pid) (outbound-link pid))
