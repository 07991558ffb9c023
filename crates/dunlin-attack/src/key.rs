//! Keys of hand-written peers. They are derived from `docs/wire.md`, so they match the keys of nodes only if
//! that document is right.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use dunlin_proto::id::{Incarnation, Life, NodeId};
use dunlin_proto::identity::Identity;
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use sha2::{Digest, Sha512};

/// The numbers of the keys of those nodes.
static NUMBERS: Mutex<BTreeMap<NodeId, u128>> = Mutex::new(BTreeMap::new());

/// The key of a peer.
#[derive(Clone, Debug)]
pub struct Key(SigningKey);

impl Key {
    /// The key of this number: always the same.
    pub fn numbered(number: u128) -> Self {
        let mut seed = [0xBA; 32];
        seed[16..].copy_from_slice(&number.to_be_bytes());
        Self(SigningKey::from_bytes(&seed))
    }

    /// The first life of the node that has it.
    pub fn life(&self) -> Life {
        Life { node: self.id_of(&self.key()).expect("it is a key"), incarnation: Incarnation(1) }
    }

    /// The key of a node whose life was made [here](life).
    ///
    /// # Panics
    /// The node's life was made elsewhere.
    pub fn of(node: NodeId) -> Self {
        let numbers = NUMBERS.lock().unwrap_or_else(PoisonError::into_inner);
        Self::numbered(*numbers.get(&node).expect("its key is known here"))
    }
}

/// A life of a node that no other peer of the test has.
pub fn life(number: u128) -> Life {
    let life = Key::numbered(number).life();
    NUMBERS.lock().unwrap_or_else(PoisonError::into_inner).insert(life.node, number);
    life
}

impl Identity for Key {
    fn key(&self) -> Bytes {
        self.0.verifying_key().to_bytes().to_vec().into()
    }

    fn id_of(&self, key: &[u8]) -> Option<NodeId> {
        let hash = Sha512::digest(<&[u8; 32]>::try_from(key).ok()?);
        Some(NodeId(u128::from_be_bytes(hash[..16].try_into().expect("16 bytes"))))
    }

    fn nonce(&self, count: u64) -> u128 {
        u128::from(count)
    }

    fn sign(&self, bytes: &[u8]) -> Bytes {
        self.0.sign(bytes).to_bytes().to_vec().into()
    }

    fn check(&self, key: &[u8], bytes: &[u8], signature: &[u8]) -> bool {
        let key = key.try_into().ok().and_then(|key| VerifyingKey::from_bytes(key).ok());
        let signature = Signature::from_slice(signature).ok();
        key.zip(signature).is_some_and(|(key, signature)| key.verify_strict(bytes, &signature).is_ok())
    }
}
