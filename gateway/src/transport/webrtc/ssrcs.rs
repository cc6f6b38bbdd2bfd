//! SSRCs of one call. The library keeps state for each SSRC before it knows that a packet is authentic, so only bounded
//! SSRCs reach it: those that the SDP names, or without any, the one of the first authentic packet.

/// Maximum SSRCs of RTP that a caller may announce.
const MAX_ANNOUNCED: usize = 4;
/// Maximum SSRCs that are tried until one proves authentic.
const MAX_CANDIDATES: usize = 32;
/// Maximum SSRCs of RTCP senders: a caller that sends no media may report under an SSRC that was not announced.
const MAX_RTCP: usize = 8;

/// Kind of a datagram, with its SSRC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PacketKind {
    /// RTP of this SSRC.
    Rtp(u32),
    /// RTCP whose sender has this SSRC.
    Rtcp(u32),
    /// Anything else: DTLS, or unknown data.
    Other,
}

impl PacketKind {
    /// Reads the header. RTCP shares the port; its types lie between 192 and 223 (RFC 5761).
    pub fn of(datagram: &[u8]) -> Self {
        let number = |at: usize| Some(u32::from_be_bytes(datagram.get(at..at + 4)?.try_into().ok()?));
        if datagram.first().is_none_or(|first| first >> 6 != 2) {
            return Self::Other;
        }
        match datagram.get(1) {
            Some(192..=223) => number(4).map_or(Self::Other, Self::Rtcp),
            Some(_) => number(8).map_or(Self::Other, Self::Rtp),
            None => Self::Other,
        }
    }

    /// Returns the SSRC, if it is RTP.
    pub fn rtp(self) -> Option<u32> {
        if let Self::Rtp(ssrc) = self { Some(ssrc) } else { None }
    }
}

/// Known and tried SSRCs of one call.
#[derive(Debug)]
pub(super) struct Ssrcs {
    /// SSRCs that the SDP names, or the authentic one.
    known: Vec<u32>,
    /// SSRCs that are tried while none is known.
    candidates: Vec<u32>,
    rtcp: Vec<u32>,
}

impl Ssrcs {
    /// Starts with the SSRCs of a caller's SDP.
    pub fn announced(mut announced: Vec<u32>) -> Self {
        announced.truncate(MAX_ANNOUNCED);
        Self { known: announced, candidates: Vec::new(), rtcp: Vec::new() }
    }

    /// SSRCs that certainly belong to the call.
    pub fn known(&self) -> &[u32] {
        &self.known
    }

    /// Stores the SSRC of the first authentic packet; true if it is the first.
    pub fn authentic(&mut self, ssrc: u32) -> bool {
        let first = self.known.is_empty();
        if first {
            self.known.push(ssrc);
            self.candidates = Vec::new();
        }
        first
    }

    /// True if the packet may reach the library.
    pub fn admit(&mut self, packet: PacketKind) -> bool {
        let noted = |list: &mut Vec<u32>, ssrc: u32, most: usize| {
            if !list.contains(&ssrc) && list.len() < most {
                list.push(ssrc);
            }
            list.contains(&ssrc)
        };
        match packet {
            PacketKind::Rtp(ssrc) if self.known.is_empty() => noted(&mut self.candidates, ssrc, MAX_CANDIDATES),
            PacketKind::Rtp(ssrc) => self.known.contains(&ssrc),
            PacketKind::Rtcp(ssrc) => self.known.contains(&ssrc) || noted(&mut self.rtcp, ssrc, MAX_RTCP),
            PacketKind::Other => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_told_apart() {
        let rtp = [0x80, 111, 0, 1, 0, 0, 0, 1, 0, 0, 0, 7, 9];
        let rtcp = [0x81, 201, 0, 7, 0, 0, 0, 9];
        assert_eq!((PacketKind::of(&rtp), PacketKind::of(&rtcp)), (PacketKind::Rtp(7), PacketKind::Rtcp(9)));
        for other in [&[][..], &[0x80], &rtp[..11], &rtcp[..7], &[22, 254, 253, 0, 0, 0, 0, 0, 0, 0, 0, 0]] {
            assert_eq!(PacketKind::of(other), PacketKind::Other, "{other:?}");
        }
    }

    #[test]
    fn announced_ssrcs_alone_are_admitted() {
        let mut ssrcs = Ssrcs::announced(vec![7, 8]);
        assert!(ssrcs.admit(PacketKind::Rtp(7)) && ssrcs.admit(PacketKind::Rtp(8)) && ssrcs.admit(PacketKind::Other));
        assert!(!ssrcs.admit(PacketKind::Rtp(9)));
        assert!(!ssrcs.authentic(9), "nothing is added to what was announced");
        assert!(!ssrcs.admit(PacketKind::Rtp(9)));
    }

    #[test]
    fn the_first_authentic_ssrc_becomes_the_only_one() {
        let mut ssrcs = Ssrcs::announced(Vec::new());
        let admitted = (0..1_000).filter(|ssrc| ssrcs.admit(PacketKind::Rtp(*ssrc))).count();
        assert_eq!(admitted, MAX_CANDIDATES, "what is kept before is bounded");
        assert!(ssrcs.authentic(3) && !ssrcs.authentic(4));
        assert_eq!(ssrcs.known(), [3]);
        assert!(ssrcs.admit(PacketKind::Rtp(3)) && !ssrcs.admit(PacketKind::Rtp(4)));
    }

    #[test]
    fn rtcp_senders_are_bounded() {
        let mut ssrcs = Ssrcs::announced(vec![7]);
        assert_eq!((100..200).filter(|ssrc| ssrcs.admit(PacketKind::Rtcp(*ssrc))).count(), MAX_RTCP);
        assert!(ssrcs.admit(PacketKind::Rtcp(7)) && ssrcs.admit(PacketKind::Rtcp(100)));
    }
}
