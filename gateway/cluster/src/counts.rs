//! Messages by what became of them.

use crate::beat::BeatError;

/// Counters of a table, for metrics.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TableCounts {
    /// Messages of other nodes that were taken.
    pub taken: u64,
    /// Echoes of own messages.
    pub echoes: u64,
    /// Messages that came twice, or after a later one.
    pub late: u64,
    /// Messages of a node that had ended, or of an earlier run of a node.
    pub of_ended: u64,
    /// Messages of a node's name that a later run uses.
    pub superseded: u64,
    /// Messages of new nodes while the table was full.
    pub no_capacity: u64,
    /// Messages of others with this node's own tag.
    pub tag_taken: u64,
    /// Messages that could not be read, in the order of [`BeatError::LABELS`].
    pub refused: [u64; BeatError::LABELS.len()],
}

impl TableCounts {
    /// Counts a message that could not be read.
    pub(crate) fn refuse(&mut self, error: BeatError) {
        self.refused[error.index()] += 1;
    }

    /// Messages that could not be read, by label.
    pub fn refused(&self) -> impl Iterator<Item = (&'static str, u64)> {
        BeatError::LABELS.into_iter().zip(self.refused)
    }
}
