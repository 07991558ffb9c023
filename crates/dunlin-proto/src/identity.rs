//! How a node proves its id. Keys and signatures are the driver's, since this crate has no cryptography.
//!
//! A node's id is a hash of its public key. Both sides of a handshake sign it: the dialled node in `Welcome`,
//! the dialler in its first frame after that. They sign both messages whole, so nothing in them can be
//! changed, or replayed to a third node: `Hello` names its target, and each message has a nonce that its
//! sender has drawn for this handshake. The dialler also signs its `Hello`. That may be a replay by another
//! node, so it proves nothing for which the dialled node would change its state. But strangers cannot forge a
//! `Hello` to which a node's own dials would have to give way. `docs/wire.md` specifies it byte by byte.

use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};

use crate::id::NodeId;
use crate::wire::Frame;
use crate::wire::handshake::{Answer, Hello, Proof, Welcome};

/// The keys of one node, and the check of other nodes' signatures.
///
/// A driver makes it before the machine: [`Machine::new`](crate::Machine::new) takes the node's id from it.
pub trait Identity: fmt::Debug + Send + Sync {
    /// This node's public key: at most [`limits::KEY`](crate::wire::limits::KEY) bytes.
    fn key(&self) -> Bytes;

    /// The id of the node with this public key: a hash of it, for which no other key can be found. `None`:
    /// the bytes are not a key.
    fn id_of(&self, key: &[u8]) -> Option<NodeId>;

    /// 128 fresh random bits. `count` is the number of earlier calls, for a stand-in that has no randomness.
    fn nonce(&self, count: u64) -> u128;

    /// This node's signature of these bytes: at most [`limits::SIGNATURE`](crate::wire::limits::SIGNATURE)
    /// bytes.
    fn sign(&self, bytes: &[u8]) -> Bytes;

    /// Whether the node with this public key has signed these bytes. Key and signature come from the network,
    /// and may be anything.
    fn check(&self, key: &[u8], bytes: &[u8], signature: &[u8]) -> bool;
}

/// The purpose of a signature in a handshake. A signature for one of these is not valid for another.
#[derive(Clone, Copy, Debug)]
enum Role {
    /// The dialled node, in `Welcome`.
    Dialled,
    /// The dialler, after `Welcome`.
    Dialler,
    /// The dialled node, in a refusal that ends something.
    Refuses,
    /// The dialler, in `Hello`.
    Asks,
}

/// The prefix of all signed bytes, so that a signature of a handshake is not valid for anything else that a
/// key may sign.
const CONTEXT: &[u8; 20] = b"dunlin handshake v1\n";

/// The bytes signed in this role: `hello` as received, and `answer` with an empty signature, both whole. For
/// `Hello` only the `Hello`, with an empty signature.
fn transcript(role: Role, hello: &[u8], answer: Option<&Answer>) -> Bytes {
    let answer = answer.map_or_else(Bytes::new, Answer::unsigned);
    let mut bytes = BytesMut::with_capacity(CONTEXT.len() + 1 + hello.len() + answer.len());
    bytes.put_slice(CONTEXT);
    bytes.put_u8(match role {
        Role::Dialled => 1,
        Role::Dialler => 2,
        Role::Refuses => 3,
        Role::Asks => 4,
    });
    // Each contains its own length.
    bytes.put_slice(hello);
    bytes.put_slice(&answer);
    bytes.freeze()
}

/// The role in which this answer is signed, and its proof.
fn role(answer: &Answer) -> Option<(Role, &Proof)> {
    match answer {
        Answer::Welcome(Welcome { proof, .. }) => Some((Role::Dialled, proof)),
        Answer::Over(_, proof) => Some((Role::Refuses, proof)),
        Answer::Refused(_) => None,
    }
}

/// The same `Hello`, signed by its sender; without a signature if it only asks which node is there.
pub fn sign_hello(identity: &dyn Identity, mut hello: Hello) -> Hello {
    hello.signature = Bytes::new();
    if hello.wanted != NodeId(0) {
        hello.signature = identity.sign(&transcript(Role::Asks, &hello.encode(), None));
    }
    hello
}

/// Whether the sender of that `Hello` has signed it for its target, now or long before.
pub(crate) fn is_signed(identity: &dyn Identity, hello: &Hello) -> bool {
    let unsigned = Hello { signature: Bytes::new(), ..hello.clone() };
    let signed = transcript(Role::Asks, &unsigned.encode(), None);
    hello.wanted == NodeId(0) || identity.check(&hello.key, &signed, &hello.signature)
}

/// The same answer to this `Hello`, with the proof of this node: its key, and its signature.
/// [`Answer::Refused`] has no proof.
pub fn prove(identity: &dyn Identity, hello: &[u8], mut answer: Answer) -> Answer {
    let fill = |answer: &mut Answer, of: Proof| match answer {
        Answer::Welcome(Welcome { proof, .. }) | Answer::Over(_, proof) => *proof = of,
        Answer::Refused(_) => {}
    };
    let key = identity.key();
    fill(&mut answer, Proof { key: key.clone(), signature: Bytes::new() });
    if let Some((role, _)) = role(&answer) {
        let signature = identity.sign(&transcript(role, hello, Some(&answer)));
        fill(&mut answer, Proof { key, signature });
    }
    answer
}

/// The node that has proved this answer to this `Hello`, if one has.
pub fn proven_by(identity: &dyn Identity, hello: &[u8], answer: &Answer) -> Option<NodeId> {
    let (role, Proof { key, signature }) = role(answer)?;
    let by = identity.id_of(key)?;
    identity.check(key, &transcript(role, hello, Some(answer)), signature).then_some(by)
}

/// The bytes of a handshake that the dialler signs.
pub(crate) fn confirmed(hello: &[u8], welcome: &Answer) -> Bytes {
    transcript(Role::Dialler, hello, Some(welcome))
}

/// The dialler's first frame after this `Welcome`.
pub fn confirm(identity: &dyn Identity, hello: &[u8], welcome: &Answer) -> Frame {
    Frame::Confirm { signature: identity.sign(&confirmed(hello, welcome)) }
}

#[cfg(feature = "stand-in")]
pub use stand_in::StandIn;

#[cfg(feature = "stand-in")]
mod stand_in {

    use super::*;

    /// An identity for tests and simulations: cheap, without randomness, for any id.
    ///
    /// The public key is the id. Only this type knows what else a signature needs: code without a node's
    /// `StandIn` cannot sign for that node. It gives no other protection, so it is never for a network.
    #[derive(Clone, Copy, Debug)]
    pub struct StandIn(NodeId);

    impl StandIn {
        /// The identity of the node with this id.
        pub fn of(node: NodeId) -> Self {
            Self(node)
        }

        /// The bytes of this `Hello`, signed by its sender.
        pub fn says(hello: &Hello) -> Bytes {
            sign_hello(&Self(hello.me.node), hello.clone()).encode()
        }

        fn signature(key: &[u8], bytes: &[u8]) -> [u8; 8] {
            // FNV-1a, and the last step of SplitMix64 so that each bit counts.
            let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
            let hash = key.iter().chain(bytes).fold(SECRET, step);
            let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            (hash ^ (hash >> 31)).to_be_bytes()
        }
    }

    const SECRET: u64 = 0x6475_6e6c_696e_0d0a;

    impl Identity for StandIn {
        fn key(&self) -> Bytes {
            Bytes::copy_from_slice(&self.0.0.to_be_bytes())
        }

        fn id_of(&self, key: &[u8]) -> Option<NodeId> {
            key.try_into().ok().map(u128::from_be_bytes).map(NodeId)
        }

        fn nonce(&self, count: u64) -> u128 {
            u128::from(count) + 1
        }

        fn sign(&self, bytes: &[u8]) -> Bytes {
            Bytes::copy_from_slice(&Self::signature(&self.key(), bytes))
        }

        fn check(&self, key: &[u8], bytes: &[u8], signature: &[u8]) -> bool {
            signature == Self::signature(key, bytes)
        }
    }
}
