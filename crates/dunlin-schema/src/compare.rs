//! Whether one side can read what the other side writes.
//!
//! In CBOR this is exactly what dunlin's decoder and serde accept: a number may become wider, a value may
//! become an `Option` of it, a tuple a list. An unknown field is ignored unless its struct refuses unknown
//! fields, and a field may be missing if the reader does not require it. An unknown variant is a difference.
//! In postcard both sides need the same names and kinds in the same order; the reader may have more variants
//! after those of the writer. The ends of a bundle are numbered, so both encodings need them in the same
//! order.
//!
//! The holder of a sender in a message writes what that sender carries, and may have received the sender from
//! the side that reads there. So the comparison changes direction at such an end.

use std::fmt;

use dunlin_sorted::{SortedMap, SortedSet};

use crate::kinds::{Coding, EndKind, Field, Kind, KindId, Schema, Variant};
use crate::limits;

/// How many bytes of a schema the decoder decodes in about the time of one step.
const BYTES_EACH: usize = 16;

/// How many characters of a path are shown, from its end.
const PATH_MAX: usize = 200;

/// The first difference between two schemas, as text for people.
///
/// It is displayed as "`Order.items[].price`: u32 there, text here".
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Difference {
    /// Where it is: `Order.items[].price`. Empty if it concerns the whole message.
    pub path: String,
    /// What the other side has in that place.
    pub there: String,
    /// What this side has in that place.
    pub here: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, there, here } = self;
        if !path.is_empty() {
            write!(f, "`{path}`: ")?;
        }
        write!(f, "{there} there, {here} here")
    }
}

/// How two schemas are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sides {
    /// Whether this side writes the messages, and the other side reads them.
    pub here_writes: bool,
    /// Whether the schemas describe the ends of a bundle, which every encoding identifies by their places.
    pub is_face: bool,
}

/// Compares what two sides declare about their messages.
///
/// # Errors
/// The first [`Difference`] that keeps the reader from reading something that the writer may write, or an
/// error that the comparison takes more than [`limits::STEPS`].
pub fn compare(here: &Schema, there: &Schema, sides: Sides) -> Result<(), Difference> {
    compare_within(here, there, sides, &mut { limits::STEPS })
}

/// Compares [encoded](Schema::encode) schemas, and subtracts the steps from `steps_left`.
///
/// A schema in a later version of the format is compatible with every other one: an incompatible message
/// fails when it is read.
///
/// # Errors
/// As [`compare`]; an error that one of the two is not a schema; or that the comparison takes more than
/// `steps_left`, which is then zero.
pub fn compare_encoded(here: &[u8], there: &[u8], sides: Sides, steps_left: &mut usize) -> Result<(), Difference> {
    if *steps_left == 0 {
        return Err(takes_too_long());
    }
    *steps_left = steps_left.saturating_sub((here.len() + there.len()) / BYTES_EACH);
    let (ours, theirs) = match (Schema::decode(here), Schema::decode(there)) {
        (Ok(Some(ours)), Ok(Some(theirs))) => (ours, theirs),
        (Ok(None), _) | (_, Ok(None)) => return Ok(()),
        (ours, theirs) => {
            let text = |said: Result<_, _>| said.map_or_else(|why| format!("no schema ({why})"), |_| "a schema".into());
            return Err(Difference { path: String::new(), there: text(theirs), here: text(ours) });
        }
    };
    compare_within(&ours, &theirs, sides, steps_left)
}

/// The comparison ends without a result.
fn takes_too_long() -> Difference {
    let (there, here) = ("a schema that takes too long to compare".into(), "another one".into());
    Difference { path: String::new(), there, here }
}

fn compare_within(here: &Schema, there: &Schema, sides: Sides, steps_left: &mut usize) -> Result<(), Difference> {
    let Sides { here_writes, is_face } = sides;
    if here.coding() != there.coding() {
        let word = |coding| match coding {
            Coding::Bytes => "bytes that are not encoded",
            Coding::Cbor => "messages in cbor",
            Coding::Compact => "compact messages",
        };
        let (there, here) = (word(there.coding()).into(), word(here.coding()).into());
        return Err(Difference { path: String::new(), there, here });
    }
    let strict = is_face || here.coding() == Coding::Compact;
    let root = Pair { here: 0, there: 0, here_writes, strict };
    let mut comparison = Comparison { here, there, met: SortedSet::new(), visits: Vec::new(), steps_left };
    comparison.push(root, 0, Segment::Root);
    let mut next = 0;
    while next < comparison.visits.len() {
        comparison.visit(next)?;
        next += 1;
    }
    Ok(())
}

/// One kind of each side, which one side writes and the other side reads.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Pair {
    here: KindId,
    there: KindId,
    here_writes: bool,
    /// Both must be the same.
    strict: bool,
}

/// How the comparison reached a pair from the one before it.
#[derive(Clone)]
enum Segment {
    Root,
    Field(String),
    Variant(String),
    Place(usize),
    Element,
    Key,
    Value,
    Message(&'static str),
    /// An `Option` or its content.
    Same,
}

struct Visit {
    pair: Pair,
    from: usize,
    segment: Segment,
}

struct Comparison<'a> {
    here: &'a Schema,
    there: &'a Schema,
    met: SortedSet<Pair>,
    /// A queue, so that the comparison finds the nearest difference.
    visits: Vec<Visit>,
    steps_left: &'a mut usize,
}

/// What the writer has, and what the reader has in its place.
struct Both<'a> {
    written: &'a Kind,
    read: &'a Kind,
    reader: &'a Schema,
}

type Unlike = (Segment, String, String);

impl Comparison<'_> {
    fn push(&mut self, pair: Pair, from: usize, segment: Segment) {
        if self.met.insert(pair) {
            self.visits.push(Visit { pair, from, segment });
        }
    }

    fn visit(&mut self, at: usize) -> Result<(), Difference> {
        let pair = self.visits[at].pair;
        let (here, there) = (self.here.kind(pair.here), self.there.kind(pair.there));
        let sides = if pair.here_writes {
            Both { written: here, read: there, reader: self.there }
        } else {
            Both { written: there, read: here, reader: self.here }
        };
        let Some(left) = self.steps_left.checked_sub(1 + size(here) + size(there)) else {
            *self.steps_left = 0;
            return Err(takes_too_long());
        };
        *self.steps_left = left;
        let mut next = Vec::new();
        let found = if pair.strict { same(&sides, &mut next) } else { readable(&sides, &mut next) };
        if let Err((segment, written, read)) = found {
            let (here, there) = if pair.here_writes { (written, read) } else { (read, written) };
            return Err(Difference { path: self.path(at, &segment), there, here });
        }
        let is_end = matches!(here, Kind::End(..));
        let strict = if is_end { self.here.coding() == Coding::Compact } else { pair.strict };
        for (written, read, turned, segment) in next {
            let (written, read) = match written {
                Follow::Own => (if pair.here_writes { pair.here } else { pair.there }, read),
                Follow::Kind(written) => (written, read),
            };
            let (here, there) = if pair.here_writes { (written, read) } else { (read, written) };
            let pair = Pair { here, there, here_writes: pair.here_writes != turned, strict };
            self.push(pair, at, segment);
        }
        Ok(())
    }

    /// The path to this place, in the names of this side.
    fn path(&self, at: usize, last: &Segment) -> String {
        let mut segments = vec![last.clone()];
        let mut at = at;
        loop {
            let visit = &self.visits[at];
            segments.push(visit.segment.clone());
            if at == 0 {
                break;
            }
            at = visit.from;
        }
        let mut path = match self.here.kind(0) {
            Kind::Struct { name, .. } | Kind::Enum { name, .. } | Kind::Opaque(name) => clean(name),
            _ => String::new(),
        };
        for segment in segments.iter().rev() {
            let name = match segment {
                Segment::Root | Segment::Same => continue,
                Segment::Element => {
                    path.push_str("[]");
                    continue;
                }
                Segment::Field(name) | Segment::Variant(name) => clean(name),
                Segment::Place(place) => place.to_string(),
                Segment::Key => "(key)".into(),
                Segment::Value => "(value)".into(),
                Segment::Message(name) => (*name).into(),
            };
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(&name);
        }
        let length = path.chars().count();
        if length > PATH_MAX {
            path = std::iter::once('…').chain(path.chars().skip(length - PATH_MAX)).collect();
        }
        path
    }
}

/// What the writer has next.
enum Follow {
    Kind(KindId),
    /// The same kind once more.
    Own,
}

/// What to compare next: the writer's kind, the reader's, whether the two change places, and the path
/// segment.
type Next = Vec<(Follow, KindId, bool, Segment)>;

fn follow(next: &mut Next, written: KindId, read: KindId, segment: Segment) {
    next.push((Follow::Kind(written), read, false, segment));
}

fn unlike(sides: &Both<'_>) -> Result<(), Unlike> {
    Err((Segment::Same, describe(sides.written), describe(sides.read)))
}

/// Whether both are the same, except for what they carry.
fn same(sides: &Both<'_>, next: &mut Next) -> Result<(), Unlike> {
    match (sides.written, sides.read) {
        (Kind::Option(written), Kind::Option(read)) => follow(next, *written, *read, Segment::Same),
        (Kind::List(written), Kind::List(read)) => follow(next, *written, *read, Segment::Element),
        (Kind::Map(..), Kind::Map(..)) => both_maps(sides, next),
        (Kind::Tuple(written), Kind::Tuple(read)) => return tuples(sides, written, read, next),
        (Kind::Struct { fields: written, .. }, Kind::Struct { fields: read, .. }) => {
            for (place, field) in written.iter().enumerate() {
                let there = read.get(place);
                if there.is_none_or(|there| !shares(&field.names, &there.names)) {
                    let read = there.map_or_else(|| "none".into(), |there| named("field", &there.names));
                    return Err((Segment::Place(place), named("field", &field.names), read));
                }
            }
            if let Some(field) = read.get(written.len()) {
                return Err((Segment::Place(written.len()), "none".into(), named("field", &field.names)));
            }
            let pairs = written.iter().zip(read);
            pairs.for_each(|(written, read)| follow(next, written.kind, read.kind, Segment::Field(first(&read.names))));
        }
        (Kind::Enum { variants: written, .. }, Kind::Enum { variants: read, .. }) => {
            for (place, variant) in written.iter().enumerate() {
                match read.get(place) {
                    Some(there) if shares(&variant.names, &there.names) => contents(variant, there, next)?,
                    there => {
                        let read = there.map_or_else(|| "none".into(), |there| named("variant", &there.names));
                        return Err((Segment::Place(place), named("variant", &variant.names), read));
                    }
                }
            }
        }
        (Kind::End(written, carried), Kind::End(read, wanted)) if written == read => {
            ends(*written, carried, wanted, next);
        }
        (Kind::Opaque(written), Kind::Opaque(read)) if written == read => {}
        (written, read) if is_plain(written) && written == read => {}
        _ => return unlike(sides),
    }
    Ok(())
}

/// Whether the reader's decoder and serde read what is written in CBOR.
fn readable(sides: &Both<'_>, next: &mut Next) -> Result<(), Unlike> {
    match (sides.written, sides.read) {
        (Kind::Option(written), Kind::Option(read)) => follow(next, *written, *read, Segment::Same),
        // A present value is written without a wrapper.
        (_, Kind::Option(read)) => next.push((Follow::Own, *read, false, Segment::Same)),
        (Kind::Int { signed, bits }, Kind::Int { signed: signed_there, bits: bits_there }) => {
            let fits = match (signed, signed_there) {
                (true, false) => false,
                (false, true) => bits < bits_there,
                _ => bits <= bits_there,
            };
            if !fits {
                return unlike(sides);
            }
        }
        (Kind::Char, Kind::Text) => {}
        // A variant without content is written as its name.
        (Kind::Enum { variants, .. }, Kind::Text)
        | (Kind::Text | Kind::Char, Kind::Enum { variants, open: true, .. })
            if variants.iter().all(|variant| variant.content.is_none()) => {}
        // A unit is written as an empty list.
        (Kind::Unit, Kind::List(_)) => {}
        (Kind::Unit, Kind::Tuple(places)) | (Kind::Tuple(places), Kind::Unit) if places.is_empty() => {}
        (Kind::List(written), Kind::List(read)) => follow(next, *written, *read, Segment::Element),
        (Kind::Tuple(places), Kind::List(read)) => {
            places.iter().enumerate().for_each(|(place, written)| follow(next, *written, *read, Segment::Place(place)));
        }
        (Kind::Tuple(written), Kind::Tuple(read)) => return tuples(sides, written, read, next),
        (Kind::Map(..), Kind::Map(..)) => both_maps(sides, next),
        (Kind::Struct { fields, .. }, Kind::Map(key, value)) if *sides.reader.kind(*key) == Kind::Text => {
            fields.iter().for_each(|field| follow(next, field.kind, *value, Segment::Field(first(&field.names))));
        }
        (Kind::Struct { fields: written, .. }, Kind::Struct { fields: read, closed, .. }) => {
            return structs(written, read, *closed, next);
        }
        (Kind::Enum { variants: written, .. }, Kind::Enum { variants: read, open, .. }) => {
            let known = by_name(read.iter().map(|variant| &variant.names));
            for variant in written {
                match find(&known, &variant.names) {
                    Some(place) => contents(variant, &read[place], next)?,
                    None if *open && variant.content.is_none() => {}
                    None => {
                        let segment = Segment::Variant(first(&variant.names));
                        return Err((segment, "a variant".into(), "not known".into()));
                    }
                }
            }
        }
        (Kind::End(written, carried), Kind::End(read, wanted)) if written == read => {
            ends(*written, carried, wanted, next);
        }
        (Kind::Opaque(written), Kind::Opaque(read)) if written == read => {}
        (written, read) if is_plain(written) && written == read => {}
        _ => return unlike(sides),
    }
    Ok(())
}

fn structs(written: &[Field], read: &[Field], closed: bool, next: &mut Next) -> Result<(), Unlike> {
    let there = by_name(written.iter().map(|field| &field.names));
    for field in read {
        match find(&there, &field.names) {
            Some(place) => follow(next, written[place].kind, field.kind, Segment::Field(first(&field.names))),
            None if field.required => {
                return Err((Segment::Field(first(&field.names)), "no such field".into(), "a required field".into()));
            }
            None => {}
        }
    }
    if closed {
        let known = by_name(read.iter().map(|field| &field.names));
        if let Some(field) = written.iter().find(|field| find(&known, &field.names).is_none()) {
            return Err((Segment::Field(first(&field.names)), "a field".into(), "refused, being unknown".into()));
        }
    }
    Ok(())
}

fn tuples(sides: &Both<'_>, written: &[KindId], read: &[KindId], next: &mut Next) -> Result<(), Unlike> {
    if written.len() != read.len() {
        return unlike(sides);
    }
    let places = written.iter().zip(read).enumerate();
    places.for_each(|(place, (written, read))| follow(next, *written, *read, Segment::Place(place)));
    Ok(())
}

fn both_maps(sides: &Both<'_>, next: &mut Next) {
    if let (Kind::Map(key, value), Kind::Map(key_there, value_there)) = (sides.written, sides.read) {
        follow(next, *key, *key_there, Segment::Key);
        follow(next, *value, *value_there, Segment::Value);
    }
}

fn contents(written: &Variant, read: &Variant, next: &mut Next) -> Result<(), Unlike> {
    let segment = Segment::Variant(first(&read.names));
    let word = |content: Option<KindId>| {
        if content.is_some() { "a variant with content".to_owned() } else { "a variant without content".to_owned() }
    };
    match (written.content, read.content) {
        (None, None) => {}
        (Some(written), Some(read)) => follow(next, written, read, segment),
        (written, read) => return Err((segment, word(written), word(read))),
    }
    Ok(())
}

/// The holder of the end writes what it sends, and the holder is the reader of the message.
fn ends(kind: EndKind, carried: &[KindId], wanted: &[KindId], next: &mut Next) {
    for (((name, holder_writes), carried), wanted) in kind.messages().iter().zip(carried).zip(wanted) {
        next.push((Follow::Kind(*carried), *wanted, *holder_writes, Segment::Message(name)));
    }
}

fn by_name<'a>(names: impl Iterator<Item = &'a Vec<String>>) -> SortedMap<&'a str, usize> {
    names.enumerate().flat_map(|(place, names)| names.iter().map(move |name| (name.as_str(), place))).collect()
}

fn find(known: &SortedMap<&str, usize>, names: &[String]) -> Option<usize> {
    names.iter().find_map(|name| known.get(name.as_str()).copied())
}

fn shares(one: &[String], other: &[String]) -> bool {
    one.iter().any(|name| other.contains(name))
}

fn first(names: &[String]) -> String {
    names.first().cloned().unwrap_or_default()
}

fn named(what: &str, names: &[String]) -> String {
    format!("{what} `{}`", clean(&first(names)))
}

/// Whether the kind contains no other kinds.
fn is_plain(kind: &Kind) -> bool {
    let is_number = matches!(kind, Kind::Int { .. } | Kind::Float { .. });
    is_number || matches!(kind, Kind::Unit | Kind::Bool | Kind::Char | Kind::Text | Kind::Bytes | Kind::Raw)
}

/// How many other kinds a kind contains.
fn size(kind: &Kind) -> usize {
    match kind {
        Kind::Tuple(places) => places.len(),
        Kind::Struct { fields, .. } => fields.len(),
        Kind::Enum { variants, .. } => variants.len(),
        _ => 2,
    }
}

/// A name that may come from any peer, made safe for a line of text.
fn clean(name: &str) -> String {
    name.chars().map(|c| if c.is_control() || c == '`' { '?' } else { c }).collect()
}

/// The description of a kind in an error.
fn describe(kind: &Kind) -> String {
    match kind {
        Kind::Unit => "nothing (a unit)".into(),
        Kind::Bool => "bool".into(),
        Kind::Char => "char".into(),
        Kind::Text => "text".into(),
        Kind::Bytes => "bytes".into(),
        Kind::Raw => "bytes that are not encoded".into(),
        Kind::Int { signed, bits } => format!("{}{bits}", if *signed { 'i' } else { 'u' }),
        Kind::Float { bits } => format!("f{bits}"),
        Kind::Option(_) => "an option".into(),
        Kind::List(_) => "a list".into(),
        Kind::Map(..) => "a map".into(),
        Kind::Tuple(places) => format!("a tuple of {}", places.len()),
        Kind::Struct { name, .. } => format!("struct `{}`", clean(name)),
        Kind::Enum { name, .. } => format!("enum `{}`", clean(name)),
        Kind::End(end, _) => format!("a {}", end.word()).replace("a enrolment", "an enrolment"),
        Kind::Opaque(name) => format!("`{}`, which only its reader knows", clean(name)),
    }
}
