//! Takes a model's tensors out of a checkpoint, by the names that the checkpoint gives them.

use repartee_kernels::{DType, RandomDraw, RandomTensor, WeightFormat, WeightLayout, Ops, WeightPart, RawTensor};

use crate::checkpoint::{Checkpoint, TensorData, TensorView};
use crate::models::LoadError;
use crate::weight_policy::WeightPolicy;

/// The tensors below one prefix of a checkpoint's names.
pub struct Weights<'a, O: Ops> {
    ops: &'a O,
    checkpoint: &'a Checkpoint,
    prefix: String,
    policy: WeightPolicy,
}

impl<'a, O: Ops> Weights<'a, O> {
    /// All tensors, in the formats of the checkpoint.
    pub fn new(ops: &'a O, checkpoint: &'a Checkpoint) -> Self {
        Self { ops, checkpoint, prefix: String::new(), policy: WeightPolicy::default() }
    }

    /// The device.
    pub fn ops(&self) -> &'a O {
        self.ops
    }

    /// The same tensors in formats after `policy`.
    #[must_use]
    pub fn with_policy(self, policy: WeightPolicy) -> Self {
        Self { policy, ..self }
    }

    /// The tensors below `name`, which is appended to the prefix.
    pub fn at(&self, name: impl std::fmt::Display) -> Self {
        let Self { ops, checkpoint, policy, .. } = *self;
        Self { ops, checkpoint, prefix: format!("{}{name}.", self.prefix), policy }
    }

    /// Several tensors of one width as one weight, in the policy's format.
    fn join(&self, layout: WeightLayout, names: &[(&str, Vec<usize>)]) -> Result<O::Weight, LoadError> {
        self.join_as(layout, self.policy.format(layout), names)
    }

    fn join_as(&self, layout: WeightLayout, format: WeightFormat, names: &[(&str, Vec<usize>)]) -> Result<O::Weight, LoadError> {
        let names: Vec<(String, &Vec<usize>)> =
            names.iter().map(|(name, shape)| (format!("{}{name}", self.prefix), shape)).collect();
        let mut parts = Vec::with_capacity(names.len());
        for (name, shape) in &names {
            parts.push(part(name, shape, self.checkpoint.numbers(name, shape)?));
        }
        Ok(self.ops.weight_from_parts(layout, format, &parts)?)
    }

    /// `name`, a vector of `n`.
    pub fn vector(&self, name: &str, n: usize) -> Result<O::Weight, LoadError> {
        self.join(WeightLayout::Vector, &[(name, vec![n])])
    }

    /// `name`, a matrix `[out, in]`.
    pub fn linear(&self, name: &str, out: usize, input: usize) -> Result<O::Weight, LoadError> {
        self.join(WeightLayout::Linear, &[(name, vec![out, input])])
    }

    /// `name`, a matrix `[out, in]` that chooses or weighs experts: whatever the policy, as in the checkpoint.
    pub fn router(&self, name: &str, out: usize, input: usize) -> Result<O::Weight, LoadError> {
        let whole = format!("{}{name}", self.prefix);
        match self.checkpoint.numbers(&whole, &[out, input])? {
            TensorData::Drawn(draw) if self.checkpoint.is_skewed() => {
                self.made(&whole, WeightLayout::Linear, &skewed(draw, out, input), &[out, input])
            }
            numbers => {
                Ok(self.ops.weight_from_parts(WeightLayout::Linear, WeightFormat::Float, &[part(&whole, &[out, input], numbers)])?)
            }
        }
    }

    /// Matrices that share their input, as one.
    pub fn linears(&self, names: &[(&str, usize)], input: usize) -> Result<O::Weight, LoadError> {
        let names: Vec<_> = names.iter().map(|&(name, out)| (name, vec![out, input])).collect();
        self.join(WeightLayout::Linear, &names)
    }

    /// Vectors, one after the other.
    pub fn vectors(&self, names: &[(&str, usize)]) -> Result<O::Weight, LoadError> {
        let names: Vec<_> = names.iter().map(|&(name, n)| (name, vec![n])).collect();
        self.join(WeightLayout::Vector, &names)
    }

    /// `name`, a table of `entries`.
    pub fn table(&self, name: &str, entries: usize, width: usize) -> Result<O::Weight, LoadError> {
        self.join(WeightLayout::Table, &[(name, vec![entries, width])])
    }

    /// For each of `count` experts the matrices `names` (`{}` stands for its number), joined.
    pub fn experts(&self, names: &[&str], count: usize, out: usize, input: usize) -> Result<O::Weight, LoadError> {
        let all: Vec<String> = (0..count)
            .flat_map(|expert| names.iter().map(move |name| name.replace("{}", &expert.to_string())))
            .collect();
        let all: Vec<_> = all.iter().map(|name| (name.as_str(), vec![out, input])).collect();
        self.join(WeightLayout::Experts { per_expert: names.len() }, &all)
    }

    /// `name`, a convolution's weight of the given shape.
    pub fn convolution(&self, name: &str, layout: WeightLayout, shape: [usize; 3]) -> Result<O::Weight, LoadError> {
        self.join(layout, &[(name, shape.to_vec())])
    }

    /// `name` of shape `[rows, a, b, inner..]` with the axes `a` and `b` exchanged, then seen as `as_shape`.
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
        let unpacked;
        let (dtype, bytes) = match self.checkpoint.numbers(&name, shape)? {
            TensorData::Stored(TensorView { dtype, bytes, .. }) => (dtype, bytes),
            TensorData::Packed(tensor) => {
                // In groups of other inputs: they are made anew.
                unpacked = tensor.numbers().iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<_>>();
                (DType::F32, &unpacked[..])
            }
            // In whatever order.
            drawn @ TensorData::Drawn(_) => {
                return Ok(self.ops.weight_from_parts(layout, format, &[part(&name, as_shape, drawn)])?);
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
        Ok(self.ops.weight_in_format(layout, format, &[part])?)
    }

    /// The numbers of `name`, a tensor of the given shape, for what is computed once at loading.
    pub fn values(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, LoadError> {
        Ok(match self.checkpoint.numbers(&format!("{}{name}", self.prefix), shape)? {
            TensorData::Stored(TensorView { dtype, bytes, .. }) => dtype.widen(bytes),
            TensorData::Packed(tensor) => tensor.numbers(),
            TensorData::Drawn(draw) => (0..shape.iter().product::<usize>() as u64).map(|i| draw.number(i)).collect(),
        })
    }

    /// Numbers of our own making as a weight, for tables that a checkpoint does not hold.
    pub fn made(&self, name: &str, layout: WeightLayout, values: &[f32], shape: &[usize]) -> Result<O::Weight, LoadError> {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let part = RawTensor { name, bytes: &bytes, dtype: DType::F32, shape };
        Ok(self.ops.weight(layout, &[part])?)
    }
}

fn part<'a>(name: &'a str, shape: &'a [usize], numbers: TensorData<'a>) -> WeightPart<'a> {
    match numbers {
        TensorData::Stored(TensorView { dtype, bytes, .. }) => WeightPart::Stored(RawTensor { name, bytes, dtype, shape }),
        TensorData::Packed(tensor) => WeightPart::Packed(tensor),
        TensorData::Drawn(draw) => WeightPart::Drawn(RandomTensor { name, shape, draw }),
    }
}

/// Rows of a router whose numbers fall from twice as large as drawn to half as large: experts of large rows are chosen more often.
fn skewed(draw: RandomDraw, rows: usize, width: usize) -> Vec<f32> {
    let number = |i: usize| draw.number(i as u64) * (1.0 - 2.0 * (i / width) as f32 / rows as f32).exp2();
    (0..rows * width).map(number).collect()
}
