//! Attention rows of several sequences.

/// Rows of one sequence within a batch of attention rows: consecutive positions, one under the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SequenceRows<'a> {
    /// The sequence's blocks. Position `p` lies in entry `p / block_len`, modulo the number of entries: a table of few
    /// entries is a ring for windowed attention.
    pub table: &'a [u32],
    /// Position of the first row.
    pub position: usize,
    /// How many rows.
    pub rows: usize,
}

/// Host-side description of a batch of attention rows, for devices and tests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AttentionBatch {
    /// All tables, one after the other.
    pub tables: Vec<u32>,
    /// For each sequence: start and end of its table, first row, first position, rows.
    pub sequences: Vec<BatchSequence>,
    /// Position of each row.
    pub positions: Vec<u32>,
}

/// One sequence of an [`AttentionBatch`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchSequence {
    /// Where its table begins and ends in `tables`.
    pub table: std::ops::Range<usize>,
    /// Index of its first row.
    pub row: usize,
    /// Position of that row.
    pub position: usize,
    /// How many rows.
    pub rows: usize,
}

impl AttentionBatch {
    /// Lays the rows of several sequences one under the other.
    pub fn new(sequences: &[SequenceRows<'_>]) -> Self {
        let mut batch = Self::default();
        for &sequence in sequences {
            batch.push(sequence);
        }
        batch
    }

    /// Adds the rows of a sequence.
    pub fn push(&mut self, sequence: SequenceRows<'_>) {
        let start = self.tables.len();
        self.tables.extend_from_slice(sequence.table);
        self.sequences.push(BatchSequence {
            table: start..self.tables.len(),
            row: self.positions.len(),
            position: sequence.position,
            rows: sequence.rows,
        });
        self.positions.extend((0..sequence.rows).map(|i| (sequence.position + i) as u32));
    }

    /// Takes all rows out.
    pub fn clear(&mut self) {
        self.tables.clear();
        self.sequences.clear();
        self.positions.clear();
    }
}
