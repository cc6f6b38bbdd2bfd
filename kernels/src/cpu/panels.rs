//! Weights of the matrix product, packed once into panels of [`LANES`] output columns: `[panel][k][LANES]`.

use super::groups::GROUP;
use super::huge_pages::filled;
use super::quantised::QuantisedWeight;
use super::simd::{LANES, Lanes};

/// A weight `[columns, k]`, packed for the matrix product.
#[derive(Debug, Clone, PartialEq)]
pub struct PackedWeight {
    /// Output columns. Not public: products rely on the panels having this many.
    pub(super) columns: usize,
    /// Inputs of each output. Not public either.
    pub(super) k: usize,
    pub(super) panels: Panels,
}

/// Panels `[panel][k][LANES]`, the last padded with zeros. Few rows at a time are bound by memory, so bfloat16 numbers stay so and are
/// widened, exactly, in registers.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Panels {
    F32(Vec<Lane<f32>>),
    Bf16(Vec<Lane<u16>>),
    /// Integers in a layout of their own: weights of different kinds, with their columns one after the other.
    Integers(Vec<QuantisedWeight>),
}

/// Numbers of [`LANES`] columns, aligned so that those of bfloat16 never cross a cache line.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[repr(C, align(32))]
pub(super) struct Lane<N>([N; LANES]);

impl PackedWeight {
    /// Packs the weight; `at(column, k)` gives each number.
    pub fn new(columns: usize, k: usize, at: impl Fn(usize, usize) -> f32) -> Self {
        Self { columns, k, panels: Panels::F32(pack(columns, k, at)) }
    }

    /// Packs a bfloat16 weight; `at(column, k)` gives the bits of each number.
    pub fn new_bf16(columns: usize, k: usize, at: impl Fn(usize, usize) -> u16) -> Self {
        Self { columns, k, panels: Panels::Bf16(pack(columns, k, at)) }
    }

    /// Wraps a quantised weight of `k` inputs.
    pub fn quantised(weight: QuantisedWeight, k: usize) -> Self {
        Self::joined(vec![weight], k)
    }

    /// Joins quantised weights of `k` inputs along the output.
    pub fn joined(weights: Vec<QuantisedWeight>, k: usize) -> Self {
        assert!(weights.iter().all(|weight| weight.groups() == k.div_ceil(GROUP)), "the weights have another input");
        let columns = weights.iter().map(QuantisedWeight::columns).sum();
        Self { columns, k, panels: Panels::Integers(weights) }
    }

    /// True if its products are of integers.
    pub fn is_integer(&self) -> bool {
        self.integers().is_some()
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        self.panels.bytes()
    }

    /// Copies the numbers of an output to `to`, widened or dequantised: a row of the matrix before it was packed.
    pub(super) fn look_up(&self, mut column: usize, to: &mut [f32]) {
        let (at, lane) = (column / LANES * self.k, column % LANES);
        match &self.panels {
            Panels::F32(numbers) => {
                to.iter_mut().zip(&numbers[at..]).for_each(|(to, numbers)| *to = numbers.0[lane]);
            }
            Panels::Bf16(numbers) => {
                let wide = |bits: u16| f32::from_bits(u32::from(bits) << 16);
                to.iter_mut().zip(&numbers[at..]).for_each(|(to, numbers)| *to = wide(numbers.0[lane]));
            }
            Panels::Integers(weights) => {
                for weight in weights {
                    if column < weight.columns() {
                        return weight.look_up(column, to);
                    }
                    column -= weight.columns();
                }
                panic!("a matrix without output {column}");
            }
        }
    }

    /// Quantised weights; `None` for floating-point numbers.
    pub(super) fn integers(&self) -> Option<&[QuantisedWeight]> {
        match &self.panels {
            Panels::Integers(weights) => Some(weights),
            Panels::F32(_) | Panels::Bf16(_) => None,
        }
    }
}

impl Panels {
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::F32(numbers) => size_of_val(&numbers[..]),
            Self::Bf16(numbers) => size_of_val(&numbers[..]),
            Self::Integers(weights) => weights.iter().map(QuantisedWeight::bytes).sum(),
        }
    }
}

fn pack<N: Copy + Default>(columns: usize, k: usize, at: impl Fn(usize, usize) -> N) -> Vec<Lane<N>> {
    // Cannot fail: the numbers that `at` gives are in memory already.
    let size = columns.div_ceil(LANES).checked_mul(k);
    let mut panels = filled(Lane::default(), size.expect("a weight's size is a number"));
    for column in 0..columns {
        let panel = &mut panels[column / LANES * k..][..k];
        for (i, numbers) in panel.iter_mut().enumerate() {
            numbers.0[column % LANES] = at(column, i);
        }
    }
    panels
}

/// A number format of panels.
pub(super) trait Number: Copy {
    /// Loads and widens sixteen numbers.
    ///
    /// # Safety
    /// As [`Lanes::load`].
    unsafe fn load<L: Lanes>(from: *const Lane<Self>) -> L;
}

impl Number for f32 {
    #[inline(always)]
    unsafe fn load<L: Lanes>(from: *const Lane<Self>) -> L {
        // SAFETY: the caller guarantees the conditions of `Lanes::load`.
        unsafe { L::load(from.cast()) }
    }
}

impl Number for u16 {
    #[inline(always)]
    unsafe fn load<L: Lanes>(from: *const Lane<Self>) -> L {
        // SAFETY: the caller guarantees the conditions of `Lanes::load_bf16`.
        unsafe { L::load_bf16(from.cast()) }
    }
}
