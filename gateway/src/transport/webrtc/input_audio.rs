//! Input audio of a WebRTC call: jitter buffer and Opus decoder.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use repartee_media::dtmf::DtmfReader;
use repartee_media::jitter::{JitterAction, JitterBuffer, JitterStats};
use repartee_media::level::is_audible;
use repartee_media::opus::{OpusDecoder, OpusError, packet_duration};
use repartee_media::red::{self, PacketCopy, RedPayload};

use super::call::PayloadTypes;
use crate::call::TransportEvent;
use crate::metrics::Metrics;
use crate::transport::rtp_time_limit::RtpTimeLimit;

/// Silence of the active track after which another track replaces it.
const TRACK_TIMEOUT: Duration = Duration::from_millis(500);

/// One packet of a caller's audio.
#[derive(Debug)]
pub(super) struct RtpPacket {
    pub ssrc: u32,
    pub sequence: u16,
    pub timestamp: u32,
    pub payload_type: u8,
    pub payload: Bytes,
    /// Arrival at the socket.
    pub arrival: Instant,
}

impl RtpPacket {
    /// True for sound.
    fn is_audio(&self, types: PayloadTypes) -> bool {
        !self.payload.is_empty() && types.is_audio(self.payload_type)
    }
}

/// Packets of one SSRC.
#[derive(Debug)]
struct InputTrack {
    ssrc: u32,
    /// Arrival of the last packet.
    last: Instant,
    jitter: JitterBuffer,
}

impl InputTrack {
    fn new(ssrc: u32, last: Instant) -> Self {
        Self { ssrc, last, jitter: JitterBuffer::new() }
    }

    /// Queues a packet of Opus or redundant Opus; other packets only take their number.
    fn push(&mut self, packet: RtpPacket, types: PayloadTypes) {
        let is_audio = packet.is_audio(types);
        let RtpPacket { sequence, timestamp, payload_type, payload, arrival, .. } = packet;
        self.last = self.last.max(arrival);
        // Padding alone, telephone events, comfort noise, and types that nobody agreed on.
        if !is_audio {
            self.jitter.push_empty(sequence, arrival);
            if Some(payload_type) == types.telephone_event {
                // No sound is sent during a press.
                self.jitter.mark_silent();
            }
            return;
        }
        if payload_type == types.opus {
            return self.jitter.push(sequence, timestamp, payload, arrival);
        }
        match red::parse(&payload, types.opus) {
            Ok(RedPayload { primary, copies }) => {
                self.jitter.push(sequence, timestamp, primary, arrival);
                for PacketCopy { distance, offset, payload } in copies {
                    let (sequence, timestamp) = (sequence.wrapping_sub(distance), timestamp.wrapping_sub(offset));
                    self.jitter.push_redundant(sequence, timestamp, payload, arrival);
                }
            }
            Err(error) => tracing::debug!(%error, "an input packet could not be read"),
        }
    }
}

/// Jitter buffer and decoder of one call. One track is active at a time: packets of two would be noise.
#[derive(Debug)]
pub(super) struct InputAudio {
    active: Option<InputTrack>,
    /// Another track, as long as the active one is silent: its first packets are heard if it becomes the active one.
    waiting: Option<InputTrack>,
    keys: DtmfReader,
    decoder: OpusDecoder,
    /// Rate of the decoded samples, in Hz.
    rate: u32,
    /// Time when the jitter buffer has output without a further packet.
    due: Option<Instant>,
    time_limit: RtpTimeLimit,
    /// Number of packets over the limit.
    over_limit: u64,
    metrics: Arc<Metrics>,
    /// Statistics that the metrics already have.
    counted: JitterStats,
}

impl InputAudio {
    /// Creates a decoder to `rate`, which Opus must support.
    pub fn new(rate: u32, metrics: Arc<Metrics>) -> Result<Self, OpusError> {
        let decoder = OpusDecoder::new(rate)?;
        let (counted, limit) = (JitterStats::default(), RtpTimeLimit::default());
        Ok(Self {
            active: None,
            waiting: None,
            keys: DtmfReader::default(),
            decoder,
            rate,
            due: None,
            time_limit: limit,
            over_limit: 0,
            metrics,
            counted,
        })
    }

    /// Queues an RTP packet; returns the telephone key that it reports. Packets of a type that is not among `types` are not heard.
    pub fn push(&mut self, packet: RtpPacket, types: PayloadTypes) -> Option<char> {
        let RtpPacket { ssrc, timestamp, payload_type, arrival, .. } = packet;
        let is_audio = packet.is_audio(types);
        let is_key = Some(payload_type) == types.telephone_event;
        let key = if is_key { self.keys.push(timestamp, &packet.payload) } else { None };
        match &mut self.active {
            Some(active) if active.ssrc == ssrc => {
                if is_audio {
                    // Both send: the other track stays unheard.
                    self.waiting = None;
                }
                active.push(packet, types);
            }
            // A track begins with sound.
            _ if !is_audio => {
                if let Some(track) = self.waiting.as_mut().filter(|track| track.ssrc == ssrc) {
                    track.push(packet, types);
                }
            }
            None => self.active.insert(InputTrack::new(ssrc, arrival)).push(packet, types),
            Some(active) => {
                let silence = arrival.saturating_duration_since(active.last);
                let continues = |track: &InputTrack| {
                    track.ssrc == ssrc && arrival.saturating_duration_since(track.last) < TRACK_TIMEOUT
                };
                let waiting = self.waiting.take().filter(continues);
                let mut track = waiting.unwrap_or_else(|| InputTrack::new(ssrc, arrival));
                track.push(packet, types);
                if silence < TRACK_TIMEOUT {
                    self.waiting = Some(track);
                } else {
                    tracing::debug!(ssrc, "another track became the active one");
                    self.count();
                    self.counted = JitterStats::default();
                    self.active = Some(track);
                }
            }
        }
        key
    }

    /// Decodes all output due by `now`, and appends it to `events`.
    pub fn decode(&mut self, now: Instant, events: &mut VecDeque<TransportEvent>) {
        let Some(InputTrack { jitter, .. }) = &mut self.active else { return };
        loop {
            let action = jitter.pop(now);
            let admitted = match &action {
                // The jitter buffer has already parsed the packet, and refuses malformed ones.
                JitterAction::Packet { payload, .. } => {
                    let admitted = self.time_limit.admit(packet_duration(payload).unwrap_or_default(), now);
                    self.over_limit += u64::from(!admitted);
                    admitted
                }
                JitterAction::Fec { duration, .. } | JitterAction::Conceal { duration, .. } => {
                    self.time_limit.admit(*duration, now)
                }
                JitterAction::Silence { duration, elapsed: false } => self.time_limit.admit_silence(*duration, now),
                JitterAction::Silence { .. } | JitterAction::Stall { .. } | JitterAction::Wait { .. } => true,
            };
            if !admitted {
                continue;
            }
            let decoded = match action {
                JitterAction::Packet { payload, .. } => {
                    let decoded = self.decoder.decode(&payload);
                    if decoded.as_ref().is_ok_and(|samples| !is_audible(samples)) {
                        jitter.mark_silent();
                    }
                    decoded
                }
                JitterAction::Fec { next, duration, .. } => self.decoder.decode_fec(&next, duration),
                JitterAction::Conceal { duration, .. } | JitterAction::Stall { duration } => {
                    self.decoder.conceal(duration)
                }
                JitterAction::Silence { duration, .. } => {
                    Ok(vec![0.0; (duration.as_secs_f64() * f64::from(self.rate)).round() as usize])
                }
                JitterAction::Wait { until } => {
                    self.due = until;
                    return;
                }
            };
            match decoded {
                Ok(samples) => events.push_back(TransportEvent::Audio { samples, rate: self.rate }),
                // The other packets are still decoded.
                Err(error) => tracing::debug!(%error, "an input packet could not be decoded"),
            }
        }
    }

    /// Returns the time when [`Self::decode`] has output without a further packet.
    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Adds the packets since the last call to the metrics.
    pub fn count(&mut self) {
        let Some(active) = &self.active else { return };
        let stats = active.jitter.stats();
        self.metrics.network.count_received(&self.counted, &stats);
        self.metrics.network.count_early(std::mem::take(&mut self.over_limit));
        self.counted = stats;
    }
}

#[cfg(test)]
#[path = "input_audio_tests.rs"]
mod tests;
