//! The trait that models are written over, and the plain values that cross it.

mod attention_batch;
mod weight;

pub use self::attention_batch::{AttentionBatch, BatchSequence, SequenceRows};
pub use self::weight::{DType, WeightFormat, KernelError, WeightLayout, RawTensor};
use crate::part::WeightPart;

/// Memory of a device that operations update in place, addressed by slot or block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateSpec {
    /// Keys and values of one attention layer.
    KeyValue {
        /// Blocks in the pool.
        blocks: usize,
        /// Positions in a block.
        block_len: usize,
        /// Key width: kv heads times head width.
        width: usize,
    },
    /// What a convolution remembers of its input: the last `rows` rows for each slot.
    Tail {
        /// Slots.
        slots: usize,
        /// Rows remembered.
        rows: usize,
        /// Channels.
        columns: usize,
    },
    /// Which ids a slot has produced, for the repetition penalty.
    TokenMask {
        /// Slots.
        slots: usize,
        /// Ids.
        vocabulary: usize,
    },
    /// Rows that outlive a step, addressed by their numbers.
    Rows {
        /// How many.
        rows: usize,
        /// Numbers in a row.
        columns: usize,
    },
}

/// Sizes of one attention layer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AttentionShape {
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; `heads` is a multiple.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Positions that a row sees, its own included; `None` for all before it.
    pub window: Option<usize>,
}

/// How experts are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouterShape {
    /// Experts for each row.
    pub top_k: usize,
    /// Whether the chosen probabilities are scaled to sum to 1.
    pub normalise: bool,
}

/// How one row's id is chosen; fields are applied in this order, which is the reference implementation's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SampleParams {
    /// Slot of the penalty's history; the id chosen is added to it.
    pub slot: usize,
    /// Divides positive and multiplies negative logits of ids produced before; 1 is none.
    pub repetition_penalty: f32,
    /// 0 chooses the most likely id (the lowest one on a tie).
    pub temperature: f32,
    /// Keep the most likely `top_k`; 0 keeps all.
    pub top_k: usize,
    /// Keep the smallest set that reaches this probability; 1 keeps all.
    pub top_p: f32,
    /// A random number in 0..1 that decides.
    pub uniform: f32,
}

/// The id that stands for "no id": a row whose logits held a value that is not finite.
pub const NO_ID: u32 = u32::MAX;

/// The operations of a device. Tensors are packed `[rows, columns]` in single precision unless said otherwise.
///
/// Shapes must fit: a model checks its weights when it loads, so that a mismatch here is a defect and panics.
pub trait Ops {
    /// Activations.
    type T;
    /// Ids, one a row.
    type Ids;
    /// A prepared weight.
    type Weight;
    /// Memory updated in place.
    type State;
    /// The rows of an attention step, prepared for the device.
    type Batch;

    /// Prepares a weight.
    fn weight(&self, layout: WeightLayout, parts: &[RawTensor<'_>]) -> Result<Self::Weight, KernelError>;
    /// Prepares a weight in a format of its own. [`Layout::Linear`] and [`Layout::Experts`] may have all formats, the others
    /// [`Format::Float`]. What a device does not have is refused by name; by default it has [`Format::Float`] alone.
    fn weight_in_format(&self, layout: WeightLayout, format: WeightFormat, parts: &[RawTensor<'_>]) -> Result<Self::Weight, KernelError> {
        if format == WeightFormat::Float {
            return self.weight(layout, parts);
        }
        let name = parts.first().map_or("", |part| part.name).to_owned();
        Err(KernelError::Format { name, layout, format })
    }
    /// Prepares a weight of parts that a checkpoint need not have. By default a device takes none but stored ones.
    fn weight_from_parts(&self, layout: WeightLayout, format: WeightFormat, parts: &[WeightPart<'_>]) -> Result<Self::Weight, KernelError> {
        let stored = parts.iter().map(|part| match part {
            WeightPart::Stored(tensor) => Ok(*tensor),
            WeightPart::Packed(_) | WeightPart::Drawn(_) => Err(KernelError::Origin { name: part.name().to_owned() }),
        });
        self.weight_in_format(layout, format, &stored.collect::<Result<Vec<_>, _>>()?)
    }
    /// The same device with buffers of its own, for a stage that runs beside others: its tensors stay at the same addresses.
    fn with_own_buffers(&self) -> Self
    where
        Self: Sized;
    /// Makes zeroed state.
    fn state(&self, spec: StateSpec) -> Self::State;
    /// Clears a slot of a [`StateSpec::TokenMask`].
    fn reset(&self, state: &mut Self::State, slot: usize);
    /// Copies a block of [`StateSpec::KeyValue`] onto another.
    fn copy_block(&self, state: &mut Self::State, from: u32, to: u32);
    /// Prepares rows for [`Ops::attention`] and [`Ops::rotary`].
    fn batch(&self, sequences: &[SequenceRows<'_>]) -> Self::Batch;

    /// Host to device: `values.len()` must be a multiple of `columns`.
    fn tensor(&self, values: Vec<f32>, columns: usize) -> Self::T;
    /// Host to device.
    fn ids(&self, ids: &[u32]) -> Self::Ids;
    /// Device to host, row-major.
    fn read(&self, x: &Self::T) -> Vec<f32>;
    /// Device to host.
    fn read_ids(&self, ids: &Self::Ids) -> Vec<u32>;
    /// Rows of a tensor.
    fn rows(&self, x: &Self::T) -> usize;
    /// Bytes that a number takes in states of keys and values.
    fn kv_number_bytes(&self) -> usize {
        size_of::<f32>()
    }
    /// Address of a tensor on the device, for proofs that a step which repeats finds its tensors at the same places.
    fn address(&self, x: &Self::T) -> usize;

    /// The same numbers once more.
    fn copy(&self, x: &Self::T) -> Self::T;
    /// The rows `at`, in that order.
    fn gather(&self, x: &Self::T, at: &[usize]) -> Self::T;
    /// Several tensors of one width, one under the other.
    fn concat(&self, parts: &[&Self::T]) -> Self::T;

    /// Entries of a table, one for each id. [`NO_ID`] gives zeros.
    fn embed(&self, table: &Self::Weight, ids: &Self::Ids) -> Self::T;
    /// `x Wᵀ + b`.
    fn linear(&self, x: &Self::T, weight: &Self::Weight, bias: Option<&Self::Weight>) -> Self::T;
    /// `length` columns from `start` on.
    fn narrow(&self, x: &Self::T, start: usize, length: usize) -> Self::T;
    /// `x + y`.
    fn add(&self, x: Self::T, y: &Self::T) -> Self::T;
    /// `x y`, number by number.
    fn mul(&self, x: Self::T, y: &Self::T) -> Self::T;
    /// Each row times a vector, column by column.
    fn scale(&self, x: Self::T, by: &Self::Weight) -> Self::T;
    /// Each number times a constant.
    fn scale_all(&self, x: Self::T, by: f32) -> Self::T;
    /// Root-mean-square norm over groups of as many columns as `weight` has (a whole row, or each head).
    fn rms_norm(&self, x: &Self::T, weight: &Self::Weight, eps: f32) -> Self::T;
    /// Layer norm of each row.
    fn layer_norm(&self, x: &Self::T, weight: &Self::Weight, bias: &Self::Weight, eps: f32) -> Self::T;
    /// `silu(x)`.
    fn silu(&self, x: Self::T) -> Self::T;
    /// `silu(first half of the columns) * second half`.
    fn silu_mul(&self, x: &Self::T) -> Self::T;
    /// Gaussian error linear unit, the exact (erf) form.
    fn gelu(&self, x: Self::T) -> Self::T;
    /// Gaussian error linear unit, approximated by a hyperbolic tangent.
    fn gelu_tanh(&self, x: Self::T) -> Self::T;
    /// `x + sin²(x eᵅ) / (eᵝ + 1e-9)`, α and β per column.
    fn snake(&self, x: Self::T, alpha: &Self::Weight, beta: &Self::Weight) -> Self::T;
    /// Limits each number to `[low, high]`.
    fn clamp(&self, x: Self::T, low: f32, high: f32) -> Self::T;
    /// `y` times the sigmoid of `gate`, which has one column.
    fn sigmoid_gate(&self, y: Self::T, gate: &Self::T) -> Self::T;

    /// Rotary position embedding of each head (rotate-half form), all at the batch's positions.
    fn rotary(&self, x: Self::T, batch: &Self::Batch, head_dim: usize, theta: f32) -> Self::T;
    /// Stores the rows' keys and values, then causal attention over each row's own sequence.
    fn attention(
        &self,
        q: &Self::T,
        k: &Self::T,
        v: &Self::T,
        cache: &mut Self::State,
        batch: &Self::Batch,
        shape: AttentionShape,
    ) -> Self::T;
    /// Mixture of experts: softmax router, then `down(silu(gate) * up)` of each chosen expert, weighted.
    fn experts(
        &self,
        x: &Self::T,
        router: &Self::Weight,
        gate_up: &Self::Weight,
        down: &Self::Weight,
        spec: RouterShape,
    ) -> Self::T;

    /// Convolution of `images` pictures `[height, width]` (row-major, `in` channels innermost: `x` has one row for each
    /// pixel) by a [`Layout::Conv2d`]; gives `[ceil(height / stride), ceil(width / stride)]` each.
    fn conv2d(
        &self,
        x: &Self::T,
        images: usize,
        height: usize,
        width: usize,
        weight: &Self::Weight,
        bias: &Self::Weight,
    ) -> Self::T;
    /// The same numbers, row-major, in rows of `columns`.
    fn reshape(&self, x: Self::T, columns: usize) -> Self::T;

    /// Chooses an id for each row of logits. `allowed_mask` masks ids by 0 (never) and 1.
    fn sample(
        &self,
        logits: &Self::T,
        params: &[SampleParams],
        allowed_mask: Option<&Self::Weight>,
        output_mask: Option<&mut Self::State>,
    ) -> Self::Ids;
}
