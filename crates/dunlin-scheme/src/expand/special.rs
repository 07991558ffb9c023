//! The forms that the expander knows by itself, and the mutators that it refuses.

/// A form with a rule of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Special {
    And,
    Begin,
    Case,
    CaseLambda,
    Cond,
    CondExpand,
    Define,
    DefineLibrary,
    DefineRecordType,
    DefineMacro,
    DefineSyntax,
    DefineValues,
    Do,
    If,
    Import,
    Include,
    IncludeCi,
    Lambda,
    Let,
    LetStar,
    LetSyntax,
    Letrec,
    LetrecSyntax,
    Match,
    Or,
    Quasiquote,
    Quote,
    Recv,
    Set,
    SyntaxError,
    Unless,
    When,
}

impl Special {
    /// Whether such a form stands for others, which take its place in a body.
    pub(super) fn is_spliced(self) -> bool {
        use Special::{CondExpand, DefineRecordType, DefineValues, Include, IncludeCi};
        matches!(self, CondExpand | DefineRecordType | DefineValues | Include | IncludeCi)
    }
}

/// Names of special forms.
pub(super) const SPECIALS: &[(&str, Special)] = &[
    ("and", Special::And),
    ("begin", Special::Begin),
    ("case", Special::Case),
    ("case-lambda", Special::CaseLambda),
    ("cond", Special::Cond),
    ("cond-expand", Special::CondExpand),
    ("define", Special::Define),
    ("define-library", Special::DefineLibrary),
    ("define-record-type", Special::DefineRecordType),
    ("define-macro", Special::DefineMacro),
    ("define-syntax", Special::DefineSyntax),
    ("define-values", Special::DefineValues),
    ("do", Special::Do),
    ("if", Special::If),
    ("import", Special::Import),
    ("include", Special::Include),
    ("include-ci", Special::IncludeCi),
    ("lambda", Special::Lambda),
    ("let", Special::Let),
    ("let*", Special::LetStar),
    ("let-syntax", Special::LetSyntax),
    ("letrec", Special::Letrec),
    ("letrec*", Special::Letrec),
    ("letrec-syntax", Special::LetrecSyntax),
    ("match", Special::Match),
    ("or", Special::Or),
    ("quasiquote", Special::Quasiquote),
    ("quote", Special::Quote),
    ("recv", Special::Recv),
    ("set!", Special::Set),
    ("syntax-error", Special::SyntaxError),
    ("unless", Special::Unless),
    ("when", Special::When),
];

/// Procedures of R7RS that would change an object, and what to use.
pub(super) const MUTATORS: &[(&str, &str)] = &[
    ("bytevector-copy!", "bytevector-append"),
    ("bytevector-fill!", "make-bytevector"),
    ("bytevector-u8-set!", "bytevector-append, or build it with apply and bytevector"),
    ("hash-table-set!", "map-set of a persistent map"),
    ("list-set!", "append, or map"),
    ("read-bytevector!", "read-bytevector"),
    ("set-car!", "cons"),
    ("set-cdr!", "cons"),
    ("string-copy!", "string-append"),
    ("string-fill!", "make-string"),
    ("string-set!", "string-append"),
    ("vector-copy!", "vector-append"),
    ("vector-fill!", "make-vector"),
    ("vector-set!", "vector-map, or list->vector"),
];
