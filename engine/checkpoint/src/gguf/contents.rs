//! Contents of a GGUF file: metadata by key, tensors by name.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use candle_core::quantized::GgmlDType;
use candle_core::quantized::gguf_file::Value;

use super::header;
use crate::blocks;
use crate::error::FormatError;

/// Header of a GGUF file.
#[derive(Debug)]
pub struct Gguf {
    file: String,
    metadata: HashMap<String, Value>,
    tensors: BTreeMap<String, GgufTensor>,
}

/// Tensor of a GGUF file.
#[derive(Debug, Clone, PartialEq)]
pub struct GgufTensor {
    /// Sizes of the axes, outermost first.
    pub shape: Vec<usize>,
    /// Format of the blocks.
    pub kind: GgmlDType,
    /// Place of the blocks in the file.
    pub bytes: Range<usize>,
}

impl Gguf {
    /// Reads the header of a whole file; `file` is its name in errors.
    ///
    /// # Errors
    /// The file is no GGUF file, is truncated, or has a tensor of a format that is not read.
    pub fn read(file: &str, bytes: &[u8]) -> Result<Self, FormatError> {
        let header = header::read(file, bytes)?;
        let mut tensors = BTreeMap::new();
        for (name, info) in header.tensor_infos {
            let refused = |message: String| FormatError::refused(file, format!("tensor {name}"), message);
            let (shape, kind) = (info.shape.dims().to_vec(), info.ggml_dtype);
            let width = shape.last().copied().unwrap_or(1);
            let length = blocks::length(kind, &shape).filter(|_| width.is_multiple_of(kind.block_size()));
            let length = length.ok_or_else(|| refused(format!("{kind:?} cannot have the shape {shape:?}")))?;
            let start = header.tensor_data_offset.checked_add(info.offset);
            let start = start.and_then(|start| usize::try_from(start).ok());
            let range = start.and_then(|start| Some(start..start.checked_add(length)?));
            let range = range.filter(|range| range.end <= bytes.len()).ok_or_else(|| {
                refused(format!("is not whole in the file, which has {} bytes: copy the file again", bytes.len()))
            })?;
            if !range.start.is_multiple_of(4) {
                return Err(refused("does not begin at a multiple of four bytes".to_owned()));
            }
            tensors.insert(name, GgufTensor { shape, kind, bytes: range });
        }
        Ok(Self { file: file.to_owned(), metadata: header.metadata, tensors })
    }

    /// Name of the file in errors.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Architecture of the model, `general.architecture`.
    pub fn architecture(&self) -> Option<&str> {
        self.text("general.architecture")
    }

    /// Tensors by name, in alphabetical order.
    pub fn tensors(&self) -> &BTreeMap<String, GgufTensor> {
        &self.tensors
    }

    /// Text of a metadata key; `None` if it is absent or no text.
    pub fn text(&self, key: &str) -> Option<&str> {
        match self.metadata.get(key) {
            Some(Value::String(text)) => Some(text),
            _ => None,
        }
    }

    /// Integer of a metadata key; `None` if it is absent, negative or no integer.
    pub fn integer(&self, key: &str) -> Option<u64> {
        match *self.metadata.get(key)? {
            Value::U8(number) => Some(number.into()),
            Value::U16(number) => Some(number.into()),
            Value::U32(number) => Some(number.into()),
            Value::U64(number) => Some(number),
            Value::I8(number) => number.try_into().ok(),
            Value::I16(number) => number.try_into().ok(),
            Value::I32(number) => number.try_into().ok(),
            Value::I64(number) => number.try_into().ok(),
            _ => None,
        }
    }

    /// Floating-point number of a metadata key; `None` if it is absent or none.
    pub fn float(&self, key: &str) -> Option<f64> {
        match *self.metadata.get(key)? {
            Value::F32(number) => Some(number.into()),
            Value::F64(number) => Some(number),
            _ => None,
        }
    }

    /// Boolean of a metadata key; `None` if it is absent or none.
    pub fn flag(&self, key: &str) -> Option<bool> {
        match *self.metadata.get(key)? {
            Value::Bool(flag) => Some(flag),
            _ => None,
        }
    }

    /// True if the metadata have a key, of any type.
    pub fn has(&self, key: &str) -> bool {
        self.metadata.contains_key(key)
    }

    pub(super) fn value(&self, key: &str) -> Option<&Value> {
        self.metadata.get(key)
    }

    /// Key of the architecture, such as `llama.block_count`.
    pub fn own_key(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture().unwrap_or_default())
    }
}
