//! Tensors of a weight that fit its layout and its format: a device only packs them.

use crate::packed::PackedTensor;
use crate::part::WeightPart;
use crate::weight::{KernelError, RawTensor, WeightFormat, WeightLayout};

/// Checked tensors of one weight.
#[derive(Debug, Clone)]
pub struct CheckedParts<'a> {
    layout: WeightLayout,
    format: WeightFormat,
    parts: Vec<WeightPart<'a>>,
}

impl<'a> CheckedParts<'a> {
    /// Checks the parts of a weight. [`WeightLayout::Linear`] and [`WeightLayout::Experts`] may have all formats,
    /// [`WeightLayout::Table`] and [`WeightLayout::Conv1d`] floating point and [`WeightFormat::Int8`], the others floating point alone. A
    /// device without products of integers for convolutions keeps their numbers. Matrices, experts and tables may
    /// have stored integers, which keep their format; then all parts must be stored integers, of any kinds.
    ///
    /// # Errors
    /// Shapes, sizes or format do not fit the layout, or integers are mixed with other parts.
    pub fn new(layout: WeightLayout, format: WeightFormat, parts: &[WeightPart<'a>]) -> Result<Self, KernelError> {
        let wrong =
            |name: &str, shape: &[usize]| KernelError::Shape { name: name.to_owned(), shape: shape.to_vec(), layout };
        let first = parts.first().ok_or_else(|| wrong("", &[]))?;
        let shape = first.shape();
        for part in parts {
            let found = part.shape();
            // The parts of an expert may differ in outputs, but never along the input.
            if found.len() != rank(layout) || found.contains(&0) || found[1..] != shape[1..] {
                return Err(wrong(part.name(), found));
            }
            check_bytes(part).unwrap_or_else(|| Err(wrong(part.name(), found)))?;
        }
        let stored = stored_format(layout, parts)?;
        let fits = match layout {
            WeightLayout::Experts { per_expert } => per_expert > 0 && parts.len().is_multiple_of(per_expert),
            WeightLayout::Depthwise => shape[1] == 1,
            WeightLayout::GroupedConv1d { groups, .. } => groups > 0 && shape[0].is_multiple_of(groups),
            WeightLayout::ConvTranspose1d { stride, .. } => {
                stride > 0 && (shape[2] == stride || stride.checked_mul(2) == Some(shape[2]))
            }
            WeightLayout::Conv2d { stride } => stride > 0 && shape[2..] == [3, 3],
            WeightLayout::Vector | WeightLayout::Linear | WeightLayout::Table | WeightLayout::Conv1d { .. } => true,
        };
        if !fits {
            return Err(wrong(first.name(), shape));
        }
        let format = stored.unwrap_or(format);
        let has_format = match layout {
            WeightLayout::Linear | WeightLayout::Experts { .. } => true,
            WeightLayout::Table => format != WeightFormat::Int4 || stored.is_some(),
            WeightLayout::Conv1d { .. } => format != WeightFormat::Int4,
            _ => format == WeightFormat::Float,
        };
        if !has_format {
            return Err(KernelError::Format { name: first.name().to_owned(), layout, format });
        }
        Ok(Self { layout, format, parts: parts.to_vec() })
    }

    /// Checks floating-point tensors of a checkpoint, which keep their format.
    ///
    /// # Errors
    /// As [`CheckedParts::new`].
    pub fn stored(layout: WeightLayout, tensors: &[RawTensor<'a>]) -> Result<Self, KernelError> {
        let parts: Vec<_> = tensors.iter().copied().map(WeightPart::Stored).collect();
        Self::new(layout, WeightFormat::Float, &parts)
    }

    /// Use of the weight.
    pub fn layout(&self) -> WeightLayout {
        self.layout
    }

    /// Format on the device; of stored integers, theirs.
    pub fn format(&self) -> WeightFormat {
        self.format
    }

    /// Stored integers of all parts; `None` for floating-point parts.
    pub fn packed(&self) -> Option<Vec<PackedTensor<'a>>> {
        self.parts.iter().map(WeightPart::packed).collect()
    }

    /// All parts, at least one.
    pub fn parts(&self) -> &[WeightPart<'a>] {
        &self.parts
    }

    /// Name of the first part.
    pub fn name(&self) -> &'a str {
        self.parts[0].name()
    }

    /// Shape of the first part.
    pub fn shape(&self) -> &'a [usize] {
        self.parts[0].shape()
    }
}

/// Number of axes of a part.
fn rank(layout: WeightLayout) -> usize {
    match layout {
        WeightLayout::Vector => 1,
        WeightLayout::Linear | WeightLayout::Table | WeightLayout::Experts { .. } => 2,
        WeightLayout::Conv1d { .. }
        | WeightLayout::GroupedConv1d { .. }
        | WeightLayout::Depthwise
        | WeightLayout::ConvTranspose1d { .. } => 3,
        WeightLayout::Conv2d { .. } => 4,
    }
}

/// Refuses a part whose bytes do not match its shape; `None` if no memory holds as many.
fn check_bytes(part: &WeightPart<'_>) -> Option<Result<(), KernelError>> {
    let size = if let WeightPart::Stored(tensor) = part { tensor.dtype.size() } else { size_of::<u64>() };
    let expected = part.shape().iter().try_fold(size, |bytes, &axis| bytes.checked_mul(axis))?;
    Some(match part {
        WeightPart::Stored(RawTensor { name, bytes, .. }) if bytes.len() != expected => {
            Err(KernelError::Bytes { name: (*name).to_owned(), expected, found: bytes.len() })
        }
        WeightPart::Packed(tensor) => tensor.check(),
        WeightPart::Stored(_) | WeightPart::Drawn(_) => Ok(()),
    })
}

/// Format of stored integers; `None` for floating-point parts. Either all parts of a weight are integers, or none, and only matrices and
/// tables may have integers.
fn stored_format(layout: WeightLayout, parts: &[WeightPart<'_>]) -> Result<Option<WeightFormat>, KernelError> {
    let packed: Vec<_> = parts.iter().filter_map(WeightPart::packed).collect();
    let Some(first) = packed.first() else { return Ok(None) };
    let may = matches!(layout, WeightLayout::Linear | WeightLayout::Experts { .. } | WeightLayout::Table);
    if !may || packed.len() < parts.len() {
        return Err(KernelError::Packed { name: first.name.to_owned(), layout });
    }
    let four = packed.iter().all(|tensor| tensor.packing.bits() == 4);
    Ok(Some(if four { WeightFormat::Int4 } else { WeightFormat::Int8 }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packed::Packing;
    use crate::weight::DType;

    fn refused(layout: WeightLayout, shape: &[usize], bytes: &[u8]) -> Option<KernelError> {
        CheckedParts::stored(layout, &[RawTensor { name: "w", bytes, dtype: DType::F32, shape }]).err()
    }

    #[test]
    fn sizes_beyond_any_memory_are_refused() {
        for shape in [[usize::MAX, 2], [1 << 40, 1 << 40], [1 << 62, 1]] {
            let error = refused(WeightLayout::Linear, &shape, &[]);
            assert!(matches!(error, Some(KernelError::Shape { .. })), "{shape:?}: {error:?}");
        }
        let packed = PackedTensor::symmetric("w", &[usize::MAX, 64], Packing::Bytes, &[], &[], 32);
        let parts = [WeightPart::Packed(packed)];
        let error = CheckedParts::new(WeightLayout::Linear, WeightFormat::Float, &parts).err();
        assert!(matches!(error, Some(KernelError::Shape { .. })), "{error:?}");
    }

    #[test]
    fn groups_divide_their_outputs() {
        let layout = |groups| WeightLayout::GroupedConv1d { dilation: 1, groups };
        let refused = |groups| refused(layout(groups), &[6, 2, 3], &[0; 6 * 2 * 3 * 4]);
        for groups in [1, 2, 3, 6] {
            assert_eq!(refused(groups), None);
        }
        for groups in [0, 4, 12] {
            assert!(matches!(refused(groups), Some(KernelError::Shape { .. })), "{groups} groups");
        }
    }
}
