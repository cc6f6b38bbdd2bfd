//! Operations of a step that a device can record once and repeat: whatever changes from step to step is read on the device, out of one
//! uploaded [`RowSpec`].

use crate::ops::Ops;
use crate::row_spec::{BatchSection, RowSpec, Section};

/// The chunks of a packed batch at one level of a chain of convolutions, where a row of the first level has become `scale` rows.
///
/// The reference cuts the first rows off each transposed convolution. Here they are kept, so that shapes do not depend on the state: the
/// first `skip` rows of a stream do not exist, which means that every operation reads them as zeros and gives zeros for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Streams<I> {
    /// The numbers of a [`StreamSection`](crate::row_spec::StreamSection), in rows of the first level.
    pub chunks: I,
    /// Rows of this level for each row of the first.
    pub scale: usize,
    /// Rows of this level at a stream's start that do not exist.
    pub skip: usize,
}

impl<I: Clone> Streams<I> {
    /// The first level.
    pub fn new(chunks: I) -> Self {
        Self { chunks, scale: 1, skip: 0 }
    }

    /// The level after a transposed convolution by `stride`. `cut`: its kernel is twice the stride, so that a stream's first row yields
    /// nothing.
    #[must_use]
    pub fn upsampled(&self, stride: usize, cut: bool) -> Self {
        let skip = (self.skip + usize::from(cut)) * stride;
        Self { chunks: self.chunks.clone(), scale: self.scale * stride, skip }
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

    /// Rows that a step is padded to, which are at least `rows`.
    fn bucket(&self, rows: usize) -> usize;
    /// Host to device, all of it at once.
    fn upload(&self, spec: &RowSpec) -> Self::Spec;
    /// A list of the spec.
    fn index(&self, spec: &Self::Spec, at: Section) -> Self::Index;
    /// Floats of the spec, in rows of `columns`.
    fn floats(&self, spec: &Self::Spec, at: Section, columns: usize) -> Self::T;
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

    /// [`Ops::segment_attention`], by the lengths of a [`SegmentSection`](crate::row_spec::SegmentSection).
    fn segment_attention_at(
        &self,
        q: &Self::T,
        k: &Self::T,
        v: &Self::T,
        segments: &Self::Index,
        heads: usize,
    ) -> Self::T;
    /// [`Ops::conv1d`]; rows of the padding and rows that do not exist give zeros.
    fn conv1d_at(
        &self,
        x: &Self::T,
        weight: &Self::Weight,
        bias: &Self::Weight,
        tail: &mut Self::State,
        streams: &Streams<Self::Index>,
    ) -> Self::T;
    /// [`Ops::conv_transpose1d`], `stride` rows for each row of `x`; `streams` are those of `x`.
    fn conv_transpose1d_at(
        &self,
        x: &Self::T,
        weight: &Self::Weight,
        bias: &Self::Weight,
        tail: &mut Self::State,
        streams: &Streams<Self::Index>,
    ) -> Self::T;

    /// [`Ops::sample`], by the parameters of a [`SampleSection`](crate::row_spec::SampleSection).
    fn sample_at(
        &self,
        logits: &Self::T,
        params: &Self::Index,
        allowed_mask: Option<&Self::Weight>,
        output_mask: Option<&mut Self::State>,
    ) -> Self::Index;
    /// Clears the slots of a [`StateSpec::TokenMask`](crate::StateSpec::TokenMask).
    fn reset_at(&self, state: &mut Self::State, slots: &Self::Index);
}
