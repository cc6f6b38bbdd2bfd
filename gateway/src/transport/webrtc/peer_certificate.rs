//! Checks the certificate that the caller presented in the DTLS handshake against the fingerprints of its offer (RFC 8122).
//! The library compares SHA-256 alone, so its own check is switched off.

use std::sync::Arc;

use repartee_sdp::{Fingerprints, HashFunction};
use ring::digest::{Algorithm, SHA1_FOR_LEGACY_USE_ONLY, SHA256, SHA384, SHA512, digest};
use thiserror::Error;
use webrtc::peer_connection::PeerConnection;

/// Reason why the caller is not who wrote the offer.
#[derive(Debug, Error)]
pub(super) enum CertificateError {
    /// The handshake left no certificate.
    #[error("the caller presented no certificate")]
    Missing,
    /// The certificate is another one.
    #[error("the caller's certificate has none of the offer's fingerprints: its {function:?} is {presented}")]
    Mismatch {
        /// Hash function of the offer's fingerprints.
        function: HashFunction,
        /// Digest of the certificate, in hexadecimal.
        presented: String,
    },
    /// The library failed.
    #[error("the caller's certificate could not be read: {0}")]
    Library(#[from] webrtc::error::Error),
}

/// Checks the certificate of a connection whose handshake is complete.
pub(super) async fn verify_certificate(
    pc: &Arc<dyn PeerConnection>,
    expected: &Fingerprints,
) -> Result<(), CertificateError> {
    // All media and data share one transport.
    for sender in pc.get_senders().await {
        if let Some(transport) = sender.transport().await? {
            let certificates = transport.get_remote_certificates().await?;
            return compare(certificates.first().ok_or(CertificateError::Missing)?, expected);
        }
    }
    Err(CertificateError::Missing)
}

/// Compares a certificate in DER form with the fingerprints.
fn compare(certificate: &[u8], expected: &Fingerprints) -> Result<(), CertificateError> {
    let computed = digest(algorithm(expected.function), certificate);
    let presented: &[u8] = computed.as_ref();
    if expected.digests.iter().any(|digest| digest == presented) {
        return Ok(());
    }
    let presented = presented.iter().map(|byte| format!("{byte:02x}")).collect();
    Err(CertificateError::Mismatch { function: expected.function, presented })
}

fn algorithm(function: HashFunction) -> &'static Algorithm {
    match function {
        HashFunction::Sha1 => &SHA1_FOR_LEGACY_USE_ONLY,
        HashFunction::Sha256 => &SHA256,
        HashFunction::Sha384 => &SHA384,
        HashFunction::Sha512 => &SHA512,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_fingerprint_of_the_certificate_fits() {
        // RFC 6234: digests of "abc".
        for (function, hexadecimal) in [
            (HashFunction::Sha1, "a9993e364706816aba3e25717850c26c9cd0d89d"),
            (HashFunction::Sha256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        ] {
            let bytes = (0..hexadecimal.len()).step_by(2);
            let right: Vec<_> = bytes.map(|at| u8::from_str_radix(&hexadecimal[at..at + 2], 16).unwrap()).collect();
            let wrong = vec![0; right.len()];
            let check = |digests| compare(b"abc", &Fingerprints { function, digests });
            assert!(check(vec![wrong.clone(), right]).is_ok());
            let error = check(vec![wrong]).unwrap_err().to_string();
            assert!(error.contains(hexadecimal), "{error}");
            assert!(check(Vec::new()).is_err());
        }
    }
}
