//! Numbers of a pickle's tensors, for files of voices.

use std::collections::BTreeMap;

use repartee_checkpoint::pickle::PickleValue;
use repartee_kernels::DType;
use safetensors::Dtype;

use crate::checkpoint::CheckpointError;

/// Entries of a file that is a dictionary of voices, in the order of their names: a dictionary has none.
pub fn named_entries(file: &str, bytes: &[u8]) -> Result<BTreeMap<String, PickleValue>, CheckpointError> {
    let wrong = |message: &str| CheckpointError::WrongField {
        file: file.to_owned(),
        field: "top level".to_owned(),
        message: message.to_owned(),
    };
    let PickleValue::Dict(entries) = PickleValue::read(file, bytes)? else {
        return Err(wrong("is no dictionary of voices"));
    };
    let named = entries.into_iter().filter_map(|(name, parts)| match name {
        PickleValue::Text(name) => Some((name, parts)),
        _ => None,
    });
    let entries: BTreeMap<String, PickleValue> = named.collect();
    if entries.is_empty() {
        return Err(wrong("has no voice: add one with add_zero_shot_spk and save_spkinfo"));
    }
    Ok(entries)
}

/// Numbers under a key of a dictionary in `file`; `None` if it has no tensor of floating-point numbers.
pub fn numbers(parts: &PickleValue, key: &str, file: &[u8]) -> Option<Vec<f32>> {
    let Some(PickleValue::Tensor(tensor)) = parts.get(key) else { return None };
    let format = match tensor.dtype {
        Dtype::F32 => DType::F32,
        Dtype::BF16 => DType::Bf16,
        Dtype::F16 => DType::F16,
        _ => return None,
    };
    Some(format.widen(&tensor.numbers(file)))
}

/// Ids under a key of a dictionary in `file`, at most `most`, each below `below`; none without the key. `None` if it has
/// something else.
pub fn ids(parts: &PickleValue, key: &str, file: &[u8], (most, below): (usize, usize)) -> Option<Vec<u32>> {
    let tensor = match parts.get(key) {
        None => return Some(Vec::new()),
        Some(PickleValue::Tensor(tensor)) => tensor,
        Some(_) => return None,
    };
    let bytes = tensor.numbers(file);
    let ids: Vec<i64> = match tensor.dtype {
        Dtype::I64 => bytes.as_chunks().0.iter().map(|id| i64::from_le_bytes(*id)).collect(),
        Dtype::I32 => bytes.as_chunks().0.iter().map(|id| i64::from(i32::from_le_bytes(*id))).collect(),
        _ => return None,
    };
    let id = |id: i64| u32::try_from(id).ok().filter(|&id| (id as usize) < below);
    if ids.len() > most { None } else { ids.into_iter().map(id).collect() }
}
