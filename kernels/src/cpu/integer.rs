//! Matrix product with a quantised weight.
//!
//! Rows are quantised in groups first ([`groups`](super::groups)), weights at load ([`quantised`](super::quantised)). The products of a
//! group are summed in integers, which is exact. An output is the sum over the groups, in ascending order, of
//!
//! - `group's sum * (scale of the weight * scale of the row)`
//! - with a scale for each half: `(first half's sum * its scale + second half's sum * its scale) * scale of the row`
//! - with minimums, which in super-blocks are products of two numbers, as the scales are, and exact: `(group's sum * scale of the weight + total of the row's group * minimum) * scale of the row`
//!
//! in single precision. Each operation is rounded by itself and none is fused, so all levels of instructions give equal bits. As in
//! the product with floating-point weights neither the neighbouring rows nor the thread matter.
//!
//! A weight may be several [`QuantisedWeight`]s of different kinds, one beside the other: each computes its own columns.

use super::groups::QuantisedGroup;
use super::output_ptr::OutputPtr;
use super::quantised::{IntegerFormat, QuantisedWeight, STEPS, SUPER_GROUPS};
#[cfg(all(target_arch = "x86_64", feature = "simd"))]
use super::simd::{Avx2Int4, Avx2Int8, VnniInt4, VnniInt8};
#[cfg(all(target_arch = "aarch64", feature = "simd"))]
use super::simd::{DotInt4, DotInt8, MatrixInt4, MatrixInt8, NeonInt4, NeonInt8};
use super::simd::{Dots, LANES, Lanes, LevelKind, ScalarInt4, ScalarInt8, SimdLevel, prefetch};
use super::work_split::{ProductPart, ROW_BLOCK};
use crate::packed::GroupScales;

/// Prefetch distance in bytes for a single row. One row is bound by memory and reads the panels as one stream; the hardware prefetcher
/// stops at each page.
const AHEAD: usize = 4096;

/// The kinds of [`GroupScales`], as constants of the tiles: with a branch in its loop a tile is slower.
const BF16: u8 = 0;
const F16: u8 = 1;
const HALVES: u8 = 2;
const MINIMUM: u8 = 3;
const SUPER: u8 = 4;

/// A product with checked bounds.
#[derive(Clone, Copy)]
pub(super) struct Task<'a> {
    /// Quantised rows: each is as many groups as the weight has, `step` after those of the row before.
    x: &'a [QuantisedGroup],
    step: usize,
    /// Weights that share the input, with their columns one after the other.
    weights: &'a [QuantisedWeight],
    /// Columns of all weights.
    columns: usize,
    bias: Option<&'a [f32]>,
    out: OutputPtr,
}

/// A product with one weight of a task.
#[derive(Clone, Copy)]
struct WeightTask<'a> {
    whole: Task<'a>,
    weight: &'a QuantisedWeight,
    /// First column of the weight in the output.
    first_column: usize,
}

impl<'a> Task<'a> {
    /// Checks the bounds of `out[r, c] = bias[c] + sum over k of x[r, k] * weight[c, k]` for `rows` rows with the groups in `x`, each
    /// `step` groups after the row before. The task borrows `out` for its lifetime.
    pub(super) fn new(
        (x, rows, step): (&'a [QuantisedGroup], usize, usize),
        weights: &'a [QuantisedWeight],
        bias: Option<&'a [f32]>,
        out: &'a mut [f32],
    ) -> Self {
        let columns = weights.iter().map(QuantisedWeight::columns).sum();
        // The kernels read and write through raw pointers and rely on these bounds.
        for weight in weights {
            let end = |last: usize| last.checked_mul(step)?.checked_add(weight.groups());
            let end = rows.checked_sub(1).map_or(Some(0), end);
            assert!(end.is_some_and(|end| end <= x.len()), "rows and weight differ");
        }
        assert_eq!(rows.checked_mul(columns), Some(out.len()), "output has the wrong size");
        assert!(bias.is_none_or(|b| b.len() == columns), "bias has the wrong size");
        Self { x, step, weights, columns, bias, out: OutputPtr(out.as_mut_ptr()) }
    }

    /// Computes a part of the product. Its panels are those of all weights, one weight after the other.
    ///
    /// # Safety
    /// The part lies within the rows and the weights' panels. No other thread reads or writes its outputs meanwhile.
    pub(super) unsafe fn compute(self, level: SimdLevel, part: ProductPart) {
        let (mut first_panel, mut first_column) = (0, 0);
        for weight in self.weights {
            let end = first_panel + weight.panels();
            let panels = part.panels.start.max(first_panel)..part.panels.end.min(end);
            if !panels.is_empty() {
                let panels = panels.start - first_panel..panels.end - first_panel;
                let task = WeightTask { whole: self, weight, first_column };
                // SAFETY: the bounds were checked; the panels are the weight's; the caller guarantees the rest.
                unsafe { dispatch(level, task, ProductPart { rows: part.rows.clone(), panels }) }
            }
            (first_panel, first_column) = (end, first_column + weight.columns());
        }
    }
}

/// Tile of rows and panels that [`dispatch`] computes for this many rows.
pub(super) fn tile_size(level: SimdLevel, rows: usize) -> (usize, usize) {
    match (level.has_vnni(), rows) {
        (_, 1) => (1, 1),
        #[cfg(all(target_arch = "aarch64", feature = "simd"))]
        _ if level.kind() == LevelKind::NeonI8mm => (4, 1),
        (true, _) => (4, 2),
        (false, _) => (2, 1),
    }
}

/// Computes a part of a product with one weight.
///
/// # Safety
/// The bounds that [`Task::new`] asserts hold, and the part lies within its rows and the weight's panels. No other thread reads or writes
/// its outputs meanwhile.
unsafe fn dispatch(level: SimdLevel, task: WeightTask<'_>, part: ProductPart) {
    // Selects the tiles of the weight's format, of rows and panels; the rarer kinds have one panel.
    macro_rules! tiles_of_format {
        ($task:ident, $part:ident, $eight:ty, $four:ty, $rows:literal, $panels:literal) => {
            match ($task.weight.bits(), $task.weight.kind()) {
                (IntegerFormat::Eight, GroupScales::Bf16) => tiles::<$eight, BF16, $rows, $panels>($task, $part),
                (IntegerFormat::Eight, GroupScales::F16) => tiles::<$eight, F16, $rows, $panels>($task, $part),
                (IntegerFormat::Eight, GroupScales::F16Halves) => tiles::<$eight, HALVES, $rows, 1>($task, $part),
                (IntegerFormat::Eight, GroupScales::F16Minimum) => tiles::<$eight, MINIMUM, $rows, 1>($task, $part),
                (IntegerFormat::Eight, GroupScales::SuperBlock) => tiles::<$eight, SUPER, $rows, 1>($task, $part),
                (IntegerFormat::Four, GroupScales::Bf16) => tiles::<$four, BF16, $rows, $panels>($task, $part),
                (IntegerFormat::Four, GroupScales::F16) => tiles::<$four, F16, $rows, $panels>($task, $part),
                (IntegerFormat::Four, GroupScales::F16Minimum) => tiles::<$four, MINIMUM, $rows, $panels>($task, $part),
                (IntegerFormat::Four, GroupScales::SuperBlock) => tiles::<$four, SUPER, $rows, $panels>($task, $part),
                (IntegerFormat::Four, GroupScales::F16Halves) => unreachable!("refused by PackedTensor::check"),
            }
        };
    }
    /// # Safety
    /// The processor has AVX-512 VNNI; the caller's guarantees.
    #[cfg(all(target_arch = "x86_64", feature = "simd"))]
    #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx512vnni,avx2,fma,f16c")]
    unsafe fn vnni(task: WeightTask<'_>, part: ProductPart) {
        // 32 registers: eight integer sums, eight sums in single precision, and the weights.
        // SAFETY: the caller guarantees it, and the dots are of the weight's format.
        unsafe { tiles_of_format!(task, part, VnniInt8, VnniInt4, 4, 2) }
    }
    /// # Safety
    /// The processor has AVX2 and F16C; the caller's guarantees.
    #[cfg(all(target_arch = "x86_64", feature = "simd"))]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn avx2(task: WeightTask<'_>, part: ProductPart) {
        // 16 registers, two for each sum.
        // SAFETY: as above.
        unsafe { tiles_of_format!(task, part, Avx2Int8, Avx2Int4, 2, 1) }
    }
    /// # Safety
    /// The processor has dot products of bytes; the caller's guarantees.
    #[cfg(all(target_arch = "aarch64", feature = "simd"))]
    #[target_feature(enable = "neon,dotprod")]
    unsafe fn dotprod(task: WeightTask<'_>, part: ProductPart) {
        // 32 registers, four for each integer sum and each sum in single precision.
        // SAFETY: as above.
        unsafe { tiles_of_format!(task, part, DotInt8, DotInt4, 2, 1) }
    }
    /// # Safety
    /// The processor has dot products and products of matrices of bytes; the caller's guarantees.
    #[cfg(all(target_arch = "aarch64", feature = "simd"))]
    #[target_feature(enable = "neon,dotprod,i8mm")]
    unsafe fn i8mm(task: WeightTask<'_>, part: ProductPart) {
        // Four rows, so that two pairs share the rearranged weights.
        // SAFETY: as above.
        unsafe { tiles_of_format!(task, part, MatrixInt8, MatrixInt4, 4, 1) }
    }
    match level.kind() {
        // SAFETY: no special instruction; the dots are of the weight's format; the caller guarantees the rest.
        LevelKind::Baseline => unsafe { tiles_of_format!(task, part, ScalarInt8, ScalarInt4, 2, 1) },
        // SAFETY: a level has VNNI only where the processor has; the caller guarantees the rest.
        #[cfg(all(target_arch = "x86_64", feature = "simd"))]
        LevelKind::Avx512 if level.has_vnni() => unsafe { vnni(task, part) },
        // SAFETY: a `SimdLevel` of this kind exists only where the processor has these instructions; the caller guarantees the rest.
        #[cfg(all(target_arch = "x86_64", feature = "simd"))]
        LevelKind::Avx2 | LevelKind::Avx512 => unsafe { avx2(task, part) },
        // SAFETY: every processor of the architecture has NEON; the dots are of the weight's format; the caller guarantees the rest.
        #[cfg(all(target_arch = "aarch64", feature = "simd"))]
        LevelKind::Neon => unsafe { tiles_of_format!(task, part, NeonInt8, NeonInt4, 2, 1) },
        // SAFETY: levels of this kind exist only where the processor has these instructions; the caller guarantees the rest.
        #[cfg(all(target_arch = "aarch64", feature = "simd"))]
        LevelKind::NeonDotprod => unsafe { dotprod(task, part) },
        // SAFETY: as above.
        #[cfg(all(target_arch = "aarch64", feature = "simd"))]
        LevelKind::NeonI8mm => unsafe { i8mm(task, part) },
    }
}

/// Splits a part into tiles whose sums fit the registers: `R` rows by `P` panels, or one row by one panel. Panels are outermost, so that
/// each is read once for a whole block of rows.
///
/// # Safety
/// The processor has `D`'s instructions, and `D` and `KIND` are the weight's; the guarantees of [`dispatch`].
#[inline(always)]
unsafe fn tiles<D: Dots, const KIND: u8, const R: usize, const P: usize>(task: WeightTask<'_>, part: ProductPart) {
    let mut first = part.rows.start;
    while first < part.rows.end {
        let end = part.rows.end.min(first + ROW_BLOCK);
        let mut panel = part.panels.start;
        // SAFETY: the caller's guarantees, and as many rows and panels are left as each call takes.
        unsafe {
            // Constant conditions: loops that another one covers are not compiled.
            if const { P > 1 } {
                while end - first > 1 && part.panels.end - panel >= P {
                    rows::<D, KIND, R, P>(task, (first, end), panel);
                    panel += P;
                }
            }
            while panel < part.panels.end {
                rows::<D, KIND, R, 1>(task, (first, end), panel);
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
unsafe fn rows<D: Dots, const KIND: u8, const R: usize, const P: usize>(
    task: WeightTask<'_>,
    (first, end): (usize, usize),
    panel: usize,
) {
    let mut row = first;
    // SAFETY: the caller's guarantees, and as many rows are left as each call takes.
    unsafe {
        if const { R > 2 } {
            while end - row >= R {
                tile::<D, KIND, R, P>(task, row, panel);
                row += R;
            }
        }
        while end - row >= 2 {
            tile::<D, KIND, 2, P>(task, row, panel);
            row += 2;
        }
        if row < end {
            tile::<D, KIND, 1, P>(task, row, panel);
        }
    }
}

/// `R` rows by `P` panels.
///
/// # Safety
/// As [`rows`], and the rows up to `row + R` are of the part.
#[inline(always)]
unsafe fn tile<D: Dots, const KIND: u8, const R: usize, const P: usize>(
    task: WeightTask<'_>,
    row: usize,
    panel: usize,
) {
    let WeightTask { whole: Task { x, step: row_step, columns, bias, out, .. }, weight, first_column } = task;
    let (groups, shared, scale_groups) = (weight.groups(), weight.shared(), weight.scale_groups());
    // Numbers between the scales of one group and the next.
    let scale_step = if KIND == HALVES || KIND == MINIMUM { 2 * LANES } else { LANES };
    // SAFETY: the weight has `panel + P` panels of `groups` groups, each of `STEPS` steps of `D::STEP` bytes, and of `scale_groups` times
    // `scale_step` scales, as `D` and `KIND` are the weight's, and with `SUPER` two lines for every `SUPER_GROUPS` groups; the loops read no
    // others. Row `row + R - 1` has `groups` groups in `x`, each
    // of eight times four numbers. Columns of these rows lie in `out`, which has `columns` for each row; a whole panel is stored only if
    // that many of the weight's are left. `bias` has `columns`.
    unsafe {
        let mut sums = [[D::Sums::zero(); R]; P];
        let lines: [*const u8; P] = std::array::from_fn(|p| weight.lines().add((panel + p) * groups * STEPS * D::STEP));
        let scales: [*const u16; P] =
            std::array::from_fn(|p| weight.scales().add((panel + p) * scale_groups * scale_step));
        let super_scales: [*const u16; P] = std::array::from_fn(|p| {
            // Without super-blocks the pointer is never read.
            weight.super_scales().wrapping_add((panel + p) * weight.super_blocks() * 2 * LANES)
        });
        let inputs: [*const QuantisedGroup; R] = std::array::from_fn(|r| x.as_ptr().add((row + r) * row_step));
        let (mut group, mut scale_at) = (0usize, 0usize);
        while group < groups {
            // Plain loops without checked arithmetic: a closure that is not inlined would lack the instructions.
            let end = groups.min(group.wrapping_add(shared));
            if R == 1 {
                // Prefetches the scales of groups that are prefetched below.
                for scales in &scales {
                    let ahead = AHEAD / (STEPS * D::STEP) * scale_step;
                    prefetch(scales.wrapping_add(scale_at.wrapping_add(ahead)).cast());
                }
            }
            while group < end {
                // The sums of the group, or of its first half and of its second.
                let (mut dots, mut seconds) = ([[D::zero(); R]; P], [[D::zero(); R]; P]);
                for step in 0..STEPS {
                    let at = group.wrapping_mul(STEPS).wrapping_add(step).wrapping_mul(D::STEP);
                    for ((dots, seconds), line) in dots.iter_mut().zip(&mut seconds).zip(&lines) {
                        if R == 1 {
                            let ahead = line.wrapping_add(at).wrapping_add(AHEAD);
                            prefetch(ahead);
                            if D::STEP > 64 {
                                prefetch(ahead.wrapping_add(64));
                            }
                        }
                        let [first, second] = D::load(line.add(at));
                        if const { D::PAIRED && KIND != HALVES && R.is_multiple_of(2) } {
                            let (pairs, inputs) = (dots.as_chunks_mut::<2>().0, inputs.as_chunks::<2>().0);
                            for (pair, inputs) in pairs.iter_mut().zip(inputs) {
                                let mut x = [[0; 2]; 2];
                                for (x, input) in x.iter_mut().zip(inputs) {
                                    let quads = (&raw const (*input.add(group)).numbers).cast::<i32>();
                                    *x = [quads.add(step).read_unaligned(), quads.add(step + STEPS).read_unaligned()];
                                }
                                *pair = D::add_pair(*pair, [first, second], x);
                            }
                            continue;
                        }
                        for ((dots, seconds), input) in dots.iter_mut().zip(seconds).zip(&inputs) {
                            let quads = (&raw const (*input.add(group)).numbers).cast::<i32>();
                            *dots = dots.add(first, quads.add(step).read_unaligned());
                            let sums = if KIND == HALVES { seconds } else { dots };
                            *sums = sums.add(second, quads.add(step + STEPS).read_unaligned());
                        }
                    }
                }
                if const { D::PAIRED && KIND != HALVES && R.is_multiple_of(2) } {
                    for dots in &mut dots {
                        for pair in dots.as_chunks_mut::<2>().0 {
                            *pair = D::separate(*pair);
                        }
                    }
                }
                let columns_of = sums.iter_mut().zip(&dots).zip(&seconds).zip(scales.iter().zip(&super_scales));
                for (((sums, dots), seconds), (scales, super_scales)) in columns_of {
                    let at = scales.add(scale_at);
                    let (by, minimum) = match KIND {
                        BF16 => (D::Sums::load_bf16(at), D::Sums::zero()),
                        MINIMUM => (D::Sums::load_f16(at), D::Sums::load_f16(at.add(LANES))),
                        SUPER => {
                            let pair = super_scales.add(group.wrapping_div(SUPER_GROUPS).wrapping_mul(2 * LANES));
                            let [scale, minimum] = D::Sums::load_bytes(at);
                            let of_block = [D::Sums::load_f16(pair), D::Sums::load_f16(pair.add(LANES))];
                            (scale.times(of_block[0]), minimum.times(of_block[1]))
                        }
                        _ => (D::Sums::load_f16(at), D::Sums::zero()),
                    };
                    for (((sum, dots), seconds), input) in sums.iter_mut().zip(dots).zip(seconds).zip(&inputs) {
                        let &QuantisedGroup { scale, total, first_half, .. } = &*input.add(group);
                        let row_scale = D::Sums::splat(scale);
                        let more = match KIND {
                            BF16 | F16 => dots.finish(total.wrapping_mul(D::ADDED)).times(by.times(row_scale)),
                            HALVES => {
                                let second = D::Sums::load_f16(at.add(LANES));
                                let second_half = total.wrapping_sub(first_half).wrapping_mul(D::ADDED);
                                let first = dots.finish(first_half.wrapping_mul(D::ADDED)).times(by);
                                first.plus(seconds.finish(second_half).times(second)).times(row_scale)
                            }
                            _ => {
                                let added = if D::STORED_ADDED { 0 } else { total.wrapping_mul(D::ADDED) };
                                let least = D::Sums::splat(total as f32).times(minimum);
                                dots.finish(added).times(by).plus(least).times(row_scale)
                            }
                        };
                        *sum = sum.plus(more);
                    }
                }
                group = group.wrapping_add(1);
            }
            scale_at = scale_at.wrapping_add(scale_step);
        }
        let end = first_column + weight.columns();
        for (p, sums) in sums.iter().enumerate() {
            for (r, &sum) in sums.iter().enumerate() {
                out.store(sum, columns, row + r, (first_column + (panel + p) * LANES, end), bias);
            }
        }
    }
}
