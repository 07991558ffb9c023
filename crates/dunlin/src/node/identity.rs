//! A node's identity: an ed25519 key that it draws when it joins, and never writes anywhere.

use std::fmt;

use bytes::Bytes;
use dunlin_proto::id::NodeId;
use dunlin_proto::identity::Identity;
use ed25519_compact::{KeyPair, PublicKey, Seed, Signature, sha512};

use crate::world;

/// The key of a node.
pub(crate) struct Key(KeyPair);

impl Key {
    /// Draws a new key.
    pub(crate) fn draw() -> Self {
        let mut seed = [0; 32];
        seed[..16].copy_from_slice(&world::random().to_ne_bytes());
        seed[16..].copy_from_slice(&world::random().to_ne_bytes());
        Self(KeyPair::from_seed(Seed::new(seed)))
    }

    /// The id of the node with this key.
    pub(crate) fn node(&self) -> NodeId {
        id_of(&self.0.pk)
    }
}

/// The first 128 bits of the key's hash.
fn id_of(key: &[u8; 32]) -> NodeId {
    let hash = sha512::Hash::hash(key);
    let (first, _) = hash.split_first_chunk().expect("it has 512 bits");
    NodeId(u128::from_be_bytes(*first))
}

impl Identity for Key {
    fn key(&self) -> Bytes {
        Bytes::copy_from_slice(&*self.0.pk)
    }

    fn id_of(&self, key: &[u8]) -> Option<NodeId> {
        key.try_into().ok().map(id_of)
    }

    fn nonce(&self, _: u64) -> u128 {
        world::random()
    }

    fn sign(&self, bytes: &[u8]) -> Bytes {
        Bytes::copy_from_slice(&*self.0.sk.sign(bytes, None))
    }

    fn check(&self, key: &[u8], bytes: &[u8], signature: &[u8]) -> bool {
        let (Ok(key), Ok(signature)) = (PublicKey::from_slice(key), Signature::from_slice(signature)) else {
            return false;
        };
        // Keys of small order are not accepted: many messages have the same signature under them.
        key.verify(bytes, &signature).is_ok()
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key of {}", self.node())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use dunlin_proto::id::{Incarnation, SocketId};
    use dunlin_proto::time::Time;
    use dunlin_proto::{Action, Config, Machine};

    use super::*;

    #[test]
    fn a_key_signs_for_itself_only() {
        let (key, other) = (Key::draw(), Key::draw());
        let public = key.key();
        assert_eq!(key.id_of(&public), Some(key.node()));
        assert_ne!(key.node(), other.node());
        let signature = key.sign(b"krill");
        assert!(other.check(&public, b"krill", &signature));
        assert!(!other.check(&public, b"Krill", &signature));
        assert!(!other.check(&other.key(), b"krill", &signature));
        let mut bent = signature.to_vec();
        bent[40] ^= 1;
        assert!(!other.check(&public, b"krill", &bent));
    }

    /// What each side of a handshake spends in its machine. CONTRIBUTING.md has the command and the bound.
    #[test]
    #[ignore = "measures, and only a release build says something"]
    fn a_handshake_costs_each_side_less_than_half_a_millisecond() {
        let machine = || {
            let mut config = Config::new("cost");
            config.keeps_id = false;
            Machine::new(config, Incarnation(1), 1, Arc::new(Key::draw()))
        };
        let now = Time(0);
        let (mut spent, rounds) = ([Duration::ZERO; 2], 500);
        for _ in 0..rounds {
            let mut sides = [machine(), machine()];
            let wanted = sides[1].me().node;
            sides[0].learn(wanted, &["there".to_owned()]);
            sides[0].connect(now, wanted);
            let mut at = 0;
            // The dial, `Welcome`, `Confirm`, and nothing more.
            for _ in 0..8 {
                let began = Instant::now();
                let mut out = Vec::new();
                let mut dialled = false;
                while let Some(action) = sides[at].poll() {
                    if let Action::Dial(dial, _) = action {
                        sides[0].dialled(now, dial, SocketId(0));
                        dialled = true;
                    }
                }
                if dialled {
                    sides[1].accepted(now, SocketId(0));
                }
                sides[at].fill(now, SocketId(0), 1 << 16, &mut out);
                spent[at] += began.elapsed();
                at = 1 - at;
                let began = Instant::now();
                out.into_iter().for_each(|bytes| sides[at].received(now, SocketId(0), bytes));
                spent[at] += began.elapsed();
            }
            assert!(sides[1].carried_by(sides[0].me().node).is_some());
        }
        let [dialler, dialled] = spent.map(|spent| spent / rounds);
        println!("the dialler spends {dialler:?}, the dialled side {dialled:?}");
        assert!(dialler.max(dialled) < Duration::from_micros(500));
    }

    #[test]
    fn invalid_keys_and_signatures_are_refused() {
        let key = Key::draw();
        let signature = key.sign(b"krill");
        for short in [&[][..], &[1; 31], &[1; 33], &[1; 64]] {
            assert_eq!(key.id_of(short), None);
            assert!(!key.check(short, b"krill", &signature));
            assert!(!key.check(&key.key(), b"krill", short));
        }
        // Not on the curve; and the neutral element, for which a signature is easily made.
        let mut neutral = [0; 32];
        neutral[0] = 1;
        for weak in [[0xff; 32], neutral] {
            let mut forged = [0; 64];
            forged[..32].copy_from_slice(&neutral);
            assert!(!key.check(&weak, b"krill", &forged));
        }
    }
}
