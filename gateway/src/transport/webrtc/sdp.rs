//! Session descriptions (SDP): reads a peer's offer, and puts our candidates into the answer.

use std::net::SocketAddr;

use webrtc::peer_connection::RTCSessionDescription;

use super::AnswerError;
use super::ice::Credentials;

/// Longest message of a data channel when the peer does not say, in bytes (RFC 8841, 6.1).
const DEFAULT_MAX_MESSAGE_SIZE: usize = 65_536;
/// More sections than any client sends; each costs memory.
const MAX_SECTIONS: usize = 16;

/// The attribute of a candidate.
const CANDIDATE: &str = "candidate";

/// What we read of a peer's description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RemoteDescription {
    /// The longest message that the peer takes, in bytes.
    pub max_message_size: usize,
    /// The peer's ICE credentials.
    pub credentials: Credentials,
    /// SSRCs that the peer announces for its audio.
    pub ssrcs: Vec<u32>,
    /// Whether the peer wants a data channel.
    pub has_channel: bool,
    /// The description without the peer's candidates. We send only to addresses from which we were called, so nobody can make
    /// us send anything elsewhere.
    pub without_candidates: String,
}

/// Checks that `text` describes a call with Opus.
pub(super) fn read_offer(text: &str) -> Result<RemoteDescription, AnswerError> {
    let not_sdp = |error: webrtc::error::Error| AnswerError::NotSdp(error.to_string());
    let description = RTCSessionDescription::offer(text.to_owned()).map_err(not_sdp)?;
    let mut parsed = description.unmarshal().map_err(not_sdp)?;
    let sections = &parsed.media_descriptions;
    if sections.len() > MAX_SECTIONS {
        return Err(AnswerError::Unusable(format!("{} media sections, at most {MAX_SECTIONS}", sections.len())));
    }
    // UdpMux 0 is a section that the peer has switched off.
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
    // Bundled sections share what the first one says.
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
    for section in &mut parsed.media_descriptions {
        section.attributes.retain(|attribute| attribute.key != CANDIDATE);
    }
    parsed.attributes.retain(|attribute| attribute.key != CANDIDATE);
    Ok(RemoteDescription { max_message_size, credentials, ssrcs, has_channel, without_candidates: parsed.marshal() })
}

/// Our description with `candidates` in place of its own: the library knows nothing of the mux.
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

/// A host candidate (RFC 8839, 5.1); the first ones are preferred (RFC 8445, 5.1.2.1).
fn candidate(index: usize, address: SocketAddr) -> String {
    let preference = 0xffff_u32.saturating_sub(index as u32);
    let priority = (126 << 24) + (preference << 8) + 255;
    let (ip, port) = (address.ip(), address.port());
    format!("a=candidate:{} 1 udp {priority} {ip} {port} typ host\r\n", index + 1)
}

fn is_candidate(line: &str) -> bool {
    line.starts_with("a=candidate:") || line.starts_with("a=end-of-candidates")
}
