//! The answer to an offer, valid against it section by section (RFC 8829, 5.3.1; RFC 8843, 7.3).

use core::net::SocketAddr;
use std::fmt::Write as _;

use crate::audio::{AudioFormat, AudioSection};
use crate::offer::{Decision, OPUS_PARAMETERS, Offer, SectionPlan};
use crate::transport::IceCredentials;

/// Name of our audio stream and its track.
const STREAM: &str = "voice";
/// Our SCTP port.
const SCTP_PORT: u16 = 5_000;
/// Number of streams that the form of the drafts announces.
const DRAFT_STREAMS: u16 = 65_535;

/// Our side of the transport, for the answer.
#[derive(Debug, Clone, Copy)]
pub struct LocalTransport<'a> {
    /// Random number of the session, below 2^63.
    pub session_id: u64,
    /// Our ICE credentials.
    pub credentials: &'a IceCredentials,
    /// Fingerprint of our certificate, as the attribute's value.
    pub fingerprint: &'a str,
    /// Our addresses; the first is preferred.
    pub candidates: &'a [SocketAddr],
    /// SSRC of our audio.
    pub ssrc: u32,
    /// Largest message that we accept, in bytes.
    pub max_message_size: u32,
}

impl Offer {
    /// Writes the answer for the caller.
    pub fn answer(&self, ours: &LocalTransport<'_>) -> String {
        let mut text = format!("v=0\r\no=- {} 1 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\na=ice-lite\r\n", ours.session_id);
        let accepted: Vec<_> =
            self.bundle.iter().filter_map(|index| self.sections.get(*index)?.mid.as_deref()).collect();
        if !accepted.is_empty() {
            // Writing to a string cannot fail.
            let _ = write!(text, "a=group:BUNDLE {}\r\n", accepted.join(" "));
        }
        let _ = write!(text, "a=msid-semantic: WMS *\r\na=fingerprint:{}\r\n", ours.fingerprint);
        // Only the first section of the group has the candidates.
        let tagged = self.bundle.first().copied();
        for (index, section) in self.sections.iter().enumerate() {
            let is_tagged = tagged.is_none_or(|tagged| tagged == index);
            match section.decision {
                Decision::Audio => self.write_audio(&mut text, section, ours, is_tagged),
                Decision::Channel => self.write_channel(&mut text, section, ours, is_tagged),
                Decision::Rejected(_) => write_rejected(&mut text, section),
            }
        }
        text
    }

    fn write_audio(&self, text: &mut String, section: &SectionPlan, ours: &LocalTransport<'_>, is_tagged: bool) {
        let AudioSection { opus, red, telephone_event, nack, reduced_size, .. } = &self.audio;
        self.write_head(text, section, &self.audio.answered_formats(), ours);
        let direction = self.direction();
        let _ = write!(text, "a={}\r\na=rtcp-mux\r\n", direction.name());
        if *reduced_size {
            text.push_str("a=rtcp-rsize\r\n");
        }
        if let Some((red, parameters)) = red {
            let _ = write!(text, "a=rtpmap:{} {}\r\n", red.payload_type, red.encoding);
            let _ = write!(text, "a=fmtp:{} {parameters}\r\n", red.payload_type);
        }
        let _ = write!(text, "a=rtpmap:{} {}\r\n", opus.payload_type, opus.encoding);
        let _ = write!(text, "a=fmtp:{} {OPUS_PARAMETERS}\r\n", opus.payload_type);
        if *nack {
            let _ = write!(text, "a=rtcp-fb:{} nack\r\n", opus.payload_type);
        }
        if let Some(AudioFormat { payload_type, encoding }) = telephone_event {
            // The keys of a telephone.
            let _ = write!(text, "a=rtpmap:{payload_type} {encoding}\r\na=fmtp:{payload_type} 0-15\r\n");
        }
        if direction.sends() {
            let ssrc = ours.ssrc;
            let _ = write!(text, "a=msid:{STREAM} {STREAM}\r\na=ssrc:{ssrc} cname:{STREAM}\r\n");
            let _ = write!(text, "a=ssrc:{ssrc} msid:{STREAM} {STREAM}\r\n");
        }
        write_candidates(text, ours, is_tagged);
    }

    fn write_channel(&self, text: &mut String, section: &SectionPlan, ours: &LocalTransport<'_>, is_tagged: bool) {
        let size = ours.max_message_size;
        if self.channel.as_ref().is_some_and(|channel| channel.is_draft) {
            self.write_head(text, section, &SCTP_PORT.to_string(), ours);
            let _ = write!(text, "a=sctpmap:{SCTP_PORT} webrtc-datachannel {DRAFT_STREAMS}\r\n");
        } else {
            self.write_head(text, section, "webrtc-datachannel", ours);
            let _ = write!(text, "a=sctp-port:{SCTP_PORT}\r\n");
        }
        let _ = write!(text, "a=max-message-size:{size}\r\n");
        write_candidates(text, ours, is_tagged);
    }

    /// Writes the beginning of an accepted section. All have the address of the preferred candidate, as full agents
    /// check (RFC 8839, 4.2.5).
    fn write_head(&self, text: &mut String, section: &SectionPlan, formats: &str, ours: &LocalTransport<'_>) {
        let SectionPlan { media, protocol, mid, .. } = section;
        let (port, family, address) = match ours.candidates.first() {
            Some(candidate) if candidate.is_ipv6() => (candidate.port(), "IP6", candidate.ip().to_string()),
            Some(candidate) => (candidate.port(), "IP4", candidate.ip().to_string()),
            None => (9, "IP4", "0.0.0.0".to_owned()),
        };
        let _ = write!(text, "m={media} {port} {protocol} {formats}\r\nc=IN {family} {address}\r\n");
        write_mid(text, mid.as_deref());
        let (IceCredentials { ufrag, password }, setup) =
            (ours.credentials, if self.transport.is_passive { "active" } else { "passive" });
        let _ = write!(text, "a=setup:{setup}\r\na=ice-ufrag:{ufrag}\r\na=ice-pwd:{password}\r\n");
    }
}

fn write_mid(text: &mut String, mid: Option<&str>) {
    if let Some(mid) = mid {
        let _ = write!(text, "a=mid:{mid}\r\n");
    }
}

fn write_rejected(text: &mut String, section: &SectionPlan) {
    let SectionPlan { media, protocol, format, mid, .. } = section;
    let _ = write!(text, "m={media} 0 {protocol} {format}\r\nc=IN IP4 0.0.0.0\r\n");
    write_mid(text, mid.as_deref());
    text.push_str("a=inactive\r\n");
}

/// Writes host candidates (RFC 8839, 5.1); the first ones are preferred (RFC 8445, 5.1.2.1).
fn write_candidates(text: &mut String, ours: &LocalTransport<'_>, is_tagged: bool) {
    if !is_tagged {
        return;
    }
    for (index, candidate) in ours.candidates.iter().enumerate() {
        let preference = 0xffff_u32.saturating_sub(index as u32);
        let priority = (126 << 24) + (preference << 8) + 255;
        let (number, ip, port) = (index + 1, candidate.ip(), candidate.port());
        let _ = write!(text, "a=candidate:{number} 1 udp {priority} {ip} {port} typ host\r\n");
    }
    text.push_str("a=end-of-candidates\r\n");
}
