//! Derives the kinds of a type by observing what its [`Deserialize`](serde::Deserialize) requests.
//!
//! A `Deserialize` requests what it expects, step by step. The tracer calls it repeatedly: each pass follows
//! one path to a part that is not known yet, notes the request there, and ends with an error. It leads a
//! struct to its fields one by one, since that needs no other field, and an enum to its variants. It makes up
//! a value only where the type does not continue without one: for the places of a tuple before the one of
//! interest, and for the required fields of a struct, to find out which others may be missing.
//!
//! It also learns by trial: which names are one field (`alias`), whether the type refuses unknown fields
//! (`deny_unknown_fields`), whether it accepts an unknown variant (`other`). A type that must inspect the
//! bytes (`untagged`, internally and adjacently tagged, `flatten`) is opaque.
//!
//! After serde-reflection (Diem), which needs sample values for a type that validates; this tracer rarely
//! needs them.

#[cfg(test)]
mod tests;

use std::any::{TypeId, type_name};
use std::cell::Cell;
use std::fmt;
use std::mem::{discriminant, take};
use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use dunlin_core::carrier::EndKind as CoreEnd;
use dunlin_sorted::SortedMap;
use serde::Deserializer;
use serde::de::{self, DeserializeOwned, DeserializeSeed, Visitor};

use crate::kinds::{Coding, EndKind, Field, Kind, KindId, Schema, Variant};
use crate::limits;

/// The most passes; a type that needs more is opaque.
const PASSES_MAX: usize = 1 << 14;
/// How deep types and made-up values may nest.
const DEPTH_MAX: usize = 96;
/// The most places of a tuple. A longer one is an array, and opaque: its name has its type and length.
const PLACES_MAX: usize = 64;

impl Schema {
    /// Derives the schema of messages of type `T`, in this encoding, from its `Deserialize`.
    ///
    /// `Bytes` and `Vec<u8>` are not encoded: their [coding](Schema::coding) is [`Coding::Bytes`]. A type
    /// that has too many parts, or too long a name, is [opaque](Kind::Opaque) as a whole.
    ///
    /// This calls `T::deserialize` many times, at most 16,384. It catches a panic in `T::deserialize`, where
    /// panics unwind.
    ///
    /// # Examples
    /// ```
    /// use dunlin_schema::{Coding, Kind, Schema};
    ///
    /// #[derive(serde::Deserialize)]
    /// struct Penguin {
    ///     name: String,
    ///     weight_kg: Option<f32>,
    /// }
    ///
    /// let schema = Schema::of::<Penguin>(Coding::Cbor);
    /// assert_eq!(schema.kinds()[1..], [Kind::Text, Kind::Option(3), Kind::Float { bits: 32 }]);
    /// let Kind::Struct { name, fields, .. } = &schema.kinds()[0] else { panic!("not a struct") };
    /// assert_eq!((&**name, fields.len()), ("Penguin", 2));
    /// assert!(fields[0].required && !fields[1].required, "an `Option` may be missing");
    /// ```
    ///
    /// # Source
    /// serde-reflection (Diem).
    pub fn of<T: DeserializeOwned + 'static>(coding: Coding) -> Self {
        let id = TypeId::of::<T>();
        if id == TypeId::of::<Bytes>() || id == TypeId::of::<Vec<u8>>() {
            return Self::of_bytes();
        }
        let traced = Self::new(coding, trace::<T>());
        if let Ok(schema) = traced
            && schema.encode().is_ok()
        {
            return schema;
        }
        let opaque = Kind::Opaque(declared_name(type_name::<T>()));
        Self::new(coding, vec![opaque]).expect("a name that is cut to its limit")
    }
}

/// The kinds of a type, the first of which is the type itself.
fn trace<T: DeserializeOwned>() -> Vec<Kind> {
    let mut trace = Trace::default();
    trace.part(type_name::<T>(), 0);
    for _ in 0..PASSES_MAX {
        if trace.parts[0].done {
            return trace.into_kinds();
        }
        let before = trace.changes;
        (trace.goal, trace.depth) = (None, 0);
        trace.made.clear();
        pass::<T>(&mut trace);
        if trace.changes == before {
            trace.give_up();
        }
    }
    trace.make_opaque(0);
    trace.into_kinds()
}

/// Follows one path. Whatever the type returns, the trace keeps what the pass has learnt.
fn pass<T: DeserializeOwned>(trace: &mut Trace) {
    // The type may panic over a made-up value. Only the type's code panics, and the trace is consistent
    // whenever that code runs.
    let read = || drop(T::deserialize(At { trace, part: 0, makes: false }));
    if let Err(panic) = catch_unwind(AssertUnwindSafe(read)) {
        // Dropping the payload runs code of the type's author, which may panic again; that payload is leaked.
        if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
            std::mem::forget(again);
        }
    }
}

/// The name of a type without the paths of its modules: `Vec<Order>`.
fn declared_name(name: &str) -> String {
    let mut short = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        match rest.strip_prefix("::") {
            Some(behind) => {
                let kept = short.trim_end_matches(|c: char| c.is_alphanumeric() || c == '_').len();
                short.truncate(kept);
                rest = behind;
            }
            None => {
                short.push(c);
                rest = &rest[c.len_utf8()..];
            }
        }
    }
    while short.len() > limits::NAME {
        short.pop();
    }
    short
}

/// The number of a part in the trace.
type PartId = usize;

/// What is known of one part of the type.
struct Part {
    /// Its name in Rust.
    declared: String,
    depth: usize,
    what: What,
    /// Whether all of it is known.
    done: bool,
    /// Which of the values that can be made up for it to try next.
    candidate: usize,
}

enum What {
    Unknown,
    /// The same as a part that the tracer met before.
    Same(PartId),
    Plain(Kind),
    Option(PartId),
    List(PartId),
    Map(PartId, PartId),
    Tuple(Vec<PartId>),
    Struct(Struct),
    Enum(Enum),
    End(EndKind, Vec<PartId>),
    /// The name of a field, requested as the key of a map: the struct has flattened fields.
    FieldName,
    Opaque,
}

struct Struct {
    name: &'static str,
    fields: Vec<FieldPart>,
    closed: Option<bool>,
    /// Whether the required fields are known, or cannot be determined.
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

/// What the type makes of a name: two names with the same mark are one field. A derived type makes a variant
/// of a private enum, identified by its discriminant.
#[derive(Clone, PartialEq, Eq)]
enum Mark {
    Found(String),
    /// The type did not request it as a name, so the mark is unique.
    Only(usize),
}

/// Where the pass leads within a part.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The field or variant of this number.
    Name(usize),
    /// A name that the type does not have.
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
    /// The types that the tracer has met, by their visitors.
    met: SortedMap<(&'static str, &'static str, &'static [&'static str]), PartId>,
    changes: u64,
    /// What the last pass led to.
    goal: Option<(PartId, Step)>,
    /// The parts for which the last pass made up values.
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

    /// A new part of this part.
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

    /// Whether the tracer has met this type before. If so, the part is the same as that one.
    fn is_met(
        &mut self,
        part: PartId,
        reader: &'static str,
        name: &'static str,
        names: &'static [&'static str],
    ) -> bool {
        let first = *self.met.get_or_insert_with((reader, name, names), || part);
        if first != part {
            self.set(part, What::Same(first));
            self.finish(part);
        }
        first != part
    }

    /// The pass has learnt nothing. Another made-up value may help; otherwise the part that it led to is
    /// opaque.
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
        // The pass did not reach the place: no value can be made up for a place before it.
        let is_reached = !self.parts[opaque].declared.is_empty();
        self.make_opaque(if is_reached && !self.is_done(opaque) { opaque } else { part });
    }

    /// How many values can be made up for the part.
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
        let mut kinds = Kinds { parts: self.parts, kinds: Vec::new(), of_part: SortedMap::new(), plain: Vec::new() };
        kinds.kind(0);
        kinds.kinds
    }
}

const TEXTS: &[&str] = &["", "a", "0", "0.0.0.0", "0.0.0.0:1", "1970-01-01", "1970-01-01T00:00:00Z", "https://a.b"];
const BYTES: &[&[u8]] = &[&[], &[0], &[0; 4], &[0; 16], &[0; 32]];

/// Numbers the parts of a type in the order in which they are found.
struct Kinds {
    parts: Vec<Part>,
    kinds: Vec<Kind>,
    of_part: SortedMap<PartId, KindId>,
    /// The kinds without content, each of which is needed once.
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
        // `Schema::new` refuses so large a number of kinds.
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
                        // The name in the error is the field's name; the others are aliases.
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
    /// The pass has reached its end, or cannot continue.
    Here,
    /// The type misses this field.
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

/// The deserializer of one part of the type.
struct At<'t> {
    trace: &'t mut Trace,
    part: PartId,
    /// Whether to make up a value and learn nothing.
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

    /// Which value to make up.
    fn candidate(&mut self) -> usize {
        self.trace.made.push(self.part);
        self.trace.parts[self.part].candidate
    }

    /// Moves from a place where the type occurs again to the part itself, one level deeper.
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

/// Whether this is an adjacently tagged enum, whose content depends on its tag. The visitor of derived code
/// has that name.
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

    /// Both encodings write only the content of a newtype struct.
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
            // Variants without content first: they end the nesting.
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

    /// The key of a map is the name of a field.
    fn deserialize_identifier<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Halt> {
        if self.trace.is_unknown(self.part) {
            self.trace.set(self.part, What::FieldName);
            self.trace.finish(self.part);
        }
        Err(Halt::Here)
    }

    fn is_human_readable(&self) -> bool {
        // Neither encoding is human-readable.
        false
    }
}

impl Enum {
    fn is_leader(&self, at: usize) -> bool {
        let mark = &self.variants[at].mark;
        mark.is_none() || !self.variants[..at].iter().any(|variant| variant.mark == *mark)
    }
}

/// A name that no field or variant has.
const STRANGER: &str = "\u{1}dunlin";

/// Gives a name to the type, and records whether the type requests it as a name.
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

/// Gives a name to the type.
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
    /// The numbers of the fields that are still to be given.
    given: Vec<usize>,
    /// The field whose value comes next.
    at: Option<usize>,
    /// Whether all fields get made-up values. Otherwise the given field is traced.
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
            // An unknown field that is accepted is ignored, so its value is not traced.
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
    /// The place that is traced. `None`: all places get made-up values.
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
    /// `None`: a variant that the enum does not have.
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

    /// The part that is the content of the variant.
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
const END_NAMES: [&str; 10] = [
    CoreEnd::Sender { may_poison: true }.name(),
    CoreEnd::Receiver { may_poison: true }.name(),
    CoreEnd::Shared.name(),
    CoreEnd::Barrier.name(),
    CoreEnd::Broadcast.name(),
    CoreEnd::Joiner { may_poison: true }.name(),
    CoreEnd::Caller.name(),
    CoreEnd::Callee.name(),
    CoreEnd::Reply.name(),
    ADDRESS,
];

/// The name of the newtype struct that is the address of a mailbox. It declares what it carries as ends do.
pub const ADDRESS: &str = "dunlin::Address";

/// Makes an end declare what it carries, as `EndKind::label` of the core describes it.
struct EndAccess<'t> {
    trace: &'t mut Trace,
    part: PartId,
    makes: bool,
    /// The message that is traced.
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
        // As in `Schema::of`. The seed does not show whether the type is `'static`, so there is no `TypeId`.
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
