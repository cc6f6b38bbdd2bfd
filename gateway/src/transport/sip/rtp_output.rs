//! Numbers and times of our packets: one each 20 ms, silence included, so that exchanges and paths of the network stay
//! open.

use std::time::{Duration, Instant};

use bytes::Bytes;
use repartee_media::opus::FRAME;
use repartee_sip::CallMedia;
use rtc::rtp::{Header, Packet};
use rtc::shared::marshal::Marshal as _;

use super::codec::PhoneEncoder;
use crate::call::TransportError;

/// Time that an answer's next frame may be late before silence takes its place.
const GRACE: Duration = Duration::from_millis(5);
/// Lateness from which the timestamps jump instead of a burst of silence.
const MAX_LATE: Duration = Duration::from_millis(60);

/// Packets of our sound.
#[derive(Debug)]
pub(super) struct RtpOutput {
    media: CallMedia,
    encoder: PhoneEncoder,
    /// Rate of the frames, in Hz.
    rate: u32,
    ssrc: u32,
    sequence: u16,
    /// Timestamp of the first packet.
    base: u32,
    begun: Instant,
    /// Frames of 20 ms since then.
    frames: u32,
    /// True before the first packet, and after a gap.
    marker: bool,
}

impl RtpOutput {
    /// Begins with frames at `rate`; `random` gives the numbers of the stream.
    pub fn new(media: CallMedia, rate: u32, random: u64, now: Instant) -> Result<Self, TransportError> {
        Ok(Self {
            media,
            encoder: PhoneEncoder::new(media.codec, rate)?,
            rate,
            ssrc: (random >> 32) as u32,
            sequence: (random >> 16) as u16,
            base: random as u32,
            begun: now,
            frames: 0,
            marker: true,
        })
    }

    /// Changes the sound that both sides agreed on.
    pub fn change(&mut self, media: CallMedia, now: Instant) -> Result<(), TransportError> {
        if media.codec != self.media.codec {
            self.encoder = PhoneEncoder::new(media.codec, self.rate)?;
            // Timestamps of another clock are another stream.
            (self.ssrc, self.begun, self.frames) = (self.ssrc.wrapping_add(1), now, 0);
        }
        self.marker = true;
        self.media = media;
        Ok(())
    }

    /// Time of the next packet by the stream's own clock.
    fn due(&self) -> Instant {
        self.begun + FRAME * self.frames
    }

    /// Time at which silence is due; `playing` if an answer is.
    pub fn silence_due(&self, playing: bool) -> Option<Instant> {
        self.media.sends.then(|| if playing { self.due() + GRACE } else { self.due() })
    }

    /// Returns a packet of silence.
    pub fn silence(&mut self, now: Instant) -> Result<Bytes, TransportError> {
        let frame = vec![0.0; (u128::from(self.rate) * FRAME.as_millis() / 1_000) as usize];
        self.packet(&frame, now)
    }

    /// Returns the packet of a frame.
    pub fn packet(&mut self, frame: &[f32], now: Instant) -> Result<Bytes, TransportError> {
        let late = now.saturating_duration_since(self.due());
        if late > MAX_LATE {
            self.frames += (late.as_millis() / FRAME.as_millis()) as u32;
            self.marker = true;
        }
        let payload = Bytes::from(self.encoder.encode(frame)?);
        let ticks = self.media.codec.clock() / 1_000 * FRAME.as_millis() as u32;
        let header = Header {
            version: 2,
            marker: std::mem::take(&mut self.marker),
            payload_type: self.media.payload_type,
            sequence_number: self.sequence,
            timestamp: self.base.wrapping_add(self.frames.wrapping_mul(ticks)),
            ssrc: self.ssrc,
            ..Header::default()
        };
        self.sequence = self.sequence.wrapping_add(1);
        self.frames += 1;
        // A packet without extensions always fits its own buffer.
        Ok(Packet { header, payload }.marshal().map(|bytes| bytes.freeze()).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use repartee_sdp::phone::PhoneCodec;
    use rtc::shared::marshal::Unmarshal as _;

    use super::*;

    fn output(now: Instant) -> RtpOutput {
        let media = CallMedia {
            remote: ([192, 0, 2, 1], 4000).into(),
            codec: PhoneCodec::Pcmu,
            payload_type: 0,
            key_type: None,
            sends: true,
            receives: true,
            keys: None,
        };
        RtpOutput::new(media, 8_000, u64::MAX, now).unwrap()
    }

    fn read(mut bytes: Bytes) -> Header {
        let packet = Packet::unmarshal(&mut bytes).unwrap();
        assert_eq!(packet.payload.len(), 160);
        packet.header
    }

    #[test]
    fn packets_count_on_through_silence_and_speech() {
        let start = Instant::now();
        let ms = |ms: u64| start + Duration::from_millis(ms);
        let mut output = output(start);
        let first = read(output.silence(start).unwrap());
        assert!(first.marker);
        assert_eq!(output.silence_due(false), Some(ms(20)));
        // An answer begins between two packets.
        let second = read(output.packet(&[0.1; 160], ms(7)).unwrap());
        assert!(!second.marker);
        assert_eq!(second.sequence_number, first.sequence_number.wrapping_add(1));
        assert_eq!(second.timestamp, first.timestamp.wrapping_add(160));
        assert_eq!(output.silence_due(true), Some(ms(45)), "the next frame comes before it");
        // After a gap the timestamps jump to the time that has passed.
        let late = read(output.silence(ms(1_040)).unwrap());
        assert!(late.marker);
        assert_eq!(late.timestamp, first.timestamp.wrapping_add(52 * 160));
    }

    #[test]
    fn nothing_is_sent_on_hold() {
        let start = Instant::now();
        let mut output = output(start);
        let held = CallMedia { sends: false, receives: false, ..output.media };
        output.change(held, start).unwrap();
        assert_eq!(output.silence_due(false), None);
    }
}
