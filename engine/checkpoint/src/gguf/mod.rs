//! GGUF files: metadata, tensors and vocabulary. candle reads the header; the tensors' bytes stay in the mapped file.
//!
//! - `header`: candle's reader, within bounds
//! - `contents`: metadata by key, tensors by name
//! - `vocabulary`: the tokenizer's lists as plain data

mod contents;
mod header;
mod vocabulary;

pub use candle_core::quantized::GgmlDType;
pub use contents::{Gguf, GgufTensor};
pub use header::MAGIC;
pub use vocabulary::GgufVocabulary;
