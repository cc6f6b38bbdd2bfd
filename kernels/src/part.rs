//! Tensors that make a weight, by where their numbers come from.

use crate::ops::RawTensor;
use crate::packed::PackedTensor;
use crate::random::mix;

/// One tensor of a weight.
#[derive(Debug, Clone, Copy)]
pub enum WeightPart<'a> {
    /// As a checkpoint has it.
    Stored(RawTensor<'a>),
    /// As a checkpoint has it that is quantised.
    Packed(PackedTensor<'a>),
    /// Drawn at random, for measurements: no checkpoint has it.
    Drawn(RandomTensor<'a>),
}

/// A tensor of random numbers.
#[derive(Debug, Clone, Copy)]
pub struct RandomTensor<'a> {
    /// Name that a checkpoint would give it, for messages.
    pub name: &'a str,
    /// Its shape.
    pub shape: &'a [usize],
    /// Its numbers.
    pub draw: RandomDraw,
}

/// Random numbers, each a function of its index alone: evenly spread over `mean - spread .. mean + spread`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RandomDraw {
    /// Which numbers.
    pub seed: u64,
    /// Their mean.
    pub mean: f32,
    /// How far they are from it at most.
    pub spread: f32,
}

impl RandomDraw {
    /// 64 random bits.
    #[inline(always)]
    pub fn bits(self, index: u64) -> u64 {
        mix(self.seed.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    /// The number at an index.
    #[inline(always)]
    pub fn number(self, index: u64) -> f32 {
        // The upper 24 bits are exact in single precision.
        let even = (self.bits(index) >> 40) as f32 / (1u32 << 23) as f32 - 1.0;
        self.mean + self.spread * even
    }
}

impl<'a> WeightPart<'a> {
    /// Name in the checkpoint.
    pub fn name(&self) -> &'a str {
        match self {
            Self::Stored(RawTensor { name, .. })
            | Self::Packed(PackedTensor { name, .. })
            | Self::Drawn(RandomTensor { name, .. }) => name,
        }
    }

    /// Its shape.
    pub fn shape(&self) -> &'a [usize] {
        match self {
            Self::Stored(RawTensor { shape, .. })
            | Self::Packed(PackedTensor { shape, .. })
            | Self::Drawn(RandomTensor { shape, .. }) => shape,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawn_numbers_are_repeatable_and_spread_evenly() {
        let draw = RandomDraw { seed: 5, mean: 1.0, spread: 0.5 };
        let mut bins = [0u32; 10];
        for index in 0..10_000 {
            let number = draw.number(index);
            assert_eq!(number, draw.number(index));
            assert!((0.5..1.5).contains(&number));
            bins[((number - 0.5) * 10.0) as usize] += 1;
        }
        assert!(bins.iter().all(|&n| (850..1150).contains(&n)), "{bins:?}");
        assert_ne!(draw.number(3), RandomDraw { seed: 6, ..draw }.number(3));
    }
}
