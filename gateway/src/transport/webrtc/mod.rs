//! One call over WebRTC: Opus both ways and the data channel `oai-events`.
//!
//! ```text
//! offer SDP -> answer() -> answer SDP, and a Call:   events in (audio packets, messages, closed)
//!                                                    send_audio, send_message, round_trip, close
//! ```
//!
//! | file | content |
//! |---|---|
//! | `call` | [`WebRtcCall`]: its events, and methods to send |
//! | `negotiation` | [`answer`] and [`offer`]: the set-up of a call |
//! | `event` | [`PeerEvent`]: events of a peer connection |
//! | `event_queue` | queue of these events, bounded in number and bytes |
//! | `connection` | the peer connection under a call |
//! | `peer_connection`, `callbacks`, `supervisor` | its construction, its callbacks, its end |
//! | `call_state` | the state that these share |
//! | `ice` | our ICE agent: the caller's active address, also after it changes |
//! | `credentials`, `stun` | names and signatures of ICE messages, and the messages |
//! | `connectivity` | progress of a connection, for the log of one that fails |
//! | `probe_budget` | rate limit of STUN to addresses that are not validated |
//! | `ssrcs`, `srtp_state` | limits on the SSRCs that reach the library, and counters of its packets |
//! | `unbound_input` | audio of SSRCs that the library does not know |
//! | `udp_mux` | [`UdpMux`]: one UDP socket for all calls |
//! | `demux` | map from datagrams to calls |
//! | `arrivals` | arrival times of packets at the socket |
//! | `muxed_socket` | one call's socket on the mux |
//! | `muxed_runtime` | the library's runtime over that socket |
//! | `addresses` | the addresses of this machine |
//! | `reports` | RTCP: loss, jitter and round trip of our audio |
//! | `transport` | [`WebRtcTransport`]: the connection as the call's task sees it |
//! | `input_audio` | jitter buffer and decoder |
//! | `output_audio` | playout clock |
//! | `packet_encoder` | encoder, on the sending task |
//! | `peer_certificate` | the caller's certificate against the fingerprints of its offer |
//! | `answer_error` | [`AnswerError`]: offers without an answer |
//! | `outbound_events`, `oversized` | events to the caller and to sidebands; those beyond the caller's largest message |
//! | `settings` | addresses and limits |
//!
//! Offers are read, and answers written, by the crate `repartee-sdp`.
//!
//! [`offer`] makes the calling side, for tests and load tests.
//!
//! A call ends if its owner closes or drops it, or if the peer hangs up or vanishes: the data channel or the connection
//! closes, or nothing arrives for [`PEER_TIMEOUT`]. In each case the sockets and all tasks of the call are freed.

mod addresses;
mod answer_error;
mod arrivals;
mod call;
mod call_state;
mod callbacks;
mod connection;
mod connectivity;
mod credentials;
mod demux;
mod event;
mod event_queue;
mod ice;
mod input_audio;
mod muxed_runtime;
mod muxed_socket;
mod negotiation;
mod outbound_events;
mod output_audio;
mod oversized;
mod packet_encoder;
mod peer_certificate;
mod peer_connection;
mod probe_budget;
mod reports;
mod settings;
mod srtp_state;
mod ssrcs;
mod stun;
mod supervisor;
mod transport;
mod udp_mux;
mod unbound_input;

pub use answer_error::AnswerError;
pub use call::{SendError, WebRtcCall};
pub use event::PeerEvent;
pub use event_queue::PeerEvents;
pub use negotiation::{PendingOffer, answer, offer};
pub use reports::LinkQuality;
pub use settings::{DATA_CHANNEL_LABEL, PEER_TIMEOUT, WebRtcSettings};
pub use transport::{TransportSettings, WebRtcTransport};
pub use udp_mux::{DroppedDatagrams, UdpMux};

#[cfg(test)]
mod fuzz_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod udp_mux_tests;
