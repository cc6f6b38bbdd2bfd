//! SSRCs of one call: those that the SDP names, and those of authentic packets. A caller may change its SSRC within a call, as
//! gateways do after a hold. The library keeps state for each SSRC before it knows that a packet is authentic, so only a bounded
//! number reaches it.

/// Maximum SSRCs of RTP that a caller may announce.
const MAX_ANNOUNCED: usize = 4;
/// Maximum SSRCs that belong to a call, announced or authentic.
const MAX_KNOWN: usize = 16;
/// Maximum SSRCs that are tried until one proves authentic: of the first, and of a later one.
pub(super) const MAX_CANDIDATES: [usize; 2] = [32, 8];
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
    /// SSRCs that the SDP names, and authentic ones.
    known: Vec<u32>,
    /// SSRCs that are tried since the last one proved authentic.
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

    /// Stores the SSRC of an authentic packet; true if it is new.
    pub fn authentic(&mut self, ssrc: u32) -> bool {
        let is_new = self.known.len() < MAX_KNOWN && !self.known.contains(&ssrc);
        if is_new {
            self.known.push(ssrc);
            self.candidates = Vec::new();
        }
        is_new
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
            PacketKind::Rtp(ssrc) => {
                let most = MAX_CANDIDATES[usize::from(!self.known.is_empty())];
                self.known.contains(&ssrc) || noted(&mut self.candidates, ssrc, most)
            }
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
    fn new_ssrcs_are_tried_within_bounds() {
        for announced in [vec![7, 8], vec![]] {
            let mut ssrcs = Ssrcs::announced(announced.clone());
            assert!(announced.iter().all(|ssrc| ssrcs.admit(PacketKind::Rtp(*ssrc))) && ssrcs.admit(PacketKind::Other));
            let admitted = (100..1_000).filter(|ssrc| ssrcs.admit(PacketKind::Rtp(*ssrc))).count();
            assert_eq!(admitted, MAX_CANDIDATES[usize::from(!announced.is_empty())], "what is kept before is bounded");
            assert!(
                announced.iter().all(|ssrc| ssrcs.admit(PacketKind::Rtp(*ssrc))),
                "forged ones take no place of these"
            );
            // One proves authentic, and a caller changes its SSRC again and again.
            for ssrc in 100..200 {
                ssrcs.admit(PacketKind::Rtp(ssrc));
                assert_eq!(ssrcs.authentic(ssrc), ssrcs.known().last() == Some(&ssrc));
                assert!(!ssrcs.authentic(ssrc));
            }
            assert_eq!(ssrcs.known().len(), MAX_KNOWN);
            assert!(ssrcs.candidates.len() <= MAX_CANDIDATES[1]);
        }
    }

    #[test]
    fn rtcp_senders_are_bounded() {
        let mut ssrcs = Ssrcs::announced(vec![7]);
        assert_eq!((100..200).filter(|ssrc| ssrcs.admit(PacketKind::Rtcp(*ssrc))).count(), MAX_RTCP);
        assert!(ssrcs.admit(PacketKind::Rtcp(7)) && ssrcs.admit(PacketKind::Rtcp(100)));
    }
}
