//! Plain values of steps: keys, read-backs, and levels of streams.

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
