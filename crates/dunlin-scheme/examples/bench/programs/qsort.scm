(define (next s) (modulo (+ (* s 16807) 1) 2147483647))
(define numbers
  (let loop ((i 0) (s 1) (l '())) (if (= i 10000) l (loop (+ i 1) (next s) (cons s l)))))
(define (part p l less more k)
  (cond ((null? l) (k less more))
        ((< (car l) p) (part p (cdr l) (cons (car l) less) more k))
        (else (part p (cdr l) less (cons (car l) more) k))))
(define (qsort l rest)
  (if (null? l)
      rest
      (part (car l) (cdr l) '() '()
            (lambda (less more) (qsort less (cons (car l) (qsort more rest)))))))
(define (run) (do ((i 0 (+ i 1)) (r '() (qsort numbers '()))) ((= i 5) (length r))))
