//! ICE credentials: the user fragment that names a call, and the password that signs its requests.

/// ICE user fragment and password of one side.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Credentials {
    pub ufrag: String,
    pub password: String,
}

impl Credentials {
    /// Generates random credentials.
    pub fn random() -> Result<Self, getrandom::Error> {
        Ok(Self { ufrag: random_text(12)?, password: random_text(28)? })
    }
}

/// Returns random characters of the ICE alphabet, six bits each.
fn random_text(length: usize) -> Result<String, getrandom::Error> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bytes = vec![0; length];
    getrandom::fill(&mut bytes)?;
    Ok(bytes.into_iter().map(|byte| char::from(ALPHABET[usize::from(byte & 63)])).collect())
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credentials")
    }
}
