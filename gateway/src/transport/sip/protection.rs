//! SRTP of a call by the keys of its session descriptions.

use std::fmt;

use bytes::Bytes;
use repartee_sdp::phone::{CryptoSuite, SrtpKey};
use repartee_sip::SoundKeys;
use rtc::srtp::context::Context;
use rtc::srtp::option::srtp_replay_protection;
use rtc::srtp::protection_profile::ProtectionProfile;

/// Packets that may overtake each other.
const REPLAY_WINDOW: usize = 128;
/// Maximum number of streams of one call: the library keeps a state for each.
const MAX_STREAMS: usize = 16;
/// Length of a master key, in bytes; the salt follows it.
const KEY: usize = 16;

/// Encryption and decryption of a call's packets.
pub(super) struct Protection {
    keys: SoundKeys,
    inbound: Context,
    outbound: Context,
    /// SSRCs of authentic packets.
    streams: Vec<[u8; 4]>,
}

impl fmt::Debug for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Protection").field("keys", &self.keys).finish_non_exhaustive()
    }
}

impl Protection {
    /// Derives the keys of both directions; `None` if the library refuses them.
    pub fn new(keys: SoundKeys) -> Option<Self> {
        let (inbound, outbound) = (context(keys.suite, &keys.theirs)?, context(keys.suite, &keys.ours)?);
        Some(Self { keys, inbound, outbound, streams: Vec::new() })
    }

    /// True if these are the keys in use.
    pub fn has(&self, keys: &SoundKeys) -> bool {
        self.keys == *keys
    }

    /// Decrypts a packet; `None` for one that is not authentic, or has come before.
    pub fn decrypt(&mut self, packet: &[u8]) -> Option<Bytes> {
        let ssrc: [u8; 4] = packet.get(8..12)?.try_into().ok()?;
        if !self.streams.contains(&ssrc) {
            // A state that is kept only for an authentic packet.
            context(self.keys.suite, &self.keys.theirs)?.decrypt_rtp(packet).ok()?;
            if self.streams.len() == MAX_STREAMS {
                return None;
            }
            self.streams.push(ssrc);
        }
        self.inbound.decrypt_rtp(packet).ok().map(|packet| packet.freeze())
    }

    /// Encrypts a packet.
    pub fn encrypt(&mut self, packet: &[u8]) -> Option<Bytes> {
        self.outbound.encrypt_rtp(packet).ok().map(|packet| packet.freeze())
    }
}

/// Creates a context of one direction.
fn context(suite: CryptoSuite, SrtpKey(key): &SrtpKey) -> Option<Context> {
    let profile = match suite {
        CryptoSuite::Sha1Tag80 => ProtectionProfile::Aes128CmHmacSha1_80,
        CryptoSuite::Sha1Tag32 => ProtectionProfile::Aes128CmHmacSha1_32,
    };
    let provider = rtc::crypto::default_provider().ok()?;
    let (key, salt) = key.split_at(KEY);
    let replay = Some(srtp_replay_protection(REPLAY_WINDOW));
    Context::new(key, salt, profile, replay, None, provider.crypto()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_read_by_the_other_side_alone() {
        let (ours, theirs) = (SrtpKey([1; 30]), SrtpKey([2; 30]));
        let mut here = Protection::new(SoundKeys { suite: CryptoSuite::Sha1Tag80, theirs, ours }).unwrap();
        let mut there =
            Protection::new(SoundKeys { suite: CryptoSuite::Sha1Tag80, theirs: ours, ours: theirs }).unwrap();
        let mut packet = vec![0x80, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0, 9];
        packet.extend([0x55; 160]);
        let encrypted = here.encrypt(&packet).unwrap();
        assert_eq!(encrypted.len(), packet.len() + 10);
        assert_ne!(encrypted[12..172], packet[12..]);
        assert_eq!(there.decrypt(&encrypted).unwrap(), packet);
        assert!(there.decrypt(&encrypted).is_none(), "it has come before");
        assert!(here.decrypt(&encrypted).is_none(), "another key");
        assert!(there.decrypt(&packet).is_none(), "plain");
    }
}
