//! The audio section of an offer: Opus, its redundant form, telephone events, feedback and direction.

use crate::description::{Attribute, MAX_FORMATS, Section, read_number};
use crate::error::{OfferError, OfferFault};

/// Protocols of RTP that an answer may keep (RFC 8829, 5.1.2): all mean SRTP with keys from DTLS.
const PROTOCOLS: [&str; 8] = [
    "UDP/TLS/RTP/SAVPF",
    "UDP/TLS/RTP/SAVP",
    "TCP/DTLS/RTP/SAVPF",
    "TCP/DTLS/RTP/SAVP",
    "RTP/SAVPF",
    "RTP/SAVP",
    "RTP/AVPF",
    "RTP/AVP",
];
/// Payload types that look like RTCP on a shared port (RFC 5761, 4).
const RTCP_PAYLOAD_TYPES: std::ops::RangeInclusive<u8> = 64..=95;
/// Maximum SSRCs that are read from an offer.
const MAX_SSRCS: usize = 16;

/// Direction of a media section, seen from the side that writes it; the most useful first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// Sends and receives.
    SendRecv,
    /// Sends media and takes none (`a=sendonly`).
    SendOnly,
    /// Takes media and sends none (`a=recvonly`).
    RecvOnly,
    /// Neither sends nor receives.
    Inactive,
}

impl Direction {
    const ALL: [Self; 4] = [Self::SendRecv, Self::SendOnly, Self::RecvOnly, Self::Inactive];
    const NAMES: [&str; 4] = ["sendrecv", "sendonly", "recvonly", "inactive"];

    /// Name of the attribute.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// Direction of the same media as the other side sees it.
    pub fn reversed(self) -> Self {
        match self {
            Self::SendOnly => Self::RecvOnly,
            Self::RecvOnly => Self::SendOnly,
            both => both,
        }
    }

    /// True if the side sends.
    pub fn sends(self) -> bool {
        matches!(self, Self::SendRecv | Self::SendOnly)
    }

    /// True if the side receives.
    pub fn receives(self) -> bool {
        matches!(self, Self::SendRecv | Self::RecvOnly)
    }

    pub(crate) fn first_of(attributes: &[Attribute<'_>]) -> Option<Self> {
        attributes.iter().find_map(|attribute| Self::ALL.into_iter().find(|known| known.name() == attribute.name))
    }
}

/// A format of the section that is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AudioFormat {
    pub payload_type: u8,
    /// Value of its `rtpmap` behind the payload type, as the caller spells it.
    pub encoding: String,
}

/// Contents of an audio section that a call uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AudioSection {
    /// Direction as the caller sees it.
    pub direction: Direction,
    pub opus: AudioFormat,
    /// Opus with copies of earlier packets (RFC 2198), with its format parameters.
    pub red: Option<(AudioFormat, String)>,
    /// Telephone events (RFC 4733).
    pub telephone_event: Option<AudioFormat>,
    /// The caller takes requests for retransmission (RFC 4585).
    pub nack: bool,
    /// The caller takes RTCP of reduced size (RFC 5506).
    pub reduced_size: bool,
    /// SSRCs that the caller announces.
    pub ssrcs: Vec<u32>,
}

impl AudioSection {
    /// Formats of our answer. The peer sends the first one.
    pub fn answered_formats(&self) -> String {
        let keys = self.telephone_event.as_ref().map(|keys| format!(" {}", keys.payload_type)).unwrap_or_default();
        format!("{}{keys}", self.formats())
    }

    /// Formats of sound. The peer sends the first one.
    pub fn formats(&self) -> String {
        let red = self.red.as_ref().map(|(red, _)| format!("{} ", red.payload_type)).unwrap_or_default();
        format!("{red}{}", self.opus.payload_type)
    }

    /// Reads a live audio section; `session` are the attributes of the session.
    pub fn read(section: &Section<'_>, session: &[Attribute<'_>]) -> Result<Self, OfferError> {
        if !PROTOCOLS.contains(&section.protocol) || section.ports != 1 {
            return Err(OfferFault::AudioProtocol.at(section.line));
        }
        let UsedFormats { opus, red, telephone_event } =
            read_formats(section).map_err(|fault| fault.at(section.line))?;
        if section.first("rtcp-mux").or_else(|| section.first("rtcp-mux-only")).is_none() {
            return Err(OfferFault::NoRtcpMux.at(section.line));
        }
        let own = Direction::first_of(&section.attributes).or_else(|| Direction::first_of(session));
        // Only the profiles with feedback have the attributes of RFC 4585.
        let has_feedback = section.protocol.ends_with("AVPF");
        let nack = ["* nack".to_owned(), format!("{} nack", opus.payload_type)];
        let nack = section.all("rtcp-fb").any(|feedback| nack.iter().any(|nack| feedback.value == nack));
        let mut ssrcs = Vec::new();
        for attribute in section.all("ssrc") {
            // a=ssrc:<ssrc> <attribute>
            let ssrc = attribute.value.split(' ').next().and_then(read_number::<u32>);
            if let Some(ssrc) = ssrc.filter(|ssrc| ssrcs.len() < MAX_SSRCS && !ssrcs.contains(ssrc)) {
                ssrcs.push(ssrc);
            }
        }
        Ok(Self {
            direction: own.unwrap_or(Direction::SendRecv),
            opus,
            red,
            telephone_event,
            nack: has_feedback && nack,
            reduced_size: has_feedback && section.first("rtcp-rsize").is_some(),
            ssrcs,
        })
    }
}

/// Formats of a section that a call uses.
struct UsedFormats {
    opus: AudioFormat,
    red: Option<(AudioFormat, String)>,
    telephone_event: Option<AudioFormat>,
}

/// Returns Opus, its redundant form and telephone events, as far as they are offered.
fn read_formats(section: &Section<'_>) -> Result<UsedFormats, OfferFault> {
    let listed = section.formats.iter().map(|format| read_number(format).filter(|number: &u8| *number < 128));
    let listed: Vec<u8> = listed.collect::<Option<_>>().ok_or(OfferFault::Syntax("payload types from 0 to 127"))?;
    let mut maps: [Option<&str>; MAX_FORMATS] = [None; MAX_FORMATS];
    let mut parameters: [Option<&str>; MAX_FORMATS] = [None; MAX_FORMATS];
    for (name, table) in [("rtpmap", &mut maps), ("fmtp", &mut parameters)] {
        for attribute in section.all(name) {
            let (number, rest) = attribute.value.split_once(' ').unwrap_or((attribute.value, ""));
            // A format that is not listed is not used, whatever is said of it.
            if let Some(entry) = read_number::<usize>(number).and_then(|number| table.get_mut(number)) {
                entry.get_or_insert(rest.trim());
            }
        }
    }
    let map = |payload_type: u8| maps[usize::from(payload_type)].unwrap_or_default();
    let usable = |payload_type: &u8| !RTCP_PAYLOAD_TYPES.contains(payload_type);
    let format = |payload_type: u8| AudioFormat { payload_type, encoding: map(payload_type).to_owned() };
    let mut opus = listed.iter().copied().filter(|payload_type| is_encoding(map(*payload_type), "opus"));
    let Some(chosen) = opus.clone().find(usable) else {
        return Err(if opus.next().is_some() { OfferFault::RtcpPayloadType } else { OfferFault::NoOpus });
    };
    let red = listed.iter().copied().filter(usable).find_map(|payload_type| {
        let blocks = parameters[usize::from(payload_type)]?;
        // a=fmtp:<red> <opus>/<opus>
        let of_opus = blocks.contains('/') && blocks.split('/').all(|block| read_number(block) == Some(chosen));
        (is_encoding(map(payload_type), "red") && of_opus).then(|| (format(payload_type), blocks.to_owned()))
    });
    // Browsers send events by the clock of the sound; some clients offer them by another alone.
    let keys = || {
        let usable = listed.iter().copied().filter(usable);
        usable.filter(|payload_type| map(*payload_type).to_ascii_lowercase().starts_with("telephone-event/"))
    };
    let keys = keys().find(|payload_type| map(*payload_type).ends_with("/48000")).or_else(|| keys().next());
    Ok(UsedFormats { opus: format(chosen), red, telephone_event: keys.map(format) })
}

/// True for `<name>/48000/2`, in any case. RFC 7587 wants two channels; some clients say one, or nothing of them.
fn is_encoding(map: &str, name: &str) -> bool {
    let rates = ["48000/2", "48000", "48000/1"];
    map.split_once('/').is_some_and(|(found, rest)| found.eq_ignore_ascii_case(name) && rates.contains(&rest))
}
