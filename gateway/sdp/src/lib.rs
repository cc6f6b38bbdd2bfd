//! Session descriptions of calls (SDP): reads the offer of any client (RFC 8866, RFC 8829, RFC 8843), decides section by
//! section, and writes the answer. No I/O and no clock; work and memory are linear in the offer's size, which is limited.
//!
//! ```text
//! text -> Offer::read -> Offer -> library_offer()   one audio section and at most one data channel, for the WebRTC library
//!                              -> answer(ours)      valid against the caller's own offer, section by section
//! ```
//!
//! The WebRTC library sees only [`Offer::library_offer`], which has the same form for every caller: so every form of offer
//! is handled here.
//!
//! | file | content |
//! |---|---|
//! | `description` | lines, sections and attributes, within limits |
//! | `error` | [`OfferError`]: a line and what is wrong with it |
//! | `audio` | the audio section: payload types, direction, feedback |
//! | `channel` | the section of data channels |
//! | `transport` | what bundled sections share: ICE credentials, fingerprints, DTLS role |
//! | `fingerprint` | fingerprints of certificates, the strongest hash function of several |
//! | `offer` | [`Offer`]: the decisions, and the offer for the library |
//! | `answer` | the answer for the caller |
//! | [`phone`], `phone_crypto` | offers of telephones, without ICE and DTLS, and their answers; their keys of SRTP |
//! | `phone_offer` | our own offer of a telephone call |

mod answer;
mod audio;
mod channel;
mod description;
mod error;
mod fingerprint;
mod offer;
pub mod phone;
mod phone_crypto;
mod phone_offer;
mod transport;

pub use answer::LocalTransport;
pub use audio::Direction;
pub use channel::announced_message_size;
pub use description::{MAX_ATTRIBUTES, MAX_BYTES, MAX_CANDIDATES, MAX_FORMATS, MAX_LINES, MAX_SECTIONS};
pub use error::{OfferError, OfferFault};
pub use fingerprint::{Fingerprints, HashFunction};
pub use offer::Offer;
pub use phone_offer::phone_offer;
pub use transport::{IceCredentials, OfferedTransport};
