//! Session descriptions of telephones (RFC 3264): one audio section of RTP, or SRTP by SDES, with PCMU, PCMA or Opus.

use core::net::{IpAddr, SocketAddr};
use std::fmt::Write as _;

use crate::audio::Direction;
use crate::description::{Description, Section, read_number};
use crate::error::{OfferError, OfferFault};
pub use crate::phone_crypto::{CryptoSuite, OfferedCrypto, SrtpKey};

/// Codec of a telephone call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PhoneCodec {
    /// G.711 mu-law, 8 kHz.
    Pcmu,
    /// G.711 A-law, 8 kHz.
    Pcma,
    /// Opus, whose timestamps count 48 kHz.
    Opus,
}

impl PhoneCodec {
    /// Encoding in an `rtpmap`.
    pub fn encoding(self) -> &'static str {
        match self {
            Self::Pcmu => "PCMU/8000",
            Self::Pcma => "PCMA/8000",
            Self::Opus => "opus/48000/2",
        }
    }

    /// Rate of RTP timestamps, in Hz.
    pub fn clock(self) -> u32 {
        if self == Self::Opus { 48_000 } else { 8_000 }
    }

    /// Finds the codec of a payload type, with its `rtpmap` or without.
    fn of(payload_type: u8, map: Option<&str>) -> Option<Self> {
        let Some(map) = map else {
            return [Self::Pcmu, Self::Pcma][..].iter().copied().find(|codec| codec.fixed() == Some(payload_type));
        };
        let map = map.to_ascii_lowercase();
        match map.strip_suffix("/1").unwrap_or(&map) {
            "pcmu/8000" => Some(Self::Pcmu),
            "pcma/8000" => Some(Self::Pcma),
            "opus/48000/2" => Some(Self::Opus),
            _ => None,
        }
    }

    /// Payload type that needs no `rtpmap` (RFC 3551, 6).
    fn fixed(self) -> Option<u8> {
        match self {
            Self::Pcmu => Some(0),
            Self::Pcma => Some(8),
            Self::Opus => None,
        }
    }
}

/// Offer of a telephone, as far as a call uses it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhoneOffer {
    /// Address that takes our sound.
    pub remote: SocketAddr,
    /// Codec: the first of the offer that is served.
    pub codec: PhoneCodec,
    /// Its payload type.
    pub payload_type: u8,
    /// Payload type of telephone keys (RFC 4733).
    pub key_type: Option<u8>,
    /// Direction as the other side sees it.
    pub direction: Direction,
    /// Keys of SRTP; `None` for plain RTP.
    pub crypto: Option<OfferedCrypto>,
    /// Rate of the telephone keys' timestamps, in Hz.
    key_clock: u32,
    /// Media, protocol and first format of each section.
    sections: Vec<(String, String, String)>,
    /// Number of the section that is used.
    used: usize,
}

impl PhoneOffer {
    /// Reads an offer.
    ///
    /// # Errors
    ///
    /// See [`OfferFault`].
    pub fn read(text: &str) -> Result<Self, OfferError> {
        let description = Description::parse(text)?;
        let mut fault = OfferFault::NoAudio.at(description.last_line);
        for (used, section) in description.sections.iter().enumerate() {
            if section.media != "audio" || section.port == 0 {
                continue;
            }
            match Self::read_section(&description, section, used) {
                Ok(offer) => return Ok(offer),
                Err(error) => fault = error.at(section.line),
            }
        }
        Err(fault)
    }

    fn read_section(description: &Description<'_>, section: &Section<'_>, used: usize) -> Result<Self, OfferFault> {
        let crypto = match section.protocol {
            "RTP/AVP" if section.ports == 1 => None,
            "RTP/SAVP" if section.ports == 1 => {
                Some(OfferedCrypto::first_of(section.all("crypto")).ok_or(OfferFault::NoPhoneCrypto)?)
            }
            _ => return Err(OfferFault::PhoneProtocol),
        };
        let address = section.connection.or(description.connection).ok_or(OfferFault::NoAddress)?;
        let address = read_address(address).ok_or(OfferFault::NoAddress)?;
        let maps: Vec<(u8, &str)> = section
            .all("rtpmap")
            .filter_map(|map| {
                let (number, encoding) = map.value.split_once(' ')?;
                Some((read_number(number)?, encoding.trim()))
            })
            .collect();
        let map_of = |number: u8| maps.iter().find(|(of, _)| *of == number).map(|(_, encoding)| *encoding);
        let formats =
            || section.formats.iter().filter_map(|format| read_number::<u8>(format)).filter(|number| *number < 128);
        let served = formats().find_map(|number| Some((number, PhoneCodec::of(number, map_of(number))?)));
        let (payload_type, codec) = served.ok_or(OfferFault::NoPhoneCodec)?;
        let keys = || {
            formats().filter_map(|number| {
                let map = map_of(number)?.to_ascii_lowercase();
                Some((number, map.strip_prefix("telephone-event/")?.parse::<u32>().ok()?))
            })
        };
        let key = keys().find(|(_, clock)| *clock == codec.clock()).or_else(|| keys().next());
        let own = Direction::first_of(&section.attributes).or_else(|| Direction::first_of(&description.attributes));
        // The old form of hold: no address.
        let held = address.is_unspecified();
        let direction = if held { Direction::Inactive } else { own.unwrap_or(Direction::SendRecv) };
        let sections = description.sections.iter().map(|section| {
            let first = section.formats.first().copied().unwrap_or("0");
            (section.media.to_owned(), section.protocol.to_owned(), first.to_owned())
        });
        Ok(Self {
            remote: SocketAddr::new(address, section.port),
            codec,
            payload_type,
            key_type: key.map(|(number, _)| number),
            direction,
            crypto,
            key_clock: key.map_or(0, |(_, clock)| clock),
            sections: sections.collect(),
            used,
        })
    }

    /// Writes the answer: our sound comes from `local`. `description` has the session's number, below 2^63, and the version,
    /// which grows with each answer; `key` is that of our packets, if they are encrypted.
    pub fn answer(&self, description: (u64, u64), local: SocketAddr, key: SrtpKey) -> String {
        let (number, version) = description;
        let address = address_line(local.ip());
        // Writing to a string cannot fail.
        let mut text = format!("v=0\r\no=- {number} {version} {address}\r\ns=-\r\nc={address}\r\nt=0 0\r\n");
        for (index, (media, protocol, first)) in self.sections.iter().enumerate() {
            if index != self.used {
                let _ = write!(text, "m={media} 0 {protocol} {first}\r\n");
                continue;
            }
            let keys = self.key_type.map(|number| format!(" {number}")).unwrap_or_default();
            let payload_type = self.payload_type;
            let _ = write!(text, "m=audio {} {protocol} {payload_type}{keys}\r\n", local.port());
            let _ = write!(text, "a=rtpmap:{payload_type} {}\r\n", self.codec.encoding());
            if let Some(number) = self.key_type {
                let _ =
                    write!(text, "a=rtpmap:{number} telephone-event/{}\r\na=fmtp:{number} 0-15\r\n", self.key_clock);
            }
            if let Some(crypto) = &self.crypto {
                text.push_str(&crypto.answer(key));
            }
            let _ = write!(text, "a=ptime:20\r\na={}\r\n", self.direction.reversed().name());
        }
        text
    }
}

/// Reads the value of a line `c=`: an address of one machine, without a name.
fn read_address(value: &str) -> Option<IpAddr> {
    let (kind, address) = value.strip_prefix("IN ")?.split_once(' ')?;
    let address: IpAddr = address.trim().parse().ok()?;
    let fits = if address.is_ipv4() { kind == "IP4" } else { kind == "IP6" };
    (fits && !address.is_multicast()).then_some(address)
}

/// Writes the value of a line `c=`.
pub(crate) fn address_line(address: IpAddr) -> String {
    format!("IN IP{} {address}", if address.is_ipv4() { 4 } else { 6 })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFFER: &str = "v=0\r\no=- 1 1 IN IP4 192.0.2.7\r\ns=-\r\nc=IN IP4 192.0.2.7\r\nt=0 0\r\n\
        m=video 4002 RTP/AVP 31\r\nm=audio 4000 RTP/AVP 18 8 0 101\r\na=rtpmap:18 G729/8000\r\na=rtpmap:101 telephone-event/8000\r\n";

    const KEY: SrtpKey = SrtpKey([7; 30]);

    fn local() -> SocketAddr {
        ([192, 0, 2, 1], 7000).into()
    }

    #[test]
    fn first_served_codec_is_taken() {
        let offer = PhoneOffer::read(OFFER).unwrap();
        assert_eq!(
            (offer.remote, offer.codec, offer.payload_type),
            (([192, 0, 2, 7], 4000).into(), PhoneCodec::Pcma, 8)
        );
        assert_eq!((offer.key_type, offer.direction), (Some(101), Direction::SendRecv));
        let answer = offer.answer((7, 2), local(), KEY);
        assert_eq!(
            answer,
            "v=0\r\no=- 7 2 IN IP4 192.0.2.1\r\ns=-\r\nc=IN IP4 192.0.2.1\r\nt=0 0\r\nm=video 0 RTP/AVP 31\r\n\
             m=audio 7000 RTP/AVP 8 101\r\na=rtpmap:8 PCMA/8000\r\na=rtpmap:101 telephone-event/8000\r\na=fmtp:101 0-15\r\n\
             a=ptime:20\r\na=sendrecv\r\n"
        );
        let opus = OFFER.replace("18 8 0 101", "96 0 101").replace("18 G729/8000", "96 OPUS/48000/2");
        let opus = PhoneOffer::read(&opus).unwrap();
        assert_eq!((opus.codec, opus.payload_type, opus.codec.clock()), (PhoneCodec::Opus, 96, 48_000));
        let pcmu = PhoneOffer::read(&OFFER.replace("18 8 0 101", "0")).unwrap();
        assert_eq!((pcmu.codec, pcmu.payload_type, pcmu.key_type), (PhoneCodec::Pcmu, 0, None));
    }

    #[test]
    fn hold_is_told_in_both_forms() {
        let held = PhoneOffer::read(&format!("{OFFER}a=sendonly\r\n")).unwrap();
        assert_eq!(held.direction, Direction::SendOnly);
        assert!(held.answer((7, 2), local(), KEY).ends_with("a=recvonly\r\n"));
        let old = PhoneOffer::read(&OFFER.replace("c=IN IP4 192.0.2.7", "c=IN IP4 0.0.0.0")).unwrap();
        assert_eq!(old.direction, Direction::Inactive);
    }

    #[test]
    fn encrypted_sound_has_a_key_of_each_side() {
        let key = "AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0e";
        let offer =
            |crypto: &str| PhoneOffer::read(&format!("{}{crypto}\r\n", OFFER.replace("4000 RTP/AVP", "4000 RTP/SAVP")));
        let offered = offer(&format!(
            "a=crypto:1 AES_256_CM_HMAC_SHA1_80 inline:AAAA\r\na=crypto:2 AES_CM_128_HMAC_SHA1_32 inline:{key}|2^20"
        ))
        .unwrap();
        let crypto = offered.crypto.unwrap();
        assert_eq!((crypto.suite, crypto.key.0[29]), (CryptoSuite::Sha1Tag32, 30));
        assert!(!format!("{offered:?}").contains("30"), "the key is not printed");
        let answer = offered.answer((7, 2), local(), KEY);
        assert!(answer.contains("m=audio 7000 RTP/SAVP 8 101\r\n"), "{answer}");
        assert!(answer.contains("a=crypto:2 AES_CM_128_HMAC_SHA1_32 inline:BwcH"), "{answer}");
        for crypto in [
            format!("a=crypto:1 AES_CM_128_HMAC_SHA1_80 inline:{key}|1:4"),
            format!("a=crypto:1 AES_CM_128_HMAC_SHA1_80 inline:{key} UNENCRYPTED_SRTP"),
            "a=crypto:1 AES_CM_128_HMAC_SHA1_80 inline:AQID".to_owned(),
        ] {
            assert_eq!(offer(&crypto).unwrap_err().fault, OfferFault::NoPhoneCrypto, "{crypto}");
        }
    }

    #[test]
    fn offers_that_cannot_be_served_say_why() {
        for (from, to, fault) in [
            ("m=audio 4000", "m=audio 0", OfferFault::NoAudio),
            ("m=audio 4000 RTP/AVP", "m=audio 4000 UDP/TLS/RTP/SAVP", OfferFault::PhoneProtocol),
            ("m=audio 4000 RTP/AVP", "m=audio 4000 RTP/SAVP", OfferFault::NoPhoneCrypto),
            ("18 8 0 101", "18 101", OfferFault::NoPhoneCodec),
            ("c=IN IP4 192.0.2.7", "c=IN IP4 voice.example", OfferFault::NoAddress),
            ("c=IN IP4 192.0.2.7", "c=IN IP6 192.0.2.7", OfferFault::NoAddress),
            ("c=IN IP4 192.0.2.7", "c=IN IP4 224.0.0.1", OfferFault::NoAddress),
            ("v=0", "v=1", OfferFault::NotSdp),
        ] {
            let error = PhoneOffer::read(&OFFER.replace(from, to)).unwrap_err();
            assert_eq!(error.fault, fault, "{to}");
        }
    }
}
