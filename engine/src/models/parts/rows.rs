//! Rows of numbers on the host, and convolutions over them as products. A recording is encoded once, so nothing here is carried on.

use repartee_kernels::{WeightLayout, Ops};

use crate::models::LoadError;
use crate::models::parts::weights::Weights;

/// Rows of a product at a time, so that the copies of a long recording stay small.
const CHUNK: usize = 2048;

/// Rows of one width.
#[derive(Debug, Clone, PartialEq)]
pub struct HostRows {
    /// Numbers of a row.
    pub width: usize,
    /// Row after row.
    pub data: Vec<f32>,
}

/// What stands before the first row and after the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Padding {
    /// Zeros.
    Zero,
    /// The nearest row.
    Replicate,
    /// The rows mirrored, the outermost not twice; there must be more rows than padding.
    Reflect,
}

impl HostRows {
    /// How many.
    pub fn count(&self) -> usize {
        self.data.len() / self.width.max(1)
    }

    /// One of them.
    pub fn row(&self, at: usize) -> &[f32] {
        &self.data[at * self.width..(at + 1) * self.width]
    }

    /// Each number through a function.
    pub fn map(mut self, f: impl Fn(f32) -> f32) -> Self {
        self.data.iter_mut().for_each(|value| *value = f(*value));
        self
    }

    /// Plus other rows of the same shape.
    pub fn plus(mut self, other: &Self) -> Self {
        self.data.iter_mut().zip(&other.data).for_each(|(a, b)| *a += b);
        self
    }

    /// Columns `from..from + width`.
    pub fn columns(&self, from: usize, width: usize) -> Self {
        let data = (0..self.count()).flat_map(|at| self.row(at)[from..from + width].iter().copied()).collect();
        Self { width, data }
    }

    /// Rows side by side; all have as many.
    pub fn concat_columns(parts: &[&Self]) -> Self {
        let rows = parts.first().map_or(0, |part| part.count());
        let data = (0..rows).flat_map(|at| parts.iter().flat_map(move |part| part.row(at).iter().copied())).collect();
        Self { width: parts.iter().map(|part| part.width).sum(), data }
    }

    /// With so many rows before and after.
    pub fn padded(&self, before: usize, after: usize, padding: Padding) -> Self {
        let (rows, width) = (self.count(), self.width);
        let mut data = Vec::with_capacity((before + rows + after) * width);
        for at in 0..before + rows + after {
            // Mirrored at both ends, the index of a row that there is.
            let from = at.abs_diff(before);
            match (at >= before && at - before < rows, padding) {
                (true, _) => data.extend_from_slice(self.row(at - before)),
                (false, Padding::Zero) => data.resize(data.len() + width, 0.0),
                (false, Padding::Replicate) => data.extend_from_slice(self.row(if at < before { 0 } else { rows - 1 })),
                (false, Padding::Reflect) => {
                    data.extend_from_slice(self.row(if at < before { from } else { 2 * (rows - 1) - from }));
                }
            }
        }
        Self { width, data }
    }
}

/// A convolution in time.
pub struct HostConv<O: Ops> {
    weight: O::Weight,
    bias: Option<O::Weight>,
    shape: ConvShape,
}

/// Sizes of a convolution.
#[derive(Debug, Clone, Copy)]
pub struct ConvShape {
    /// Numbers of a row that comes in.
    pub channels: usize,
    /// Numbers of a row that goes out.
    pub out: usize,
    /// Taps.
    pub kernel: usize,
    /// Rows from one result to the next.
    pub stride: usize,
    /// Rows from one tap to the next.
    pub dilation: usize,
}

impl ConvShape {
    /// Stride and dilation 1.
    pub fn plain(channels: usize, out: usize, kernel: usize) -> Self {
        Self { channels, out, kernel, stride: 1, dilation: 1 }
    }

    /// Rows that one result sees, less one.
    fn reach(&self) -> usize {
        (self.kernel - 1) * self.dilation
    }
}

impl<O: Ops> HostConv<O> {
    /// Loads `weight`, and with `bias` its bias.
    pub fn load(w: &Weights<'_, O>, shape: ConvShape, bias: bool) -> Result<Self, LoadError> {
        let ConvShape { channels, out, kernel, .. } = shape;
        // One row of a product holds the rows of all taps, one after the other.
        let dims = (out, channels, kernel);
        let weight = w.swapped("weight", WeightLayout::Linear, &[out, channels, kernel], dims, &[out, kernel * channels])?;
        Ok(Self { weight, bias: bias.then(|| w.vector("bias", out)).transpose()?, shape })
    }

    /// The convolution of rows that are padded already.
    pub fn forward(&self, ops: &O, x: &HostRows) -> HostRows {
        let ConvShape { channels, out, kernel, stride, dilation } = self.shape;
        let results =
            (x.count().saturating_sub(self.shape.reach() + 1)) / stride + usize::from(x.count() > self.shape.reach());
        let mut data = Vec::with_capacity(results * out);
        for from in (0..results).step_by(CHUNK) {
            let count = CHUNK.min(results - from);
            let mut taps = Vec::with_capacity(count * kernel * channels);
            for at in from..from + count {
                (0..kernel).for_each(|tap| taps.extend_from_slice(x.row(at * stride + tap * dilation)));
            }
            data.extend(ops.read(&ops.linear(&ops.tensor(taps, kernel * channels), &self.weight, self.bias.as_ref())));
        }
        HostRows { width: out, data }
    }

    /// The same with padding before the rows, and as much after them as the last stride needs.
    pub fn causal(&self, ops: &O, x: &HostRows, padding: Padding) -> HostRows {
        let ConvShape { stride, .. } = self.shape;
        let before = (self.shape.reach() + 1).saturating_sub(stride);
        let after = x.count().next_multiple_of(stride) - x.count();
        self.forward(ops, &x.padded(before, after, padding))
    }

    /// The same with as many results as rows, those outside mirrored.
    pub fn centred(&self, ops: &O, x: &HostRows) -> HostRows {
        let reach = self.shape.reach();
        self.forward(ops, &x.padded(reach / 2, reach - reach / 2, Padding::Reflect))
    }

    /// Rows that must be there for [`Conv::centred`].
    pub fn least_rows(&self) -> usize {
        self.shape.reach().div_ceil(2) + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_mirrors_repeats_or_is_zero() {
        let rows = HostRows { width: 1, data: vec![1.0, 2.0, 3.0] };
        let padded = |padding| rows.padded(2, 1, padding).data;
        assert_eq!(padded(Padding::Zero), [0.0, 0.0, 1.0, 2.0, 3.0, 0.0]);
        assert_eq!(padded(Padding::Replicate), [1.0, 1.0, 1.0, 2.0, 3.0, 3.0]);
        assert_eq!(padded(Padding::Reflect), [3.0, 2.0, 1.0, 2.0, 3.0, 2.0]);
    }
}
