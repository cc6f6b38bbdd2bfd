//! Weights of a checkpoint: number formats, layouts, and errors.

use thiserror::Error;

/// Number format of a checkpoint's weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DType {
    /// bfloat16, two bytes.
    Bf16,
    /// IEEE half precision, two bytes.
    F16,
    /// IEEE single precision, four bytes.
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

    /// Widens little-endian numbers to single precision, exactly. Trailing bytes that make no whole number are ignored.
    pub fn widen(self, bytes: &[u8]) -> Vec<f32> {
        let mut numbers = vec![0.0; bytes.len() / self.size()];
        self.widen_into(bytes, &mut numbers);
        numbers
    }

    /// Widens numbers as [`DType::widen`] does, at most as many as `numbers` holds.
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
    /// Numbers, row-major and little-endian.
    pub bytes: &'a [u8],
    /// Number format of `bytes`.
    pub dtype: DType,
    /// Sizes of the axes, outermost first.
    pub shape: &'a [usize],
}

/// Use of a weight; a device packs it accordingly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeightLayout {
    /// `[n]`: a norm, bias, scale or activation parameter.
    Vector,
    /// `[out, in]`, used as `x Wᵀ`. Parts join along `out`.
    Linear,
    /// `[entries, width]`: looked up by id. Parts join along `entries`.
    Table,
    /// One `[out, in]` per part, all of one shape; a router chooses experts for each row. `per_expert` parts are joined to make one expert
    /// (gate and up projection, for instance).
    Experts {
        /// Parts of one expert.
        per_expert: usize,
    },
    /// `[out, in, kernel]`: causal convolution in time with stride 1.
    Conv1d {
        /// Distance between taps, in rows.
        dilation: usize,
    },
    /// `[channels, 1, kernel]`: causal convolution in time, each channel by itself.
    Depthwise,
    /// `[out, in / groups, kernel]`: convolution in time with stride 1; outputs and channels are split into as many groups, and an output takes
    /// the channels of its group.
    GroupedConv1d {
        /// Distance between taps, in rows.
        dilation: usize,
        /// Number of groups.
        groups: usize,
    },
    /// `[in, out, kernel]`: transposed convolution in time; `kernel` is `stride` or `2 * stride`.
    ConvTranspose1d {
        /// Output rows for each input row.
        stride: usize,
        /// With `kernel = 2 * stride`: true if the first `stride` rows of a stream are cut off, as the last `stride` always are.
        cut: bool,
    },
    /// `[out, in, 3, 3]`: convolution with padding 1 over both axes.
    Conv2d {
        /// Distance between outputs, over both axes.
        stride: usize,
    },
}

/// Number format of a weight on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WeightFormat {
    /// The checkpoint's floating-point format, or a wider one.
    #[default]
    Float,
    /// Eight-bit integers with one scale for each group of 32 along the input; in a table, one scale for each entry if the device has such
    /// tables. Of stored integers: some of the parts have eight bits.
    Int8,
    /// Four-bit integers with one scale for each group of 32. Of stored integers: all parts have four bits.
    Int4,
}

/// Reason for which a weight is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum KernelError {
    /// A weight's shape does not fit its layout.
    #[error("{name}: shape {shape:?} does not fit {layout:?}")]
    Shape {
        /// Name of the weight.
        name: String,
        /// Shape of the weight.
        shape: Vec<usize>,
        /// Layout that was asked for.
        layout: WeightLayout,
    },
    /// A weight's bytes do not match its shape.
    #[error("{name}: {found} bytes, its shape asks for {expected}")]
    Bytes {
        /// Name of the weight.
        name: String,
        /// Bytes that the shape asks for.
        expected: usize,
        /// Bytes of the weight.
        found: usize,
    },
    /// Weights of this layout cannot have this format.
    #[error("{name}: {layout:?} cannot be kept as {format:?}")]
    Format {
        /// Name of the weight.
        name: String,
        /// Layout that was asked for.
        layout: WeightLayout,
        /// Format that was asked for.
        format: WeightFormat,
    },
    /// A part is stored as integers, but its layout or the parts beside it need floating-point numbers.
    #[error(
        "{name}: is stored as integers, as {layout:?} cannot be, or not together with the parts beside it: store all of its parts alike, or \
         as floats"
    )]
    Packed {
        /// Name of the weight.
        name: String,
        /// Layout that was asked for.
        layout: WeightLayout,
    },
    /// No kernel supports this group size of stored integers.
    #[error(
        "{name}: {group} inputs share a scale: only multiples of 32 and whole rows can be used, and 16 for bytes with scales of half \
         precision"
    )]
    Group {
        /// Name of the weight.
        name: String,
        /// Inputs that share a scale.
        group: usize,
    },
    /// No kernel supports this kind of scales or minimums beside stored integers.
    #[error(
        "{name}: has {problem}, which no kernel multiplies: store it with scales of bfloat16 or half precision, or as floats"
    )]
    Scales {
        /// Name of the weight.
        name: String,
        /// Unsupported numbers.
        problem: &'static str,
    },
    /// The device has too little free memory for a weight; sizes in MiB.
    #[error(
        "{name}: needs {needed} MiB of the device's memory, which has {free} MiB left: use integer weights (engine.weights), a smaller \
         model, or the device `cpu`"
    )]
    Memory {
        /// Name of the weight.
        name: String,
        /// MiB that the weight needs.
        needed: usize,
        /// MiB that are free.
        free: usize,
    },
    /// A weight to be quantised, or a scale or minimum of stored integers, is NaN or infinite.
    #[error("{name}: holds numbers that are NaN or infinite, which integers cannot stand for")]
    NotFinite {
        /// Name of the weight.
        name: String,
    },
}
