;; Channels. An operation is a vector; `%operate` has a pair of the number of the branch that was chosen and its
;; value, #t if an exit comes first, or #f if the time is over.

(define (%operation request deadline otherwise)
  (let ((step (%operate request deadline)))
    (cond ((eq? step #t) (%raise-exit))
          (step (cdr step))
          (else (otherwise)))))
(define (%alone branch deadline otherwise) (%operation (vector 1 #f (list branch)) deadline otherwise))

(define make-channel
  (case-lambda
    (() (%make-channel #f))
    ((capacity) (%make-channel capacity))))
(define (%make-channel capacity)
  (apply values (%operation (vector 0 capacity) #f (lambda () #f))))

(define channel-send
  (case-lambda
    ((end value) (%alone (vector 1 end value) #f (lambda () (%raise 'timeout))))
    ((end value seconds) (%alone (vector 1 end value) (%deadline seconds) (lambda () (%raise 'timeout))))
    ((end value seconds default) (%alone (vector 1 end value) (%deadline seconds) (lambda () default)))))
(define channel-receive
  (case-lambda
    ((end) (%alone (vector 0 end #f) #f (lambda () (%raise 'timeout))))
    ((end seconds) (%alone (vector 0 end #f) (%deadline seconds) (lambda () (%raise 'timeout))))
    ((end seconds default) (%alone (vector 0 end #f) (%deadline seconds) (lambda () default)))))
(define channel-claim
  (case-lambda
    ((end) (%alone (vector 2 end #f) #f (lambda () (%raise 'timeout))))
    ((end seconds) (%alone (vector 2 end #f) (%deadline seconds) (lambda () (%raise 'timeout))))
    ((end seconds default) (%alone (vector 2 end #f) (%deadline seconds) (lambda () default)))))
(define (call-with-claim end procedure)
  (let ((claimed (channel-claim end)))
    (dynamic-wind
     (lambda () #f)
     (lambda () (procedure claimed))
     (lambda () (channel-leave claimed)))))

(define (channel-share end) (%operation (vector 2 end) #f (lambda () #f)))
(define (channel-retire end) (%operation (vector 3 end) #f (lambda () #f)))
(define (channel-poison end reason) (%operation (vector 4 end reason) #f (lambda () #f)))

(define-syntax alt
  (syntax-rules (biased)
    ((_ biased clause ...) (%alt #f () clause ...))
    ((_ clause ...) (%alt #t () clause ...))))
(define-syntax %alt
  (syntax-rules (channel-receive channel-send channel-claim where after else)
    ((_ fair branches) (%choose fair (list . branches) #f #f))
    ((_ fair branches (after seconds body ...))
     (%choose fair (list . branches) (%deadline seconds) (lambda () body ...)))
    ((_ fair branches (else body ...)) (%choose fair (list . branches) 0 (lambda () body ...)))
    ((_ fair branches ((channel-receive end variable) . body) clause ...)
     (%guarded fair branches (0 end #f) (variable) body clause ...))
    ((_ fair branches ((channel-claim end variable) . body) clause ...)
     (%guarded fair branches (2 end #f) (variable) body clause ...))
    ((_ fair branches ((channel-send end value) . body) clause ...)
     (%guarded fair branches (1 end value) (ignored) body clause ...))))
(define-syntax %guarded
  (syntax-rules (where)
    ((_ fair (branch ...) operation variables ((where test) body ...) clause ...)
     (%alt fair (branch ... (if test (cons (vector . operation) (lambda variables (%body body ...))) #f)) clause ...))
    ((_ fair (branch ...) operation variables (body ...) clause ...)
     (%alt fair (branch ... (cons (vector . operation) (lambda variables (%body body ...)))) clause ...))))
(define-syntax %body
  (syntax-rules ()
    ((_) (if #f #f))
    ((_ body ...) (let () body ...))))
(define (%choose fair branches deadline otherwise)
  (let* ((branches (filter (lambda (branch) branch) branches))
         (step (%operate (vector 1 fair (map car branches)) deadline)))
    (cond ((eq? step #t) (%raise-exit))
          (step ((cdr (list-ref branches (car step))) (cdr step)))
          (else (otherwise)))))
