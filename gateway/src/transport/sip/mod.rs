//! Transport of a telephone call over SIP: RTP of our own, one UDP port a call.
//!
//! - `codec`: samples to payloads and back
//! - `line`: what the signalling tells the transport
//! - `protection`: SRTP
//! - `publish`: events on their way to the sidebands
//! - `rtp_input`: jitter buffer, decoder and keys
//! - `rtp_output`: numbers and times of our packets
//! - `sound_socket`: the UDP socket of a call, and whose packets it takes
//! - `transport`: the [`Transport`](crate::call::Transport) of the call
//!
//! The signalling is not here: `repartee_sip` has it, and the server runs it. The call's events go to its sidebands,
//! because the other side is a telephone and no client.

mod codec;
mod line;
mod protection;
mod publish;
mod rtp_input;
mod rtp_output;
mod sound_socket;
mod transport;

pub use line::{Line, LineControl, line};
pub use sound_socket::{PortRange, SoundSocket};
pub use transport::{NAME, SipTransport};
