//! Input audio of a WebRTC call: jitter buffer and Opus decoder.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use repartee_media::jitter::{Action, JitterBuffer, JitterStats};
use repartee_media::opus::{OpusDecoder, OpusError};

use crate::call::TransportEvent;
use crate::metrics::Metrics;

/// Jitter buffer and decoder of one call.
#[derive(Debug)]
pub(super) struct InputAudio {
    jitter: JitterBuffer,
    decoder: OpusDecoder,
    /// Rate of the decoded samples, in Hz.
    rate: u32,
    /// When the jitter buffer has output without a further packet.
    due: Option<Instant>,
    metrics: Arc<Metrics>,
    /// The statistics that are in the metrics already.
    counted: JitterStats,
}

impl InputAudio {
    /// Decodes to `rate`, which is one of Opus's.
    pub fn new(rate: u32, metrics: Arc<Metrics>) -> Result<Self, OpusError> {
        let decoder = OpusDecoder::new(rate)?;
        Ok(Self { jitter: JitterBuffer::new(), decoder, rate, due: None, metrics, counted: JitterStats::default() })
    }

    /// Takes an RTP packet.
    pub fn push(&mut self, sequence: u16, timestamp: u32, payload: Bytes, arrival: Instant) {
        self.jitter.push(sequence, timestamp, payload, arrival);
    }

    /// Decodes what is due by `now`, and adds it to `events`.
    pub fn decode(&mut self, now: Instant, events: &mut VecDeque<TransportEvent>) {
        loop {
            let decoded = match self.jitter.pop(now) {
                Action::Packet { payload, .. } => self.decoder.decode(&payload),
                Action::Fec { next, duration, .. } => self.decoder.decode_fec(&next, duration),
                Action::Conceal { duration, .. } => self.decoder.conceal(duration),
                Action::Silence { duration } => {
                    Ok(vec![0.0; (duration.as_secs_f64() * f64::from(self.rate)).round() as usize])
                }
                Action::Wait { until } => {
                    self.due = until;
                    return;
                }
            };
            match decoded {
                Ok(samples) => events.push_back(TransportEvent::Audio { samples, rate: self.rate }),
                // The other packets are decoded all the same.
                Err(error) => tracing::debug!(%error, "an input packet could not be decoded"),
            }
        }
    }

    /// When [`Self::decode`] has output without a further packet.
    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Adds the packets since the last time to the metrics.
    pub fn count(&mut self) {
        let stats = self.jitter.stats();
        self.metrics.network.received(&self.counted, &stats);
        self.counted = stats;
    }
}
