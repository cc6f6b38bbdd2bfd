//! Bounds of every size in a configuration. Each is several times that of the largest published model, and so small
//! that the products of sizes that a model is built of fit into 64 bits.

use std::ops::RangeInclusive;

/// Smallest and largest allowed value of a size.
pub type Limit = RangeInclusive<usize>;

/// Width of a row; Llama 3.1 405B has 16,384.
pub const WIDTH: Limit = 1..=65_536;
/// Inner width of a feed-forward block; Llama 3.1 405B has 53,248.
pub const INNER: Limit = 1..=262_144;
/// Layers of a stack; Llama 3.1 405B has 126.
pub const LAYERS: Limit = 1..=1024;
/// Heads of a layer; DeepSeek-V3 has 128.
pub const HEADS: Limit = 1..=1024;
/// Width of a head; Gemma 3 has 256.
pub const HEAD_DIM: Limit = 1..=1024;
/// Experts of a layer; Qwen3-Next has 512.
pub const EXPERTS: Limit = 0..=4096;
/// Ids of a language model; Gemma 3 has 262,208.
pub const VOCABULARY: Limit = 1..=1_048_576;
/// Positions of a language model; Llama 4 Scout has 10,485,760.
pub const POSITIONS: Limit = 1..=16_777_216;
/// Tokens or frames of a response; Qwen3-TTS allows 8192.
pub const RESPONSE: Limit = 1..=1_048_576;
/// Codebooks of a frame; Moshi has 32.
pub const CODEBOOKS: Limit = 2..=64;
/// Entries of a codebook; Covo-Audio has 16,384.
pub const CODES: Limit = 1..=65_536;
/// Mel bins of a frame; Whisper has 128.
pub const MEL_BINS: Limit = 1..=1024;
/// Frames or rows that are processed at once; Whisper takes 3000 frames.
pub const WINDOW: Limit = 1..=8192;
/// Samples of one frame; Qwen3-TTS has 1920.
pub const FRAME: Limit = 1..=65_536;
/// Sample rate in Hz.
pub const RATE: Limit = 8000..=192_000;
/// Factor of upsampling, and taps or dilation of a convolution.
pub const FACTOR: Limit = 1..=64;
/// Most entries of a list of sizes; the longest published one has 6.
pub const ENTRIES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_of_sizes_fit() {
        let product = |factors: &[&Limit]| {
            factors.iter().try_fold(size_of::<f32>() as u64, |product, limit| product.checked_mul(*limit.end() as u64))
        };
        let two = 1..=2;
        for factors in [
            // Keys and values of a context.
            &[&two, &LAYERS, &HEADS, &HEAD_DIM, &POSITIONS][..],
            // A matrix; experts of a layer; codebooks; a codec's frames of a response.
            &[&INNER, &WIDTH],
            &[&EXPERTS, &INNER, &WIDTH],
            &[&CODEBOOKS, &CODES, &WIDTH],
            &[&RESPONSE, &FRAME, &FACTOR, &MEL_BINS],
        ] {
            assert!(product(factors).is_some_and(|bytes| bytes < 1 << 62), "{factors:?}");
        }
    }
}
