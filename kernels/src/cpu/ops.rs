//! [`Ops`] on the processor. Operations of a step read their numbers from the row spec on use.

use std::ops::Range;
use std::sync::Arc;

use super::arena::PooledBuffer;
use super::conv_state::ConvState;
use super::device::{Cpu, LEAST_ACTIVATION, LEAST_NORM};
use super::gemm::StridedRows;
use super::index::{CpuIndex, copy_rows, hold_rows, spread_rows};
use super::kv_cache::KvCache;
use super::rotary::CpuBatch;
use super::tensor::{CpuState, Tensor};
use super::weight::{Weight, WeightData};
use super::{attention, conv, experts, instance_norm, lstm, math, sample, segment_snake};
use crate::checked_parts::CheckedParts;
use crate::ops::{Ops, StepFn};
use crate::row_spec::{self, BatchSection, NO_ROW, RowSpec, SpecSection};
use crate::shapes::{Activation, AttentionShape, NO_ID, RouterShape, SegmentShape, StateSpec};
use crate::step::{ReadBack, StepKey, StreamLevel};
use crate::weight::KernelError;

impl Ops for Cpu {
    type T = Tensor;
    type Weight = Weight;
    type State = CpuState;
    type Batch = CpuBatch;
    type Spec = Arc<Vec<u32>>;
    type Index = CpuIndex;
    type Ticket = PooledBuffer<ReadBack>;

    fn with_own_buffers(&self) -> Self {
        let fresh = Self::with_level(self.level).on(self.pool.clone()).with_kv(self.kv);
        Self { counters: self.counters.clone(), shared: self.shared.clone(), ..fresh }
    }

    fn kv_number_bytes(&self) -> usize {
        self.kv.size()
    }

    fn bucket(&self, rows: usize) -> usize {
        // This device records nothing, and padding would cost time.
        rows
    }

    fn weight(&self, parts: &CheckedParts<'_>) -> Result<Weight, KernelError> {
        let data = Arc::new(WeightData::new(self.pool.as_deref(), parts)?);
        Ok(match &self.shared {
            Some(shared) => shared.keep(data).into(),
            None => data.into(),
        })
    }

    fn state(&self, spec: StateSpec) -> CpuState {
        // The system does not touch zeroed allocations of this size: memory is committed on first use.
        match spec {
            StateSpec::KeyValue { blocks, block_len, width } => {
                CpuState::KeyValue(KvCache::new(self.kv, blocks, block_len, width))
            }
            StateSpec::Tail { slots, rows, columns } => CpuState::Tail(ConvState::new(slots, rows, columns)),
            StateSpec::Rows { rows, columns } => CpuState::Rows { columns, data: vec![0.0; rows * columns] },
            StateSpec::TokenMask { slots, vocabulary } => {
                CpuState::TokenMask { vocabulary, flags: vec![false; slots * vocabulary] }
            }
        }
    }

    fn copy_block(&self, state: &mut CpuState, from: u32, to: u32) {
        state.cache().copy_block(from as usize, to as usize);
    }

    fn discard(&self, state: &mut CpuState, range: Range<usize>, parts: usize) -> usize {
        state.discard(&range, parts)
    }

    fn shrink(&self) -> bool {
        self.arena.shrink()
    }

    fn tensor(&self, values: Vec<f32>, columns: usize) -> Tensor {
        Tensor::new(values.into(), columns)
    }

    fn read(&self, x: &Tensor) -> Vec<f32> {
        x.data.to_vec()
    }

    fn rows(&self, x: &Tensor) -> usize {
        x.rows
    }

    fn launch(&self, _: StepKey, spec: &RowSpec, step: StepFn<'_, Self>) -> PooledBuffer<ReadBack> {
        let (mut outputs, mut back) = (self.outputs.take(), self.read_back.take());
        // A step that panicked may have left some.
        outputs.ids.clear();
        outputs.rows.clear();
        step(self, &self.upload(spec), &mut outputs);
        back.clear();
        outputs.ids.drain(..).for_each(|index| back.ids.extend_from_slice(index.words()));
        outputs.rows.drain(..).for_each(|rows| back.numbers.extend_from_slice(&rows.data));
        back
    }

    fn collect(&self, ticket: PooledBuffer<ReadBack>, back: &mut ReadBack) {
        back.clear();
        back.ids.extend_from_slice(&ticket.ids);
        back.numbers.extend_from_slice(&ticket.numbers);
    }

    fn upload(&self, spec: &RowSpec) -> Arc<Vec<u32>> {
        self.words.list(spec.words().len(), |words| words.extend_from_slice(spec.words()))
    }

    fn index(&self, spec: &Arc<Vec<u32>>, at: SpecSection) -> CpuIndex {
        CpuIndex { words: Arc::clone(spec), range: at.range() }
    }

    fn floats(&self, spec: &Arc<Vec<u32>>, at: SpecSection, columns: usize) -> Tensor {
        let mut data = self.arena.uninitialised(at.capacity());
        for (to, &bits) in data.iter_mut().zip(&spec[at.range()]) {
            *to = f32::from_bits(bits);
        }
        Tensor::new(data, columns)
    }

    fn batch_at(&self, spec: &Arc<Vec<u32>>, at: BatchSection) -> CpuBatch {
        CpuBatch::new(&self.batches, |batch| {
            batch.clear();
            at.read(spec, batch);
        })
    }

    fn copy(&self, x: &Tensor) -> Tensor {
        x.clone()
    }

    fn concat(&self, parts: &[&Tensor]) -> Tensor {
        let columns = parts.first().map_or(0, |p| p.columns);
        let mut data = self.arena.uninitialised(parts.iter().map(|p| p.data.len()).sum());
        let mut rest = &mut data[..];
        for part in parts {
            let (to, after) = rest.split_at_mut(part.data.len());
            to.copy_from_slice(&part.data);
            rest = after;
        }
        Tensor::new(data, columns)
    }

    fn concat_columns(&self, parts: &[&Tensor]) -> Tensor {
        let (rows, columns) = (parts.first().map_or(0, |p| p.rows), parts.iter().map(|p| p.columns).sum());
        assert!(parts.iter().all(|part| part.rows == rows), "numbers of rows differ");
        let mut data = self.arena.uninitialised(rows * columns);
        let mut start = 0;
        for part in parts {
            for (to, row) in data.chunks_exact_mut(columns).zip(part.data.chunks_exact(part.columns)) {
                to[start..start + part.columns].copy_from_slice(row);
            }
            start += part.columns;
        }
        Tensor { rows, columns, data }
    }

    fn narrow(&self, x: &Tensor, start: usize, length: usize) -> Tensor {
        let mut data = self.arena.uninitialised(x.rows * length);
        for (to, row) in data.chunks_exact_mut(length).zip(x.data.chunks_exact(x.columns)) {
            to.copy_from_slice(&row[start..start + length]);
        }
        Tensor { rows: x.rows, columns: length, data }
    }

    fn reshape(&self, x: Tensor, columns: usize) -> Tensor {
        Tensor::new(x.data, columns)
    }

    fn gather_at(&self, x: &Tensor, at: &CpuIndex) -> Tensor {
        let mut data = self.arena.zeros(at.range.len() * x.columns);
        copy_rows(&mut data, &x.data, x.columns, at);
        Tensor { rows: at.range.len(), columns: x.columns, data }
    }

    fn scatter_at(&self, mut x: Tensor, at: &CpuIndex, rows: &Tensor) -> Tensor {
        spread_rows(&mut x.data, &rows.data, x.columns, at);
        x
    }

    fn hold_at(&self, mut x: Tensor, at: &CpuIndex, bits: &CpuIndex) -> Tensor {
        hold_rows(&mut x.data, x.columns, at, bits.words());
        x
    }

    fn embed_at(&self, table: &Weight, ids: &CpuIndex) -> Tensor {
        // One value marks both "no row" and "no id".
        const { assert!(NO_ROW == NO_ID) };
        let columns = table.entry_width();
        let mut data = self.arena.zeros(ids.range.len() * columns);
        for (place, id) in ids.some() {
            table.look_up(id, &mut data[place * columns..(place + 1) * columns]);
        }
        Tensor { rows: ids.range.len(), columns, data }
    }

    fn store(&self, state: &mut CpuState, at: &CpuIndex, rows: &Tensor) {
        match state {
            CpuState::Rows { columns, data } => spread_rows(data, &rows.data, *columns, at),
            other => panic!("rows are needed, got {other:?}"),
        }
    }

    fn load(&self, state: &CpuState, at: &CpuIndex) -> Tensor {
        let (rows, columns) = state.rows();
        let mut data = self.arena.zeros(at.range.len() * columns);
        copy_rows(&mut data, rows, columns, at);
        Tensor { rows: at.range.len(), columns, data }
    }

    fn overlay(&self, mut x: Tensor, state: &CpuState, at: &CpuIndex) -> Tensor {
        let (rows, columns) = state.rows();
        copy_rows(&mut x.data, rows, columns, at);
        x
    }

    fn linear(&self, x: &Tensor, weight: &Weight, bias: Option<&Weight>) -> Tensor {
        let weight = weight.packed();
        let mut data = self.arena.uninitialised(x.rows * weight.columns);
        let rows = StridedRows::dense(&x.data, weight.k);
        self.multiply(rows, weight, bias.map(|bias| bias.vector()), &mut data);
        Tensor { rows: x.rows, columns: weight.columns, data }
    }

    fn add(&self, mut x: Tensor, y: &Tensor) -> Tensor {
        assert_eq!((x.rows, x.columns), (y.rows, y.columns), "shapes differ");
        self.split(&mut x.data, x.columns, LEAST_NORM, |row, part| {
            for (a, b) in part.iter_mut().zip(&y.data[row * y.columns..]) {
                *a += b;
            }
        });
        x
    }

    fn mul(&self, mut x: Tensor, y: &Tensor) -> Tensor {
        assert_eq!((x.rows, x.columns), (y.rows, y.columns), "shapes differ");
        for (a, b) in x.data.iter_mut().zip(&*y.data) {
            *a *= b;
        }
        x
    }

    fn scale(&self, mut x: Tensor, by: &Weight) -> Tensor {
        let by = by.vector();
        for row in x.data.chunks_exact_mut(by.len()) {
            for (a, b) in row.iter_mut().zip(by) {
                *a *= b;
            }
        }
        x
    }

    fn scale_all(&self, mut x: Tensor, by: f32) -> Tensor {
        for a in &mut *x.data {
            *a *= by;
        }
        x
    }

    fn clamp(&self, mut x: Tensor, low: f32, high: f32) -> Tensor {
        for a in &mut *x.data {
            *a = a.clamp(low, high);
        }
        x
    }

    fn rms_norm(&self, x: &Tensor, weight: &Weight, eps: f32) -> Tensor {
        let weight = weight.vector();
        self.norm(x, weight.len(), |from, to| math::rms_norm(self.level, from, weight, eps, to))
    }

    fn layer_norm(&self, x: &Tensor, weight: &Weight, bias: &Weight, eps: f32) -> Tensor {
        let (weight, bias) = (weight.vector(), bias.vector());
        self.norm(x, weight.len(), |from, to| math::layer_norm(self.level, from, weight, bias, eps, to))
    }

    fn segment_norm_at(&self, x: &Tensor, weight: &Weight, bias: &Weight, eps: f32, segments: &CpuIndex) -> Tensor {
        let (weight, bias) = (weight.vector(), bias.vector());
        assert_eq!((weight.len(), bias.len()), (x.columns, x.columns), "a norm of another width");
        let mut data = self.arena.zeros(x.data.len());
        let mut first = 0;
        for range in segments.words().iter().map(|&rows| rows as usize * x.columns) {
            let (from, to) = (&x.data[first..first + range], &mut data[first..first + range]);
            math::segment_norm(self.level, from, weight, bias, eps, to);
            first += range;
        }
        Tensor { data, ..*x }
    }

    fn segment_instance_norm_at(&self, x: &Tensor, style: &Tensor, eps: f32, segments: &CpuIndex) -> Tensor {
        instance_norm::rows(self, x, style, eps, segments.words())
    }

    fn activation(&self, mut x: Tensor, function: Activation) -> Tensor {
        self.split(&mut x.data, x.columns, LEAST_ACTIVATION, |_, part| math::activation(self.level, part, function));
        x
    }

    fn silu_mul(&self, x: &Tensor) -> Tensor {
        self.halves(x, |from, part, columns| math::silu_mul(self.level, from, part, columns))
    }

    fn sigmoid_mul(&self, x: &Tensor) -> Tensor {
        self.halves(x, |from, part, columns| math::sigmoid_mul(self.level, from, part, columns))
    }

    fn sigmoid_gate(&self, mut y: Tensor, gate: &Tensor) -> Tensor {
        math::sigmoid_gate(self.level, &mut y.data, &gate.data);
        y
    }

    fn snake(&self, mut x: Tensor, frequency: &Weight, magnitude: &Weight) -> Tensor {
        let (frequency, magnitude) = (frequency.vector(), magnitude.vector());
        let snake = |_, part: &mut [f32]| math::snake(self.level, part, frequency, magnitude);
        self.split(&mut x.data, x.columns, LEAST_ACTIVATION, snake);
        x
    }

    fn rotary(&self, mut x: Tensor, batch: &CpuBatch, frequencies: &Weight) -> Tensor {
        batch.rotate(self.level, &mut x.data, frequencies.vector());
        x
    }

    fn attention(
        &self,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        cache: &mut CpuState,
        batch: &CpuBatch,
        shape: AttentionShape,
    ) -> Tensor {
        self.store_keys(k, v, cache, batch);
        self.stored_attention(q, cache, batch, shape)
    }

    fn store_keys(&self, k: &Tensor, v: &Tensor, cache: &mut CpuState, batch: &CpuBatch) {
        cache.cache().store(&k.data, &v.data, batch.rows());
    }

    fn stored_attention(&self, q: &Tensor, cache: &mut CpuState, batch: &CpuBatch, shape: AttentionShape) -> Tensor {
        let cache = cache.cache();
        let mut data = self.arena.zeros(q.data.len());
        let scratch = &mut self.scratch.take().attention;
        let (pool, batch) = (self.pool.as_deref(), batch.rows());
        attention::cached(pool, self.level, &q.data, cache, batch, shape, scratch, &mut data);
        Tensor { data, ..*q }
    }

    fn segment_attention_at(
        &self,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        segments: &CpuIndex,
        shape: SegmentShape,
    ) -> Tensor {
        let mut data = self.arena.zeros(q.data.len());
        let scratch = &mut self.scratch.take().attention;
        let (pool, qkv) = (self.pool.as_deref(), (&q.data[..], &k.data[..], &v.data[..]));
        attention::segments(pool, self.level, qkv, segments.words(), shape, scratch, &mut data);
        Tensor { data, ..*q }
    }

    fn segment_lstm_at(&self, x: &Tensor, hidden: &Weight, segments: &CpuIndex, reverse: bool) -> Tensor {
        lstm::rows(self, x, hidden.packed(), segments.words(), reverse)
    }

    fn experts(&self, x: &Tensor, router: &Weight, gate_up: &Weight, down: &Weight, spec: RouterShape) -> Tensor {
        let down = down.experts();
        let data = experts::mixture(self, &x.data, router.packed(), gate_up.experts(), down, spec);
        Tensor { rows: x.rows, columns: down[0].columns, data }
    }

    fn conv2d(&self, x: &Tensor, images: usize, height: usize, width: usize, weight: &Weight, bias: &Weight) -> Tensor {
        let WeightData::Conv2d { packed, stride } = &**weight else {
            panic!("not a convolution over two axes: {}", weight.kind())
        };
        let bias = bias.vector();
        let data = conv::conv2d(self, &x.data, (images, height, width), x.columns, packed, *stride, bias);
        Tensor::new(data, packed.columns)
    }

    fn conv1d_at(
        &self,
        x: &Tensor,
        weight: &Weight,
        bias: &Weight,
        tail: &mut CpuState,
        streams: &StreamLevel<CpuIndex>,
    ) -> Tensor {
        conv::conv1d(self, x, weight, bias, tail.tail(), streams.spans())
    }

    fn conv_transpose1d_at(
        &self,
        x: &Tensor,
        weight: &Weight,
        bias: &Weight,
        tail: &mut CpuState,
        streams: &StreamLevel<CpuIndex>,
    ) -> Tensor {
        conv::conv_transpose1d(self, x, weight, bias, tail.tail(), streams.spans())
    }

    fn segment_conv1d_at(&self, x: &Tensor, weight: &Weight, bias: &Weight, segments: &CpuIndex) -> Tensor {
        conv::segment_conv1d(self, x, weight, bias, segments.words())
    }

    fn segment_conv1d_rows(
        &self,
        out: Option<Tensor>,
        x: &Tensor,
        weight: &Weight,
        bias: &Weight,
        rows: Range<usize>,
    ) -> Tensor {
        conv::segment_conv1d_rows(self, out, x, weight, bias, rows)
    }

    fn segment_snake_at(
        &self,
        x: &Tensor,
        frequency: &Weight,
        magnitude: &Weight,
        filter: &Weight,
        segments: &CpuIndex,
    ) -> Tensor {
        segment_snake::rows(self, x, (frequency, magnitude), filter, segments.words())
    }

    fn sample_at(
        &self,
        logits: &Tensor,
        params: &CpuIndex,
        allowed_mask: Option<&Weight>,
        output_mask: Option<&mut CpuState>,
    ) -> CpuIndex {
        let params = row_spec::read_samples(params.words());
        let words =
            self.words.list(logits.rows, |ids| sample::rows(self, logits, params, allowed_mask, output_mask, ids));
        CpuIndex { range: 0..words.len(), words }
    }

    fn reset_at(&self, state: &mut CpuState, slots: &CpuIndex) {
        for (_, slot) in slots.some() {
            state.reset(slot);
        }
    }
}
