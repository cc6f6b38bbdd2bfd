//! What is known of one call's SRTP from both of its sides: datagrams that went in, and packets that came out because they were
//! authentic. What never came out was replayed, forged or too old.

use std::sync::atomic::{AtomicU64, Ordering};

/// Added to an SSRC, so that 0 is none.
const SSRC_SET: u64 = 1 << 32;

/// Counts of one call, shared by the mux and the connection.
#[derive(Debug, Default)]
pub(super) struct SrtpCounters {
    /// Datagrams of RTP and RTCP that the connection has read.
    read: AtomicU64,
    /// Those of them that were authentic and new.
    accepted: AtomicU64,
    /// The SSRC of the first authentic RTP packet, and [`SOME`].
    ssrc: AtomicU64,
}

impl SrtpCounters {
    /// Counts a datagram that the connection reads.
    pub fn count_read(&self) {
        self.read.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an authentic datagram; `ssrc` is that of RTP.
    pub fn count_accepted(&self, ssrc: Option<u32>) {
        self.accepted.fetch_add(1, Ordering::Relaxed);
        if let Some(ssrc) = ssrc {
            // Only the first one is noted.
            let _ = self.ssrc.compare_exchange(0, SSRC_SET + u64::from(ssrc), Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Datagrams that were refused: replayed, forged, too old, or before there were keys.
    pub fn refused(&self) -> u64 {
        let accepted = self.accepted.load(Ordering::Relaxed);
        self.read.load(Ordering::Relaxed).saturating_sub(accepted)
    }

    /// The SSRC of the first authentic RTP packet.
    pub fn ssrc(&self) -> Option<u32> {
        // The lower half is the SSRC.
        let noted = self.ssrc.load(Ordering::Relaxed);
        (noted >= SSRC_SET).then_some(noted as u32)
    }
}
