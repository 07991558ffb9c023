//! Values of Rust as Scheme data, and back.

use std::collections::BTreeMap;
use std::fmt::Debug;

use dunlin_scheme::{Error, ProcessNumber, Scheme, Value, ValueError, from_value, value_of};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", rename_all_fields = "kebab-case")]
enum Shape {
    Nothing,
    One(u8),
    Many(Vec<u8>),
    Two(u8, Option<u8>),
    Named { left: u8, right_hand: Vec<u8> },
    Unit(()),
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
struct Record {
    number: i64,
    list: Vec<u32>,
    nested: Option<Box<Self>>,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
struct Question {
    from: ProcessNumber,
    tag: Value,
    any: Value,
}

/// The data of a value, as text; they are read as the same value again.
fn shown<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: T) -> String {
    let data = value_of(&value).unwrap();
    assert_eq!(from_value::<T>(data.clone()).as_ref(), Ok(&value), "{data}");
    data.to_string()
}

#[test]
fn types_have_the_documented_shapes_and_are_read_from_them() {
    assert_eq!(shown((true, 'x', "text".to_owned(), 0.5, ())), r#"(#t #\x "text" 0.5 ())"#);
    assert_eq!(shown([i64::MIN, i64::MAX]), "(-9223372036854775808 9223372036854775807)");
    assert_eq!(shown((u64::MAX, i128::MIN)), "(18446744073709551615 -170141183460469231731687303715884105728)");
    assert_eq!(shown(u128::MAX), u128::MAX.to_string());
    assert_eq!(shown(vec![Some(1), None]), "(1 #f)");
    assert_eq!(shown(BTreeMap::from([("a".to_owned(), 1), ("b".to_owned(), 2)])), r#"(("a" . 1) ("b" . 2))"#);
    assert_eq!(shown(BTreeMap::from([((1, 2), vec![3, 4])])), "(((1 2) 3 4))");
    let inner = Record { number: 2, ..Record::default() };
    let record = Record { number: 1, list: vec![5, 6], nested: Some(Box::new(inner)) };
    assert_eq!(shown(record), "((number . 1) (list 5 6) (nested (number . 2) (list) (nested . #f)))");
}

#[test]
fn variants_are_symbols_or_lists_that_begin_with_one() {
    assert_eq!(shown(Shape::Nothing), "nothing");
    assert_eq!(shown(Shape::One(1)), "(one 1)");
    assert_eq!(shown(Shape::Many(vec![1, 2])), "(many (1 2))");
    assert_eq!(shown(Shape::Two(1, None)), "(two 1 #f)");
    assert_eq!(shown(Shape::Named { left: 1, right_hand: vec![] }), "(named (left . 1) (right-hand))");
    assert_eq!(shown(Shape::Unit(())), "(unit ())");
}

#[test]
fn any_data_can_be_a_part_of_a_type() {
    let symbol = |name: &str| Value::Symbol(name.to_owned());
    let kinds = Value::List(vec![
        Value::Unspecified,
        Value::Bool(false),
        Value::Integer(-1),
        Value::Exact("1/3".into()),
        Value::Real(1.5),
        Value::Char('c'),
        Value::String("s".into()),
        symbol("s"),
        Value::Bytes(vec![0, 255]),
        Value::Vector(vec![symbol("v")]),
        Value::Improper(vec![symbol("a"), symbol("b")], Box::new(symbol("c"))),
        Value::Process(3),
        Value::Tag(4),
        Value::List(vec![]),
    ]);
    let question = Question { from: ProcessNumber(7), tag: Value::Tag(8), any: kinds };
    let text = shown(question);
    let expected = r##"((from . #<process 7>) (tag . #<tag 8>) (any #<unspecified> #f -1 1/3 1.5 #\c "s" s #u8(0 255) #(v) (a b . c) #<process 3> #<tag 4> ()))"##;
    assert_eq!(text, expected);
    let dotted = Value::Improper(vec![Value::Integer(1), symbol("b")], Box::new(Value::Integer(2)));
    assert_eq!(shown(BTreeMap::from([("a".to_owned(), dotted)])), r#"(("a" 1 b . 2))"#);
}

#[test]
fn data_of_another_shape_are_an_error_that_shows_both() {
    fn error<T: DeserializeOwned + Debug>(value: impl Serialize) -> String {
        from_value::<T>(value_of(&value).unwrap()).unwrap_err().to_string()
    }
    let long = error::<u8>(vec!["x"; 1000]);
    assert!(long.starts_with("expected u8, got (\"x\" \"x\"") && long.len() < 600, "{long}");
    assert!(error::<Vec<u8>>(vec![1, 256]).contains("Vec<u8>, got (1 256): invalid value: integer `256`, expected u8"));
    let errors = [
        error::<Shape>("nothing"),
        error::<String>(Shape::Nothing),
        error::<ProcessNumber>(3),
        error::<()>(1),
        error::<(u8, u8)>((1, 2, 3)),
        error::<Record>(vec![1]),
        error::<BTreeMap<u8, u8>>(Value::Improper(vec![], Box::new(Value::Integer(1)))),
        error::<f64>(Value::Exact("1/3".into())),
    ];
    assert!(errors.iter().all(|error| error.starts_with("expected ")), "{errors:?}");
    assert!(error::<Shape>(vec![Value::Symbol("nothing".into())]).contains("nothing is a symbol, no list"));
    assert!(error::<Shape>(Value::Symbol("one".into())).contains("one is a list with more than its name"));
    assert!(error::<Shape>(Value::Symbol("none".into())).contains("unknown variant `none`"));
}

#[test]
fn text_of_a_value_is_read_as_the_same_value() {
    let value =
        Value::List(vec![Value::String("a\"b\\c".into()), Value::Char('x'), Value::Real(0.5), Value::Bytes(vec![7])]);
    let mut scheme = Scheme::new();
    assert_eq!(scheme.eval_value("test", &format!("'{value}")), Ok(value));
}

#[test]
fn some_false_is_refused_since_it_would_be_read_as_none() {
    assert!(matches!(value_of(&Some(false)), Err(ValueError::Part(_))));
    assert!(matches!(value_of(&Some(None::<u8>)), Err(ValueError::Part(_))));
    assert_eq!(shown(Some(true)), "#t");
}

#[test]
fn data_come_into_a_machine_and_out_of_it_unchanged() {
    let mut scheme = Scheme::new();
    for text in [
        "(1 -2 1/3 .5 #t #f () #\\x \"s\" symbol #u8(1 2) #(1 (2)) (a . b) ((a b . c)))",
        "(170141183460469231731687303715884105728 170141183460469231731687303715884105727 -1152921504606846977)",
    ] {
        let value = scheme.eval_value("test", &format!("'{text}")).unwrap();
        scheme.define("same", &value).unwrap();
        assert_eq!(scheme.eval("test", &format!("(equal? same '{text})")).unwrap(), "#t", "{value}");
    }
    let names = scheme.eval_value("test", "(list (self) (make-tag))").unwrap();
    scheme.define("names", &names).unwrap();
    assert_eq!(scheme.eval("test", "(list (eq? (car names) (self)) (tag? (cadr names)))").unwrap(), "(#t #t)");
}

#[test]
fn values_that_are_no_data_are_errors() {
    let mut scheme = Scheme::new();
    let mut error = |text: &str| match scheme.eval_value("test", text) {
        Err(Error::Value(error)) => error,
        other => panic!("{text}: {other:?}"),
    };
    for text in ["car", "(list 1 (lambda () 1))", "(call/cc (lambda (k) k))", "(delay 1)", "(open-input-string \"\")"] {
        assert!(matches!(error(text), ValueError::NotData(_)), "{text}");
    }
    assert_eq!(error("'#0=(1 . #0#)"), ValueError::TooLarge);
    assert_eq!(error("(vector->list (make-vector 2000000 1))"), ValueError::TooLarge);
    assert_eq!(error("(make-string 10000000 #\\a)"), ValueError::TooLarge);
    assert_eq!(error("(string->symbol (make-string 10000000 #\\a))"), ValueError::TooLarge);
    assert_eq!(error("(make-bytevector 10000000 1)"), ValueError::TooLarge);
    assert_eq!(error("(expt 7 100000)"), ValueError::TooLarge);
    assert_eq!(error("(let loop ((n 0) (l '())) (if (= n 1000) l (loop (+ n 1) (list l))))"), ValueError::TooDeep);
    let doubled = "(let loop ((n 0) (l '())) (if (= n 60) l (loop (+ n 1) (cons l l))))";
    assert!(matches!(error(doubled), ValueError::TooLarge | ValueError::TooDeep));
    let deep = (0..1000).fold(Value::Integer(1), |inner, _| Value::Vector(vec![inner]));
    let wrong = [
        deep,
        Value::Process(1 << 55),
        Value::Tag(u64::MAX),
        Value::Exact("1.5".into()),
        Value::Exact("x".into()),
        Value::Exact("7".repeat(100_000)),
    ];
    for value in wrong {
        assert!(matches!(scheme.define("x", &value), Err(Error::Value(_))), "{value:?}");
    }
}
