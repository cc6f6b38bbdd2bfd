//! ICE credentials: the user fragment that names a call, and the password that signs its requests.

use repartee_sdp::IceCredentials;

/// Generates random credentials.
pub(super) fn random_credentials() -> Result<IceCredentials, getrandom::Error> {
    Ok(IceCredentials { ufrag: random_text(12)?, password: random_text(28)? })
}

/// Returns random characters of the ICE alphabet, six bits each.
fn random_text(length: usize) -> Result<String, getrandom::Error> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bytes = vec![0; length];
    getrandom::fill(&mut bytes)?;
    Ok(bytes.into_iter().map(|byte| char::from(ALPHABET[usize::from(byte & 63)])).collect())
}
