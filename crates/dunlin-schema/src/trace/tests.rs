//! The results of the tracer, and the agreement of the comparison with the codec.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroU32;
use std::time::Duration;

use bytes::Bytes;
use dunlin_core::carrier::{Format, Sink, Write, read_value};
use dunlin_core::{Barrier, Broadcast, Caller, Joiner, NoPoison, Receiver, Reply, Sender, Shared};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{declared_name, int, trace};
use crate::{Coding, EndKind, Field, Kind, Schema, Sides, compare};

fn field(name: &str, kind: u16, required: bool) -> Field {
    Field { names: vec![name.into()], kind, required }
}

#[derive(Serialize, Deserialize)]
struct Order {
    id: u32,
    note: Option<String>,
    #[serde(default)]
    count: u8,
    #[serde(alias = "cost")]
    price: f64,
}

#[test]
fn tracer_finds_struct_fields_and_which_are_required() {
    let Kind::Struct { name, fields, closed } = trace::<Order>().swap_remove(0) else { panic!("no struct") };
    assert_eq!((&*name, closed), ("Order", false));
    let price = Field { names: vec!["price".into(), "cost".into()], kind: 5, required: true };
    assert_eq!(fields, [field("id", 1, true), field("note", 2, false), field("count", 4, false), price]);
    assert_eq!(
        trace::<Order>()[1..],
        [int(false, 32), Kind::Option(3), Kind::Text, int(false, 8), Kind::Float { bits: 64 }]
    );

    #[derive(Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Strict {
        #[serde(rename = "type")]
        what: (),
    }
    let kinds = trace::<Strict>();
    assert_eq!(kinds[0], Kind::Struct { name: "Strict".into(), fields: vec![field("type", 1, true)], closed: true });
}

#[derive(Serialize, Deserialize)]
enum Command {
    Go,
    Turn(i16),
    Move(f32, f32),
    Say {
        text: String,
        to: Vec<u64>,
    },
    #[serde(other)]
    Unknown,
}

#[test]
fn tracer_finds_enum_variants() {
    let kinds = trace::<Command>();
    let Kind::Enum { name, variants, open } = &kinds[0] else { panic!("no enum") };
    assert_eq!((&**name, *open), ("Command", true));
    let found: Vec<_> = variants
        .iter()
        .map(|variant| (&*variant.names[0], variant.content.map(|content| kinds[usize::from(content)].clone())))
        .collect();
    assert_eq!(found[0], ("Go", None));
    assert_eq!(found[1], ("Turn", Some(int(true, 16))));
    assert!(matches!(&found[2], ("Move", Some(Kind::Tuple(places))) if places.len() == 2 && places[0] == places[1]));
    assert!(matches!(&found[3], ("Say", Some(Kind::Struct { fields, .. })) if fields.len() == 2));
    assert_eq!(found[4], ("Unknown", None));
}

#[test]
fn recursive_types_trace_to_one_kind() {
    #[derive(Serialize, Deserialize)]
    struct Tree(Vec<Self>);
    assert_eq!(trace::<Tree>(), [Kind::List(0)]);

    #[derive(Serialize, Deserialize)]
    enum Turn {
        Play { card: u8, next: Sender<Self> },
        Over,
    }
    let kinds = trace::<Turn>();
    assert_eq!(kinds.len(), 4, "{kinds:?}");
    assert!(kinds.contains(&Kind::End(EndKind::Sender, vec![0])), "{kinds:?}");

    #[derive(Serialize, Deserialize)]
    struct Pair<T> {
        left: T,
        right: Option<Box<Self>>,
    }
    // The same name, but different types.
    let kinds = trace::<(Pair<u8>, Pair<String>)>();
    let structs: Vec<_> = kinds.iter().filter(|kind| matches!(kind, Kind::Struct { .. })).collect();
    assert_eq!(structs.len(), 2, "{kinds:?}");
    assert!(kinds.contains(&int(false, 8)) && kinds.contains(&Kind::Text), "{kinds:?}");
}

#[test]
fn ends_trace_to_their_kind_and_payload_types() {
    let end = |kind, carried| Kind::End(kind, carried);
    assert_eq!(trace::<Sender<u8>>(), [end(EndKind::Sender, vec![1]), int(false, 8)]);
    assert_eq!(trace::<Sender<u8, NoPoison>>()[0], end(EndKind::MeekSender, vec![1]));
    assert_eq!(trace::<Receiver<String>>(), [end(EndKind::Receiver, vec![1]), Kind::Text]);
    assert_eq!(trace::<Caller<u8, bool>>(), [end(EndKind::Caller, vec![1, 2]), int(false, 8), Kind::Bool]);
    assert_eq!(trace::<Reply<bool>>(), [end(EndKind::Reply, vec![1]), Kind::Bool]);
    let handle = trace::<Shared<Sender<u8>>>();
    assert_eq!(handle[..2], [end(EndKind::SharedSender, vec![1]), end(EndKind::Sender, vec![2])]);
    assert_eq!(trace::<Barrier>(), [end(EndKind::Barrier, vec![])]);
    assert_eq!(trace::<Broadcast<u8>>()[0], end(EndKind::Broadcast, vec![1]));
    assert_eq!(trace::<Joiner<u8>>()[0], end(EndKind::Joiner, vec![1]));
    assert_eq!(trace::<Joiner<u8, NoPoison>>()[0], end(EndKind::MeekJoiner, vec![1]));
    assert_eq!(trace::<Sender<Vec<u8>>>()[1], Kind::Raw);
    assert_eq!(trace::<(u8, Sender<bool>, u16)>().len(), 5);
}

#[test]
fn types_with_validating_deserializers_are_traced() {
    #[derive(Serialize, Deserialize)]
    struct Checked {
        many: NonZeroU32,
        last: Option<u8>,
        takes: Duration,
        map: BTreeMap<String, Vec<Option<char>>>,
        raw: Bytes,
        result: std::result::Result<u8, String>,
        address: std::net::IpAddr,
    }
    let kinds = trace::<Checked>();
    assert!(!kinds.iter().any(|kind| matches!(kind, Kind::Opaque(_))), "{kinds:?}");
    let Kind::Struct { fields, .. } = &kinds[0] else { panic!("no struct") };
    let required: Vec<bool> = fields.iter().map(|field| field.required).collect();
    assert_eq!(required, [true, false, true, true, true, true, true]);
}

#[test]
fn types_that_need_a_self_describing_format_are_opaque() {
    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Untagged {
        A(u8),
        B(String),
    }
    #[derive(Serialize, Deserialize)]
    #[serde(tag = "t")]
    enum Internal {
        A { x: u8 },
        B,
    }
    #[derive(Serialize, Deserialize)]
    #[serde(tag = "t", content = "c")]
    enum Adjacent {
        A(u8),
        B(String),
    }
    #[derive(Serialize, Deserialize)]
    struct Flat {
        x: u8,
        #[serde(flatten)]
        rest: HashMap<String, u8>,
    }
    #[derive(Serialize, Deserialize)]
    struct All {
        untagged: Untagged,
        internal: Vec<Internal>,
        adjacent: Option<Adjacent>,
        flat: Flat,
        value: serde_json::Value,
        last: u8,
    }
    let kinds = trace::<All>();
    for name in ["Untagged", "Internal", "Adjacent", "Flat", "Value"] {
        assert!(kinds.contains(&Kind::Opaque(name.into())), "{name}: {kinds:?}");
    }
    let Kind::Struct { fields, .. } = &kinds[0] else { panic!("no struct") };
    let last = fields.last().unwrap();
    assert_eq!((&*last.names[0], &kinds[usize::from(last.kind)]), ("last", &int(false, 8)));
}

#[test]
fn declared_names_omit_module_paths() {
    assert_eq!(declared_name("alloc::vec::Vec<krill::v2::Order>"), "Vec<Order>");
    assert_eq!(declared_name("(a::B, [c::D; 3], &str)"), "(B, [D; 3], &str)");
    assert_eq!(declared_name("u8"), "u8");
}

#[test]
fn types_that_panic_or_request_nothing_are_opaque() {
    #[derive(Serialize)]
    struct Moody;
    impl<'de> Deserialize<'de> for Moody {
        fn deserialize<D: serde::Deserializer<'de>>(_: D) -> std::result::Result<Self, D::Error> {
            panic!("not today")
        }
    }
    #[derive(Serialize)]
    struct Idle;
    impl<'de> Deserialize<'de> for Idle {
        fn deserialize<D: serde::Deserializer<'de>>(_: D) -> std::result::Result<Self, D::Error> {
            Ok(Self)
        }
    }
    assert_eq!(trace::<Moody>(), [Kind::Opaque("Moody".into())]);
    assert_eq!(trace::<(u8, Idle, bool)>()[0], Kind::Tuple(vec![1, 2, 3]));
    assert_eq!(trace::<(u8, Idle, bool)>()[2..], [Kind::Opaque("Idle".into()), Kind::Bool]);
    // The tracer cannot reach what follows it.
    assert_eq!(trace::<(Moody, bool)>(), [Kind::Opaque("(Moody, bool)".into())]);
}

/// Values of a type, among them its extremes, each written in both encodings.
struct Samples {
    name: &'static str,
    kinds: Vec<Kind>,
    written: [Vec<Vec<u8>>; 2],
    reads: fn(&[u8], Format) -> bool,
}

const ENCODINGS: [(Format, Coding); 2] = [(Format::Cbor, Coding::Cbor), (Format::Postcard, Coding::Compact)];

fn samples<T: Serialize + DeserializeOwned>(name: &'static str, values: &[T]) -> Samples {
    let write = |format, value: &T| {
        let mut bytes = Vec::new();
        value.write(format, &mut Sink::new(&mut bytes, u64::MAX)).unwrap();
        bytes
    };
    Samples {
        name,
        kinds: trace::<T>(),
        written: ENCODINGS.map(|(format, _)| values.iter().map(|value| write(format, value)).collect()),
        reads: |bytes, format| matches!(read_value::<T>(format, bytes), (Ok(_), 0)),
    }
}

/// In CBOR, no difference means that the reader reads every value, and a difference means that it fails to
/// read some value. In the compact encoding, the reader reads every value of a compatible schema.
#[test]
fn the_comparison_agrees_with_the_codec() {
    #[derive(Serialize, Deserialize)]
    struct One {
        a: u8,
    }
    #[derive(Serialize, Deserialize)]
    struct Two {
        a: u16,
        b: Option<u8>,
    }
    #[derive(Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Closed {
        a: u32,
    }
    #[derive(Serialize, Deserialize)]
    enum Less {
        A,
        B(u8),
    }
    #[derive(Serialize, Deserialize)]
    enum More {
        A,
        B(u16),
        C { x: u8 },
    }
    #[derive(Serialize, Deserialize)]
    enum Plain {
        A,
        Down,
    }
    #[derive(Serialize, Deserialize)]
    enum Open {
        A,
        #[serde(other)]
        Rest,
    }
    #[derive(Serialize, Deserialize)]
    struct Unit;
    #[derive(Serialize, Deserialize)]
    struct New(u8);

    let all = [
        samples("u8", &[0, u8::MAX]),
        samples("u16", &[0, u16::MAX]),
        samples("u32", &[0, u32::MAX]),
        samples("u64", &[0, u64::MAX]),
        samples("u128", &[0, u128::MAX]),
        samples("i8", &[0, i8::MIN, i8::MAX]),
        samples("i16", &[0, i16::MIN, i16::MAX]),
        samples("i32", &[0, i32::MIN, i32::MAX]),
        samples("i64", &[0, i64::MIN, i64::MAX]),
        samples("i128", &[0, i128::MIN, i128::MAX]),
        samples("f32", &[0.0f32, 1.5]),
        samples("f64", &[0.0f64, 1.1]),
        samples("bool", &[true, false]),
        samples("char", &['a', '\u{1F419}']),
        samples("String", &[String::new(), "krill and more".to_owned()]),
        samples("()", &[()]),
        samples("Unit", &[Unit]),
        samples("New", &[New(255)]),
        samples("Bytes field", &[serde_bytes::ByteBuf::from(vec![1, 2])]),
        samples("Option<u8>", &[None, Some(255u8)]),
        samples("Option<u16>", &[None, Some(u16::MAX)]),
        samples("Option<()>", &[None, Some(())]),
        samples("Vec<u16>", &[vec![], vec![u16::MAX; 3]]),
        samples("Vec<u32>", &[vec![], vec![u32::MAX; 3]]),
        samples("(u8, u8)", &[(255u8, 255u8)]),
        samples("(u8, u8, u8)", &[(255u8, 255u8, 255u8)]),
        samples("[u16; 2]", &[[u16::MAX; 2]]),
        samples("map", &[BTreeMap::from([("k".to_owned(), 255u8)]), BTreeMap::new()]),
        samples("wide map", &[BTreeMap::from([("k".to_owned(), u32::MAX)]), BTreeMap::new()]),
        samples("map of numbers", &[BTreeMap::from([(7u8, 255u8)]), BTreeMap::new()]),
        samples("One", &[One { a: 255 }]),
        samples("Two", &[Two { a: u16::MAX, b: None }, Two { a: 0, b: Some(1) }]),
        samples("Closed", &[Closed { a: u32::MAX }]),
        samples("Less", &[Less::A, Less::B(255)]),
        samples("More", &[More::A, More::B(u16::MAX), More::C { x: 1 }]),
        samples("Plain", &[Plain::A, Plain::Down]),
        samples("Open", &[Open::A, Open::Rest]),
        samples("result", &[Ok::<u8, String>(255), Err("no".to_owned())]),
        samples("duration", &[Duration::MAX, Duration::ZERO]),
    ];
    let (mut fits, mut wrong) = ([0, 0], Vec::new());
    for writer in &all {
        for reader in &all {
            for (at, (format, coding)) in ENCODINGS.into_iter().enumerate() {
                let schema = |of: &Samples| Schema::new(coding, of.kinds.clone()).unwrap();
                let sides = Sides { here_writes: false, is_face: false };
                let difference = compare(&schema(reader), &schema(writer), sides).err();
                let is_read = writer.written[at].iter().all(|bytes| (reader.reads)(bytes, format));
                fits[at] += usize::from(difference.is_none());
                // In the compact encoding, an incompatible value may be read as something else.
                if difference.is_none() != is_read && (coding == Coding::Cbor || !is_read) {
                    let what = format!("{} read as {}, {coding:?}", writer.name, reader.name);
                    wrong.push(format!("{what}: {difference:?}, but read: {is_read}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(fits[0] > fits[1] && fits[1] >= all.len(), "{fits:?}");
}
