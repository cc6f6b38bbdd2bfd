//! Published forms of checkpoints, read into plain bytes. It knows no model and no device.
//!
//! Files:
//! - [`mod@file`]: opens and maps regular files alone
//! - [`form`]: the form of a file by its first bytes
//! - [`error`]: errors, which name file, field and remedy
//!
//! Forms:
//! - [`gguf`]: metadata and tensors of a GGUF file; [`blocks`]: its blocks as packed or dequantised matrices;
//!   [`llama`]: the order of rows in one architecture
//! - [`pickle`]: tensors and plain values of PyTorch's files
//! - [`marks`]: the description of a quantisation in a checkpoint's JSON files
//! - [`grouped`]: matrices of AWQ and GPTQ
//! - [`fp8`]: matrices of eight-bit floating-point numbers
//! - [`ctranslate2`]: Whisper in CTranslate2's form, by the names that transformers gives the tensors
//! - [`onnx`]: parameters of an ONNX file, by the names that torch gave them
//!
//! [`packed`] is the form of quantised matrices that our products take. Headers, pickles and dequantisation are
//! candle's; what is ours is that a file is read within bounds and served with its own integers.

pub mod blocks;
pub mod ctranslate2;
pub mod error;
pub mod file;
pub mod form;
pub mod fp8;
pub mod gguf;
pub mod grouped;
pub mod llama;
pub mod marks;
pub mod onnx;
pub mod packed;
pub mod pickle;

pub use error::FormatError;
pub use file::MappedFile;
pub use packed::{IntegerPacking, PackedMatrix};
