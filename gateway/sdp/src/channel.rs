//! The section of data channels (RFC 8841), also in the form that came before the standard.

use crate::description::{Description, Section, read_number};
use crate::error::{OfferError, OfferFault};

/// Largest message if the peer announces none, in bytes (RFC 8841, 6.1).
const DEFAULT_MAX_MESSAGE_SIZE: usize = 65_536;
/// SCTP port if the peer announces none.
const DEFAULT_PORT: u16 = 5_000;

/// Contents of a section of data channels that a call uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChannelSection {
    /// The caller's SCTP port.
    pub port: u16,
    /// True for `DTLS/SCTP <port>` with `sctpmap`, the form of the drafts.
    pub is_draft: bool,
    /// Largest message that the caller accepts, in bytes; `usize::MAX` for any.
    pub max_message_size: usize,
}

impl ChannelSection {
    /// Reads a live section; `None` if it has no data channels.
    pub fn read(section: &Section<'_>) -> Result<Option<Self>, OfferError> {
        let is_draft = section.protocol == "DTLS/SCTP";
        let port = match (section.protocol, &section.formats[..]) {
            _ if section.media != "application" => None,
            ("UDP/DTLS/SCTP" | "TCP/DTLS/SCTP", ["webrtc-datachannel"]) => match section.first("sctp-port") {
                None => Some(DEFAULT_PORT),
                Some(port) => {
                    let error = OfferFault::Syntax("a=sctp-port:<port>").at(port.line);
                    Some(read_number(port.value).ok_or(error)?)
                }
            },
            ("DTLS/SCTP", [port]) => {
                // a=sctpmap:<port> webrtc-datachannel <streams>
                let map = format!("{port} webrtc-datachannel");
                section.all("sctpmap").find(|found| found.value.starts_with(&map)).and_then(|_| read_number(port))
            }
            _ => None,
        };
        // Port 0 closes the association (RFC 8841, 5.1).
        let Some(port) = port.filter(|port| *port != 0) else { return Ok(None) };
        Ok(Some(Self { port, is_draft, max_message_size: message_size(section)? }))
    }
}

/// Returns the largest message that the writer of a description accepts over data channels, in bytes.
///
/// # Errors
/// The description cannot be read.
pub fn announced_message_size(description: &str) -> Result<usize, OfferError> {
    let description = Description::parse(description)?;
    let section = description.sections.iter().find(|section| section.media == "application" && section.port != 0);
    section.map_or(Ok(DEFAULT_MAX_MESSAGE_SIZE), message_size)
}

fn message_size(section: &Section<'_>) -> Result<usize, OfferError> {
    let Some(size) = section.first("max-message-size") else { return Ok(DEFAULT_MAX_MESSAGE_SIZE) };
    if size.value.is_empty() || !size.value.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(OfferFault::Syntax("a=max-message-size:<bytes>").at(size.line));
    }
    // 0 means any size; so does a number that no size reaches.
    Ok(size.value.parse().ok().filter(|size| *size != 0).unwrap_or(usize::MAX))
}
