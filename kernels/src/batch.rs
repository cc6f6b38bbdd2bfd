//! Batches of attention rows.

/// Consecutive positions of one sequence within a batch of attention rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SequenceRows<'a> {
    /// Block table of the sequence. Position `p` lies in entry `p / block_len`, modulo the number of entries: a short
    /// table is a ring for windowed attention.
    pub table: &'a [u32],
    /// Position of the first row.
    pub position: usize,
    /// Number of rows.
    pub rows: usize,
}

/// Host-side description of a batch of attention rows, for devices and tests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AttentionBatch {
    /// All block tables, concatenated.
    pub tables: Vec<u32>,
    /// The sequences, in the order of their rows.
    pub sequences: Vec<BatchSequence>,
    /// Position of each row.
    pub positions: Vec<u32>,
}

/// One sequence of an [`AttentionBatch`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchSequence {
    /// Range of its block table in `tables`.
    pub table: std::ops::Range<usize>,
    /// Index of its first row.
    pub row: usize,
    /// Position of its first row.
    pub position: usize,
    /// Number of its rows.
    pub rows: usize,
}

impl AttentionBatch {
    /// Concatenates the rows of several sequences.
    pub fn new(sequences: &[SequenceRows<'_>]) -> Self {
        let mut batch = Self::default();
        for &sequence in sequences {
            batch.push(sequence);
        }
        batch
    }

    /// Appends the rows of a sequence.
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

    /// Removes all rows.
    pub fn clear(&mut self) {
        self.tables.clear();
        self.sequences.clear();
        self.positions.clear();
    }
}
