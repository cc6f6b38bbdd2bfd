//! Reading a peer's session description: is there a call in it, and what may be sent.

use std::net::SocketAddr;

use webrtc::peer_connection::RTCSessionDescription;

use super::AnswerError;
use super::ice::Credentials;

/// What a data channel may carry when the peer does not say (RFC 8841, 6.1).
const DEFAULT_MAX_MESSAGE_SIZE: usize = 65_536;
/// More sections than any client sends; each costs memory.
const MAX_SECTIONS: usize = 16;

/// The attribute that holds an address.
const CANDIDATE: &str = "candidate";

/// What we need to know of a peer's description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    /// The longest message that the peer takes, in bytes.
    pub max_message_size: usize,
    /// How the peer signs its STUN messages.
    pub credentials: Credentials,
    /// SSRCs that the peer has announced for its voice.
    pub voices: Vec<u32>,
    /// Whether the peer wants to speak over a data channel.
    pub has_channel: bool,
    /// The description without the peer's addresses. We send only to addresses from which we were called, so those are of
    /// no use, and nobody can make us send anything elsewhere.
    pub unaddressed: String,
}

/// Checks that `text` describes a call with Opus.
pub(super) fn read_offer(text: &str) -> Result<Wanted, AnswerError> {
    let not_sdp = |error: webrtc::error::Error| AnswerError::NotSdp(error.to_string());
    let description = RTCSessionDescription::offer(text.to_owned()).map_err(not_sdp)?;
    let mut parsed = description.unmarshal().map_err(not_sdp)?;
    let sections = &parsed.media_descriptions;
    if sections.len() > MAX_SECTIONS {
        return Err(AnswerError::Unusable(format!("{} media sections, at most {MAX_SECTIONS}", sections.len())));
    }
    // Port 0 is a section that the peer has switched off.
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
        fragment: find("ice-ufrag").ok_or_else(|| unusable("ice-ufrag"))?,
        password: find("ice-pwd").ok_or_else(|| unusable("ice-pwd"))?,
    };
    let attributes = used("audio").flat_map(|section| &section.attributes);
    let announced = attributes.filter(|attribute| attribute.key == "ssrc").filter_map(|attribute| {
        // a=ssrc:<ssrc> <attribute>
        attribute.value.as_ref()?.split(' ').next()?.parse().ok()
    });
    let mut voices: Vec<u32> = announced.collect();
    voices.dedup();
    let has_channel = used("application").next().is_some();
    for section in &mut parsed.media_descriptions {
        section.attributes.retain(|attribute| attribute.key != CANDIDATE);
    }
    parsed.attributes.retain(|attribute| attribute.key != CANDIDATE);
    Ok(Wanted { max_message_size, credentials, voices, has_channel, unaddressed: parsed.marshal() })
}

/// Our description with `candidates` in place of its own: the library knows nothing of the shared port.
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
