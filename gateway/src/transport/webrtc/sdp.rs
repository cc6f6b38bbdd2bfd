//! Session descriptions (SDP): reads a peer's offer, and puts our candidates into the answer.

use std::net::SocketAddr;

use rtc::sdp::MediaDescription;
use thiserror::Error;
use webrtc::peer_connection::RTCSessionDescription;

use super::credentials::Credentials;
use super::peer_connection::OPUS_PARAMETERS;

/// Largest message of a data channel if the peer announces none, in bytes (RFC 8841, 6.1).
const DEFAULT_MAX_MESSAGE_SIZE: usize = 65_536;
/// Maximum media sections: more than any client sends; each costs memory.
const MAX_SECTIONS: usize = 16;

/// Attribute name of a candidate.
const CANDIDATE: &str = "candidate";

/// Reason for an unanswered offer. All but [`AnswerError::Internal`] are errors of the caller.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AnswerError {
    /// The text is not SDP.
    #[error("the offer is not SDP: {0}")]
    NotSdp(String),
    /// There is no audio section, or it is disabled.
    #[error("the offer has no audio section: add a microphone track or an audio transceiver")]
    NoAudio,
    /// The audio section does not list Opus.
    #[error("the offer's audio section does not list Opus (opus/48000/2)")]
    NoOpus,
    /// It is SDP, but no call can be made from it.
    #[error("the offer cannot be answered: {0}")]
    Unusable(String),
    /// An internal error.
    #[error("the call could not be set up: {0}")]
    Internal(String),
}

/// Contents of a peer's description that the gateway uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RemoteDescription {
    /// Largest message that the peer accepts, in bytes.
    pub max_message_size: usize,
    /// The peer's ICE credentials.
    pub credentials: Credentials,
    /// SSRCs that the peer announces for its audio.
    pub ssrcs: Vec<u32>,
    /// True if the peer wants a data channel.
    pub has_channel: bool,
    /// True if the peer accepts Opus with copies of earlier packets (RFC 2198).
    pub red: bool,
    /// The description without the peer's candidates, and with redundant Opus before plain Opus. We send only to
    /// addresses from which the caller has sent, so nobody can direct our packets elsewhere.
    pub filtered_sdp: String,
}

/// Checks that `text` describes a call with Opus, and reads it.
pub(super) fn read_offer(text: &str) -> Result<RemoteDescription, AnswerError> {
    let not_sdp = |error: webrtc::error::Error| AnswerError::NotSdp(error.to_string());
    let description = RTCSessionDescription::offer(text.to_owned()).map_err(not_sdp)?;
    let mut parsed = description.unmarshal().map_err(not_sdp)?;
    let sections = &parsed.media_descriptions;
    if sections.len() > MAX_SECTIONS {
        return Err(AnswerError::Unusable(format!("{} media sections, at most {MAX_SECTIONS}", sections.len())));
    }
    // Port 0 marks a section that the peer has disabled.
    let used = |kind: &str| {
        let kind = kind.to_owned();
        sections.iter().filter(move |section| section.media_name.media == kind && section.media_name.port.value != 0)
    };
    if used("audio").next().is_none() {
        return Err(AnswerError::NoAudio);
    }
    let has_opus = used("audio").any(|section| {
        section.codecs().values().any(|codec| codec.name.eq_ignore_ascii_case("opus") && codec.clock_rate == 48_000)
    });
    if !has_opus {
        return Err(AnswerError::NoOpus);
    }
    let announced = used("application")
        .find_map(|section| section.attribute("max-message-size").flatten())
        .and_then(|size| size.trim().parse().ok());
    let max_message_size = match announced {
        None => DEFAULT_MAX_MESSAGE_SIZE,
        // "Any size that memory allows".
        Some(0) => usize::MAX,
        Some(size) => size,
    };
    let unusable = |what: &str| AnswerError::Unusable(format!("it has no {what}"));
    // Bundled sections share the first section's attributes.
    let find = |name: &str| {
        let session = parsed.attribute(name).map(String::as_str);
        session.or_else(|| sections.iter().find_map(|section| section.attribute(name).flatten())).map(str::to_owned)
    };
    let credentials = Credentials {
        ufrag: find("ice-ufrag").ok_or_else(|| unusable("ice-ufrag"))?,
        password: find("ice-pwd").ok_or_else(|| unusable("ice-pwd"))?,
    };
    let attributes = used("audio").flat_map(|section| &section.attributes);
    let announced = attributes.filter(|attribute| attribute.key == "ssrc").filter_map(|attribute| {
        // a=ssrc:<ssrc> <attribute>
        attribute.value.as_ref()?.split(' ').next()?.parse().ok()
    });
    let mut ssrcs: Vec<u32> = announced.collect();
    ssrcs.dedup();
    let has_channel = used("application").next().is_some();
    let red = used("audio").next().and_then(redundant_opus);
    for section in &mut parsed.media_descriptions {
        // The answer keeps the offer's order, and the peer sends the first format.
        if let Some(red) = red
            && section.media_name.media == "audio"
        {
            section.media_name.formats.sort_by_key(|format| *format != red.to_string());
        }
        section.attributes.retain(|attribute| attribute.key != CANDIDATE);
    }
    parsed.attributes.retain(|attribute| attribute.key != CANDIDATE);
    let (red, without_candidates) = (red.is_some(), parsed.marshal());
    Ok(RemoteDescription { max_message_size, credentials, ssrcs, has_channel, red, filtered_sdp: without_candidates })
}

/// Returns the payload type of redundant Opus, if an audio section offers it over Opus with our parameters.
fn redundant_opus(section: &MediaDescription) -> Option<u8> {
    let codecs = section.codecs();
    let named = |name: &'static str| {
        codecs.values().filter(move |codec| codec.name.eq_ignore_ascii_case(name) && codec.clock_rate == 48_000)
    };
    // If only plain Opus had other parameters than ours, the library would accept redundant Opus alone.
    let alike = |parameters: &str| {
        let ours: Vec<_> = OPUS_PARAMETERS.split(';').filter_map(|parameter| parameter.split_once('=')).collect();
        let mut theirs = parameters.split(';').filter_map(|parameter| parameter.trim().split_once('='));
        theirs.all(|(name, value)| ours.iter().all(|(our, wanted)| !our.eq_ignore_ascii_case(name) || *wanted == value))
    };
    let opus: Vec<_> =
        named("opus").filter(|codec| alike(&codec.fmtp)).map(|codec| codec.payload_type.to_string()).collect();
    // a=fmtp:<red> <opus>/<opus>
    let red =
        named("red").find(|red| red.fmtp.split('/').all(|payload_type| opus.iter().any(|opus| opus == payload_type)));
    red.filter(|_| opus.len() == 1).map(|red| red.payload_type)
}

/// Returns our description with `candidates` instead of the library's own, which does not know the mux.
pub(super) fn with_candidates(description: &str, candidates: &[SocketAddr]) -> String {
    let mut text = String::with_capacity(description.len() + candidates.len() * 64);
    let mut inside = false;
    for line in description.lines() {
        let is_candidate = is_candidate(line);
        if is_candidate && !inside {
            for (index, address) in candidates.iter().enumerate() {
                text.push_str(&candidate(index, *address));
            }
            text.push_str("a=end-of-candidates\r\n");
        }
        inside = is_candidate;
        if !is_candidate {
            text.push_str(line);
            text.push_str("\r\n");
        }
    }
    text
}

/// Returns a host candidate (RFC 8839, 5.1); the first ones are preferred (RFC 8445, 5.1.2.1).
fn candidate(index: usize, address: SocketAddr) -> String {
    let preference = 0xffff_u32.saturating_sub(index as u32);
    let priority = (126 << 24) + (preference << 8) + 255;
    let (ip, port) = (address.ip(), address.port());
    format!("a=candidate:{} 1 udp {priority} {ip} {port} typ host\r\n", index + 1)
}

fn is_candidate(line: &str) -> bool {
    line.starts_with("a=candidate:") || line.starts_with("a=end-of-candidates")
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHROMIUM: &str = include_str!("../../../testdata/fuzz/offers/chromium.sdp");
    const AIORTC: &str = include_str!("../../../testdata/fuzz/offers/aiortc.sdp");

    /// Audio formats of a description, in order.
    fn formats(description: &str) -> Vec<&str> {
        let line = description.lines().find(|line| line.starts_with("m=audio ")).unwrap();
        line.split(' ').skip(3).collect()
    }

    #[test]
    fn redundant_opus_of_a_browser_comes_first() {
        let offer = read_offer(CHROMIUM).unwrap();
        assert!(offer.red);
        assert_eq!(formats(&offer.filtered_sdp)[..3], ["63", "111", "9"]);
    }

    #[test]
    fn unusable_redundancy_is_left_alone() {
        for offer in [
            AIORTC.to_owned(),
            CHROMIUM.replace("red/48000/2", "red/8000"),
            CHROMIUM.replace("fmtp:63 111/111", "fmtp:63 9/9"),
            CHROMIUM.replace("fmtp:63 111/111", "fmtp:63 x"),
            // Opus that differs from ours is answered without redundancy.
            CHROMIUM.replace("minptime=10", "minptime=20"),
        ] {
            let read = read_offer(&offer).unwrap();
            assert!(!read.red, "{offer}");
            assert_eq!(formats(&read.filtered_sdp), formats(&offer));
        }
    }
}
