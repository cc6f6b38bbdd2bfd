//! State of convolutions over streams.

/// Convolution state: the last input rows of each slot's stream.
#[derive(Debug)]
pub struct ConvState {
    /// Rows kept for each slot.
    pub rows: usize,
    /// Channels of a row.
    pub columns: usize,
    /// Numbers of all slots, `[slot][rows][columns]`.
    pub data: Vec<f32>,
}

impl ConvState {
    /// Returns zeroed tails.
    pub(super) fn new(slots: usize, rows: usize, columns: usize) -> Self {
        Self { rows, columns, data: vec![0.0; slots * rows * columns] }
    }

    /// Writes the slot's tail followed by the new rows to `joined`, and keeps its end as the new tail. A stream's first rows follow zeros.
    pub(super) fn extend(&mut self, span: StreamSpan, new: &[f32], joined: &mut Vec<f32>) {
        let tail = self.tail(span);
        joined.clear();
        joined.extend_from_slice(tail);
        joined.extend_from_slice(new);
        tail.copy_from_slice(&joined[joined.len() - tail.len()..]);
    }

    /// Does the same for at least as many new rows as the tail has, of which it writes only that many.
    pub(super) fn extend_begin(&mut self, span: StreamSpan, new: &[f32], joined: &mut Vec<f32>) {
        let tail = self.tail(span);
        joined.clear();
        joined.extend_from_slice(tail);
        joined.extend_from_slice(&new[..tail.len()]);
        tail.copy_from_slice(&new[new.len() - tail.len()..]);
    }

    /// Returns the slot's tail, zeroed at the begin of a stream.
    fn tail(&mut self, span: StreamSpan) -> &mut [f32] {
        let size = self.rows * self.columns;
        let tail = &mut self.data[span.slot * size..(span.slot + 1) * size];
        if span.first {
            tail.fill(0.0);
        }
        tail
    }
}

/// Consecutive rows of one slot's stream in a packed batch.
#[derive(Debug, Clone, Copy)]
pub struct StreamSpan {
    /// Slot of the stream.
    pub slot: usize,
    /// Index of the first row in the batch.
    pub row: usize,
    /// Number of rows.
    pub rows: usize,
    /// True if the stream begins with these rows.
    pub first: bool,
}

/// Zeroes the rows between spans, which come in ascending order.
pub(super) struct GapFill {
    columns: usize,
    /// Row after the last span.
    next: usize,
}

impl GapFill {
    pub(super) fn new(columns: usize) -> Self {
        Self { columns, next: 0 }
    }

    /// Zeroes the rows up to `row`; the caller writes the next `rows` rows.
    pub(super) fn clear_before(&mut self, out: &mut [f32], row: usize, rows: usize) {
        out[self.next * self.columns..row * self.columns].fill(0.0);
        self.next = row + rows;
    }

    pub(super) fn clear_rest(&self, out: &mut [f32]) {
        out[self.next * self.columns..].fill(0.0);
    }
}
