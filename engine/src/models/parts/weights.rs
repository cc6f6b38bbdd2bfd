//! Takes a model's tensors out of a checkpoint, by the names that the checkpoint gives them.

use repartee_kernels::{DType, Format, Layout, Ops, RawTensor};

use crate::checkpoint::{Checkpoint, TensorView};
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
    fn join(&self, layout: Layout, names: &[(&str, Vec<usize>)]) -> Result<O::Weight, LoadError> {
        self.join_as(layout, self.policy.format(layout), names)
    }

    fn join_as(&self, layout: Layout, format: Format, names: &[(&str, Vec<usize>)]) -> Result<O::Weight, LoadError> {
        let names: Vec<(String, &Vec<usize>)> =
            names.iter().map(|(name, shape)| (format!("{}{name}", self.prefix), shape)).collect();
        let mut parts = Vec::with_capacity(names.len());
        for (name, shape) in &names {
            let TensorView { dtype, bytes, .. } = self.checkpoint.tensor(name, shape)?;
            parts.push(RawTensor { name, bytes, dtype, shape });
        }
        Ok(self.ops.weight_as(layout, format, &parts)?)
    }

    /// `name`, a vector of `n`.
    pub fn vector(&self, name: &str, n: usize) -> Result<O::Weight, LoadError> {
        self.join(Layout::Vector, &[(name, vec![n])])
    }

    /// `name`, a matrix `[out, in]`.
    pub fn linear(&self, name: &str, out: usize, input: usize) -> Result<O::Weight, LoadError> {
        self.join(Layout::Linear, &[(name, vec![out, input])])
    }

    /// `name`, a matrix `[out, in]` that chooses or weighs experts: whatever the policy, as in the checkpoint.
    pub fn router(&self, name: &str, out: usize, input: usize) -> Result<O::Weight, LoadError> {
        self.join_as(Layout::Linear, Format::Float, &[(name, vec![out, input])])
    }

    /// Matrices that share their input, as one.
    pub fn linears(&self, names: &[(&str, usize)], input: usize) -> Result<O::Weight, LoadError> {
        let names: Vec<_> = names.iter().map(|&(name, out)| (name, vec![out, input])).collect();
        self.join(Layout::Linear, &names)
    }

    /// Vectors, one after the other.
    pub fn vectors(&self, names: &[(&str, usize)]) -> Result<O::Weight, LoadError> {
        let names: Vec<_> = names.iter().map(|&(name, n)| (name, vec![n])).collect();
        self.join(Layout::Vector, &names)
    }

    /// `name`, a table of `entries`.
    pub fn table(&self, name: &str, entries: usize, width: usize) -> Result<O::Weight, LoadError> {
        self.join(Layout::Table, &[(name, vec![entries, width])])
    }

    /// For each of `count` experts the matrices `names` (`{}` stands for its number), joined.
    pub fn experts(&self, names: &[&str], count: usize, out: usize, input: usize) -> Result<O::Weight, LoadError> {
        let all: Vec<String> = (0..count)
            .flat_map(|expert| names.iter().map(move |name| name.replace("{}", &expert.to_string())))
            .collect();
        let all: Vec<_> = all.iter().map(|name| (name.as_str(), vec![out, input])).collect();
        self.join(Layout::Experts { per_expert: names.len() }, &all)
    }

    /// `name`, a convolution's weight of the given shape.
    pub fn convolution(&self, name: &str, layout: Layout, shape: [usize; 3]) -> Result<O::Weight, LoadError> {
        self.join(layout, &[(name, shape.to_vec())])
    }

    /// `name` of shape `[rows, a, b, inner..]` with the axes `a` and `b` exchanged, then seen as `as_shape`.
    pub fn swapped(
        &self,
        name: &str,
        layout: Layout,
        shape: &[usize],
        (rows, a, b): (usize, usize, usize),
        as_shape: &[usize],
    ) -> Result<O::Weight, LoadError> {
        let name = format!("{}{name}", self.prefix);
        let TensorView { dtype, bytes, .. } = self.checkpoint.tensor(&name, shape)?;
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
        Ok(self.ops.weight_as(layout, self.policy.format(layout), &[part])?)
    }

    /// The numbers of `name`, a tensor of the given shape, for what is computed once at loading.
    pub fn values(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, LoadError> {
        let TensorView { dtype, bytes, .. } = self.checkpoint.tensor(&format!("{}{name}", self.prefix), shape)?;
        Ok(dtype.widen(bytes))
    }

    /// Numbers of our own making as a weight, for tables that a checkpoint does not hold.
    pub fn made(&self, name: &str, layout: Layout, values: &[f32], shape: &[usize]) -> Result<O::Weight, LoadError> {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let part = RawTensor { name, bytes: &bytes, dtype: DType::F32, shape };
        Ok(self.ops.weight(layout, &[part])?)
    }
}
