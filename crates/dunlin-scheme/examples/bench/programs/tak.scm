(define (tak x y z) (if (< y x) (tak (tak (- x 1) y z) (tak (- y 1) z x) (tak (- z 1) x y)) z))
(define (run) (do ((i 0 (+ i 1)) (r 0 (tak 18 12 6))) ((= i 20) r)))
