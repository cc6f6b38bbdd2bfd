//! Tensors of a pickle.

use std::borrow::Cow;
use std::ops::Range;

use candle_core::pickle::Object;
use safetensors::Dtype;

use super::archive::Archive;

/// Classes of PyTorch's storages, with their numbers.
const STORAGES: [(&str, Dtype); 10] = [
    ("FloatStorage", Dtype::F32),
    ("HalfStorage", Dtype::F16),
    ("BFloat16Storage", Dtype::BF16),
    ("DoubleStorage", Dtype::F64),
    ("LongStorage", Dtype::I64),
    ("IntStorage", Dtype::I32),
    ("ShortStorage", Dtype::I16),
    ("CharStorage", Dtype::I8),
    ("ByteStorage", Dtype::U8),
    ("BoolStorage", Dtype::BOOL),
];

/// Tensor of a pickle: a place in its file.
#[derive(Debug, Clone, PartialEq)]
pub struct PickleTensor {
    /// Number format of its storage.
    pub dtype: Dtype,
    /// Sizes of the axes, outermost first.
    pub shape: Vec<usize>,
    /// Distance of neighbours along each axis, in numbers.
    strides: Vec<usize>,
    /// Place of its first number up to the end of its last one.
    bytes: Range<usize>,
}

impl PickleTensor {
    /// Reads the arguments of `torch._utils._rebuild_tensor_v2`: storage, offset, sizes, strides, and more.
    pub(super) fn rebuilt(archive: &Archive, args: Vec<Object>) -> Result<Self, String> {
        let mut args = args.into_iter();
        let malformed = || "is a malformed tensor: copy the file again".to_owned();
        let [storage, offset, shape, strides] = std::array::from_fn(|_| args.next());
        let Some(Object::PersistentLoad(storage)) = storage else { return Err(malformed()) };
        let Object::Tuple(storage) = *storage else { return Err(malformed()) };
        let [_, Object::Class { class_name, .. }, Object::Unicode(key), ..] = &storage[..] else {
            return Err(malformed());
        };
        let dtype = STORAGES.iter().find(|(name, _)| name == class_name).map(|(_, dtype)| *dtype);
        let dtype =
            dtype.ok_or_else(|| format!("has numbers of the type {class_name}, which is not read: convert it"))?;
        let size = dtype.bitsize() / 8;
        let storage =
            archive.storage(key).ok_or_else(|| format!("its storage data/{key} is missing: copy the file again"))?;
        let (shape, strides) = (sizes(shape).ok_or_else(malformed)?, sizes(strides).ok_or_else(malformed)?);
        let offset =
            offset.and_then(|offset| usize::try_from(offset.int_or_long().ok()?).ok()).ok_or_else(malformed)?;
        if strides.len() != shape.len() {
            return Err(malformed());
        }
        let count = shape.iter().try_fold(1usize, |count, &axis| count.checked_mul(axis));
        // Numbers from the first to the last one.
        let span = shape
            .iter()
            .zip(&strides)
            .try_fold(1usize, |span, (&axis, &stride)| span.checked_add(axis.saturating_sub(1).checked_mul(stride)?));
        let span = if count == Some(0) { Some(0) } else { span };
        let start = offset.checked_mul(size).and_then(|offset| offset.checked_add(storage.start));
        let end = start.zip(span).and_then(|(start, span)| start.checked_add(span.checked_mul(size)?));
        match (start, end, count) {
            // An axis that repeats numbers could stand for more than any memory holds.
            (Some(start), Some(end), Some(count)) if end <= storage.end && count <= storage.len() / size => {
                Ok(Self { dtype, shape, strides, bytes: start..end })
            }
            _ => Err(format!("of shape {shape:?} has more numbers than its storage data/{key}: copy the file again")),
        }
    }

    /// Number of bytes of its numbers.
    pub fn length(&self) -> usize {
        self.shape.iter().product::<usize>() * self.size()
    }

    /// Place of its numbers in the file if they lie there in row-major order; `None` if they have to be gathered.
    pub fn place(&self) -> Option<Range<usize>> {
        let mut expected = 1;
        for (&axis, &stride) in self.shape.iter().zip(&self.strides).rev() {
            if axis > 1 && stride != expected {
                return None;
            }
            expected *= axis;
        }
        Some(self.bytes.clone())
    }

    /// Numbers in row-major order, little-endian; `file` is the whole file.
    pub fn numbers<'a>(&self, file: &'a [u8]) -> Cow<'a, [u8]> {
        let bytes = file.get(self.bytes.clone()).unwrap_or_default();
        if self.place().is_some() {
            return Cow::Borrowed(bytes);
        }
        let size = self.size();
        let mut gathered = Vec::with_capacity(self.length());
        let mut index = vec![0; self.shape.len()];
        loop {
            let at: usize = index.iter().zip(&self.strides).map(|(index, stride)| index * stride).sum();
            gathered.extend_from_slice(bytes.get(at * size..(at + 1) * size).unwrap_or_default());
            // The next index, the last axis first.
            let Some(axis) = (0..index.len()).rev().find(|&axis| index[axis] + 1 < self.shape[axis]) else {
                return Cow::Owned(gathered);
            };
            index[axis] += 1;
            index[axis + 1..].fill(0);
        }
    }

    fn size(&self) -> usize {
        self.dtype.bitsize() / 8
    }
}

/// Sizes or strides out of a tuple.
fn sizes(object: Option<Object>) -> Option<Vec<usize>> {
    let items = match object? {
        Object::Tuple(items) => items,
        // `torch.Size` around a tuple.
        Object::Reduce { args, .. } => match *args {
            Object::Tuple(mut items) if items.len() == 1 => items.pop()?.tuple().ok()?,
            _ => return None,
        },
        _ => return None,
    };
    items.into_iter().map(|item| usize::try_from(item.int_or_long().ok()?).ok()).collect()
}
