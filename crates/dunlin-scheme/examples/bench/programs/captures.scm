(define (many n)
  (if (= n 0) 0 (begin (call-with-current-continuation (lambda (k) k)) (many (- n 1)))))
(define (deep n) (if (= n 0) (many 1000) (+ 1 (deep (- n 1)))))
(define (run) (do ((i 0 (+ i 1)) (r 0 (deep 20000))) ((= i 10) r)))
