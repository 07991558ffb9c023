//! Limits of what [`Schema::new`](crate::Schema::new) and [`Schema::decode`](crate::Schema::decode) accept,
//! and of a comparison. A peer may send anything, so these functions use no more memory or time than that.

/// Bytes of an encoded schema.
pub const BYTES: usize = 32 << 10;
/// Kinds in a schema.
pub const KINDS: usize = 4096;
/// Bytes of the name of a type, a field or a variant.
pub const NAME: usize = 255;
/// Names of one field or variant.
pub const NAMES: usize = 16;
/// Steps of a comparison: one for each pair of kinds, and one for each field, variant or place of either. Two
/// schemas of honest programs take about as many as they have kinds.
pub const STEPS: usize = 1 << 17;
