//! GGUF files: metadata and tensors. candle reads the header; the tensors' bytes stay in the mapped file.
//!
//! - `header`: candle's reader, within bounds
//! - `contents`: metadata by key, tensors by name
//! - `lists`: lists in the metadata, such as the tokens

mod contents;
mod header;
mod lists;

pub use candle_core::quantized::GgmlDType;
pub use contents::{Gguf, GgufTensor};
pub use header::MAGIC;
