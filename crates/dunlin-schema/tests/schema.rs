//! Schemas: their bytes, and which messages a reader with another schema accepts.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use bytes::Bytes;
use dunlin_schema::{Coding, EndKind, Field, Kind, Schema, SchemaError, Sides, Variant, compare, limits};
use proptest::prelude::*;

#[path = "fuzz/schema.rs"]
mod fuzz;

/// Channels that are not part of a bundle, whose messages come from the other side.
const READS: Sides = Sides { here_writes: false, is_face: false };

fn schema(coding: Coding, kinds: &[Kind]) -> Schema {
    Schema::new(coding, kinds.to_vec()).unwrap()
}

fn cbor(kinds: &[Kind]) -> Schema {
    schema(Coding::Cbor, kinds)
}

/// The difference that keeps the reader from reading the message, as the reader sees it.
fn read(writer: &Schema, reader: &Schema) -> Option<String> {
    compare(reader, writer, READS).err().map(|difference| difference.to_string())
}

fn field(name: &str, kind: u16, required: bool) -> Field {
    Field { names: vec![name.into()], kind, required }
}

fn structure(name: &str, fields: Vec<Field>) -> Kind {
    Kind::Struct { name: name.into(), fields, closed: false }
}

fn variant(name: &str, content: Option<u16>) -> Variant {
    Variant { names: vec![name.into()], content }
}

fn enumeration(variants: Vec<Variant>) -> Kind {
    Kind::Enum { name: "Command".into(), variants, open: false }
}

const U32: Kind = Kind::Int { signed: false, bits: 32 };

#[test]
fn compatible_versions_of_a_struct_read_each_other() {
    let before = cbor(&[structure("Order", vec![field("id", 1, true)]), U32]);
    let after = cbor(&[
        structure("Order", vec![field("id", 1, true), field("note", 2, false)]),
        U32,
        Kind::Option(3),
        Kind::Text,
    ]);
    assert_eq!((read(&before, &after), read(&after, &before)), (None, None));

    let needs = cbor(&[structure("Order", vec![field("id", 1, true), field("note", 2, true)]), U32, Kind::Text]);
    assert_eq!(read(&needs, &before), None);
    assert_eq!(read(&before, &needs).unwrap(), "`Order.note`: no such field there, a required field here");

    let changed = cbor(&[structure("Order", vec![field("id", 1, true)]), Kind::Text]);
    assert_eq!(read(&before, &changed).unwrap(), "`Order.id`: u32 there, text here");

    let Kind::Struct { name, fields, .. } = before.kinds()[0].clone() else { unreachable!() };
    let strict = cbor(&[Kind::Struct { name, fields, closed: true }, U32]);
    assert_eq!(read(&after, &strict).unwrap(), "`Order.note`: a field there, refused, being unknown here");
    assert_eq!(read(&strict, &after), None);

    let mut renamed = before.kinds().to_vec();
    renamed[0] = structure("Order", vec![Field { names: vec!["number".into(), "id".into()], kind: 1, required: true }]);
    assert_eq!(read(&before, &cbor(&renamed)), None);
}

#[test]
fn reader_must_know_each_variant_unless_its_enum_is_open() {
    let before = cbor(&[enumeration(vec![variant("Go", Some(1)), variant("Halt", None)]), U32]);
    let after = cbor(&[enumeration(vec![variant("Go", Some(1)), variant("Halt", None), variant("Stop", None)]), U32]);
    assert_eq!(read(&before, &after), None);
    assert_eq!(read(&after, &before).unwrap(), "`Command.Stop`: a variant there, not known here");
    let open = Kind::Enum {
        name: "Command".into(),
        variants: vec![variant("Go", Some(1)), variant("Halt", None)],
        open: true,
    };
    assert_eq!(read(&after, &cbor(&[open, U32])), None);
    let filled = cbor(&[enumeration(vec![variant("Go", Some(1)), variant("Halt", Some(1))]), U32]);
    assert_eq!(
        read(&filled, &before).unwrap(),
        "`Command.Halt`: a variant with content there, a variant without content here"
    );
}

#[test]
fn compact_encoding_compares_fields_by_place() {
    let order = |fields: Vec<Field>| schema(Coding::Compact, &[structure("Order", fields), U32, Kind::Option(1)]);
    let one = order(vec![field("id", 1, true), field("count", 1, true)]);
    let swapped = order(vec![field("count", 1, true), field("id", 1, true)]);
    let longer = order(vec![field("id", 1, true), field("count", 1, true), field("note", 2, false)]);
    assert_eq!(read(&one, &one), None);
    assert_eq!(read(&one, &swapped).unwrap(), "`Order.0`: field `id` there, field `count` here");
    assert_eq!(read(&one, &longer).unwrap(), "`Order.2`: none there, field `note` here");
    assert_eq!(read(&longer, &one).unwrap(), "`Order.2`: field `note` there, none here");
    let wide = schema(Coding::Compact, &[Kind::Int { signed: false, bits: 64 }]);
    assert_eq!(read(&schema(Coding::Compact, &[U32]), &wide).unwrap(), "u32 there, u64 here");
    assert_eq!(read(&cbor(&[U32]), &cbor(wide.kinds())), None);
    assert_eq!(read(&cbor(&[U32]), &wide).unwrap(), "messages in cbor there, compact messages here");

    let commands = |variants| schema(Coding::Compact, &[enumeration(variants)]);
    let (two, three) = (
        commands(vec![variant("Go", None), variant("Halt", None)]),
        commands(vec![variant("Go", None), variant("Halt", None), variant("Stop", None)]),
    );
    assert_eq!(read(&two, &three), None);
    assert_eq!(read(&three, &two).unwrap(), "`Command.2`: variant `Stop` there, none here");
}

/// The holder of a sender writes what it carries, and the side that the sender came from reads that.
#[test]
fn sender_in_a_message_reverses_the_comparison() {
    let carrying =
        |end, kind: Kind| cbor(&[structure("Ask", vec![field("back", 1, true)]), Kind::End(end, vec![2]), kind]);
    let (narrow, wide) = (U32, Kind::Int { signed: false, bits: 64 });
    let sender = |kind: &Kind| carrying(EndKind::Sender, kind.clone());
    let receiver = |kind: &Kind| carrying(EndKind::Receiver, kind.clone());
    assert_eq!(read(&receiver(&narrow), &receiver(&wide)), None);
    assert_eq!(read(&receiver(&wide), &receiver(&narrow)).unwrap(), "`Ask.back.message`: u64 there, u32 here");
    assert_eq!(read(&sender(&wide), &sender(&narrow)), None);
    assert_eq!(read(&sender(&narrow), &sender(&wide)).unwrap(), "`Ask.back.message`: u32 there, u64 here");
    assert_eq!(read(&sender(&narrow), &receiver(&narrow)).unwrap(), "`Ask.back`: a sender there, a receiver here");

    let caller =
        |request: &Kind, reply: &Kind| cbor(&[Kind::End(EndKind::Caller, vec![1, 2]), request.clone(), reply.clone()]);
    assert_eq!(read(&caller(&wide, &narrow), &caller(&narrow, &wide)), None);
    assert_eq!(read(&caller(&narrow, &narrow), &caller(&wide, &narrow)).unwrap(), "`request`: u32 there, u64 here");
    assert_eq!(read(&caller(&narrow, &wide), &caller(&narrow, &narrow)).unwrap(), "`reply`: u64 there, u32 here");
}

#[test]
fn ends_of_a_bundle_are_compared_by_place() {
    let face = |names: &[&str]| {
        let fields = names.iter().map(|name| field(name, 1, true)).collect();
        cbor(&[structure("ShopClient", fields), Kind::End(EndKind::Sender, vec![2]), U32])
    };
    let sides = Sides { is_face: true, ..READS };
    let compare = |one: &Schema, other: &Schema| compare(one, other, sides).err().map(|d| d.to_string());
    assert_eq!(compare(&face(&["basket", "till"]), &face(&["basket", "till"])), None);
    let text = compare(&face(&["basket", "till"]), &face(&["till", "basket"])).unwrap();
    assert_eq!(text, "`ShopClient.0`: field `till` there, field `basket` here");
    assert!(compare(&face(&["basket", "till"]), &face(&["basket"])).is_some());
    // The messages that they carry may differ as elsewhere.
    let mut wider = face(&["basket"]).kinds().to_vec();
    wider[2] = Kind::Int { signed: false, bits: 64 };
    assert_eq!(compare(&face(&["basket"]), &cbor(&wider)), None);
    assert_eq!(compare(&cbor(&wider), &face(&["basket"])).unwrap(), "`ShopClient.basket.message`: u32 there, u64 here");
}

#[test]
fn comparison_of_a_recursive_protocol_terminates() {
    let turn = |card: Kind| {
        cbor(&[
            enumeration(vec![variant("Play", Some(1)), variant("Over", None)]),
            structure("", vec![field("card", 2, true), field("next", 3, true)]),
            card,
            Kind::End(EndKind::Sender, vec![0]),
        ])
    };
    let byte = |bits| Kind::Int { signed: false, bits };
    assert_eq!(read(&turn(byte(8)), &turn(byte(8))), None);
    // Both sides write it, so a wider type is no solution.
    assert_eq!(
        read(&turn(byte(8)), &turn(byte(16))).unwrap(),
        "`Command.Play.next.message.Play.card`: u8 there, u16 here"
    );
}

#[test]
fn hostile_schemas_are_refused_before_they_take_memory() {
    let decode = |rest: &[u8]| Schema::decode(&[&[1, 1], rest].concat());
    assert_eq!(Schema::decode(&[]), Ok(None));
    assert_eq!(Schema::decode(&[2, 99, 99]), Ok(None), "of a later version");
    assert!(matches!(decode(&[]), Err(SchemaError::Truncated(_))));
    assert!(matches!(decode(&[0]), Err(SchemaError::Invalid { value: 0, .. })), "no kinds");
    assert!(matches!(decode(&[0xFF, 0xFF, 0x7F]), Err(SchemaError::Invalid { .. })), "too many kinds");
    assert!(matches!(decode(&[0x80, 0x20]), Err(SchemaError::Truncated(_))), "4096 kinds in no bytes");
    assert!(matches!(decode(&[1, 17, 1]), Err(SchemaError::Invalid { value: 1, .. })), "of what is not there");
    assert!(matches!(decode(&[1, 26]), Err(SchemaError::Invalid { value: 26, .. })), "no kind");
    assert!(matches!(decode(&[1, 20, 0xFF, 0xFF, 3]), Err(SchemaError::Truncated(_))), "65535 places in no bytes");
    assert!(matches!(decode(&[1, 23, 15]), Err(SchemaError::Invalid { value: 15, .. })), "no end");
    assert!(matches!(decode(&[1, 24, 0x80, 2]), Err(SchemaError::TooLong { bytes: 256, .. })), "a long name");
    assert!(matches!(decode(&[1, 21, 0, 2, 0]), Err(SchemaError::Invalid { value: 2, .. })), "no flag");
    assert!(matches!(decode(&[1, 0, 0]), Err(SchemaError::Trailing(1))));
    assert!(matches!(decode(&[0x81, 0, 0]), Err(SchemaError::Overlong(_))));
    let long = [&[1, 1, 1, 24, 1, b'x'][..], &vec![0; limits::BYTES]].concat();
    assert!(matches!(Schema::decode(&long), Err(SchemaError::TooLong { .. })));
    // Options that contain each other are infinite, and are still compared.
    let circle = cbor(&[Kind::Option(1), Kind::Option(0)]);
    assert_eq!(read(&circle, &cbor(&[Kind::Option(0)])), None);
    assert_eq!(read(&circle, &cbor(&[U32])).unwrap(), "an option there, u32 here");
    // A comparison does not visit the largest possible number of pairs.
    let many = |count: u16| {
        let mut kinds: Vec<Kind> = (0..count - 1).map(|id| Kind::Option(id + 1)).collect();
        kinds.push(Kind::Option(0));
        cbor(&kinds)
    };
    let text = read(&many(4096), &many(4095)).unwrap();
    assert_eq!(text, "a schema that takes too long to compare there, another one here");
    let nasty = cbor(&[structure("a\n\u{1b}`", vec![field("b\u{7}", 1, true)]), U32]);
    assert_eq!(
        read(&cbor(&[structure("", vec![])]), &nasty).unwrap(),
        "`a???.b?`: no such field there, a required field here"
    );
}

fn names() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(prop::sample::select(vec!["a", "b", "c", "d", "e", "f"]).prop_map(str::to_owned), 1..3)
}

/// Drops names that occur twice.
fn unique<T>(mut named: Vec<T>, names: fn(&mut T) -> &mut Vec<String>) -> Vec<T> {
    let mut known = BTreeSet::new();
    named.retain_mut(|one| {
        names(one).retain(|name| known.insert(name.clone()));
        !names(one).is_empty()
    });
    named
}

fn kind(count: u16) -> impl Strategy<Value = Kind> {
    let id = move || 0..count;
    let name = || prop::sample::select(vec!["", "Order", "Turn"]).prop_map(str::to_owned);
    let field = (names(), id(), any::<bool>()).prop_map(|(names, kind, required)| Field { names, kind, required });
    let variant = (names(), prop::option::of(id())).prop_map(|(names, content)| Variant { names, content });
    let end = prop::sample::select(EndKind::ALL.to_vec());
    prop_oneof![
        prop::sample::select(vec![Kind::Unit, Kind::Bool, Kind::Char, Kind::Text, Kind::Bytes, Kind::Raw]),
        (any::<bool>(), 3u32..8).prop_map(|(signed, power)| Kind::Int { signed, bits: 1 << power }),
        (5u32..7).prop_map(|power| Kind::Float { bits: 1 << power }),
        id().prop_map(Kind::Option),
        id().prop_map(Kind::List),
        (id(), id()).prop_map(|(key, value)| Kind::Map(key, value)),
        prop::collection::vec(id(), 0..4).prop_map(Kind::Tuple),
        (name(), prop::collection::vec(field, 0..4), any::<bool>()).prop_map(|(name, fields, closed)| Kind::Struct {
            name,
            fields: unique(fields, |field| &mut field.names),
            closed
        }),
        (name(), prop::collection::vec(variant, 0..4), any::<bool>()).prop_map(|(name, variants, open)| Kind::Enum {
            name,
            variants: unique(variants, |variant| &mut variant.names),
            open
        }),
        (end, id(), id()).prop_map(|(end, one, two)| Kind::End(end, [one, two][..end.messages().len()].to_vec())),
        name().prop_map(Kind::Opaque),
    ]
}

fn any_schema() -> impl Strategy<Value = Schema> {
    let kinds = (1u16..12).prop_flat_map(|count| prop::collection::vec(kind(count), usize::from(count)));
    (prop::sample::select(vec![Coding::Bytes, Coding::Cbor, Coding::Compact]), kinds)
        .prop_map(|(coding, kinds)| Schema::new(coding, kinds).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn bytes_round_trip(schema in any_schema()) {
        let bytes = schema.encode().unwrap();
        prop_assert_eq!(Schema::decode(&bytes), Ok(Some(schema)));
        for end in 1..bytes.len() {
            prop_assert!(Schema::decode(&bytes[..end]).is_err());
        }
    }

    #[test]
    fn schema_is_compatible_with_itself(schema in any_schema(), here_writes: bool, is_face: bool) {
        prop_assert_eq!(compare(&schema, &schema, Sides { here_writes, is_face }), Ok(()));
    }

    #[test]
    fn both_sides_find_one_difference(one in any_schema(), other in any_schema(), here_writes: bool, is_face: bool) {
        let here = compare(&one, &other, Sides { here_writes, is_face });
        let there = compare(&other, &one, Sides { here_writes: !here_writes, is_face });
        prop_assert_eq!(here.is_ok(), there.is_ok());
        if let (Err(here), Err(there)) = (here, there) {
            prop_assert_eq!((here.here, here.there), (there.there, there.here));
        }
    }

    #[test]
    fn decoded_bytes_encode_to_the_same_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let bytes = Bytes::from([&[1, 1], &bytes[..]].concat());
        if let Ok(Some(schema)) = Schema::decode(&bytes) {
            prop_assert_eq!(schema.encode().unwrap(), bytes);
        }
    }
}

#[test]
fn the_parts_of_a_schema_have_exact_limits() {
    let new = |kinds: Vec<Kind>| Schema::new(Coding::Cbor, kinds).is_ok();
    let kinds = |count: usize| vec![U32; count];
    assert_eq!((new(kinds(0)), new(kinds(4096)), new(kinds(4097))), (false, true, false));
    let called = |length: usize| vec![structure(&"x".repeat(length), vec![])];
    assert_eq!((new(called(255)), new(called(256))), (true, false));
    let named = |count: usize| {
        let names = (0..count).map(|n| format!("name {n}")).collect();
        vec![structure("", vec![Field { names, kind: 1, required: true }]), U32]
    };
    assert_eq!((new(named(0)), new(named(16)), new(named(17))), (false, true, false));
}

#[test]
fn schemas_survive_their_corpus() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/schema");
    let mut count = 0;
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        // A failed test prints its output, so the last name is that of the failing input.
        println!("{}", path.display());
        fuzz::run(&fs::read(&path).unwrap());
        count += 1;
    }
    assert!(count >= 50, "only {count} inputs in {}", folder.display());
}
