//! Opus encoder of a WebRTC call's output audio. It runs on the sending task: meanwhile the call's own task reads
//! events and feeds the engine. One task and one queue keep the frames in order.

use std::time::{Duration, Instant};

use bytes::Bytes;
use repartee_engine_api::ResponseId;
use repartee_media::adaptation::{ComplexityControl, LinkAdapter, SendPlan};
use repartee_media::opus::{FRAME, OpusEncoder, OpusError};
use repartee_media::playout::PlayoutFrame;
use repartee_media::red::RedWriter;
use tokio::sync::mpsc;
use tokio::time::timeout_at;

use super::LinkQuality;
use super::call::PayloadTypes;
use crate::call::TransportEvent;

/// Packets of silence after a response. From later packets a receiver detects a loss and gets the copy of a lost
/// packet; and a jitter buffer that counts packets would otherwise withhold the last ones until the next response.
pub(super) const TAIL_PACKETS: u32 = 5;

/// Packets of silence before the first sound of a call. A caller that has not yet read our last packet of the handshake
/// cannot decrypt the first ones.
pub(super) const LEAD_PACKETS: u32 = 3;

/// Message from the call's task to the sending task.
#[derive(Debug)]
pub(super) enum PlayoutCommand {
    /// 20 ms of a response; with a report to send if the frame is the first audible one.
    Frame(PlayoutFrame, Option<AudibleReport>),
    /// The caller is connected from now on.
    Open(Instant),
    /// The current response has been played to its end, or pauses.
    End,
}

/// Report of a response's first audible packet, to be sent with the packet.
#[derive(Debug)]
pub(super) struct AudibleReport {
    pub response: ResponseId,
    /// Time when its sound was handed to the encoder.
    pub due: Instant,
    /// Channel to the call's task.
    pub reports: mpsc::Sender<TransportEvent>,
}

/// One packet of output audio.
#[derive(Debug)]
pub(super) struct OutputPacket {
    pub payload_type: u8,
    pub payload: Bytes,
    /// Silence before the packet, which the RTP timestamp skips.
    pub gap: Duration,
    /// Time of encoding, and the report to send with the packet.
    audible: Option<(Instant, AudibleReport)>,
}

impl OutputPacket {
    /// Takes the report out, as a function to call once the packet is sent.
    pub fn report(&mut self) -> impl FnOnce() + use<> {
        let audible = self.audible.take();
        move || {
            let Some((encoded, AudibleReport { response, due, reports })) = audible else { return };
            // A full queue means that the call's task stands still: then a figure is lost, no sound.
            let _ = reports.try_send(TransportEvent::FirstAudible { response, due, encoded, sent: now() });
        }
    }
}

/// Packets of one call, each at its time.
#[derive(Debug)]
pub(super) struct PacketSource {
    encoder: PacketEncoder,
    queue: mpsc::Receiver<PlayoutCommand>,
    /// End of the newest frame.
    until: Option<Instant>,
    /// Number of silence packets still to send.
    tail: u32,
    /// Report for the next packet, which is the first audible one of its response.
    audible: Option<AudibleReport>,
}

impl PacketSource {
    /// Encodes the frames from `queue`.
    pub fn new(encoder: PacketEncoder, queue: mpsc::Receiver<PlayoutCommand>) -> Self {
        Self { encoder, queue, until: None, tail: 0, audible: None }
    }

    /// Waits for the next packet, adapted to the caller's reports; `None` once the queue is closed. Cancel safe.
    pub async fn next(&mut self, quality: impl Fn() -> LinkQuality) -> Option<OutputPacket> {
        loop {
            let playing = match self.until.filter(|_| self.tail > 0) {
                Some(due) => match timeout_at(due.into(), self.queue.recv()).await {
                    Ok(playing) => playing?,
                    Err(_) => {
                        self.tail -= 1;
                        self.until = Some(due + FRAME);
                        match self.encoder.silence(due) {
                            Some(packet) => return Some(packet),
                            None => continue,
                        }
                    }
                },
                None => self.queue.recv().await?,
            };
            let (frame, audible) = match playing {
                PlayoutCommand::Frame(frame, audible) => (frame, audible),
                PlayoutCommand::Open(now) => {
                    (self.tail, self.until) = (LEAD_PACKETS, Some(now));
                    continue;
                }
                PlayoutCommand::End => {
                    self.tail = TAIL_PACKETS;
                    self.audible = None;
                    continue;
                }
            };
            self.audible = audible.or(self.audible.take());
            self.tail = 0;
            self.until = Some(frame.due + FRAME);
            self.encoder.adapt(&quality());
            if let Some(mut packet) = self.encoder.encode(&frame, now()) {
                packet.audible = self.audible.take().map(|report| (now(), report));
                return Some(packet);
            }
        }
    }
}

/// Encoder of one call's frames.
#[derive(Debug)]
pub(super) struct PacketEncoder {
    encoder: OpusEncoder,
    payload_types: PayloadTypes,
    /// End of the audio sent so far: the RTP timestamp has to skip the gap after it.
    sent_until: Option<Instant>,
    /// Number of the caller's reports, and its available bitrate, at the last adaptation.
    adapted: (u64, Option<u32>),
    link: LinkAdapter,
    effort: ComplexityControl,
    /// The complexity setting of the encoder.
    complexity: Option<i32>,
    copies: usize,
    red: RedWriter,
}

impl PacketEncoder {
    /// Creates an encoder at `rate`, which Opus must support.
    pub fn new(rate: u32, payload_types: PayloadTypes) -> Result<Self, OpusError> {
        Ok(Self {
            encoder: OpusEncoder::new(rate)?,
            payload_types,
            sent_until: None,
            adapted: (0, None),
            link: LinkAdapter::default(),
            effort: ComplexityControl::default(),
            complexity: None,
            copies: 0,
            red: RedWriter::new(payload_types.opus),
        })
    }

    /// Adapts to the caller's reports, if they are new.
    pub fn adapt(&mut self, quality: &LinkQuality) {
        let news = (quality.reports, quality.available_bitrate);
        if std::mem::replace(&mut self.adapted, news) == news {
            return;
        }
        let loss = quality.loss.unwrap_or_default();
        let SendPlan { bitrate, copies } =
            self.link.report(loss, quality.available_bitrate, self.payload_types.red.is_some());
        self.copies = copies;
        let adapted = self.encoder.expect_loss(self.link.loss()).and_then(|()| self.encoder.set_bitrate(bitrate));
        if let Err(error) = adapted {
            tracing::error!(%error, "the encoder cannot adapt to the network");
        }
    }

    /// Encodes the next frame, which leaves at `now`; `None` for silence, which the receiver generates itself.
    pub fn encode(&mut self, frame: &PlayoutFrame, now: Instant) -> Option<OutputPacket> {
        let complexity = self.effort.complexity(now.saturating_duration_since(frame.due));
        let set = match self.complexity.replace(complexity) {
            Some(before) if before == complexity => Ok(()),
            _ => self.encoder.set_complexity(complexity),
        };
        let packet = match set.and_then(|()| self.encoder.encode(&frame.samples)) {
            Ok(packet) => packet,
            Err(error) => {
                tracing::error!(%error, "an audio frame could not be encoded");
                return None;
            }
        };
        (!packet.silent).then(|| self.packet(packet.payload, frame.due))
    }

    /// Returns a packet of silence due at `due`; `None` if it cannot be encoded.
    fn silence(&mut self, due: Instant) -> Option<OutputPacket> {
        let packet = self.encoder.encode(&vec![0.0; self.encoder.frame_samples()]);
        let packet = packet.inspect_err(|error| tracing::error!(%error, "silence could not be encoded")).ok()?;
        Some(self.packet(packet.payload, due))
    }

    /// Returns the packet of a payload due at `due`.
    fn packet(&mut self, payload: Bytes, due: Instant) -> OutputPacket {
        // Counted on the playout grid: a frame that leaves late still follows the one before without a gap, because a
        // gap in the timestamps would be a hole in a word.
        let gap = self.sent_until.map_or(Duration::ZERO, |until| due.saturating_duration_since(until));
        // After an underrun of less than a frame, late audio sounds better than a gap.
        let gap = if gap < FRAME { Duration::ZERO } else { gap };
        let until = self.sent_until.filter(|_| gap.is_zero()).unwrap_or(due);
        self.sent_until = Some(until + FRAME);
        let opus = self.payload_types.opus;
        let redundant = self.payload_types.red.and_then(|red| Some((red, self.red.write(gap, &payload, self.copies)?)));
        let (payload_type, payload) = redundant.unwrap_or((opus, payload));
        OutputPacket { payload_type, payload, gap, audible: None }
    }
}

/// Current time of the runtime's clock, which a test may stop.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

#[cfg(test)]
mod tests {
    use repartee_media::red;
    use repartee_testkit::signal::sine;

    use super::*;

    const TYPES: PayloadTypes = PayloadTypes { opus: 111, red: Some(63), telephone_event: None };

    /// Encodes a second of a tone; each frame leaves `late` after its time.
    fn second(encoder: &mut PacketEncoder, late: Duration) -> Vec<OutputPacket> {
        let begin = Instant::now();
        let frames = sine(440.0, 24_000, 24_000);
        let frames = frames.chunks_exact(480).enumerate().map(|(number, samples)| {
            let due = begin + FRAME * number as u32;
            PlayoutFrame { generation: 1, item: 1, first: number == 0, due, samples: samples.to_vec() }
        });
        frames.filter_map(|frame| encoder.encode(&frame, frame.due + late)).collect()
    }

    fn bytes(packets: &[OutputPacket]) -> usize {
        packets.iter().map(|packet| packet.payload.len()).sum()
    }

    /// A quarter of a second of a response, and its end.
    fn response(number: u64, begin: Instant) -> Vec<PlayoutCommand> {
        let frames = (0..12).map(|index| {
            let samples = sine(440.0, 24_000, 480);
            PlayoutFrame { generation: number, item: number, first: index == 0, due: begin + FRAME * index, samples }
        });
        frames.map(|frame| PlayoutCommand::Frame(frame, None)).chain([PlayoutCommand::End]).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn silence_follows_a_response_at_frame_pace() {
        let (frames, queue) = mpsc::channel(32);
        let mut packets = PacketSource::new(PacketEncoder::new(24_000, TYPES).unwrap(), queue);
        let begin = tokio::time::Instant::now();
        for playing in response(1, begin.into_std()) {
            frames.send(playing).await.unwrap();
        }
        for _ in 0..12 {
            packets.next(LinkQuality::default).await.unwrap();
        }
        for number in 12..12 + TAIL_PACKETS {
            let packet = packets.next(LinkQuality::default).await.unwrap();
            // Timers fire up to a millisecond late.
            assert_eq!((packet.gap, begin.elapsed().as_millis() / 10), (Duration::ZERO, u128::from(number) * 2));
        }
        // Nothing is sent after that.
        let more = tokio::time::timeout(Duration::from_secs(60), packets.next(LinkQuality::default)).await;
        assert!(more.is_err(), "{more:?}");
        // The next response's first packet carries the gap, and the earlier response's silence does not delay it.
        let again = tokio::time::Instant::now();
        for playing in response(2, again.into_std()).into_iter().chain(response(3, (again + 13 * FRAME).into_std())) {
            frames.send(playing).await.unwrap();
        }
        let gap = packets.next(LinkQuality::default).await.unwrap().gap;
        assert_eq!(gap, again - begin - (12 + TAIL_PACKETS) * FRAME);
        for _ in 0..11 {
            packets.next(LinkQuality::default).await.unwrap();
        }
        let packet = packets.next(LinkQuality::default).await.unwrap();
        assert_eq!(
            (packet.gap, again.elapsed()),
            (FRAME, Duration::ZERO),
            "the third began in the silence of the second"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn silence_opens_a_call() {
        let (frames, queue) = mpsc::channel(32);
        let mut packets = PacketSource::new(PacketEncoder::new(24_000, TYPES).unwrap(), queue);
        let begin = tokio::time::Instant::now();
        frames.send(PlayoutCommand::Open(begin.into_std())).await.unwrap();
        for number in 0..LEAD_PACKETS {
            let packet = packets.next(LinkQuality::default).await.unwrap();
            assert_eq!((packet.gap, begin.elapsed().as_millis() / 10), (Duration::ZERO, u128::from(number) * 2));
        }
        // A response that plays at once follows without a gap.
        for playing in response(1, (begin + LEAD_PACKETS * FRAME).into_std()) {
            frames.send(playing).await.unwrap();
        }
        assert_eq!(packets.next(LinkQuality::default).await.unwrap().gap, Duration::ZERO);
    }

    #[test]
    fn packets_carry_copies_while_the_caller_reports_loss() {
        let mut encoder = PacketEncoder::new(24_000, TYPES).unwrap();
        let plain = second(&mut encoder, Duration::ZERO);
        assert!(plain.iter().all(|packet| packet.payload_type == 111));
        encoder.adapt(&LinkQuality { loss: Some(0.1), reports: 1, ..LinkQuality::default() });
        let lossy = second(&mut encoder, Duration::ZERO);
        for packet in &lossy {
            assert_eq!(packet.payload_type, 63);
            let copies = red::parse(&packet.payload, 111).unwrap().copies;
            assert_eq!(copies.iter().map(|copy| copy.distance).collect::<Vec<_>>(), [1, 3, 5]);
        }
        for reports in 2..12 {
            encoder.adapt(&LinkQuality { loss: Some(0.0), reports, ..LinkQuality::default() });
        }
        assert!(second(&mut encoder, Duration::ZERO).iter().all(|packet| packet.payload_type == 111));
        // If redundancy was not negotiated there is none, whatever the loss.
        let mut encoder = PacketEncoder::new(24_000, PayloadTypes { red: None, ..TYPES }).unwrap();
        encoder.adapt(&LinkQuality { loss: Some(0.1), reports: 1, ..LinkQuality::default() });
        assert!(second(&mut encoder, Duration::ZERO).iter().all(|packet| packet.payload_type == 111));
    }

    #[test]
    fn estimates_of_the_caller_bound_the_bit_rate() {
        let mut encoder = PacketEncoder::new(24_000, TYPES).unwrap();
        let usual = bytes(&second(&mut encoder, Duration::ZERO));
        encoder.adapt(&LinkQuality { available_bitrate: Some(35_000), ..LinkQuality::default() });
        let less = bytes(&second(&mut encoder, Duration::ZERO));
        assert!(less * 4 < usual * 3, "{less} bytes, {usual} before");
        encoder.adapt(&LinkQuality { available_bitrate: None, ..LinkQuality::default() });
        assert!(bytes(&second(&mut encoder, Duration::ZERO)) * 4 > usual * 3, "and back");
    }

    #[test]
    fn late_frames_are_encoded_with_less_effort() {
        let mut encoder = PacketEncoder::new(24_000, TYPES).unwrap();
        second(&mut encoder, Duration::ZERO);
        assert_eq!(encoder.complexity, Some(6));
        second(&mut encoder, Duration::from_millis(40));
        assert_eq!(encoder.complexity, Some(0));
    }
}
