//! Lists, sorting and persistent maps of the prelude.

use dunlin_scheme::Scheme;

#[test]
fn lists_sort_and_maps() {
    let mut scheme = Scheme::new();
    for (text, expected) in [
        ("(iota 5 1)", "(1 2 3 4 5)"),
        ("(fold cons* '() '(a b c) '(1 2 3))", "(c 3 b 2 a 1)"),
        ("(fold-right cons '(0) '(1 2))", "(1 2 0)"),
        ("(reduce + 0 '(1 2 3))", "6"),
        ("(filter odd? '(1 2 3 4 5))", "(1 3 5)"),
        ("(call-with-values (lambda () (partition symbol? '(a 1 b 2))) list)", "((a b) (1 2))"),
        (
            "(list (find even? '(1 2 3)) (any even? '(1 3)) (every odd? '(1 3)) (list-index even? '(1 2)))",
            "(2 #f #t 1)",
        ),
        ("(delete-duplicates '(a b a c b))", "(a b c)"),
        ("(append-map (lambda (x) (list x x)) '(1 2))", "(1 1 2 2)"),
        ("(call-with-values (lambda () (span even? '(2 4 5 6))) list)", "((2 4) (5 6))"),
        ("(lset-union eq? '(a b) '(b c))", "(c a b)"),
        ("(sort '(3 1 2) <)", "(1 2 3)"),
        ("(sort < '#(3 1 2))", "#(1 2 3)"),
        ("(sort '() <)", "()"),
        ("(map cdr (sort '((1 . a) (0 . b) (1 . c) (0 . d)) (lambda (x y) (< (car x) (car y)))))", "(b d a c)"),
        ("(map->alist (map-delete (map-set (map-set (map-set (make-map) 'b 2) 'a 1) 'c 3) 'b))", "((a . 1) (c . 3))"),
        (
            "(let* ((m (map-set (make-map) 1 'one)) (n (map-set m 1 'uno))) (list (map-ref m 1) (map-ref n 1)))",
            "(one uno)",
        ),
        ("(map-ref (make-map) \"none\" 'default)", "default"),
        ("(guard (e (#t (error-object-irritants e))) (map-ref (make-map) 5))", "(5)"),
    ] {
        assert_eq!(scheme.eval("test", text).unwrap(), expected, "{text}");
    }
}

#[test]
fn a_map_agrees_with_a_list_after_many_changes_and_stays_balanced() {
    let text = "
        (define (next seed) (modulo (+ (* seed 1103515245) 12345) 2147483648))
        (define (depth tree) (if tree (+ 1 (max (depth (%left tree)) (depth (%right tree)))) 0))
        (let loop ((i 0) (seed 7) (map (make-map)) (alist '()))
          (if (= i 600)
              (list (equal? (map->alist map) (sort alist (lambda (a b) (< (car a) (car b)))))
                    (= (map-size map) (length alist))
                    (< (depth (%map-root map)) 14))
              (let ((key (modulo (quotient seed 65536) 200)))
                (if (= (modulo seed 3) 0)
                    (loop (+ i 1) (next seed) (map-delete map key) (alist-delete key alist =))
                    (loop (+ i 1) (next seed) (map-set map key i) (alist-cons key i (alist-delete key alist =)))))))";
    assert_eq!(Scheme::new().eval("test", text).unwrap(), "(#t #t #t)");
}

#[test]
fn long_lists_go_through_sort_equal_and_write() {
    let mut scheme = Scheme::new();
    let text = "(define (numbers n) (let loop ((i 0) (seed 1) (l '()))
            (if (= i n) l (loop (+ i 1) (modulo (+ (* seed 1103515245) 12345) 2147483648) (cons seed l)))))
        (define a (numbers 100000))
        (define b (sort a <))
        (define (ordered? l) (or (null? (cdr l)) (and (<= (car l) (cadr l)) (ordered? (cdr l)))))
        (list (ordered? b) (length b) (equal? a (numbers 100000)) (= (apply + a) (apply + b)))";
    let error = scheme.eval("test", text).unwrap_err().to_string();
    assert!(error.starts_with("more than 65472 arguments"), "{error}");
    let text = "(list (ordered? b) (length b) (equal? a (numbers 100000)) (= (fold + 0 a) (fold + 0 b)))";
    assert_eq!(scheme.eval("test", text).unwrap(), "(#t 100000 #t #t)");
}
