//! How a node proves its id: keys and signatures are the driver's, since this crate has no cryptography.
//!
//! A node's id is a hash of its public key, and both sides of a handshake sign it: the dialled node in
//! `Welcome`, the dialler in its first frame behind that. What they sign are the two messages whole, so
//! nothing in them can be changed, or shown to a third node: `Hello` names the node that it is for, and each
//! message has a nonce that its sender has drawn for this handshake. The dialler signs its `Hello`, too: that
//! may be an old one, said again by somebody else, so it proves nothing that the dialled node would change
//! anything for; but strangers cannot make up what a node's own dials would have to give way to.
//! `docs/wire.md` says it byte by byte.

use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};

use crate::id::NodeId;
use crate::wire::Frame;
use crate::wire::handshake::{Answer, Hello, Proof, Welcome};

/// The keys of one node, and how those of others are checked.
///
/// A driver makes it before the machine: [`Machine::new`](crate::Machine::new) takes the node's id from it.
pub trait Identity: fmt::Debug + Send + Sync {
    /// This node's public key: at most [`limits::KEY`](crate::wire::limits::KEY) bytes.
    fn key(&self) -> Bytes;

    /// The id of the node that has this public key: a hash of it, for which no other key can be found.
    /// `None`: it is no key.
    fn id_of(&self, key: &[u8]) -> Option<NodeId>;

    /// 128 fresh random bits. `count` is how many were asked for before, for a stand-in that has to do
    /// without randomness.
    fn nonce(&self, count: u64) -> u128;

    /// This node's signature of these bytes: at most [`limits::SIGNATURE`](crate::wire::limits::SIGNATURE)
    /// bytes.
    fn sign(&self, bytes: &[u8]) -> Bytes;

    /// Whether the node with this public key has signed these bytes. Key and signature come from the network,
    /// and may be anything.
    fn check(&self, key: &[u8], bytes: &[u8], signature: &[u8]) -> bool;
}

/// What a signature of a handshake is for. A signature for one of these is none for another.
#[derive(Clone, Copy, Debug)]
enum Role {
    /// The dialled node, in `Welcome`.
    Dialled,
    /// The dialler, behind `Welcome`.
    Dialler,
    /// The dialled node, in a refusal that ends something.
    Refuses,
    /// The dialler, in `Hello`.
    Asks,
}

/// Every signature begins with this, so that one of a handshake is none of anything else that a key may sign.
const CONTEXT: &[u8; 20] = b"dunlin handshake v1\n";

/// What is signed in this role: `hello` as it came, and `answer` as it would be with an empty signature, both
/// whole. In `Hello` only that, as it would be with an empty signature.
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
    // Each says its own length.
    bytes.put_slice(hello);
    bytes.put_slice(&answer);
    bytes.freeze()
}

/// What this answer is signed for, and the proof in it.
fn role(answer: &Answer) -> Option<(Role, &Proof)> {
    match answer {
        Answer::Welcome(Welcome { proof, .. }) => Some((Role::Dialled, proof)),
        Answer::Over(_, proof) => Some((Role::Refuses, proof)),
        Answer::Refused(_) => None,
    }
}

/// The same `Hello`, signed by the node that says it; if it only wants to know who is there, without a
/// signature.
pub fn sign_hello(identity: &dyn Identity, mut hello: Hello) -> Hello {
    hello.signature = Bytes::new();
    if hello.wanted != NodeId(0) {
        hello.signature = identity.sign(&transcript(Role::Asks, &hello.encode(), None));
    }
    hello
}

/// Whether this node has said that, to the node that hears it or long before.
pub(crate) fn is_signed(identity: &dyn Identity, hello: &Hello) -> bool {
    let unsigned = Hello { signature: Bytes::new(), ..hello.clone() };
    let signed = transcript(Role::Asks, &unsigned.encode(), None);
    hello.wanted == NodeId(0) || identity.check(&hello.key, &signed, &hello.signature)
}

/// The same answer to this `Hello`, proved by a node: with its key, and its signature. [`Answer::Refused`]
/// has no proof.
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

/// The node that has proved this answer to this `Hello`. `None`: none has.
pub fn proven_by(identity: &dyn Identity, hello: &[u8], answer: &Answer) -> Option<NodeId> {
    let (role, Proof { key, signature }) = role(answer)?;
    let by = identity.id_of(key)?;
    identity.check(key, &transcript(role, hello, Some(answer)), signature).then_some(by)
}

/// What the dialler signs of a handshake.
pub(crate) fn confirmed(hello: &[u8], welcome: &Answer) -> Bytes {
    transcript(Role::Dialler, hello, Some(welcome))
}

/// The dialler's first frame behind this `Welcome`.
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
    /// The public key is the id. What a signature needs beside it is known to this type only: code that has
    /// no `StandIn` of a node cannot sign for that node. It keeps nobody else out, so it is never for a
    /// network.
    #[derive(Clone, Copy, Debug)]
    pub struct StandIn(NodeId);

    impl StandIn {
        /// The identity of the node with this id.
        pub fn of(node: NodeId) -> Self {
            Self(node)
        }

        /// The bytes of this `Hello`, signed by the node that it is of.
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
