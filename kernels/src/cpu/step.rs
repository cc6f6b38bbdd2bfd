//! [`StepOps`] on the processor: operations read their numbers from the row spec on use.

use std::ops::Range;
use std::sync::Arc;

use super::arena::PooledBuffer;
use super::conv::{self, StreamSpan};
use super::{Cpu, CpuState, Tensor, Weight, attention, rotary, sample, segment_snake};
use crate::ops::NO_ID;
use crate::row_spec::{self, BatchSection, NO_ROW, RowSpec, SpecSection, StreamRows};
use crate::step_ops::{ReadBack, StepFn, StepKey, StepOps, StreamLevel};

/// A list of ids or row indices.
#[derive(Debug, Clone)]
pub struct CpuIndex {
    words: Arc<Vec<u32>>,
    range: Range<usize>,
}

impl CpuIndex {
    fn words(&self) -> &[u32] {
        &self.words[self.range.clone()]
    }

    /// Yields each valid number with its place; skips [`NO_ROW`].
    fn some(&self) -> impl Iterator<Item = (usize, usize)> {
        let numbers = self.words().iter().enumerate();
        numbers.filter(|(_, number)| **number != NO_ROW).map(|(place, &number)| (place, number as usize))
    }
}

impl StreamLevel<CpuIndex> {
    /// Yields the existing rows of each chunk.
    fn spans(&self) -> impl Iterator<Item = StreamSpan> {
        let span = move |(row, StreamRows { slot, position, rows }): (usize, StreamRows)| {
            let (row, before, rows) = (row * self.scale, position * self.scale, rows * self.scale);
            let absent = self.skip.saturating_sub(before).min(rows);
            StreamSpan { slot, row: row + absent, rows: rows - absent, first: before <= self.skip }
        };
        row_spec::read_streams(self.chunks.words()).filter(|(_, chunk)| chunk.rows > 0).map(span)
    }
}

/// Copies row `at[i]` of `from` to row `i` of `to`, if there is such a row.
fn copy_rows(to: &mut [f32], from: &[f32], columns: usize, at: &CpuIndex) {
    for (place, row) in at.some() {
        to[place * columns..(place + 1) * columns].copy_from_slice(&from[row * columns..(row + 1) * columns]);
    }
}

/// Copies row `i` of `from` to row `at[i]` of `to`, if there is such a row.
fn spread_rows(to: &mut [f32], from: &[f32], columns: usize, at: &CpuIndex) {
    for (place, row) in at.some() {
        to[row * columns..(row + 1) * columns].copy_from_slice(&from[place * columns..(place + 1) * columns]);
    }
}

impl StepOps for Cpu {
    type Spec = Arc<Vec<u32>>;
    type Index = CpuIndex;
    type Ticket = PooledBuffer<ReadBack>;

    fn bucket(&self, rows: usize) -> usize {
        // This device records nothing, and padding would cost time.
        rows
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

    fn batch_at(&self, spec: &Arc<Vec<u32>>, at: BatchSection) -> rotary::CpuBatch {
        rotary::CpuBatch::new(&self.batches, |batch| {
            batch.clear();
            at.read(spec, batch);
        })
    }

    fn read_index(&self, index: &CpuIndex) -> Vec<u32> {
        index.words().to_vec()
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

    fn embed_at(&self, table: &Weight, ids: &CpuIndex) -> Tensor {
        // One value marks both "no row" and "no id".
        const { assert!(NO_ROW == NO_ID) };
        let table = table.table();
        let columns = table.width;
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

    fn segment_attention_at(&self, q: &Tensor, k: &Tensor, v: &Tensor, segments: &CpuIndex, heads: usize) -> Tensor {
        let mut data = self.arena.zeros(q.data.len());
        let scratch = &mut self.scratch.take().attention;
        let (pool, qkv) = (self.pool.as_deref(), (&q.data[..], &k.data[..], &v.data[..]));
        attention::segments(pool, self.level, qkv, segments.words(), heads, scratch, &mut data);
        Tensor { data, ..*q }
    }

    fn segment_conv1d_at(&self, x: &Tensor, weight: &Weight, bias: &Weight, segments: &CpuIndex) -> Tensor {
        conv::segment_conv1d(self, x, weight, bias, segments.words())
    }

    fn segment_snake_at(
        &self,
        x: &Tensor,
        alpha: &Weight,
        beta: &Weight,
        filter: &Weight,
        segments: &CpuIndex,
    ) -> Tensor {
        segment_snake::rows(self, x, (alpha, beta), filter, segments.words())
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

    fn reset_at(&self, state: &mut CpuState, slots: &CpuIndex) {
        for (_, slot) in slots.some() {
            state.reset(slot);
        }
    }
}
