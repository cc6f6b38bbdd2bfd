//! What products read and multiply, counted, to hold it against what the machine could.

use std::sync::atomic::{AtomicU64, Ordering};

use super::gemm::PackedWeight;

/// Products so far. Attention, and everything that is no product with a weight, is not in it.
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
    /// What was done since `before`.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            bytes: self.bytes - before.bytes,
            float_multiplies: self.float_multiplies - before.float_multiplies,
            integer_multiplies: self.integer_multiplies - before.integer_multiplies,
        }
    }

    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes + other.bytes,
            float_multiplies: self.float_multiplies + other.float_multiplies,
            integer_multiplies: self.integer_multiplies + other.integer_multiplies,
        }
    }
}

/// Counts the products of a device.
#[derive(Debug, Default)]
pub(super) struct Counters {
    bytes: AtomicU64,
    float_multiplies: AtomicU64,
    integer_multiplies: AtomicU64,
}

impl Counters {
    /// Counts a product of so many rows.
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
