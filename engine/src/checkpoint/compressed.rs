//! Quantised checkpoints in the format of the package `compressed-tensors`, which llm-compressor writes and vLLM reads.
//!
//! Supported are symmetric integers of four bits (`pack-quantized`) and of eight (`pack-quantized`, `int-quantized`),
//! in groups of a multiple of 32 or with one scale for each output channel, and floats of eight bits
//! (`float-quantized`). A matrix `X.weight` is stored as `X.weight_packed` (words of 32 bits) or as `X.weight` (bytes),
//! with `X.weight_scale`, of bfloat16 for integers. Everything else is refused by name.

use std::collections::BTreeMap;

use repartee_checkpoint::fp8;
use repartee_checkpoint::marks::FIELD;
use repartee_kernels::{PackedTensor, Packing};
use safetensors::Dtype;
use serde::Deserialize;
use serde_json::Value;

use super::weights::Weights;
use super::{BadValue, CheckpointError};

/// Supported `quant_method`.
const METHOD: &str = "compressed-tensors";
/// All `quant_method`s that are read.
const METHODS: &str = "compressed-tensors, awq, gptq or fp8";
/// Supported `format`s.
const FORMATS: [&str; 5] = ["pack-quantized", "int-quantized", "float-quantized", "naive-quantized", "dense"];
/// Most inputs of a group, as many as a row may have.
const MOST_INPUTS: i64 = 65_536;
/// Suffixes of tensors that change a matrix in unsupported ways, with the reason of refusal.
const REFUSED: [(&str, &str); 3] = [
    ("_zero_point", "zero points are not served: quantise symmetrically"),
    ("_g_idx", "reordered groups are not served: quantise without activation order"),
    ("_global_scale", "scales of scales are not served: quantise to integers"),
];

/// The field of config.json; parts without effect on stored numbers are left out.
#[derive(Deserialize)]
struct Raw {
    quant_method: Option<String>,
    format: Option<String>,
    #[serde(default)]
    config_groups: BTreeMap<String, RawGroup>,
    transform_config: Option<Value>,
    sparsity_config: Option<Value>,
}

#[derive(Deserialize)]
struct RawGroup {
    weights: Option<RawWeights>,
    format: Option<String>,
}

#[derive(Deserialize)]
struct RawWeights {
    num_bits: Option<u64>,
    #[serde(rename = "type")]
    kind: Option<String>,
    symmetric: Option<bool>,
    strategy: Option<String>,
    group_size: Option<i64>,
    block_structure: Option<[usize; 2]>,
    actorder: Option<Value>,
}

/// Reads the field of config.json; returns the outputs and inputs of a block of eight-bit floats. Fails for unsupported
/// settings.
pub(super) fn read_mark(found: &Value) -> Result<[usize; 2], BadValue> {
    let raw: Raw = serde_path_to_error::deserialize(found).map_err(|error| BadValue {
        field: format!("{FIELD}.{}", error.path()),
        value: error.inner().to_string(),
        allowed: format!("as {METHOD} writes it"),
    })?;
    let refuse = |field: &str, value: &str, allowed: &str| {
        let (field, value, allowed) = (format!("{FIELD}.{field}"), value.to_owned(), allowed.to_owned());
        Err(BadValue { field, value, allowed })
    };
    let method = raw.quant_method.as_deref().unwrap_or("absent");
    if method != METHOD {
        return refuse("quant_method", method, METHODS);
    }
    for (field, value) in [("transform_config", &raw.transform_config), ("sparsity_config", &raw.sparsity_config)] {
        let is_empty = |value: &Value| value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
        if let Some(value) = value.as_ref().filter(|value| !is_empty(value)) {
            return refuse(field, &value.to_string(), "absent");
        }
    }
    let formats = raw.config_groups.iter().map(|(name, group)| (format!("config_groups.{name}.format"), &group.format));
    for (field, format) in std::iter::once(("format".to_owned(), &raw.format)).chain(formats) {
        match format.as_deref() {
            // Groups of different formats, each of which names its own.
            None | Some("mixed-precision") => {}
            Some(format) if FORMATS.contains(&format) => {}
            Some(format) => return refuse(&field, format, &FORMATS[..3].join(" or ")),
        }
    }
    let mut block = [fp8::BLOCK; 2];
    for (name, group) in &raw.config_groups {
        let Some(weights) = &group.weights else { continue };
        let field = |field: &str| format!("config_groups.{name}.weights.{field}");
        let (kind, bits) = (weights.kind.as_deref().unwrap_or("int"), weights.num_bits.unwrap_or(8));
        if kind == "float" && bits == 8 {
            block = weights.block_structure.filter(|block| !block.contains(&0)).unwrap_or(block);
            continue;
        }
        if kind != "int" {
            return refuse(&field("type"), &format!("{kind} of {bits} bits"), "int, or float of 8 bits");
        }
        if ![4, 8].contains(&bits) {
            return refuse(&field("num_bits"), &bits.to_string(), "4 or 8");
        }
        if weights.symmetric == Some(false) {
            return refuse(&field("symmetric"), "false", "true: zero points are not served");
        }
        let strategy = weights.strategy.as_deref().unwrap_or("channel");
        if !["channel", "group"].contains(&strategy) {
            return refuse(&field("strategy"), strategy, "channel or group");
        }
        let whole = |size: i64| (1..=MOST_INPUTS).contains(&size) && size % 32 == 0;
        if let Some(size) = weights.group_size.filter(|&size| strategy == "group" && !whole(size)) {
            let allowed = format!("a positive multiple of 32, at most {MOST_INPUTS}");
            return refuse(&field("group_size"), &size.to_string(), &allowed);
        }
        // `weight` and `static` order during quantisation, and leave groups as they are.
        match &weights.actorder {
            Some(Value::String(order)) if order == "group" || order == "dynamic" => {
                return refuse(&field("actorder"), order, "absent, weight or static: g_idx is not served");
            }
            _ => {}
        }
    }
    Ok(block)
}

/// Matrix `name` as integers; `None` if it is not stored as integers.
pub(super) fn matrix<'a>(
    weights: &'a Weights,
    name: &'a str,
    expected: &'a [usize],
) -> Result<Option<PackedTensor<'a>>, CheckpointError> {
    let packed = format!("{name}_packed");
    let stored = if weights.has(&packed) {
        packed
    } else if weights.dtype(name) == Some(Dtype::I8) {
        name.to_owned()
    } else {
        return Ok(None);
    };
    for (suffix, reason) in REFUSED {
        let tensor = format!("{name}{suffix}");
        if weights.has(&tensor) {
            let file = weights.file_of(&tensor);
            return Err(CheckpointError::RefusedTensor { file, tensor, reason: reason.to_owned() });
        }
    }
    // Four-bit and eight-bit words can have one shape, so the matrix's own shape is stored in a tensor.
    let shape = format!("{name}_shape");
    if let Ok((Dtype::I64, _, bytes)) = weights.in_place(&shape) {
        let sizes = bytes.as_chunks().0.iter().map(|&size| usize::try_from(i64::from_le_bytes(size)).unwrap_or(0));
        let found: Vec<usize> = sizes.collect();
        if found != expected {
            let (file, tensor, expected) = (weights.file_of(&stored), name.to_owned(), expected.to_vec());
            return Err(CheckpointError::WrongShape { file, tensor, expected, found });
        }
    }
    let &[out, inputs] = expected else {
        let (file, tensor) = (weights.file_of(&stored), stored);
        return Err(CheckpointError::RefusedTensor {
            file,
            tensor,
            reason: "only matrices are served as integers".to_owned(),
        });
    };
    let (dtype, shape, integers) = weights.in_place(&stored)?;
    let packing = match dtype {
        Dtype::I8 => Packing::Bytes,
        _ if shape == [out, Packing::Eight.row_bytes(inputs) / 4] => Packing::Eight,
        _ => Packing::Four,
    };
    let words = if packing == Packing::Bytes { inputs } else { packing.row_bytes(inputs) / 4 };
    let wrong = |tensor: &str, expected: [usize; 2], found: &[usize]| CheckpointError::WrongShape {
        file: weights.file_of(tensor),
        tensor: tensor.to_owned(),
        expected: expected.to_vec(),
        found: found.to_vec(),
    };
    if ![Dtype::I8, Dtype::I32].contains(&dtype) || shape != [out, words] {
        return Err(wrong(&stored, [out, words], shape));
    }
    let scale = format!("{name}_scale");
    let (dtype, shape, scales) = weights.in_place(&scale)?;
    if dtype != Dtype::BF16 {
        let (file, tensor) = (weights.file_of(&scale), scale);
        return Err(CheckpointError::RefusedTensor {
            file,
            tensor,
            reason: "only scales of bfloat16 are served".to_owned(),
        });
    }
    // One scale for each group; for each channel without a second axis, or with an axis of 1.
    let groups = match *shape {
        [rows] if rows == out => 1,
        [rows, groups] if rows == out && groups > 0 => groups,
        _ => return Err(wrong(&scale, [out, 1], shape)),
    };
    let group = group_size(inputs, groups).ok_or_else(|| wrong(&scale, [out, inputs.div_ceil(32)], shape))?;
    Ok(Some(PackedTensor::symmetric(name, expected, packing, integers, scales, group)))
}

/// Number of inputs of a group; `None` if `inputs` cannot have `groups` groups.
fn group_size(inputs: usize, groups: usize) -> Option<usize> {
    if groups == 1 {
        return Some(inputs);
    }
    let size = inputs.div_ceil(groups).next_multiple_of(32);
    (inputs.div_ceil(size) == groups).then_some(size)
}
