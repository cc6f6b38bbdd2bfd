//! Sound of a call: our side of it, and what both sides agreed on.

use core::net::SocketAddr;

use repartee_sdp::phone::{CryptoSuite, PhoneCodec, PhoneOffer, SrtpKey};

/// Our side of a call's sound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalSound {
    /// Address that it comes from and goes to.
    pub address: SocketAddr,
    /// Key of our packets, if the other side offers SRTP.
    pub key: SrtpKey,
}

/// Keys of a call's sound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SoundKeys {
    /// Suite of both directions.
    pub suite: CryptoSuite,
    /// Key of the other side's packets.
    pub theirs: SrtpKey,
    /// Key of our packets.
    pub ours: SrtpKey,
}

/// Sound of a call, as both sides agreed on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallMedia {
    /// Address that our sound goes to.
    pub remote: SocketAddr,
    /// Codec of both directions.
    pub codec: PhoneCodec,
    /// Its payload type.
    pub payload_type: u8,
    /// Payload type of telephone keys.
    pub key_type: Option<u8>,
    /// True if the other side takes our sound: it does not while it holds the call.
    pub sends: bool,
    /// True if the other side sends a person's sound: while it holds the call, it sends none, or music.
    pub receives: bool,
    /// Keys of SRTP; `None` for plain RTP.
    pub keys: Option<SoundKeys>,
}

impl CallMedia {
    pub(crate) fn of(offer: &PhoneOffer, ours: SrtpKey) -> Self {
        let both = offer.direction.sends() && offer.direction.receives();
        Self {
            remote: offer.remote,
            codec: offer.codec,
            payload_type: offer.payload_type,
            key_type: offer.key_type,
            sends: offer.direction.receives(),
            // Who sends alone holds the call.
            receives: both,
            keys: offer.crypto.map(|crypto| SoundKeys { suite: crypto.suite, theirs: crypto.key, ours }),
        }
    }
}
