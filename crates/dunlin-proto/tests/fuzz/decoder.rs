//! Decodes any bytes: as handshakes, as frames.

use bytes::{Bytes, BytesMut};
use dunlin_proto::wire::VERSIONS;
use dunlin_proto::wire::codec::{self, Next};
use dunlin_proto::wire::handshake::{Answer, Hello};
use dunlin_proto::wire::limits;

/// The first byte selects the decoder.
///
/// # Panics
/// If the decoder does, or if the encoder would write what it accepts differently.
pub(crate) fn run(data: &[u8]) {
    let Some((what, data)) = data.split_first() else { return };
    match what % 3 {
        0 => frames(Bytes::copy_from_slice(data)),
        1 => {
            let mut arrived = BytesMut::from(data);
            if let Ok(Some(hello)) = Hello::decode(&mut arrived) {
                let again = hello.encode();
                if hello.versions.1 <= VERSIONS.1 {
                    assert_eq!(again, data[..data.len() - arrived.len()], "{hello:?}");
                }
            }
        }
        _ => {
            let mut arrived = BytesMut::from(data);
            if let Ok(Some(answer)) = Answer::decode(&mut arrived) {
                assert_eq!(answer.encode(), data[..data.len() - arrived.len()], "{answer:?}");
            }
        }
    }
}

fn frames(mut rest: Bytes) {
    loop {
        match codec::next(&rest) {
            Err(_) => return,
            Ok(Next::Wait(missing)) => {
                assert!((1..=limits::CHUNK + 64).contains(&missing), "{missing} bytes are missing");
                return;
            }
            Ok(Next::Frame { head, body }) => {
                let whole = rest.split_to(head + body);
                // A part of a frame is incomplete, and never decoded as another frame.
                assert!(matches!(codec::next(&whole[..whole.len() - 1]), Ok(Next::Wait(1..))));
                if let Ok(frame) = codec::decode(whole[0], whole.slice(head..)) {
                    let mut again = BytesMut::new();
                    let tail = codec::encode(&frame, &mut again);
                    again.extend_from_slice(&tail.unwrap_or_default());
                    assert_eq!(again, whole, "{frame:?}");
                }
            }
        }
    }
}
