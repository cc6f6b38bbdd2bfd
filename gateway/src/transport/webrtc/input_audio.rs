//! Input audio of a WebRTC call: jitter buffer and Opus decoder.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use repartee_media::jitter::{JitterAction, JitterBuffer, JitterStats};
use repartee_media::level::is_audible;
use repartee_media::opus::{OpusDecoder, OpusError, packet_duration};
use repartee_media::red::{self, PacketCopy, RedPayload};

use crate::call::TransportEvent;
use crate::metrics::Metrics;

/// Maximum lead of the packets' total duration over the time passed. A packet of two bytes may declare 120 ms.
const MAX_AHEAD: Duration = Duration::from_secs(1);
/// Tolerance of the sender's clock: it may be fast by one part in this number.
const CLOCK_ERROR: u32 = 1_000;

/// Limit on the total duration that a caller's packets declare.
#[derive(Debug, Default)]
struct RtpTimeLimit {
    begun: Option<Instant>,
    claimed: Duration,
}

impl RtpTimeLimit {
    /// Admits `duration` more at `now`; false if the packets are too far ahead of time.
    fn admit(&mut self, duration: Duration, now: Instant) -> bool {
        if duration.is_zero() {
            return true;
        }
        let passed = now.saturating_duration_since(*self.begun.get_or_insert(now));
        let admitted = self.claimed + duration <= passed + passed / CLOCK_ERROR + MAX_AHEAD;
        self.claimed += if admitted { duration } else { Duration::ZERO };
        admitted
    }
}

/// Silence of the active track after which another track replaces it.
const TRACK_TIMEOUT: Duration = Duration::from_millis(500);

/// One packet of a caller's audio.
#[derive(Debug)]
pub(super) struct RtpPacket {
    pub ssrc: u32,
    pub sequence: u16,
    pub timestamp: u32,
    pub payload: Bytes,
    /// Arrival at the socket.
    pub arrival: Instant,
}

/// Jitter buffer and decoder of one call. One track is active at a time: packets of two would be noise.
#[derive(Debug)]
pub(super) struct InputAudio {
    /// SSRC of the active track, and arrival of its last packet.
    active_ssrc: Option<(u32, Instant)>,
    jitter: JitterBuffer,
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
        let (jitter, counted) = (JitterBuffer::new(), JitterStats::default());
        let limit = RtpTimeLimit::default();
        Ok(Self {
            active_ssrc: None,
            jitter,
            decoder,
            rate,
            due: None,
            time_limit: limit,
            over_limit: 0,
            metrics,
            counted,
        })
    }

    /// Queues an RTP packet. For redundant Opus, `red` holds the payload type of the plain Opus inside.
    pub fn push(&mut self, packet: RtpPacket, red: Option<u8>) {
        let RtpPacket { ssrc, sequence, timestamp, payload, arrival } = packet;
        let redundant = match red.map(|opus| red::parse(&payload, opus)).transpose() {
            Ok(redundant) => redundant,
            Err(error) => return tracing::debug!(%error, "an input packet could not be read"),
        };
        if let Some((heard, last)) = self.active_ssrc
            && heard != ssrc
        {
            if arrival.saturating_duration_since(last) < TRACK_TIMEOUT {
                tracing::debug!(heard, ssrc, "a packet of a second track was dropped");
                return;
            }
            self.count();
            (self.jitter, self.counted) = (JitterBuffer::new(), JitterStats::default());
        }
        self.active_ssrc = Some((ssrc, arrival));
        let Some(RedPayload { primary, copies }) = redundant else {
            return self.jitter.push(sequence, timestamp, payload, arrival);
        };
        self.jitter.push(sequence, timestamp, primary, arrival);
        for PacketCopy { distance, offset, payload } in copies {
            let (sequence, timestamp) = (sequence.wrapping_sub(distance), timestamp.wrapping_sub(offset));
            self.jitter.push_redundant(sequence, timestamp, payload, arrival);
        }
    }

    /// Decodes all output due by `now`, and appends it to `events`.
    pub fn decode(&mut self, now: Instant, events: &mut VecDeque<TransportEvent>) {
        loop {
            let action = self.jitter.pop(now);
            let claimed = match &action {
                // The jitter buffer has already parsed the packet, and refuses malformed ones.
                JitterAction::Packet { payload, .. } => packet_duration(payload).unwrap_or_default(),
                JitterAction::Fec { duration, .. }
                | JitterAction::Conceal { duration, .. }
                | JitterAction::Stall { duration }
                | JitterAction::Silence { duration } => *duration,
                JitterAction::Wait { .. } => Duration::ZERO,
            };
            if !self.time_limit.admit(claimed, now) {
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
                JitterAction::Fec { next, duration, .. } => self.decoder.decode_fec(&next, duration),
                JitterAction::Conceal { duration, .. } | JitterAction::Stall { duration } => {
                    self.decoder.conceal(duration)
                }
                JitterAction::Silence { duration } => {
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
        let stats = self.jitter.stats();
        self.metrics.network.count_received(&self.counted, &stats);
        self.metrics.network.count_early(std::mem::take(&mut self.over_limit));
        self.counted = stats;
    }
}

#[cfg(test)]
mod tests {
    use repartee_media::opus::OpusEncoder;
    use repartee_testkit::signal::{dominant_frequency, sine};

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn input() -> (InputAudio, Arc<Metrics>) {
        let metrics = Arc::new(Metrics::new(80 * MS).unwrap());
        (InputAudio::new(16_000, metrics.clone()).unwrap(), metrics)
    }

    fn packet(ssrc: u32, sequence: u16, timestamp: u32, payload: &Bytes, arrival: Instant) -> RtpPacket {
        RtpPacket { ssrc, sequence, timestamp, payload: payload.clone(), arrival }
    }

    /// Decodes all output due by `now`, and returns its duration.
    fn decoded(input: &mut InputAudio, now: Instant) -> Duration {
        let mut events = VecDeque::new();
        input.decode(now, &mut events);
        let samples =
            |event: &TransportEvent| if let TransportEvent::Audio { samples, .. } = event { samples.len() } else { 0 };
        Duration::from_secs(events.iter().map(samples).sum::<usize>() as u64) / 16_000
    }

    #[test]
    fn packets_claim_no_more_than_wall_time() {
        let (mut input, metrics) = input();
        let (start, mut sound) = (Instant::now(), Duration::ZERO);
        // Six frames of 20 ms in two bytes, every 5 ms: 24 times as much as time passes.
        for number in 0..1_000_u32 {
            let now = start + number * 5 * MS;
            input.push(packet(1, number as u16, number * 5_760, &Bytes::from_static(&[0x0b, 0x06]), now), None);
            sound += decoded(&mut input, now);
        }
        assert!(sound <= 5_000 * MS + 5 * MS + MAX_AHEAD, "{sound:?} in five seconds");
        assert!(sound >= 5_000 * MS, "{sound:?}: what is believable is taken");
        input.count();
        let text = metrics.render().unwrap();
        let early = text.lines().find_map(|line| line.strip_prefix("repartee_rtp_packets_total{fate=\"early\"} "));
        assert!(early.unwrap().parse::<u32>().unwrap() > 900, "{text}");
    }

    #[test]
    fn bursts_after_a_stall_are_taken_whole() {
        let (mut input, _) = input();
        let (start, mut sound) = (Instant::now(), Duration::ZERO);
        for number in 0..300_u32 {
            // After two seconds nothing arrives for 380 ms, and then all of it at once.
            let ms = if (100..119).contains(&number) { 119 * 20 } else { number * 20 };
            input.push(
                packet(1, number as u16, number * 960, &Bytes::from_static(&[0x08, 0, 0]), start + ms * MS),
                None,
            );
            sound += decoded(&mut input, start + ms * MS);
        }
        assert_eq!((sound, input.over_limit), (6_000 * MS, 0));
    }

    #[test]
    fn copies_take_the_place_of_lost_packets() {
        const OPUS: u8 = 111;
        let (mut input, metrics) = input();
        let (start, mut writer, mut sound) = (Instant::now(), red::RedWriter::new(OPUS), Duration::ZERO);
        for (number, payload) in tone(440.0).into_iter().enumerate() {
            let (number, red) = (number as u32, writer.write(Duration::ZERO, &payload, 2));
            let (payload, kind) = red.map_or((payload, None), |red| (red, Some(OPUS)));
            // Every second packet is lost.
            if number % 2 == 0 {
                input.push(packet(1, number as u16, number * 960, &payload, start + number * 20 * MS), kind);
                sound += decoded(&mut input, start + number * 20 * MS);
            }
        }
        assert_eq!(sound, 980 * MS, "the last one is lost, too");
        input.push(packet(1, 50, 50 * 960, &Bytes::from_static(&[0x80]), start + 1_000 * MS), Some(OPUS));
        assert_eq!(decoded(&mut input, start + 1_000 * MS), Duration::ZERO, "a broken packet is nothing");
        input.count();
        let text = metrics.render().unwrap();
        assert!(text.contains("repartee_rtp_packets_total{fate=\"copied\"} 24"), "{text}");
        assert!(!text.contains("fate=\"concealed\"} 1"), "{text}");
    }

    /// Packets of a second of a tone.
    fn tone(frequency: f64) -> Vec<Bytes> {
        let mut encoder = OpusEncoder::new(16_000).unwrap();
        let samples = sine(frequency, 16_000, 16_000);
        samples.chunks_exact(320).map(|frame| encoder.encode(frame).unwrap().payload).collect()
    }

    /// Pushes packet `index` of a track at `at`, and returns the decoded samples.
    fn hear(input: &mut InputAudio, ssrc: u32, index: usize, payload: &Bytes, at: Instant) -> Vec<f32> {
        input.push(packet(ssrc, index as u16, index as u32 * 960, payload, at), None);
        let mut events = VecDeque::new();
        input.decode(at, &mut events);
        let samples = events.into_iter().filter_map(|event| match event {
            TransportEvent::Audio { samples, .. } => Some(samples),
            _ => None,
        });
        samples.flatten().collect()
    }

    #[test]
    fn second_track_is_not_interleaved() {
        let metrics = Arc::new(Metrics::new(80 * MS).unwrap());
        let mut input = InputAudio::new(16_000, metrics.clone()).unwrap();
        let (first, second, start) = (tone(440.0), tone(1_000.0), Instant::now());
        let mut heard = Vec::new();
        for index in 0..first.len() {
            let at = start + index as u32 * 20 * MS;
            heard.extend(hear(&mut input, 1, index, &first[index], at));
            heard.extend(hear(&mut input, 2, index + 7, &second[index], at));
        }
        assert_eq!(heard.len(), 16_000);
        assert!((dominant_frequency(&heard[3_200..], 16_000) - 440.0).abs() < 4.0);
        // Once the first track is silent, the second becomes active.
        heard.clear();
        for (index, packet) in second.iter().enumerate() {
            heard.extend(hear(&mut input, 2, index + 100, packet, start + 2_100 * MS + index as u32 * 20 * MS));
        }
        assert!(heard.len() >= 16_000 - 320, "{}", heard.len());
        assert!((dominant_frequency(&heard[3_200..], 16_000) - 1_000.0).abs() < 4.0);
        // The first track's statistics are not lost.
        input.count();
        let text = metrics.render().unwrap();
        assert!(text.contains("repartee_rtp_packets_total{fate=\"played\"} 100"), "{text}");
    }
}
