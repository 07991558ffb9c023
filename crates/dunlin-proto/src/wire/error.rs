//! Why bytes are not a frame, or a handshake.

/// Why bytes are not a frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// There is no frame of this kind.
    #[error("unknown frame kind {0:#04x}")]
    UnknownKind(u8),
    /// A field declares a length greater than allowed.
    #[error("{what} of {bytes} bytes; at most {bytes_max} are allowed")]
    TooLong {
        /// The field.
        what: &'static str,
        /// Its declared length.
        bytes: u64,
        /// The limit.
        bytes_max: u64,
    },
    /// The body ends within a field.
    #[error("the frame ends within {0}")]
    Truncated(&'static str),
    /// The body is longer than the frame's fields.
    #[error("{0} bytes follow the frame's last field")]
    Trailing(usize),
    /// A field has a value that it cannot have.
    #[error("{what} cannot be {value}")]
    Invalid {
        /// The field.
        what: &'static str,
        /// Its value.
        value: u64,
    },
    /// A number is written with more bytes than it needs.
    #[error("{0} is encoded in more bytes than needed")]
    Overlong(&'static str),
    /// A text is not UTF-8.
    #[error("{0} is not UTF-8")]
    NotText(&'static str),
    /// The handshake is not dunlin's.
    #[error("the other side does not speak dunlin's protocol")]
    NotDunlin,
    /// The handshake offers no protocol version that this crate speaks; it is not read further.
    #[error("the node speaks protocol versions {} to {}, this one speaks {} to {}", .0.0, .0.1, super::VERSIONS.0, super::VERSIONS.1)]
    Version((u16, u16)),
}
