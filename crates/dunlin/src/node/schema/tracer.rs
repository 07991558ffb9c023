//! Asks a type what it wants to read, instead of giving it anything.
//!
//! A [`Deserialize`](serde::Deserialize) says, step by step, what it expects next. So it is called again and again: each pass leads along one path to a
//! part that is not known yet, notes what is asked for there, and ends with an error. A struct is led to its fields one by one (no other field is needed for
//! that), an enum to its variants. A value is made up only where it cannot do without: the places of a tuple before the one that is looked
//! at, and the required fields of a struct, to find out which others may be missing.
//!
//! It also learns by trying: which names are the same field (`alias`), whether unknown fields are refused (`deny_unknown_fields`), whether an unknown
//! variant is read (`other`). What it does not understand (whatever has to look at the bytes: `untagged`, internally and adjacently tagged, `flatten`) is opaque.
//!
//! After serde-reflection (Diem), which needs samples of values that a type checks; here those are rarely needed.

use std::any::type_name;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::mem::{discriminant, take};

use bytes::Bytes;
use dunlin_core::Portable;
use dunlin_core::carrier::EndKind as CoreEnd;
use dunlin_proto::schema::{EndKind, Field, Kind, KindId, Variant, limits};
use serde::Deserializer;
use serde::de::{self, DeserializeSeed, Visitor};

use super::declared_name;
use crate::node::codec::catch;

/// So many passes are made; a type that needs more is opaque.
const PASSES_MAX: usize = 1 << 14;
/// So deep may types and made-up values nest.
const DEPTH_MAX: usize = 96;
/// A tuple of more places than this is opaque: an array, whose name says what it is.
const PLACES_MAX: usize = 64;

/// The kinds of a type, the first of which is the type itself.
pub(super) fn trace<T: Portable>() -> Vec<Kind> {
    let mut trace = Trace::default();
    trace.part(type_name::<T>(), 0);
    for _ in 0..PASSES_MAX {
        if trace.parts[0].done {
            return trace.into_kinds();
        }
        let before = trace.changes;
        (trace.goal, trace.depth) = (None, 0);
        trace.made.clear();
        // Whatever it says, what was learnt is in the trace. It may have panicked over a value that was made up.
        let _ = catch(|| T::deserialize(At { trace: &mut trace, part: 0, makes: false }).map(drop));
        if trace.changes == before {
            trace.give_up();
        }
    }
    trace.make_opaque(0);
    trace.into_kinds()
}

/// The number of a part in the trace.
type PartId = usize;

/// What is known of a part of the type.
struct Part {
    /// What Rust calls it.
    declared: String,
    depth: usize,
    what: What,
    /// All of it is known.
    done: bool,
    /// Which of the values that can be made up for it is the next to be tried.
    candidate: usize,
}

enum What {
    Unknown,
    /// The same as a part that was met before.
    Same(PartId),
    Plain(Kind),
    Option(PartId),
    List(PartId),
    Map(PartId, PartId),
    Tuple(Vec<PartId>),
    Struct(Struct),
    Enum(Enum),
    End(EndKind, Vec<PartId>),
    /// The name of a field, asked for where a key of a map is expected: some fields are flattened.
    FieldName,
    Opaque,
}

struct Struct {
    name: &'static str,
    fields: Vec<FieldPart>,
    closed: Option<bool>,
    /// Whether each is required has been found out, or cannot be.
    sifted: bool,
}

struct FieldPart {
    name: &'static str,
    mark: Option<Mark>,
    part: PartId,
    required: Option<bool>,
}

struct Enum {
    name: &'static str,
    variants: Vec<VariantPart>,
    open: Option<bool>,
}

struct VariantPart {
    name: &'static str,
    mark: Option<Mark>,
    content: Content,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Content {
    Unknown,
    Nothing,
    Part(PartId),
}

/// What the type makes of a name: two of the same are one field. (Which value it makes is its own affair; but it is an enum, and those can be told apart.)
#[derive(Clone, PartialEq, Eq)]
enum Mark {
    Found(String),
    /// It was not asked for as a name.
    Only(usize),
}

/// What the pass leads to, of a part that has others.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The field or variant of this number.
    Name(usize),
    /// A name that it does not have.
    Stranger,
    /// Which fields are required.
    Sift,
    Place(usize),
    Element,
    Key,
    Value,
}

#[derive(Default)]
struct Trace {
    parts: Vec<Part>,
    /// Types that have been met, by what reads them.
    met: BTreeMap<(&'static str, &'static str, &'static [&'static str]), PartId>,
    changes: u64,
    /// What the last pass led to.
    goal: Option<(PartId, Step)>,
    /// The parts that it made values for.
    made: Vec<PartId>,
    depth: usize,
}

impl Trace {
    fn part(&mut self, declared: &str, depth: usize) -> PartId {
        let declared = declared_name(declared);
        let done = depth > DEPTH_MAX || self.parts.len() >= limits::KINDS * 2;
        let what = if done { What::Opaque } else { What::Unknown };
        self.parts.push(Part { declared, depth, what, done, candidate: 0 });
        self.parts.len() - 1
    }

    /// A part of this one.
    fn child(&mut self, of: PartId, declared: &str) -> PartId {
        self.part(declared, self.parts[of].depth + 1)
    }

    fn is_unknown(&self, part: PartId) -> bool {
        matches!(self.parts[part].what, What::Unknown)
    }

    fn set(&mut self, part: PartId, what: What) {
        self.parts[part].what = what;
        self.changes += 1;
    }

    fn finish(&mut self, part: PartId) {
        self.parts[part].done = true;
        self.changes += 1;
    }

    fn make_opaque(&mut self, part: PartId) {
        self.set(part, What::Opaque);
        self.finish(part);
    }

    fn is_done(&self, part: PartId) -> bool {
        self.parts[part].done
    }

    /// Whether this has been met elsewhere. Then it is the same.
    fn is_met(
        &mut self,
        part: PartId,
        reader: &'static str,
        name: &'static str,
        names: &'static [&'static str],
    ) -> bool {
        let first = *self.met.entry((reader, name, names)).or_insert(part);
        if first != part {
            self.set(part, What::Same(first));
            self.finish(part);
        }
        first != part
    }

    /// The pass has brought nothing. Another value may help that was made up; else what it led to is not understood.
    fn give_up(&mut self) {
        for part in take(&mut self.made).into_iter().rev() {
            if self.parts[part].candidate + 1 < self.candidates(part) {
                self.parts[part].candidate += 1;
                self.changes += 1;
                return;
            }
        }
        let Some((part, step)) = self.goal else { return self.make_opaque(0) };
        let opaque: PartId = match (&mut self.parts[part].what, step) {
            (What::Struct(this), Step::Sift) => {
                this.sifted = true;
                return;
            }
            (What::Struct(this), Step::Stranger) => {
                this.closed = Some(false);
                return;
            }
            (What::Enum(this), Step::Stranger) => {
                this.open = Some(false);
                return;
            }
            (What::Struct(this), Step::Name(at)) if this.fields[at].mark.is_some() => this.fields[at].part,
            (What::List(element) | What::Option(element), _) => *element,
            (What::Map(key, _), Step::Key) => *key,
            (What::Map(_, value), Step::Value) => *value,
            (What::End(_, messages), Step::Place(at)) => messages[at],
            (What::Tuple(places), Step::Place(at)) => places[at],
            _ => part,
        };
        // A place that was not come to: one before it is not to be had.
        let is_reached = !self.parts[opaque].declared.is_empty();
        self.make_opaque(if is_reached && !self.is_done(opaque) { opaque } else { part });
    }

    /// How many values can be made up for it.
    fn candidates(&self, part: PartId) -> usize {
        match &self.parts[part].what {
            What::Plain(Kind::Text) => TEXTS.len(),
            What::Plain(Kind::Bytes) => BYTES.len(),
            What::Plain(Kind::Bool | Kind::Int { .. } | Kind::Float { .. }) => 2,
            What::List(_) => 2,
            What::Enum(this) => this.variants.len(),
            _ => 1,
        }
    }

    fn into_kinds(self) -> Vec<Kind> {
        let mut kinds = Kinds { parts: self.parts, kinds: Vec::new(), of_part: BTreeMap::new(), plain: Vec::new() };
        kinds.kind(0);
        kinds.kinds
    }
}

const TEXTS: &[&str] = &["", "a", "0", "0.0.0.0", "0.0.0.0:1", "1970-01-01", "1970-01-01T00:00:00Z", "https://a.b"];
const BYTES: &[&[u8]] = &[&[], &[0], &[0; 4], &[0; 16], &[0; 32]];

/// The parts that are there, numbered in the order in which they are found.
struct Kinds {
    parts: Vec<Part>,
    kinds: Vec<Kind>,
    of_part: BTreeMap<PartId, KindId>,
    /// Those that have nothing in them, and need to be there once.
    plain: Vec<(Kind, KindId)>,
}

impl Kinds {
    fn kind(&mut self, part: PartId) -> KindId {
        let mut part = part;
        while let What::Same(first) = self.parts[part].what {
            part = first;
        }
        if let Some(known) = self.of_part.get(&part) {
            return *known;
        }
        let plain = match &self.parts[part].what {
            What::Plain(kind) => Some(kind.clone()),
            What::Opaque | What::Unknown | What::FieldName => Some(Kind::Opaque(self.parts[part].declared.clone())),
            _ => None,
        };
        if let Some((_, known)) = self.plain.iter().find(|(kind, _)| plain.as_ref() == Some(kind)) {
            return *known;
        }
        // More than a schema may have is refused by it.
        let id = KindId::try_from(self.kinds.len()).unwrap_or(KindId::MAX);
        self.of_part.insert(part, id);
        self.kinds.push(Kind::Unit);
        let kind = match plain {
            Some(kind) => {
                self.plain.push((kind.clone(), id));
                kind
            }
            None => self.composite(part),
        };
        self.kinds[usize::from(id)] = kind;
        id
    }

    fn composite(&mut self, part: PartId) -> Kind {
        match std::mem::replace(&mut self.parts[part].what, What::Unknown) {
            What::Option(some) => Kind::Option(self.kind(some)),
            What::List(element) => Kind::List(self.kind(element)),
            What::Map(key, value) => Kind::Map(self.kind(key), self.kind(value)),
            What::Tuple(places) => Kind::Tuple(places.into_iter().map(|place| self.kind(place)).collect()),
            What::End(end, messages) => {
                Kind::End(end, messages.into_iter().map(|message| self.kind(message)).collect())
            }
            What::Struct(this) => {
                let mut fields: Vec<(Option<Mark>, Field)> = Vec::new();
                for FieldPart { name, mark, part, required } in this.fields {
                    match fields.iter_mut().find(|(other, _)| *other == mark) {
                        // The name by which it was missed is its own.
                        Some((_, first)) if required == Some(true) => first.names.insert(0, name.to_owned()),
                        Some((_, first)) => first.names.push(name.to_owned()),
                        None => {
                            let kind = self.kind(part);
                            let field = Field { names: vec![name.to_owned()], kind, required: false };
                            fields.push((mark.clone(), field));
                        }
                    }
                    if required == Some(true)
                        && let Some((_, field)) = fields.iter_mut().find(|(other, _)| *other == mark)
                    {
                        field.required = true;
                    }
                }
                let fields = fields.into_iter().map(|(_, field)| field).collect();
                Kind::Struct { name: this.name.to_owned(), fields, closed: this.closed == Some(true) }
            }
            What::Enum(this) => {
                let mut variants: Vec<(Option<Mark>, Variant)> = Vec::new();
                for VariantPart { name, mark, content } in this.variants {
                    match variants.iter_mut().find(|(other, _)| *other == mark) {
                        Some((_, first)) => first.names.push(name.to_owned()),
                        None => {
                            let content = match content {
                                Content::Part(part) => Some(self.kind(part)),
                                Content::Unknown | Content::Nothing => None,
                            };
                            variants.push((mark, Variant { names: vec![name.to_owned()], content }));
                        }
                    }
                }
                let variants = variants.into_iter().map(|(_, variant)| variant).collect();
                Kind::Enum { name: this.name.to_owned(), variants, open: this.open == Some(true) }
            }
            What::Unknown | What::Same(_) | What::Plain(_) | What::FieldName | What::Opaque => Kind::Unit,
        }
    }
}

/// Why a pass ended.
#[derive(Debug)]
enum Halt {
    /// Something was learnt, or could not be.
    Here,
    /// A field was missed.
    Missing(&'static str),
}

impl fmt::Display for Halt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the type is only traced")
    }
}

impl std::error::Error for Halt {}

impl de::Error for Halt {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self::Here
    }

    fn missing_field(field: &'static str) -> Self {
        Self::Missing(field)
    }
}

/// Stands before a part of the type.
struct At<'t> {
    trace: &'t mut Trace,
    part: PartId,
    /// A value is needed.
    makes: bool,
}

impl At<'_> {
    fn plain<V>(self, kind: Kind) -> Result<V, Halt> {
        if self.trace.is_unknown(self.part) {
            self.trace.set(self.part, What::Plain(kind));
            self.trace.finish(self.part);
        }
        Err(Halt::Here)
    }

    /// For a value that is made up: which one.
    fn candidate(&mut self) -> usize {
        self.trace.made.push(self.part);
        self.trace.parts[self.part].candidate
    }

    /// The part itself, and not another place where it is met. It nests one deeper.
    fn resolve(&mut self) -> Result<(), Halt> {
        while let What::Same(first) = self.trace.parts[self.part].what {
            self.part = first;
        }
        self.trace.depth += 1;
        if self.trace.depth > DEPTH_MAX { Err(Halt::Here) } else { Ok(()) }
    }

    fn opaque<V>(self) -> Result<V, Halt> {
        if self.trace.is_unknown(self.part) {
            self.trace.make_opaque(self.part);
        }
        Err(Halt::Here)
    }

    fn struct_like<'de, V: Visitor<'de>>(
        mut self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Halt> {
        if self.makes {
            self.resolve()?;
            self.trace.made.push(self.part);
            let (trace, part) = (self.trace, self.part);
            let What::Struct(this) = &trace.parts[part].what else { return Err(Halt::Here) };
            let given = this.fields.iter().enumerate().filter(|(_, field)| field.required != Some(false));
            let given = this.leaders(given.map(|(at, _)| at));
            let value = visitor.visit_map(Fields { trace, part, given, at: None, sifts: true });
            return value.map_err(|_| Halt::Here);
        }
        let (trace, part) = (self.trace, self.part);
        if trace.is_unknown(part) {
            if is_adjacent(&visitor) {
                return At { trace, part, makes: false }.opaque();
            }
            if trace.is_met(part, type_name::<V>(), name, fields) {
                return Err(Halt::Here);
            }
            let of = |name: &&'static str| FieldPart { name, mark: None, part: 0, required: None };
            let mut fields: Vec<FieldPart> = fields.iter().map(of).collect();
            for field in &mut fields {
                field.part = trace.child(part, "");
            }
            trace.set(part, What::Struct(Struct { name, fields, closed: None, sifted: false }));
        }
        let What::Struct(this) = &trace.parts[part].what else { return Err(Halt::Here) };
        let open = |at: &usize| {
            let field = &this.fields[*at];
            field.mark.is_none() || (this.is_leader(*at) && !trace.is_done(field.part))
        };
        let (step, given) = match (0..this.fields.len()).find(open) {
            Some(at) => (Step::Name(at), vec![at]),
            None if this.closed.is_none() => (Step::Stranger, Vec::new()),
            None if !this.sifted => {
                let required = this.fields.iter().enumerate().filter(|(_, field)| field.required == Some(true));
                (Step::Sift, required.map(|(at, _)| at).collect())
            }
            None => {
                trace.finish(part);
                return Err(Halt::Here);
            }
        };
        trace.goal = Some((part, step));
        let result = match step {
            Step::Stranger => visitor.visit_map(Stranger { trace: &mut *trace, part }),
            _ => visitor.visit_map(Fields { trace: &mut *trace, part, given, at: None, sifts: step == Step::Sift }),
        };
        if step == Step::Sift
            && let What::Struct(this) = &mut trace.parts[part].what
        {
            match result {
                Ok(_) => {
                    this.fields.iter_mut().for_each(|field| _ = field.required.get_or_insert(false));
                    this.sifted = true;
                    trace.changes += 1;
                }
                Err(Halt::Missing(missed)) => {
                    let missed = this.fields.iter_mut().find(|field| field.name == missed && field.required.is_none());
                    if let Some(field) = missed {
                        field.required = Some(true);
                        trace.changes += 1;
                    }
                }
                Err(Halt::Here) => {}
            }
        }
        Err(Halt::Here)
    }

    fn tuple_like<'de, V: Visitor<'de>>(mut self, len: usize, visitor: V) -> Result<V::Value, Halt> {
        if self.makes {
            self.resolve()?;
            let What::Tuple(places) = &self.trace.parts[self.part].what else { return Err(Halt::Here) };
            let places = places.clone();
            return visitor.visit_seq(Places { trace: self.trace, places, at: 0, wanted: None });
        }
        let (trace, part) = (self.trace, self.part);
        if trace.is_unknown(part) {
            if len > PLACES_MAX {
                return At { trace, part, makes: false }.opaque();
            }
            let places = (0..len).map(|_| trace.child(part, "")).collect();
            trace.set(part, What::Tuple(places));
        }
        let What::Tuple(places) = &trace.parts[part].what else { return Err(Halt::Here) };
        let Some(wanted) = places.iter().position(|place| !trace.is_done(*place)) else {
            trace.finish(part);
            return Err(Halt::Here);
        };
        let places = places.clone();
        trace.goal = Some((part, Step::Place(wanted)));
        visitor.visit_seq(Places { trace, places, at: 0, wanted: Some(wanted) }).and(Err(Halt::Here))
    }

    fn end<'de, V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Halt> {
        if self.makes {
            self.resolve()?;
        } else if self.trace.is_unknown(self.part) && self.trace.is_met(self.part, type_name::<V>(), "", &[]) {
            return Err(Halt::Here);
        }
        visitor.visit_enum(EndAccess { trace: self.trace, part: self.part, makes: self.makes, message: None })
    }
}

impl Struct {
    /// Whether this is the first of the names of its field.
    fn is_leader(&self, at: usize) -> bool {
        let mark = &self.fields[at].mark;
        mark.is_none() || !self.fields[..at].iter().any(|field| field.mark == *mark)
    }

    /// One name for each of these fields.
    fn leaders(&self, names: impl Iterator<Item = usize>) -> Vec<usize> {
        names.filter(|at| self.is_leader(*at)).collect()
    }
}

/// Derived code says so of itself. Its content depends on what its tag says.
fn is_adjacent<'de, V: Visitor<'de>>(visitor: &V) -> bool {
    struct Expecting<'a, V>(&'a V);
    impl<'de, V: Visitor<'de>> fmt::Display for Expecting<'_, V> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.expecting(f)
        }
    }
    Expecting(visitor).to_string().starts_with("adjacently tagged")
}

macro_rules! numbers {
    ($($name:ident $visit:ident $kind:expr, $small:expr, $next:expr;)*) => { $(
        fn $name<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Halt> {
            if self.makes {
                return if self.candidate() == 0 { visitor.$visit($small) } else { visitor.$visit($next) };
            }
            self.plain($kind)
        }
    )* };
}

const fn int(signed: bool, bits: u8) -> Kind {
    Kind::Int { signed, bits }
}

impl<'de> Deserializer<'de> for At<'_> {
    type Error = Halt;

    numbers! {
        deserialize_bool visit_bool Kind::Bool, false, true;
        deserialize_u8 visit_u8 int(false, 8), 0, 1;
        deserialize_u16 visit_u16 int(false, 16), 0, 1;
        deserialize_u32 visit_u32 int(false, 32), 0, 1;
        deserialize_u64 visit_u64 int(false, 64), 0, 1;
        deserialize_u128 visit_u128 int(false, 128), 0, 1;
        deserialize_i8 visit_i8 int(true, 8), 0, 1;
        deserialize_i16 visit_i16 int(true, 16), 0, 1;
        deserialize_i32 visit_i32 int(true, 32), 0, 1;
        deserialize_i64 visit_i64 int(true, 64), 0, 1;
        deserialize_i128 visit_i128 int(true, 128), 0, 1;
        deserialize_f32 visit_f32 Kind::Float { bits: 32 }, 0.0, 1.0;
        deserialize_f64 visit_f64 Kind::Float { bits: 64 }, 0.0, 1.0;
        deserialize_char visit_char Kind::Char, 'a', 'a';
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Halt> {
        self.opaque()
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Halt> {
        self.opaque()
    }

    fn deserialize_str<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Halt> {
        if self.makes {
            let candidate = self.candidate();
            return visitor.visit_str(TEXTS[candidate]);
        }
        self.plain(Kind::Text)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Halt> {
        self.deserialize_str(visitor)
    }

    fn deserialize_bytes<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Halt> {
        if self.makes {
            let candidate = self.candidate();
            return visitor.visit_bytes(BYTES[candidate]);
        }
        self.plain(Kind::Bytes)
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Halt> {
        self.deserialize_bytes(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Halt> {
        if self.makes {
            return visitor.visit_none();
        }
        let Self { trace, part, .. } = self;
        if trace.is_unknown(part) {
            let declared = type_name::<V::Value>();
            let inside = declared.strip_prefix("core::option::Option<").and_then(|rest| rest.strip_suffix('>'));
            let some = trace.child(part, inside.unwrap_or(declared));
            trace.set(part, What::Option(some));
        }
        let What::Option(some) = trace.parts[part].what else { return Err(Halt::Here) };
        if trace.is_done(some) {
            trace.finish(part);
            return Err(Halt::Here);
        }
        trace.goal = Some((part, Step::Element));
        visitor.visit_some(At { trace, part: some, makes: false }).and(Err(Halt::Here))
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Halt> {
        if self.makes { visitor.visit_unit() } else { self.plain(Kind::Unit) }
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Halt> {
        self.deserialize_unit(visitor)
    }

    /// Both encodings write what is inside, and nothing of the struct.
    fn deserialize_newtype_struct<V: Visitor<'de>>(mut self, name: &'static str, visitor: V) -> Result<V::Value, Halt> {
        if END_NAMES.contains(&name) {
            return self.end(visitor);
        }
        if self.makes {
            self.resolve()?;
        } else if self.trace.is_unknown(self.part) && self.trace.is_met(self.part, type_name::<V>(), name, &[]) {
            return Err(Halt::Here);
        }
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Halt> {
        if self.makes {
            let count = self.candidate();
            let What::List(element) = self.trace.parts[self.part].what else { return Err(Halt::Here) };
            return visitor.visit_seq(Places { trace: self.trace, places: vec![element; count], at: 0, wanted: None });
        }
        let Self { trace, part, .. } = self;
        if trace.is_unknown(part) {
            let element = trace.child(part, "");
            trace.set(part, What::List(element));
        }
        let What::List(element) = trace.parts[part].what else { return Err(Halt::Here) };
        if trace.is_done(element) {
            trace.finish(part);
            return Err(Halt::Here);
        }
        trace.goal = Some((part, Step::Element));
        visitor.visit_seq(Places { trace, places: vec![element], at: 0, wanted: Some(0) }).and(Err(Halt::Here))
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Halt> {
        self.tuple_like(len, visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, Halt> {
        let is_new = !self.makes && self.trace.is_unknown(self.part);
        if is_new && self.trace.is_met(self.part, type_name::<V>(), name, &[]) {
            return Err(Halt::Here);
        }
        self.tuple_like(len, visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Halt> {
        if self.makes {
            return visitor.visit_map(Entries { trace: self.trace, part: self.part, step: None });
        }
        let Self { trace, part, .. } = self;
        if trace.is_unknown(part) {
            let (key, value) = (trace.child(part, ""), trace.child(part, ""));
            trace.set(part, What::Map(key, value));
        }
        let What::Map(key, value) = trace.parts[part].what else { return Err(Halt::Here) };
        let step = match (trace.is_done(key), trace.is_done(value)) {
            (false, _) => Step::Key,
            (true, false) => Step::Value,
            (true, true) => {
                trace.finish(part);
                return Err(Halt::Here);
            }
        };
        trace.goal = Some((part, step));
        visitor.visit_map(Entries { trace, part, step: Some(step) }).and(Err(Halt::Here))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Halt> {
        self.struct_like(name, fields, visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        mut self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Halt> {
        if self.makes {
            self.resolve()?;
            let candidate = self.candidate();
            let What::Enum(this) = &self.trace.parts[self.part].what else { return Err(Halt::Here) };
            // The simplest first: one without content ends the nesting.
            let mut order: Vec<usize> = (0..this.variants.len()).collect();
            order.sort_by_key(|at| this.variants[*at].content != Content::Nothing);
            let at = *order.get(candidate).ok_or(Halt::Here)?;
            return visitor.visit_enum(Variants { trace: self.trace, part: self.part, at: Some(at), makes: true });
        }
        let Self { trace, part, .. } = self;
        if trace.is_unknown(part) {
            if trace.is_met(part, type_name::<V>(), name, variants) {
                return Err(Halt::Here);
            }
            let of = |name: &&'static str| VariantPart { name, mark: None, content: Content::Unknown };
            let variants = variants.iter().map(of).collect();
            trace.set(part, What::Enum(Enum { name, variants, open: None }));
        }
        let What::Enum(this) = &trace.parts[part].what else { return Err(Halt::Here) };
        let open = |at: &usize| {
            let variant = &this.variants[*at];
            let is_known = match variant.content {
                Content::Unknown => false,
                Content::Nothing => true,
                Content::Part(content) => trace.is_done(content),
            };
            variant.mark.is_none() || (this.is_leader(*at) && !is_known)
        };
        let at = (0..this.variants.len()).find(open);
        if at.is_none() && this.open.is_some() {
            trace.finish(part);
            return Err(Halt::Here);
        }
        trace.goal = Some((part, at.map_or(Step::Stranger, Step::Name)));
        visitor.visit_enum(Variants { trace, part, at, makes: false }).and(Err(Halt::Here))
    }

    /// A key of a map that is a field's name.
    fn deserialize_identifier<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Halt> {
        if self.trace.is_unknown(self.part) {
            self.trace.set(self.part, What::FieldName);
            self.trace.finish(self.part);
        }
        Err(Halt::Here)
    }

    fn is_human_readable(&self) -> bool {
        // As neither encoding is.
        false
    }
}

impl Enum {
    fn is_leader(&self, at: usize) -> bool {
        let mark = &self.variants[at].mark;
        mark.is_none() || !self.variants[..at].iter().any(|variant| variant.mark == *mark)
    }
}

/// A name that no field and no variant has.
const STRANGER: &str = "\u{1}dunlin";

/// Gives a name, and hears whether it was asked for as one.
struct Name<'a> {
    name: &'static str,
    as_name: &'a Cell<bool>,
}

impl<'de> Deserializer<'de> for Name<'_> {
    type Error = Halt;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Halt> {
        visitor.visit_str(self.name)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Halt> {
        self.as_name.set(true);
        visitor.visit_str(self.name)
    }

    fn is_human_readable(&self) -> bool {
        false
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct newtype_struct
        seq tuple tuple_struct map struct enum ignored_any
    }
}

/// Gives the type this name.
fn give<'de, S: DeserializeSeed<'de>>(name: &'static str, at: usize, seed: S) -> Result<(S::Value, Mark), Halt> {
    let as_name = Cell::new(false);
    let value = seed.deserialize(Name { name, as_name: &as_name })?;
    let mark = if as_name.get() { Mark::Found(format!("{:?}", discriminant(&value))) } else { Mark::Only(at) };
    Ok((value, mark))
}

/// Gives fields of a struct.
struct Fields<'t> {
    trace: &'t mut Trace,
    part: PartId,
    /// Those that are given, by number.
    given: Vec<usize>,
    /// The one whose value comes now.
    at: Option<usize>,
    /// All get values; else the one that is given is looked at.
    sifts: bool,
}

impl Fields<'_> {
    fn this(&mut self) -> Result<&mut Struct, Halt> {
        match &mut self.trace.parts[self.part].what {
            What::Struct(this) => Ok(this),
            _ => Err(Halt::Here),
        }
    }
}

impl<'de> de::MapAccess<'de> for Fields<'_> {
    type Error = Halt;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Halt> {
        if self.given.is_empty() {
            return Ok(None);
        }
        let at = self.given.remove(0);
        self.at = Some(at);
        let name = self.this()?.fields[at].name;
        let (value, mark) = give(name, at, seed)?;
        let field = &mut self.this()?.fields[at];
        if field.mark.is_none() {
            field.mark = Some(mark);
            self.trace.changes += 1;
        }
        Ok(Some(value))
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Halt> {
        let at = self.at.take().ok_or(Halt::Here)?;
        let sifts = self.sifts;
        let this = self.this()?;
        let part = this.fields[at].part;
        if !sifts && !this.is_leader(at) {
            return Err(Halt::Here);
        }
        let trace = &mut *self.trace;
        if sifts {
            let depth = trace.depth;
            let value = seed.deserialize(At { trace: &mut *trace, part, makes: true }).map_err(|_| Halt::Here)?;
            trace.depth = depth;
            return Ok(value);
        }
        trace.parts[part].declared = declared_name(type_name::<S::Value>());
        seed.deserialize(At { trace, part, makes: false }).and(Err(Halt::Here))
    }
}

/// Gives a field that the struct does not have.
struct Stranger<'t> {
    trace: &'t mut Trace,
    part: PartId,
}

impl<'de> de::MapAccess<'de> for Stranger<'_> {
    type Error = Halt;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Halt> {
        let given = give(STRANGER, 0, seed);
        if let What::Struct(this) = &mut self.trace.parts[self.part].what {
            // What it does with it is not looked at.
            this.closed = Some(given.is_err());
            self.trace.changes += 1;
        }
        Err(Halt::Here)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, _: S) -> Result<S::Value, Halt> {
        Err(Halt::Here)
    }
}

/// Gives elements of a tuple or a list.
struct Places<'t> {
    trace: &'t mut Trace,
    places: Vec<PartId>,
    at: usize,
    /// The one that is looked at. `None`: all get values.
    wanted: Option<usize>,
}

impl<'de> de::SeqAccess<'de> for Places<'_> {
    type Error = Halt;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Halt> {
        let Some(part) = self.places.get(self.at).copied() else { return Ok(None) };
        let makes = self.wanted != Some(self.at);
        self.at += 1;
        let trace = &mut *self.trace;
        if makes {
            let depth = trace.depth;
            let value = seed.deserialize(At { trace: &mut *trace, part, makes }).map_err(|_| Halt::Here)?;
            trace.depth = depth;
            return Ok(Some(value));
        }
        trace.parts[part].declared = declared_name(type_name::<S::Value>());
        seed.deserialize(At { trace, part, makes }).and(Err(Halt::Here))
    }
}

/// Gives an entry of a map, or none.
struct Entries<'t> {
    trace: &'t mut Trace,
    part: PartId,
    /// `None`: the map is empty.
    step: Option<Step>,
}

impl<'de> de::MapAccess<'de> for Entries<'_> {
    type Error = Halt;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Halt> {
        let Some(step) = self.step else { return Ok(None) };
        let (trace, part) = (&mut *self.trace, self.part);
        let What::Map(key, _) = trace.parts[part].what else { return Err(Halt::Here) };
        if step == Step::Value {
            return seed.deserialize(At { trace, part: key, makes: true }).map(Some).map_err(|_| Halt::Here);
        }
        trace.parts[key].declared = declared_name(type_name::<K::Value>());
        let _ = seed.deserialize(At { trace: &mut *trace, part: key, makes: false });
        if matches!(trace.parts[key].what, What::FieldName) {
            trace.make_opaque(part);
        }
        Err(Halt::Here)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Halt> {
        let What::Map(_, value) = self.trace.parts[self.part].what else { return Err(Halt::Here) };
        self.trace.parts[value].declared = declared_name(type_name::<S::Value>());
        seed.deserialize(At { trace: self.trace, part: value, makes: false }).and(Err(Halt::Here))
    }
}

/// Gives a variant of an enum, and then its content.
struct Variants<'t> {
    trace: &'t mut Trace,
    part: PartId,
    /// `None`: one that it does not have.
    at: Option<usize>,
    makes: bool,
}

impl<'t> Variants<'t> {
    fn this(&mut self) -> Result<&mut Enum, Halt> {
        match &mut self.trace.parts[self.part].what {
            What::Enum(this) => Ok(this),
            _ => Err(Halt::Here),
        }
    }

    /// The variant has this.
    fn content(&mut self, declared: &str) -> Result<PartId, Halt> {
        let at = self.at.ok_or(Halt::Here)?;
        if let Content::Part(part) = self.this()?.variants[at].content {
            return Ok(part);
        }
        let part = self.trace.child(self.part, declared);
        self.this()?.variants[at].content = Content::Part(part);
        self.trace.changes += 1;
        Ok(part)
    }

    fn into_at(mut self, declared: &str) -> Result<At<'t>, Halt> {
        let part = self.content(declared)?;
        Ok(At { trace: self.trace, part, makes: self.makes })
    }
}

impl<'de> de::EnumAccess<'de> for Variants<'_> {
    type Error = Halt;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(mut self, seed: S) -> Result<(S::Value, Self), Halt> {
        let Some(at) = self.at else {
            let is_read = give(STRANGER, 0, seed).is_ok();
            self.this()?.open = Some(is_read);
            self.trace.changes += 1;
            return Err(Halt::Here);
        };
        let name = self.this()?.variants[at].name;
        let (value, mark) = give(name, at, seed)?;
        let variant = &mut self.this()?.variants[at];
        if variant.mark.is_none() {
            variant.mark = Some(mark);
            self.trace.changes += 1;
        }
        if !self.makes && !self.this()?.is_leader(at) {
            return Err(Halt::Here);
        }
        Ok((value, self))
    }
}

impl<'de> de::VariantAccess<'de> for Variants<'_> {
    type Error = Halt;

    fn unit_variant(mut self) -> Result<(), Halt> {
        if self.makes {
            return Ok(());
        }
        let at = self.at.ok_or(Halt::Here)?;
        self.this()?.variants[at].content = Content::Nothing;
        self.trace.changes += 1;
        Err(Halt::Here)
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Halt> {
        seed.deserialize(self.into_at(type_name::<S::Value>())?)
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Halt> {
        self.into_at("")?.tuple_like(len, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        mut self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Halt> {
        let at = self.at.ok_or(Halt::Here)?;
        let name = self.this()?.variants[at].name;
        self.into_at("")?.struct_like(name, fields, visitor)
    }
}

/// The names of the newtype structs that are ends.
const END_NAMES: [&str; 9] = [
    CoreEnd::Sender { may_poison: true }.name(),
    CoreEnd::Receiver { may_poison: true }.name(),
    CoreEnd::Shared.name(),
    CoreEnd::Barrier.name(),
    CoreEnd::Broadcast.name(),
    CoreEnd::Joiner { may_poison: true }.name(),
    CoreEnd::Caller.name(),
    CoreEnd::Callee.name(),
    CoreEnd::Reply.name(),
];

/// Asks an end what it carries: see `EndKind::label` of the core.
struct EndAccess<'t> {
    trace: &'t mut Trace,
    part: PartId,
    makes: bool,
    /// What is looked at.
    message: Option<PartId>,
}

impl<'de> de::EnumAccess<'de> for EndAccess<'_> {
    type Error = Halt;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(mut self, seed: S) -> Result<(S::Value, Self), Halt> {
        let which = seed.deserialize(WhichMessage(&mut self))?;
        Ok((which, self))
    }
}

struct WhichMessage<'a, 't>(&'a mut EndAccess<'t>);

impl<'de> Deserializer<'de> for WhichMessage<'_, '_> {
    type Error = Halt;

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        label: &'static str,
        messages: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Halt> {
        let access = self.0;
        if access.makes {
            return visitor.visit_u32(CoreEnd::NOTHING);
        }
        let (trace, part) = (&mut *access.trace, access.part);
        if trace.is_unknown(part) {
            let end = EndKind::ALL.into_iter().find(|end| end.word() == label).ok_or(Halt::Here)?;
            let messages = messages.iter().map(|_| trace.child(part, "")).collect();
            trace.set(part, What::End(end, messages));
        }
        let What::End(_, messages) = &trace.parts[part].what else { return Err(Halt::Here) };
        let Some(at) = messages.iter().position(|message| !trace.is_done(*message)) else {
            trace.finish(part);
            return Err(Halt::Here);
        };
        access.message = Some(messages[at]);
        trace.goal = Some((part, Step::Place(at)));
        visitor.visit_u32(at as u32)
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Halt> {
        Err(Halt::Here)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct newtype_struct
        seq tuple tuple_struct map struct identifier ignored_any
    }
}

impl<'de> de::VariantAccess<'de> for EndAccess<'_> {
    type Error = Halt;

    fn unit_variant(self) -> Result<(), Halt> {
        if self.makes { Ok(()) } else { Err(Halt::Here) }
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Halt> {
        let part = self.message.ok_or(Halt::Here)?;
        let declared = type_name::<S::Value>();
        self.trace.parts[part].declared = declared_name(declared);
        // As the codec has it: these are not encoded.
        if declared == type_name::<Bytes>() || declared == type_name::<Vec<u8>>() {
            return At { trace: self.trace, part, makes: false }.plain(Kind::Raw);
        }
        seed.deserialize(At { trace: self.trace, part, makes: false }).and(Err(Halt::Here))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, Halt> {
        Err(Halt::Here)
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], _: V) -> Result<V::Value, Halt> {
        Err(Halt::Here)
    }
}
