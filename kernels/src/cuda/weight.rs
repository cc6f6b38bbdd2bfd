//! Layouts of weights on the device: as in the checkpoint, with taps of convolutions outermost and rows of matrices padded for vector
//! loads.
//!
//! Integers have the processor's formats: groups of [`GROUP`](crate::cpu::groups::GROUP) along the input with a scale of bfloat16,
//! quantised here or as a checkpoint stores them. A row is whole groups; scales are `[outputs][groups]`.

use super::loading::WeightLoader;
use super::memory::DeviceMemory;
use super::weight_order::{PartRows, floats, integers, single, taps_outermost};
use crate::cpu::quantised::IntegerFormat;
use crate::ops::{KernelError, WeightFormat, WeightLayout};
use crate::part::WeightPart;

/// A prepared weight, by layout.
pub enum Weight {
    /// Numbers of a [`WeightLayout::Vector`].
    Vector(VectorWeight),
    /// Matrix of a [`WeightLayout::Linear`].
    Linear(Matrix),
    /// Matrix of a [`WeightLayout::Table`].
    Table(Matrix),
    /// Concatenated matrices of a [`WeightLayout::Experts`].
    Experts {
        /// All experts; `outputs` are those of one.
        matrix: Matrix,
        /// Number of experts.
        experts: usize,
    },
    /// Weight of a [`WeightLayout::Conv1d`], `[out][tap][channel]`.
    Conv1d {
        /// Matrix of the numbers.
        matrix: Matrix,
        /// Rows between taps.
        dilation: usize,
    },
    /// Weight of a [`WeightLayout::Depthwise`], `[tap][channel]`.
    Depthwise {
        /// Numbers in single precision.
        numbers: VectorWeight,
        /// Number of taps.
        taps: usize,
    },
    /// Weight of a [`WeightLayout::ConvTranspose1d`], as a causal convolution to `stride * out` columns, `[phase][out][tap][channel]`.
    ConvTranspose1d {
        /// Matrix of the numbers.
        matrix: Matrix,
        /// Output rows for each input row.
        stride: usize,
        /// True if a stream's first input row gives no output.
        cut: bool,
    },
    /// Weight of a [`WeightLayout::Conv2d`], `[out][row of taps][tap][channel]`.
    Conv2d {
        /// Matrix of the numbers.
        matrix: Matrix,
        /// Distance between outputs, over both axes.
        stride: usize,
    },
}

/// Vector in single precision.
pub struct VectorWeight {
    pub(super) memory: DeviceMemory,
    pub(super) len: usize,
}

/// A matrix `[outputs][pitch]`; the first `columns` of each row count, the rest is padding.
pub struct Matrix {
    pub(super) memory: DeviceMemory,
    pub(super) kind: MatrixKind,
    pub(super) outputs: usize,
    pub(super) columns: usize,
    pub(super) pitch: usize,
}

/// Number format of a matrix.
pub enum MatrixKind {
    /// Single precision, f32.
    F32,
    /// Half the memory: bf16.
    Bf16,
    /// Integers, with the memory of their scales.
    Integers(IntegerFormat, DeviceMemory),
}

impl MatrixKind {
    /// Address of the scales; `None` unless the numbers are integers.
    pub(super) fn scales(&self) -> Option<u64> {
        match self {
            Self::Integers(_, scales) => Some(scales.at),
            Self::F32 | Self::Bf16 => None,
        }
    }

    /// True if the numbers are bf16.
    pub(super) fn is_bf16(&self) -> bool {
        matches!(self, Self::Bf16)
    }
}

impl Weight {
    pub(super) fn new(
        loader: &WeightLoader<'_>,
        layout: WeightLayout,
        format: WeightFormat,
        parts: &[WeightPart<'_>],
    ) -> Result<Self, KernelError> {
        check(layout, parts)?;
        let (name, shape) = (parts[0].name(), parts[0].shape());
        let stored = stored_bits(layout, parts)?;
        // Tables keep their floating-point format: no kernel gathers integers.
        let has_format = matches!(layout, WeightLayout::Linear | WeightLayout::Experts { .. } | WeightLayout::Table);
        if format != WeightFormat::Float && !has_format {
            return Err(KernelError::Format { name: name.to_owned(), layout, format });
        }
        let rows = PartRows::new(parts);
        let matrix = match layout {
            WeightLayout::Vector => return Ok(Self::Vector(single(loader, name, &rows.widened())?)),
            WeightLayout::Depthwise => {
                let (channels, taps, w) = (shape[0], shape[2], rows.widened());
                let w: Vec<f32> = (0..taps * channels).map(|i| w[i % channels * taps + i / channels]).collect();
                return Ok(Self::Depthwise { numbers: single(loader, name, &w)?, taps });
            }
            WeightLayout::Linear | WeightLayout::Experts { .. } => match stored.or(IntegerFormat::of(format)) {
                Some(bits) => integers(loader, bits, &rows)?,
                None => {
                    // A multiple of 16-byte loads.
                    let load = if rows.is_bf16 { 8 } else { 4 };
                    floats(loader, &rows, shape[1].next_multiple_of(load))?
                }
            },
            WeightLayout::Table => floats(loader, &rows, shape[1])?,
            WeightLayout::Conv1d { .. } | WeightLayout::ConvTranspose1d { .. } | WeightLayout::Conv2d { .. } => {
                let (at, columns) = taps_outermost(layout, shape);
                let outputs = shape.iter().product::<usize>() / columns;
                if rows.is_bf16 {
                    // A multiple of 16-byte loads.
                    let (w, pitch) = (rows.bits(), columns.next_multiple_of(8));
                    let number =
                        |i: usize| if i % pitch < columns { w[at(i / pitch * columns + i % pitch)] } else { 0 };
                    let memory = loader.numbers(name, &(0..outputs * pitch).map(number).collect::<Vec<u16>>())?;
                    Matrix { memory, kind: MatrixKind::Bf16, outputs, columns, pitch }
                } else {
                    let w = rows.widened();
                    let w: Vec<f32> = (0..w.len()).map(|i| w[at(i)]).collect();
                    let memory = loader.numbers(name, &w)?;
                    Matrix { memory, kind: MatrixKind::F32, outputs, columns, pitch: columns }
                }
            }
        };
        Ok(match layout {
            WeightLayout::Vector | WeightLayout::Depthwise | WeightLayout::Linear => Self::Linear(matrix),
            WeightLayout::Table => Self::Table(matrix),
            WeightLayout::Experts { per_expert } => {
                let experts = parts.len() / per_expert;
                Self::Experts { matrix: Matrix { outputs: matrix.outputs / experts, ..matrix }, experts }
            }
            WeightLayout::Conv1d { dilation } => Self::Conv1d { matrix, dilation },
            WeightLayout::ConvTranspose1d { stride, cut } => {
                Self::ConvTranspose1d { matrix, stride, cut: cut && shape[2] > stride }
            }
            WeightLayout::Conv2d { stride } => Self::Conv2d { matrix, stride },
        })
    }

    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Vector(_) => "a vector",
            Self::Linear(_) => "a linear weight",
            Self::Table(_) => "a table",
            Self::Experts { .. } => "experts",
            Self::Conv1d { .. } => "a convolution",
            Self::Depthwise { .. } => "a depthwise convolution",
            Self::ConvTranspose1d { .. } => "a transposed convolution",
            Self::Conv2d { .. } => "a convolution over two axes",
        }
    }

    pub(super) fn vector(&self) -> &VectorWeight {
        match self {
            Self::Vector(numbers) => numbers,
            other => panic!("a vector is needed, not {}", other.kind()),
        }
    }

    pub(super) fn linear(&self) -> &Matrix {
        match self {
            Self::Linear(matrix) => matrix,
            other => panic!("a linear weight is needed, not {}", other.kind()),
        }
    }

    pub(super) fn table(&self) -> &Matrix {
        match self {
            Self::Table(matrix) => matrix,
            other => panic!("a table is needed, not {}", other.kind()),
        }
    }

    pub(super) fn experts(&self) -> (&Matrix, usize) {
        match self {
            Self::Experts { matrix, experts } => (matrix, *experts),
            other => panic!("experts are needed, not {}", other.kind()),
        }
    }
}

/// Integer size of stored parts; `None` for floating-point parts. All parts of a weight must have one size, and only matrices may have
/// integers.
fn stored_bits(layout: WeightLayout, parts: &[WeightPart<'_>]) -> Result<Option<IntegerFormat>, KernelError> {
    let bits = |part: &WeightPart<'_>| match part {
        WeightPart::Packed(tensor) => Some(tensor.packing.bits()),
        WeightPart::Stored(_) | WeightPart::Drawn(_) => None,
    };
    let Some(packed) = parts.iter().find(|part| bits(part).is_some()) else { return Ok(None) };
    let may = matches!(layout, WeightLayout::Linear | WeightLayout::Experts { .. });
    if !may || parts.windows(2).any(|pair| bits(&pair[0]) != bits(&pair[1])) {
        return Err(KernelError::Packed { name: packed.name().to_owned(), layout });
    }
    Ok(bits(packed).map(|bits| if bits == 4 { IntegerFormat::Four } else { IntegerFormat::Eight }))
}

/// Checks that the parts' shapes and sizes fit the layout.
fn check(layout: WeightLayout, parts: &[WeightPart<'_>]) -> Result<(), KernelError> {
    let wrong =
        |name: &str, shape: &[usize]| KernelError::Shape { name: name.to_owned(), shape: shape.to_vec(), layout };
    let first = parts.first().ok_or_else(|| wrong("", &[]))?;
    let rank = match layout {
        WeightLayout::Vector => 1,
        WeightLayout::Linear | WeightLayout::Table | WeightLayout::Experts { .. } => 2,
        WeightLayout::Conv1d { .. } | WeightLayout::Depthwise | WeightLayout::ConvTranspose1d { .. } => 3,
        WeightLayout::Conv2d { .. } => 4,
    };
    for part in parts {
        let shape = part.shape();
        if shape.len() != rank || shape.contains(&0) || shape[1..] != first.shape()[1..] {
            return Err(wrong(part.name(), shape));
        }
        match part {
            WeightPart::Stored(tensor) => {
                let expected = shape.iter().product::<usize>() * tensor.dtype.size();
                if tensor.bytes.len() != expected {
                    let (name, found) = (tensor.name.to_owned(), tensor.bytes.len());
                    return Err(KernelError::Bytes { name, expected, found });
                }
            }
            WeightPart::Packed(tensor) => tensor.check()?,
            WeightPart::Drawn(_) => {}
        }
    }
    let shape = first.shape();
    let fits = match layout {
        WeightLayout::Experts { per_expert } => per_expert > 0 && parts.len().is_multiple_of(per_expert),
        WeightLayout::Depthwise => shape[1] == 1,
        WeightLayout::ConvTranspose1d { stride, .. } => stride > 0 && (shape[2] == stride || shape[2] == 2 * stride),
        WeightLayout::Conv2d { stride } => stride > 0 && shape[2..] == [3, 3],
        WeightLayout::Vector | WeightLayout::Linear | WeightLayout::Table | WeightLayout::Conv1d { .. } => true,
    };
    if fits { Ok(()) } else { Err(wrong(first.name(), shape)) }
}
