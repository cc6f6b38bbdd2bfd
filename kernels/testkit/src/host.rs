//! Operations on numbers of the host, outside of a launched step: each uploads a row spec of its own.

use repartee_kernels::shapes::rotary_frequencies;
use repartee_kernels::{
    CheckedParts, DType, KernelError, NO_ROW, Ops, RawTensor, ReadBack, RowSpec, SampleParams, SequenceRows,
    SpecLayout, StepKey, WeightFormat, WeightLayout, WeightPart,
};

/// Operations of a device on numbers of the host.
pub trait HostOps: Ops + Sized {
    /// Checks and packs floating-point tensors, which keep their format. Fails as [`CheckedParts::new`] and [`Ops::weight`] do.
    fn stored_weight(&self, layout: WeightLayout, tensors: &[RawTensor<'_>]) -> Result<Self::Weight, KernelError> {
        self.weight(&CheckedParts::stored(layout, tensors)?)
    }

    /// Checks floating-point tensors and packs them in `format`. Fails as [`HostOps::stored_weight`] does.
    fn weight_in_format(
        &self,
        layout: WeightLayout,
        format: WeightFormat,
        tensors: &[RawTensor<'_>],
    ) -> Result<Self::Weight, KernelError> {
        self.weight_from_parts(layout, format, &tensors.iter().copied().map(WeightPart::Stored).collect::<Vec<_>>())
    }

    /// Checks and packs parts of any origin. Fails as [`HostOps::stored_weight`] does.
    fn weight_from_parts(
        &self,
        layout: WeightLayout,
        format: WeightFormat,
        parts: &[WeightPart<'_>],
    ) -> Result<Self::Weight, KernelError> {
        self.weight(&CheckedParts::new(layout, format, parts)?)
    }

    /// Packs inverse frequencies of rotary embeddings. Fails as [`HostOps::stored_weight`] does.
    fn rotary_weight(&self, head_dim: usize, theta: f32) -> Result<Self::Weight, KernelError> {
        let numbers = rotary_frequencies(head_dim, theta);
        let (bytes, shape) = (numbers.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<u8>>(), [numbers.len()]);
        let tensor = RawTensor { name: "frequencies", bytes: &bytes, dtype: DType::F32, shape: &shape };
        self.stored_weight(WeightLayout::Vector, &[tensor])
    }

    /// Uploads ids or row indices; `NO_ROW` and `NO_ID` are allowed.
    fn list(&self, numbers: &[u32]) -> Self::Index {
        let mut layout = SpecLayout::default();
        let at = layout.list(numbers.len());
        let mut spec = layout.spec();
        spec.set(at, numbers);
        self.index(&self.upload(&spec), at)
    }

    /// Copies a list to the host.
    fn read_list(&self, list: &Self::Index) -> Vec<u32> {
        let key = StepKey { stage: "read_list", rows: 0, variant: 0 };
        let mut back = ReadBack::default();
        let ticket = self.launch(key, &RowSpec::default(), &mut |_, _, outputs| outputs.ids.push(list.clone()));
        self.collect(ticket, &mut back);
        back.ids
    }

    /// Gathers the rows `at`, in that order.
    fn gather(&self, x: &Self::T, at: &[usize]) -> Self::T {
        let at: Vec<u32> = at.iter().map(|&row| u32::try_from(row).unwrap_or(NO_ROW)).collect();
        self.gather_at(x, &self.list(&at))
    }

    /// Prepares the rows of sequences for attention.
    fn batch(&self, sequences: &[SequenceRows<'_>]) -> Self::Batch {
        let mut layout = SpecLayout::default();
        let table = sequences.iter().map(|sequence| sequence.table.len()).max().unwrap_or(0);
        let at = layout.batch(sequences.iter().map(|sequence| sequence.rows).sum(), sequences.len(), table);
        let mut spec = layout.spec();
        spec.set_batch(at, sequences, 0);
        self.batch_at(&self.upload(&spec), at)
    }

    /// Samples an id for each row of logits.
    fn sample(
        &self,
        logits: &Self::T,
        params: &[SampleParams],
        allowed_mask: Option<&Self::Weight>,
        output_mask: Option<&mut Self::State>,
    ) -> Vec<u32> {
        let mut layout = SpecLayout::default();
        let at = layout.samples(params.len());
        let mut spec = layout.spec();
        spec.set_samples(at, params);
        let params = self.index(&self.upload(&spec), at.words());
        self.read_list(&self.sample_at(logits, &params, allowed_mask, output_mask))
    }

    /// Clears a slot of a token mask.
    fn reset(&self, state: &mut Self::State, slot: usize) {
        self.reset_at(state, &self.list(&[u32::try_from(slot).unwrap_or(NO_ROW)]));
    }
}

impl<O: Ops> HostOps for O {}
