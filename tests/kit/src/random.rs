//! Seeded random numbers.

/// A small seeded generator (xorshift), so that failures are reproducible.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Creates a generator; any `seed` is valid.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns a number uniform in 0..1.
    pub fn unit(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns an integer uniform in 0..`limit`; a `limit` of 0 counts as 1.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.unit() * limit.max(1) as f64) as usize
    }

    /// Returns one of `choices`, with equal probability.
    ///
    /// # Panics
    /// `choices` is empty.
    pub fn choose<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }

    /// Shuffles `items` uniformly.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        // Fisher-Yates.
        for rest in (1..items.len()).rev() {
            items.swap(rest, self.below(rest + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_uniform_within_limits() {
        let mut random = Random::new(7);
        let mut counts = [0_u32; 10];
        for _ in 0..100_000 {
            counts[random.below(10)] += 1;
        }
        // Ten thousand each; the deviation of a count is 95.
        assert!(counts.iter().all(|count| count.abs_diff(10_000) < 500), "{counts:?}");
        assert_eq!((random.below(1), random.below(0)), (0, 0));
        let mean = (0..100_000).map(|_| random.unit()).sum::<f64>() / 1e5;
        assert!((mean - 0.5).abs() < 0.005, "{mean}");
    }

    #[test]
    fn shuffle_reaches_every_order() {
        let mut random = Random::new(1);
        let mut seen = std::collections::BTreeMap::new();
        for _ in 0..6_000 {
            let mut items = [0, 1, 2];
            random.shuffle(&mut items);
            *seen.entry(items).or_insert(0_u32) += 1;
        }
        // A thousand each; the deviation of a count is 29.
        assert!(seen.len() == 6 && seen.values().all(|count| count.abs_diff(1_000) < 150), "{seen:?}");
    }
}
