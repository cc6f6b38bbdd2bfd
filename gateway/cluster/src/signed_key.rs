//! Ephemeral keys of a cluster: signed, so that every node checks one by itself, without asking the node that issued it.
//!
//! `ek_ID.CONTENT.SIGNATURE`, where ID names the secret and CONTENT is base64url of JSON.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

use crate::secret::{ClusterSecrets, SealError, Sealer};
use crate::tag::NodeTag;

/// Prefix of every ephemeral key.
const PREFIX: &str = "ek_";
/// Largest session configuration that the key itself holds, in bytes of JSON; a larger one stays with its issuer.
pub const MAX_SESSION_IN_KEY: usize = 2 << 10;
/// Maximum length of a key: its session in base64, and what surrounds it.
const MAX_KEY: usize = MAX_SESSION_IN_KEY / 3 * 4 + 512;
/// Seconds that a key counts after its end: clocks of nodes may differ.
const LEEWAY: u64 = 5;

/// Rights of a key.
#[derive(Debug, Clone, PartialEq)]
pub struct KeyGrant {
    /// End of the key, in seconds since 1970.
    pub until: u64,
    /// Identity of the API key that issued it; `None` on a server without keys.
    pub owner: Option<u64>,
    /// Node that issued it.
    pub issuer: NodeTag,
    /// Random part, which tells keys apart.
    pub nonce: [u8; 16],
    /// Session configuration of its calls.
    pub session: KeySession,
}

/// Session configuration of a key.
#[derive(Debug, Clone, PartialEq)]
pub enum KeySession {
    /// In the key.
    Inside(Value),
    /// With the issuer, under the key's nonce.
    AtIssuer,
}

/// Error of [`KeySigner::check`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum SignedKeyError {
    /// Not a key of this form; perhaps an API key.
    #[error("not a signed ephemeral key")]
    NotSigned,
    /// Longer than any key.
    #[error("the ephemeral key is longer than {MAX_KEY} bytes")]
    TooLong,
    /// Signed wrongly, or with a secret that was removed.
    #[error("the ephemeral key was not issued by this cluster: {0}")]
    Seal(#[from] SealError),
    /// Signed, but unreadable: by a later version.
    #[error("the ephemeral key has a content that this version cannot read")]
    Content,
    /// Its end has passed.
    #[error("the ephemeral key has expired")]
    Expired,
}

/// Content on the wire. A later version adds fields and removes none.
#[derive(Serialize, Deserialize)]
struct KeyContent {
    #[serde(rename = "e")]
    until: u64,
    /// Hexadecimal, because JSON has no 64-bit integers.
    #[serde(rename = "o", default, skip_serializing_if = "Option::is_none")]
    owner: Option<String>,
    #[serde(rename = "i")]
    issuer: NodeTag,
    #[serde(rename = "n")]
    nonce: String,
    /// `None` if the session is with the issuer.
    #[serde(rename = "s", default, skip_serializing_if = "Option::is_none")]
    session: Option<Value>,
}

/// Issues and checks the keys of a cluster.
#[derive(Debug, Clone)]
pub struct KeySigner(Sealer);

impl KeySigner {
    /// Signer of a cluster.
    pub fn new(secrets: &ClusterSecrets) -> Self {
        Self(secrets.sealer("ephemeral key"))
    }

    /// Issues a key. Fails with [`SignedKeyError::TooLong`] if the session in it has more than [`MAX_SESSION_IN_KEY`] bytes.
    pub fn issue(&self, grant: &KeyGrant) -> Result<String, SignedKeyError> {
        let session = match &grant.session {
            KeySession::Inside(session) if session.to_string().len() > MAX_SESSION_IN_KEY => {
                return Err(SignedKeyError::TooLong);
            }
            KeySession::Inside(session) => Some(session.clone()),
            KeySession::AtIssuer => None,
        };
        let content = KeyContent {
            until: grant.until,
            owner: grant.owner.map(|owner| format!("{owner:016x}")),
            issuer: grant.issuer,
            nonce: URL_SAFE_NO_PAD.encode(grant.nonce),
            session,
        };
        let json = serde_json::to_vec(&content).map_err(|_| SignedKeyError::Content)?;
        let content = URL_SAFE_NO_PAD.encode(json);
        let seal = self.0.sign(content.as_bytes());
        let (id, signature) = seal.split_once('.').ok_or(SignedKeyError::Content)?;
        Ok(format!("{PREFIX}{id}.{content}.{signature}"))
    }

    /// Checks a key at `unix` seconds since 1970.
    pub fn check(&self, key: &str, unix: u64) -> Result<KeyGrant, SignedKeyError> {
        let Some((id, rest)) = key.strip_prefix(PREFIX).and_then(|rest| rest.split_once('.')) else {
            return Err(SignedKeyError::NotSigned);
        };
        if key.len() > MAX_KEY {
            return Err(SignedKeyError::TooLong);
        }
        let (content, signature) = rest.split_once('.').ok_or(SignedKeyError::NotSigned)?;
        self.0.verify(id, signature, content.as_bytes())?;
        let json = URL_SAFE_NO_PAD.decode(content).map_err(|_| SignedKeyError::Content)?;
        let content: KeyContent = serde_json::from_slice(&json).map_err(|_| SignedKeyError::Content)?;
        if unix >= content.until.saturating_add(LEEWAY) {
            return Err(SignedKeyError::Expired);
        }
        let owner = content.owner.map(|owner| u64::from_str_radix(&owner, 16)).transpose();
        let mut nonce = [0; 16];
        let filled = URL_SAFE_NO_PAD.decode_slice(&content.nonce, &mut nonce).map_err(|_| SignedKeyError::Content)?;
        if filled != nonce.len() {
            return Err(SignedKeyError::Content);
        }
        Ok(KeyGrant {
            until: content.until,
            owner: owner.map_err(|_| SignedKeyError::Content)?,
            issuer: content.issuer,
            nonce,
            session: content.session.map_or(KeySession::AtIssuer, KeySession::Inside),
        })
    }
}
