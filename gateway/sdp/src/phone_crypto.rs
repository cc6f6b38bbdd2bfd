//! Keys of SRTP in session descriptions (SDES, RFC 4568).

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::description::Attribute;

/// Suite of SRTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CryptoSuite {
    /// AES in counter mode with tags of 80 bits.
    Sha1Tag80,
    /// AES in counter mode with tags of 32 bits.
    Sha1Tag32,
}

impl CryptoSuite {
    /// Name in the attribute.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sha1Tag80 => "AES_CM_128_HMAC_SHA1_80",
            Self::Sha1Tag32 => "AES_CM_128_HMAC_SHA1_32",
        }
    }
}

/// Master key of 16 bytes and salt of 14 bytes. `Debug` prints neither.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SrtpKey(pub [u8; 30]);

impl fmt::Debug for SrtpKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SrtpKey(set)")
    }
}

/// Key of the other side, and the suite of both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OfferedCrypto {
    /// Number of the attribute, which the answer repeats.
    pub(crate) tag: u32,
    /// Suite of both directions.
    pub suite: CryptoSuite,
    /// Key of the other side's packets.
    pub key: SrtpKey,
}

impl OfferedCrypto {
    /// Reads the first line `a=crypto` that is served: without session parameters and without key identifiers.
    pub(crate) fn first_of<'a>(mut attributes: impl Iterator<Item = Attribute<'a>>) -> Option<Self> {
        attributes.find_map(|attribute| {
            let mut fields = attribute.value.split(' ').filter(|field| !field.is_empty());
            let tag = fields.next()?.parse().ok()?;
            let name = fields.next()?;
            let suite =
                [CryptoSuite::Sha1Tag80, CryptoSuite::Sha1Tag32].into_iter().find(|suite| suite.name() == name)?;
            let mut parts = fields.next()?.strip_prefix("inline:")?.split('|');
            let key = SrtpKey(STANDARD.decode(parts.next()?).ok()?.try_into().ok()?);
            // A lifetime needs nothing of us; an identifier of the key would be in each packet.
            let has_identifier = parts.any(|part| part.contains(':'));
            (!has_identifier && fields.next().is_none()).then_some(Self { tag, suite, key })
        })
    }

    /// Writes the attribute of an answer, with our key.
    pub(crate) fn answer(&self, ours: SrtpKey) -> String {
        format!("a=crypto:{} {} inline:{}\r\n", self.tag, self.suite.name(), STANDARD.encode(ours.0))
    }
}
