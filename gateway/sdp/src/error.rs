//! Errors of offers.

use thiserror::Error;

/// Reason why an offer gets no answer, and its place. For something that is missing, the line is that of the section
/// that lacks it, or the last line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("line {line} of the offer: {fault}")]
pub struct OfferError {
    /// Number of the line, from 1.
    pub line: usize,
    /// Error in that line.
    pub fault: OfferFault,
}

/// Error in one line of an offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum OfferFault {
    /// The text does not begin as a session description.
    #[error("this is not SDP, which begins with the line v=0")]
    NotSdp,
    /// More of something than the limit: what, and the limit.
    #[error("the offer has too many {0}: at most {1}")]
    TooMany(&'static str, usize),
    /// The line is not of the form of its kind.
    #[error("the line must read {0}")]
    Syntax(&'static str),
    /// A line of a type that does not exist, or not here.
    #[error("a line {0}= does not belong here")]
    Misplaced(char),
    /// Two sections have the same `mid`.
    #[error("another section has the same mid")]
    DuplicateMid,
    /// No audio section, or none that is enabled.
    #[error("the offer has no audio section: add a microphone track or an audio transceiver")]
    NoAudio,
    /// The audio section's transport is not SRTP with keys from DTLS, on one port.
    #[error("the audio section must be for one port of UDP/TLS/RTP/SAVPF")]
    AudioProtocol,
    /// The audio section of a telephone is neither RTP nor SRTP by SDES, on one port.
    #[error("the audio section must be for one port of RTP/AVP or RTP/SAVP")]
    PhoneProtocol,
    /// The audio section of a telephone has no key of SRTP that is served.
    #[error(
        "the audio section has no a=crypto for AES_CM_128_HMAC_SHA1_80 or _32 with a key inline, without identifiers and session parameters"
    )]
    NoPhoneCrypto,
    /// The audio section of a telephone lists no codec that is served.
    #[error("the audio section lists none of PCMU, PCMA and Opus")]
    NoPhoneCodec,
    /// The address of a telephone's sound is missing, or a name.
    #[error("the audio section has no c=IN IP4 or IP6 with the address of one machine, and neither has the session")]
    NoAddress,
    /// The audio section does not list Opus.
    #[error("the offer's audio section does not list Opus (opus/48000/2)")]
    NoOpus,
    /// Payload types that RTCP on the same port excludes (RFC 5761, 4).
    #[error("Opus has a payload type from 64 to 95, which RTCP on the same port excludes: use one from 96 to 127")]
    RtcpPayloadType,
    /// RTCP on a port of its own.
    #[error("the audio section has no a=rtcp-mux: RTP and RTCP share one port")]
    NoRtcpMux,
    /// A required attribute is missing.
    #[error("the section has no a={0}, and neither has the session")]
    MissingAttribute(&'static str),
    /// The caller is an ICE-lite agent, too.
    #[error("the caller is ICE-lite, and so is this server: one side must be a full agent")]
    IceLite,
    /// No fingerprint by a hash function that is supported.
    #[error("no fingerprint is by sha-1, sha-256, sha-384 or sha-512")]
    FingerprintHash,
}

impl OfferFault {
    pub(crate) fn at(self, line: usize) -> OfferError {
        OfferError { line, fault: self }
    }
}
