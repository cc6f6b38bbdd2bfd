//! Matrices of a GGUF file with its own integers.

use std::borrow::Cow;

use repartee_checkpoint::blocks;
use repartee_checkpoint::gguf::GgmlDType;
use repartee_checkpoint::llama;
use repartee_kernels::DType;

use super::super::error::CheckpointError;
use super::super::tensor_data::{TensorData, TensorView};
use super::super::weights::{StoredBlocks, Weights};

/// Loss of formats whose scales are products of a half and an integer.
const ROUNDED: &str = "scales of the K formats are rounded to half precision";
/// Change of formats that no product takes.
const DEQUANTISED: &str = "blocks without a packed form are dequantised to single precision";

/// Matrix `name` stored in blocks, and the loss of its conversion; `None` if it is stored in plain numbers.
pub fn matrix<'a>(
    weights: &Weights,
    name: &str,
    expected: &'a [usize],
) -> Result<Option<(TensorData<'a>, Option<&'static str>)>, CheckpointError> {
    let Some(StoredBlocks { kind, bytes, heads }) = weights.blocks(name, expected)? else { return Ok(None) };
    let (file, tensor) = (weights.file_of(name), weights.own_name(name));
    let Ok(shape) = <[usize; 2]>::try_from(expected) else {
        let reason = "only matrices are served in blocks".to_owned();
        return Err(CheckpointError::RefusedTensor { file, tensor, reason });
    };
    if let Some(packed) = blocks::pack((&file, &tensor), kind, shape, bytes)? {
        let packed = match heads {
            Some(heads) => packed.unpermuted(heads),
            None => packed,
        };
        let is_k = matches!(kind, GgmlDType::Q4K | GgmlDType::Q5K | GgmlDType::Q6K);
        return Ok(Some((TensorData::Repacked(packed), is_k.then_some(ROUNDED))));
    }
    let numbers = blocks::numbers((&file, &tensor), kind, expected, bytes)?;
    let bytes: Vec<u8> = numbers.into_iter().flat_map(f32::to_le_bytes).collect();
    let bytes = match heads {
        Some(heads) => llama::unpermuted(&bytes, shape[1] * size_of::<f32>(), heads),
        None => bytes,
    };
    let view = TensorView { dtype: DType::F32, shape: expected, bytes: Cow::Owned(bytes) };
    Ok(Some((TensorData::Stored(view), Some(DEQUANTISED))))
}
