;; What the paper builds on processes: dictionaries, generic servers (5.2), supervisors (5.3).

;; A dictionary is a process that keeps a persistent map.
(define (make-dict)
  (spawn
   (lambda ()
     (let loop ((entries (make-map)))
       (recv
        ((from tag ('ref key default)) (! from (list tag (map-ref entries key default))) (loop entries))
        (('set! key value) (loop (map-set entries key value)))
        ((from tag 'list) (! from (list tag (map->alist entries))) (loop entries))
        (other (loop entries)))))))
(define (dict-ref dict key . default) (!? dict (list 'ref key (if (pair? default) (car default) #f))))
(define (dict-set! dict key value) (! dict (list 'set! key value)))
(define (dict->list dict) (!? dict 'list))

;; A generic server keeps a state, and gets what makes it a special one from a plugin.
(define-record-type generic-server-plugin
  (make-generic-server-plugin init call cast terminate) generic-server-plugin?
  (init %plugin-init) (call %plugin-call) (cast %plugin-cast) (terminate %plugin-terminate))
(define (%serve plugin)
  (lambda ()
    (let loop ((state ((%plugin-init plugin))))
      (recv
       ((from tag ('call term))
        (match ((%plugin-call plugin) term from state)
          (('reply value state) (! from (list tag value)) (loop state))
          (('no-reply state) (loop state))
          (('stop reason state) (%stop plugin reason state))))
       (('cast term)
        (match ((%plugin-cast plugin) term state)
          (('no-reply state) (loop state))
          (('stop reason state) (%stop plugin reason state))))
       (other (loop state))))))
(define (%stop plugin reason state)
  ((%plugin-terminate plugin) reason state)
  (if (not (eq? reason 'normal)) (raise reason)))
(define (generic-server-start plugin) (spawn (%serve plugin)))
(define (generic-server-start-link plugin) (spawn-link (%serve plugin)))
(define (generic-server-call server term . timeout) (apply !? server (list 'call term) timeout))
(define (generic-server-cast server term) (! server (list 'cast term)))

;; The supervisor has the number that clients know. It hands messages on to a worker, and starts another one
;; when that fails; the worker does not outlive it. A message that a worker fails on is lost. An exit of any
;; other process that is linked to it ends the supervisor, as it would end any process.
(define (spawn-thunk-supervised thunk) (spawn (lambda () (%supervise thunk))))
(define (%supervise thunk)
  (let ((worker (spawn-link thunk)))
    (outbound-link worker)
    (let loop ()
      (let ((step (%wait #f 0 #f)))
        (cond ((not (eq? step #t))
               (let ((message (%message step))) (%accept (%self) step) (! worker message) (loop)))
              ((eq? (%exit-process) worker) (%take-exit) (%supervise thunk))
              (else (%raise-exit)))))))
