//! Offer of a call that we make.

use core::net::SocketAddr;
use std::fmt::Write as _;

use crate::phone::{PhoneCodec, PhoneOffer, address_line};
use crate::phone_crypto::{CryptoSuite, OfferedCrypto, SrtpKey};

/// Codecs of an offer with their payload types, the best first.
const OFFERED: [(u8, PhoneCodec); 3] = [(96, PhoneCodec::Opus), (0, PhoneCodec::Pcmu), (8, PhoneCodec::Pcma)];
/// Payload types of telephone keys, with the rate of their timestamps, in Hz.
const KEYS: [(u8, u32); 2] = [(101, 8_000), (102, 48_000)];
/// Number of the attribute `a=crypto`.
const CRYPTO_TAG: u32 = 1;

/// Writes an offer: our sound comes from `local`. `description` is the session's number, below 2^63, and its version; with a
/// `key` the sound is SRTP alone.
pub fn phone_offer(description: (u64, u64), local: SocketAddr, key: Option<SrtpKey>) -> String {
    let ((number, version), address) = (description, address_line(local.ip()));
    let protocol = if key.is_some() { "RTP/SAVP" } else { "RTP/AVP" };
    let types = OFFERED.iter().map(|(number, _)| number).chain(KEYS.iter().map(|(number, _)| number));
    let types: String = types.map(|number| format!(" {number}")).collect();
    let mut text = format!(
        "v=0\r\no=- {number} {version} {address}\r\ns=-\r\nc={address}\r\nt=0 0\r\nm=audio {} {protocol}{types}\r\n",
        local.port()
    );
    // Writing to a string cannot fail.
    for (number, codec) in OFFERED {
        let _ = write!(text, "a=rtpmap:{number} {}\r\n", codec.encoding());
    }
    for (number, clock) in KEYS {
        let _ = write!(text, "a=rtpmap:{number} telephone-event/{clock}\r\na=fmtp:{number} 0-15\r\n");
    }
    if let Some(key) = key {
        let ours = OfferedCrypto { tag: CRYPTO_TAG, suite: CryptoSuite::Sha1Tag80, key };
        text.push_str(&ours.answer(key));
    }
    text.push_str("a=ptime:20\r\na=sendrecv\r\n");
    text
}

impl PhoneOffer {
    /// True if this description answers [`phone_offer`], with SRTP or without: its codec has the type of the offer, and its
    /// keys are those of our suite.
    pub fn answers(&self, is_encrypted: bool) -> bool {
        let has_codec = OFFERED.contains(&(self.payload_type, self.codec));
        let has_keys = match &self.crypto {
            Some(crypto) => is_encrypted && crypto.tag == CRYPTO_TAG && crypto.suite == CryptoSuite::Sha1Tag80,
            None => !is_encrypted,
        };
        has_codec && has_keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: SrtpKey = SrtpKey([7; 30]);

    fn local() -> SocketAddr {
        ([192, 0, 2, 1], 7000).into()
    }

    #[test]
    fn our_offers_are_answered_by_ourselves() {
        let remote: SocketAddr = ([192, 0, 2, 7], 4000).into();
        for key in [None, Some(KEY)] {
            let offer = PhoneOffer::read(&phone_offer((7, 1), local(), key)).unwrap();
            assert_eq!((offer.remote, offer.codec, offer.key_type), (local(), PhoneCodec::Opus, Some(102)));
            let answer = PhoneOffer::read(&offer.answer((9, 1), remote, KEY)).unwrap();
            assert!(answer.answers(key.is_some()) && !answer.answers(key.is_none()));
            assert_eq!(answer.remote, remote);
        }
    }

    #[test]
    fn other_answers_are_told_apart() {
        let answer = |media: &str, lines: &str| {
            let text = format!(
                "v=0\r\no=- 1 1 IN IP4 192.0.2.7\r\ns=-\r\nc=IN IP4 192.0.2.7\r\nt=0 0\r\nm=audio 4000 {media}\r\n{lines}"
            );
            PhoneOffer::read(&text).unwrap()
        };
        assert!(answer("RTP/AVP 8 101", "").answers(false));
        assert!(!answer("RTP/AVP 97", "a=rtpmap:97 opus/48000/2\r\n").answers(false), "another type");
        let key = "AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0e";
        let with = |tag: u32, suite: &str| answer("RTP/SAVP 0", &format!("a=crypto:{tag} {suite} inline:{key}\r\n"));
        assert!(with(1, "AES_CM_128_HMAC_SHA1_80").answers(true));
        assert!(!with(2, "AES_CM_128_HMAC_SHA1_80").answers(true), "another number");
        assert!(!with(1, "AES_CM_128_HMAC_SHA1_32").answers(true), "another suite");
    }
}
