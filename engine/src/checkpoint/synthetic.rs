//! Synthetic checkpoints: a published configuration with random weights, to measure models whose weights are not on
//! this machine. The output of such a model is noise.

use std::path::PathBuf;

use repartee_kernels::RandomDraw;
use serde_json::Value;

/// Fields of config.json that count a stack's layers, or name one of them.
const LAYERS: [&str; 9] = [
    "num_hidden_layers",
    "n_layers",
    "num_layers",
    "depth",
    "encoder_layers",
    "decoder_layers",
    "vocoder_num_layers",
    "accept_hidden_layer",
    "encoder_skip_layer_id",
];
/// Fields of config.json that count a stack's layers.
const COUNTS: [&str; 3] = ["num_hidden_layers", "n_layers", "encoder_layers"];
/// Names of a stack's layers within those of tensors.
const LAYER_LISTS: [&str; 3] = ["layers.", "transformer_blocks.", "transformer.blocks."];
/// Fields that list layer numbers of a stack, in ascending order.
const LISTS: [&str; 2] = ["look_ahead_layers", "look_backward_layers"];
/// Field that lists a kind for each layer of a stack.
const KINDS: &str = "layer_types";

/// Ends of names of vectors that something is divided by, or by the root of.
const DIVISORS: [&str; 2] = ["cluster_usage", "running_var"];

/// A checkpoint with random weights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Synthetic {
    /// Folder with all files of a published checkpoint but its weights: config.json, the tokenizer and friends.
    pub folder: PathBuf,
    /// Seed of the weights.
    pub seed: u64,
    /// Upper bound of layers of each stack; `None` for as many as config.json says.
    pub layers: Option<usize>,
    /// True if some experts are chosen far more often than others.
    pub skewed: bool,
}

/// Random distribution of a checkpoint's tensors.
#[derive(Debug, Clone, Copy)]
pub(super) struct RandomWeights {
    pub(super) seed: u64,
    pub(super) skewed: bool,
    /// Upper bound of layers of each stack.
    pub(super) layers: Option<usize>,
}

impl RandomWeights {
    /// Limits the layers of a configuration to the upper bound, if there is one.
    pub(super) fn limit(self, config: &mut Option<Value>) {
        if let (Some(config), Some(most)) = (config, self.layers) {
            limit_layers(config, most);
        }
    }

    /// Distribution of a tensor: weights of norms and divisors near 1, other vectors near 0. Matrices are scaled so
    /// that their output has about the magnitude of their input.
    pub(super) fn tensor(self, name: &str, shape: &[usize]) -> RandomDraw {
        // Hash function FNV-1a.
        let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let seed = name.bytes().fold(0xcbf2_9ce4_8422_2325 ^ self.seed, hash);
        let is_norm = (name.contains("norm") || name.contains("ln_")) && name.ends_with("weight");
        match shape {
            [_] if is_norm || DIVISORS.iter().any(|divisor| name.ends_with(divisor)) => {
                RandomDraw { seed, mean: 1.0, spread: 0.1 }
            }
            [_] => RandomDraw { seed, mean: 0.0, spread: 0.02 },
            [_, inputs @ ..] => {
                let inputs = inputs.iter().product::<usize>().max(1);
                RandomDraw { seed, mean: 0.0, spread: (3.0 / inputs as f32).sqrt() }
            }
            [] => RandomDraw { seed, mean: 0.0, spread: 1.0 },
        }
    }
}

/// Counts the layers of every stack in a configuration.
pub(super) fn count_layers(config: &Value) -> u64 {
    let count = |(name, value): (&String, &Value)| match value.as_u64() {
        Some(layers) if COUNTS.contains(&name.as_str()) => layers,
        _ => count_layers(value),
    };
    match config {
        Value::Object(fields) => fields.iter().map(count).fold(0, u64::saturating_add),
        Value::Array(values) => values.iter().map(count_layers).fold(0, u64::saturating_add),
        _ => 0,
    }
}

/// Path of the layer that a tensor belongs to, such as `model.layers.3`; `None` for a tensor outside layers.
pub(super) fn layer_of(name: &str) -> Option<&str> {
    let (at, list) = LAYER_LISTS.iter().find_map(|list| Some((name.find(list)?, list)))?;
    let number = at + list.len();
    let digits = name[number..].bytes().take_while(u8::is_ascii_digit).count();
    (digits > 0).then(|| &name[..number + digits])
}

/// Limits the layers of every stack in a configuration.
fn limit_layers(config: &mut Value, most: usize) {
    match config {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::Array(numbers) if LISTS.contains(&name.as_str()) => {
                        let last = (most as u64).saturating_sub(1);
                        numbers.iter_mut().for_each(|number| *number = number.as_u64().unwrap_or(0).min(last).into());
                        numbers.dedup();
                    }
                    Value::Array(kinds) if name == KINDS => kinds.truncate(most),
                    _ => match value.as_u64() {
                        Some(layers) if LAYERS.contains(&name.as_str()) => *value = layers.min(most as u64).into(),
                        _ => limit_layers(value, most),
                    },
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| limit_layers(value, most)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_stack_is_limited() {
        let mut config = json!({
            "thinker": {"text": {"num_hidden_layers": 48, "hidden_size": 2048}, "audio": [{"encoder_layers": 32}]},
            "talker": {"accept_hidden_layer": 24, "num_hidden_layers": 1},
            "dit": {"num_hidden_layers": 22, "look_ahead_layers": [10], "look_backward_layers": [0, 12, 20]},
            "lfm": {"num_hidden_layers": 4, "layer_types": ["conv", "conv", "full_attention", "conv"]},
            "codec": {"encoder_layers": 32, "encoder_skip_layer_id": 3, "flow": {"depth": 8}},
        });
        limit_layers(&mut config, 2);
        let expected = json!({
            "thinker": {"text": {"num_hidden_layers": 2, "hidden_size": 2048}, "audio": [{"encoder_layers": 2}]},
            "talker": {"accept_hidden_layer": 2, "num_hidden_layers": 1},
            "dit": {"num_hidden_layers": 2, "look_ahead_layers": [1], "look_backward_layers": [0, 1]},
            "lfm": {"num_hidden_layers": 2, "layer_types": ["conv", "conv"]},
            "codec": {"encoder_layers": 2, "encoder_skip_layer_id": 2, "flow": {"depth": 2}},
        });
        assert_eq!(config, expected);
    }

    #[test]
    fn layers_are_counted_and_named() {
        let config = json!({
            "thinker": {"text": {"num_hidden_layers": 48}, "audio": [{"encoder_layers": 32}]},
            "talker": {"accept_hidden_layer": 24, "num_hidden_layers": 1},
        });
        assert_eq!(count_layers(&config), 81);
        assert_eq!(layer_of("thinker.model.layers.12.mlp.experts.3.up"), Some("thinker.model.layers.12"));
        assert_eq!(layer_of("dit.transformer_blocks.0.attn.q"), Some("dit.transformer_blocks.0"));
        assert_eq!((layer_of("embed_tokens.weight"), layer_of("layers.norm.weight")), (None, None));
    }

    #[test]
    fn tensors_differ_by_name_and_seed() {
        let drawing = RandomWeights { seed: 1, skewed: false, layers: None };
        let a = drawing.tensor("a.weight", &[4, 3]);
        assert_ne!(a.seed, drawing.tensor("b.weight", &[4, 3]).seed);
        assert_ne!(a.seed, RandomWeights { seed: 2, ..drawing }.tensor("a.weight", &[4, 3]).seed);
        assert_eq!((a.mean, a.spread), (0.0, 1.0));
        assert_eq!(drawing.tensor("input_layernorm.weight", &[4]).mean, 1.0);
        assert_eq!(drawing.tensor("proj.bias", &[4]).mean, 0.0);
        assert_eq!(drawing.tensor("conv.batch_norm.running_var", &[4]).mean, 1.0);
    }
}
