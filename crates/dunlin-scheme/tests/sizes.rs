//! The sizes of what is written to bytes, and of what waits.

use dunlin_scheme::Scheme;

const DEEP: &str = "(define (deep a n)
    (if (= n 0) (call/cc (lambda (k) k)) (let ((v (deep a (- n 1)))) (if (pair? v) (cons a v) v))))";

fn written(scheme: &mut Scheme, name: &str) -> usize {
    scheme.write_global(name).expect("it can be written").len()
}

#[test]
fn closure_takes_at_most_200_bytes() {
    let mut scheme = Scheme::new();
    scheme.eval("sizes", "(define (adder n) (lambda (m) (+ n m))) (define closure (adder 3))").unwrap();
    let bytes = written(&mut scheme, "closure");
    assert!(bytes <= 200, "{bytes} bytes");
}

#[test]
fn each_frame_of_a_continuation_takes_at_most_24_bytes() {
    let mut scheme = Scheme::new();
    scheme.eval("sizes", DEEP).unwrap();
    scheme.eval("sizes", "(define one (deep 1 1)) (define many (deep 1 10001))").unwrap();
    let bytes = written(&mut scheme, "many") - written(&mut scheme, "one");
    assert!(bytes <= 24 * 10_000, "{bytes} bytes for 10,000 frames");
}

/// The bytes of a process that waits for a message, once it has received one.
fn parked(serve: &str) -> usize {
    let mut scheme = Scheme::new();
    scheme.eval("sizes", serve).unwrap();
    scheme.eval("sizes", "(define server (spawn serve)) (!? server 'ping)").unwrap();
    let process = *scheme.processes().last().unwrap();
    scheme.process_bytes(process).expect("it waits")
}

/// The bytes that count against limits. The example `bench` shows the resident ones of 1,000,000 processes.
#[test]
fn parked_process_takes_at_most_700_bytes_and_with_a_timeout_900() {
    let bytes = parked("(define (serve) (recv ((from tag 'ping) (! from (list tag 'pong)) (serve))))");
    assert!((1..=700).contains(&bytes), "{bytes} bytes");
    let late = "(define (serve) (recv ((from tag 'ping) (! from (list tag 'pong)) (serve)) (after 1000 'late)))";
    let bytes = parked(late);
    assert!((1..=900).contains(&bytes), "{bytes} bytes with a timeout");
}
