//! Transport of a telephone call over Twilio's Media Streams protocol, which other providers speak too: a websocket with
//! mu-law at 8 kHz in JSON messages both ways.
//!
//! - [`messages`]: messages of the protocol.
//! - [`stream`]: the socket of a call, from its first message on.
//! - `marks`: position that the person has heard, by the marks that the provider returns.
//! - `transport`: the [`Transport`](crate::call::Transport) of the call.
//!
//! Sound leaves at the pace of the playout clock, so that little of it waits at the provider. The call's events go to its
//! sidebands, because the other side of the socket is a telephone network and no client.

mod marks;
pub mod messages;
pub mod stream;
mod transport;

pub use stream::{StartError, Started, start};
pub use transport::{NAME, TelephonyTransport};
