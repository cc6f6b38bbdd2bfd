//! Counters of a device's products: bytes and multiply-adds, for comparison with the hardware's peaks.

use std::sync::atomic::{AtomicU64, Ordering};

use super::panels::PackedWeight;

/// Work of the products so far. Attention and other operations without a weight are not counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProductWork {
    /// Bytes of weights, once for each product.
    pub bytes: u64,
    /// Multiply-adds of floating-point numbers.
    pub float_multiplies: u64,
    /// Multiply-adds of integers.
    pub integer_multiplies: u64,
}

impl ProductWork {
    /// Returns the work since `before`.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            bytes: self.bytes - before.bytes,
            float_multiplies: self.float_multiplies - before.float_multiplies,
            integer_multiplies: self.integer_multiplies - before.integer_multiplies,
        }
    }

    /// Returns the sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes + other.bytes,
            float_multiplies: self.float_multiplies + other.float_multiplies,
            integer_multiplies: self.integer_multiplies + other.integer_multiplies,
        }
    }
}

/// Shared counters of a device's products.
#[derive(Debug, Default)]
pub(super) struct Counters {
    bytes: AtomicU64,
    float_multiplies: AtomicU64,
    integer_multiplies: AtomicU64,
}

impl Counters {
    /// Counts a product of `rows` rows.
    pub(super) fn count(&self, rows: usize, weight: &PackedWeight) {
        let multiplies = if weight.is_integer() { &self.integer_multiplies } else { &self.float_multiplies };
        self.bytes.fetch_add(weight.bytes() as u64, Ordering::Relaxed);
        multiplies.fetch_add((rows * weight.columns * weight.k) as u64, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> ProductWork {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        ProductWork {
            bytes: read(&self.bytes),
            float_multiplies: read(&self.float_multiplies),
            integer_multiplies: read(&self.integer_multiplies),
        }
    }
}
