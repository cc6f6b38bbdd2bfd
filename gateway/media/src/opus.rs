//! Opus for voice: an encoder of 20 ms packets, and a decoder with forward error correction (FEC) and concealment.

use std::time::Duration;

use ::opus::{Application, Bitrate, Channels, Decoder, Encoder, ErrorCode, packet};
use bytes::Bytes;
use thiserror::Error;

use super::downmix::Downmix;

/// Duration of a packet that we send.
pub const FRAME: Duration = Duration::from_millis(20);
/// Delay of the codec: the encoder's lookahead shifts sound within its packet.
pub const CODEC_DELAY: Duration = Duration::from_micros(6_500);
/// Maximum duration of an Opus packet.
const LONGEST: Duration = Duration::from_millis(120);
/// Smallest unit of concealment.
const STEP: Duration = Duration::from_micros(2500);
/// Sample rates in Hz that Opus encodes from and decodes to, independent of the other side.
pub const RATES: [u32; 5] = [8_000, 12_000, 16_000, 24_000, 48_000];
/// Default bit rate in bits per second: transparent for a mono voice, including FEC.
const BITRATE: i32 = 32_000;
/// Loss from which on the encoder spends bits and a fifth of its time on a copy of the previous packet; a share, 0 to 1.
const NOTED_LOSS: f64 = 0.005;
/// Expected packet loss in percent while some is noted: minimum and maximum.
const EXPECTED_LOSS: (i32, i32) = (5, 30);
/// Encoder complexity, 0 to 10. From 6 on the library shapes noise with vector instructions, so 6 costs what 5 does; above, a voice
/// at this bit rate has no audible gain.
pub(super) const COMPLEXITY: i32 = 6;
/// Root mean square below which a frame may use DTX, -55 dB of full scale. The library's own rule treats every steady
/// sound as background noise and would cut off a held note.
const QUIET: f32 = 1.78e-3;
/// Maximum packet size in bytes; it fits one datagram with all headers.
const MAX_PACKET: usize = 1_000;

/// Error of the Opus encoder or decoder.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum OpusError {
    /// Sample rate that is not one of [`RATES`].
    #[error("Opus runs at 8000, 12000, 16000, 24000 or 48000 Hz, not at {0}")]
    UnsupportedRate(u32),
    /// Frame to encode that is not exactly 20 ms long.
    #[error("a frame has {expected} samples, got {got}")]
    FrameLength {
        /// Samples in 20 ms.
        expected: usize,
        /// Samples in the given frame.
        got: usize,
    },
    /// Packet that is not Opus; the decoder continues with the next one.
    #[error("the packet is not valid Opus")]
    Corrupt,
    /// Other failure of the library.
    #[error("Opus failed: {0}")]
    Library(&'static str),
}

impl From<::opus::Error> for OpusError {
    fn from(error: ::opus::Error) -> Self {
        match error.code() {
            ErrorCode::InvalidPacket => Self::Corrupt,
            code => Self::Library(code.description()),
        }
    }
}

/// Encoded packet to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedPacket {
    /// RTP payload of the packet.
    pub payload: Bytes,
    /// True for a DTX packet: silence continues, and the packet need not be sent.
    pub silent: bool,
}

/// Mono speech encoder: packets of 20 ms with discontinuous transmission (DTX), and with in-band FEC once loss is expected.
#[derive(Debug)]
pub struct OpusEncoder {
    encoder: Encoder,
    frame_samples: usize,
}

impl OpusEncoder {
    /// Creates an encoder of samples at `rate`, one of [`RATES`].
    pub fn new(rate: u32) -> Result<Self, OpusError> {
        check_rate(rate)?;
        let mut encoder = Encoder::new(rate, Channels::Mono, Application::Voip)?;
        encoder.set_bitrate(Bitrate::Bits(BITRATE))?;
        encoder.set_complexity(COMPLEXITY)?;
        Ok(Self { encoder, frame_samples: samples_in(FRAME, rate) })
    }

    /// Sets the expected packet loss, 0 to 1, as reported by the receiver: packets carry FEC while there is some.
    pub fn expect_loss(&mut self, share: f64) -> Result<(), OpusError> {
        let (least, most) = EXPECTED_LOSS;
        let noted = share.is_nan() || share >= NOTED_LOSS;
        let percent = if share.is_finite() { (share * 100.0).ceil() as i32 } else { least };
        self.encoder.set_inband_fec(noted)?;
        Ok(self.encoder.set_packet_loss_perc(if noted { percent.clamp(least, most) } else { 0 })?)
    }

    /// Sets the bit rate, in bits per second.
    pub fn set_bitrate(&mut self, bitrate: u32) -> Result<(), OpusError> {
        let bitrate = i32::try_from(bitrate).unwrap_or(BITRATE);
        Ok(self.encoder.set_bitrate(Bitrate::Bits(bitrate))?)
    }

    /// Sets the encoder complexity, 0 to 10.
    pub fn set_complexity(&mut self, complexity: i32) -> Result<(), OpusError> {
        Ok(self.encoder.set_complexity(complexity.clamp(0, 10))?)
    }

    /// Number of samples that the encoder adds before the first input sample.
    pub fn lookahead(&mut self) -> Result<u32, OpusError> {
        Ok(u32::try_from(self.encoder.get_lookahead()?).unwrap_or(0))
    }

    /// Number of samples per frame.
    pub fn frame_samples(&self) -> usize {
        self.frame_samples
    }

    /// Encodes exactly one frame of 20 ms.
    pub fn encode(&mut self, frame: &[f32]) -> Result<EncodedPacket, OpusError> {
        if frame.len() != self.frame_samples {
            return Err(OpusError::FrameLength { expected: self.frame_samples, got: frame.len() });
        }
        let power = frame.iter().map(|sample| sample * sample).sum::<f32>() / frame.len() as f32;
        self.encoder.set_dtx(power < QUIET * QUIET)?;
        let mut packet = [0; MAX_PACKET];
        let length = self.encoder.encode_float(frame, &mut packet)?;
        // The library's rule: a packet of at most two bytes need not be sent.
        Ok(EncodedPacket { payload: Bytes::copy_from_slice(&packet[..length]), silent: length <= 2 })
    }
}

/// Opus decoder to any of [`RATES`], without a resampler.
#[derive(Debug)]
pub struct OpusDecoder {
    decoder: Decoder,
    rate: u32,
    /// Downmix of a stream in stereo. The library's own is the mean, which is silence for channels in opposite phase.
    downmix: Option<Downmix>,
}

impl OpusDecoder {
    /// Creates a decoder to mono samples at `rate`, one of [`RATES`].
    pub fn new(rate: u32) -> Result<Self, OpusError> {
        check_rate(rate)?;
        Ok(Self { decoder: Decoder::new(rate, Channels::Mono)?, rate, downmix: None })
    }

    /// Decodes a packet of 2.5 to 120 ms.
    pub fn decode(&mut self, packet: &[u8]) -> Result<Vec<f32>, OpusError> {
        let duration = packet_duration(packet)?;
        if self.downmix.is_none() && packet::get_nb_channels(packet)? == Channels::Stereo {
            // A stream seldom changes; at the change the decoder's memory is lost, which is a short fade.
            self.decoder = Decoder::new(self.rate, Channels::Stereo)?;
            self.downmix = Some(Downmix::new(2));
        }
        self.run(packet, duration, false)
    }

    /// Reconstructs a lost packet of duration `lost` from the FEC copy in the packet after it; conceals if `next` has none.
    /// Call [`Self::decode`] with `next` afterwards.
    pub fn decode_fec(&mut self, next: &[u8], lost: Duration) -> Result<Vec<f32>, OpusError> {
        packet_duration(next)?;
        self.run(next, whole_steps(lost), true)
    }

    /// Conceals a loss of duration `lost`; fades out over consecutive losses.
    pub fn conceal(&mut self, lost: Duration) -> Result<Vec<f32>, OpusError> {
        self.run(&[], whole_steps(lost), false)
    }

    /// Decodes `duration` of sound; an empty `packet` conceals.
    fn run(&mut self, packet: &[u8], duration: Duration, fec: bool) -> Result<Vec<f32>, OpusError> {
        let channels = self.downmix.as_ref().map_or(1, Downmix::channels);
        let mut samples = vec![0.0; samples_in(duration, self.rate) * channels];
        let length = self.decoder.decode_float(packet, &mut samples, fec)?;
        samples.truncate(length * channels);
        let Some(downmix) = &mut self.downmix else { return Ok(samples) };
        let mut mono = Vec::with_capacity(length);
        downmix.mix(&samples, &mut mono);
        Ok(mono)
    }
}

/// Reads the duration of a packet from its header: 2.5 to 120 ms.
pub fn packet_duration(packet: &[u8]) -> Result<Duration, OpusError> {
    // At this rate a sample is an RTP tick, and every Opus duration is a whole number of samples.
    const RATE: u32 = 48_000;
    if packet.is_empty() {
        return Err(OpusError::Corrupt);
    }
    let samples = packet::get_nb_samples(packet, RATE)?;
    let duration = Duration::from_micros(samples as u64 * 1_000_000 / u64::from(RATE));
    if duration.is_zero() || duration > LONGEST { Err(OpusError::Corrupt) } else { Ok(duration) }
}

fn check_rate(rate: u32) -> Result<(), OpusError> {
    if RATES.contains(&rate) { Ok(()) } else { Err(OpusError::UnsupportedRate(rate)) }
}

fn samples_in(duration: Duration, rate: u32) -> usize {
    (duration.as_micros() * u128::from(rate) / 1_000_000) as usize
}

/// Rounds down to whole steps, as concealment requires: at least one step, at most the longest packet.
fn whole_steps(duration: Duration) -> Duration {
    let steps = (duration.as_micros() / STEP.as_micros()).clamp(1, LONGEST.as_micros() / STEP.as_micros());
    STEP * steps as u32
}

#[cfg(test)]
mod tests {
    use repartee_testkit::signal::{chirp, dominant_frequency, frequencies, level_db, sine};

    use super::*;

    fn encode(rate: u32, samples: &[f32]) -> Vec<EncodedPacket> {
        let mut encoder = OpusEncoder::new(rate).unwrap();
        samples.chunks_exact(encoder.frame_samples()).map(|frame| encoder.encode(frame).unwrap()).collect()
    }

    #[test]
    fn tone_keeps_pitch_and_level_across_rates() {
        let packets = encode(24_000, &sine(440.0, 24_000, 24_000));
        let mut decoder = OpusDecoder::new(16_000).unwrap();
        let decoded: Vec<f32> = packets.iter().flat_map(|packet| decoder.decode(&packet.payload).unwrap()).collect();
        assert_eq!(decoded.len(), 16_000);
        let settled = &decoded[3_200..];
        assert!((dominant_frequency(settled, 16_000) - 440.0).abs() < 3.0);
        assert!((level_db(settled) - level_db(&sine(440.0, 24_000, 24_000))).abs() < 1.0);
    }

    #[test]
    fn sound_leaves_the_decoder_after_its_delay() {
        for rate in [16_000, 24_000, 48_000] {
            let (onset, tone) = (rate as usize / 2, sine(440.0, rate, rate as usize / 2));
            let packets = encode(rate, &[vec![0.0; onset], tone].concat());
            let mut decoder = OpusDecoder::new(rate).unwrap();
            let decoded: Vec<f32> =
                packets.iter().flat_map(|packet| decoder.decode(&packet.payload).unwrap()).collect();
            let peak = decoded.iter().fold(0.0_f32, |peak, sample| peak.max(sample.abs()));
            let heard = decoded.iter().position(|sample| sample.abs() > peak / 2.0).unwrap();
            // A tone of 440 Hz reaches half of its peak after 0.2 ms.
            let delay = Duration::from_secs_f64(heard as f64 / f64::from(rate)) - Duration::from_millis(500);
            assert!(delay.abs_diff(CODEC_DELAY) < Duration::from_millis(2), "{rate}: {delay:?}");
        }
    }

    #[test]
    fn chirp_arrives_complete_and_in_order() {
        let packets = encode(24_000, &chirp(300.0, 3_300.0, 24_000, 24_000));
        let mut decoder = OpusDecoder::new(16_000).unwrap();
        let decoded: Vec<f32> = packets.iter().flat_map(|packet| decoder.decode(&packet.payload).unwrap()).collect();
        assert_eq!((packets.len(), decoded.len()), (50, 16_000));
        // The chirp rises by 60 Hz per frame. The codec's delay is less than a frame.
        for (frame, found) in frequencies(&decoded, 16_000, 320).into_iter().enumerate().skip(2) {
            let expected = 300.0 + 60.0 * (frame as f64 + 0.5);
            assert!((expected - 40.0..expected + 10.0).contains(&found), "{found} Hz instead of {expected}");
        }
    }

    #[test]
    fn silence_becomes_discontinuous() {
        let packets = encode(24_000, &vec![0.0; 24_000]);
        assert!(packets[25..].iter().any(|packet| packet.silent));
        assert!(packets.iter().all(|packet| !packet.payload.is_empty()));
    }

    #[test]
    fn held_note_is_not_silence() {
        let note = sine(440.0, 24_000, 72_000);
        let packets = encode(24_000, &note);
        assert!(packets.iter().all(|packet| !packet.silent));
        let mut decoder = OpusDecoder::new(24_000).unwrap();
        let decoded: Vec<f32> = packets.iter().flat_map(|packet| decoder.decode(&packet.payload).unwrap()).collect();
        assert!((level_db(&decoded[48_000..]) - level_db(&note)).abs() < 1.0);
    }

    #[test]
    fn fec_beats_concealment() {
        // A tone that changes pitch with every packet is not predictable from earlier packets.
        let rate = 24_000;
        let speech: Vec<f32> = (0..50).flat_map(|i| sine(200.0 + 150.0 * f64::from(i % 7), rate, 480)).collect();
        let mut encoder = OpusEncoder::new(rate).unwrap();
        encoder.expect_loss(0.1).unwrap();
        let packets: Vec<_> = speech.chunks_exact(480).map(|frame| encoder.encode(frame).unwrap()).collect();
        let (mut whole, mut fec, mut plc) =
            (OpusDecoder::new(rate).unwrap(), OpusDecoder::new(rate).unwrap(), OpusDecoder::new(rate).unwrap());
        let (mut fec_error, mut plc_error) = (0.0, 0.0);
        for (i, packet) in packets.iter().enumerate() {
            let reference = whole.decode(&packet.payload).unwrap();
            if i % 5 == 4 && i + 1 < packets.len() {
                let difference =
                    |guess: &[f32]| -> f32 { guess.iter().zip(&reference).map(|(a, b)| (a - b).powi(2)).sum() };
                fec_error += difference(&fec.decode_fec(&packets[i + 1].payload, FRAME).unwrap());
                plc_error += difference(&plc.conceal(FRAME).unwrap());
            } else {
                fec.decode(&packet.payload).unwrap();
                plc.decode(&packet.payload).unwrap();
            }
        }
        assert!(fec_error < 0.7 * plc_error, "with correction {fec_error}, without {plc_error}");
    }

    /// True if a mono packet of 20 ms has a copy of the one before it: the second bit of its speech coder's data (RFC 6716, 4.2.3).
    fn has_copy(payload: &[u8]) -> bool {
        payload[0] & 0x80 == 0 && payload[1] & 0x40 != 0
    }

    #[test]
    fn packets_carry_fec_only_while_loss_is_expected() {
        let rate = 24_000;
        let speech: Vec<f32> = (0..75).flat_map(|i| sine(200.0 + 150.0 * f64::from(i % 7), rate, 480)).collect();
        let mut encoder = OpusEncoder::new(rate).unwrap();
        let mut repairs = Vec::new();
        for (part, loss) in [0.0, 0.1, 0.001].into_iter().enumerate() {
            encoder.expect_loss(loss).unwrap();
            let packets: Vec<_> = speech[part * 25 * 480..][..25 * 480]
                .chunks_exact(480)
                .map(|frame| encoder.encode(frame).unwrap())
                .collect();
            // The first packets are still of the part before.
            repairs.push(packets[5..].iter().filter(|packet| has_copy(&packet.payload)).count());
        }
        assert!(repairs[0] == 0 && repairs[1] > 15 && repairs[2] == 0, "{repairs:?}");
    }

    #[test]
    fn concealment_fills_the_loss_and_fades() {
        let mut decoder = OpusDecoder::new(16_000).unwrap();
        for packet in encode(24_000, &sine(440.0, 24_000, 4_800)) {
            decoder.decode(&packet.payload).unwrap();
        }
        let filled: Vec<_> = (0..25).map(|_| decoder.conceal(FRAME).unwrap()).collect();
        assert!(filled.iter().all(|samples| samples.len() == 320));
        assert!(level_db(&filled[24]) < level_db(&filled[0]) - 20.0);
        assert_eq!(decoder.conceal(Duration::from_secs(3600)).unwrap().len(), 16 * 120);
        assert_eq!(decoder.conceal(Duration::ZERO).unwrap().len(), 40);
    }

    #[test]
    fn channels_in_opposite_phase_are_heard() {
        let tone = sine(440.0, 48_000, 48_000);
        for sign in [1.0, -1.0, 0.0] {
            let mut encoder = Encoder::new(48_000, Channels::Stereo, Application::Audio).unwrap();
            let mut decoder = OpusDecoder::new(16_000).unwrap();
            let mut decoded = Vec::new();
            for frame in tone.chunks_exact(960) {
                let frames: Vec<f32> = frame.iter().flat_map(|sample| [*sample, sign * sample]).collect();
                decoded.extend(decoder.decode(&encoder.encode_vec_float(&frames, MAX_PACKET).unwrap()).unwrap());
            }
            // A loss is filled, and a packet in mono follows one in stereo.
            decoded.extend(decoder.conceal(FRAME).unwrap());
            decoded.extend(decoder.decode(&encode(24_000, &sine(440.0, 24_000, 480))[0].payload).unwrap());
            assert_eq!(decoded.len(), 52 * 320);
            let (middle, expected) = (&decoded[3_200..16_000], if sign == 0.0 { 6.0 } else { 0.0 });
            assert!((dominant_frequency(middle, 16_000) - 440.0).abs() < 3.0, "{sign}");
            assert!((level_db(&tone) - level_db(middle) - expected).abs() < 1.0, "{sign}: {}", level_db(middle));
        }
    }

    #[test]
    fn packet_duration_is_read_from_the_header() {
        // Code 0 (one frame) with the configurations of SILK 10, 20, 40, 60 ms; code 1 (two frames) of 20 ms.
        for (toc, ms) in [(0x00, 10), (0x08, 20), (0x10, 40), (0x18, 60), (0x09, 40)] {
            assert_eq!(packet_duration(&[toc, 0, 0]), Ok(Duration::from_millis(ms)));
        }
    }

    #[test]
    fn decoder_survives_corrupt_packets() {
        let mut decoder = OpusDecoder::new(16_000).unwrap();
        assert_eq!(decoder.decode(&[]), Err(OpusError::Corrupt));
        // Code 3 without its frame count; more than 120 ms; padding longer than the packet.
        for bad in [&[0x03][..], &[0x1b, 0x3f, 0, 0], &[0x0b, 0x41, 0xff, 0xff, 1]] {
            assert_eq!(decoder.decode(bad), Err(OpusError::Corrupt), "{bad:?}");
        }
        let packets = encode(24_000, &sine(440.0, 24_000, 9_600));
        let decoded: Vec<f32> = packets.iter().flat_map(|packet| decoder.decode(&packet.payload).unwrap()).collect();
        assert!(level_db(&decoded[3_200..]) > -20.0);
    }

    #[test]
    fn wrong_sizes_and_rates_are_errors() {
        assert_eq!(OpusEncoder::new(44_100).unwrap_err(), OpusError::UnsupportedRate(44_100));
        assert_eq!(OpusDecoder::new(0).unwrap_err(), OpusError::UnsupportedRate(0));
        let error = OpusEncoder::new(24_000).unwrap().encode(&[0.0; 479]).unwrap_err();
        assert_eq!(error, OpusError::FrameLength { expected: 480, got: 479 });
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_the_decoder_panic(packets in proptest::collection::vec(proptest::collection::vec(0u8.., 0..80), 1..20)) {
            let mut decoder = OpusDecoder::new(16_000).unwrap();
            for packet in packets {
                if let Ok(samples) = decoder.decode(&packet) {
                    assert!(samples.len() <= 16 * 120 && samples.iter().all(|sample| sample.is_finite()));
                }
                let _ = decoder.decode_fec(&packet, FRAME);
            }
        }
    }
}
