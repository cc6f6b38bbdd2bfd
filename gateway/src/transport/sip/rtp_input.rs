//! Input audio of a telephone call: jitter buffer, decoder and keys.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use repartee_media::dtmf::DtmfReader;
use repartee_media::jitter::{JitterAction, JitterBuffer, JitterStats};
use repartee_media::level::is_audible;
use repartee_sip::CallMedia;
use rtc::rtp::Packet;

use super::codec::{PhoneDecoder, packet_format};
use crate::call::{TransportError, TransportEvent};
use crate::metrics::Metrics;
use crate::transport::rtp_time_limit::RtpTimeLimit;

/// Rate that the jitter buffer counts in, in Hz.
const JITTER_CLOCK: u32 = 48_000;
/// Silence of a stream after which another one replaces it: an exchange may play from another machine.
const STREAM_TIMEOUT: Duration = Duration::from_millis(200);

/// Jitter buffer and decoder of one call.
#[derive(Debug)]
pub(super) struct RtpInput {
    media: CallMedia,
    /// The model's input rate, in Hz.
    input_rate: u32,
    decoder: PhoneDecoder,
    jitter: JitterBuffer,
    /// SSRC of the stream, and arrival of its last packet.
    stream: Option<(u32, Instant)>,
    keys: DtmfReader,
    /// Time when the jitter buffer has output without a further packet.
    due: Option<Instant>,
    limit: RtpTimeLimit,
    over_limit: u64,
    metrics: Arc<Metrics>,
    /// Statistics that the metrics already have.
    counted: JitterStats,
}

impl RtpInput {
    /// Creates the input for a model at `input_rate`.
    pub fn new(media: CallMedia, input_rate: u32, metrics: Arc<Metrics>) -> Result<Self, TransportError> {
        Ok(Self {
            media,
            input_rate,
            decoder: PhoneDecoder::new(media.codec, input_rate)?,
            jitter: JitterBuffer::of(packet_format(media.codec)),
            stream: None,
            keys: DtmfReader::default(),
            due: None,
            limit: RtpTimeLimit::default(),
            over_limit: 0,
            metrics,
            counted: JitterStats::default(),
        })
    }

    /// Changes the sound that both sides agreed on.
    pub fn change(&mut self, media: CallMedia) -> Result<(), TransportError> {
        if media.codec != self.media.codec {
            self.decoder = PhoneDecoder::new(media.codec, self.input_rate)?;
            self.restart(media);
        }
        self.media = media;
        Ok(())
    }

    /// Begins another stream.
    fn restart(&mut self, media: CallMedia) {
        self.count();
        self.counted = JitterStats::default();
        self.jitter = JitterBuffer::of(packet_format(media.codec));
        self.stream = None;
        self.due = None;
    }

    /// Queues a packet; returns the key that it reports.
    pub fn push(&mut self, packet: Packet, arrival: Instant) -> Option<char> {
        let (header, payload) = (packet.header, packet.payload);
        let (sequence, timestamp) = (header.sequence_number, header.timestamp);
        if Some(header.payload_type) == self.media.key_type {
            if self.stream.is_some_and(|(ssrc, _)| ssrc == header.ssrc) {
                self.jitter.push_empty(sequence, arrival);
                // No sound is sent during a press.
                self.jitter.mark_silent();
            }
            return self.keys.push(timestamp, &payload);
        }
        let is_sound = header.payload_type == self.media.payload_type && !payload.is_empty();
        match self.stream {
            Some((ssrc, last)) if ssrc != header.ssrc => {
                if !is_sound || arrival.saturating_duration_since(last) < STREAM_TIMEOUT {
                    return None;
                }
                self.restart(self.media);
            }
            _ => {}
        }
        if !is_sound {
            // Comfort noise, or a type that nobody agreed on.
            self.jitter.push_empty(sequence, arrival);
            return None;
        }
        self.stream = Some((header.ssrc, arrival));
        // Differences of timestamps stay right beyond wrapping, because the factor is whole.
        let factor = JITTER_CLOCK / self.media.codec.clock();
        // On hold there is music, or the silence of nobody.
        if self.media.receives {
            self.jitter.push(sequence, timestamp.wrapping_mul(factor), payload, arrival);
        } else {
            self.jitter.push_empty(sequence, arrival);
        }
        None
    }

    /// Decodes all output due by `now`, and appends it to `events`.
    pub fn decode(&mut self, now: Instant, events: &mut VecDeque<TransportEvent>) {
        loop {
            let action = self.jitter.pop(now);
            let admitted = match &action {
                JitterAction::Packet { payload, .. } => {
                    let duration = packet_format(self.media.codec).duration(payload).unwrap_or_default();
                    self.limit.admit(duration, now)
                }
                JitterAction::Fec { duration, .. } | JitterAction::Conceal { duration, .. } => {
                    self.limit.admit(*duration, now)
                }
                JitterAction::Silence { duration, elapsed: false } => self.limit.admit_silence(*duration, now),
                JitterAction::Silence { .. } | JitterAction::Stall { .. } | JitterAction::Wait { .. } => true,
            };
            if !admitted {
                self.over_limit += 1;
                continue;
            }
            let decoded = match action {
                JitterAction::Packet { payload, .. } => {
                    let decoded = self.decoder.decode(&payload);
                    if decoded.as_ref().is_ok_and(|samples| !is_audible(samples)) {
                        self.jitter.mark_silent();
                    }
                    decoded
                }
                JitterAction::Fec { next, duration, .. } => self.decoder.conceal(Some(&next), duration),
                JitterAction::Conceal { duration, .. } | JitterAction::Stall { duration } => {
                    self.decoder.conceal(None, duration)
                }
                JitterAction::Silence { duration, .. } => Ok(self.decoder.silence(duration)),
                JitterAction::Wait { until } => {
                    self.due = until;
                    return;
                }
            };
            match decoded {
                Ok(samples) => events.push_back(TransportEvent::Audio { samples, rate: self.decoder.rate() }),
                // The other packets are still decoded.
                Err(error) => tracing::debug!(%error, "a telephone's packet could not be decoded"),
            }
        }
    }

    /// Returns the time when [`Self::decode`] has output without a further packet.
    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Adds the packets since the last call to the metrics.
    pub fn count(&mut self) {
        let stats = self.jitter.stats();
        self.metrics.network.count_received(&self.counted, &stats);
        self.metrics.network.count_early(std::mem::take(&mut self.over_limit));
        self.counted = stats;
    }
}
