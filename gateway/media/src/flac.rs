//! FLAC streams (RFC 9639): one channel, 16 bits, in short blocks, so that a stream is heard while it is written.
//!
//! The predictors are the fixed ones of the format, which need no search. Speech at 24 kHz takes about half of its samples.

use crate::pcm;

/// Samples of a block.
const BLOCK: usize = 1_024;
/// Bits of a sample.
const BITS: u32 = 16;
/// Highest order of a fixed predictor.
const MAX_ORDER: usize = 4;
/// Largest Rice parameter; 15 means something else.
const MAX_RICE: u32 = 14;

/// Encoder of one stream.
#[derive(Debug)]
pub struct FlacWriter {
    rate: u32,
    /// Samples that do not fill a block.
    pending: Vec<i32>,
    /// Number of the next block; `None` before the header.
    next: Option<u32>,
}

impl FlacWriter {
    /// Creates an encoder of samples at `rate` Hz, at most 655 350.
    pub fn new(rate: u32) -> Self {
        Self { rate, pending: Vec::new(), next: None }
    }

    /// Encodes samples; returns the complete blocks.
    pub fn push(&mut self, samples: &[f32]) -> Vec<u8> {
        let bytes = pcm::encode_i16le(samples);
        self.pending.extend(bytes.chunks_exact(2).map(|pair| i32::from(i16::from_le_bytes([pair[0], pair[1]]))));
        let mut written = self.begin();
        let whole = self.pending.len() / BLOCK * BLOCK;
        let blocks: Vec<i32> = self.pending.drain(..whole).collect();
        blocks.chunks_exact(BLOCK).for_each(|block| self.block(block, &mut written));
        written
    }

    /// Returns the last block, and the header of a stream without samples.
    pub fn finish(mut self) -> Vec<u8> {
        let mut written = self.begin();
        let rest = std::mem::take(&mut self.pending);
        if !rest.is_empty() {
            self.block(&rest, &mut written);
        }
        written
    }

    /// Returns the header, once. A stream does not know its length and its sum.
    fn begin(&mut self) -> Vec<u8> {
        if self.next.is_some() {
            return Vec::new();
        }
        self.next = Some(0);
        let mut bits = BitWriter::default();
        bits.bytes.extend(b"fLaC");
        // The only block of metadata, 34 bytes.
        bits.put(0x8000_0022, 32);
        bits.put(BLOCK as u32, 16);
        bits.put(BLOCK as u32, 16);
        bits.put(0, 24);
        bits.put(0, 24);
        bits.put(self.rate, 20);
        // One channel, and its bits.
        bits.put(0, 3);
        bits.put(BITS - 1, 5);
        bits.put(0, 4);
        bits.put(0, 32);
        bits.bytes.extend([0; 16]);
        bits.bytes
    }

    /// Writes a block, the last one of which may be shorter.
    fn block(&mut self, samples: &[i32], written: &mut Vec<u8>) {
        let number = self.next.unwrap_or_default();
        self.next = Some((number + 1) & 0x7fff_ffff);
        let mut bits = BitWriter::default();
        // Start of a block of the stream's size; its own size follows in 16 bits; the rate is that of the stream.
        bits.put(0xfff8, 16);
        bits.put(0x7008, 16);
        bits.bytes.extend(coded_number(number));
        bits.put(samples.len() as u32 - 1, 16);
        bits.put(checksum(&bits.bytes, 8, 0x07), 8);
        let (order, residuals) = predict(samples);
        bits.put(0b1000 | order as u32, 7);
        bits.put(0, 1);
        samples[..order].iter().for_each(|sample| bits.put((*sample as u32) & 0xffff, BITS));
        // One part with Rice codes of four-bit parameters.
        bits.put(0, 6);
        let folded: Vec<u32> = residuals.iter().map(|value| ((value << 1) ^ (value >> 31)) as u32).collect();
        let cost = |rice: &u32| folded.iter().map(|value| u64::from((value >> rice) + rice + 1)).sum::<u64>();
        let rice = (0..=MAX_RICE).min_by_key(cost).unwrap_or(MAX_RICE);
        bits.put(rice, 4);
        for value in folded {
            bits.zeros(value >> rice);
            bits.put(1, 1);
            bits.put(value & ((1 << rice) - 1), rice);
        }
        bits.align();
        let sum = checksum(&bits.bytes, 16, 0x8005);
        bits.put(sum, 16);
        written.extend(bits.bytes);
    }
}

/// Order of the best fixed predictor, and what is left of the samples behind the first `order` ones.
fn predict(samples: &[i32]) -> (usize, Vec<i32>) {
    let mut left = samples.to_vec();
    let mut best = (0, left.clone());
    let size = |values: &[i32]| values.iter().map(|value| u64::from(value.unsigned_abs())).sum::<u64>();
    for order in 1..=MAX_ORDER.min(samples.len().saturating_sub(1)) {
        left = left.windows(2).map(|pair| pair[1] - pair[0]).collect();
        if size(&left) < size(&best.1) {
            best = (order, left.clone());
        }
    }
    best
}

/// Number of a block, in the form of UTF-8 up to 31 bits.
fn coded_number(number: u32) -> Vec<u8> {
    if number < 0x80 {
        return vec![number as u8];
    }
    // Each further byte has six bits, and takes one from the first byte.
    let further = (1..=5).find(|further| number < 1 << (5 * further + 6)).unwrap_or(5);
    let mut bytes = vec![(0xff00_u32 >> (further + 1)) as u8 | (number >> (6 * further)) as u8];
    bytes.extend((0..further).rev().map(|at| 0x80 | (number >> (6 * at)) as u8 & 0x3f));
    bytes
}

/// Cyclic sum of `width` bits.
fn checksum(bytes: &[u8], width: u32, polynomial: u32) -> u32 {
    let (top, mask) = (1 << (width - 1), (1 << width) - 1);
    bytes.iter().fold(0, |sum, byte| {
        (0..8).fold(sum ^ (u32::from(*byte) << (width - 8)), |sum, _| {
            let shifted = (sum << 1) & mask;
            if sum & top == 0 { shifted } else { shifted ^ polynomial }
        })
    })
}

/// Bits, the highest first.
#[derive(Debug, Default)]
struct BitWriter {
    bytes: Vec<u8>,
    /// Bits that do not fill a byte, and their number.
    open: u64,
    count: u32,
}

impl BitWriter {
    fn put(&mut self, value: u32, bits: u32) {
        self.open = (self.open << bits) | u64::from(value);
        self.count += bits;
        while self.count >= 8 {
            self.count -= 8;
            self.bytes.push((self.open >> self.count) as u8);
        }
        self.open &= (1 << self.count) - 1;
    }

    fn zeros(&mut self, mut count: u32) {
        while count > 0 {
            let bits = count.min(24);
            self.put(0, bits);
            count -= bits;
        }
    }

    fn align(&mut self) {
        self.put(0, (8 - self.count) % 8);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::sound_file;

    fn encode(samples: &[f32], piece: usize) -> Vec<u8> {
        let mut writer = FlacWriter::new(24_000);
        let mut bytes: Vec<u8> = samples.chunks(piece).flat_map(|piece| writer.push(piece)).collect();
        bytes.extend(writer.finish());
        bytes
    }

    /// Reads a stream by the independent decoder of uploads.
    fn decode(bytes: &[u8]) -> Vec<i16> {
        let samples = sound_file::read(bytes, 24_000, Duration::from_secs(60)).unwrap();
        samples.iter().map(|sample| (sample * 32_768.0).round() as i16).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn decoders_return_every_sample(
            length in 1..5_000_usize,
            (slow, fast, noise) in (0.0..1.1_f32, 0.0..1.0_f32, 0.0..1.0_f32),
            piece in 1..3_000_usize,
        ) {
            let mut state = 1_u32;
            let samples: Vec<f32> = (0..length).map(|at| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let random = (state >> 8) as f32 / (1 << 23) as f32 - 1.0;
                slow * (at as f32 * 0.01).sin() + fast * (at as f32 * 2.5).sin() + noise * random
            }).collect();
            let bytes = encode(&samples, piece);
            let expected: Vec<i16> =
                pcm::encode_i16le(&samples).chunks(2).map(|pair| i16::from_le_bytes([pair[0], pair[1]])).collect();
            prop_assert_eq!(decode(&bytes), expected);
            prop_assert_eq!(encode(&samples, length), bytes);
        }
    }

    #[test]
    fn tones_become_smaller_than_samples() {
        let samples: Vec<f32> = (0..48_000).map(|at| 0.5 * (at as f32 * 0.03).sin()).collect();
        let bytes = encode(&samples, 480);
        assert!(bytes.len() < samples.len(), "{} bytes of {} samples", bytes.len(), samples.len());
        let first = FlacWriter::new(24_000).push(&samples[..BLOCK]).len();
        assert!(first > 42, "a block leaves as soon as it is full");
    }

    #[test]
    fn numbers_of_blocks_have_their_published_form() {
        // As UTF-8 has them, and beyond.
        for (number, text) in [(0, "\0"), (0x7f, "\u{7f}"), (0x80, "\u{80}"), (0x7ff, "\u{7ff}"), (0xffff, "\u{ffff}")]
        {
            assert_eq!(coded_number(number), text.as_bytes(), "{number}");
        }
        assert_eq!(coded_number(0x10_ffff), "\u{10ffff}".as_bytes());
        assert_eq!(coded_number(0x7fff_ffff), [0xfd, 0xbf, 0xbf, 0xbf, 0xbf, 0xbf]);
    }
}
