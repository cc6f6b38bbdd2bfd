//! The configuration of a GGUF file: its metadata in the fields of the published architecture's config.json.

use std::collections::BTreeMap;

use repartee_checkpoint::gguf::Gguf;
use serde_json::{Map, Value, json};

use super::super::error::{BadValue, CheckpointError};
use super::super::weights::Weights;
use super::architecture::GgufArchitecture;
use super::vocabulary::required_vocabulary;

/// Base of the rotary wavelengths if the file has none.
const THETA: f64 = 10_000.0;
/// Metadata that change what the model computes and are not served, with the only value that is.
const UNSERVED: [(&str, &str); 3] = [
    ("expert_count", "absent or 0: mixtures of experts are not served from GGUF"),
    ("attn_logit_softcapping", "absent or 0"),
    ("final_logit_softcapping", "absent or 0"),
];

/// Fields of scaled rotary positions, and their keys.
const SCALING: [(&str, &str); 4] = [
    ("factor", "rope.scaling.factor"),
    ("original_max_position_embeddings", "rope.scaling.original_context_length"),
    ("beta_fast", "rope.scaling.yarn_beta_fast"),
    ("beta_slow", "rope.scaling.yarn_beta_slow"),
];
/// The architecture whose files leave out much that is the same for all its sizes, or for all but one.
const GEMMA3: &str = "gemma3";
/// Layers of Gemma 3 27B, whose scores are scaled by the share of a head in the row.
const GEMMA3_27B: u64 = 62;

/// A configuration out of metadata.
#[derive(Debug)]
pub struct GgufConfig {
    /// Fields as config.json has them.
    pub json: Value,
    /// Metadata key of each field, by its path.
    pub keys: BTreeMap<String, String>,
}

/// Reads the configuration of a file; `weights` are its tensors.
///
/// # Errors
/// Metadata are missing, of another type, or not served.
pub fn read(gguf: &Gguf, weights: &Weights, architecture: &GgufArchitecture) -> Result<GgufConfig, CheckpointError> {
    let mut reader = MetadataReader { gguf, fields: Map::new(), keys: BTreeMap::new() };
    reader.refuse_unserved()?;
    for (field, key) in [
        ("hidden_size", "embedding_length"),
        ("num_hidden_layers", "block_count"),
        ("num_attention_heads", "attention.head_count"),
        ("intermediate_size", "feed_forward_length"),
        ("max_position_embeddings", "context_length"),
    ] {
        let size = reader.size(key)?.ok_or_else(|| reader.missing(key))?;
        reader.set(field, key, size.into());
    }
    let kv_heads = match reader.size("attention.head_count_kv")? {
        Some(kv_heads) => kv_heads.into(),
        None => reader.fields["num_attention_heads"].clone(),
    };
    reader.set("num_key_value_heads", "attention.head_count_kv", kv_heads);
    let head_dim = reader.head_dim()?;
    reader.set("head_dim", "attention.key_length", head_dim.into());
    let key = "attention.layer_norm_rms_epsilon";
    let epsilon = reader.number(key)?.ok_or_else(|| reader.missing(key))?;
    reader.set("rms_norm_eps", key, epsilon);
    let theta = reader.number("rope.freq_base")?.unwrap_or_else(|| THETA.into());
    let mut rope = json!({"rope_type": "default", "rope_theta": theta});
    if weights.has("model.rope_freqs.weight") {
        rope["rope_type"] = "stored".into();
    } else if let Some(kind) = gguf.text(&gguf.own_key("rope.scaling.type")).filter(|kind| *kind != "none") {
        rope["rope_type"] = kind.into();
        for (field, key) in SCALING {
            if let Some(number) = reader.number(key)? {
                rope[field] = number;
            }
        }
    }
    reader.set("rope_parameters", "rope", rope);
    for (field, key) in [("rope_type", "rope.scaling.type"), ("rope_theta", "rope.freq_base")].iter().chain(&SCALING) {
        reader.keys.insert(format!("rope_parameters.{field}"), gguf.own_key(key));
    }
    if architecture.name == GEMMA3 {
        reader.gemma(head_dim)?;
    }
    let embeddings = "model.embed_tokens.weight";
    let rows = weights.shape(embeddings).and_then(|shape| shape.first()).copied();
    let rows = rows.ok_or_else(|| weights.missing(embeddings))?;
    reader.fields.insert("vocab_size".to_owned(), rows.into());
    reader.keys.insert("vocab_size".to_owned(), format!("rows of {}", architecture.own_name(embeddings)));
    let has = |tensor: &str| weights.has(tensor);
    reader.fields.insert("tie_word_embeddings".to_owned(), (!has("lm_head.weight")).into());
    for (field, tensor) in
        [("attention_bias", "model.layers.0.self_attn.o_proj.bias"), ("mlp_bias", "model.layers.0.mlp.down_proj.bias")]
    {
        reader.fields.insert(field.to_owned(), has(tensor).into());
        reader.keys.insert(field.to_owned(), architecture.own_name(tensor));
    }
    if architecture.name == "llama" && has("model.layers.0.self_attn.q_proj.bias") {
        reader.fields.insert("attention_bias".to_owned(), true.into());
    }
    let ends = required_vocabulary(gguf)?.ends();
    if !ends.is_empty() {
        reader.fields.insert("eos_token_id".to_owned(), ends.into());
    }
    reader.keys.insert("eos_token_id".to_owned(), "tokenizer.ggml.eos_token_id".to_owned());
    reader.fields.insert("architectures".to_owned(), json!([architecture.published]));
    Ok(GgufConfig { json: Value::Object(reader.fields), keys: reader.keys })
}

/// Reads metadata of the architecture, by keys behind its name.
struct MetadataReader<'a> {
    gguf: &'a Gguf,
    fields: Map<String, Value>,
    keys: BTreeMap<String, String>,
}

impl MetadataReader<'_> {
    /// Sets a field and remembers its key.
    fn set(&mut self, field: &str, key: &str, value: Value) {
        self.fields.insert(field.to_owned(), value);
        self.keys.insert(field.to_owned(), self.gguf.own_key(key));
    }

    /// Adds the window, and the values that files of Gemma 3 leave out.
    fn gemma(&mut self, head_dim: u64) -> Result<(), CheckpointError> {
        let key = "attention.sliding_window";
        let window = self.size(key)?.ok_or_else(|| self.missing(key))?;
        self.set("sliding_window", key, window.into());
        let size = |field: &str| self.fields.get(field).and_then(Value::as_u64).unwrap_or(0);
        let scalar = match size("num_hidden_layers") {
            GEMMA3_27B => size("hidden_size").checked_div(size("num_attention_heads")).unwrap_or(head_dim),
            _ => head_dim,
        };
        self.fields.insert("query_pre_attn_scalar".to_owned(), scalar.into());
        self.fields.insert("hidden_activation".to_owned(), "gelu_pytorch_tanh".into());
        Ok(())
    }

    /// Size under a key; `None` if it is absent.
    fn size(&self, key: &str) -> Result<Option<u64>, CheckpointError> {
        let own = self.gguf.own_key(key);
        match self.gguf.integer(&own) {
            None if self.gguf.has(&own) => Err(self.wrong(key, "is no size; layers of different sizes are not served")),
            size => Ok(size),
        }
    }

    /// Number under a key, as the file's single precision prints it; `None` if it is absent.
    fn number(&self, key: &str) -> Result<Option<Value>, CheckpointError> {
        let own = self.gguf.own_key(key);
        match self.gguf.float(&own) {
            None => Ok(self.size(key)?.map(Value::from)),
            // A decimal of few digits, such as 1e-6, is the number that config.json has.
            Some(number) => Ok(Some(format!("{}", number as f32).parse::<f64>().unwrap_or(number).into())),
        }
    }

    /// Width of a head, for keys, values and their rotation.
    fn head_dim(&self) -> Result<u64, CheckpointError> {
        let share = || {
            let field = |name: &str| self.fields.get(name).and_then(Value::as_u64);
            field("hidden_size")?.checked_div(field("num_attention_heads")?)
        };
        let width = match self.size("attention.key_length")? {
            Some(width) => width,
            None => share().ok_or_else(|| self.wrong("attention.head_count", "is 0"))?,
        };
        for key in ["attention.value_length", "rope.dimension_count"] {
            if let Some(found) = self.size(key)?.filter(|found| *found != width) {
                let allowed = format!("absent, or the width of a head, which is {width}");
                return Err(self.refused(key, found.to_string(), allowed));
            }
        }
        Ok(width)
    }

    fn refuse_unserved(&self) -> Result<(), CheckpointError> {
        for (key, allowed) in UNSERVED {
            let own = self.gguf.own_key(key);
            let number = self.gguf.integer(&own).map(|number| number as f64).or_else(|| self.gguf.float(&own));
            if let Some(number) = number.filter(|number| *number != 0.0) {
                return Err(self.refused(key, number.to_string(), allowed.to_owned()));
            }
        }
        Ok(())
    }

    fn refused(&self, key: &str, value: String, allowed: String) -> CheckpointError {
        let value = BadValue { field: self.gguf.own_key(key), value, allowed };
        CheckpointError::BadValue { file: self.gguf.file().to_owned(), value }
    }

    fn wrong(&self, key: &str, message: &str) -> CheckpointError {
        let (file, field) = (self.gguf.file().to_owned(), self.gguf.own_key(key));
        CheckpointError::WrongField { file, field, message: message.to_owned() }
    }

    fn missing(&self, key: &str) -> CheckpointError {
        self.wrong(key, "absent")
    }
}
