//! The trait [`Ops`] and its plain values.

mod attention_batch;
mod weight;

pub use self::attention_batch::{AttentionBatch, BatchSequence, SequenceRows};
pub use self::weight::{DType, KernelError, RawTensor, WeightFormat, WeightLayout};
use crate::part::WeightPart;

/// Device memory that operations update in place, addressed by slot or block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateSpec {
    /// KV cache of one attention layer.
    KeyValue {
        /// Number of blocks in the pool.
        blocks: usize,
        /// Positions in a block.
        block_len: usize,
        /// Key width: kv heads times head width.
        width: usize,
    },
    /// State of a causal convolution: the last `rows` input rows of each slot.
    Tail {
        /// Number of slots.
        slots: usize,
        /// Input rows kept for each slot.
        rows: usize,
        /// Channels of a row.
        columns: usize,
    },
    /// Ids that each slot has produced, for the repetition penalty.
    TokenMask {
        /// Number of slots.
        slots: usize,
        /// Size of the vocabulary.
        vocabulary: usize,
    },
    /// Rows that outlive a step, addressed by index.
    Rows {
        /// Number of rows.
        rows: usize,
        /// Numbers in a row.
        columns: usize,
    },
}

/// Shape of one attention layer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AttentionShape {
    /// Number of query heads.
    pub heads: usize,
    /// Number of key and value heads; `heads` is a multiple.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Sliding window: positions that a row attends to, its own included; `None` for all up to its own.
    pub window: Option<usize>,
}

/// Settings of a mixture's router.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouterShape {
    /// Experts chosen for each row.
    pub top_k: usize,
    /// True if the chosen probabilities are scaled to sum to 1.
    pub normalise: bool,
}

/// Sampling parameters of one row. They apply in the order of the fields, which is the reference implementation's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SampleParams {
    /// Slot of the penalty's history; the sampled id is added to it.
    pub slot: usize,
    /// Divides positive and multiplies negative logits of ids produced before; 1 disables it.
    pub repetition_penalty: f32,
    /// Softmax temperature; 0 takes the most likely id (the lowest on a tie).
    pub temperature: f32,
    /// Keeps the most likely `top_k` ids; 0 keeps all.
    pub top_k: usize,
    /// Keeps the smallest set that reaches this probability; 1 keeps all.
    pub top_p: f32,
    /// Random number in 0..1 that the draw uses.
    pub uniform: f32,
}

/// Marks "no id": a row with logits that are not finite.
pub const NO_ID: u32 = u32::MAX;

/// Operations of a device. Tensors are packed `[rows, columns]` in single precision unless said otherwise.
///
/// Models check their weights at load, so a shape mismatch here is a defect and panics.
pub trait Ops {
    /// Activations, `[rows, columns]`.
    type T;
    /// Ids, one for each row.
    type Ids;
    /// A prepared weight, packed for the device.
    type Weight;
    /// Device memory updated in place; see [`StateSpec`].
    type State;
    /// Rows of an attention step, prepared for the device.
    type Batch;

    /// Prepares a weight in [`WeightFormat::Float`]. Fails if shape or size do not fit `layout`.
    fn weight(&self, layout: WeightLayout, parts: &[RawTensor<'_>]) -> Result<Self::Weight, KernelError>;
    /// Prepares a weight in `format`. [`WeightLayout::Linear`] and [`WeightLayout::Experts`] may have all formats, the others [`WeightFormat::Float`]. Fails
    /// with [`KernelError::Format`] if the device lacks the format; the default implementation has [`WeightFormat::Float`] alone.
    fn weight_in_format(
        &self,
        layout: WeightLayout,
        format: WeightFormat,
        parts: &[RawTensor<'_>],
    ) -> Result<Self::Weight, KernelError> {
        if format == WeightFormat::Float {
            return self.weight(layout, parts);
        }
        let name = parts.first().map_or("", |part| part.name).to_owned();
        Err(KernelError::Format { name, layout, format })
    }
    /// Prepares a weight of stored, packed or drawn parts. The default implementation takes stored parts only.
    fn weight_from_parts(
        &self,
        layout: WeightLayout,
        format: WeightFormat,
        parts: &[WeightPart<'_>],
    ) -> Result<Self::Weight, KernelError> {
        let stored = parts.iter().map(|part| match part {
            WeightPart::Stored(tensor) => Ok(*tensor),
            WeightPart::Packed(_) | WeightPart::Drawn(_) => Err(KernelError::Origin { name: part.name().to_owned() }),
        });
        self.weight_in_format(layout, format, &stored.collect::<Result<Vec<_>, _>>()?)
    }
    /// Returns the same device with buffers of its own, for a stage that runs concurrently: its tensors stay at the same addresses.
    fn with_own_buffers(&self) -> Self
    where
        Self: Sized;
    /// Allocates zeroed state.
    fn state(&self, spec: StateSpec) -> Self::State;
    /// Clears a slot of a [`StateSpec::TokenMask`].
    fn reset(&self, state: &mut Self::State, slot: usize);
    /// Copies a block of [`StateSpec::KeyValue`] over another.
    fn copy_block(&self, state: &mut Self::State, from: u32, to: u32);
    /// Prepares rows for [`Ops::attention`] and [`Ops::rotary`].
    fn batch(&self, sequences: &[SequenceRows<'_>]) -> Self::Batch;

    /// Copies a tensor to the device; `values.len()` must be a multiple of `columns`.
    fn tensor(&self, values: Vec<f32>, columns: usize) -> Self::T;
    /// Copies ids to the device.
    fn ids(&self, ids: &[u32]) -> Self::Ids;
    /// Copies a tensor to the host, row-major.
    fn read(&self, x: &Self::T) -> Vec<f32>;
    /// Copies ids to the host.
    fn read_ids(&self, ids: &Self::Ids) -> Vec<u32>;
    /// Returns the number of rows of a tensor.
    fn rows(&self, x: &Self::T) -> usize;
    /// Bytes of a number in the KV cache.
    fn kv_number_bytes(&self) -> usize {
        size_of::<f32>()
    }
    /// Returns the device address of a tensor; tests check with it that a repeated step keeps its addresses.
    fn address(&self, x: &Self::T) -> usize;

    /// Returns a copy.
    fn copy(&self, x: &Self::T) -> Self::T;
    /// Gathers the rows `at`, in that order.
    fn gather(&self, x: &Self::T, at: &[usize]) -> Self::T;
    /// Concatenates tensors of one width along the rows.
    fn concat(&self, parts: &[&Self::T]) -> Self::T;

    /// Looks up one table entry for each id. [`NO_ID`] gives zeros.
    fn embed(&self, table: &Self::Weight, ids: &Self::Ids) -> Self::T;
    /// Computes `x Wᵀ + b`.
    fn linear(&self, x: &Self::T, weight: &Self::Weight, bias: Option<&Self::Weight>) -> Self::T;
    /// Returns `length` columns from `start` on.
    fn narrow(&self, x: &Self::T, start: usize, length: usize) -> Self::T;
    /// Returns `x + y`.
    fn add(&self, x: Self::T, y: &Self::T) -> Self::T;
    /// Multiplies element by element: `x y`.
    fn mul(&self, x: Self::T, y: &Self::T) -> Self::T;
    /// Multiplies each row by a vector, column by column.
    fn scale(&self, x: Self::T, by: &Self::Weight) -> Self::T;
    /// Multiplies each number by a constant.
    fn scale_all(&self, x: Self::T, by: f32) -> Self::T;
    /// Root-mean-square norm over groups of columns as wide as `weight`: a whole row, or each head.
    fn rms_norm(&self, x: &Self::T, weight: &Self::Weight, eps: f32) -> Self::T;
    /// Layer norm of each row.
    fn layer_norm(&self, x: &Self::T, weight: &Self::Weight, bias: &Self::Weight, eps: f32) -> Self::T;
    /// Sigmoid linear unit, `x sigmoid(x)`.
    fn silu(&self, x: Self::T) -> Self::T;
    /// Returns `silu(first half of the columns) * second half`.
    fn silu_mul(&self, x: &Self::T) -> Self::T;
    /// Gaussian error linear unit in the exact (erf) form.
    fn gelu(&self, x: Self::T) -> Self::T;
    /// Gaussian error linear unit, approximated with a hyperbolic tangent.
    fn gelu_tanh(&self, x: Self::T) -> Self::T;
    /// Snake activation: `x + sin²(x eᵅ) / (eᵝ + 1e-9)`, α and β per column.
    fn snake(&self, x: Self::T, alpha: &Self::Weight, beta: &Self::Weight) -> Self::T;
    /// Limits each number to `[low, high]`.
    fn clamp(&self, x: Self::T, low: f32, high: f32) -> Self::T;
    /// Multiplies `y` by the sigmoid of `gate`, which has one column.
    fn sigmoid_gate(&self, y: Self::T, gate: &Self::T) -> Self::T;

    /// Rotary position embedding of each head (rotate-half form) at the batch's positions.
    fn rotary(&self, x: Self::T, batch: &Self::Batch, head_dim: usize, theta: f32) -> Self::T;
    /// Stores the rows' keys and values, then computes causal attention of each row over its own sequence.
    fn attention(
        &self,
        q: &Self::T,
        k: &Self::T,
        v: &Self::T,
        cache: &mut Self::State,
        batch: &Self::Batch,
        shape: AttentionShape,
    ) -> Self::T;
    /// Mixture of experts: softmax router, then the weighted sum of `down(silu(gate) * up)` over the chosen experts.
    fn experts(
        &self,
        x: &Self::T,
        router: &Self::Weight,
        gate_up: &Self::Weight,
        down: &Self::Weight,
        spec: RouterShape,
    ) -> Self::T;

    /// Convolution of `images` pictures `[height, width]` by a [`WeightLayout::Conv2d`]. `x` has one row for each pixel, row-major, with `in`
    /// channels. Each picture gives `[ceil(height / stride), ceil(width / stride)]`.
    fn conv2d(
        &self,
        x: &Self::T,
        images: usize,
        height: usize,
        width: usize,
        weight: &Self::Weight,
        bias: &Self::Weight,
    ) -> Self::T;
    /// Returns the same numbers, row-major, in rows of `columns`.
    fn reshape(&self, x: Self::T, columns: usize) -> Self::T;

    /// Samples an id for each row of logits. `allowed_mask` has 1 for each allowed id, 0 for the others.
    fn sample(
        &self,
        logits: &Self::T,
        params: &[SampleParams],
        allowed_mask: Option<&Self::Weight>,
        output_mask: Option<&mut Self::State>,
    ) -> Self::Ids;
}
