//! Why kinds, or bytes, are not a schema.

/// Why kinds or bytes are not a schema.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// A name or the encoded schema is longer than [its limit](crate::limits).
    #[error("{what} of {bytes} bytes; at most {bytes_max} are allowed")]
    TooLong {
        /// What is too long.
        what: &'static str,
        /// Its length.
        bytes: u64,
        /// The limit.
        bytes_max: u64,
    },
    /// The bytes end within a field.
    #[error("the schema ends within {0}")]
    Truncated(&'static str),
    /// Bytes follow the last kind.
    #[error("{0} bytes follow the last kind")]
    Trailing(usize),
    /// A field has an invalid value.
    #[error("{what} cannot be {value}")]
    Invalid {
        /// Which field.
        what: &'static str,
        /// Its value.
        value: u64,
    },
    /// A number takes more bytes than it needs.
    #[error("{0} is encoded in more bytes than needed")]
    Overlong(&'static str),
    /// A name is not UTF-8.
    #[error("{0} is not UTF-8")]
    NotText(&'static str),
    /// Two fields of a struct, or two variants of an enum, have one name.
    #[error("{0} occurs twice")]
    Twice(&'static str),
}

/// Checks a length against its limit.
pub(crate) fn fits(what: &'static str, bytes: usize, bytes_max: usize) -> Result<(), SchemaError> {
    if bytes <= bytes_max {
        return Ok(());
    }
    Err(SchemaError::TooLong { what, bytes: bytes as u64, bytes_max: bytes_max as u64 })
}
