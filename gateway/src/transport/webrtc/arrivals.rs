//! Arrival times of RTP packets at the socket. Decryption and the connection's tasks come between the socket and the
//! jitter buffer; on a busy machine their delay would look like network jitter.

use std::time::Instant;

/// Number of packets whose arrival is stored: more than may wait for one call's connection.
const MAX_ARRIVALS: usize = 1_024;

/// Arrival times of one call's newest packets. Headers are not encrypted, so a forged packet may replace the time of
/// the packet that it names; the true packet then counts as late as the forgery.
#[derive(Debug, Default)]
pub(super) struct ArrivalTimes {
    /// Ring by sequence number; grows as packets arrive.
    ring: Vec<Option<Arrival>>,
}

#[derive(Debug, Clone, Copy)]
struct Arrival {
    ssrc: u32,
    sequence: u16,
    at: Instant,
}

impl ArrivalTimes {
    /// Stores the arrival of an RTP datagram at the socket.
    pub fn record(&mut self, datagram: &[u8], at: Instant) {
        let Some((ssrc, sequence)) = rtp_header(datagram) else { return };
        self.ring.resize(MAX_ARRIVALS, None);
        if let Some(slot) = self.ring.get_mut(usize::from(sequence) % MAX_ARRIVALS) {
            *slot = Some(Arrival { ssrc, sequence, at });
        }
    }

    /// Returns the packet's arrival at the socket; `None` if it is no longer stored.
    pub fn get(&self, ssrc: u32, sequence: u16) -> Option<Instant> {
        let kept = (*self.ring.get(usize::from(sequence) % MAX_ARRIVALS)?)?;
        (kept.ssrc == ssrc && kept.sequence == sequence).then_some(kept.at)
    }
}

/// Returns SSRC and sequence number of an RTP packet. RTCP shares the port; its types are 192 to 223 (RFC 5761).
fn rtp_header(datagram: &[u8]) -> Option<(u32, u16)> {
    let [first, kind, high, low, _, _, _, _, ssrc @ ..] = datagram.get(..12)? else { return None };
    let ssrc = u32::from_be_bytes(ssrc.try_into().ok()?);
    (first >> 6 == 2 && !(192..=223).contains(kind)).then_some((ssrc, u16::from_be_bytes([*high, *low])))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn packet(kind: u8, ssrc: u32, sequence: u16) -> Vec<u8> {
        let mut packet = vec![0x80, kind];
        packet.extend(sequence.to_be_bytes());
        packet.extend([0; 4]);
        packet.extend(ssrc.to_be_bytes());
        packet
    }

    #[test]
    fn arrivals_are_known_until_they_are_replaced() {
        let (start, ms) = (Instant::now(), Duration::from_millis(1));
        let mut arrivals = ArrivalTimes::default();
        assert_eq!(arrivals.get(7, 0), None);
        for sequence in 0..MAX_ARRIVALS as u16 {
            arrivals.record(&packet(111, 7, sequence), start + u32::from(sequence) * ms);
        }
        assert_eq!(arrivals.get(7, 5), Some(start + 5 * ms));
        assert_eq!(arrivals.get(8, 5), None, "another sender");
        arrivals.record(&packet(111, 7, MAX_ARRIVALS as u16 + 5), start);
        assert_eq!((arrivals.get(7, 5), arrivals.get(7, MAX_ARRIVALS as u16 + 5)), (None, Some(start)));
    }

    #[test]
    fn only_rtp_is_noted() {
        let mut arrivals = ArrivalTimes::default();
        for datagram in [packet(200, 7, 1), packet(111, 7, 1)[..11].to_vec(), vec![22; 40], Vec::new()] {
            arrivals.record(&datagram, Instant::now());
        }
        assert!(arrivals.ring.is_empty());
    }
}
