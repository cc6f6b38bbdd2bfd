//! Activations in groups of eight-bit integers, for products with quantised weights.
//!
//! A row is split into groups of [`GROUP`] numbers, the last padded with zeros. A group's scale is its greatest magnitude over 127, and
//! each number is divided by it and rounded to nearest, ties to even: the error is at most half a scale.
//! - Groups whose greatest magnitude is below [`LEAST`] count as zeros.
//! - A group with a number that is not finite has NaN for a scale, and zeros: every result of its row is NaN.

use super::simd::{SimdLevel, dispatch};
use super::strided_rows::StridedRows;

/// Numbers that share a scale, of activations and of weights alike.
pub const GROUP: usize = 32;
/// Least magnitude that is not treated as zero, 2⁻¹⁰⁰: its reciprocal is far from the largest number.
pub const LEAST: f32 = f32::from_bits((127 - 100) << 23);

/// Quantised numbers that share a scale. Each stands for `scale` times itself.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub struct QuantisedGroup {
    /// Scale of the group, never negative; NaN if a number was not finite.
    pub scale: f32,
    /// Sum of the integers.
    pub total: i32,
    /// Sum of the first half of the integers.
    pub first_half: i32,
    /// Integers between -127 and 127.
    pub numbers: [i8; GROUP],
}

/// Rounds to nearest, ties to even. `value` is below 2²² either way.
#[inline(always)]
pub(super) fn nearest(value: f32) -> i32 {
    /// Adding this leaves the integer in the last bits, without an instruction that some processors lack.
    const ROUND: f32 = (3 << 22) as f32;
    (value + ROUND).to_bits() as i32 - ROUND.to_bits() as i32
}

impl QuantisedGroup {
    pub(super) const ZERO: Self = Self { scale: 0.0, total: 0, first_half: 0, numbers: [0; GROUP] };

    /// Quantises one group of numbers.
    #[inline(always)]
    fn new(values: &[f32; GROUP]) -> Self {
        // Bits without the sign sort as magnitudes do, with infinity and NaN above all.
        let greatest = values.iter().fold(0, |greatest, value| (value.to_bits() & 0x7fff_ffff).max(greatest));
        let greatest = f32::from_bits(greatest);
        if !greatest.is_finite() {
            return Self { scale: f32::NAN, ..Self::ZERO };
        }
        if greatest < LEAST {
            return Self::ZERO;
        }
        let by = 127.0 / greatest;
        let rounded = values.map(|value| nearest(value * by));
        let halves = rounded.as_chunks::<{ GROUP / 2 }>().0;
        let [first_half, second] = [0, 1].map(|half: usize| halves[half].iter().sum::<i32>());
        Self {
            scale: greatest / 127.0,
            total: first_half + second,
            first_half,
            numbers: rounded.map(|number| number as i8),
        }
    }
}

/// Quantises rows into `groups`, `[row][group]`.
pub fn quantise(level: SimdLevel, x: StridedRows<'_>, groups: &mut Vec<QuantisedGroup>) {
    let a_row = (x.taps * x.length).div_ceil(GROUP);
    groups.clear();
    groups.resize(x.count * a_row, QuantisedGroup::ZERO);
    quantise_rows(level, x, a_row, groups);
}

dispatch! {
    /// Quantises rows into `a_row` groups each.
    pub(super) fn quantise_rows = quantise_rows_with(x: StridedRows<'_>, a_row: usize, groups: &mut [QuantisedGroup])
}

#[inline(always)]
fn quantise_rows_with<const FUSED: bool>(x: StridedRows<'_>, a_row: usize, groups: &mut [QuantisedGroup]) {
    for (row, groups) in groups.chunks_exact_mut(a_row.max(1)).enumerate() {
        let start = x.first + row * x.step;
        let whole = if x.taps == 1 { x.length / GROUP } else { 0 };
        let (aligned, rest) = groups.split_at_mut(whole);
        let numbers = if whole > 0 { x.data[start..][..whole * GROUP].as_chunks().0 } else { &[] };
        for (group, numbers) in aligned.iter_mut().zip(numbers) {
            *group = QuantisedGroup::new(numbers);
        }
        for (at, group) in rest.iter_mut().enumerate() {
            let mut numbers = [0.0; GROUP];
            let first = (whole + at) * GROUP;
            for (i, number) in (first..x.taps * x.length).zip(&mut numbers) {
                *number = x.data[start + i / x.length * x.stride + i % x.length];
            }
            *group = QuantisedGroup::new(&numbers);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quantised(level: SimdLevel, x: StridedRows<'_>) -> Vec<QuantisedGroup> {
        let mut groups = vec![QuantisedGroup::ZERO; 3];
        quantise(level, x, &mut groups);
        groups
    }

    #[test]
    fn numbers_are_the_nearest_integers() {
        for level in SimdLevel::available() {
            let mut row: Vec<f32> = (0..40).map(|i| i as f32 / 2.0 - 4.25).collect();
            row[7] = -63.5;
            let groups = quantised(level, StridedRows::dense(&row, 40));
            assert_eq!([groups.len(), 24], [2, groups[1].numbers[8..].iter().filter(|&&n| n == 0).count()]);
            assert_eq!((groups[0].scale, groups[0].numbers[7]), (0.5, -127));
            // -8.5, and 0.5 and 1.5: ties go to the even neighbour.
            assert_eq!([0, 9, 10].map(|i| groups[0].numbers[i]), [-8, 0, 2]);
            for (group, row) in groups.iter().zip(row.chunks(GROUP)) {
                let sum = |numbers: &[i8]| numbers.iter().map(|&n| i32::from(n)).sum::<i32>();
                assert_eq!((group.total, group.first_half), (sum(&group.numbers), sum(&group.numbers[..16])));
                for (&number, value) in group.numbers.iter().zip(row) {
                    assert!((f32::from(number) * group.scale - value).abs() <= group.scale * 0.500_01);
                }
            }
        }
    }

    #[test]
    fn edges_are_as_documented() {
        for level in SimdLevel::available() {
            let mut row = [0.0; 6 * GROUP];
            row[1] = f32::MIN_POSITIVE;
            row[GROUP] = f32::MAX;
            row[GROUP + 1] = -f32::MAX / 2.0;
            row[2 * GROUP + 5] = f32::NAN;
            row[2 * GROUP + 6] = 1.0;
            row[3 * GROUP] = f32::NEG_INFINITY;
            row[4 * GROUP] = -LEAST;
            let groups = quantised(level, StridedRows::dense(&row, row.len()));
            assert_eq!(groups[0], QuantisedGroup::ZERO);
            assert_eq!(groups[1].numbers[..3], [127, -64, 0]);
            for group in &groups[2..4] {
                assert!(group.scale.is_nan() && group.numbers == [0; GROUP] && group.total == 0);
            }
            assert_eq!((groups[4].numbers[0], groups[4].scale), (-127, LEAST / 127.0));
            assert_eq!(groups[5], QuantisedGroup::ZERO);
        }
    }

    #[test]
    fn stretches_of_a_row_join() {
        let data: Vec<f32> = (0..200).map(|i| (i as f32 * 0.7).sin()).collect();
        // Two rows of three stretches of twenty numbers, fifty apart.
        let x = StridedRows { data: &data, first: 5, step: 10, count: 2, taps: 3, length: 20, stride: 50 };
        let row = |r: usize| (0..3).flat_map(move |tap| (0..20).map(move |i| 5 + r * 10 + tap * 50 + i));
        let joined: Vec<f32> = (0..2).flat_map(|r| row(r).map(|at| data[at])).collect();
        for level in SimdLevel::available() {
            assert_eq!(quantised(level, x), quantised(SimdLevel::BASELINE, StridedRows::dense(&joined, 60)));
        }
    }
}
