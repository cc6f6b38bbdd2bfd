//! Secrets that the nodes of a cluster share, and signatures by purpose: what was signed for one purpose is worth nothing for
//! another.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac::{self, HMAC_SHA256};
use thiserror::Error;

/// Minimum length of a secret, in bytes.
pub const MIN_SECRET: usize = 32;
/// Bytes of a secret's id.
const ID_BYTES: usize = 6;

/// Error of [`ClusterSecrets::new`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum SecretError {
    /// A short secret.
    #[error("a cluster's secret has at least {MIN_SECRET} bytes: make one with `openssl rand -hex 32`")]
    Short,
    /// Twice the same one.
    #[error("the two secrets of the cluster are the same: leave the second one out")]
    Same,
}

/// Error of [`Sealer::verify`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum SealError {
    /// Signed with a secret that this node does not have.
    #[error("signed with a secret that this node does not have")]
    UnknownSecret,
    /// The signature does not fit.
    #[error("the signature does not fit")]
    Signature,
}

/// One or two secrets: the first one signs, both are accepted. To replace a secret, add the new one as the second on every
/// node, then let it sign on every node, then remove the old one.
#[derive(Clone)]
pub struct ClusterSecrets {
    signs: hmac::Key,
    accepted: Option<hmac::Key>,
}

impl fmt::Debug for ClusterSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterSecrets")
    }
}

impl ClusterSecrets {
    /// Takes the secret that signs, and one that is only accepted.
    pub fn new(signs: &str, accepted: Option<&str>) -> Result<Self, SecretError> {
        if [Some(signs), accepted].into_iter().flatten().any(|secret| secret.len() < MIN_SECRET) {
            return Err(SecretError::Short);
        }
        if accepted == Some(signs) {
            return Err(SecretError::Same);
        }
        let key = |secret: &str| hmac::Key::new(HMAC_SHA256, secret.as_bytes());
        Ok(Self { signs: key(signs), accepted: accepted.map(key) })
    }

    /// Returns the signer of one purpose.
    pub fn sealer(&self, purpose: &str) -> Sealer {
        Sealer {
            signs: SealKey::derive(&self.signs, purpose),
            accepted: self.accepted.as_ref().map(|root| SealKey::derive(root, purpose)),
        }
    }
}

/// Signs and verifies for one purpose.
#[derive(Clone)]
pub struct Sealer {
    signs: SealKey,
    accepted: Option<SealKey>,
}

#[derive(Clone)]
struct SealKey {
    /// Name of the secret, made of it: both ends know it, and it tells nothing of the secret.
    id: String,
    key: hmac::Key,
}

impl SealKey {
    fn derive(root: &hmac::Key, purpose: &str) -> Self {
        let key = hmac::sign(root, format!("repartee cluster key: {purpose}").as_bytes());
        let id = hmac::sign(root, b"repartee cluster secret id");
        let id = URL_SAFE_NO_PAD.encode(&id.as_ref()[..ID_BYTES]);
        Self { id, key: hmac::Key::new(HMAC_SHA256, key.as_ref()) }
    }
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sealer")
    }
}

impl Sealer {
    /// Signs: returns `ID.SIGNATURE`, 52 characters of base64url around the dot.
    pub fn sign(&self, content: &[u8]) -> String {
        let SealKey { id, key } = &self.signs;
        format!("{id}.{}", URL_SAFE_NO_PAD.encode(hmac::sign(key, content)))
    }

    /// Verifies the signature that a secret of this id made, in constant time.
    pub fn verify(&self, id: &str, signature: &str, content: &[u8]) -> Result<(), SealError> {
        let keys = [Some(&self.signs), self.accepted.as_ref()];
        let known = keys.into_iter().flatten().find(|key| key.id == id).ok_or(SealError::UnknownSecret)?;
        let mut bytes = [0; 32];
        let length = URL_SAFE_NO_PAD.decode_slice(signature, &mut bytes).map_err(|_| SealError::Signature)?;
        hmac::verify(&known.key, content, &bytes[..length]).map_err(|_| SealError::Signature)
    }
}
