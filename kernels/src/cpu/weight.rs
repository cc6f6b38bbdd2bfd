//! How the processor packs a weight.

use super::gemm::Packed;
use super::quantised::{Bits, NotFinite, Quantised};
use crate::ops::{DType, Format, KernelError, Layout, RawTensor};

/// A prepared weight.
#[derive(Debug, Clone)]
pub enum Weight {
    /// [`Layout::Vector`]
    Vector(Vec<f32>),
    /// [`Layout::Linear`]
    Linear(Packed),
    /// [`Layout::Table`]
    Table {
        /// Numbers in an entry.
        width: usize,
        /// `[entry][width]`
        data: Vec<f32>,
    },
    /// [`Layout::Experts`]
    Experts(Vec<Packed>),
    /// [`Layout::Conv1d`]
    Conv1d {
        /// Taps outermost in `k`.
        packed: Packed,
        /// Rows between taps.
        dilation: usize,
    },
    /// [`Layout::Depthwise`]: `[kernel][channels]`
    Depthwise(Vec<f32>),
    /// [`Layout::ConvTranspose1d`]: as a causal convolution to `stride * out` columns
    ConvTranspose1d {
        /// Taps outermost in `k`, the earlier row first.
        packed: Packed,
        /// Output rows for each input row.
        stride: usize,
        /// Whether a stream's first input row gives none.
        cut: bool,
    },
    /// [`Layout::Conv2d`]
    Conv2d {
        /// Rows of taps outermost in `k`, then taps, then channels.
        packed: Packed,
        /// Distance between outputs.
        stride: usize,
    },
}

impl Weight {
    pub(super) fn new(layout: Layout, format: Format, parts: &[RawTensor<'_>]) -> Result<Self, KernelError> {
        let wrong = |part: &RawTensor<'_>| KernelError::Shape {
            name: part.name.to_owned(),
            shape: part.shape.to_vec(),
            layout,
        };
        let first = parts.first().ok_or_else(|| KernelError::Shape { name: String::new(), shape: vec![], layout })?;
        let rank = match layout {
            Layout::Vector => 1,
            Layout::Linear | Layout::Table | Layout::Experts { .. } => 2,
            Layout::Conv1d { .. } | Layout::Depthwise | Layout::ConvTranspose1d { .. } => 3,
            Layout::Conv2d { .. } => 4,
        };
        for part in parts {
            if part.shape.len() != rank || part.shape.contains(&0) || part.shape[1..] != first.shape[1..] {
                // Experts mix widths only between parts of one expert, never along the input.
                return Err(wrong(part));
            }
        }
        let shape = first.shape;
        if let Some(bits) = Bits::of(format) {
            parts.iter().try_for_each(check_bytes)?;
            return match layout {
                Layout::Linear => Ok(Self::Linear(quantised(bits, parts)?)),
                Layout::Experts { per_expert } if per_expert > 0 && parts.len().is_multiple_of(per_expert) => {
                    let experts = parts.chunks(per_expert).map(|expert| quantised(bits, expert));
                    Ok(Self::Experts(experts.collect::<Result<_, _>>()?))
                }
                Layout::Experts { .. } => Err(wrong(first)),
                _ => Err(KernelError::Format { name: first.name.to_owned(), layout, format }),
            };
        }
        // Matrices that are bfloat16 throughout stay so: see `Packed`.
        if parts.iter().all(|part| part.dtype == DType::Bf16) {
            let bits = || parts.iter().map(bf16_bits).collect::<Result<Vec<_>, _>>();
            match layout {
                Layout::Linear => return Ok(Self::Linear(linear_bf16(&bits()?.concat(), shape[1]))),
                Layout::Experts { per_expert } if per_expert > 0 && parts.len().is_multiple_of(per_expert) => {
                    let expert = |parts: &[Vec<u16>]| linear_bf16(&parts.concat(), shape[1]);
                    return Ok(Self::Experts(bits()?.chunks(per_expert).map(expert).collect()));
                }
                _ => {}
            }
        }
        let values = parts.iter().map(widened).collect::<Result<Vec<_>, _>>()?;
        Ok(match layout {
            Layout::Vector => Self::Vector(values.concat()),
            Layout::Table => Self::Table { width: shape[1], data: values.concat() },
            Layout::Linear => Self::Linear(linear(&values.concat(), shape[1])),
            Layout::Experts { per_expert } => {
                if per_expert == 0 || !parts.len().is_multiple_of(per_expert) {
                    return Err(wrong(first));
                }
                Self::Experts(values.chunks(per_expert).map(|expert| linear(&expert.concat(), shape[1])).collect())
            }
            Layout::Conv1d { dilation } => {
                let (out, channels, taps) = (shape[0], shape[1], shape[2]);
                let w = &values[0];
                let packed =
                    Packed::new(out, taps * channels, |o, k| w[(o * channels + k % channels) * taps + k / channels]);
                Self::Conv1d { packed, dilation }
            }
            Layout::Depthwise => {
                let (channels, taps) = (shape[0], shape[2]);
                if shape[1] != 1 {
                    return Err(wrong(first));
                }
                let w = &values[0];
                Self::Depthwise((0..taps * channels).map(|i| w[i % channels * taps + i / channels]).collect())
            }
            Layout::ConvTranspose1d { stride, cut } => {
                let (channels, out, kernel) = (shape[0], shape[1], shape[2]);
                if stride == 0 || (kernel != stride && kernel != 2 * stride) {
                    return Err(wrong(first));
                }
                let w = &values[0];
                let taps = kernel / stride;
                // Output row j of a block takes tap j of this input row and tap j + stride of the row before.
                let packed = Packed::new(stride * out, taps * channels, |column, k| {
                    let (phase, o) = (column / out, column % out);
                    let (tap, channel) = (k / channels, k % channels);
                    w[(channel * out + o) * kernel + phase + (taps - 1 - tap) * stride]
                });
                Self::ConvTranspose1d { packed, stride, cut: cut && taps > 1 }
            }
            Layout::Conv2d { stride } => {
                let (out, channels) = (shape[0], shape[1]);
                if stride == 0 || shape[2..] != [3, 3] {
                    return Err(wrong(first));
                }
                let w = &values[0];
                let packed = Packed::new(out, 9 * channels, |o, k| w[(o * channels + k % channels) * 9 + k / channels]);
                Self::Conv2d { packed, stride }
            }
        })
    }

    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Vector(_) => "a vector",
            Self::Linear(_) => "a linear weight",
            Self::Table { .. } => "a table",
            Self::Experts(_) => "experts",
            Self::Conv1d { .. } => "a convolution",
            Self::Depthwise(_) => "a depthwise convolution",
            Self::ConvTranspose1d { .. } => "a transposed convolution",
            Self::Conv2d { .. } => "a convolution over two axes",
        }
    }

    pub(super) fn vector(&self) -> &[f32] {
        match self {
            Self::Vector(data) => data,
            other => panic!("a vector is needed, not {}", other.kind()),
        }
    }

    pub(super) fn packed(&self) -> &Packed {
        match self {
            Self::Linear(packed) => packed,
            other => panic!("a linear weight is needed, not {}", other.kind()),
        }
    }

    pub(super) fn table(&self) -> (usize, &[f32]) {
        match self {
            Self::Table { width, data } => (*width, data),
            other => panic!("a table is needed, not {}", other.kind()),
        }
    }

    pub(super) fn experts(&self) -> &[Packed] {
        match self {
            Self::Experts(experts) => experts,
            other => panic!("experts are needed, not {}", other.kind()),
        }
    }
}

/// Packs `[out, k]`.
fn linear(w: &[f32], k: usize) -> Packed {
    Packed::new(w.len() / k, k, |column, i| w[column * k + i])
}

/// Packs `[out, k]` of bfloat16.
fn linear_bf16(w: &[u16], k: usize) -> Packed {
    Packed::new_bf16(w.len() / k, k, |column, i| w[column * k + i])
}

/// Quantises parts `[out, k]`, joined along `out`, row by row: nothing but the result has their size. Their bytes were checked.
fn quantised(bits: Bits, parts: &[RawTensor<'_>]) -> Result<Packed, KernelError> {
    let k = parts.first().map_or(0, |part| part.shape[1]);
    let rows = parts.iter().flat_map(|part| part.bytes.chunks_exact(k * part.dtype.size()).map(move |row| (part, row)));
    let mut rows = rows.fuse();
    let mut name = "";
    let columns = parts.iter().map(|part| part.shape[0]).sum();
    let weight = Quantised::new(bits, columns, k, |numbers| {
        if let Some((part, row)) = rows.next() {
            name = part.name;
            part.dtype.widen_into(row, numbers);
        }
    });
    match weight {
        Ok(weight) => Ok(Packed::quantised(weight, k)),
        Err(NotFinite) => Err(KernelError::NotFinite { name: name.to_owned() }),
    }
}

fn check_bytes(part: &RawTensor<'_>) -> Result<(), KernelError> {
    let count: usize = part.shape.iter().product();
    let expected = count * part.dtype.size();
    if part.bytes.len() == expected {
        return Ok(());
    }
    Err(KernelError::Bytes { name: part.name.to_owned(), expected, found: part.bytes.len() })
}

/// Reads a bfloat16 part as its bits.
fn bf16_bits(part: &RawTensor<'_>) -> Result<Vec<u16>, KernelError> {
    check_bytes(part)?;
    Ok(part.bytes.as_chunks().0.iter().map(|b| u16::from_le_bytes(*b)).collect())
}

/// Reads a part as single precision, which is exact.
fn widened(part: &RawTensor<'_>) -> Result<Vec<f32>, KernelError> {
    check_bytes(part)?;
    Ok(part.dtype.widen(part.bytes))
}
