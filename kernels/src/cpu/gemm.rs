//! Matrix product for linear layers and convolutions.
//!
//! A weight is packed once (`panels`). Each output is a sum over `k` in ascending order in one accumulator, for any number of rows; the
//! tile size only decides how many such sums run together. So a row's result does not depend on its batch.
//!
//! A large product is split over the threads of a pool, by rows or by panels. The split does not change a result either.
//!
//! A row need not be contiguous: it is `taps` stretches of `length` numbers, `stride` apart. With one tap this is a linear layer; with
//! several, over a stream `[time, channels]`, a (dilated) convolution without any copying.

use std::iter;

use super::groups::{self, QuantisedGroup};
pub use super::panels::{LANES, PackedWeight};
use super::panels::{Lane, Number, Panels};
use super::pool::Pool;
use super::product::{self, Product};
#[cfg(all(target_arch = "x86_64", feature = "simd"))]
use super::simd::{Avx2Lanes, Avx512Lanes};
use super::simd::{Lanes, LevelKind, ScalarLanes, SimdLevel, prefetch};
use super::work_split::ProductPart;

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
    fn is_within(&self, k: usize) -> bool {
        self.taps.checked_mul(self.length) == Some(k) && self.end().is_some_and(|end| end <= self.data.len())
    }

    /// End of the last row in `data`; `None` on overflow. There must be at least one row.
    fn end(&self) -> Option<usize> {
        let rows = (self.count - 1).checked_mul(self.step)?;
        let taps = (self.taps.max(1) - 1).checked_mul(self.stride)?;
        self.first.checked_add(rows)?.checked_add(taps)?.checked_add(self.length)
    }
}

/// Computes `out[r, c] = bias[c] + sum over k of x[r, k] * weight[c, k]`; `out` is `[x.count, weight.columns]`.
pub fn multiply(level: SimdLevel, x: StridedRows<'_>, weight: &PackedWeight, bias: Option<&[f32]>, out: &mut [f32]) {
    multiply_on(None, level, x, weight, bias, &mut Vec::new(), out);
}

/// Does the same as [`multiply`] on the threads of a pool if the product is large, with equal bits. `groups` is scratch for the quantised
/// rows of an integer weight.
pub fn multiply_on(
    pool: Option<&Pool>,
    level: SimdLevel,
    x: StridedRows<'_>,
    weight: &PackedWeight,
    bias: Option<&[f32]>,
    groups: &mut Vec<QuantisedGroup>,
    out: &mut [f32],
) {
    if x.count == 0 {
        return;
    }
    let product = match &weight.panels {
        Panels::Integers(integers) => {
            assert!(x.is_within(weight.k), "rows and weight differ, or rows reach beyond their data");
            groups::quantise(level, x, groups);
            Product::of_integers(pool, level, (groups, x.count), integers, bias, out)
        }
        Panels::F32(_) | Panels::Bf16(_) => Product::of_floats(pool, level, x, weight, bias, out),
    };
    product::run(pool, iter::once(&product));
}

/// Least bytes of a weight that a single row is assumed to read from memory, not from a cache.
const STREAMED: usize = 2 << 20;
/// Panels of such a weight that are read together: just enough to hide the latency of a sum, because each is a memory stream.
const STREAMS: usize = 4;
/// Prefetch distance in bytes, for each panel.
const AHEAD: usize = 2048;

/// Tile of rows and panels that [`dispatch`] computes for this many rows.
pub(super) fn tile_size(level: SimdLevel, rows: usize, streamed: bool) -> (usize, usize) {
    match (level.kind(), rows) {
        (_, 1) if streamed => (1, STREAMS),
        #[cfg(all(target_arch = "x86_64", feature = "simd"))]
        (LevelKind::Avx512, 1 | 2) => (1, 8),
        #[cfg(all(target_arch = "x86_64", feature = "simd"))]
        (LevelKind::Avx512, 3..8) => (4, 4),
        #[cfg(all(target_arch = "x86_64", feature = "simd"))]
        (LevelKind::Avx512, _) => (8, 2),
        #[cfg(all(target_arch = "x86_64", feature = "simd"))]
        (LevelKind::Avx2, 1) => (1, 6),
        (_, 1 | 2) => (1, 4),
        // A multiple of the tiles of four and of six rows.
        _ => (12, 2),
    }
}

/// A product with checked bounds.
#[derive(Clone, Copy)]
pub(super) struct Task<'a> {
    x: StridedRows<'a>,
    columns: usize,
    k: usize,
    weight: &'a Panels,
    bias: Option<&'a [f32]>,
    out: OutputPtr,
}

impl<'a> Task<'a> {
    /// Checks the bounds of a product of at least one row with a floating-point weight. The task borrows `out` for its lifetime.
    pub(super) fn new(
        x: StridedRows<'a>,
        weight: &'a PackedWeight,
        bias: Option<&'a [f32]>,
        out: &'a mut [f32],
    ) -> Self {
        // The kernels read and write through raw pointers and rely on these bounds.
        assert!(x.is_within(weight.k), "rows and weight differ, or rows reach beyond their data");
        assert_eq!(Some(out.len()), x.count.checked_mul(weight.columns), "output has the wrong size");
        assert!(bias.is_none_or(|b| b.len() == weight.columns), "bias has the wrong size");
        assert!(!weight.is_integer(), "a weight of integers");
        Self { x, columns: weight.columns, k: weight.k, weight: &weight.panels, bias, out: OutputPtr(out.as_mut_ptr()) }
    }

    fn panels(&self) -> usize {
        self.columns.div_ceil(LANES)
    }

    /// True if a single row reads the weight as a stream. See [`STREAMED`].
    pub(super) fn is_streamed(&self) -> bool {
        self.weight.bytes() >= STREAMED
    }

    /// Computes a part of the product.
    ///
    /// # Safety
    /// The part lies within the rows and the weight's panels. No other thread reads or writes its outputs meanwhile.
    pub(super) unsafe fn compute(self, level: SimdLevel, part: ProductPart) {
        match self.weight {
            // SAFETY: the bounds were checked; the caller guarantees the rest.
            Panels::F32(numbers) => unsafe { dispatch(level, self, numbers, part) },
            // SAFETY: as above.
            Panels::Bf16(numbers) => unsafe { dispatch(level, self, numbers, part) },
            Panels::Integers(_) => unreachable!("refused when the task was made"),
        }
    }
}

/// Pointer to the output, `[x.count, columns]`.
#[derive(Clone, Copy)]
pub(super) struct OutputPtr(pub(super) *mut f32);

// SAFETY: threads write at disjoint places, as `dispatch` requires.
unsafe impl Send for OutputPtr {}
// SAFETY: as above.
unsafe impl Sync for OutputPtr {}

impl OutputPtr {
    /// Stores a panel's sums of one row, with the bias added.
    ///
    /// # Safety
    /// The processor has `L`'s instructions. The output has the row, of `columns` numbers, and the panel has at least one of them; `bias`
    /// has `columns`. No other thread reads or writes there meanwhile.
    #[inline(always)]
    pub(super) unsafe fn store<L: Lanes>(self, sum: L, columns: usize, row: usize, panel: usize, bias: Option<&[f32]>) {
        let column = panel * LANES;
        let width = LANES.min(columns - column);
        // SAFETY: the caller's guarantees; a whole panel is stored only if that many columns are left.
        unsafe {
            let to = self.0.add(row * columns + column);
            if width == LANES && bias.is_none() {
                sum.store(to);
                return;
            }
            let mut lanes = [0.0f32; LANES];
            sum.store(lanes.as_mut_ptr());
            for (lane, &value) in lanes.iter().take(width).enumerate() {
                *to.add(lane) = value + bias.map_or(0.0, |b| *b.get_unchecked(column + lane));
            }
        }
    }
}

/// Computes a part of a product.
///
/// # Safety
/// The bounds that [`Task::new`] asserts hold, and the part lies within them. No other thread reads or writes its outputs meanwhile.
unsafe fn dispatch<N: Number>(level: SimdLevel, task: Task<'_>, weight: &[Lane<N>], part: ProductPart) {
    /// # Safety
    /// The processor has AVX-512; the caller's guarantees.
    #[cfg(all(target_arch = "x86_64", feature = "simd"))]
    #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")]
    unsafe fn avx512<N: Number>(task: Task<'_>, weight: &[Lane<N>], part: ProductPart) {
        // 32 registers: 16 sums, and numbers of the weight.
        // SAFETY: the caller guarantees it.
        unsafe { tiles::<Avx512Lanes, N, 2, 4, 4, 8, 8, 8>(task, weight, part) }
    }
    /// # Safety
    /// The processor has AVX2 and fused multiply-add; the caller's guarantees.
    #[cfg(all(target_arch = "x86_64", feature = "simd"))]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn avx2<N: Number>(task: Task<'_>, weight: &[Lane<N>], part: ProductPart) {
        // 16 registers, two for each sum.
        // SAFETY: the caller guarantees it.
        unsafe { tiles::<Avx2Lanes, N, 0, 1, 1, 2, 4, 6>(task, weight, part) }
    }
    match level.kind() {
        // SAFETY: no special instruction; the caller guarantees the rest.
        LevelKind::Baseline => unsafe { tiles::<ScalarLanes, N, 0, 1, 1, 2, 4, 2>(task, weight, part) },
        // SAFETY: a `SimdLevel` of this kind exists only where the processor has these instructions; the caller guarantees the rest.
        #[cfg(all(target_arch = "x86_64", feature = "simd"))]
        LevelKind::Avx2 => unsafe { avx2(task, weight, part) },
        // SAFETY: as above.
        #[cfg(all(target_arch = "x86_64", feature = "simd"))]
        LevelKind::Avx512 => unsafe { avx512(task, weight, part) },
    }
}

/// Rows that share one pass over the panels: few enough to stay in the nearest cache beside a group of panels.
pub(super) const ROW_BLOCK: usize = 64;

/// Splits the output into tiles whose sums fit the registers: eight, four, three, two rows or one by `P8`, `P4`, `P3`, `P2` or `P1` panels.
/// Eight rows widen each number of the weight half as often as four; `P8` is 0 if the registers are too few. A weight of fewer panels than
/// `P4` takes tiles of `TALL` rows by one panel; a streamed one takes one row by [`STREAMS`].
///
/// Panels are outermost, so that each is read once for a whole block of rows.
///
/// # Safety
/// The processor has `L`'s instructions; the guarantees of [`dispatch`].
#[inline(always)]
unsafe fn tiles<
    L: Lanes,
    N: Number,
    const P8: usize,
    const P4: usize,
    const P3: usize,
    const P2: usize,
    const P1: usize,
    const TALL: usize,
>(
    task: Task<'_>,
    weight: &[Lane<N>],
    part: ProductPart,
) {
    let mut first = part.rows.start;
    while first < part.rows.end {
        let end = part.rows.end.min(first + ROW_BLOCK);
        let block = ProductPart { rows: first..end, panels: part.panels.clone() };
        // SAFETY: the caller's guarantees, and the block lies within the part.
        unsafe {
            match end - first {
                1 if task.is_streamed() && P1 >= STREAMS => panels::<L, N, 1, STREAMS, AHEAD>(task, weight, block),
                1 => panels::<L, N, 1, P1, 0>(task, weight, block),
                2 => panels::<L, N, 2, P2, 0>(task, weight, block),
                3 => panels::<L, N, 3, P3, 0>(task, weight, block),
                8.. if P8 > 0 && task.panels() >= P8 => panels::<L, N, 8, P8, 0>(task, weight, block),
                _ if task.panels() < P4 => panels::<L, N, TALL, 1, 0>(task, weight, block),
                _ => panels::<L, N, 4, P4, 0>(task, weight, block),
            }
        }
        first = end;
    }
}

/// Computes the rows of a part, `P` panels by `R` rows at a time, and the rest four by four and one by one. It prefetches `A` bytes ahead,
/// or nothing if 0.
///
/// # Safety
/// As [`tiles`].
#[inline(always)]
unsafe fn panels<L: Lanes, N: Number, const R: usize, const P: usize, const A: usize>(
    task: Task<'_>,
    weight: &[Lane<N>],
    part: ProductPart,
) {
    let (first, end) = (part.rows.start, part.rows.end);
    let mut panel = part.panels.start;
    // SAFETY: the caller's guarantees, and as many panels are left as each call takes.
    unsafe {
        while part.panels.end - panel >= P {
            rows::<L, N, R, P, A>(task, weight, (first, end), panel);
            panel += P;
        }
        while panel < part.panels.end {
            rows::<L, N, R, 1, A>(task, weight, (first, end), panel);
            panel += 1;
        }
    }
}

/// Rows `first .. end` by `P` panels.
///
/// # Safety
/// As [`panels`]: the rows and the panels from `panel` to `panel + P` are of a part.
#[inline(always)]
unsafe fn rows<L: Lanes, N: Number, const R: usize, const P: usize, const A: usize>(
    task: Task<'_>,
    weight: &[Lane<N>],
    (first, end): (usize, usize),
    panel: usize,
) {
    let mut row = first;
    // SAFETY: the caller's guarantees, and as many rows are left as each call takes.
    unsafe {
        while end - row >= R {
            tile::<L, N, R, P, A>(task, weight, row, panel);
            row += R;
        }
        while R > 4 && end - row >= 4 {
            tile::<L, N, 4, P, A>(task, weight, row, panel);
            row += 4;
        }
        while row < end {
            tile::<L, N, 1, P, A>(task, weight, row, panel);
            row += 1;
        }
    }
}

/// `R` rows by `P` panels.
///
/// # Safety
/// As [`rows`], and the rows up to `row + R` are of the part.
#[inline(always)]
unsafe fn tile<L: Lanes, N: Number, const R: usize, const P: usize, const A: usize>(
    task: Task<'_>,
    weight: &[Lane<N>],
    row: usize,
    panel: usize,
) {
    let Task { x, columns, k, bias, out, .. } = task;
    // SAFETY: `weight` has `panel + P` panels of `k` times `LANES` numbers, as `PackedWeight` was built, and the loops read `taps * length = k`
    // of these of each. Row `row + R - 1` is one of `x`, and its last number lies in `x.data`. Its columns lie in `out`, which has
    // `columns` for each row; a whole panel is stored only if that many columns are left. `bias` has `columns`.
    unsafe {
        let mut sums = [[L::zero(); P]; R];
        // Unchecked: checked arithmetic in the inner loop halves its speed.
        let mut weights: [*const Lane<N>; P] = std::array::from_fn(|p| weight.as_ptr().add((panel + p) * k));
        let mut rows: [*const f32; R] = std::array::from_fn(|r| x.data.as_ptr().add(x.first + (row + r) * x.step));
        for _ in 0..x.taps {
            for i in 0..x.length {
                let mut numbers = [L::zero(); P];
                for (numbers, weight) in numbers.iter_mut().zip(&weights) {
                    if A > 0 && (i & 1 == 0 || size_of::<Lane<N>>() > 32) {
                        prefetch(weight.add(i).cast::<u8>().wrapping_add(A));
                    }
                    *numbers = N::load(weight.add(i));
                }
                for (sums, row) in sums.iter_mut().zip(&rows) {
                    let value = L::splat(*row.add(i));
                    for (sum, &number) in sums.iter_mut().zip(&numbers) {
                        *sum = sum.multiply_add(value, number);
                    }
                }
            }
            weights = weights.map(|weight| weight.add(x.length));
            // Past the last tap this may lie outside of the numbers; nothing is read there.
            rows = rows.map(|row| row.wrapping_add(x.stride));
        }
        for (r, sums) in sums.iter().enumerate() {
            for (p, &sum) in sums.iter().enumerate() {
                out.store(sum, columns, row + r, panel + p, bias);
            }
        }
    }
}
