//! Operations of a step that a device can record once and repeat: whatever changes from step to step is read on the device, out of one
//! uploaded [`RowSpec`].

use crate::ops::Ops;
use crate::row_spec::{BatchSection, RowSpec, SpecSection};

/// The chunks of a packed batch at one level of a chain of convolutions, where a row of the first level has become `scale` rows.
///
/// References cut the first rows off transposed convolutions. Here they are kept, so that shapes do not depend on the state: the
/// first `skip` rows of a stream do not exist, which means that every operation reads them as zeros and gives zeros for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamLevel<I> {
    /// The numbers of a [`StreamSection`](crate::row_spec::StreamSection), in rows of the first level.
    pub chunks: I,
    /// Rows of this level for each row of the first.
    pub scale: usize,
    /// Rows of this level at a stream's start that do not exist.
    pub skip: usize,
}

impl<I: Clone> StreamLevel<I> {
    /// The first level.
    pub fn new(chunks: I) -> Self {
        Self { chunks, scale: 1, skip: 0 }
    }

    /// The level after a transposed convolution by `stride`. `cut`: its kernel is twice the stride and its layout says so, so that a
    /// stream's first row yields nothing.
    #[must_use]
    pub fn upsampled(&self, stride: usize, cut: bool) -> Self {
        let skip = (self.skip + usize::from(cut)) * stride;
        Self { chunks: self.chunks.clone(), scale: self.scale * stride, skip }
    }
}

impl<I> StreamLevel<I> {
    /// The same level of other chunks.
    pub fn over<J>(&self, chunks: J) -> StreamLevel<J> {
        StreamLevel { chunks, scale: self.scale, skip: self.skip }
    }
}

/// Taps of the filter of [`StepOps::segment_snake_at`].
pub const FILTER_TAPS: usize = 12;

/// Everything that decides the shapes of a step: steps of one key are the same operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StepKey {
    /// The stage's name.
    pub stage: &'static str,
    /// Rows that it is padded to.
    pub rows: usize,
    /// What else there is to tell apart: rows that sample, rows of audio.
    pub variant: usize,
}

/// Rows that a step is padded to on a device that repeats steps; above them multiples of the last.
const BUCKETS: [usize; 13] = [1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256];

/// The bucket of a step of `rows` rows on a device that repeats steps; few are enough for every number of rows.
pub fn bucket(rows: usize) -> usize {
    let fits = BUCKETS.iter().find(|&&bucket| bucket >= rows);
    fits.copied().unwrap_or(rows.next_multiple_of(BUCKETS[BUCKETS.len() - 1]))
}

/// What a step gives out: the step pushes, the device reads it back.
pub struct StepOutputs<O: StepOps> {
    /// Lists of ids.
    pub ids: Vec<O::Index>,
    /// Tensors.
    pub rows: Vec<O::T>,
}

impl<O: StepOps> Default for StepOutputs<O> {
    fn default() -> Self {
        Self { ids: Vec::new(), rows: Vec::new() }
    }
}

/// A step as a device is told of it: operations over a spec, and what it gives out.
pub type StepFn<'a, O> = &'a mut dyn FnMut(&O, &<O as StepOps>::Spec, &mut StepOutputs<O>);

/// What was read back of a step, each list after the one before.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ReadBack {
    /// Ids.
    pub ids: Vec<u32>,
    /// Numbers of tensors, row-major.
    pub numbers: Vec<f32>,
}

impl ReadBack {
    /// Takes everything out.
    pub fn clear(&mut self) {
        self.ids.clear();
        self.numbers.clear();
    }
}

/// The operations of [`Ops`] that take numbers from the host, with those numbers on the device.
///
/// A number of a row may be [`NO_ROW`](crate::row_spec::NO_ROW): that row is read as zeros and written nowhere.
pub trait StepOps: Ops {
    /// An uploaded row spec.
    type Spec;
    /// A list of ids or numbers of rows on the device.
    type Index: Clone;
    /// A step that was launched.
    type Ticket;

    /// Launches so far that were put together operation by operation, on a device that captures steps and replays them; `None` on one that
    /// does not.
    fn eager_steps(&self) -> Option<u64> {
        None
    }

    /// Rows that a step is padded to, which are at least `rows`.
    fn bucket(&self, rows: usize) -> usize;
    /// Host to device, all of it at once.
    fn upload(&self, spec: &RowSpec) -> Self::Spec;
    /// A list of the spec.
    fn index(&self, spec: &Self::Spec, at: SpecSection) -> Self::Index;
    /// Floats of the spec, in rows of `columns`.
    fn floats(&self, spec: &Self::Spec, at: SpecSection, columns: usize) -> Self::T;
    /// The rows of an attention step.
    fn batch_at(&self, spec: &Self::Spec, at: BatchSection) -> Self::Batch;
    /// Device to host.
    fn read_index(&self, index: &Self::Index) -> Vec<u32>;

    /// The rows `at`, in that order.
    fn gather_at(&self, x: &Self::T, at: &Self::Index) -> Self::T;
    /// `x` with row `at[i]` replaced by row `i` of `rows`.
    fn scatter_at(&self, x: Self::T, at: &Self::Index, rows: &Self::T) -> Self::T;
    /// Entries of a table, one for each id.
    fn embed_at(&self, table: &Self::Weight, ids: &Self::Index) -> Self::T;
    /// Writes row `i` of `rows` to row `at[i]` of a [`StateSpec::Rows`](crate::StateSpec::Rows).
    fn store(&self, state: &mut Self::State, at: &Self::Index, rows: &Self::T);
    /// The rows `at` of a [`StateSpec::Rows`](crate::StateSpec::Rows).
    fn load(&self, state: &Self::State, at: &Self::Index) -> Self::T;
    /// `x` with row `i` replaced by row `at[i]` of a [`StateSpec::Rows`](crate::StateSpec::Rows), or left where that is none.
    fn overlay(&self, x: Self::T, state: &Self::State, at: &Self::Index) -> Self::T;

    /// Attention in both directions within consecutive segments of rows, by the lengths of a
    /// [`SegmentSection`](crate::row_spec::SegmentSection); nothing is stored.
    fn segment_attention_at(
        &self,
        q: &Self::T,
        k: &Self::T,
        v: &Self::T,
        segments: &Self::Index,
        heads: usize,
    ) -> Self::T;
    /// Convolution ([`Layout::Conv1d`](crate::Layout::Conv1d), of an odd number of taps) centred on each row, within consecutive segments
    /// of rows; beyond a segment's ends lie zeros.
    fn segment_conv1d_at(
        &self,
        x: &Self::T,
        weight: &Self::Weight,
        bias: &Self::Weight,
        segments: &Self::Index,
    ) -> Self::T;
    /// [`Ops::snake`] at twice the rate, within consecutive segments of rows: each is upsampled by `filter`, a low-pass of
    /// [`FILTER_TAPS`] taps whose sum is 1, and the result downsampled by it. Beyond the ends of a segment, and of its activations,
    /// the nearest one is repeated.
    fn segment_snake_at(
        &self,
        x: &Self::T,
        alpha: &Self::Weight,
        beta: &Self::Weight,
        filter: &Self::Weight,
        segments: &Self::Index,
    ) -> Self::T;
    /// Causal convolution ([`Layout::Conv1d`](crate::Layout::Conv1d) or [`Layout::Depthwise`](crate::Layout::Depthwise)); before a
    /// stream's start lie zeros. Rows of the padding and rows that do not exist give zeros.
    fn conv1d_at(
        &self,
        x: &Self::T,
        weight: &Self::Weight,
        bias: &Self::Weight,
        tail: &mut Self::State,
        streams: &StreamLevel<Self::Index>,
    ) -> Self::T;
    /// Transposed convolution, `stride` rows for each row of `x`; `streams` are those of `x`. With `kernel = 2 * stride` and
    /// `cut` the first row of a stream gives zeros: the reference cuts `stride` rows off both ends.
    fn conv_transpose1d_at(
        &self,
        x: &Self::T,
        weight: &Self::Weight,
        bias: &Self::Weight,
        tail: &mut Self::State,
        streams: &StreamLevel<Self::Index>,
    ) -> Self::T;

    /// [`Ops::sample`], by the parameters of a [`SampleSection`](crate::row_spec::SampleSection).
    fn sample_at(
        &self,
        logits: &Self::T,
        params: &Self::Index,
        allowed_mask: Option<&Self::Weight>,
        output_mask: Option<&mut Self::State>,
    ) -> Self::Index;
    /// Begins a step: uploads `spec`, does what `step` says, and reads back what that gives out.
    ///
    /// A device may call `step` for the first launch of a key alone and repeat its operations after that. So `step` changes nothing on the
    /// host, reads nothing back, and finds whatever differs between steps in the spec.
    fn launch(&self, key: StepKey, spec: &RowSpec, step: StepFn<'_, Self>) -> Self::Ticket
    where
        Self: Sized;
    /// Blocks until the step is done; `back` then holds what it gave out.
    fn collect(&self, ticket: Self::Ticket, back: &mut ReadBack);

    /// Clears the slots of a [`StateSpec::TokenMask`](crate::StateSpec::TokenMask).
    fn reset_at(&self, state: &mut Self::State, slots: &Self::Index);
}
