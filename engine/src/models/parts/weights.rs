//! Loads a model's tensors from a checkpoint, by the checkpoint's names.

use std::borrow::Cow;
use std::ops::Range;

use repartee_checkpoint::IntegerPacking;
use repartee_kernels::shapes::{rotary_frequencies, snake_vectors};
use repartee_kernels::{
    CheckedParts, DType, Ops, PackedTensor, Packing, RandomDraw, RandomTensor, RawTensor, WeightFormat, WeightLayout,
    WeightPart,
};

use crate::checkpoint::{Checkpoint, TensorData, TensorView};
use crate::models::load_error::LoadError;
use crate::weight_policy::WeightPolicy;

/// Tensors of a checkpoint whose names begin with a prefix.
pub struct Weights<'a, O: Ops> {
    ops: &'a O,
    checkpoint: &'a Checkpoint,
    prefix: String,
    policy: WeightPolicy,
}

impl<'a, O: Ops> Weights<'a, O> {
    /// Creates a view of all tensors, in the formats of the checkpoint.
    pub fn new(ops: &'a O, checkpoint: &'a Checkpoint) -> Self {
        Self { ops, checkpoint, prefix: String::new(), policy: WeightPolicy::default() }
    }

    /// Device that holds the weights.
    pub fn ops(&self) -> &'a O {
        self.ops
    }

    /// Sets the policy for the tensors' formats.
    #[must_use]
    pub fn with_policy(self, policy: WeightPolicy) -> Self {
        Self { policy, ..self }
    }

    /// Appends `name` to the prefix.
    pub fn at(&self, name: impl std::fmt::Display) -> Self {
        let Self { ops, checkpoint, policy, .. } = *self;
        Self { ops, checkpoint, prefix: format!("{}{name}.", self.prefix), policy }
    }

    /// Joins several tensors of one width into one weight, in the policy's format.
    fn join(&self, layout: WeightLayout, names: &[(&str, Vec<usize>)]) -> Result<O::Weight, LoadError> {
        self.join_as(layout, self.policy.format(layout), names)
    }

    fn join_as(
        &self,
        layout: WeightLayout,
        format: WeightFormat,
        names: &[(&str, Vec<usize>)],
    ) -> Result<O::Weight, LoadError> {
        let names: Vec<(String, &Vec<usize>)> =
            names.iter().map(|(name, shape)| (format!("{}{name}", self.prefix), shape)).collect();
        let numbers: Result<Vec<_>, _> =
            names.iter().map(|(name, shape)| self.checkpoint.numbers(name, shape)).collect();
        let numbers = numbers?;
        let parts: Vec<_> = names.iter().zip(&numbers).map(|((name, shape), data)| part(name, shape, data)).collect();
        self.pack(layout, format, &parts)
    }

    /// Checks the parts of a weight and packs them for the device.
    fn pack(
        &self,
        layout: WeightLayout,
        format: WeightFormat,
        parts: &[WeightPart<'_>],
    ) -> Result<O::Weight, LoadError> {
        Ok(self.ops.weight(&CheckedParts::new(layout, format, parts)?)?)
    }

    /// Loads `name`, a vector of `n` numbers.
    pub fn vector(&self, name: &str, n: usize) -> Result<O::Weight, LoadError> {
        self.join(WeightLayout::Vector, &[(name, vec![n])])
    }

    /// Loads `name`, a matrix `[out, in]`.
    pub fn linear(&self, name: &str, out: usize, input: usize) -> Result<O::Weight, LoadError> {
        self.join(WeightLayout::Linear, &[(name, vec![out, input])])
    }

    /// Loads `name`, a matrix `[out, in]` that selects or weighs experts. It ignores the policy and keeps the
    /// checkpoint's format.
    pub fn router(&self, name: &str, out: usize, input: usize) -> Result<O::Weight, LoadError> {
        let whole = format!("{}{name}", self.prefix);
        match self.checkpoint.numbers(&whole, &[out, input])? {
            TensorData::Drawn(draw) if self.checkpoint.is_skewed() => {
                self.made(&whole, WeightLayout::Linear, &skewed(draw, out, input), &[out, input])
            }
            numbers => self.pack(WeightLayout::Linear, WeightFormat::Float, &[part(&whole, &[out, input], &numbers)]),
        }
    }

    /// Loads matrices of the same input width as one.
    pub fn linears(&self, names: &[(&str, usize)], input: usize) -> Result<O::Weight, LoadError> {
        let names: Vec<_> = names.iter().map(|&(name, out)| (name, vec![out, input])).collect();
        self.join(WeightLayout::Linear, &names)
    }

    /// Loads vectors as one, one after the other.
    pub fn vectors(&self, names: &[(&str, usize)]) -> Result<O::Weight, LoadError> {
        let names: Vec<_> = names.iter().map(|&(name, n)| (name, vec![n])).collect();
        self.join(WeightLayout::Vector, &names)
    }

    /// Loads `name`, a table of `entries` rows.
    pub fn table(&self, name: &str, entries: usize, width: usize) -> Result<O::Weight, LoadError> {
        self.join(WeightLayout::Table, &[(name, vec![entries, width])])
    }

    /// Loads some of the rows of `name`, a matrix or table `[rows, width]`. Rows of random numbers are those of the first ones.
    pub fn rows(
        &self,
        name: &str,
        layout: WeightLayout,
        [rows, width]: [usize; 2],
        wanted: Range<usize>,
    ) -> Result<O::Weight, LoadError> {
        let name = format!("{}{name}", self.prefix);
        let (whole, shape) = ([rows, width], [wanted.len(), width]);
        let widened = |numbers: Vec<f32>| {
            (DType::F32, Cow::Owned(numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>()))
        };
        let (dtype, bytes) = match self.checkpoint.numbers(&name, &whole)? {
            TensorData::Stored(TensorView { dtype, bytes, .. }) => (dtype, bytes),
            TensorData::Packed(tensor) => widened(tensor.numbers()),
            TensorData::Repacked(matrix) => widened(matrix.numbers()),
            drawn @ TensorData::Drawn(_) => {
                return self.pack(layout, self.policy.format(layout), &[part(&name, &shape, &drawn)]);
            }
        };
        let row = bytes.len() / rows.max(1);
        let bytes = &bytes[wanted.start * row..wanted.end * row];
        let part = RawTensor { name: &name, bytes, dtype, shape: &shape };
        self.pack(layout, self.policy.format(layout), &[WeightPart::Stored(part)])
    }

    /// Loads `name`, a table of `entries` rows that is the matrix of the head too: one weight for both, or two if the
    /// policy keeps matrices in fewer bits than tables.
    pub fn tied(&self, name: &str, entries: usize, width: usize) -> Result<(O::Weight, Option<O::Weight>), LoadError> {
        let whole = format!("{}{name}", self.prefix);
        let is_coarser = self.policy.format(WeightLayout::Linear) == WeightFormat::Int4;
        let shape = [entries, width];
        let keeps_format = || -> Result<bool, LoadError> {
            let numbers = self.checkpoint.numbers(&whole, &shape)?;
            Ok(matches!(numbers, TensorData::Packed(_) | TensorData::Repacked(_)))
        };
        if is_coarser && !keeps_format()? {
            return Ok((self.table(name, entries, width)?, Some(self.linear(name, entries, width)?)));
        }
        Ok((self.linear(name, entries, width)?, None))
    }

    /// Loads the matrices `names` (`{}` stands for the expert's number) of `count` experts as one weight.
    pub fn experts(&self, names: &[&str], count: usize, out: usize, input: usize) -> Result<O::Weight, LoadError> {
        let all: Vec<String> = (0..count)
            .flat_map(|expert| names.iter().map(move |name| name.replace("{}", &expert.to_string())))
            .collect();
        let all: Vec<_> = all.iter().map(|name| (name.as_str(), vec![out, input])).collect();
        self.join(WeightLayout::Experts { per_expert: names.len() }, &all)
    }

    /// Loads `name`, a convolution's weight of the given shape.
    pub fn convolution(&self, name: &str, layout: WeightLayout, shape: [usize; 3]) -> Result<O::Weight, LoadError> {
        self.join(layout, &[(name, shape.to_vec())])
    }

    /// Loads `name` of shape `[rows, a, b, inner..]`, exchanges the axes `a` and `b`, and views the result as
    /// `as_shape`.
    pub fn swapped(
        &self,
        name: &str,
        layout: WeightLayout,
        shape: &[usize],
        (rows, a, b): (usize, usize, usize),
        as_shape: &[usize],
    ) -> Result<O::Weight, LoadError> {
        let name = format!("{}{name}", self.prefix);
        let format = self.policy.format(layout);
        // The groups of integers would hold other inputs, so they are unpacked to floats.
        let unpacked = |numbers: Vec<f32>| {
            (DType::F32, Cow::Owned(numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>()))
        };
        let (dtype, bytes) = match self.checkpoint.numbers(&name, shape)? {
            TensorData::Stored(TensorView { dtype, bytes, .. }) => (dtype, bytes),
            TensorData::Packed(tensor) => unpacked(tensor.numbers()),
            TensorData::Repacked(matrix) => unpacked(matrix.numbers()),
            // Random numbers: their order does not matter.
            drawn @ TensorData::Drawn(_) => {
                return self.pack(layout, format, &[part(&name, as_shape, &drawn)]);
            }
        };
        let item = bytes.len() / (rows * a * b);
        let mut swapped = Vec::with_capacity(bytes.len());
        for row in bytes.chunks_exact(a * b * item) {
            for j in 0..b {
                for i in 0..a {
                    swapped.extend_from_slice(&row[(i * b + j) * item..][..item]);
                }
            }
        }
        let part = RawTensor { name: &name, bytes: &swapped, dtype, shape: as_shape };
        self.pack(layout, format, &[WeightPart::Stored(part)])
    }

    /// Reads the numbers of `name`, a tensor of the given shape, for computations at load time.
    pub fn values(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, LoadError> {
        Ok(match self.checkpoint.numbers(&format!("{}{name}", self.prefix), shape)? {
            TensorData::Stored(TensorView { dtype, bytes, .. }) => dtype.widen(&bytes),
            TensorData::Packed(tensor) => tensor.numbers(),
            TensorData::Repacked(matrix) => matrix.numbers(),
            TensorData::Drawn(draw) => (0..shape.iter().product::<usize>() as u64).map(|i| draw.number(i)).collect(),
        })
    }

    /// True if the checkpoint has `name`.
    pub fn has(&self, name: &str) -> bool {
        self.checkpoint.has_tensor(&format!("{}{name}", self.prefix))
    }

    /// Reads the numbers of `name`, a tensor of the given shape. Where the checkpoint has a weight norm in its place, they
    /// are the directions `name_v`, each scaled to its length in `name_g`: one for each index of the first axis. Newer files
    /// have these as `parametrizations.name.original1` and `original0`.
    pub fn normed(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, LoadError> {
        let (mut numbers, factors) = self.directions(name, shape)?;
        let rest = shape[1..].iter().product::<usize>().max(1);
        for (direction, by) in numbers.chunks_exact_mut(rest).zip(factors) {
            direction.iter_mut().for_each(|number| *number *= by as f32);
        }
        Ok(numbers)
    }

    /// Reads as [`Weights::normed`], in double precision.
    pub fn normed_wide(&self, name: &str, shape: &[usize]) -> Result<Vec<f64>, LoadError> {
        let (numbers, factors) = self.directions(name, shape)?;
        let rest = shape[1..].iter().product::<usize>().max(1);
        let factors = factors.into_iter().chain(std::iter::repeat(1.0));
        let rows = numbers.chunks_exact(rest).zip(factors);
        Ok(rows.flat_map(|(row, by)| row.iter().map(move |number| f64::from(*number) * by)).collect())
    }

    /// Numbers of a tensor, and for each index of the first axis the factor of a weight norm; no factors without one.
    fn directions(&self, name: &str, shape: &[usize]) -> Result<(Vec<f32>, Vec<f64>), LoadError> {
        let newer = |number: usize| format!("parametrizations.{name}.original{number}");
        let (mut directions, mut lengths) = (format!("{name}_v"), format!("{name}_g"));
        if self.has(&newer(1)) {
            (directions, lengths) = (newer(1), newer(0));
        }
        if !self.has(&directions) {
            return Ok((self.values(name, shape)?, Vec::new()));
        }
        let numbers = self.values(&directions, shape)?;
        let (first, rest) = (shape[0], shape[1..].iter().product::<usize>());
        let lengths = self.values(&lengths, &[&[first][..], &vec![1; shape.len() - 1]].concat())?;
        let factor = |(direction, length): (&[f32], f32)| {
            let norm = direction.iter().map(|number| f64::from(*number).powi(2)).sum::<f64>().sqrt();
            f64::from(length) / norm
        };
        let factors = numbers.chunks_exact(rest.max(1)).zip(lengths).map(factor).collect();
        Ok((numbers, factors))
    }

    /// Loads the logarithms `alpha` and `beta` of a snake activation as its frequencies and magnitudes.
    pub fn snake(&self, channels: usize) -> Result<(O::Weight, O::Weight), LoadError> {
        let (alpha, beta) = (self.values("alpha", &[channels])?, self.values("beta", &[channels])?);
        let (frequency, magnitude) = snake_vectors(&alpha, &beta, true);
        let vector = |name: &str, values: &[f32]| {
            self.made(&format!("{}{name}", self.prefix), WeightLayout::Vector, values, &[channels])
        };
        Ok((vector("alpha", &frequency)?, vector("beta", &magnitude)?))
    }

    /// Creates inverse frequencies of rotary positions with wavelengths of base `theta`.
    pub fn rotary(&self, head_dim: usize, theta: f32) -> Result<O::Weight, LoadError> {
        let numbers = rotary_frequencies(head_dim, theta);
        self.made("rotary frequencies", WeightLayout::Vector, &numbers, &[numbers.len()])
    }

    /// Creates a centred convolution `[out, in, kernel]` from computed numbers, in the policy's format for it.
    pub fn made_convolution(
        &self,
        name: &str,
        dilation: usize,
        values: &[f32],
        shape: [usize; 3],
    ) -> Result<O::Weight, LoadError> {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let part = RawTensor { name, bytes: &bytes, dtype: DType::F32, shape: &shape };
        let format = self.policy.segment_convolutions();
        self.pack(WeightLayout::Conv1d { dilation }, format, &[WeightPart::Stored(part)])
    }

    /// Creates a matrix from computed numbers in the policy's format. Numbers that bf16 holds exactly, as a checkpoint's in
    /// another order, stay bf16.
    pub fn made_matrix(&self, name: &str, values: &[f32], shape: &[usize; 2]) -> Result<O::Weight, LoadError> {
        let (dtype, bytes): (_, Vec<u8>) = if values.iter().all(|v| v.to_bits().trailing_zeros() >= 16) {
            (DType::Bf16, values.iter().flat_map(|v| ((v.to_bits() >> 16) as u16).to_le_bytes()).collect())
        } else {
            (DType::F32, values.iter().flat_map(|v| v.to_le_bytes()).collect())
        };
        let part = RawTensor { name, bytes: &bytes, dtype, shape };
        let layout = WeightLayout::Linear;
        self.pack(layout, self.policy.format(layout), &[WeightPart::Stored(part)])
    }

    /// Creates a weight from computed numbers, for tables that a checkpoint does not hold.
    pub fn made(
        &self,
        name: &str,
        layout: WeightLayout,
        values: &[f32],
        shape: &[usize],
    ) -> Result<O::Weight, LoadError> {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let part = RawTensor { name, bytes: &bytes, dtype: DType::F32, shape };
        self.pack(layout, WeightFormat::Float, &[WeightPart::Stored(part)])
    }
}

fn part<'a>(name: &'a str, shape: &'a [usize], numbers: &'a TensorData<'_>) -> WeightPart<'a> {
    match numbers {
        TensorData::Stored(TensorView { dtype, bytes, .. }) => {
            WeightPart::Stored(RawTensor { name, bytes, dtype: *dtype, shape })
        }
        TensorData::Packed(tensor) => WeightPart::Packed(*tensor),
        TensorData::Repacked(matrix) => WeightPart::Packed(PackedTensor {
            name,
            shape,
            packing: match matrix.packing {
                IntegerPacking::Four => Packing::Four,
                IntegerPacking::Bytes => Packing::Bytes,
            },
            integers: &matrix.integers,
            scales: &matrix.scales,
            scale_format: DType::F16,
            minimums: matrix.minimums.as_deref(),
            super_scales: matrix.super_scales.as_deref(),
            group: matrix.group,
        }),
        TensorData::Drawn(draw) => WeightPart::Drawn(RandomTensor { name, shape, draw: *draw }),
    }
}

/// Scales a router's rows from twice as large as drawn down to half as large: experts of large rows are chosen more
/// often.
fn skewed(draw: RandomDraw, rows: usize, width: usize) -> Vec<f32> {
    let number = |i: usize| draw.number(i as u64) * (1.0 - 2.0 * (i / width) as f32 / rows as f32).exp2();
    (0..rows * width).map(number).collect()
}
