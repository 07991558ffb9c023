//! The bytes of a schema; `docs/wire.md` describes them in prose.
//!
//! Numbers are varints (LEB128), and a length precedes each text, as in a frame. Each schema has only one
//! encoding: [`Schema::encode`] writes what [`Schema::decode`] has accepted again, byte for byte.

use bytes::{BufMut, Bytes, BytesMut};

use crate::error::{SchemaError, fits};
use crate::kinds::{Coding, EndKind, Field, Kind, KindId, Schema, Variant};
use crate::limits;

/// The first byte. Later versions of the format begin with another one.
const FORMAT: u8 = 1;

mod tag {
    pub(super) const UNIT: u8 = 0;
    pub(super) const BOOL: u8 = 1;
    pub(super) const CHAR: u8 = 2;
    pub(super) const TEXT: u8 = 3;
    pub(super) const BYTES: u8 = 4;
    /// The next four tags are the wider integers, each twice as wide.
    pub(super) const UNSIGNED: u8 = 5;
    /// Likewise.
    pub(super) const SIGNED: u8 = 10;
    pub(super) const FLOAT: u8 = 15;
    pub(super) const DOUBLE: u8 = 16;
    pub(super) const OPTION: u8 = 17;
    pub(super) const LIST: u8 = 18;
    pub(super) const MAP: u8 = 19;
    pub(super) const TUPLE: u8 = 20;
    pub(super) const STRUCT: u8 = 21;
    pub(super) const ENUM: u8 = 22;
    pub(super) const END: u8 = 23;
    pub(super) const OPAQUE: u8 = 24;
    pub(super) const RAW: u8 = 25;
}

impl Coding {
    fn code(self) -> u8 {
        match self {
            Self::Bytes => 0,
            Self::Cbor => 1,
            Self::Compact => 2,
        }
    }
}

impl Schema {
    /// Encodes the schema.
    ///
    /// # Errors
    /// [`SchemaError::TooLong`] if it takes more than [`limits::BYTES`].
    pub fn encode(&self) -> Result<Bytes, SchemaError> {
        let mut out = BytesMut::new();
        out.put_u8(FORMAT);
        out.put_u8(self.coding().code());
        number(&mut out, self.kinds().len() as u64);
        self.kinds().iter().for_each(|kind| write(kind, &mut out));
        fits("a schema", out.len(), limits::BYTES)?;
        Ok(out.freeze())
    }

    /// Decodes a schema. Returns `None` if there are no bytes, or if a later version of the format wrote
    /// them.
    ///
    /// # Errors
    /// [`SchemaError`] if the bytes are not a schema. Each length and count is checked before memory is
    /// allocated for it, so the bytes may come from anywhere.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, SchemaError> {
        let [FORMAT, rest @ ..] = bytes else { return Ok(None) };
        fits("a schema", bytes.len(), limits::BYTES)?;
        let mut r = Reader(rest);
        let coding = match r.byte("an encoding")? {
            0 => Coding::Bytes,
            1 => Coding::Cbor,
            2 => Coding::Compact,
            code => return Err(SchemaError::Invalid { what: "an encoding", value: code.into() }),
        };
        let count = r.count("a number of kinds", limits::KINDS)?;
        let kinds = (0..count).map(|_| read(&mut r)).collect::<Result<_, _>>()?;
        r.finish()?;
        Self::new(coding, kinds).map(Some)
    }
}

fn write(kind: &Kind, out: &mut BytesMut) {
    let width = |bits: u8| bits.trailing_zeros() as u8 - 3;
    match kind {
        Kind::Unit => out.put_u8(tag::UNIT),
        Kind::Bool => out.put_u8(tag::BOOL),
        Kind::Char => out.put_u8(tag::CHAR),
        Kind::Text => out.put_u8(tag::TEXT),
        Kind::Bytes => out.put_u8(tag::BYTES),
        Kind::Raw => out.put_u8(tag::RAW),
        Kind::Int { signed, bits } => out.put_u8(width(*bits) + if *signed { tag::SIGNED } else { tag::UNSIGNED }),
        Kind::Float { bits } => out.put_u8(if *bits == 32 { tag::FLOAT } else { tag::DOUBLE }),
        Kind::Option(id) => write_ids(tag::OPTION, &[*id], out),
        Kind::List(id) => write_ids(tag::LIST, &[*id], out),
        Kind::Map(key, value) => write_ids(tag::MAP, &[*key, *value], out),
        Kind::Tuple(ids) => {
            out.put_u8(tag::TUPLE);
            number(out, ids.len() as u64);
            ids.iter().for_each(|id| number(out, (*id).into()));
        }
        Kind::Struct { name, fields, closed } => {
            out.put_u8(tag::STRUCT);
            string(out, name.as_bytes());
            out.put_u8((*closed).into());
            number(out, fields.len() as u64);
            for Field { names, kind, required } in fields {
                write_names(names, out);
                number(out, (*kind).into());
                out.put_u8((*required).into());
            }
        }
        Kind::Enum { name, variants, open } => {
            out.put_u8(tag::ENUM);
            string(out, name.as_bytes());
            out.put_u8((*open).into());
            number(out, variants.len() as u64);
            for Variant { names, content } in variants {
                write_names(names, out);
                number(out, content.map_or(0, |id| u64::from(id) + 1));
            }
        }
        Kind::End(end, ids) => {
            out.put_slice(&[tag::END, *end as u8]);
            ids.iter().for_each(|id| number(out, (*id).into()));
        }
        Kind::Opaque(name) => {
            out.put_u8(tag::OPAQUE);
            string(out, name.as_bytes());
        }
    }
}

fn write_ids(tag: u8, ids: &[KindId], out: &mut BytesMut) {
    out.put_u8(tag);
    ids.iter().for_each(|id| number(out, (*id).into()));
}

fn write_names(names: &[String], out: &mut BytesMut) {
    number(out, names.len() as u64);
    names.iter().for_each(|name| string(out, name.as_bytes()));
}

fn read(r: &mut Reader<'_>) -> Result<Kind, SchemaError> {
    Ok(match r.byte("a kind")? {
        tag::UNIT => Kind::Unit,
        tag::BOOL => Kind::Bool,
        tag::CHAR => Kind::Char,
        tag::TEXT => Kind::Text,
        tag::BYTES => Kind::Bytes,
        tag::RAW => Kind::Raw,
        tag @ tag::UNSIGNED..tag::SIGNED => Kind::Int { signed: false, bits: 8 << (tag - tag::UNSIGNED) },
        tag @ tag::SIGNED..tag::FLOAT => Kind::Int { signed: true, bits: 8 << (tag - tag::SIGNED) },
        tag::FLOAT => Kind::Float { bits: 32 },
        tag::DOUBLE => Kind::Float { bits: 64 },
        tag::OPTION => Kind::Option(r.kind_id()?),
        tag::LIST => Kind::List(r.kind_id()?),
        tag::MAP => Kind::Map(r.kind_id()?, r.kind_id()?),
        tag::TUPLE => {
            let count = r.count("a length", usize::from(KindId::MAX))?;
            Kind::Tuple((0..count).map(|_| r.kind_id()).collect::<Result<_, _>>()?)
        }
        tag::STRUCT => {
            let (name, closed) = (r.text("a name", limits::NAME)?, r.flag("whether it is closed")?);
            let count = r.count("a number of fields", usize::from(KindId::MAX))?;
            let field = |_| {
                let (names, kind) = (r.names()?, r.kind_id()?);
                Ok(Field { names, kind, required: r.flag("whether it is required")? })
            };
            Kind::Struct { name, fields: (0..count).map(field).collect::<Result<_, SchemaError>>()?, closed }
        }
        tag::ENUM => {
            let (name, open) = (r.text("a name", limits::NAME)?, r.flag("whether it is open")?);
            let count = r.count("a number of variants", usize::from(KindId::MAX))?;
            let variant = |_| {
                let names = r.names()?;
                let content = match r.number("the number of a kind")? {
                    0 => None,
                    id => Some(kind_id(id - 1)?),
                };
                Ok(Variant { names, content })
            };
            Kind::Enum { name, variants: (0..count).map(variant).collect::<Result<_, SchemaError>>()?, open }
        }
        tag::END => {
            let code = r.byte("an end")?;
            let end = *EndKind::ALL
                .get(usize::from(code))
                .ok_or(SchemaError::Invalid { what: "an end", value: code.into() })?;
            Kind::End(end, end.messages().iter().map(|_| r.kind_id()).collect::<Result<_, _>>()?)
        }
        tag::OPAQUE => Kind::Opaque(r.text("a name", limits::NAME)?),
        tag => return Err(SchemaError::Invalid { what: "a kind", value: tag.into() }),
    })
}

fn kind_id(id: u64) -> Result<KindId, SchemaError> {
    KindId::try_from(id).map_err(|_| SchemaError::Invalid { what: "the number of a kind", value: id })
}

fn number(out: &mut BytesMut, mut n: u64) {
    while n >= 0x80 {
        out.put_u8(n as u8 | 0x80);
        n >>= 7;
    }
    out.put_u8(n as u8);
}

fn string(out: &mut BytesMut, text: &[u8]) {
    number(out, text.len() as u64);
    out.put_slice(text);
}

/// Reads fields from the front.
struct Reader<'b>(&'b [u8]);

impl Reader<'_> {
    fn finish(&self) -> Result<(), SchemaError> {
        if self.0.is_empty() { Ok(()) } else { Err(SchemaError::Trailing(self.0.len())) }
    }

    fn byte(&mut self, what: &'static str) -> Result<u8, SchemaError> {
        let (byte, rest) = self.0.split_first().ok_or(SchemaError::Truncated(what))?;
        self.0 = rest;
        Ok(*byte)
    }

    fn flag(&mut self, what: &'static str) -> Result<bool, SchemaError> {
        match self.byte(what)? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(SchemaError::Invalid { what, value: value.into() }),
        }
    }

    fn number(&mut self, what: &'static str) -> Result<u64, SchemaError> {
        let mut n: u64 = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte(what)?;
            let part = u64::from(byte & 0x7f);
            if shift == 63 && part > 1 {
                break;
            }
            n |= part << shift;
            if byte & 0x80 == 0 {
                return if byte == 0 && shift > 0 { Err(SchemaError::Overlong(what)) } else { Ok(n) };
            }
        }
        Err(SchemaError::Invalid { what, value: u64::MAX })
    }

    fn text(&mut self, what: &'static str, max: usize) -> Result<String, SchemaError> {
        let length = self.number(what)?;
        if length > max as u64 {
            return Err(SchemaError::TooLong { what, bytes: length, bytes_max: max as u64 });
        }
        let (text, rest) = self.0.split_at_checked(length as usize).ok_or(SchemaError::Truncated(what))?;
        self.0 = rest;
        std::str::from_utf8(text).map(str::to_owned).map_err(|_| SchemaError::NotText(what))
    }

    /// The count of items that follow. Each takes at least one byte, so a count above the bytes that are left
    /// is refused before memory is allocated for it.
    fn count(&mut self, what: &'static str, max: usize) -> Result<u64, SchemaError> {
        let count = self.number(what)?;
        if count > max as u64 {
            return Err(SchemaError::Invalid { what, value: count });
        }
        if count > self.0.len() as u64 { Err(SchemaError::Truncated(what)) } else { Ok(count) }
    }

    fn kind_id(&mut self) -> Result<KindId, SchemaError> {
        self.number("the number of a kind").and_then(kind_id)
    }

    fn names(&mut self) -> Result<Vec<String>, SchemaError> {
        let count = self.count("a number of names", limits::NAMES)?;
        (0..count).map(|_| self.text("a name", limits::NAME)).collect()
    }
}
