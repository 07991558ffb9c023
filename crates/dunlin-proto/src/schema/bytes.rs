//! The bytes of a schema, as `docs/wire.md` has them.

use bytes::{BufMut, Bytes, BytesMut};

use super::{Coding, EndKind, Field, Kind, KindId, Schema, Variant, limits};
use crate::wire::codec::{Reader, WireError, number, string};
use crate::wire::{fits, limits as wire};

/// The first byte: a schema that begins with another one is of a later version, and says nothing here.
pub(super) const FORMAT: u8 = 1;

mod tag {
    pub(super) const UNIT: u8 = 0;
    pub(super) const BOOL: u8 = 1;
    pub(super) const CHAR: u8 = 2;
    pub(super) const TEXT: u8 = 3;
    pub(super) const BYTES: u8 = 4;
    /// And the next four: twice as wide each.
    pub(super) const UNSIGNED: u8 = 5;
    /// The same.
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
    /// Its bytes.
    ///
    /// # Errors
    /// [`WireError::TooLong`] with both numbers, if they are too many for a declaration.
    pub fn encode(&self) -> Result<Bytes, WireError> {
        let mut out = BytesMut::new();
        out.put_u8(FORMAT);
        out.put_u8(self.coding.code());
        number(&mut out, self.kinds.len() as u64);
        self.kinds.iter().for_each(|kind| write(kind, &mut out));
        fits("a schema", out.len(), wire::SCHEMA)?;
        Ok(out.freeze())
    }

    /// Reads a schema. `None`: it is of a later version than this, or none.
    ///
    /// # Errors
    /// [`WireError`]: the bytes are no schema. They are checked before memory is taken for what they claim.
    pub fn decode(bytes: &Bytes) -> Result<Option<Self>, WireError> {
        if bytes.first().is_none_or(|format| *format != FORMAT) {
            return Ok(None);
        }
        fits("a schema", bytes.len(), wire::SCHEMA)?;
        let mut r = Reader(bytes.slice(1..));
        let coding = match r.byte("an encoding")? {
            0 => Coding::Bytes,
            1 => Coding::Cbor,
            2 => Coding::Compact,
            code => return Err(WireError::Invalid { what: "an encoding", value: code.into() }),
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

fn read(r: &mut Reader) -> Result<Kind, WireError> {
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
            Kind::Struct { name, fields: (0..count).map(field).collect::<Result<_, WireError>>()?, closed }
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
            Kind::Enum { name, variants: (0..count).map(variant).collect::<Result<_, WireError>>()?, open }
        }
        tag::END => {
            let code = r.byte("an end")?;
            let end = *EndKind::ALL
                .get(usize::from(code))
                .ok_or(WireError::Invalid { what: "an end", value: code.into() })?;
            Kind::End(end, end.messages().iter().map(|_| r.kind_id()).collect::<Result<_, _>>()?)
        }
        tag::OPAQUE => Kind::Opaque(r.text("a name", limits::NAME)?),
        tag => return Err(WireError::Invalid { what: "a kind", value: tag.into() }),
    })
}

fn kind_id(id: u64) -> Result<KindId, WireError> {
    KindId::try_from(id).map_err(|_| WireError::Invalid { what: "the number of a kind", value: id })
}

impl Reader {
    /// How many of what takes at least a byte each follow.
    fn count(&mut self, what: &'static str, max: usize) -> Result<u64, WireError> {
        let count = self.number(what)?;
        if count > max as u64 {
            return Err(WireError::Invalid { what, value: count });
        }
        if count > self.0.len() as u64 { Err(WireError::Truncated(what)) } else { Ok(count) }
    }

    fn kind_id(&mut self) -> Result<KindId, WireError> {
        self.number("the number of a kind").and_then(kind_id)
    }

    fn names(&mut self) -> Result<Vec<String>, WireError> {
        let count = self.count("a number of names", limits::NAMES)?;
        (0..count).map(|_| self.text("a name", limits::NAME)).collect()
    }
}
