//! Output of the user agent.

use bytes::Bytes;

use crate::call::CallKey;
use crate::hop::Hop;
use crate::registration::RegistrationNews;
use crate::sound::CallMedia;

/// Call that waits to be accepted.
#[derive(Debug, Clone)]
pub struct Invitation {
    /// Address that it came from.
    pub from: Hop,
    /// True if its sound will be encrypted.
    pub is_encrypted: bool,
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
    /// The other side of a call out rings.
    Ringing,
    /// The other side has answered a call out: the sound that both sides agreed on.
    Answered(CallMedia),
    /// A call out was not answered: the other side's status, 408 if it took too long, 488 if its sound is not served.
    Failed(u16),
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
    /// A message to send. A request opens a connection where there is none; a response never does.
    Message(Hop, Bytes),
    /// An event of a call.
    Event(CallKey, SipEvent),
    /// News of the registration.
    Registration(RegistrationNews),
}
