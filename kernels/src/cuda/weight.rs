//! How weights lie on the device: as in the checkpoint, with taps of convolutions outermost, and rows of matrices filled up for loads of
//! four numbers.

use super::device::Queue;
use super::memory::Memory;
use crate::ops::{DType, Format, KernelError, Layout, RawTensor};

/// A prepared weight.
pub enum Weight {
    /// [`Layout::Vector`]
    Vector(Numbers),
    /// [`Layout::Linear`]
    Linear(Matrix),
    /// [`Layout::Table`]
    Table(Matrix),
    /// [`Layout::Experts`], one matrix after the other.
    Experts {
        /// All of them; `outputs` are those of one.
        matrix: Matrix,
        /// How many.
        experts: usize,
    },
    /// [`Layout::Conv1d`]: `[out][tap][channel]`
    Conv1d {
        /// The numbers.
        matrix: Matrix,
        /// Rows between taps.
        dilation: usize,
    },
    /// [`Layout::Depthwise`]: `[tap][channel]`
    Depthwise {
        /// The numbers, in single precision.
        numbers: Numbers,
        /// Taps.
        taps: usize,
    },
    /// [`Layout::ConvTranspose1d`]: as a causal convolution to `stride * out` columns, `[phase][out][tap][channel]`
    ConvTranspose1d {
        /// The numbers.
        matrix: Matrix,
        /// Output rows for each input row.
        stride: usize,
        /// Whether a stream's first input row gives none.
        cut: bool,
    },
    /// [`Layout::Conv2d`]: `[out][row of taps][tap][channel]`
    Conv2d {
        /// The numbers.
        matrix: Matrix,
        /// Distance between outputs.
        stride: usize,
    },
}

/// Numbers in single precision.
pub struct Numbers {
    pub(super) memory: Memory,
    pub(super) len: usize,
}

/// A matrix `[outputs][pitch]`, of which `columns` count.
pub struct Matrix {
    pub(super) memory: Memory,
    /// bf16, or else f32.
    pub(super) is_bf16: bool,
    pub(super) outputs: usize,
    pub(super) columns: usize,
    pub(super) pitch: usize,
}

/// Numbers of a matrix as the host has arranged them.
struct Arranged<N> {
    numbers: Vec<N>,
    outputs: usize,
    columns: usize,
    pitch: usize,
}

impl Weight {
    pub(super) fn new(
        queue: &Queue,
        layout: Layout,
        format: Format,
        parts: &[RawTensor<'_>],
    ) -> Result<Self, KernelError> {
        check(layout, parts)?;
        let first = parts[0];
        if format != Format::Float {
            return Err(KernelError::Format { name: first.name.to_owned(), layout, format });
        }
        let single = |numbers: Vec<f32>| Numbers { len: numbers.len(), memory: Memory::of(queue, &numbers) };
        let widened = || -> Vec<f32> { parts.iter().flat_map(|part| part.dtype.widen(part.bytes)).collect() };
        match layout {
            Layout::Vector => return Ok(Self::Vector(single(widened()))),
            Layout::Depthwise => {
                let (channels, taps, w) = (first.shape[0], first.shape[2], widened());
                let numbers = single((0..taps * channels).map(|i| w[i % channels * taps + i / channels]).collect());
                return Ok(Self::Depthwise { numbers, taps });
            }
            _ => {}
        }
        let matrix = if parts.iter().all(|part| part.dtype == DType::Bf16) {
            let bits = |part: &RawTensor<'_>| part.bytes.as_chunks().0.iter().map(|b| u16::from_le_bytes(*b)).collect();
            Matrix::new(queue, true, arranged(layout, first.shape, parts.iter().map(bits)))
        } else {
            let widen = |part: &RawTensor<'_>| part.dtype.widen(part.bytes);
            Matrix::new(queue, false, arranged(layout, first.shape, parts.iter().map(widen)))
        };
        Ok(match layout {
            Layout::Vector | Layout::Depthwise | Layout::Linear => Self::Linear(matrix),
            Layout::Table => Self::Table(matrix),
            Layout::Experts { per_expert } => {
                let experts = parts.len() / per_expert;
                Self::Experts { matrix: Matrix { outputs: matrix.outputs / experts, ..matrix }, experts }
            }
            Layout::Conv1d { dilation } => Self::Conv1d { matrix, dilation },
            Layout::ConvTranspose1d { stride, cut } => {
                Self::ConvTranspose1d { matrix, stride, cut: cut && first.shape[2] > stride }
            }
            Layout::Conv2d { stride } => Self::Conv2d { matrix, stride },
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

    pub(super) fn vector(&self) -> &Numbers {
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

impl Matrix {
    fn new<N: super::device::Number>(queue: &Queue, is_bf16: bool, from: Arranged<N>) -> Self {
        let Arranged { numbers, outputs, columns, pitch } = from;
        Self { memory: Memory::of(queue, &numbers), is_bf16, outputs, columns, pitch }
    }
}

/// Numbers in the order in which kernels read them.
fn arranged<N: Copy + Default>(layout: Layout, shape: &[usize], parts: impl Iterator<Item = Vec<N>>) -> Arranged<N> {
    let w: Vec<N> = parts.flatten().collect();
    let dense = |numbers: Vec<N>, columns: usize| Arranged {
        outputs: numbers.len() / columns,
        numbers,
        columns,
        pitch: columns,
    };
    match layout {
        Layout::Vector | Layout::Depthwise => dense(Vec::new(), 1),
        Layout::Table => dense(w, shape[1]),
        Layout::Linear | Layout::Experts { .. } => {
            let (columns, pitch) = (shape[1], shape[1].next_multiple_of(4));
            let outputs = w.len() / columns;
            let mut numbers = vec![N::default(); outputs * pitch];
            for (to, from) in numbers.chunks_exact_mut(pitch).zip(w.chunks_exact(columns)) {
                to[..columns].copy_from_slice(from);
            }
            Arranged { numbers, outputs, columns, pitch }
        }
        Layout::Conv1d { .. } | Layout::Conv2d { .. } => {
            let (out, channels, taps) = (shape[0], shape[1], shape[2..].iter().product::<usize>());
            let k = taps * channels;
            let at = |i: usize| w[(i / k * channels + i % channels) * taps + i % k / channels];
            dense((0..out * k).map(at).collect(), k)
        }
        Layout::ConvTranspose1d { stride, .. } => {
            let (channels, out, kernel) = (shape[0], shape[1], shape[2]);
            let taps = kernel / stride;
            let k = taps * channels;
            // Output row j of a block takes tap j of this input row and tap j + stride of the row before.
            let at = |i: usize| {
                let (phase, o) = (i / k / out, i / k % out);
                let (tap, channel) = (i % k / channels, i % channels);
                w[(channel * out + o) * kernel + phase + (taps - 1 - tap) * stride]
            };
            dense((0..stride * out * k).map(at).collect(), k)
        }
    }
}

/// Refuses parts whose shapes or sizes do not fit the layout.
fn check(layout: Layout, parts: &[RawTensor<'_>]) -> Result<(), KernelError> {
    let wrong =
        |name: &str, shape: &[usize]| KernelError::Shape { name: name.to_owned(), shape: shape.to_vec(), layout };
    let first = parts.first().ok_or_else(|| wrong("", &[]))?;
    let rank = match layout {
        Layout::Vector => 1,
        Layout::Linear | Layout::Table | Layout::Experts { .. } => 2,
        Layout::Conv1d { .. } | Layout::Depthwise | Layout::ConvTranspose1d { .. } => 3,
        Layout::Conv2d { .. } => 4,
    };
    for part in parts {
        if part.shape.len() != rank || part.shape.contains(&0) || part.shape[1..] != first.shape[1..] {
            return Err(wrong(part.name, part.shape));
        }
        let expected = part.shape.iter().product::<usize>() * part.dtype.size();
        if part.bytes.len() != expected {
            return Err(KernelError::Bytes { name: part.name.to_owned(), expected, found: part.bytes.len() });
        }
    }
    let shape = first.shape;
    let fits = match layout {
        Layout::Experts { per_expert } => per_expert > 0 && parts.len().is_multiple_of(per_expert),
        Layout::Depthwise => shape[1] == 1,
        Layout::ConvTranspose1d { stride, .. } => stride > 0 && (shape[2] == stride || shape[2] == 2 * stride),
        Layout::Conv2d { stride } => stride > 0 && shape[2..] == [3, 3],
        Layout::Vector | Layout::Linear | Layout::Table | Layout::Conv1d { .. } => true,
    };
    if fits { Ok(()) } else { Err(wrong(first.name, shape)) }
}
