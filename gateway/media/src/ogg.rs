//! Streaming writer of Opus in Ogg (RFC 7845).

use ::ogg::writing::{PacketWriteEndInfo, PacketWriter};
use thiserror::Error;

use crate::opus::{OpusEncoder, OpusError};

/// Rate of granule positions in Hz, independent of the input rate.
const GRANULES: u32 = 48_000;
/// Vendor string of the comment header.
const VENDOR: &[u8] = b"repartee";

/// Error of writing an Ogg Opus file.
#[derive(Debug, Error)]
pub enum OggError {
    /// Failure of the Opus encoder.
    #[error(transparent)]
    Opus(#[from] OpusError),
    /// Failure to write the container.
    #[error("Ogg failed: {0}")]
    Container(#[from] std::io::Error),
}

/// Streaming writer of an Ogg Opus file from mono samples. Each push ends a page, so that a player can play it at once.
pub struct OggOpusWriter {
    encoder: OpusEncoder,
    pages: PacketWriter<'static, Vec<u8>>,
    rate: u32,
    serial: u32,
    /// Samples of an incomplete frame.
    rest: Vec<f32>,
    /// Number of samples pushed.
    samples: u64,
    /// Number of samples in the packets written.
    encoded: u64,
    /// Number of samples that the encoder adds before the first one.
    lookahead: u64,
    begun: bool,
}

impl std::fmt::Debug for OggOpusWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OggOpusWriter").field("samples", &self.samples).finish_non_exhaustive()
    }
}

impl OggOpusWriter {
    /// Creates a writer for samples at `rate`, one of [`crate::opus::RATES`]. `serial` identifies the stream.
    pub fn new(rate: u32, serial: u32) -> Result<Self, OggError> {
        let mut encoder = OpusEncoder::new(rate)?;
        let lookahead = u64::from(encoder.lookahead()?);
        Ok(Self {
            encoder,
            pages: PacketWriter::new(Vec::new()),
            rate,
            serial,
            rest: Vec::new(),
            samples: 0,
            encoded: 0,
            lookahead,
            begun: false,
        })
    }

    /// Encodes samples; returns the bytes to append, with the headers first.
    pub fn push(&mut self, samples: &[f32]) -> Result<Vec<u8>, OggError> {
        self.begin()?;
        self.samples += samples.len() as u64;
        self.rest.extend_from_slice(samples);
        self.encode(false)?;
        Ok(std::mem::take(self.pages.inner_mut()))
    }

    /// Ends the stream; returns the last bytes.
    pub fn finish(mut self) -> Result<Vec<u8>, OggError> {
        self.begin()?;
        // Flushes the encoder and pads the last frame with silence; a player stops at the last sample.
        let frame = self.encoder.frame_samples();
        let missing = (self.samples + self.lookahead).saturating_sub(self.encoded) as usize;
        self.rest.resize(missing.div_ceil(frame).max(1) * frame, 0.0);
        self.encode(true)?;
        Ok(self.pages.into_inner())
    }

    fn begin(&mut self) -> Result<(), OggError> {
        if std::mem::replace(&mut self.begun, true) {
            return Ok(());
        }
        let pre_skip = u16::try_from(self.granules(self.lookahead)).unwrap_or(u16::MAX);
        let mut head = b"OpusHead".to_vec();
        // Version, channels, pre-skip, input rate, no gain, one stream.
        head.extend([1, 1]);
        head.extend(pre_skip.to_le_bytes());
        head.extend(self.rate.to_le_bytes());
        head.extend([0, 0, 0]);
        self.pages.write_packet(head, self.serial, PacketWriteEndInfo::EndPage, 0)?;
        let mut tags = b"OpusTags".to_vec();
        tags.extend((VENDOR.len() as u32).to_le_bytes());
        tags.extend(VENDOR);
        tags.extend(0u32.to_le_bytes());
        self.pages.write_packet(tags, self.serial, PacketWriteEndInfo::EndPage, 0)?;
        Ok(())
    }

    /// Encodes the complete frames; with `last`, ends the stream.
    fn encode(&mut self, last: bool) -> Result<(), OggError> {
        let frame = self.encoder.frame_samples();
        let frames = self.rest.len() / frame;
        for at in 0..frames {
            let packet = self.encoder.encode(&self.rest[at * frame..(at + 1) * frame])?;
            self.encoded += frame as u64;
            let ends = at + 1 == frames;
            let end = match ends {
                true if last => PacketWriteEndInfo::EndStream,
                true => PacketWriteEndInfo::EndPage,
                false => PacketWriteEndInfo::NormalPacket,
            };
            let position = if last { self.encoded.min(self.samples + self.lookahead) } else { self.encoded };
            let position = self.granules(position);
            self.pages.write_packet(packet.payload.to_vec(), self.serial, end, position)?;
        }
        self.rest.drain(..frames * frame);
        Ok(())
    }

    fn granules(&self, samples: u64) -> u64 {
        samples * u64::from(GRANULES) / u64::from(self.rate)
    }
}

#[cfg(test)]
mod tests {
    use ::ogg::PacketReader;
    use repartee_testkit::signal::{dominant_frequency, level_db, sine};

    use super::*;
    use crate::opus::OpusDecoder;

    const RATE: u32 = 24_000;

    fn tone(samples: usize) -> Vec<f32> {
        sine(440.0, RATE, samples)
    }

    /// Samples that a player plays of a file.
    fn played(file: Vec<u8>) -> Vec<f32> {
        let mut reader = PacketReader::new(std::io::Cursor::new(file));
        let head = reader.read_packet().unwrap().unwrap();
        assert!(head.data.starts_with(b"OpusHead") && head.first_in_stream());
        let skip = usize::from(u16::from_le_bytes([head.data[10], head.data[11]])) * RATE as usize / GRANULES as usize;
        assert!(reader.read_packet().unwrap().unwrap().data.starts_with(b"OpusTags"));
        let (mut decoder, mut samples) = (OpusDecoder::new(RATE).unwrap(), Vec::new());
        loop {
            let packet = reader.read_packet().unwrap().expect("the stream has an end");
            samples.extend(decoder.decode(&packet.data).unwrap());
            if packet.last_in_stream() {
                samples.truncate((packet.absgp_page() * u64::from(RATE) / u64::from(GRANULES)) as usize);
                break;
            }
        }
        assert!(reader.read_packet().unwrap().is_none());
        samples.split_off(skip)
    }

    #[test]
    fn files_play_as_long_as_the_sound() {
        for samples in [0, 1, 480, 1_919, 24_000] {
            let sound = tone(samples);
            let mut writer = OggOpusWriter::new(RATE, 7).unwrap();
            let mut file = Vec::new();
            for piece in sound.chunks(1_000) {
                file.extend(writer.push(piece).unwrap());
            }
            file.extend(writer.finish().unwrap());
            let played = played(file);
            assert_eq!(played.len(), samples);
        }
    }

    #[test]
    fn sound_is_where_it_was() {
        // Silence, a tone, silence: the position of the tone is exact.
        let (onset, length) = (12_000, 12_000);
        let sound = [vec![0.0; onset], tone(length), vec![0.0; onset]].concat();
        let mut writer = OggOpusWriter::new(RATE, 7).unwrap();
        let mut file = writer.push(&sound).unwrap();
        file.extend(writer.finish().unwrap());
        let played = played(file);
        let loud = |sample: &f32| sample.abs() > 0.25;
        let (begins, ends) = (played.iter().position(loud).unwrap(), played.iter().rposition(loud).unwrap());
        assert!(begins.abs_diff(onset) < 48 && ends.abs_diff(onset + length) < 48, "{begins} to {ends}");
        let settled = &played[onset + 2_400..onset + length - 2_400];
        assert!((dominant_frequency(settled, RATE) - 440.0).abs() < 3.0);
        assert!((level_db(settled) - level_db(&tone(length))).abs() < 1.0);
    }

    #[test]
    fn each_push_can_be_played_at_once() {
        let mut writer = OggOpusWriter::new(RATE, 7).unwrap();
        let mut file = writer.push(&tone(1_920)).unwrap();
        let mut reader = PacketReader::new(std::io::Cursor::new(file.clone()));
        let packets = std::iter::from_fn(|| reader.read_packet().unwrap()).count();
        assert_eq!(packets, 2 + 4, "headers, and 80 ms of packets");
        file.extend(writer.finish().unwrap());
        assert_eq!(played(file).len(), 1_920);
    }
}
