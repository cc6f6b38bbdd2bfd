//! Output of a product or of attention, written by several threads.

use super::simd::{LANES, Lanes};

/// Pointer to the output, `[x.count, columns]`.
#[derive(Clone, Copy)]
pub(super) struct OutputPtr(pub(super) *mut f32);

// SAFETY: threads write at disjoint places, as the caller of each store guarantees.
unsafe impl Send for OutputPtr {}
// SAFETY: as above.
unsafe impl Sync for OutputPtr {}

impl OutputPtr {
    /// Stores a panel's sums of one row from `column` on, up to `end`, with the bias added.
    ///
    /// # Safety
    /// The processor has `L`'s instructions. The output has the row, of `columns` numbers, and `column < end <= columns`; `bias` has
    /// `columns`. No other thread reads or writes there meanwhile.
    #[inline(always)]
    pub(super) unsafe fn store<L: Lanes>(
        self,
        sum: L,
        columns: usize,
        row: usize,
        (column, end): (usize, usize),
        bias: Option<&[f32]>,
    ) {
        let width = LANES.min(end - column);
        // SAFETY: the caller's guarantees; a whole panel is stored only if that many columns are left.
        unsafe {
            let to = self.0.add(row * columns + column);
            let bias = bias.map(|bias| bias.as_ptr().add(column));
            if width == LANES {
                bias.map_or(sum, |bias| sum.plus(L::load(bias))).store(to);
            } else {
                bias.map_or(sum, |bias| sum.plus(L::load_first(bias, width))).store_first(to, width);
            }
        }
    }
}
