use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt::Debug;

use bytes::Bytes;
use dunlin_core::agent::Outlet;
use dunlin_core::carrier::AnyOutlet;
use dunlin_core::channel;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{DecodeError, EncodeError, Encoding, Scratch, Sink, encode_into, read_all};
use crate::Portable;
use crate::node::codec;

const BOTH: [Encoding; 2] = [Encoding::Cbor, Encoding::Compact];
const MILLION: usize = 1_000_000;

fn encode<T: Portable>(value: &T, encoding: Encoding, bytes_max: u64) -> Result<Bytes, EncodeError> {
    let mut buffer = Scratch::take();
    encode_into(&mut buffer, value, encoding, bytes_max)?;
    Ok(buffer.into_bytes())
}

fn decode<T: Portable>(bytes: Bytes, encoding: Encoding) -> Result<T, DecodeError> {
    read_all(dunlin_core::carrier::read_value::<T>, &bytes, encoding)
}

/// Encodes where the limit does not matter.
fn write<T: Portable>(value: &T, encoding: Encoding) -> Bytes {
    encode(value, encoding, u64::MAX).unwrap()
}

fn round_trip<T: Portable + PartialEq + Debug>(value: &T) {
    for encoding in BOTH {
        assert_eq!(&decode::<T>(write(value, encoding), encoding).unwrap(), value, "{encoding:?}");
    }
}

mod round_trips {
    use super::*;

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    struct Rich {
        signed: (i8, i16, i32, i64, i128),
        unsigned: (u8, u16, u32, u64, u128),
        float: (f32, f64),
        other: (bool, char, (), Unit, [u8; 3]),
        text: String,
        strings: (Bytes, serde_bytes::ByteBuf, Vec<u8>),
        map: BTreeMap<i32, Vec<Kind>>,
        maybe: Option<Box<Self>>,
        wrapped: Wrapped,
    }

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    struct Unit;

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    struct Wrapped(BTreeMap<String, Option<()>>);

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    enum Kind {
        Unit,
        Newtype(String),
        Tuple(u8, Option<i64>),
        Struct { list: Vec<bool>, inner: Box<Self> },
    }

    fn kind() -> impl Strategy<Value = Kind> {
        let leaf = prop_oneof![
            Just(Kind::Unit),
            any::<String>().prop_map(Kind::Newtype),
            any::<(u8, Option<i64>)>().prop_map(|(a, b)| Kind::Tuple(a, b)),
        ];
        leaf.prop_recursive(3, 8, 1, |inner| {
            (any::<Vec<bool>>(), inner).prop_map(|(list, inner)| Kind::Struct { list, inner: Box::new(inner) })
        })
    }

    fn rich() -> impl Strategy<Value = Rich> {
        let leaf = (
            any::<(i8, i16, i32, i64, i128)>(),
            any::<(u8, u16, u32, u64, u128)>(),
            any::<(f32, f64)>(),
            any::<(bool, char, [u8; 3])>(),
            any::<String>(),
            any::<(Vec<u8>, Vec<u8>, Vec<u8>)>(),
            btree_map(any::<i32>(), vec(kind(), 0..3), 0..3),
            btree_map(any::<String>(), any::<Option<()>>(), 0..3),
        );
        let leaf =
            leaf.prop_map(|(signed, unsigned, float, (truth, letter, array), text, (a, b, c), map, wrapped)| Rich {
                signed,
                unsigned,
                float,
                other: (truth, letter, (), Unit, array),
                text,
                strings: (a.into(), serde_bytes::ByteBuf::from(b), c),
                map,
                maybe: None,
                wrapped: Wrapped(wrapped),
            });
        leaf.prop_recursive(3, 3, 1, move |inner| {
            inner.prop_map(|inner| Rich { maybe: Some(Box::new(inner.clone())), ..inner })
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn any_value_round_trips_in_both_encodings(value in rich()) {
            round_trip(&value);
        }

        #[test]
        fn a_prefix_is_an_error(value in rich(), at in any::<proptest::sample::Index>()) {
            for encoding in BOTH {
                let bytes = write(&value, encoding);
                let cut = at.index(bytes.len());
                let error = decode::<Rich>(bytes.slice(..cut), encoding).unwrap_err();
                prop_assert!(matches!(error, DecodeError::Invalid { at, .. } if at <= cut), "{encoding:?} {error:?}");
            }
        }

        #[test]
        fn no_bytes_panic(bytes in any::<Vec<u8>>()) {
            for encoding in BOTH {
                if let Err(DecodeError::Panicked(text)) = decode::<Rich>(bytes.clone().into(), encoding) {
                    panic!("{text}");
                }
                let _ = decode::<Vec<Kind>>(bytes.clone().into(), encoding);
            }
        }

        #[test]
        fn changed_bytes_do_not_panic(value in rich(), at in any::<proptest::sample::Index>(), by in 1..=255u8) {
            for encoding in BOTH {
                let mut bytes = write(&value, encoding).to_vec();
                let at = at.index(bytes.len());
                bytes[at] ^= by;
                if let Err(DecodeError::Panicked(text)) = decode::<Rich>(bytes.into(), encoding) {
                    panic!("{text}");
                }
            }
        }
    }

    /// Written by `collect_str`.
    #[derive(Debug, PartialEq)]
    struct Shown(String);

    impl Serialize for Shown {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.collect_str(&format_args!("{}{}", &self.0[..1], &self.0[1..]))
        }
    }

    impl<'de> Deserialize<'de> for Shown {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            String::deserialize(deserializer).map(Self)
        }
    }

    #[test]
    fn value_serialized_by_collect_str_round_trips() {
        for len in [1, 2, 23, 24, 255, 256, 300, 70_000] {
            round_trip(&Shown("k".repeat(len)));
        }
    }

    #[test]
    fn byte_strings_are_written_in_one_piece() {
        let bytes = Bytes::from(vec![200; 1000]);
        for encoding in BOTH {
            assert!(write(&(bytes.clone(),), encoding).len() < 1010);
            assert!(write(&Some(serde_bytes::ByteBuf::from(bytes.to_vec())), encoding).len() < 1010);
            let (read,): (Bytes,) = decode(write(&(bytes.clone(),), encoding), encoding).unwrap();
            assert_eq!(read, bytes);
        }
    }

    #[test]
    fn bytes_are_neither_encoded_nor_copied() {
        let shape = AnyOutlet::from(Outlet::new(channel::<Bytes>().1)).shape();
        let bytes = Bytes::from(vec![7; 2048]);
        let value = shape.wrap(bytes.clone()).unwrap();
        for encoding in BOTH {
            let encoded = codec::encode(&value, encoding, 2048).unwrap();
            assert_eq!(encoded.as_ptr(), bytes.as_ptr());
            let decoded = codec::decode(shape, encoded, encoding).unwrap();
            let decoded: &Bytes = decoded.downcast_ref().unwrap();
            assert_eq!((decoded.as_ptr(), decoded.len()), (bytes.as_ptr(), 2048));
            let error = codec::encode(&value, encoding, 2047).unwrap_err();
            assert_eq!(error, EncodeError::TooLarge { bytes: 2048, bytes_max: 2047 });
        }
    }

    #[test]
    fn a_few_bytes_do_not_keep_the_buffer_they_arrived_in() {
        let shape = AnyOutlet::from(Outlet::new(channel::<Bytes>().1)).shape();
        let mut buffer = bytes::BytesMut::with_capacity(256 << 10);
        let mut kept = Vec::new();
        for len in [0, 1, 8, 2047] {
            buffer.extend_from_slice(&vec![7; len]);
            let arrived = buffer.split().freeze();
            kept.push(codec::decode(shape, arrived, Encoding::Cbor).unwrap());
            assert_eq!(kept.last().unwrap().downcast_ref(), Some(&Bytes::from(vec![7; len])));
        }
        assert!(buffer.try_reclaim(256 << 10), "somebody has a part of it");
    }
}

mod versions {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Old {
        name: String,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct New {
        colour: Option<u32>,
        name: String,
        #[serde(default)]
        tags: Vec<String>,
    }

    #[test]
    fn cbor_skips_unknown_fields_and_tolerates_missing_ones() {
        let old = write(&Old { name: "krill".into() }, Encoding::Cbor);
        let read: New = decode(old, Encoding::Cbor).unwrap();
        assert_eq!(read, New { colour: None, name: "krill".into(), tags: Vec::new() });

        let new = write(&New { colour: Some(7), name: "krill".into(), tags: vec!["a".into()] }, Encoding::Cbor);
        assert_eq!(decode::<Old>(new, Encoding::Cbor).unwrap(), Old { name: "krill".into() });
    }

    #[test]
    fn a_missing_field_is_named() {
        let bytes = write(&BTreeMap::from([("other", 1)].map(|(key, value)| (key.to_owned(), value))), Encoding::Cbor);
        let error = decode::<Old>(bytes, Encoding::Cbor).unwrap_err();
        assert!(error.to_string().contains("missing field `name`"), "{error}");
    }
}

mod limits {
    use super::*;

    #[test]
    fn a_value_too_large_is_measured_but_not_stored() {
        for encoding in BOTH {
            let value = (String::from("a"), vec![String::from("krill"); 1000]);
            let bytes = write(&value, encoding).len() as u64;
            assert_eq!(encode(&value, encoding, bytes).unwrap().len() as u64, bytes);
            for bytes_max in [bytes - 1, 1, 0] {
                assert_eq!(encode(&value, encoding, bytes_max), Err(EncodeError::TooLarge { bytes, bytes_max }));
            }
        }
    }

    /// A sequence of any length that takes no memory.
    struct Endless(usize);

    impl Serialize for Endless {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.collect_seq((0..self.0).map(|_| 1u8))
        }
    }

    impl<'de> Deserialize<'de> for Endless {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            Vec::<u8>::deserialize(deserializer).map(|elements| Self(elements.len()))
        }
    }

    #[test]
    fn the_buffer_holds_no_more_than_the_limit() {
        for encoding in BOTH {
            let mut buffer = Vec::new();
            let mut sink = Sink::new(&mut buffer, 1000);
            super::super::write(&Endless(MILLION), encoding, &mut sink).unwrap();
            assert!(sink.bytes() > MILLION as u64);
            assert!(buffer.len() <= 1000);
        }
    }

    #[test]
    fn the_buffer_is_kept_for_small_messages_and_given_away_with_large_ones() {
        drop(Scratch::take());
        write(&"x".repeat(1000), Encoding::Cbor);
        let kept = Scratch::take();
        let (place, capacity) = (kept.as_ptr(), kept.capacity());
        assert!(capacity >= 1000);
        drop(kept);
        let bytes = write(&"y".repeat(900), Encoding::Cbor);
        assert_ne!(bytes.as_ptr(), place);
        let kept = Scratch::take();
        assert_eq!((kept.as_ptr(), kept.capacity()), (place, capacity));
        drop(kept);
        write(&"z".repeat(MILLION), Encoding::Cbor);
        assert_eq!(Scratch::take().capacity(), 0);
    }

    #[test]
    fn claimed_lengths_take_no_memory() {
        // Lengths of 2^40 elements, bytes and entries, with no content.
        let varint = [0x80, 0x80, 0x80, 0x80, 0x80, 0x20];
        let cbor = |major: u8| {
            let mut bytes = vec![major << 5 | 27];
            bytes.extend((1u64 << 40).to_be_bytes());
            bytes
        };
        fn refused<T: Portable + Debug>(cbor: Vec<u8>, varint: &[u8]) {
            for (bytes, encoding) in [(cbor, Encoding::Cbor), (varint.to_vec(), Encoding::Compact)] {
                for tail in [0, 100] {
                    let mut bytes = bytes.clone();
                    bytes.extend(std::iter::repeat_n(1, tail));
                    let error = decode::<T>(bytes.into(), encoding).unwrap_err();
                    assert!(matches!(error, DecodeError::Invalid { .. }), "{encoding:?} {error:?}");
                }
            }
        }
        refused::<Vec<u64>>(cbor(4), &varint);
        refused::<Vec<[u64; 32]>>(cbor(4), &varint);
        refused::<Vec<()>>(cbor(4), &varint);
        refused::<Vec<Vec<()>>>(cbor(4), &varint);
        refused::<BTreeMap<u64, u64>>(cbor(5), &varint);
        refused::<std::collections::HashMap<(), ()>>(cbor(5), &varint);
        refused::<String>(cbor(3), &varint);
        refused::<serde_bytes::ByteBuf>(cbor(2), &varint);
        refused::<(Bytes,)>([vec![0x81], cbor(2)].concat(), &varint);
    }

    /// Structs around structs have no bytes of their own: they must not count as elements without content.
    #[test]
    fn many_small_values_are_decoded() {
        round_trip(&vec![((1u8,),); 300_000]);
        round_trip(&vec![vec![Some(1u8); 10]; 30_000]);
        round_trip(&vec![(); 60_000]);
    }

    #[test]
    fn trailing_bytes_are_an_error() {
        for encoding in BOTH {
            let mut bytes = write(&7u8, encoding).to_vec();
            bytes.extend([1, 2, 3]);
            assert_eq!(decode::<u8>(bytes.into(), encoding), Err(DecodeError::Trailing { at: 1, bytes: 3 }));
        }
    }
}

mod depth {
    use super::*;

    #[derive(Debug, Serialize, Deserialize)]
    struct Struct {
        next: Option<Box<Self>>,
    }

    #[derive(Debug, Serialize, Deserialize)]
    struct Newtype(Option<Box<Self>>);

    #[derive(Debug, Serialize, Deserialize)]
    struct Tuple(Option<Box<Self>>, u8);

    #[derive(Debug, Serialize, Deserialize)]
    struct Seq(Vec<Self>);

    #[derive(Debug, Serialize, Deserialize)]
    struct Map(BTreeMap<u8, Self>);

    #[derive(Debug, Serialize, Deserialize)]
    struct Unnamed {
        #[serde(rename = "next")]
        inner: (Vec<Self>, ()),
    }

    /// One whose frames take more of the stack.
    #[derive(Debug, Serialize, Deserialize)]
    struct Fat {
        next: Option<Box<Self>>,
        fields: [[u64; 32]; 8],
        more: Option<[String; 16]>,
    }

    #[derive(Debug, Serialize, Deserialize)]
    enum Enum {
        Leaf,
        Newtype(Box<Self>),
        Tuple(Box<Self>, u8),
        Struct { next: Box<Self> },
    }

    /// No value of it exists, but bytes can claim one.
    #[derive(Debug, Serialize, Deserialize)]
    struct Never(Box<Self>);

    fn repeated(prefix: &[u8], tail: &[u8]) -> Bytes {
        [&prefix.repeat(MILLION), tail].concat().into()
    }

    fn too_deep<T: Portable + Debug>(cbor: Bytes, compact: Bytes) {
        for (bytes, encoding) in [(cbor, Encoding::Cbor), (compact, Encoding::Compact)] {
            let result = decode::<T>(bytes, encoding);
            assert!(matches!(result, Err(DecodeError::TooDeep { .. })), "{encoding:?} {:?}", result.unwrap_err());
        }
    }

    #[test]
    fn a_million_levels_are_an_error_in_every_shape() {
        let ones = || repeated(&[1], &[0]);
        too_deep::<Struct>(repeated(b"\xa1\x64next", &[0xf6]), ones());
        too_deep::<Fat>(repeated(b"\xa1\x64next", &[0xf6]), ones());
        too_deep::<Newtype>(repeated(&[0x81], &[0xf6]), ones());
        too_deep::<Tuple>(repeated(&[0x82], &[0xf6]), ones());
        too_deep::<Seq>(repeated(&[0x81], &[0x80]), ones());
        too_deep::<Map>(repeated(&[0xa1, 0], &[0xa0]), repeated(&[1, 0], &[0]));
        too_deep::<Unnamed>(repeated(b"\xa1\x64next\x82\x81", &[]), ones());
        too_deep::<Enum>(repeated(b"\xa1\x67Newtype", b"\x64Leaf"), ones());
        too_deep::<Enum>(repeated(b"\xa1\x65Tuple\x82", b"\x64Leaf"), repeated(&[2], &[0]));
        too_deep::<Enum>(repeated(b"\xa1\x66Struct\xa1\x64next", b"\x64Leaf"), repeated(&[3], &[0]));
        too_deep::<Never>(repeated(&[0x81], &[]), ones());
    }

    #[test]
    fn depth_limit_applies_to_self_describing_and_ignored_values() {
        let deep = repeated(&[0x81], &[0x80]);
        assert!(matches!(decode::<serde_json::Value>(deep.clone(), Encoding::Cbor), Err(DecodeError::TooDeep { .. })));
        let maps = repeated(b"\xa1\x61a", &[0x80]);
        assert!(matches!(decode::<serde_json::Value>(maps, Encoding::Cbor), Err(DecodeError::TooDeep { .. })));

        #[derive(Debug, Serialize, Deserialize)]
        #[serde(untagged)]
        enum Untagged {
            Leaf(u8),
            Node(Vec<Self>),
        }
        assert!(matches!(decode::<Untagged>(deep.clone(), Encoding::Cbor), Err(DecodeError::TooDeep { .. })));

        // In a field that the type does not have.
        let unread: Bytes = [b"\xa1\x64else", &deep[..]].concat().into();
        assert!(matches!(decode::<Struct>(unread, Encoding::Cbor), Err(DecodeError::TooDeep { .. })));
    }

    /// Both sides count levels alike, in both encodings.
    #[test]
    fn decoder_accepts_every_depth_that_encoder_accepts() {
        fn check<T: Portable + Debug>(levels_each: usize, leaf: impl Fn() -> T, node: impl Fn(T) -> T) {
            for levels in (1..=300).step_by(levels_each) {
                let value = (1..levels).step_by(levels_each).fold(leaf(), |inner, _| node(inner));
                for encoding in BOTH {
                    match encode(&value, encoding, u64::MAX) {
                        Ok(bytes) => {
                            assert!(levels <= 257, "{levels}");
                            decode::<T>(bytes, encoding)
                                .unwrap_or_else(|error| panic!("{encoding:?} {levels} {error}"));
                        }
                        Err(error) => {
                            assert_eq!(error, EncodeError::TooDeep);
                            assert!(levels > 250, "{levels}");
                        }
                    }
                }
            }
        }
        check(2, || Struct { next: None }, |inner| Struct { next: Some(Box::new(inner)) });
        check(2, || Newtype(None), |inner| Newtype(Some(Box::new(inner))));
        check(2, || Tuple(None, 1), |inner| Tuple(Some(Box::new(inner)), 1));
        check(2, || Seq(Vec::new()), |inner| Seq(vec![inner]));
        check(2, || Map(BTreeMap::new()), |inner| Map(BTreeMap::from([(0, inner)])));
        check(3, || Unnamed { inner: (Vec::new(), ()) }, |inner| Unnamed { inner: (vec![inner], ()) });
        check(1, || Enum::Leaf, |inner| Enum::Newtype(Box::new(inner)));
        check(1, || Enum::Leaf, |inner| Enum::Tuple(Box::new(inner), 1));
        check(1, || Enum::Leaf, |inner| Enum::Struct { next: Box::new(inner) });
    }

    #[test]
    fn value_a_million_levels_deep_is_not_encoded() {
        let value = (0..MILLION).fold(Enum::Leaf, |inner, _| Enum::Newtype(Box::new(inner)));
        for encoding in BOTH {
            assert_eq!(encode(&value, encoding, u64::MAX), Err(EncodeError::TooDeep));
        }
        std::mem::forget(value); // its drop would go as deep
    }
}

mod failures {
    use super::*;

    thread_local! {
        static MODE: Cell<Mode> = const { Cell::new(Mode::Works) };
    }

    #[derive(Clone, Copy)]
    enum Mode {
        Works,
        Fails,
        Panics,
        PanicsWorse,
        Nests,
    }

    /// A panic payload that panics when dropped, with another such payload.
    struct Bomb(u32);

    impl Drop for Bomb {
        fn drop(&mut self) {
            if self.0 > 0 {
                std::panic::panic_any(Self(self.0 - 1));
            }
        }
    }

    #[derive(Debug, PartialEq)]
    struct Moody;

    fn act() -> Result<(), &'static str> {
        match MODE.get() {
            Mode::Works => Ok(()),
            Mode::Fails => Err("out of krill"),
            Mode::Panics => panic!("too much {}", "krill"),
            Mode::PanicsWorse => std::panic::panic_any(Bomb(2)),
            Mode::Nests => {
                // A message within a message has a buffer of its own.
                assert_eq!(write(&"inner".to_owned(), Encoding::Compact), &b"\x05inner"[..]);
                Ok(())
            }
        }
    }

    impl Serialize for Moody {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            act().map_err(serde::ser::Error::custom)?;
            serializer.serialize_u8(5)
        }
    }

    impl<'de> Deserialize<'de> for Moody {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            act().map_err(serde::de::Error::custom)?;
            u8::deserialize(deserializer).map(|_| Self)
        }
    }

    type Message = (String, Option<Vec<Moody>>);

    #[test]
    fn a_failing_or_panicking_message_is_a_typed_error_and_nothing_else_changes() {
        let value: Message = ("dear".into(), Some(vec![Moody]));
        for encoding in BOTH {
            let bytes = write(&value, encoding);
            let attempt = |mode| {
                MODE.set(mode);
                let written = encode(&value, encoding, u64::MAX);
                let read = decode::<Message>(bytes.clone(), encoding);
                MODE.set(Mode::Works);
                assert_eq!(write(&value, encoding), bytes);
                assert_eq!(decode::<Message>(bytes.clone(), encoding).unwrap(), value);
                (written, read)
            };

            let (written, read) = attempt(Mode::Fails);
            assert_eq!(written, Err(EncodeError::Failed("out of krill".into())));
            let Err(DecodeError::Invalid { at, text }) = read else { panic!("{read:?}") };
            assert_eq!((at, &*text), (bytes.len() - 1, "out of krill"));

            let (written, read) = attempt(Mode::Panics);
            assert_eq!(written, Err(EncodeError::Panicked("too much krill".into())));
            assert_eq!(read, Err(DecodeError::Panicked("too much krill".into())));

            let (written, read) = attempt(Mode::PanicsWorse);
            assert!(matches!((written, read), (Err(EncodeError::Panicked(_)), Err(DecodeError::Panicked(_)))));

            assert_eq!(attempt(Mode::Nests), (Ok(bytes.clone()), decode(bytes.clone(), encoding)));
        }
    }

    #[test]
    fn a_borrowed_cell_is_an_error_of_that_message() {
        let value = RefCell::new(1u8);
        let borrowed = value.borrow_mut();
        for encoding in BOTH {
            let error = encode(&value, encoding, 10).unwrap_err();
            assert!(error.to_string().contains("borrowed"), "{error}");
        }
        drop(borrowed);
        assert_eq!(encode(&value, Encoding::Compact, 10).unwrap(), &[1][..]);
    }

    #[test]
    fn decode_error_describes_invalid_value_in_both_encodings() {
        #[derive(Debug, Serialize, Deserialize)]
        enum Fish {
            Herring,
        }
        for (encoding, bytes, text) in [
            (Encoding::Cbor, &b"\x64Tuna"[..], "unknown variant `Tuna`, expected `Herring`"),
            (Encoding::Compact, &b"\x07"[..], "invalid value: integer `7`, expected variant index 0 <= i < 1"),
        ] {
            let error = decode::<Fish>(Bytes::from_static(bytes), encoding).unwrap_err();
            assert!(error.to_string().contains(text), "{error}");
        }
        let error = decode::<(u8, bool)>(Bytes::from_static(&[1, 2]), Encoding::Compact).unwrap_err();
        assert!(matches!(&error, DecodeError::Invalid { at: 2, text } if text.contains("bool")), "{error:?}");
        let error = decode::<Vec<u8>>(Bytes::from_static(b"\x82\x01\x61a"), Encoding::Cbor).unwrap_err();
        assert!(matches!(&error, DecodeError::Invalid { at: 3, text } if text.contains("u8")), "{error:?}");
    }
}
