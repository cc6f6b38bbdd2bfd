//! Times single products on one thread or several.

use std::hint::black_box;
use std::time::Instant;

use repartee_kernels::cpu::gemm::{PackedWeight, StridedRows, multiply_on};
use repartee_kernels::cpu::hardware_peaks;
use repartee_kernels::cpu::pool::Pool;
use repartee_kernels::cpu::quantised::{IntegerFormat, QuantisedWeight};
use repartee_kernels::cpu::simd::SimdLevel;
use repartee_kernels::random::uniform;
use repartee_kernels::{DType, Packing};
use repartee_kernels_testkit::stored::{StoredKind, StoredMatrix};

/// MiB of weights that are read before one repeats: eight times the last-level cache of a small server.
pub const MIB: usize = 256;
/// Rows of a prefill: a second of input speech is thirteen.
pub const ROWS: [usize; 4] = [2, 4, 13, 64];
/// Products that are timed as one beside the peers, whose single products are no calls.
pub const RUN: usize = 8;
/// Passes over all weights. The fastest product counts, as the fastest region does for plain reading: other load only adds time.
pub const PASSES: usize = 5;

/// Shape of a matrix of Qwen3-Omni-30B-A3B's thinker.
#[derive(Clone, Copy)]
pub struct Shape {
    pub name: &'static str,
    pub columns: usize,
    pub k: usize,
}

/// Products of a decode step.
pub const DECODE: [Shape; 3] = [
    Shape { name: "q, k, v 5120x2048", columns: 5120, k: 2048 },
    Shape { name: "expert gate, up 1536x2048", columns: 1536, k: 2048 },
    Shape { name: "expert down 2048x768", columns: 2048, k: 768 },
];

/// Number format of the weight.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Bf16,
    Int8,
    Int4,
    /// Integers of published files: their name, and the kind that is drawn.
    Stored(&'static str, StoredKind),
}

const fn stored(name: &'static str, packing: Packing, minimums: bool, group: usize) -> Format {
    Format::Stored(name, StoredKind { packing, scales: DType::F16, minimums, super_blocks: false, group: Some(group) })
}

const fn in_super_blocks(name: &'static str, packing: Packing) -> Format {
    let kind = StoredKind { packing, scales: DType::F16, minimums: true, super_blocks: true, group: Some(32) };
    Format::Stored(name, kind)
}

impl Format {
    /// Stored formats, by the files that have them. Q4_K has 4.5 bits there and 4.625 here, AWQ and GPTQ have 4.2.
    pub const Q4_0: Self = stored("q4_0", Packing::Four, false, 32);
    pub const Q4_1: Self = stored("q4_1", Packing::Four, true, 32);
    pub const AWQ: Self = stored("awq", Packing::Four, true, 128);
    pub const Q8_0: Self = stored("q8_0", Packing::Bytes, false, 32);
    pub const Q5_1: Self = stored("q5_1", Packing::Bytes, true, 32);
    pub const Q6_K: Self = stored("q6_K", Packing::Bytes, false, 16);
    pub const Q4_K: Self = in_super_blocks("q4_K", Packing::Four);
    pub const Q5_K: Self = in_super_blocks("q5_K", Packing::Bytes);

    pub const ALL: [Self; 11] = [
        Self::Bf16,
        Self::Int8,
        Self::Int4,
        Self::Q4_0,
        Self::Q4_1,
        Self::Q4_K,
        Self::AWQ,
        Self::Q8_0,
        Self::Q5_1,
        Self::Q5_K,
        Self::Q6_K,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Bf16 => "bf16",
            Self::Int8 => "int8",
            Self::Int4 => "int4",
            Self::Stored(name, _) => name,
        }
    }

    fn weight(self, Shape { columns, k, .. }: Shape) -> PackedWeight {
        let number = |i: usize| uniform(1, i as u64, 0, 0) - 0.5;
        let mut at = 0;
        let row = |row: &mut [f32]| {
            row.iter_mut().enumerate().for_each(|(i, value)| *value = number(at + i));
            at += k;
        };
        let quantised = match self {
            Self::Bf16 => {
                return PackedWeight::new_bf16(columns, k, |c, i| (number(c * k + i).to_bits() >> 16) as u16);
            }
            Self::Int8 => QuantisedWeight::new(IntegerFormat::Eight, columns, k, row).unwrap(),
            Self::Int4 => QuantisedWeight::new(IntegerFormat::Four, columns, k, row).unwrap(),
            Self::Stored(_, kind) => {
                QuantisedWeight::packed(None, k, &[StoredMatrix::drawn(kind, [columns, k], 1).tensor()])
            }
        };
        PackedWeight::quantised(quantised, k)
    }
}

/// Duration, bytes and multiply-adds of one product.
pub struct Rate {
    /// Least seconds of a product.
    pub seconds: f64,
    /// Least average of [`RUN`] products, one after the other.
    pub run_seconds: f64,
    pub bytes: f64,
    pub multiplies: f64,
}

/// Describes the machine on which the numbers depend.
pub fn about() -> String {
    let level = SimdLevel::detect();
    format!("{level:?}{}, pages as the system gives them", if level.has_vnni() { " with VNNI" } else { "" })
}

pub struct Bench {
    pool: Pool,
}

impl Bench {
    pub fn new(threads: usize) -> Self {
        Self { pool: Pool::new(threads).unwrap() }
    }

    /// Measures read bandwidth in bytes a second, on all threads.
    pub fn read_bandwidth(&self) -> f64 {
        hardware_peaks::read_bandwidth(&self.pool, MIB)
    }

    /// Times one row by one weight after another, none of them still in a cache.
    pub fn decode(&self, format: Format, shape: Shape) -> Rate {
        let weight = format.weight(shape);
        let bytes = weight.bytes();
        let weights = vec![weight; (MIB << 20).div_ceil(bytes)];
        self.rate(&weights, 1, shape)
    }

    /// Times `rows` rows by one weight after another.
    pub fn prefill(&self, format: Format, rows: usize) -> Rate {
        let shape = DECODE[1];
        self.rate(&vec![format.weight(shape); 16], rows, shape)
    }

    fn rate(&self, weights: &[PackedWeight], rows: usize, shape: Shape) -> Rate {
        let x: Vec<f32> = (0..rows * shape.k).map(|i| uniform(2, i as u64, 0, 0) - 0.5).collect();
        let mut out = vec![0.0; rows * shape.columns];
        let mut groups = Vec::new();
        let mut product = |weight| {
            let begun = Instant::now();
            let x = StridedRows::dense(black_box(&x), shape.k);
            multiply_on(Some(&self.pool), SimdLevel::detect(), x, weight, None, &mut groups, &mut out);
            begun.elapsed().as_secs_f64()
        };
        let (mut seconds, mut run_seconds) = (f64::INFINITY, f64::INFINITY);
        for weights in (0..PASSES).flat_map(|_| weights.chunks_exact(RUN)) {
            let all = weights.iter().map(&mut product).fold(0.0, |sum, took| {
                seconds = seconds.min(took);
                sum + took
            });
            run_seconds = run_seconds.min(all / RUN as f64);
        }
        let multiplies = (rows * shape.columns * shape.k) as f64;
        Rate { seconds, run_seconds, bytes: weights[0].bytes() as f64, multiplies }
    }
}
