//! Bytes to words.
//!
//! Each field of an object takes at least one byte of the image, so that no claim of a size takes memory
//! before its bytes are there; the limits bound the rest.

use super::node::NoNumber;
use super::{MAGIC, NodeNames, check, field};
use crate::code::unit::{CODE_VERSION, Hash};
use crate::code::{Index, Instruction};
use crate::heap::Heap;
use crate::heap::object::{Tag, header};
use crate::heap::word::{
    CLOSURE, EOF, FALSE, NIL, OBJECT, PAIR, TRUE, UNSET, UNSPECIFIED, Word, character, code, end, fixnum, fixnum_value,
    pid, pointer, symbol, tag,
};
use crate::names::{Name, Symbols};
use crate::num::{FIXNUM_MAX, FIXNUM_MIN};

/// What an image may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Bytes of the image.
    pub(crate) bytes: usize,
    /// Objects in it.
    pub(crate) objects: usize,
    /// Symbols of the machine, with those of the image.
    pub(crate) symbols: usize,
    /// Names of processes and tags of other programs that the machine knows, with those of the image.
    pub(crate) names: usize,
    /// Whether it may name ends of channels: they mean something only in the program that wrote it.
    pub(crate) ends: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes: 1 << 30, objects: 1 << 26, symbols: Symbols::COUNT_MAX, names: 1 << 20, ends: false }
    }
}

/// Why bytes are no image.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// Another format, or another version of it or of the code.
    #[error("the bytes are no image of this version")]
    Version,
    /// A limit is exceeded: of bytes, objects, symbols, names of other programs, or the heap.
    #[error("the image is larger than its limit")]
    TooLarge,
    /// The bytes end before the image does.
    #[error("the image ends too early, at byte {0}")]
    Truncated(usize),
    /// A byte that has no meaning there.
    #[error("the image is malformed at byte {0}")]
    Malformed(usize),
    /// An object that no machine makes: a frame that does not fit its code, for instance.
    #[error("the image has an object that the machine cannot use")]
    Unsound,
    /// Code that this machine has not loaded.
    #[error("the image names code that is not loaded")]
    UnknownCode,
}

type Result<T> = std::result::Result<T, ReadError>;

/// Reads an image, and puts its objects on the heap.
pub(crate) fn read(
    heap: &mut Heap,
    symbols: &mut Symbols,
    nodes: &mut NodeNames,
    index: &Index,
    text: &[Instruction],
    image: &[u8],
    limits: Limits,
) -> Result<Word> {
    if image.len() > limits.bytes {
        return Err(ReadError::TooLarge);
    }
    let mut input = Input { image, at: 0 };
    if input.take(4).map_err(|_| ReadError::Version)? != MAGIC || input.varint()? != u64::from(CODE_VERSION) {
        return Err(ReadError::Version);
    }
    let mut units = Vec::new();
    for _ in 0..input.count(32)? {
        let hash = Hash(input.take(32)?.try_into().expect("32 bytes were taken"));
        units.push(index.find(&hash).ok_or(ReadError::UnknownCode)?);
    }
    let mut names = Vec::new();
    for _ in 0..input.count(1)? {
        let at = input.at;
        let name = std::str::from_utf8(input.bytes()?).map_err(|_| ReadError::Malformed(at))?;
        if symbols.len() >= limits.symbols {
            return Err(ReadError::TooLarge);
        }
        names.push(symbols.intern(name));
    }
    let mut programs = Vec::new();
    for _ in 0..input.count(8)? {
        programs.push(u64::from_le_bytes(input.take(8)?.try_into().expect("8 bytes were taken")));
    }
    let count = input.count(2)?;
    if count > limits.objects {
        return Err(ReadError::TooLarge);
    }
    let (words, starts) = (Vec::new(), Vec::new());
    let mut decoder = Decoder { input, units, names, nodes, limits, programs, count, words, starts };
    for _ in 0..count {
        decoder.object()?;
    }
    let root = decoder.word()?;
    if decoder.input.at != image.len() {
        return Err(ReadError::Malformed(decoder.input.at));
    }
    let Decoder { mut words, starts, .. } = decoder;
    heap.reserve(words.len()).map_err(|_| ReadError::TooLarge)?;
    let base = heap.len();
    let targets: Vec<Word> = starts
        .iter()
        .map(|start| {
            let start = *start as usize;
            let tag = match check::kind(&words, start) {
                None => PAIR,
                // Without variables it is the place of its code.
                Some(Tag::Closure) if words[start] == header(Tag::Closure, 1) => {
                    return code(fixnum_value(words[start + 1]) as usize);
                }
                Some(Tag::Closure) => CLOSURE,
                Some(_) => OBJECT,
            };
            pointer(base + start, tag)
        })
        .collect();
    let resolved = |word: Word| if word & NUMBERED_MASK == NUMBERED { targets[(word >> 8) as usize] } else { word };
    for &start in &starts {
        for at in check::values(&words, start as usize) {
            words[at] = resolved(words[at]);
        }
    }
    let root = resolved(root);
    let image = check::Image { words: &words, starts: &starts, base, index, text };
    if !image.is_sound() {
        return Err(ReadError::Unsound);
    }
    heap.adopt(&words);
    Ok(root)
}

/// A field that names an object by its number: an immediate of a kind that is none.
const NUMBERED: Word = 0xfa;
const NUMBERED_MASK: Word = 0xff;

struct Input<'i> {
    image: &'i [u8],
    at: usize,
}

impl<'i> Input<'i> {
    fn byte(&mut self) -> Result<u8> {
        let byte = *self.image.get(self.at).ok_or(ReadError::Truncated(self.at))?;
        self.at += 1;
        Ok(byte)
    }

    fn take(&mut self, count: usize) -> Result<&'i [u8]> {
        let end = self.at.checked_add(count).ok_or(ReadError::Truncated(self.at))?;
        let bytes = self.image.get(self.at..end).ok_or(ReadError::Truncated(self.at))?;
        self.at = end;
        Ok(bytes)
    }

    fn varint(&mut self) -> Result<u64> {
        let start = self.at;
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let part = u64::from(byte & 0x7f);
            if shift == 63 && part > 1 {
                return Err(ReadError::Malformed(start));
            }
            value |= part << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(ReadError::Malformed(start))
    }

    /// A number of things that take `each` bytes at least: no more than the image has left.
    fn count(&mut self, each: usize) -> Result<usize> {
        let start = self.at;
        let count = usize::try_from(self.varint()?).map_err(|_| ReadError::Truncated(start))?;
        if count > (self.image.len() - self.at) / each { Err(ReadError::Truncated(start)) } else { Ok(count) }
    }

    fn bytes(&mut self) -> Result<&'i [u8]> {
        let count = self.count(1)?;
        self.take(count)
    }
}

struct Decoder<'i> {
    input: Input<'i>,
    units: Vec<(usize, usize)>,
    names: Vec<Name>,
    nodes: &'i mut NodeNames,
    limits: Limits,
    programs: Vec<u64>,
    count: usize,
    words: Vec<Word>,
    /// Where each object begins in `words`.
    starts: Vec<u32>,
}

impl Decoder<'_> {
    fn object(&mut self) -> Result<()> {
        let at = self.input.at;
        let start = u32::try_from(self.words.len()).map_err(|_| ReadError::TooLarge)?;
        self.starts.push(start);
        let kind = self.input.byte()?;
        if kind == 0 {
            return self.fields(2, None);
        }
        let tag = Tag::of_number(kind - 1).ok_or(ReadError::Malformed(at))?;
        match tag {
            Tag::Flonum => {
                let bits = u64::from_le_bytes(self.input.take(8)?.try_into().expect("8 bytes were taken"));
                self.words.extend([header(tag, 1), bits]);
            }
            Tag::Bignum => {
                let count = self.input.count(8)?;
                let words = self.input.take(8 * count)?;
                self.words.push(header(tag, count));
                let (chunks, _) = words.as_chunks::<8>();
                self.words.extend(chunks.iter().map(|chunk| u64::from_le_bytes(*chunk)));
            }
            Tag::String => {
                let bytes = self.input.bytes()?;
                let text = std::str::from_utf8(bytes).map_err(|_| ReadError::Malformed(at))?;
                if bytes.len() > u32::MAX as usize {
                    return Err(ReadError::TooLarge);
                }
                let lengths = ((bytes.len() as u64) << 32) | text.chars().count() as u64;
                self.raw(tag, lengths, bytes);
            }
            Tag::Bytes => {
                let bytes = self.input.bytes()?;
                self.raw(tag, bytes.len() as u64, bytes);
            }
            _ => {
                let size = self.input.count(1)?;
                self.words.push(header(tag, size));
                let code = match tag {
                    Tag::Closure => Some(0),
                    Tag::Frame => Some(1),
                    _ => None,
                };
                return self.fields(size, code);
            }
        }
        Ok(())
    }

    fn raw(&mut self, tag: Tag, lengths: u64, bytes: &[u8]) {
        self.words.extend([header(tag, 1 + bytes.len().div_ceil(8)), lengths]);
        self.words.extend(bytes.chunks(8).map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_le_bytes(word)
        }));
    }

    /// Reads fields; the one at `code`, and only that, is a place in code.
    fn fields(&mut self, count: usize, code: Option<usize>) -> Result<()> {
        for at in 0..count {
            let word = if Some(at) == code { self.place()? } else { self.word()? };
            self.words.push(word);
        }
        Ok(())
    }

    fn word(&mut self) -> Result<Word> {
        let at = self.input.at;
        let malformed = ReadError::Malformed(at);
        let kind = self.input.byte()?;
        let value = self.input.varint()?;
        match kind {
            field::FIXNUM => {
                let number = (value >> 1) as i64 ^ -((value & 1) as i64);
                if (FIXNUM_MIN..=FIXNUM_MAX).contains(&number) { Ok(fixnum(number)) } else { Err(malformed) }
            }
            field::CHARACTER => {
                let code = u32::try_from(value).ok().and_then(char::from_u32);
                code.map(character).ok_or(malformed)
            }
            field::SYMBOL => {
                let name = usize::try_from(value).ok().and_then(|at| self.names.get(at));
                name.map(|name| symbol(*name)).ok_or(malformed)
            }
            field::CONSTANT => [FALSE, TRUE, NIL, UNSPECIFIED, EOF, UNSET]
                .get(usize::try_from(value).unwrap_or(usize::MAX))
                .copied()
                .ok_or(malformed),
            field::END if self.limits.ends && value < 1 << 54 => Ok(end(value)),
            field::OBJECT if value < self.count as u64 => Ok((value << 8) | NUMBERED),
            field::PROCESS | field::TAG | field::COPY => {
                let node = self.program(value, malformed)?;
                let number = self.input.varint()?;
                let original = if kind == field::COPY {
                    let program = self.input.varint()?;
                    Some((self.program(program, malformed)?, self.input.varint()?))
                } else {
                    None
                };
                let number =
                    self.nodes.near(node, number, original, self.limits.names).map_err(|error| match error {
                        NoNumber::Malformed => malformed,
                        NoNumber::Full => ReadError::TooLarge,
                    })?;
                Ok(if kind == field::TAG { tag(number) } else { pid(number) })
            }
            _ => Err(malformed),
        }
    }

    fn program(&self, at: u64, malformed: ReadError) -> Result<u64> {
        usize::try_from(at).ok().and_then(|at| self.programs.get(at)).copied().ok_or(malformed)
    }

    fn place(&mut self) -> Result<Word> {
        let malformed = ReadError::Malformed(self.input.at);
        if self.input.byte()? != field::CODE {
            return Err(malformed);
        }
        let (unit, offset) = (self.input.varint()?, self.input.varint()?);
        let unit = usize::try_from(unit).ok().and_then(|at| self.units.get(at)).ok_or(malformed)?;
        if offset >= unit.1 as u64 { Err(malformed) } else { Ok(fixnum(unit.0 as i64 + offset as i64)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_beyond_a_limit_is_refused() {
        let mut heap = Heap::new(64, 1 << 20, std::sync::Arc::default());
        let mut symbols = Symbols::default();
        let names: Vec<Word> = ["one", "two"].map(|name| symbol(symbols.intern(name))).into();
        let list = heap.list(&[names[0], names[1], pid(7)], NIL);
        let image = super::super::write(&heap, &symbols, &Index::default(), &NodeNames::new(), list, Limits::default())
            .unwrap();
        let read = |limits| {
            let mut heap = Heap::new(64, 1 << 20, std::sync::Arc::default());
            read(&mut heap, &mut Symbols::default(), &mut NodeNames::new(), &Index::default(), &[], &image, limits)
                .map(|_| ())
        };
        let exact = Limits { bytes: image.len(), objects: 3, symbols: 2, names: 1, ..Limits::default() };
        assert_eq!(read(exact), Ok(()));
        assert_eq!(read(Limits { bytes: image.len() - 1, ..exact }), Err(ReadError::TooLarge));
        assert_eq!(read(Limits { objects: 2, ..exact }), Err(ReadError::TooLarge));
        assert_eq!(read(Limits { symbols: 1, ..exact }), Err(ReadError::TooLarge));
        assert_eq!(read(Limits { names: 0, ..exact }), Err(ReadError::TooLarge));
    }
}
