//! Writers of mono wav files; [`crate::sound_file`] reads them.

use std::io::Cursor;

pub use hound::Error as WriteError;

use crate::pcm::to_i16;

/// Encodes samples to a mono 16-bit wav file.
pub fn encode(samples: &[f32], rate: u32) -> Result<Vec<u8>, hound::Error> {
    let sample_format = hound::SampleFormat::Int;
    let spec = hound::WavSpec { channels: 1, sample_rate: rate, bits_per_sample: 16, sample_format };
    let mut bytes = Cursor::new(Vec::new());
    let mut writer = hound::WavWriter::new(&mut bytes, spec)?;
    for sample in samples {
        writer.write_sample(to_i16(*sample))?;
    }
    writer.finalize()?;
    Ok(bytes.into_inner())
}

/// Creates the header of a streamed mono 16-bit wav file: its lengths are the maximum values, which readers treat as "to the
/// end".
pub fn stream_header(rate: u32) -> [u8; 44] {
    const CHANNELS: u16 = 1;
    const BYTES: u16 = 2;
    let unknown = u32::MAX.to_le_bytes();
    let mut header = [0; 44];
    let mut at = 0;
    let fields: [&[u8]; 13] = [
        b"RIFF",
        &unknown,
        b"WAVE",
        b"fmt ",
        &16u32.to_le_bytes(),
        // PCM.
        &1u16.to_le_bytes(),
        &CHANNELS.to_le_bytes(),
        &rate.to_le_bytes(),
        &(rate * u32::from(BYTES)).to_le_bytes(),
        &BYTES.to_le_bytes(),
        &(8 * BYTES).to_le_bytes(),
        b"data",
        &unknown,
    ];
    for field in fields {
        header[at..at + field.len()].copy_from_slice(field);
        at += field.len();
    }
    header
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::sound_file::read;

    #[test]
    fn written_file_reads_back() {
        let samples: Vec<f32> = (0..2_400).map(|n| (n as f32 * 0.05).sin() * 0.5).collect();
        let bytes = encode(&samples, 24_000).unwrap();
        let read = read(&bytes, 24_000, Duration::from_secs(1)).unwrap();
        assert!(samples.iter().zip(&read).all(|(a, b)| (a - b).abs() < 1e-4) && read.len() == samples.len());
    }

    #[test]
    fn stream_header_matches_file_except_lengths() {
        let mut file = encode(&[0.5; 300], 24_000).unwrap();
        for length in [4..8, 40..44] {
            file[length].fill(0xff);
        }
        assert_eq!(stream_header(24_000), file[..44]);
    }
}
