//! STUN binding messages (RFC 8489), as far as ICE needs them.

use std::net::SocketAddr;

use rtc::crypto::RTCCrypto;
use rtc::ice::attributes::control::AttrControlled;
use rtc::ice::attributes::priority::PriorityAttr;
use rtc::stun::attributes::{ATTR_USE_CANDIDATE, ATTR_USERNAME};
use rtc::stun::fingerprint::FINGERPRINT;
use rtc::stun::integrity::MessageIntegrity;
use rtc::stun::message::{
    BINDING_REQUEST, BINDING_SUCCESS, CLASS_REQUEST, CLASS_SUCCESS_RESPONSE, Getter as _, METHOD_BINDING, Message,
    Setter, TransactionId,
};
use rtc::stun::textattrs::Username;
use rtc::stun::xoraddr::XorMappedAddress;

/// Transaction id: a response repeats its request's.
pub(super) type StunId = [u8; 12];

/// Maximum size: larger than any binding message that ICE sends.
const MAX_MESSAGE: usize = 1_280;

/// Class of a binding message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MessageClass {
    Request,
    Success,
    /// Indications and errors, which are ignored.
    Other,
}

/// A binding message from the network.
#[derive(Debug)]
pub(super) struct Binding(Message);

/// True if a datagram is STUN; DTLS and SRTP share the socket (RFC 7983).
pub(super) fn is_stun(datagram: &[u8]) -> bool {
    datagram.first().is_some_and(|first| *first < 4)
}

impl Binding {
    /// Parses a datagram; `None` if it is no binding message.
    pub fn parse(datagram: &[u8]) -> Option<Self> {
        if datagram.len() > MAX_MESSAGE {
            return None;
        }
        let mut message = Message { raw: datagram.to_vec(), ..Message::default() };
        message.decode().ok()?;
        (message.typ.method == METHOD_BINDING).then_some(Self(message))
    }

    pub fn kind(&self) -> MessageClass {
        match self.0.typ.class {
            CLASS_REQUEST => MessageClass::Request,
            CLASS_SUCCESS_RESPONSE => MessageClass::Success,
            _ => MessageClass::Other,
        }
    }

    pub fn id(&self) -> StunId {
        self.0.transaction_id.0
    }

    /// User fragments in a request's USERNAME: the receiver's and the sender's.
    pub fn ufrags(&self) -> Option<(String, String)> {
        let mut name = Username::new(ATTR_USERNAME, String::new());
        name.get_from(&self.0).ok()?;
        name.text.split_once(':').map(|(to, from)| (to.to_owned(), from.to_owned()))
    }

    /// True if the message is signed with `password`.
    pub fn is_signed_with(&mut self, password: &str, crypto: &dyn RTCCrypto) -> bool {
        MessageIntegrity::check(&mut self.0, password.as_bytes(), crypto).is_ok()
    }

    /// True if the request nominates the path on which it came.
    pub fn nominates(&self) -> bool {
        self.0.contains(ATTR_USE_CANDIDATE)
    }
}

/// Builds a request, signed with the receiver's password. `None` if it cannot be signed.
pub(super) fn request(id: StunId, username: String, password: &str, crypto: &dyn RTCCrypto) -> Option<Vec<u8>> {
    // Priority of a peer-reflexive candidate (RFC 8445, 5.1.2.1); no peer ranks by it.
    const PRIORITY: u32 = (110 << 24) + (0xffff << 8) + 255;
    build(&[
        Box::new(BINDING_REQUEST),
        Box::new(TransactionId(id)),
        Box::new(Username::new(ATTR_USERNAME, username)),
        // A lite agent never takes the other role, so its tie-breaker decides nothing.
        Box::new(AttrControlled(0)),
        Box::new(PriorityAttr(PRIORITY)),
        Box::new(MessageIntegrity::new_short_term_integrity_with_provider(password.to_owned(), crypto)),
        Box::new(FINGERPRINT),
    ])
}

/// Builds a request of the caller, signed with `password`.
#[cfg(test)]
pub(super) fn callers_request(
    id: StunId,
    name: &str,
    password: &str,
    nominates: bool,
    crypto: &dyn RTCCrypto,
) -> Option<Vec<u8>> {
    use rtc::ice::attributes::use_candidate::UseCandidateAttr;
    let mut parts: Vec<Box<dyn Setter + '_>> = vec![
        Box::new(BINDING_REQUEST),
        Box::new(TransactionId(id)),
        Box::new(Username::new(ATTR_USERNAME, name.to_owned())),
    ];
    if nominates {
        parts.push(Box::new(UseCandidateAttr::new()));
    }
    parts.push(Box::new(MessageIntegrity::new_short_term_integrity_with_provider(password.to_owned(), crypto)));
    build(&parts)
}

/// Builds the success response to the request `id` that came from `mapped`, signed with the responder's password.
/// `None` if it cannot be signed.
pub(super) fn success(id: StunId, mapped: SocketAddr, password: &str, crypto: &dyn RTCCrypto) -> Option<Vec<u8>> {
    build(&[
        Box::new(BINDING_SUCCESS),
        Box::new(TransactionId(id)),
        Box::new(XorMappedAddress { ip: mapped.ip().to_canonical(), port: mapped.port() }),
        Box::new(MessageIntegrity::new_short_term_integrity_with_provider(password.to_owned(), crypto)),
        Box::new(FINGERPRINT),
    ])
}

fn build(parts: &[Box<dyn Setter + '_>]) -> Option<Vec<u8>> {
    let mut message = Message::new();
    message.build(parts).ok()?;
    Some(message.raw)
}
