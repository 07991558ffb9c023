(define (app x y) (if (null? x) y (cons (car x) (app (cdr x) y))))
(define (nrev l) (if (null? l) '() (app (nrev (cdr l)) (list (car l)))))
(define numbers (let loop ((i 1500) (l '())) (if (= i 0) l (loop (- i 1) (cons i l)))))
(define (run) (do ((i 0 (+ i 1)) (r '() (nrev numbers))) ((= i 5) (length r))))
