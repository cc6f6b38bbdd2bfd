//! The form of a file by its first bytes; names of files lie.

use crate::onnx::OnnxGraph;
use crate::{ctranslate2, gguf, pickle};

/// Published form of a weight file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileForm {
    /// GGUF, by its four first bytes.
    Gguf,
    /// PyTorch's archive of a pickle.
    Pickle,
    /// safetensors, by the length and the first byte of its header.
    Safetensors,
    /// CTranslate2's `model.bin`, by the name of the model's kind.
    Ctranslate2,
    /// ONNX: a protocol buffer with a graph.
    Onnx,
}

impl FileForm {
    /// Finds the form of a whole file; `None` if it is none of these.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        // A safetensors file begins with the length of a JSON object, in eight bytes.
        let is_safetensors = bytes.get(8) == Some(&b'{') && bytes.get(7) == Some(&0);
        match bytes {
            _ if bytes.starts_with(gguf::MAGIC) => Some(Self::Gguf),
            // The second is the form before PyTorch 1.6, which its reader refuses with the remedy.
            _ if bytes.starts_with(pickle::MAGIC) || bytes.starts_with(b"\x80\x02") => Some(Self::Pickle),
            _ if is_safetensors => Some(Self::Safetensors),
            _ if ctranslate2::is_model(bytes) => Some(Self::Ctranslate2),
            _ => OnnxGraph::read(bytes).is_some().then_some(Self::Onnx),
        }
    }
}
