//! Streaming writer of MP3 (MPEG-2 Layer III).

use rusty_mp3::{Error as EncodeError, Mp3Encoder, Mp3EncoderConfig};
use thiserror::Error;

/// Bit rate in kilobits per second: at 24 kHz twice the need of speech.
const BIT_RATE: u32 = 96;

/// Error of the MP3 encoder.
#[derive(Debug, Error)]
#[error("MP3 failed: {0}")]
pub struct Mp3Error(#[from] EncodeError);

/// Streaming writer of MP3 from mono samples, frame by frame. The encoder adds 1,057 samples before the first one.
pub struct Mp3Writer {
    encoder: Mp3Encoder,
    rate: u32,
    /// True once the first frame was dropped. It states the stream's length, which is unknown yet, and players trust it.
    begun: bool,
}

impl std::fmt::Debug for Mp3Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mp3Writer").field("rate", &self.rate).finish_non_exhaustive()
    }
}

impl Mp3Writer {
    /// Creates a writer for samples at `rate`: an MP3 rate up to 24,000 Hz, so that each frame is self-contained.
    pub fn new(rate: u32) -> Self {
        let encoder = Mp3Encoder::new(Mp3EncoderConfig { bitrate_kbps: BIT_RATE, vbr_quality: None });
        Self { encoder, rate, begun: false }
    }

    /// Encodes samples; returns the bytes to append, possibly none.
    ///
    /// # Errors
    ///
    /// MP3 does not support the sample rate.
    pub fn push(&mut self, samples: &[f32]) -> Result<Vec<u8>, Mp3Error> {
        self.encoder.push_pcm_f32(samples, 1, self.rate)?;
        self.frames()
    }

    /// Ends the stream; returns the last bytes.
    pub fn finish(mut self) -> Result<Vec<u8>, Mp3Error> {
        self.encoder.finish();
        self.frames()
    }

    /// Takes the completed frames from the encoder.
    fn frames(&mut self) -> Result<Vec<u8>, Mp3Error> {
        let mut bytes = Vec::new();
        loop {
            match self.encoder.next_packet() {
                Ok(frame) if self.begun => bytes.extend(frame),
                Ok(_) => self.begun = true,
                Err(EncodeError::Again | EncodeError::Eof) => return Ok(bytes),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use repartee_testkit::signal::{dominant_frequency, level_db, sine};
    use rusty_mp3::Mp3Decoder;

    use super::*;

    const RATE: u32 = 24_000;
    /// Samples per frame.
    const FRAME: usize = 576;
    /// Samples before the first one.
    const DELAY: usize = 1_057;

    /// Decodes a stream to samples and the number of frames.
    fn decode(bytes: &[u8]) -> (Vec<f32>, usize) {
        let mut decoder = Mp3Decoder::new();
        decoder.push(bytes);
        decoder.flush();
        let (mut samples, mut frames) = (Vec::new(), 0);
        while let Ok(frame) = decoder.next_frame() {
            assert_eq!((frame.sample_rate, frame.channels), (RATE, 1));
            samples.extend(frame.samples);
            frames += 1;
        }
        (samples, frames)
    }

    #[test]
    fn a_tone_is_heard_again() {
        let tone = sine(440.0, RATE, RATE as usize);
        let mut writer = Mp3Writer::new(RATE);
        let mut bytes = Vec::new();
        for samples in tone.chunks(1_920) {
            let before = bytes.len();
            bytes.extend(writer.push(samples).unwrap());
            assert!(bytes.len() > before, "sound comes as it is made");
        }
        bytes.extend(writer.finish().unwrap());
        let (heard, frames) = decode(&bytes);
        assert_eq!(bytes.len(), frames * (BIT_RATE * 1_000 / 8) as usize * FRAME / RATE as usize, "a constant rate");
        assert!((tone.len()..tone.len() + 4 * FRAME).contains(&heard.len()), "{} samples", heard.len());
        let middle = &heard[8_000..16_000];
        assert!((dominant_frequency(middle, RATE) - 440.0).abs() < 5.0);
        assert!((level_db(middle) - level_db(&tone)).abs() < 0.5);
    }

    #[test]
    fn sound_is_heard_to_its_end() {
        // Sound that ends within a frame, at its end, and after its first sample.
        for length in [5_000, 8 * FRAME, 8 * FRAME + 1] {
            let tone = sine(440.0, RATE, length);
            let mut writer = Mp3Writer::new(RATE);
            let mut bytes = writer.push(&tone).unwrap();
            bytes.extend(writer.finish().unwrap());
            let (heard, frames) = decode(&bytes);
            assert_eq!(frames, (length + DELAY).div_ceil(FRAME), "{length} samples");
            let end = &heard[DELAY + length - 200..DELAY + length];
            let error = (level_db(end) - level_db(&tone[length - 200..])).abs();
            assert!(error < 1.0, "{length} samples: the last ones are off by {error} dB");
        }
    }

    #[test]
    fn pieces_make_no_difference() {
        let tone = sine(300.0, RATE, 5_000);
        let written = |piece: usize| {
            let mut writer = Mp3Writer::new(RATE);
            let mut bytes: Vec<u8> = tone.chunks(piece).flat_map(|samples| writer.push(samples).unwrap()).collect();
            bytes.extend(writer.finish().unwrap());
            bytes
        };
        assert_eq!(written(7), written(5_000));
    }

    #[test]
    fn nothing_is_an_empty_stream() {
        assert_eq!(Mp3Writer::new(RATE).finish().unwrap(), Vec::<u8>::new());
    }

    #[test]
    fn an_unknown_rate_is_an_error() {
        assert!(Mp3Writer::new(12_345).push(&[0.0; 4_000]).is_err());
    }
}
