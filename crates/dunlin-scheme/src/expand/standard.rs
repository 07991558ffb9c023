//! What the standard libraries export: of R7RS, what is here.

use super::env::{Meaning, Syntaxes};
use crate::names::{Name, Symbols};

/// Names that forms compare, and that mean nothing by themselves.
const KEYWORDS: &[&str] = &["...", "=>", "_", "else", "syntax-rules", "unquote", "unquote-splicing"];

const BASE: &str = "
    * + - / < <= = > >= abs and append apply assoc assq assv begin binary-port? boolean=? boolean? bytevector
    bytevector-append bytevector-copy bytevector-length bytevector-u8-ref bytevector? caar cadr call-with-current-continuation
    call-with-port call-with-values call/cc car case cdar cddr cdr ceiling char->integer char-ready? char<=? char<?
    char=? char>=? char>? char? close-input-port close-output-port close-port complex? cond cond-expand cons
    current-error-port current-input-port current-output-port define define-record-type define-syntax
    define-values denominator do dynamic-wind eof-object eof-object? eq? equal? eqv? error error-object-irritants
    error-object-message error-object? even? exact exact-integer-sqrt exact-integer? exact? expt features
    file-error? floor floor-quotient floor-remainder floor/ flush-output-port for-each gcd get-output-bytevector
    get-output-string guard if include include-ci inexact inexact? input-port-open? input-port? integer->char
    integer? lambda lcm length let let* let*-values let-syntax let-values letrec letrec* letrec-syntax list
    list->string list->vector list-copy list-ref list-tail list? make-bytevector make-list make-parameter
    make-string make-vector map max member memq memv min modulo negative? newline not null? number->string
    number? numerator odd? open-input-bytevector open-input-string open-output-bytevector open-output-string or
    output-port-open? output-port? pair? parameterize peek-char peek-u8 positive? procedure? quasiquote quote
    quotient raise raise-continuable rational? rationalize read-bytevector read-char read-error? read-line
    read-string read-u8 real? remainder reverse round set! square string string->list string->number
    string->symbol string->utf8 string->vector string-append string-copy string-for-each string-length
    string-map string-ref string<=? string<? string=? string>=? string>? string? substring symbol->string
    symbol=? symbol? syntax-error textual-port? truncate truncate-quotient truncate-remainder truncate/
    u8-ready? unless utf8->string values vector vector->list vector->string vector-append vector-copy
    vector-for-each vector-length vector-map vector-ref vector? when with-exception-handler write-bytevector
    write-char write-string write-u8 zero?
    ... => _ else syntax-rules unquote unquote-splicing";
const CHAR: &str = "
    char-alphabetic? char-ci<=? char-ci<? char-ci=? char-ci>=? char-ci>? char-downcase char-foldcase
    char-lower-case? char-numeric? char-upcase char-upper-case? char-whitespace? digit-value string-ci<=?
    string-ci<? string-ci=? string-ci>=? string-ci>? string-downcase string-foldcase string-upcase";
const CXR: &str = "
    caaar caadr cadar caddr cdaar cdadr cddar cdddr caaaar caaadr caadar caaddr cadaar cadadr caddar cadddr
    cdaaar cdaadr cdadar cdaddr cddaar cddadr cdddar cddddr";
const INEXACT: &str = "acos asin atan cos exp finite? infinite? log nan? sin sqrt tan";
const LAZY: &str = "delay delay-force force make-promise promise?";
const WRITE: &str = "display write write-shared write-simple";
const EVAL: &str = "environment eval";
const SRFI_1: &str = "
    xcons list-tabulate list-copy cons* iota cons list proper-list? dotted-list? circular-list? not-pair? null-list?
    list= first second third fourth fifth sixth seventh eighth ninth tenth car+cdr take drop take-while drop-while
    take-right drop-right split-at last last-pair length+ concatenate append-reverse zip unzip1 unzip2 unzip3
    count fold fold-right pair-fold pair-fold-right reduce reduce-right unfold unfold-right append-map filter-map
    map-in-order pair-for-each filter partition remove find find-tail any every list-index span break delete
    delete-duplicates alist-cons alist-copy alist-delete lset<= lset= lset-adjoin lset-union lset-intersection
    lset-difference lset-xor append assoc assq assv car cdr caar cadr cdar cddr for-each length list-ref
    list? make-list map member memq memv null? pair? reverse caddr cdddr";

/// The libraries by name; each with lists of what it exports. What is not here is not exported.
const LIBRARIES: &[(&str, &[&str])] = &[
    ("(scheme base)", &[BASE]),
    ("(scheme case-lambda)", &["case-lambda"]),
    ("(scheme char)", &[CHAR]),
    ("(scheme complex)", &["angle imag-part magnitude make-polar make-rectangular real-part"]),
    ("(scheme cxr)", &[CXR]),
    ("(scheme eval)", &[EVAL]),
    ("(scheme file)", &["call-with-input-file call-with-output-file delete-file file-exists? open-input-file"]),
    ("(scheme inexact)", &[INEXACT]),
    ("(scheme lazy)", &[LAZY]),
    ("(scheme load)", &["load"]),
    ("(scheme process-context)", &["command-line emergency-exit exit get-environment-variable"]),
    ("(scheme r5rs)", &[BASE, CHAR, CXR, INEXACT, LAZY, WRITE, EVAL]),
    ("(scheme read)", &["read"]),
    ("(scheme repl)", &["interaction-environment"]),
    ("(scheme time)", &["current-jiffy current-second jiffies-per-second"]),
    ("(scheme write)", &[WRITE]),
    ("(srfi 1)", &[SRFI_1]),
    // All names: those above, and what this Scheme adds.
    ("(dunlin)", &[]),
];

/// Whether `(scheme base)` has this name.
pub(crate) fn is_base(name: &str) -> bool {
    BASE.split_whitespace().any(|base| base == name)
}

pub(super) fn is_standard(library: &str) -> bool {
    LIBRARIES.iter().any(|(name, _)| *name == library)
}

/// What a standard library exports, if it is one.
pub(super) fn exports(library: &str, symbols: &mut Symbols, syntaxes: &Syntaxes) -> Option<Vec<(Name, Meaning)>> {
    let (_, lists) = LIBRARIES.iter().find(|(name, _)| *name == library)?;
    let mut exports = Vec::new();
    if lists.is_empty() {
        let mut names: Vec<Name> = syntaxes.standard_names().collect();
        names.retain(|name| !name.is_alias() && !symbols.text(*name).starts_with('%'));
        exports.extend(names.into_iter().filter_map(|name| Some((name, syntaxes.standard(name)?))));
        exports.extend(KEYWORDS.iter().map(|text| symbols.intern(text)).map(|name| (name, Meaning::Global(name))));
    }
    for text in lists.iter().flat_map(|list| list.split_whitespace()) {
        let name = symbols.intern(text);
        let keyword = KEYWORDS.contains(&text).then_some(Meaning::Global(name));
        exports.extend(syntaxes.standard(name).or(keyword).map(|meaning| (name, meaning)));
    }
    Some(exports)
}
