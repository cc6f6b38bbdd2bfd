//! Reading a peer's session description: is there a call in it, and what may be sent.

use std::net::IpAddr;

use webrtc::peer_connection::RTCSessionDescription;

use super::AnswerError;

/// What a data channel may carry when the peer does not say (RFC 8841, 6.1).
const DEFAULT_MAX_MESSAGE_SIZE: usize = 65_536;
/// More sections than any client sends; each costs memory.
const MAX_SECTIONS: usize = 16;

/// What we need to know of a peer's description.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wanted {
    /// The longest message that the peer takes, in bytes.
    pub max_message_size: usize,
}

/// Checks that `text` describes a call with Opus.
pub(super) fn read_offer(text: &str) -> Result<Wanted, AnswerError> {
    let not_sdp = |error: webrtc::error::Error| AnswerError::NotSdp(error.to_string());
    let description = RTCSessionDescription::offer(text.to_owned()).map_err(not_sdp)?;
    let sections = description.unmarshal().map_err(not_sdp)?.media_descriptions;
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
    Ok(Wanted { max_message_size })
}

/// Our description with `advertised` in place of the address of every candidate. (The library has a setting for that,
/// which 0.21.1 does not follow.) Ports stay: a 1:1 NAT keeps them.
pub(super) fn advertise(description: &str, advertised: &[IpAddr]) -> String {
    if advertised.is_empty() {
        return description.to_owned();
    }
    let mut lines = Vec::new();
    for line in description.lines() {
        // a=candidate:<foundation> <component> <transport> <priority> <address> <port> typ ...
        let fields: Vec<&str> = line.split(' ').collect();
        if !line.starts_with("a=candidate:") || fields.len() < 6 {
            lines.push(line.to_owned());
            continue;
        }
        for (index, address) in advertised.iter().enumerate() {
            let address = address.to_string();
            // Candidates of different addresses are of different foundations.
            let foundation = format!("{}{index}", fields[0]);
            let mut fields = fields.clone();
            (fields[0], fields[4]) = (&foundation, &address);
            let candidate = fields.join(" ");
            if !lines.contains(&candidate) {
                lines.push(candidate);
            }
        }
    }
    lines.into_iter().flat_map(|line| [line, "\r\n".to_owned()]).collect()
}
