//! Mu-law (G.711), as telephones encode sound at 8 kHz.

/// Sample rate of a telephone, in Hz.
pub const TELEPHONE_RATE: u32 = 8_000;
/// Added to each magnitude, so that every segment has its leading bit.
const BIAS: i32 = 132;
/// Largest magnitude that can be encoded.
const LARGEST: i32 = 32_767 - BIAS;

/// Encodes a sample of -1 to 1.
pub fn encode(sample: f32) -> u8 {
    let value = (sample.clamp(-1.0, 1.0) * 32_767.0) as i32;
    let magnitude = value.abs().min(LARGEST) + BIAS;
    let segment = magnitude.ilog2() - 7;
    let sign = if value < 0 { 0x80 } else { 0 };
    !(sign | (segment as u8) << 4 | (magnitude >> (segment + 3)) as u8 & 0x0f)
}

/// Decodes to a sample of -1 to 1.
pub fn decode(byte: u8) -> f32 {
    let bits = !byte;
    let magnitude = (((i32::from(bits & 0x0f) << 3) + BIAS) << (bits >> 4 & 7)) - BIAS;
    let value = magnitude as f32 / 32_768.0;
    if bits & 0x80 == 0 { value } else { -value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_survive_decoding_and_encoding() {
        // Both zeros are one sample.
        for byte in (0..=u8::MAX).filter(|byte| *byte != 0x7f) {
            assert_eq!(encode(decode(byte)), byte);
        }
        assert_eq!((encode(0.0), decode(0xff)), (0xff, 0.0));
        // The values of G.711's table 2a at both ends of the segments.
        for (byte, value) in [(0x80_u8, 32_124.0), (0x8f, 16_764.0), (0x90, 15_996.0), (0xef, 132.0), (0x00, -32_124.0)]
        {
            assert_eq!(decode(byte) * 32_768.0, value, "{byte:x}");
        }
    }
}
