//! Decisions about an offer: one audio section and at most one section of data channels on its transport are accepted, in
//! their places; all others are rejected.

use std::fmt::Write as _;

use crate::audio::{AudioSection, Direction};
use crate::channel::ChannelSection;
use crate::description::{Attribute, Description, Section, find, is_token};
use crate::error::{OfferError, OfferFault};
use crate::transport::{IceCredentials, OfferedTransport};

/// Maximum candidates that an offer names for logs, and the length of each in bytes.
const MAX_NAMED_CANDIDATES: usize = 8;
const MAX_CANDIDATE_NAME: usize = 96;
/// Parameters of Opus in our descriptions: they ask the peer for error correction.
pub(crate) const OPUS_PARAMETERS: &str = "minptime=10;useinbandfec=1";

/// An offer that gets an answer, and the decisions about its sections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// The caller's side of the transport.
    pub transport: OfferedTransport,
    pub(crate) sections: Vec<SectionPlan>,
    pub(crate) audio: AudioSection,
    pub(crate) channel: Option<ChannelSection>,
    /// Accepted sections in the order of their BUNDLE group, by index; empty without a group.
    pub(crate) bundle: Vec<usize>,
    /// The caller's first candidates, in short.
    candidates: Vec<String>,
}

/// Decision about one section, with what its answer repeats.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SectionPlan {
    pub line: usize,
    pub media: String,
    pub protocol: String,
    /// First format of the offer; a rejected section must still have one.
    pub format: String,
    pub mid: Option<String>,
    pub decision: Decision,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    Audio,
    Channel,
    /// Rejected for this reason.
    Rejected(&'static str),
}

impl Offer {
    /// Reads an offer and decides about each section.
    ///
    /// # Errors
    /// The text is not a session description within the limits, or it has no audio section that can be served.
    pub fn read(text: &str) -> Result<Self, OfferError> {
        let description = Description::parse(text)?;
        if let Some(lite) = find(&description.attributes, "ice-lite") {
            return Err(OfferFault::IceLite.at(lite.line));
        }
        let (mids, live) = (read_mids(&description)?, description.live_sections());
        let (audio_index, audio) = choose_audio(&description, &live)?;
        let group = bundle_group(&description, &mids, audio_index);
        let mut channel = None;
        for (index, section) in description.sections.iter().enumerate() {
            if channel.is_none() && live[index] && group.contains(&index) {
                channel = ChannelSection::read(section)?.map(|channel| (index, channel));
            }
        }
        let channel_index = channel.as_ref().map(|(index, _)| *index);
        let is_accepted = |index: &usize| *index == audio_index || channel_index == Some(*index);
        let (bundle, others): (Vec<usize>, Vec<usize>) = group.iter().partition(|index| is_accepted(index));
        let live_others = others.into_iter().filter(|index| live[*index]);
        let alone = bundle.is_empty().then_some(audio_index);
        let order: Vec<_> = bundle.iter().copied().chain(alone).chain(live_others).collect();
        let transport = OfferedTransport::read(&description, &order)?;
        let candidates = named_candidates(&description, &order);
        let sections = description.sections.iter().zip(&mids).enumerate().map(|(index, (section, mid))| SectionPlan {
            line: section.line,
            media: section.media.to_owned(),
            protocol: section.protocol.to_owned(),
            format: section.formats.first().copied().unwrap_or_default().to_owned(),
            mid: mid.map(str::to_owned),
            decision: match index {
                _ if index == audio_index => Decision::Audio,
                _ if channel_index == Some(index) => Decision::Channel,
                _ if !live[index] => Decision::Rejected("the caller has disabled it"),
                _ => Decision::Rejected(rejection(section, group.contains(&index))),
            },
        });
        let sections = sections.collect();
        Ok(Self { transport, sections, audio, channel: channel.map(|(_, channel)| channel), bundle, candidates })
    }

    /// Direction of the audio as the server sees it.
    pub fn direction(&self) -> Direction {
        self.audio.direction.reversed()
    }

    /// SSRCs that the caller announces for its audio.
    pub fn ssrcs(&self) -> &[u32] {
        &self.audio.ssrcs
    }

    /// The caller's first candidates, each as `<address>:<port> <transport> <type>`: for logs, nothing is sent there.
    pub fn candidates(&self) -> &[String] {
        &self.candidates
    }

    /// True if the caller accepts Opus with copies of earlier packets.
    pub fn has_red(&self) -> bool {
        self.audio.red.is_some()
    }

    /// Payload type of the caller's telephone events (RFC 4733); `None` if it has none.
    pub fn telephone_event(&self) -> Option<u8> {
        self.audio.telephone_event.as_ref().map(|format| format.payload_type)
    }

    /// Largest message that the caller accepts over data channels, in bytes, `usize::MAX` for any; `None` without them.
    pub fn max_message_size(&self) -> Option<usize> {
        self.channel.as_ref().map(|channel| channel.max_message_size)
    }

    /// Sections that are not served: the number of the line, the media, and the reason.
    pub fn rejected(&self) -> impl Iterator<Item = (usize, &str, &'static str)> {
        self.sections.iter().filter_map(|section| match section.decision {
            Decision::Rejected(reason) => Some((section.line, &*section.media, reason)),
            _ => None,
        })
    }

    /// Writes the offer that the WebRTC library gets: the accepted sections alone, in one form for all callers.
    pub fn library_offer(&self) -> String {
        let OfferedTransport { credentials: IceCredentials { ufrag, password }, fingerprints, is_passive } =
            &self.transport;
        let setup = if *is_passive { "passive" } else { "active" };
        let shared = format!(
            "c=IN IP4 0.0.0.0\r\na=setup:{setup}\r\na=ice-ufrag:{ufrag}\r\na=ice-pwd:{password}\r\n\
             a=fingerprint:{}\r\n",
            fingerprints.attribute()
        );
        let group = if self.channel.is_some() { "0 1" } else { "0" };
        let mut text = format!("v=0\r\no=- 1 1 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\na=group:BUNDLE {group}\r\n");
        let AudioSection { opus, red, nack, .. } = &self.audio;
        // Writing to a string cannot fail. Without SSRCs the library takes the one of the first authentic packet.
        let _ = write!(
            text,
            "m=audio 9 UDP/TLS/RTP/SAVPF {}\r\n{shared}a=mid:0\r\na=sendrecv\r\na=rtcp-mux\r\n\
             a=msid:caller audio\r\n",
            self.audio.formats()
        );
        if let Some((red, parameters)) = red {
            let red = red.payload_type;
            let _ = write!(text, "a=rtpmap:{red} red/48000/2\r\na=fmtp:{red} {parameters}\r\n");
        }
        let opus = opus.payload_type;
        let _ = write!(text, "a=rtpmap:{opus} opus/48000/2\r\na=fmtp:{opus} {OPUS_PARAMETERS}\r\n");
        if *nack {
            let _ = write!(text, "a=rtcp-fb:{opus} nack\r\n");
        }
        if let Some(ChannelSection { port, .. }) = self.channel {
            // Any size: the library takes no larger messages than those of the peer's limit, which is not ours.
            let _ = write!(
                text,
                "m=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\n{shared}a=mid:1\r\na=sctp-port:{port}\r\n\
                 a=max-message-size:0\r\n"
            );
        }
        text
    }
}

/// Returns the first candidates of the sections `order`, in short; those of another form are left out.
fn named_candidates(description: &Description<'_>, order: &[usize]) -> Vec<String> {
    let sections = order.iter().filter_map(|index| description.sections.get(*index));
    let short = |candidate: Attribute<'_>| {
        // <foundation> <component> <transport> <priority> <address> <port> typ <type> ...
        let mut fields = candidate.value.split(' ').filter(|field| !field.is_empty()).skip(2);
        let (transport, address, port) = (fields.next()?, fields.nth(1)?, fields.next()?);
        let kind = fields.nth(1)?;
        let short = format!("{address}:{port} {transport} {kind}");
        Some(short).filter(|short| short.len() <= MAX_CANDIDATE_NAME && short.is_ascii())
    };
    sections.flat_map(|section| section.all("candidate")).filter_map(short).take(MAX_NAMED_CANDIDATES).collect()
}

/// Returns the `mid` of each section.
fn read_mids<'a>(description: &Description<'a>) -> Result<Vec<Option<&'a str>>, OfferError> {
    let mut mids = Vec::new();
    for section in &description.sections {
        let mid = section.first("mid");
        if let Some(mid) = mid {
            match mid.value {
                value if !is_token(value) => return Err(OfferFault::Syntax("a=mid:<token>").at(mid.line)),
                value if mids.contains(&Some(value)) => return Err(OfferFault::DuplicateMid.at(mid.line)),
                _ => {}
            }
        }
        mids.push(mid.map(|mid| mid.value));
    }
    Ok(mids)
}

/// Chooses the audio section: of those that can be served the first in which the caller sends and receives, else sends,
/// else receives.
fn choose_audio(description: &Description<'_>, live: &[bool]) -> Result<(usize, AudioSection), OfferError> {
    let audio = || description.sections.iter().enumerate().filter(|(_, section)| section.media == "audio");
    let line = audio().next().map_or(description.last_line, |(_, section)| section.line);
    let (mut chosen, mut error): (Option<(usize, AudioSection)>, _) = (None, None);
    for (index, section) in audio().filter(|(index, _)| live[*index]) {
        match AudioSection::read(section, &description.attributes) {
            Ok(read) if chosen.as_ref().is_none_or(|(_, best)| read.direction < best.direction) => {
                chosen = Some((index, read));
            }
            Ok(_) => {}
            Err(found) => error = error.or(Some(found)),
        }
    }
    chosen.ok_or(error.unwrap_or(OfferFault::NoAudio.at(line)))
}

/// Returns the sections of the BUNDLE group that the audio is in, in the group's order; empty without such a group.
fn bundle_group(description: &Description<'_>, mids: &[Option<&str>], audio: usize) -> Vec<usize> {
    let members = |group: &str| {
        let mut members = Vec::new();
        // A mid of no section is ignored.
        for index in group.split(' ').filter_map(|mid| mids.iter().position(|found| *found == Some(mid))) {
            if !members.contains(&index) {
                members.push(index);
            }
        }
        members
    };
    description.groups().map(members).find(|members| members.contains(&audio)).unwrap_or_default()
}

fn rejection(section: &Section<'_>, is_bundled: bool) -> &'static str {
    match section.media {
        "audio" => "another audio section is served",
        "application" if !is_bundled => "it is not in one BUNDLE group with the audio",
        "application" => "it has no data channels, or others are served",
        _ => "a call carries sound and events alone",
    }
}
