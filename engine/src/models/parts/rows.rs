//! Rows of numbers on the host, and convolutions over them as matrix products. Used for recordings, which are encoded
//! once, so no state is carried.

use repartee_kernels::{Ops, ReadBack, RowSpec, SpecLayout, StepKey, WeightLayout};

use crate::models::load_error::LoadError;
use crate::models::parts::weights::Weights;

/// Rows of one product; bounds the size of the copies for a long recording.
const CHUNK: usize = 2048;

/// Row-major matrix on the host.
#[derive(Debug, Clone, PartialEq)]
pub struct HostRows {
    /// Numbers in a row.
    pub width: usize,
    /// Numbers, row after row.
    pub data: Vec<f32>,
}

/// Rows assumed before the first and after the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Padding {
    /// Rows of zeros.
    Zero,
    /// The nearest row.
    Replicate,
    /// Rows mirrored without repeating the outermost; needs more rows than padding.
    Reflect,
}

/// Computes rows of the host in a step, and reads back as many. A step of `stage` with the same `variant` always computes the
/// same.
pub fn in_step<O: Ops>(
    ops: &O,
    rows: &HostRows,
    (stage, variant): (&'static str, usize),
    (spec, back): (&mut RowSpec, &mut ReadBack),
    compute: impl Fn(&O, O::T) -> O::T,
) -> HostRows {
    let (count, bucket) = (rows.count(), ops.bucket(rows.count()));
    if count == 0 {
        return rows.clone();
    }
    let mut layout = SpecLayout::default();
    let at = layout.list(bucket * rows.width);
    layout.clear_spec(spec);
    spec.set_floats(at, &rows.data);
    let ticket = ops.launch(StepKey { stage, rows: bucket, variant }, spec, &mut |ops, spec, outputs| {
        outputs.rows.push(compute(ops, ops.floats(spec, at, rows.width)));
    });
    ops.collect(ticket, back);
    let width = back.numbers.len() / bucket;
    HostRows { width, data: back.numbers[..count * width].to_vec() }
}

impl HostRows {
    /// Number of rows.
    pub fn count(&self) -> usize {
        self.data.len() / self.width.max(1)
    }

    /// Returns row `at`.
    pub fn row(&self, at: usize) -> &[f32] {
        &self.data[at * self.width..(at + 1) * self.width]
    }

    /// Applies a function to each number.
    pub fn map(mut self, f: impl Fn(f32) -> f32) -> Self {
        self.data.iter_mut().for_each(|value| *value = f(*value));
        self
    }

    /// Adds other rows of the same shape.
    pub fn plus(mut self, other: &Self) -> Self {
        self.data.iter_mut().zip(&other.data).for_each(|(a, b)| *a += b);
        self
    }

    /// Copies columns `from..from + width`.
    pub fn columns(&self, from: usize, width: usize) -> Self {
        let data = (0..self.count()).flat_map(|at| self.row(at)[from..from + width].iter().copied()).collect();
        Self { width, data }
    }

    /// Concatenates matrices of equal row count along the columns.
    pub fn concat_columns(parts: &[&Self]) -> Self {
        let rows = parts.first().map_or(0, |part| part.count());
        let data = (0..rows).flat_map(|at| parts.iter().flat_map(move |part| part.row(at).iter().copied())).collect();
        Self { width: parts.iter().map(|part| part.width).sum(), data }
    }

    /// Pads with `before` and `after` rows.
    pub fn padded(&self, before: usize, after: usize, padding: Padding) -> Self {
        let (rows, width) = (self.count(), self.width);
        let mut data = Vec::with_capacity((before + rows + after) * width);
        for at in 0..before + rows + after {
            // For a row of the padding: its distance from the first row.
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

/// Convolution in time.
pub struct HostConv<O: Ops> {
    weight: O::Weight,
    bias: Option<O::Weight>,
    shape: ConvShape,
}

/// Sizes of a convolution.
#[derive(Debug, Clone, Copy)]
pub struct ConvShape {
    /// Numbers in an input row.
    pub channels: usize,
    /// Numbers in an output row.
    pub out: usize,
    /// Number of taps.
    pub kernel: usize,
    /// Rows from one result to the next.
    pub stride: usize,
    /// Rows from one tap to the next.
    pub dilation: usize,
}

impl ConvShape {
    /// Shape with stride and dilation 1.
    pub fn plain(channels: usize, out: usize, kernel: usize) -> Self {
        Self { channels, out, kernel, stride: 1, dilation: 1 }
    }

    /// Receptive field minus one, in rows.
    fn reach(&self) -> usize {
        (self.kernel - 1) * self.dilation
    }
}

impl<O: Ops> HostConv<O> {
    /// Loads `weight`, and `bias` if asked.
    pub fn load(w: &Weights<'_, O>, shape: ConvShape, bias: bool) -> Result<Self, LoadError> {
        let ConvShape { channels, out, kernel, .. } = shape;
        // A row of the product holds the input rows of all taps, one after another.
        let dims = (out, channels, kernel);
        let weight =
            w.swapped("weight", WeightLayout::Linear, &[out, channels, kernel], dims, &[out, kernel * channels])?;
        Ok(Self { weight, bias: bias.then(|| w.vector("bias", out)).transpose()?, shape })
    }

    /// Convolves rows that are already padded.
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

    /// Convolves causally: pads before the rows, and after them as far as the last stride needs.
    pub fn causal(&self, ops: &O, x: &HostRows, padding: Padding) -> HostRows {
        let ConvShape { stride, .. } = self.shape;
        let before = (self.shape.reach() + 1).saturating_sub(stride);
        let after = x.count().next_multiple_of(stride) - x.count();
        self.forward(ops, &x.padded(before, after, padding))
    }

    /// Convolves with mirrored padding; as many results as rows, with stride 1.
    pub fn centred(&self, ops: &O, x: &HostRows) -> HostRows {
        let reach = self.shape.reach();
        self.forward(ops, &x.padded(reach / 2, reach - reach / 2, Padding::Reflect))
    }

    /// Least number of rows for [`HostConv::centred`].
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
