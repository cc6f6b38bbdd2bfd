//! The device trait.

use std::ops::Range;

use crate::checked_parts::CheckedParts;
use crate::row_spec::{BatchSection, RowSpec, SpecSection};
use crate::shapes::{Activation, AttentionShape, RouterShape, SegmentShape, StateSpec};
use crate::step::{ReadBack, StepKey, StreamLevel};
use crate::weight::KernelError;

/// Outputs of a step: the step pushes them, the device reads them back.
pub struct StepOutputs<O: Ops> {
    /// Lists of ids.
    pub ids: Vec<O::Index>,
    /// Tensors, read back row-major.
    pub rows: Vec<O::T>,
}

impl<O: Ops> Default for StepOutputs<O> {
    fn default() -> Self {
        Self { ids: Vec::new(), rows: Vec::new() }
    }
}

/// A step as a closure: operations over a spec, and its outputs.
pub type StepFn<'a, O> = &'a mut dyn FnMut(&O, &<O as Ops>::Spec, &mut StepOutputs<O>);

/// Operations of a device. Tensors are packed `[rows, columns]` in single precision unless said otherwise.
///
/// A device may record a step once and replay it: all that changes between steps is read on the device, out of one uploaded [`RowSpec`].
/// A row index may be [`NO_ROW`](crate::row_spec::NO_ROW): reads of it give zeros, writes to it do nothing.
///
/// Models check their weights at load, so a shape mismatch here is a defect and panics.
pub trait Ops {
    /// Activations, `[rows, columns]`.
    type T;
    /// A prepared weight, packed for the device.
    type Weight;
    /// Device memory updated in place; see [`StateSpec`].
    type State;
    /// Rows of an attention step, prepared for the device.
    type Batch;
    /// An uploaded row spec.
    type Spec;
    /// A list of ids or row indices on the device.
    type Index: Clone;
    /// Handle of a launched step.
    type Ticket;

    /// Returns the same device with buffers of its own, for a stage that runs concurrently: its tensors stay at the same addresses.
    fn with_own_buffers(&self) -> Self
    where
        Self: Sized;
    /// Number of steps so far that were launched eagerly, operation by operation, on a device that captures graphs; `None` on other
    /// devices.
    fn eager_steps(&self) -> Option<u64> {
        None
    }
    /// Bytes of a number in the KV cache.
    fn kv_number_bytes(&self) -> usize {
        size_of::<f32>()
    }
    /// Returns the padded number of rows of a step, at least `rows`.
    fn bucket(&self, rows: usize) -> usize;

    /// Packs a weight. Fails if a number cannot be quantised, or if the device has too little memory.
    fn weight(&self, parts: &CheckedParts<'_>) -> Result<Self::Weight, KernelError>;
    /// Allocates zeroed state.
    fn state(&self, spec: StateSpec) -> Self::State;
    /// Copies a block of [`StateSpec::KeyValue`] over another.
    fn copy_block(&self, state: &mut Self::State, from: u32, to: u32);
    /// Discards the contents of `range` of `parts` equal parts that the state consists of, such as its blocks or its slots' rows: they
    /// are zero or as before. A device may give their memory to others until they are written again. Returns the bytes given back.
    fn discard(&self, _state: &mut Self::State, _range: Range<usize>, _parts: usize) -> usize {
        0
    }
    /// Frees working memory that no step has used since the last call. True if some is left that the next call may free.
    fn shrink(&self) -> bool {
        false
    }
    /// Copies a tensor to the device; `values.len()` must be a multiple of `columns`.
    fn tensor(&self, values: Vec<f32>, columns: usize) -> Self::T;
    /// Copies a tensor to the host, row-major.
    fn read(&self, x: &Self::T) -> Vec<f32>;
    /// Returns the number of rows of a tensor.
    fn rows(&self, x: &Self::T) -> usize;

    /// Launches a step: uploads `spec`, runs `step`, and starts the read-back of its outputs.
    ///
    /// A device may call `step` only at the first launch of a key and replay its operations after that. So `step` must not change anything
    /// on the host or read back, and takes everything that differs between steps from the spec.
    fn launch(&self, key: StepKey, spec: &RowSpec, step: StepFn<'_, Self>) -> Self::Ticket
    where
        Self: Sized;
    /// Blocks until the step is complete, then fills `back` with its outputs.
    fn collect(&self, ticket: Self::Ticket, back: &mut ReadBack);
    /// Uploads a row spec in one copy, for operations outside of a step.
    fn upload(&self, spec: &RowSpec) -> Self::Spec;
    /// Returns a list of the spec.
    fn index(&self, spec: &Self::Spec, at: SpecSection) -> Self::Index;
    /// Returns floats of the spec, in rows of `columns`.
    fn floats(&self, spec: &Self::Spec, at: SpecSection, columns: usize) -> Self::T;
    /// Returns the rows of an attention step.
    fn batch_at(&self, spec: &Self::Spec, at: BatchSection) -> Self::Batch;

    /// Returns a copy.
    fn copy(&self, x: &Self::T) -> Self::T;
    /// Concatenates tensors of one width along the rows.
    fn concat(&self, parts: &[&Self::T]) -> Self::T;
    /// Concatenates tensors of as many rows along the columns.
    fn concat_columns(&self, parts: &[&Self::T]) -> Self::T;
    /// Returns `length` columns from `start` on.
    fn narrow(&self, x: &Self::T, start: usize, length: usize) -> Self::T;
    /// Returns the same numbers, row-major, in rows of `columns`.
    fn reshape(&self, x: Self::T, columns: usize) -> Self::T;
    /// Gathers the rows `at`, in that order.
    fn gather_at(&self, x: &Self::T, at: &Self::Index) -> Self::T;
    /// Replaces row `at[i]` of `x` with row `i` of `rows`.
    fn scatter_at(&self, x: Self::T, at: &Self::Index, rows: &Self::T) -> Self::T;
    /// Adds [`HELD_PENALTY`](crate::shapes::HELD_PENALTY) to the columns of row `at[i]` whose bits are 0. `bits` has
    /// [`held_words`](crate::shapes::held_words) words for each of these rows: bit `c % 32` of word `c / 32` is column `c`.
    /// [`NO_ROW`](crate::row_spec::NO_ROW) holds none.
    fn hold_at(&self, x: Self::T, at: &Self::Index, bits: &Self::Index) -> Self::T;
    /// Looks up one entry of a table, or one row `[in]` of a matrix of [`WeightLayout::Linear`](crate::WeightLayout::Linear), for each id.
    /// [`NO_ID`](crate::NO_ID) gives zeros.
    fn embed_at(&self, table: &Self::Weight, ids: &Self::Index) -> Self::T;
    /// Writes row `i` of `rows` to row `at[i]` of a [`StateSpec::Rows`].
    fn store(&self, state: &mut Self::State, at: &Self::Index, rows: &Self::T);
    /// Gathers the rows `at` of a [`StateSpec::Rows`].
    fn load(&self, state: &Self::State, at: &Self::Index) -> Self::T;
    /// Replaces row `i` of `x` with row `at[i]` of a [`StateSpec::Rows`]; [`NO_ROW`](crate::row_spec::NO_ROW) leaves it.
    fn overlay(&self, x: Self::T, state: &Self::State, at: &Self::Index) -> Self::T;

    /// Computes `x Wᵀ + b`.
    fn linear(&self, x: &Self::T, weight: &Self::Weight, bias: Option<&Self::Weight>) -> Self::T;
    /// Returns `x + y`.
    fn add(&self, x: Self::T, y: &Self::T) -> Self::T;
    /// Adds `y` and returns the sum with its [`Ops::rms_norm`] over whole rows: both in one pass on a device where passes cost.
    fn add_norm(&self, x: Self::T, y: &Self::T, weight: &Self::Weight, eps: f32) -> (Self::T, Self::T) {
        let sum = self.add(x, y);
        let normed = self.rms_norm(&sum, weight, eps);
        (sum, normed)
    }
    /// Multiplies element by element: `x y`.
    fn mul(&self, x: Self::T, y: &Self::T) -> Self::T;
    /// Multiplies each row by a vector, column by column.
    fn scale(&self, x: Self::T, by: &Self::Weight) -> Self::T;
    /// Multiplies each number by a constant.
    fn scale_all(&self, x: Self::T, by: f32) -> Self::T;
    /// Limits each number to `[low, high]`.
    fn clamp(&self, x: Self::T, low: f32, high: f32) -> Self::T;
    /// Root-mean-square norm over groups of columns as wide as `weight`: a whole row, or each head.
    fn rms_norm(&self, x: &Self::T, weight: &Self::Weight, eps: f32) -> Self::T;
    /// Layer norm of each row.
    fn layer_norm(&self, x: &Self::T, weight: &Self::Weight, bias: &Self::Weight, eps: f32) -> Self::T;
    /// Layer norm of each segment as a whole: mean and variance are those of all its rows and columns, weight and bias one for each column.
    /// Segments are consecutive, as in [`Ops::segment_attention_at`].
    fn segment_norm_at(
        &self,
        x: &Self::T,
        weight: &Self::Weight,
        bias: &Self::Weight,
        eps: f32,
        segments: &Self::Index,
    ) -> Self::T;
    /// Norm of each column over the rows of each segment, scaled and shifted by the segment's row of `style`: `(1 + scale) norm(x) + shift`,
    /// with the scales of all columns before their shifts. Segments are consecutive, as in [`Ops::segment_attention_at`]; those beyond the
    /// rows of `style` give zeros.
    fn segment_instance_norm_at(&self, x: &Self::T, style: &Self::T, eps: f32, segments: &Self::Index) -> Self::T;
    /// Applies a function to each number.
    fn activation(&self, x: Self::T, function: Activation) -> Self::T;
    /// Returns `silu(first half of the columns) * second half`.
    fn silu_mul(&self, x: &Self::T) -> Self::T;
    /// Returns `first half of the columns * sigmoid(second half)`.
    fn sigmoid_mul(&self, x: &Self::T) -> Self::T;
    /// Multiplies `y` by the sigmoid of `gate`, which has one column.
    fn sigmoid_gate(&self, y: Self::T, gate: &Self::T) -> Self::T;
    /// Snake activation: `x + magnitude sin²(x frequency)`, both per column. [`snake_vectors`](crate::shapes::snake_vectors) prepares them.
    fn snake(&self, x: Self::T, frequency: &Self::Weight, magnitude: &Self::Weight) -> Self::T;

    /// Rotary position embedding of each head (rotate-half form) at the batch's positions. `frequencies` is a vector with an inverse frequency
    /// for each pair of a head's numbers, which [`rotary_frequencies`](crate::shapes::rotary_frequencies) computes.
    fn rotary(&self, x: Self::T, batch: &Self::Batch, frequencies: &Self::Weight) -> Self::T;
    /// Splits rows of queries, keys and values, in that order, into the three. The heads of queries and keys are normed if there are `norms`,
    /// of queries and of keys, and then rotated if there are `frequencies`: [`Ops::narrow`], [`Ops::rms_norm`] and [`Ops::rotary`] in one pass
    /// on a device where passes cost.
    fn split_heads(
        &self,
        rows: &Self::T,
        norms: Option<(&Self::Weight, &Self::Weight)>,
        eps: f32,
        batch: &Self::Batch,
        frequencies: Option<&Self::Weight>,
        shape: AttentionShape,
    ) -> [Self::T; 3] {
        let [q, kv] = [shape.heads, shape.kv_heads].map(|heads| heads * shape.head_dim);
        let (mut queries, mut keys) = (self.narrow(rows, 0, q), self.narrow(rows, q, kv));
        let values = self.narrow(rows, q + kv, kv);
        if let Some((of_queries, of_keys)) = norms {
            queries = self.rms_norm(&queries, of_queries, eps);
            keys = self.rms_norm(&keys, of_keys, eps);
        }
        if let Some(frequencies) = frequencies {
            queries = self.rotary(queries, batch, frequencies);
            keys = self.rotary(keys, batch, frequencies);
        }
        [queries, keys, values]
    }
    /// Stores the rows' keys and values, then computes attention of each row over its own sequence, causal unless the shape has a chunk.
    fn attention(
        &self,
        q: &Self::T,
        k: &Self::T,
        v: &Self::T,
        cache: &mut Self::State,
        batch: &Self::Batch,
        shape: AttentionShape,
    ) -> Self::T;
    /// Stores the rows' keys and values at their positions.
    fn store_keys(&self, k: &Self::T, v: &Self::T, cache: &mut Self::State, batch: &Self::Batch);
    /// [`Ops::attention`] over keys and values that were stored before, for rows without keys of their own: cross attention, for instance. A
    /// row at a sequence's last position sees all of it; with a chunk as long as the sequence, so do the rows before it.
    fn stored_attention(
        &self,
        q: &Self::T,
        cache: &mut Self::State,
        batch: &Self::Batch,
        shape: AttentionShape,
    ) -> Self::T;
    /// Attention within consecutive segments of rows, by the lengths of a [`SegmentSection`](crate::row_spec::SegmentSection), in both
    /// directions or with a reach; no state is stored.
    fn segment_attention_at(
        &self,
        q: &Self::T,
        k: &Self::T,
        v: &Self::T,
        segments: &Self::Index,
        shape: SegmentShape,
    ) -> Self::T;
    /// Recurrence of an LSTM within consecutive segments of rows, from a segment's last row on if `reverse`. `x` has the inputs of the input,
    /// forget, cell and output gate, biases included; `hidden` is a [`WeightLayout::Linear`](crate::WeightLayout::Linear) in single
    /// precision from the state to all four. Returns the state after each row.
    fn segment_lstm_at(&self, x: &Self::T, hidden: &Self::Weight, segments: &Self::Index, reverse: bool) -> Self::T;
    /// Mixture of experts: softmax router, then the weighted sum of `down(silu(gate) * up)` over the chosen experts.
    fn experts(
        &self,
        x: &Self::T,
        router: &Self::Weight,
        gate_up: &Self::Weight,
        down: &Self::Weight,
        spec: RouterShape,
    ) -> Self::T;

    /// Convolution of `images` pictures `[height, width]` by a [`WeightLayout::Conv2d`](crate::WeightLayout::Conv2d). `x` has one row for
    /// each pixel, row-major, with `in` channels. Each picture gives `[ceil(height / stride), ceil(width / stride)]`.
    fn conv2d(
        &self,
        x: &Self::T,
        images: usize,
        height: usize,
        width: usize,
        weight: &Self::Weight,
        bias: &Self::Weight,
    ) -> Self::T;
    /// Causal convolution ([`WeightLayout::Conv1d`](crate::WeightLayout::Conv1d), [`WeightLayout::GroupedConv1d`](crate::WeightLayout::GroupedConv1d)
    /// or [`WeightLayout::Depthwise`](crate::WeightLayout::Depthwise)), with zeros before a stream's start. Padding rows and absent rows give zeros.
    fn conv1d_at(
        &self,
        x: &Self::T,
        weight: &Self::Weight,
        bias: &Self::Weight,
        tail: &mut Self::State,
        streams: &StreamLevel<Self::Index>,
    ) -> Self::T;
    /// Transposed convolution, `stride` rows for each row of `x`; `streams` are those of `x`. With `kernel = 2 * stride` and `cut` the
    /// first row of a stream gives zeros: the reference cuts `stride` rows off both ends.
    fn conv_transpose1d_at(
        &self,
        x: &Self::T,
        weight: &Self::Weight,
        bias: &Self::Weight,
        tail: &mut Self::State,
        streams: &StreamLevel<Self::Index>,
    ) -> Self::T;
    /// Centred convolution ([`WeightLayout::Conv1d`](crate::WeightLayout::Conv1d) or
    /// [`WeightLayout::GroupedConv1d`](crate::WeightLayout::GroupedConv1d), of an odd number of taps) within consecutive segments of rows, with
    /// zeros beyond a segment's ends.
    fn segment_conv1d_at(
        &self,
        x: &Self::T,
        weight: &Self::Weight,
        bias: &Self::Weight,
        segments: &Self::Index,
    ) -> Self::T;
    /// Computes the `rows` of [`Ops::segment_conv1d_at`] over one segment `x` into `out`, or into a new result whose other rows are not set.
    /// Ranges give the bits of the whole. So a long convolution can be computed in parts.
    fn segment_conv1d_rows(
        &self,
        out: Option<Self::T>,
        x: &Self::T,
        weight: &Self::Weight,
        bias: &Self::Weight,
        rows: Range<usize>,
    ) -> Self::T;
    /// [`Ops::snake`] at twice the rate within consecutive segments of rows: each is upsampled by `filter`, a low-pass of
    /// [`FILTER_TAPS`](crate::FILTER_TAPS) taps whose sum is 1, and the result is downsampled by it. Rows and activations beyond a segment's ends repeat the nearest one.
    fn segment_snake_at(
        &self,
        x: &Self::T,
        frequency: &Self::Weight,
        magnitude: &Self::Weight,
        filter: &Self::Weight,
        segments: &Self::Index,
    ) -> Self::T;

    /// Samples an id for each row of logits, with the parameters of a [`SampleSection`](crate::row_spec::SampleSection). `allowed_mask`
    /// has 1 for each allowed id, 0 for the others.
    fn sample_at(
        &self,
        logits: &Self::T,
        params: &Self::Index,
        allowed_mask: Option<&Self::Weight>,
        output_mask: Option<&mut Self::State>,
    ) -> Self::Index;
    /// Clears the slots of a [`StateSpec::TokenMask`].
    fn reset_at(&self, state: &mut Self::State, slots: &Self::Index);
}
