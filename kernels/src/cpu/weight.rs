//! Packing of weights for the processor.

use std::ops::Deref;
use std::sync::Arc;

use super::gemm::PackedWeight;
use super::groups::GROUP;
use super::pool::Pool;
use super::quantised::{IntegerFormat, NotFinite, QuantisedWeight};
use super::table::Table;
use crate::checked_parts::CheckedParts;
use crate::packed::PackedTensor;
use crate::part::{RandomTensor, WeightPart};
use crate::weight::{DType, KernelError, RawTensor, WeightFormat, WeightLayout};

/// A prepared weight. Clones share its memory.
#[derive(Debug, Clone)]
pub struct Weight(Arc<WeightData>);

impl From<Arc<WeightData>> for Weight {
    fn from(data: Arc<WeightData>) -> Self {
        Self(data)
    }
}

impl Deref for Weight {
    type Target = WeightData;

    fn deref(&self) -> &WeightData {
        &self.0
    }
}

/// Numbers of a prepared weight, by layout.
#[derive(Debug, PartialEq)]
pub enum WeightData {
    /// Numbers of a [`WeightLayout::Vector`].
    Vector(Vec<f32>),
    /// Packed matrix of a [`WeightLayout::Linear`].
    Linear(PackedWeight),
    /// Entries of a [`WeightLayout::Table`].
    Table(Table),
    /// One packed matrix for each expert of a [`WeightLayout::Experts`].
    Experts(Vec<PackedWeight>),
    /// Weight of a [`WeightLayout::Conv1d`].
    Conv1d {
        /// Packed weight, with taps outermost in `k`.
        packed: PackedWeight,
        /// Rows between taps.
        dilation: usize,
    },
    /// Weight of a [`WeightLayout::Conv1d`] as integers: for each tap, whole groups of channels.
    IntegerConv1d {
        /// Quantised weight, with taps outermost.
        weight: QuantisedWeight,
        /// Number of taps.
        taps: usize,
        /// Rows between taps.
        dilation: usize,
    },
    /// Weight of a [`WeightLayout::GroupedConv1d`].
    GroupedConv1d {
        /// Packed weight of each group, with taps outermost in `k`.
        groups: Vec<PackedWeight>,
        /// Rows between taps.
        dilation: usize,
    },
    /// Numbers of a [`WeightLayout::Depthwise`], `[kernel][channels]`.
    Depthwise(Vec<f32>),
    /// Weight of a [`WeightLayout::ConvTranspose1d`], as a causal convolution to `stride * out` columns.
    ConvTranspose1d {
        /// Packed weight, with taps outermost in `k`, the earlier row first.
        packed: PackedWeight,
        /// Output rows for each input row.
        stride: usize,
        /// True if a stream's first input row gives no output.
        cut: bool,
    },
    /// Weight of a [`WeightLayout::Conv2d`].
    Conv2d {
        /// Packed weight: rows of taps outermost in `k`, then taps, then channels.
        packed: PackedWeight,
        /// Distance between outputs, over both axes.
        stride: usize,
    },
}

impl WeightData {
    /// Packs a weight; experts and stored integers on all threads of `pool`.
    pub(super) fn new(pool: Option<&Pool>, checked: &CheckedParts<'_>) -> Result<Self, KernelError> {
        let (layout, format, parts, shape) = (checked.layout(), checked.format(), checked.parts(), checked.shape());
        Ok(match layout {
            WeightLayout::Vector => Self::Vector(Values::of(parts).widened()),
            WeightLayout::Linear => Self::Linear(linear(pool, format, parts)?),
            WeightLayout::Experts { per_expert } => Self::Experts(experts(pool, format, parts, per_expert)?),
            WeightLayout::Table => Self::Table(table(checked)?),
            WeightLayout::Conv1d { dilation } if format == WeightFormat::Int8 => {
                let weight = integer_convolution(checked.name(), Values::of(parts).widened(), shape)?;
                Self::IntegerConv1d { weight, taps: shape[2], dilation }
            }
            WeightLayout::Conv1d { dilation } => {
                let (out, channels, taps) = (shape[0], shape[1], shape[2]);
                let packed = Values::of(parts)
                    .pack_convolution(out, taps * channels, |o, k| (o * channels + k % channels) * taps + k / channels);
                Self::Conv1d { packed, dilation }
            }
            WeightLayout::GroupedConv1d { dilation, groups } => {
                let (out, channels, taps) = (shape[0] / groups, shape[1], shape[2]);
                let values = Values::F32(Values::of(parts).widened());
                let group = |group: usize| {
                    values.pack(out, taps * channels, |o, k| {
                        ((group * out + o) * channels + k % channels) * taps + k / channels
                    })
                };
                Self::GroupedConv1d { groups: (0..groups).map(group).collect(), dilation }
            }
            WeightLayout::Depthwise => {
                let (channels, taps) = (shape[0], shape[2]);
                let w = Values::of(parts).widened();
                Self::Depthwise((0..taps * channels).map(|i| w[i % channels * taps + i / channels]).collect())
            }
            WeightLayout::ConvTranspose1d { stride, cut } => {
                let (channels, out, kernel) = (shape[0], shape[1], shape[2]);
                let taps = kernel / stride;
                // Output row j of a block takes tap j of this input row and tap j + stride of the row before.
                let packed = Values::of(parts).pack_convolution(stride * out, taps * channels, |column, k| {
                    let (phase, o) = (column / out, column % out);
                    let (tap, channel) = (k / channels, k % channels);
                    (channel * out + o) * kernel + phase + (taps - 1 - tap) * stride
                });
                Self::ConvTranspose1d { packed, stride, cut: cut && taps > 1 }
            }
            WeightLayout::Conv2d { stride } => {
                let (out, channels) = (shape[0], shape[1]);
                let packed = Values::of(parts)
                    .pack_convolution(out, 9 * channels, |o, k| (o * channels + k % channels) * 9 + k / channels);
                Self::Conv2d { packed, stride }
            }
        })
    }

    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Vector(_) => "a vector",
            Self::Linear(_) => "a linear weight",
            Self::Table(_) => "a table",
            Self::Experts(_) => "experts",
            Self::Conv1d { .. } | Self::IntegerConv1d { .. } => "a convolution",
            Self::GroupedConv1d { .. } => "a grouped convolution",
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

    pub(super) fn packed(&self) -> &PackedWeight {
        match self {
            Self::Linear(packed) => packed,
            other => panic!("a linear weight is needed, not {}", other.kind()),
        }
    }

    /// Width of an entry: of a table, or of a matrix whose rows are looked up.
    pub(super) fn entry_width(&self) -> usize {
        match self {
            Self::Table(table) => table.width,
            Self::Linear(packed) => packed.k,
            other => panic!("a table is needed, not {}", other.kind()),
        }
    }

    /// Copies an entry of a table, or a row of a matrix, to `to`.
    pub(super) fn look_up(&self, id: usize, to: &mut [f32]) {
        match self {
            Self::Table(table) => table.look_up(id, to),
            Self::Linear(packed) => packed.look_up(id, to),
            other => panic!("a table is needed, not {}", other.kind()),
        }
    }

    pub(super) fn experts(&self) -> &[PackedWeight] {
        match self {
            Self::Experts(experts) => experts,
            other => panic!("experts are needed, not {}", other.kind()),
        }
    }
}

/// Largest size in bytes, in single precision, of a convolution that is widened at load.
const SMALL_CONVOLUTION: usize = 1 << 19;

/// Numbers of stored or drawn parts, concatenated.
enum Values {
    F32(Vec<f32>),
    /// Bits of bfloat16, if all parts are bfloat16; widened on use, exactly.
    Bf16(Vec<u16>),
}

impl Values {
    /// Reads the parts.
    fn of(parts: &[WeightPart<'_>]) -> Self {
        let is_bf16 = |part: &WeightPart<'_>| match part {
            WeightPart::Stored(tensor) => tensor.dtype == DType::Bf16,
            WeightPart::Packed(_) => false,
            WeightPart::Drawn(_) => true,
        };
        if !parts.iter().all(is_bf16) {
            let widened = |part: &WeightPart<'_>| match part {
                WeightPart::Stored(tensor) => tensor.dtype.widen(tensor.bytes),
                WeightPart::Packed(tensor) => tensor.numbers(),
                WeightPart::Drawn(tensor) => drawn_bits(tensor).map(wide).collect(),
            };
            return Self::F32(parts.iter().flat_map(widened).collect());
        }
        let mut all = Vec::with_capacity(parts.iter().map(|part| part.shape().iter().product::<usize>()).sum());
        for part in parts {
            match part {
                WeightPart::Stored(tensor) => {
                    all.extend(tensor.bytes.as_chunks().0.iter().map(|b| u16::from_le_bytes(*b)))
                }
                WeightPart::Packed(_) => unreachable!("not of bfloat16"),
                WeightPart::Drawn(tensor) => all.extend(drawn_bits(tensor)),
            }
        }
        Self::Bf16(all)
    }

    fn widened(self) -> Vec<f32> {
        match self {
            Self::F32(numbers) => numbers,
            Self::Bf16(numbers) => numbers.into_iter().map(wide).collect(),
        }
    }

    /// Packs a convolution. A small one is widened now: it stays in the caches over many rows, and widening it each time takes longer than
    /// reading it.
    fn pack_convolution(self, columns: usize, k: usize, at: impl Fn(usize, usize) -> usize) -> PackedWeight {
        let small = columns * k * size_of::<f32>() <= SMALL_CONVOLUTION;
        if small { Self::F32(self.widened()).pack(columns, k, at) } else { self.pack(columns, k, at) }
    }

    /// Packs `[columns, k]` of the numbers at the indices that `at` gives.
    fn pack(&self, columns: usize, k: usize, at: impl Fn(usize, usize) -> usize) -> PackedWeight {
        match self {
            Self::F32(numbers) => PackedWeight::new(columns, k, |column, i| numbers[at(column, i)]),
            Self::Bf16(numbers) => PackedWeight::new_bf16(columns, k, |column, i| numbers[at(column, i)]),
        }
    }
}

/// Widens a bfloat16.
fn wide(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// Numbers of a drawn tensor, truncated to bfloat16.
fn drawn_bits<'a>(tensor: &RandomTensor<'a>) -> impl Iterator<Item = u16> + use<'a> {
    let (draw, count) = (tensor.draw, tensor.shape.iter().product::<usize>());
    (0..count as u64).map(move |index| (draw.number(index).to_bits() >> 16) as u16)
}

/// Packs parts `[out, k]`, joined along `out`.
fn linear(pool: Option<&Pool>, format: WeightFormat, parts: &[WeightPart<'_>]) -> Result<PackedWeight, KernelError> {
    let k = parts.first().map_or(0, |part| part.shape()[1]);
    let columns = parts.iter().map(|part| part.shape()[0]).sum();
    let Some(bits) = IntegerFormat::of(format) else {
        return Ok(Values::of(parts).pack(columns, k, |column, i| column * k + i));
    };
    if let Some(tensors) = parts.iter().map(WeightPart::packed).collect::<Option<Vec<_>>>() {
        let weights = PackedTensor::runs(&tensors).map(|tensors| QuantisedWeight::packed(pool, k, tensors));
        return Ok(PackedWeight::joined(weights.collect(), k));
    }
    if let [WeightPart::Drawn(RandomTensor { draw, .. }), ..] = parts {
        // Drawn directly as integers: no floating-point copy of the weight is made.
        return Ok(PackedWeight::quantised(QuantisedWeight::drawn(bits, columns, k, *draw), k));
    }
    quantised(bits, columns, k, parts)
}

/// Quantises row by row: only the result has the parts' size.
fn quantised(
    bits: IntegerFormat,
    columns: usize,
    k: usize,
    parts: &[WeightPart<'_>],
) -> Result<PackedWeight, KernelError> {
    let weight = by_rows(k, parts, |rows| QuantisedWeight::new(bits, columns, k, rows))?;
    Ok(PackedWeight::quantised(weight, k))
}

/// Quantises a convolution `[out, channels, taps]`.
fn integer_convolution(name: &str, numbers: Vec<f32>, shape: &[usize]) -> Result<QuantisedWeight, KernelError> {
    let (out, channels, taps) = (shape[0], shape[1], shape[2]);
    let padded = channels.next_multiple_of(GROUP);
    let mut filters = numbers.chunks_exact(channels * taps);
    let row = |to: &mut [f32]| {
        let Some(filter) = filters.next() else { return };
        for (tap, to) in to.chunks_exact_mut(padded).enumerate() {
            to[..channels].iter_mut().enumerate().for_each(|(channel, to)| *to = filter[channel * taps + tap]);
            to[channels..].fill(0.0);
        }
    };
    let weight = QuantisedWeight::new(IntegerFormat::Eight, out, taps * padded, row);
    weight.map_err(|NotFinite| KernelError::NotFinite { name: name.to_owned() })
}

/// Packs a table: stored integers and floating-point numbers keep their format unless integers are asked for.
fn table(checked: &CheckedParts<'_>) -> Result<Table, KernelError> {
    let (width, parts) = (checked.shape()[1], checked.parts());
    if let Some(tensors) = checked.packed() {
        return Ok(Table::packed(width, &tensors));
    }
    if checked.format() == WeightFormat::Int8 {
        return quantised_table(width, parts);
    }
    Ok(match Values::of(parts) {
        Values::F32(numbers) => Table::new(width, numbers),
        Values::Bf16(numbers) => Table::new_bf16(width, numbers),
    })
}

/// Quantises a table to eight-bit integers, row by row.
fn quantised_table(width: usize, parts: &[WeightPart<'_>]) -> Result<Table, KernelError> {
    let entries = parts.iter().map(|part| part.shape()[0]).sum();
    if let [WeightPart::Drawn(RandomTensor { draw, .. }), ..] = parts {
        return Ok(Table::drawn(width, entries, *draw));
    }
    by_rows(width, parts, |rows| Table::quantised(width, entries, rows))
}

/// Calls `make` with a closure that writes the numbers of the next row of `k`.
fn by_rows<W>(
    k: usize,
    parts: &[WeightPart<'_>],
    make: impl FnOnce(&mut dyn FnMut(&mut [f32])) -> Result<W, NotFinite>,
) -> Result<W, KernelError> {
    let mut rows = parts.iter().flat_map(|part| (0..part.shape()[0]).map(move |row| (part, row)));
    let mut name = "";
    let made = make(&mut |numbers| {
        let Some((part, row)) = rows.next() else { return };
        name = part.name();
        match part {
            WeightPart::Stored(RawTensor { dtype, bytes, .. }) => {
                dtype.widen_into(&bytes[row * k * dtype.size()..], numbers);
            }
            WeightPart::Packed(_) => unreachable!("packed parts stand alone"),
            WeightPart::Drawn(RandomTensor { draw, .. }) => {
                numbers.iter_mut().enumerate().for_each(|(i, number)| *number = draw.number((row * k + i) as u64));
            }
        }
    });
    made.map_err(|NotFinite| KernelError::NotFinite { name: name.to_owned() })
}

/// Packs every `per_expert` parts as one expert.
fn experts(
    pool: Option<&Pool>,
    format: WeightFormat,
    parts: &[WeightPart<'_>],
    per_expert: usize,
) -> Result<Vec<PackedWeight>, KernelError> {
    let Some(pool) = pool else {
        return parts.chunks(per_expert).map(|expert| linear(None, format, expert)).collect();
    };
    let mut packed: Vec<_> = parts.chunks(per_expert).map(|expert| (expert, None)).collect();
    pool.for_each(&mut packed, |_, (expert, packed)| *packed = Some(linear(None, format, expert)));
    packed.into_iter().filter_map(|(_, packed)| packed).collect()
}
