//! Decodes any bytes as two schemas, and compares them.

use dunlin_schema::{Schema, Sides, compare};

/// The first two bytes are the offset of the second schema.
///
/// # Panics
/// If the decoder or the comparison panics, an accepted schema is not encoded to the same bytes, or a schema
/// is not compatible with itself.
pub(crate) fn run(data: &[u8]) {
    let Some((at, data)) = data.split_first_chunk() else { return };
    let at = usize::from(u16::from_be_bytes(*at)).min(data.len());
    let schemas: Vec<Schema> = [&data[..at], &data[at..]].into_iter().filter_map(read).collect();
    for schema in &schemas {
        for here_writes in [false, true] {
            for is_face in [false, true] {
                if let Err(difference) = compare(schema, schema, Sides { here_writes, is_face }) {
                    // Unless it is too large.
                    assert!(difference.to_string().contains("too long to compare"), "{difference}: {schema:?}");
                }
            }
        }
    }
    if let [one, other] = &schemas[..] {
        for (here_writes, is_face) in [(false, false), (true, false), (true, true)] {
            let here = compare(one, other, Sides { here_writes, is_face });
            let there = compare(other, one, Sides { here_writes: !here_writes, is_face });
            assert_eq!(here.is_ok(), there.is_ok(), "{here:?}, {there:?}");
            if let Err(difference) = here {
                let text = difference.to_string();
                assert!(!text.chars().any(char::is_control) && text.len() < 4096, "{text:?}");
            }
        }
    }
}

fn read(bytes: &[u8]) -> Option<Schema> {
    let schema = Schema::decode(bytes).ok()??;
    assert_eq!(schema.encode().expect("the encoding is as long as the input"), bytes, "{schema:?}");
    Some(schema)
}
