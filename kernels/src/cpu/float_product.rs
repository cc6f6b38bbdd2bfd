//! Matrix product with a floating-point weight: tiles of sums in registers.

use super::output_ptr::OutputPtr;
use super::panels::{Lane, Number, PackedWeight, Panels};
#[cfg(all(target_arch = "aarch64", feature = "simd"))]
use super::simd::NeonLanes;
#[cfg(all(target_arch = "x86_64", feature = "simd"))]
use super::simd::{Avx2Lanes, Avx512Lanes};
use super::simd::{LANES, Lanes, LevelKind, ScalarLanes, SimdLevel, prefetch};
use super::strided_rows::StridedRows;
use super::work_split::{ProductPart, ROW_BLOCK};

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
        // 32 registers, four for each sum.
        // SAFETY: every processor of the architecture has NEON; the caller guarantees the rest.
        #[cfg(all(target_arch = "aarch64", feature = "simd"))]
        LevelKind::Neon | LevelKind::NeonDotprod | LevelKind::NeonI8mm => unsafe {
            tiles::<NeonLanes, N, 0, 1, 1, 2, 4, 6>(task, weight, part)
        },
    }
}

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
                out.store(sum, columns, row + r, ((panel + p) * LANES, columns), bias);
            }
        }
    }
}
