//! Weights as they cross the trait: how they are stored, what they are used for, and why a device refuses one.

use thiserror::Error;

/// Number format of a weight as it stands in a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DType {
    /// bfloat16
    Bf16,
    /// IEEE half precision
    F16,
    /// IEEE single precision
    F32,
}

impl DType {
    /// Bytes of one number.
    pub fn size(self) -> usize {
        match self {
            Self::Bf16 | Self::F16 => 2,
            Self::F32 => 4,
        }
    }

    /// Little-endian numbers of this format in single precision, which is exact. Bytes that make no whole number are left out.
    pub fn widen(self, bytes: &[u8]) -> Vec<f32> {
        let mut numbers = vec![0.0; bytes.len() / self.size()];
        self.widen_into(bytes, &mut numbers);
        numbers
    }

    /// The same for as many numbers as there is room for.
    pub fn widen_into(self, bytes: &[u8], numbers: &mut [f32]) {
        fn read<const N: usize>(bytes: &[u8], numbers: &mut [f32], read: impl Fn([u8; N]) -> f32) {
            numbers.iter_mut().zip(bytes.as_chunks().0).for_each(|(number, &bytes)| *number = read(bytes));
        }
        match self {
            Self::F32 => read(bytes, numbers, f32::from_le_bytes),
            Self::Bf16 => read(bytes, numbers, |bytes| half::bf16::from_le_bytes(bytes).to_f32()),
            Self::F16 => read(bytes, numbers, |bytes| half::f16::from_le_bytes(bytes).to_f32()),
        }
    }
}

/// One tensor of a checkpoint, little-endian and row-major. Several parts make one weight, joined along the first axis.
#[derive(Debug, Clone, Copy)]
pub struct RawTensor<'a> {
    /// Name in the checkpoint, for messages.
    pub name: &'a str,
    /// The numbers.
    pub bytes: &'a [u8],
    /// Their format.
    pub dtype: DType,
    /// Their shape.
    pub shape: &'a [usize],
}

/// What a weight is used for; with it a device chooses how to pack it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeightLayout {
    /// `[n]`: a norm, a bias, a scale, an activation's parameter.
    Vector,
    /// `[out, in]`, used as `x Wᵀ`. Parts join along `out`.
    Linear,
    /// `[entries, width]`: looked up by id. Parts join along `entries`.
    Table,
    /// One `[out, in]` per part, all of one shape; chosen per row by a router. `per_expert` parts are joined to make
    /// one expert (gate and up projection, for instance).
    Experts {
        /// Parts that make one expert.
        per_expert: usize,
    },
    /// `[out, in, kernel]`: causal convolution in time with stride 1.
    Conv1d {
        /// Distance between taps, in rows.
        dilation: usize,
    },
    /// `[channels, 1, kernel]`: causal convolution in time, each channel by itself.
    Depthwise,
    /// `[in, out, kernel]`: transposed convolution in time; `kernel` is `stride` or `2 * stride`.
    ConvTranspose1d {
        /// Output rows for each input row.
        stride: usize,
        /// Whether with `2 * stride` the first `stride` rows of a stream are cut off, as the last ones always are.
        cut: bool,
    },
    /// `[out, in, 3, 3]`: convolution with padding 1 over both axes.
    Conv2d {
        /// Distance between outputs, over both axes.
        stride: usize,
    },
}

/// How a device keeps the numbers of a weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WeightFormat {
    /// As the checkpoint has them, or wider.
    #[default]
    Float,
    /// Eight-bit integers that share a scale in groups of 32 along the input; in a table, one scale for each entry, where
    /// the device has such tables.
    Int8,
    /// Four-bit integers, likewise.
    Int4,
}

/// Why a device cannot do what it is asked.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum KernelError {
    /// A weight's shape does not fit its layout.
    #[error("{name}: shape {shape:?} does not fit {layout:?}")]
    Shape {
        /// The weight.
        name: String,
        /// Its shape.
        shape: Vec<usize>,
        /// What it should have been.
        layout: WeightLayout,
    },
    /// A weight has fewer bytes than its shape asks for.
    #[error("{name}: {found} bytes, its shape asks for {expected}")]
    Bytes {
        /// The weight.
        name: String,
        /// Bytes that the shape asks for.
        expected: usize,
        /// Bytes that are there.
        found: usize,
    },
    /// A device has no such format for weights of this layout.
    #[error("{name}: this device cannot keep {layout:?} as {format:?}")]
    Format {
        /// The weight.
        name: String,
        /// What it is used for.
        layout: WeightLayout,
        /// What was asked for.
        format: WeightFormat,
    },
    /// A device takes no weights whose numbers come from there.
    #[error("{name}: this device takes floating-point weights of checkpoints, and quantises them itself")]
    Origin {
        /// The weight.
        name: String,
    },
    /// A weight that only floating-point numbers can make, or such parts beside it, is stored as integers.
    #[error("{name}: is stored as integers, as {layout:?} cannot be, or not together with the parts beside it")]
    Packed {
        /// The weight.
        name: String,
        /// What it is used for.
        layout: WeightLayout,
    },
    /// Groups of stored integers have a size that no kernel has.
    #[error("{name}: {group} inputs share a scale: only multiples of 32, and whole rows, can be used")]
    Group {
        /// The weight.
        name: String,
        /// Inputs of a group.
        group: usize,
    },
    /// The device's memory does not suffice for a weight. MiB.
    #[error(
        "{name}: needs {needed} MiB of the device's memory, which has {free} MiB left: use integer weights (engine.weights), a smaller \
         model, or the device `cpu`"
    )]
    Memory {
        /// The weight.
        name: String,
        /// What it needs.
        needed: usize,
        /// What is left.
        free: usize,
    },
    /// A weight that is to be quantised has numbers that are NaN or infinite.
    #[error("{name}: holds numbers that are NaN or infinite, which integers cannot stand for")]
    NotFinite {
        /// The weight.
        name: String,
    },
}
