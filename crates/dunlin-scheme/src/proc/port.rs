//! Ports: text and bytes in memory, each a process.

use std::sync::Arc;

/// The most bytes of text, or bytes, that a port hands out at once.
const BLOCK_BYTES: usize = 4096;

/// A process that is a port. It runs no code: the machine carries out what it is asked, at once.
pub(crate) struct Port {
    /// The process that opened it and with which it ends; none for one of the top level.
    pub(crate) owner: Option<u64>,
    pub(crate) kind: PortKind,
}

/// What a port keeps. Its objects in heaps never change.
pub(crate) enum PortKind {
    /// Text, and where the next character begins.
    TextIn(Arc<str>, usize),
    /// Bytes, and which comes next.
    BytesIn(Vec<u8>, usize),
    TextOut(String),
    BytesOut(Vec<u8>),
}

/// A part of what a port keeps.
#[derive(Debug, PartialEq)]
pub(crate) enum Block {
    Text(String),
    Bytes(Vec<u8>),
}

impl PortKind {
    /// Takes the next 4 KiB or less: at least a character or a byte, unless the port is at its end. None from
    /// a port for output.
    pub(crate) fn next_block(&mut self) -> Option<Option<Block>> {
        match self {
            Self::TextIn(text, at) => {
                let mut end = text.len().min(*at + BLOCK_BYTES);
                while !text.is_char_boundary(end) {
                    end -= 1;
                }
                let block = &text[*at..end];
                *at = end;
                Some((!block.is_empty()).then(|| Block::Text(block.into())))
            }
            Self::BytesIn(bytes, at) => {
                let end = bytes.len().min(*at + BLOCK_BYTES);
                let block = &bytes[*at..end];
                *at = end;
                Some((!block.is_empty()).then(|| Block::Bytes(block.into())))
            }
            Self::TextOut(_) | Self::BytesOut(_) => None,
        }
    }

    /// The bytes that it keeps.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::TextIn(text, _) => text.len(),
            Self::TextOut(text) => text.len(),
            Self::BytesIn(bytes, _) | Self::BytesOut(bytes) => bytes.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_end_between_characters() {
        let text: String = std::iter::once('a').chain(std::iter::repeat_n('λ', 3_000)).collect();
        let mut port = PortKind::TextIn(text.as_str().into(), 0);
        let mut whole = String::new();
        while let Some(Some(Block::Text(block))) = port.next_block() {
            assert!((1..=BLOCK_BYTES).contains(&block.len()), "{}", block.len());
            whole += &block;
        }
        assert_eq!(whole, text);
        assert_eq!(port.next_block(), Some(None));
    }

    #[test]
    fn port_for_output_has_no_blocks() {
        assert_eq!(PortKind::TextOut("auk".into()).next_block(), None);
    }
}
