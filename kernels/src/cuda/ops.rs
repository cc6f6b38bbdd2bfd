//! [`Ops`] on a CUDA device: each operation is a kernel or a copy on the stream.

use std::ops::Range;

use super::device::Cuda;
use super::graphs::Graphs;
use super::launch::{SIZE, TILE_THREADS, WIDE, WIDE_THREADS, bits};
use super::matrix::outputs;
use super::step::LaunchedStep;
use super::tensor::{CudaBatch, CudaIndex, CudaState, Tensor};
use super::weight::Weight;
use crate::checked_parts::CheckedParts;
use crate::ops::{Ops, StepFn};
use crate::row_spec::{BatchSection, NO_ROW, RowSpec, SpecSection};
use crate::shapes::{Activation, AttentionShape, NO_ID, RouterShape, SegmentShape, StateSpec};
use crate::step::{self, ReadBack, StepKey, StreamLevel};
use crate::weight::KernelError;

impl Ops for Cuda {
    type T = Tensor;
    type Weight = Weight;
    type State = CudaState;
    type Batch = CudaBatch;
    type Spec = CudaIndex;
    type Index = CudaIndex;
    type Ticket = LaunchedStep;

    fn with_own_buffers(&self) -> Self {
        self.with_own_stream()
    }

    fn eager_steps(&self) -> Option<u64> {
        self.graphs.as_ref().map(Graphs::eager)
    }

    fn bucket(&self, rows: usize) -> usize {
        step::bucket(rows)
    }

    fn weight(&self, parts: &CheckedParts<'_>) -> Result<Weight, KernelError> {
        Weight::new(&self.loader(), parts)
    }

    fn state(&self, spec: StateSpec) -> CudaState {
        let zeros = |bytes| self.queue.zeroed_memory(bytes);
        match spec {
            StateSpec::KeyValue { blocks, block_len, width } => {
                let bytes = blocks * block_len * width * SIZE;
                CudaState::KeyValue { keys: zeros(bytes), values: zeros(bytes), block_len, width }
            }
            StateSpec::Tail { slots, rows, columns } => {
                CudaState::Tail { data: zeros(slots * rows * columns * SIZE), rows, columns }
            }
            StateSpec::TokenMask { slots, vocabulary } => {
                CudaState::TokenMask { flags: zeros(slots * vocabulary), vocabulary }
            }
            StateSpec::Rows { rows, columns } => CudaState::Rows { data: zeros(rows * columns * SIZE), columns },
        }
    }

    fn copy_block(&self, state: &mut CudaState, from: u32, to: u32) {
        let CudaState::KeyValue { keys, values, block_len, width } = state else {
            panic!("attention needs keys and values, got {}", state.kind())
        };
        let bytes = *block_len * *width * SIZE;
        for memory in [keys, values] {
            let at = |block: u32| memory.at + block as u64 * bytes as u64;
            self.queue.copy(at(to), at(from), bytes);
        }
    }

    fn tensor(&self, values: Vec<f32>, columns: usize) -> Tensor {
        let rows = values.len().checked_div(columns).unwrap_or(0);
        assert_eq!(rows * columns, values.len(), "values do not fill whole rows");
        let tensor = self.uninit_tensor(rows, columns);
        self.queue.write(tensor.at(), &values);
        tensor
    }

    fn read(&self, x: &Tensor) -> Vec<f32> {
        let mut values = vec![0.0; x.len()];
        self.queue.read(x.at(), &mut values);
        values
    }

    fn rows(&self, x: &Tensor) -> usize {
        x.rows
    }

    fn launch(&self, key: StepKey, spec: &RowSpec, step: StepFn<'_, Self>) -> LaunchedStep {
        match &self.graphs {
            Some(graphs) => self.launch_captured(graphs, key, spec, step),
            None => self.launch_eager(spec, step),
        }
    }

    fn collect(&self, ticket: LaunchedStep, back: &mut ReadBack) {
        ticket.collect(back);
    }

    fn upload(&self, spec: &RowSpec) -> CudaIndex {
        let words = self.uninit_words(spec.words().len());
        self.queue.write(words.at(), spec.words());
        CudaIndex::new(words, spec.words().len())
    }

    fn index(&self, spec: &CudaIndex, at: SpecSection) -> CudaIndex {
        let range = at.range();
        assert!(range.end <= spec.len, "a list of another layout");
        CudaIndex { words: spec.words.clone(), start: range.start, len: range.len() }
    }

    fn floats(&self, spec: &CudaIndex, at: SpecSection, columns: usize) -> Tensor {
        let from = self.index(spec, at);
        let rows = from.len.checked_div(columns).unwrap_or(0);
        assert_eq!(rows * columns, from.len, "values do not fill whole rows");
        let out = self.uninit_tensor(rows, columns);
        self.queue.copy(out.at(), from.at(), size_of::<f32>() * from.len);
        out
    }

    fn batch_at(&self, spec: &CudaIndex, at: BatchSection) -> CudaBatch {
        let words = self.index(spec, at.words());
        CudaBatch { sequences: words.len / at.stride(), stride: at.stride(), words }
    }

    fn copy(&self, x: &Tensor) -> Tensor {
        let out = self.uninit_tensor(x.rows, x.columns);
        self.queue.copy(out.at(), x.at(), x.len() * SIZE);
        out
    }

    fn concat(&self, parts: &[&Tensor]) -> Tensor {
        let columns = parts.first().map_or(0, |part| part.columns);
        let out = self.uninit_tensor(parts.iter().map(|part| part.rows).sum(), columns);
        let mut at = out.at();
        for part in parts {
            assert_eq!(part.columns, columns, "widths differ");
            self.queue.copy(at, part.at(), part.len() * SIZE);
            at += (part.len() * SIZE) as u64;
        }
        out
    }

    fn concat_columns(&self, parts: &[&Tensor]) -> Tensor {
        let rows = parts.first().map_or(0, |part| part.rows);
        let out = self.uninit_tensor(rows, parts.iter().map(|part| part.columns).sum());
        let mut start = 0;
        for part in parts {
            assert_eq!(part.rows, rows, "numbers of rows differ");
            let sizes = [part.columns, start, out.columns].map(|n| n as u64);
            let args = [part.at(), out.at(), sizes[0], sizes[1], sizes[2]];
            self.each(&self.queue.kernels().place_columns_f32, part.len(), &args);
            start += part.columns;
        }
        out
    }

    fn narrow(&self, x: &Tensor, start: usize, length: usize) -> Tensor {
        assert!(start + length <= x.columns, "columns that are not there");
        let out = self.uninit_tensor(x.rows, length);
        let sizes = [x.columns, start, length].map(|n| n as u64);
        self.each(&self.queue.kernels().narrow_f32, out.len(), &[x.at(), out.at(), sizes[0], sizes[1], sizes[2]]);
        out
    }

    fn reshape(&self, x: Tensor, columns: usize) -> Tensor {
        let rows = x.len() / columns;
        assert_eq!(rows * columns, x.len(), "values do not fill whole rows");
        Tensor::new(x.data, rows, columns)
    }

    fn gather_at(&self, x: &Tensor, at: &CudaIndex) -> Tensor {
        self.gathered(x.at(), false, x.columns, at)
    }

    fn scatter_at(&self, x: Tensor, at: &CudaIndex, rows: &Tensor) -> Tensor {
        assert_eq!(x.columns, rows.columns, "widths differ");
        self.scatter(x.at(), x.columns, at, rows);
        x
    }

    fn hold_at(&self, x: Tensor, at: &CudaIndex, bits: &CudaIndex) -> Tensor {
        let words = held_words(x.columns);
        assert_eq!(bits.len, at.len * words, "a row has another number of words");
        let (kernel, count) = (&self.queue.kernels().hold_rows_f32, at.len * x.columns);
        let penalty = u64::from(HELD_PENALTY.to_bits());
        self.each(kernel, count, &[bits.at(), at.at(), x.at(), penalty, x.columns as u64, words as u64]);
        x
    }

    fn embed_at(&self, table: &Weight, ids: &CudaIndex) -> Tensor {
        // One value marks both "no row" and "no id".
        const { assert!(NO_ROW == NO_ID) };
        self.entries(table.table(), ids)
    }

    fn store(&self, state: &mut CudaState, at: &CudaIndex, rows: &Tensor) {
        let (to, columns) = state.rows();
        assert_eq!(columns, rows.columns, "widths differ");
        self.scatter(to, columns, at, rows);
    }

    fn load(&self, state: &CudaState, at: &CudaIndex) -> Tensor {
        let (from, columns) = state.rows();
        self.gathered(from, false, columns, at)
    }

    fn overlay(&self, x: Tensor, state: &CudaState, at: &CudaIndex) -> Tensor {
        let (from, columns) = state.rows();
        assert_eq!(columns, x.columns, "widths differ");
        let count = at.len.min(x.rows) * columns;
        self.each(&self.queue.kernels().overlay_rows_f32, count, &[from, at.at(), x.at(), columns as u64]);
        x
    }

    fn linear(&self, x: &Tensor, weight: &Weight, bias: Option<&Weight>) -> Tensor {
        let weight = weight.linear();
        let bias = bias.map_or(0, |bias| {
            assert_eq!(bias.vector().len, outputs(weight), "the bias has another size");
            bias.vector().memory.at
        });
        self.product(x, weight, bias)
    }

    fn add(&self, x: Tensor, y: &Tensor) -> Tensor {
        assert_eq!((x.rows, x.columns), (y.rows, y.columns), "shapes differ");
        self.each(&self.queue.kernels().add_f32, x.len(), &[x.at(), y.at()]);
        x
    }

    fn add_norm(&self, x: Tensor, y: &Tensor, weight: &Weight, eps: f32) -> (Tensor, Tensor) {
        if x.columns < WIDE {
            let sum = self.add(x, y);
            let normed = self.rms_norm(&sum, weight, eps);
            return (sum, normed);
        }
        let weight = weight.vector();
        assert_eq!((x.rows, x.columns, x.columns), (y.rows, y.columns, weight.len), "shapes differ");
        let out = self.uninit_tensor(x.rows, x.columns);
        let args = &mut [x.at(), y.at(), weight.memory.at, out.at(), x.columns as u64, bits(eps)];
        self.queue.launch(&self.queue.kernels().add_norm_f32, (x.rows, 1), WIDE_THREADS, 0, args);
        (x, out)
    }

    fn mul(&self, x: Tensor, y: &Tensor) -> Tensor {
        assert_eq!((x.rows, x.columns), (y.rows, y.columns), "shapes differ");
        self.each(&self.queue.kernels().mul_f32, x.len(), &[x.at(), y.at()]);
        x
    }

    fn scale(&self, x: Tensor, by: &Weight) -> Tensor {
        let by = by.vector();
        assert!(x.columns.is_multiple_of(by.len), "a scale of another width");
        self.each(&self.queue.kernels().scale_f32, x.len(), &[x.at(), by.memory.at, by.len as u64]);
        x
    }

    fn scale_all(&self, x: Tensor, by: f32) -> Tensor {
        self.each(&self.queue.kernels().scale_all_f32, x.len(), &[x.at(), bits(by)]);
        x
    }

    fn clamp(&self, x: Tensor, low: f32, high: f32) -> Tensor {
        self.each(&self.queue.kernels().clamp_f32, x.len(), &[x.at(), bits(low), bits(high)]);
        x
    }

    fn rms_norm(&self, x: &Tensor, weight: &Weight, eps: f32) -> Tensor {
        let weight = weight.vector();
        assert!(x.columns.is_multiple_of(weight.len), "a norm of another width");
        let (out, groups) = (self.uninit_tensor(x.rows, x.columns), x.len() / weight.len);
        let args = &mut [x.at(), weight.memory.at, out.at(), weight.len as u64, groups as u64, bits(eps)];
        let kernels = self.queue.kernels();
        self.norm_groups((&kernels.rms_norm_f32, &kernels.rms_norm_wide_f32), (groups, weight.len), args);
        out
    }

    fn layer_norm(&self, x: &Tensor, weight: &Weight, bias: &Weight, eps: f32) -> Tensor {
        let (weight, bias) = (weight.vector(), bias.vector());
        assert!(x.columns.is_multiple_of(weight.len) && bias.len == weight.len, "a norm of another width");
        let (out, groups) = (self.uninit_tensor(x.rows, x.columns), x.len() / weight.len);
        let sizes = [weight.len as u64, groups as u64, bits(eps)];
        let args = &mut [x.at(), weight.memory.at, bias.memory.at, out.at(), sizes[0], sizes[1], sizes[2]];
        let kernels = self.queue.kernels();
        self.norm_groups((&kernels.layer_norm_f32, &kernels.layer_norm_wide_f32), (groups, weight.len), args);
        out
    }

    fn segment_norm_at(&self, x: &Tensor, weight: &Weight, bias: &Weight, eps: f32, segments: &CudaIndex) -> Tensor {
        self.segment_norm(x, (weight, bias), eps, segments)
    }

    fn segment_instance_norm_at(&self, x: &Tensor, style: &Tensor, eps: f32, segments: &CudaIndex) -> Tensor {
        self.instance_norm(x, style, eps, segments)
    }

    fn activation(&self, x: Tensor, function: Activation) -> Tensor {
        // The kernel's numbers of functions.
        let (number, slope) = match function {
            Activation::Silu => (0, 0.0),
            Activation::Gelu => (1, 0.0),
            Activation::GeluTanh => (2, 0.0),
            Activation::Relu => (3, 0.0),
            Activation::LeakyRelu { slope } => (4, slope),
            Activation::Elu => (5, 0.0),
            Activation::Mish => (6, 0.0),
            Activation::Tanh => (7, 0.0),
            Activation::Exp => (8, 0.0),
            Activation::Abs => (9, 0.0),
        };
        self.each(&self.queue.kernels().activation_f32, x.len(), &[x.at(), number, bits(slope)]);
        x
    }

    fn silu_mul(&self, x: &Tensor) -> Tensor {
        self.halves(&self.queue.kernels().silu_mul_f32, x)
    }

    fn sigmoid_mul(&self, x: &Tensor) -> Tensor {
        self.halves(&self.queue.kernels().sigmoid_mul_f32, x)
    }

    fn sigmoid_gate(&self, y: Tensor, gate: &Tensor) -> Tensor {
        let columns = y.len().checked_div(gate.len()).unwrap_or(0);
        assert_eq!(columns * gate.len(), y.len(), "a gate has one number a row");
        self.each(&self.queue.kernels().sigmoid_gate_f32, y.len(), &[y.at(), gate.at(), columns as u64]);
        y
    }

    fn snake(&self, x: Tensor, frequency: &Weight, magnitude: &Weight) -> Tensor {
        let (frequency, magnitude) = (frequency.vector(), magnitude.vector());
        assert!(frequency.len == x.columns && magnitude.len == x.columns, "a snake of another width");
        let args = [x.at(), frequency.memory.at, magnitude.memory.at, x.columns as u64];
        self.each(&self.queue.kernels().snake_f32, x.len(), &args);
        x
    }

    fn rotary(&self, x: Tensor, batch: &CudaBatch, frequencies: &Weight) -> Tensor {
        let frequencies = frequencies.vector();
        let sizes = [batch.sequences, batch.stride, x.columns, 2 * frequencies.len].map(|n| n as u64);
        let args = &mut [x.at(), batch.words.at(), frequencies.memory.at, sizes[0], sizes[1], sizes[2], sizes[3]];
        let blocks = (x.columns / 2).div_ceil(TILE_THREADS);
        self.queue.launch(&self.queue.kernels().rotary_f32, (x.rows, blocks), TILE_THREADS, 0, args);
        x
    }

    fn split_heads(
        &self,
        rows: &Tensor,
        norms: Option<(&Weight, &Weight)>,
        eps: f32,
        batch: &CudaBatch,
        frequencies: Option<&Weight>,
        shape: AttentionShape,
    ) -> [Tensor; 3] {
        self.heads_of(rows, (norms, eps), (batch, frequencies), shape)
    }

    fn attention(
        &self,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        cache: &mut CudaState,
        batch: &CudaBatch,
        shape: AttentionShape,
    ) -> Tensor {
        self.store_rows((k, v), cache, batch);
        self.cached_attention(q, cache, batch, shape)
    }

    fn store_keys(&self, k: &Tensor, v: &Tensor, cache: &mut CudaState, batch: &CudaBatch) {
        self.store_rows((k, v), cache, batch);
    }

    fn stored_attention(&self, q: &Tensor, cache: &mut CudaState, batch: &CudaBatch, shape: AttentionShape) -> Tensor {
        self.cached_attention(q, cache, batch, shape)
    }

    fn segment_attention_at(
        &self,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        segments: &CudaIndex,
        shape: SegmentShape,
    ) -> Tensor {
        self.within_segments((q, k, v), segments, shape)
    }

    fn segment_lstm_at(&self, x: &Tensor, hidden: &Weight, segments: &CudaIndex, reverse: bool) -> Tensor {
        self.lstm(x, hidden, segments, reverse)
    }

    fn experts(&self, x: &Tensor, router: &Weight, gate_up: &Weight, down: &Weight, spec: RouterShape) -> Tensor {
        self.mixture(x, router.linear(), gate_up.experts(), down.experts(), spec)
    }

    fn conv2d(&self, x: &Tensor, images: usize, height: usize, width: usize, weight: &Weight, bias: &Weight) -> Tensor {
        self.pixels(x, images, (height, width), weight, bias)
    }

    fn conv1d_at(
        &self,
        x: &Tensor,
        weight: &Weight,
        bias: &Weight,
        tail: &mut CudaState,
        streams: &StreamLevel<CudaIndex>,
    ) -> Tensor {
        self.causal(x, weight, bias, tail, streams)
    }

    fn conv_transpose1d_at(
        &self,
        x: &Tensor,
        weight: &Weight,
        bias: &Weight,
        tail: &mut CudaState,
        streams: &StreamLevel<CudaIndex>,
    ) -> Tensor {
        self.transposed(x, weight, bias, tail, streams)
    }

    fn segment_conv1d_at(&self, x: &Tensor, weight: &Weight, bias: &Weight, segments: &CudaIndex) -> Tensor {
        self.centred(x, weight, bias, segments)
    }

    fn segment_conv1d_rows(
        &self,
        out: Option<Tensor>,
        x: &Tensor,
        weight: &Weight,
        bias: &Weight,
        rows: Range<usize>,
    ) -> Tensor {
        self.centred_rows(out, x, weight, bias, rows)
    }

    fn segment_snake_at(
        &self,
        x: &Tensor,
        frequency: &Weight,
        magnitude: &Weight,
        filter: &Weight,
        segments: &CudaIndex,
    ) -> Tensor {
        self.resampled_snake(x, (frequency, magnitude), filter, segments)
    }

    fn sample_at(
        &self,
        logits: &Tensor,
        params: &CudaIndex,
        allowed_mask: Option<&Weight>,
        output_mask: Option<&mut CudaState>,
    ) -> CudaIndex {
        self.sample_ids(logits, params, allowed_mask, output_mask)
    }

    fn reset_at(&self, state: &mut CudaState, slots: &CudaIndex) {
        let (flags, vocabulary) = state.mask();
        self.each(&self.queue.kernels().clear_rows_u8, slots.len * vocabulary, &[flags, slots.at(), vocabulary as u64]);
    }
}

impl Cuda {
    /// Copies row `i` of `rows` to row `at[i]` of the rows at address `to`.
    fn scatter(&self, to: u64, columns: usize, at: &CudaIndex, rows: &Tensor) {
        let count = at.len.min(rows.rows) * columns;
        self.each(&self.queue.kernels().scatter_rows_f32, count, &[rows.at(), at.at(), to, columns as u64]);
    }
}
