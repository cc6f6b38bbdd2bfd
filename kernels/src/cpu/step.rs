//! [`StepOps`] on the processor: numbers are read out of the row spec as they are needed.

use std::ops::Range;
use std::sync::Arc;

use super::conv::{self, Span};
use super::{Cpu, State, Tensor, Weight, attention, rotary, sample};
use crate::ops::NO_ID;
use crate::row_spec::{self, BatchSection, NO_ROW, RowSpec, Section, StreamRows};
use crate::step_ops::{StepOps, Streams};

/// A list of ids or numbers of rows.
#[derive(Debug, Clone)]
pub struct Index {
    words: Arc<Vec<u32>>,
    range: Range<usize>,
}

impl Index {
    fn new(words: Vec<u32>) -> Self {
        Self { range: 0..words.len(), words: Arc::new(words) }
    }

    fn words(&self) -> &[u32] {
        &self.words[self.range.clone()]
    }

    /// Each number's place and the number, without those that are none.
    fn some(&self) -> impl Iterator<Item = (usize, usize)> {
        let numbers = self.words().iter().enumerate();
        numbers.filter(|(_, number)| **number != NO_ROW).map(|(place, &number)| (place, number as usize))
    }
}

impl Streams<Index> {
    /// The rows that exist, of each chunk.
    fn spans(&self) -> Vec<Span> {
        let span = |(row, StreamRows { slot, position, rows }): (usize, StreamRows)| {
            let (row, before, rows) = (row * self.scale, position * self.scale, rows * self.scale);
            let absent = self.skip.saturating_sub(before).min(rows);
            Span { slot, row: row + absent, rows: rows - absent, first: before <= self.skip }
        };
        row_spec::read_streams(self.chunks.words()).filter(|(_, chunk)| chunk.rows > 0).map(span).collect()
    }
}

impl State {
    /// The rows and how many numbers each has.
    fn rows(&self) -> (&[f32], usize) {
        match self {
            Self::Rows { columns, data } => (data, *columns),
            other => panic!("rows are needed, got {other:?}"),
        }
    }
}

/// Row `i` of `to` becomes row `at[i]` of `from`, where there is such a row.
fn copy_rows(to: &mut [f32], from: &[f32], columns: usize, at: &Index) {
    for (place, row) in at.some() {
        to[place * columns..(place + 1) * columns].copy_from_slice(&from[row * columns..(row + 1) * columns]);
    }
}

/// Row `at[i]` of `to` becomes row `i` of `from`, where there is such a row.
fn spread_rows(to: &mut [f32], from: &[f32], columns: usize, at: &Index) {
    for (place, row) in at.some() {
        to[row * columns..(row + 1) * columns].copy_from_slice(&from[place * columns..(place + 1) * columns]);
    }
}

impl StepOps for Cpu {
    type Spec = Arc<Vec<u32>>;
    type Index = Index;

    fn bucket(&self, rows: usize) -> usize {
        // Nothing is recorded here, and padding would be computed.
        rows
    }

    fn upload(&self, spec: &RowSpec) -> Arc<Vec<u32>> {
        Arc::new(spec.words().to_vec())
    }

    fn index(&self, spec: &Arc<Vec<u32>>, at: Section) -> Index {
        Index { words: Arc::clone(spec), range: at.range() }
    }

    fn floats(&self, spec: &Arc<Vec<u32>>, at: Section, columns: usize) -> Tensor {
        Tensor::new(spec[at.range()].iter().map(|&bits| f32::from_bits(bits)).collect(), columns)
    }

    fn batch_at(&self, spec: &Arc<Vec<u32>>, at: BatchSection) -> rotary::Batch {
        rotary::Batch::from(at.read(spec))
    }

    fn read_index(&self, index: &Index) -> Vec<u32> {
        index.words().to_vec()
    }

    fn gather_at(&self, x: &Tensor, at: &Index) -> Tensor {
        let mut data = vec![0.0; at.range.len() * x.columns];
        copy_rows(&mut data, &x.data, x.columns, at);
        Tensor { rows: at.range.len(), columns: x.columns, data }
    }

    fn scatter_at(&self, mut x: Tensor, at: &Index, rows: &Tensor) -> Tensor {
        spread_rows(&mut x.data, &rows.data, x.columns, at);
        x
    }

    fn embed_at(&self, table: &Weight, ids: &Index) -> Tensor {
        // The one number stands for no row and for no id.
        const { assert!(NO_ROW == NO_ID) };
        let (columns, table) = table.table();
        let mut data = vec![0.0; ids.range.len() * columns];
        copy_rows(&mut data, table, columns, ids);
        Tensor { rows: ids.range.len(), columns, data }
    }

    fn store(&self, state: &mut State, at: &Index, rows: &Tensor) {
        match state {
            State::Rows { columns, data } => spread_rows(data, &rows.data, *columns, at),
            other => panic!("rows are needed, got {other:?}"),
        }
    }

    fn load(&self, state: &State, at: &Index) -> Tensor {
        let (rows, columns) = state.rows();
        let mut data = vec![0.0; at.range.len() * columns];
        copy_rows(&mut data, rows, columns, at);
        Tensor { rows: at.range.len(), columns, data }
    }

    fn overlay(&self, mut x: Tensor, state: &State, at: &Index) -> Tensor {
        let (rows, columns) = state.rows();
        copy_rows(&mut x.data, rows, columns, at);
        x
    }

    fn segment_attention_at(&self, q: &Tensor, k: &Tensor, v: &Tensor, segments: &Index, heads: usize) -> Tensor {
        let segments: Vec<usize> = segments.words().iter().map(|&n| n as usize).filter(|&n| n > 0).collect();
        let mut data = q.like();
        attention::segments(self.level, &q.data, &k.data, &v.data, &segments, heads, &mut data);
        Tensor { data, ..*q }
    }

    fn conv1d_at(
        &self,
        x: &Tensor,
        weight: &Weight,
        bias: &Weight,
        tail: &mut State,
        streams: &Streams<Index>,
    ) -> Tensor {
        conv::conv1d(self.level, x, weight, bias, tail.tail(), &streams.spans())
    }

    fn conv_transpose1d_at(
        &self,
        x: &Tensor,
        weight: &Weight,
        bias: &Weight,
        tail: &mut State,
        streams: &Streams<Index>,
    ) -> Tensor {
        conv::conv_transpose1d(self.level, x, weight, bias, tail.tail(), &streams.spans()).0
    }

    fn sample_at(
        &self,
        logits: &Tensor,
        params: &Index,
        allowed_mask: Option<&Weight>,
        output_mask: Option<&mut State>,
    ) -> Index {
        let params = row_spec::read_samples(params.words());
        Index::new(sample::rows(self.level, &logits.data, logits.columns, params, allowed_mask, output_mask))
    }

    fn reset_at(&self, state: &mut State, slots: &Index) {
        for (_, slot) in slots.some() {
            state.reset(slot);
        }
    }
}
