//! User agent of telephone calls over SIP (RFC 3261). No I/O and no clock: (datagram or command, now) -> datagrams
//! and events.
//!
//! Messages are read by `ezk-sip-types`, within limits before it. Transactions and dialogs are here, because every table
//! has to be bounded: a request that is refused at the door leaves no state.
//!
//! | file | content |
//! |---|---|
//! | `hop` | [`Hop`]: an address by a transport |
//! | `framing` | [`Framing`]: messages on a connection |
//! | `message` | [`Message`]: a datagram, read |
//! | `error` | [`MessageError`], [`FramingError`] |
//! | `reply` | responses to a request |
//! | `dialog` | names, route and numbers of both sides of a call, and requests within it |
//! | `bounds` | bounds of messages |
//! | `resend` | times of retransmission |
//! | `call` | one call of the user agent |
//! | `agent` | [`UserAgent`]: all calls, their commands and timers |
//! | `connections` | addresses of both sides, and connections that end |
//! | `incoming` | requests that begin, cancel or probe |
//! | `within` | requests within a call |
//! | `outgoing`, `dial` | calls out, until they are answered |
//! | `registration`, `digest` | registration at an exchange, and its credentials |
//! | `event` | [`SipEvent`], [`SipOutput`] |
//! | `sound` | [`CallMedia`]: what both sides agreed on |

mod agent;
mod bounds;
mod call;
mod connections;
mod dial;
mod dialog;
mod digest;
mod error;
mod event;
mod framing;
mod hop;
mod incoming;
mod message;
mod outgoing;
mod registration;
mod reply;
mod resend;
mod sound;
mod within;

pub use agent::{AgentCounts, AgentSettings, UnknownCall, UserAgent};
pub use bounds::{MAX_BYTES, MAX_LINES};
pub use call::CallKey;
pub use dial::{DialError, TrunkSettings};
pub use error::{FramingError, MessageError};
pub use event::{EndReason, Invitation, SipEvent, SipOutput};
pub use framing::{Frame, Framing};
pub use hop::{Hop, SignalTransport};
pub use message::Message;
pub use registration::{RegistrarSettings, RegistrationNews};
pub use reply::Refusal;
pub use sound::{CallMedia, LocalSound, SoundKeys};
