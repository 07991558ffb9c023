//! The messages of a node's own services: inquiries, roles, offers of functions.
//!
//! They travel as bytes, encoded and decoded here: a program compiles channels for each type of message,
//! about three seconds of processor time each in a release build.

use bytes::Bytes;
use dunlin_core::RecvError;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// This message as the value of a channel.
pub(crate) fn encode(message: &impl Serialize) -> Bytes {
    // Only a type that postcard cannot represent fails, and no message of these services has one.
    postcard::to_stdvec(message).expect("a message of a node's own services can be encoded").into()
}

/// The message of a value. `None`: a node of another version sent it, or one that breaks the protocol.
pub(crate) fn decode<T: DeserializeOwned>(value: &Bytes) -> Option<T> {
    match postcard::take_from_bytes(value) {
        Ok((message, [])) => Some(message),
        _ => None,
    }
}

/// The message that was received. `None`: the channel is over, or the message cannot be decoded.
pub(super) fn received<T: DeserializeOwned>(received: Result<Bytes, RecvError>) -> Option<T> {
    decode(&received.ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_with_missing_or_further_bytes_is_no_message() {
        let message = (7_u64, "krill".to_owned());
        let whole = encode(&message);
        assert_eq!(decode(&whole), Some(message));
        let longer = [&whole[..], &[0]].concat();
        for bytes in [Bytes::new(), whole.slice(..whole.len() - 1), longer.into()] {
            assert_eq!(decode::<(u64, String)>(&bytes), None, "{bytes:?}");
        }
    }
}
