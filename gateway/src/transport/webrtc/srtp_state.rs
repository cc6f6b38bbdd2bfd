//! Counters of one call's SRTP, from both of its sides: datagrams that went in, and authentic packets that came out.
//! All others were replayed, forged or too old.

use std::sync::atomic::{AtomicU64, Ordering};

/// Flag bit of a stored SSRC, so that 0 means none.
const SSRC_SET: u64 = 1 << 32;

/// Packet counters of one call, shared by the mux and the connection.
#[derive(Debug, Default)]
pub(super) struct SrtpCounters {
    /// Datagrams of RTP and RTCP that the connection has read.
    read: AtomicU64,
    /// Those of them that were authentic and new.
    accepted: AtomicU64,
    /// The SSRC of the last authentic RTP packet, with the flag [`SSRC_SET`].
    ssrc: AtomicU64,
}

impl SrtpCounters {
    /// Counts a datagram that the connection reads.
    pub fn count_read(&self) {
        self.read.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an authentic datagram; `ssrc` is set for RTP.
    pub fn count_accepted(&self, ssrc: Option<u32>) {
        self.accepted.fetch_add(1, Ordering::Relaxed);
        if let Some(ssrc) = ssrc {
            self.ssrc.store(SSRC_SET + u64::from(ssrc), Ordering::Relaxed);
        }
    }

    /// Number of refused datagrams: replayed, forged, too old, or before there were keys.
    pub fn refused(&self) -> u64 {
        let accepted = self.accepted.load(Ordering::Relaxed);
        self.read.load(Ordering::Relaxed).saturating_sub(accepted)
    }

    /// The SSRC of the last authentic RTP packet.
    pub fn ssrc(&self) -> Option<u32> {
        // The lower half is the SSRC.
        let noted = self.ssrc.load(Ordering::Relaxed);
        (noted >= SSRC_SET).then_some(noted as u32)
    }
}
