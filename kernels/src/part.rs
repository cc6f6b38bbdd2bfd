//! Tensors of a weight by origin: stored, packed or drawn.

use crate::packed::PackedTensor;
use crate::random::mix;
use crate::weight::RawTensor;

/// One tensor of a weight, by origin.
#[derive(Debug, Clone, Copy)]
pub enum WeightPart<'a> {
    /// Floating-point tensor of a checkpoint.
    Stored(RawTensor<'a>),
    /// Quantised tensor of a checkpoint.
    Packed(PackedTensor<'a>),
    /// Random numbers for measurements without a checkpoint.
    Drawn(RandomTensor<'a>),
}

/// A tensor of random numbers.
#[derive(Debug, Clone, Copy)]
pub struct RandomTensor<'a> {
    /// Name that a checkpoint would give it, for messages.
    pub name: &'a str,
    /// Sizes of the axes, outermost first.
    pub shape: &'a [usize],
    /// Distribution and seed of its numbers.
    pub draw: RandomDraw,
}

/// Random numbers spread evenly over `mean - spread .. mean + spread`; each is a function of its index alone.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RandomDraw {
    /// Seed; different seeds give different numbers.
    pub seed: u64,
    /// Mean of the numbers.
    pub mean: f32,
    /// Largest distance from the mean.
    pub spread: f32,
}

impl RandomDraw {
    /// Returns 64 random bits for an index.
    #[inline(always)]
    pub fn bits(self, index: u64) -> u64 {
        mix(self.seed.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    /// Returns the number at an index.
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

    /// Quantised tensor; `None` for the other origins.
    pub fn packed(&self) -> Option<PackedTensor<'a>> {
        match self {
            Self::Packed(tensor) => Some(*tensor),
            Self::Stored(_) | Self::Drawn(_) => None,
        }
    }

    /// Sizes of the axes, outermost first.
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
