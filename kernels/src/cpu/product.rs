//! Products as regions of the pool, one alone or several together.
//!
//! Each product is split as if it were alone, so its numbers do not depend on the others.

use super::float_product;
use super::groups::{GROUP, QuantisedGroup};
use super::integer;
use super::panels::PackedWeight;
use super::pool::Pool;
use super::quantised::QuantisedWeight;
use super::simd::{LANES, SimdLevel};
use super::strided_rows::StridedRows;
use super::work_split::{LEAST_PART, WorkSplit};

/// A product that is ready to run: `out[r, c] = bias[c] + sum over k of x[r, k] * weight[c, k]`.
pub struct Product<'a> {
    level: SimdLevel,
    what: ProductKind<'a>,
    cut: WorkSplit,
    /// Number of multiply-adds.
    multiplies: usize,
}

enum ProductKind<'a> {
    Float(float_product::Task<'a>),
    Integer(integer::Task<'a>),
}

impl<'a> Product<'a> {
    /// Prepares a product of plain rows with a floating-point weight; `out` is `[x.count, weight.columns]`.
    pub fn of_floats(
        pool: Option<&Pool>,
        level: SimdLevel,
        x: StridedRows<'a>,
        weight: &'a PackedWeight,
        bias: Option<&'a [f32]>,
        out: &'a mut [f32],
    ) -> Self {
        let task = float_product::Task::new(x, weight, bias, out);
        let tile = float_product::tile_size(level, x.count, task.is_streamed());
        let (panels, k) = (weight.columns.div_ceil(LANES), weight.k);
        Self::new(pool, level, ProductKind::Float(task), (x.count, panels, k), tile)
    }

    /// Prepares a product of quantised rows with integer weights of one input; `out` is `[rows, columns of all weights]`.
    pub fn of_integers(
        pool: Option<&Pool>,
        level: SimdLevel,
        (x, rows): (&'a [QuantisedGroup], usize),
        weights: &'a [QuantisedWeight],
        bias: Option<&'a [f32]>,
        out: &'a mut [f32],
    ) -> Self {
        let step = weights.first().map_or(0, QuantisedWeight::groups);
        assert_eq!(rows.checked_mul(step), Some(x.len()), "rows and weight differ");
        Self::of_integer_rows(pool, level, (x, rows, step), weights, bias, out)
    }

    /// Does the same for rows that overlap: each begins `step` groups after the row before.
    pub fn of_integer_rows(
        pool: Option<&Pool>,
        level: SimdLevel,
        (x, rows, step): (&'a [QuantisedGroup], usize, usize),
        weights: &'a [QuantisedWeight],
        bias: Option<&'a [f32]>,
        out: &'a mut [f32],
    ) -> Self {
        let task = integer::Task::new((x, rows, step), weights, bias, out);
        let panels = weights.iter().map(QuantisedWeight::panels).sum();
        let k = weights.first().map_or(0, QuantisedWeight::groups) * GROUP;
        Self::new(pool, level, ProductKind::Integer(task), (rows, panels, k), integer::tile_size(level, rows))
    }

    fn new(
        pool: Option<&Pool>,
        level: SimdLevel,
        what: ProductKind<'a>,
        (rows, panels, k): (usize, usize, usize),
        tile: (usize, usize),
    ) -> Self {
        let cut = WorkSplit::new(pool.map_or(1, Pool::threads), rows, panels, k, tile);
        Self { level, what, cut, multiplies: rows.saturating_mul(panels).saturating_mul(k).saturating_mul(LANES) }
    }

    /// Computes one part.
    ///
    /// # Safety
    /// The number is below that of the cut's parts, and no other thread computes the same part meanwhile.
    unsafe fn compute(&self, number: usize) {
        let part = self.cut.part(number);
        // SAFETY: the tasks' bounds were checked. Parts of one cut have disjoint outputs, and each product borrows its own output alone.
        unsafe {
            match &self.what {
                ProductKind::Float(task) => task.compute(self.level, part),
                ProductKind::Integer(task) => task.compute(self.level, part),
            }
        }
    }
}

/// Computes the products, in one region of the pool if that pays.
pub fn run<'a, 'p: 'a>(pool: Option<&Pool>, products: impl Iterator<Item = &'a Product<'p>> + Clone + Sync) {
    let parts = products.clone().map(|product| product.cut.parts).sum();
    let compute = |mut number: usize| {
        for product in products.clone() {
            if number < product.cut.parts {
                // SAFETY: below the number of parts. A region hands out each number once, and each number is another part.
                return unsafe { product.compute(number) };
            }
            number -= product.cut.parts;
        }
    };
    let multiplies = products.clone().fold(0, |sum: usize, product| sum.saturating_add(product.multiplies));
    match pool {
        Some(pool) if parts > 1 && multiplies >= 2 * LEAST_PART => pool.run(parts, compute),
        _ => (0..parts).for_each(compute),
    }
}
