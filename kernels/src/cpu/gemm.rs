//! The matrix product behind linear layers and convolutions.
//!
//! A weight is packed once (`panels`). One output is the sum over `k`
//! in ascending order in a single accumulator, whatever the number of rows beside it: the tile that computes it
//! decides only how many such sums run side by side. That is what makes a row's result independent of its batch.
//!
//! A large product is split over the threads of a pool, by rows or by panels: which thread computes an output does not matter either.
//!
//! A row need not be contiguous: it is `taps` stretches of `length` numbers that lie `stride` apart. With one tap this
//! is a linear layer; with several, over a stream `[time, channels]`, a (dilated) convolution without any copying.

use std::iter;

use super::work_split::ProductPart;
use super::groups::{self, QuantisedGroup};
pub use super::panels::{LANES, PackedWeight};
use super::panels::{Lane, Number, Panels};
use super::pool::Pool;
use super::product::{self, Product};
use super::simd::{LevelKind, Lanes, SimdLevel, ScalarLanes, prefetch};
#[cfg(all(target_arch = "x86_64", feature = "simd"))]
use super::simd::{Avx2Lanes, Avx512Lanes};

/// Where the rows of the left operand lie.
#[derive(Debug, Clone, Copy)]
pub struct StridedRows<'a> {
    /// The numbers.
    pub data: &'a [f32],
    /// Offset of row `r` is `first + r * step`.
    pub first: usize,
    /// See `first`.
    pub step: usize,
    /// How many rows.
    pub count: usize,
    /// Stretches in a row.
    pub taps: usize,
    /// Numbers in a stretch.
    pub length: usize,
    /// Distance between the starts of stretches.
    pub stride: usize,
}

impl<'a> StridedRows<'a> {
    /// Plain rows of a matrix `[count, k]`.
    pub fn dense(data: &'a [f32], k: usize) -> Self {
        let count = data.len().checked_div(k).unwrap_or(0);
        Self { data, first: 0, step: k, count, taps: 1, length: k, stride: 0 }
    }

    /// Whether rows have `k` numbers each, all of them in `data`. There is at least one row.
    fn is_within(&self, k: usize) -> bool {
        self.taps.checked_mul(self.length) == Some(k) && self.end().is_some_and(|end| end <= self.data.len())
    }

    /// One past the last number that a row reaches, if that is a number at all. There is at least one row.
    fn end(&self) -> Option<usize> {
        let rows = (self.count - 1).checked_mul(self.step)?;
        let taps = (self.taps.max(1) - 1).checked_mul(self.stride)?;
        self.first.checked_add(rows)?.checked_add(taps)?.checked_add(self.length)
    }
}

/// `out[r, c] = bias[c] + sum over k of x[r, k] * weight[c, k]`; `out` is `[x.count, weight.columns]`.
pub fn multiply(level: SimdLevel, x: StridedRows<'_>, weight: &PackedWeight, bias: Option<&[f32]>, out: &mut [f32]) {
    multiply_on(None, level, x, weight, bias, &mut Vec::new(), out);
}

/// As [`multiply`], on the threads of a pool if the product is large. The bits are the same. `groups` is room for the rows of a quantised
/// weight.
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

/// Bytes of a weight from which on a single row takes it to come from memory rather than out of a cache.
const STREAMED: usize = 2 << 20;
/// Panels of such a weight that are read side by side: as few as hide the latency of a sum, because each is a stream of its own.
const STREAMS: usize = 4;
/// Bytes of each panel that are asked for ahead of where it is read.
const AHEAD: usize = 2048;

/// Rows and panels that [`dispatch`] computes together where there are so many rows.
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
        // Whole tiles of four rows and of six.
        _ => (12, 2),
    }
}

/// A product whose bounds were checked.
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
    /// The product of rows, of which there is one at least, and a weight that is not of integers. The task stands for `out` as long as it
    /// lives.
    pub(super) fn new(x: StridedRows<'a>, weight: &'a PackedWeight, bias: Option<&'a [f32]>, out: &'a mut [f32]) -> Self {
        // The kernels read and write through raw pointers: these bounds are what they rely on.
        assert!(x.is_within(weight.k), "rows and weight differ, or rows reach beyond their data");
        assert_eq!(Some(out.len()), x.count.checked_mul(weight.columns), "output has the wrong size");
        assert!(bias.is_none_or(|b| b.len() == weight.columns), "bias has the wrong size");
        assert!(!weight.is_integer(), "a weight of integers");
        Self { x, columns: weight.columns, k: weight.k, weight: &weight.panels, bias, out: OutputPtr(out.as_mut_ptr()) }
    }

    fn panels(&self) -> usize {
        self.columns.div_ceil(LANES)
    }

    /// Whether a single row reads the weight as a stream. See [`STREAMED`].
    pub(super) fn is_streamed(&self) -> bool {
        self.weight.bytes() >= STREAMED
    }

    /// Computes a part of the product.
    ///
    /// # Safety
    /// The part lies within the rows and the weight's panels. Nobody else reads or writes its outputs meanwhile.
    pub(super) unsafe fn compute(self, level: SimdLevel, part: ProductPart) {
        match self.weight {
            // SAFETY: the bounds were checked; the caller answers for the rest.
            Panels::F32(numbers) => unsafe { dispatch(level, self, numbers, part) },
            // SAFETY: as above.
            Panels::Bf16(numbers) => unsafe { dispatch(level, self, numbers, part) },
            Panels::Integers(_) => unreachable!("refused when the task was made"),
        }
    }
}

/// Where the output lies: `[x.count, columns]`.
#[derive(Clone, Copy)]
pub(super) struct OutputPtr(pub(super) *mut f32);

// SAFETY: threads write to it at different places alone, as `dispatch` demands.
unsafe impl Send for OutputPtr {}
// SAFETY: as above.
unsafe impl Sync for OutputPtr {}

impl OutputPtr {
    /// Stores a panel's sums of one row, with the bias added.
    ///
    /// # Safety
    /// The processor has `L`'s instructions. The output has the row, of `columns` numbers, of which the panel has at least one; `bias` has
    /// `columns`. Nobody else reads or writes there meanwhile.
    #[inline(always)]
    pub(super) unsafe fn store<L: Lanes>(self, sum: L, columns: usize, row: usize, panel: usize, bias: Option<&[f32]>) {
        let column = panel * LANES;
        let width = LANES.min(columns - column);
        // SAFETY: the caller's promises; a whole panel is stored only where so many columns are left.
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
/// The bounds that [`Task::new`] asserts hold, and the part lies within them. Nobody else reads or writes its outputs meanwhile.
unsafe fn dispatch<N: Number>(level: SimdLevel, task: Task<'_>, weight: &[Lane<N>], part: ProductPart) {
    /// # Safety
    /// The processor has AVX-512; the caller's promises.
    #[cfg(all(target_arch = "x86_64", feature = "simd"))]
    #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")]
    unsafe fn avx512<N: Number>(task: Task<'_>, weight: &[Lane<N>], part: ProductPart) {
        // 32 registers: 16 sums, and numbers of the weight.
        // SAFETY: the caller answers for it.
        unsafe { tiles::<Avx512Lanes, N, 2, 4, 4, 8, 8, 8>(task, weight, part) }
    }
    /// # Safety
    /// The processor has AVX2 and fused multiply-add; the caller's promises.
    #[cfg(all(target_arch = "x86_64", feature = "simd"))]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn avx2<N: Number>(task: Task<'_>, weight: &[Lane<N>], part: ProductPart) {
        // 16 registers, two for each sum.
        // SAFETY: the caller answers for it.
        unsafe { tiles::<Avx2Lanes, N, 0, 1, 1, 2, 4, 6>(task, weight, part) }
    }
    match level.kind() {
        // SAFETY: no special instruction; the caller answers for the rest.
        LevelKind::Baseline => unsafe { tiles::<ScalarLanes, N, 0, 1, 1, 2, 4, 2>(task, weight, part) },
        // SAFETY: a `Level` of this kind exists only where the processor has these instructions; the caller answers for the rest.
        #[cfg(all(target_arch = "x86_64", feature = "simd"))]
        LevelKind::Avx2 => unsafe { avx2(task, weight, part) },
        // SAFETY: as above.
        #[cfg(all(target_arch = "x86_64", feature = "simd"))]
        LevelKind::Avx512 => unsafe { avx512(task, weight, part) },
    }
}

/// Rows that share one pass over the panels: few enough that they stay in the nearest cache beside a group of panels.
pub(super) const ROW_BLOCK: usize = 64;

/// Cuts the output into tiles whose sums fit the registers: eight, four, three, two rows or one by `P8`, `P4`, `P3`, `P2` or `P1`
/// panels. Eight rows widen each number of the weight half as often as four; `P8` is 0 where the registers are too few.
/// Where the weight has fewer panels than `P4`, `TALL` rows by one panel; where it is streamed, one row by [`STREAMS`].
///
/// Panels are outermost, so that each is read once for a whole block of rows.
///
/// # Safety
/// The processor has `L`'s instructions; the promises of [`dispatch`].
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
        // SAFETY: the caller's promises, and the block lies within the part.
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

/// The rows of a part by its panels, `P` panels at a time, `R` rows at a time, and what is left four by four and one by one. `A` bytes
/// ahead of what is read are asked for, or none.
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
    // SAFETY: the caller's promises, and as many panels are left as each call takes.
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
    // SAFETY: the caller's promises, and as many rows are left as each call takes.
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
    // SAFETY: `panel + P` panels of `k` times `LANES` numbers lie in `weight`, which is how `Packed` was made, and the loops read
    // `taps * length = k` of these of each. Row `row + R - 1` is one of `x`, whose last number lies in `x.data`. Its columns lie
    // in `out`, which has `columns` for each row; a whole panel is stored only where so many columns are left. `bias` has `columns`.
    unsafe {
        let mut sums = [[L::zero(); P]; R];
        // Checked arithmetic in the inner loop would halve its speed: it has none.
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
            // Past the last tap this may lie outside of the numbers, where nothing is read.
            rows = rows.map(|row| row.wrapping_add(x.stride));
        }
        for (r, sums) in sums.iter().enumerate() {
            for (p, &sum) in sums.iter().enumerate() {
                out.store(sum, columns, row + r, panel + p, bias);
            }
        }
    }
}
