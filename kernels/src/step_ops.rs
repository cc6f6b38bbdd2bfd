//! Operations of a step that a device can record once and replay: they read all inputs that change between steps on the device, out of one
//! uploaded [`RowSpec`].

use crate::ops::Ops;
use crate::row_spec::{BatchSection, RowSpec, SpecSection};

/// Chunks of a packed batch at one level of a chain of convolutions; a row of the first level is `scale` rows here.
///
/// References cut off the first rows of transposed convolutions. Here they are kept, so that shapes do not depend on state. The first
/// `skip` rows of a stream count as absent: every operation reads them as zeros and gives zeros for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamLevel<I> {
    /// Words of a [`StreamSection`](crate::row_spec::StreamSection), in rows of the first level.
    pub chunks: I,
    /// Rows of this level for each row of the first.
    pub scale: usize,
    /// Absent rows of this level at a stream's start.
    pub skip: usize,
}

impl<I: Clone> StreamLevel<I> {
    /// Returns the first level.
    pub fn new(chunks: I) -> Self {
        Self { chunks, scale: 1, skip: 0 }
    }

    /// Returns the level after a transposed convolution by `stride`. `cut`: its kernel is twice the stride and its layout cuts, so that a
    /// stream's first row yields nothing.
    #[must_use]
    pub fn upsampled(&self, stride: usize, cut: bool) -> Self {
        let skip = (self.skip + usize::from(cut)) * stride;
        Self { chunks: self.chunks.clone(), scale: self.scale * stride, skip }
    }
}

impl<I> StreamLevel<I> {
    /// Returns the same level over other chunks.
    pub fn over<J>(&self, chunks: J) -> StreamLevel<J> {
        StreamLevel { chunks, scale: self.scale, skip: self.skip }
    }
}

/// Taps of the filter of [`StepOps::segment_snake_at`].
pub const FILTER_TAPS: usize = 12;

/// Key of a step's shapes: steps of one key are the same operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StepKey {
    /// Name of the stage.
    pub stage: &'static str,
    /// Rows of the step, padding included.
    pub rows: usize,
    /// Further sizes that tell steps apart: rows that sample, rows of audio.
    pub variant: usize,
}

/// Padded row counts on a device that replays steps; above them multiples of the last.
const BUCKETS: [usize; 13] = [1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256];

/// Returns the bucket of a step of `rows` rows on a device that replays steps.
pub fn bucket(rows: usize) -> usize {
    let fits = BUCKETS.iter().find(|&&bucket| bucket >= rows);
    fits.copied().unwrap_or(rows.next_multiple_of(BUCKETS[BUCKETS.len() - 1]))
}

/// Outputs of a step: the step pushes them, the device reads them back.
pub struct StepOutputs<O: StepOps> {
    /// Lists of ids.
    pub ids: Vec<O::Index>,
    /// Tensors, read back row-major.
    pub rows: Vec<O::T>,
}

impl<O: StepOps> Default for StepOutputs<O> {
    fn default() -> Self {
        Self { ids: Vec::new(), rows: Vec::new() }
    }
}

/// A step as a closure: operations over a spec, and its outputs.
pub type StepFn<'a, O> = &'a mut dyn FnMut(&O, &<O as StepOps>::Spec, &mut StepOutputs<O>);

/// Read-back of a step's outputs, concatenated in their order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ReadBack {
    /// Ids of all lists.
    pub ids: Vec<u32>,
    /// Numbers of all tensors, row-major.
    pub numbers: Vec<f32>,
}

impl ReadBack {
    /// Removes all numbers.
    pub fn clear(&mut self) {
        self.ids.clear();
        self.numbers.clear();
    }
}

/// The operations of [`Ops`] that take numbers from the host, with those numbers on the device.
///
/// A row index may be [`NO_ROW`](crate::row_spec::NO_ROW): reads of it give zeros, writes to it do nothing.
pub trait StepOps: Ops {
    /// An uploaded row spec.
    type Spec;
    /// A list of ids or row indices on the device.
    type Index: Clone;
    /// Handle of a launched step.
    type Ticket;

    /// Number of steps so far that were launched eagerly, operation by operation, on a device that captures graphs; `None` on other
    /// devices.
    fn eager_steps(&self) -> Option<u64> {
        None
    }

    /// Returns the padded number of rows of a step, at least `rows`.
    fn bucket(&self, rows: usize) -> usize;
    /// Uploads a row spec in one copy.
    fn upload(&self, spec: &RowSpec) -> Self::Spec;
    /// Returns a list of the spec.
    fn index(&self, spec: &Self::Spec, at: SpecSection) -> Self::Index;
    /// Returns floats of the spec, in rows of `columns`.
    fn floats(&self, spec: &Self::Spec, at: SpecSection, columns: usize) -> Self::T;
    /// Returns the rows of an attention step.
    fn batch_at(&self, spec: &Self::Spec, at: BatchSection) -> Self::Batch;
    /// Copies a list to the host.
    fn read_index(&self, index: &Self::Index) -> Vec<u32>;

    /// Gathers the rows `at`, in that order.
    fn gather_at(&self, x: &Self::T, at: &Self::Index) -> Self::T;
    /// Replaces row `at[i]` of `x` with row `i` of `rows`.
    fn scatter_at(&self, x: Self::T, at: &Self::Index, rows: &Self::T) -> Self::T;
    /// Looks up one table entry for each id.
    fn embed_at(&self, table: &Self::Weight, ids: &Self::Index) -> Self::T;
    /// Writes row `i` of `rows` to row `at[i]` of a [`StateSpec::Rows`](crate::StateSpec::Rows).
    fn store(&self, state: &mut Self::State, at: &Self::Index, rows: &Self::T);
    /// Gathers the rows `at` of a [`StateSpec::Rows`](crate::StateSpec::Rows).
    fn load(&self, state: &Self::State, at: &Self::Index) -> Self::T;
    /// Replaces row `i` of `x` with row `at[i]` of a [`StateSpec::Rows`](crate::StateSpec::Rows); [`NO_ROW`](crate::row_spec::NO_ROW)
    /// leaves it.
    fn overlay(&self, x: Self::T, state: &Self::State, at: &Self::Index) -> Self::T;

    /// Bidirectional attention within consecutive segments of rows, by the lengths of a
    /// [`SegmentSection`](crate::row_spec::SegmentSection); no state is stored.
    fn segment_attention_at(
        &self,
        q: &Self::T,
        k: &Self::T,
        v: &Self::T,
        segments: &Self::Index,
        heads: usize,
    ) -> Self::T;
    /// Centred convolution ([`WeightLayout::Conv1d`](crate::WeightLayout::Conv1d), of an odd number of taps) within consecutive segments of rows, with
    /// zeros beyond a segment's ends.
    fn segment_conv1d_at(
        &self,
        x: &Self::T,
        weight: &Self::Weight,
        bias: &Self::Weight,
        segments: &Self::Index,
    ) -> Self::T;
    /// [`Ops::snake`] at twice the rate within consecutive segments of rows: each is upsampled by `filter`, a low-pass of [`FILTER_TAPS`]
    /// taps whose sum is 1, and the result is downsampled by it. Rows and activations beyond a segment's ends repeat the nearest one.
    fn segment_snake_at(
        &self,
        x: &Self::T,
        alpha: &Self::Weight,
        beta: &Self::Weight,
        filter: &Self::Weight,
        segments: &Self::Index,
    ) -> Self::T;
    /// Causal convolution ([`WeightLayout::Conv1d`](crate::WeightLayout::Conv1d) or [`WeightLayout::Depthwise`](crate::WeightLayout::Depthwise)), with zeros before
    /// a stream's start. Padding rows and absent rows give zeros.
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

    /// [`Ops::sample`] with the parameters of a [`SampleSection`](crate::row_spec::SampleSection).
    fn sample_at(
        &self,
        logits: &Self::T,
        params: &Self::Index,
        allowed_mask: Option<&Self::Weight>,
        output_mask: Option<&mut Self::State>,
    ) -> Self::Index;
    /// Launches a step: uploads `spec`, runs `step`, and starts the read-back of its outputs.
    ///
    /// A device may call `step` only at the first launch of a key and replay its operations after that. So `step` must not change anything
    /// on the host or read back, and takes everything that differs between steps from the spec.
    fn launch(&self, key: StepKey, spec: &RowSpec, step: StepFn<'_, Self>) -> Self::Ticket
    where
        Self: Sized;
    /// Blocks until the step is complete, then fills `back` with its outputs.
    fn collect(&self, ticket: Self::Ticket, back: &mut ReadBack);

    /// Clears the slots of a [`StateSpec::TokenMask`](crate::StateSpec::TokenMask).
    fn reset_at(&self, state: &mut Self::State, slots: &Self::Index);
}
