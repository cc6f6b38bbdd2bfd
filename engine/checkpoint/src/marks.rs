//! Marks of quantised checkpoints: the field `quantization_config` of config.json, or a file of its own.

use serde_json::Value;

use crate::error::FormatError;
use crate::fp8;
use crate::grouped::GroupedFormat;

/// Files that describe a quantisation without config.json's field, with their method.
pub const MARK_FILES: [(&str, &str); 2] = [("quantize_config.json", "gptq"), ("quant_config.json", "awq")];
/// Field of config.json.
pub const FIELD: &str = "quantization_config";

/// Quantisation that a checkpoint is marked with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuantisationMark {
    /// AWQ or GPTQ.
    Grouped(GroupedFormat),
    /// Eight-bit floating-point numbers with scales of blocks of these outputs and inputs, or of channels.
    Fp8 {
        /// Outputs and inputs of a block.
        block: [usize; 2],
    },
    /// Another method, which the caller reads or refuses.
    Other,
}

/// Reads the mark `value` of the file `file`, whose method is `method` if it names none. `field` is its place in the
/// file, empty or ending with a dot.
///
/// # Errors
/// A variant of the method is not read.
pub fn read(file: &str, field: &str, value: &Value, method: &str) -> Result<QuantisationMark, FormatError> {
    let method = value.get("quant_method").and_then(Value::as_str).unwrap_or(method);
    let refuse = |name: &str, found: &Value, allowed: &str| {
        let found = found.as_str().map_or_else(|| found.to_string(), str::to_owned);
        Err(FormatError::refused(file, format!("{field}{name}"), format!("{found} is not read: must be {allowed}")))
    };
    // Text of a field, in lower case, if it is another than `allowed`.
    let other = |name: &str, allowed: &[&str]| {
        let found = value.get(name).filter(|found| !found.is_null())?;
        let is_allowed = found.as_str().is_some_and(|found| allowed.contains(&&found.to_lowercase()[..]));
        (!is_allowed).then_some(found)
    };
    match method {
        "awq" => {
            if let Some(found) = other("version", &["gemm"]) {
                return refuse("version", found, "gemm: save it again with AutoAWQ's version gemm");
            }
            Ok(QuantisationMark::Grouped(GroupedFormat::Awq))
        }
        "gptq" => {
            if let Some(found) = other("checkpoint_format", &["gptq", "gptq_v2"]) {
                return refuse("checkpoint_format", found, "gptq or gptq_v2");
            }
            let exact_zeros = value.get("checkpoint_format").and_then(Value::as_str) == Some("gptq_v2");
            Ok(QuantisationMark::Grouped(GroupedFormat::Gptq { exact_zeros }))
        }
        "fp8" => {
            if let Some(found) = other("fmt", &["e4m3", "float8_e4m3fn"]) {
                return refuse("fmt", found, "e4m3");
            }
            let block = match value.get("weight_block_size").filter(|block| !block.is_null()) {
                None => [fp8::BLOCK; 2],
                Some(found) => {
                    let sizes: Option<Vec<usize>> = found.as_array().and_then(|sizes| {
                        sizes.iter().map(|size| usize::try_from(size.as_u64()?).ok().filter(|size| *size > 0)).collect()
                    });
                    match sizes.as_deref() {
                        Some(&[outputs, inputs]) => [outputs, inputs],
                        _ => return refuse("weight_block_size", found, "two positive integers"),
                    }
                }
            };
            Ok(QuantisationMark::Fp8 { block })
        }
        _ => Ok(QuantisationMark::Other),
    }
}
