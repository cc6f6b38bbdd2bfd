//! Fingerprints of certificates (RFC 8122, 5).

use crate::description::{Attribute, is_token};
use crate::error::{OfferError, OfferFault};

/// Maximum fingerprints by one hash function: each is a further certificate.
const MAX_DIGESTS: usize = 16;
/// Names of the hash functions, and sizes of their digests in bytes.
const FUNCTIONS: [(HashFunction, &str, usize); 4] = [
    (HashFunction::Sha1, "sha-1", 20),
    (HashFunction::Sha256, "sha-256", 32),
    (HashFunction::Sha384, "sha-384", 48),
    (HashFunction::Sha512, "sha-512", 64),
];

/// Hash function of a fingerprint, the weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names say all")]
pub enum HashFunction {
    Sha1,
    Sha256,
    Sha384,
    Sha512,
}

/// Digests of the certificates that the caller may present, by the strongest hash function among those offered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fingerprints {
    /// Hash function of all digests.
    pub function: HashFunction,
    /// Digests of certificates in DER form; the caller's certificate has one of them.
    pub digests: Vec<Vec<u8>>,
}

impl Fingerprints {
    /// Reads the `fingerprint` attributes of one section; fingerprints by unknown hash functions are ignored.
    pub(crate) fn read(attributes: &[Attribute<'_>]) -> Result<Option<Self>, OfferError> {
        let (mut strongest, mut first): (Option<Self>, _) = (None, None);
        for attribute in attributes.iter().filter(|attribute| attribute.name == "fingerprint") {
            first = first.or(Some(attribute.line));
            let syntax = OfferFault::Syntax("a=fingerprint:<hash function> <hexadecimal bytes with colons between>");
            let error = syntax.at(attribute.line);
            let (name, digest) = attribute.value.split_once(' ').filter(|(name, _)| is_token(name)).ok_or(error)?;
            let Some((function, _, size)) = FUNCTIONS.iter().find(|(_, known, _)| known.eq_ignore_ascii_case(name))
            else {
                continue;
            };
            let digest = read_digest(digest, *size).ok_or(error)?;
            match &mut strongest {
                Some(found) if found.function > *function => {}
                Some(found) if found.function == *function => {
                    if found.digests.len() < MAX_DIGESTS {
                        found.digests.push(digest);
                    }
                }
                _ => strongest = Some(Self { function: *function, digests: vec![digest] }),
            }
        }
        match (&strongest, first) {
            (None, Some(line)) => Err(OfferFault::FingerprintHash.at(line)),
            _ => Ok(strongest),
        }
    }

    /// Value of the attribute for the first digest.
    pub(crate) fn attribute(&self) -> String {
        let (_, name, _) = FUNCTIONS[self.function as usize];
        let bytes: Vec<_> = self.digests.iter().take(1).flatten().map(|byte| format!("{byte:02X}")).collect();
        format!("{name} {}", bytes.join(":"))
    }
}

/// Reads `size` bytes in hexadecimal, in either case, with colons between.
fn read_digest(text: &str, size: usize) -> Option<Vec<u8>> {
    let is_byte = |byte: &&str| byte.len() == 2 && byte.bytes().all(|digit| digit.is_ascii_hexdigit());
    let bytes = text.split(':').take(size + 1).map(|byte| Some(byte).filter(is_byte));
    let digest: Vec<_> = bytes.map(|byte| u8::from_str_radix(byte?, 16).ok()).collect::<Option<_>>()?;
    Some(digest).filter(|digest| digest.len() == size)
}
