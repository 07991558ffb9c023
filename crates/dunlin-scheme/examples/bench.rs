//! Sequential programs, timed: `cargo run --profile measured -p dunlin-scheme --example bench`
//!
//! fib, tak, nrev, qsort, smith, captures at depth, and sizes of images. A time is the best of five rounds.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use dunlin_scheme::Scheme;

const PROGRAMS: [(&str, &str, &str); 6] = [
    ("fib 30", "(define (fib n) (if (< n 2) n (+ (fib (- n 1)) (fib (- n 2)))))", "(fib 30)"),
    (
        "tak 18 12 6 x 20",
        "(define (tak x y z) (if (< y x) (tak (tak (- x 1) y z) (tak (- y 1) z x) (tak (- z 1) x y)) z))",
        "(do ((i 0 (+ i 1)) (r 0 (tak 18 12 6))) ((= i 20) r))",
    ),
    (
        "nrev 1500 x 5",
        "(define (app x y) (if (null? x) y (cons (car x) (app (cdr x) y))))
         (define (nrev l) (if (null? l) '() (app (nrev (cdr l)) (list (car l)))))
         (define numbers (iota 1500))",
        "(do ((i 0 (+ i 1)) (r 0 (nrev numbers))) ((= i 5) (length r)))",
    ),
    (
        "qsort 10000",
        "(define (next s) (modulo (+ (* s 16807) 1) 2147483647))
         (define numbers (let loop ((i 0) (s 1) (l '())) (if (= i 10000) l (loop (+ i 1) (next s) (cons s l)))))
         (define (part p l less more k)
           (cond ((null? l) (k less more))
                 ((< (car l) p) (part p (cdr l) (cons (car l) less) more k))
                 (else (part p (cdr l) less (cons (car l) more) k))))
         (define (qsort l rest)
           (if (null? l) rest
               (part (car l) (cdr l) '() '() (lambda (less more) (qsort less (cons (car l) (qsort more rest)))))))",
        "(length (qsort numbers '()))",
    ),
    (
        "smith 20000",
        "(define (digits n) (let loop ((n n) (s 0)) (if (= n 0) s (loop (quotient n 10) (+ s (remainder n 10))))))
         (define (factors n) (let loop ((n n) (d 2) (s 0) (k 0))
           (cond ((> (* d d) n) (if (= k 0) -1 (+ s (if (> n 1) (digits n) 0))))
                 ((= (remainder n d) 0) (loop (quotient n d) d (+ s (digits d)) (+ k 1)))
                 (else (loop n (+ d 1) s k)))))",
        "(let loop ((n 2) (c 0)) (if (= n 20000) c (loop (+ n 1) (if (= (digits n) (factors n)) (+ c 1) c))))",
    ),
    (
        "1000 captures at depth 20,000",
        "(define (deep n) (if (= n 0) (many 1000) (+ 1 (deep (- n 1)))))
         (define (many n) (if (= n 0) 0 (begin (call/cc (lambda (k) k)) (many (- n 1)))))",
        "(deep 20000)",
    ),
];

fn main() {
    let started = Instant::now();
    drop(Scheme::new());
    println!("{:32} {:10.3} ms", "a machine", started.elapsed().as_secs_f64() * 1e3);
    for (name, setup, run) in PROGRAMS {
        let mut scheme = Scheme::new();
        scheme.eval(name, setup).expect("the definitions run");
        let mut best = Duration::MAX;
        let mut value = String::new();
        for _ in 0..5 {
            let started = time();
            value = scheme.eval(name, run).expect("the program runs");
            best = best.min(time() - started);
        }
        println!("{name:32} {:10.3} ms   {value}", best.as_secs_f64() * 1e3);
    }
    sizes();
}

/// Time that this thread had a processor: other programs on the machine do not count. Elsewhere than on Linux
/// it is the time of the wall.
fn time() -> Duration {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let statistics = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    match statistics.split(' ').next().and_then(|text| text.parse().ok()) {
        Some(nanoseconds) => Duration::from_nanos(nanoseconds),
        None => START.elapsed(),
    }
}

fn sizes() {
    let mut scheme = Scheme::new();
    let setup = "(define (adder n) (lambda (m) (+ n m))) (define closure (adder 3))
        (define (deep a n) (if (= n 0) (call/cc (lambda (k) k)) (let ((v (deep a (- n 1)))) (if (pair? v) (cons a v) v))))
        (define one (deep 1 1)) (define many (deep 1 10001))";
    scheme.eval("sizes", setup).expect("the definitions run");
    let mut size = |name| scheme.write_global(name).expect("it can be written").len();
    println!("{:32} {:6} bytes", "a closure", size("closure"));
    let (one, many) = (size("one"), size("many"));
    println!("{:32} {:8.1} bytes", "a frame", (many - one) as f64 / 10_000.0);
}
