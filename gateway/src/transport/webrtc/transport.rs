//! The [`Transport`] of a WebRTC call: RTP in through the jitter buffer, audio out at the pace of the playout clock,
//! events over the data channel. Two tasks wait for the network, so that this code never does. Nothing is played before
//! the caller is connected, and silence is the first that it gets.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use repartee_engine_api::ResponseId;
use repartee_media::opus::{FRAME, OpusError, RATES};
use repartee_protocol::session::AudioFormat;
use repartee_realtime::Delivery;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep_until;

use super::call::PayloadTypes;
use super::input_audio::{InputAudio, RtpPacket};
use super::outbound_events::send_events;
use super::output_audio::OutputAudio;
use super::packet_encoder::{OutputPacket, PacketEncoder, PacketSource, PlayoutCommand};
use super::{LinkQuality, PeerEvent, PeerEvents, WebRtcCall};
use crate::call::{OutboundMessage, PlayedFrames, Transport, TransportError, TransportEvent};
use crate::metrics::{DropCause, Metrics};
use crate::telemetry::log;
use crate::transport::sideband::{CommandReceiver, Publisher, Sidebands, sidebands};

/// Events that may wait for the data channel.
const EVENT_QUEUE: usize = 32;
/// Frames of 20 ms that may wait for the encoder and the socket; more means a stalled socket, and late audio is useless.
const FRAME_QUEUE: usize = 16;
/// Codec rate for models whose rate Opus does not support, in Hz.
const FALLBACK_RATE: u32 = 48_000;

/// Rates and limits of a call's transport.
#[derive(Debug, Clone, Copy)]
pub struct TransportSettings {
    /// The model's input rate, in Hz.
    pub input_rate: u32,
    /// The model's output rate, in Hz.
    pub output_rate: u32,
    /// A data channel that accepts nothing for this long ends the call.
    pub stalled_after: Duration,
    /// Assumed jitter buffer of the receiver.
    pub receiver_buffer: Duration,
}

/// Transport of a call over WebRTC.
#[derive(Debug)]
pub struct WebRtcTransport {
    /// The connection; `None` in tests that have none.
    call: Option<Arc<WebRtcCall>>,
    metrics: Arc<Metrics>,
    sidebands: Sidebands,
    commands: CommandReceiver,
    receiver_buffer: Duration,
    /// Number of the caller's reports that the metrics already have.
    counted_reports: u64,
    /// Number of unread packets that the metrics already have.
    counted_unread: u64,
    /// Time from which sound plays; `None` until the caller's connection reported anything but its end.
    plays_from: Option<Instant>,
    /// Arrival of the caller's last event or packet.
    last_input: Option<Instant>,
    events: PeerEvents,
    outbound: mpsc::Sender<OutboundMessage>,
    /// Number of data channels that the caller has opened for events.
    opened: watch::Sender<u64>,
    /// A message that waits until the call accepts input. No event is read after it.
    pending_message: Option<String>,
    /// Events that [`Transport::next`] returns first.
    ready: VecDeque<TransportEvent>,
    payload_types: PayloadTypes,
    input: InputAudio,
    output: OutputAudio,
}

impl WebRtcTransport {
    /// Creates the transport over `call`. Must be called within a runtime.
    pub fn new(mut call: WebRtcCall, settings: TransportSettings, metrics: Arc<Metrics>) -> Result<Self, OpusError> {
        let events = std::mem::replace(&mut call.events, mpsc::channel::<PeerEvent>(1).1.into());
        let (frames, queue) = mpsc::channel(FRAME_QUEUE);
        let payload_types = call.payload_types();
        let encoder = PacketEncoder::new(codec_rate(settings.output_rate), payload_types)?;
        let call = Arc::new(call);
        let mut transport =
            Self::with_queues(events, frames, payload_types, settings, metrics, |queue, opened, publisher| {
                log::spawn(send_events(call.clone(), queue, opened, publisher, settings.stalled_after));
            })?;
        // Both tasks end when the transport is dropped, and the call with them.
        log::spawn(send_packets(call.clone(), PacketSource::new(encoder, queue)));
        transport.call = Some(call);
        Ok(transport)
    }

    /// Creates a transport over queues of packets and frames; `write` gets the other ends of its event queues.
    fn with_queues(
        events: impl Into<PeerEvents>,
        frames: mpsc::Sender<PlayoutCommand>,
        payload_types: PayloadTypes,
        settings: TransportSettings,
        metrics: Arc<Metrics>,
        write: impl FnOnce(mpsc::Receiver<OutboundMessage>, watch::Receiver<u64>, Publisher),
    ) -> Result<Self, OpusError> {
        let input = InputAudio::new(codec_rate(settings.input_rate), metrics.clone())?;
        let output = OutputAudio::new(settings.output_rate, codec_rate(settings.output_rate), frames, metrics.clone());
        let (outbound, queue) = mpsc::channel(EVENT_QUEUE);
        let (opened, openings) = watch::channel(0);
        let (sidebands, publisher, commands) = sidebands();
        write(queue, openings, publisher);
        Ok(Self {
            call: None,
            metrics,
            sidebands,
            commands,
            receiver_buffer: settings.receiver_buffer,
            counted_reports: 0,
            counted_unread: 0,
            plays_from: None,
            last_input: None,
            events: events.into(),
            outbound,
            opened,
            pending_message: None,
            ready: VecDeque::new(),
            payload_types,
            input,
            output,
        })
    }

    /// Returns the handle that attaches sideband clients to the call.
    pub fn sidebands(&self) -> Sidebands {
        self.sidebands.clone()
    }

    fn quality(&self) -> LinkQuality {
        self.call.as_ref().map(|call| call.quality()).unwrap_or_default()
    }

    /// Adds a new RTCP report of the caller to the metrics.
    fn count_report(&mut self) {
        let LinkQuality { round_trip, jitter, loss, reports, .. } = self.quality();
        if reports > self.counted_reports {
            self.counted_reports = reports;
            self.metrics.network.observe_report(round_trip, jitter, loss);
            self.input.count();
            self.count_unread();
        }
    }

    /// Counts the caller's unread packets in the metrics.
    fn count_unread(&mut self) {
        let unread = self.call.as_ref().map_or(0, |call| call.dropped_audio());
        let before = std::mem::replace(&mut self.counted_unread, unread);
        self.metrics.network.dropped_audio(DropCause::Unread, unread.saturating_sub(before));
    }

    /// Plays the audio due by `now`, to a caller that is connected.
    fn play(&mut self, now: Instant) {
        if self.plays_from.is_some_and(|from| from <= now) {
            self.output.play(now, &mut self.ready);
        }
        self.count_report();
    }

    /// Takes a sideband's command, which says nothing about the caller.
    fn on_sideband_command(&mut self, command: String) {
        self.last_input = Some(now());
        self.pending_message = Some(command);
    }

    /// Handles an event of the connection; returns the event for the call, if any.
    fn on_peer_event(&mut self, event: Option<PeerEvent>) -> Option<TransportEvent> {
        if self.plays_from.is_none() && !matches!(event, Some(PeerEvent::Closed) | None) {
            self.plays_from = Some(self.output.open(now()));
        }
        if matches!(event, Some(PeerEvent::Audio { .. } | PeerEvent::Message(_))) {
            self.last_input = Some(now());
        }
        match event {
            Some(PeerEvent::Connected) => None,
            Some(PeerEvent::ChannelOpen) => {
                self.opened.send_modify(|count| *count += 1);
                None
            }
            Some(PeerEvent::Audio { ssrc, sequence, timestamp, payload_type, payload, arrival, .. }) => {
                let packet = RtpPacket { ssrc, sequence, timestamp, payload_type, payload, arrival };
                self.input.push(packet, self.payload_types).map(|key| TransportEvent::Key { key })
            }
            Some(PeerEvent::Message(text)) => {
                self.pending_message = Some(text);
                None
            }
            Some(PeerEvent::Closed) | None => Some(TransportEvent::Closed),
        }
    }
}

impl Transport for WebRtcTransport {
    const DELIVERY: Delivery = Delivery::Paced;
    const NAME: &'static str = "webrtc";

    async fn next(&mut self, accept_input: bool) -> TransportEvent {
        loop {
            // All packets that have arrived reach the jitter buffer before a gap between them times out.
            while self.pending_message.is_none()
                && let Some(event) = self.events.try_recv()
            {
                match self.on_peer_event(Some(event)) {
                    // The sound before the end is heard.
                    Some(TransportEvent::Closed) if accept_input => {
                        self.input.decode(now(), &mut self.ready);
                        self.ready.push_back(TransportEvent::Closed);
                    }
                    Some(event) => return event,
                    None => {}
                }
            }
            let now = now();
            self.play(now);
            if accept_input {
                self.input.decode(now, &mut self.ready);
            }
            let withheld = |event: &TransportEvent| !accept_input && matches!(event, TransportEvent::Audio { .. });
            if self.ready.front().is_some_and(|event| !withheld(event))
                && let Some(event) = self.ready.pop_front()
            {
                return event;
            }
            if accept_input && let Some(text) = self.pending_message.take() {
                return TransportEvent::Event(text);
            }
            let output = match self.plays_from {
                Some(from) if from <= now => self.output.next_deadline(),
                from => from,
            };
            let due = [output, self.input.due().filter(|_| accept_input)].into_iter().flatten().min();
            let clock = async {
                match due {
                    Some(due) => sleep_until(due.into()).await,
                    None => std::future::pending().await,
                }
            };
            let event = tokio::select! {
                event = self.events.recv(), if self.pending_message.is_none() => event,
                command = self.commands.next(), if self.pending_message.is_none() => {
                    self.on_sideband_command(command);
                    continue;
                }
                sent = self.output.first_audible() => return sent,
                () = clock => continue,
            };
            if let Some(event) = self.on_peer_event(event) {
                return event;
            }
        }
    }

    fn last_input(&self) -> Option<Instant> {
        self.last_input
    }

    fn was_connected(&self) -> bool {
        self.plays_from.is_some()
    }

    fn outbound(&self) -> mpsc::Sender<OutboundMessage> {
        self.outbound.clone()
    }

    fn begin_audio(&mut self, _: ResponseId, _: AudioFormat) -> Result<(), TransportError> {
        // The format applies to websockets only: WebRTC sends Opus.
        Ok(())
    }

    fn push_audio(&mut self, response: ResponseId, samples: &[f32]) -> Result<Vec<u8>, TransportError> {
        self.output.push(response, samples)?;
        Ok(Vec::new())
    }

    fn end_audio(&mut self, response: ResponseId) -> Result<Vec<u8>, TransportError> {
        self.output.end(response)?;
        Ok(Vec::new())
    }

    fn pause_audio(&mut self) -> bool {
        self.output.pause(now())
    }

    fn resume_audio(&mut self) {
        self.output.resume();
    }

    fn played_frames(&mut self) -> Option<&mut PlayedFrames> {
        Some(self.output.played())
    }

    fn clear_audio(&mut self) {
        self.output.clear();
    }

    fn clear_response(&mut self, response: ResponseId) {
        self.output.clear_response(response);
    }

    fn has_capacity(&self) -> bool {
        !self.output.is_full()
    }

    /// The sent duration minus the audio in flight or in the receiver's buffer.
    fn heard(&self) -> Option<(ResponseId, Duration)> {
        let (response, sent) = self.output.sent()?;
        let in_flight = self.quality().round_trip.unwrap_or_default() / 2 + self.receiver_buffer;
        // While nothing is sent, earlier packets still arrive.
        Some((response, sent.saturating_sub(in_flight.saturating_sub(self.output.quiet_for(now())))))
    }
}

impl Drop for WebRtcTransport {
    fn drop(&mut self) {
        self.input.count();
        self.count_unread();
        self.metrics.network.address_changes.inc_by(self.call.as_ref().map_or(0, |call| call.address_changes()));
    }
}

/// Codec rate for a model that runs at `rate`, in Hz.
fn codec_rate(rate: u32) -> u32 {
    if RATES.contains(&rate) { rate } else { FALLBACK_RATE }
}

/// Current time of the runtime's clock, which a test may stop.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Sends the packets of a call, each at its time.
async fn send_packets(call: Arc<WebRtcCall>, mut packets: PacketSource) {
    while let Some(mut packet) = packets.next(|| call.quality()).await {
        let has_left = packet.report();
        let OutputPacket { payload_type, payload, gap, .. } = packet;
        if !gap.is_zero() {
            call.skip_audio(gap);
        }
        if call.send_rtp(payload_type, payload, FRAME).await.is_err() {
            return;
        }
        has_left();
    }
}

#[cfg(test)]
#[path = "pause_tests.rs"]
mod pause_tests;
#[cfg(test)]
#[path = "transport_tests.rs"]
mod tests;
