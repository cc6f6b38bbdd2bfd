//! Host inputs of one step, in one block of words that is uploaded at once.
//!
//! A [`SpecLayout`] gives each list its place. One layout serves a stage and bucket of rows, so every step of the bucket finds its numbers
//! at the same addresses. A shorter list is padded: padding is computed, and nothing reads its results.

use std::borrow::Borrow;
use std::ops::Range;

use crate::batch::{AttentionBatch, SequenceRows};
use crate::shapes::SampleParams;

/// Marks "no row": reads give zeros, writes do nothing.
pub const NO_ROW: u32 = u32::MAX;

/// Words before a sequence's table: its first row, its rows, its first position, entries of its table.
const SEQUENCE: usize = 4;
/// Words of a stream's chunk: slot, first row, rows, position of the first row.
const CHUNK: usize = 4;
/// Words of a [`SampleParams`].
const SAMPLE: usize = 6;

/// Place of a list in a [`RowSpec`]: ids, row indices, or floats by their bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpecSection {
    start: usize,
    len: usize,
}

impl SpecSection {
    /// Capacity in words.
    pub fn capacity(self) -> usize {
        self.len
    }

    /// Range of its words in the row spec.
    pub fn range(self) -> Range<usize> {
        self.start..self.start + self.len
    }

    /// Returns part `index` of a list of parts of `len` words each. Panics if the list has fewer.
    pub fn part(self, index: usize, len: usize) -> Self {
        let part = Self { start: self.start + index * len, len };
        assert!(part.range().end <= self.range().end, "the list has fewer parts");
        part
    }
}

/// Place of the rows of an attention step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BatchSection {
    at: SpecSection,
    sequences: usize,
    table: usize,
    rows: usize,
}

impl BatchSection {
    /// Rows of the step, padding included.
    pub fn rows(self) -> usize {
        self.rows
    }

    /// Words for [`crate::Ops::index`]: for each sequence its first row, its rows, its first position, the entries of its table, then
    /// the table.
    pub fn words(self) -> SpecSection {
        self.at
    }

    /// Words of a sequence.
    pub fn stride(self) -> usize {
        SEQUENCE + self.table
    }

    /// Appends to `batch` the sequences that `words`, a whole row spec, holds here.
    pub fn read(self, words: &[u32], batch: &mut AttentionBatch) {
        for sequence in words[self.at.range()].chunks_exact(SEQUENCE + self.table) {
            let (head, table) = sequence.split_at(SEQUENCE);
            let [row, rows, position, entries] = [head[0], head[1], head[2], head[3]].map(|n| n as usize);
            if rows > 0 {
                debug_assert_eq!(row, batch.positions.len(), "sequences stand one under the other");
                batch.push(SequenceRows { table: &table[..entries], position, rows });
            }
        }
    }
}

/// Place of the chunks of streams through stateful convolutions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StreamSection {
    at: SpecSection,
    rows: usize,
}

impl StreamSection {
    /// Words for [`crate::Ops::index`].
    pub fn words(self) -> SpecSection {
        self.at
    }

    /// Rows of the step, padding included.
    pub fn rows(self) -> usize {
        self.rows
    }
}

/// Place of a step's sampling parameters, one set for each row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SampleSection {
    at: SpecSection,
}

impl SampleSection {
    /// Words for [`crate::Ops::index`].
    pub fn words(self) -> SpecSection {
        self.at
    }
}

/// Place of the lengths of consecutive segments, for attention within each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SegmentSection {
    at: SpecSection,
    rows: usize,
}

impl SegmentSection {
    /// Words for [`crate::Ops::index`].
    pub fn words(self) -> SpecSection {
        self.at
    }
}

/// Consecutive rows of one slot's stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamRows {
    /// Slot of the stream.
    pub slot: usize,
    /// Rows of the stream before the first of these; 0 begins a stream.
    pub position: usize,
    /// Number of rows.
    pub rows: usize,
}

/// Layout of a step's lists within a [`RowSpec`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SpecLayout {
    len: usize,
}

impl SpecLayout {
    /// Reserves `len` words for ids, row indices, or floats.
    pub fn list(&mut self, len: usize) -> SpecSection {
        let start = self.len;
        self.len += len;
        SpecSection { start, len }
    }

    /// Reserves `rows` attention rows of at most `sequences` sequences with tables of at most `table` entries.
    pub fn batch(&mut self, rows: usize, sequences: usize, table: usize) -> BatchSection {
        // One more sequence for the padding, on a block of its own.
        let (sequences, table) = (sequences + 1, table.max(1));
        BatchSection { at: self.list(sequences * (SEQUENCE + table)), sequences, table, rows }
    }

    /// Reserves `rows` rows of at most `chunks` streams.
    pub fn streams(&mut self, rows: usize, chunks: usize) -> StreamSection {
        StreamSection { at: self.list(chunks * CHUNK), rows }
    }

    /// Reserves the sampling parameters of `rows` rows.
    pub fn samples(&mut self, rows: usize) -> SampleSection {
        SampleSection { at: self.list(rows * SAMPLE) }
    }

    /// Reserves the lengths of at most `segments` segments over `rows` rows.
    pub fn segments(&mut self, rows: usize, segments: usize) -> SegmentSection {
        // One more for the padding.
        SegmentSection { at: self.list(segments + 1), rows }
    }

    /// Returns a zeroed row spec of this layout.
    pub fn spec(&self) -> RowSpec {
        RowSpec { words: vec![0; self.len] }
    }

    /// Resets `spec` to zeros of this layout, and reuses its memory.
    pub fn clear_spec(&self, spec: &mut RowSpec) {
        spec.words.clear();
        spec.words.resize(self.len, 0);
    }
}

/// Host inputs of one step.
///
/// Each `set_` function panics if the values exceed their place: the caller chose too small a bucket.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RowSpec {
    words: Vec<u32>,
}

impl RowSpec {
    /// Returns all words, floats by their bits.
    pub fn words(&self) -> &[u32] {
        &self.words
    }

    /// Sets ids or row indices, padded with [`NO_ROW`], which equals [`NO_ID`](crate::shapes::NO_ID).
    pub fn set(&mut self, at: SpecSection, values: &[u32]) {
        let (place, padding) = self.words[at.range()].split_at_mut(values.len());
        place.copy_from_slice(values);
        padding.fill(NO_ROW);
    }

    /// Sets ids or row indices from an iterator, padded with [`NO_ROW`].
    pub fn set_each(&mut self, at: SpecSection, values: impl IntoIterator<Item = u32>) {
        self.write(at, values, NO_ROW);
    }

    /// Sets floats, padded with zeros.
    pub fn set_floats(&mut self, at: SpecSection, values: &[f32]) {
        self.set_floats_each(at, values.iter().copied());
    }

    /// Sets floats from an iterator, padded with zeros.
    pub fn set_floats_each(&mut self, at: SpecSection, values: impl IntoIterator<Item = f32>) {
        self.write(at, values.into_iter().map(f32::to_bits), 0);
    }

    fn write(&mut self, at: SpecSection, values: impl IntoIterator<Item = u32>, padding: u32) {
        let mut places = self.words[at.range()].iter_mut();
        for value in values {
            // A model lays out and fills from the same batch: more values are a defect, and would overwrite the next list.
            *places.next().expect("more numbers than the bucket has place for") = value;
        }
        places.for_each(|place| *place = padding);
    }

    /// Sets the sequences, their rows one below the other. The padding rows form one more sequence on the block `scratch`, which no other
    /// sequence has.
    pub fn set_batch(&mut self, at: BatchSection, sequences: &[SequenceRows<'_>], scratch: u32) {
        assert!(sequences.len() < at.sequences, "more sequences than the bucket has place for");
        let mut places = self.words[at.at.range()].chunks_exact_mut(SEQUENCE + at.table);
        let mut row = 0;
        let padding = [scratch];
        let used: usize = sequences.iter().map(|sequence| sequence.rows).sum();
        assert!(used <= at.rows, "more rows than the bucket has place for");
        let rest = SequenceRows { table: &padding, position: 0, rows: at.rows - used };
        for sequence in sequences.iter().chain([&rest]) {
            let Some(place) = places.next() else { break };
            let (head, table) = place.split_at_mut(SEQUENCE);
            let entries = sequence.table.len();
            head.copy_from_slice(&[row, sequence.rows, sequence.position, entries].map(word));
            table[..entries].copy_from_slice(sequence.table);
            row += sequence.rows;
        }
        places.for_each(|place| place[..SEQUENCE].fill(0));
    }

    /// Sets the chunks of streams, their rows one below the other.
    pub fn set_streams(&mut self, at: StreamSection, chunks: &[StreamRows]) {
        let used: usize = chunks.iter().map(|chunk| chunk.rows).sum();
        assert!(used <= at.rows, "more rows than the bucket has place for");
        let (places, padding) = self.words[at.at.range()].split_at_mut(chunks.len() * CHUNK);
        let mut row = 0;
        for (place, chunk) in places.chunks_exact_mut(CHUNK).zip(chunks) {
            place.copy_from_slice(&[chunk.slot, row, chunk.rows, chunk.position].map(word));
            row += chunk.rows;
        }
        padding.fill(0);
    }

    /// Sets the sampling parameters of each row. Padding rows take their most likely id and have no history.
    pub fn set_samples(&mut self, at: SampleSection, params: impl IntoIterator<Item: Borrow<SampleParams>>) {
        let mut places = self.words[at.at.range()].chunks_exact_mut(SAMPLE);
        for params in params {
            // See `write`.
            let place = places.next().expect("more rows than the bucket has place for");
            let params = params.borrow();
            place.copy_from_slice(&[
                word(params.slot),
                params.repetition_penalty.to_bits(),
                params.temperature.to_bits(),
                word(params.top_k),
                params.top_p.to_bits(),
                params.uniform.to_bits(),
            ]);
        }
        for place in places {
            place.copy_from_slice(&[NO_ROW, 1f32.to_bits(), 0, 0, 1f32.to_bits(), 0]);
        }
    }

    /// Sets the lengths of consecutive segments. The remaining rows form one more segment.
    pub fn set_segments(&mut self, at: SegmentSection, lengths: &[usize]) {
        let used: usize = lengths.iter().sum();
        assert!(used <= at.rows, "more rows than the bucket has place for");
        let place = &mut self.words[at.at.range()];
        place.fill(0);
        for (place, &length) in place.iter_mut().zip(lengths.iter().chain([&(at.rows - used)])) {
            *place = word(length);
        }
    }
}

/// Converts a count of slots, blocks, rows or positions; no device has memory for 2^32.
fn word(number: usize) -> u32 {
    u32::try_from(number).expect("a device has fewer than 2^32 rows, slots and positions")
}

/// Decodes the sampling parameters of a [`SampleSection`]; a slot of [`NO_ROW`] has no history.
pub fn read_samples(words: &[u32]) -> impl Iterator<Item = SampleParams> {
    words.chunks_exact(SAMPLE).map(|place| SampleParams {
        slot: place[0] as usize,
        repetition_penalty: f32::from_bits(place[1]),
        temperature: f32::from_bits(place[2]),
        top_k: place[3] as usize,
        top_p: f32::from_bits(place[4]),
        uniform: f32::from_bits(place[5]),
    })
}

/// Decodes the chunks of a [`StreamSection`], each with the index of its first row.
pub fn read_streams(words: &[u32]) -> impl Iterator<Item = (usize, StreamRows)> {
    words.chunks_exact(CHUNK).map(|place| {
        let [slot, row, rows, position] = [place[0], place[1], place[2], place[3]].map(|n| n as usize);
        (row, StreamRows { slot, position, rows })
    })
}
