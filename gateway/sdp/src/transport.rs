//! Transport that bundled sections share: ICE credentials, fingerprints and the DTLS role.

use std::ops::RangeInclusive;

use crate::description::{Attribute, Description, find};
use crate::error::{OfferError, OfferFault};
use crate::fingerprint::Fingerprints;

/// Lengths of a user fragment and of a password, in characters (RFC 8839, 5.4).
const UFRAG_LENGTH: RangeInclusive<usize> = 4..=256;
const PASSWORD_LENGTH: RangeInclusive<usize> = 22..=256;

/// ICE user fragment and password.
#[derive(Clone, PartialEq, Eq)]
pub struct IceCredentials {
    /// User fragment, 4 to 256 characters.
    pub ufrag: String,
    /// Password, 22 to 256 characters.
    pub password: String,
}

impl std::fmt::Debug for IceCredentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("IceCredentials")
    }
}

/// The caller's side of the transport of all accepted sections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfferedTransport {
    /// The caller's ICE credentials.
    pub credentials: IceCredentials,
    /// Fingerprints of the certificates that the caller may present.
    pub fingerprints: Fingerprints,
    /// True if the caller waits for the server to begin the DTLS handshake.
    pub is_passive: bool,
}

impl OfferedTransport {
    /// Reads the transport from the sections `order`, the first of which has the right to all attributes. Its own come
    /// before the session's; what both lack, it leaves to the others of its group (RFC 8843, 9).
    pub(crate) fn read(description: &Description<'_>, order: &[usize]) -> Result<Self, OfferError> {
        let sections = || order.iter().filter_map(|index| description.sections.get(*index));
        let line = sections().next().map_or(description.last_line, |section| section.line);
        let missing = |name| OfferFault::MissingAttribute(name).at(line);
        let parts = || {
            let mut parts: Vec<&[Attribute<'_>]> = sections().map(|section| &section.attributes[..]).collect();
            parts.insert(parts.len().min(1), &description.attributes);
            parts
        };
        let parts = parts();
        let lookup = |name| parts.iter().find_map(|attributes| find(attributes, name));
        let ufrag = lookup("ice-ufrag").ok_or(missing("ice-ufrag"))?;
        let password = lookup("ice-pwd").ok_or(missing("ice-pwd"))?;
        let credentials = IceCredentials {
            ufrag: credential(ufrag, UFRAG_LENGTH, "a=ice-ufrag:<4 to 256 letters, digits, + and />")?,
            password: credential(password, PASSWORD_LENGTH, "a=ice-pwd:<22 to 256 letters, digits, + and />")?,
        };
        let mut fingerprints = parts.iter().filter_map(|attributes| Fingerprints::read(attributes).transpose());
        let fingerprints = fingerprints.next().ok_or(missing("fingerprint"))??;
        let is_passive = match lookup("setup").map(|setup| (setup.value, setup.line)) {
            // Without the attribute the caller is active (RFC 4145, 4).
            None | Some(("actpass" | "active", _)) => false,
            Some(("passive", _)) => true,
            Some((_, line)) => return Err(OfferFault::Syntax("a=setup:actpass, active or passive").at(line)),
        };
        Ok(Self { credentials, fingerprints, is_passive })
    }
}

fn credential(found: Attribute<'_>, length: RangeInclusive<usize>, form: &'static str) -> Result<String, OfferError> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    if length.contains(&found.value.len()) && found.value.bytes().all(is_allowed) {
        Ok(found.value.to_owned())
    } else {
        Err(OfferFault::Syntax(form).at(found.line))
    }
}
