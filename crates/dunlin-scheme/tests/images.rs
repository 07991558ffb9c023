//! Values as bytes: what comes back, and what hostile bytes do.

mod common;

use common::damaged;
use dunlin_scheme::{ReadError, Scheme};

fn image(text: &str) -> Vec<u8> {
    let mut scheme = Scheme::new();
    scheme.eval("test", text).unwrap();
    scheme.write_global("value").unwrap()
}

fn written(text: &str) -> String {
    let mut scheme = Scheme::new();
    scheme.read_global("value", &image(text)).unwrap();
    scheme.set_collect_always(true);
    scheme.eval("test", "(define copy (list value)) (car copy)").unwrap()
}

#[test]
fn every_kind_of_datum_comes_back() {
    for text in [
        "(1 -1 0 1152921504606846975 -1152921504606846976)",
        "(1/3 -7/2 123456789012345678901234567890 -123456789012345678901234567890)",
        "(1.5 -0.0 +inf.0 1e-300)",
        "(#\\a #\\x3bb #t #f () \"text \\\\ λ\" symbol |odd symbol|)",
        "(#(1 #(2)) #u8(0 255) (a . b))",
    ] {
        let mut scheme = Scheme::new();
        let shown = scheme.eval("test", &format!("'{text}")).unwrap();
        assert_eq!(written(&format!("(define value '{text})")), shown);
    }
}

#[test]
fn sharing_and_cycles_are_kept() {
    let text = "(define value (let ((shared (list 1))) (vector shared shared)))";
    let mut scheme = Scheme::new();
    scheme.read_global("value", &image(text)).unwrap();
    assert_eq!(scheme.eval("test", "(eq? (vector-ref value 0) (vector-ref value 1))").unwrap(), "#t");
    assert_eq!(written("(define value '#0=(a b . #0#))"), "#0=(a b . #0#)");
    for made in ["(string #\\a)", "(vector 1)", "(lambda () made)", "(delay 1)", "(bytevector 1)"] {
        let text = format!("(define made #f) (define value (let ((shared {made})) (list shared shared)))");
        let mut scheme = Scheme::new();
        scheme.eval("test", &text).unwrap();
        let bytes = scheme.write_global("value").unwrap();
        scheme.read_global("copy", &bytes).unwrap();
        assert_eq!(scheme.eval("test", "(eq? (car copy) (cadr copy))").unwrap(), "#t", "{made}");
    }
}

#[test]
fn a_list_of_a_million_and_one_nested_as_deep_are_written_and_read() {
    let text = "(define value (let loop ((i 0) (l '())) (if (= i 1000000) l (loop (+ i 1) (cons i l)))))";
    let bytes = image(text);
    let mut scheme = Scheme::new();
    scheme.read_global("value", &bytes).unwrap();
    assert_eq!(scheme.eval("test", "(length value)").unwrap(), "1000000");
    let text = "(define value (let loop ((i 0) (l '())) (if (= i 1000000) l (loop (+ i 1) (list l)))))";
    scheme.read_global("deep", &image(text)).unwrap();
    assert_eq!(scheme.eval("test", "(equal? deep (list (car deep)))").unwrap(), "#t");
    assert_eq!(
        scheme.eval("test", "(string-length (call-with-output-string (lambda (p) (write deep p))))").unwrap(),
        "2000002"
    );
}

#[test]
fn a_shared_graph_of_many_paths_costs_its_objects() {
    let text = "(define value (let loop ((i 0) (l '())) (if (= i 31) l (loop (+ i 1) (cons l l)))))";
    let bytes = image(text);
    assert!(bytes.len() < 1024);
    let mut scheme = Scheme::new();
    scheme.read_global("value", &bytes).unwrap();
    scheme.read_global("other", &bytes).unwrap();
    assert_eq!(scheme.eval("test", "(equal? value other)").unwrap(), "#t");
}

const HEADER: &[u8] = b"DSI\x04\x04";

fn read(bytes: &[u8]) -> Result<(), ReadError> {
    Scheme::new().read_global("value", bytes)
}

#[test]
fn claims_of_sizes_take_no_memory() {
    let huge = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01];
    for prefix in [&[][..], &[0], &[0, 0], &[0, 0, 0], &[0, 0, 0, 1, 6], &[0, 0, 0, 1, 3], &[0, 0, 0, 1, 2]] {
        let bytes = [HEADER, prefix, &huge].concat();
        assert!(matches!(read(&bytes), Err(ReadError::Truncated(_))), "{prefix:?}: {:?}", read(&bytes));
    }
}

#[test]
fn objects_that_no_machine_makes_are_refused() {
    assert_eq!(read(b""), Err(ReadError::Version));
    assert_eq!(read(b"DSI\x03\x03"), Err(ReadError::Version));
    assert_eq!(read(b"DSI\x04\x63"), Err(ReadError::Version));
    let object = |bytes: &[u8]| [HEADER, &[0, 0, 0, 1], bytes, &[4, 0]].concat();
    // A ratio with the denominator zero, then one; a bignum of no words; a pair with an unset field.
    for bytes in [&[7, 2, 0, 2, 0, 0][..], &[7, 2, 0, 2, 0, 2], &[2, 1, 0, 0, 0, 0, 0, 0, 0, 0], &[0, 3, 5, 0, 0]] {
        assert_eq!(read(&object(bytes)), Err(ReadError::Unsound), "{bytes:?}");
    }
    // A record without a type, marks of two fields, a continuation whose frame is none.
    for bytes in [&[12, 1, 0, 0][..], &[17, 2, 3, 2, 3, 2], &[11, 2, 0, 0, 3, 2]] {
        assert_eq!(read(&object(bytes)), Err(ReadError::Unsound), "{bytes:?}");
    }
    // A closure whose code is a number, a pair with a place in code.
    assert!(matches!(read(&object(&[5, 1, 0, 0])), Err(ReadError::Malformed(_))));
    assert!(matches!(read(&object(&[0, 0, 0, 5, 0])), Err(ReadError::Malformed(_))));
    assert!(matches!(read(&object(&[99, 0])), Err(ReadError::Malformed(_))));
    assert!(matches!(read(&object(&[0, 4, 7, 0, 0])), Err(ReadError::Malformed(_))));
    assert!(matches!(read(&[&object(&[0, 0, 0, 0, 0])[..], &[0]].concat()), Err(ReadError::Malformed(_))));
}

#[test]
fn objects_of_wrong_shape_are_refused() {
    let object = |bytes: &[u8]| [HEADER, &[0, 0, 0, 1], bytes, &[4, 0]].concat();
    let leading_zero = [&[2, 3][..], &[0; 8], &[1], &[0; 15]].concat();
    // A bignum with a leading zero; several values that are one; a port of no machine; a number as marks.
    for bytes in [&leading_zero[..], &[8, 1, 0, 2], &[16, 1, 0, 10], &[11, 2, 3, 2, 0, 0]] {
        assert_eq!(read(&object(bytes)), Err(ReadError::Unsound), "{bytes:?}");
    }
    // A record of a type without fields: the type, its name, and the vector of no names follow.
    let record =
        |bytes: &[u8]| [HEADER, &[0, 1, 1, b'a', 0, 3], bytes, &[13, 3, 2, 0, 4, 2, 0, 0], &[6, 0], &[4, 0]].concat();
    assert_eq!(read(&record(&[12, 1, 4, 1])), Ok(()));
    assert_eq!(read(&record(&[12, 2, 4, 1, 0, 2])), Err(ReadError::Unsound));
}

#[test]
fn numbers_beyond_their_range_are_refused() {
    let pair = |varint: &[u8]| [HEADER, &[0, 0, 0, 1, 0, 0], varint, &[0, 0, 4, 0]].concat();
    // The largest fixnum, and one more: a fixnum has 61 bits.
    assert_eq!(read(&pair(&[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x1f])), Ok(()));
    assert!(matches!(
        read(&pair(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x20])),
        Err(ReadError::Malformed(_))
    ));
    // A number of 65 bits.
    let long = [&[0x80; 9][..], &[2]].concat();
    assert!(matches!(read(&pair(&long)), Err(ReadError::Malformed(_))));
}

#[test]
fn image_beyond_the_heap_limit_is_refused() {
    let bytes = image("(define value (iota 500000))");
    let mut scheme = Scheme::new();
    scheme.set_heap_limit(2 << 20);
    assert_eq!(scheme.read_global("value", &bytes), Err(ReadError::TooLarge));
}

#[test]
fn closure_with_other_variables_or_code_is_refused() {
    let mut scheme = Scheme::new();
    scheme.eval("test", "(define (f x y) (lambda (z) (list x y z))) (define value (f 1 2))").unwrap();
    let bytes = scheme.write_global("value").unwrap();
    // A closure (kind 5) of three fields: a place in code, 1 and 2.
    let is_closure = |part: &[u8]| part[..4] == [5, 3, 5, 0] && part[5..] == [0, 2, 0, 4];
    let at = bytes.windows(9).position(is_closure).expect("a closure");
    let mut shorter = bytes.clone();
    shorter[at + 1] = 2;
    shorter.drain(at + 7..at + 9);
    assert_eq!(scheme.read_global("copy", &shorter), Err(ReadError::Unsound));
    // Nor does a closure begin anywhere else, within its unit or past its end.
    scheme.eval("test", "(define value (lambda () 1)) (define other (lambda () 2))").unwrap();
    let bytes = scheme.write_global("value").unwrap();
    let at = bytes.windows(4).rposition(|part| part[..4] == [5, 1, 5, 0]).expect("a closure");
    for place in bytes[at + 4] + 1..0x80 {
        let mut damaged = bytes.clone();
        damaged[at + 4] = place;
        assert!(scheme.read_global("copy", &damaged).is_err(), "place {place}");
    }
}

#[test]
fn frame_of_another_procedure_or_with_other_registers_is_refused() {
    let mut scheme = Scheme::new();
    let program = "(define (h a b) (list a b)) (define (g a b) (list a (call/cc (lambda (k) k)) b))
        (define value (list h (cadr (g 1 2))))";
    scheme.eval("test", program).unwrap();
    let bytes = scheme.write_global("value").unwrap();
    // A frame whose parent is an object; a place in code; the closure that runs, and its first argument.
    let is_frame = |part: &[u8]| part[0] == 10 && part[2] == 4 && part[4] == 5 && part[7] == 4 && part[9..] == [0, 2];
    let at = bytes.windows(11).position(is_frame).expect("the frame of g");
    assert_eq!(scheme.read_global("copy", &bytes), Ok(()));
    // The second object is `h`: it has the same registers.
    let mut other = bytes.clone();
    other[at + 8] = 1;
    assert_eq!(scheme.read_global("copy", &other), Err(ReadError::Unsound));
    let mut unset = bytes.clone();
    unset[at + 9..at + 11].copy_from_slice(&[3, 5]);
    assert_eq!(scheme.read_global("copy", &unset), Err(ReadError::Unsound));
    let mut shorter = bytes.clone();
    shorter[at + 1] -= 1;
    shorter.drain(at + 9..at + 11);
    assert_eq!(scheme.read_global("copy", &shorter), Err(ReadError::Unsound));
}

#[test]
fn frames_that_return_to_themselves_are_refused() {
    let program = "(define value (car (list (call/cc (lambda (k) k)))))";
    let mut scheme = Scheme::new();
    scheme.eval("test", program).unwrap();
    let mut bytes = scheme.write_global("value").unwrap();
    scheme.read_global("copy", &bytes).unwrap();
    // A frame (kind 10) whose parent is the constant `()` and whose code follows: its parent becomes itself.
    let at = bytes.windows(5).position(|part| part[0] == 10 && part[2..] == [3, 2, 5]).expect("there is one frame");
    bytes[at + 2..at + 4].copy_from_slice(&[4, 1]);
    assert_eq!(scheme.read_global("copy", &bytes), Err(ReadError::Unsound));
}

#[test]
fn frame_that_resumes_at_an_unsound_instruction_is_refused() {
    let mut scheme = Scheme::new();
    scheme.eval("test", "(define (g a b) (list a (call/cc (lambda (k) k)) b)) (define value (cadr (g 1 2)))").unwrap();
    let bytes = scheme.write_global("value").unwrap();
    // A frame whose parent is an object; then a place in code: its unit, and the instruction.
    let at = bytes.windows(5).position(|part| part[0] == 10 && part[2] == 4 && part[4] == 5).expect("a frame of g");
    // Three are sound: after the entry, and where the operator and `call/cc` leave their values.
    let mut sound = Vec::new();
    for instruction in 0..bytes[at + 6] + 8 {
        let mut damaged = bytes.clone();
        damaged[at + 6] = instruction;
        if scheme.read_global("copy", &damaged).is_ok() {
            sound.push(instruction);
            scheme.set_fuel(1_000);
            let _ = scheme.eval("test", "(copy 5)");
        }
    }
    assert!(sound.contains(&bytes[at + 6]) && sound.len() <= 3, "{sound:?} of {}", bytes[at + 6]);
    assert_eq!(scheme.read_global("copy", &bytes), Ok(()));
}

/// Damaged images of closures and frames are refused, or give a value that runs and ends: the program may
/// fail, the machine does not.
#[test]
fn damaged_images_are_refused_or_run_to_an_end() {
    let program = "(define (f x) (let loop ((i x) (s 0.5)) (if (> i 0) (loop (- i 1) (+ s i))
          (letrec ((a (lambda () (b))) (c (call/cc (lambda (k) k))) (b (lambda () c))) (list (a) s \"text\" 'name #(1 2))))))
        (define value (list (f 3) car (delay 1) (make-parameter 5) (expt 3 99) 1/3))";
    let mut first = Scheme::new();
    first.eval("test", program).unwrap();
    let good = first.write_global("value").unwrap();
    // The continuation last: to enter it ends the rest.
    let probe = "(define (try thunk) (guard (e (#t 'failed)) (thunk)))
        (define (probe damaged)
          (try (lambda () (write damaged)))
          (try (lambda () (for-each (lambda (x)
            (try (lambda () (cond ((procedure? x) (x '(1))) ((promise? x) (force x)) (else (+ x 1)))))) (cdr damaged))))
          (try (lambda () (let ((k (car (car damaged)))) (if (procedure? k) (k 7))))))";
    let fresh = || {
        let mut machine = Scheme::new();
        machine.eval("test", program).unwrap();
        machine.eval("probe", probe).unwrap();
        machine.set_heap_limit(32 << 20);
        machine
    };
    let mut machine = fresh();
    let damaged = damaged(&good, 0x9e37_79b9_7f4a_7c15);
    let rounds = damaged.len();
    let (mut refused, mut ran) = (0, 0);
    for (round, bytes) in damaged.enumerate() {
        // Values of globals stay: after many of them a machine refuses all images.
        if round % 10_000 == 0 {
            machine = fresh();
        }
        match machine.read_global("damaged", &bytes) {
            Err(_) => refused += 1,
            Ok(()) => {
                ran += 1;
                machine.set_fuel(20_000);
                let _ = machine.eval("damaged", "(probe damaged)");
                machine.take_output();
            }
        }
    }
    assert!(refused > rounds / 4 && ran > rounds / 20, "{refused} refused, {ran} ran");
}
