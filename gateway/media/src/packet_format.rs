//! Formats of RTP packets that a jitter buffer orders.

use std::time::Duration;

use super::opus::packet_duration;

/// Bytes of G.711 in a second.
const G711_RATE: u64 = 8_000;
/// Longest packet of G.711, as of Opus.
const LONGEST: Duration = Duration::from_millis(120);
/// Maximum length of a DTX packet of Opus in bytes: the encoder detected silence, and pauses.
const DTX_BYTES: usize = 2;

/// Format of the packets of one stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PacketFormat {
    /// Opus, 2.5 to 120 ms a packet.
    #[default]
    Opus,
    /// mu-law or A-law. Timestamps are still those of 48 kHz: six times as many as on the wire.
    G711,
}

impl PacketFormat {
    /// Duration of a packet; `None` for one that is not of this format.
    pub fn duration(self, payload: &[u8]) -> Option<Duration> {
        match self {
            Self::Opus => packet_duration(payload).ok(),
            Self::G711 => {
                let duration = Duration::from_micros(payload.len() as u64 * 1_000_000 / G711_RATE);
                (!payload.is_empty() && duration <= LONGEST).then_some(duration)
            }
        }
    }

    /// True for a packet after which a sender pauses.
    pub(crate) fn begins_pause(self, payload: &[u8]) -> bool {
        self == Self::Opus && payload.len() <= DTX_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn telephone_packets_last_as_long_as_their_samples() {
        assert_eq!(PacketFormat::G711.duration(&[0; 160]), Some(Duration::from_millis(20)));
        assert_eq!(PacketFormat::G711.duration(&[0; 960]), Some(LONGEST));
        assert_eq!(PacketFormat::G711.duration(&[0; 961]), None);
        assert_eq!(PacketFormat::G711.duration(&[]), None);
        assert!(!PacketFormat::G711.begins_pause(&[0]));
        assert!(PacketFormat::Opus.begins_pause(&[0, 0]));
    }
}
