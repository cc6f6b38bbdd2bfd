//! Architectures of GGUF files, and the published names of their tensors.

use super::super::error::CheckpointError;

/// Architecture that is served from GGUF.
#[derive(Debug, PartialEq, Eq)]
pub struct GgufArchitecture {
    /// Value of `general.architecture`, and first part of the metadata's keys.
    pub name: &'static str,
    /// Name in config.json.
    pub published: &'static str,
    /// True if the rows of queries and keys are in the order of neighbours.
    pub permuted: bool,
    /// Names of a layer's tensors here and in published code, without `.weight` or `.bias`.
    layer: &'static [(&'static str, &'static str)],
}

/// Tensors of a layer that all architectures have.
const LAYER: [(&str, &str); 11] = [
    ("attn_norm", "input_layernorm"),
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_output", "self_attn.o_proj"),
    ("attn_q_norm", "self_attn.q_norm"),
    ("attn_k_norm", "self_attn.k_norm"),
    ("ffn_norm", "post_attention_layernorm"),
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_up", "mlp.up_proj"),
    ("ffn_down", "mlp.down_proj"),
];

/// Tensors of Gemma's layers, which norm the results of attention and of the feed-forward block.
const GEMMA3_LAYER: [(&str, &str); 13] = [
    ("attn_norm", "input_layernorm"),
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_output", "self_attn.o_proj"),
    ("attn_q_norm", "self_attn.q_norm"),
    ("attn_k_norm", "self_attn.k_norm"),
    ("post_attention_norm", "post_attention_layernorm"),
    ("ffn_norm", "pre_feedforward_layernorm"),
    ("post_ffw_norm", "post_feedforward_layernorm"),
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_up", "mlp.up_proj"),
    ("ffn_down", "mlp.down_proj"),
];

/// Tensors outside of layers, here and in published code.
const OUTSIDE: [(&str, &str); 4] = [
    // Below the prefix of the layers, whose positions it scales.
    ("rope_freqs.weight", "model.rope_freqs.weight"),
    ("token_embd.weight", "model.embed_tokens.weight"),
    ("output_norm.weight", "model.norm.weight"),
    ("output.weight", "lm_head.weight"),
];

/// Architectures that are served.
const ARCHITECTURES: [GgufArchitecture; 4] = [
    GgufArchitecture { name: "llama", published: "LlamaForCausalLM", permuted: true, layer: &LAYER },
    GgufArchitecture { name: "qwen2", published: "Qwen2ForCausalLM", permuted: false, layer: &LAYER },
    GgufArchitecture { name: "qwen3", published: "Qwen3ForCausalLM", permuted: false, layer: &LAYER },
    GgufArchitecture { name: "gemma3", published: "Gemma3ForCausalLM", permuted: false, layer: &GEMMA3_LAYER },
];

impl GgufArchitecture {
    /// Finds the architecture of a file, whose label is `file`.
    pub fn of(file: &str, name: &str) -> Result<&'static Self, CheckpointError> {
        static SERVED: [GgufArchitecture; ARCHITECTURES.len()] = ARCHITECTURES;
        SERVED.iter().find(|architecture| architecture.name == name).ok_or_else(|| CheckpointError::UnservedGguf {
            file: file.to_owned(),
            found: name.to_owned(),
            served: SERVED.iter().map(|architecture| architecture.name).collect::<Vec<_>>().join(", "),
        })
    }

    /// Published name of a tensor; `None` if the architecture has no such tensor.
    pub fn published_name(&self, name: &str) -> Option<String> {
        if let Some((_, published)) = OUTSIDE.iter().find(|(own, _)| *own == name) {
            return Some((*published).to_owned());
        }
        let (layer, rest) = name.strip_prefix("blk.")?.split_once('.')?;
        let (part, kind) = rest.rsplit_once('.').filter(|(_, kind)| ["weight", "bias"].contains(kind))?;
        let (_, published) = self.layer.iter().find(|(own, _)| *own == part)?;
        Some(format!("model.layers.{layer}.{published}.{kind}"))
    }

    /// Name in the file of a tensor with a published name; that name if there is none.
    pub fn own_name(&self, published: &str) -> String {
        if let Some((own, _)) = OUTSIDE.iter().find(|(_, name)| *name == published) {
            return (*own).to_owned();
        }
        let own = || {
            let (layer, rest) = published.strip_prefix("model.layers.")?.split_once('.')?;
            let (part, kind) = rest.rsplit_once('.')?;
            let (own, _) = self.layer.iter().find(|(_, name)| *name == part)?;
            Some(format!("blk.{layer}.{own}.{kind}"))
        };
        own().unwrap_or_else(|| published.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_translated_both_ways() {
        let qwen3 = GgufArchitecture::of("a.gguf", "qwen3").unwrap();
        for (own, published) in [
            ("token_embd.weight", "model.embed_tokens.weight"),
            ("output.weight", "lm_head.weight"),
            ("blk.0.attn_q.bias", "model.layers.0.self_attn.q_proj.bias"),
            ("blk.12.attn_k_norm.weight", "model.layers.12.self_attn.k_norm.weight"),
            ("blk.3.ffn_norm.weight", "model.layers.3.post_attention_layernorm.weight"),
        ] {
            assert_eq!(qwen3.published_name(own).as_deref(), Some(published));
            assert_eq!(qwen3.own_name(published), own);
        }
        for unknown in ["blk.0.ffn_gate_inp.weight", "blk.0", "cls.weight", "blk.0.attn_q", "blk.0.attn_q.scale"] {
            assert_eq!(qwen3.published_name(unknown), None, "{unknown}");
        }
        let error = GgufArchitecture::of("a.gguf", "mamba").unwrap_err().to_string();
        assert!(error.contains("`mamba`") && error.contains("llama, qwen2, qwen3, gemma3"), "{error}");
    }
}
