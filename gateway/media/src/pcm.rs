//! Conversion of 16-bit little-endian PCM and G.711 mu-law and A-law to and from `f32`.

/// Full scale of a 16-bit sample.
const SCALE: f32 = 32768.0;

/// Rounds a sample to 16 bits. Clips values outside -1..1; NaN becomes 0.
pub fn to_i16(sample: f32) -> i16 {
    // `as` saturates, and turns NaN into 0.
    (sample * SCALE).round() as i16
}

/// Converts a 16-bit value to a sample in -1..1.
pub fn from_i16(value: i16) -> f32 {
    f32::from(value) / SCALE
}

/// Error: 16-bit audio with an odd number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("16-bit audio has an even number of bytes, got {0}")]
pub struct OddLength(pub usize);

/// Decodes 16-bit little-endian PCM.
///
/// # Errors
///
/// The number of bytes is odd.
pub fn decode_i16le(bytes: &[u8]) -> Result<Vec<f32>, OddLength> {
    if !bytes.len().is_multiple_of(2) {
        return Err(OddLength(bytes.len()));
    }
    Ok(bytes.chunks_exact(2).map(|pair| from_i16(i16::from_le_bytes([pair[0], pair[1]]))).collect())
}

/// Encodes to 16-bit little-endian PCM.
pub fn encode_i16le(samples: &[f32]) -> Vec<u8> {
    samples.iter().flat_map(|&sample| to_i16(sample).to_le_bytes()).collect()
}

/// Decodes G.711 mu-law, one byte per sample.
pub fn decode_mulaw(bytes: &[u8]) -> Vec<f32> {
    bytes.iter().map(|&byte| from_i16(mulaw_to_i16(byte))).collect()
}

/// Encodes to G.711 mu-law.
pub fn encode_mulaw(samples: &[f32]) -> Vec<u8> {
    samples.iter().map(|&sample| i16_to_mulaw(to_i16(sample))).collect()
}

/// Decodes G.711 A-law, one byte per sample.
pub fn decode_alaw(bytes: &[u8]) -> Vec<f32> {
    bytes.iter().map(|&byte| from_i16(alaw_to_i16(byte))).collect()
}

/// Encodes to G.711 A-law.
pub fn encode_alaw(samples: &[f32]) -> Vec<u8> {
    samples.iter().map(|&sample| i16_to_alaw(to_i16(sample))).collect()
}

/// Bias of a mu-law magnitude: every segment starts at a power of two (14-bit bias 33, in 16-bit units).
const MULAW_BIAS: i32 = 33 << 2;
/// Largest magnitude that mu-law distinguishes.
const MULAW_CLIP: i32 = 32635;

fn mulaw_to_i16(byte: u8) -> i16 {
    let code = !byte;
    let (exponent, mantissa) = (i32::from(code >> 4 & 7), i32::from(code & 0x0f));
    let magnitude = (((mantissa << 3) + MULAW_BIAS) << exponent) - MULAW_BIAS;
    // At most 32124.
    (if code & 0x80 != 0 { -magnitude } else { magnitude }) as i16
}

fn i16_to_mulaw(value: i16) -> u8 {
    let sign = if value < 0 { 0x80 } else { 0 };
    let magnitude = i32::from(value).abs().min(MULAW_CLIP) + MULAW_BIAS;
    // 132 ..= 32767: the highest bit is one of 7..=14, the segment its distance from 7.
    let exponent = (24 - magnitude.leading_zeros()) as u8;
    let mantissa = (magnitude >> (exponent + 3)) as u8 & 0x0f;
    !(sign | exponent << 4 | mantissa)
}

/// Bits of an A-law byte that are inverted on the line: every other one.
const ALAW_TOGGLE: u8 = 0x55;

fn alaw_to_i16(byte: u8) -> i16 {
    let code = byte ^ ALAW_TOGGLE;
    let (exponent, mantissa) = (i32::from(code >> 4 & 7), i32::from(code & 0x0f));
    let half_step = (mantissa << 4) + 8;
    let magnitude = if exponent == 0 { half_step } else { (half_step + 0x100) << (exponent - 1) };
    // At most 32256. The sign bit is set for positive values.
    (if code & 0x80 != 0 { magnitude } else { -magnitude }) as i16
}

fn i16_to_alaw(value: i16) -> u8 {
    // Negative values are counted from -1, so that the steps on both sides of zero are equally wide.
    let (sign, magnitude) = if value >= 0 { (0x80, i32::from(value)) } else { (0, -1 - i32::from(value)) };
    let code = if magnitude < 0x100 {
        (magnitude >> 4) as u8
    } else {
        // 256 ..= 32767: the highest bit is one of 8..=14.
        let exponent = (24 - magnitude.leading_zeros()) as u8;
        exponent << 4 | ((magnitude >> (exponent + 3)) as u8 & 0x0f)
    };
    (sign | code) ^ ALAW_TOGGLE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i16_survives_the_round_trip_exactly() {
        let bytes: Vec<u8> = (i16::MIN..=i16::MAX).flat_map(i16::to_le_bytes).collect();
        assert_eq!(encode_i16le(&decode_i16le(&bytes).unwrap()), bytes);
    }

    #[test]
    fn out_of_range_is_clipped_and_nan_silenced() {
        assert_eq!([2.0, -2.0, f32::NAN, f32::INFINITY].map(to_i16), [i16::MAX, i16::MIN, 0, i16::MAX]);
    }

    #[test]
    fn half_a_sample_is_an_error() {
        assert_eq!(decode_i16le(&[0, 1, 2]), Err(OddLength(3)));
    }

    /// Values from the tables of G.711, scaled to 16 bits.
    #[test]
    fn g711_codes_decode_to_published_values() {
        for (byte, value) in [(0x00, -32124), (0x80, 32124), (0xff, 0), (0x7f, 0), (0xf0, 120), (0x8f, 16764)] {
            assert_eq!(mulaw_to_i16(byte), value, "mu-law {byte:#04x}");
        }
        for (byte, value) in [(0xd5, 8), (0x55, -8), (0xaa, 32256), (0x2a, -32256), (0xc5, 264), (0xd4, 24)] {
            assert_eq!(alaw_to_i16(byte), value, "A-law {byte:#04x}");
        }
    }

    #[test]
    fn every_g711_code_survives_the_round_trip() {
        for byte in 0..=u8::MAX {
            // Mu-law has two zeros; the encoder never writes the negative one.
            let expected = if byte == 0x7f { 0xff } else { byte };
            assert_eq!(i16_to_mulaw(mulaw_to_i16(byte)), expected, "mu-law {byte:#04x}");
            assert_eq!(i16_to_alaw(alaw_to_i16(byte)), byte, "A-law {byte:#04x}");
        }
    }

    #[test]
    fn g711_error_stays_within_one_step() {
        for value in i16::MIN..=i16::MAX {
            let magnitude = i32::from(value).abs();
            // A step is 1/16 of its segment, and a segment as wide as the value at its beginning.
            let allowed = (magnitude / 16).max(8);
            for back in [mulaw_to_i16(i16_to_mulaw(value)), alaw_to_i16(i16_to_alaw(value))] {
                let error = (i32::from(back) - i32::from(value)).abs();
                assert!(error <= allowed || magnitude > MULAW_CLIP - 512, "{value} became {back}");
            }
        }
    }
}
