//! RTP of SSRCs that the library does not bind to its track: it binds what the SDP names, or the first one. Authentic packets of a
//! later SSRC go to the call past the library.

use std::sync::Arc;
use std::time::Instant;

use rtc::rtp::Packet;

use super::call_state::CallState;
use super::event::PeerEvent;
use super::muxed_socket::MuxedSocket;

/// Maximum SSRCs that are stored as bound: more than the library binds for one track.
const MAX_BOUND: usize = 64;

/// Audio packets of a connection, on their way to the owner of its call.
#[derive(Debug, Clone)]
pub(super) struct RtpInput {
    pub state: Arc<CallState>,
    /// The call's socket at the mux, if it has one; it stores the arrival times of packets.
    pub socket: Option<Arc<MuxedSocket>>,
}

impl RtpInput {
    /// Queues an authentic packet for the call.
    pub fn queue(&self, packet: Packet) {
        let (ssrc, sequence) = (packet.header.ssrc, packet.header.sequence_number);
        let arrival = self.socket.as_ref().and_then(|socket| socket.arrival(ssrc, sequence));
        self.state.queue_audio(PeerEvent::Audio {
            ssrc,
            sequence,
            timestamp: packet.header.timestamp,
            marker: packet.header.marker,
            payload_type: packet.header.payload_type,
            payload: packet.payload,
            arrival: arrival.unwrap_or_else(Instant::now),
        });
    }
}

/// Packets of unbound SSRCs.
#[derive(Debug)]
pub(super) struct UnboundInput {
    input: RtpInput,
    bound: Vec<u32>,
}

impl UnboundInput {
    /// Creates the input with no bound SSRC.
    pub fn new(input: RtpInput) -> Self {
        Self { input, bound: Vec::new() }
    }

    /// Notes that the library hands on packets of `ssrc`.
    pub fn bind(&mut self, ssrc: u32) {
        if self.bound.len() < MAX_BOUND && !self.bound.contains(&ssrc) {
            self.bound.push(ssrc);
        }
    }

    /// Notes that the library no longer hands on packets of `ssrc`.
    pub fn unbind(&mut self, ssrc: u32) {
        self.bound.retain(|bound| *bound != ssrc);
    }

    /// True if the library hands on packets of `ssrc`.
    pub fn is_bound(&self, ssrc: u32) -> bool {
        self.bound.contains(&ssrc)
    }

    /// Queues an authentic packet of an unbound SSRC for the call. Until the peer's certificate is checked, drops it.
    pub fn queue(&self, packet: Packet) {
        if self.input.state.is_connected() {
            self.input.queue(packet);
        }
    }
}
