//! A codebook of a residual quantizer, for recordings, which are encoded once.

use repartee_kernels::{Ops, WeightLayout};

use super::rows::HostRows;
use super::weights::Weights;
use crate::models::load_error::LoadError;

/// Entries of a codebook, also as a linear weight, and half the squared norm of each.
pub struct Codebook<O: Ops> {
    entries: Vec<f32>,
    product: O::Weight,
    half_squares: Vec<f32>,
}

impl<O: Ops> Codebook<O> {
    /// Creates a codebook of these entries, `[entries, width]`.
    pub fn new(w: &Weights<'_, O>, entries: Vec<f32>, width: usize) -> Result<Self, LoadError> {
        let half = |entry: &[f32]| entry.iter().map(|value| value * value).sum::<f32>() / 2.0;
        Ok(Self {
            product: w.made("codebook", WeightLayout::Linear, &entries, &[entries.len() / width, width])?,
            half_squares: entries.chunks_exact(width).map(half).collect(),
            entries,
        })
    }

    /// Number of entries.
    pub fn entries(&self) -> usize {
        self.half_squares.len()
    }

    /// Matrix to the products of rows with the entries.
    pub fn product(&self) -> &O::Weight {
        &self.product
    }

    /// Returns the nearest entry of each row, and subtracts it from the row.
    pub fn take(&self, ops: &O, rows: &mut HostRows) -> Vec<u32> {
        let products = ops.read(&ops.linear(&ops.tensor(rows.data.clone(), rows.width), &self.product, None));
        self.nearest(rows, &products)
    }

    /// As [`Codebook::take`], with the rows' products with the entries.
    pub fn nearest(&self, rows: &mut HostRows, products: &[f32]) -> Vec<u32> {
        let width = rows.width;
        let nearest = |products: &[f32]| {
            // The squared distance is the row's squared norm minus twice this.
            let near = products.iter().zip(&self.half_squares).map(|(product, half)| product - half);
            near.enumerate().fold((0, f32::NEG_INFINITY), |best, at| if at.1 > best.1 { at } else { best }).0
        };
        let mut codes = Vec::with_capacity(rows.count());
        for (row, products) in rows.data.chunks_exact_mut(width).zip(products.chunks_exact(self.half_squares.len())) {
            let code = nearest(products);
            let entry = &self.entries[code * width..(code + 1) * width];
            row.iter_mut().zip(entry).for_each(|(value, entry)| *value -= entry);
            codes.push(code as u32);
        }
        codes
    }
}
