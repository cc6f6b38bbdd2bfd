//! Matrix product with a quantised weight.
//!
//! Rows are quantised in groups first ([`groups`](super::groups)), weights at load ([`quantised`](super::quantised)). The products of a
//! group are summed in integers, which is exact. An output is the sum over the groups, in ascending order, of
//!
//! `group's sum * (scale of the weight * scale of the row)`
//!
//! in single precision. Each operation is rounded by itself and none is fused, so all levels of instructions give equal bits. As in
//! the product with floating-point weights neither the neighbouring rows nor the thread matter.

use super::groups::QuantisedGroup;
use super::output_ptr::OutputPtr;
use super::quantised::{IntegerFormat, QuantisedWeight, STEPS};
#[cfg(all(target_arch = "x86_64", feature = "simd"))]
use super::simd::{Avx2Int4, Avx2Int8, VnniInt4, VnniInt8};
use super::simd::{Dots, LANES, Lanes, LevelKind, ScalarInt4, ScalarInt8, SimdLevel, prefetch};
use super::work_split::{ProductPart, ROW_BLOCK};

/// Prefetch distance in bytes for a single row. One row is bound by memory and reads the panels as one stream; the hardware prefetcher
/// stops at each page.
const AHEAD: usize = 4096;

/// A product with checked bounds.
#[derive(Clone, Copy)]
pub(super) struct Task<'a> {
    /// Quantised rows, `[row][group]`.
    x: &'a [QuantisedGroup],
    weight: &'a QuantisedWeight,
    bias: Option<&'a [f32]>,
    out: OutputPtr,
}

impl<'a> Task<'a> {
    /// Checks the bounds of `out[r, c] = bias[c] + sum over k of x[r, k] * weight[c, k]` for `rows` rows with the groups in `x`. The task
    /// borrows `out` for its lifetime.
    pub(super) fn new(
        (x, rows): (&'a [QuantisedGroup], usize),
        weight: &'a QuantisedWeight,
        bias: Option<&'a [f32]>,
        out: &'a mut [f32],
    ) -> Self {
        let (columns, groups) = (weight.columns(), weight.groups());
        // The kernels read and write through raw pointers and rely on these bounds.
        assert_eq!(rows.checked_mul(groups), Some(x.len()), "rows and weight differ");
        assert_eq!(rows.checked_mul(columns), Some(out.len()), "output has the wrong size");
        assert!(bias.is_none_or(|b| b.len() == columns), "bias has the wrong size");
        Self { x, weight, bias, out: OutputPtr(out.as_mut_ptr()) }
    }

    /// Computes a part of the product.
    ///
    /// # Safety
    /// The part lies within the rows and the weight's panels. No other thread reads or writes its outputs meanwhile.
    pub(super) unsafe fn compute(self, level: SimdLevel, part: ProductPart) {
        // SAFETY: the bounds were checked; the caller guarantees the rest.
        unsafe { dispatch(level, self, part) }
    }
}

/// Tile of rows and panels that [`dispatch`] computes for this many rows.
pub(super) fn tile_size(level: SimdLevel, rows: usize) -> (usize, usize) {
    match (level.has_vnni(), rows) {
        (_, 1) => (1, 1),
        (true, _) => (4, 2),
        (false, _) => (2, 1),
    }
}

/// Computes a part of a product.
///
/// # Safety
/// The bounds that [`Task::new`] asserts hold, and the part lies within them. No other thread reads or writes its outputs meanwhile.
unsafe fn dispatch(level: SimdLevel, task: Task<'_>, part: ProductPart) {
    /// # Safety
    /// The processor has AVX-512 VNNI; the caller's guarantees.
    #[cfg(all(target_arch = "x86_64", feature = "simd"))]
    #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx512vnni,avx2,fma")]
    unsafe fn vnni(task: Task<'_>, part: ProductPart) {
        // 32 registers: eight integer sums, eight sums in single precision, and the weights.
        // SAFETY: the caller guarantees it, and the dots are of the weight's format.
        unsafe {
            match task.weight.bits() {
                IntegerFormat::Eight => tiles::<VnniInt8, 4, 2>(task, part),
                IntegerFormat::Four => tiles::<VnniInt4, 4, 2>(task, part),
            }
        }
    }
    /// # Safety
    /// The processor has AVX2; the caller's guarantees.
    #[cfg(all(target_arch = "x86_64", feature = "simd"))]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn avx2(task: Task<'_>, part: ProductPart) {
        // 16 registers, two for each sum.
        // SAFETY: as above.
        unsafe {
            match task.weight.bits() {
                IntegerFormat::Eight => tiles::<Avx2Int8, 2, 1>(task, part),
                IntegerFormat::Four => tiles::<Avx2Int4, 2, 1>(task, part),
            }
        }
    }
    match level.kind() {
        // SAFETY: no special instruction; the dots are of the weight's format; the caller guarantees the rest.
        LevelKind::Baseline => unsafe {
            match task.weight.bits() {
                IntegerFormat::Eight => tiles::<ScalarInt8, 2, 1>(task, part),
                IntegerFormat::Four => tiles::<ScalarInt4, 2, 1>(task, part),
            }
        },
        // SAFETY: a level has VNNI only where the processor has; the caller guarantees the rest.
        #[cfg(all(target_arch = "x86_64", feature = "simd"))]
        LevelKind::Avx512 if level.has_vnni() => unsafe { vnni(task, part) },
        // SAFETY: a `SimdLevel` of this kind exists only where the processor has these instructions; the caller guarantees the rest.
        #[cfg(all(target_arch = "x86_64", feature = "simd"))]
        LevelKind::Avx2 | LevelKind::Avx512 => unsafe { avx2(task, part) },
    }
}

/// Splits a part into tiles whose sums fit the registers: `R` rows by `P` panels, or one row by one panel. Panels are outermost, so that
/// each is read once for a whole block of rows.
///
/// # Safety
/// The processor has `D`'s instructions, and `D` is of the weight's format; the guarantees of [`dispatch`].
#[inline(always)]
unsafe fn tiles<D: Dots, const R: usize, const P: usize>(task: Task<'_>, part: ProductPart) {
    let mut first = part.rows.start;
    while first < part.rows.end {
        let end = part.rows.end.min(first + ROW_BLOCK);
        let mut panel = part.panels.start;
        // SAFETY: the caller's guarantees, and as many rows and panels are left as each call takes.
        unsafe {
            while end - first > 1 && part.panels.end - panel >= P {
                rows::<D, R, P>(task, (first, end), panel);
                panel += P;
            }
            while panel < part.panels.end {
                rows::<D, R, 1>(task, (first, end), panel);
                panel += 1;
            }
        }
        first = end;
    }
}

/// Rows `first .. end` by `P` panels.
///
/// # Safety
/// As [`tiles`]: the rows and the panels from `panel` to `panel + P` are of a part.
#[inline(always)]
unsafe fn rows<D: Dots, const R: usize, const P: usize>(task: Task<'_>, (first, end): (usize, usize), panel: usize) {
    let mut row = first;
    // SAFETY: the caller's guarantees, and as many rows are left as each call takes.
    unsafe {
        while end - row >= R {
            tile::<D, R, P>(task, row, panel);
            row += R;
        }
        while end - row >= 2 {
            tile::<D, 2, P>(task, row, panel);
            row += 2;
        }
        if row < end {
            tile::<D, 1, P>(task, row, panel);
        }
    }
}

/// `R` rows by `P` panels.
///
/// # Safety
/// As [`rows`], and the rows up to `row + R` are of the part.
#[inline(always)]
unsafe fn tile<D: Dots, const R: usize, const P: usize>(task: Task<'_>, row: usize, panel: usize) {
    let Task { x, weight, bias, out } = task;
    let (columns, groups) = (weight.columns(), weight.groups());
    // SAFETY: the weight has `panel + P` panels of `groups` groups, each of `STEPS` steps of `D::STEP` bytes, as `D` is of its format, and
    // of `LANES` scales; the loops read no others. Row `row + R - 1` has `groups` groups in `x`, each of eight times four numbers. Columns
    // of these rows lie in `out`, which has `columns` for each row; a whole panel is stored only if that many are left. `bias` has
    // `columns`.
    unsafe {
        let mut sums = [[D::Sums::zero(); R]; P];
        let lines: [*const u8; P] = std::array::from_fn(|p| weight.lines().add((panel + p) * groups * STEPS * D::STEP));
        let scales: [*const u16; P] = std::array::from_fn(|p| weight.scales().add((panel + p) * groups * LANES));
        let inputs: [*const QuantisedGroup; R] = std::array::from_fn(|r| x.as_ptr().add((row + r) * groups));
        for group in 0..groups {
            // Plain loops without checked arithmetic: a closure that is not inlined would lack the instructions.
            let mut dots = [[D::zero(); R]; P];
            for step in 0..STEPS {
                let at = group.wrapping_mul(STEPS).wrapping_add(step).wrapping_mul(D::STEP);
                for (dots, line) in dots.iter_mut().zip(&lines) {
                    if R == 1 {
                        let ahead = line.wrapping_add(at).wrapping_add(AHEAD);
                        prefetch(ahead);
                        if D::STEP > 64 {
                            prefetch(ahead.wrapping_add(64));
                        }
                    }
                    let [first, second] = D::load(line.add(at));
                    for (dots, input) in dots.iter_mut().zip(&inputs) {
                        let quads = (&raw const (*input.add(group)).numbers).cast::<i32>();
                        *dots = dots.add(first, quads.add(step).read_unaligned());
                        *dots = dots.add(second, quads.add(step + STEPS).read_unaligned());
                    }
                }
            }
            for ((sums, dots), scales) in sums.iter_mut().zip(&dots).zip(&scales) {
                let at = group.wrapping_mul(LANES);
                if R == 1 {
                    // Prefetches the scales of the same groups.
                    prefetch(scales.wrapping_add(at).wrapping_add(AHEAD / (STEPS * D::STEP) * LANES).cast());
                }
                let weight = D::Sums::load_bf16(scales.add(at));
                for ((sum, dots), input) in sums.iter_mut().zip(dots).zip(&inputs) {
                    let QuantisedGroup { scale, total, .. } = &*input.add(group);
                    *sum = sum.plus(dots.finish(*total).times(weight.times(D::Sums::splat(*scale))));
                }
            }
        }
        for (p, sums) in sums.iter().enumerate() {
            for (r, &sum) in sums.iter().enumerate() {
                out.store(sum, columns, row + r, panel + p, bias);
            }
        }
    }
}
