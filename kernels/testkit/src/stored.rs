//! Matrices of random integers, in each kind that published files have.

use half::{bf16, f16};
use repartee_kernels::random::uniform;
use repartee_kernels::{DType, PackedTensor, Packing, SUPER_BLOCK};

/// Kind of stored integers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredKind {
    /// Packing of the integers.
    pub packing: Packing,
    /// Number format of the scales.
    pub scales: DType,
    /// True if there are minimums.
    pub minimums: bool,
    /// True if scales and minimums are of six bits, in super-blocks.
    pub super_blocks: bool,
    /// Inputs that share a scale; `None` for those of a row.
    pub group: Option<usize>,
}

/// Each kind of published files, and group sizes of each.
pub const KINDS: [StoredKind; 16] = [
    kind(Packing::Four, DType::Bf16, false, Some(32)),
    kind(Packing::Four, DType::Bf16, false, Some(96)),
    kind(Packing::Four, DType::Bf16, false, None),
    kind(Packing::Eight, DType::Bf16, false, Some(128)),
    kind(Packing::Bytes, DType::Bf16, false, Some(32)),
    kind(Packing::Bytes, DType::Bf16, false, None),
    kind(Packing::Four, DType::F16, false, Some(32)),
    kind(Packing::Four, DType::F16, true, Some(32)),
    kind(Packing::Four, DType::F16, true, Some(128)),
    kind(Packing::Four, DType::F16, true, None),
    kind(Packing::Bytes, DType::F16, false, Some(32)),
    kind(Packing::Eight, DType::F16, false, Some(64)),
    kind(Packing::Bytes, DType::F16, false, Some(16)),
    kind(Packing::Bytes, DType::F16, true, Some(32)),
    StoredKind { super_blocks: true, ..kind(Packing::Four, DType::F16, true, Some(32)) },
    StoredKind { super_blocks: true, ..kind(Packing::Bytes, DType::F16, true, Some(32)) },
];

const fn kind(packing: Packing, scales: DType, minimums: bool, group: Option<usize>) -> StoredKind {
    StoredKind { packing, scales, minimums, super_blocks: false, group }
}

/// Bytes of a matrix of random integers, scales and minimums.
#[derive(Debug, Clone)]
pub struct StoredMatrix {
    /// Sizes `[out, inputs]`.
    pub shape: [usize; 2],
    /// Packing and scales.
    pub kind: StoredKind,
    /// Packed integers, row-major.
    pub integers: Vec<u8>,
    /// Scales of either sign; some are zero, and some of half precision are subnormal.
    pub scales: Vec<u8>,
    /// Minimums, if the kind has them.
    pub minimums: Option<Vec<u8>>,
    /// Pairs of super-blocks, if the kind has them.
    pub super_scales: Option<Vec<u8>>,
}

impl StoredMatrix {
    /// Draws a matrix; each seed gives another.
    pub fn drawn(kind: StoredKind, shape: [usize; 2], seed: u64) -> Self {
        let StoredKind { packing, minimums, .. } = kind;
        let [out, inputs] = shape;
        let (row, group) = (packing.row_bytes(inputs), kind.group.unwrap_or(inputs));
        // Beside minimums only as many integers as five bits have.
        let (least, count) = match (packing, minimums) {
            (Packing::Four, _) => (-8, 16.0),
            (_, true) => (0, 32.0),
            (_, false) => (-128, 256.0),
        };
        let mut integers = vec![0; out * row];
        for (number, bytes) in integers.chunks_mut(row).enumerate() {
            for input in 0..inputs {
                let drawn = (uniform(seed, (number * inputs + input) as u64, 0, 0) * count) as i32;
                packing.put(bytes, input, (least + drawn) as i8);
            }
        }
        let numbers = |stream: u64, size: f32, groups: usize| -> Vec<u8> {
            let number = |i: usize| {
                let drawn = uniform(seed, i as u64, stream, 0) * 2.0 - 1.0;
                let small = [1.0, 1.0, 1e-4, 1.0, 0.0, 1.0, 1.0][(seed as usize).wrapping_add(i) % 7];
                drawn * size * small
            };
            let groups = 0..groups;
            match kind.scales {
                DType::Bf16 => groups.flat_map(|i| bf16::from_f32(number(i)).to_le_bytes()).collect(),
                DType::F16 | DType::F32 => groups.flat_map(|i| f16::from_f32(number(i)).to_le_bytes()).collect(),
            }
        };
        let groups = out * inputs.div_ceil(group);
        if kind.super_blocks {
            let six_bits = |stream| (0..groups).map(|i| (uniform(seed, i as u64, stream, 0) * 64.0) as u8).collect();
            let super_scales = numbers(3, 0.01, 2 * out * inputs.div_ceil(SUPER_BLOCK));
            let (scales, minimums) = (six_bits(1), Some(six_bits(2)));
            return Self { shape, kind, integers, scales, minimums, super_scales: Some(super_scales) };
        }
        let (scales, minimums) = (numbers(1, 0.1, groups), minimums.then(|| numbers(2, 1.0, groups)));
        Self { shape, kind, integers, scales, minimums, super_scales: None }
    }

    /// Returns the matrix as a checkpoint's, named `w`.
    pub fn tensor(&self) -> PackedTensor<'_> {
        PackedTensor {
            name: "w",
            shape: &self.shape,
            packing: self.kind.packing,
            integers: &self.integers,
            scales: &self.scales,
            scale_format: self.kind.scales,
            minimums: self.minimums.as_deref(),
            super_scales: self.super_scales.as_deref(),
            group: self.kind.group.unwrap_or(self.shape[1]),
        }
    }

    /// Bytes of integers, scales and minimums.
    pub fn bytes(&self) -> usize {
        let optional = [&self.minimums, &self.super_scales].into_iter().flatten();
        self.integers.len() + self.scales.len() + optional.map(Vec::len).sum::<usize>()
    }
}
