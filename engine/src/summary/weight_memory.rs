//! Estimated memory of a checkpoint's weights, by the setting `engine.weights`.

use safetensors::Dtype;
use serde_json::Value;

use crate::checkpoint::{Checkpoint, CheckpointError, Source, TensorSize};
use crate::weight_policy::WeightPolicy;

/// Sixteenths of a byte of a weight in bfloat16, in eight bits and in four; the scales of the groups are included.
const BF16: u64 = 32;
const INT8: u64 = 17;
const INT4: u64 = 9;

/// Kind of a tensor, by which `engine.weights` chooses its format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TensorKind {
    Matrix,
    /// Embedding table.
    Table,
    /// Matrices of experts.
    Experts,
    /// A tensor that no policy quantises.
    Other,
}

impl TensorKind {
    fn of(name: &str, rank: usize) -> Self {
        let experts = name.contains(".experts.");
        match rank {
            2 | 3 if experts => Self::Experts,
            2 if name.contains("embed") => Self::Table,
            2 => Self::Matrix,
            _ => Self::Other,
        }
    }

    /// Sixteenths of a byte of a weight.
    fn sixteenths(self, policy: WeightPolicy) -> u64 {
        match (policy, self) {
            (WeightPolicy::Bf16, _) | (_, Self::Other) => BF16,
            (WeightPolicy::Int4, Self::Matrix | Self::Experts) | (WeightPolicy::Mixed, Self::Experts) => INT4,
            (WeightPolicy::Int4 | WeightPolicy::Mixed | WeightPolicy::Int8, _) => INT8,
        }
    }
}

/// Estimates the bytes of a checkpoint's weights in memory. Parts in folders of their own, such as a codec, are left out. Reads
/// headers and configuration alone.
///
/// # Errors
/// A file is missing or malformed.
pub fn weight_memory(source: &Source, policy: WeightPolicy) -> Result<u64, CheckpointError> {
    let checkpoint = Checkpoint::open(source.clone())?;
    if checkpoint.drawn().is_some() {
        return Ok(stacks_memory(&checkpoint.config::<Value>()?, policy));
    }
    Ok(checkpoint.tensor_sizes().map(|tensor| tensor_memory(&tensor, policy)).fold(0, u64::saturating_add))
}

fn tensor_memory(tensor: &TensorSize<'_>, policy: WeightPolicy) -> u64 {
    let kind = TensorKind::of(tensor.name, tensor.rank);
    let quantised = policy != WeightPolicy::Bf16 && kind != TensorKind::Other;
    let size = match tensor.dtype {
        Dtype::F32 => 4,
        Dtype::F16 | Dtype::BF16 => 2,
        Dtype::F8_E4M3 => 1,
        // Integers of a quantised checkpoint stay as they are.
        _ => return tensor.bytes,
    };
    match (quantised, tensor.dtype) {
        (true, _) => scaled(tensor.bytes / size, kind.sixteenths(policy)),
        // Floats of eight bits become bfloat16.
        (false, Dtype::F8_E4M3) => tensor.bytes.saturating_mul(2),
        (false, _) => tensor.bytes,
    }
}

/// Bytes of all stacks of layers that a configuration describes, those within other fields included.
fn stacks_memory(config: &Value, policy: WeightPolicy) -> u64 {
    let within: Box<dyn Iterator<Item = &Value>> = match config {
        Value::Object(fields) => Box::new(fields.values()),
        Value::Array(values) => Box::new(values.iter()),
        _ => return 0,
    };
    within.map(|value| stacks_memory(value, policy)).fold(stack_memory(config, policy), u64::saturating_add)
}

/// Bytes of one stack of transformer layers and its tables; 0 for an object that describes none.
fn stack_memory(config: &Value, policy: WeightPolicy) -> u64 {
    let size = |names: &[&str]| names.iter().find_map(|name| config.get(*name)?.as_u64());
    let (Some(layers), Some(width)) =
        (size(&["num_hidden_layers", "n_layers", "encoder_layers"]), size(&["hidden_size", "d_model"]))
    else {
        return 0;
    };
    let product = |sizes: &[u64]| sizes.iter().fold(1, |product: u64, &size| product.saturating_mul(size));
    let heads = size(&["num_attention_heads", "encoder_attention_heads"]).unwrap_or(1).max(1);
    let keys = size(&["num_key_value_heads"]).unwrap_or(heads);
    let head = size(&["head_dim"]).unwrap_or(width / heads);
    let mut matrices = product(&[2, width, head, heads.saturating_add(keys)]);
    let mut experts = 0;
    match size(&["num_experts", "num_local_experts"]).filter(|&count| count > 0) {
        Some(count) => {
            experts = product(&[count, 3, width, size(&["moe_intermediate_size"]).unwrap_or(0)]);
            let shared = size(&["shared_expert_intermediate_size"]).unwrap_or(0);
            matrices = matrices.saturating_add(product(&[3, width, shared]));
        }
        None => {
            let gated = size(&["intermediate_size", "mlp_hidden_size"]).map(|inner| product(&[3, width, inner]));
            let plain = size(&["encoder_ffn_dim"]).map(|inner| product(&[2, width, inner]));
            matrices = matrices.saturating_add(gated.or(plain).unwrap_or(0));
        }
    }
    let tied = config.get("tie_word_embeddings").and_then(Value::as_bool).unwrap_or(false);
    let table = product(&[size(&["new_vocab_size", "vocab_size"]).unwrap_or(0), width, if tied { 1 } else { 2 }]);
    [
        (product(&[layers, matrices]), TensorKind::Matrix),
        (product(&[layers, experts]), TensorKind::Experts),
        (table, TensorKind::Table),
    ]
    .into_iter()
    .map(|(count, kind)| scaled(count, kind.sixteenths(policy)))
    .fold(0, u64::saturating_add)
}

fn scaled(count: u64, sixteenths: u64) -> u64 {
    (u128::from(count) * u128::from(sixteenths) / 16).try_into().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::checkpoint::Synthetic;

    fn published(name: &str, policy: WeightPolicy) -> f64 {
        let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../models/dimensions")).join(name);
        let source = Source::Synthetic(Synthetic { folder, seed: 0, layers: None, skewed: false });
        weight_memory(&source, policy).unwrap() as f64 / 1e9
    }

    #[test]
    fn published_dimensions_need_what_they_take() {
        // docs/cpu.md: 35 billion weights, 18.7 GiB resident with int4.
        let [bf16, int4] =
            [WeightPolicy::Bf16, WeightPolicy::Int4].map(|policy| published("qwen3-omni-30b-a3b", policy));
        assert!((63.0..75.0).contains(&bf16), "{bf16}");
        assert!((17.5..21.0).contains(&int4), "{int4}");
        // Seven billion weights of layers, and both tables, of whose second the model keeps a small part.
        let other = published("dynin-omni", WeightPolicy::Bf16);
        assert!((16.0..17.0).contains(&other), "{other}");
    }

    #[test]
    fn formats_of_tensors_follow_the_policy() {
        let size = |name, dtype, rank, bytes| TensorSize { name, dtype, rank, bytes };
        let matrix = size("layers.0.mlp.up_proj.weight", Dtype::BF16, 2, 3_200);
        let expert = size("layers.0.mlp.experts.7.up_proj.weight", Dtype::BF16, 2, 3_200);
        let table = size("embed_tokens.weight", Dtype::F32, 2, 6_400);
        let norm = size("layers.0.norm.weight", Dtype::BF16, 1, 3_200);
        let packed = size("layers.0.mlp.up_proj.weight_packed", Dtype::I32, 2, 3_200);
        let float8 = size("layers.0.mlp.up_proj.weight", Dtype::F8_E4M3, 2, 1_600);
        for (policy, expected) in [
            (WeightPolicy::Bf16, [3_200, 3_200, 6_400, 3_200, 3_200, 3_200]),
            (WeightPolicy::Int8, [1_700, 1_700, 1_700, 3_200, 3_200, 1_700]),
            (WeightPolicy::Int4, [900, 900, 1_700, 3_200, 3_200, 900]),
            (WeightPolicy::Mixed, [1_700, 900, 1_700, 3_200, 3_200, 1_700]),
        ] {
            let found = [&matrix, &expert, &table, &norm, &packed, &float8].map(|one| tensor_memory(one, policy));
            assert_eq!(found, expected, "{policy:?}");
        }
    }

    #[test]
    fn absurd_sizes_do_not_overflow() {
        let config =
            serde_json::json!({"num_hidden_layers": u64::MAX, "hidden_size": u64::MAX, "vocab_size": u64::MAX});
        assert_eq!(stacks_memory(&config, WeightPolicy::Bf16), u64::MAX);
    }
}
