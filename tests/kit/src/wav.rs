//! Wav files in formats that our own writer lacks. The writer is independent, so a reader is not tested against its own
//! library.

/// Encoding of the samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SampleEncoding {
    /// Integers of this many bits: 8 (unsigned), 16, 24 or 32.
    Int(u16),
    /// 32-bit floating point.
    Float,
}

/// A format of wav files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WavFormat {
    /// Number of channels, all with the same sound.
    pub channels: u16,
    /// Sample rate in Hz.
    pub rate: u32,
    /// Encoding of the samples.
    pub encoding: SampleEncoding,
}

/// Encodes `samples`, in -1..1, as a wav file.
pub fn encode(samples: &[f32], format: WavFormat) -> Vec<u8> {
    let WavFormat { channels, rate, encoding } = format;
    let (tag, bits) = match encoding {
        SampleEncoding::Int(bits) => (1_u16, bits),
        SampleEncoding::Float => (3, 32),
    };
    let frame = channels * bits / 8;
    let mut data = Vec::new();
    for sample in samples {
        let stored = match encoding {
            SampleEncoding::Float => sample.to_le_bytes().to_vec(),
            SampleEncoding::Int(8) => vec![(sample * 127.0 + 128.0) as u8],
            SampleEncoding::Int(bits) => {
                let full_scale = (1_i64 << (bits - 1)) - 1;
                let value = (f64::from(*sample) * full_scale as f64) as i32;
                value.to_le_bytes()[..usize::from(bits / 8)].to_vec()
            }
        };
        data.extend(stored.repeat(usize::from(channels)));
    }
    let mut file = Vec::new();
    file.extend(b"RIFF");
    file.extend((36 + data.len() as u32).to_le_bytes());
    file.extend(b"WAVEfmt ");
    file.extend(16_u32.to_le_bytes());
    file.extend(tag.to_le_bytes());
    file.extend(channels.to_le_bytes());
    file.extend(rate.to_le_bytes());
    file.extend((rate * u32::from(frame)).to_le_bytes());
    file.extend(frame.to_le_bytes());
    file.extend(bits.to_le_bytes());
    file.extend(b"data");
    file.extend((data.len() as u32).to_le_bytes());
    file.extend(data);
    file
}
