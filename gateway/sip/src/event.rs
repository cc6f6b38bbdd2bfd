//! Output of the user agent.

use core::net::SocketAddr;

use bytes::Bytes;
use repartee_sdp::phone::{PhoneCodec, PhoneOffer};

use crate::call::CallKey;

/// Sound of a call, as both sides agreed on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallMedia {
    /// Address that our sound goes to.
    pub remote: SocketAddr,
    /// Codec of both directions.
    pub codec: PhoneCodec,
    /// Its payload type.
    pub payload_type: u8,
    /// Payload type of telephone keys.
    pub key_type: Option<u8>,
    /// True if the other side takes our sound: it does not while it holds the call.
    pub sends: bool,
    /// True if the other side sends a person's sound: while it holds the call, it sends none, or music.
    pub receives: bool,
}

impl CallMedia {
    pub(crate) fn of(offer: &PhoneOffer) -> Self {
        let both = offer.direction.sends() && offer.direction.receives();
        Self {
            remote: offer.remote,
            codec: offer.codec,
            payload_type: offer.payload_type,
            key_type: offer.key_type,
            sends: offer.direction.receives(),
            // Who sends alone holds the call.
            receives: both,
        }
    }
}

/// Call that waits to be accepted.
#[derive(Debug, Clone)]
pub struct Invitation {
    /// Address that it came from.
    pub from: SocketAddr,
    /// Headers of the request, as they are.
    pub headers: Vec<(String, String)>,
}

/// Reason of a call's end by the other side, or by the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndReason {
    /// The other side hung up.
    Bye,
    /// The caller cancelled before the call was accepted.
    Cancelled,
    /// The accepted call was never confirmed.
    Unconfirmed,
    /// Our own `BYE` was answered, or given up.
    Ended,
}

/// Event of a call.
#[derive(Debug)]
pub enum SipEvent {
    /// A call waits to be accepted or rejected.
    Incoming(Box<Invitation>),
    /// The other side has confirmed the accepted call.
    Confirmed,
    /// The sound has changed.
    Media(CallMedia),
    /// A press of a key that came as a message (`INFO`).
    Key(char),
    /// The call is over.
    Ended(EndReason),
    /// Answer to our request to transfer the call: a status of 200 to 299 for a transfer that succeeded.
    Transferred(u16),
}

/// Output of the user agent.
#[derive(Debug)]
pub enum SipOutput {
    /// A datagram to send.
    Datagram(SocketAddr, Bytes),
    /// An event of a call.
    Event(CallKey, SipEvent),
}
