//! Rows of a matrix product: contiguous, or the taps of a convolution over a stream.

/// Strided view of the rows of the left operand.
#[derive(Debug, Clone, Copy)]
pub struct StridedRows<'a> {
    /// Numbers that contain the rows.
    pub data: &'a [f32],
    /// Offset of the first row; row `r` begins at `first + r * step`.
    pub first: usize,
    /// Distance between the starts of rows.
    pub step: usize,
    /// Number of rows.
    pub count: usize,
    /// Stretches in a row.
    pub taps: usize,
    /// Numbers in a stretch.
    pub length: usize,
    /// Distance between the starts of stretches.
    pub stride: usize,
}

impl<'a> StridedRows<'a> {
    /// Views the contiguous rows of a matrix `[count, k]`.
    pub fn dense(data: &'a [f32], k: usize) -> Self {
        let count = data.len().checked_div(k).unwrap_or(0);
        Self { data, first: 0, step: k, count, taps: 1, length: k, stride: 0 }
    }

    /// True if rows have `k` numbers each, all within `data`. There must be at least one row.
    pub(super) fn is_within(&self, k: usize) -> bool {
        self.taps.checked_mul(self.length) == Some(k) && self.end().is_some_and(|end| end <= self.data.len())
    }

    /// End of the last row in `data`; `None` on overflow. There must be at least one row.
    fn end(&self) -> Option<usize> {
        let rows = (self.count - 1).checked_mul(self.step)?;
        let taps = (self.taps.max(1) - 1).checked_mul(self.stride)?;
        self.first.checked_add(rows)?.checked_add(taps)?.checked_add(self.length)
    }
}
