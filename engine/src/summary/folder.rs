//! Summary of a checkpoint in a folder.

use safetensors::Dtype;
use serde_json::Value;

use super::checkpoint_summary::{CheckpointSummary, totals};
use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::models::FAMILIES;
use crate::models::family::claimed;

/// Files with a tokenizer, in the order of preference.
const TOKENIZERS: [&str; 3] = ["tokenizer.json", "tokenizer.model", "vocab.json"];
/// Files with a template alone.
const TEMPLATES: [&str; 2] = ["chat_template.jinja", "chat_template.json"];
/// Sizes of a stack of layers in config.json, with their names here; published configurations use either name of the
/// first three.
const SIZES: [(&[&str], &str); 6] = [
    (&["num_hidden_layers", "encoder_layers"], "layers"),
    (&["hidden_size", "d_model"], "width"),
    (&["num_attention_heads", "encoder_attention_heads"], "heads"),
    (&["num_key_value_heads"], "heads of keys and values"),
    (&["max_position_embeddings"], "context"),
    (&["vocab_size"], "tokens"),
];

pub(super) fn summarise(checkpoint: &Checkpoint) -> Result<CheckpointSummary, CheckpointError> {
    let mut stacks = Vec::new();
    if checkpoint.has_file(crate::checkpoint::CONFIG) {
        collect_stacks("", &checkpoint.config::<Value>()?, &mut stacks);
    }
    let tensors: Vec<(Dtype, u64)> = checkpoint.tensor_formats().collect();
    // Floats of eight bits become bfloat16.
    let memory = tensors.iter().map(|(dtype, bytes)| if *dtype == Dtype::F8_E4M3 { 2 * bytes } else { *bytes }).sum();
    let settings = checkpoint.json_file::<Value>("tokenizer_config.json")?;
    let has_template =
        settings.is_some_and(|settings| settings.get("chat_template").is_some_and(|found| !found.is_null()));
    let in_a_file = TEMPLATES.iter().find(|file| checkpoint.has_file(file));
    Ok(CheckpointSummary {
        form: checkpoint.form(),
        architecture: checkpoint.architectures().into_iter().next(),
        stacks,
        tensors: totals(tensors.into_iter().map(|(dtype, bytes)| (format!("{dtype:?}"), bytes))),
        tokenizer: TOKENIZERS.iter().find(|file| checkpoint.has_file(file)).map(|file| (*file).to_owned()),
        template: in_a_file.copied().or(has_template.then_some("tokenizer_config.json")).map(str::to_owned),
        memory,
        served: match claimed(FAMILIES, checkpoint) {
            Ok((family, _)) => Ok(family.name.to_owned()),
            Err(error) => Err(error.to_string()),
        },
    })
}

/// Describes each object of a configuration that has layers, under its path.
fn collect_stacks(at: &str, config: &Value, stacks: &mut Vec<String>) {
    let Value::Object(fields) = config else { return };
    let size = |names: &[&str]| names.iter().find_map(|name| fields.get(*name)?.as_u64());
    if size(SIZES[0].0).is_some() {
        let sizes = SIZES.iter().filter_map(|(names, word)| Some((size(names)?, word)));
        let sizes: Vec<_> = sizes.map(|(size, word)| described(size, word)).collect();
        let at = if at.is_empty() { "" } else { &format!("{at}: ") };
        stacks.push(format!("{at}{}", sizes.join(", ")));
    }
    for (name, value) in fields {
        let below = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
        collect_stacks(&below, value, stacks);
    }
}

/// Describes one size: `12 layers`, but `width 512`.
pub(super) fn described(size: u64, word: &str) -> String {
    match word {
        "width" | "context" => format!("{word} {size}"),
        _ => format!("{size} {word}"),
    }
}
